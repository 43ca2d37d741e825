# SPDX-License-Identifier: BSD-3-Clause
"""``import ucp`` in a checkout, where ``ucp/`` is a source tree."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

import ucp
from ucp._core import checkout

INSTALLED = Path(ucp.__file__)


def typed(*arguments, cwd):
    """Run Python as somebody types it: the current directory is on sys.path."""
    env = {name: os.environ[name] for name in os.environ if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True
    )


@pytest.fixture
def source_tree(tmp_path):
    """A checkout whose ``__init__`` is not the installed one."""
    (tmp_path / "ucp").mkdir()
    for source in (ROOT / "ucp").iterdir():
        if source.name != "__init__.py" and source.suffix != ".so":
            (tmp_path / "ucp" / source.name).symlink_to(source)
    text = (ROOT / "ucp/__init__.py").read_text()
    (tmp_path / "ucp/__init__.py").write_text(f"{text}# changed\n")
    return tmp_path


def test_the_installed_package_is_used_in_a_checkout():
    program = (
        "import ucp, ucp.sync, sys; "
        "print(ucp.__file__, ucp.__spec__.origin, ucp._ext.__file__, sep='\\n'); "
        "files = [m.__file__ for n, m in sys.modules.items() if n[:4] == 'ucp.']; "
        "print(len({file.rpartition('/ucp/')[0] for file in files}))"
    )
    done = typed("-W", "error", "-c", program, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    file, origin, extension, folders = done.stdout.splitlines()
    assert (file, origin, folders) == (str(INSTALLED), str(INSTALLED), "1")
    assert Path(extension).parent == INSTALLED.parent


def test_commands_and_their_processes_run_in_a_checkout():
    done = typed("-m", "ucp", "demo", "--max-mib", "1", cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "every byte verified" in done.stdout


def test_a_checkout_that_differs_from_what_is_installed_is_told(source_tree):
    done = typed("-c", "import ucp", cwd=source_tree)
    text = f"{source_tree}/ucp/__init__.py differs from {INSTALLED}, which is installed"
    assert f"ImportError: {text}: install ucp again, by 'make demo'" in done.stderr
    done = typed("-m", "ucp", "doctor", cwd=source_tree)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"'import ucp' fails: ImportError: {text}" in done.stdout


def test_a_checkout_of_which_nothing_is_installed_says_what_to_start(source_tree):
    done = typed("-S", "-c", "import ucp", cwd=source_tree)
    assert f"no ucp is installed for {sys.executable}. Run 'make demo'" in done.stderr
    python = source_tree / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    done = typed("-S", "-c", "import ucp", cwd=source_tree)
    assert f"Start {python}, where it is installed." in done.stderr


def test_a_compiled_package_stands_for_itself():
    assert checkout.installed() is None
