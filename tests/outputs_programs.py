# SPDX-License-Identifier: BSD-3-Clause
"""Random programs that write and read outputs of maps, and a dict as their model.

A program is a list of steps that every rank walks through. A commit changes the
model, by map and partition; a fetch has to give what the model has.
"""

import random
from typing import NamedTuple

import ucp
from ucp.shuffle import MapOutputs, Reader, Writer

SIZES = (0, 0, 1, 7, 300, 4096, 9000, 70000)


class Commit(NamedTuple):
    rank: int
    map_id: int
    pieces: list[tuple[int, bytes]]
    options: dict[str, object]
    is_file: bool


class Fetch(NamedTuple):
    first: int
    count: int
    maps: list[int]
    max_inflight: int
    elsewhere: bool
    has_pool: bool


class Forget(NamedTuple):
    pass


class Preconnect(NamedTuple):
    pass


class Program(NamedTuple):
    num_maps: int
    num_partitions: int
    steps: list[tuple]


def random_commit(rng, size, num_maps, num_partitions):
    pieces = [
        (rng.randrange(num_partitions), rng.randbytes(rng.choice(SIZES)))
        for _ in range(rng.randrange(3 * num_partitions))
    ]
    if rng.random() < 0.5:
        pieces.sort(key=lambda piece: piece[0])
    options = {
        "byteorder": rng.choice(["little", "big"]),
        "checksums": rng.random() < 0.4,
    }
    is_file = rng.random() < 0.3
    return Commit(
        rng.randrange(size), rng.randrange(num_maps), pieces, options, is_file
    )


def random_step(rng, size, num_maps, num_partitions, committed):
    kind = rng.random()
    if kind < 0.45 or not committed:
        step = random_commit(rng, size, num_maps, num_partitions)
        committed.add(step.map_id)
        return step
    if kind < 0.9:
        first = rng.randrange(num_partitions)
        return Fetch(
            first,
            rng.randrange(num_partitions - first + 1),
            rng.sample(sorted(committed), rng.randrange(1, len(committed) + 1)),
            rng.choice([1, 5000, 100000, 48 << 20]),
            rng.random() < 0.5,
            rng.random() < 0.3,
        )
    return rng.choice([Forget(), Preconnect()])


def random_program(seed, size, num_steps=40):
    rng = random.Random(f"{seed} {size}")
    num_maps, num_partitions = rng.randrange(1, 6), rng.randrange(1, 9)
    committed = set()
    steps = [
        random_step(rng, size, num_maps, num_partitions, committed)
        for _ in range(num_steps)
    ]
    return Program(num_maps, num_partitions, steps)


def change(model, step):
    """What a commit means: the pieces of a partition follow each other."""
    for key in [key for key in model if key[0] == step.map_id]:
        del model[key]
    for partition, data in step.pieces:
        key = step.map_id, partition
        if data:
            model[key] = model.get(key, b"") + data


def wanted(model, step):
    partitions = range(step.first, step.first + step.count)
    return {
        key: data
        for key, data in model.items()
        if key[0] in step.maps and key[1] in partitions
    }


async def commit(outputs, step, path):
    options = dict(step.options)
    if step.is_file:
        options |= {"backend": "file", "path": path}
    async with Writer(outputs, step.map_id, **options) as writer:
        for partition, data in step.pieces:
            writer.write(partition, data)
        await writer.commit()


async def fetch(reader, step, pool):
    got = {}
    blocks = reader.fetch(
        range(step.first, step.first + step.count),
        step.maps,
        max_inflight=step.max_inflight,
        timeout=20,
        pool=pool if step.has_pool else None,
    )
    async for block in blocks:
        key = block.map_id, block.partition
        assert key not in got
        got[key] = bytes(block)
        block.release()
    return got


async def run(comm, program, directory):
    """Walk through a program on one rank."""
    model = {}
    outputs = await MapOutputs.create(
        comm,
        program.num_maps,
        program.num_partitions,
        window=16384,
        max_mapped=32768,
    )
    readers = [Reader(outputs, elsewhere=elsewhere) for elsewhere in (False, True)]
    with ucp.BufferPool(3, 8192) as pool:
        for number, step in enumerate(program.steps):
            if isinstance(step, Commit):
                change(model, step)
                await comm.barrier()  # nobody reads what was there before
                if step.rank == comm.rank:
                    await commit(outputs, step, directory / f"{number}")
                await comm.barrier()
            elif isinstance(step, Fetch):
                got = await fetch(readers[step.elsewhere], step, pool)
                assert got == wanted(model, step), (number, step[:2], step[2:])
            elif isinstance(step, Forget):
                for reader in readers:
                    reader.forget()
            else:
                await readers[number % 2].preconnect()
        assert pool.free == 3
    await comm.barrier()
    for reader in readers:
        reader.close()
    await outputs.close(20)
