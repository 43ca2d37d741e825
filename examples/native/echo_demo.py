# SPDX-License-Identifier: BSD-3-Clause
# In examples/native, once README.md's command has built the modules:
#
#   python echo_demo.py
"""Active messages that C answers in the progress thread, while Python computes.

A server process computes in slices of 20 ms, and lets its event loop run between
them. The client asks the layer in C of echo_layer.c, and a handler in Python.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path

import ucp

sys.path.insert(0, str(Path(__file__).parent))
import echo_layer

HANDLER_ID = 101
SLICE_S = 0.02


async def serve() -> None:
    worker = ucp.current_worker()
    echo_layer.serve(worker)

    @worker.am_handler(HANDLER_ID)
    async def answer(ep: ucp.Endpoint, message: ucp.Message) -> None:
        with memoryview(message) as data:
            await ep.am_send(data, id=echo_layer.ANSWER_ID)

    async with ucp.create_listener(host="127.0.0.1") as listener:
        print(listener.port, flush=True)
        ep = await anext(listener)
        with worker.run_in_thread():
            while not ep.closed():
                end = time.monotonic() + SLICE_S
                while time.monotonic() < end:
                    pass  # it computes, and holds the GIL
                await asyncio.sleep(0)
    in_loop, in_thread = echo_layer.counts()
    print(f"the layer answered {in_thread} times in the progress thread, {in_loop} not")


async def ask(port: int, count: int) -> None:
    data = b"8 bytes."
    ep = await ucp.create_endpoint("127.0.0.1", port)
    for name in ("layer in C", "handler in Python"):
        times = []
        for _ in range(count if name == "layer in C" else min(count, 10)):
            begin = time.perf_counter()
            if name == "layer in C":
                await echo_layer.ask(ep, data)
            else:
                await ep.am_send(data, id=HANDLER_ID)
            assert await ep.am_recv(id=echo_layer.ANSWER_ID) == data
            times.append(time.perf_counter() - begin)
        print(f"{name}: {statistics.median(times) * 1e6:.1f} us", flush=True)
    await ep.close()


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    command = [sys.executable, "-P", __file__, "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        asyncio.run(ask(int(server.stdout.readline()), count))
        print(server.stdout.read(), end="")


main()
