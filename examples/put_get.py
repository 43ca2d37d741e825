# SPDX-License-Identifier: BSD-3-Clause
# python examples/put_get.py            the owner of the memory: prints where it listens
# python examples/put_get.py HOST PORT  reads and writes it
# python examples/put_get.py --self     both sides, in two processes
"""One-sided transfers: a peer reads and writes memory of this process by a key.

The owner of the memory sends the key and waits. It takes no part in the operations
of the other side, which sends a message when it has finished.
"""

import asyncio
import subprocess
import sys
import time

import numpy as np

import ucp

LENGTH = 1_000_000  # numbers; the counter is behind them


async def own():
    memory = ucp.Memory.allocate(8 * (LENGTH + 1))
    numbers = np.frombuffer(memory, dtype="i8")
    numbers[:LENGTH] = np.arange(LENGTH)
    async with ucp.create_listener(host="127.0.0.1") as listener:
        print(f"listening on {listener.host}:{listener.port}", flush=True)
        ep = await listener.accept()
    await ep.send_obj(memory.key)
    await ep.recv(bytearray(4))  # "done"
    print("first", numbers[0], "last", numbers[LENGTH - 1], "counter", numbers[LENGTH])
    await ep.close()


async def use(host, port):
    async with ucp.connect(host, port) as ep:
        remote = ep.remote(await ep.recv_obj())
        numbers = np.zeros(LENGTH, dtype="i8")
        begun = time.perf_counter()
        await remote.get(numbers)
        rate = numbers.nbytes / (time.perf_counter() - begun) / 1e9
        print(f"sum {numbers.sum()}, read at {rate:.1f} GB/s")
        await remote.put(numbers[::-1].copy())
        for _ in range(10):
            await remote.fetch_add(8 * LENGTH, 1)
        await ep.send(b"done")


def both_sides():
    """Start the other side as a process, and connect to it."""
    command = [sys.executable, "-P", __file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            host, port = other.stdout.readline().split()[-1].split(":")
            asyncio.run(use(host, int(port)))
            print(other.stdout.read(), end="")
        except BaseException:
            other.kill()
            raise


try:
    if sys.argv[1:] == ["--self"]:
        both_sides()
    elif len(sys.argv) == 1:
        asyncio.run(own())
    else:
        asyncio.run(use(sys.argv[1], int(sys.argv[2])))
except KeyboardInterrupt:
    sys.exit(130)
