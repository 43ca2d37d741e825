# SPDX-License-Identifier: BSD-3-Clause
"""Collective operations of a random program that move bytes, and their results."""

import numpy as np
import reductions
from collective import Collective, Pieces
from data import FILL, draw_size, same

import ucp


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
        if self.in_place:
            out = [[out[min(a, b)][max(a, b)] for a in ranks] for b in ranks]
        self.out = [Pieces(rng, out[rank], self.item) for rank in ranks]
        self.into = [
            Pieces(rng, [out[r][rank] for r in ranks], self.item) for rank in ranks
        ]

    def begin(self, comm):
        rank, out, into = comm.rank, self.out[comm.rank], self.into[comm.rank]
        if self.in_place:
            return self.begin_in_place(comm)
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

    def begin_in_place(self, comm):
        """What two ranks exchange has one length."""
        rank, into = comm.rank, self.into[comm.rank]
        recv = self.received(
            comm, into.filled(lambda r: self.part(rank, r, into.counts[r]))
        )
        expected = into.filled(lambda r: self.part(r, rank, into.counts[r]))
        request = comm.alltoallv(
            ucp.IN_PLACE,
            None,
            recv.object,
            recv.counts(into.counts),
            recv_displs=recv.counts(into.displs),
        )
        return request, self.check(comm, recv, expected)


class Alltoall(Collective):
    def draw(self, rng):
        self.nbytes = self.draw_bytes(rng)

    def begin(self, comm):
        rank, ranks = comm.rank, range(self.size)
        if self.in_place:
            recv = self.received(
                comm, np.concatenate([self.part(rank, r, self.nbytes) for r in ranks])
            )
            expected = np.concatenate([self.part(r, rank, self.nbytes) for r in ranks])
            request = comm.alltoall(ucp.IN_PLACE, recv.object)
            return request, self.check(comm, recv, expected)
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


ALL = [
    *(Barrier, Bcast, Gather, Scatter, Allgather, Allgatherv, Alltoall),
    *(Alltoallv, AlltoallBuffers, *reductions.ALL, *reductions.ALL),
]
