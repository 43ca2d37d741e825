# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/block ext/result ext/unseen
"""Requests that the program drops, or whose result it has taken."""

import asyncio
import contextlib
import contextvars
import gc
import threading
import time
import weakref

import numpy as np
import pytest
from low_level import Call, Pair
from script import run_program

import ucp
from ucp import _ext
from ucp.testing import connected_pair, live_objects, until


@pytest.fixture(autouse=True)
def _no_requests_of_other_tests():
    """Requests that are part of a cycle last until the next collection."""
    gc.collect()


# Start of the warnings about dropped requests.
WAITED = r"^ucp: the Request of {}\(\) was dropped while it waited"


class Reports(list):
    """Calls of the running loop's exception handler."""

    def __init__(self):
        asyncio.get_running_loop().set_exception_handler(self._add)

    def _add(self, loop, context):
        self.append((context["message"], context["exception"]))


async def turns(number):
    for _ in range(number):
        await asyncio.sleep(0)


# ---- in a thread that is not the loop's ---------------------------------------


async def test_a_request_made_in_another_thread_starts_in_its_loop():
    async with connected_pair() as (client, server):
        sending = await asyncio.to_thread(client.send, b"x")
        assert not sending.done()
        await sending
        assert await server.recv_obj() == b"x"


async def test_another_thread_may_hand_its_request_to_the_loop():
    loop = asyncio.get_running_loop()

    def send(endpoint):
        request = endpoint.send(b"x")
        asyncio.run_coroutine_threadsafe(request, loop).result()

    async with connected_pair() as (client, server):
        await asyncio.gather(asyncio.to_thread(send, client), server.recv_obj())


async def test_one_of_another_thread_that_is_cancelled_calls_back_when_it_is_dropped():
    heard = []

    def receive(endpoint):
        return endpoint.recv(bytearray(1))

    async with connected_pair() as (client, server):
        box = [await asyncio.to_thread(receive, client)]
        number = live_objects()["requests"]

        def cancel(ep, message):  # by the loop's own callback: its calls wait
            box[0].add_done_callback(lambda request: heard.append(request.cancelled()))
            assert box[0].cancel()
            box.clear()

        server.worker.set_am_handler(30, cancel)
        await client.am_send(b"", id=30)
        await until(lambda: heard)
        assert heard == [True]
        await until(lambda: live_objects()["requests"] == number - 1)
        server.worker.set_am_handler(30, None)


async def test_one_that_never_started_warns():
    name = r"thread post office, .* never started: use worker\.submit\(ep\.send, "

    def send(endpoint):
        threading.current_thread().name = "post office"
        return endpoint.send(b"x")

    async with connected_pair() as (client, server):
        with pytest.warns(RuntimeWarning, match=rf"^ucp: send\(\) was called .*{name}"):
            await asyncio.to_thread(send, client)
            await until(lambda: live_objects()["requests"] == 0)
        await client.send(b"y")
        assert await server.recv_obj() == b"y"


async def test_one_that_was_refused_says_nothing_more():
    async with connected_pair() as (client, _):

        async def send():
            await client.send(b"x")

        with pytest.raises(RuntimeError, match="awaited in another thread"):
            await asyncio.to_thread(asyncio.run, send())


# ---- receives ----------------------------------------------------------------

RECEIVES = {
    "recv": lambda ep: ep.recv(bytearray(1)),
    "recv_into": lambda ep: ep.recv_into(bytearray(1)),
    "recv_message": lambda ep: ep.recv_message(),
    "recv_many": lambda ep: ep.recv_many([bytearray(1)]),
    "am_recv": lambda ep: ep.am_recv(),
    "am_recv_message": lambda ep: ep.am_recv_message(),
    "stream_recv": lambda ep: ep.stream_recv(bytearray(1)),
    "recv_frames": lambda ep: ep.recv_frames(),
}


async def send_one_of_each(endpoint):
    await endpoint.send(b"x")
    await endpoint.am_send(b"x")
    await endpoint.stream_send(b"x")
    await endpoint.send_frames([b"x"])


@pytest.mark.parametrize("kind", RECEIVES)
@pytest.mark.parametrize("drop", [list.clear, None])
async def test_a_dropped_receive_is_withdrawn(kind, drop):
    receive = RECEIVES[kind]
    async with connected_pair() as (client, server):
        kept = [receive(server)]
        with pytest.warns(RuntimeWarning, match=WAITED.format(kind)):
            if drop is None:
                await asyncio.to_thread(kept.clear)
            else:
                drop(kept)
        # A request of another thread is withdrawn before the loop does anything else.
        await send_one_of_each(client)
        await receive(server)


async def test_a_dropped_receive_of_a_workers_tag_is_withdrawn():
    worker = ucp.current_worker()
    async with connected_pair() as (client, _):
        with pytest.warns(RuntimeWarning, match=WAITED.format("recv")):
            worker._tag_recv(bytearray(1), 7)
        await client.send(b"x", tag=7, force_tag=True)
        await worker._tag_recv(bytearray(1), 7)


async def test_a_gather_that_fails_at_once_loses_no_message():
    def fail():
        raise OSError

    async with connected_pair() as (client, server):
        with pytest.warns(RuntimeWarning, match=WAITED.format("recv_into")):
            with pytest.raises(OSError):
                await asyncio.gather(server.recv_into(bytearray(8)), fail())
        await client.send(b"precious")
        assert await server.recv_obj() == b"precious"


async def test_one_with_callbacks_is_not_dropped():
    got = []
    async with connected_pair() as (client, server):
        buffer = bytearray(1)
        server.recv(buffer).add_done_callback(got.append)
        gc.collect()
        await client.send(b"x")
        await until(lambda: got)
        assert buffer == b"x"


async def test_one_whose_callbacks_were_removed_is():
    async with connected_pair() as (client, server):
        request = server.recv(bytearray(1))
        request.add_done_callback(print)
        assert request.remove_done_callback(print) == 1
        with pytest.warns(RuntimeWarning, match=WAITED.format("recv")):
            del request
        await client.send(b"x")
        assert await server.recv_obj() == b"x"


async def test_an_endpoint_that_was_closed_has_no_message_to_lose():
    reports = Reports()
    async with connected_pair() as (client, server):
        requests = [server.recv(bytearray(1)), client.recv(bytearray(1))]
        await client.close()
        await until(server.closed)
        requests.clear()
        await asyncio.sleep(0)
    assert not reports


async def test_an_endpoint_that_was_aborted_has_none_either():
    reports = Reports()
    async with connected_pair() as (_, server):
        request = server.recv(bytearray(1))
        server.abort()
        del request
        await asyncio.sleep(0)
    assert not reports


async def test_a_cancelled_one_is_not_dropped():
    async with connected_pair() as (client, server):
        server.recv(bytearray(1)).cancel()
        await client.send(b"x")
        assert await server.recv_obj() == b"x"


async def test_wrong_arguments_leave_nothing_to_warn_of():
    async with connected_pair() as (_, server):
        with pytest.raises(ValueError, match="read-only"):
            server.recv(b"readonly")
        with pytest.raises(TypeError):
            server.recv_many([bytearray(1), 1])


# ---- sends -------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [1, 8 << 20])
async def test_a_dropped_send_goes_out(nbytes):
    data = np.arange(nbytes, dtype="u1")
    expected = bytes(data)
    async with connected_pair() as (client, server):
        client.send(data)
        del data
        gc.collect()
        assert await server.recv_obj() == expected


async def test_a_failure_that_nobody_looked_at_is_reported():
    reports = Reports()
    async with connected_pair() as (client, server):
        server.abort()
        await until(client.closed)
        client.send(b"x")
        await until(lambda: reports)
        ((message, exception),) = reports
        assert message == "the exception of a ucp send() was never retrieved"
        assert isinstance(exception, (ucp.UCXCloseError, ucp.UCXConnectionReset))


async def test_a_send_that_fails_after_it_was_dropped_is_reported():
    reports = Reports()
    async with connected_pair() as (client, server):
        client.send(bytes(8 << 20))
        server.abort()
        await until(lambda: reports)
        ((message, _),) = reports
        assert message == "the exception of a ucp send() was never retrieved"


MANY = 100
BLOCK = bytes(8 << 20)


async def test_one_report_is_made_of_all_that_the_end_of_a_peer_makes_fail():
    reports = Reports()
    async with connected_pair() as (client, server):
        for _ in range(MANY):
            client.send(BLOCK)
        server.abort()
        await until(lambda: reports)
        for _ in range(3):
            client.send(b"late")
        await turns(20)
        ((message, exception),) = reports
        assert message == (
            f"the exceptions of {MANY} ucp operations of one endpoint were never "
            "retrieved; the first is a send()"
        )
        assert isinstance(exception, ucp.UCXConnectionReset)


@pytest.mark.parametrize("how", ["drain", "send", "gather", "later"])
async def test_a_program_that_was_told_of_the_end_hears_nothing_of_the_rest(how):
    reports = Reports()
    async with connected_pair() as (client, server):
        client.set_limits(high=1, low=1)
        for _ in range(MANY):
            client.send(BLOCK)
        if how == "drain":
            waiting = asyncio.ensure_future(client.drain())
        elif how == "later":
            waiting = asyncio.create_task(_send_when_closed(client))
        else:
            waiting = client.send(BLOCK)
            if how == "gather":
                waiting = asyncio.gather(asyncio.gather(waiting))
        server.abort()
        with pytest.raises(ucp.UCXConnectionReset):
            await waiting
        for _ in range(MANY):
            client.send(b"late")
        await turns(20)
    assert not reports


@pytest.mark.parametrize("reads", [False, True])
async def test_sends_that_a_peer_leaves_unread_are_reported_once(reads):
    """The end of what is received tells nobody that sends are lost."""
    reports = Reports()
    async with connected_pair() as (client, server):
        for _ in range(MANY):
            client.send(BLOCK)
        if reads:
            with pytest.raises(ucp.UCXPeerClosed):
                await asyncio.gather(client.recv_obj(), server.close())
        else:
            await server.close()
        await until(lambda: reports)
        await turns(20)
    ((message, _),) = reports
    assert f"the exceptions of {MANY} ucp operations" in message


async def _send_when_closed(client):
    await until(client.closed)
    await client.send(b"x")


async def test_a_message_that_is_no_pickle_is_not_the_end():
    """The program is told of that message, and not of the end that comes later."""
    reports = Reports()
    async with connected_pair() as (client, server):
        await server.send_frames([b"x"], b"no pickle")
        with pytest.raises(ucp.UCXError):
            await client.recv_pickle(allow_pickle=True)
        for _ in range(MANY):
            client.send(BLOCK)
        server.abort()
        await until(lambda: reports)
        await turns(20)
    ((message, _),) = reports
    assert f"the exceptions of {MANY} ucp operations" in message


async def test_other_failures_are_reported_each():
    """Those of an endpoint that has not ended."""
    reports = Reports()
    async with connected_pair() as (client, server):
        for _ in range(2):
            await client.send(b"long")
            receiving = server.recv(bytearray(2))
            await until(receiving.done)
            del receiving
            await server.recv_obj()
    assert [message for message, _ in reports] == [
        "the exception of a ucp recv() was never retrieved"
    ] * 2


async def test_a_report_is_not_lost_with_the_loop():
    """It is made when the endpoint goes."""
    run_program(
        """
        import asyncio, gc, logging
        import ucp

        logging.basicConfig(level=logging.CRITICAL)

        async def main():
            listener = ucp.create_listener(host="127.0.0.1")
            client = await ucp.connect("127.0.0.1", listener.port)
            server = await listener.accept()
            server.abort()
            while not client.closed():
                await asyncio.sleep(0)
            reports = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: reports.append(context))
            client.send(b"x")
            loop.stop()
            return reports

        loop = asyncio.new_event_loop()
        task = loop.create_task(main())
        loop.run_forever()
        reports = task.result()
        loop.close()
        del task
        gc.collect()
        (report,) = reports
        assert "ucp send() was never retrieved" in report["message"]
        """
    )


@pytest.mark.parametrize("look", [_ext.Request.exception, _ext.Request.result, None])
async def test_a_failure_that_was_seen_is_not_reported(look):
    reports = Reports()
    async with connected_pair() as (client, server):
        server.abort()
        await until(client.closed)
        request = client.send(b"x")
        try:
            await request if look is None else look(request)
        except ucp.UCXBaseException:
            pass
        del request
    assert not reports


async def test_a_failure_that_a_cancelled_task_waited_for_is_not_reported():
    reports = Reports()
    async with connected_pair() as (client, server):
        server.abort()
        await until(client.closed)

        async def send():
            time.sleep(0.01)  # the loop is due: one of the awaits gives it a turn
            while True:
                with contextlib.suppress(ucp.UCXConnectionReset):
                    await client.send(b"x")

        sending = asyncio.create_task(send())
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        del sending
        gc.collect()
    assert not reports


async def test_what_the_program_ends_itself_is_not_reported():
    reports = Reports()
    async with connected_pair() as (client, _):
        client.send(bytes(8 << 20))
        client.abort()
        await asyncio.sleep(0)
    await until(lambda: gc.collect() or live_objects()["requests"] == 0)
    assert not reports


async def test_dropped_requests_leave_nothing():
    async with connected_pair() as (client, server):
        for _ in range(100):
            with pytest.warns(RuntimeWarning):
                server.recv(bytearray(1))
            client.send(bytes(100_000))
            await server.recv_obj()
        await until(lambda: live_objects()["requests"] == 0)


# ---- results that were taken ----------------------------------------------------


@pytest.mark.parametrize("nbytes", [1, 8 << 20])
async def test_frames_that_were_handed_out_are_not_put_back(nbytes):
    got = []
    async with connected_pair() as (client, server):
        request = server.recv_frames()
        request.add_done_callback(lambda request: got.append(request.result()))
        del request
        sending = client.send_frames([bytes(nbytes)])
        await until(lambda: got)
        await sending
        await client.send_frames([b"next"])
        assert await server.recv_frames() == (b"", [b"next"])
        assert len(got[0][1][0]) == nbytes


@pytest.mark.parametrize("kind", RECEIVES)
async def test_what_is_thrown_into_gives_its_message_once(kind):
    receive = RECEIVES[kind]
    async with connected_pair() as (client, server):
        request = receive(server)
        await send_one_of_each(client)
        await until(request.done)
        with pytest.raises(OSError):
            request.throw(OSError())
        with pytest.raises(asyncio.CancelledError):
            await request
        await receive(server)


def test_a_second_callback_is_refused():
    pair = Pair()
    first, second = Call(), Call()
    request = _ext.Endpoint.recv(pair.server, bytearray(1))
    assert _ext.call_when_done(request, first) is request
    with pytest.raises(RuntimeError, match=r"^the request has a callback already$"):
        _ext.call_when_done(request, second)
    _ext.Endpoint.send(pair.client, b"x")
    pair.until(lambda: first.calls)
    assert first.exception is None
    assert not second.calls


class Array(np.ndarray):
    """May be part of a cycle."""


async def received(client, server, array):
    array.request = server.recv(array)
    await client.send(bytes(8))
    return array.request


async def received_many(client, server, array):
    array.request = server.recv_many([array])
    await client.send(bytes(8))
    return array.request


async def received_frames(client, server, array):
    array.request = server.recv_frames(into=[array])
    await client.send_frames([bytes(8)])
    return array.request


async def was_there(client, server, array):
    await client.send(bytes(8))
    await until(server.probe)
    array.request = server.recv(array)
    return array.request


@pytest.mark.parametrize(
    "receive", [received, received_many, received_frames, was_there]
)
async def test_a_cycle_through_a_finished_request_is_collected(receive):
    async with connected_pair() as (client, server):
        array = np.zeros(8, "u1").view(Array)
        reference = weakref.ref(array)
        request = await receive(client, server, array)
        await until(request.done)
        del array, request
        gc.collect()
        assert reference() is None


async def test_bytes_that_may_be_put_back_cannot_be_made_shorter():
    def shorten(request):
        array = request.result()
        try:
            array.clear()
        except BufferError:
            held.append(len(array))
        request.close()

    async with connected_pair() as (client, server):
        held, receiving = [], server.am_recv()
        receiving.add_done_callback(shorten, context=contextvars.copy_context())
        task = asyncio.ensure_future(result_of(receiving))
        await asyncio.sleep(0)
        sending = client.am_send(b"x" * 300_000)
        await asyncio.wait([task])
        assert held == [300_000]
        assert await server.am_recv() == b"x" * 300_000
        await sending


async def result_of(request):
    return await request
