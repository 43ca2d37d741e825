# SPDX-License-Identifier: BSD-3-Clause
"""The build backend: that of setuptools, behind a look at Python's version.

pip looks at ``requires-python`` of a source tree or sdist after it has installed
what the build needs, and that includes UCX, of 30 MB to download. A Python that is
too old is refused here before, when pip asks what the build needs: pyproject.toml
names setuptools for newer ones only, so it has downloaded nothing. A machine that
ucp cannot run on is refused here as well: UCX has no package for it, and pip would
say no more than that.
"""

import os
import sys
from pathlib import Path
from runpy import run_path

OLDEST = (3, 11)  # as requires-python in pyproject.toml

if sys.version_info < OLDEST:
    sys.exit(
        "ucp needs CPython {}.{} or newer; {} is {}.{}.{}. Nothing was built.".format(
            *OLDEST, sys.executable, *sys.version_info[:3]
        )
    )

ROOT = Path(__file__).resolve().parents[1]
REASON = run_path(str(ROOT / "ucp/_core/platforms.py"))["unsupported"]()
if REASON is not None:
    sys.exit(f"{REASON} Nothing was built.")

from setuptools.build_meta import (  # noqa: E402
    build_editable,
    build_sdist,
    build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

#: NumPy's headers: its arrays are read through its C API, if it is imported.
NUMPY = "numpy>=2"
UCX = "libucx-cu12>=1.19"


def get_requires_for_build_sdist(config_settings=None):
    return []


def get_requires_for_build_wheel(config_settings=None):
    if (os.environ.get("UCP_UCX") or "wheel") == "wheel":
        return [NUMPY, UCX]
    return [NUMPY]


get_requires_for_build_editable = get_requires_for_build_wheel
