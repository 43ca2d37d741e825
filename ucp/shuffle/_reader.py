# SPDX-License-Identifier: BSD-3-Clause
"""Reading the outputs of maps."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from operator import index
from types import TracebackType
from typing import Any, Self, SupportsIndex

from .. import _ext
from .._core.pool import BufferPool
from .._core.statistics import Statistics
from ..exceptions import UCXError, UCXTimeout
from ._outputs import MapOutputs

_INFLIGHT = 48 << 20
_ELSEWHERE = 1
_LATER = 1
_NAMED = 10  # maps in the text of an error
_TIMED_OUT = -20  # UMX_ERR_TIMED_OUT

# A block that is being copied, where to, and the request.
_Landing = tuple[_ext.MapBlock, memoryview, _ext.Request[None]]


@dataclass(frozen=True, slots=True)
class ReaderStatistics(Statistics):
    """Statistics of a reader: ``Reader.statistics``.

    Attributes:
        num_blocks: blocks that the iterators have returned. The next three numbers
            are bytes of these blocks.
        own: bytes of outputs that were committed on this rank.
        mapped: bytes in files, and in memories of other processes, that were read
            in place.
        copied: bytes of other ranks that were copied to memory of this process.
        num_opened: outputs that were opened, once for each epoch.
        num_reads: transfers from other ranks.
        num_windows: windows of files, mapped here or by their owners.
        num_retries: how often another epoch or window was read instead of one that
            could not be read any more.
        seconds_waited: seconds in which there was no block to return.
    """

    num_blocks: int
    own: int
    mapped: int
    copied: int
    num_opened: int
    num_reads: int
    num_windows: int
    num_retries: int
    seconds_waited: float


class Reader(_ext.MapReader):
    """Read partitions of the outputs of maps.

    A reader remembers the outputs that it has opened. So make one reader for
    everything that a rank reads. As long as a reader remembers an output, the owner of
    the output cannot free the memory. ``forget()`` and ``close()`` of the reader end
    this, and so does closing the outputs.

    Args:
        outputs: the outputs.
        elsewhere: read as if other ranks were on other hosts; for tests.

    Raises:
        UCXCloseError: the outputs are closed.
    """

    __slots__ = ("_outputs",)

    _outputs: MapOutputs

    def __new__(cls, outputs: MapOutputs, *, elsewhere: bool = False) -> Self:
        self = super().__new__(cls, outputs, _ELSEWHERE if elsewhere else 0)
        self._outputs = outputs
        return self

    @property
    def statistics(self) -> ReaderStatistics:
        """Counts since the reader was made."""
        return ReaderStatistics(**self._statistics)

    async def fetch(
        self,
        partition: SupportsIndex | range | slice,
        maps: Iterable[SupportsIndex] | None = None,
        *,
        max_inflight: SupportsIndex = _INFLIGHT,
        timeout: float | None = None,
        pool: BufferPool | None = None,
    ) -> AsyncGenerator[_ext.MapBlock, None]:
        """Read a partition, or several, of maps: an asynchronous iterator of blocks.

        Each block has the bytes of one map for one partition: ``map_id`` and
        ``partition`` name the two. A block is a read-only buffer. It stays valid as
        long as the program has it, even if its rank ends. If the output can be mapped,
        a block is a view of it: memory of this host, and files of this host. Other
        bytes are copied. There are no blocks without bytes, and blocks come in any
        order.

        The iterator is a generator. ``await aclose()``, contextlib.aclosing() and
        cancelling the task that waits for a block end it early. Afterwards nothing is
        written to memory that the program has.

        Args:
            partition: its number; or a range or slice of numbers, without steps.
            maps: their numbers; None: all.
            max_inflight: limit of the bytes that are being copied, or have been
                copied and not returned yet. One block may be longer.
            timeout: the longest time in seconds in which neither a block nor a
                missing map comes; None: there is no limit.
            pool: bytes that are copied from memory of other ranks go to buffers of
                this pool. Hold fewer blocks than it has buffers: the next one waits
                for a free buffer. A block that is longer than its buffers gets
                its own memory; so do outputs with checksums, and files of other
                hosts.

        Raises:
            UCXTimeout: the time ran out: the text and ``maps`` name the maps that
                have not been committed.
            UCXError: the output of a map, ``map_id``, cannot be read from its
                owner, ``rank``, any more, and has not been committed again, or is
                damaged. If the connection is lost it is UCXConnectionReset, for
                example, and UCXInvalidKey if the owner has closed the outputs.
            UCXCloseError: the outputs or the reader have been closed.
            ValueError: there is no such partition, or no such map.
        """
        first, count = _partitions(partition, self._outputs.num_partitions)
        limit = index(max_inflight)
        if limit < 1:
            raise ValueError(f"max_inflight is {limit} bytes")
        if pool is not None and not isinstance(pool, BufferPool):
            raise TypeError(f"pool must be a BufferPool, not {pool!r}")
        flags = 0 if pool is None else _LATER
        fetch = self._fetch(first, count, _each_once(maps), limit, timeout, flags)
        try:
            if pool is None:
                while (block := fetch.take()) is not None:
                    if block:
                        yield block
                    else:
                        await _wait(fetch, timeout)
            else:
                landed = self._landed(fetch, pool, timeout, limit)
                async with aclosing(landed):
                    async for block in landed:
                        yield block
        finally:
            fetch.close()

    async def _landed(
        self,
        fetch: _ext.MapFetch,
        pool: BufferPool,
        timeout: float | None,
        limit: int,
    ) -> AsyncGenerator[_ext.MapBlock, None]:
        """Blocks, of which those that have to be copied are copied to the pool."""
        under_way: deque[_Landing] = deque()
        held = 0
        try:
            while True:
                has_room = held < limit and (pool.free or not under_way)
                block = fetch.take() if has_room else False
                if block and block.place == "away":
                    under_way.append(await _begin(pool, block, timeout))
                    held += block.nbytes
                elif block:
                    yield block
                elif under_way:
                    held -= under_way[0][0].nbytes
                    if block := await self._first(under_way, timeout):
                        yield block
                elif block is None:
                    return
                else:
                    await _wait(fetch, timeout)
        finally:
            for _, _, request in under_way:
                request.cancel()
            for _, _, request in under_way:
                with suppress(Exception, asyncio.CancelledError):
                    await request

    async def _first(
        self, under_way: deque[_Landing], timeout: float | None
    ) -> _ext.MapBlock | None:
        """The first block, when its bytes have come."""
        block, view, request = under_way[0]
        try:
            await asyncio.wait_for(request, timeout)
        except UCXError:
            # The exception refers to this frame, which must not hold the buffer.
            del view, request
            under_way.popleft()
            return await self._again(block, timeout)
        except TimeoutError:
            text = f"fetch: map {block.map_id} of rank {block.rank} has sent nothing"
            raise _timed_out(f"{text} for {timeout} s", []) from None
        under_way.popleft()
        block._land(view)
        return block

    async def _again(
        self, block: _ext.MapBlock, timeout: float | None
    ) -> _ext.MapBlock | None:
        """Read what a later epoch has instead of this block, which was not read."""
        blocks = self.fetch(block.partition, [block.map_id], timeout=timeout)
        async with aclosing(blocks):
            async for again in blocks:
                return again
        return None

    async def preconnect(self, maps: Iterable[SupportsIndex] | None = None) -> int:
        """Open outputs that have been committed, so that fetches need not.

        Args:
            maps: their numbers; None: all.

        Returns:
            How many have been committed, and are open now.

        Exceptions are as for ``fetch()``.
        """
        outputs = self._outputs
        wanted = range(outputs.num_maps) if maps is None else maps
        there = [each for each in wanted if outputs._find(each) is not None]
        fetch = self._fetch(0, 0, there, _INFLIGHT, None, 0)
        try:
            while fetch.take() is not None:
                await fetch.wait()
        finally:
            fetch.close()
        return len(there)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _partitions(partition: SupportsIndex | range | slice, end: int) -> tuple[int, int]:
    """The first partition, and how many."""
    if isinstance(partition, slice):
        partition = range(*partition.indices(end))
    if not isinstance(partition, range):
        number = index(partition)
        if not 0 <= number < end:
            raise ValueError(f"there is no partition {number}: there are {end}")
        return number, 1
    if partition.step != 1:
        raise ValueError(f"the partitions {partition} have gaps, or go backwards")
    if not partition:
        return 0, 0
    if partition.start < 0 or partition.stop > end:
        raise ValueError(f"there are no partitions {partition}: there are {end}")
    return partition.start, len(partition)


async def _wait(fetch: _ext.MapFetch, timeout: float | None) -> None:
    try:
        await fetch.wait()
    except UCXTimeout:
        missing = fetch.missing()
        raise _timed_out(_text(missing, timeout), missing) from None


def _text(missing: list[int], timeout: float | None) -> str:
    if not missing:
        return f"fetch: nothing has come for {timeout} s of maps that are committed"
    names = ", ".join(map(str, missing[:_NAMED]))
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    are = "have" if len(missing) > 1 else "has"
    noun = "maps" if len(missing) > 1 else "map"
    return (
        f"fetch: nothing has come for {timeout} s: {noun} {names}{more} {are} not "
        "been committed"
    )


def _each_once(maps: Iterable[SupportsIndex] | None) -> Iterable[SupportsIndex] | None:
    if isinstance(maps, bytes | bytearray | str):
        raise TypeError(f"maps must be an iterable of numbers, not {maps!r}")
    return None if maps is None else dict.fromkeys(map(index, maps))


async def _begin(
    pool: BufferPool, block: _ext.MapBlock, timeout: float | None
) -> _Landing:
    """Begin to copy a block to the pool."""
    view = await _room(pool, block.nbytes, timeout)
    return block, view, block._get(view)


async def _room(pool: BufferPool, nbytes: int, timeout: float | None) -> memoryview:
    if nbytes > pool.nbytes:
        return memoryview(bytearray(nbytes))
    try:
        buffer: Any = await asyncio.wait_for(pool.acquire(), timeout)
    except TimeoutError:
        text = f"fetch: the pool has had no free buffer for {timeout} s"
        raise _timed_out(text, []) from None
    return memoryview(buffer)[:nbytes]


def _timed_out(text: str, missing: list[int]) -> Exception:
    error: Any = _ext.exception_from_status(_TIMED_OUT, text)
    error.maps = missing
    return error  # type: ignore[no-any-return]
