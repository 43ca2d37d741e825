# SPDX-License-Identifier: BSD-3-Clause
"""The example of experts, as its users run it."""

import re
import subprocess
import sys

from paths import ROOT


def test_the_layer_of_ranks_is_that_of_one():
    command = [sys.executable, "-P", "-m", "ucp", "run", "-n", "3"]
    done = subprocess.run(
        [*command, "examples/moe_layer.py"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    right, figure = done.stdout.splitlines()
    assert right.endswith("on 3 ranks: right")
    assert re.fullmatch(r"\[0\] \d+\.\d ms a layer", figure)
