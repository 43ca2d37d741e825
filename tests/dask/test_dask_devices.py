# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/devices
"""Objects of Dask in memory of a device, and processes without one among others."""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys

import pytest
from paths import TESTS
from script import started

import ucp

distributed = pytest.importorskip("distributed", reason="distributed is missing")

import device_types  # noqa: E402
import gpu  # noqa: E402
import numpy as np  # noqa: E402
from device_types import describe, describe_many, make, make_many  # noqa: E402
from distributed import Client  # noqa: E402
from distributed.comm import connect, listen  # noqa: E402
from distributed.protocol import Serialized, to_serialize  # noqa: E402

from ucp.dask import _comm, _devices  # noqa: E402

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not ucp.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.timeout(300),
]

SIZES = [1, 5000, 300_000]
# What describe() says of objects that have come by frames of a device; by those of
# the host, to a process with a device and to one without.
ON_DEVICE = ("cuda", True, True)
BY_HOST = ("dask", True, True)
ON_HOST = ("dask", False, True)

# A scheduler, or a worker, until its standard input is closed.
SERVER = f"""
import asyncio, logging, sys
sys.path.append({str(TESTS)!r})
import device_types
device_types.use_array_library()
import dask
from distributed import Scheduler, Worker
logging.getLogger("distributed").setLevel(logging.WARNING)

async def main(name, uses_frames, scheduler=None):
    dask.config.set({{"distributed.comm.ucp.cuda-frames": uses_frames == "True"}})
    options = {{"host": "ucp://127.0.0.1", "port": 0, "dashboard_address": ":0"}}
    if scheduler is None:
        server = Scheduler(**options)
    else:
        server = Worker(scheduler, name=name, nthreads=1, **options)
    async with server:
        print(server.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main(*sys.argv[1:]))
"""
# What hides the driver from a process, and the devices if that does not.
WITHOUT = {"LD_LIBRARY_PATH": os.devnull, "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(autouse=True)
def array_library(monkeypatch):
    """The tests' CuPy, if there is no device for a real one."""
    monkeypatch.setitem(sys.modules, "cupy", sys.modules.get("cupy"))
    device_types.use_array_library()
    if not gpu.is_fake():
        monkeypatch.delitem(sys.modules, "cupy")
        if not any(map(_devices._is_installed, _devices._LIBRARIES)):
            pytest.skip("no library makes arrays")


@contextlib.contextmanager
def server(*arguments, **env):
    """A process, which prints its address."""
    command = [sys.executable, "-P", "-c", SERVER, *arguments]
    with started(command, stdin=subprocess.PIPE, env={**os.environ, **env}) as process:
        yield process


@pytest.fixture(scope="module")
def scheduler():
    """The address of a scheduler with workers: two with a device, one of a process
    without, and one whose configuration refuses frames of a device."""
    with server("scheduler", "True") as process, contextlib.ExitStack() as stack:
        address = process.stdout.readline().strip()
        for name, uses_frames, env in (
            ("a", "True", {}),
            ("b", "True", {}),
            ("plain", "True", WITHOUT),
            ("host", "False", {}),
        ):
            stack.enter_context(server(name, uses_frames, address, **env))
        yield address


@contextlib.asynccontextmanager
async def client_of(address):
    async with Client(address, asynchronous=True) as client:
        await client.wait_for_workers(4)
        yield client


async def sent(client, kind, nbytes, source, target):
    """What arrives at ``target`` of an object that ``source`` has made."""
    made = client.submit(make, kind, nbytes, workers=source, pure=False)
    return await client.submit(describe, made, workers=target, pure=False)


async def test_objects_go_from_device_to_device(scheduler):
    async with client_of(scheduler) as client:
        for nbytes in SIZES:
            assert await sent(client, "Series", nbytes, "a", "b") == ON_DEVICE
            assert await sent(client, "Series", nbytes, "b", "a") == ON_DEVICE
        made = client.submit(make_many, 1000, 50, workers="a")
        got = client.submit(describe_many, made, workers="b")
        assert await got == {ON_DEVICE}


async def test_what_the_family_does_not_know_goes_by_the_next_ones(scheduler):
    async with client_of(scheduler) as client:
        for kind in ("Table", "HostOnly"):
            assert await sent(client, kind, 5000, "a", "b") == BY_HOST
        assert await sent(client, "Pickled", 5000, "a", "b") == ("pickle", True, True)
        array = client.submit(np.arange, 100_000, workers="a")
        assert await client.submit(np.sum, array, workers="b") == sum(range(100_000))


async def test_a_worker_without_a_device_gets_frames_of_the_host(scheduler):
    async with client_of(scheduler) as client:
        for nbytes in SIZES:
            assert await sent(client, "Series", nbytes, "a", "plain") == ON_HOST
            assert await sent(client, "Series", nbytes, "plain", "a") == BY_HOST
        at_home = await sent(client, "Series", 5000, "plain", "plain")
        assert at_home == (None, False, True)


async def test_the_scheduler_passes_on_frames_of_the_host(scheduler):
    async with client_of(scheduler) as client:
        made = client.submit(make, "Series", 300_000, workers="a")
        assert describe(await client.gather(made, direct=False)) == BY_HOST
        assert describe(await client.gather(made, direct=True)) == ON_DEVICE
        for worker, expected in (("a", BY_HOST), ("plain", ON_HOST)):
            given = make("Series", 5000)
            there = await client.scatter(given, workers=[worker], direct=False)
            assert await client.submit(describe, there, workers=worker) == expected


async def test_a_worker_may_refuse_frames_of_a_device(scheduler):
    async with client_of(scheduler) as client:
        assert await sent(client, "Series", 5000, "a", "host") == BY_HOST
        assert await sent(client, "Series", 5000, "host", "a") == BY_HOST


async def test_two_ends_in_one_process_copy_by_the_host():
    a, b = await pair()
    got = await came(a, b, {"x": to_serialize(make("Series", 5000))})
    assert describe(got["x"]) == BY_HOST
    await ended(a, b)


# ---- connections, of which each end takes the other for another process ------


@pytest.fixture
def processes(monkeypatch):
    numbers = itertools.count()
    monkeypatch.setattr(_devices, "_process", lambda: str(next(numbers)))


async def pair(deserialize=True):
    accepted = asyncio.get_running_loop().create_future()

    async def handle(comm):
        accepted.set_result(comm)

    async with listen("ucp://127.0.0.1", handle, deserialize=deserialize) as listener:
        comm = await connect(listener.contact_address)
        return comm, await accepted


async def came(a, b, msg, **options):
    await a.write(msg, **options)
    return await b.read()


async def ended(*comms):
    for comm in comms:
        await comm.close()


async def test_serializers_that_are_given_are_used(transport, processes):
    a, b = await pair()
    msg = {"x": to_serialize(make("Series", 5000))}
    assert describe((await came(a, b, msg))["x"]) == ON_DEVICE
    for given, expected in (
        (("dask", "pickle"), BY_HOST),
        (("cuda", "dask"), ON_DEVICE),
    ):
        got = await came(a, b, msg, serializers=given)
        assert describe(got["x"]) == expected
    assert describe((await came(b, a, msg))["x"]) == ON_DEVICE
    await ended(a, b)


async def test_an_end_that_does_not_deserialize_gets_frames_of_the_host(processes):
    a, b = await pair(deserialize=False)
    got = (await came(a, b, {"x": to_serialize(make("Series", 5000))}))["x"]
    assert isinstance(got, Serialized)
    assert got.header["serializer"] == "dask"
    assert not any(map(_devices.is_on_device, got.frames))
    await ended(a, b)


async def test_more_frames_than_a_message_has_go_by_the_host(processes, monkeypatch):
    monkeypatch.setattr(_comm, "_FRAMES_MAX", 20)
    a, b = await pair()
    for count, expected in ((2, ON_DEVICE), (20, BY_HOST)):
        msg = [to_serialize(make("Series", 1000)) for _ in range(count)]
        for options in ({}, {"serializers": ("cuda", "dask")}):
            got = await came(a, b, msg, **options)
            assert [describe(each) for each in got] == [expected] * count
    await ended(a, b)


async def test_a_frame_for_the_scheduler_is_not_read_by_the_host(processes):
    a, b = await pair()
    a.name = "Worker->Scheduler"
    for array in (gpu.Memory(1000), ucp.Memory.allocate(1000, "cuda")):
        assert _comm._own(array) is array
    got = await came(a, b, {"x": to_serialize(make("Series", 1000))})
    assert describe(got["x"]) == ON_DEVICE
    await ended(a, b)


async def test_without_a_library_that_makes_arrays_there_are_none(
    processes, monkeypatch
):
    for name in _devices._LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None)
    a, b = await pair()
    assert a.remote_info[_devices._KEY] is None
    got = await came(a, b, {"x": to_serialize(make("Series", 1000))})
    assert describe(got["x"]) == BY_HOST
    await ended(a, b)


@pytest.mark.parametrize("library", ["cupy", "numba", "rmm"])
async def test_arrays_of_a_library(processes, library):
    if gpu.is_fake():
        pytest.skip("the libraries need a device")
    module = pytest.importorskip(library)
    host = np.arange(100_000, dtype="f8")
    if library == "cupy":
        array = module.asarray(host)
    elif library == "numba":
        array = pytest.importorskip("numba.cuda").to_device(host)
    else:
        array = module.DeviceBuffer.to_device(host.tobytes())
    a, b = await pair()
    got = (await came(a, b, {"x": to_serialize(array)}))["x"]
    assert type(got) is type(array)
    assert device_types.read_device(got)[: host.nbytes] == host.tobytes()
    await ended(a, b)
