# SPDX-License-Identifier: BSD-3-Clause
"""Calls that all ranks make, one at a time on a communicator."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .._communicator.communicator import Communicator
from ..exceptions import UCXBusy, UCXRankFailed
from .begun import Begun, CallState
from .stages import Stages

_T = TypeVar("_T")


class Calls:
    """The calls of one kind.

    Args:
        name: what errors call one of them, "join" for example.
        op_ids: the numbers of the shuffles of a call.
    """

    def __init__(self, name: str, op_ids: Sequence[int]) -> None:
        self._name = name
        self._op_ids = tuple(op_ids)
        # Communicators on which a call is under way.
        self._busy: weakref.WeakKeyDictionary[Communicator, CallState]
        self._busy = weakref.WeakKeyDictionary()

    def begin(
        self, comm: Communicator, steps: Callable[[Stages], Awaitable[_T]]
    ) -> Begun[_T]:
        """The coroutine of a call, which does ``steps``."""
        state = CallState()

        def give_up() -> None:
            if isinstance(comm, Communicator) and comm not in self._busy:
                stages = Stages(comm, self._op_ids)
                stages.give_up(f"its {self._name} was given up before it began")

        return Begun(self._run(comm, steps, state), give_up, state)

    async def _run(
        self,
        comm: Communicator,
        steps: Callable[[Stages], Awaitable[_T]],
        state: CallState,
    ) -> _T:
        if not isinstance(comm, Communicator):
            raise TypeError(f"comm must be a Communicator, not {type(comm).__name__}")
        while (busy := self._busy.get(comm)) is not None and busy.is_left:
            assert busy.ended is not None
            await busy.ended.wait()
        if comm in self._busy:
            raise UCXBusy(f"a {self._name} is under way on this communicator: split it")
        self._busy[comm] = state
        state.ended = asyncio.Event()
        try:
            with Stages(comm, self._op_ids) as stages:
                return await steps(stages)
        except UCXRankFailed as exc:
            # What has failed is a part of it, and the communicator goes on.
            if exc.args and comm.failure is None:
                text = str(exc.args[0])
                text = text.replace("the communicator", f"the {self._name}")
                exc.args = (text, *exc.args[1:])
            raise
        finally:
            del self._busy[comm]
            state.ended.set()
