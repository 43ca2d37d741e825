# SPDX-License-Identifier: BSD-3-Clause
# tests: compat/comm compat/compat compat/core compat/ucxpy
"""Names that programs written for ucx-py look up."""

import asyncio
import importlib
import logging

import numpy as np
import pytest
from script import run_script

import ucp
from ucp import comm, core
from ucp._libs import ucx_api, utils, utils_test
from ucp._libs.arr import Array
from ucp.testing import connected_pair


@pytest.mark.real_start
def test_libs_and_comm_are_imported_when_they_are_used():
    run_script(
        """
        import sys, ucp
        assert "ucp._libs" not in sys.modules and "ucp.comm" not in sys.modules
        assert ucp._libs.exceptions.UCXNotConnected is ucp.UCXNotConnected
        assert ucp._libs.ucx_api.UCXWorker and ucp._libs.arr.Array
        assert ucp._libs.utils_test.blocking_send and ucp._libs.nvtx_annotate
        assert ucp.comm.tag_send
        """
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *((name, name) for name in ("core", "utils", "comm")),
        *(
            (f"_libs.{name}", f"libs.{name}")
            for name in ("ucx_api", "arr", "exceptions", "utils", "utils_test")
        ),
    ],
)
def test_the_paths_of_ucx_py_lead_to_the_same_objects(old, new):
    old = importlib.import_module(f"ucp.{old}")
    new = importlib.import_module(f"ucp.compat.ucxpy.{new}")
    assert new.__all__ == old.__all__
    assert all(getattr(old, name) is getattr(new, name) for name in new.__all__)


@pytest.mark.parametrize("module", [ucp, ucp._libs], ids=["ucp", "_libs"])
def test_other_names_are_told_as_usual(module):
    with pytest.raises(
        AttributeError, match=f"^module '{module.__name__}' has no attribute 'nothing'$"
    ):
        module.nothing  # noqa: B018


def test_the_version_is_a_tuple():
    assert ucp._ucx_version == ucp.get_ucx_version() == core.get_ucx_version()


def test_the_logger_is_at_hand():
    assert ucp.get_ucxpy_logger is ucp.utils.get_ucxpy_logger
    assert isinstance(logging.getLogger("ucx"), logging.Logger)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10 Mb", 10_000_000),
        ("1.5GiB", 3 << 29),
        ("2k", 2000),
        ("64KiB", 65536),
        ("5 ki", 5120),
        ("100", 100),
        (" 7 B ", 7),
        ("1e6", 1_000_000),
        ("1e3 kB", 1_000_000),
        ("MB", 1_000_000),
        ("1PiB", 1 << 50),
        (12.7, 12),
        (3, 3),
    ],
)
def test_sizes_are_read(text, number):
    assert utils.parse_bytes(text) == number


@pytest.mark.parametrize("text", ["5 foos", "1..2", "kMB", "-1", "5 iB", "1 kii"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match=r"^expected a size such as .*, got '"):
        utils.parse_bytes(text)


def test_the_context_is_none_until_it_is_used(fresh_ucx):
    assert core._ctx is None
    context = core._get_ctx()
    assert isinstance(context, ucp.ApplicationContext)
    assert core._ctx.context is context.context


def test_an_application_context_takes_what_init_takes(fresh_ucx):
    context = ucp.ApplicationContext({"TLS": "tcp,self"}, connect_timeout=2.5)
    assert context.get_config()["TLS"] == "tcp,self"
    assert (context.connect_timeout, context.blocking_progress_mode) == (2.5, True)
    with pytest.raises(RuntimeError, match=r"^UCX is already initiated\."):
        ucp.ApplicationContext({"TLS": "tcp,self"})


async def test_an_application_context_connects():
    context = core._get_ctx()
    assert context.worker is ucp.current_worker()
    assert context.get_ucp_worker() == context.worker.handle
    assert context.epoll_fd == context.worker.fileno()
    assert context.progress_tasks == []
    received = asyncio.get_running_loop().create_future()

    async def serve(ep):
        received.set_result(await ep.recv_obj())

    listener = context.create_listener(serve)
    ep = await context.create_endpoint("127.0.0.1", listener.port)
    await ep.send_obj(b"hello")
    assert await received == b"hello"
    await context.flush()
    context.fence()
    await ep.close()
    listener.close()


async def test_an_application_context_has_allocators_and_tagged_receives():
    context = core._get_ctx()
    context.register_am_allocator(
        lambda n: np.empty(n, "u1"), ucx_api.AllocatorType.HOST
    )
    try:
        async with connected_pair() as (client, server):
            await client.am_send(b"hello")
            assert isinstance(await server.am_recv(), np.ndarray)
            await client.send(b"tagged", tag=7, force_tag=True)
            buffer = bytearray(6)
            await context.recv(buffer, 7)
            assert buffer == b"tagged"
    finally:
        context.register_am_allocator(None, "host")


async def test_operations_are_futures():
    async with connected_pair() as (client, server):
        buffer = bytearray(5)
        receiving = comm.tag_recv(server._ep, Array(buffer), 5, 3)
        assert asyncio.isfuture(receiving)
        assert await comm.tag_send(client._ep, Array(b"hello"), 5, 3) is True
        assert await receiving is True
        assert buffer == b"hello"
        assert await comm.flush_ep(client._ep) is True
        assert await comm.flush_worker(client.worker) is True


async def test_streams_and_active_messages_are_futures():
    async with connected_pair() as (client, server):
        buffer = bytearray(5)
        receiving = comm.stream_recv(server, Array(buffer), 5)
        await comm.stream_send(client, Array(b"hello"), 5)
        await receiving
        assert buffer == b"hello"
        receiving = comm.am_recv(server)
        await comm.am_send(client, Array(b"hello"), 5)
        assert bytes(await receiving) == b"hello"


async def test_a_future_tells_the_failure():
    async with connected_pair() as (_, server):
        receiving = comm.tag_recv(server, Array(bytearray(5)), 5, 3)
        server.abort()
        with pytest.raises(ucp.UCXCanceled):
            await receiving


def test_operations_that_do_not_wait():
    context = ucx_api.UCXContext()
    worker = ucx_api.UCXWorker(context)
    accepted = []
    listener = ucx_api.UCXListener(worker, 0, accepted.append)
    client = ucx_api.UCXEndpoint.create(worker, "127.0.0.1", listener.port, True)
    while not accepted:
        worker.progress()
    server = ucx_api.UCXEndpoint.create_from_conn_request(worker, accepted[0], True)
    log = []
    buffer = bytearray(5)
    calls = (lambda: log.append("started"), lambda: log.append("completed"))
    utils_test.non_blocking_recv(worker, server, buffer, *calls, tag=1)
    assert log == ["started"]
    utils_test.non_blocking_send(worker, client, b"hello", *calls, tag=1)
    while log.count("completed") < 2:
        worker.progress()
    assert (buffer, log.count("started")) == (b"hello", 2)
    assert utils_test.get_endpoint_error_handling_default() is True
    worker.close()


@pytest.mark.parametrize("operation", ["send", "recv"])
async def test_a_number_of_bytes_is_no_argument(operation):
    """The idiom `send(msg, nbytes)` of early programs."""
    async with connected_pair() as (client, _):
        with pytest.raises(
            TypeError,
            match=r"^a tag is .*, not numpy\.ndarray; send\(buffer\) and "
            r"recv\(buffer\) take no number of bytes, the length is the buffer's$",
        ):
            await getattr(client, operation)(
                bytearray(8), np.array([8], dtype=np.uint64)
            )
