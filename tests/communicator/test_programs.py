# SPDX-License-Identifier: BSD-3-Clause
"""Examples of ranks, as their users run them."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
from paths import ROOT
from worlds import free_port

EXAMPLES = ROOT / "examples"


def environment(module):
    """With a fake of the module on the path, if it is not installed."""
    if find_spec(module) is not None:
        return dict(os.environ)
    fakes = str(ROOT / "tests" / "fakes")
    return {**os.environ, "PYTHONPATH": fakes}


def run(*command, **options):
    done = subprocess.run(
        [sys.executable, "-P", *command], capture_output=True, text=True, **options
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_pagerank_example_does_not_depend_on_the_ranks():
    program = ["examples/pagerank.py", "5000"]
    outs = [
        run("-m", "ucp", "run", "-n", number, *program, cwd=ROOT) for number in "13"
    ]
    assert all(re.search(r"^\[0\] \d+\.\d ms a step$", out, re.M) for out in outs)
    found = {out.splitlines()[0] for out in outs}
    assert len(found) == 1
    assert "sum 1.000000, page 0 has" in found.pop()


def test_the_ray_example_adds():
    out = run(EXAMPLES / "ray_ranks.py", "3", env=environment("ray"))
    result, figure = out.splitlines()[-2:]
    assert result == "3 ranks have the sums 6.0 6.0 6.0"
    assert re.fullmatch(r"8 MB were added in \d+\.\d ms", figure)


@pytest.mark.parametrize("size", [1, 3])
def test_the_torch_example_gathers(size):
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    common["MASTER_PORT"] = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", EXAMPLES / "torch_ranks.py"],
            env={**environment("torch"), **common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outs = [rank.communicate(timeout=40) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    numbers = 1000 * size * (size + 1) // 2
    total = sum(1000 * (rank + 1) * rank for rank in range(size))
    first, *others = outs
    result, figure = first[0].splitlines()
    assert result == f"{size} ranks have {numbers} numbers, sum {total}"
    assert re.fullmatch(r"they came in \d+ us", figure)
    assert first[1] == ""
    assert others == [("", "")] * (size - 1)
