# SPDX-License-Identifier: BSD-3-Clause
"""The table "What takes which memory" of docs/devices.md says what is so.

tests/memory_table.py tries each row in each kind of memory, on the tests' own driver. A
cell that begins with "yes", or says what has the buffer protocol, is true where the
trials end well; one that names exceptions, where each trial ends with one of these. An
empty one says nothing.
"""

import json
import os
import re
import subprocess
import sys

import memory_table
import pytest
import standin
from paths import ROOT, TESTS

PAGE = ROOT / "docs/devices.md"
SECTION = "## What takes which memory\n"
HEAD = ["operation", "host, pinned", "managed", "device"]
# Rows that have tests elsewhere: pandas and pyarrow have no memory of devices, and
# tests/dask/test_dask_devices.py has Dask's protocol.
ELSEWHERE = ("tables, joins", "Dask's protocol")


def rows():
    """The cells of each row."""
    section = PAGE.read_text().split(SECTION)[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *found = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines
    ]
    assert head == HEAD
    return found


def row_of(operation):
    """By which name the trials of a row go; None: it has none here."""
    found = [name for name in memory_table.TRIALS if operation.startswith(name)]
    assert found or operation.startswith(ELSEWHERE), f"{operation}: nothing tries it"
    return found[0] if found else None


def kinds_of(column, cell):
    """The kinds of memory of which a cell says something."""
    if not cell:
        return ()
    if column == "host, pinned":
        return ("host", "pinned")
    if column == "device":
        return ("device",)
    if "buffer protocol" in cell:
        return ("managed",)
    # Through the buffer protocol it is the host's.
    return (
        ("managed", "managed array") if cell.startswith("yes") else ("managed array",)
    )


def is_as_said(cell, end):
    if cell.startswith("yes") or "buffer protocol" in cell:
        return end == "yes"
    names = re.findall(r"`(\w+Error)`", cell)
    assert names or "error" in cell, f"what is {cell!r}?"
    return end.partition(":")[0] in names if names else end != "yes"


CELLS = [
    pytest.param(row_of(operation), column, cell, id=f"{operation[:30]}-{column}")
    for operation, *cells in rows()
    for column, cell in zip(HEAD[1:], cells, strict=True)
    if row_of(operation) is not None
]


@pytest.fixture(scope="module")
def ends():
    """How the trials ended, by row and kind."""
    done = subprocess.run(
        [sys.executable, "-P", TESTS / "memory_table.py"],
        env={**os.environ, **standin.settings(ucx=True), "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("row", "column", "cell"), CELLS)
def test_a_cell_says_what_is_so(ends, row, column, cell):
    found = {kind: ends[row][kind] for kind in kinds_of(column, cell)}
    wrong = {
        kind: end
        for kind, each in found.items()
        for end in each
        if not is_as_said(cell, end)
    }
    assert wrong == {}, f"the table says {cell!r}"


def test_all_trials_are_rows():
    operations = [operation for operation, *_ in rows()]
    without = [
        name
        for name in memory_table.TRIALS
        if not any(operation.startswith(name) for operation in operations)
    ]
    assert without == []
