# SPDX-License-Identifier: BSD-3-Clause
"""``ucp._libs.ucx_api``: the byte stream with callbacks."""

import numpy as np
import pytest
from low_level import Call, Pair

import ucp
from ucp._libs import ucx_api
from ucp._libs.arr import Array


@pytest.fixture(params=[{}, {"TLS": "tcp"}], ids=["shm", "tcp"])
def pair(request):
    pair = Pair(request.param)
    yield pair
    pair.close()


@pytest.mark.parametrize("size", [1, 8, 1 << 13, 1 << 17, 1 << 22])
def test_bytes_arrive_and_both_are_called_back(pair, size):
    data = np.arange(size, dtype="u1")
    buffer = np.zeros(size, "u1")
    sent, received = Call(), Call()
    request = ucx_api.stream_send_nb(pair.client, Array(data), size, sent)
    ucx_api.stream_recv_nb(pair.server, Array(buffer), size, received, ("a",))
    pair.wait(received)
    pair.done(request, sent)
    assert received.exception is None
    assert received.calls[0][2] == ("a",)
    np.testing.assert_array_equal(buffer, data)


def test_receives_have_the_sizes_that_they_ask_for(pair):
    ucx_api.stream_send_nb(pair.client, b"abcdef", 6, None)
    buffers, calls = [bytearray(2), bytearray(4)], [Call(), Call()]
    for buffer, call in zip(buffers, calls, strict=True):
        ucx_api.stream_recv_nb(pair.server, buffer, len(buffer), call)
    pair.wait(*calls)
    assert buffers == [b"ab", b"cdef"]


def test_the_end_of_the_stream_cuts_a_receive(pair):
    call, sent = Call(), Call()
    ucx_api.stream_recv_nb(pair.server, bytearray(8), 8, call)
    pair.done(ucx_api.stream_send_nb(pair.client, b"abc", 3, sent), sent)
    pair.client.close()
    pair.wait(call)
    assert isinstance(call.exception, ucp.UCXMsgTruncated)


def test_a_feature_that_is_not_of_the_context_is_refused():
    pair = Pair(feature_flags=(ucx_api.Feature.TAG,))
    with pytest.raises(ValueError, match=r"Feature\.STREAM"):
        ucx_api.stream_send_nb(pair.client, b"x", 1, None)
    with pytest.raises(ValueError, match=r"Feature\.STREAM"):
        ucx_api.stream_recv_nb(pair.client, bytearray(1), 1, None)
    pair.close()
