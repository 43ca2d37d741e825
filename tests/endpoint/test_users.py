# SPDX-License-Identifier: BSD-3-Clause
# tests: endpoint/apart
"""Two processes of one host that may not use each other's shared memory."""

import pytest
from users import ONE, OTHER, SUPERUSER, as_user

SHARED = {"sysv", "posix", "xpmem", "knem", "cma"}
SIZES = (8, 64 << 10, 16 << 20)

# What each of the two runs; all of it goes both ways.
EXCHANGE = f"""
import numpy as np

async def exchange(ep):
    memory = ucp.Memory.allocate(1 << 16)
    own = np.frombuffer(memory, "u1")
    own[:] = 7
    for size in {SIZES}:
        sent, got = bytes([size % 251]) * size, bytearray(size)
        await asyncio.gather(ep.send(sent), ep.recv(got))
        assert got == sent
    got = bytearray(1 << 20)
    read = ep.stream_recv(got, wait_all=True)
    await asyncio.gather(ep.stream_send(b"s" * (1 << 20)), read)
    assert got == b"s" * (1 << 20)
    _, key = await asyncio.gather(ep.send(memory.key), ep.recv_obj())
    remote, got = ep.remote(bytes(key)), np.zeros(1 << 15, "u1")
    await remote.get(got)
    assert (got == 7).all()
    await remote.put(np.full(1 << 15, 9, "u1"), offset=1 << 15)
    await asyncio.gather(ep.send(b""), ep.recv(bytearray()))
    assert (own[1 << 15:] == 9).all()
    lanes = {{name for name, _ in ep.transports()}}
    return lanes, remote.mapped
"""


@pytest.fixture
def start(start_peer):
    """Start a process of a user; it has ``exchange()``, and ``dumped()``."""

    async def start(uid, **env):
        peer = start_peer(as_user(uid), **env)
        await peer.do("import io, os, ctypes, socket")
        await peer.do(f"exec({EXCHANGE!r}, globals())")
        return peer

    return start


async def meet(server, client):
    """Connect the two; what each has seen of the exchange."""
    port = await server.do("listener.port")
    await client.do(f"ep = await ucp.create_endpoint('127.0.0.1', {port})")
    await server.do("ep = await anext(listener)")
    ends = server.begin("await exchange(ep)"), client.begin("await exchange(ep)")
    return [await server.result(ends[0]), await client.result(ends[1])]


async def why(peer):
    """What the peer says of its endpoint in ``ucp.dump()``."""
    await peer.do("text = io.StringIO()")
    await peer.do("ucp.dump(text)")
    words = "without shared memory: "
    lines = (await peer.do("text.getvalue()")).splitlines()
    return {line.split(words)[1] for line in lines if words in line}


def is_apart(ends):
    return all(not lanes & SHARED and not mapped for lanes, mapped in ends)


@pytest.mark.parametrize("tls", ["all", "posix,self,tcp", "sysv,self,tcp"])
@pytest.mark.parametrize(
    ("server_user", "client_user"), [(SUPERUSER, ONE), (ONE, SUPERUSER), (ONE, OTHER)]
)
async def test_processes_of_two_users_use_the_network(
    start, server_user, client_user, tls
):
    server = await start(server_user, UCX_TLS=tls)
    client = await start(client_user, UCX_TLS=tls)
    assert is_apart(await meet(server, client))
    # With posix alone neither of two users can look whose the memory is.
    rights = "a process may not open the shared memory of the other"
    users = "the two are processes of different users"
    assert await why(server) <= {users, rights}
    assert await why(client) <= {users, rights}
    if tls != "posix,self,tcp":
        assert await why(server) == await why(client) == {users}


@pytest.mark.parametrize("tls", ["all", "posix,self,tcp", "sysv,self,tcp"])
@pytest.mark.parametrize("user", [SUPERUSER, ONE])
async def test_processes_of_one_user_use_shared_memory(start, user, tls):
    server, client = await start(user, UCX_TLS=tls), await start(user, UCX_TLS=tls)
    for lanes, mapped in await meet(server, client):
        assert lanes & SHARED
        assert "tcp" not in lanes
        assert mapped
    assert await why(server) == await why(client) == set()


@pytest.mark.parametrize(
    ("user", "tls"),
    [
        (SUPERUSER, "all"),
        (ONE, "all"),
        (ONE, "posix,self,tcp"),
        (ONE, "sysv,self,tcp"),
        (OTHER, "all"),
    ],
)
async def test_a_server_that_has_given_up_its_rights_is_reached(start, user, tls):
    server = await start(SUPERUSER, UCX_TLS=tls)
    await server.do("os.setgid(64101)")
    await server.do("os.setuid(64101)")
    client = await start(user, UCX_TLS=tls)
    assert is_apart(await meet(server, client))
    assert await why(server) == {
        "a process has changed its user since its worker was made"
    }
    assert len(await why(client)) == 1


@pytest.mark.parametrize("user", [SUPERUSER, ONE, OTHER])
async def test_a_client_that_has_given_up_its_rights_connects(start, user):
    server, client = await start(user), await start(SUPERUSER)
    await client.do("os.setgid(64101)")
    await client.do("os.setuid(64101)")
    assert is_apart(await meet(server, client))


async def test_rights_may_be_given_up_between_two_connections(start):
    server, client = await start(SUPERUSER), await start(SUPERUSER)
    port = await server.do("listener.port")
    assert not is_apart(await meet(server, client))
    for peer in (server, client):
        await peer.do("first = ep")
    await client.do("os.setuid(64101)")
    await meet(server, client)  # by the same link, or by the network
    await client.do("await first.send(bytes(8))")
    assert await server.do("len(await first.recv_obj())") == 8
    await client.do("await ep.close()")
    await client.do("await first.close()")
    await client.do(f"ep = await ucp.create_endpoint('127.0.0.1', {port})")


async def test_a_server_whose_descriptors_nobody_may_open(start):
    """The client alone finds out: it connects again, and says so."""
    server, client = [await start(ONE, UCX_TLS="posix,self,tcp") for _ in range(2)]
    await server.do("ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)")  # PR_SET_DUMPABLE
    assert is_apart(await meet(server, client))
    assert await why(client) == {
        "a process may not open the shared memory of the other"
    }
    assert len(await why(server)) == 1


QUEUES = (
    "UCX's queues in shared memory are not alike, by its options FIFO_SIZE, "
    "FIFO_ELEM_SIZE and SEG_SIZE"
)


@pytest.mark.parametrize(
    "env",
    [
        {"UCX_SYSV_FIFO_ELEM_SIZE": "128"},
        {"UCX_MM_FIFO_ELEM_SIZE": "1024"},
        {"UCX_POSIX_FIFO_SIZE": "256"},
        {"UCX_SYSV_SEG_SIZE": "4k"},
        # As many bytes in all, and yet not the same.
        {"UCX_SYSV_FIFO_SIZE": "128", "UCX_SYSV_FIFO_ELEM_SIZE": "4096"},
    ],
    ids=str,
)
async def test_processes_with_other_queues_use_the_network(start, env):
    """Each would write into the queue of the other as if it were its own."""
    peers = await start(SUPERUSER), await start(SUPERUSER, **env)
    for server, client in (peers, reversed(peers)):
        assert is_apart(await meet(server, client))
        assert await why(server) == await why(client) == {QUEUES}


async def test_processes_with_equal_queues_use_shared_memory(start):
    env = {"UCX_SYSV_SEG_SIZE": "4k", "UCX_MM_FIFO_ELEM_SIZE": "512"}
    same = {
        "UCX_SYSV_SEG_SIZE": "4096",
        "UCX_SYSV_FIFO_ELEM_SIZE": "512",
        "UCX_POSIX_FIFO_ELEM_SIZE": "512",
        "UCX_XPMEM_FIFO_ELEM_SIZE": "512",
        "UCX_SYSV_FIFO_SIZE": "256",  # the default
    }
    server, client = await start(SUPERUSER, **env), await start(SUPERUSER, **same)
    for lanes, mapped in await meet(server, client):
        assert lanes & SHARED
        assert mapped


async def test_a_program_chooses_queues_by_options(start):
    server, client = await start(SUPERUSER), await start(SUPERUSER)
    await client.do("listener.close()")
    await client.do("ucp.reset()")
    await client.do("ucp.init({'MM_FIFO_SIZE': '512'})")
    assert is_apart(await meet(server, client))
    assert await why(client) == {QUEUES}


@pytest.mark.parametrize("pattern", ["?YSV_SEG_SIZE", "[S]YSV_SEG*"])
async def test_an_option_may_be_a_pattern(start, pattern):
    server, client = await start(SUPERUSER), await start(SUPERUSER)
    await client.do("listener.close()")
    await client.do("ucp.reset()")
    await client.do(f"ucp.init({{{pattern!r}: '4096'}})")
    assert is_apart(await meet(server, client))
    assert await why(client) == {QUEUES}


@pytest.mark.parametrize(
    ("one", "other", "alike"), [("256k", "262144", False), ("256k", "256", True)]
)
async def test_lengths_are_read_as_ucx_reads_them(start, one, other, alike):
    """It takes what stands behind the digits of these numbers for nothing."""
    server, client = [
        await start(SUPERUSER, UCX_MM_FIFO_ELEM_SIZE=size) for size in (one, other)
    ]
    assert is_apart(await meet(server, client)) is not alike
    assert await why(server) == (set() if alike else {QUEUES})


async def test_a_file_of_ucx_changes_no_queue(start, tmp_path):
    """A process that reads it would write into the queues of those that do not."""
    (tmp_path / "ucx.conf").write_text("UCX_MM_SEG_SIZE=1024\nUCX_MM_FIFO_SIZE=64\n")
    server = await start(SUPERUSER, UCX_CONFIG_DIR=str(tmp_path))
    client = await start(SUPERUSER)
    assert not is_apart(await meet(server, client))


async def test_the_environment_of_later_changes_no_queue(start):
    """UCX reads it for each worker, and the context has been made."""
    server, client = await start(SUPERUSER), await start(SUPERUSER)
    port = await server.do("listener.port")
    await server.do("os.environ['UCX_MM_SEG_SIZE'] = '1024'")
    await client.do("os.environ['UCX_MM_SEG_SIZE'] = '2048'")
    await client.do(
        "async def meet():\n"
        f"    async with ucp.connect('127.0.0.1', {port}) as ep:\n"
        "        return await exchange(ep)"
    )
    end = client.begin("await asyncio.to_thread(asyncio.run, meet())")
    await server.do("ep = await anext(listener)")
    lanes, mapped = await server.do("await exchange(ep)")
    assert lanes & SHARED
    assert mapped
    assert await client.result(end)


@pytest.mark.parametrize("tls", ["posix,self", "sysv,self"])
async def test_without_a_network_the_reason_is_told(start, tls):
    server, client = await start(SUPERUSER, UCX_TLS=tls), await start(ONE, UCX_TLS=tls)
    port = await server.do("listener.port")
    await client.do("error = None")
    await client.do(
        f"try: await ucp.create_endpoint('127.0.0.1', {port})\n"
        "except ucp.UCXError as exc: error = exc"
    )
    said = await client.do("f'{type(error).__name__}: {error}'")
    assert said.startswith("UCXUnreachable: ")
    assert said.endswith(
        ", and UCX has no other transport: its option TLS leaves tcp out"
    )


async def test_the_reason_is_in_the_log(start, capfd):
    server, client = [
        await start(user, UCP_LOG_LEVEL="debug") for user in (SUPERUSER, ONE)
    ]
    await meet(server, client)
    for peer in (server, client):
        peer.end_input()
        assert peer.wait() == 0
    lines = capfd.readouterr().err.splitlines()
    words = "; without shared memory: the two are processes of different users"
    for kind in ("accepted", "connected"):
        assert any(f": {kind} after " in x and x.endswith(words) for x in lines)
