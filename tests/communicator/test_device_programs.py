# SPDX-License-Identifier: BSD-3-Clause
"""Examples for devices, as their users run them: without one, and with ``--device`` on
the tests' own driver, where NumPy computes for CuPy."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
import standin
from paths import ROOT, TESTS

RUN = ["-m", "ucp", "run", "-n", "2"]


def environment(is_on_device):
    if not is_on_device:
        return dict(os.environ)
    fakes = {"PYTHONPATH": str(TESTS / "fakes"), "STANDIN_OPEN": "1"}
    return {**os.environ, **standin.settings(), **fakes}


def command(*arguments, is_on_device=False):
    device = ["--device"] if is_on_device else []
    return [sys.executable, "-P", *arguments, *device]


def run(*arguments, is_on_device, env=None):
    done = subprocess.run(
        command(*arguments, is_on_device=is_on_device),
        cwd=ROOT,
        env=env or environment(is_on_device),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_both(name, listens_on_device, connects_on_device, env):
    """What an example's connecting side prints."""
    program = f"examples/{name}"
    with subprocess.Popen(
        command(program, is_on_device=listens_on_device),
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            host, port = server.stdout.readline().split()[-1].split(":")
            client = subprocess.run(
                command(program, host, port, is_on_device=connects_on_device),
                cwd=ROOT,
                env=env,
                capture_output=True,
                text=True,
                timeout=50,
            )
            _, err = server.communicate(timeout=50)
        finally:
            server.kill()
    assert (client.returncode, client.stderr) == (0, "")
    assert (server.returncode, err) == (0, "")
    return client.stdout


@pytest.mark.parametrize("is_on_device", [False, True])
def test_the_join_has_the_rows_of_pandas(is_on_device):
    out = run(*RUN, "examples/gpu_join.py", "20000", is_on_device=is_on_device)
    *result, figure = out.splitlines()
    assert result == ["[0] 40087 rows joined", "[0] pandas has the same"]
    assert re.fullmatch(r"\[0\] \d+\.\d million rows a second", figure)


def test_the_join_does_not_depend_on_its_batches():
    outs = [
        run(*RUN, "examples/gpu_join.py", "3000", batches, is_on_device=False)
        for batches in ("1", "9")
    ]
    few, many = (out.splitlines()[:-1] for out in outs)
    assert few == many


@pytest.mark.parametrize("is_on_device", [False, True])
def test_arrays_go_between_ranks(is_on_device):
    out = run(*RUN, "examples/cupy_ranks.py", "1", is_on_device=is_on_device)
    right, figure = out.splitlines()
    assert right == "[0] 2 ranks have sent, gathered and added arrays"
    assert re.fullmatch(r"\[0\] \d+\.\d GB/s to the neighbour", figure)


@pytest.mark.parametrize("is_on_device", [False, True])
def test_records_are_sorted(is_on_device):
    out = run(*RUN, "examples/terasort.py", "2", is_on_device=is_on_device)
    assert out.startswith("[0] 20000 records are in order; ")


@pytest.mark.parametrize(
    ("prefill", "decode"), [(True, True), (True, False), (False, True)]
)
def test_pages_go_between_caches_of_devices_and_of_the_host(prefill, decode):
    out = run_both("kv_cache.py", prefill, decode, environment(True))
    *requests, figure = out.splitlines()
    assert requests == [
        "request 7: 1000 pages are here",
        "request 8: 33 pages are here",
        "request 9: 2500 pages are here",
    ]
    assert re.fullmatch(r"pages came at \d+\.\d GB/s", figure)


def test_tensors_go_between_processes():
    env = dict(os.environ)
    if find_spec("torch") is None:
        env["PYTHONPATH"] = str(TESTS / "fakes")
    out = run_both("torch_tensors.py", False, False, env)
    assert re.fullmatch(r"step 7: 500500, a state in \d+\.\d ms\n", out)
    done = run("examples/torch_tensors.py", "--self", is_on_device=False, env=env)
    assert done.startswith("step 7: 500500, ")
