# SPDX-License-Identifier: BSD-3-Clause
# tests: compat/endpoint compat/libs compat/ucx_api compat/utils_test compat/worker
# tests: ext/callback ext/low_level ucp/libs ucp/ucx_api ucp/utils_test
"""``ucp._libs.ucx_api``: connections, and tag calls with callbacks."""

import asyncio
import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from low_level import Call, Pair
from script import run_script

import ucp
from ucp._libs import ucx_api, utils_test
from ucp._libs.arr import Array
from ucp.testing import connected_pair

SIZES = [0, 1, 8, 1 << 13, 1 << 17, 1 << 22]

OTHER_THREAD = (
    "the worker belongs to another thread: worker.submit() has a function called there"
)


# For what is refused before anything is sent.
over_shm = pytest.mark.parametrize("options", [{}], ids=["shm"], indirect=True)


@pytest.fixture(params=[{}, {"TLS": "tcp"}], ids=["shm", "tcp"])
def options(request):
    return request.param


@pytest.fixture
def pair(options):
    pair = Pair(options)
    yield pair
    pair.close()


# ---- tags ---------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_first", [True, False], ids=["send first", "recv first"])
def test_a_message_arrives_and_the_callback_is_called_once(pair, size, is_first):
    data = np.arange(size, dtype="u1")
    buffer = np.zeros(size, "u1")
    sent, received = Call(), Call()

    def recv():
        return ucx_api.tag_recv_nb(
            pair.there, buffer, size, 7, received, ("a",), {"b": 2}
        )

    request = None if is_first else recv()
    send = ucx_api.tag_send_nb(pair.client, data, size, 7, sent)
    if is_first:
        pair.until(lambda: pair.there.tag_probe(7))
        request = recv()
    assert received.calls == []
    pair.done(send, sent)
    pair.wait(received)
    pair.there.progress()
    assert received.calls == [(request, None, ("a",), {"b": 2})]
    assert request.done() and request.info["status"] == "finished"
    assert len(sent.calls) == (send is not None)
    np.testing.assert_array_equal(buffer, data)


def test_a_send_that_is_done_returns_none_and_calls_nothing(pair):
    pair.send(b"wire-up")
    call = Call()
    assert ucx_api.tag_send_nb(pair.client, b"x", 1, 0, call) is None
    pair.here.progress()
    assert call.calls == []


def test_part_of_a_buffer_is_sent_and_filled(pair):
    buffer, call = bytearray(b"....."), Call()
    ucx_api.tag_recv_nb(pair.there, Array(buffer), 3, 0, call)
    pair.done(ucx_api.tag_send_nb(pair.client, b"abcde", 3, 0, call), call)
    pair.wait(call)
    assert buffer == b"abc.."


def test_the_tag_decides_who_gets_a_message(pair):
    buffers, calls = [bytearray(1), bytearray(1)], [Call(), Call()]
    for tag in (0, 1):
        ucx_api.tag_recv_nb(pair.there, buffers[tag], 1, tag, calls[tag])
    pair.send(b"b", tag=1)
    pair.wait(calls[1])
    assert calls[0].calls == []
    pair.send(b"a", tag=0)
    pair.wait(calls[0])
    assert buffers == [b"a", b"b"]


def test_callbacks_may_post_and_move_the_worker(pair):
    buffer, order = bytearray(1), []

    def first(request, exception):
        assert exception is None
        order.append(bytes(buffer))
        ucx_api.tag_recv_nb(pair.there, buffer, 1, 0, second)
        pair.there.progress()

    def second(request, exception):
        order.append(bytes(buffer))

    ucx_api.tag_recv_nb(pair.there, buffer, 1, 0, first)
    pair.send(b"1")
    pair.send(b"2")
    pair.until(lambda: len(order) == 2)
    assert order == [b"1", b"2"]


@pytest.mark.usefixtures("transport")
async def test_progress_calls_back_in_a_task_that_the_loop_has_just_resumed():
    """The loop's callback that resumed the task need not end first."""
    async with connected_pair() as (client, server):
        worker = client.worker
        asyncio.get_running_loop().call_soon(client.send, b"x")
        await server.recv(bytearray(1))
        call, data = Call(), bytearray(3)
        request = ucx_api.tag_recv_nb(worker, data, 3, 1, call)
        sent = ucx_api.tag_send_nb(client, b"abc", 3, 1, Call())
        while not request.done() or (sent is not None and not sent.done()):
            worker.progress()
        assert len(call.calls) == 1
        assert data == b"abc"


def test_a_receive_is_done_once_its_callback_was_called(pair):
    pair.send(b"here", tag=1)
    pair.until(lambda: pair.there.tag_probe(1))
    call = Call()
    request = ucx_api.tag_recv_nb(pair.there, bytearray(4), 4, 1, call)
    assert not request.done()
    assert request.info["status"] == "pending"
    while not request.done():
        assert not call.calls
        pair.there.progress()
    assert call.calls
    assert request.info["status"] == "finished"


def test_no_callback(pair):
    buffer = bytearray(1)
    request = ucx_api.tag_recv_nb(pair.there, buffer, 1, 0, None)
    pair.send(b"x")
    pair.until(request.closed)
    assert buffer == b"x"


def test_many_arguments(pair):
    call = Call()
    ucx_api.tag_recv_nb(pair.there, bytearray(1), 1, 0, call, tuple(range(100)))
    pair.send(b"x")
    pair.wait(call)
    assert call.calls[0][2] == tuple(range(100))


def test_what_a_callback_raises_is_reported(pair, monkeypatch):
    reports = []  # not the report itself, which would keep this frame alive
    monkeypatch.setattr(
        sys, "unraisablehook", lambda report: reports.append(report.exc_type)
    )

    def fail(request, exception):
        raise KeyError("callback")

    ucx_api.tag_recv_nb(pair.there, bytearray(1), 1, 0, fail)
    pair.send(b"x")
    pair.until(lambda: reports)
    assert reports == [KeyError]


def test_an_interrupt_in_a_callback_ends_progress(pair):
    def interrupt(request, exception):
        raise KeyboardInterrupt

    ucx_api.tag_recv_nb(pair.there, bytearray(1), 1, 0, interrupt)
    with pytest.raises(KeyboardInterrupt):
        pair.send(b"x")  # makes progress, too, if it is not done at once
        pair.until(lambda: False)


@pytest.mark.parametrize("size", [4, 1 << 20])
def test_a_longer_message_is_an_error_of_the_callback(pair, size):
    call, sent = Call(), Call()
    ucx_api.tag_recv_nb(pair.there, bytearray(3), 3, 0, call, name="short one")
    request = ucx_api.tag_send_nb(pair.client, bytes(size), size, 0, sent)
    pair.wait(call)
    assert isinstance(call.exception, ucp.UCXMsgTruncated)
    assert call.exception.op == "short one"
    pair.done(request, sent)


def test_cancelling_calls_back_with_the_name(pair):
    call = Call()
    request = ucx_api.tag_recv_nb(pair.there, bytearray(1), 1, 0, call, name="mine")
    assert request.info == {"status": "pending", "name": "mine"}
    pair.there.request_cancel(request)
    pair.wait(call)
    assert isinstance(call.exception, ucp.UCXCanceled)
    assert "mine" in str(call.exception)


def test_a_request_cancelled_by_another_thread_calls_back(pair):
    call = Call()
    request = ucx_api.tag_recv_nb(pair.there, bytearray(1), 1, 0, call)
    thread = threading.Thread(target=pair.there.request_cancel, args=(request,))
    thread.start()
    thread.join()
    pair.wait(call)
    assert isinstance(call.exception, ucp.UCXCanceled)


def test_a_closed_request_calls_nothing(pair):
    call, other = Call(), Call()
    request = ucx_api.tag_recv_nb(pair.there, bytearray(1), 1, 0, call)
    request.close()
    ucx_api.tag_recv_nb(pair.there, bytearray(1), 1, 0, other)
    pair.send(b"x")
    pair.wait(other)
    assert call.calls == []


def test_the_buffer_is_held_until_the_callback(pair):
    buffer = bytearray(1)
    request = ucx_api.tag_recv_nb(pair.there, buffer, 1, 0, None)
    with pytest.raises(BufferError):
        buffer.append(1)
    pair.send(b"x")
    pair.until(request.done)
    buffer.append(1)


def test_the_probe_sees_what_nobody_receives(pair):
    assert not pair.there.tag_probe(5)
    pair.send(b"x", tag=5)
    pair.until(lambda: pair.there.tag_probe(5))
    assert not pair.there.tag_probe(4)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((None, b"x", 1, 0, None), TypeError),
        (("client", None, 1, 0, None), TypeError),
        (("client", b"x", 2, 0, None), ValueError),
        (("client", b"x", -1, 0, None), OverflowError),
        (("client", b"x", 1, 1 << 64, None), OverflowError),
        (("client", b"x", 1, 0, "no function"), TypeError),
        (("client", b"x", 1, 0, None, [1]), TypeError),
        (("client", b"x", 1, 0, None, None, 1), TypeError),
    ],
)
@over_shm
def test_wrong_arguments_are_refused(pair, arguments, error):
    first, *rest = arguments
    with pytest.raises(error):
        ucx_api.tag_send_nb(pair.client if first else first, *rest)


@over_shm
def test_arrays_with_gaps_and_readonly_targets_are_refused(pair):
    gaps = Array(np.zeros((4, 4))[:, ::2])
    with pytest.raises(ValueError, match="contiguous"):
        ucx_api.tag_send_nb(pair.client, gaps, gaps.nbytes, 0, None)
    with pytest.raises(ValueError, match="read-only"):
        ucx_api.tag_recv_nb(pair.there, Array(b"x"), 1, 0, None)


def test_a_feature_that_is_not_of_the_context_is_refused():
    context = ucx_api.UCXContext(feature_flags=(ucx_api.Feature.AM,))
    worker = ucx_api.UCXWorker(context)
    with pytest.raises(ValueError, match=r"Feature\.TAG"):
        ucx_api.tag_recv_nb(worker, bytearray(1), 1, 0, None)


# ---- ends ---------------------------------------------------------------


def test_a_receive_fails_when_its_endpoint_is_closed_by_the_peer(pair):
    bound, free = Call(), Call()
    ucx_api.tag_recv_nb(pair.here, bytearray(1), 1, 0, bound, ep=pair.client)
    ucx_api.tag_recv_nb(pair.here, bytearray(1), 1, 1, free)
    assert pair.client.is_alive()
    pair.server.close()
    pair.wait(bound)
    assert isinstance(bound.exception, ucp.UCXCanceled)
    assert "tag_recv_nb" in str(bound.exception)
    assert free.calls == []
    assert not pair.client.is_alive()
    assert pair.here.cancel_inflight_messages() == 1
    assert pair.here.cancel_inflight_messages() == 0
    with pytest.raises(ucp.UCXConnectionReset, match=r"Endpoint 0x.* error"):
        pair.client.raise_on_error()


def test_what_has_come_is_received_after_the_end(pair):
    pair.send(b"x")
    pair.client.close()
    pair.until(lambda: not pair.server.is_alive())
    buffer, call = bytearray(1), Call()
    ucx_api.tag_recv_nb(pair.there, buffer, 1, 0, call, ep=pair.server)
    pair.wait(call)
    assert buffer == b"x"
    with pytest.raises(ucp.UCXCloseError):
        ucx_api.tag_recv_nb(pair.there, buffer, 1, 0, call, ep=pair.server)


def test_the_close_callback_is_called_on_both_sides(pair):
    closed = []
    pair.client.set_close_callback(lambda: closed.append("client"))
    pair.server.set_close_callback(lambda: closed.append("server"))
    pair.client.close()
    pair.until(lambda: len(closed) == 2)
    assert not pair.client.initialized


def test_a_close_callback_that_comes_late_is_called(pair):
    closed = []
    pair.client.close()
    pair.until(pair.server.closed)
    pair.server.set_close_callback(lambda: closed.append("server"))
    assert closed == []
    pair.until(lambda: closed)
    pair.there.progress()
    assert closed == ["server"]


def test_a_close_right_after_the_connect_reaches_the_listener(pair):
    endpoint = pair.connect()
    call = Call()
    ucx_api.tag_send_nb(endpoint, b"x", 1, 9, call)
    endpoint.close()
    with pytest.raises(ucp.UCXCloseError):
        ucx_api.tag_send_nb(endpoint, b"x", 1, 9, call)
    pair.until(lambda: pair.accepted and pair.there.tag_probe(9))
    pair.wait(call)
    assert call.exception is None
    pair.until(lambda: pair.accepted[0].closed())


def test_an_endpoint_without_error_handling_is_always_alive(pair):
    pair.accepted.clear()
    endpoint = pair.here.ep_create("127.0.0.1", pair.listener.port, False)
    pair.until(lambda: pair.accepted)
    server = pair.there.ep_create_from_conn_request(pair.accepted.pop(), True)
    server.close()
    pair.until(lambda: endpoint.closed())
    assert endpoint.is_alive()
    endpoint.raise_on_error()


def test_a_connection_that_is_not_accepted_is_closed(pair):
    endpoint = pair.connect()
    pair.until(lambda: pair.accepted)
    pair.accepted.clear()
    pair.until(lambda: not endpoint.is_alive())


def test_connecting_to_nobody(pair, closed_port):
    endpoint = ucx_api.UCXEndpoint.create(pair.here, "127.0.0.1", closed_port, True)
    call = Call()
    ucx_api.tag_send_nb(endpoint, b"x", 1, 0, call)
    pair.wait(call)
    assert isinstance(call.exception, ucp.UCXNotConnected)
    assert not endpoint.is_alive()
    with pytest.raises(ucp.UCXError, match="error: "):
        endpoint.raise_on_error()


def test_a_connection_request_goes_to_its_own_worker(pair):
    _endpoint = pair.connect()
    pair.until(lambda: pair.accepted)
    with pytest.raises(ValueError, match="another worker"):
        ucx_api.UCXEndpoint.create_from_conn_request(
            pair.here, pair.accepted.pop(), True
        )


def test_the_listener_passes_arguments():
    context = ucx_api.UCXContext()
    worker = ucx_api.UCXWorker(context)
    calls = []
    listener = ucx_api.UCXListener(
        worker, 0, lambda *args, **kwargs: calls.append((args, kwargs)), (1,), {"a": 2}
    )
    assert listener.ip == "0.0.0.0" and listener.initialized
    endpoint = ucx_api.UCXEndpoint.create(worker, "127.0.0.1", listener.port, True)
    while not calls:
        worker.progress()
    (((request, one), named),) = calls
    assert (one, named) == (1, {"a": 2})
    assert isinstance(request, ucx_api.UCXEndpoint)
    listener.close()
    assert not listener.initialized
    assert endpoint.initialized


# ---- flush --------------------------------------------------------------


def test_flush_calls_back_or_is_done(pair):
    for thing in (pair.client, pair.here):
        call = Call()
        pair.done(thing.flush(call, ("x",)), call)
        assert [arguments[1:3] for arguments in call.calls] in ([], [(None, ("x",))])


# ---- lives --------------------------------------------------------------


def test_worker_and_context_tell_about_themselves(pair):
    assert pair.context.handle and pair.here.handle and pair.client.handle
    assert pair.here.info() and pair.client.info()
    assert pair.context.get_config()["TLS"]
    assert not pair.context.cuda_support or "cuda" in pair.context.info()
    assert ucx_api.get_current_options()["TLS"]
    assert ucx_api.get_ucx_version() == ucp.get_ucx_version()
    assert pair.client.worker is pair.here


def test_arm_says_if_the_descriptor_tells_of_what_comes(pair):
    import select

    fd = pair.there.init_blocking_progress_mode()
    pair.send(b"first")  # the connection is there: the next one is sent at once
    # Operations of the connection itself come before the message.
    while not pair.there.arm() or select.select([fd], [], [], 0)[0]:
        pair.there.progress()
    assert ucx_api.tag_send_nb(pair.client, b"x", 1, 0, Call()) is None
    assert select.select([fd], [], []) == ([fd], [], [])


def test_operations_are_refused_once_the_worker_is_closed(pair):
    pair.here.close()
    pair.here.close()
    assert not pair.here.initialized
    with pytest.raises(ucp.UCXCloseError):
        ucx_api.tag_send_nb(pair.client, b"x", 1, 0, None)
    with pytest.raises(RuntimeError, match="closed"):
        pair.here.progress()


def test_closing_a_worker_delivers_what_was_sent():
    pair = Pair()
    call, sent = Call(), Call()
    ucx_api.tag_recv_nb(pair.there, bytearray(1 << 20), 1 << 20, 0, call)
    ucx_api.tag_send_nb(pair.client, bytes(1 << 20), 1 << 20, 0, sent)
    pair.here.close()
    pair.there.progress()
    assert call.exception is None
    pair.there.close()


def test_a_dropped_worker_is_closed():
    pair = Pair()
    pair.send(b"x")
    gone = weakref.ref(pair.here)
    del pair.client, pair.here
    gc.collect()
    assert gone() is None
    while pair.server.is_alive():
        pair.there.progress()
    assert pair.there.tag_probe(0)
    pair.there.close()


def test_a_request_in_a_cycle_with_its_callback_is_collected():
    pair = Pair()
    call = Call()
    call.request = ucx_api.tag_recv_nb(pair.there, bytearray(1), 1, 0, call)
    gone = weakref.ref(call)
    pair.close()
    pair.until(lambda: True)
    del call
    gc.collect()
    assert gone() is None


def test_a_program_that_closes_nothing_ends_quietly():
    out = run_script(
        """
        from ucp._libs import ucx_api
        context = ucx_api.UCXContext()
        worker = ucx_api.UCXWorker(context)
        accepted = []
        listener = ucx_api.UCXListener(worker, 0, accepted.append)
        ep = ucx_api.UCXEndpoint.create(worker, "127.0.0.1", listener.port, True)
        while not accepted:
            worker.progress()
        ucx_api.tag_recv_nb(worker, bytearray(1), 1, 0, print, ep=ep)
        print("end")
        """
    )
    assert out.splitlines()[0] == "end"


def test_another_thread_is_refused(pair):
    import threading

    errors = []

    def run():
        for call in (
            pair.here.progress,
            lambda: ucx_api.tag_send_nb(pair.client, b"x", 1, 0, None),
        ):
            try:
                call()
            except RuntimeError as exc:
                errors.append(str(exc))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert errors == [OTHER_THREAD] * 2


def test_the_waiting_helpers(options):
    worker = ucx_api.UCXWorker(ucx_api.UCXContext(options))
    ep = ucx_api.UCXEndpoint.create_from_worker_address(
        worker, worker.get_address(), True
    )
    data = np.arange(1000)
    buffer = np.empty_like(data)
    utils_test.blocking_send(worker, ep, data, tag=3)
    utils_test.blocking_recv(worker, ep, buffer, tag=3)
    np.testing.assert_array_equal(buffer, data)
    utils_test.blocking_flush(ep)
    utils_test.blocking_flush(worker)
    worker.close()


# ---- addresses ----------------------------------------------------------


@pytest.mark.parametrize("is_method", [False, True], ids=["class", "worker"])
def test_an_endpoint_from_an_address_needs_no_listener(options, is_method):
    context = ucx_api.UCXContext(options)
    here, there = ucx_api.UCXWorker(context), ucx_api.UCXWorker(context)
    address = ucx_api.UCXAddress.from_worker(there)
    assert bytes(address) == bytes(there.get_address())
    if is_method:
        ep = here.ep_create_from_worker_address(address, False)
    else:
        ep = ucx_api.UCXEndpoint.create_from_worker_address(here, bytes(address), False)
    buffer, received, sent = bytearray(1), Call(), Call()
    ucx_api.tag_recv_nb(there, buffer, 1, 0, received)
    ucx_api.tag_send_nb(ep, b"x", 1, 0, sent)
    ep.close()  # operations that wait for the connection are delivered
    while not (received.calls and sent.calls):
        here.progress()
        there.progress()
    assert buffer == b"x"
    there.close()
    here.close()


def test_what_is_no_address_is_refused():
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    with pytest.raises(ValueError):
        worker.ep_create_from_worker_address(b"nonsense", True)
    with pytest.raises(TypeError):
        ucx_api.UCXAddress.from_worker(None)
    worker.close()
