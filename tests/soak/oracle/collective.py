# SPDX-License-Identifier: BSD-3-Clause
"""What every rank knows of a collective operation of a random program."""

import numpy as np
from data import FILL, Buffer, draw_size, pattern, same

_KINDS = ["array", "array", "bytearray", "memory", "bytes", "gaps"]


class Pieces:
    """Pieces of a buffer, in bytes: one after the other, or anywhere."""

    def __init__(self, rng, counts, item):
        self.counts = counts
        self.displs = None
        self.starts = [sum(counts[:rank]) for rank in range(len(counts))]
        self.nbytes = sum(counts)
        if rng.random() < 0.5:
            self.displs = self.starts = [0] * len(counts)
            self.nbytes = rng.randint(0, 3) * item
            for rank in rng.sample(range(len(counts)), len(counts)):
                self.starts[rank] = self.nbytes
                self.nbytes += counts[rank] + rng.randint(0, 3) * item

    def empty(self):
        return np.full(self.nbytes, FILL, "u1")

    def put(self, data, rank, piece):
        data[self.starts[rank] :][: self.counts[rank]] = piece

    def filled(self, piece_of):
        data = self.empty()
        for rank in range(len(self.counts)):
            self.put(data, rank, piece_of(rank))
        return data


class Collective:
    """What every rank knows of an operation; `size` ranks take part.

    ``begin(comm)`` calls it on one of them, and returns the request and what is to
    be called with its result when it has ended: a check.
    """

    def __init__(self, rng, size):
        self.size = size
        self.key = rng.randrange(1 << 30)
        self.root = rng.randrange(size)
        self.item = rng.choice([1, 1, 2, 4, 8, 16])
        self.kinds = [rng.choice(_KINDS) for _ in range(size)]
        self.in_place = rng.random() < 0.3
        self.draw(rng)

    def draw(self, rng):
        pass

    def draw_bytes(self, rng):
        """A length for each rank's part, in whole items."""
        return draw_size(rng) // self.size // self.item * self.item

    def draw_pieces(self, rng):
        """Pieces of all ranks, of random lengths."""
        return Pieces(rng, [self.draw_bytes(rng) for _ in range(self.size)], self.item)

    def part(self, source, dest, nbytes):
        return pattern(self.key + 31 * source + dest, nbytes)

    def sent(self, comm, data):
        return Buffer(data, self.kinds[comm.rank], self.item)

    def received(self, comm, data):
        kind = self.kinds[comm.rank]
        return Buffer(data, "bytearray" if kind == "bytes" else kind, self.item)

    def check(self, comm, recv, expected, *others):
        """The check that a buffer has these bytes."""

        def check(_):
            if recv is not None:
                same(recv.data(), expected, f"{self} on rank {comm.rank}")
            for each in (recv, *others):
                if each is not None:
                    each.close()

        return check

    def __str__(self):
        return type(self).__name__.lower()
