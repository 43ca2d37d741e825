# SPDX-License-Identifier: BSD-3-Clause
# python examples/numpy_roundtrip.py
"""Send a NumPy array, and receive into one without a copy."""

import asyncio
import sys
import time

import numpy as np

import ucp


async def double(ep):
    """The server: receive a matrix, multiply it by two and send it back."""
    matrix = np.empty((1000, 1000))
    await ep.recv(matrix)
    await ep.send(matrix * 2)


async def main():
    matrix = np.random.default_rng(0).random((1000, 1000))
    result = np.zeros_like(matrix)
    async with ucp.create_listener(double, host="127.0.0.1") as listener:
        async with ucp.connect("127.0.0.1", listener.port) as ep:
            begun = time.perf_counter()
            await ep.send(matrix)
            await ep.recv(result)
            seconds = time.perf_counter() - begun
    print("same" if np.array_equal(result, 2 * matrix) else "different")
    print(f"there and back in {seconds * 1e3:.1f} ms: 16 MB and a product")


try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
