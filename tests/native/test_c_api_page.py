# SPDX-License-Identifier: BSD-3-Clause
"""The programs of docs/c-api.md are built and run."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from natives import (
    LINK,
    OPTIONS,
    any_compiler,
    compile_module,
    compiler_or_skip,
    environment,
    load_module,
    run,
)
from paths import ROOT

import ucp
from ucp.testing import connected_pair

PAGE = (ROOT / "docs/c-api.md").read_text()
UCX = Path(ucp.which_ucx().path).parent


def block(language: str, what: str) -> str:
    """The block of a language that has a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return next(code for code in blocks if what in code)


@pytest.mark.parametrize("name", ["gcc", "g++"])
def test_post_then_wait(name, tmp_path):
    source = tmp_path / ("program.c" if name == "gcc" else "program.cpp")
    source.write_text(block("c", "The end of an operation"))
    run(
        *(compiler_or_skip(name), *OPTIONS, source, *LINK),
        *(f"-Wl,-rpath-link,{UCX}", "-o", tmp_path / "program"),
    )
    assert run(tmp_path / "program", env=environment()).splitlines() == [
        "received hello",
        "nothing came: request canceled",
        "success",
    ]


def test_the_extension_module_sends(tmp_path):
    source = tmp_path / "sender.c"
    source.write_text(block("c", "PyInit_sender"))
    module = load_module(compile_module(any_compiler(), source, tmp_path))

    async def main():
        buffer = bytearray(5)
        async with connected_pair() as (client, _server):
            await module.send(client, b"bytes", 7)
            await ucp.current_worker().recv(buffer, 7)
        with pytest.raises(ucp.UCXCloseError):
            module.send(client, b"bytes", 7)
        return bytes(buffer)

    assert asyncio.run(main()) == b"bytes"


def test_cython_takes_the_module(tmp_path):
    pytest.importorskip("Cython", reason="Cython is not installed")
    source = tmp_path / "sender.pyx"
    source.write_text("# cython: language_level=3\n" + block("cython", "import_ucp"))
    run(sys.executable, "-P", "-m", "cython", "-Wextra", source)
    assert "umx_tag_send" in (tmp_path / "sender.c").read_text()


@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_the_coroutine_compiles(name, tmp_path):
    source = tmp_path / "coroutine.cpp"
    source.write_text(block("cpp", "umx::task"))
    run(compiler_or_skip(name), "-std=c++20", *OPTIONS, "-fsyntax-only", source)
