# SPDX-License-Identifier: BSD-3-Clause
"""Programs and extension modules in C, C++ and Cython that tests build."""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

import ucp

LIBRARY = ucp.get_library_dir()
OPTIONS = ["-O1", "-Wall", "-Wextra", "-Werror", f"-I{ucp.get_include()}"]
LINK = [f"-L{LIBRARY}", "-lumx", f"-Wl,-rpath,{LIBRARY}"]


def compiler_or_skip(name: str) -> str:
    """The path of a compiler, which clang and gcc, clang++ and g++ are."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name}")
    return path


def any_compiler() -> str:
    """A compiler of C; skips without one."""
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return path
    return compiler_or_skip("cc")


def run(*command: str | Path, cwd: Path | None = None, **options) -> str:
    """What a command prints; fails with what it says."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=50,
        **options,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def compile_module(compiler: str, source: Path, folder: Path, *options: str) -> Path:
    """Build an extension module from a file in C, or from one that Cython made."""
    target = folder / (source.stem + sysconfig.get_config_var("EXT_SUFFIX"))
    python = f"-I{sysconfig.get_path('include')}"
    run(
        compiler,
        *("-shared", "-fPIC", *OPTIONS, python, *options),
        *("-o", target, source, *LINK),
    )
    return target


def load_module(path: Path) -> ModuleType:
    """Import an extension module from its file."""
    name = path.name.partition(".")[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment() -> dict[str, str]:
    """Where a program without Python finds the UCX that ucp uses."""
    return {"LD_LIBRARY_PATH": str(Path(ucp.which_ucx().path).parent)}


def python(script: Path, *arguments: str) -> str:
    """What a program in Python prints."""
    return run(sys.executable, "-P", script, *arguments)
