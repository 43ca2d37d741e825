# SPDX-License-Identifier: BSD-3-Clause
"""A program as ucx-py's users write them."""

import asyncio
import subprocess
import sys

import numpy as np
import pytest
import zygote

import ucp

# The server and the client of such a program, in one file.
PROGRAM = """
import asyncio, pickle, sys
import numpy as np
import ucp

N = 10

async def server():
    async def handle(ep):
        shape = np.empty(1, dtype="u8")
        await ep.recv(shape)
        array = np.empty(int(shape[0]), dtype="f8")
        await ep.recv(array)
        await ep.send(array * 2)
        obj = pickle.loads(await ep.recv_obj())
        await ep.send_obj(pickle.dumps(obj[::-1]), tag="reply")
        await ep.close()
        listener.close()

    listener = ucp.create_listener(handle, 0)
    print(listener.port, flush=True)
    while not listener.closed():
        await asyncio.sleep(0.01)

async def client(port):
    ep = await ucp.create_endpoint("127.0.0.1", port, endpoint_error_handling=True)
    await ep.send(np.array([N], dtype="u8"))
    await ep.send(np.arange(N, dtype="f8"))
    back = np.empty(N, dtype="f8")
    await ep.recv(back)
    np.testing.assert_array_equal(back, 2 * np.arange(N))
    await ep.send_obj(pickle.dumps([1, "two"]))
    assert pickle.loads(await ep.recv_obj(tag="reply")) == ["two", 1]
    try:
        await ep.recv(back)
    except (ucp.exceptions.UCXCanceled, ucp.exceptions.UCXCloseError):
        pass  # pending when the server closed, or called after it
    else:
        raise AssertionError("the server has closed")
    await ep.close()
    assert ep.closed()

if __name__ == "__main__":
    ucp.init({}, env_takes_precedence=True)
    main = client(int(sys.argv[1])) if len(sys.argv) > 1 else server()
    asyncio.get_event_loop_policy().new_event_loop().run_until_complete(main)
"""


def test_a_program_in_two_processes():
    command = [sys.executable, "-P", "-W", "ignore::DeprecationWarning", "-c", PROGRAM]
    server = zygote.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().strip()
        zygote.run([*command, port], check=True)
        assert server.wait() == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


async def test_close_by_the_listening_side_is_seen_as_cancelled():
    async def server(ep):
        await ep.close()

    listener = ucp.create_listener(server)
    client = await ucp.create_endpoint("127.0.0.1", listener.port)
    with pytest.raises(ucp.exceptions.UCXCanceled):
        await client.recv(np.empty(100, dtype=np.int64))
    await client.close()
    listener.close()


async def test_operations_may_be_gathered_and_shielded():
    received = []

    async def server(ep):
        buffers = [np.empty(5, dtype="u1") for _ in range(20)]
        await asyncio.gather(*(ep.recv(buffer) for buffer in buffers))
        received.extend(buffers)
        await asyncio.shield(ep.send(np.ones(1)))

    listener = ucp.create_listener(server)
    ep = await ucp.create_endpoint("127.0.0.1", listener.port)
    await asyncio.gather(*(ep.send(np.full(5, i, dtype="u1")) for i in range(20)))
    await asyncio.wait_for(ep.recv(np.empty(1)), 30)
    assert [buffer[0] for buffer in received] == list(range(20))
    await ep.close()


async def test_abort_in_the_callback_is_seen():
    listener = ucp.create_listener(lambda ep: ep.abort())
    ep = await ucp.create_endpoint("127.0.0.1", listener.port)
    with pytest.raises(ucp.exceptions.UCXBaseException):
        await ep.recv(np.empty(10))
    listener.close()
