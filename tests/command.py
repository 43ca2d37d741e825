# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp`` as a user starts it."""

import os
import subprocess
import sys


def ucp_command(*arguments, cwd=None, safe_path=True, **env):
    """Run a command; what it has printed, and its status."""
    env = {**os.environ, "UCP_STATS": "1", **env}
    if not safe_path:
        env.pop("PYTHONSAFEPATH", None)
    return subprocess.run(
        [sys.executable, *(["-P"] if safe_path else []), "-m", "ucp", *arguments],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
    )
