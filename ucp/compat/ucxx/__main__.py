# SPDX-License-Identifier: BSD-3-Clause
"""Run a program whose ``import ucxx`` finds ``ucp.compat.ucxx``.

    python -m ucp.compat.ucxx program.py ARGUMENT...
    python -m ucp.compat.ucxx -m module ARGUMENT...
    PYTHONPATH=$(python -m ucp.compat.ucxx --path) python program.py

The first two set PYTHONPATH for the processes that the program starts.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from ._install import DIRECTORY, install


def main() -> int:
    """Run what the command line names; returns the exit status."""
    arguments = sys.argv[1:]
    if arguments == ["--path"]:
        print(DIRECTORY)
        return 0
    is_module = arguments[:1] == ["-m"]
    del arguments[: 1 if is_module else 0]
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    install()
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(DIRECTORY), others]))
    sys.argv = arguments
    if is_module:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
