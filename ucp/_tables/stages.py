# SPDX-License-Identifier: BSD-3-Clause
"""The shuffles of which a call consists, and what ranks tell each other in some.

The nth shuffle with a number belongs to the nth on the other ranks. So each rank
makes each of them once for each call, come what may: a rank that fails, or gives up,
aborts those that it has not come to, and the others find that out wherever they are.
None of this ends the communicator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from .._communicator.communicator import Communicator
from .._core.ending import reason_of
from .._core.memory import Memory
from ..shuffle import Shuffler


class Stages:
    """The shuffles of one call.

    Leaving the block aborts those that have not been made: after an exception, or
    because all ranks have agreed on one.

    Args:
        comm: the communicator.
        op_ids: the numbers of the shuffles.
    """

    def __init__(self, comm: Communicator, op_ids: Sequence[int]) -> None:
        self._comm = comm
        self._left = list(op_ids)

    def make(self, op_id: int, num_partitions: int, **options: Any) -> Shuffler:
        """Make the shuffle ``op_id``: see ``Shuffler``."""
        shuffler = Shuffler(self._comm, op_id, num_partitions, **options)
        self._left.remove(op_id)
        return shuffler

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.give_up(None if exc is None else reason_of(exc))

    def give_up(self, reason: str | None) -> None:
        """Abort the shuffles that have not been made."""
        for op_id in self._left:
            with suppress(Exception):  # of a communicator that has failed, or ended
                shuffler = Shuffler(self._comm, op_id, self._comm.size)
                shuffler.abort(reason)

    async def tell_all(self, parts: Sequence[Any], op_id: int) -> list[bytes]:
        """What each rank tells in a shuffle: this one some buffers, in their order."""
        size = self._comm.size
        data = b"".join(map(memoryview, parts))
        memory: Any = Memory.allocate(max(1, len(data)))
        with memory:
            view = memoryview(memory)[: len(data)]  # inserts that are given up use it
            view[:] = data
            async with self.make(op_id, size) as shuffler:
                inserts = [shuffler.insert(rank, view) for rank in range(size)]
                shuffler.insert_finished()
                chunks = await shuffler.extract(self._comm.rank)
                said = {chunk.source: bytes(chunk) for chunk in chunks}
                for chunk in chunks:
                    chunk.release()
                await asyncio.gather(*inserts)  # until nobody reads the memory
        return [said[rank] for rank in range(size)]
