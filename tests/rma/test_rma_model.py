# SPDX-License-Identifier: BSD-3-Clause
"""Random operations on a peer's memory, compared with a model of it."""

import os
import random

import pytest
from conftest import TLS

import ucp

_EXAMPLES = int(os.environ.get("UCP_MODEL_EXAMPLES", "0")) or 5
_STEPS = 150
_LEN = 700_000
_LENGTHS = [0, 1, 7, 8, 100, 4096, 65_535, 65_536, 65_537, 262_144, 300_001]


@pytest.fixture(params=["mapped", "shm", "tcp", "ucx"])
def remote_kind(request):
    """Each way in which operations are executed."""
    config = ucp.Config(rma_ucx=2) if request.param == "ucx" else None
    ucp.reset()
    ucp.init(TLS["shm" if request.param in ("mapped", "shm") else "tcp"], config=config)
    yield request.param
    ucp.reset()


class Model:
    """Contents of the memory once everything that was posted is done."""

    def __init__(self, remote, seed):
        self.remote = remote
        self.random = random.Random(seed)
        self.bytes = bytearray(_LEN)
        self.pending = []

    def place(self):
        length = self.random.choice(_LENGTHS)
        return self.random.randrange(_LEN - length + 1), length

    def take(self, out, at):
        self.bytes[at : at + len(out)] = out

    async def put(self):
        at, length = self.place()
        out = self.random.randbytes(length)
        self.take(out, at)
        self.post(self.remote.put(out, at))

    async def put_many(self):
        items = []
        for _ in range(self.random.randrange(5)):
            at, length = self.place()
            out = self.random.randbytes(length)
            items += [(out[: length // 2], at), (out[length // 2 :], at + length // 2)]
        # Items of one call are in no order: none may overlap another.
        items = [item for item in items if not overlaps(item, items)]
        for out, at in items:
            self.take(out, at)
        self.post(self.remote.put_many(items))

    async def put_signal(self):
        at, length = self.place()
        out = self.random.randbytes(length)
        self.take(out, at)
        signal = 8 * self.random.randrange(_LEN // 8 - 1)
        value = self.random.getrandbits(64)
        op = self.random.choice(["set", "add"])
        old = self.number(signal, 8) if op == "add" else 0
        self.set_number(signal, 8, old + value)
        self.post(self.remote.put_signal(out, at, signal, value, op))

    async def change(self):
        size = self.random.choice([4, 8])
        at = size * self.random.randrange(_LEN // size - 1)
        value = self.random.getrandbits(8 * size)
        old = self.number(at, size)
        name, new = self.random.choice(
            [
                ("fetch_add", old + value),
                ("fetch_and", old & value),
                ("fetch_or", old | value),
                ("fetch_xor", old ^ value),
                ("swap", value),
            ]
        )
        self.set_number(at, size, new)
        self.remote.endpoint.fence()
        assert await getattr(self.remote, name)(at, value, 8 * size) == old

    async def get(self):
        at, length = self.place()
        back = bytearray(length)
        self.remote.endpoint.fence()
        await self.remote.get(back, at)
        assert back == self.bytes[at : at + length]

    async def get_many(self):
        places = [self.place() for _ in range(self.random.randrange(5))]
        backs = [bytearray(length) for _, length in places]
        self.remote.endpoint.fence()
        await self.remote.get_many(
            [(back, at) for back, (at, _) in zip(backs, places, strict=True)]
        )
        for back, (at, length) in zip(backs, places, strict=True):
            assert back == self.bytes[at : at + length]

    async def flush(self):
        await self.remote.flush()

    async def wait(self):
        for request in self.pending:
            await request
        self.pending.clear()

    def post(self, request):
        """Note the request, and order all later operations behind it."""
        self.pending.append(request)
        self.remote.endpoint.fence()

    def number(self, at, size):
        return int.from_bytes(self.bytes[at : at + size], "little")

    def set_number(self, at, size, value):
        self.take((value % 2 ** (8 * size)).to_bytes(size, "little"), at)

    async def run(self):
        steps = [
            *(self.put, self.put, self.put_many, self.put_signal, self.change),
            *(self.get, self.get_many, self.flush, self.wait),
        ]
        for _ in range(_STEPS):
            await self.random.choice(steps)()
        await self.wait()


def overlaps(item, items):
    out, at = item
    return any(
        other is not item and at < start + len(bytes_) and start < at + len(out)
        for bytes_, start in items
        for other in [(bytes_, start)]
        if other != item
    )


@pytest.mark.parametrize("seed", range(_EXAMPLES))
async def test_memory_is_what_the_model_says(remote_kind, seed):
    if remote_kind == "mapped":
        memory = ucp.Memory.allocate(_LEN)
    else:
        memory = ucp.Memory.register(bytearray(_LEN))
    with memory:
        listener = ucp.create_listener(host="127.0.0.1")
        ep = await ucp.create_endpoint("127.0.0.1", listener.port)
        other = await anext(listener)
        remote = ep.remote(memory.key)
        assert remote.mapped is (remote_kind == "mapped")
        model = Model(remote, seed)
        await model.run()
        assert bytes(memory) == model.bytes
        await ep.close()
        await other.close()
