# SPDX-License-Identifier: BSD-3-Clause
"""Machines that ucp cannot run on are named, when it is built and when it is
imported."""

import os
import subprocess
import sys

import pytest
from paths import ROOT
from script import run_script

from ucp._core.platforms import unsupported

# What Python says of such a machine, and what is said of it.
MACHINES = {
    "sys.platform = 'win32'": "ucp needs Linux, and this is Windows.",
    "sys.platform = 'darwin'": "ucp needs Linux, and this is macOS.",
    "sys.platform = 'freebsd15'": "ucp needs Linux, and this is freebsd15.",
    "sys.maxsize = 2**31 - 1": "ucp needs a 64-bit Python, and this one has 32 bits.",
    "sys.byteorder = 'big'": (
        "ucp needs a little-endian processor, and this one is big-endian."
    ),
    "os.confstr = lambda name: int('no')": (
        "ucp needs glibc, and this Python uses another C library, such as musl on "
        "Alpine: take an image of Debian, Ubuntu or Fedora."
    ),
}
# Modules that would look at the system again come first.
FIRST = "import asyncio, ctypes, importlib, os, shutil, sys, tempfile, threading\n"


def test_this_machine_is_taken():
    assert unsupported() is None


@pytest.mark.real_start
@pytest.mark.parametrize("change", MACHINES)
def test_the_import_is_refused(change):
    script = FIRST + f"{change}\ntry:\n    import ucp\nexcept ImportError as error:\n"
    assert run_script(script + "    print(error)") == MACHINES[change] + "\n"


@pytest.mark.parametrize("change", MACHINES)
@pytest.mark.parametrize("program", ["setup.py", "packaging/umx_backend.py"])
def test_the_build_is_refused(change, program):
    # Setuptools is not needed to say so.
    script = f"""
import sys, types
for name in ("", ".command", ".command.build_ext", ".modified", ".build_meta"):
    sys.modules["setuptools" + name] = module = types.ModuleType("setuptools" + name)
    module.__getattr__ = lambda name: type(name, (), {{}})
import runpy
{FIRST}{change}
runpy.run_path("{program}")
"""
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", script],
        cwd=ROOT,
        env={**os.environ, "UCP_UCX": "system"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    ending = " Nothing was built." if program != "setup.py" else ""
    assert done.stderr == f"{MACHINES[change]}{ending}\n"
