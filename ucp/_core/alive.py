# SPDX-License-Identifier: BSD-3-Clause
"""Sets of the objects that are alive, for several threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import ref

_T = TypeVar("_T")


class Alive(Generic[_T]):
    """The objects that were added and are referenced elsewhere still.

    Threads may add objects and drop them while another one lists them, which
    ``weakref.WeakSet`` does not allow: every method asks the set for all that it
    needs by one call of C, in which no other thread runs.
    """

    __slots__ = ("_forget", "_refs")

    def __init__(self) -> None:
        self._refs: set[ref[_T]] = set()
        self._forget = self._refs.discard

    def add(self, thing: _T) -> None:
        """Add an object."""
        self._refs.add(ref(thing, self._forget))

    def __contains__(self, thing: _T) -> bool:
        return ref(thing) in self._refs

    def __iter__(self) -> Iterator[_T]:
        """Those that were alive when the iteration began, and still are."""
        for one in list(self._refs):
            thing = one()
            if thing is not None:
                yield thing

    def __len__(self) -> int:
        return len(self._refs)
