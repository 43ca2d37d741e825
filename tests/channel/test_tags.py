# SPDX-License-Identifier: BSD-3-Clause
"""Tags select messages; what a tag may be."""

import pytest

import ucp
from ucp.testing import connected_pair

TAGS = [
    *(0, 1, 2**32 + 5, 2**64 - 1, "text", "", "größe", b"bytes"),
    *((1, "a"), ("a", (2, b"c")), ()),
    *(2**64, -(2**63) - 1, 2**10000, (2**64, None), 1.5, frozenset([1, 2])),
]


class Number:
    """Not an int, and yet a number, as NumPy's."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __hash__(self):
        return 77


async def test_tags_may_be_received_in_any_order():
    async with connected_pair() as (client, server):
        for tag in TAGS:
            await client.send(repr(tag).encode(), tag=tag)
        for tag in reversed(TAGS):
            assert await server.recv_obj(tag=tag) == repr(tag).encode()


async def test_same_tag_keeps_order():
    async with connected_pair() as (client, server):
        for number in range(10):
            await client.send(bytes([number]), tag="a")
            await client.send(bytes([100 + number]), tag="b")
        for number in range(10):
            assert await server.recv_obj(tag="b") == bytes([100 + number])
        for number in range(10):
            assert await server.recv_obj(tag="a") == bytes([number])


async def test_untagged_and_tagged_never_match():
    async with connected_pair() as (client, server):
        await client.send(b"tagged", tag=0)
        await client.send(b"untagged")
        assert await server.recv_obj() == b"untagged"
        assert await server.recv_obj(tag=0) == b"tagged"


async def test_any_takes_the_next_message_whatever_its_tag():
    async with connected_pair() as (client, server):
        await client.send(b"one", tag=5)
        await client.send(b"two")
        await client.send(b"three", tag="x")
        received = [await server.recv_obj(tag=ucp.ANY) for _ in range(3)]
        assert received == [b"one", b"two", b"three"]


async def test_a_mask_selects_bits():
    async with connected_pair() as (client, server):
        await client.send(b"odd", tag=0x11)
        await client.send(b"even", tag=0x12)
        buffer = bytearray(4)
        assert await server.recv_into(buffer, tag=0x02, mask=0x0F) == 4
        assert buffer == b"even"


@pytest.mark.parametrize("tag", TAGS, ids=lambda tag: repr(tag)[:20])
async def test_tags_mean_the_same_in_another_process(connect_peer, tag):
    peer, ep = await connect_peer(PYTHONHASHSEED="12345")
    await ep.send(b"there", tag=tag)
    await peer.do(f"await ep.send(await ep.recv_obj(tag={tag!r}), tag={tag!r})")
    assert await ep.recv_obj(tag=tag) == b"there"


async def test_a_message_tells_its_tag():
    async with connected_pair() as (client, server):
        await client.send(b"x", tag=2**64 - 1)
        await client.send(b"y")
        first = await server.recv_message(tag=ucp.ANY)
        second = await server.recv_message(tag=ucp.ANY)
        assert (first.tag, second.tag) == (2**64 - 1, None)


@pytest.mark.parametrize("tag", [[1], {"a": 1}, ([1],), (1, {2})], ids=repr)
async def test_what_cannot_be_hashed_is_no_tag(tag):
    async with connected_pair() as (client, server):
        message = r"^a tag is None or hashable, not (list|dict|set)$"
        with pytest.raises(TypeError, match=message):
            await client.send(b"x", tag=tag)
        with pytest.raises(TypeError, match=message):
            await server.recv(bytearray(1), tag=tag)


async def test_a_tag_that_fails_to_be_hashed_says_why():
    class Stubborn:
        def __hash__(self):
            raise ValueError("no hash today")

    async with connected_pair() as (client, _server):
        with pytest.raises(ValueError, match=r"^no hash today$"):
            client.send(b"x", tag=("a", Stubborn()))


async def test_a_number_is_the_tag_that_its_int_is():
    async with connected_pair() as (client, server):
        for tag in (5, 2**64):
            for number in (tag, Number(tag)):
                await client.send(b"x", tag=number)
                await client.send(b"y", tag=(number, "a"))
            for number in (Number(tag), tag):
                assert await server.recv_obj(tag=number) == b"x"
                assert await server.recv_obj(tag=(number, "a")) == b"y"


@pytest.mark.parametrize("mask", [2**64, -(2**63) - 1, "text", None], ids=repr)
async def test_a_mask_is_a_number_of_64_bits(mask):
    async with connected_pair() as (_client, server):
        with pytest.raises((TypeError, OverflowError), match=r"^mask .*64 bits"):
            server.recv_into(bytearray(1), tag=1, mask=mask)
