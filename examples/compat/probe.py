# SPDX-License-Identifier: BSD-3-Clause
# python examples/compat/probe.py            receive: prints where it listens
# python examples/compat/probe.py HOST PORT  send
# python examples/compat/probe.py --self     both sides, in two processes
"""Messages of unknown length: look at the tag, take the message, receive its bytes.

The upper half of a tag is the kind of the message, the lower half its sender.
"""

import asyncio
import subprocess
import sys
import time

import ucp

DATA, NEXT = 1 << 32, 2 << 32
KIND = 0xFFFFFFFF << 32  # the mask for the upper half
SIZES = [0, 5, 10_000, 3_000_000]
ROUNDS = 20


async def receive():
    worker = ucp.current_worker()
    async with ucp.create_listener(host="127.0.0.1") as listener:
        print(f"listening on {listener.host}:{listener.port}", flush=True)
        ep = await listener.accept()
    for _ in SIZES:
        length, tag, buffer = await take(worker)
        intact = buffer == bytes(length)
        print(f"{length} bytes from {tag & ~KIND}:", "intact" if intact else "CHANGED")
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        await ep.send(b"", tag=NEXT, force_tag=True)
        await take(worker)
        times.append(time.perf_counter() - begun)
    print(f"asked for and taken at {SIZES[-1] / min(times) / 1e9:.2f} GB/s")
    await ep.close()


async def take(worker):
    """Return length, tag and bytes of the next message."""
    length, tag = await worker.probe(DATA, KIND)  # the message stays
    message = await worker.recv_message(tag)
    buffer = bytearray(message.nbytes)
    await message.recv(buffer)
    return length, tag, buffer


async def send(host, port):
    ep = await ucp.connect(host, port)
    for sender, size in enumerate(SIZES):
        await ep.send(bytes(size), tag=DATA | sender, force_tag=True)
    for _ in range(ROUNDS):
        await ucp.recv(bytearray(), tag=NEXT)
        await ep.send(bytes(SIZES[-1]), tag=DATA, force_tag=True)
    await ep.close()


def both_sides():
    """Start the other side as a process, and connect to it."""
    command = [sys.executable, "-P", __file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            host, port = other.stdout.readline().split()[-1].split(":")
            asyncio.run(send(host, int(port)))
            print(other.stdout.read(), end="")
        except BaseException:
            other.kill()
            raise


try:
    if sys.argv[1:] == ["--self"]:
        both_sides()
    elif len(sys.argv) == 1:
        asyncio.run(receive())
    else:
        asyncio.run(send(sys.argv[1], int(sys.argv[2])))
except KeyboardInterrupt:
    sys.exit(130)
