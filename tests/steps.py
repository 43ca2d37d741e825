# SPDX-License-Identifier: BSD-3-Clause
"""Programs whose calls of UCX are counted, so that something can happen at the
k-th: tests/c/steps.c, which tests in C are linked with, in LD_PRELOAD."""

import functools
import importlib.util
import tempfile
import textwrap
from pathlib import Path

import natives
from script import run_program

PRELUDE = """
import ctypes

_library = ctypes.CDLL(os.environ["LD_PRELOAD"])
_library.steps_reached.restype = _library.steps_happened.restype = ctypes.c_bool
steps_begin, steps_end = _library.steps_begin, _library.steps_end
steps_reached, steps_happened = _library.steps_reached, _library.steps_happened
COUNT, FAIL, DELAY = range(3)
"""


@functools.cache
def _built():
    """The folder of the library, which is removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="ucp-steps-")
    source = Path(__file__).parent / "c" / "steps.c"
    options = ["-std=gnu11", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra"]
    if wheel := importlib.util.find_spec("libucx"):
        options.append(f"-I{Path(wheel.origin).parent}/include")
    natives.run(
        natives.any_compiler(),
        *options,
        "-o",
        f"{folder.name}/steps.so",
        source,
        "-ldl",
    )
    return folder


def run_steps(source, *arguments, **env):
    """Run ``source`` behind PRELUDE, in a Python of its own."""
    library = f"{_built().name}/steps.so"
    source = PRELUDE + textwrap.dedent(source)
    return run_program(source, *arguments, LD_PRELOAD=library, **env)
