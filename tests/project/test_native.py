# SPDX-License-Identifier: BSD-3-Clause
"""Programs in C find libumx by pkg-config and by CMake, in the package and where
``make -C src install`` has put it, and the example is C++ as well."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import budget
import pytest
from paths import ROOT

import ucp

NATIVE = ROOT / "examples/native"
HELLO = ROOT / "examples/hello.c"


def run(*command: str | Path, **env: str) -> str:
    """What the command prints; it must succeed."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")


@pytest.fixture(scope="module")
def system(tmp_path_factory) -> Path:
    """The folder of libraries of an installation by src/Makefile."""
    need("make")
    objects = [*ROOT.glob("build/release-*/libumx/umx.o")]
    if not objects:
        pytest.skip("the package was not built here, or without -flinker-output")
    stage = tmp_path_factory.mktemp("stage")
    newest = max(objects, key=lambda path: path.stat().st_mtime)
    words = (f"PYTHON={sys.executable}", f"B={stage}/build", "VARIANT=package")
    make = ("make", "-C", str(ROOT / "src"), *words, f"OBJECT={newest}")
    run(*make, "install", f"DESTDIR={stage}", "PREFIX=/usr")
    return stage / "usr/lib"


def test_the_library_of_the_package_has_all_that_was_compiled():
    """Also if the extension did not have to be compiled again."""
    built = [*ROOT.glob("build/*/libumx/libumx.so.*")]
    if not built:
        pytest.skip("the package was not built here")
    for library in built:
        time = library.stat().st_mtime
        objects = library.parent.glob("src/*/*.o")
        assert [path for path in objects if path.stat().st_mtime > time] == []


@pytest.fixture(params=["package", "system"])
def lib(request) -> Path:
    if request.param == "package":
        return Path(ucp.get_library_dir())
    return request.getfixturevalue("system")


@pytest.fixture(params=["gcc", "clang"])
def compiler(request) -> str:
    need(request.param)
    return request.param


def program_of_cmake(lib: Path, compiler: str, build: Path) -> Path:
    need("cmake")
    where = f"-Dumx_DIR={lib}/cmake/umx"
    run("cmake", "-S", NATIVE / "cmake", "-B", build, where, CC=compiler)
    run("cmake", "--build", build)
    return build / "hello"


def program_of_pkg_config(lib: Path, compiler: str, build: Path) -> Path:
    need("make", "pkg-config")
    words = (f"CC={compiler}", f"BUILD={build}", f"PKG_CONFIG_PATH={lib}/pkgconfig")
    run("make", "-C", NATIVE / "pkg-config", *words)
    return build / "hello"


def listening(program: Path) -> Iterator[int]:
    """The port of a program that echoes messages until its peer closes."""
    with subprocess.Popen(
        [program, "listen", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("build", [program_of_cmake, program_of_pkg_config])
def test_a_program_in_c_is_built_and_talks_to_python(lib, compiler, build, tmp_path):
    program = build(lib, compiler, tmp_path)
    for port in listening(program):
        # The worker of ucp.sync is made once in a process.
        with budget.uncounted(), ucp.sync.connect("127.0.0.1", port) as client:
            client.send(b"from Python")
            assert client.recv_obj() == b"from Python"
    told = run(program, "--self")
    assert re.fullmatch(r"hello from C\na round trip takes \d+\.\d us\n", told)


@pytest.mark.parametrize("version, is_found", [("0.1", True), ("0.2", False)])
def test_cmake_takes_a_version_that_is_compatible(version, is_found, tmp_path):
    need("cmake")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(test LANGUAGES NONE)\n"
        f"find_package(umx {version} QUIET)\nmessage(STATUS found=${{umx_FOUND}})\n"
    )
    where = f"-Dumx_DIR={ucp.get_library_dir()}/cmake/umx"
    output = run("cmake", "-S", tmp_path, "-B", tmp_path / "build", where)
    assert f"found={int(is_found)}" in output


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_example_is_cplusplus_as_well(compiler, standard):
    need(compiler)
    options = ("-x", "c++", f"-std={standard}", "-Wall", "-Werror", "-fsyntax-only")
    run(compiler, *options, f"-I{ucp.get_include()}", HELLO)
