# SPDX-License-Identifier: BSD-3-Clause
"""Which receive takes which send, as docs/py-api.md has it in a table.

A receive of another kind, channel or tag waits as long as the peer may still send
what it takes. Then it fails, and names what is unread.
"""

import asyncio
import re

import pytest
from paths import ROOT

import ucp
from ucp.testing import connected_pair, until

PAGE = ROOT / "docs" / "py-api.md"

DATA = b"data"


async def _recv(end, **options):
    buffer = bytearray(len(DATA))
    await end.recv(buffer, **options)
    return buffer


async def _recv_into(end, **options):
    buffer = bytearray(9)
    return buffer[: await end.recv_into(buffer, **options)]


async def _recv_many(end):
    buffer = bytearray(len(DATA))
    try:
        await end.recv_many([buffer])
    except ucp.UCXError as exc:
        raise exc.results[0] from None
    return buffer


async def _recv_message(end, **options):
    message = await end.recv_message(**options)
    buffer = bytearray(message.nbytes)
    await message.recv(buffer)
    return buffer


async def _next(end):
    async for message in end:
        return message
    raise ucp.UCXCloseError("no message")


async def _recv_frames(end):
    (frame,) = (await end.recv_frames())[1]
    return frame


async def _recv_multi(end):
    (frame,) = await end.recv_multi()
    return frame


async def _am_recv_message(end, **options):
    message = await end.am_recv_message(**options)
    buffer = bytearray(message.nbytes)
    await message.recv(buffer)
    return buffer


async def _stream_recv(end):
    buffer = bytearray(len(DATA))
    if await end.stream_recv(buffer, wait_all=True) == 0:
        raise ucp.UCXCloseError("the end of the stream")
    return buffer


UNTAGGED, TAGGED, CHANNEL, FRAMES = "untagged", "tagged", "channel", "frames"
PLAIN_AM, AM, STREAM, RAW = "plain am", "am", "stream", "raw"

SENDS = {
    UNTAGGED: lambda ep: ep.send(DATA),
    TAGGED: lambda ep: ep.send(DATA, tag=5),
    CHANNEL: lambda ep: ep.channel(3).send(DATA),
    FRAMES: lambda ep: ep.send_frames([DATA]),
    PLAIN_AM: lambda ep: ep.am_send(DATA),
    AM: lambda ep: ep.am_send(DATA, id=33),
    STREAM: lambda ep: ep.stream_send(DATA),
    RAW: lambda ep: ep.send(DATA, 5, force_tag=True),
}

# What each receive takes.
RECEIVES = {
    "recv": (_recv, {UNTAGGED}),
    "recv tag": (lambda ep: _recv(ep, tag=5), {TAGGED}),
    "recv other tag": (lambda ep: _recv(ep, tag=6), set()),
    "recv ANY": (lambda ep: _recv(ep, tag=ucp.ANY), {UNTAGGED, TAGGED}),
    "recv_into": (_recv_into, {UNTAGGED, TAGGED}),
    "recv_into tag": (lambda ep: _recv_into(ep, tag=5), {TAGGED}),
    "recv_obj": (lambda ep: ep.recv_obj(), {UNTAGGED}),
    "recv_obj tag": (lambda ep: ep.recv_obj(5), {TAGGED}),
    "recv_many": (_recv_many, {UNTAGGED}),
    "recv_message": (_recv_message, {UNTAGGED}),
    "recv_message tag": (lambda ep: _recv_message(ep, tag=5), {TAGGED}),
    "async for": (_next, {UNTAGGED}),
    "channel recv": (lambda ep: _recv(ep.channel(3)), {CHANNEL}),
    "channel recv_frames": (lambda ep: _recv_frames(ep.channel(3)), set()),
    "recv_frames": (_recv_frames, {FRAMES}),
    "recv_multi": (_recv_multi, {FRAMES}),
    "am_recv": (lambda ep: ep.am_recv(), {PLAIN_AM}),
    "am_recv id": (lambda ep: ep.am_recv(id=33), {AM}),
    "am_recv_message": (_am_recv_message, {PLAIN_AM}),
    "stream_recv": (_stream_recv, {STREAM}),
    "recv raw": (lambda ep: _recv(ep, tag=5, force_tag=True), {RAW}),
}

TEXTS = {
    UNTAGGED: "a message of send() or send_obj() is unread: recv(), recv_into() or "
    "recv_obj() takes it",
    TAGGED: "a message of send() or send_obj() with tag 0x5 is unread: recv(), "
    "recv_into() or recv_obj() with that tag takes it",
    CHANNEL: "a message of send() or send_obj() on channel 3 is unread: recv(), "
    "recv_into() or recv_obj() on channel 3 takes it",
    FRAMES: "a message of send_frames() is unread: recv_frames(), recv_multi() or "
    "recv_pickle() takes it",
    PLAIN_AM: "a message of am_send() is unread: am_recv() takes it",
    AM: "a message of am_send(id=33) is unread: am_recv(id=33) takes it",
    STREAM: "bytes of stream_send() are unread: stream_recv() takes them",
}


@pytest.mark.parametrize("send", SENDS)
@pytest.mark.parametrize("receive", RECEIVES)
async def test_each_receive_takes_what_the_table_says(send, receive):
    function, takes = RECEIVES[receive]
    async with connected_pair() as (client, server):
        receiving = asyncio.ensure_future(function(server))
        await asyncio.sleep(0)
        await SENDS[send](client)
        if send in takes:
            assert await receiving == DATA
            return
        await client.close()
        with pytest.raises(ucp.UCXCloseError) as caught:
            await receiving
        if send != RAW and receive not in ("stream_recv", "async for"):
            assert TEXTS[send] in str(caught.value)


@pytest.mark.parametrize("send", [UNTAGGED, FRAMES, AM, STREAM])
async def test_a_receive_after_the_peers_close_names_what_is_unread(send):
    async with connected_pair() as (client, server):
        await SENDS[send](client)
        await client.close()
        await until(server.closed)
        text = re.escape(f"Endpoint closed by the peer; {TEXTS[send]}")
        with pytest.raises(ucp.UCXCloseError, match=f"^{text}$"):
            await server.channel(9).recv_obj()


async def test_without_unread_messages_none_is_named():
    async with connected_pair() as (client, server):
        receiving = server.recv_frames()
        await client.close()
        with pytest.raises(
            ucp.UCXPeerClosed, match=r"^recv_frames: endpoint closed by the peer$"
        ):
            await receiving
        with pytest.raises(ucp.UCXCloseError, match=r"^Endpoint closed by the peer$"):
            await server.recv_frames()


async def test_the_repr_of_a_receive_names_what_is_unread():
    async with connected_pair() as (client, server):
        receiving = server.recv_frames()
        assert repr(receiving).endswith(" open>, pending>")
        await client.send_obj(DATA)
        await until(lambda: server.statistics.unexpected_messages == 1)
        assert repr(receiving).endswith(f" open>, pending; {TEXTS[UNTAGGED]}>")
        assert await server.recv_obj() == DATA
        assert repr(receiving).endswith(" open>, pending>")
        receiving.cancel()


def test_the_page_names_every_call_of_the_table():
    _, _, table = PAGE.read_text().partition("**Which receive takes which send.**")
    rows = table[table.index("|") :].partition("\n\n")[0].split("\n")
    assert len(rows) == 2 + 8
    text = "".join(rows)
    for name in ("recv_obj()", "recv_message()", "async for", "recv_multi()"):
        assert name in text
