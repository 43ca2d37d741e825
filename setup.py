# SPDX-License-Identifier: BSD-3-Clause
"""Build ``ucp._ext``: the binding in ucp_ext/ and all of libumx in src/.

Environment:
    UCP_UCX       wheel (default), system (pkg-config ucx), or /dir with
                  /dir/include and /dir/lib; ucp/_core/loader.py reads it too
    UCP_DEBUG     1: -O0 -g, assertions, no link-time optimisation
    UCP_SANITIZE  address: AddressSanitizer and UBSan
    UCP_WERROR    1: a warning is an error. Continuous integration sets it; other
                  compilers warn of more
    CC            the compiler; gcc and clang work
"""

import os
import subprocess
import sys
import tempfile
from glob import glob
from pathlib import Path
from typing import NamedTuple

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WARNINGS = [
    "-Wall",
    "-Wextra",
    # What CPython's slot signatures and sentinel entries need.
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
]
EXPORTS = "ucp_ext/exports.map"


class Ucx(NamedTuple):
    include_dirs: list[str]
    library_dirs: list[str]


def flag(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


def find_ucx() -> Ucx:
    choice = os.environ.get("UCP_UCX") or "wheel"
    if choice == "system":
        return find_system_ucx()
    if choice == "wheel":
        import libucx

        prefix = Path(libucx.__file__).parent
    elif os.path.isabs(choice):
        prefix = Path(choice)
    else:
        sys.exit(f"UCP_UCX={choice!r}: expected wheel, system or an absolute path")
    if not (prefix / "include/ucp/api/ucp.h").exists():
        sys.exit(f"UCP_UCX={choice}: there is no {prefix}/include/ucp/api/ucp.h")
    libs = [str(prefix / name) for name in ("lib", "lib64") if (prefix / name).is_dir()]
    return Ucx([str(prefix / "include")], libs)


def find_system_ucx() -> Ucx:
    def directories(option: str, prefix: str) -> list[str]:
        words = subprocess.check_output(
            ["pkg-config", option, "--keep-system-cflags", "ucx"], text=True
        ).split()
        return [word.removeprefix(prefix) for word in words]

    try:
        return Ucx(
            directories("--cflags-only-I", "-I"),
            directories("--libs-only-L", "-L"),
        )
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(
            "UCP_UCX=system: 'pkg-config ucx' failed; install pkg-config and "
            f"UCX's headers (Debian: pkg-config libucx-dev): {error}"
        )


def variant_flags() -> tuple[str, list[str], list[str]]:
    """Name, compile flags and link flags of the kind of build asked for."""
    sanitize = os.environ.get("UCP_SANITIZE", "")
    if sanitize == "address":
        flags = [
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=undefined",
            "-fno-omit-frame-pointer",
        ]
        return "asan", ["-O1", "-g", "-UNDEBUG", *flags], flags
    if sanitize:
        sys.exit(f"UCP_SANITIZE={sanitize!r}: expected address")
    if flag("UCP_DEBUG"):
        return "debug", ["-O0", "-g", "-UNDEBUG"], ["-g"]
    return "release", ["-O3", "-DNDEBUG"], ["-O3"]


class BuildExt(build_ext):
    """Adds link-time optimisation where the compiler and linker have it."""

    def build_extension(self, ext: Extension) -> None:
        self.separate_trees()
        if VARIANT == "release":
            lto = next((f for f in ("-flto=auto", "-flto") if self.links(f)), None)
            if lto is not None:
                ext.extra_compile_args.append(lto)
                ext.extra_link_args.append(lto)
        super().build_extension(ext)

    def separate_trees(self) -> None:
        """Have each file find the headers of its own tree: rooms of src/ and of
        ucp_ext/ have the same names."""
        compile_file = self.compiler._compile

        def compile_in_tree(obj, src, ext, cc_args, *args):
            tree = Path(src).parts[0]
            compile_file(obj, src, ext, [f"-I{tree}", *cc_args], *args)

        self.compiler._compile = compile_in_tree

    def links(self, option: str) -> bool:
        """Does a shared object link with `option`, without a warning?"""
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory, "probe.c")
            source.write_text("int probe(void) { return 0; }\n")
            command = [
                *self.compiler.linker_so,
                *("-fPIC", "-Werror", option, str(source)),
                *("-o", str(Path(directory, "probe.so"))),
            ]
            return subprocess.run(command, capture_output=True).returncode == 0


if flag("UCP_WERROR"):
    WARNINGS.append("-Werror")
VARIANT, COMPILE_FLAGS, LINK_FLAGS = variant_flags()
UCX = find_ucx()

extension = Extension(
    "ucp._ext",
    sources=sorted(glob("ucp_ext/*.c") + glob("ucp_ext/*/*.c") + glob("src/*/*.c")),
    depends=[
        *glob("include/umx/*.h"),
        *glob("src/*/*.h"),
        *glob("ucp_ext/*.h"),
        *glob("ucp_ext/*/*.h"),
        EXPORTS,
        "setup.py",
    ],
    include_dirs=["include"],
    library_dirs=UCX.library_dirs,
    libraries=["ucp", "ucs"],
    extra_compile_args=[
        "-std=gnu11",
        "-fvisibility=hidden",
        "-pthread",
        *WARNINGS,
        *COMPILE_FLAGS,
        # Their headers are not ours to warn about.
        *(f"-isystem{path}" for path in (*UCX.include_dirs, numpy.get_include())),
    ],
    extra_link_args=[
        "-pthread",
        f"-Wl,--version-script={EXPORTS}",
        *LINK_FLAGS,
    ],
)

# What was built in another way is out of date: each has its own directory.
choices = [VARIANT, os.environ.get("UCP_UCX") or "wheel", os.environ.get("CC", "cc")]
build_base = Path("build", "-".join(choices).replace("/", "_").replace(" ", "_"))

setup(
    ext_modules=[extension],
    cmdclass={"build_ext": BuildExt},
    options={"build": {"build_base": str(build_base)}},
)
