# SPDX-License-Identifier: BSD-3-Clause
"""TeraSort: records of 100 bytes are generated, sorted by their keys, and verified.

    python -m ucp run -n 2 examples/terasort.py [MEGABYTES] [DIRECTORY]

Each rank writes its share of the records to a file, which it maps: what it sorts need
not fit its memory. Partitions that other ranks have not taken are bounded by a budget,
and what it does not hold goes to DIRECTORY. Parts of the result are written as they are
complete, so that no rank ever has its whole share in memory. Needs pyarrow.

With --device behind these arguments the records are sorted in memory of devices, which
has to hold them twice: each rank sorts its own by CuPy, samples of the keys divide them
among the ranks, one alltoallv() moves them, and each rank sorts what it has got.
"""

import asyncio
import itertools
import os
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa

import ucp
import ucp.table

if is_on_device := "--device" in sys.argv:
    sys.argv.remove("--device")
    import cupy as xp

KEY, VALUE = 10, 90  # bytes
PIECE = 100_000  # records that are generated, or verified, at a time
BUDGET = 256 << 20  # bytes of partitions in memory, on each rank
WEIGHTS = np.arange(1, 26, dtype="u8") * np.uint64(0x9E3779B97F4A7C15)
SAMPLES = 1024  # keys of a rank, by which devices divide the records
SCHEMA = pa.schema([("key", pa.binary(KEY)), ("value", pa.binary(VALUE))])


def records(rank, first, count):
    """Some of a rank's records."""
    random = np.random.default_rng([rank, first])
    columns = [
        pa.FixedSizeBinaryArray.from_buffers(
            field.type, count, [None, pa.py_buffer(random.bytes(count * length))]
        )
        for field, length in zip(SCHEMA, (KEY, VALUE), strict=True)
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def bytes_of(column):
    """The values of a column of a batch, a row of bytes for each."""
    width = column.type.byte_width
    flat = np.frombuffer(column.buffers()[1], "u1")
    return flat[column.offset * width :][: len(column) * width].reshape(-1, width)


def rows_of(batch):
    """The records of a batch, a row of bytes for each."""
    rows = np.concatenate([bytes_of(column) for column in batch.columns], axis=1)
    return np.ascontiguousarray(rows)


def checksum(rows, weights=WEIGHTS):
    """A number below 2^32 for each record, added up."""
    mixed = (rows.view("u4").astype("u8") * weights).sum(axis=1)
    return int((mixed >> np.uint64(32)).sum())


def generate(path, rank, count):
    """Write the records of a rank; the sum of their checksums."""
    total = 0
    with pa.ipc.new_file(path, SCHEMA) as file:
        for first in range(0, count, PIECE):
            batch = records(rank, first, min(PIECE, count - first))
            total += checksum(rows_of(batch))
            file.write_batch(batch)
    return total


def mapped(path):
    """The table in a file, whose pages come when they are read."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


class Bar:
    """A progress bar of rank 0's partitions."""

    def __init__(self, rank):
        self.is_shown = rank == 0 and sys.stderr.isatty()

    def __call__(self, done, total):
        if self.is_shown:
            width = 40 * done // total
            bar = "#" * width + "." * (40 - width)
            end = "\n" if done == total else ""
            print(f"\r[{bar}] {done} of {total}", end=end, file=sys.stderr, flush=True)


async def sort(comm, source, target, directory):
    """Sort what is in the files of all ranks; this rank's part goes to ``target``."""
    parts = ucp.table.stream(
        "sort",
        mapped(source),
        "key",
        comm=comm,
        budget=BUDGET,
        spill_dir=directory,
        progress=Bar(comm.rank),
    )
    with pa.ipc.new_file(target, SCHEMA) as file:
        async with parts:
            async for part in parts:
                file.write_table(part)


def verify(path):
    """The first and the last key in a file, how many there are, and the checksums.

    Raises:
        AssertionError: the records are not in order.
    """
    first = last = None
    total = count = 0
    for batch in mapped(path).to_batches(max_chunksize=PIECE):
        keys = [row.tobytes() for row in bytes_of(batch["key"])]
        if not keys:
            continue
        assert keys == sorted(keys), "a part is not in order"
        assert last is None or last <= keys[0], "parts are not in order"
        first = keys[0] if first is None else first
        last = keys[-1]
        count += len(keys)
        total += checksum(rows_of(batch))
    return first, last, count, total


# ---- in memory of devices


def words_of(rows):
    """The first eight bytes of each key as a number, and the last two."""
    high, low = xp.zeros(len(rows), "u8"), xp.zeros(len(rows), "u8")
    for place in range(KEY):
        word = high if place < 8 else low
        word <<= np.uint64(8)
        word |= rows[:, place].astype("u8")
    return high, low


def in_order(rows):
    """The rows in the order of their keys, and the first words of these."""
    high, low = words_of(rows)
    order = xp.lexsort(xp.stack([low, high]))
    return rows[order], high[order]


async def sort_on_device(comm, rows):
    """Sort the rows of all ranks; this rank's part."""
    rows, high = in_order(rows)
    every = xp.empty(SAMPLES * comm.size, "u8")
    await comm.allgather(high[xp.arange(SAMPLES) * len(high) // SAMPLES], every)
    bounds = xp.sort(every)[SAMPLES * xp.arange(1, comm.size)]
    ends = xp.asnumpy(xp.searchsorted(high, bounds))
    counts = np.diff(np.concatenate([[0], ends, [len(rows)]])) * (KEY + VALUE)
    theirs = np.empty_like(counts)
    await comm.alltoall(counts, theirs)
    received = xp.empty((int(theirs.sum()) // (KEY + VALUE), KEY + VALUE), "u1")
    await comm.alltoallv(rows, counts, received, theirs)
    return in_order(received)[0]


def verify_on_device(rows):
    """As verify()."""
    high, low = words_of(rows)
    is_right = high[1:] > high[:-1]
    is_right |= (high[1:] == high[:-1]) & (low[1:] >= low[:-1])
    assert bool(is_right.all()), "a part is not in order"
    weights = xp.asarray(WEIGHTS)
    pieces = (rows[first : first + PIECE] for first in range(0, len(rows), PIECE))
    total = sum(checksum(piece, weights) for piece in pieces)
    ends = [xp.asnumpy(row[:KEY]).tobytes() for row in (*rows[:1], *rows[-1:])]
    return *(ends or (None, None)), len(rows), total


async def main_on_device(megabytes):
    async with await ucp.Communicator.from_env() as comm:
        xp.cuda.Device(comm.rank % xp.cuda.runtime.getDeviceCount()).use()
        count = megabytes * 10_000 // comm.size
        rows = xp.empty((count, KEY + VALUE), "u1")
        before = 0
        for first in range(0, count, PIECE):
            piece = rows_of(records(comm.rank, first, min(PIECE, count - first)))
            before += checksum(piece)
            rows[first : first + len(piece)] = xp.asarray(piece)
        await comm.barrier()
        begun = time.perf_counter()
        rows = await sort_on_device(comm, rows)
        xp.cuda.get_current_stream().synchronize()
        await comm.barrier()
        seconds = time.perf_counter() - begun
        mine = (*verify_on_device(rows), before)
        found = await comm.gather_pickle(mine, allow_pickle=True)
        if comm.rank == 0:
            report(found, seconds)


async def main(megabytes, directory):
    async with await ucp.Communicator.from_env() as comm:
        count = megabytes * 10_000 // comm.size
        with tempfile.TemporaryDirectory(dir=directory) as own:
            source, target = os.path.join(own, "in"), os.path.join(own, "out")
            before = generate(source, comm.rank, count)
            await comm.barrier()
            begun = time.perf_counter()
            await sort(comm, source, target, own)
            await comm.barrier()
            seconds = time.perf_counter() - begun
            mine = (*verify(target), before)
            found = await comm.gather_pickle(mine, allow_pickle=True)
        if comm.rank == 0:
            report(found, seconds)


def report(found, seconds):
    """Compare the ranks' parts with each other, and with what was generated."""
    there = [part for part in found if part[2]]
    for before, behind in itertools.pairwise(there):
        assert before[1] <= behind[0], "ranks are not in order"
    assert sum(part[3] for part in found) == sum(part[4] for part in found), (
        "records have changed"
    )
    count = sum(part[2] for part in found)
    rate = count * (KEY + VALUE) / seconds / 1e6
    print(f"{count} records are in order; {rate:.0f} MB/s", flush=True)


if __name__ == "__main__":
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    directory = sys.argv[2] if len(sys.argv) > 2 else None
    try:
        if is_on_device:
            asyncio.run(main_on_device(megabytes))
        else:
            asyncio.run(main(megabytes, directory))
    except KeyboardInterrupt:
        sys.exit(130)
