# SPDX-License-Identifier: BSD-3-Clause
# tests: mem/cuda mem/cuda_copy mem/cuda_memory worker/dma
"""Each function of the driver that messages call fails, at several of its calls.

A message comes whole, or the operation ends with an error that names it; then the
next one comes whole. The functions are those that the tests' driver has counted.
"""

import ast

import pytest
import standin
from paths import TESTS
from script import run_script

pytestmark = pytest.mark.timeout(180)

PROGRAM = f"""
import asyncio, sys
sys.path.append({str(TESTS)!r})
from peer import Peer
"""

# What both sides have.
SIDE = """
import asyncio, gpu, standin, ucp

class Frames:
    'Memory in parts, each a frame.'

    def __init__(self, nbytes):
        step = nbytes // 20
        sizes = [min(step, nbytes - begin) for begin in range(0, nbytes, step)]
        self.parts = [gpu.Memory(size) for size in sizes]

    def write(self, data):
        for part in self.parts:
            part.write(data[: part.nbytes])
            data = data[part.nbytes :]

    def read(self):
        return b"".join(part.read() for part in self.parts)

async def both(ep, memory, calls):
    for call in calls:
        if not isinstance(memory, Frames):
            await getattr(ep, call)(memory)
        elif call == "send":
            await ep.send_frames(memory.parts)
        else:
            await ep.recv_frames(into=memory.parts)

async def outcome(task):
    try:
        await task
    except asyncio.CancelledError:
        return "given up"
    except (ucp.UCXError, ValueError) as error:
        return error
    return ""
"""

MAIN = """
SIZE, KIND = 300_001, {kind!r}
MAKE = "Frames(SIZE)" if KIND == "frames" else f"gpu.Memory(SIZE, {{KIND!r}})"
# Nothing can be known of memory after these, or the program has called them itself.
EXCEPT = {{"cuInit", "cuMemAlloc_v2", "cuMemHostAlloc", "cuMemcpyHtoD_v2",
          "cuMemcpyDtoH_v2", "cuMemFree_v2", "cuMemFreeHost"}}

async def exchange(peer, ep, mine, seed, what=None, at_fault=None):
    'A message there, and it back: what the operations of the two sides raised.'
    data = bytes([seed]) * SIZE
    mine.write(data)
    if at_fault is not None:
        await at_fault()
    await peer.do("task = asyncio.ensure_future(both(ep, theirs, ('recv', 'send')))")
    there = asyncio.ensure_future(peer.do("str(await outcome(task))"))
    here = asyncio.ensure_future(both(ep, mine, ("send", "recv")))
    await asyncio.wait({{here, there}}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    if here.done() and here.exception():  # the other one may wait for ever
        peer.begin("task.cancel()")
    elif there.done() and there.result():
        here.cancel()
    await asyncio.wait({{here, there}}, timeout=20)
    assert here.done() and there.done(), (what, seed, here, there)
    standin.fail(None, 0)
    await peer.do('standin.fail(None, 0)')
    failed = [there.result(), str(await outcome(here))]
    if not any(failed):
        assert mine.read() == data, seed
    return [text for text in failed if text]

async def connected(peer):
    ep = await ucp.create_endpoint("127.0.0.1", await peer.do("listener.port"))
    await peer.do("ep = await anext(listener)")
    return ep

async def main():
    peer = Peer({{}})
    await peer.do(f"import sys; sys.path.append({tests!r})")
    await peer.do(SIDE)
    await peer.do(f"SIZE, KIND = {{SIZE}}, {{KIND!r}}")
    await peer.do("theirs = Frames(SIZE) if KIND == 'frames' else gpu.Memory(SIZE)")
    mine = eval(MAKE)
    ep = await connected(peer)
    assert not await exchange(peer, ep, mine, 1)
    count = dict(mine=set(standin.calls()))
    count["theirs"] = set(await peer.do("standin.calls()"))
    outcomes = {{}}
    for side, names in count.items():
        for name in sorted(names - EXCEPT):
            for at in (1, 2, 5):
                async def fail(source=f"standin.fail({{name!r}}, 304, {{at}})"):
                    eval(source) if side == "mine" else await peer.do(source)

                failed = await exchange(peer, ep, mine, 2, (side, name, at), fail)
                outcomes[side, name, at] = failed
                assert failed != ["given up"], (side, name, at)
                if failed:  # whose messages may have been withdrawn, or dropped
                    await ep.close()
                    ep = await connected(peer)
                again = await exchange(peer, ep, mine, 3, (side, name, at, failed))
                assert not again, (side, name, at, failed, again)
    print(len(outcomes), sum(map(bool, outcomes.values())))
    peer.kill()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["device", "pinned", "frames"])
@pytest.mark.parametrize("ipc", ["1", "0"], ids=["slots of a device", "of the host"])
def test_a_function_of_the_driver_that_fails_ends_what_needs_it(kind, ipc):
    main = MAIN.format(kind=kind, tests=str(TESTS))
    said = run_script(
        f"{PROGRAM}{SIDE}\nSIDE = {SIDE!r}\n{main}",
        UCP_LOG_LEVEL="error",
        **standin.settings(STANDIN_IPC=ipc),  # UCX calls no driver
    )
    tried, failed = map(ast.literal_eval, said.split())
    assert tried > 30 and failed > 0
