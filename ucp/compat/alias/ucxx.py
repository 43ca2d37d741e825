# SPDX-License-Identifier: BSD-3-Clause
"""``import ucxx`` where this directory is on ``sys.path``: ``ucp.compat.ucxx``."""

import sys

del sys.modules[__name__]  # this file, which install() would take for ucxx

from ucp.compat.ucxx import install  # noqa: E402

install()
