# SPDX-License-Identifier: BSD-3-Clause
"""Other distributions whose package is called ``ucp`` as well."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ucp._core.startup import HINT


@pytest.fixture
def site(tmp_path) -> Path:
    """A directory of packages with a copy of the installed ``ucp`` only."""
    package = Path(str(importlib.util.find_spec("ucp").origin)).parent
    shutil.copytree(package, tmp_path / "ucp")
    return tmp_path


def install(site: Path, distribution: str, file: str, text: str = "") -> None:
    """Put a file where pip would, with the list of files that pip keeps."""
    (site / file).write_text(text)
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {distribution}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"ucp/__init__.py,,\n{file},,\n")


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=50,
    )


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    return next(line for line in reversed(lines) if line != HINT)


def test_ucx_py_in_the_same_directory_is_an_error(site):
    install(site, "ucx-py-cu12", "ucp/_libs/ucx_api.cpython-311.so")
    error = error_of(python(site, "-c", "import ucp"))
    assert error.startswith(
        f"ImportError: the package 'ucp' in {site}/ucp is shared by the "
        "distributions umx and "
    )
    assert "ucx-py-cu12" in error
    assert "_libs/ucx_api.cpython-311.so is not umx's." in error
    assert "Run 'pip uninstall -y " in error
    assert error.endswith("then install umx again.")


def test_ucx_py_installed_later_is_an_error_of_what_only_umx_has(site):
    install(site, "ucx-py-cu12", "ucp/_libs/ucx_api.cpython-311.so")
    (site / "ucp" / "__init__.py").write_text("")
    assert "is shared by" in error_of(python(site, "-m", "ucp", "info"))
    pytest.importorskip("distributed")
    assert "is shared by" in error_of(python(site, "-c", "import ucp.dask"))


def test_the_package_for_short_messages_is_a_warning(site):
    install(site, "ucp", "ucp/ucp.py")
    done = python(site, "-c", "import ucp; print(ucp.get_ucx_version() > (1,))")
    assert done.stdout == "True\n"
    assert f"UserWarning: the package 'ucp' in {site}/ucp is shared by" in done.stderr
    assert "distributions umx and ucp: ucp.py is not umx's." in done.stderr


def test_alone_nothing_is_said(site):
    done = python(site, "-W", "error", "-c", "import ucp")
    assert (done.returncode, done.stderr) == (0, "")
