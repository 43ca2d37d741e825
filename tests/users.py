# SPDX-License-Identifier: BSD-3-Clause
"""Processes of other users of this host. A test that needs them needs root."""

import functools
import os
import shutil
import subprocess
import sys

import pytest

SUPERUSER, ONE, OTHER = 0, 64101, 64102  # nobody has the last two

# A folder of root's may have this Python. The right to look into it is none to open
# another process's descriptors, nor to map its segments.
_RIGHTS = [], ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


def as_user(uid):
    """The beginning of a command that a user runs, or the test is skipped."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and the command setpriv")
    return [] if uid == SUPERUSER else _command(uid, _rights())


def _command(uid, rights):
    who = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return ["setpriv", *who, *rights, "env", "HOME=/tmp"]


@functools.cache
def _rights():
    """What a user needs to run this Python."""
    for rights in _RIGHTS:
        done = subprocess.run(
            [
                *_command(ONE, rights),
                *(sys.executable, "-P", "-c", "import os, ucp; print(os.__file__)"),
            ],
            capture_output=True,
            text=True,
            cwd="/",
        )
        if (
            done.stdout.strip() == os.__file__
        ):  # Python looks for its files elsewhere, too
            return rights
    pytest.skip("no other user can run this Python")
