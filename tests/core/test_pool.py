# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/loan ext/pool_buffer ext/registered
"""Pools of registered buffers: what is lent, to whom, and when it is free."""

import asyncio
import gc
import threading
import traceback

import numpy as np
import pytest

import ucp
from ucp.exceptions import UCXBusy, UCXCloseError, UCXError
from ucp.testing import connected_pair, live_objects, until

MIB = 1 << 20

# Eager, and by rendezvous, on either side of each switch.
SIZES = [1, 64, 8192, 131_071, 131_072, 3 * MIB]


@pytest.fixture
def pool():
    with ucp.BufferPool(2, 1000) as pool:
        yield pool
    gc.collect()
    assert pool.free == pool.count
    assert live_objects()["loans"] == 0


def address(buffer):
    return np.asarray(buffer).ctypes.data


async def start(awaitable):
    """A task that has come to its first wait."""
    task = asyncio.create_task(awaitable)
    await asyncio.sleep(0)
    return task


# ---- lending ----------------------------------------------------------------


async def test_buffers_are_apart(pool):
    with await pool.acquire() as first, pool.acquire_nowait() as second:
        assert pool.free == 0
        assert first.nbytes == second.nbytes == pool.nbytes == 1000
        assert abs(address(first) - address(second)) >= 1000
        assert address(first) % 64 == address(second) % 64 == 0


async def test_what_is_free_is_lent_again(pool):
    with await pool.acquire() as buffer:
        before = address(buffer)
    with await pool.acquire() as buffer:
        assert address(buffer) == before


async def test_dropping_is_giving_back(pool):
    buffer = pool.acquire_nowait()
    del buffer
    assert pool.free == 2


async def test_without_waiting_there_may_be_none(pool):
    held = [pool.acquire_nowait(), pool.acquire_nowait()]
    with pytest.raises(UCXBusy, match=r"^all 2 buffers of the pool are in use$"):
        pool.acquire_nowait()
    held.pop().release()
    held.append(pool.acquire_nowait())


@pytest.mark.parametrize("arguments", [(0, 1), (1, 0), (-1, 1), (1, -1)])
def test_nothing_to_lend_is_refused(arguments):
    with pytest.raises(ValueError, match=r"^expected at least one buffer of one byte"):
        ucp.BufferPool(*arguments)


def test_other_kinds_are_refused():
    with pytest.raises(ValueError, match=r"not 'device'$"):
        ucp.BufferPool(1, 1, kind="device")


@pytest.mark.parametrize("arguments", [(1 << 31, 1 << 40), (1 << 40, 8), (1, 1 << 60)])
def test_too_much_is_no_memory(arguments):
    with pytest.raises(ucp.exceptions.UCXNoMemory):
        ucp.BufferPool(*arguments)


async def test_reprs(pool):
    buffer = pool.acquire_nowait()
    assert repr(buffer) == "<ucp.PoolBuffer of 1000 bytes>"
    assert repr(pool) == "<ucp.BufferPool of 2 x 1000 bytes, 1 free>"
    buffer.release()
    assert repr(buffer) == "<ucp.PoolBuffer, released>"
    pool.close()
    assert repr(pool) == "<ucp.BufferPool of 2 x 1000 bytes, closed>"


# ---- views -------------------------------------------------------------------


@pytest.mark.parametrize("view", [memoryview, np.asarray, lambda b: np.asarray(b)[10:]])
async def test_views_keep_it(pool, view):
    buffer = pool.acquire_nowait()
    seen = view(buffer)
    with pytest.raises(BufferError, match=r"^the buffer cannot be released: it has 1"):
        buffer.release()
    del buffer
    gc.collect()
    assert pool.free == 1
    seen[:] = seen[::-1]
    del seen
    assert pool.free == 2


async def test_an_exception_is_not_hidden_by_views(pool):
    with pytest.raises(ZeroDivisionError) as caught:
        with pool.acquire_nowait() as buffer:
            view = memoryview(buffer)
            raise ZeroDivisionError
    assert caught.value.__context__ is None
    assert pool.free == 1
    view.release()
    traceback.clear_frames(caught.value.__traceback__)
    del buffer
    assert pool.free == 2


class Interface:
    """An object that reads the buffer's address, and keeps the buffer."""

    def __init__(self, buffer):
        self.__array_interface__ = buffer.__array_interface__
        self.buffer = buffer


async def test_who_has_the_address_keeps_it_by_the_object(pool):
    buffer = pool.acquire_nowait()
    array = np.asarray(Interface(buffer))
    array[:] = 7
    assert memoryview(buffer)[999] == 7
    buffer.release()
    assert buffer.released
    del buffer
    assert pool.free == 1
    array[:] = 8
    del array
    assert pool.free == 2


@pytest.mark.parametrize("use", [memoryview, np.asarray, lambda b: b.__enter__()])
def test_a_released_buffer_cannot_be_looked_at(pool, use):
    buffer = pool.acquire_nowait()
    buffer.release()
    buffer.release()
    assert buffer.nbytes == 0
    with pytest.raises(ValueError, match=r"^the buffer has been released$"):
        use(buffer)


@pytest.mark.parametrize("strided", [False, True])
async def test_a_released_buffer_cannot_be_sent(pool, strided):
    async with connected_pair() as (client, server):
        buffer = pool.acquire_nowait()
        buffer.release()
        for operation in (client.send, server.recv):
            with pytest.raises(ValueError, match=r"^the buffer has been released$"):
                operation(buffer, strided=strided)


# ---- waiting -----------------------------------------------------------------


async def test_they_are_served_in_turn(pool, loop_factory):
    held = [pool.acquire_nowait(), pool.acquire_nowait()]
    served = []

    async def ask(number):
        with await pool.acquire():
            served.append(number)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(ask(number)) for number in range(10)]
    await asyncio.sleep(0)
    for buffer in held:
        buffer.release()
    with pytest.raises(UCXBusy):  # the waiting tasks come first
        pool.acquire_nowait()
    await asyncio.gather(*tasks)
    assert served == list(range(10))


async def test_who_gives_up_waiting_costs_nobody_his_turn(pool, loop_factory):
    held = [pool.acquire_nowait(), pool.acquire_nowait()]
    tasks = [await start(pool.acquire()) for _ in range(3)]
    tasks[0].cancel()
    await asyncio.wait([tasks[0]])
    held[0].release()
    buffer = await tasks[1]
    assert not tasks[2].done()
    buffer.release()
    (await tasks[2]).release()
    held[1].release()


async def test_cancelled_between_the_buffer_and_waking_up(pool):
    held = [pool.acquire_nowait(), pool.acquire_nowait()]
    first, second = [await start(pool.acquire()) for _ in range(2)]
    held[0].release()  # the buffer is for `first`
    first.cancel()
    (await second).release()
    assert first.cancelled()
    held[1].release()


async def test_cancelled_in_the_same_turn_as_the_release(pool):
    held = [pool.acquire_nowait(), pool.acquire_nowait()]
    first, second = [await start(pool.acquire()) for _ in range(2)]
    first.cancel()
    held[0].release()
    (await second).release()
    assert first.cancelled()
    held[1].release()


async def test_waiting_with_a_timeout(pool):
    held = [pool.acquire_nowait(), pool.acquire_nowait()]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pool.acquire(), 0.001)
    assert pool.free == 0
    held.clear()
    assert pool.free == 2


async def test_waiters_of_a_loop_that_ended_are_passed_over(pool):
    held = [pool.acquire_nowait(), pool.acquire_nowait()]
    waiters = []

    async def wait_and_leave():
        waiters.append(pool.acquire())
        waiters[0].send(None)

    thread = threading.Thread(target=asyncio.run, args=(wait_and_leave(),))
    thread.start()
    thread.join()
    task = await start(pool.acquire())
    held.pop().release()
    (await task).release()
    waiters.pop().close()
    held.pop().release()


def test_loops_of_several_threads(fresh_ucx):
    pool = ucp.BufferPool(3, 8)
    inside = []
    most = []
    errors = []

    async def use():
        for _ in range(50):
            with await pool.acquire() as buffer:
                inside.append(1)
                most.append(len(inside))
                memoryview(buffer).cast("Q")[0] = threading.get_ident()
                await asyncio.sleep(0)
                if memoryview(buffer).cast("Q")[0] != threading.get_ident():
                    errors.append("shared")
                inside.pop()

    async def main():
        await asyncio.gather(*(use() for _ in range(5)))

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert max(most) == 3
    assert pool.free == 3
    pool.close()


# ---- the end -----------------------------------------------------------------


async def test_who_waits_hears_that_it_is_closed(pool):
    held = [pool.acquire_nowait(), pool.acquire_nowait()]
    tasks = [await start(pool.acquire()) for _ in range(3)]
    tasks[1].cancel()
    pool.close()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in done] == [
        UCXCloseError,
        asyncio.CancelledError,
        UCXCloseError,
    ]
    assert str(done[0]) == "the pool is closed"
    assert live_objects()["loans"] == 2
    memoryview(held[0])[:] = bytes(1000)
    pool.close()


async def test_a_closed_pool_lends_nothing(pool):
    pool.close()
    assert pool.closed()
    with pytest.raises(UCXCloseError, match=r"^the pool is closed$"):
        await pool.acquire()
    with pytest.raises(UCXCloseError, match=r"^the pool is closed$"):
        pool.acquire_nowait()


async def test_a_dropped_pool_lives_as_long_as_its_buffers():
    buffer = ucp.BufferPool(1, 100).acquire_nowait()
    gc.collect()
    memoryview(buffer)[:] = bytes(100)
    async with connected_pair() as (client, server):
        await client.send(buffer)
        assert len(await server.recv_obj()) == 100
    del buffer
    assert live_objects()["loans"] == 0


async def test_a_pool_in_a_cycle_goes():
    class Pool(ucp.BufferPool):
        pass

    pool = Pool(1, 100)
    pool.buffer = pool.acquire_nowait()
    pool.view = memoryview(pool.buffer)
    waiting = await start(pool.acquire())
    waiting.cancel()
    await asyncio.wait([waiting])
    del pool, waiting
    gc.collect()
    assert live_objects()["loans"] == 0


def test_reset_asks_for_open_pools(fresh_ucx):
    pool = ucp.BufferPool(1, 100)
    with pytest.raises(UCXError, match=r"<ucp.BufferPool of 1 x 100 bytes, 1 free>"):
        ucp.reset()
    buffer = pool.acquire_nowait()
    pool.close()
    ucp.reset()

    async def use_after_reset():
        async with connected_pair() as (client, server):
            await client.send(buffer)
            assert await server.recv_obj() == bytearray(100)

    asyncio.run(use_after_reset())


# ---- operations --------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("part", [lambda b: b, memoryview, lambda b: np.asarray(b)[:]])
async def test_buffers_are_sent_and_received_into(transport, size, part):
    with ucp.BufferPool(2, size) as pool:
        async with connected_pair() as (client, server):
            source, target = pool.acquire_nowait(), pool.acquire_nowait()
            np.asarray(source)[:] = np.arange(size)
            receive = server.recv(part(target))
            await client.send(part(source))
            await receive
            assert bytes(memoryview(target)) == bytes(memoryview(source))


@pytest.mark.parametrize("kind", ["tag", "am", "stream", "many", "put", "strided"])
async def test_every_operation_takes_them(transport, kind):
    with ucp.BufferPool(2, MIB) as pool:
        async with connected_pair() as (client, server):
            source, target = pool.acquire_nowait(), pool.acquire_nowait()
            np.asarray(source)[:] = 5
            if kind == "tag":
                receive = server.recv(target, tag=9, force_tag=True)
                await client.send(source, tag=9, force_tag=True)
                await receive
            elif kind == "am":
                await asyncio.gather(
                    client.am_send(source),
                    copy_message(server, target),
                )
            elif kind == "stream":
                receive = server.stream_recv(target)
                await client.stream_send(source)
                await receive
            elif kind == "many":
                receive = asyncio.create_task(server.recv_many([target]))
                await client.send_many([source])
                await receive
            elif kind == "put":
                memory = ucp.Memory.register(bytearray(MIB))
                remote = client.remote(memory.key)
                await remote.put(source)
                await remote.get(target)
                memory.close()
            else:
                receive = server.recv(target, strided=True)
                await client.send(source, strided=True)
                await receive
            assert bytes(memoryview(target)) == bytes([5]) * MIB
            source.release()
            target.release()
            await until(lambda: pool.free == 2)


async def copy_message(ep, target):
    memoryview(target)[:] = await ep.am_recv()


async def test_a_send_under_way_keeps_the_memory(transport):
    with ucp.BufferPool(1, MIB) as pool:
        async with connected_pair() as (client, server):
            buffer = pool.acquire_nowait()
            memoryview(buffer)[:] = bytes([1]) * MIB
            send = client.send(buffer)
            buffer.release()
            assert buffer.released
            assert pool.free == 0
            waiting = await start(pool.acquire())
            assert not waiting.done()
            assert await server.recv_obj() == bytes([1]) * MIB
            await send
            (await waiting).release()


async def test_a_cancelled_send_gives_the_memory_back(transport):
    with ucp.BufferPool(1, MIB) as pool:
        async with connected_pair() as (client, server):
            with await pool.acquire() as buffer:
                send = asyncio.create_task(client.send(buffer))
                await client.send(b"x")  # the message has been announced
                send.cancel()
                await asyncio.wait([send])
            del buffer
            assert pool.free == 1
            assert await server.recv_obj() == b"x"  # the other is withdrawn


async def test_a_receive_that_waits_keeps_the_memory(transport):
    with ucp.BufferPool(1, 100) as pool:
        async with connected_pair() as (client, server):
            buffer = pool.acquire_nowait()
            receive = asyncio.create_task(server.recv(buffer))
            await asyncio.sleep(0)
            buffer.release()
            assert pool.free == 0
            receive.cancel()
            await until(lambda: pool.free == 1)
            await client.send(b"x")
            assert await server.recv_obj() == b"x"


async def test_a_cancelled_receive_into_which_bytes_land(connect_peer, transport):
    """Of 64 MiB: none of them may hit who has the buffer next."""
    size = 64 * MIB
    peer, ep = await connect_peer()
    with ucp.BufferPool(1, size) as pool:
        buffer = pool.acquire_nowait()
        receive = asyncio.create_task(ep.recv(buffer))
        await asyncio.sleep(0)
        sending = peer.begin(f"await ep.send(bytes([3]) * {size})")
        view = memoryview(buffer)
        await until(lambda: view[0] == 3)
        view.release()
        receive.cancel()
        buffer.release()
        with await pool.acquire() as buffer:
            memoryview(buffer)[:] = bytes(size)
            message = await ep.recv_obj()
            assert message == bytes([3]) * size
            assert bytes(memoryview(buffer)) == bytes(size)
        await peer.result(sending)
        await until(lambda: pool.free == 1)
        await ep.close()


async def test_an_aborted_endpoint_gives_the_memory_back(transport):
    with ucp.BufferPool(2, MIB) as pool:
        async with connected_pair() as (client, _server):
            send = asyncio.create_task(client.send(pool.acquire_nowait()))
            receive = asyncio.create_task(client.recv(pool.acquire_nowait()))
            await asyncio.sleep(0)
            assert pool.free == 0
            client.abort()
            await asyncio.wait([send, receive])
            send.exception(), receive.exception()
        await until(lambda: pool.free == 2)


async def test_a_killed_peer_gives_the_memory_back(connect_peer, transport):
    with ucp.BufferPool(2, 4 * MIB) as pool:
        peer, ep = await connect_peer()
        send = asyncio.create_task(ep.send(pool.acquire_nowait()))
        receive = asyncio.create_task(ep.recv(pool.acquire_nowait()))
        await asyncio.sleep(0)
        peer.kill()
        done = await asyncio.gather(send, receive, return_exceptions=True)
        assert all(isinstance(each, Exception) for each in done)
        await until(lambda: pool.free == 2)
        await ep.close()
