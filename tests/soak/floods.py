# SPDX-License-Identifier: BSD-3-Clause
"""Offer all of it to a peer that does not read; then the peer reads.

The count is in MiB. What the peer holds, and what the sender holds beside the
data, stays below the credit limit; another connection to the same peer works
all the time; each message arrives, in order.
"""

import asyncio
import sys

import ucp

MIB = 1 << 20
CREDIT = 16 * MIB
BATCH = 64
# Eager messages and announced ones; each batch goes with a tag of its own.
SIZES = [60_000, MIB]

_PEER = """
import asyncio, os, sys, ucp
async def main(sizes):
    # It may not outlive whoever floods it.
    asyncio.get_running_loop().add_reader(0, os._exit, 1)
    listener = ucp.create_listener(host="127.0.0.1")
    print(listener.port, flush=True)
    control, ep = await anext(listener), await anext(listener)
    buffers = [bytearray(size) for size in sizes]
    tag = 0
    while True:
        try:
            more = int.from_bytes(await control.recv_obj(), "little")
        except ucp.UCXCloseError:
            await asyncio.gather(control.close(), ep.close())
            return
        for tag in range(tag, tag + more):
            buffer = buffers[tag % len(sizes)]
            for _ in range({batch}):
                await ep.recv(buffer, tag=tag)
            assert buffer[0] == buffer[-1] == tag % len(sizes) + 1
        tag += more != 0
        await control.send(b"done")
ucp.init(config=ucp.Config(credit_bytes={credit}))
asyncio.run(main([int(size) for size in sys.argv[1:]]))
"""


async def run(count):
    peer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", _PEER.format(batch=BATCH, credit=CREDIT)),
        *map(str, SIZES),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        port = int(await peer.stdout.readline())
        control = await ucp.create_endpoint("127.0.0.1", port)
        ep = await ucp.create_endpoint("127.0.0.1", port)
        done = await _flood(peer.pid, control, ep, count * MIB)
        await asyncio.gather(control.close(), ep.close())
        # The peer hears of the close, and ends by itself.
        assert await peer.wait() == 0
    finally:
        if peer.returncode is None:
            peer.kill()
            await peer.wait()
    return done


async def _flood(pid, control, ep, nbytes):
    data = [bytes([number + 1]) * size for number, size in enumerate(SIZES)]
    warm_up = [ep.send_many([each] * BATCH, tag) for tag, each in enumerate(data)]
    await _read(control, len(data))
    await asyncio.gather(*warm_up)
    own, peers = _Memory("self"), _Memory(pid)

    sends = []
    while (offered := ep.pending_bytes) < nbytes:
        tag = len(data) + len(sends)
        sends.append(ep.send_many([data[tag % len(data)]] * BATCH, tag))
    await _until_stuck(control, ep)
    assert offered - ep.pending_bytes <= CREDIT
    stuck = own.growth(), peers.growth()
    await _read(control, len(sends))
    await asyncio.gather(*sends)
    assert ep.pending_bytes == 0
    grown = own.growth(), peers.growth()
    words = f"{offered >> 20} MiB, at most {grown} MiB (stuck: {stuck})"
    assert max(grown) <= 1.1 * CREDIT / MIB, words
    return words


async def _read(control, batches):
    """Let the peer read so many."""
    await control.send(batches.to_bytes(4, "little"))
    assert await control.recv_obj() == b"done"


async def _until_stuck(control, ep):
    """Until nothing more goes while the peer answers elsewhere."""
    pending = -1
    while pending != ep.pending_bytes:
        pending = ep.pending_bytes
        for _ in range(100):
            await _read(control, 0)


class _Memory:
    """The highest resident size of a process from now on, as growth."""

    def __init__(self, pid):
        self._path = f"/proc/{pid}/"
        with open(self._path + "clear_refs", "w") as clear_refs:
            clear_refs.write("5")
        self._before = self._kib("VmRSS")

    def growth(self):
        """In MiB."""
        return round((self._kib("VmHWM") - self._before) / 1024, 1)

    def _kib(self, key):
        with open(self._path + "status") as status:
            for line in status:
                if line.startswith(key + ":"):
                    return int(line.split()[1])
        raise AssertionError(key)
