# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/request
"""Every kind of operation, cancelled, failing or delayed at each step of UCX.

What must hold: both awaits end; the memory is the caller's then; and the endpoints
can still be used, or say that they cannot. tests/c/ops/test_op_steps.c is the same
for libumx.
"""

import pytest
from steps import run_steps

PROGRAM = """
import logging

FAULT = sys.argv[1]
if FAULT == "fail":
    logging.disable()  # endpoints that end say so
SIZES = (100, 70_000)
DATA = {size: bytes(range(250)) * (size // 250 + 1) for size in SIZES}


class Scene:
    def __init__(self, client, server, size):
        self.client, self.server, self.size = client, server, size
        self.sent = bytearray(DATA[size][:size])
        self.got = bytearray(size)


def channel(it):
    return it.server.recv(it.got, tag=7), it.client.send(it.sent, tag=7)


def late(it):
    sending = it.client.send(it.sent, tag=7)
    return it.server.recv(it.got, tag=7), sending


def objects(it):
    return it.server.recv_obj(), it.client.send_obj(it.sent)


def frames(it):
    half = it.size // 2
    out, into = memoryview(it.sent), memoryview(it.got)
    return (
        it.server.recv_frames(into=[into[:half], into[half:]]),
        it.client.send_frames([out[:half], out[half:]]),
    )


def pickles(it):
    return it.server.recv_pickle(allow_pickle=True), it.client.send_pickle(it.sent)


def active(it):
    return it.server.am_recv(id=55), it.client.am_send(it.sent, id=55)


def stream(it):
    return it.server.stream_recv(it.got, wait_all=True), it.client.stream_send(it.sent)


def cancel(operation):
    if not operation.done():
        operation.cancel()


def is_bad(operation):
    return operation.done() and (operation.cancelled() or operation.exception())


async def finish(receiving, sending):
    victim = {"send": sending, "recv": receiving}.get(FAULT)
    while not (receiving.done() and sending.done()):
        if victim is not None and steps_reached():
            cancel(victim)
        if is_bad(receiving) or is_bad(sending):
            cancel(receiving), cancel(sending)
        await asyncio.sleep(0)


async def check_endpoints(client, server):
    text = bytearray(9)
    operations = server.recv(text, tag=99), client.send(b"as before", tag=99)
    ends = await asyncio.gather(*operations, return_exceptions=True)
    if ends == [None, None]:
        assert text == b"as before"
        return
    while not (client.closed() and server.closed()):
        await asyncio.sleep(0)


async def run(kind, size, k):
    async with connected_pair() as (client, server):
        it = Scene(client, server, size)
        steps_begin(k, {"fail": FAIL, "delay": DELAY}.get(FAULT, COUNT))
        receiving, sending = map(asyncio.ensure_future, kind(it))
        await finish(receiving, sending)
        has_reached = steps_reached()
        steps_end()
        if is_bad(receiving) or is_bad(sending):
            assert FAULT != "delay", (receiving, sending)
        elif isinstance(receiving.result(), (bytes, bytearray)):
            assert receiving.result() == it.sent
        elif kind is not active:
            assert it.got == it.sent
        it.got[:] = it.sent[:] = b"Z" * size
        await check_endpoints(client, server)
        assert it.got == it.sent == b"Z" * size
    return has_reached


async def main():
    for kind in channel, late, objects, frames, pickles, active, stream:
        for size in SIZES:
            k = 1
            while await run(kind, size, k):
                k += 1
                assert k < 300
            assert k > 2, (kind, size)


asyncio.run(main())
"""


@pytest.mark.parametrize("fault", ["fail", "delay", "send", "recv"])
def test_each_step(fault):
    run_steps(PROGRAM, fault)
