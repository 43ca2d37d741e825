# SPDX-License-Identifier: BSD-3-Clause
"""Memories of a heap: made, opened by a peer, written, and given back.

Some remote memories are kept for a while, so that slabs are always mapped.
"""

import os
from collections import deque

import ucp
from ucp.testing import connected_pair, until

_SIZES = (8, 4096, 100, 60_000, 0)
_KEPT = 50  # memories, and remote memories
_SLAB = 1 << 20  # bytes; UCX's segments are smaller
_MOST = 20  # slabs; what is kept needs five


async def run(count):
    most = 0
    with ucp.Heap() as heap:
        async with connected_pair() as (client, _server):
            remotes, memories = deque(), deque()
            for number in range(count):
                memory = heap.allocate(_SIZES[number % len(_SIZES)])
                memories.append(memory)
                if number % 4 == 0:
                    remote = client.remote(memory.key)
                    await remote.put(bytes(memory.nbytes))
                    remotes.append(remote)
                if len(memories) > _KEPT:
                    memories.popleft().close()
                if len(remotes) > _KEPT:
                    remotes.popleft().close()
                if number % 50 == 0:
                    most = max(most, _slabs())
            for each in (*memories, *remotes):
                each.close()
        assert heap.memories == 0
    del remote, remotes, each  # each of them keeps its memory
    await until(lambda: _slabs() == 0)
    assert 0 < most <= _MOST, most
    return f"{count} memories in at most {most} segments"


def _slabs():
    """How many this process has made, whoever uses them still."""
    with open("/proc/sysvipc/shm") as table:
        rows = [line.split() for line in table][1:]
    return sum(int(row[3]) == _SLAB and int(row[4]) == os.getpid() for row in rows)
