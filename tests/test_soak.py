# SPDX-License-Identifier: BSD-3-Clause
"""What ``make soak`` does, a little of it."""

import os
import subprocess
import sys

import pytest
from conftest import TLS

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
    options = ["--tcp"] if transport == "tcp" else []
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-W", "default"),
            *(_SOAK, subject, str(COUNTS[subject]), *options),
        ],
        capture_output=True,
        text=True,
    )
    assert done.stderr == "", done.stderr  # whole
    assert done.returncode == 0
    assert done.stdout.startswith(subject)
