# SPDX-License-Identifier: BSD-3-Clause
"""Sockets whose other end is no peer, or one that means harm.

The listener drops them and serves the others; a connecting side says who it was
that it met.
"""

import asyncio
import contextlib
import ctypes
import errno
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from objects import kept_objects
from stranger import APART, Hello, Stranger, naming, of_kind
from users import ONE, as_user

import ucp
from ucp.testing import live_objects, until

pytestmark = pytest.mark.usefixtures("fresh_ucx")

TOKEN = b"a shared secret"
LENGTH, HEADER = 4, 8  # bytes in front of a message of the handshake, and of its body
LONGEST = 16 * 1024


class Server:
    """A listening socket without ucp; ``serve`` each connection, if need be to
    the end of the block."""

    async def __aenter__(self):
        self._tasks = set()
        self._server = await asyncio.start_server(self._run, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await self.serve(reader, writer)
        finally:
            writer.close()


class Relay(Server):
    """Between a connecting side and ``port``; keeps what each has said."""

    def __init__(self, port, chunk=1 << 16):
        self._target = port
        self._chunk = chunk
        self.said, self.answered = bytearray(), bytearray()

    async def serve(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection(
            "127.0.0.1", self._target
        )
        try:
            await asyncio.gather(
                self._pump(reader, far_writer, self.said),
                self._pump(far_reader, writer, self.answered),
            )
        finally:
            far_writer.close()

    async def _pump(self, source, target, record):
        while data := await source.read(self._chunk):
            record += data
            target.write(data)
            await target.drain()
            await asyncio.sleep(0)  # lets chunks be read one by one
        target.write_eof()


class Changing(Relay):
    """A relay that turns a bit around, ``at`` bytes into what ``who`` says."""

    def __init__(self, port, who, at):
        super().__init__(port)
        self._record = self.said if who == "client" else self.answered
        self._at = at

    async def _pump(self, source, target, record):
        while data := await source.read(1 << 16):
            at = self._at - len(record)
            record += data
            if record is self._record and 0 <= at < len(data):
                data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            target.write(data)
            await target.drain()
        target.write_eof()


class Answering(Server):
    """Says ``answer`` to whoever connects, and waits."""

    def __init__(self, answer):
        self._answer = answer

    async def serve(self, reader, writer):
        writer.write(self._answer)
        while await reader.read(1 << 16):
            pass


async def exchange(listener, relay):
    """A connection through ``relay``, and a word over it."""
    client = await ucp.create_endpoint("127.0.0.1", relay.port)
    server = await anext(listener)
    await client.send(b"x")
    assert await server.recv_obj() == b"x"
    await client.close()
    await server.close()


async def recording():
    """Return what both sides of a handshake say."""
    async with ucp.create_listener(host="127.0.0.1") as listener:
        async with Relay(listener.port) as relay:
            await exchange(listener, relay)
            return bytes(relay.said), bytes(relay.answered)


def first_message(data):
    return data[: LENGTH + int.from_bytes(data[:LENGTH], "little")]


async def say(port, data, *, is_end=False):
    """Say it to ``port``; what is answered until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        if is_end:
            writer.write_eof()
        answer = await reader.read()
    writer.close()
    return answer


async def check_serves(listener):
    """Check that the listener has accepted nobody so far, and goes on."""
    client = await ucp.create_endpoint("127.0.0.1", listener.port)
    server = await anext(listener)
    assert server.peer_address == client.local_address
    await client.send(b"fine")
    assert await server.recv_obj() == b"fine"
    client.abort()
    server.abort()


def with_token():
    ucp.init(config=ucp.Config(token=TOKEN))


# ---- replayed ----------------------------------------------------------------


async def test_a_recorded_handshake_is_refused_by_the_listener():
    with_token()
    said, _ = await recording()
    async with ucp.create_listener(host="127.0.0.1") as listener:
        assert b"the token is not ours" in await say(listener.port, said)
        await check_serves(listener)


async def test_a_recorded_handshake_is_refused_by_the_connecting_side():
    with_token()
    _, answered = await recording()
    async with Answering(answered) as server:
        with pytest.raises(ucp.UCXAuthError, match="does not know the token"):
            await ucp.create_endpoint("127.0.0.1", server.port)


async def test_without_a_token_a_dead_peer_that_comes_again_harms_nobody(connect_peer):
    async with ucp.create_listener(host="127.0.0.1") as listener:
        async with Relay(listener.port) as relay:
            peer, _ep = await connect_peer()
            here = f"await ucp.create_endpoint('127.0.0.1', {relay.port})"
            connecting = peer.begin(f"other = {here}")
            server = await anext(listener)
            await peer.result(connecting)
            said = bytes(relay.said)
            peer.kill()
        await until(server.closed)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(said)
        await reader.read(1)
        writer.close()
        client = await ucp.create_endpoint("127.0.0.1", listener.port)
        await client.send(b"fine")
        while (server := await anext(listener)).peer_address != client.local_address:
            server.abort()
        assert await server.recv_obj() == b"fine"
        client.abort()


# ---- changed on the way ------------------------------------------------------

# Where HELLO and WELCOME have them; with a token CHALLENGE comes before WELCOME.
CHANNELS = LENGTH + HEADER + 2 + 2 + 8 + 16 + 16
ENDPOINT = CHANNELS + 4 + 16 + 32
PID = ENDPOINT + 8
CHALLENGE = LENGTH + HEADER + 16
LIAR = "the listener is not the worker that it says it is"


@pytest.mark.parametrize("at", [CHANNELS, ENDPOINT, PID])
@pytest.mark.parametrize("has_token", [False, True], ids=["", "token"])
async def test_nobody_changes_what_a_connecting_side_says(at, has_token):
    if has_token:
        with_token()
    why = "the token is not ours" if has_token else LIAR
    async with ucp.create_listener(host="127.0.0.1") as listener:
        async with Changing(listener.port, "client", at) as relay:
            with pytest.raises(ucp.UCXAuthError, match=why):
                await ucp.create_endpoint("127.0.0.1", relay.port)
        await check_serves(listener)


@pytest.mark.parametrize("at", [CHANNELS, ENDPOINT, PID])
@pytest.mark.parametrize("has_token", [False, True], ids=["", "token"])
async def test_nobody_changes_what_a_listener_says(at, has_token):
    why = LIAR
    if has_token:
        with_token()
        at += CHALLENGE
        why = "the listener does not know the token"
    async with ucp.create_listener(host="127.0.0.1") as listener:
        async with Changing(listener.port, "listener", at) as relay:
            with pytest.raises(ucp.UCXAuthError, match=why):
                await ucp.create_endpoint("127.0.0.1", relay.port)
        await check_serves(listener)


# ---- cut, slow, oversized ----------------------------------------------------


async def test_a_handshake_cut_anywhere_is_dropped():
    said, _ = await recording()
    hello = first_message(said)
    async with ucp.create_listener(host="127.0.0.1") as listener:
        before = kept_objects()["endpoints"]
        for end in range(len(hello)):
            assert await say(listener.port, hello[:end], is_end=True) == b""
        await until(lambda: ucp.current_worker().statistics.endpoints == 0)
        assert live_objects()["endpoints"] == before
        await check_serves(listener)


async def test_a_handshake_byte_by_byte_succeeds():
    async with ucp.create_listener(host="127.0.0.1") as listener:
        async with Relay(listener.port, chunk=1) as relay:
            await exchange(listener, relay)


async def test_a_handshake_slower_than_its_deadline_is_dropped():
    said, _ = await recording()
    async with ucp.create_listener(host="127.0.0.1", connect_timeout=0.3) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        hung_up = asyncio.ensure_future(reader.read())
        for byte in said:
            writer.write(bytes([byte]))
            done, _ = await asyncio.wait([hung_up], timeout=0.05)
            if done:
                break
        with contextlib.suppress(ConnectionError):
            assert await hung_up == b""
        writer.close()
        await check_serves(listener)


@pytest.mark.parametrize(
    "data",
    [
        (LONGEST + 1).to_bytes(LENGTH, "little"),
        b"\xff" * LENGTH,
        LONGEST.to_bytes(LENGTH, "little") + bytes(LONGEST),
        bytes(LENGTH),
    ],
    ids=["longer than the longest", "4 GiB", "the longest, of zeros", "empty"],
)
async def test_a_message_of_an_impossible_length_is_dropped(data):
    async with ucp.create_listener(host="127.0.0.1") as listener:
        assert await say(listener.port, data) == b""
        assert ucp.current_worker().statistics.protocol_errors == 1
        await check_serves(listener)


async def test_a_damaged_worker_address_is_dropped():
    """UCX aborts the process over some of them."""
    said, _ = await recording()
    hello = len(first_message(said))
    async with ucp.create_listener(host="127.0.0.1") as listener:
        for at in range(hello - 40, hello):
            damaged = bytearray(said)
            damaged[at] ^= 0x81
            await say(listener.port, damaged)
        assert ucp.current_worker().statistics.protocol_errors == 40
        await check_serves(listener)


# ---- who speaks something else -----------------------------------------------

FOREIGN = [
    (b"HTTP/1.1 400 Bad Request\r\n", r"HTTP/1\.1 400 Bad Request\\x0d\\x0a"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", r"SSH-2\.0-OpenSSH_9\.2\\x0d\\x0a"),
    (b"\x10\x00\x00\x00\x00\x00\x00\x00", r"\\x10\\x00\\x00\\x00\\x00.*"),
    (b"\xff" * 40, r"(\\xff){32}'\.\.\."),
]


@pytest.mark.parametrize(("said", "shown"), FOREIGN, ids=["http", "ssh", "tcp", "long"])
async def test_a_server_of_another_kind_is_named_at_once(said, shown):
    async with Answering(said) as server:
        with pytest.raises(
            ucp.UCXProtocolError, match="not a ucp server: it sent '" + shown
        ):
            await ucp.create_endpoint("127.0.0.1", server.port, connect_timeout=50)


async def test_garbage_is_told_once_a_minute_with_its_address(caplog):
    async with ucp.create_listener(host="127.0.0.1") as listener:
        for _ in range(5):
            assert await say(listener.port, b"GET / HTTP/1.1\r\n\r\n") == b""
        await check_serves(listener)
    assert ucp.current_worker().statistics.protocol_errors == 5
    lines = [
        record.getMessage() for record in caplog.records if "GET" in record.message
    ]
    assert len(lines) == 1
    assert re.match(
        r"^127\.0\.0\.1:\d+ dropped: not a ucp client: it sent 'GET / HTTP", lines[0]
    )


# ---- who does not answer -----------------------------------------------------


async def test_who_does_not_listen_is_named_with_the_systems_words():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(
            ucp.UCXNotConnected,
            match=rf"127\.0\.0\.1:{port}: Connection refused "
            rf"\(errno {errno.ECONNREFUSED}\): does a process listen there\?$",
        ):
            await ucp.create_endpoint("127.0.0.1", port)


async def test_who_is_mute_is_named():
    async with Server() as server:
        server.serve = lambda reader, _writer: reader.read()
        with pytest.raises(
            ucp.UCXTimeout,
            match=rf"127\.0\.0\.1:{server.port}: connected, but nothing was said: is ",
        ):
            await ucp.create_endpoint("127.0.0.1", server.port, connect_timeout=0.2)


async def test_who_hangs_up_is_named():
    async def hang_up(_reader, writer):
        writer.close()

    async with Server() as server:
        server.serve = hang_up
        with pytest.raises(ucp.UCXNotConnected, match=rf"127\.0\.0\.1:{server.port}: "):
            await ucp.create_endpoint("127.0.0.1", server.port)


# ---- of another version ------------------------------------------------------


def of_version(version, message):
    """The first of the recorded messages, by a peer of that version."""
    at = LENGTH + HEADER
    return message[:at] + version.to_bytes(2, "little") + message[at + 2 :]


async def test_a_connecting_side_of_another_version_is_told_so():
    said, _ = await recording()
    async with ucp.create_listener(host="127.0.0.1") as listener:
        answer = await say(listener.port, of_version(1, said))
        assert answer.endswith(b"wire version 4 is needed")
        await check_serves(listener)


async def test_a_listener_of_another_version_is_named():
    _, answered = await recording()
    async with Answering(of_version(1, answered)) as server:
        with pytest.raises(ucp.UCXVersionError, match="speaks another wire version"):
            await ucp.create_endpoint("127.0.0.1", server.port)


# ---- strangers ---------------------------------------------------------------


async def hello_of_a_peer():
    said, _ = await recording()
    return Hello(first_message(said))


async def test_strangers_of_many_kinds_harm_nobody():
    hello = await hello_of_a_peer()
    async with ucp.create_listener(host="127.0.0.1") as listener:
        for number in range(300):
            stranger = Stranger(hello, of_kind(hello.address, 8 + number))
            await stranger.connect(listener.port)
            assert stranger.refusal == ""
            stranger.leave()
            (await anext(listener)).abort()
        await check_serves(listener)


# A segment of the user's, which stays when the process has ended.
MAKE_SEGMENT = "import ctypes; print(ctypes.CDLL(None).shmget(0, 1 << 23, 0o1600))"


def segment_row(number):
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()
    names = lines[0].split()
    for line in lines[1:]:
        row = dict(zip(names, line.split(), strict=False))
        if int(row["shmid"]) == number:
            return row
    raise AssertionError(f"there is no segment {number}")


@pytest.fixture
def foreign_segment():
    command = [*as_user(ONE), sys.executable, "-P", "-c", MAKE_SEGMENT]
    number = int(subprocess.run(command, capture_output=True, check=True).stdout)
    yield number
    assert ctypes.CDLL(None).shmctl(number, 0, None) == 0  # IPC_RMID


async def test_a_segment_of_another_user_is_not_mapped(foreign_segment):
    assert int(segment_row(foreign_segment)["uid"]) == ONE
    hello = await hello_of_a_peer()
    address = naming(hello.address, foreign_segment)
    async with ucp.create_listener(host="127.0.0.1") as listener:
        stranger = Stranger(hello, of_kind(address, 8))
        await stranger.connect(listener.port)
        assert stranger.features & APART
        ep = await anext(listener)
        assert {name for name, _ in ep.transports()} == {"tcp"}
        assert segment_row(foreign_segment)["nattch"] == "0"
        ep.abort()
        stranger.leave()
        await check_serves(listener)


async def test_a_segment_that_is_none_is_refused():
    hello = await hello_of_a_peer()
    async with ucp.create_listener(host="127.0.0.1") as listener:
        for number in (1 << 40, 2**64 - 1):
            stranger = Stranger(hello, of_kind(naming(hello.address, number), 8))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await stranger.connect(listener.port)
            stranger.leave()
        await check_serves(listener)


async def test_a_peer_that_claims_to_be_apart_gets_no_shared_memory():
    hello = await hello_of_a_peer()
    hello.claim(APART)
    async with ucp.create_listener(host="127.0.0.1") as listener:
        stranger = Stranger(hello, of_kind(hello.address, 8))
        await stranger.connect(listener.port)
        assert stranger.features & APART
        ep = await anext(listener)
        assert {name for name, _ in ep.transports()} == {"tcp"}
        ep.abort()
        stranger.leave()


async def test_strangers_that_stay_are_refused_by_name():
    hello = await hello_of_a_peer()
    async with ucp.create_listener(host="127.0.0.1") as listener:
        strangers = []
        for kind in range(8, 8 + 17):
            strangers.append(Stranger(hello, of_kind(hello.address, kind)))
            await strangers[-1].connect(listener.port)
        assert [bool(stranger.refusal) for stranger in strangers] == [False] * 16 + [
            True
        ]
        assert strangers[-1].refusal.startswith("16 kinds of UCX addresses are in use")
        for stranger in strangers:
            stranger.leave()
        for _ in range(16):
            (await anext(listener)).abort()
        await check_serves(listener)


@pytest.mark.parametrize("ahead", [1, 5, 6, 17, 2000, 2**55])
async def test_a_number_far_ahead_is_refused_at_once(ahead):
    hello = await hello_of_a_peer()
    async with ucp.create_listener(host="127.0.0.1") as listener:
        stranger = Stranger(hello, of_kind(hello.address, 8))
        await stranger.connect(listener.port, ahead)
        if ahead > 5:
            assert await stranger.is_dropped()
        else:
            (await anext(listener)).abort()
        stranger.leave()
        await check_serves(listener)


# ---- mute, up to the descriptor limit ----------------------------------------

# In the peer: room for few more descriptors; what it logs.
_LIMIT = """
import logging, os, resource
logged = []
class Keep(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())
logging.getLogger("ucp").addHandler(Keep())
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, limits[1]))
"""


@contextlib.contextmanager
def mute_sockets(port, count):
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        yield stack


async def until_full(peer):
    while not any("cannot accept" in text for text in await peer.do("logged")):
        pass


async def until_free(peer):
    while await peer.do("ucp.current_worker().statistics.endpoints") > 1:
        pass


async def check_echo(peer, ep):
    await ep.send(b"alive")
    assert await peer.do("bytes(await ep.recv_obj())") == b"alive"


async def test_mute_connections_up_to_the_descriptor_limit_harm_no_open_one(
    connect_peer,
):
    peer, ep = await connect_peer()
    port = await peer.do("listener.port")
    await peer.do(_LIMIT)
    with mute_sockets(port, 30):
        await until_full(peer)
        await check_echo(peer, ep)
    await until_free(peer)
    other = await ucp.create_endpoint("127.0.0.1", port)
    await peer.do("ep = await anext(listener)")
    await check_echo(peer, other)


async def test_few_descriptors_are_told_to_peers_and_once_a_minute(connect_peer):
    peer, ep = await connect_peer()
    port = await peer.do("listener.port")
    await peer.do(_LIMIT)
    with mute_sockets(port, 30):
        await until_full(peer)
        for _ in range(3):
            with pytest.raises(ucp.UCXRejected, match=r"busy: .*\(.*ulimit -n\)"):
                await ucp.create_endpoint("127.0.0.1", port, connect_timeout=50)
        await check_echo(peer, ep)
    lines = [text for text in await peer.do("logged") if "ulimit -n" in text]
    assert len(lines) == 1


async def test_service_resumes_when_mute_connections_meet_their_deadline(connect_peer):
    peer, ep = await connect_peer()
    await peer.do("short = ucp.create_listener(host='127.0.0.1', connect_timeout=0.3)")
    port = await peer.do("short.port")
    await peer.do(_LIMIT)
    with mute_sockets(port, 30):
        await until_full(peer)
        await check_echo(peer, ep)
        await until_free(peer)
        other = await ucp.create_endpoint("127.0.0.1", port, connect_timeout=50)
        await peer.do("ep = await anext(short)")
        await check_echo(peer, other)
