# SPDX-License-Identifier: BSD-3-Clause
"""A buffer is the caller's when its await has ended; ``tests/poison`` has the engine.

Each test runs one random program of two processes. Its failure names the seed and
the options: ``python -P tests/soak/poison.py`` with these repeats it.
"""

import asyncio
import json
import os
import subprocess
import sys

import pytest

import ucp
from poison.report import Report
from ucp.testing import connected_pair, until

_ENGINE = os.path.dirname(__file__)

# Failures of a run that are printed.
_PRINTED = 8

_LOANS = ["--cma-max", str(64 << 20)]
_TCP = ["--tls", "tcp"]

TRANSPORTS = {"shm": [], "loans": _LOANS, "tcp": _TCP}

# States that every run reaches, as far as they can be seen at all: over tcp a sender
# has mostly given all bytes to the system before the first one is in the receiver's
# buffer, and what is lent is read in one call.
SEEN = {
    "shm": {"send": ["untaken", "middle"], "recv": ["nothing", "middle", "complete"]},
    "loans": {"send": ["untaken"], "recv": ["nothing"]},
    "tcp": {"send": ["untaken"], "recv": ["nothing", "middle", "complete"]},
}

every_transport = pytest.mark.parametrize("over", TRANSPORTS)


def run(*words):
    """The Report of a run in which nothing was wrong."""
    words = [*words, "--limit", "40"]
    done = subprocess.run(
        [sys.executable, "-P", _ENGINE, *words],
        capture_output=True,
        text=True,
        timeout=58,
    )
    assert done.returncode in (0, 1), done.stderr
    report = Report()
    report.add(json.loads(done.stdout.splitlines()[-1]))
    failures = "\n".join(report.failures[:_PRINTED])
    assert not report.failures, (
        f"{len(report.failures)} failures; "
        f"python -P tests/soak/poison.py {' '.join(words)}\n"
        f"{failures}\n{report.table()}"
    )
    return report


@every_transport
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_operations_of_all_kinds_and_sizes(over, loop):
    run("--loop", loop, "--operations", "1500", *TRANSPORTS[over])


@every_transport
def test_a_peer_that_is_stopped_or_computes(over):
    """The cancelled await ends although the peer does nothing until then."""
    words = ["--disturbances", "0.5", "--operations", "800", "--seed", "2"]
    run(*words, "--smallest", "2000", *TRANSPORTS[over])


@every_transport
def test_every_state_is_reached(over):
    words = ["--smallest", "2000000", "--largest", "8000000", "--seed", "3"]
    words += ["--kinds", "plain", "tagged", "channel", "recv_into", "--share", "0.6"]
    words += ["--when", "turns", *["middle"] * 4, "complete", "--operations", "150"]
    report = run(*words, *TRANSPORTS[over])
    expected = {(way, state) for way in SEEN[over] for state in SEEN[over][way]}
    assert expected <= report.reached(), report.table()


@pytest.mark.parametrize("over", ["shm", "tcp"])
def test_sends_that_wait_for_credit(over):
    words = ["--small-credit", "--operations", "1000", "--seed", "4"]
    report = run(*words, "--largest", "200000", *TRANSPORTS[over])
    assert ("send", "held") in report.reached(), report.table()


@every_transport
@pytest.mark.parametrize("seed", [1, 2])
def test_a_peer_that_is_killed(over, seed):
    """Every await ends, and nothing is written after that."""
    words = ["--kill", "--operations", "100000", "--seed", str(seed)]
    run(*words, "--smallest", "20000", *TRANSPORTS[over])


@every_transport
def test_ranks_of_a_communicator(over):
    run("--ranks", "--operations", "1000", *TRANSPORTS[over])


def test_ranks_with_uvloop():
    run("--ranks", "--loop", "uvloop", "--operations", "600", "--seed", "5")


@pytest.mark.parametrize("over", ["shm", "tcp"])
def test_cancelled_operations_cost_no_memory(over):
    words = ["growth", "--size", "4000000", "--count", "40", "--limit", "40"]
    done = subprocess.run(
        [sys.executable, "-P", _ENGINE, *words, *TRANSPORTS[over]],
        capture_output=True,
        text=True,
        timeout=58,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize("over", ["shm", "tcp"])
@pytest.mark.parametrize("subject", ["frames", "words"])
def test_time_limits_that_are_too_short(subject, over):
    """``--seconds 60`` is the long form, which ``make soak`` runs."""
    words = ["timeouts", subject, "--rounds", "3", "--limit", "50"]
    done = subprocess.run(
        [sys.executable, "-P", _ENGINE, *words, *TRANSPORTS[over]],
        capture_output=True,
        text=True,
        timeout=58,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


async def _cancelled(request):
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


async def test_a_message_that_was_announced_is_withdrawn(transport):
    async with connected_pair() as (client, server):
        sending = client.send(bytearray(4 << 20))
        await until(lambda: server.probe(tag=None))
        await _cancelled(sending)
        async with asyncio.timeout(20):
            await until(lambda: server.probe(tag=None) is None)
        await client.send(b"after")
        assert await server.recv_obj() == b"after"


@pytest.mark.parametrize("kind", ["am", "message"])
async def test_a_message_that_was_seen_is_withdrawn(transport, kind):
    async with connected_pair() as (client, server):
        if kind == "am":
            sending = client.am_send(bytearray(4 << 20), id=33, header=b"header")
            message = await server.am_recv_message(id=33)
        else:
            sending = client.send(bytearray(4 << 20))
            message = await server.recv_message()
        await _cancelled(sending)
        with pytest.raises(ucp.UCXCanceled):
            await message.recv(bytearray(4 << 20))
        await client.send(b"after")
        assert await server.recv_obj() == b"after"
