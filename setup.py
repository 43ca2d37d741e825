# SPDX-License-Identifier: BSD-3-Clause
"""Build libumx, from src/, and ``ucp._ext``, the binding in ucp_ext/ that uses it.

The package gets the library as ``ucp/lib/libumx.so.0``, once for the extension and
for programs in C, the headers in ``ucp/include``, and the files by which pkg-config
and CMake find both.

Environment:
    UCP_UCX       wheel (default), system (pkg-config ucx), or /dir with
                  /dir/include and /dir/lib; ucp/_core/loader.py reads it too
    UCP_DEBUG     1: -O0 -g, assertions, no link-time optimisation
    UCP_SANITIZE  address: AddressSanitizer and UBSan
    UCP_WERROR    1: a warning is an error. Continuous integration sets it; other
                  compilers warn of more
    CC            the compiler; gcc and clang work
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path
from runpy import run_path
from typing import NamedTuple

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

WARNINGS = [
    "-Wall",
    "-Wextra",
    # What CPython's slot signatures and sentinel entries need.
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
]
EXPORTS = "ucp_ext/exports.map"
SONAME = "libumx.so.0"
# With these, link-time optimisation writes one object of machine code.
INTO_ONE = ["-r", "-nostdlib", "-flinker-output=nolto-rel"]
# What programs in C are compiled with.
HEADERS = sorted(
    file
    for pattern in ("*.h", "*/*.h", "*/*.hpp")
    for file in glob(f"include/{pattern}")
)


class Ucx(NamedTuple):
    """A UCX; `beside` says where its libraries are, seen from site-packages, if
    it is a package."""

    include_dirs: list[str]
    library_dirs: list[str]
    beside: str | None = None


def flag(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


def find_ucx() -> Ucx:
    choice = os.environ.get("UCP_UCX") or "wheel"
    if choice == "system":
        return find_system_ucx()
    beside = None
    if choice == "wheel":
        import libucx

        prefix, beside = Path(libucx.__file__).parent, "libucx/lib"
    elif os.path.isabs(choice):
        prefix = Path(choice)
    else:
        sys.exit(f"UCP_UCX={choice!r}: expected wheel, system or an absolute path")
    if not (prefix / "include/ucp/api/ucp.h").exists():
        sys.exit(f"UCP_UCX={choice}: there is no {prefix}/include/ucp/api/ucp.h")
    libs = [str(prefix / name) for name in ("lib", "lib64") if (prefix / name).is_dir()]
    return Ucx([str(prefix / "include")], libs, beside)


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


def find_numpy() -> str:
    """The directory of NumPy's headers."""
    import numpy

    return numpy.get_include()


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
    # -g1: a backtrace has lines. Variables would take a quarter of the build.
    return "release", ["-O3", "-g1", "-DNDEBUG"], ["-O3", "-g1"]


def headers_id() -> str:
    """What umx_headers_id() returns; src/Makefile has the same rule."""
    files = sorted(glob("include/umx/*.h"))
    content = b"".join(Path(file).read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()[:16]


def is_new(target: str, words: list[str]) -> bool:
    """Is the object newer than all that it was made of, by the same command?"""
    rule, command = Path(target).with_suffix(".d"), Path(f"{target}.command")
    if not (rule.exists() and command.exists()):
        return False
    if command.read_text() != " ".join(words):
        return False
    files = rule.read_text().replace("\\\n", " ").partition(":")[2]
    return not newer_group(shlex.split(files), target, missing="newer")


class BuildExt(build_ext):
    """Builds the library first, then the extension, which is linked to it."""

    def build_extensions(self) -> None:
        self.compiler.compile = self.compile_in_parallel
        # An interpreter may be built with an rpath to its own libraries, which
        # neither the extension nor libumx is linked to.
        self.compiler.linker_so = [
            word
            for word in self.compiler.linker_so
            if not word.startswith(("-Wl,-rpath,", "-Wl,-rpath="))
        ]
        self.into_one = False
        self.tree = Path(self.build_lib, "ucp")
        self.ucx = find_ucx()
        self.add_options()
        # Each Python has its own extension, and all of them one library.
        base = self.get_finalized_command("build").build_base
        self.library = Path(base, "libumx", SONAME)
        self.objects = self.compile_library()
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        self.compiler.compile = self.compile_beside_library
        ext.extra_objects = [str(self.tree / "lib" / SONAME)]
        # Their headers are not ours to warn about.
        ext.extra_compile_args += [*COMPILE_FLAGS, f"-isystem{find_numpy()}"]
        ext.extra_link_args += LINK_FLAGS
        self.is_linked = False
        super().build_extension(ext)
        if not self.is_linked:  # the extension is as new as its sources
            self.link_library(self.objects)
            self.install_for_c()

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        for name in ("lib", "include"):
            shutil.copytree(self.tree / name, Path("ucp", name), dirs_exist_ok=True)

    def add_options(self) -> None:
        """Find out what compiler and linker can do for a release."""
        if VARIANT != "release":
            return
        lto = next((f for f in ("-flto=auto", "-flto") if self.links(f)), None)
        if lto is not None:
            COMPILE_FLAGS.append(lto)
            LINK_FLAGS.append(lto)
            head = [*self.compiler.compiler_so, lto]
            self.into_one = self.makes([*head, "-c"], [*head, *INTO_ONE])
        # Functions of the library that call each other call no others of these
        # names, and calls between library and extension are bound when they load.
        for option in ("-fno-semantic-interposition", "-fno-plt"):
            if self.links(option):
                COMPILE_FLAGS.append(option)
        for option in ("-Wl,-Bsymbolic-functions", "-Wl,-z,now"):
            if self.links(option):
                LINK_FLAGS.append(option)

    def compile_library(self) -> list[str]:
        """The objects of the library; none if it is as new as its sources."""
        sources = sorted(glob("src/*/*.c"))
        depends = [*sources, *glob("src/*/*.h"), *HEADERS, "setup.py"]
        if not self.force and not newer_group(depends, str(self.library)):
            return []
        system = [f"-isystem{path}" for path in self.ucx.include_dirs]
        objects = []
        # One file has the hash, so that others are the same in a compiler cache.
        version = "src/host/version.c"
        for files, macros in (
            ([version], [("UMI_HEADERS_ID", f'"{headers_id()}"')]),
            ([one for one in sources if one != version], []),
        ):
            objects += self.compiler.compile(
                files,
                output_dir=str(self.library.parent),
                macros=macros,
                include_dirs=["include", "src"],
                extra_postargs=[*FLAGS, *COMPILE_FLAGS, *system],
            )
        return objects

    def link_library(self, objects: list[str]) -> None:
        if not objects:
            return
        # Tests in C link this one, too: see OBJECT in src/Makefile.
        one = self.library.with_name("umx.o")
        one.unlink(missing_ok=True)
        if self.into_one:
            head = [*self.compiler.compiler_so, *COMPILE_FLAGS, *INTO_ONE]
            self.compiler.spawn([*head, "-o", str(one), *objects])
            objects = [str(one)]
        self.compiler.link_shared_object(
            objects,
            str(self.library),
            libraries=["ucp", "ucs"],
            library_dirs=self.ucx.library_dirs,
            extra_postargs=["-pthread", f"-Wl,-soname,{SONAME}", *LINK_FLAGS],
        )

    def install_for_c(self) -> None:
        """Put the library into the package, and what a program needs to use it."""
        (self.tree / "lib").mkdir(parents=True, exist_ok=True)
        shutil.copy(self.library, self.tree / "lib" / SONAME)
        shutil.rmtree(self.tree / "include", ignore_errors=True)
        for header in HEADERS:
            copy = self.tree / header
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(header, copy)
        # A package has no links, and a copy would be twice the size: the linker
        # reads this as a script, and the program that it makes needs the soname.
        (self.tree / "lib/libumx.so").write_text(f"INPUT ( {SONAME} )\n")
        self.describe("umx.pc", "pkgconfig", "${prefix}")
        self.describe("umx-config.cmake", "cmake/umx", "${umx_PREFIX}")
        self.describe("umx-config-version.cmake", "cmake/umx", "")

    def describe(self, name: str, folder: str, prefix: str) -> None:
        """Write src/NAME.in into the package as src/Makefile does elsewhere."""
        if self.ucx.beside is not None:
            where = f"{prefix}/../{self.ucx.beside}"
        else:
            where = self.ucx.library_dirs[0] if self.ucx.library_dirs else ""
        text = Path("src", f"{name}.in").read_text()
        for word, value in (
            ("VERSION", self.distribution.get_version()),
            ("UCX_LIBDIR", where),
            ("UCX_LINK", where and f"-L{where}"),
            ("RPATH", where and f",-rpath,{where}"),
            ("RPATH_LINK", where and f"-Wl,-rpath-link,{where}"),
        ):
            text = text.replace(f"@{word}@", value)
        file = self.tree / "lib" / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def compile_in_parallel(self, sources: list[str], **options: object) -> list[str]:
        """Compile as the compiler's own method does, on all cores, what changed."""
        options = {**options, "depends": None}  # the compiler finds them itself

        def compile_one(source: str) -> list[str]:
            folder = options.get("output_dir")
            [target] = self.compiler.object_filenames([source], output_dir=folder)
            words = [*self.compiler.compiler_so, *map(repr, sorted(options.items()))]
            if not self.force and is_new(target, words):
                return [target]
            found = type(self.compiler).compile(self.compiler, [source], **options)
            Path(f"{target}.command").write_text(" ".join(words))
            return found

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return [obj for objs in pool.map(compile_one, sources) for obj in objs]

    def compile_beside_library(self, *args: list[str], **options: object) -> list[str]:
        """Compile the extension. Much of a link has one process only: meanwhile."""
        with ThreadPoolExecutor(1) as pool:
            linked = pool.submit(self.link_library, self.objects)
            objects = self.compile_in_parallel(*args, **options)
            linked.result()
        self.install_for_c()
        self.is_linked = True
        return objects

    def links(self, option: str) -> bool:
        """Does a shared object link with `option`, without a warning?"""
        return self.makes([*self.compiler.linker_so, option])

    def makes(self, *heads: list[str]) -> bool:
        """Do commands that begin so make something of a source, each of what the one
        before has made?"""
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory, "probe.c")
            source.write_text("int probe(void) { return 0; }\n")
            for number, head in enumerate(heads):
                made = Path(directory, f"probe{number}.o")
                command = [*head, "-fPIC", "-Werror", str(source), "-o", str(made)]
                if subprocess.run(command, capture_output=True).returncode != 0:
                    return False
                source = made
            return True


REASON = run_path("ucp/_core/platforms.py")["unsupported"]()
if REASON is not None:
    sys.exit(REASON)
if flag("UCP_WERROR"):
    WARNINGS.append("-Werror")
VARIANT, COMPILE_FLAGS, LINK_FLAGS = variant_flags()
FLAGS = ["-std=gnu11", "-fvisibility=hidden", "-pthread", "-MD", *WARNINGS]

extension = Extension(
    "ucp._ext",
    sources=sorted(glob("ucp_ext/*.c") + glob("ucp_ext/*/*.c")),
    depends=[
        *HEADERS,
        *glob("ucp_ext/*.h"),
        *glob("ucp_ext/*/*.h"),
        EXPORTS,
        "setup.py",
    ],
    include_dirs=["include", "ucp_ext"],
    # BuildExt adds the options that it finds.
    extra_compile_args=FLAGS,
    extra_link_args=[
        "-pthread",
        f"-Wl,--version-script={EXPORTS}",
        "-Wl,--enable-new-dtags,-rpath,$ORIGIN/lib",
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
