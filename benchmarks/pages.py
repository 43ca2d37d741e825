# SPDX-License-Identifier: BSD-3-Clause
"""Pages of a cache that another process has: 1000 of 8 KiB, by one call.

Owner and reader are processes of their own, on a core each; pages lie anywhere in
32 MiB on both sides. The contenders: memory that is mapped, and memory that its owner
has registered, each by get_many() with arrays; and NIXL's agents with a prepared
transfer, and with its descriptors built each time, if a Python that has it is named.

python benchmarks/pages.py [--rounds 10] [--nixl PYTHON]
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

PAGE, PAGES, WANTED = 8192, 4096, 1000
MAPPED_TIMES, REGISTERED_TIMES = 5, 2  # targets, against NIXL


def pattern() -> np.ndarray[Any, Any]:
    return (np.arange(PAGE * PAGES) // 64 % 251).astype("u1")


def places() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Numbers of the pages at the owner, and here."""
    rng = np.random.default_rng(1)
    pick = [rng.permutation(PAGES)[:WANTED].astype("u8") for _ in range(2)]
    return pick[0], pick[1]


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def check(cache: np.ndarray[Any, Any]) -> None:
    theirs, ours = places()
    pages = pattern().reshape(PAGES, PAGE)
    assert (cache.reshape(PAGES, PAGE)[ours] == pages[theirs]).all()


async def answer(
    cache: np.ndarray[Any, Any], ways: dict[str, Callable[[], Awaitable[None]]]
) -> None:
    """Measure what standard input names."""
    for line in sys.stdin:
        way = ways[line.strip()]
        cache[:] = 0
        begun = time.perf_counter()
        await way()
        seconds = time.perf_counter() - begun
        check(cache)
        tell(value=seconds)


# --- ucp ------------------------------------------------------------------------


async def own() -> None:
    import ucp

    registered = ucp.Memory.register(pattern())
    mapped = ucp.Memory.allocate(PAGE * PAGES, readonly=True)
    np.asarray(mapped)[:] = pattern()
    kept: list[Any] = []
    listener = ucp.create_listener(kept.append, host="127.0.0.1")
    tell(port=listener.port, keys=[mapped.key.hex(), registered.key.hex()])
    await asyncio.Event().wait()


async def read(port: str, *keys: str) -> None:
    import ucp

    endpoint = await ucp.create_endpoint("127.0.0.1", int(port))
    mapped, registered = [endpoint.remote(bytes.fromhex(key)) for key in keys]
    cache = np.zeros(PAGE * PAGES, "u1")
    theirs, ours = (pages * PAGE for pages in places())
    await answer(
        cache,
        {
            "mapped": lambda: mapped.get_many(cache, theirs, PAGE, ours),
            "registered": lambda: registered.get_many(cache, theirs, PAGE, ours),
        },
    )


# --- NIXL -----------------------------------------------------------------------


def agent(name: str) -> Any:
    import logging

    logging.disable()
    from nixl._api import nixl_agent, nixl_agent_config

    return nixl_agent(name, nixl_agent_config(backends=["UCX"]))


def own_by_nixl() -> None:
    owner, memory = agent("owner"), pattern()
    owner.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
    tell(agent=owner.get_agent_metadata().hex(), address=memory.ctypes.data)
    sys.stdin.read()


async def read_by_nixl(metadata: str, address: str) -> None:
    reader = agent("reader")
    cache = np.zeros(PAGE * PAGES, "u1")
    reader.register_memory([(cache.ctypes.data, cache.nbytes, 0, "")], "DRAM")
    owner = reader.add_remote_agent(bytes.fromhex(metadata))
    theirs, ours = places()

    def prepare() -> Any:
        def descriptors(base: int, pages: np.ndarray[Any, Any]) -> Any:
            rows = [(base + int(page) * PAGE, PAGE, 0) for page in pages]
            return reader.get_xfer_descs(rows, "DRAM")

        here = descriptors(cache.ctypes.data, ours)
        there = descriptors(int(address), theirs)
        return reader.initialize_xfer("READ", here, there, owner, b"pages")

    async def move(transfer: Any) -> None:
        reader.transfer(transfer)
        while reader.check_xfer_state(transfer) != "DONE":
            pass

    async def whole() -> None:
        transfer = prepare()
        await move(transfer)
        reader.release_xfer_handle(transfer)

    prepared = prepare()
    ways = {"nixl": lambda: move(prepared), "nixl, descriptors": whole}
    await answer(cache, ways)


# --- the run --------------------------------------------------------------------


def measure(rounds: int, nixl: str | None) -> dict[str, float]:
    """The best seconds of each way."""
    from _process import Child

    best: dict[str, float] = {}
    with ExitStack() as stack:

        def start(python: str, core: int, *role: str) -> Child:
            child = Child([python, __file__, *role], {}, True, core)
            stack.enter_context(child)
            child.deadline += 3600
            return child

        where = start(sys.executable, 0, "own").message()
        reader = start(sys.executable, 1, "read", str(where["port"]), *where["keys"])
        ways = {"mapped": reader, "registered": reader}
        if nixl is not None:
            where = start(nixl, 0, "own_by_nixl").message()
            place = [where["agent"], str(where["address"])]
            reader = start(nixl, 1, "read_by_nixl", *place)
            ways |= {"nixl": reader, "nixl, descriptors": reader}
        for _ in range(rounds):
            for way in random.sample(list(ways), len(ways)):
                ways[way].send(way)
                seconds = float(ways[way].message()["value"])
                best[way] = min(seconds, best.get(way, seconds))
    return best


def report(best: dict[str, float]) -> None:
    for way, seconds in best.items():
        rate = WANTED * PAGE / seconds / 1e9
        print(f"{way:20} {seconds * 1e3:8.3f} ms {rate:6.1f} GB/s")
    for way, least in (("mapped", MAPPED_TIMES), ("registered", REGISTERED_TIMES)):
        if "nixl" in best:
            times = best["nixl"] / best[way]
            verdict = "reached" if times >= least else "MISSED"
            print(f"{way}: {times:.1f}x NIXL's transfer (at least {least}): {verdict}")


if __name__ == "__main__":
    roles = {"own": own, "read": read, "read_by_nixl": read_by_nixl}
    if sys.argv[1:2] == ["own_by_nixl"]:
        own_by_nixl()
    elif sys.argv[1:] and sys.argv[1] in roles:
        asyncio.run(roles[sys.argv[1]](*sys.argv[2:]))
    else:
        import _harness

        parser = _harness.parser(__doc__.splitlines()[0])
        parser.add_argument("--nixl", help="a Python that has NIXL")
        options = parser.parse_args()
        report(measure(options.rounds or (3 if options.quick else 30), options.nixl))
