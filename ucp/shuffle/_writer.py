# SPDX-License-Identifier: BSD-3-Clause
"""The output of a map while it is written."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Literal, Self, SupportsIndex

from .. import _ext
from ._outputs import ByteOrder, MapOutputs, Path, flags_of


class Writer(_ext.MapWriter):
    """Write the output of a map, and commit it.

        async with ucp.shuffle.Writer(outputs, map_id) as writer:
            for partition, data in pieces:
                writer.write(partition, data)
            await writer.commit()

    Partitions may be written in any order, and in several pieces: the pieces of
    one partition follow each other in the order of the calls. Nobody sees anything
    of them before the commit. Leaving ``async with`` without a commit drops them.

    A map may be written again, by this rank or another: the last commit counts.
    Readers that have begun to read the output before go on with that.

    Args:
        outputs: the outputs.
        map_id: the map.
        backend: "memory": the output is a memory of this process, which others on
            the host map to read it. What is written is copied when it is written,
            and once more by the commit. "file": the output is a file, which
            survives this process; see ``MapOutputs.publish_file``.
        path: of the file, which is there from the commit on. Until then it has
            another name, in the same directory. A file whose partitions are
            written in their order is written once, another twice.
        byteorder: of the offsets with which an output begins. "big": these
            ``8 * (num_partitions + 1)`` bytes are those of the index file that
            Apache Spark's shuffle would write.
        checksums: store a checksum of each partition, which readers check.

    Raises:
        UCXCloseError: the outputs are closed.
        UCXError: the file cannot be made: ``errno`` says why.
        ValueError: there is no such map, backend or byte order, or no path.
    """

    __slots__ = ()

    def __new__(
        cls,
        outputs: MapOutputs,
        map_id: SupportsIndex,
        backend: Literal["memory", "file"] = "memory",
        *,
        path: Path | None = None,
        byteorder: ByteOrder = "little",
        checksums: bool = False,
    ) -> Self:
        if backend not in ("memory", "file"):
            raise ValueError(f"backend is {backend!r}; it is 'memory' or 'file'")
        if (path is not None) != (backend == "file"):
            raise ValueError("a path is given for the backend 'file', and only there")
        absolute = None if path is None else os.path.abspath(os.fsdecode(path))
        return super().__new__(
            cls, outputs, map_id, flags_of(byteorder, checksums), absolute
        )

    async def commit(self) -> int:
        """Publish what was written: every rank finds it when this returns.

        A rank that cannot be reached any more is left out. A commit that is
        cancelled goes on; one that is cut off by the end of this process is seen
        by some ranks, or by none, but never in part.

        Returns:
            The epoch: which commit of the map this is.

        Raises:
            UCXCloseError: the writer has been committed or aborted, or the outputs
                are closed.
            UCXError: the file cannot be written: ``errno`` says why; or the system
                gives no memory of that size.
            UCXBusy: other ranks commit the map again and again.
        """
        await self._commit()
        epoch = self.epoch
        assert epoch is not None
        return epoch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drop what has not been committed."""
        self.abort()

    def __repr__(self) -> str:
        state = "" if self.epoch is None else f", epoch {self.epoch}"
        return f"<ucp.shuffle.Writer, {self.nbytes} bytes{state}>"
