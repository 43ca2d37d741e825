# SPDX-License-Identifier: BSD-3-Clause
# python examples/torch_tensors.py            the trainer: prints where it listens
# python examples/torch_tensors.py HOST PORT  a process that gets tensors from it
# python examples/torch_tensors.py --self     both sides, in two processes
"""Tensors of torch go between processes; with --device they are on GPUs.

A tensor is sent as it is, and received into one that exists. A dictionary of tensors,
such as the state of a model, is sent as an object: its tensors on a GPU are not copied
to the host, and arrive on the GPU of the other process. --device stands behind the
other arguments, of both processes.
"""

import asyncio
import subprocess
import sys
import time

import torch

import ucp

if "--device" in sys.argv:
    sys.argv.remove("--device")
    DEVICE, OPTIONS = "cuda", ["--device"]
else:
    DEVICE, OPTIONS = "cpu", []


async def trainer():
    async with ucp.create_listener(host="127.0.0.1") as listener:
        print(f"listening on {listener.host}:{listener.port}", flush=True)
        ep = await listener.accept()
    batch = torch.arange(1_000_000, dtype=torch.float32, device=DEVICE)
    await ep.send(batch.reshape(1000, 1000))
    state = {"step": 7, "weight": batch * 2, "bias": torch.ones(1000, device=DEVICE)}
    await ep.send_pickle(state)
    await ep.close()


async def reader(host, port):
    batch = torch.empty(1000, 1000, device=DEVICE)
    async with ucp.connect(host, port) as ep:
        await ep.recv(batch)
        begun = time.perf_counter()
        state = await ep.recv_pickle(allow_pickle=True)
        seconds = time.perf_counter() - begun
    assert torch.equal(state["weight"].reshape(1000, 1000), batch * 2)
    assert state["weight"].device.type == DEVICE
    total = float((batch[0] + state["bias"]).sum())
    print(f"step {state['step']}: {total:.0f}, a state in {seconds * 1e3:.1f} ms")


def both_sides():
    """Start the other side as a process, and connect to it."""
    command = [sys.executable, "-P", __file__, *OPTIONS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            host, port = other.stdout.readline().split()[-1].split(":")
            asyncio.run(reader(host, int(port)))
            print(other.stdout.read(), end="")
        except BaseException:
            other.kill()
            raise


try:
    if sys.argv[1:] == ["--self"]:
        both_sides()
    elif len(sys.argv) == 1:
        asyncio.run(trainer())
    else:
        asyncio.run(reader(sys.argv[1], int(sys.argv[2])))
except KeyboardInterrupt:
    sys.exit(130)
