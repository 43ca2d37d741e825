# SPDX-License-Identifier: BSD-3-Clause
"""The programs of docs/tables.md run with two ranks."""

import re
import subprocess
import sys

import pytest
from paths import ROOT

PROGRAMS = re.findall(
    r"^```python\n# (\S+)\n(.*?)^```$",
    (ROOT / "docs/tables.md").read_text(),
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize(("name", "code"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_a_program_of_the_page_runs(name, code, tmp_path):
    (tmp_path / name).write_text(code)
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-m", "ucp", "run", "-n", "2", name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() != []
