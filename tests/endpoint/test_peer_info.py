# SPDX-License-Identifier: BSD-3-Clause
"""What a peer says of itself may be anything."""

import json

import pytest

import ucp
from ucp._core.peer import Load

_ANSWER = {
    "umx": "1.2.3",
    "ucx": "1.2.3",
    "pid": 1,
    "host": "h",
    "memory": {"rss": 1, "peak": 1, "total": 1, "available": 1},
    "worker": dict.fromkeys(Load._fields, 0),
    "transports": [["tcp", "eth0"]],
}


def test_fields_that_a_later_peer_adds_are_ignored():
    text = json.dumps({**_ANSWER, "more": 1, "memory": {**_ANSWER["memory"], "x": 1}})
    assert ucp.PeerInfo.parse(text).transports == [("tcp", "eth0")]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", "[" * 100_000, "\ufffd"),
        *(json.dumps({**_ANSWER, "pid": bad}) for bad in ("x", None, [], 1e999)),
        *(json.dumps({**_ANSWER, "memory": bad}) for bad in (1, [], {}, None)),
        *(json.dumps({**_ANSWER, "transports": bad}) for bad in (1, [1], [[1]])),
    ],
    ids=lambda text: text[:10],
)
def test_an_answer_that_makes_no_sense_is_an_error(text):
    with pytest.raises(
        ucp.UCXProtocolError, match=r"^the peer's information makes no sense: "
    ):
        ucp.PeerInfo.parse(text)
