# SPDX-License-Identifier: BSD-3-Clause
# python cupy_roundtrip.py
"""A CuPy array there and back, from device memory into device memory.

Nothing is synchronised by hand: the stream that an array names is waited for.
"""

import asyncio

import cupy as cp

import ucp


async def double(ep):
    """The server: receive a matrix, send it back times two."""
    matrix = cp.empty((1000, 1000))
    await ep.recv(matrix)
    await ep.send(matrix * 2)


async def main():
    matrix = cp.random.random((1000, 1000))
    result = cp.empty_like(matrix)
    async with ucp.create_listener(double, host="127.0.0.1") as listener:
        async with ucp.connect("127.0.0.1", listener.port) as ep:
            await ep.send(matrix)
            await ep.recv(result)
    print("same" if cp.array_equal(result, 2 * matrix) else "different")


asyncio.run(main())
