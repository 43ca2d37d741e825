# SPDX-License-Identifier: BSD-3-Clause
"""Programs with Dask and its clusters over ucp, in processes of their own."""

import re
import subprocess
import sys

import pytest
from clusters import OPTIONS, complaints, run_cluster
from paths import ROOT
from script import run_script

pytest.importorskip("distributed", reason="distributed is missing")


# ---- imports and examples ----------------------------------------------------


@pytest.mark.real_start
def test_importing_ucp_does_not_import_distributed():
    run_script("""
    import sys, ucp
    assert "distributed" not in sys.modules and "dask" not in sys.modules
    """)


@pytest.mark.real_start
def test_importing_the_backend_does_not_start_ucx():
    run_script("""
    import os, ucp.dask
    from distributed.comm.registry import get_backend
    from ucp._core.context import current_context
    environment = dict(os.environ)
    assert isinstance(get_backend("ucp"), ucp.dask.UCPBackend)
    assert isinstance(get_backend("ucx"), ucp.dask.UCXBackend)
    assert current_context() is None and dict(os.environ) == environment
    """)


def test_the_example_computes():
    done = subprocess.run(
        [sys.executable, "-P", ROOT / "examples/dask_cluster.py"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    place, total, figure = done.stdout.splitlines()
    assert (place, total) == ("scheduler at ucp://127.0.0.1", "sum: 31999996000000")
    assert re.fullmatch(r"64 MB were moved and added in \d+ ms", figure)


def test_the_example_of_blocks_computes():
    done = subprocess.run(
        [sys.executable, "-P", ROOT / "examples/dask_cupy.py", "400"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    right, figure = done.stdout.splitlines()
    assert right == "x + x.T of 400 x 400 numbers: right"
    assert re.fullmatch(r"\d+\.\d\d GB/s", figure)


# ---- clusters ----------------------------------------------------------------

LOCAL_CLUSTER = f"""
with LocalCluster(n_workers=2, processes=True, {OPTIONS}) as cluster:
    assert cluster.scheduler_address.startswith("ucp://")
    with Client(cluster) as client:
        assert sum(client.gather(client.map(lambda x: x + 1, range(100)))) == 5050
        a, b = client.scheduler_info()["workers"]
        assert a.startswith("ucp://")
        big = np.arange(4_000_000)
        x = client.submit(lambda: np.arange(4_000_000), workers=[a])
        y = client.submit(lambda x: x + 1, x, workers=[b])
        assert np.array_equal(y.result(), big + 1)
        assert np.array_equal(client.scatter(big, workers=[b]).result(), big)
print("done")
"""

KILLED_WORKER = f"""
with LocalCluster(n_workers=2, processes=True, {OPTIONS}) as cluster:
    with Client(cluster) as client:
        futures = client.map(lambda x: np.full(100_000, x), range(20))
        wait(futures)
        workers = client.scheduler_info()["workers"]
        pids = client.run(os.getpid)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        total = client.submit(sum, client.map(lambda x: int(x[0]), futures))
        assert total.result() == 190
        client.wait_for_workers(2)
        assert len(set(client.run(os.getpid).values()) - set(pids.values())) == 1
print("done")
"""

RECONNECT = """
logging.getLogger("distributed").setLevel(logging.CRITICAL)

async def run():
    options = dict(host="ucp://127.0.0.1", dashboard_address=":0")
    scheduler = await Scheduler(port=0, **options)
    port = scheduler.port
    async with Client(scheduler.address, asynchronous=True) as client:
        async with Worker(scheduler.address, nthreads=1):
            assert await client.submit(lambda: 1, pure=False) == 1
        await scheduler.close(reason="restart")
        scheduler = await Scheduler(port=port, **options)
        async with Worker(scheduler.address, nthreads=1):
            while client.status != "running":
                await asyncio.sleep(0.01)
            assert await client.submit(lambda: 2, pure=False) == 2
    await scheduler.close()

asyncio.run(run())
print("done")
"""

ADAPTIVE = f"""
with LocalCluster(n_workers=0, processes=True, {OPTIONS}) as cluster:
    cluster.adapt(minimum=0, maximum=1, interval="100ms", wait_count=2)
    with Client(cluster) as client:
        assert client.submit(lambda: 5).result() == 5
        while client.scheduler_info()["workers"] or cluster.workers:
            time.sleep(0.02)
        assert client.submit(lambda: 6).result() == 6
print("done")
"""

THREADS = f"""
with LocalCluster(n_workers=2, processes=False, {OPTIONS}) as cluster:
    with Client(cluster) as client:
        assert sum(client.gather(client.map(lambda x: x, range(10)))) == 45
print("done")
"""


@pytest.mark.parametrize(
    "program",
    [LOCAL_CLUSTER, RECONNECT, THREADS],
    ids=["processes", "reconnect", "threads"],
)
def test_clusters_work_and_say_nothing(tmp_path, program):
    assert complaints(run_cluster(tmp_path, program)) == ""


@pytest.mark.parametrize("transport", [{}, {"UCX_TLS": "tcp"}], ids=["shm", "tcp"])
def test_a_cluster_goes_on_when_a_worker_is_killed(tmp_path, transport):
    run_cluster(tmp_path, KILLED_WORKER, **transport)  # distributed tells of it


def test_a_cluster_goes_on_when_workers_come_and_go(tmp_path):
    run_cluster(tmp_path, ADAPTIVE)  # distributed tells of it


def test_a_worker_and_a_client_that_meet_tcp_say_so_at_once(tmp_path):
    stderr = run_cluster(
        tmp_path,
        """
from ucp.dask._comm import OtherProtocolError

async def run():
    async with Scheduler(protocol="tcp", dashboard_address=":0") as scheduler:
        address = scheduler.address.replace("tcp:", "ucp:")
        try:
            async with asyncio.timeout(20):
                await Worker(address)
        except RuntimeError as exc:
            assert type(exc.__cause__) is OtherProtocolError, exc.__cause__
        else:
            raise AssertionError

with LocalCluster(n_workers=0, protocol="tcp", dashboard_address=":0") as cluster:
    address = cluster.scheduler_address.replace("tcp:", "ucp:")
    try:
        Client(address, timeout=20)
    except OtherProtocolError as exc:
        assert str(exc) == f"{address}: the peer speaks tcp, not ucp"
    else:
        raise AssertionError
asyncio.run(run())
print("done")
""",
    )
    assert "Waiting to connect" not in stderr
