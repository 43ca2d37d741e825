#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Have other compilers read the sources, as `make lint` does: a warning is an error.

    tools/syntax.py

No code is generated. clang and gcc for aarch64 read the library and the extension;
the compiler of the build reads the extension as for a CPython without the GIL, with
the headers of the newest CPython at hand, which must be 3.13 or newer. What is not
at hand is named and left out.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy
import wheels

ROOT = Path(__file__).parents[1]
FLAGS = (
    "-fsyntax-only",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
    "-Werror",
    "-Iinclude",
)
FILES_OF_A_PROCESS = 16


class Reading(NamedTuple):
    """Files that a compiler reads, and with which options."""

    name: str
    compiler: str
    flags: tuple[str, ...]
    files: tuple[str, ...]


def sources(pattern: str) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern)))


def ucx_flags() -> tuple[str, ...]:
    """Nothing if UCX is the system's, whose headers are where compilers look."""
    choice = os.environ.get("UCP_UCX") or "wheel"
    if os.path.isabs(choice):
        return (f"-isystem{choice}/include",)
    spec = find_spec("libucx") if choice == "wheel" else None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return tuple(f"-isystem{place}/include" for place in places)


def newest_python() -> tuple[str, Path] | None:
    """The version and the headers of the newest CPython; None if it is too old."""
    found = [wheels.describe(name) for name in wheels.candidates()]
    usable = [one for one in found if one is not None and one.has_headers]
    if not usable:
        return None
    newest = max(usable, key=lambda one: tuple(map(int, one.version.split("."))))
    code = "import sysconfig; print(sysconfig.get_path('include'))"
    done = subprocess.run(
        [newest.path, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    version = tuple(map(int, newest.version.split(".")))
    return (newest.version, Path(done.stdout.strip())) if version >= (3, 13) else None


def readings() -> Iterator[Reading]:
    library = ("-Isrc", *ucx_flags())
    numpys = f"-isystem{numpy.get_include()}"
    extension = ("-Iucp_ext", numpys)
    own = f"-isystem{sysconfig.get_path('include')}"
    for compiler in ("clang", "aarch64-linux-gnu-gcc"):
        if shutil.which(compiler) is None:
            print(f"{compiler} is left out: it is not installed")
            continue
        yield Reading(compiler, compiler, library, sources("src/*/*.c"))
        yield Reading(compiler, compiler, (*extension, own), sources("ucp_ext/**/*.c"))
    newest = newest_python()
    if newest is None:
        print("a CPython without the GIL is left out: no CPython is 3.13 or newer")
        return
    version, headers = newest
    flags = (*extension, f"-isystem{headers}", "-DPy_GIL_DISABLED")
    name = f"without the GIL, CPython {version}"
    compiler = os.environ.get("CC", "cc")
    yield Reading(name, compiler, flags, sources("ucp_ext/**/*.c"))


def read(reading: Reading, files: tuple[str, ...]) -> str:
    """What the compiler says, if it refuses one of the files."""
    command = [*reading.compiler.split(), *FLAGS, *reading.flags, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stderr if done.returncode != 0 else ""


def main() -> None:
    failed = False
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for reading in readings():
            step = range(0, len(reading.files), FILES_OF_A_PROCESS)
            parts = [reading.files[i : i + FILES_OF_A_PROCESS] for i in step]
            texts = list(pool.map(lambda part, to=reading: read(to, part), parts))
            room = Path(reading.files[0]).parts[0]
            print(f"{reading.name}: {len(reading.files)} files of {room}", flush=True)
            if any(texts):
                failed = True
                print("".join(texts), file=sys.stderr)
    if failed:
        sys.exit("a compiler refuses what the one of the build takes")


if __name__ == "__main__":
    main()
