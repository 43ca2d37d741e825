# SPDX-License-Identifier: BSD-3-Clause
"""Sets of objects that several threads use."""

import threading

import ucp
from ucp._core import context
from ucp._core.alive import Alive


class Thing:
    pass


def test_an_object_is_listed_while_it_is_referenced():
    things = Alive()
    first, second = Thing(), Thing()
    things.add(first)
    things.add(second)
    things.add(first)
    assert len(things) == 2
    assert first in things
    assert set(things) == {first, second}
    del second
    assert list(things) == [first]
    assert len(things) == 1
    assert Thing() not in things


def test_an_object_that_goes_during_the_iteration_is_left_out():
    things = Alive()
    kept = [Thing(), Thing()]
    things.add(kept[0])
    things.add(kept[1])
    walk = iter(things)
    assert next(walk) in kept
    kept.clear()
    assert list(walk) == []


def listed_while(threads, list_all):
    """Call `list_all` until the threads have ended; the errors of it."""
    errors = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        try:
            list_all()
        except RuntimeError as exc:
            errors.append(exc)
    for thread in threads:
        thread.join()
    return errors


def test_memories_are_listed_while_threads_allocate():
    def allocate():
        for _ in range(6000):
            memories = [ucp.Memory.allocate(64) for _ in range(3)]
            del memories

    threads = [threading.Thread(target=allocate) for _ in range(2)]
    errors = listed_while(threads, lambda: [repr(one) for one in context.memories])
    assert errors == []
    assert len(context.memories) == 0
