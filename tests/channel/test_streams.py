# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/stream ucp/stream
"""The byte stream of an endpoint, and asyncio's streams on it."""

import asyncio
import gc
import random

import numpy as np
import pytest
from conftest import TLS
from hypothesis import given, settings
from hypothesis import strategies as st
from objects import kept_objects

import ucp
from ucp.testing import connected_pair, live_objects, until

pytestmark = pytest.mark.usefixtures("transport")

_KIB = 1024
_MIB = 1024 * _KIB

# Around the switches between protocols, and between one piece and several.
SIZES = [
    *(1, 64, 8 * _KIB, 64 * _KIB - 1, 64 * _KIB, 64 * _KIB + 1),
    *(512 * _KIB - 1, 512 * _KIB, _MIB - 1, _MIB, _MIB + 1, 5 * _MIB + 3),
]

DATA = random.Random(1).randbytes(6 * _MIB)


async def read_exactly(ep, count):
    buffer = bytearray(count)
    assert await ep.stream_recv(buffer, wait_all=True) == count
    return buffer


async def cancelled(task):
    """Wait for ``task``, which is cancelled."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ---- stream_send and stream_recv ----


async def test_bytes_of_every_size_arrive(connect_peer):
    peer, ep = await connect_peer()
    echo = peer.begin(
        f"for size in {SIZES}:\n"
        "    data = np.empty(size, dtype='u1')\n"
        "    assert await ep.stream_recv(data, wait_all=True) == size\n"
        "    await ep.stream_send(data)\n"
    )
    for size in SIZES:
        await ep.stream_send(DATA[:size])
        assert await read_exactly(ep, size) == DATA[:size]
    await peer.result(echo)


async def test_boundaries_are_not_kept():
    async with connected_pair() as (client, server):
        for part in (b"ab", b"", b"cde", b"f"):
            await client.stream_send(part)
        await client.ping()
        buffer = bytearray(100)
        assert await server.stream_recv(buffer) == 6
        assert buffer[:6] == b"abcdef"


@pytest.mark.parametrize("size", [1000, 64 * _KIB, 5 * _MIB])
async def test_a_long_send_can_be_received_in_small_parts(size):
    async with connected_pair() as (client, server):
        sent = client.stream_send(DATA[:size])
        received = bytearray()
        buffer = bytearray(size // 7)
        while len(received) < size:
            received += buffer[: await server.stream_recv(buffer)]
        assert received == DATA[:size]
        await sent


async def test_an_empty_buffer_receives_nothing():
    async with connected_pair() as (client, server):
        await client.stream_send(b"x")
        assert await server.stream_recv(bytearray()) == 0
        assert await read_exactly(server, 1) == b"x"


async def test_messages_and_stream_do_not_mix():
    async with connected_pair() as (client, server):
        await client.stream_send(b"stream")
        await client.send(b"message")
        await client.channel(1).send(b"channel")
        assert await server.channel(1).recv_obj() == b"channel"
        assert await server.recv_obj() == b"message"
        assert await read_exactly(server, 6) == b"stream"


async def test_a_reader_that_is_slow_stops_the_sender(transport):
    ucp.reset()
    ucp.init(TLS[transport], config=ucp.Config(credit_messages=8, credit_rndv=2))
    async with connected_pair() as (client, server):
        sends = [client.stream_send(DATA[:1000]) for _ in range(100)]
        await client.ping()
        assert not sends[-1].done()
        # 8 short ones, 2 announced ones, and 2 of the stream's reserve
        assert server.statistics.unexpected_messages <= 12
        assert await read_exactly(server, 100_000) == DATA[:1000] * 100
        await asyncio.gather(*sends)


async def test_shutdown_ends_one_direction():
    async with connected_pair() as (client, server):
        await client.stream_send(b"last")
        client.stream_shutdown()
        client.stream_shutdown()
        buffer = bytearray(100)
        assert await server.stream_recv(buffer, wait_all=True) == 4
        assert await server.stream_recv(buffer) == 0
        assert await server.stream_recv(buffer, wait_all=True) == 0
        with pytest.raises(ucp.UCXCloseError):
            await client.stream_send(b"more")
        await server.stream_send(b"back")
        assert await read_exactly(client, 4) == b"back"
        await client.send(b"message")
        assert await server.recv_obj() == b"message"


@pytest.mark.parametrize("size", [10, 64 * _KIB, 3 * _MIB])
async def test_a_closing_peer_is_the_end(connect_peer, size):
    peer, ep = await connect_peer()
    reading = ep.stream_recv(bytearray(1))
    await peer.do(
        f"await ep.stream_send(b'!'); sent = ep.stream_send(bytes({size}))\n"
        "closing = asyncio.ensure_future(ep.close())"
    )
    assert await reading == 1
    assert await read_exactly(ep, size) == bytes(size)
    assert await ep.stream_recv(bytearray(1)) == 0
    await peer.do("await closing; await sent")
    assert await ep.stream_recv(bytearray(1)) == 0
    with pytest.raises(ucp.UCXCloseError):
        await ep.stream_send(b"x")
    with pytest.raises(ucp.UCXCloseError):
        ep.stream_shutdown()


async def test_closing_here_ends_receives():
    async with connected_pair() as (client, _):
        request = client.stream_recv(bytearray(1))
        await client.close()
        with pytest.raises(ucp.UCXPeerClosed):
            await request
        with pytest.raises(ucp.UCXCloseError):
            await client.stream_recv(bytearray(1))


async def test_a_killed_peer_resets_the_stream(connect_peer):
    peer, ep = await connect_peer()
    await peer.do("await ep.stream_send(b'half')")
    await ep.ping()
    half = ep.stream_recv(bytearray(100), wait_all=True)
    peer.stop()
    send = ep.stream_send(np.zeros(16 * _MIB, dtype="u1"))
    peer.kill()
    for request in (half, send):
        with pytest.raises(ucp.UCXConnectionReset):
            await request
    assert await read_exactly(ep, 4) == b"half"  # bytes that came before are not lost
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.stream_recv(bytearray(1))
    with pytest.raises(ucp.UCXConnectionReset):
        ep.stream_shutdown()


@pytest.mark.parametrize("size", [10, 70 * _KIB, 2 * _MIB])
async def test_a_cancelled_receive_loses_nothing(connect_peer, size):
    peer, ep = await connect_peer()
    for wait_all in (False, True):
        task = asyncio.ensure_future(ep.stream_recv(bytearray(8), wait_all))
        await asyncio.sleep(0)
        await cancelled(task)
    task = asyncio.ensure_future(ep.stream_recv(bytearray(2 * size), wait_all=True))
    await asyncio.sleep(0)
    await peer.do(f"await ep.stream_send(bytes({size}))")
    await ep.ping()
    await cancelled(task)  # half filled
    await peer.do(f"sent = ep.stream_send(b'x' * {size})")
    assert await read_exactly(ep, 2 * size) == bytes(size) + b"x" * size
    await peer.do("await sent")


@pytest.mark.parametrize("size", [10, 2 * _MIB])
async def test_bytes_nobody_took_return_to_the_stream(size):
    async with connected_pair() as (client, server):
        sent = client.stream_send(DATA[:size])
        request = server.stream_recv(bytearray(size), wait_all=True)
        await until(request.done)
        request.close()
        assert await read_exactly(server, size) == DATA[:size]
        await sent


async def test_a_receive_cancelled_while_bytes_land(connect_peer):
    peer, ep = await connect_peer()
    for _ in range(10):
        await peer.do("data = np.arange(4 << 20, dtype='u1')")
        task = asyncio.ensure_future(
            ep.stream_recv(np.zeros(4 << 20, dtype="u1"), wait_all=True)
        )
        await asyncio.sleep(0)
        sent = peer.begin("await ep.stream_send(data)")
        await asyncio.sleep(random.random() * 0.003)
        if task.done():
            await task
        else:
            await cancelled(task)
            expected = np.arange(4 << 20, dtype="u1").tobytes()
            assert await read_exactly(ep, 4 << 20) == expected
        await peer.result(sent)


async def test_the_buffer_of_a_cancelled_receive_is_free(connect_peer):
    peer, ep = await connect_peer()
    for _ in range(20):
        await peer.do("data = np.arange(4 << 20, dtype='u1')")
        buffer = np.empty(4 << 20, dtype="u1")
        task = asyncio.ensure_future(ep.stream_recv(buffer, wait_all=True))
        await asyncio.sleep(0)
        sent = peer.begin("await ep.stream_send(data)")
        await asyncio.sleep(random.random() * 0.003)
        if task.done():
            await task
        else:
            await cancelled(task)
            buffer[:] = 0xDD
            expected = np.arange(4 << 20, dtype="u1").tobytes()
            assert await read_exactly(ep, 4 << 20) == expected
            assert (buffer == 0xDD).all()
        await peer.result(sent)


@pytest.mark.parametrize("size", [100, 70000, 4 << 20])
async def test_a_cancelled_send_arrives_as_it_was_or_never(size):
    for step in range(12):
        async with connected_pair() as (client, server):
            data = np.arange(size, dtype="u1")
            task = asyncio.ensure_future(client.stream_send(data))
            received = asyncio.ensure_future(read_to_end(server))
            for _ in range(step):
                await asyncio.sleep(0)
            is_sent = task.done()
            if not is_sent:
                await cancelled(task)
            data[:] = 0xDD
            client.stream_shutdown()
            expected = [np.arange(size, dtype="u1").tobytes()]
            assert await received in (expected if is_sent else [b"", *expected])


async def read_to_end(ep):
    received = bytearray()
    buffer = bytearray(1 << 20)
    while count := await ep.stream_recv(buffer):
        received += buffer[:count]
    return bytes(received)


async def test_buffers_that_do_not_fit_are_refused():
    async with connected_pair() as (client, _):
        with pytest.raises((TypeError, ValueError)):
            client.stream_recv(b"readonly")
        with pytest.raises(TypeError):
            client.stream_send("text")
        with pytest.raises(TypeError):
            client.stream_recv()


@settings(max_examples=25, deadline=None)
@given(
    writes=st.lists(
        st.sampled_from([0, 1, 100, 65535, 65536, 1 << 20, 1200000]), max_size=5
    ),
    reads=st.lists(
        st.tuples(
            st.sampled_from([1, 99, 40000, 65536, 300000, 1 << 20]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=20,
    ),
)
def test_any_program_reads_what_was_written(writes, reads):
    async def program():
        async with connected_pair() as (client, server):
            parts = [DATA[n : n + size] for n, size in enumerate(writes)]
            sends = [client.stream_send(part) for part in parts]
            client.stream_shutdown()
            received = bytearray()
            for size, wait_all, is_cancelled in reads:
                buffer = bytearray(size)
                request = server.stream_recv(buffer, wait_all)
                if is_cancelled:
                    request.close()
                else:
                    received += buffer[: await request]
            rest = bytearray(8 << 20)
            received += rest[: await server.stream_recv(rest, wait_all=True)]
            assert received == b"".join(parts)
            assert await server.stream_recv(rest) == 0
            await asyncio.gather(*sends)

    asyncio.run(program())


async def test_streams_leave_no_objects():
    async with connected_pair() as (client, server):
        gc.collect()
        before = kept_objects()
        for size in SIZES:
            sent = client.stream_send(DATA[:size])
            await read_exactly(server, size)
            await sent
        del sent
        await asyncio.sleep(0)  # the loop lets go of what has woken us
        gc.collect()
        assert live_objects() == before


# ---- asyncio's streams ----


async def stream_pair(client, server):
    return *ucp.open_streams(client), *ucp.open_streams(server)


async def test_code_written_for_asyncio_streams_runs(connect_peer, loop_factory):
    peer, ep = await connect_peer()
    echo = peer.begin(
        "reader, writer = ucp.open_streams(ep)\n"
        "while line := await reader.readline():\n"
        "    writer.write(line.upper())\n"
        "    await writer.drain()\n"
        "writer.close()\n"
        "await writer.wait_closed()\n"
    )
    reader, writer = ucp.open_streams(ep)
    for number in range(100):
        writer.write(b"line %d\n" % number)
        await writer.drain()
        assert await reader.readline() == b"LINE %d\n" % number
    writer.writelines([b"x" * 1000, b"\n"])
    assert await reader.readuntil(b"\n") == b"X" * 1000 + b"\n"
    assert writer.can_write_eof()
    writer.write_eof()
    assert await reader.read() == b""
    assert reader.at_eof()
    writer.close()
    await writer.wait_closed()
    await peer.result(echo)
    assert ep.closed()


async def test_bulk_goes_through_limits_both_ways():
    async with connected_pair() as (client, server):
        reader, writer, other_reader, other_writer = await stream_pair(client, server)

        async def send(writer):
            for at in range(0, len(DATA), 300_000):
                writer.write(DATA[at : at + 300_000])
                await writer.drain()
            writer.write_eof()

        got = await asyncio.gather(
            reader.read(), other_reader.read(), send(writer), send(other_writer)
        )
        assert got[:2] == [DATA, DATA]
        writer.close()
        other_writer.close()


async def test_a_reader_that_does_not_read_pauses():
    async with connected_pair() as (client, server):
        reader, writer, _, other_writer = await stream_pair(client, server)
        other_writer.transport.set_write_buffer_limits(high=1000)
        for _ in range(64):
            other_writer.write(DATA[:_MIB])
        draining = asyncio.ensure_future(other_writer.drain())
        await until(lambda: not writer.transport.is_reading())
        await client.ping()
        assert not draining.done()
        assert other_writer.transport.get_write_buffer_size() > 1000
        assert await reader.readexactly(64 * _MIB) == DATA[:_MIB] * 64
        await draining
        assert other_writer.transport.get_write_buffer_size() <= 250
        writer.close()
        other_writer.close()


async def test_paused_reading_leaves_bytes_in_the_stream():
    async with connected_pair() as (client, server):
        reader, writer = ucp.open_streams(client)
        transport = writer.transport
        transport.pause_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        await server.stream_send(b"later")
        await server.ping()
        await client.ping()
        assert not reader._buffer
        transport.resume_reading()
        transport.resume_reading()
        assert await reader.readexactly(5) == b"later"
        await server.stream_send(b"more")
        await client.ping()  # received, and not handed to the protocol yet
        transport.pause_reading()
        rest = bytes(reader._buffer)
        assert rest + await read_exactly(client, 4 - len(rest)) == b"more"
        writer.close()


async def test_written_buffers_may_be_reused_at_once():
    async with connected_pair() as (client, server):
        _, writer = ucp.open_streams(client)
        data = bytearray(DATA[:_MIB])
        writer.write(data)
        data[:] = bytes(len(data))
        assert await read_exactly(server, _MIB) == DATA[:_MIB]
        writer.write(memoryview(b"abc")[1:])
        assert await read_exactly(server, 2) == b"bc"
        writer.close()


async def test_what_was_written_arrives_after_close(connect_peer):
    peer, ep = await connect_peer()
    _, writer = ucp.open_streams(ep)
    for _ in range(3):
        writer.write(DATA[:_MIB])
    writer.close()
    writer.write(b"ignored")
    writer.close()
    assert writer.is_closing()
    reading = peer.begin(
        "reader, writer = ucp.open_streams(ep); data = await reader.read(); len(data)"
    )
    await writer.wait_closed()
    await peer.result(reading)
    assert await peer.do("len(data)") == 3 * _MIB


async def test_a_killed_peer_breaks_the_streams(connect_peer):
    peer, ep = await connect_peer()
    reader, writer = ucp.open_streams(ep)
    reading = asyncio.ensure_future(reader.read())
    peer.kill()
    with pytest.raises(ConnectionResetError):
        await reading
    assert writer.is_closing()
    writer.write(b"x")
    with pytest.raises(ConnectionResetError):
        await writer.drain()
    with pytest.raises(ConnectionResetError):
        await writer.wait_closed()


async def test_writing_to_a_closed_peer_is_a_broken_pipe(connect_peer):
    peer, ep = await connect_peer()
    reader, writer = ucp.open_streams(ep)
    await peer.do("await ep.close()")
    assert await reader.read() == b""
    writer.write(b"x")
    with pytest.raises(ConnectionError):
        await writer.drain()
        await writer.wait_closed()


async def test_closing_the_endpoint_closes_the_streams():
    async with connected_pair() as (client, _):
        reader, writer = ucp.open_streams(client)
        reading = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0)
        await client.close()
        assert await reading == b""
        await writer.wait_closed()
        assert writer.is_closing()


async def test_abort_ends_at_once():
    async with connected_pair() as (client, server):
        reader, writer = ucp.open_streams(client)
        writer.transport.abort()
        writer.transport.abort()
        assert await reader.read() == b""
        await writer.wait_closed()
        with pytest.raises(ucp.UCXConnectionReset):
            await server.stream_recv(bytearray(1))


async def test_the_transport_tells_of_itself():
    async with connected_pair() as (client, _):
        _, writer = ucp.open_streams(client)
        transport = writer.transport
        assert writer.get_extra_info("endpoint") is client
        assert writer.get_extra_info("peername") == client.peer_address
        assert writer.get_extra_info("sockname") == client.local_address
        assert writer.get_extra_info("socket") is None
        assert transport.get_write_buffer_limits() == (16384, 65536)
        transport.set_write_buffer_limits(low=100)
        assert transport.get_write_buffer_limits() == (100, 400)
        transport.set_write_buffer_limits()
        assert transport.get_write_buffer_limits() == (16384, 65536)
        with pytest.raises(ValueError, match=r"^high \(1\) must be >= low \(2\)"):
            transport.set_write_buffer_limits(1, 2)
        assert transport.get_protocol() is not None
        assert repr(transport) == f"<ucp.StreamTransport open of {client!r}>"
        with pytest.raises(TypeError, match=r"^data argument must be"):
            writer.write("text")
        writer.write_eof()
        writer.write_eof()
        with pytest.raises(
            RuntimeError, match=r"^Cannot call write\(\) after write_eof"
        ):
            writer.write(b"x")
        writer.close()
        assert repr(transport) == f"<ucp.StreamTransport closing of {client!r}>"


class Counter(asyncio.Protocol):
    """Counts calls; ends with the peer's end."""

    def __init__(self):
        self.data = b""
        self.calls = []

    def connection_made(self, transport):
        self.calls.append("made")

    def data_received(self, data):
        self.data += data

    def eof_received(self):
        self.calls.append("eof")

    def connection_lost(self, exc):
        self.calls.append(("lost", exc))


async def test_a_protocol_of_the_programs_own():
    async with connected_pair() as (client, server):
        protocol = Counter()
        ucp.StreamTransport(client, asyncio.get_running_loop(), protocol)
        await server.stream_send(b"data")
        server.stream_shutdown()
        await until(lambda: len(protocol.calls) == 3)
        assert protocol.calls == ["made", "eof", ("lost", None)]
        assert protocol.data == b"data"
        assert client.closed()


async def test_set_protocol_hands_the_stream_over():
    async with connected_pair() as (client, server):
        first, second = Counter(), Counter()
        transport = ucp.StreamTransport(client, asyncio.get_running_loop(), first)
        await server.stream_send(b"one")
        await until(lambda: first.data == b"one")
        transport.set_protocol(second)
        await server.stream_send(b"two")
        await until(lambda: second.data == b"two")
        transport.close()
