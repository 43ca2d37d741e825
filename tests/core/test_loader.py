# SPDX-License-Identifier: BSD-3-Clause
"""Which UCX is loaded, and what is said when there is none."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ucp._core.startup import HINT

REPORT = """
import ctypes, dataclasses, json, os
import ucp
which = ucp.which_ucx()
with open("/proc/self/maps") as maps:
    files = {line.split()[-1] for line in maps if "libuc" in line}
names = [name for name in files if "/libucp.so" in name]
print(json.dumps({**dataclasses.asdict(which), "mapped": names}))
"""


def python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh Python that sees no PYTHON* variable."""
    env = {k: v for k, v in os.environ.items() if k != "UCP_UCX"}
    return subprocess.run(
        [sys.executable, "-I", "-c", code],
        env=env | environ,
        capture_output=True,
        text=True,
        timeout=50,
    )


REFUSED = """
import os
{change}
try:
    import ucp
except ImportError as error:
    print(error)
"""


def refusal(change: str) -> str:
    done = python(REFUSED.format(change=change))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_system_without_proc_is_told_so():
    change = "os.path.exists = lambda path: False"
    assert refusal(change) == (
        "ucp needs /proc, which is not mounted here: 'mount -t proc proc /proc'"
    )


def test_a_file_system_with_noexec_is_named():
    # What the system answers there, of libraries that do not load.
    change = """
import ctypes, types
os.statvfs = lambda name: types.SimpleNamespace(f_flag=os.ST_NOEXEC)
real = ctypes.CDLL
def load(name, *args, handle=None, **rest):
    if handle is not None:
        raise OSError(f"{name}: failed to map segment from shared object")
    return real(name, *args, **rest)
ctypes.CDLL = load
"""
    text = refusal(change)
    assert "cannot be loaded: its file system is mounted with noexec." in text
    assert "libuc" in text
    assert "pip install libucx" not in text


def test_a_package_in_an_archive_is_not_called_a_source_tree(tmp_path):
    spec = importlib.util.find_spec("ucp")
    assert spec is not None and spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    archive = tmp_path / "program.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        for path in package.rglob("*.py"):
            file.write(path, f"ucp/{path.relative_to(package)}")
    text = refusal(f"import sys; sys.path.insert(0, {str(archive)!r})")
    assert text == (
        f"{archive}/ucp lies in the archive {archive}, and no library can be loaded "
        "from there: unpack it, or 'pip install' ucp into a folder."
    )


def report(code: str, **environ: str) -> dict[str, object]:
    done = python(code, **environ)
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


def import_error(code: str, **environ: str) -> str:
    """The text of the ImportError that `code` ends with."""
    done = python(code, **environ)
    assert done.returncode == 1
    *_, last, hint = done.stderr.strip().splitlines()
    assert hint == HINT
    assert last.startswith("ImportError: ")
    return last.removeprefix("ImportError: ")


@pytest.fixture
def wheel() -> Path:
    """The directory of the package libucx."""
    spec = importlib.util.find_spec("libucx")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package libucx is not installed")
    return Path(spec.submodule_search_locations[0])


def test_default_is_the_wheel(wheel):
    found = report(REPORT)
    assert found["kind"] == "wheel"
    assert Path(str(found["path"])).parent == wheel / "lib"
    assert str(found["version"]).count(".") == 2


@pytest.mark.parametrize("choice", ["wheel", ""])
def test_wheel_may_be_asked_for(wheel, choice):
    assert report(REPORT, UCP_UCX=choice)["kind"] == "wheel"


def test_directory_is_used(wheel, tmp_path):
    (tmp_path / "lib").symlink_to(wheel / "lib")
    found = report(REPORT, UCP_UCX=str(tmp_path))
    assert found["kind"] == "dir"
    assert found["path"] == str(tmp_path / "lib/libucp.so.0")


def test_directory_may_call_it_lib64(wheel, tmp_path):
    (tmp_path / "lib64").symlink_to(wheel / "lib")
    found = report(REPORT, UCP_UCX=str(tmp_path))
    assert found["path"] == str(tmp_path / "lib64/libucp.so.0")


def test_libraries_without_rpath_find_each_other(wheel, tmp_path):
    """Distributions build libraries without rpath: libucs only names libucm.so.0."""
    (tmp_path / "lib").mkdir()
    for name in ("libucm", "libucs", "libuct", "libucp"):
        data = (wheel / "lib" / f"{name}.so.0").read_bytes()
        file = tmp_path / "lib" / f"{name}.so.0"
        file.write_bytes(data.replace(b"$ORIGIN", b"/nodir_"))
    assert report(REPORT, UCP_UCX=str(tmp_path))["kind"] == "dir"


def test_system_means_what_the_dynamic_linker_finds(wheel):
    lib = str(wheel / "lib")
    found = report(REPORT, UCP_UCX="system", LD_LIBRARY_PATH=lib)
    assert found["kind"] == "system"
    assert found["path"] == f"{lib}/libucp.so.0"


def test_ucx_loaded_by_others_is_shared(wheel):
    found = report("import libucx\nkeep = libucx.load_library()" + REPORT)
    assert found["kind"] == "loaded"
    assert len(found["mapped"]) == 1


def test_others_share_ours(wheel):
    code = REPORT.replace("import ucp\n", "import ucp, libucx\nlibucx.load_library()\n")
    found = report(code)
    assert found["kind"] == "wheel"
    assert len(found["mapped"]) == 1


def test_import_leaves_the_environment_alone():
    code = """
import ctypes, os
c_environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
def environ():
    n = 0
    while c_environ[n] is not None:
        n += 1
    return dict(os.environ), c_environ[:n]
before = environ()
import ucp
ucp.which_ucx()
assert environ() == before
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_missing_wheel_says_what_to_do():
    text = import_error("import sys; sys.modules['libucx'] = None; import ucp")
    assert text == (
        "ucp found no package libucx. Install UCX with 'pip install libucx-cu12' "
        "(or libucx-cu13), or set UCP_UCX=system to use the system's libucp.so.0, "
        "or UCP_UCX=/dir to use /dir/lib/libucp.so.0."
    )


def test_missing_system_ucx_says_what_to_do():
    if python("import ctypes; ctypes.CDLL('libucs.so.0')").returncode == 0:
        pytest.skip("the system has UCX")
    text = import_error("import ucp", UCP_UCX="system")
    assert text == (
        "ucp cannot load UCX (system): libucs.so.0: cannot open shared object "
        "file: No such file or directory. Install the system's UCX (Debian: "
        "libucx0), or unset UCP_UCX to use the package libucx-cu12."
    )


def test_directory_without_ucx_is_named(tmp_path):
    text = import_error("import ucp", UCP_UCX=str(tmp_path))
    assert text == (
        f"UCP_UCX={tmp_path}: there is no {tmp_path}/lib/libucp.so.0 with libuct, "
        "libucs and libucm beside it"
    )


def test_file_that_is_no_library_is_named(tmp_path):
    (tmp_path / "lib").mkdir()
    for name in ("libucm", "libucs", "libuct", "libucp"):
        (tmp_path / "lib" / f"{name}.so.0").write_text("not a library")
    text = import_error("import ucp", UCP_UCX=str(tmp_path))
    assert text.startswith(
        f"ucp cannot load UCX (dir): {tmp_path}/lib/libucs.so.0: file too short. "
    )


@pytest.mark.parametrize("choice", ["wheels", "lib/ucx"])
def test_unknown_choice_is_refused(choice):
    text = import_error("import ucp", UCP_UCX=choice)
    assert text == f"UCP_UCX='{choice}': expected 'wheel', 'system' or an absolute path"


def test_source_tree_says_that_it_is_one(tmp_path):
    package = Path(str(importlib.util.find_spec("ucp").origin)).parent
    shutil.copytree(
        package, tmp_path / "ucp", ignore=shutil.ignore_patterns("_ext*.so")
    )
    text = import_error(
        "import sys; "
        f"sys.path = [{str(tmp_path)!r}, *(p for p in sys.path if 'site-p' not in p)]; "
        "import ucp"
    )
    assert text == (
        f"{tmp_path}/ucp has no compiled extension: it is a source tree, and no ucp is "
        f"installed for {sys.executable}. Run 'make demo' in the source tree, and "
        "start its .venv/bin/python; or run 'pip install .' there."
    )


def test_transport_modules_of_the_wheel_are_found(wheel):
    """libuct_cma.so is a module that UCX finds relative to its library."""
    code = """
import ucp
ucp.get_ucp_context_info()
with open("/proc/self/maps") as maps:
    assert any("libuct_cma" in line for line in maps)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


GRACE = """
import json, os, sys, threading
name = "UCX_MEM_BISTRO_GRACE_DURATION"
seen = set()
def look(event, arguments):
    if event == "ctypes.dlopen":
        seen.add(os.environ.get(name))
sys.addaudithook(look)
end = threading.Event()
thread = threading.Thread(target=end.wait)
{before}
import ucp
if thread.ident:
    end.set()
    thread.join()
print(json.dumps(["0" in seen, os.environ.get(name)]))
"""


@pytest.mark.parametrize(
    "before, value, expected",
    [
        ("pass", None, [True, None]),
        ("thread.start()", None, [False, None]),
        ("pass", "1ms", [False, "1ms"]),
    ],
    ids=["alone", "with a thread", "as the user says"],
)
def test_ucx_waits_for_other_threads_if_there_are_any(before, value, expected):
    environ = {} if value is None else {"UCX_MEM_BISTRO_GRACE_DURATION": value}
    done = python(GRACE.format(before=before), **environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected
