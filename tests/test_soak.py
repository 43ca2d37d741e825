# SPDX-License-Identifier: BSD-3-Clause
"""What ``make soak`` does, a little of it."""

import os
import subprocess
import sys

import pytest
from conftest import TLS
from networks import joined_namespaces

_SOAK = os.path.join(os.path.dirname(__file__), "soak")

COUNTS = {
    "connects": 200,
    "messages": 20_000,
    "cancels": 3000,
    "kills": 4,
    "floods": 300,
    "pools": 3000,
}


@pytest.mark.parametrize("transport", TLS)
@pytest.mark.parametrize("subject", COUNTS)
def test_nothing_grows(subject, transport):
    """No end of a peer is left to UCX's keepalive, which takes 20 s."""
    options = ["--tcp"] if transport == "tcp" else []
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-W", "default"),
            *(_SOAK, subject, str(COUNTS[subject]), *options),
        ],
        env={**os.environ, "UCX_KEEPALIVE_INTERVAL": "inf"},
        capture_output=True,
        text=True,
    )
    assert done.stderr == "", done.stderr  # whole
    assert done.returncode == 0
    assert done.stdout.startswith(subject)


@pytest.mark.parametrize("over", ["shm", "tcp", "mixed"])
def test_chaos(over):
    """Its processes try ports of killed ones, which must not be other tests'."""
    with joined_namespaces() as (namespace, _):
        done = subprocess.run(
            [
                *("ip", "netns", "exec", namespace, sys.executable, "-P"),
                *(os.path.join(_SOAK, "chaos"), "8", "--over", over),
            ],
            capture_output=True,
            text=True,
        )
    assert done.stderr == "", done.stdout + done.stderr
    assert done.returncode == 0
    assert done.stdout.startswith("chaos: seed")
