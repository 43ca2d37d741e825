# SPDX-License-Identifier: BSD-3-Clause
"""The licence: in every source file and in all that is distributed."""

import importlib.metadata
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from paths import ROOT

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
# Directories that builds and fuzzing leave in a checkout.
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
    nameless = [path for path in files if not names_licence(path)]
    assert nameless == []


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory):
    pytest.importorskip("setuptools", "77")
    tree = tmp_path_factory.mktemp("sdist") / "tree"
    skipped = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, tree, ignore=skipped)
    program = "from setuptools import build_meta as b; b.build_sdist('dist')"
    subprocess.run(
        [sys.executable, "-c", program], cwd=tree, check=True, capture_output=True
    )
    (archive,) = (tree / "dist").glob("umx-*.tar.gz")
    with tarfile.open(archive) as files:
        yield files


def test_the_installed_distribution_carries_the_licence():
    distribution = importlib.metadata.distribution("umx")
    assert distribution.metadata["License-Expression"] == "BSD-3-Clause"
    assert distribution.metadata["Author"] == "the ucp authors"
    texts = [file for file in distribution.files if file.name == "LICENSE"]
    assert [file.read_text() for file in texts] == [(ROOT / "LICENSE").read_text()]


@pytest.mark.parametrize("name", ["LICENSE", "CHANGELOG.md", "docs/security.md"])
def test_the_source_distribution_carries_what_users_read(source_distribution, name):
    (member,) = [
        member
        for member in source_distribution.getnames()
        if member.partition("/")[2] == name
    ]
    text = source_distribution.extractfile(member).read().decode()
    assert text == (ROOT / name).read_text()
