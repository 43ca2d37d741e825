# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in a symmetric heap."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex

from .. import _ext

if TYPE_CHECKING:
    import numpy

Cmp = Literal["==", "!=", ">", ">=", "<", "<="]


class Array(_ext.SymmetricMemory):
    """What the arrays of both faces have in common."""

    __slots__ = ("is_freed", "is_part")

    local: numpy.ndarray[Any, Any]  # the buffer protocol gives its items
    is_part: bool
    is_freed: bool

    @classmethod
    def make(
        cls, heap: _ext.SymmetricHeap, offset: int, shape: Any, dtype: Any
    ) -> Self:
        """Make the array of this shape at an offset of the heap, in bytes."""
        import numpy

        dtype = numpy.dtype(dtype)
        nbytes = prod(shape if isinstance(shape, tuple) else (shape,)) * dtype.itemsize
        kind = dtype.kind if dtype.isnative else ">"
        self = cls(heap, offset, nbytes, max(dtype.itemsize, 1), kind)
        self.is_part = self.is_freed = False
        # Not of `self`: the collector does not see through a ndarray.
        memory = _ext.SymmetricMemory(heap, offset, nbytes)
        self.local = numpy.ndarray(shape, dtype, memoryview(memory))
        return self

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """The type of the items."""
        dtype: numpy.dtype[Any] = self.local.dtype
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""
        shape: tuple[int, ...] = self.local.shape
        return shape

    @property
    def size(self) -> int:
        """How many items there are."""
        return self.local.size

    def __len__(self) -> int:
        return len(self.local)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy

        return numpy.array(self.local, dtype, copy=copy)

    def __getitem__(self, key: Any) -> Self:
        """Take a part, which is symmetric, too: contiguous, and not a copy.

        ``array.local[key]`` is a number of this rank, or any part.
        """
        keys = key if isinstance(key, tuple) else (key,)
        for one in keys:
            if not _is_plain(one):
                raise TypeError(
                    f"{one!r} makes a copy, which is not in the heap: index with "
                    "integers and slices"
                )
        part = self.local[keys if Ellipsis in keys else (*keys, ...)]
        start = part.ctypes.data - self.local.ctypes.data
        if not part.flags.c_contiguous:
            raise ValueError(
                f"{key!r} is a part with gaps: iput() and iget() take strides"
            )
        made = self.make(self.heap, self.offset + start, part.shape, part.dtype)
        made.is_part = True
        return made

    def on(self, pe: SupportsIndex) -> numpy.ndarray[Any, Any]:
        """The array of that PE, in place: OpenSHMEM's ``shmem_ptr``.

        After stores to it ``heap.notify(pe)`` wakes who waits there.

        Raises:
            BufferError: the memory of that PE is not mapped here.
        """
        import numpy

        number = heap_pe(self.heap, pe)
        there = _ext.SymmetricMemory(self.heap, self.offset, self.nbytes, pe=number)
        return numpy.ndarray(self.shape, self.dtype, memoryview(there))

    def _status(self, status: Any) -> bytes:
        if status is None:
            return bytes(self.size)
        left_out = bytes(1 if item else 0 for item in status)
        if len(left_out) != self.size:
            raise ValueError(f"status has {len(left_out)} items for {self.size}")
        return left_out

    def _look(self, cmp: Cmp, values: Any, status: Any) -> tuple[list[int], int]:
        """The items that are true, and how many are asked for."""
        before = self._status(status)
        if not before:
            return [], 0
        seen = self._look_many(cmp, values_of(values), before, 0)
        return new_ones(before, seen), before.count(0)

    def test_all(self, cmp: Cmp, values: Any, status: Any = None) -> bool:
        """Do all items compare so now? See ``wait_until_all()``."""
        found, count = self._look(cmp, values, status)
        return len(found) == count

    def test_any(self, cmp: Cmp, values: Any, status: Any = None) -> int | None:
        """The index of an item that compares so now; or None."""
        found, _ = self._look(cmp, values, status)
        return found[0] if found else None

    def test_some(self, cmp: Cmp, values: Any, status: Any = None) -> list[int]:
        """The indices of the items that compare so now."""
        return self._look(cmp, values, status)[0]

    def __repr__(self) -> str:
        return (
            f"<{type(self).__module__.removesuffix('.array').removesuffix('._shmem')}"
            f".{type(self).__name__} {self.dtype} {self.shape} at offset {self.offset}>"
        )


def _is_plain(key: Any) -> bool:
    """Is it a key of one dimension, or a field's name, that makes a view?"""
    if key is None or key is Ellipsis or isinstance(key, (slice, str)):
        return True
    import numpy

    # Arrays have __index__, too; and what is true or false is a mask.
    return hasattr(type(key), "__index__") and not isinstance(
        key, (bool, numpy.bool_, numpy.ndarray)
    )


def heap_pe(heap: _ext.SymmetricHeap, pe: SupportsIndex) -> int:
    number = pe.__index__()
    if not 0 <= number < heap.num_pes:
        raise ValueError(
            f"pe is {number}, but the heap has the PEs 0 to {heap.num_pes - 1}"
        )
    return number


def values_of(values: Any) -> Any:
    """A number for all items, or a tuple of a number for each."""
    return tuple(values) if isinstance(values, Iterable) else values


def new_ones(before: bytes, seen: bytes) -> list[int]:
    """The indices of what has been seen."""
    return [i for i, one in enumerate(seen) if one and not before[i]]


class SymmetricArray(Array):
    """An array at the same offset of every rank's memory: ``heap.zeros()`` makes it.

    Attributes:
        local: this rank's, a ndarray.
        heap, offset, nbytes, dtype, shape, size: as their names say.
        is_part: is it a part of another one, ``array[key]``?
        is_freed: has ``heap.free()`` freed it?

    ``array[key]`` is a part. ``array.on(pe)`` is the array of another rank where it
    is mapped. Waits are for integers of 4 or 8 bytes.
    """

    __slots__ = ()

    wait_until = _ext.SymmetricMemory._wait_until

    async def wait_until_all(self, cmp: Cmp, values: Any, status: Any = None) -> None:
        """Wait until every item has been seen to compare so.

        Args:
            cmp: "==", "!=", ">", ">=", "<" or "<=".
            values: a number, or one for each item: OpenSHMEM's ``_vector``.
            status: an item for each; those that are not 0 are left out.
        """
        before = self._status(status)
        if before:
            await self._wait_many(cmp, values_of(values), before, self.size)

    async def wait_until_any(
        self, cmp: Cmp, values: Any, status: Any = None
    ) -> int | None:
        """Wait until an item compares so to its value.

        Returns:
            The index of the item; None: all items are left out.
        """
        found = await self.wait_until_some(cmp, values, status)
        return found[0] if found else None

    async def wait_until_some(
        self, cmp: Cmp, values: Any, status: Any = None
    ) -> list[int]:
        """Wait until at least one item compares so to its value.

        Returns:
            The indices of the items that compare so.
        """
        before = self._status(status)
        if not before:
            return []
        return new_ones(
            before, await self._wait_many(cmp, values_of(values), before, 1)
        )
