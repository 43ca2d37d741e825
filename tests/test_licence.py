# SPDX-License-Identifier: BSD-3-Clause
"""Every source file names the licence."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
IDENTIFIER = "SPDX-License-Identifier: BSD-3-Clause"

# The directories of a checkout that hold sources, and what is a source there.
DIRECTORIES = [
    "include",
    "src",
    "ucp_ext",
    "ucp",
    "tests",
    "benchmarks",
    "examples",
    "tools",
]
SUFFIXES = {".c", ".h", ".py", ".pyi", ".sh", ".awk", ".map", ".yaml"}
# What builds and fuzzing leave in a checkout.
LEFT_BEHIND = {"build", "corpus", "__pycache__"}


def is_source(path: Path) -> bool:
    return path.suffix in SUFFIXES or path.name == "Makefile"


def sources() -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file() and is_source(path)]
    for directory in DIRECTORIES:
        for path in (ROOT / directory).rglob("*"):
            if is_source(path) and not LEFT_BEHIND & set(path.parts[len(ROOT.parts) :]):
                found.append(path)
    return found


def names_licence(path: Path) -> bool:
    """Is the identifier in a line of its own, first or below a `#!`?"""
    lines = path.read_text().splitlines()
    if lines and lines[0].startswith("#!"):
        del lines[0]
    return bool(lines) and lines[0] in (f"/* {IDENTIFIER} */", f"# {IDENTIFIER}")


def test_every_source_file_names_the_licence_first():
    files = sources()
    assert len(files) > 400
    nameless = [str(path.relative_to(ROOT)) for path in files if not names_licence(path)]
    assert nameless == []
