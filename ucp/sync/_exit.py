# SPDX-License-Identifier: BSD-3-Clause
"""What the program has not closed when the interpreter ends.

Blocking communicators and what is made of them are closed then, what was made last
first: layers before their communicator. After an exception that nothing has caught
they are ended as at the end of a ``with`` block, so that the other ranks hear why.
All of it takes at most ``LIMIT`` seconds, whatever the other ranks do.
"""

from __future__ import annotations

import atexit
import itertools
import os
import time
from typing import Protocol
from weakref import WeakValueDictionary

from .._communicator.blocking import SharedWorker
from .._core import ending
from .._core.log import logger

LIMIT = 1.0


class Thing(Protocol):
    """An object that is closed at the exit of the interpreter."""

    _shared: SharedWorker

    def _exit(self, exc: BaseException | None, end: float) -> None:
        """Close the object, until the time ``end`` at most.

        ``exc`` is the exception that has ended the program, or None.
        """


_numbers = itertools.count()
_things: WeakValueDictionary[int, Thing] = WeakValueDictionary()


def register(thing: Thing) -> None:
    """Close ``thing`` at the exit of the interpreter."""
    _things[next(_numbers)] = thing


def left(end: float) -> float:
    """Return the seconds until ``end``."""
    return max(0.0, end - time.monotonic())


def _close_at_exit() -> None:
    exc = ending.unhandled()
    end = time.monotonic() + LIMIT
    # One call of C: threads that go on may register others meanwhile.
    refs = sorted(_things.valuerefs(), key=lambda ref: ref.key, reverse=True)
    things = [thing for ref in refs if (thing := ref()) is not None]
    for thing in things:
        try:
            thing._exit(exc, end)
        except Exception as error:
            logger.debug("leaving %r at exit: %s", thing, error)
    for shared in dict.fromkeys(thing._shared for thing in things):
        shared.stop(left(end))


def _forget_after_fork() -> None:
    """Forget what belongs to the parent."""
    _things.clear()


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_forget_after_fork)
