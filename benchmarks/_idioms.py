# SPDX-License-Identifier: BSD-3-Clause
"""One of the two processes of idioms.py: what people write, as they write it.

``_idioms.py server LOOP`` prints {"port": N} and serves; ``_idioms.py client LOOP
PORT`` does what the lines of its standard input ask, one JSON object each, and prints
{"value": x}: the seconds of one operation. LOOP is asyncio or uvloop. It is run by
whatever Python has the ucp that is measured.

Each measurement has a connection of its own. Its first message says what follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

import ucp

HOST = "127.0.0.1"
WINDOW = 64
CLIENTS = 8
SMALL_OBJECT = {"step": 12, "loss": 0.25, "name": "x" * 60}

Operation = Callable[[], Awaitable[Any]]
Task = dict[str, Any]
# How one end does an operation; a client's is measured.
Idiom = Callable[[Any, int], Operation]


def memory(nbytes: int) -> Any:
    """An array of its own, not the system's page of zeros."""
    return np.ones(nbytes, "u1")


def memories(nbytes: int) -> list[Any]:
    return [memory(nbytes) for _ in range(WINDOW)]


# --- many messages: a window of them, and an answer ----------------------------

# Moves all buffers by the method for one, or for many.
Move = Callable[[Any, Any, list[Any]], Awaitable[Any]]


def gathered(gather: Any) -> Move:
    async def move(one: Any, _many: Any, buffers: list[Any]) -> None:
        await gather(*(one(buffer) for buffer in buffers))

    return move


async def posted(one: Any, _many: Any, buffers: list[Any]) -> None:
    for request in [one(buffer) for buffer in buffers]:
        await request


async def awaited(operation: Awaitable[Any]) -> None:
    await operation


async def in_tasks(one: Any, _many: Any, buffers: list[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for buffer in buffers:
            group.create_task(awaited(one(buffer)))


async def at_once(_one: Any, many: Any, buffers: list[Any]) -> None:
    await many(buffers)


MOVES: dict[str, Move] = {
    "gather": gathered(asyncio.gather),
    # An old ucp has none.
    "ucp.gather": gathered(getattr(ucp, "gather", asyncio.gather)),
    "post": posted,
    "TaskGroup": in_tasks,
    "send_many": at_once,
}


def window_client(move: Move, ep: Any, nbytes: int) -> Operation:
    buffers, answer = memories(nbytes), memory(8)

    async def run() -> None:
        await move(ep.send, ep.send_many, buffers)
        await ep.recv(answer)

    return run


def window_server(move: Move, ep: Any, nbytes: int) -> Operation:
    buffers, answer = memories(nbytes), memory(8)

    async def run() -> None:
        await move(ep.recv, ep.recv_many, buffers)
        await ep.send(answer)

    return run


def streams_client(ep: Any, nbytes: int) -> Operation:
    reader, writer = ucp.open_streams(ep)
    data = bytes(nbytes)

    async def run() -> None:
        for _ in range(WINDOW):
            writer.write(data)
            await writer.drain()
        await reader.readexactly(8)

    return run


def streams_server(ep: Any, nbytes: int) -> Operation:
    reader, writer = ucp.open_streams(ep)

    async def run() -> None:
        for _ in range(WINDOW):
            await reader.readexactly(nbytes)
        writer.write(bytes(8))
        await writer.drain()

    return run


# --- request and answer -------------------------------------------------------


def request_client(ep: Any, nbytes: int) -> Operation:
    question = bytes(nbytes)

    async def run() -> None:
        await ep.send_obj(question)
        await ep.recv_obj()

    return run


def request_server(ep: Any, nbytes: int) -> Operation:
    async def run() -> None:
        await ep.send_obj(await ep.recv_obj())

    return run


def pickle_client(ep: Any, nbytes: int) -> Operation:
    async def run() -> None:
        await ep.send_pickle(SMALL_OBJECT)
        await ep.recv_pickle(allow_pickle=True)

    return run


def pickle_server(ep: Any, nbytes: int) -> Operation:
    async def run() -> None:
        await ep.send_pickle(await ep.recv_pickle(allow_pickle=True))

    return run


def array_client(ep: Any, nbytes: int) -> Operation:
    array, answer = np.ones(nbytes // 8), np.empty(1)

    async def run() -> None:
        await ep.send(array)
        await ep.recv(answer)

    return run


def array_server(ep: Any, nbytes: int) -> Operation:
    array, answer = np.ones(nbytes // 8), np.ones(1)

    async def run() -> None:
        await ep.recv(array)
        await ep.send(answer)

    return run


def sync_client(ep: Any, nbytes: int) -> Callable[[], None]:
    """In a thread, of an endpoint of ucp.sync."""
    sent, received = memory(nbytes), memory(nbytes)

    def run() -> None:
        ep.send(sent)
        ep.recv(received)

    return run


def sync_server(ep: Any, nbytes: int) -> Operation:
    buffer = memory(nbytes)

    async def run() -> None:
        await ep.recv(buffer)
        await ep.send(buffer)

    return run


SERVERS: dict[str, Idiom] = {
    **{name: functools.partial(window_server, move) for name, move in MOVES.items()},
    "streams": streams_server,
    "request": request_server,
    "clients": request_server,
    "pickle": pickle_server,
    "array": array_server,
    "sync": sync_server,
}
CLIENTS_OF: dict[str, Idiom] = {
    **{name: functools.partial(window_client, move) for name, move in MOVES.items()},
    "streams": streams_client,
    "request": request_client,
    "pickle": pickle_client,
    "array": array_client,
}


# --- the server ---------------------------------------------------------------


async def until_closed(ep: Any) -> None:
    async for _ in ep:
        pass


async def serve(ep: Any) -> None:
    """Do what the client's first message says."""
    task = json.loads(bytes(await ep.recv_obj()))
    if task["kind"] == "connect":
        return
    if task["kind"] in ("put", "get"):
        with ucp.Memory.allocate(task["nbytes"]) as shared:
            await ep.send_obj(shared.key)
            await until_closed(ep)
        return
    operation = SERVERS[task["kind"]](ep, task["nbytes"])
    for _ in range(task["total"]):
        await operation()
    await until_closed(ep)


async def server() -> None:
    async with ucp.create_listener(serve, host=HOST) as listener:
        print(json.dumps({"port": listener.port}), flush=True)
        await listener.serve_forever()


# --- the client ---------------------------------------------------------------


async def timed(task: Task, operation: Operation) -> float:
    """Seconds of one operation."""
    for _ in range(task["total"] - task["times"]):
        await operation()
    started = time.perf_counter()
    for _ in range(task["times"]):
        await operation()
    return (time.perf_counter() - started) / task["times"]


async def by_endpoint(port: int, task: Task) -> float:
    async with ucp.connect(HOST, port) as ep:
        await ep.send_obj(json.dumps(task).encode())
        client = CLIENTS_OF[task["kind"]]
        return await timed(task, client(ep, task["nbytes"]))


async def by_connections(port: int, task: Task) -> float:
    """A connection, one message, and the end of it."""
    message = json.dumps(task).encode()

    async def run() -> None:
        async with ucp.connect(HOST, port) as ep:
            await ep.send_obj(message)

    return await timed(task, run)


async def by_clients(port: int, task: Task) -> float:
    """All ask at the same time."""
    async with contextlib.AsyncExitStack() as stack:
        asked = []
        for _ in range(CLIENTS):
            ep = await stack.enter_async_context(ucp.connect(HOST, port))
            await ep.send_obj(json.dumps(task).encode())
            asked.append(request_client(ep, task["nbytes"]))

        async def run() -> None:
            await asyncio.gather(*(ask() for ask in asked))

        return await timed(task, run)


async def by_memory(port: int, task: Task) -> float:
    async with ucp.connect(HOST, port) as ep:
        await ep.send_obj(json.dumps(task).encode())
        remote, buffer = ep.remote(await ep.recv_obj()), memory(task["nbytes"])
        call = remote.put if task["kind"] == "put" else remote.get
        return await timed(task, functools.partial(call, buffer))


def blocking(port: int, task: Task) -> float:
    """A thread without an event loop."""
    with ucp.sync.connect(HOST, port) as ep:
        ep.send(json.dumps(task).encode())
        run = sync_client(ep, task["nbytes"])
        for _ in range(task["total"] - task["times"]):
            run()
        started = time.perf_counter()
        for _ in range(task["times"]):
            run()
        return (time.perf_counter() - started) / task["times"]


async def by_thread(port: int, task: Task) -> float:
    return await asyncio.to_thread(blocking, port, task)


MEASURED = {
    **dict.fromkeys(CLIENTS_OF, by_endpoint),
    "connect": by_connections,
    "clients": by_clients,
    "put": by_memory,
    "get": by_memory,
    "sync": by_thread,
}


async def client(port: int) -> None:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    async for line in reader:
        task = json.loads(line)
        value = await MEASURED[task["kind"]](port, task)
        print(json.dumps({"value": value}), flush=True)


def main(role: str, loop: str, *port: str) -> None:
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(server() if role == "server" else client(int(port[0])))


if __name__ == "__main__":
    main(*sys.argv[1:])
