# SPDX-License-Identifier: BSD-3-Clause
# tests: bounce/fetch bounce/fill bounce/hand bounce/mapping bounce/slots worker/dma
"""Messages of memory of devices between two processes, on the tests' own driver.

Each way in which bytes can come is chosen by what UCX and the driver can do.
"""

import ast
import os
import subprocess
import sys

import pytest
import standin
from paths import TESTS
from script import run_script

pytestmark = pytest.mark.timeout(120)

# How two devices reach each other, and the way that their messages go then.
REACH = {
    "cuda_ipc": ({}, "cuda_ipc"),
    "slots of a device": ({"UCX_TLS": "^cuda_ipc"}, "device slots"),
    "slots of the host": ({"UCX_TLS": "^cuda_ipc", "STANDIN_IPC": "0"}, "host slots"),
}

PROGRAM = """
import asyncio, sys
sys.path.append({tests!r})
from devices.pair import Pair

async def main():
    pair = Pair("driver", "driver")
    await pair.start()
    for seed, (mine, theirs, size) in enumerate({cases!r}):
        taken = f"await side.receive(ep, {{theirs!r}}, {{size}}, {{seed}})"
        given = f"await side.send(ep, {{mine!r}}, {{size}}, {{seed}})"
        number = pair.begin(pair.right, taken)
        sent = await pair.do(pair.left, given)
        assert not sent, sent
        wrong = await pair.result(pair.right, number, 30)
        assert not wrong, (mine, theirs, size, wrong)
    ways = await pair.do(pair.left, "ep.ways()")
    print({{name: way["sent"] for name, way in ways.items() if way["sent"]}})
    pair.kill()

asyncio.run(main())
"""


def ways_of(cases, **env):
    """Send such messages; by which ways they went."""
    source = PROGRAM.format(tests=str(TESTS), cases=cases)
    said = run_script(source, **standin.settings(ucx=True, **env))
    return ast.literal_eval(said.splitlines()[-1])


@pytest.mark.parametrize("reach", REACH)
def test_devices_are_reached_by_the_best_way_there_is(reach):
    env, way = REACH[reach]
    sizes = (70_000, 1 << 20, 5_000_003)
    sent = ways_of([("device", "device", size) for size in sizes], **env)
    assert sent[way] == len(sizes)
    assert sent["bounce"] == len(sizes)


def test_memory_that_others_cannot_map_goes_through_memory_that_they_can():
    sent = ways_of([("async", "device", 5_000_003), ("async", "async", 1 << 20)])
    assert sent["device slots"] == 2


def test_host_and_device_meet_in_memory_of_the_host():
    pairs = [("bytearray", "device"), ("device", "bytearray"), ("managed", "memory")]
    sent = ways_of([(*pair, size) for pair in pairs for size in (100_000, 3_000_001)])
    assert sent["host slots"] == 6


def test_no_cpu_copies_pinned_memory():
    sizes = (70_000, 1 << 20, 5_000_003)
    pairs = [("pinned", "device"), ("device", "pinned"), ("pinned", "async")]
    sent = ways_of([(*pair, size) for pair in pairs for size in sizes])
    assert sent["device slots"] == len(pairs) * len(sizes)
    # The ways that there are else.
    sent = ways_of([(*pair, 1 << 20) for pair in pairs], STANDIN_IPC="0")
    assert sent["host slots"] == len(pairs)
    assert ways_of([("device", "pinned", 20_000)])["host slots"] == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "env",
    [{}, {"UCX_TLS": "^cuda_ipc"}, {"STANDIN_IPC": "0"}, {"STANDIN_STEP_US": "100"}],
    ids=["cuda_ipc", "slots of a device", "nothing mapped", "slow copies"],
)
def test_no_byte_is_wrong_and_none_comes_late(env):
    """The check for machines with a GPU; tests/devices says what its cases are."""
    done = subprocess.run(
        [
            *(sys.executable, "-P", TESTS / "devices"),
            *("--only", "messages,cancelled", "--limit", "270"),
            *("--kinds", "bytearray,pinned,device,async,managed"),
            *("--sizes", "1,32769,1048579"),
        ],
        env={**os.environ, **standin.settings(ucx=True, **env)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
