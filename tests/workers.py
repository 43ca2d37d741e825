# SPDX-License-Identifier: BSD-3-Clause
"""Workers of tests are small: short queues in shared memory, one network device.

A worker of UCX takes 4 MB and 25 ms of CPU as it is, of which short queues and one
device leave 1.3 MB and 10 ms. Tests make thousands of workers. Some stay as they are:
those of the rooms that are about networks, processes, what the system has, pages and
growth, those of files with the mark ``default_workers``, and those of every eighth
file.

The variables are those of the environment, so processes of a test have the same:
UCX's queues work only if both sides take them to be of the same length.
"""

import contextlib
import os
import zlib

_SMALL = {
    "UCX_MM_FIFO_SIZE": "64",
    "UCX_MM_RX_BUFS_GROW": "64",
    "UCX_NET_DEVICES": "lo",
}
_ROOMS = {"commands", "native", "network", "project", "run", "soak", "topology"}
_SHARE = 8  # one file of so many has workers as they are

# What the environment of the test run says stays.
_variables = {name: _SMALL[name] for name in _SMALL if name not in os.environ}
_is_small = False

# UCX reads this while it is loaded. It warns of a variable that no transport has
# read, which with UCX_TLS=tcp would be those of shared memory.
os.environ.setdefault("UCX_WARN_UNUSED_ENV_VARS", "n")


def choose(item):
    """Change the environment to that of a test, if the last one's was another."""
    import ucp  # after the variable above

    global _is_small
    if _is_small == (not _has_default(item)):
        return
    with contextlib.suppress(ucp.UCXError):  # the last test left something open
        ucp.reset()
    _is_small = not _is_small
    for name, value in _variables.items():
        if _is_small:
            os.environ[name] = value
        else:
            del os.environ[name]


def _has_default(item):
    name = item.path.relative_to(item.config.rootpath).as_posix()
    return (
        item.path.parent.name in _ROOMS
        or item.get_closest_marker("default_workers") is not None
        or zlib.crc32(name.encode()) % _SHARE == 0
    )
