# SPDX-License-Identifier: BSD-3-Clause
# In examples/native, once README.md's command has built the modules:
#
#   python batch_demo.py
"""Python connects, C posts, Python awaits: batch.pyx."""

import asyncio
import sys
from pathlib import Path

import numpy as np

import ucp

sys.path.insert(0, str(Path(__file__).parent))
import batch


async def main() -> None:
    worker = ucp.current_worker()
    async with ucp.create_listener(host="127.0.0.1") as listener:
        client = await ucp.create_endpoint("127.0.0.1", listener.port)
        server = await anext(listener)

    text = bytearray(5)
    receiving = batch.recv(worker, text, tag=1)
    await batch.send(client, b"hello", tag=1)
    await receiving
    print(text.decode())

    rows = np.arange(8_000, dtype="f8").reshape(1000, 8)
    copy = np.zeros_like(rows)
    receiving = batch.recv_rows(worker, copy, tag=100)
    await batch.send_rows(client, rows, tag=100)
    print(await receiving, "rows,", "equal" if (rows == copy).all() else "different")

    await client.close()
    await server.close()


asyncio.run(main())
