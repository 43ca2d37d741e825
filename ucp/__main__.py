# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp``: commands, of which docs/commands.md tells."""

from __future__ import annotations

import sys

from ._core import neighbours, startup

if sys.argv[1:2] != ["doctor"]:  # which says the same, and more
    neighbours.check()  # ucp may be the package of another distribution

from ._commands.main import main

if __name__ == "__main__":
    startup.interrupt_quietly()
    sys.exit(main())
