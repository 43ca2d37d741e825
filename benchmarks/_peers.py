# SPDX-License-Identifier: BSD-3-Clause
"""Program of one benchmark process: `_peers.py server|client SPEC`.

SPEC is JSON: `peer` (a key of PEERS), `test`, `n`, `warmup`, `size`, `window`
and, for a client, `port`. A server prints {"port": N}; a client prints
{"value": x}: seconds of a half round trip, or bytes, messages or connections a
second. Both sides know every count beforehand, so nothing but the messages
that are measured crosses the connection; streams end with an 8-byte answer.
"""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

ACK = 8


def emit(**values: Any) -> None:
    """Tell the parent something: one JSON object on one line."""
    print(json.dumps(values), flush=True)


def filled(size: int) -> bytearray:
    """A buffer whose pages exist: reading untouched ones would be too fast."""
    return bytearray(b"\x01") * size


def rate_of(test: str, spec: dict[str, Any], seconds: float) -> float:
    """The result of a run that moved spec["n"] messages in `seconds`."""
    if test == "latency":
        return seconds / spec["n"] / 2
    if test == "bandwidth":
        return spec["n"] * spec["size"] / seconds
    return spec["n"] / seconds


# --- peers that are awaited: an endpoint with send and recv -------------------


class Peer:
    """Base of the awaited peers; a subclass makes listeners and endpoints."""

    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec

    # Methods that differ between libraries.

    async def listen(self, handler: Callable[[Any], Awaitable[None]]) -> int:
        """Call `handler` with each accepted endpoint; return the port."""
        raise NotImplementedError

    async def connect(self, port: int) -> Any:
        raise NotImplementedError

    async def close(self, ep: Any) -> None:
        await ep.close()

    def started(self, operation: Any) -> Any:
        """Put an operation in flight without awaiting it."""
        return asyncio.ensure_future(operation)

    async def send_many(self, ep: Any, buffers: Sequence[bytearray]) -> None:
        await asyncio.gather(*[ep.send(buffer) for buffer in buffers])

    async def recv_many(self, ep: Any, buffers: Sequence[bytearray]) -> None:
        await asyncio.gather(*[ep.recv(buffer) for buffer in buffers])

    # The tests, the same for all.

    async def window(
        self, post: Callable[[bytearray], Any], buffer: bytearray, count: int
    ) -> None:
        """`count` operations with at most spec["window"] in flight."""
        pending: deque[Any] = deque()
        for _ in range(count):
            if len(pending) == self.spec["window"]:
                await pending.popleft()
            pending.append(self.started(post(buffer)))
        while pending:
            await pending.popleft()

    async def ping(self, ep: Any, count: int, first: bool) -> None:
        out, into = filled(self.spec["size"]), filled(self.spec["size"])
        send, recv = ep.send, ep.recv
        if first:
            for _ in range(count):
                await send(out)
                await recv(into)
        else:
            for _ in range(count):
                await recv(into)
                await send(out)

    async def stream(self, ep: Any, count: int, sender: bool) -> None:
        data, ack = filled(self.spec["size"]), filled(ACK)
        if self.spec["test"] == "bandwidth":
            await self.window(ep.send if sender else ep.recv, data, count)
        else:
            many = self.send_many if sender else self.recv_many
            buffers = [data] * self.spec["window"]
            for _ in range(count // self.spec["window"]):
                await many(ep, buffers)
        await (ep.recv(ack) if sender else ep.send(ack))

    async def transfer(self, ep: Any, count: int, client: bool) -> None:
        test = self.ping if self.spec["test"] == "latency" else self.stream
        await test(ep, count, client)

    async def reconnect(self, port: int, count: int) -> None:
        for _ in range(count):
            await self.close(await self.connect(port))

    async def serve(self) -> None:
        held: list[Any] = []  # accepted endpoints stay alive while idle

        async def handler(ep: Any) -> None:
            if self.spec["test"] == "hold":
                held.append((ep, self.started(ep.recv(filled(ACK)))))
                return
            if self.spec["test"] != "connect":
                await self.transfer(ep, self.spec["warmup"], False)
                await self.transfer(ep, self.spec["n"], False)

        emit(port=await self.listen(handler))
        await asyncio.Event().wait()  # the parent ends this process

    async def run_client(self) -> None:
        port, warmup, n = (self.spec[key] for key in ("port", "warmup", "n"))
        if self.spec["test"] == "connect":
            await self.reconnect(port, warmup)
            start = time.perf_counter()
            await self.reconnect(port, n)
            seconds = time.perf_counter() - start
        elif self.spec["test"] == "hold":
            return await self.hold(port, n)
        else:
            ep = await self.connect(port)
            await self.transfer(ep, warmup, True)
            start = time.perf_counter()
            await self.transfer(ep, n, True)
            seconds = time.perf_counter() - start
        emit(value=rate_of(self.spec["test"], self.spec, seconds))

    async def hold(self, port: int, count: int) -> None:
        """Open `count` endpoints with a receive posted on each; then idle."""
        held = []
        for _ in range(count):
            ep = await self.connect(port)
            held.append((ep, self.started(ep.recv(filled(ACK)))))
        emit(held=len(held))
        await asyncio.Event().wait()

    def main(self, role: str) -> None:
        work = self.serve if role == "server" else self.run_client
        with asyncio.Runner(loop_factory=self.loop_factory) as runner:
            runner.run(work())


class Ucp(Peer):
    """ucp; spec["spin"] false turns spinning off."""

    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__(spec)
        import ucp

        self.ucp = ucp
        if not spec.get("spin", True):
            ucp.init(config=ucp.Config(spin=0))

    async def listen(self, handler: Callable[[Any], Awaitable[None]]) -> int:
        host = self.spec.get("host", "127.0.0.1")
        self.listener = self.ucp.create_listener(handler, port=0, host=host)
        return int(self.listener.port)

    async def connect(self, port: int) -> Any:
        host = self.spec.get("host", "127.0.0.1")
        return await self.ucp.create_endpoint(host, port)

    def started(self, operation: Any) -> Any:
        return operation  # in flight since the call

    async def send_many(self, ep: Any, buffers: Sequence[bytearray]) -> None:
        await ep.send_many(buffers)

    async def recv_many(self, ep: Any, buffers: Sequence[bytearray]) -> None:
        await ep.recv_many(buffers)


class StreamEnd:
    """An endpoint's byte stream, with the names of its messages."""

    def __init__(self, ep: Any) -> None:
        self.close = ep.close
        self.send = ep.stream_send
        self.recv = functools.partial(ep.stream_recv, wait_all=True)


class UcpStream(Ucp):
    """ucp's byte stream; a receive waits until its buffer is full."""

    async def listen(self, handler: Callable[[Any], Awaitable[None]]) -> int:
        return await super().listen(lambda ep: handler(StreamEnd(ep)))

    async def connect(self, port: int) -> Any:
        return StreamEnd(await super().connect(port))

    async def ping(self, ep: Any, count: int, first: bool) -> None:
        out, into = filled(self.spec["size"]), filled(self.spec["size"])
        send, recv = ep.send, ep.recv.func
        if first:
            for _ in range(count):
                await send(out)
                await recv(into, wait_all=True)
        else:
            for _ in range(count):
                await recv(into, wait_all=True)
                await send(out)


class UcpAm(Ucp):
    """ucp's active messages; each receive makes a bytearray."""

    async def ping(self, ep: Any, count: int, first: bool) -> None:
        out = filled(self.spec["size"])
        send, recv = ep.am_send, ep.am_recv
        if first:
            for _ in range(count):
                await send(out)
                await recv()
        else:
            for _ in range(count):
                await recv()
                await send(out)


class UcpTags(Ucp):
    """ucp with UCX's own tags, matched by the worker."""

    async def ping(self, ep: Any, count: int, first: bool) -> None:
        out, into = filled(self.spec["size"]), filled(self.spec["size"])
        send, recv = ep.worker.send, ep.worker.recv
        if first:
            for _ in range(count):
                await send(ep, out, 1)
                await recv(into, 1)
        else:
            for _ in range(count):
                await recv(into, 1)
                await send(ep, out, 1)


class Ucxx(Peer):
    """ucxx; spec["mode"] is its progress mode, "+future" adds its notifier."""

    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__(spec)
        import numpy
        import ucxx

        self.ucxx, self.numpy = ucxx, numpy

    def init(self) -> None:
        mode, _, future = self.spec.get("mode", "blocking").partition("+")
        self.ucxx.init(progress_mode=mode, enable_python_future=bool(future))

    async def listen(self, handler: Callable[[Any], Awaitable[None]]) -> int:
        self.init()
        self.listener = self.ucxx.create_listener(handler)
        return int(self.listener.port)

    async def connect(self, port: int) -> Any:
        if not hasattr(self, "_ready"):
            self.init()
            self._ready = True
        return await self.ucxx.create_endpoint("127.0.0.1", port)


class Streams(Peer):
    """asyncio streams; a receive is readexactly, its bytes are dropped."""

    class Endpoint:
        def __init__(
            self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            self.reader, self.writer = reader, writer

        async def send(self, buffer: bytearray) -> None:
            self.writer.write(buffer)
            await self.writer.drain()

        async def recv(self, buffer: bytearray) -> bytes:
            return await self.reader.readexactly(len(buffer))

        async def close(self) -> None:
            self.writer.close()
            await self.writer.wait_closed()

    async def listen(self, handler: Callable[[Any], Awaitable[None]]) -> int:
        async def accepted(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await handler(self.Endpoint(reader, writer))
            if self.spec["test"] == "connect":
                await reader.read(1)
                writer.close()

        self.server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        return int(self.server.sockets[0].getsockname()[1])

    async def connect(self, port: int) -> Any:
        return self.Endpoint(*await asyncio.open_connection("127.0.0.1", port))

    async def window(
        self, post: Callable[[bytearray], Any], buffer: bytearray, count: int
    ) -> None:
        for _ in range(count):  # the transport's buffer is the window
            await post(buffer)

    async def send_many(self, ep: Any, buffers: Sequence[bytearray]) -> None:
        for buffer in buffers:
            ep.writer.write(buffer)
        await ep.writer.drain()

    async def recv_many(self, ep: Any, buffers: Sequence[bytearray]) -> None:
        for buffer in buffers:
            await ep.recv(buffer)


def with_uvloop(peer: type[Any]) -> type[Any]:
    """Return a class of the same peer that runs on uvloop."""

    def factory() -> asyncio.AbstractEventLoop:
        import uvloop

        return uvloop.new_event_loop()

    name = f"{peer.__name__}Uvloop"
    return type(name, (peer,), {"loop_factory": staticmethod(factory)})


# --- a bare protocol: callbacks, no await -------------------------------------


class Counter(asyncio.BufferedProtocol):
    """Reads into one buffer and calls `on_message` for every `size` bytes."""

    def __init__(self, test: Protocol) -> None:
        self.test, self.got, self.writable = test, 0, asyncio.Event()
        self.buffer = filled(max(test.spec["size"], 65536))
        self.view = memoryview(self.buffer)
        self.writable.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        self.got += nbytes
        if self.got >= self.test.target:
            self.got -= self.test.target
            self.test.on_message(self)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


class Protocol:
    """A bare BufferedProtocol: what an event loop can do at most.

    `target` is how many bytes make `on_message` run: one message in a
    ping-pong, a whole phase (or its 8-byte answer) in a stream.
    """

    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.data = spec, filled(spec["size"])
        self.ping = spec["test"] == "latency"
        self.phases = [spec["warmup"], spec["n"]]
        self.left = 0

    def start_phase(self, client: bool) -> None:
        self.left = self.phases.pop(0)
        if self.ping:
            self.target = self.spec["size"]
        else:
            self.target = ACK if client else self.left * self.spec["size"]

    def on_message(self, conn: Counter) -> None:
        """Count one message of a ping-pong, or the end of a stream."""
        self.left -= 1
        if self.serving:
            conn.transport.write(self.data if self.ping else b"\x01" * ACK)
        elif self.ping and self.left:
            conn.transport.write(self.data)
        if self.left == 0 or not self.ping:
            self.done.set()
            if self.serving and self.phases:
                self.start_phase(False)

    async def phase(self, conn: Counter) -> float:
        """Client: run one phase, return how long it took."""
        self.done.clear()
        self.start_phase(True)
        start = time.perf_counter()
        if self.ping:
            conn.transport.write(self.data)
        else:
            for _ in range(self.left):
                conn.transport.write(self.data)
                if not conn.writable.is_set():
                    await conn.writable.wait()
        await self.done.wait()
        return time.perf_counter() - start

    async def serve(self) -> None:
        self.serving, self.done = True, asyncio.Event()
        if self.spec["test"] != "connect":
            self.start_phase(False)
        else:
            self.target = 1
        server = await asyncio.get_running_loop().create_server(
            lambda: Counter(self), "127.0.0.1", 0
        )
        emit(port=server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    async def run_client(self) -> None:
        self.serving, self.done = False, asyncio.Event()
        loop, port = asyncio.get_running_loop(), self.spec["port"]
        _, conn = await loop.create_connection(lambda: Counter(self), "127.0.0.1", port)
        await self.phase(conn)
        seconds = await self.phase(conn)
        emit(value=rate_of(self.spec["test"], self.spec, seconds))

    main = Peer.main


# --- blocking sockets ---------------------------------------------------------


class Sockets:
    """Blocking sockets from Python: send and recv are system calls."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec

    def recv_exactly(self, sock: socket.socket, view: memoryview) -> None:
        got = 0
        while got < len(view):
            nbytes = sock.recv_into(view[got:] if got else view)
            if nbytes == 0:
                raise ConnectionError("the peer closed the connection")
            got += nbytes

    def transfer(self, sock: socket.socket, count: int, client: bool) -> None:
        out = filled(self.spec["size"])
        into, ack = memoryview(filled(len(out))), memoryview(filled(ACK))
        if self.spec["test"] == "latency":
            for turn in range(2 * count):
                if (turn % 2 == 0) == client:
                    sock.sendall(out)
                else:
                    self.recv_exactly(sock, into)
        elif client:
            for _ in range(count):
                sock.sendall(out)
            self.recv_exactly(sock, ack)
        else:
            for _ in range(count):
                self.recv_exactly(sock, into)
            sock.sendall(ack)

    def reconnect(self, count: int) -> None:
        for _ in range(count):
            socket.create_connection(("127.0.0.1", self.spec["port"])).close()

    def serve(self) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
            emit(port=server.getsockname()[1])
            while True:
                sock, _ = server.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with sock:
                    if self.spec["test"] != "connect":
                        self.transfer(sock, self.spec["warmup"], False)
                        self.transfer(sock, self.spec["n"], False)

    def run_client(self) -> None:
        if self.spec["test"] == "connect":
            work: Callable[[int], None] = self.reconnect
        else:
            sock = socket.create_connection(("127.0.0.1", self.spec["port"]))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def work(count: int) -> None:
                self.transfer(sock, count, True)

        work(self.spec["warmup"])
        start = time.perf_counter()
        work(self.spec["n"])
        seconds = time.perf_counter() - start
        emit(value=rate_of(self.spec["test"], self.spec, seconds))

    def main(self, role: str) -> None:
        self.serve() if role == "server" else self.run_client()


PEERS: dict[str, type[Any]] = {
    "ucp": Ucp,
    "ucp-uvloop": with_uvloop(Ucp),
    "ucp-stream": UcpStream,
    "ucp-tags": UcpTags,
    "ucp-am": UcpAm,
    "ucxx": Ucxx,
    "streams": Streams,
    "streams-uvloop": with_uvloop(Streams),
    "protocol": Protocol,
    "protocol-uvloop": with_uvloop(Protocol),
    "sockets": Sockets,
}


if __name__ == "__main__":
    spec = json.loads(sys.argv[2])
    PEERS[spec["peer"]](spec).main(sys.argv[1])
