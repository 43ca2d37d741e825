# SPDX-License-Identifier: BSD-3-Clause
# python examples/pipeline.py            the viewer: prints where it listens
# python examples/pipeline.py HOST PORT  the camera
# python examples/pipeline.py --self     both, in two processes
"""A pipeline whose last stage is slow: it gets the newest frame, and holds nobody up.

A camera makes a frame every 2 ms, and the viewer needs 10 ms to show one. Without a
limit frames would wait for the viewer, and it would show what was long ago.
``set_keep_last(1)`` lets the newest frame wait only: a frame that comes drops the one
before it, whose bytes need not be fetched. The camera does not know.
"""

import asyncio
import subprocess
import sys
import time

import numpy as np

import ucp

SHAPE = (480, 640)
FRAMES = 200
MADE_EACH = 0.002  # seconds
SHOWN_EACH = 0.01


async def viewer():
    """Show what is newest, until the last frame has come."""
    async with ucp.create_listener(host="127.0.0.1") as listener:
        print(f"listening on {listener.host}:{listener.port}", flush=True)
        ep = await listener.accept()
    ep.set_keep_last(1)
    ages, numbers = [], [-1]
    while numbers[-1] != FRAMES - 1:
        made, number = np.frombuffer(await ep.recv_obj(), "f8", count=2)
        ages.append(time.monotonic() - made)  # both processes have one clock
        numbers.append(int(number))
        await asyncio.sleep(SHOWN_EACH)  # as if it were shown
    assert numbers == sorted(numbers)
    dropped = ep.statistics.dropped_messages
    await ep.send(b"seen")
    await ep.close()
    print(f"{len(ages)} frames shown, {dropped} dropped")
    print(f"a frame was {np.median(ages) * 1e3:.1f} ms old when it was shown")


async def camera(host, port):
    """Make frames, and send each without waiting for the one before it."""
    rng = np.random.default_rng(0)
    sending = []
    async with ucp.connect(host, port) as ep:
        for number in range(FRAMES):
            frame = rng.integers(0, 255, SHAPE, "u1")
            head = np.array([time.monotonic(), number])
            sending.append(ep.send(head.tobytes() + frame.tobytes()))
            sending = [request for request in sending if not request.done()]
            await asyncio.sleep(MADE_EACH)
        await ep.recv(bytearray(4))  # "seen"


def both_sides():
    """Start the viewer as a process, and connect to it."""
    command = [sys.executable, "-P", __file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            host, port = other.stdout.readline().split()[-1].split(":")
            asyncio.run(camera(host, int(port)))
            print(other.stdout.read(), end="")
        except BaseException:
            other.kill()
            raise


try:
    if sys.argv[1:] == ["--self"]:
        both_sides()
    elif len(sys.argv) == 1:
        asyncio.run(viewer())
    else:
        asyncio.run(camera(sys.argv[1], int(sys.argv[2])))
except KeyboardInterrupt:
    sys.exit(130)
