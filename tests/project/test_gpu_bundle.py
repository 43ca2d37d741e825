# SPDX-License-Identifier: BSD-3-Clause
"""What `make gpu-bundle` writes, without the build: its scripts and what they need."""

import os
import subprocess
import sys

import pytest
from paths import ROOT


@pytest.fixture
def bundle(monkeypatch):
    """tools/gpu_bundle.py, which imports what lies beside it."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gpu_bundle

    return gpu_bundle


@pytest.fixture
def folder(bundle, tmp_path):
    """A folder with the scripts, for this Python, and two packages."""
    for name in ("site", "tree", "packages/pytest", "packages/of-nobody"):
        (tmp_path / name).mkdir(parents=True)
    bundle.write_scripts(tmp_path, ".".join(map(str, sys.version_info[:2])))
    return tmp_path


def run(folder, *words):
    return subprocess.run(
        ["sh", folder / "run", *words],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )


def test_a_package_that_the_machine_has_is_not_used(folder):
    done = run(folder, "python", "-c", "import os; print(os.environ['PYTHONPATH'])")
    assert done.stderr == ""
    paths = [str(folder / "site"), str(folder / "packages/of-nobody")]
    assert done.stdout.strip().split(os.pathsep) == paths


def test_figures_find_the_modules_beside_them(folder):
    (folder / "tree/benchmarks").mkdir(parents=True)
    (folder / "tree/benchmarks/beside.py").touch()
    program = folder / "tree/benchmarks/gpu.py"
    program.write_text("import beside, sys; print(*sys.argv[1:])")
    done = run(folder, "figures", str(folder / "out"), "--quick")
    assert done.returncode == 0, done.stdout
    assert done.stdout == f"--json {folder}/out/figures.json --quick\n"


def test_the_status_of_a_check_is_that_of_its_program(folder):
    (folder / "tree/tests/devices").mkdir(parents=True)
    program = folder / "tree/tests/devices/__main__.py"
    program.write_text("import sys; print(*sys.argv[1:]); sys.exit(int(sys.argv[1]))")
    for status in (0, 1):
        out = folder / f"out{status}"
        done = run(folder, "check", str(out), str(status), "more")
        assert (done.returncode, done.stdout) == (status, f"{status} more\n")
        assert (out / "check.txt").read_text() == done.stdout
        assert os.listdir(out) == ["check.txt"]


def test_another_python_is_refused(folder):
    (folder / "python-version").write_text("3.99\n")
    done = run(folder, "check", str(folder / "out"))
    assert done.returncode == 1
    assert "this folder is for Python 3.99, and " in done.stderr


def test_an_unknown_word_is_refused(folder):
    done = run(folder, "mistake")
    assert done.returncode == 2
    assert done.stderr.startswith("expected: run check|figures|python")


def test_a_missing_interpreter_is_told(bundle):
    with pytest.raises(SystemExit, match=r"^make gpu-bundle found no CPython 3\.99 .*"):
        bundle.interpreter("3.99")


def test_the_tree_is_there(bundle):
    assert [name for name in bundle.TREE if not (ROOT / name).exists()] == []
