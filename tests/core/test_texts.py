# SPDX-License-Identifier: BSD-3-Clause
"""What errors say to people who make the mistakes that people make."""

import asyncio
import datetime
import re
import socket

import pytest
from script import run_program

import ucp
import ucp.moe
import ucp.proxy
import ucp.shmem
import ucp.shuffle
from ucp.testing import connected_pair, until


def test_a_listener_needs_a_running_loop_or_a_worker():
    run_program(
        r"""
        import pytest
        import ucp

        with pytest.raises(RuntimeError, match=r"a running event loop.*ucp\.sync"):
            ucp.create_listener(lambda ep: None, host="127.0.0.1")
        ucp.current_worker()
        ucp.create_listener(lambda ep: None, host="127.0.0.1").close()
        """
    )


async def test_who_has_closed_an_endpoint_is_said():
    async with connected_pair() as (client, server):
        await client.close()
        with pytest.raises(ucp.UCXCloseError, match=r"by close\(\) in this process$"):
            await client.send(b"x")
        with pytest.raises(ucp.UCXCloseError, match=r"^Endpoint closed by the peer$"):
            await server.send(b"x")
    async with connected_pair() as (client, _):
        client.abort()
        with pytest.raises(ucp.UCXCloseError, match=r"by abort\(\) in this process$"):
            await client.send(b"x")
    async with connected_pair() as (client, server):
        server.abort()
        with pytest.raises(ucp.UCXConnectionReset):
            await client.recv(bytearray(1))
        with pytest.raises(ucp.UCXCloseError, match=r"closed: the connection is lost$"):
            await client.flush()


def test_an_endpoint_of_a_loop_that_has_ended_says_so():
    async def main():
        async with connected_pair() as (client, _):
            return client

    endpoint = asyncio.run(main())

    async def send():
        await endpoint.send(b"x")

    with pytest.raises(ucp.UCXCloseError, match=r"closed: its event loop has ended$"):
        asyncio.run(send())


async def test_a_call_in_another_thread_names_submit():
    async with connected_pair() as (client, _):
        with pytest.raises(RuntimeError, match=r"another thread: worker\.submit\(\)"):
            await asyncio.to_thread(client.abort)


@pytest.mark.parametrize("value", [{"a": 1}, [1, 2], 5])
async def test_objects_without_bytes_go_by_pickle(value):
    async with connected_pair() as (client, _):
        for send in (client.send, client.send_obj, lambda v: client.send_frames([v])):
            with pytest.raises(TypeError, match="calls with _pickle in their names"):
                await send(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("5", "a timeout is a number of seconds, not '5'"),
        (
            datetime.timedelta(seconds=1),
            "a timeout is a number of seconds, not datetime.timedelta(seconds=1): "
            "give its total_seconds()",
        ),
    ],
)
async def test_a_timeout_is_a_number(value, text):
    match = f"^{re.escape(text)}$"
    async with ucp.create_listener(host="127.0.0.1") as listener:
        with pytest.raises(TypeError, match=match):
            await ucp.connect("127.0.0.1", listener.port, timeout=value)
        with pytest.raises(TypeError, match="a timeout is a number of seconds, not"):
            ucp.create_listener(host="127.0.0.1", connect_timeout=value)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("tcp://127.0.0.1", "127.0.0.1"),
        ("tcp://127.0.0.1:80", "127.0.0.1"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[::1]:80", "::1"),
        (" 127.0.0.1\n", "127.0.0.1"),
    ],
)
async def test_what_is_no_host_is_named(host, name):
    text = f"without scheme, port and brackets: {name!r}$"
    with pytest.raises(OSError, match=re.escape(text[:-1])):
        await ucp.connect(host, 1)


async def test_a_host_that_is_not_known_is_only_not_known():
    with pytest.raises(OSError, match=r"^\[Errno -2\] host '': [\w ]+$"):
        await ucp.connect("", 1)


async def test_a_refused_connection_asks_whether_anybody_listens():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        with pytest.raises(ucp.UCXNotConnected, match="does a process listen there"):
            await ucp.connect("127.0.0.1", sock.getsockname()[1])


async def test_a_silent_listener_may_be_busy():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        with pytest.raises(ucp.UCXTimeout, match="is its event loop busy"):
            await ucp.connect("127.0.0.1", sock.getsockname()[1], timeout=0.01)


def test_an_option_that_does_not_exist_is_compared_with_those_that_do():
    with pytest.raises(TypeError, match=r"^Config has no heartbeet; did you mean "):
        ucp.Config(heartbeet=3)
    near = r"did you mean credit_rndv or credit_bytes\?$"
    with pytest.raises(TypeError, match=near):
        ucp.Config(credit=1)
    with pytest.raises(TypeError, match=r"did you mean heartbeat_ns"):
        ucp.Config(hartbeat_ns=1)
    all_ = r"^Config has no zzzzzz; help\(ucp\.Config\) shows what it has$"
    with pytest.raises(TypeError, match=all_):
        ucp.Config(zzzzzz=3)
    assert ucp.Config(spin_ns=1000) == ucp.Config(spin=1e-6)
    run_program(
        """
        import pytest
        import ucp

        with pytest.raises(ucp.UCXConfigError, match='"TLSS"; did you mean TLS'):
            ucp.init(options={"TLSS": "tcp"})
        text = 'no option "QQQQQQ"; ucp.get_config.* has those of this UCX$'
        with pytest.raises(ucp.UCXConfigError, match=text):
            ucp.init(options={"QQQQQQ": "tcp"})
        """
    )


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_handler_whose_client_has_gone_is_a_line(caplog, is_async):
    errors, reports = [], []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context))

    async def read(ep):
        await ep.recv_obj()

    def fail(ep):
        raise ucp.UCXConnectionReset("the client has gone")

    async with ucp.create_listener(
        read if is_async else fail, host="127.0.0.1", on_error=errors.append
    ) as listener:
        client = await ucp.connect("127.0.0.1", listener.port)
        client.abort()
        await until(lambda: errors)
    (record,) = [each for each in caplog.records if each.name == "ucp"]
    assert not reports
    assert record.exc_info is None
    assert (
        "read(<ucp.Endpoint" if is_async else "fail(<ucp.Endpoint"
    ) in record.message


MADE_BY_FUNCTIONS = {
    "Memory of a buffer": (
        lambda: ucp.Memory(bytearray(8)),
        r"^a Memory is made by Memory\.allocate\(nbytes\) or "
        r"Memory\.register\(buffer\), not of bytearray$",
    ),
    "Memory of nothing": (ucp.Memory, r"or Memory\.register\(buffer\)$"),
    "Endpoint": (
        lambda: ucp.Endpoint("127.0.0.1", 1),
        r"create_endpoint\(host, ",
    ),
    "Listener": (ucp.Listener, r"create_listener\(callback_func, port\)"),
    "Channel": (lambda: ucp.Channel(1), r"Endpoint\.channel\(number\), not of int$"),
    "Communicator": (ucp.Communicator, r"Communicator\.from_env\(\)"),
    "Proxy": (ucp.proxy.Proxy, r"await Proxy\.create\(comm\)$"),
    "SymmetricHeap": (
        lambda: ucp.shmem.SymmetricHeap(1 << 20),
        r"await SymmetricHeap\.create\(comm, nbytes\), not of int$",
    ),
    "SymmetricArray": (
        ucp.shmem.SymmetricArray,
        r"SymmetricHeap\.empty\(",
    ),
    "MapOutputs": (ucp.shuffle.MapOutputs, r"await MapOutputs\.create\(comm, "),
    "moe.Buffer": (ucp.moe.Buffer, r"await Buffer\.create\(comm, "),
}


@pytest.mark.parametrize("name", MADE_BY_FUNCTIONS)
def test_a_class_says_what_makes_its_objects(name):
    call, text = MADE_BY_FUNCTIONS[name]
    with pytest.raises(TypeError, match=text):
        call()
