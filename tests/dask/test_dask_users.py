# SPDX-License-Identifier: BSD-3-Clause
# tests: endpoint/apart
"""A Dask cluster of one user, and a client of another user of the same host."""

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from script import started
from users import ONE, OTHER, SUPERUSER, as_user

pytest.importorskip("distributed", reason="distributed is missing")

CLUSTER = """
import asyncio, sys
from distributed import Scheduler, Worker

async def main():
    options = {"protocol": "ucp", "host": "127.0.0.1"}
    async with Scheduler(dashboard=False, port=0, **options) as scheduler:
        async with Worker(scheduler.address, nthreads=1, **options):
            print(scheduler.address, flush=True)
            await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
CLIENT = """
import sys
import numpy as np
from distributed import Client

with Client(sys.argv[1], timeout=20) as client:
    array = np.arange(1 << 20)
    assert client.submit(np.sum, array).result(timeout=20) == array.sum()
    assert (client.submit(lambda: np.arange(1 << 20)).result(timeout=20) == array).all()
    print("done")
"""


def program(user, source, *arguments):
    source = textwrap.dedent(source)
    return [*as_user(user), sys.executable, "-P", "-c", source, *arguments]


@pytest.fixture
def open_folder():
    """A folder that everybody may write to; pytest's are its user's."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield folder


@pytest.mark.parametrize(
    ("owner", "guest"), [(ONE, OTHER), (SUPERUSER, ONE), (ONE, SUPERUSER)]
)
def test_a_client_of_another_user_computes(owner, guest, open_folder):
    options = {"stdin": subprocess.PIPE, "cwd": open_folder}
    with started(program(owner, CLUSTER), **options) as cluster:
        address = cluster.stdout.readline().strip()
        assert address.startswith("ucp://")
        client = program(guest, CLIENT, address)
        with started(client, cwd=open_folder) as guest:
            assert guest.stdout.read() == "done\n"
        cluster.stdin.close()
        assert cluster.wait() == 0
