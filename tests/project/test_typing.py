# SPDX-License-Identifier: BSD-3-Clause
"""The stubs say what the package does.

mypy runs in processes of its own: of a process it would leave millions of objects,
which each later gc.collect() of its tests would go through.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(find_spec("mypy") is None, reason="no mypy")


def check(folder, module, *words):
    command = [sys.executable, "-P", "-m", module, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_a_typed_program_passes_mypy(tmp_path):
    check(
        tmp_path,
        "mypy",
        "--strict",
        "--warn-unused-ignores",
        f"--python-executable={sys.executable}",
        f"--cache-dir={tmp_path}",
        "--config-file=",
        str(HERE / "typing" / "api.py"),
    )


def test_the_stub_matches_the_extension(tmp_path):
    check(tmp_path, "mypy.stubtest", "ucp._ext", "--concise")
