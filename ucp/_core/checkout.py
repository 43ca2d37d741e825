# SPDX-License-Identifier: BSD-3-Clause
"""``import ucp`` in a checkout of the sources.

Python looks into the current directory first, and there ``ucp/`` is a source tree,
which has no compiled extension. If the package is installed for this Python as well,
the source tree stands for that one: its ``__init__`` is executed, which is the same as
the installed one, and all other modules are the installed ones.

This module needs nothing but the standard library.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).parents[1]


def installed() -> ModuleSpec | None:
    """Return the installed package, if this package is a source tree.

    None: this package is compiled, or no package is installed.
    """
    if not _PACKAGE.is_dir() or is_compiled(_PACKAGE):  # an archive is no directory
        return None
    root = _PACKAGE.parent.resolve()
    for entry in sys.path:
        if Path(entry).resolve() == root:
            continue
        spec = PathFinder.find_spec(_PACKAGE.name, [entry])
        if spec is not None and spec.origin is not None:
            if is_compiled(Path(spec.origin).parent):
                return spec
    return None


def remedy() -> str:
    """What to do in a source tree if no package is installed: a sentence."""
    python = _PACKAGE.parent / ".venv/bin/python"
    if python.exists():
        return f"Start {python}, where it is installed."
    return (
        "Run 'make demo' in the source tree, and start its .venv/bin/python; or run "
        "'pip install .' there."
    )


def is_compiled(package: Path) -> bool:
    """Is the extension in this folder?"""
    try:
        names = os.listdir(package)
    except OSError:
        return False
    return any(name.startswith("_ext") and name.endswith(".so") for name in names)


def stand_for(package: ModuleType, spec: ModuleSpec) -> None:
    """Take all modules of the package from where ``spec`` has found it.

    Raises:
        ImportError: the ``__init__`` of the source tree is another one.
    """
    assert package.__file__ is not None and spec.origin is not None
    if Path(package.__file__).read_bytes() != Path(spec.origin).read_bytes():
        raise ImportError(
            f"{package.__file__} differs from {spec.origin}, which is installed: "
            "install ucp again, by 'make demo' or 'pip install .', or start Python "
            "with the option -P to use the installed one as it is."
        )
    name = package.__name__
    for module in [each for each in sys.modules if each.startswith(f"{name}.")]:
        del sys.modules[module]
        vars(package).pop(module.removeprefix(f"{name}."), None)
    package.__path__[:] = spec.submodule_search_locations or []
    package.__file__ = spec.origin
    assert package.__spec__ is not None  # whose list of folders is __path__
    package.__spec__.origin = spec.origin
    package.__spec__.loader = package.__loader__ = spec.loader
