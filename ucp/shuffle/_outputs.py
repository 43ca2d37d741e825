# SPDX-License-Identifier: BSD-3-Clause
"""The outputs of maps: each map publishes bytes for every partition."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex

from .. import _ext
from .._communicator.communicator import Communicator

ByteOrder = Literal["little", "big"]
Path = str | bytes | os.PathLike[Any]

BIG_ENDIAN = 1
CHECKSUMS = 2


@dataclass(frozen=True, slots=True)
class MapOutput:
    """A description of the output of a map: ``MapOutputs.find()`` returns it.

    Attributes:
        epoch: which commit of the map it is; 1 for the first.
        rank: the rank that has committed it.
        kind: "memory" or "file".
        nbytes: length of the output, with the offsets and checksums.
        byteorder: of the offsets, "little" or "big".
        checksums: whether each partition has one.
    """

    epoch: int
    rank: int
    kind: str
    nbytes: int
    byteorder: str
    checksums: bool


def flags_of(byteorder: ByteOrder, checksums: bool) -> int:
    """The numbers by which libumx knows how an output is written."""
    if byteorder not in ("little", "big"):
        raise ValueError(f"byteorder is {byteorder!r}; it is 'little' or 'big'")
    return (BIG_ENDIAN if byteorder == "big" else 0) | (CHECKSUMS if checksums else 0)


class MapOutputs(_ext.MapOutputs):
    """The outputs of maps, which ranks write and read where they are.

        outputs = await ucp.shuffle.MapOutputs.create(comm, num_maps, num_partitions)
        async with ucp.shuffle.Writer(outputs, map_id) as writer:
            writer.write(partition, data)
            await writer.commit()
        async for block in ucp.shuffle.Reader(outputs).fetch(partition):
            use(block.map_id, memoryview(block))
        await outputs.close()

    Every rank calls ``create()``. Afterwards a rank may write any map with a
    ``Writer``, and read any partition with a ``Reader``, in any order. The other ranks
    take no part. A table says where each output is, and every rank has a copy of it.

    The outputs use the endpoints of the communicator and not the communicator itself.
    So if a rank fails, the outputs of the other ranks can still be read, as long as
    the communicator has not been closed.
    """

    __slots__ = ("_comm",)

    _comm: Communicator

    @classmethod
    async def create(
        cls,
        comm: Communicator,
        num_maps: SupportsIndex,
        num_partitions: SupportsIndex,
        *,
        window: SupportsIndex | None = None,
        max_mapped: SupportsIndex | None = None,
        lease: float | None = None,
    ) -> Self:
        """Make the outputs of ``num_maps`` maps; a collective operation.

        Args:
            comm: the communicator.
            num_maps: how many maps there are; the same on every rank.
            num_partitions: how many partitions each map has; the same.
            window: bytes of a file that are mapped at a time; None: 256 MiB.
            max_mapped: bytes that this rank maps of its files for ranks of other
                hosts; None: four windows.
            lease: seconds after which a window may be taken away from a rank of
                another host; None: 60.

        Raises:
            UCXError: the ranks give different numbers.
            UCXRankFailed: a rank has ended, or has cancelled the call.
            UCXTimeout: not all ranks have come within the time limit of the
                communicator.
            ValueError: a number that makes no sense, which the text names.
        """
        self = cls(comm, num_maps, num_partitions, window, max_mapped, lease)
        self._comm = comm
        await self._create()
        return self

    @property
    def comm(self) -> Communicator:
        """The communicator."""
        return self._comm

    @property
    def window_bytes(self) -> int:
        """Bytes of files that are mapped here for ranks of other hosts."""
        return self._mapped[0]

    @property
    def most_window_bytes(self) -> int:
        """The largest value of ``window_bytes`` so far."""
        return self._mapped[1]

    def find(self, map_id: SupportsIndex) -> MapOutput | None:
        """Look for the output of a map; None: it has not been committed.

        Raises:
            UCXCloseError: the outputs are closed.
            ValueError: there is no such map.
        """
        found = self._find(map_id)
        if found is None:
            return None
        epoch, rank, kind, nbytes, flags = found
        return MapOutput(
            epoch,
            rank,
            kind,
            nbytes,
            "big" if flags & BIG_ENDIAN else "little",
            bool(flags & CHECKSUMS),
        )

    async def publish_file(
        self,
        map_id: SupportsIndex,
        path: Path,
        *,
        byteorder: ByteOrder = "little",
        checksums: bool = False,
    ) -> None:
        """Commit a file that a ``Writer`` has written, here or in another process.

        If a rank has ended, another rank can publish its file by this call. The file
        must not be changed after the call.

        Args:
            map_id: the map.
            path: the file.
            byteorder, checksums: as they were given to the ``Writer``.

        Raises:
            UCXError: the file cannot be read, as ``errno`` says; or it is not an output
                of so many partitions.
            ValueError: there is no such map.
        """
        absolute = os.path.abspath(os.fsdecode(path))
        await self._publish_file(map_id, absolute, flags_of(byteorder, checksums))

    async def close(self, timeout: float | None = None) -> None:
        """Close the outputs, and wait until no process has a memory mapped that this
        rank has committed.

        After this call this rank can commit and read nothing by these outputs, and
        other ranks can open no output of this rank. So call it when the other ranks
        have read everything, for example after a barrier. Blocks that they have stay
        valid.

        The system counts the processes that have a memory mapped. A process that has
        ended does not count. If such a process has called ``fork()``, its child counts
        as well, until the child has ended.

        Args:
            timeout: seconds; None: there is no limit.

        Raises:
            UCXTimeout: some memories are still mapped; the text says how many. The
                call may be repeated.
        """
        await self._close(timeout)
        self.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give them up, as ``abort()`` does: nobody is waited for."""
        self.abort()

    def __repr__(self) -> str:
        if self.closed():
            return "<ucp.shuffle.MapOutputs, closed>"
        return (
            f"<ucp.shuffle.MapOutputs, rank {self._comm.rank} of {self._comm.size}, "
            f"{self.num_maps} maps of {self.num_partitions} partitions>"
        )
