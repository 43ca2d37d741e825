# SPDX-License-Identifier: BSD-3-Clause
"""Program of one host of network.py: `_network.py server|client`.

The server prints {"port": N} and the client reads lines of JSON: {"way": "ucp" or
"sockets", "test": a name in TESTS, ...}, does the test with the server and prints
{"value": x}. Both keep their connections. What is to be done next, the client
tells the server by a socket of its own.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import ucp

MIB = 1 << 20
HIGH = 4 * MIB  # bytes that a reader of asyncio may hold

Order = dict[str, Any]


class Ucp:
    """An endpoint of ucp."""

    def __init__(self, ep: Any) -> None:
        self.ep = ep
        self.send, self.recv, self.close = ep.send, ep.recv, ep.close

    async def send_all(self, size: int, count: int) -> None:
        buffers = [bytes(size)] * min(1000, count)
        for _ in range(count // len(buffers)):
            await self.ep.send_many(buffers)

    async def recv_all(self, size: int, count: int) -> None:
        buffers = [bytearray(size) for _ in range(min(1000, count))]
        for _ in range(count // len(buffers)):
            await self.ep.recv_many(buffers)

    async def write(self, data: bytes) -> None:
        await self.ep.stream_send(data)

    async def read(self, buffer: bytearray) -> int:
        return int(await self.ep.stream_recv(buffer))

    async def send_frames(self, frames: list[bytes]) -> None:
        await self.ep.send_frames(frames)

    async def recv_frames(self, sizes: list[int]) -> None:
        await self.ep.recv_frames()


class Sockets:
    """A connection by asyncio's streams."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader, self.writer = reader, writer
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def send(self, data: bytes | bytearray) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def recv(self, buffer: bytearray) -> None:
        await self.reader.readexactly(len(buffer))

    async def send_all(self, size: int, count: int) -> None:
        buffers = [bytes(size)] * min(1000, count)
        for _ in range(count // len(buffers)):
            self.writer.writelines(buffers)
            await self.writer.drain()

    async def recv_all(self, size: int, count: int) -> None:
        await self.reader.readexactly(size * count)

    write = send

    async def read(self, buffer: bytearray) -> int:
        return len(await self.reader.read(len(buffer)))

    async def send_frames(self, frames: list[bytes]) -> None:
        self.writer.writelines(frames)
        await self.writer.drain()

    async def recv_frames(self, sizes: list[int]) -> None:
        for size in sizes:
            await self.reader.readexactly(size)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


Way = Ucp | Sockets


# --- tests: what the server and what the client does --------------------------


async def answer(way: Way, order: Order) -> None:
    buffer = bytearray(order["size"])
    for _ in range(order["n"]):
        await way.recv(buffer)
        await way.send(buffer)


async def ping(way: Way, order: Order) -> float:
    """Median round trip in ms."""
    buffer, times = bytearray(order["size"]), []
    for _ in range(order["n"]):
        start = time.perf_counter()
        await way.send(buffer)
        await way.recv(buffer)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


async def take_bulk(way: Way, order: Order) -> None:
    async def one() -> None:
        buffer = bytearray(order["size"])
        for _ in range(order["n"]):
            await way.recv(buffer)

    if isinstance(way, Sockets):
        buffer = bytearray(order["size"])
        for _ in range(order["n"] * order["window"]):
            await way.recv(buffer)
    else:
        await asyncio.gather(*(one() for _ in range(order["window"])))
    await way.send(b"k")


async def bulk(way: Way, order: Order) -> float:
    """MB/s of `window` tasks that send `n` messages each."""
    data = bytes(order["size"])

    async def one() -> None:
        for _ in range(order["n"]):
            await way.send(data)

    start = time.perf_counter()
    if isinstance(way, Sockets):
        for _ in range(order["window"]):
            await one()
    else:
        await asyncio.gather(*(one() for _ in range(order["window"])))
    await way.recv(bytearray(1))
    total = order["n"] * order["window"] * order["size"]
    return total / 1e6 / (time.perf_counter() - start)


async def take_many(way: Way, order: Order) -> None:
    await way.recv_all(order["size"], order["n"])
    await way.send(b"k")


async def many(way: Way, order: Order) -> float:
    """Thousands of messages a second."""
    start = time.perf_counter()
    await way.send_all(order["size"], order["n"])
    await way.recv(bytearray(1))
    return order["n"] / 1e3 / (time.perf_counter() - start)


async def take_stream(way: Way, order: Order) -> None:
    left, buffer = order["n"] * order["size"], bytearray(MIB)
    while left:
        left -= await way.read(memoryview(buffer)[: min(MIB, left)])  # type: ignore[arg-type]
    await way.send(b"k")


async def stream(way: Way, order: Order) -> float:
    data, start = bytes(order["size"]), time.perf_counter()
    for _ in range(order["n"]):
        await way.write(data)
    await way.recv(bytearray(1))
    return order["n"] * order["size"] / 1e6 / (time.perf_counter() - start)


async def take_frames(way: Way, order: Order) -> None:
    for _ in range(order["n"]):
        await way.recv_frames([order["size"]] * 4)
    await way.send(b"k")


async def frames(way: Way, order: Order) -> float:
    """MB/s of messages of four frames."""
    parts, start = [bytes(order["size"])] * 4, time.perf_counter()
    for _ in range(order["n"]):
        await way.send_frames(parts)
    await way.recv(bytearray(1))
    return order["n"] * 4 * order["size"] / 1e6 / (time.perf_counter() - start)


async def keep_memory(way: Way, order: Order) -> None:
    """What the client puts, gets and adds to; by sockets a program that does so."""
    if isinstance(way, Ucp):
        with ucp.Memory.allocate(order["size"] + 8) as memory:
            await way.ep.send_obj(memory.key)
            await way.recv(bytearray(1))
        return
    size, what = order["size"], order["what"]
    data = bytearray(size)
    for _ in range(order["n"]):
        await way.recv(data if what == "put" else bytearray(8))
        await way.send(data if what == "get" else bytes(8))


async def memory(way: Way, order: Order) -> float:
    """MB/s of puts or gets one after the other; ms of one fetch_add."""
    size, what, n = order["size"], order["what"], order["n"]
    data, start = bytearray(size), time.perf_counter()
    if isinstance(way, Ucp):
        remote = way.ep.remote(bytes(await way.ep.recv_obj()))
        does: dict[str, Callable[[], Awaitable[Any]]] = {
            "put": lambda: remote.put(data),
            "get": lambda: remote.get(data),
            "fetch_add": lambda: remote.fetch_add(0, 1),
        }
        start = time.perf_counter()
        for _ in range(n):
            await does[what]()
        seconds = time.perf_counter() - start
        await way.send(b"d")
    else:
        for _ in range(n):
            await way.send(data if what == "put" else bytes(8))
            await way.recv(data if what == "get" else bytearray(8))
        seconds = time.perf_counter() - start
    return 1e3 * seconds / n if what == "fetch_add" else n * size / 1e6 / seconds


async def exchange(way: Way, order: Order, comm: Any) -> float:
    """Milliseconds of an allgather of two ranks; by sockets both send and receive."""
    data, both = bytes(order["size"]), bytearray(2 * order["size"])
    await way.send(b"s")
    await way.recv(bytearray(1))
    start = time.perf_counter()
    for _ in range(order["n"]):
        if isinstance(way, Ucp):
            await comm.allgather(data, both)
        else:
            await asyncio.gather(way.send(data), way.recv(bytearray(len(data))))
    return 1e3 * (time.perf_counter() - start) / order["n"]


TESTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "ping": (answer, ping),
    "bulk": (take_bulk, bulk),
    "many": (take_many, many),
    "stream": (take_stream, stream),
    "frames": (take_frames, frames),
    "memory": (keep_memory, memory),
}


# --- several connections at a time --------------------------------------------


async def sink(way: Way, order: Order, counts: list[int], index: int) -> None:
    """Read messages of `size` bytes until the connection ends."""
    buffer = bytearray(order["size"])
    while True:
        await way.recv(buffer)
        counts[index] += len(buffer)


async def echo(way: Way) -> None:
    buffer = bytearray(8)
    while True:
        await way.recv(buffer)
        await way.send(buffer)


def quiet(task: asyncio.Task[Any]) -> None:
    """The end of a connection is how these tasks end."""
    if not task.cancelled():
        task.exception()


class Senders:
    """Tasks that send messages of some sizes as fast as they go."""

    def __init__(self, ways: list[Way], sizes: list[int], tasks: int) -> None:
        self.tasks = [
            asyncio.create_task(self.send(way, size))
            for way, size in zip(ways, sizes, strict=True)
            for _ in range(1 if isinstance(way, Sockets) else tasks)
        ]

    async def send(self, way: Way, size: int) -> None:
        data = bytes(size)
        while True:
            await way.send(data)

    def stop(self) -> None:
        for task in self.tasks:
            task.add_done_callback(quiet)
            task.cancel()


class Server:
    """Does what the orders say; a connection begins with eight bytes, its number."""

    def __init__(self) -> None:
        self.ways: dict[int, Way] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        self.counts: list[int] = []
        self.comm: Any = None

    async def take(self, way: Way) -> None:
        number = bytearray(8)
        if isinstance(way, Sockets):
            number[:] = await way.reader.readexactly(8)
        else:
            await way.recv(number)
        self.ways[int.from_bytes(number, "little")] = way
        await way.send(number)

    async def run(self, order: Order) -> Any:
        ways = [self.ways[number] for number in order.get("numbers", [])]
        match order["test"]:
            case "join":
                self.comm = await ucp.Communicator.connect(
                    (order["host"], order["comm_port"]), rank=0, size=2
                )
            case "exchange":
                await exchange(ways[0], order, self.comm)
            case "sink":
                self.counts = [0] * len(ways)
                for index, way in enumerate(ways):
                    sized = order | {"size": order["sizes"][index]}
                    job = sink(way, sized, self.counts, index)
                    self.tasks.append(asyncio.create_task(job))
            case "echo":
                self.tasks.append(asyncio.create_task(echo(ways[0])))
            case "counts":
                return list(self.counts)
            case "end":
                for task in self.tasks:
                    task.add_done_callback(quiet)
                    task.cancel()
                self.tasks.clear()
            case test:
                await TESTS[test][0](ways[0], order)
        return None

    async def orders(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while line := await reader.readline():
            answer = await self.run(json.loads(line))
            writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    async def main(self, host: str) -> None:
        async def accepted(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await self.take(Sockets(reader, writer))

        listener = ucp.create_listener(lambda ep: self.take(Ucp(ep)), host=host)
        by_sockets = await asyncio.start_server(accepted, host, 0, limit=HIGH)
        control = await asyncio.start_server(self.orders, host, 0)
        ports = [server.sockets[0].getsockname()[1] for server in (by_sockets, control)]
        print(json.dumps({"port": [listener.port, *ports]}), flush=True)
        await asyncio.Event().wait()


class Client:
    def __init__(self, host: str, ports: list[int]) -> None:
        self.host = host
        self.ports = dict(zip(("ucp", "sockets", "control"), ports, strict=True))
        self.number = 0
        self.kept: dict[str, tuple[int, Way]] = {}
        self.comm: Any = None

    async def connect(self, name: str) -> tuple[int, Way]:
        way: Way
        if name == "ucp":
            way = Ucp(await ucp.create_endpoint(self.host, self.ports[name]))
        else:
            ends = await asyncio.open_connection(
                self.host, self.ports[name], limit=HIGH
            )
            way = Sockets(*ends)
        self.number += 1
        await way.send(self.number.to_bytes(8, "little"))
        await way.recv(bytearray(8))
        return self.number, way

    async def kept_way(self, name: str) -> tuple[int, Way]:
        if name not in self.kept:
            self.kept[name] = await self.connect(name)
        return self.kept[name]

    def say(self, order: Order) -> None:
        self.writer.write(json.dumps(order).encode() + b"\n")

    async def heard(self) -> Any:
        return json.loads(await self.reader.readline())

    async def ask(self, order: Order) -> Any:
        self.say(order)
        return await self.heard()

    async def connects(self, name: str, count: int) -> float:
        """Milliseconds of a connection that is made and used once."""
        times = []
        for _ in range(count):
            start = time.perf_counter()
            _number, way = await self.connect(name)
            times.append(time.perf_counter() - start)
            await way.close()
        return 1e3 * statistics.median(times)

    async def exchanges(self, order: Order) -> float:
        number, way = await self.kept_way(order["way"])
        if self.comm is None and order["way"] == "ucp":
            self.say(order | {"test": "join", "host": self.host})
            self.comm = await ucp.Communicator.connect(
                (self.host, order["comm_port"]), rank=1, size=2
            )
            await self.heard()
        self.say(order | {"numbers": [number]})
        value = await exchange(way, order, self.comm)
        await self.heard()
        return value

    async def beside(self, order: Order) -> float:
        """Median round trip of 8 bytes in ms while another connection is full."""
        (asked, one), (filled, other) = [
            await self.connect(order["way"]) for _ in range(2)
        ]
        sink = {"test": "sink", "numbers": [filled], "sizes": [order["size"]]}
        await self.ask(sink)
        await self.ask({"test": "echo", "numbers": [asked]})
        senders = Senders([other], [order["size"]], order["window"])
        await asyncio.sleep(order["seconds"] / 4)
        times, end = [], time.perf_counter() + order["seconds"]
        while time.perf_counter() < end or not times:
            start = time.perf_counter()
            await one.send(bytearray(8))
            await one.recv(bytearray(8))
            times.append(time.perf_counter() - start)
            await asyncio.sleep(0.002)
        await self.end(senders, [one, other])
        return 1e3 * statistics.median(times)

    async def fairness(self, order: Order) -> float:
        """What the fastest of three senders gets over what the slowest gets."""
        pairs = [await self.connect(order["way"]) for _ in order["sizes"]]
        numbers, ways = [p[0] for p in pairs], [p[1] for p in pairs]
        sink = {"test": "sink", "numbers": numbers, "sizes": order["sizes"]}
        await self.ask(sink)
        senders = Senders(ways, order["sizes"], 1)
        await asyncio.sleep(order["seconds"] / 2)
        before = await self.ask({"test": "counts"})
        await asyncio.sleep(2 * order["seconds"])
        after = await self.ask({"test": "counts"})
        await self.end(senders, ways)
        got = [a - b for a, b in zip(after, before, strict=True)]
        return max(got) / max(min(got), 1)

    async def end(self, senders: Senders, ways: list[Way]) -> None:
        senders.stop()
        await self.ask({"test": "end"})
        for way in ways:
            if isinstance(way, Ucp):
                way.ep.abort()
            else:
                way.writer.transport.abort()

    async def value(self, order: Order) -> float:
        match order["test"]:
            case "connect":
                return await self.connects(order["way"], order["n"])
            case "exchange":
                return await self.exchanges(order)
            case "beside":
                return await self.beside(order)
            case "fairness":
                return await self.fairness(order)
        number, way = await self.kept_way(order["way"])
        self.say(order | {"numbers": [number]})
        value = float(await TESTS[order["test"]][1](way, order))
        await self.heard()
        return value

    async def main(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(
            self.host, self.ports["control"]
        )
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            value = await self.value(json.loads(line))
            print(json.dumps({"value": value}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        asyncio.run(Server().main(sys.argv[2]))
    else:
        asyncio.run(Client(sys.argv[2], json.loads(sys.argv[3])).main())
