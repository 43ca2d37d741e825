# SPDX-License-Identifier: BSD-3-Clause
"""Provide ``ucp.compat.ucxx`` to programs with ``import ucxx``."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

_PACKAGE = "ucp.compat.ucxx"
_NAME = "ucxx"

#: A directory for sys.path; it holds a module of that name, which installs.
DIRECTORY = Path(__file__).parents[1] / "alias"


def install() -> None:
    """Have ``import ucxx`` import ``ucp.compat.ucxx`` in this process.

    This also applies to processes that multiprocessing starts, which get this
    ``sys.path``. The package never calls this function itself: a program that uses
    ucxx itself is not affected.

    Raises:
        RuntimeError: another module called ucxx has been imported already.
    """
    package = importlib.import_module(_PACKAGE)
    if sys.modules.get(_NAME, package) is not package:
        raise RuntimeError(
            f"ucxx has been imported already, from {sys.modules[_NAME].__file__}: "
            "call ucp.compat.ucxx.install() before"
        )
    if str(DIRECTORY) not in sys.path:
        sys.path.insert(0, str(DIRECTORY))
    sys.modules[_NAME] = package
    for module in pkgutil.walk_packages(package.__path__, _PACKAGE + "."):
        if not module.name.endswith(".__main__"):
            alias = _NAME + module.name.removeprefix(_PACKAGE)
            sys.modules[alias] = importlib.import_module(module.name)
