# SPDX-License-Identifier: BSD-3-Clause
"""``ucp._libs.ucx_api``: active messages with callbacks."""

import numpy as np
import pytest
from low_level import Call, Pair

import ucp
from ucp._libs import ucx_api, utils_test
from ucp._libs.arr import Array

# For what is refused before anything is sent.
over_shm = pytest.mark.parametrize("pair", [{}], ids=["shm"], indirect=True)


@pytest.fixture(params=[{}, {"TLS": "tcp"}], ids=["shm", "tcp"])
def pair(request):
    pair = Pair(request.param)
    yield pair
    pair.close()


@pytest.mark.parametrize("size", [0, 1, 8, 1 << 13, 1 << 17, 1 << 22])
@pytest.mark.parametrize("is_first", [True, False], ids=["send first", "recv first"])
def test_a_message_is_the_first_argument(pair, size, is_first):
    data = np.arange(size, dtype="u1")
    sent, received = Call(), Call()
    if not is_first:
        ucx_api.am_recv_nb(pair.server, received, ("a",), {"b": 2})
    request = ucx_api.am_send_nbx(pair.client, Array(data), size, sent)
    if is_first:
        pair.until(pair.server.am_probe)
        assert ucx_api.am_recv_nb(pair.server, received, ("a",), {"b": 2}) is None
    assert received.calls == []
    pair.wait(received)
    pair.done(request, sent)
    assert received.calls == [(data.tobytes(), None, ("a",), {"b": 2})]
    assert type(received.calls[0][0]) is bytearray
    assert len(sent.calls) == (request is not None)
    assert not pair.server.am_probe()


@pytest.mark.parametrize("size", [8, 1 << 22])
def test_the_allocator_makes_the_memory(pair, size):
    pair.there.register_am_allocator(
        lambda n: np.zeros(n, "u1"), ucx_api.AllocatorType.HOST
    )
    call, sent = Call(), Call()
    ucx_api.am_recv_nb(pair.server, call)
    request = ucx_api.am_send_nbx(pair.client, b"x" * size, size, sent)
    pair.wait(call)
    pair.done(request, sent)
    assert call.exception is None
    assert bytes(call.calls[0][0]) == b"x" * size
    assert isinstance(call.calls[0][0], np.ndarray)


@pytest.mark.parametrize("size", [8, 1 << 22])
def test_what_the_allocator_raises_is_the_callbacks(pair, size):
    def fail(n):
        raise LookupError(n)

    pair.there.register_am_allocator(fail)
    call, sent = Call(), Call()
    ucx_api.am_recv_nb(pair.server, call)
    request = ucx_api.am_send_nbx(pair.client, bytes(size), size, sent)
    pair.wait(call)
    assert call.calls[0][0] is None
    assert isinstance(call.exception, LookupError)
    pair.there.register_am_allocator(None)
    again = Call()
    ucx_api.am_recv_nb(pair.server, again)
    pair.wait(again)
    pair.done(request, sent)
    assert again.calls[0][0] == bytes(size)


@over_shm
def test_memory_of_unknown_kinds_is_refused(pair):
    with pytest.raises(ucp.UCXError, match="not supported"):
        pair.there.register_am_allocator(bytearray, ucx_api.AllocatorType.UNSUPPORTED)


def test_messages_come_in_order(pair):
    calls = [Call() for _ in range(20)]
    for number, call in enumerate(calls):
        size = 1 << number
        ucx_api.am_send_nbx(pair.client, bytes([number]) * size, size, None)
        ucx_api.am_recv_nb(pair.server, call)
    pair.wait(*calls)
    assert [len(call.calls[0][0]) for call in calls] == [1 << n for n in range(20)]


def test_a_receive_fails_when_the_peer_closes(pair):
    call = Call()
    ucx_api.am_recv_nb(pair.client, call)
    pair.server.close()
    pair.wait(call)
    assert isinstance(call.exception, ucp.UCXCanceled)
    assert "am_recv" in str(call.exception)
    assert pair.here.cancel_inflight_messages() == 1


def test_what_has_come_is_received_after_the_end(pair):
    sent = Call()
    pair.done(ucx_api.am_send_nbx(pair.client, b"x", 1, sent), sent)
    pair.client.close()
    pair.until(lambda: not pair.server.is_alive())
    assert pair.server.am_probe()
    assert utils_test.blocking_am_recv(pair.there, pair.server) == b"x"


def test_a_feature_that_is_not_of_the_context_is_refused():
    pair = Pair(feature_flags=(ucx_api.Feature.TAG,))
    with pytest.raises(ValueError, match=r"Feature\.AM"):
        ucx_api.am_send_nbx(pair.client, b"x", 1, None)
    with pytest.raises(ValueError, match=r"Feature\.AM"):
        ucx_api.am_recv_nb(pair.client, None)
    pair.close()
