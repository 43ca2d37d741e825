# SPDX-License-Identifier: BSD-3-Clause
"""Collective operations of a random program, and their results by NumPy."""

import numpy as np
from data import DTYPES, FILL, NUMPY, Buffer, draw_size, numbers, pattern, same

import ucp

_KINDS = ["array", "array", "bytearray", "memory", "bytes"]


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


class Barrier(Collective):
    def begin(self, comm):
        return comm.barrier(), self.check(comm, None, None)


class Bcast(Collective):
    def draw(self, rng):
        self.nbytes = draw_size(rng) // self.item * self.item

    def begin(self, comm):
        data = self.part(self.root, 0, self.nbytes)
        if comm.rank == self.root:
            buffer = self.sent(comm, data)
        else:
            buffer = self.received(comm, np.full(self.nbytes, FILL, "u1"))
        return comm.bcast(buffer.object, self.root), self.check(comm, buffer, data)


class Gather(Collective):
    to_all = False

    def draw(self, rng):
        self.pieces = self.draw_pieces(rng)

    def begin(self, comm):
        rank, pieces = comm.rank, self.pieces
        if not (self.to_all or rank == self.root):
            send = self.sent(comm, self.part(rank, 0, pieces.counts[rank]))
            return comm.gather(send.object, None, self.root), self.check(
                comm, None, None, send
            )
        data = pieces.empty()
        send, given = None, ucp.IN_PLACE
        if self.in_place:
            pieces.put(data, rank, self.part(rank, 0, pieces.counts[rank]))
        else:
            send = self.sent(comm, self.part(rank, 0, pieces.counts[rank]))
            given = send.object
        recv = self.received(comm, data)
        expected = pieces.filled(lambda r: self.part(r, 0, pieces.counts[r]))
        return self.post(comm, given, recv), self.check(comm, recv, expected, send)

    def post(self, comm, send, recv):
        counts, displs = (
            recv.counts(self.pieces.counts),
            recv.counts(self.pieces.displs),
        )
        return comm.gather(send, recv.object, self.root, counts=counts, displs=displs)


class Allgatherv(Gather):
    to_all = True

    def post(self, comm, send, recv):
        counts, displs = (
            recv.counts(self.pieces.counts),
            recv.counts(self.pieces.displs),
        )
        return comm.allgatherv(send, recv.object, counts, displs=displs)


class Allgather(Gather):
    to_all = True

    def draw(self, rng):
        self.pieces = Pieces(rng, [self.draw_bytes(rng)] * self.size, self.item)
        self.pieces.starts = [self.pieces.counts[0] * rank for rank in range(self.size)]
        self.pieces.nbytes = sum(self.pieces.counts)

    def post(self, comm, send, recv):
        return comm.allgather(send, recv.object)


class Scatter(Collective):
    def draw(self, rng):
        self.pieces = self.draw_pieces(rng)

    def begin(self, comm):
        rank, pieces = comm.rank, self.pieces
        part = self.part(self.root, rank, pieces.counts[rank])
        recv, into = None, ucp.IN_PLACE
        if rank != self.root or not self.in_place:
            recv = self.received(comm, np.full(len(part), FILL, "u1"))
            into = recv.object
        if rank != self.root:
            return comm.scatter(None, into, self.root), self.check(comm, recv, part)
        send = self.sent(
            comm, pieces.filled(lambda r: self.part(rank, r, pieces.counts[r]))
        )
        request = comm.scatter(
            send.object,
            into,
            self.root,
            counts=send.counts(pieces.counts),
            displs=send.counts(pieces.displs),
        )
        return request, self.check(comm, recv, part, send)


class Alltoallv(Collective):
    def draw(self, rng):
        ranks = range(self.size)
        out = [[self.draw_bytes(rng) for _ in ranks] for _ in ranks]
        self.out = [Pieces(rng, out[rank], self.item) for rank in ranks]
        self.into = [
            Pieces(rng, [out[r][rank] for r in ranks], self.item) for rank in ranks
        ]

    def begin(self, comm):
        rank, out, into = comm.rank, self.out[comm.rank], self.into[comm.rank]
        send = self.sent(comm, out.filled(lambda r: self.part(rank, r, out.counts[r])))
        recv = self.received(comm, into.empty())
        expected = into.filled(lambda r: self.part(r, rank, into.counts[r]))
        request = comm.alltoallv(
            send.object,
            send.counts(out.counts),
            recv.object,
            recv.counts(into.counts),
            send_displs=send.counts(out.displs),
            recv_displs=recv.counts(into.displs),
        )
        return request, self.check(comm, recv, expected, send)


class Alltoall(Collective):
    def draw(self, rng):
        self.nbytes = self.draw_bytes(rng)

    def begin(self, comm):
        rank, ranks = comm.rank, range(self.size)
        send = self.sent(
            comm, np.concatenate([self.part(rank, r, self.nbytes) for r in ranks])
        )
        expected = np.concatenate([self.part(r, rank, self.nbytes) for r in ranks])
        recv = self.received(comm, np.full(len(expected), FILL, "u1"))
        request = comm.alltoall(send.object, recv.object)
        return request, self.check(comm, recv, expected, send)


class AlltoallBuffers(Collective):
    def draw(self, rng):
        ranks = range(self.size)
        self.out = [[self.draw_bytes(rng) for _ in ranks] for _ in ranks]

    def begin(self, comm):
        rank = comm.rank
        sends = [
            self.sent(comm, self.part(rank, r, nbytes))
            for r, nbytes in enumerate(self.out[rank])
        ]

        def check(got):
            assert len(got) == self.size
            for source, view in enumerate(got):
                expected = self.part(source, rank, self.out[source][rank])
                what = f"{self} on rank {rank} of rank {source}"
                same(np.asarray(view), expected, what)
            for each in sends:
                each.close()

        return comm.alltoall_buffers([each.object for each in sends]), check


class Reduce(Collective):
    to_all = False

    def draw(self, rng):
        self.op = rng.choice([*NUMPY])
        dtypes = (
            DTYPES if self.op in ("sum", "prod") else [d for d in DTYPES if d[0] != "c"]
        )
        self.dtype = np.dtype(rng.choice(dtypes))
        self.count = min(draw_size(rng), 16 << 20) // self.dtype.itemsize

    def begin(self, comm):
        every = [
            numbers(self.key + r, self.count, self.dtype) for r in range(self.size)
        ]
        expected = every[0]
        with np.errstate(all="ignore"):
            for other in every[1:]:
                expected = NUMPY[self.op](expected, other)
        send = every[comm.rank].copy()
        recv = None
        if self.to_all or comm.rank == self.root:
            recv = np.full(self.count, 1, self.dtype)
            if self.in_place:
                recv, send = send, ucp.IN_PLACE

        def check(_):
            if recv is not None:
                same(recv, expected, f"{self} on rank {comm.rank}")
            if send is not ucp.IN_PLACE:
                same(send, every[comm.rank], f"what {self} sends on rank {comm.rank}")

        return self.post(comm, send, recv), check

    def post(self, comm, send, recv):
        return comm.reduce(send, recv, self.op, self.root)

    def __str__(self):
        return f"{super().__str__()} ({self.op} of {self.count} {self.dtype})"


class Allreduce(Reduce):
    to_all = True

    def post(self, comm, send, recv):
        if send is ucp.IN_PLACE and self.key % 2:
            return comm.allreduce(recv, op=self.op)
        return comm.allreduce(send, recv, self.op)


ALL = [
    *(Barrier, Bcast, Gather, Scatter, Allgather, Allgatherv, Alltoall),
    *(Alltoallv, AlltoallBuffers, Reduce, Allreduce),
]
