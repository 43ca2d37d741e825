# SPDX-License-Identifier: BSD-3-Clause
# tests: host/pin bounce/movable
"""Memory of the host that is pinned once it is moved to a device, or from one.

A process of the tests' own driver has memory of the host, of which UCX registers
nothing here, and its peer has memory of a device.
"""

import ast

import pytest
import standin
from paths import TESTS
from script import run_script

pytestmark = pytest.mark.timeout(120)

BEGIN = f"""
import asyncio, sys, time
sys.path.append({str(TESTS)!r})
import gpu, numpy as np, standin, ucp
from peer import Peer

SIZE = 300_001

def calls():
    names = "cuMemHostRegister_v2", "cuMemHostUnregister"
    return [standin.calls().get(name, 0) for name in names]

async def connected():
    peer = Peer({{}})
    await peer.do(f"import sys; sys.path.append({str(TESTS)!r})")
    await peer.do("import gpu")
    ep = await ucp.create_endpoint("127.0.0.1", await peer.do("listener.port"))
    await peer.do("ep = await anext(listener)")
    await peer.do(f"d = gpu.Memory({{SIZE}})")
    return peer, ep

async def there_and_back(peer, ep, buffer, seed):
    'A message to the device, and it back: how many went without a CPU.'
    before = ep.ways()["device slots"]
    view = np.frombuffer(buffer, "u1")
    view[:] = data = (np.arange(view.nbytes) * 7 + seed).astype("u1")
    number = peer.begin("await ep.recv(d)")
    await ep.send(buffer)
    await peer.result(number)
    assert (view == data).all() and await peer.do("d.read()") == data.tobytes()
    view[:] = 0
    number = peer.begin("await ep.send(d)")
    await ep.recv(buffer)
    await peer.result(number)
    assert (view == data).all()
    now = ep.ways()["device slots"]
    return [now[way] - before[way] for way in ("sent", "received")]
"""

MAIN = """
async def main():
    {memory}
    context = gpu.Memory(1) if {has_context} else None
    peer, ep = await connected()
    until = time.monotonic() + 20
    seen, seed = [], 0
    while seen[-1:] != [[1, 1]] and seed != {rounds} and time.monotonic() < until:
        seen.append(await there_and_back(peer, ep, buffer, seed := seed + 1))
    print(seen)
    before = calls()
    {end}
    await ep.close()
    print([before, calls()])
    peer.kill()

asyncio.run(main())
"""

MEMORY = {
    "memory": ("buffer = memory = ucp.Memory.allocate(SIZE)", "memory.close()"),
    "view": (
        "memory = ucp.Memory.allocate(SIZE + 9); buffer = np.asarray(memory)[9:]",
        "memory.close()",
    ),
    "registered": (
        "buffer = np.empty(SIZE, 'u1'); memory = ucp.Memory.register(buffer)",
        "memory.close()",
    ),
    "pool": (
        "pool = ucp.BufferPool(2, SIZE); buffer = pool.acquire_nowait()",
        "buffer.release(); pool.close()",
    ),
}


def said(memory, end="pass", has_context=True, rounds=None, **env):
    """What became of the messages; registrations, and those that ended, at the
    end of the messages and at that of the memory.
    """
    main = MAIN.format(memory=memory, end=end, has_context=has_context, rounds=rounds)
    lines = run_script(BEGIN + main, **standin.settings(**env)).splitlines()
    return [ast.literal_eval(line) for line in lines[-2:]]


@pytest.mark.parametrize("kind", MEMORY)
def test_memory_of_the_library_is_pinned_when_it_is_moved_again(kind):
    seen, (before, after) = said(*MEMORY[kind])
    assert seen[0][0] == 0  # nobody knows that it is moved again
    assert seen[-1] == [1, 1]
    assert before[0] > before[1] == 0
    if kind == "view":  # which keeps the memory
        assert after == before
    else:
        assert after[1] == 1


def test_other_memory_stays_as_it_is():
    seen, counts = said("buffer = np.empty(SIZE, 'u1')", rounds=4)
    assert seen == [[0, 0]] * 4
    # Each side has its slots pinned, which the end of the connection unmaps.
    assert counts == [[0, 0]] * 2


def test_a_process_without_a_context_makes_none():
    seen, (before, _) = said(MEMORY["memory"][0], has_context=False, rounds=4)
    assert seen == [[0, 0]] * 4
    assert before == [0, 0]


def test_memory_that_the_driver_does_not_register_goes_in_other_ways():
    fail = "cuMemHostRegister_v2:1:0"
    quiet = {"STANDIN_FAIL": fail, "UCP_LOG_LEVEL": "ERROR"}
    seen, (before, after) = said(*MEMORY["memory"], rounds=4, **quiet)
    assert seen == [[0, 0]] * 4
    assert before[0] == 1
    assert after[1] == 0


def test_memory_that_is_closed_under_way_is_unpinned_behind_its_copies():
    end = "view[:] = 5; number = peer.begin('await ep.recv(d)'); s = ep.send(buffer); "
    end += (
        "await asyncio.sleep(0); memory.close(); await s; await peer.result(number); "
    )
    end += "assert (await peer.do('d.read()')) == bytes([5]) * SIZE"
    make = "view = buffer = np.empty(SIZE, 'u1'); memory = ucp.Memory.register(buffer)"
    _, (_, after) = said(make, end, STANDIN_STEP_US="1000")
    assert after == [1, 1]
