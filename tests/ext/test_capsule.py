# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/objects ext/ops ext/posted
"""``ucp._C_API``: what C code gets of ucp's objects, and awaits of what it posts."""

import asyncio
import ctypes
import gc
import random
import sys
import threading
import weakref
from pathlib import Path

import pytest
from natives import any_compiler, compile_module, load_module
from script import run_program
from worlds import good_world

import ucp
from ucp.testing import connected_pair, live_objects, until

SOURCE = Path(__file__).parents[1] / "support/capsule_user.c"

OTHER_THREAD = (
    "the worker belongs to another thread: worker.submit() has a function called there"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return compile_module(any_compiler(), SOURCE, tmp_path_factory.mktemp("user"))


@pytest.fixture(scope="module")
def user(path):
    return load_module(path)


class Bytes(bytearray):
    """With weak references."""


def flying(user, worker, tag, nbytes=8):
    """A receive that waits, and a weak reference to its buffer."""
    buffer = Bytes(nbytes)
    request = user.recv(worker, memoryview(buffer), tag, 1)
    return request, weakref.ref(buffer)


# ---- pointers ------------------------------------------------------------------


async def test_objects_have_pointers(user):
    worker = ucp.current_worker()
    async with connected_pair() as (client, server):
        memory = ucp.Memory.allocate(100)
        remote = client.remote(memory.key)
        kinds = {"x": worker.context, "w": worker, "e": client, "m": memory}
        pointers = {kind: user.get(kind, what) for kind, what in kinds.items()}
        pointers["r"] = user.get("r", remote)
        assert len(set(pointers.values())) == 5
        assert user.get("e", client) == pointers["e"] != user.get("e", server)


def test_a_communicator_has_a_pointer(user):
    async def main(comm):
        return user.get("c", comm) != 0

    assert asyncio.run(in_world_of_one(main))


async def in_world_of_one(main):
    address = ucp.get_worker_address()
    async with await ucp.Communicator.connect(bytes(address), 0, 1) as comm:
        return await main(comm)


NAMES = {
    "x": "a Context",
    "w": "a Worker",
    "e": "an Endpoint",
    "c": "a Communicator",
    "m": "a Memory",
    "r": "a RemoteMemory",
}


@pytest.mark.parametrize("kind", NAMES)
async def test_an_object_of_another_type_is_refused(user, kind):
    expected = rf"^expected {NAMES[kind]} of ucp, not an object of <class '{{}}'>$"
    with pytest.raises(TypeError, match=expected.format("int")):
        user.get(kind, 1)
    other = ucp.Memory.allocate(1) if kind != "m" else ucp.current_worker()
    with pytest.raises(TypeError, match=expected.format(r"ucp\..*")):
        user.get(kind, other)


async def test_closed_objects_raise_what_they_always_raise(user):
    async with connected_pair() as (client, server):
        memory = ucp.Memory.allocate(100)
        remote = client.remote(memory.key)
        remote.close()
        with pytest.raises(ucp.UCXCloseError, match=r"^the remote memory is closed$"):
            user.get("r", remote)
        memory.close()
        with pytest.raises(ucp.UCXError, match="closed"):
            user.get("m", memory)
        client.abort()
        for use in (lambda: user.get("e", client), lambda: user.new(client)):
            with pytest.raises(ucp.UCXCloseError, match=r"^the endpoint is closed$"):
                use()
        await until(server.closed)
        assert user.get("e", server) != 0  # what has come can still be read


def test_a_closed_communicator_and_worker_are_refused(user):
    async def main():
        async def use(comm):
            comm.close()
            for what in (lambda: user.get("c", comm), lambda: user.new(comm)):
                with pytest.raises(ucp.UCXCloseError, match="communicator is closed"):
                    what()

        await in_world_of_one(use)
        return ucp.current_worker()

    worker = asyncio.run(main())
    ucp.reset()
    for use in (lambda: user.get("w", worker), lambda: user.new(worker)):
        with pytest.raises(RuntimeError, match=r"^the worker is closed$"):
            use()


async def test_another_thread_is_refused(user):
    worker = ucp.current_worker()
    errors = []

    def use(what):
        try:
            what()
        except RuntimeError as error:
            errors.append(str(error))

    async with connected_pair() as (client, _server):
        for what in (
            lambda: user.get("w", worker),
            lambda: user.get("e", client),
            lambda: user.new(worker),
        ):
            thread = threading.Thread(target=use, args=[what])
            thread.start()
            thread.join()
    assert errors == [OTHER_THREAD] * 3


def test_a_forked_child_is_refused(path):
    run_program(
        f"""
        sys.path.insert(0, {str(path.parent)!r})
        import capsule_user as user

        async def main():
            worker = ucp.current_worker()
            async with connected_pair() as (client, server):
                memory = ucp.Memory.allocate(8)
                remote = client.remote(memory.key)

                def child():
                    for kind, what in ("w", worker), ("e", client), ("r", remote):
                        try:
                            user.get(kind, what)
                        except RuntimeError as error:
                            assert "belongs to the parent process" in str(error)
                        else:
                            raise AssertionError(kind)
                    try:
                        user.new(client)
                    except RuntimeError as error:
                        assert "parent" in str(error)

                end_of(in_child(child))
                await ping_pong()

        asyncio.run(main())
        """
    )


def test_a_table_of_another_version_is_refused(path, monkeypatch):
    class Table(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("size", ctypes.c_uint32)]

    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    for table in (Table(2, 1000), Table(1, 8)):
        capsule = new(ctypes.addressof(table), b"ucp._C_API", None)
        monkeypatch.setattr(ucp, "_C_API", capsule)
        with pytest.raises(
            ImportError,
            match=r"^this module was compiled with version 1 of ucp\._C_API \(\d+ "
            rf"bytes\), and ucp has version {table.version} \({table.size} bytes\): "
            r"compile it with the ucp that is installed$",
        ):
            load_module(path)
    monkeypatch.setattr(ucp, "_C_API", None)
    with pytest.raises(AttributeError, match="not valid"):
        load_module(path)


# ---- awaitables ------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [8, 1_000_000])
async def test_python_awaits_what_c_posts(user, transport, nbytes):
    data, copy = bytes(range(8)) * (nbytes // 8), bytearray(nbytes)
    worker = ucp.current_worker()
    async with connected_pair() as (client, _server):
        receiving = user.recv(worker, memoryview(copy), 7, 1, "the result")
        assert isinstance(receiving, ucp.Request)
        assert await user.send(client, memoryview(data), 7) is None
        assert await receiving == "the result"
        assert copy == data


async def test_what_c_sends_python_receives_and_the_other_way(user):
    worker = ucp.current_worker()
    first, second = bytearray(3), bytearray(3)
    async with connected_pair() as (client, _server):
        await asyncio.gather(
            user.send(client, memoryview(b"abc"), 1), worker.recv(first, 1)
        )
        await asyncio.gather(
            client.send(b"def", 2, force_tag=True),
            user.recv(worker, memoryview(second), 2, 1),
        )
    assert (first, second) == (b"abc", b"def")


async def test_one_awaitable_for_many(user):
    worker = ucp.current_worker()
    buffer = bytearray(3000)
    async with connected_pair() as (client, _server):
        receiving = user.recv(worker, memoryview(buffer), 100, 1000, 1000)
        for i in reversed(range(1000)):
            await client.send(i.to_bytes(3, "big"), 100 + i, force_tag=True)
        assert await receiving == 1000
    assert [int.from_bytes(buffer[3 * i : 3 * i + 3], "big") for i in range(1000)] == [
        *range(1000)
    ]


async def test_no_message_at_all_is_done_at_once(user):
    request = user.recv(ucp.current_worker(), memoryview(bytearray(8)), 1, 0)
    assert request.done()
    assert await request is None


async def test_a_failure_of_one_of_many_is_raised_when_all_have_ended(user):
    worker = ucp.current_worker()
    buffer = bytearray(30)
    async with connected_pair() as (client, _server):
        receiving = user.recv(worker, memoryview(buffer), 1, 3)
        await client.send(b"x" * 11, 2, force_tag=True)
        await client.send(b"a" * 10, 1, force_tag=True)
        await asyncio.sleep(0)
        assert not receiving.done()
        await client.send(b"c" * 10, 3, force_tag=True)
        with pytest.raises(ucp.UCXMsgTruncated, match="has 11 bytes") as caught:
            await receiving
        assert caught.value.nbytes == 11
        assert buffer[20:] == b"c" * 10


async def test_a_posting_call_that_fails_makes_the_await_fail(user):
    async with connected_pair() as (client, _server):
        request = user.new(client)
        user.posted(request, -25)
        with pytest.raises(ucp.UCXConnectionReset) as caught:
            await request
        assert caught.value.op == "request_new"
        assert caught.value.peer == client.peer_address


async def test_the_peers_close_ends_it(user):
    worker = ucp.current_worker()
    async with connected_pair() as (client, server):
        receiving = user.recv_from(worker, client, memoryview(bytearray(8)), 7)
        server.abort()
        with pytest.raises(ucp.UCXError):
            await receiving


def test_a_communicator_names_its_errors(user):
    async def main(comm):
        await comm.barrier()
        if comm.rank == 0:
            data = bytearray(4)
            await comm.recv(data, 1, tag=5)
            comm.close()
            return bytes(data)
        await user.send_rank(comm, 0, memoryview(b"rank"), 5)
        with pytest.raises(ucp.UCXRankFailed, match="ranks have left"):
            for _ in range(1000):
                await user.send_rank(comm, 0, memoryview(bytes(1_000_000)), 6)
        return b""

    # The module is loaded in each rank.
    assert good_world(2, main)[0] == b"rank"


async def test_a_request_is_posted_once_and_of_ours(user):
    worker = ucp.current_worker()
    request = user.new(worker)
    user.posted(request, 0)
    message = r"^request_posted\(\) was called for this Request before$"
    with pytest.raises(RuntimeError, match=message):
        user.posted(request, 0)
    with pytest.raises(RuntimeError, match=message):
        user.set_result(request, 1)
    assert await request is None
    async with connected_pair() as (client, _server):
        with pytest.raises(ValueError, match="in a statement of its own"):
            user.unnamed(worker, memoryview(bytearray(8)), 7)
        await client.send(b"12345678", 7, force_tag=True)  # it ends
    for other in (1, worker):
        with pytest.raises(TypeError, match=r"a Request that request_new\(\) has made"):
            user.posted(other, 0)
    with pytest.raises(TypeError, match="a Worker, an Endpoint or a Communicator"):
        user.new(1)


async def test_a_request_for_which_nothing_was_posted_goes_silently(user):
    before = live_objects()["requests"]
    keep = Bytes(1)
    gone = weakref.ref(keep)
    request = user.new(ucp.current_worker(), keep)
    del keep, request
    assert gone() is None
    assert live_objects()["requests"] == before


async def test_a_request_cannot_be_awaited_before_it_is_posted(user):
    worker = ucp.current_worker()
    buffer = Bytes(8)
    gone = weakref.ref(buffer)
    half = user.half(worker, memoryview(buffer), 7, True)
    for request in (user.new(worker), half):
        with pytest.raises(RuntimeError, match=r"^request_posted\(\) was not called"):
            await request
        with pytest.raises(RuntimeError, match=r"^request_posted\(\) was not called"):
            await asyncio.wait_for(request, 10)
        with pytest.raises(RuntimeError, match=r"^request_posted\(\) was not called"):
            request.add_done_callback(print)
    async with connected_pair() as (client, _server):
        await client.send(b"12345678", 7, force_tag=True)
        user.posted(half, 0)
        await half
        assert buffer == b"12345678"
    del buffer, half, request
    assert gone() is None


@pytest.mark.parametrize("is_added", [False, True])
async def test_what_is_posted_after_the_last_is_abandoned(user, is_added):
    worker = ucp.current_worker()
    before = live_objects()["requests"]
    async with connected_pair() as (client, _server):
        for is_done_first in (False, True):
            buffer = Bytes(8)
            gone = weakref.ref(buffer)
            if is_done_first:
                await client.send(b"-first--", 1, force_tag=True)
                await asyncio.sleep(0.01)
            request, error = user.twice(worker, memoryview(buffer), 1, is_added)
            assert isinstance(error, RuntimeError)
            assert "was called for this Request before" in str(error)
            # The message of the second one goes to another receive.
            await client.send(b"-second-", 2, force_tag=True)
            again = bytearray(8)
            await user.recv(worker, memoryview(again), 2, 1)
            assert again == b"-second-"
            if not is_done_first:
                await client.send(b"-first--", 1, force_tag=True)
            assert await request is None
            assert buffer == b"-first--"
            del buffer, request, error
            await until(lambda gone=gone: gone() is None)
    await until(lambda: live_objects()["requests"] <= before)


async def test_many_end_in_any_order_and_the_rest_is_cancelled(user):
    worker = ucp.current_worker()
    count = 3000
    order = [*range(count)]
    random.Random(44).shuffle(order)
    async with connected_pair() as (client, _server):
        for ended in (order, order[: count // 2], [*reversed(range(count))]):
            buffer = bytearray(2 * count)
            view = memoryview(buffer)
            receiving = user.recv(worker, view, 100, count)
            for i in ended:
                await client.send(i.to_bytes(2, "big"), 100 + i, force_tag=True)
            if len(ended) == count:
                await receiving
            else:
                await asyncio.sleep(0.01)
                receiving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await receiving
            for i in ended:
                assert buffer[2 * i : 2 * i + 2] == i.to_bytes(2, "big")
            view.release()
            del receiving
            gc.collect()
            buffer.clear()  # nobody holds it


# ---- ends --------------------------------------------------------------------------


async def test_the_buffer_lives_until_the_end_and_no_longer(user):
    worker = ucp.current_worker()
    async with connected_pair() as (client, _server):
        request, buffer = flying(user, worker, 7)
        gc.collect()
        assert buffer() is not None
        await client.send(b"12345678", 7, force_tag=True)
        await request
        assert buffer() is None


async def test_a_cancelled_await_gives_the_buffer_back_and_loses_no_message(user):
    worker = ucp.current_worker()
    async with connected_pair() as (client, _server):
        for count in (1, 2, 100):
            buffer = bytearray(8 * count)
            view = memoryview(buffer)
            task = asyncio.ensure_future(user.recv(worker, view, 100, count))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del task
            view.release()
            buffer.clear()  # nobody holds it
            await client.send(b"12345678", 100, force_tag=True)
            again = bytearray(8)
            await user.recv(worker, memoryview(again), 100, 1)
            assert again == b"12345678"


async def test_a_timeout_cancels_a_large_send(user, transport):
    async with connected_pair() as (client, _server):
        sending = user.send(client, memoryview(bytes(50_000_000)), 7)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sending, 0.01)


async def test_a_dropped_request_keeps_its_buffer_until_libumx_is_done(user):
    worker = ucp.current_worker()
    async with connected_pair() as (client, _server):
        request, buffer = flying(user, worker, 7)
        del request
        gc.collect()
        assert buffer() is not None
        await client.send(b"12345678", 7, force_tag=True)
        await until(lambda: buffer() is None)


def test_the_workers_end_ends_it(user):
    async def main():
        worker = ucp.current_worker()
        request, buffer = flying(user, worker, 7)
        waiting = asyncio.ensure_future(request)
        await asyncio.sleep(0)
        ucp.reset()
        with pytest.raises(ucp.UCXCanceled):
            await waiting
        del request, waiting
        gc.collect()
        assert buffer() is None

    asyncio.run(main())


def test_a_closed_loop_leaves_nothing(user):
    before = live_objects()

    async def main():
        return flying(user, ucp.current_worker(), 7)

    request, buffer = asyncio.run(main())
    del request
    ucp.reset()
    gc.collect()
    assert buffer() is None
    assert live_objects()["requests"] <= before["requests"]


async def test_an_error_between_two_posts_leaves_nothing(user):
    worker = ucp.current_worker()
    before = live_objects()["requests"]
    async with connected_pair() as (client, _server):
        buffer = Bytes(8)
        gone = weakref.ref(buffer)
        with pytest.raises(ValueError, match="an error between two posts") as caught:
            user.half(worker, memoryview(buffer), 7, False)
        del buffer, caught
        assert gone() is None  # libumx has given it back
        await client.send(b"12345678", 7, force_tag=True)
        again = bytearray(8)
        await user.recv(worker, memoryview(again), 7, 1)
        assert again == b"12345678"  # the message went to nobody else
    await until(lambda: live_objects()["requests"] <= before)


@pytest.mark.parametrize("is_given_back", [False, True])
async def test_the_await_ends_when_all_that_is_left_is_lost(user, is_given_back):
    worker = ucp.current_worker()
    buffer = bytearray(8)
    async with connected_pair() as (client, _server):
        request = user.losing(worker, memoryview(buffer), 1, 3)

        async def end(tag):
            await client.send(b"message%d" % tag, tag, force_tag=True)
            await asyncio.sleep(0.01)

        user.lose(0)
        if is_given_back:
            await end(1)
            user.lose(1)
            await asyncio.sleep(0.01)
            assert not request.done()  # the third has the buffer
            await end(3)
        else:
            await end(2)
            assert not request.done()
            await end(3)
        with pytest.raises(ucp.UCXConnectionReset):
            await asyncio.wait_for(request, 30)
        await end(2 if is_given_back else 1)  # what was lost ends after all


async def test_a_failure_in_a_cycle_is_reported_when_it_is_collected(user):
    worker = ucp.current_worker()
    loop = asyncio.get_running_loop()
    reports = []
    loop.set_exception_handler(lambda _loop, context: reports.append(context))
    result = {}
    request = user.new(worker)
    user.set_result(request, result)
    user.posted(request, -25)
    result["request"] = request  # now the collector clears the request first
    del result, request
    gc.collect()
    loop.set_exception_handler(None)
    assert [type(report["exception"]) for report in reports] == [ucp.UCXConnectionReset]


class Owner(bytearray):
    """A buffer that knows the request that fills it."""


async def test_a_cycle_of_buffer_and_request_is_collected(user):
    worker = ucp.current_worker()
    async with connected_pair() as (client, _server):
        owner = Owner(8)
        owner.request = user.recv(worker, memoryview(owner), 7, 1, owner)
        gone = weakref.ref(owner)
        await client.send(b"12345678", 7, force_tag=True)
        await until(owner.request.done)
        del owner
        gc.collect()
        assert gone() is None


async def test_a_progress_thread_changes_nothing(user):
    worker = ucp.current_worker()
    async with connected_pair() as (client, _server):
        with worker.run_in_thread():
            for i in range(100):
                buffer = bytearray(80)
                receiving = user.recv(worker, memoryview(buffer), 100, 10)
                for k in range(10):
                    await user.send(client, memoryview(bytes([i]) * 8), 100 + k)
                await receiving
                assert buffer == bytes([i]) * 80


# ---- errors ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status, kind",
    [(-4, MemoryError), (-25, ConnectionResetError), (-20, TimeoutError)],
)
def test_a_status_raises_its_exception(user, status, kind):
    with pytest.raises(kind) as caught:
        user.fail(status, "exchange")
    assert isinstance(caught.value, ucp.UCXError)
    assert caught.value.op == "exchange"


def test_a_status_that_is_no_failure_is_refused(user):
    for status in (0, 1):
        with pytest.raises(ValueError, match=rf"^the status {status} is no failure$"):
            user.fail(status, None)
    assert sys.exc_info() == (None, None, None)
