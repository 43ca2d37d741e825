# SPDX-License-Identifier: BSD-3-Clause
"""The programs of examples/native, built with gcc and clang."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from natives import (
    LIBRARY,
    LINK,
    OPTIONS,
    compiler_or_skip,
    environment,
    load_module,
    python,
    run,
)
from paths import EXAMPLES

import ucp
from ucp.testing import connected_pair

NATIVE = EXAMPLES / "native"


@pytest.fixture(scope="module")
def cython(tmp_path_factory):
    """A copy of the folder, in which Cython has written C."""
    pytest.importorskip("Cython", reason="Cython is not installed")
    folder = tmp_path_factory.mktemp("cython")
    for path in NATIVE.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    run(sys.executable, "-P", "-m", "cython", "batch.pyx", cwd=folder)
    return folder


@pytest.fixture(scope="module", params=["gcc", "clang"])
def folder(request, cython):
    """The folder with its modules, which setup.py has built with this compiler."""
    compiler_or_skip(request.param)
    for path in cython.glob("*.so"):
        path.unlink()
    run(
        *(sys.executable, "-P", "setup.py", "-q", "build_ext", "-f", "--inplace"),
        cwd=cython,
        env={**os.environ, "CC": request.param, "CFLAGS": "-O0"},
    )
    return cython


def test_modules_find_the_package_s_library(folder):
    for module in ("batch", "echo_layer"):
        path = next(folder.glob(f"{module}*.so"))
        assert LIBRARY in run("readelf", "-d", path)


def test_cython_posts_what_python_awaits(folder):
    assert python(folder / "batch_demo.py").splitlines() == [
        "hello",
        "1000 rows, equal",
    ]


def test_a_layer_in_c_answers_while_python_computes(folder):
    printed = python(folder / "echo_demo.py", "100").splitlines()
    assert [line.partition(":")[0] for line in printed[:2]] == [
        "layer in C",
        "handler in Python",
    ]
    counts = re.fullmatch(
        r"the layer answered (\d+) times in the progress thread, (\d+) not", printed[2]
    )
    assert counts is not None
    in_thread, in_loop = map(int, counts.groups())
    assert in_thread + in_loop == 100
    assert in_thread > 0


def test_the_layer_refuses_what_does_not_come_whole(folder):
    layer = load_module(next(folder.glob("echo_layer*.so")))

    async def main():
        layer.serve(ucp.current_worker())
        async with connected_pair() as (client, _server):
            await layer.ask(client, b"x" * 4096)
            assert await client.am_recv(id=layer.ANSWER_ID) == b"x" * 4096
            with pytest.raises(ValueError, match="has 4097 bytes of at most 4096"):
                layer.ask(client, bytes(4097))
            with pytest.raises(TypeError, match="expected an Endpoint of ucp"):
                layer.ask(1, b"")
        with pytest.raises(ucp.UCXCloseError):
            layer.ask(client, b"")

    asyncio.run(main())


@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_coroutines_of_cpp_await_requests(name, tmp_path):
    ucx = Path(ucp.which_ucx().path).parent
    run(
        compiler_or_skip(name),
        *("-std=c++20", "-pedantic", "-Wshadow", *OPTIONS, NATIVE / "coro.cpp", *LINK),
        *(f"-Wl,-rpath-link,{ucx}", "-o", tmp_path / "coro"),
    )
    printed = run(tmp_path / "coro", env=environment()).splitlines()
    assert printed == [
        "client: request canceled",
        "client: message 0",
        "client: message 1",
        "client: message 2",
        "server: endpoint closed by the peer",
    ]


def test_the_header_of_coroutines_is_short():
    header = Path(ucp.get_include(), "umx/coro.hpp").read_text()
    assert len(header.splitlines()) < 200


def test_readme_names_each_file():
    readme = (NATIVE / "README.md").read_text()
    files = {
        path.name for path in NATIVE.iterdir() if path.suffix in (".pyx", ".c", ".cpp")
    }
    assert {name for name in files if f"`{name}`" not in readme} == set()
