# SPDX-License-Identifier: BSD-3-Clause
"""Tasks, events and operations of umx/coro.hpp go in any order, also at -O0."""

import os
import subprocess
from pathlib import Path

import pytest
from natives import LINK, OPTIONS, compiler_or_skip, environment, run
from paths import ROOT

import ucp

ADDRESS = "-fsanitize=address"


def has_sanitizer(compiler: str, folder: Path) -> bool:
    """Whether the compiler has the runtime of the address sanitizer."""
    command = [compiler, ADDRESS, "-x", "c++", "-", "-o", str(folder / "empty")]
    done = subprocess.run(
        command, input="int main() {}", text=True, capture_output=True, timeout=50
    )
    return done.returncode == 0


@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_who_goes_first_does_not_matter(name, tmp_path):
    compiler = compiler_or_skip(name)
    sanitizer = [ADDRESS] if has_sanitizer(compiler, tmp_path) else []
    program = tmp_path / "coroutines"
    ucx = Path(ucp.which_ucx().path).parent
    run(
        *(compiler, "-std=c++20", "-pedantic", "-Wshadow", *OPTIONS, "-O0", *sanitizer),
        *(ROOT / "tests/native/coroutines.cpp", *LINK),
        *(f"-Wl,-rpath-link,{ucx}", "-o", program),
    )
    # Leaks: the program counts its own, and those of UCX are not its matter.
    options = {"ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0"}
    printed = run(program, env={**os.environ, **environment(), **options})
    assert printed == "each order is safe\n"
