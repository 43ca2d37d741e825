# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/blocks ucp/comm ucp/config
"""Dask's comm backend: the behaviour of distributed's own tcp, by ucp."""

import asyncio
import errno
import os
import struct
import threading
import weakref

import numpy as np
import pytest
from script import run_script

import ucp

distributed = pytest.importorskip("distributed", reason="distributed is missing")

import dask.config  # noqa: E402
from distributed.comm import (  # noqa: E402
    CommClosedError,
    connect,
    get_address_host,
    get_address_host_port,
    get_local_address_for,
    listen,
    parse_address,
    resolve_address,
)
from distributed.comm.registry import backends, get_backend  # noqa: E402
from distributed.protocol import Serialized, deserialize, to_serialize  # noqa: E402
from distributed.utils import wait_for  # noqa: E402

from ucp.dask import UCP, _blocks, _comm, _config, register  # noqa: E402

pytestmark = pytest.mark.usefixtures("transport")

HOST = "ucp://127.0.0.1"
SIZES = [0, 1, 4095, 4096, 63_000, 65_536, 300_000, 8_000_000]


async def pair(address=HOST, **options):
    """Return both ends of a connection."""
    accepted = asyncio.get_running_loop().create_future()

    async def handle(comm):
        accepted.set_result(comm)

    async with listen(address, handle, **options) as listener:
        comm = await connect(listener.contact_address, **options)
        return comm, await accepted


async def ended(*comms):
    for comm in comms:
        await comm.close()


async def until(condition):
    """Wait turns of the loop for `condition`, at most until the test times out."""
    while not condition():
        await asyncio.sleep(0.001)


# ---- messages ----------------------------------------------------------------


async def test_messages_arrive_in_order_whatever_their_size():
    a, b = await pair()
    arrays = [np.random.default_rng(size).bytes(size) for size in SIZES]
    for array in arrays:
        await a.write({"x": to_serialize(array)})
    for array in arrays:
        assert (await b.read())["x"] == array
    await ended(a, b)


@pytest.mark.parametrize("size", SIZES)
async def test_arrays_arrive_writable(size):
    a, b = await pair()
    await a.write({"x": to_serialize(np.arange(size, dtype="u1"))})
    received = (await b.read())["x"]
    assert received.flags.writeable
    assert np.array_equal(received, np.arange(size, dtype="u1"))
    await ended(a, b)


async def test_an_array_does_not_keep_the_others_of_its_message():
    a, b = await pair()
    await a.write([to_serialize(np.zeros(100_000, "u1")) for _ in range(2)])
    first, second = await b.read()
    assert first.base is not second.base
    gone = weakref.ref(_owner(first))
    del first
    await until(lambda: gone() is None)
    await ended(a, b)


def _owner(array):
    """Return the object that the memory belongs to."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


async def test_writes_do_not_wait_for_the_reader():
    a, b = await pair()
    big = np.zeros(8_000_000, "u1")
    for _ in range(3):
        await a.write({"x": to_serialize(big)})
    await b.write({"x": to_serialize(big)})
    assert (await a.read())["x"].nbytes == big.nbytes
    for _ in range(3):
        await b.read()
    await ended(a, b)


async def test_writes_beyond_the_limit_wait_for_the_reader():
    with dask.config.set({"distributed.comm.ucp.write-limit": "1 MiB"}):
        a, b = await pair()
    big = to_serialize(np.zeros(4_000_000, "u1"))
    await a.write(big)  # larger than the limit: alone
    second = asyncio.create_task(a.write(big))
    await b.write("meanwhile")
    assert await a.read() == "meanwhile"
    assert not second.done()
    await b.read()
    await second
    await b.read()
    await ended(a, b)


async def test_writes_of_more_messages_than_may_queue_wait_for_the_reader(monkeypatch):
    monkeypatch.setattr("ucp.dask._comm._QUEUED_MAX", 100)
    a, b = await pair()

    async def write():
        for number in range(5000):
            await a.write(number)

    writing = asyncio.create_task(write())
    await asyncio.sleep(0)  # the task runs until it waits
    await b.write("meanwhile")
    assert await a.read() == "meanwhile"
    assert not writing.done()
    for number in range(5000):
        assert await b.read() == number
    await writing
    await ended(a, b)


async def test_a_write_that_is_cancelled_while_it_waits_has_sent_nothing():
    with dask.config.set({"distributed.comm.ucp.write-limit": "1 MiB"}):
        a, b = await pair()
    big = to_serialize(np.zeros(4_000_000, "u1"))
    await a.write(big)
    with pytest.raises(asyncio.TimeoutError):
        await wait_for(a.write("lost"), 0.01)
    await b.read()
    await a.write("next")
    assert await b.read() == "next"
    await ended(a, b)


async def test_more_frames_than_a_message_has_go_as_one(monkeypatch):
    monkeypatch.setattr("ucp.dask._comm._FRAMES_MAX", 4)
    a, b = await pair()
    arrays = [np.full(n, n, "u1") for n in range(20)]
    await a.write([to_serialize(array) for array in arrays])
    for array, received in zip(arrays, await b.read(), strict=True):
        assert np.array_equal(array, received)
        assert received.flags.writeable
    await ended(a, b)


@pytest.mark.parametrize("shard", [1000, None])
async def test_frames_are_split_only_if_that_is_configured(shard):
    with dask.config.set({"distributed.comm.ucp.shard": shard}):
        a, b = await pair()
    b.deserialize = False
    await a.write({"x": to_serialize(np.zeros(4000, dtype="u1"))})
    assert len((await b.read())["x"].frames) == (4 if shard else 1)
    await ended(a, b)


async def test_max_shard_size_of_the_instance_counts():
    a, b = await pair()
    a.max_shard_size = 1000
    await a.write({"x": to_serialize(np.arange(4000) % 251)})
    assert np.array_equal((await b.read())["x"], np.arange(4000) % 251)
    await ended(a, b)


async def test_without_deserializing_frames_stay_frames():
    a, b = await pair(deserialize=False)
    await a.write({"x": to_serialize(123), "y": b"abc"})
    received = await b.read()
    assert isinstance(received["x"], Serialized)
    assert deserialize(received["x"].header, received["x"].frames) == 123
    await ended(a, b)


async def test_write_returns_the_number_of_bytes():
    a, b = await pair()
    assert 1_000_000 <= await a.write(to_serialize(bytes(1_000_000))) < 1_001_000
    await ended(a, b)


async def test_the_handshake_options_reach_the_serializer():
    a, b = await pair()
    a.handshake_options = {**a.handshake_options, "compression": "zlib"}
    zlib = await a.write(to_serialize(bytes(1_000_000)))
    assert zlib < 100_000
    assert await b.read() == bytes(1_000_000)
    await ended(a, b)


async def test_a_message_that_cannot_be_serialized_leaves_the_connection_open(caplog):
    a, b = await pair()

    class Refuses:
        def __reduce__(self):
            raise ZeroDivisionError

    with pytest.raises((TypeError, ZeroDivisionError)):
        await a.write({"x": to_serialize(Refuses())}, on_error="raise")
    await a.write("next")
    assert await b.read() == "next"
    await ended(a, b)


async def test_truncated_data_closes_the_connection(caplog):
    class Cut:
        def __reduce__(self):
            return _raise_eof, ()

    a, b = await pair()
    await a.write({"x": to_serialize(Cut())})
    with pytest.raises(CommClosedError):
        await b.read()
    assert b.closed()
    with pytest.raises(CommClosedError):
        await a.read()
    await ended(a, b)


def _raise_eof():
    raise EOFError


async def test_garbled_frames_fail_the_read(caplog):
    a, b = await pair()
    a._endpoint.send_frames([b"\xc1 is no msgpack"])
    with pytest.raises(ValueError):
        await b.read()
    await ended(a, b)


async def test_a_message_without_frames_fails_the_read(caplog):
    a, b = await pair()
    a._endpoint.send_frames([])
    with pytest.raises(IndexError):
        await b.read()
    await ended(a, b)


async def test_packed_frames_whose_count_lies_close_the_connection():
    for lie in b"", b"\xff" * 8, bytes(5) + b"\1\0\0":
        a, b = await pair()
        a._endpoint.send_frames([lie], b"packed")
        with pytest.raises((struct.error, OverflowError, MemoryError)):
            await b.read()
        assert b.closed()
        await ended(a)


async def test_a_million_bytes_in_small_messages():
    a, b = await pair()

    async def write():
        for number in range(10_000):
            await a.write(number)

    writing = asyncio.create_task(write())
    for number in range(10_000):
        assert await b.read() == number
    await writing
    await ended(a, b)


# ---- the end of a connection -------------------------------------------------


async def test_what_was_written_before_close_can_be_read():
    a, b = await pair()
    for size in SIZES:
        await a.write(to_serialize(bytes(size)))
    closing = asyncio.create_task(a.close())
    for size in SIZES:
        assert len(await b.read()) == size
        await asyncio.sleep(0)
    with pytest.raises(CommClosedError):
        await b.read()
    await closing
    await ended(b)


async def test_close_ends_reads_on_both_sides_and_all_that_comes_later():
    a, b = await pair()
    reads = [asyncio.create_task(comm.read()) for comm in (a, b)]
    await asyncio.sleep(0)
    await a.close()
    for read in reads:
        with pytest.raises(CommClosedError):
            await read
    for comm in (a, b):
        with pytest.raises(CommClosedError):
            await comm.read()
        with pytest.raises(CommClosedError):
            await comm.write("x")
        assert comm.closed()
        await comm.close()
        comm.abort()


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_the_other_side_becomes_closed_without_reading(end):
    a, b = await pair()
    assert not a.closed() and not b.closed()
    if end == "close":
        await a.close()
    else:
        a.abort()
    assert a.closed()
    await until(b.closed)


async def test_a_side_with_messages_to_read_is_not_closed():
    a, b = await pair()
    await a.write("first")
    await a.write("second")
    await a.close()
    await until(lambda: b._ahead is not None)
    assert not b.closed()
    assert await b.read() == "first"
    assert await b.read() == "second"
    await until(b.closed)


async def test_a_read_that_is_cancelled_closes_the_connection():
    a, b = await pair()
    with pytest.raises(asyncio.TimeoutError):
        await wait_for(a.read(), 0.01)
    assert a.closed()
    with pytest.raises(CommClosedError):
        await b.read()


async def test_a_peer_that_dies_ends_the_connection():
    program = """
    import asyncio, os
    from distributed.comm import connect

    async def main():
        comm = await connect(os.environ["ADDRESS"])
        await comm.write("hello")
        await comm.read()
        os._exit(0)

    asyncio.run(main())
    """
    accepted = asyncio.get_running_loop().create_future()

    async def handle(comm):
        accepted.set_result(comm)

    async with listen(HOST, handle) as listener:
        script = asyncio.to_thread(
            run_script, program, ADDRESS=listener.contact_address
        )
        running = asyncio.create_task(script)
        comm = await accepted
    assert await comm.read() == "hello"
    await comm.write("die")
    with pytest.raises(CommClosedError):
        await comm.read()
    assert comm.closed()
    await running


async def test_close_does_not_wait_for_a_peer_with_nothing_to_take():
    blocked = threading.Event()
    ready = threading.Event()
    address = []

    def serve():
        async def main():
            async def handle(comm):
                while not blocked.wait(0.01):  # holds its loop
                    pass

            async with listen(HOST, handle) as listener:
                address.append(listener.contact_address)
                ready.set()
                while not blocked.is_set():
                    await asyncio.sleep(0.01)

        asyncio.run(main())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        await asyncio.to_thread(ready.wait)
        comm = await connect(address[0])
        await comm.close()
        assert not blocked.is_set()
    finally:
        blocked.set()
        await asyncio.to_thread(thread.join)


async def test_abort_from_another_thread_is_heard():
    a, b = await pair()
    await asyncio.to_thread(a.abort)
    assert a.closed()
    with pytest.raises(CommClosedError):
        await b.read()


async def test_a_dropped_connection_is_closed():
    a, b = await pair()
    del a
    with pytest.raises(CommClosedError):
        await b.read()


async def test_connections_leave_no_file_descriptors():
    def count():
        return len(os.listdir("/proc/self/fd"))

    await ended(*await pair())  # UCX makes one for the worker
    before = count()  # some of which may be about to close
    pairs = [await pair() for _ in range(10)]
    assert count() > before
    for comms in pairs:
        await ended(*comms)
    await until(lambda: count() <= before)


async def test_a_connection_tells_in_its_repr_what_it_is():
    a, b = await pair()
    for comm in (a, b):
        assert comm.local_address in repr(comm)
        assert comm.peer_address in repr(comm)
        assert "closed" not in repr(comm)
    await ended(a, b)
    assert "closed" in repr(a)


# ---- connecting --------------------------------------------------------------


@pytest.mark.parametrize("address", ["ucp://127.0.0.1", "ucp://::1", "ucp://[::1", ""])
async def test_a_malformed_address_is_a_value_error(address):
    connector = get_backend("ucp").get_connector()
    with pytest.raises(ValueError):
        await connector.connect(parse_address(address)[1])


async def test_nobody_there_is_an_os_error(closed_port):
    connector = get_backend("ucp").get_connector()
    with pytest.raises(OSError):
        await connector.connect(f"127.0.0.1:{closed_port}")
    with pytest.raises(OSError):
        await connect(f"{HOST}:{closed_port}", timeout=0.1)


async def test_a_connect_that_is_cancelled_leaves_nothing(mute_server):
    connector = get_backend("ucp").get_connector()
    connecting = asyncio.create_task(connector.connect(f"127.0.0.1:{mute_server}"))
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await until(lambda: not list(ucp.current_worker()._endpoints))


async def test_a_peer_that_is_busy_is_waited_for_by_the_first_read(mute_server):
    """The kernel takes the connection whatever the process does, as with tcp."""
    connector = get_backend("ucp").get_connector()
    comm = await connector.connect(f"127.0.0.1:{mute_server}")
    await comm.write("x")
    with pytest.raises(asyncio.TimeoutError):
        await wait_for(comm.read(), 0.01)
    assert comm.closed()


async def test_the_scheduler_of_names_is_asked():
    async def handle(comm):
        await comm.write("here")
        await comm.close()

    async with listen("ucp://localhost:0", handle) as listener:
        port = listener.port or listener.get_host_port()[1]
        comm = await connect(f"ucp://localhost:{port}")
        assert await comm.read() == "here"
        await comm.close()


async def test_encryption_that_is_required_is_not_there():
    with pytest.raises(RuntimeError, match=r"^encryption required by Dask conf.*$"):
        await connect(f"{HOST}:1", require_encryption=True)
    with pytest.raises(RuntimeError, match=r"^encryption required by Dask conf.*$"):
        listen(HOST, None, require_encryption=True)


# ---- listening and addresses -------------------------------------------------


async def test_addresses_mirror_each_other():
    a, b = await pair()
    assert a.local_address == b.peer_address
    assert a.peer_address == b.local_address
    assert a.same_host and b.same_host
    assert a.handshake_options["compression"] is None
    assert a.handshake_info()["compression"] is None
    await ended(a, b)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
async def test_wildcards_are_reached(host):
    async def handle(comm):
        await comm.write(comm.peer_address)
        await comm.close()

    async with listen(f"ucp://{host}:0" if host else "ucp://", handle) as listener:
        bound, port = listener.get_host_port()
        assert bound == (host.strip("[]") or "0.0.0.0")
        contact = get_address_host_port(listener.contact_address)
        assert contact[1] == port
        assert contact[0] not in ("", "0.0.0.0", "::")
        hosts = ["127.0.0.1"] if host == "0.0.0.0" else ["127.0.0.1", "[::1]"]
        for target in hosts:
            comm = await connect(f"ucp://{target}:{port}")
            assert await comm.read() == comm.local_address
            assert comm.local_address.startswith(f"ucp://{target}:")
            await comm.close()


async def test_a_worker_is_reached_where_its_scheduler_is():
    options = {"host": HOST, "port": 0, "dashboard_address": ":0"}
    async with distributed.Scheduler(**options) as scheduler:
        async with distributed.Worker(scheduler.address, nthreads=1) as worker:
            assert worker.address.startswith(f"{HOST}:")


async def test_ipv6():
    a, b = await pair("ucp://[::1]")
    assert a.peer_address.startswith("ucp://[::1]:")
    assert a.local_address == b.peer_address
    await a.write("x")
    assert await b.read() == "x"
    await ended(a, b)


async def test_a_hundred_listeners_at_once():
    listeners = [await listen("ucp://", None) for _ in range(100)]
    assert len({listener.contact_address for listener in listeners}) == 100
    for listener in listeners:
        listener.stop()


async def test_a_port_can_be_used_again_at_once():
    connections = []

    async def handle(comm):
        connections.append(comm)

    listener = await listen(HOST, handle)
    address = listener.contact_address
    for _ in range(3):
        comm = await connect(address)
        listener.stop()
        listener = await listen(address, handle)
        await comm.write("still there")
        await until(lambda: connections)
        assert await connections.pop().read() == "still there"
        await comm.close()
    listener.stop()


async def test_a_port_in_use_is_an_os_error():
    async with listen(HOST, None) as listener:
        with pytest.raises(OSError) as info:
            await listen(listener.listen_address, None)
        assert info.value.errno == errno.EADDRINUSE


async def test_a_listener_that_stops_refuses_who_is_on_the_way():
    listener = await listen(HOST, None)
    accept = listener._accept

    async def stop_first(endpoint):
        listener.stop()
        await accept(endpoint)

    listener._listener._acceptor.callback._func = stop_first
    with pytest.raises((CommClosedError, OSError)):
        await wait_for(connect(listener.contact_address), 5)


async def test_handshaking_connections_can_be_aborted():
    listener = await listen(HOST, None)
    connector = get_backend("ucp").get_connector()
    _, location = parse_address(listener.contact_address)
    comm = await connector.connect(location)
    await comm.read()  # the listener's information; ours is not sent
    listener.stop()
    listener.abort_handshaking_comms()
    with pytest.raises(CommClosedError):
        await comm.read()


async def test_a_handshake_that_is_garbled_ends_the_connection(caplog):
    listener = await listen(HOST, None)
    shake_hands = listener.on_connection
    accepted = []

    async def on_connection(comm):
        accepted.append(comm)
        await shake_hands(comm)

    listener.on_connection = on_connection
    connector = get_backend("ucp").get_connector()
    comm = await connector.connect(parse_address(listener.contact_address)[1])
    comm._endpoint.send_frames([b"\xc1 is no msgpack"])
    await comm.read()  # the listener's information
    with pytest.raises(CommClosedError):
        await comm.read()
    assert accepted[0].closed()
    listener.stop()


def test_addresses_are_taken_apart_as_tcp_does():
    assert get_address_host("ucp://127.0.0.1:456") == "127.0.0.1"
    assert get_address_host_port("ucp://[::1]:456") == ("::1", 456)
    assert resolve_address("ucp://localhost:456") in (
        "ucp://127.0.0.1:456",
        "ucp://[::1]:456",
    )
    assert get_local_address_for("ucp://127.0.0.1:80") == HOST
    with pytest.raises(ValueError):
        get_address_host_port("ucp://127.0.0.1")


# ---- memory ------------------------------------------------------------------

LARGE = 3 << 20


@pytest.fixture
def blocks():
    """An empty cache of the blocks that are received into."""
    return _blocks.Blocks()


def address_of(view):
    return np.frombuffer(view, "u1").ctypes.data


async def test_a_large_block_is_used_again_when_its_last_view_has_died(blocks):
    blocks.use(asyncio.get_running_loop(), 1 << 30)
    view = blocks.allocate(LARGE)
    array = np.frombuffer(view, "u1")[10:]
    first = address_of(view)
    del view
    assert blocks.nbytes == 0  # the array has it
    other = blocks.allocate(LARGE)
    assert address_of(other) != first
    del array
    assert blocks.nbytes == LARGE
    smaller = blocks.allocate(LARGE - 1000)
    assert address_of(smaller) == first
    assert smaller.nbytes == LARGE - 1000 and blocks.nbytes == 0


async def test_arrays_that_share_no_array_keep_their_block(blocks):
    """NumPy takes the memory's owner for the base where it is an array."""
    blocks.use(asyncio.get_running_loop(), 1 << 30)
    array = np.ndarray((LARGE,), "u1", buffer=blocks.allocate(LARGE))
    array = array[:100].reshape(10, 10).view("i2")
    assert blocks.nbytes == 0
    del array
    assert blocks.nbytes == LARGE


async def test_what_is_kept_is_bounded(blocks):
    blocks.use(asyncio.get_running_loop(), 2 * LARGE)
    views = [blocks.allocate(LARGE) for _ in range(4)]
    views.clear()
    assert blocks.nbytes == 2 * LARGE
    blocks.allocate(3 * LARGE)  # larger than the bound: not kept
    assert blocks.nbytes == 2 * LARGE
    blocks.use(asyncio.get_running_loop(), 0)
    assert blocks.nbytes == 0
    blocks.allocate(LARGE)
    assert blocks.nbytes == 0


async def test_what_nobody_uses_is_freed_after_a_while(blocks, monkeypatch):
    monkeypatch.setattr(_blocks, "_IDLE", 0.01)
    blocks.use(asyncio.get_running_loop(), 1 << 30)
    blocks.allocate(LARGE)
    blocks.allocate(2 * LARGE)
    await until(lambda: blocks.nbytes == 0)
    blocks.allocate(LARGE)
    assert blocks.nbytes == LARGE
    await until(lambda: blocks.nbytes == 0)


def test_without_a_loop_to_free_it_nothing_is_kept(blocks):
    async def make():
        blocks.use(asyncio.get_running_loop(), 1 << 30)
        return blocks.allocate(LARGE)

    view = asyncio.run(make())
    del view
    assert blocks.nbytes == 0


async def test_blocks_are_given_back_by_any_thread(blocks):
    blocks.use(asyncio.get_running_loop(), 1 << 30)
    views = [blocks.allocate(LARGE) for _ in range(8)]
    threads = [threading.Thread(target=views.pop) for _ in range(8)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    await until(lambda: blocks.nbytes == 8 * LARGE)


async def test_short_of_memory_the_cache_goes_first(blocks, monkeypatch):
    blocks.use(asyncio.get_running_loop(), 1 << 30)
    blocks.allocate(LARGE)
    allocate = _blocks.host_array

    def host_array(size):
        if blocks.nbytes:
            raise MemoryError
        return allocate(size)

    monkeypatch.setattr(_blocks, "host_array", host_array)
    assert blocks.allocate(4 * LARGE).nbytes == 4 * LARGE


# ---- configuration -----------------------------------------------------------


@pytest.mark.parametrize(
    "settings, options",
    [
        ({}, {}),
        (
            {"ucp.options": {"tls": "tcp", "some-option": 1}},
            ["TLS=tcp", "SOME_OPTION=1"],
        ),
        ({"ucp.options": {"mm-error-handling": False}}, ["MM_ERROR_HANDLING=n"]),
        ({"ucx": {"nvlink": False, "infiniband": False}}, ["TLS=^ib,cuda_ipc"]),
        ({"ucx": {"tcp": False, "cuda_copy": False}}, ["TLS=^tcp,cuda_copy"]),
        ({"ucx": {"nvlink": True, "tcp": None, "rdmacm": False}}, {}),
        ({"ucx.environment": {"max-rndv-rails": 2}}, ["MAX_RNDV_RAILS=2"]),
        (
            {"ucx.environment": {"tls": "a"}, "ucp.options": {"tls": "b"}},
            ["TLS=b"],
        ),
    ],
)
def test_options_of_ucx_come_from_the_configuration(settings, options):
    with dask.config.set({f"distributed.comm.{k}": v for k, v in settings.items()}):
        assert _config.ucx_options() == dict(text.split("=") for text in options)


async def test_the_environment_beats_the_configuration(fresh_ucx, monkeypatch):
    ucp.reset()
    monkeypatch.setenv("UCX_MAX_EAGER_RAILS", "2")
    options = {"max-eager-rails": 3, "max-rndv-rails": 3}
    with dask.config.set({"distributed.comm.ucp.options": options}):
        await ended(*await pair())
    assert ucp.get_config()["MAX_EAGER_RAILS"] == "2"
    assert ucp.get_config()["MAX_RNDV_RAILS"] == "3"


async def test_settings_of_the_library_come_from_the_configuration(fresh_ucx):
    ucp.reset()
    settings = {
        "distributed.comm.ucp.config": {"spin-ns": 123},
        "distributed.comm.timeouts.tcp": "17s",
    }
    with dask.config.set(settings):
        await ended(*await pair())
    config = ucp.current_worker().context.config
    assert (config["spin_ns"], config["keepalive_ns"]) == (123, 17_000_000_000)


@pytest.mark.parametrize(
    "settings",
    [{"options": {"no-such": 1}}, {"config": {"no-such": 1}}, {"token": "x" * 999}],
)
async def test_a_wrong_configuration_is_told_at_once(fresh_ucx, settings):
    ucp.reset()
    with dask.config.set({f"distributed.comm.ucp.{k}": v for k, v in settings.items()}):
        with pytest.raises(ValueError, match=r"^distributed\.comm\.ucp.*"):
            await listen(HOST, None)
        with pytest.raises(CommClosedError, match=r"^distributed\.comm\.ucp.*"):
            await connect(f"{HOST}:1")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("tokn", ", is 'token' meant? "),
        ("Token", ", is 'token' meant? "),
        ("write_limits", ", is 'write-limit' meant? "),
        ("zzz", ". There are: close-timeout, config, "),
        ("config.spin-nss", ", is 'spin-ns' meant? There are: "),
    ],
)
async def test_keys_that_mean_nothing_are_refused_by_name(key, hint):
    """A mistyped token must not mean that peers are not authenticated."""
    place, _, name = f"distributed.comm.ucp.{key}".rpartition(".")
    text = f"{place} in Dask's configuration has no key {name!r}{hint}"
    with dask.config.set({f"distributed.comm.ucp.{key}": "secret"}):
        with pytest.raises(ValueError) as caught:
            await listen(HOST, None)
        assert str(caught.value).startswith(text)
        with pytest.raises(CommClosedError) as caught:
            await connect(f"{HOST}:1")
        assert str(caught.value).startswith(text)


async def test_keys_may_be_written_with_underscores():
    with dask.config.set({"distributed.comm.ucp.close_timeout": "9s"}):
        await ended(*await pair())


@pytest.mark.parametrize("look_period", [_comm._LOOK_PERIOD, 0])
async def test_a_server_of_tcp_is_told_from_one_that_is_not_there(
    monkeypatch, look_period
):
    """The peer's protocol may be noticed when the first message is written or read."""
    monkeypatch.setattr(_comm, "_LOOK_PERIOD", look_period)

    async def handle(comm):
        raise AssertionError

    with pytest.raises(CommClosedError):
        await _comm.UCPConnector().connect("127.0.0.1:1")
    # distributed's server takes our first bytes for a length.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with listen("tcp://127.0.0.1", handle) as listener:
        address = listener.contact_address.replace("tcp:", "ucp:")
        started = asyncio.get_running_loop().time()
        with pytest.raises(
            _comm.OtherProtocolError,
            match=rf"^{address}: the peer speaks tcp, not ucp$",
        ) as caught:
            await connect(address, timeout=30)
        assert asyncio.get_running_loop().time() - started < 10
    assert not isinstance(caught.value, OSError)  # a worker would try again


@pytest.mark.parametrize("words", [b"SSH-2.0-OpenSSH\r\n", b"x" * 20_000])
async def test_a_server_of_neither_protocol_is_not_said_to_be_dasks(words):
    async def greet(reader, writer):
        writer.write(words)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(CommClosedError):
            await _comm.UCPConnector().connect(f"127.0.0.1:{port}")


def test_the_schema_knows_every_default():
    from importlib import resources

    import yaml

    schema = yaml.safe_load(
        resources.files("ucp.dask").joinpath("ucp-schema.yaml").read_text()
    )
    for name in ("distributed", "comm", "ucp"):
        schema = schema["properties"][name]
    assert set(schema["properties"]) == set(dask.config.get("distributed.comm.ucp"))


async def test_the_protocol_ucx_is_taken_over(monkeypatch):
    monkeypatch.setitem(backends, "ucx", object())
    register()
    a, b = await pair("ucx://127.0.0.1")
    assert isinstance(a, UCP)
    assert a.peer_address == b.local_address
    assert a.peer_address.startswith("ucx://")
    await ended(a, b)
