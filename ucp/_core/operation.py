# SPDX-License-Identifier: BSD-3-Clause
"""Operations that consist of steps, as futures.

The steps are a generator: it begins operations, and yields a request, or a future, to
wait until that is done. What it returns is the result. When the operation is
cancelled, the exception is thrown into the steps. They give up what they have begun,
and wait for it, so that no buffer is in use any more when they end.

An ``Operation`` drives steps in an event loop.
"""

from __future__ import annotations

import asyncio
import warnings
import weakref
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from .. import _ext

_T = TypeVar("_T")

AnyRequest = _ext.Request[Any]
Steps = Generator[AnyRequest, None, _T]


class Unseen(Generic[_T]):
    """What steps return that have taken a message: nobody has got it yet.

    Args:
        value: the result.
        receive: has got the message; see ``steps.look_at()``.
        keep: is called before the message is returned.
        is_visible: the program has the buffer, so that it need not ask for the result.
    """

    def __init__(
        self,
        value: _T,
        receive: AnyRequest,
        keep: Callable[[], None] | None = None,
        is_visible: bool = False,
    ) -> None:
        self.is_visible = is_visible
        self._value = value
        self._receive = receive
        self._keep = keep

    def hand_out(self) -> _T:
        self._receive.result()
        return self._value

    def give_back(self) -> bool:
        """Give the message back, for the next receive. False: that cannot be done."""
        if self._keep is not None:
            self._keep()
        return self._receive.cancel()


class Operation(asyncio.Future[_T]):
    """Drives steps in the running event loop; awaits what they return.

    The first step runs when it is made.
    """

    _request: AnyRequest | None = None  # that the steps wait for
    _cause: Any = None  # the message of cancel(), by which anyio knows its own

    def __init__(self, steps: Steps[_T]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._steps = steps
        self._is_cancelling = False
        try:
            self._continue(None)
        except (KeyboardInterrupt, SystemExit):
            if self.done():
                super().exception()  # the caller has it: no log says that nobody does
            raise

    def _continue(self, cause: BaseException | None) -> None:
        """Run the steps until they wait for a request."""
        self._request = None
        try:
            request = next(self._steps) if cause is None else self._steps.throw(cause)
        except StopIteration as end:
            self._end(end.value)
        except asyncio.CancelledError:
            super().cancel(self._cause)
        except (KeyboardInterrupt, SystemExit) as exc:
            super().set_exception(exc)
            raise
        except BaseException as exc:
            if self._is_cancelling:
                super().cancel(self._cause)
            else:
                super().set_exception(exc)
        else:
            self._request = request
            self._listen(request)

    def _listen(self, request: AnyRequest) -> None:
        request.add_done_callback(self._on_done)

    def _end(self, result: _T) -> None:
        if self._is_cancelling:
            super().cancel(self._cause)
        else:
            super().set_result(result)

    def _on_done(self, request: AnyRequest) -> None:
        if request is self._request:  # else the operation was cancelled meanwhile
            self._continue(None)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel it. It is done when its requests are."""
        if self.done():
            return False
        if not self._is_cancelling:
            self._is_cancelling = True
            self._cause = msg
            self._continue(asyncio.CancelledError())
        return True


class Receiving(Operation[_T]):
    """An operation that takes a message. If it is dropped while nothing waits for it,
    it is withdrawn: it would take a message that nobody gets.

    Until somebody gets the result, by an await or ``result()``, ``cancel()`` gives the
    message back, even when the operation is done: a task that is cancelled, or whose
    time is up, before it has resumed has not got it.
    """

    _unseen: Unseen[_T] | None = None  # it is done, and nobody has got the result
    _value: _T
    _is_undone = False  # it was done, and the message was given back
    _is_yielded = False  # to a task, which adds its wake-up now

    def __init__(self, steps: Steps[Any], name: str) -> None:
        """``steps`` return an ``Unseen``."""
        self._name = name
        self._is_waited_for = False
        super().__init__(steps)

    def _end(self, result: Any) -> None:
        if self._is_cancelling:
            result.give_back()
        else:
            self._unseen = result
        super()._end(None)  # type: ignore[arg-type]

    def __await__(self) -> Generator[Any, None, _T]:
        if not self.done():
            self._asyncio_future_blocking = self._is_yielded = True
            yield self
        return self.result()

    __iter__ = __await__

    def result(self) -> _T:
        self._check_undone()
        super().result()
        if self._unseen is not None:
            self._value, self._unseen = self._unseen.hand_out(), None
        return self._value

    def exception(self) -> BaseException | None:
        exc = self._get_exception()
        if self._unseen is not None and self._unseen.is_visible:
            self.result()
        return exc

    def _get_exception(self) -> BaseException | None:
        self._check_undone()
        return super().exception()

    def _check_undone(self) -> None:
        if self._is_undone:
            msg = self._cancel_message
            raise asyncio.CancelledError(*([] if msg is None else [msg]))

    def cancelled(self) -> bool:
        return self._is_undone or super().cancelled()

    def cancel(self, msg: Any = None) -> bool:
        if self._unseen is None:
            return super().cancel(msg)
        if not self._unseen.give_back():
            return False
        self._unseen = None
        self._is_undone = True
        self._cancel_message = msg
        return True

    def _listen(self, request: AnyRequest) -> None:
        if self._is_waited_for:
            super()._listen(request)
        else:
            request.add_done_callback(call_if_alive(self._on_done))

    def add_done_callback(self, fn: Any, *, context: Any = None) -> None:
        if self._is_yielded and not self._asyncio_future_blocking:
            self._is_yielded = False
            super().add_done_callback(_TaskWaker(self, fn), context=context)
        else:
            super().add_done_callback(fn, context=context)
        self._is_waited_for = True
        if self._request is not None:
            super()._listen(self._request)

    def __del__(self) -> None:
        if self._request is not None and not self.done():
            self._steps.close()
            warn_dropped(self, self._name)
        elif self._unseen is not None and not self._unseen.is_visible:
            self._unseen.give_back()
        super().__del__()


class ReceivingCoroutine(Receiving[_T]):
    """An operation that is a coroutine, too, as a ``Request`` is: until ``isfuture()``
    is called with it, tasks can be made of it."""

    _await: Generator[Any, None, _T] | None = None  # of the task that was made
    _is_blocking = False

    @property
    def _asyncio_future_blocking(self) -> bool:
        is_blocking = self._is_blocking
        if self._await is None:
            self.__class__ = Receiving  # type: ignore[assignment]
        return is_blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, is_blocking: bool) -> None:
        self._is_blocking = is_blocking

    def send(self, value: Any) -> Any:
        """As a coroutine's."""
        if self._await is None:
            self._await = self.__await__()
        return self._await.send(value)

    def throw(self, *args: Any) -> Any:
        """As a coroutine's; it is withdrawn, or its message given back."""
        if self._await is None:
            self._await = self.__await__()
        try:
            return self._await.throw(*args)
        finally:
            self.cancel()

    def close(self) -> None:
        """As a coroutine's."""
        if self._await is not None:
            self._await.close()
        self.cancel()


class _TaskWaker:
    """Wakes a task that awaits an operation. Before it resumes, the task asks for the
    result, which it gets from the operation afterwards."""

    def __init__(self, operation: Receiving[Any], wake: Callable[[Any], None]) -> None:
        self._operation = operation
        self._wake = wake

    def __call__(self, _operation: object) -> None:
        self._wake(self)

    def result(self) -> None:
        if (exc := self._operation._get_exception()) is not None:
            raise exc


def call_if_alive(method: Callable[[AnyRequest], None]) -> Callable[[Any], None]:
    """A callback that calls a method of an object which it does not keep alive."""
    here = weakref.WeakMethod(method)

    def callback(request: AnyRequest) -> None:
        if (found := here()) is not None:
            found(request)

    return callback


def warn_dropped(operation: object, name: str) -> None:
    warnings.warn(
        f"ucp: what {name}() returned was dropped while it waited; it is withdrawn. "
        "Keep it until it is done",
        RuntimeWarning,
        stacklevel=3,
        source=operation,
    )
