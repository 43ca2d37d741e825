# SPDX-License-Identifier: BSD-3-Clause
"""What objects have done is told in one way by all of them."""

import asyncio
import dataclasses
import json

import pytest

import ucp
import ucp.join
import ucp.message
import ucp.shuffle
from ucp.testing import connected_pair

KINDS = [
    ucp.EndpointStatistics,
    ucp.WorkerStatistics,
    ucp.message.MessageSenderStatistics,
    ucp.shuffle.ShuffleStatistics,
    ucp.shuffle.ReaderStatistics,
    ucp.shuffle.StagingStatistics,
    ucp.join.JoinStatistics,
    ucp.join.PeerBytes,
    ucp.join.Span,
]
NAMES = {
    kind: [field.name for field in dataclasses.fields(kind)] for kind in KINDS
}  # of their numbers


def test_every_class_of_statistics_is_here():
    modules = (ucp, ucp.message, ucp.shuffle, ucp.join)
    found = {
        getattr(module, name)
        for module in modules
        for name in module.__all__
        if name.endswith("Statistics")
    }
    assert found == {kind for kind in KINDS if kind.__name__.endswith("Statistics")}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_statistics_become_a_dict_and_do_not_change(kind):
    names = NAMES[kind]
    its = kind(*range(len(names)))
    assert its.as_dict() == dict(zip(names, range(len(names)), strict=True))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(its, names[0], 7)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_number_is_described(kind):
    if kind is not ucp.message.MessageSenderStatistics:  # beside each field
        text = kind.__doc__
        assert [name for name in NAMES[kind] if f"  {name}: " not in text] == []


async def test_endpoints_and_workers_have_statistics():
    async with connected_pair() as (client, server):
        await client.send(b"four")
        await server.recv(bytearray(4))
        assert client.statistics.sent_messages == 1
        assert server.statistics.received_bytes == 4
        assert client.worker.statistics.endpoints == 2
        assert type(client.worker.statistics) is ucp.WorkerStatistics


async def test_the_old_names_are_deprecated():
    async with connected_pair() as (client, _server):
        for each in (client, client.worker):
            with pytest.deprecated_call(match=r"^stats\(\) is the property") as caught:
                old = each.stats()
            assert old.keys() == each.statistics.as_dict().keys()
            assert [warning.filename for warning in caught] == [__file__]
        async with ucp.message.MessageSender() as sender:
            with pytest.deprecated_call(match="^statistics is a property now"):
                assert sender.statistics() == sender.statistics


async def test_an_endpoint_has_statistics_as_long_as_its_worker():
    async with connected_pair() as (client, _server):
        worker = client.worker
        client.abort()
        assert client.statistics.sent_messages == 0
        with pytest.raises(RuntimeError, match="belongs to another thread"):
            await asyncio.to_thread(lambda: worker.statistics)
        worker.abort()
        with pytest.raises(ucp.UCXCloseError):
            _ = client.statistics
        with pytest.raises(RuntimeError, match="the worker is closed"):
            _ = worker.statistics


def test_statistics_of_a_join_may_be_json_in_between():
    its = ucp.join.JoinStatistics(
        rank=0,
        strategy="shuffle",
        reason="it is asked for",
        over_decomposition=2,
        rows=(1, 2),
        nbytes=(3, 4),
        result_rows=5,
        peers=(ucp.join.PeerBytes(0, "self", 1, 2, 3),),
        spilled=6,
        most_held=7,
        spans=(ucp.join.Span("agree", -0.1, 0.0), ucp.join.Span("join", 0.3, 0.7, 1)),
        skewed=("7",),
    )
    text = json.dumps(its.as_dict())
    assert ucp.join.JoinStatistics.from_dict(json.loads(text)) == its
    assert its.as_dict()["spans"][1]["partition"] == 1
