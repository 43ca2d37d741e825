# SPDX-License-Identifier: BSD-3-Clause
"""Each public header compiles alone, as C and as C++, without a warning."""

import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor

import pytest
from natives import compiler_or_skip
from paths import EXAMPLES, ROOT

INCLUDE = ROOT / "include"
HEADERS = sorted(str(path.relative_to(INCLUDE)) for path in INCLUDE.rglob("*.h"))
COMPILERS = {
    "g++": ("-x", "c++", "-std=c++17", "-pedantic"),
    "clang++": ("-x", "c++", "-std=c++17", "-pedantic"),
    "gcc": ("-x", "c", "-std=c11"),
}


def complaints(compiler: str, options: tuple[str, ...], source: str) -> str:
    """What a compiler says about a source text."""
    python = f"-isystem{sysconfig.get_path('include')}"
    command = [compiler, *options, "-Wall", "-Wextra", "-fsyntax-only"]
    done = subprocess.run(
        [*command, f"-I{INCLUDE}", python, "-"],
        input=source,
        capture_output=True,
        text=True,
        timeout=50,
    )
    return done.stderr


@pytest.mark.parametrize("name", COMPILERS)
def test_a_header_compiles_alone(name):
    compiler = compiler_or_skip(name)
    with ThreadPoolExecutor(2) as pool:
        said = pool.map(
            lambda header: complaints(
                compiler, COMPILERS[name], f"#include <{header}>\nint only_this;\n"
            ),
            HEADERS,
        )
        assert [text for text in said if text] == []
    assert len(HEADERS) > 30


@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_the_first_example_is_c_and_cpp(name):
    source = (EXAMPLES / "hello.c").read_text()
    assert complaints(compiler_or_skip(name), COMPILERS[name], source) == ""
