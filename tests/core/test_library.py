# SPDX-License-Identifier: BSD-3-Clause
"""A process has one libumx, which is the package's, and C programs can use it."""
# tests: ucp/loader

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ucp

INCLUDE = ucp.get_include()
LIBRARY = Path(ucp.get_library_dir(), "libumx.so.0")

# Code in C that uses the library, as ctypes or an extension would load it.
USER = """
#include <umx/umx.h>
const char *user_version(void) { return umx_version_string(); }
"""

MAPPED = """
with open("/proc/self/maps") as maps:
    print(*{line.split()[-1] for line in maps if "libumx" in line})
"""

LOAD = "import ctypes; user = ctypes.CDLL({path!r})\n"


def python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        env=environ,
    )


def compiled(target: Path, source: str, *options: str) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    file = target.with_suffix(".c")
    file.write_text(source)
    command = [compiler, "-shared", "-fPIC", "-o", str(target), str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(target)


@pytest.fixture
def user(tmp_path):
    rpath = f"-Wl,-rpath,{LIBRARY.parent}"
    options = (f"-I{INCLUDE}", f"-L{LIBRARY.parent}", "-lumx", rpath)
    return compiled(tmp_path / "user.so", USER, *options)


def other_library(folder: Path, version: str | None, headers: str = "") -> str:
    """A library that has libumx's soname, and these functions of it."""
    source = "int nothing_of_libumx;\n"
    if version is not None:
        source += 'const char *umx_status_string(int n) { return n ? "" : "?"; }\n'
    if version:
        source += f'const char *umx_version_string(void) {{ return "{version}"; }}\n'
        source += f'const char *umx_headers_id(void) {{ return "{headers}"; }}\n'
    return compiled(folder / "other.so", source, "-Wl,-soname,libumx.so.0")


def import_error(text: str) -> str:
    """The line of the exception, which is followed by a note on doctor."""
    *_, line, note = text.strip().splitlines()
    assert "doctor" in note
    return line


def test_the_library_is_the_packages_and_mapped_once():
    done = python("import ucp" + MAPPED)
    assert done.stdout.split() == [str(LIBRARY)], done.stderr


@pytest.mark.parametrize("order", ["before", "after"])
def test_code_in_c_shares_the_library(user, order):
    load = LOAD.format(path=user)
    code = f"{load}import ucp" if order == "before" else f"import ucp; {load}"
    version = "\nuser.user_version.restype = ctypes.c_char_p\n"
    version += "print(user.user_version().decode())\n"
    ucx = Path(ucp.which_ucx().path).parent
    done = python(code + version + MAPPED, LD_LIBRARY_PATH=str(ucx))
    assert done.stdout.split() == [ucp.__version__, str(LIBRARY)], done.stderr


def test_a_search_path_does_not_bring_another_library(tmp_path):
    other_library(tmp_path, "9.9.9")
    (tmp_path / "other.so").rename(tmp_path / "libumx.so.0")
    done = python("import ucp" + MAPPED, LD_LIBRARY_PATH=str(tmp_path))
    assert done.stdout.split() == [str(LIBRARY)], done.stderr


@pytest.mark.parametrize(
    "version, headers, told",
    [
        ("9.9.9", "0123456789abcdef", "9.9.9"),
        (ucp.__version__, "0123456789abcdef", ucp.__version__),
        ("", "", "unknown"),
        (None, "", "unknown"),
    ],
    ids=["version", "headers", "old", "unrelated"],
)
def test_another_library_that_is_loaded_is_refused(tmp_path, version, headers, told):
    path = other_library(tmp_path, version, headers)
    done = python(LOAD.format(path=path) + "import ucp")
    assert import_error(done.stderr) == (
        f"ImportError: this process has loaded {path}, libumx of version {told}, and "
        f"ucp {ucp.__version__} needs {LIBRARY}: both are libumx.so.0, and a process "
        f"has one library of a name. Build what loads {path} with ucp's own: headers "
        "in ucp.get_include(), library in ucp.get_library_dir(). Or start Python "
        "without it: look at LD_LIBRARY_PATH and LD_PRELOAD."
    )


def test_a_copy_of_the_same_build_is_used(tmp_path):
    copy = shutil.copy(LIBRARY, tmp_path / "libumx.so.0")
    ucx = Path(ucp.which_ucx().path).parent
    code = LOAD.format(path=str(copy)) + "import ucp" + MAPPED
    done = python(code, LD_LIBRARY_PATH=str(ucx))
    assert done.stdout.split() == [str(copy)], done.stderr


def test_a_package_without_its_library_says_so(tmp_path):
    package = Path(ucp.__file__).parent
    without = shutil.ignore_patterns("libumx.so.0")
    shutil.copytree(package, tmp_path / "ucp", ignore=without)
    done = python(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import ucp")
    last = import_error(done.stderr)
    missing = tmp_path / "ucp/lib/libumx.so.0"
    assert last.startswith(f"ImportError: ucp cannot load its library {missing}: ")
    assert "Install ucp again" in last
