# SPDX-License-Identifier: BSD-3-Clause
# python examples/kv_cache.py            the prefill process: prints where it listens
# python examples/kv_cache.py HOST PORT  the decode process
# python examples/kv_cache.py --self     both sides, in two processes
"""Pages of a key-value cache go from one process to another, as inference servers do.

The process that has computed a prompt (prefill) keeps the keys and values of its
tokens in pages of 8 KiB, in one memory that peers may read. It tells the process that
continues (decode) which pages a request has. That one has free pages of its own,
which lie elsewhere, and reads all pages of the request by one get_many().

With --device behind these arguments the cache of a process is in memory of its device,
as an array of CuPy; numbers of pages are of the host. Each process may choose.
"""

import asyncio
import struct
import subprocess
import sys
import time

import numpy as np

import ucp

if "--device" in sys.argv:
    sys.argv.remove("--device")
    import cupy as xp

    DEVICE = ["--device"]
else:
    xp = np
    DEVICE = []

KIND = "host" if xp is np else "cuda"
PAGE = 8192  # bytes
PAGES = 4096  # in the cache of each process
REQUESTS = [(7, 1000), (8, 33), (9, 2500)]  # request, how many pages it has
HEAD = struct.Struct("<QQ")


def values(request, count):
    """A byte for each page of a request: in this example all of a page are the same."""
    return ((request * 31 + xp.arange(count)) % 251).astype("u1")


async def prefill():
    memory = ucp.Memory.allocate(PAGE * PAGES, KIND, readonly=KIND == "host")
    cache = xp.asarray(memory).reshape(PAGES, PAGE)
    free = np.random.default_rng(1).permutation(PAGES).astype("u8")  # as after hours
    async with ucp.create_listener(host="127.0.0.1") as listener:
        print(f"listening on {listener.host}:{listener.port}", flush=True)
        decode = await listener.accept()
    await decode.send_obj(memory.key)
    for request, count in REQUESTS:
        pages, free = free[:count], free[count:]
        cache[xp.asarray(pages.astype("i8"))] = values(request, count)[:, None]
        if xp is not np:
            xp.cuda.get_current_stream().synchronize()  # before a peer reads them
        await decode.send_obj(HEAD.pack(request, count) + pages.tobytes())
        await decode.recv(bytearray(4))  # "done": the pages are free again
        free = np.concatenate([free, pages])
    await decode.close()


async def decode(host, port):
    cache = xp.zeros((PAGES, PAGE), dtype="u1")
    free = np.random.default_rng(2).permutation(PAGES).astype("u8")
    async with ucp.connect(host, port) as ep:
        remote = ep.remote(await ep.recv_obj())
        seconds = 0.0
        for _ in REQUESTS:
            said = bytes(await ep.recv_obj())
            request, count = HEAD.unpack_from(said)
            theirs = np.frombuffer(said, dtype="u8", offset=HEAD.size)
            ours = free[:count]
            begun = time.perf_counter()
            await remote.get_many(cache, theirs * PAGE, PAGE, ours * PAGE)
            seconds += time.perf_counter() - begun
            await ep.send(b"done")
            came = cache[xp.asarray(ours.astype("i8"))]
            assert (came == values(request, count)[:, None]).all()
            print(f"request {request}: {count} pages are here")
        size = PAGE * sum(count for _, count in REQUESTS)
        print(f"pages came at {size / seconds / 1e9:.1f} GB/s")


def both_sides():
    """Start the other side as a process, and connect to it."""
    command = [sys.executable, "-P", __file__, *DEVICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            host, port = other.stdout.readline().split()[-1].split(":")
            asyncio.run(decode(host, int(port)))
            print(other.stdout.read(), end="")
        except BaseException:
            other.kill()
            raise


try:
    if sys.argv[1:] == ["--self"]:
        both_sides()
    elif len(sys.argv) == 1:
        asyncio.run(prefill())
    else:
        asyncio.run(decode(sys.argv[1], int(sys.argv[2])))
except KeyboardInterrupt:
    sys.exit(130)
