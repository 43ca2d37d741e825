# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/sockaddr ucp/callback ucp/waiters
"""Listeners: callbacks and their errors, iteration, addresses."""

import asyncio
import gc
import socket

import pytest

import ucp
from ucp.testing import connected_pair, live_objects, until


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


async def connect(listener):
    return await ucp.create_endpoint("127.0.0.1", listener.port)


async def test_a_function_gets_the_endpoint():
    accepted = []
    async with ucp.create_listener(accepted.append, host="127.0.0.1") as listener:
        ep = await connect(listener)
        await until(lambda: accepted)
        await accepted[0].send(b"hi")
        assert await ep.recv_obj() == b"hi"


async def test_a_coroutine_function_runs_as_a_task():
    async def echo(ep):
        await ep.send(await ep.recv_obj())

    listener = ucp.create_listener(echo, host="127.0.0.1")
    ep = await connect(listener)
    await ep.send(b"hi")
    assert await ep.recv_obj() == b"hi"


async def test_running_callbacks_survive_the_listener():
    running = asyncio.Event()

    async def echo(ep):
        running.set()
        await ep.send(await ep.recv_obj())

    listener = ucp.create_listener(echo, host="127.0.0.1")
    ep = await connect(listener)
    await running.wait()
    listener.close()
    del listener
    gc.collect()
    await ep.send(b"hi")
    assert await ep.recv_obj() == b"hi"


async def test_an_endpoint_that_the_callback_drops_is_closed():
    async def ignore(_ep):
        pass

    listener = ucp.create_listener(ignore, host="127.0.0.1")
    ep = await connect(listener)
    with pytest.raises(ucp.UCXPeerClosed):
        await ep.recv(bytearray(1))


@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_errors_of_the_callback_are_reported(is_coroutine):
    def fail(_ep):
        raise LookupError("oops")

    async def fail_later(_ep):
        raise LookupError("oops")

    handled, given = [], []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: handled.append(context))
    listener = ucp.create_listener(
        fail_later if is_coroutine else fail,
        host="127.0.0.1",
        on_error=given.append,
    )
    await connect(listener)
    await until(lambda: given and handled)
    assert isinstance(given[0], LookupError)
    assert handled[0]["exception"] is given[0]
    assert handled[0]["message"] == "exception in the callback of a ucp listener"


async def test_the_listener_goes_on_after_an_error_of_its_callback():
    calls = []

    def fail_first(ep):
        calls.append(ep)
        if len(calls) == 1:
            raise LookupError("oops")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, _context: None)
    listener = ucp.create_listener(fail_first, host="127.0.0.1")
    eps = [await connect(listener), await connect(listener)]
    await until(lambda: len(calls) == 2)
    await eps[1].send(b"x")
    assert await calls[1].recv_obj() == b"x"


async def test_iteration_gives_endpoints_until_close():
    listener = ucp.create_listener(host="127.0.0.1")
    eps = [await connect(listener) for _ in range(3)]
    accepted = []
    async for ep in listener:
        accepted.append(ep)
        if len(accepted) == 3:
            listener.close()
    assert len(accepted) == len(eps)


async def test_iteration_and_a_callback_exclude_each_other():
    listener = ucp.create_listener(print, host="127.0.0.1")
    with pytest.raises(
        TypeError, match=r"^a listener with a callback is not an iterator$"
    ):
        aiter(listener)


async def test_a_closed_listener_refuses():
    listener = ucp.create_listener(host="127.0.0.1")
    port = listener.port
    assert not listener.closed()
    listener.close()
    listener.close()
    assert listener.closed()
    with pytest.raises(ucp.UCXNotConnected):
        await ucp.create_endpoint("127.0.0.1", port)


NEVER_CLOSED = r"^<ucp.Listener on 127\.0\.0\.1:\d+> was dropped and never closed$"


async def test_a_dropped_listener_goes_on():
    got = []
    listener = ucp.create_listener(got.append, host="127.0.0.1")
    port = listener.port
    del listener
    gc.collect()
    ep = await ucp.create_endpoint("127.0.0.1", port)
    await until(lambda: got)
    await ep.send(b"x")
    assert await got[0].recv_obj() == b"x"


@pytest.mark.usefixtures("fresh_ucx")
def test_the_loops_end_closes_a_dropped_listener(loop_factory):
    ports = []

    async def listen():
        ports.append(ucp.create_listener(print, host="127.0.0.1").port)

    async def connect_to_it():
        with pytest.raises(ucp.UCXNotConnected):
            await ucp.create_endpoint("127.0.0.1", ports[0])

    with pytest.warns(ResourceWarning, match=NEVER_CLOSED):
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(listen())
    asyncio.run(connect_to_it())
    assert live_objects()["listeners"] == 0


@pytest.mark.usefixtures("fresh_ucx")
async def test_reset_closes_a_dropped_listener():
    listener = ucp.create_listener(print, host="127.0.0.1")
    cycle = [listener]
    cycle.append(cycle)
    del listener, cycle
    with pytest.warns(ResourceWarning, match=NEVER_CLOSED):
        ucp.reset()
    assert live_objects()["listeners"] == 0


@pytest.mark.usefixtures("fresh_ucx")
async def test_reset_is_refused_while_the_program_holds_a_listener():
    listener = ucp.create_listener(print, host="127.0.0.1")
    with pytest.raises(ucp.UCXError, match=repr(listener)):
        ucp.reset()
    listener.close()
    ucp.reset()


@pytest.mark.parametrize("port", [-1, 65536, 1 << 70])
async def test_a_port_that_is_none_is_refused(port):
    message = rf"^port must be 0-65535, not {port}$"
    with pytest.raises(OverflowError, match=message):
        ucp.create_listener(print, port)
    with pytest.raises(OverflowError, match=message):
        await ucp.create_endpoint("127.0.0.1", port)


async def test_a_port_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match=r"^port must be an int, not str$"):
        ucp.create_listener(print, "http")


async def test_a_callback_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match=r"^callback_func must be callable, not int$"):
        ucp.create_listener(1)
    with pytest.raises(TypeError, match=r"^on_error must be callable, not int$"):
        ucp.create_listener(print, on_error=1)
    async with connected_pair() as (client, _):
        with pytest.raises(
            TypeError, match=r"^callback_func must be callable, not int$"
        ):
            client.set_close_callback(1)


async def test_endpoints_outlive_their_listener():
    async with ucp.create_listener(host="127.0.0.1") as listener:
        ep = await connect(listener)
        other = await anext(listener)
    await ep.send(b"x")
    assert await other.recv_obj() == b"x"


async def test_a_port_can_be_used_again_at_once():
    listener = ucp.create_listener(host="127.0.0.1")
    port = listener.port
    ep = await connect(listener)
    other = await anext(listener)
    await ep.close()
    await other.close()
    listener.close()
    assert ucp.create_listener(host="127.0.0.1", port=port).port == port


async def test_a_port_in_use_is_busy():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ucp.UCXBusy) as caught:
            ucp.create_listener(host="127.0.0.1", port=port)
    assert isinstance(caught.value, OSError)


async def test_an_address_of_another_host_is_an_oserror():
    with pytest.raises((OSError, ucp.UCXError)):
        ucp.create_listener(host="192.0.2.1")


async def test_without_host_it_listens_on_all_addresses_of_both_families():
    listener = ucp.create_listener(backlog=16)
    assert (listener.host, listener.ip) == ("0.0.0.0", "0.0.0.0")
    addresses = [("0.0.0.0", listener.port), ("::", listener.port)]
    assert listener.addresses == (addresses if has_ipv6() else addresses[:1])
    for host in ["127.0.0.1", "::1"][: len(listener.addresses)]:
        ep = await ucp.create_endpoint(host, listener.port)
        other = await anext(listener)
        assert ep.peer_address[:2] == other.local_address[:2] == (host, listener.port)
        assert other.peer_address[0] == host
        await ep.send(b"x")
        assert await other.recv_obj() == b"x"


async def test_with_a_host_it_listens_there_only():
    listener = ucp.create_listener(host="127.0.0.1")
    assert listener.addresses == [("127.0.0.1", listener.port)]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
async def test_a_port_that_one_family_has_no_more_is_busy(family):
    if not has_ipv6():
        pytest.skip("no IPv6 here")
    with socket.create_server(("", 0), family=family) as server:
        with pytest.raises(ucp.UCXBusy):
            ucp.create_listener(port=server.getsockname()[1])


async def test_repr_tells_where_it_listens():
    listener = ucp.create_listener(host="127.0.0.1")
    assert repr(listener) == f"<ucp.Listener on 127.0.0.1:{listener.port}>"
    listener.close()
    assert repr(listener) == "<ucp.Listener closed>"
