# SPDX-License-Identifier: BSD-3-Clause
"""A model of one direction of a connection: messages meet receives in order.

A message whose send was cancelled may be withdrawn at any time: nobody has it
then, and a receive that it had met waits again.

When a message arrives is not known, nor whether a receive that is cancelled had
its message already. So the model is a set of states, all that are possible; what
the test observes strikes out those that contradict it, and none left is a bug.
"""

from typing import NamedTuple

ANY = "any"


class Message(NamedTuple):
    tag: int | None
    data: bytes


class Receive(NamedTuple):
    """A receive's conditions: a tag, None for untagged, ANY; and its capacity."""

    tag: int | str | None
    mask: int
    capacity: int | None  # None: whatever comes
    is_exact: bool = False  # a message that is shorter does not fit, either

    def matches(self, message):
        if self.tag == ANY:
            return True
        if self.tag is None or message.tag is None:
            return self.tag is message.tag
        return (self.tag ^ message.tag) & self.mask == 0

    def fits(self, message):
        """Else the receive fails, and the message is for the next one: which drops
        it, if it does not fit that one, either, and waits for another."""
        length = len(message.data)
        if self.capacity is None or length == self.capacity:
            return True
        return length < self.capacity and not self.is_exact


class State(NamedTuple):
    """Numbers of messages and receives."""

    arrived: int  # messages below this one
    queue: tuple[int, ...]  # arrived and not matched, in order
    posted: tuple[int, ...]  # receives not matched, in order
    matched: frozenset[tuple[int, int]]  # (receive, message)
    ending: frozenset[int]  # receives asked to cancel
    failed: frozenset[tuple[int, int]]  # (receive, message that does not fit)
    refused: frozenset[int]  # messages of the queue that a receive failed for


class Direction:
    """All messages sent one way, and all receives of them."""

    def __init__(self):
        self.messages = []
        self.receives = []
        self.doubtful = set()  # messages that may never arrive, or be withdrawn
        self.holders = set()  # receives that are Message objects
        self.is_lossy = False  # none need arrive: only what does is checked
        self.num_taken = 0  # messages that receives have finished with
        none = frozenset()
        self._states = {State(0, (), (), none, none, none, none)}

    # ---- what the test does ----

    def send(self, tag, data):
        self.messages.append(Message(tag, data))
        return len(self.messages) - 1

    def post(self, receive):
        """``receive`` is posted at some time from now until the next call."""
        self.receives.append(receive)
        number = len(self.receives) - 1
        self._update(lambda state: self._post(state, number))
        return number

    def cancel(self, number):
        self._update(lambda state: state._replace(ending=state.ending | {number}))

    def hold(self, number):
        """A receive that has got message after all: a Message object has."""
        self.receives.append(Receive(ANY, 0, None))
        new = len(self.receives) - 1
        self.holders.add(new)

        def move(state):
            got = dict(state.matched)[number]
            matched = state.matched - {(number, got)} | {(new, got)}
            return state._replace(matched=matched)

        self._change(move)
        return new

    def drop(self, number):
        """A message that was held goes back to its queue."""
        self._update(lambda state: self._release(state, number))

    # ---- what the test sees ----

    def cancelled(self, number):
        """The receive ended as cancelled: it has no message."""
        self._observe(
            f"receive {number} is cancelled",
            lambda state: number not in state.ending,
        )

    def received(self, number, accept):
        """The receive is done with a message that ``accept`` takes."""
        if self.is_lossy:
            receive = self.receives[number]
            sent = [message for message in self.messages if receive.matches(message)]
            assert any(accept(message) for message in sent), self.describe()
            return

        def is_possible(state):
            got = dict(state.matched).get(number)
            return got is not None and accept(self.messages[got])

        self._observe(f"receive {number} is done", is_possible)

    def withdrawn(self, number):
        """The sender has withdrawn the message of a Message object."""
        self._observe(
            f"the message of {number} is withdrawn",
            lambda state: number not in dict(state.matched),
        )
        self.withdraw(number)

    def refused(self, number, length):
        """The receive failed: a message of that length does not fit."""
        if self.is_lossy:
            return

        def is_possible(state):
            met = dict(state.failed).get(number)
            return met is not None and len(self.messages[met].data) == length

        self._observe(f"receive {number} does not fit {length} bytes", is_possible)
        self.withdraw(number)

    def take(self, number):
        """After ``received``: the message is used up."""

        def remove(state):
            got = dict(state.matched)[number]
            return state._replace(
                matched=state.matched - {(number, got)},
                ending=state.ending - {number},
            )

        self.num_taken += 1
        self._change(remove)

    def never_came(self, number):
        """The receive ended because nothing more can arrive."""
        self._observe(
            f"receive {number} found nothing",
            lambda state: number in state.posted and self._is_complete(state),
        )
        self.withdraw(number)

    def withdraw(self, number):
        """The receive ended with an error that is allowed to lose its message."""

        def remove(state):
            return state._replace(
                posted=tuple(r for r in state.posted if r != number),
                matched=frozenset(pair for pair in state.matched if pair[0] != number),
                failed=frozenset(pair for pair in state.failed if pair[0] != number),
                ending=state.ending - {number},
            )

        self._update(remove)

    def probed(self, receive, found):
        """``found``: (length, tag) of the first message in the queue, or None."""

        def is_possible(state):
            for number in state.queue:
                message = self.messages[number]
                if receive.matches(message):
                    return (len(message.data), message.tag) == found
            return found is None

        self._observe(f"probe gives {found}", is_possible)

    def emptied(self):
        """All that was sent has arrived and is in nobody's queue."""
        self._observe(
            "nothing is left",
            lambda state: self._is_complete(state) and not state.queue,
        )

    def is_vague(self):
        """Are so many states possible that more choices would be too many?"""
        return len(self._closure()) > 100

    def describe(self):
        sent = [(m.tag, len(m.data)) for m in self.messages]
        return f"messages {sent}\nreceives {self.receives}\nstates {self._states}"

    # ---- states ----

    def _is_complete(self, state):
        return state.arrived == len(self.messages) and not state.ending

    def _update(self, change):
        if self.is_lossy:
            return
        self._states = {change(state) for state in self._closure()}

    def _change(self, change):
        """``_update`` of what has just been observed: nothing happens in between."""
        if not self.is_lossy:
            self._states = {change(state) for state in self._states}

    def _observe(self, what, is_possible):
        if self.is_lossy:
            return
        left = {state for state in self._closure() if is_possible(state)}
        assert left, f"impossible: {what}\n{self.describe()}"
        self._states = left

    def _closure(self):
        """The states, and those that they may have become meanwhile."""
        found = set(self._states)
        waiting = list(found)
        while waiting:
            for state in self._successors(waiting.pop()):
                if state not in found:
                    found.add(state)
                    waiting.append(state)
        self._states = found
        return found

    def _successors(self, state):
        if state.arrived < len(self.messages):
            later = state._replace(arrived=state.arrived + 1)
            yield self._offer(later, state.arrived)
            if state.arrived in self.doubtful:
                yield later
        for message in state.queue:
            if message in self.doubtful:
                yield self._unqueue(state, message)
        for pair in state.matched:
            if pair[1] in self.doubtful:
                yield self._lose(state, *pair)
        for number in state.ending:
            released = self._release(state, number)
            yield released
            met = dict(state.failed).get(number)
            if met in released.refused:  # perhaps nobody has heard of the failure
                yield released._replace(refused=released.refused - {met})

    def _offer(self, state, message):
        """A message to the first receive that takes it, or to the queue."""
        sent = self.messages[message]
        is_refused = False
        for number in state.posted:
            receive = self.receives[number]
            if not receive.matches(sent):
                continue
            if not receive.fits(sent) and is_refused:
                return state  # dropped
            state = state._replace(posted=_without(state.posted, number))
            if receive.fits(sent):
                return state._replace(matched=state.matched | {(number, message)})
            state = state._replace(failed=state.failed | {(number, message)})
            is_refused = True
        return state._replace(
            queue=tuple(sorted((*state.queue, message))),
            refused=state.refused | ({message} if is_refused else set()),
        )

    def _unqueue(self, state, message):
        return state._replace(
            queue=_without(state.queue, message), refused=state.refused - {message}
        )

    def _post(self, state, number):
        receive = self.receives[number]
        for message in state.queue:
            if not receive.matches(self.messages[message]):
                continue
            if receive.fits(self.messages[message]):
                state = self._unqueue(state, message)
                return state._replace(matched=state.matched | {(number, message)})
            if message not in state.refused:
                return state._replace(
                    failed=state.failed | {(number, message)},
                    refused=state.refused | {message},
                )
            state = self._unqueue(state, message)  # dropped
        return state._replace(posted=(*state.posted, number))

    def _lose(self, state, number, message):
        """A receive loses its message, and waits again unless it is an object."""
        state = state._replace(matched=state.matched - {(number, message)})
        if number in self.holders:
            return state
        state = self._post(state, number)
        return state._replace(posted=tuple(sorted(state.posted)))

    def _release(self, state, number):
        """A receive that goes away gives back what it had."""
        got = dict(state.matched).get(number)
        state = state._replace(
            posted=tuple(r for r in state.posted if r != number),
            matched=state.matched - {(number, got)},
            failed=frozenset(pair for pair in state.failed if pair[0] != number),
            ending=state.ending - {number},
        )
        return state if got is None else self._offer(state, got)


def _without(numbers, number):
    return tuple(each for each in numbers if each != number)
