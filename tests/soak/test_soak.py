# SPDX-License-Identifier: BSD-3-Clause
"""A short run of each program of ``make soak``."""

import os
import subprocess
import sys

import pytest
from conftest import TLS
from networks import joined_namespaces

from ucp._topology import hwloc

_SOAK = os.path.dirname(__file__)

COUNTS = {
    "connects": 200,
    "messages": 20_000,
    "cancels": 3000,
    "kills": 4,
    "floods": 300,
    "pools": 3000,
    "heaps": 3000,
    "waits": 4000,
    "communicators": 10,
    "shuffles": 200,
    "joins": 60,
    "tables": 60,
    "topologies": 150,
}


def run_clean(words, said, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    assert done.stderr == "", done.stdout + done.stderr  # whole
    assert done.returncode == 0
    assert done.stdout.startswith(said)


def _need_hwloc():
    try:
        hwloc.load()
    except ImportError as error:  # no wheel of it for this machine
        pytest.skip(str(error))


# Topologies have no connections. Joins and tables send what they have by shufflers
# and communicators, which run over both transports, and give it back by the same code.
ONE_TRANSPORT = {"topologies": "shm", "joins": "tcp", "tables": "shm"}
RUNS = [(s, t) for s in COUNTS for t in TLS if ONE_TRANSPORT.get(s, t) == t]


@pytest.mark.parametrize(("subject", "transport"), RUNS)
def test_nothing_grows(subject, transport):
    """No end of a peer is left to UCX's keepalive, which takes 20 s."""
    if subject == "topologies":
        _need_hwloc()
    words = [
        *(sys.executable, "-P", "-W", "default"),
        *(_SOAK, subject, str(COUNTS[subject])),
    ]
    if transport == "tcp":
        words.append("--tcp")
    run_clean(words, subject, env={**os.environ, "UCX_KEEPALIVE_INTERVAL": "inf"})


@pytest.mark.parametrize(
    ("over", "count"), [("threads", 100), ("shm", 40), ("tcp", 40)]
)
def test_oracle(over, count):
    """Run programs of five ranks, and of two, of which threads are enough."""
    words = [sys.executable, "-P", "-X", "faulthandler", os.path.join(_SOAK, "oracle")]
    words += [str(count), "--over", over, "--seed", "1"]
    sizes = ["5", "2"] if over == "threads" else ["5"]
    for size in sizes:
        run_clean([*words, "--size", size], "oracle: ")


@pytest.mark.parametrize("over", ["shm", "tcp", "mixed"])
def test_chaos(over):
    """Run in namespaces: ports of killed processes must not be other tests'."""
    with joined_namespaces() as (namespace, _):
        words = [
            *("ip", "netns", "exec", namespace, sys.executable, "-P"),
            *(os.path.join(_SOAK, "chaos"), "8", "--over", over),
        ]
        run_clean(words, "chaos: seed")
