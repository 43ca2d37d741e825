# SPDX-License-Identifier: BSD-3-Clause
# tests: host/config
"""The queues of a worker in shared memory are no larger than they have to be."""

import pytest
from script import PRELUDE, run_script

pytestmark = pytest.mark.default_workers

MEASURE = (
    PRELUDE
    + """
import pathlib

def shared_memory():
    '''KiB of UCX's segments that were written: in /dev/shm, and of System V.'''
    written = {"/dev/shm/ucx_shm_posix_": 0, "/SYSV": 0}
    counts = ""
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        name = line.split(maxsplit=5)[-1]
        if not line.split()[0].endswith(":"):
            counts = next((each for each in written if name.startswith(each)), "")
        elif counts and line.startswith("Rss:"):
            written[counts] += int(line.split()[1])
    return list(written.values())

async def main():
    before = shared_memory()
    listener = ucp.create_listener()
    after = shared_memory()
    print(*[end - begin for begin, end in zip(before, after)])
    listener.close()

asyncio.run(main())
"""
)


def measure(**env):
    """KiB that a worker writes: in /dev/shm, and of System V."""
    posix, sysv = run_script(MEASURE, **env).split()
    return int(posix), int(sysv)


def test_a_worker_writes_little_in_dev_shm():
    posix, sysv = measure()
    assert 0 < posix <= 600
    assert 0 < sysv <= 1700


@pytest.mark.parametrize("prefix", ["MM", "POSIX"])
def test_who_sets_the_number_of_buffers_gets_it(prefix):
    posix, _sysv = measure(**{f"UCX_{prefix}_RX_BUFS_GROW": "512"})
    assert posix > 2000


def test_who_sets_the_length_of_the_queue_gets_as_many_buffers_as_of_ucx():
    posix, sysv = measure(UCX_MM_FIFO_SIZE="256")
    assert posix > 2000
    assert sysv > 2000


MANY = (
    PRELUDE
    + """
async def main():
    '''More messages than the queue has room for, which nobody receives yet.'''
    async with connected_pair() as (client, server):
        assert "posix" in {transport for transport, _device in client.transports()}
        sends = [client.send(bytes([i % 251]) * 4000) for i in range(600)]
        echo = asyncio.create_task(server.send(b"here"))
        await client.recv(bytearray(4))
        await echo
        for i in range(600):
            assert await server.recv_obj() == bytes([i % 251]) * 4000
        await asyncio.gather(*sends)

asyncio.run(main())
"""
)


def test_a_short_queue_holds_up_nothing_where_it_is_the_only_one():
    run_script(MANY, UCX_TLS="posix,self")
