# SPDX-License-Identifier: BSD-3-Clause
"""docs/environment.md has the variables that the code reads, and no others."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT

PAGE = ROOT / "docs/environment.md"
ROW = re.compile(r"^\| `([A-Z][A-Z0-9_]+)` \|", re.MULTILINE)

FILES = (
    "ucp/**/*.py",
    "src/*/*.[ch]",
    "ucp_ext/**/*.[ch]",
    "examples/**/*",
    "benchmarks/**/*.py",
    "benchmarks/*.c",
    "tools/*.py",
    "tests/**/*.py",
    "tests/c/**/*.[ch]",
    "setup.py",
)
READS = re.compile(
    r'\b(?:os\.)?environ(?:\.get\(|\[)\s*"([A-Z][A-Z0-9_]+)"(?!\]\s*=[^=])'
    r'|\bgetenv\(\s*"([A-Z][A-Z0-9_]+)"'
    r'|"([A-Z][A-Z0-9_]+)" (?:not )?in (?:os\.)?environ\b'
    r'|\bflag\("([A-Z][A-Z0-9_]+)"\)'
)
# In the product itself, names that modules keep in constants, too.
NAMED = re.compile(r'"((?:UCP|UCXPY|SLURM|OMPI|PMIX?|MPI)_[A-Z0-9_]+|WORLD_SIZE|RANK)"')
PRODUCT = ("ucp", "src", "ucp_ext", "setup.py")

# What tests only give to the processes that they start, and what they set for UCX.
OF_TESTS = re.compile(
    r".*_OF_TEST$|STANDIN_[A-Z]+$|ADDRESS$|HOLDER$|IN_THREAD$|UCX_TLS$|UCX_NUM_EPS$"
)


def is_product(path: Path) -> bool:
    return path.relative_to(ROOT).parts[0] in PRODUCT


@functools.cache
def texts() -> dict[Path, str]:
    paths = {path for pattern in FILES for path in ROOT.glob(pattern)}
    return {
        path: path.read_text(errors="replace")
        for path in sorted(paths - {Path(__file__)})
        if path.is_file() and path.suffix != ".pyc"
    }


def names_in(path: Path, text: str) -> Iterator[str]:
    for names in READS.findall(text):
        yield from filter(None, names)
    if is_product(path):
        yield from NAMED.findall(text)


def read_by_the_code() -> dict[str, str]:
    """The variables that are read, each with a file that reads it."""
    found: dict[str, str] = {}
    for path, text in texts().items():
        for name in names_in(path, text):
            if is_product(path) or not OF_TESTS.match(name):
                found.setdefault(name, str(path.relative_to(ROOT)))
    return found


def on_the_page() -> set[str]:
    return set(ROW.findall(PAGE.read_text()))


def test_each_variable_that_is_read_is_on_the_page():
    documented = on_the_page()
    missing = {
        name: path
        for name, path in read_by_the_code().items()
        if name not in documented
    }
    assert missing == {}  # add a row to docs/environment.md


def test_each_variable_of_the_page_is_read():
    code = "\n".join(texts().values())
    unknown = {name for name in on_the_page() if f'"{name}"' not in code}
    assert unknown == set()  # nobody reads it: remove the row


def test_a_row_says_what_a_variable_means():
    for line in PAGE.read_text().splitlines():
        if ROW.match(line):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) >= 3 and all(cells), line
