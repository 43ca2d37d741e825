# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/main
"""``python -m ucp``, as a user runs it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def ucp_command(*arguments, **env):
    return subprocess.run(
        [sys.executable, "-P", "-m", "ucp", *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("tls", "lane"), [("all", "(sysv|posix)/"), ("tcp", "tcp/")])
def test_the_demo_verifies_and_measures(tls, lane):
    done = ucp_command("demo", "--max-mib", "16", UCX_TLS=tls)
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 dtypes x 7 sizes: every byte verified" in done.stdout
    assert re.search(r"^ +16 MiB +\d+ +\d+\.\d+ +\d+\.\d+$", done.stdout, re.M)
    assert re.search(rf"^lanes: .*{lane}", done.stdout, re.M)


def test_the_demo_says_when_it_is_too_slow():
    done = ucp_command("demo", "--timeout", "0.01")
    assert done.returncode == 1
    assert "demo not done in 0.01 s\n" in done.stderr


def test_the_demos_child_does_not_outlive_its_parent():
    parent = subprocess.Popen(
        [sys.executable, "-P", "-m", "ucp", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    children = f"/proc/{parent.pid}/task/{parent.pid}/children"
    while not (child := Path(children).read_text().split()):
        assert parent.poll() is None
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert parent.stdout.read() == b""  # until the child has closed it too
    parent.stdout.close()
    with pytest.raises(ProcessLookupError):
        while True:
            os.kill(int(child[0]), 0)


def test_info_names_ucx_transports_and_interfaces():
    done = ucp_command("info")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^UCX +\d+\.\d+\.\d+ \(", done.stdout, re.M)
    assert re.search(r"^transport +tcp +lo$", done.stdout, re.M)
    assert re.search(r"^interface +lo +127\.0\.0\.1", done.stdout, re.M)
