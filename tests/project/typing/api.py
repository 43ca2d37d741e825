# SPDX-License-Identifier: BSD-3-Clause
"""What a type checker knows about the package; test_typing.py runs mypy."""

import asyncio
from concurrent.futures import Future
from typing import assert_type

import ucp
from ucp.message import MessageListener, MessageSender


async def connect() -> None:
    ep = await ucp.create_endpoint("127.0.0.1", 1, connect_timeout=1.0)
    assert_type(ep, ucp.Endpoint)
    assert_type(await ep.send(b"x"), None)
    assert_type(await ep.send(memoryview(b"x"), tag=("a", 1)), None)
    assert_type(await ep.recv(bytearray(1), tag=ucp.ANY), None)
    assert_type(await ep.recv_into(bytearray(1)), int)
    assert_type(await ep.close(timeout=1.0), None)
    assert_type(ep.closed(), bool)
    assert_type(ep.uid, int)
    channel = ep.channel(1)
    assert_type(channel, ucp.Channel)
    assert_type(await channel.send(b"x", tag=1), None)
    assert_type(await channel.recv_into(bytearray(1)), int)
    assert_type(channel.probe(), tuple[int, int | None] | None)
    await ep.control.send_obj(b"x")
    async with ep as same:
        assert_type(same, ucp.Endpoint)
    async for message in ep:
        assert_type(message, bytearray)
    async for message in channel:
        assert_type(message, bytearray)


async def asyncios_habits() -> None:
    async with ucp.connect("127.0.0.1", 1, timeout=1.0) as ep:
        assert_type(ep, ucp.Endpoint)
    assert_type(await ucp.connect("127.0.0.1", 1), ucp.Endpoint)
    task = asyncio.create_task(ucp.connect("127.0.0.1", 1))
    assert_type(await task, ucp.Endpoint)
    async with ucp.create_listener() as listener:
        assert_type(await listener.accept(), ucp.Endpoint)
        assert_type(await listener.serve_forever(), None)
        assert_type(await listener.wait_closed(), None)


async def words(
    worker: ucp.Worker, memory: ucp.Memory, pool: ucp.BufferPool, ep: ucp.Endpoint
) -> None:
    sender = MessageSender()
    listener = MessageListener(ep, lambda metadata: None)
    remote = ep.remote(memory.key)
    closed: list[bool] = [
        *(thing.closed() for thing in (worker, memory, pool, ep)),
        *(thing.closed() for thing in (sender, listener, remote)),
    ]
    assert_type(closed, list[bool])
    assert_type(await listener.wait_closed(), None)
    assert_type(await sender.wait_sent(), None)
    assert_type(sender.send_now(), None)
    assert_type(await memory.wait_until(0, ">=", 1, bits=32), None)
    assert_type(memory.notify(), None)
    assert_type(await remote.put_signal(b"", 0, 0, 1, signal_memory=remote), None)
    assert_type(remote.notify(), None)
    assert_type(worker.arm(), bool)
    assert_type(worker.abort(), None)


def heaps() -> None:
    with ucp.Heap() as heap:
        assert_type(heap.allocate(8), ucp.Memory)
        assert_type(heap.segments, int)
        assert_type(heap.memories, int)
        assert_type(heap.closed(), bool)


async def addresses() -> None:
    address = ucp.get_worker_address()
    assert_type(address, ucp.UCXAddress)
    assert_type(address.nbytes, int)
    assert_type(ucp.get_ucx_address_from_buffer(b"x"), ucp.UCXAddress)
    ep = await ucp.create_endpoint_from_worker_address(address, connect_timeout=1.0)
    assert_type(ep, ucp.Endpoint)
    async for ep in ucp.accept_addressed():
        assert_type(ep, ucp.Endpoint)


async def raw_tags(worker: ucp.Worker, ep: ucp.Endpoint) -> None:
    assert_type(await worker.send(ep, b"x", 1, sync=True), None)
    assert_type(await worker.recv(bytearray(1), 1, 0xFF), int)
    assert_type(await worker.probe(1), tuple[int, int])
    assert_type(worker.tag_probe(1, mask=0), tuple[int, int] | None)
    message = await worker.recv_message(1)
    assert_type(message, ucp.TagMessage)
    assert_type(await message.recv(bytearray(1)), int)


async def listen() -> None:
    async def callback(ep: ucp.Endpoint) -> None:
        await ep.send(b"x")

    ucp.create_listener(callback, port=0, on_error=print)
    ucp.create_listener(lambda ep: ep.abort())
    async with ucp.create_listener(host="::1", backlog=5) as listener:
        assert_type(listener, ucp.Listener)
        assert_type(listener.port, int)
        async for ep in listener:
            assert_type(ep, ucp.Endpoint)


async def pool(pool: ucp.BufferPool) -> None:
    with await pool.acquire() as buffer:
        assert_type(buffer, ucp.PoolBuffer)
    assert_type(pool.acquire_nowait(), ucp.PoolBuffer)


async def word() -> str:
    return "word"


def submit(worker: ucp.Worker, ep: ucp.Endpoint) -> None:
    assert_type(worker.submit(int, "1"), Future[int])
    assert_type(worker.submit(word), Future[str])
    assert_type(worker.submit(word()), Future[str])
    assert_type(worker.submit(ep.recv_into, bytearray(1)), Future[int])


def block(worker: ucp.Worker) -> None:
    with worker.run_in_thread() as nothing:
        assert_type(nothing, None)
    with ucp.sync.connect("127.0.0.1", 1, timeout=1.0) as ep:
        assert_type(ep, ucp.sync.Endpoint)
        assert_type(ep.recv_into(bytearray(1), timeout=1), int)
        assert_type(ep.recv_obj("tag"), bytearray)


def module() -> None:
    ucp.init({"TLS": "tcp"}, config=ucp.Config(spin=0, close_timeout=1.5))
    config = ucp.Config(heartbeat_ns=10**9)
    assert_type(config.heartbeat, float | None)
    assert_type(ucp.get_config(), dict[str, str])
    assert_type(ucp.get_address(), str)
    assert_type(ucp.get_ucx_version(), tuple[int, int, int])
    assert_type(ucp.current_worker(), ucp.Worker)
    assert_type(ucp.which_ucx().path, str)


def wrong(ep: ucp.Endpoint) -> None:
    ucp.connect("127.0.0.1")  # type: ignore[call-arg]
    print(ep.handle)  # type: ignore[attr-defined]
    ep.send()  # type: ignore[call-arg]
    ucp.init(option={})  # type: ignore[call-arg]
    ucp.Config(spin="long")  # type: ignore[arg-type]
    ucp.Config(spinning=1.0)  # type: ignore[call-arg]
