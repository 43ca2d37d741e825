# SPDX-License-Identifier: BSD-3-Clause
"""The stubs say what the package does."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_a_typed_program_passes_mypy(tmp_path):
    api = pytest.importorskip("mypy.api")
    output, errors, status = api.run(
        [
            "--strict",
            "--warn-unused-ignores",
            f"--python-executable={sys.executable}",
            f"--cache-dir={tmp_path}",
            "--config-file=",
            str(HERE / "typing" / "api.py"),
        ]
    )
    assert (status, errors) == (0, ""), output


def test_the_stub_matches_the_extension(capsys):
    stubtest = pytest.importorskip("mypy.stubtest")
    options = stubtest.parse_options(["ucp._ext", "--concise"])
    assert stubtest.test_stubs(options) == 0, capsys.readouterr().out
