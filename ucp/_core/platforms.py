# SPDX-License-Identifier: BSD-3-Clause
"""Which machines ucp cannot run on, for the build and for the import.

The build runs this file before ucp is installed: it needs nothing but the standard
library.
"""

from __future__ import annotations

import os
import sys

_SYSTEMS = {"win32": "Windows", "cygwin": "Windows", "darwin": "macOS"}


def unsupported() -> str | None:
    """Say in one sentence why ucp cannot run here; None: it can."""
    if sys.platform != "linux":
        name = _SYSTEMS.get(sys.platform, sys.platform)
        return f"ucp needs Linux, and this is {name}."
    if sys.maxsize < 2**32:
        return "ucp needs a 64-bit Python, and this one has 32 bits."
    if sys.byteorder != "little":
        return "ucp needs a little-endian processor, and this one is big-endian."
    if not _has_glibc():
        return (
            "ucp needs glibc, and this Python uses another C library, such as musl "
            "on Alpine: take an image of Debian, Ubuntu or Fedora."
        )
    return None


def _has_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (OSError, ValueError):
        return False
