# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/messages ucp/remote
"""``ucp.sync.Endpoint`` has the calls of ``ucp.Endpoint``."""

import threading

import numpy as np
import pytest

import ucp

# Public names of the asynchronous classes that the blocking ones lack, and why.
LACKING = {
    "recv_message": "a Message is received in its event loop: recv_obj(allocator=...)",
    "am_recv_message": "a Message is received in its event loop",
    "set_close_callback": "it would be called in the thread of the library",
    "stats": "deprecated",
    "worker": "it is the library's own",
}


def public(kind):
    return {name for name in dir(kind) if name[0] != "_"}


@pytest.mark.parametrize("name", ["Endpoint", "Channel", "RemoteMemory"])
def test_it_has_the_names_of_the_asynchronous_class(name):
    kind, asynchronous = getattr(ucp.sync, name), getattr(ucp, name)
    have = public(kind) | {"endpoint", "number"}  # attributes of its objects
    assert public(asynchronous) - have <= set(LACKING)
    assert public(kind) <= public(asynchronous)


@pytest.fixture
def ends():
    with ucp.sync.listen(host="127.0.0.1") as listener:
        with ucp.sync.connect("127.0.0.1", listener.port) as client:
            with listener.accept(timeout=30) as server:
                yield client, server
                client.abort()
                server.abort()


def both(*calls):
    """Make calls at the same time; what the last one gives."""
    threads = [threading.Thread(target=call) for call in calls[:-1]]
    for thread in threads:
        thread.start()
    result = calls[-1]()
    for thread in threads:
        thread.join()
    return result


@pytest.mark.parametrize("on_channel", [False, True])
def test_messages_of_each_kind(ends, on_channel):
    left, right = [end.channel(3) for end in ends] if on_channel else ends
    left.send_obj(b"1")
    assert right.recv_obj(timeout=30) == b"1"
    large = bytes(1 << 20)
    got = both(
        lambda: left.send_obj(large, tag="t"),
        lambda: right.recv_obj("t", allocator=lambda nbytes: np.empty(nbytes, "u1")),
    )
    assert got.nbytes == 1 << 20
    left.send_frames([b"a", b"bc"], b"head")
    assert right.recv_frames(timeout=30) == (b"head", [b"a", b"bc"])
    left.send_frames([b"a"], header=b"x")
    buffer = bytearray(2)
    assert right.recv_frames(into=[buffer]) == (b"x", [1])
    left.send_multi([b"1", b"2"])
    assert right.recv_multi() == [b"1", b"2"]
    left.send_many([b"12", b"34"])
    into = [bytearray(2), bytearray(2)]
    right.recv_many(into)
    assert into == [b"12", b"34"]
    left.send(np.arange(6)[::2], strided=True)
    array = np.zeros(3, int)
    right.recv(array)
    assert list(array) == [0, 2, 4]
    left.send(b"123", tag=5)
    ends[0].flush(timeout=30)
    assert right.probe() == (3, 5)
    assert right.recv_into(bytearray(9)) == 3
    assert right.probe() is None


def test_pickles_are_for_peers_that_are_trusted(ends):
    left, right = ends
    left.send_pickle({"a": np.arange(3)})
    with pytest.raises(ValueError, match="or where the endpoint is made"):
        right.recv_pickle()
    got = right.recv_pickle(allow_pickle=True, timeout=30)
    assert list(got["a"]) == [0, 1, 2]
    left.send_multi([b"1"])
    with pytest.raises(ucp.UCXError, match="no pickled object"):
        right.recv_pickle(allow_pickle=True)
    with pytest.raises(ucp.UCXTimeout):
        right.recv_pickle(allow_pickle=True, timeout=0.001)


def test_pickles_may_be_allowed_once():
    with ucp.sync.listen(host="127.0.0.1", allow_pickle=True) as listener:
        with ucp.sync.connect("127.0.0.1", listener.port, allow_pickle=True) as client:
            with listener.accept() as server:
                client.send_pickle([1])
                server.send_pickle([*server.recv_pickle(), 2])
                assert client.recv_pickle() == [1, 2]
                client.control.send_pickle(3)
                assert server.control.recv_pickle() == 3
                with pytest.raises(ValueError, match="allow_pickle=True"):
                    server.recv_pickle(allow_pickle=False)
                client.abort()


def test_iterating_ends_with_the_endpoint(ends):
    left, right = ends
    for number in range(3):
        left.send(b"%d" % number)
    assert next(right) == b"0"
    assert both(left.close, lambda: list(right)) == [b"1", b"2"]
    left.close()


def test_active_messages_and_the_byte_stream(ends):
    left, right = ends
    left.am_send(b"1", id=20, header=b"h")
    left.flush()
    assert right.am_probe(id=20) == 1
    assert right.am_recv(id=20, timeout=30) == b"1"
    assert right.am_probe(id=20) is None
    left.stream_send(b"12345")
    buffer = bytearray(5)
    assert right.stream_recv(buffer, wait_all=True, timeout=30) == 5
    left.stream_shutdown()
    assert right.stream_recv(buffer) == 0


def test_memory_of_the_peer(ends):
    left, _right = ends
    memory = ucp.Memory.allocate(1 << 12)
    with pytest.raises(ucp.UCXInvalidKey):
        left.remote(b"no key")
    remote = left.remote(memory.key)
    assert (remote.nbytes, remote.readonly, remote.closed()) == (1 << 12, False, False)
    assert remote.endpoint is left
    remote.put(np.arange(4, dtype="u8"), 8)
    buffer = np.zeros(4, "u8")
    remote.get(buffer, 8, timeout=30)
    assert list(buffer) == [0, 1, 2, 3]
    remote.put_many([(b"12", 100), (b"3", 102)])
    got = bytearray(3)
    remote.get_many([(got, 100)])
    assert got == b"123"
    assert remote.fetch_add(0, 5) == 0
    remote.add(0, 1)
    remote.or_(0, 8)
    remote.xor(0, 1)
    remote.and_(0, 15)
    assert remote.fetch_or(0, 16) == 15
    assert remote.fetch_and(0, 16) == 31
    assert remote.fetch_xor(0, 1) == 16
    assert remote.swap(0, 3) == 17
    assert remote.cswap(0, 3, 4) == 3
    other = left.remote(memory.key)
    remote.put_signal(b"x", 200, 208, 7, signal_memory=other)
    remote.flush()
    left.fence()
    assert memory.test(208, "==", 7)
    if remote.mapped:
        assert remote.view(200, 1) == b"x"
        remote.notify()
    remote.close()
    assert remote.closed()


def test_what_is_known_of_the_endpoint_and_its_peer(ends):
    left, right = ends
    left.send(b"1")
    assert left.ping(timeout=30) > 0
    assert left.peer_info(timeout=30).pid == left.peer.pid
    assert left.peer_address == right.local_address
    assert left.transports() and left.ucx_info()
    assert (left.state, left.error, left.pending_bytes) == ("open", None, 0)
    assert left.statistics.sent_messages == 1
    assert left.uid and left.get_ucp_worker() and left.get_ucp_endpoint()
    assert left.cuda_support() in (False, True)
    left.set_limits(1 << 20, 1 << 10)
    left.drain(timeout=30)
    right.close_after_n_recv(1)
    assert right.recv_obj() == b"1"
    assert "channel" in repr(left.channel(2)).lower()
