# SPDX-License-Identifier: BSD-3-Clause
"""Notice other distributions that install the package ``ucp`` as well.

pip lets two distributions install files into one directory:

- ucx-py (``ucx-py-cu12`` and its like): Python imports its compiled modules
  in ``ucp/_libs`` rather than this distribution's modules of the same names.
- ``ucp`` on the package index, a library for short messages of mobile phones:
  ``pip uninstall ucp`` takes files away that this distribution needs.

This module needs nothing but the standard library: it is called before
anything else is imported, and only looks for files.
"""

from __future__ import annotations

import warnings
from pathlib import Path

#: The name under which pip knows this distribution.
DISTRIBUTION = "umx"

_PACKAGE = Path(__file__).parents[1]


def check() -> None:
    """Look for files of other distributions in this package's directory.

    Warns of distributions that do no harm as long as they are not uninstalled.

    Raises:
        ImportError: files of ucx-py are in the directory.
    """
    compiled = sorted(_PACKAGE.glob("_libs/*.so"))
    if compiled:
        raise ImportError(_text(compiled[0], "ucx-py"))
    if (_PACKAGE / "ucp.py").exists():
        warnings.warn(_text(_PACKAGE / "ucp.py", "ucp"), UserWarning, stacklevel=2)


def _text(file: Path, guess: str) -> str:
    names = " ".join(_others() or [guess])
    return (
        f"the package 'ucp' in {_PACKAGE} is shared by the distributions "
        f"{DISTRIBUTION} and {names}: {file.relative_to(_PACKAGE)} is not "
        f"{DISTRIBUTION}'s. Run 'pip uninstall -y {names} {DISTRIBUTION}', then "
        f"install {DISTRIBUTION} again."
    )


def _others() -> list[str]:
    """Return the other distributions that have a package ``ucp``."""
    from importlib.metadata import packages_distributions  # slow to import

    names = set(packages_distributions().get("ucp", ()))
    return sorted(names - {DISTRIBUTION})
