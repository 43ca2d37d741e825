# SPDX-License-Identifier: BSD-3-Clause
"""Calling functions and coroutine functions of the program."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from .. import _ext
from .log import logger

# Types whose repr is short and, where there is a peer, names it.
_NAMED = (
    _ext.Endpoint,
    _ext.Channel,
    _ext.Worker,
    int,
    float,
)

ErrorCallback = Callable[[BaseException], object]


def check_callable(name: str, value: object) -> None:
    """Raise TypeError unless ``value`` is callable or None."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable, not {type(value).__name__}")


def name_call(func: object, args: tuple[Any, ...]) -> str:
    """Make a name for the task of ``func(*args)``: function, peer and bytes.

    The name contains the length of buffers and the type of other arguments.
    """
    owner = getattr(func, "__self__", None)
    if isinstance(owner, _ext.Endpoint | _ext.Channel | _ext.Worker):
        args = (owner, *args)
    what = getattr(func, "__qualname__", type(func).__qualname__)
    return f"ucp: {what}({', '.join(map(_name_argument, args))})"


def _name_argument(value: object) -> str:
    if isinstance(value, _ext.Message):
        return f"{value.nbytes} bytes"
    if isinstance(value, _NAMED):
        return repr(value)
    try:
        nbytes = memoryview(value).nbytes  # type: ignore[arg-type]
    except Exception:  # a class of the program may raise any exception
        return type(value).__name__
    return f"{nbytes} bytes"


class Callback:
    """Calls ``func``, and runs the coroutine that it may return as a task.

    Exceptions go to the loop's exception handler, and to ``on_error``. The
    function runs with the context variables that were current when the Callback
    was made. The task is named after ``name``, by default ``func``, and the
    arguments. Exceptions of the types ``brief`` are a line in the log instead.
    """

    def __init__(
        self,
        func: Callable[..., Coroutine[Any, Any, object] | object],
        loop: asyncio.AbstractEventLoop | None,
        tasks: set[asyncio.Task[object]],
        message: str,
        on_error: ErrorCallback | None = None,
        *,
        name: object = None,
        brief: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._func = func
        self._named = func if name is None else name
        self._loop = loop
        self._tasks = tasks
        self._message = message
        self._on_error = on_error
        self._brief = brief
        self._context = contextvars.copy_context()

    def soon(self, *args: Any) -> None:
        """Have the loop call the function, as the caller may be inside an await."""
        if self._loop is None:
            self._run(args)
        else:
            self._loop.call_soon(self._run, args, context=self._context)

    def _run(self, args: tuple[Any, ...]) -> None:
        try:
            result = self._func(*args)
        except Exception as exc:
            self._report(exc, name_call(self._named, args))
            return
        if asyncio.iscoroutine(result):
            if self._loop is None:
                result.close()
                raise RuntimeError("a coroutine function needs a running event loop")
            task = self._loop.create_task(
                result,
                name=name_call(self._named, args),
                context=self._context.copy(),
            )
            self._tasks.add(task)
            task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            exc = task.exception()
            if exc is not None:
                self._report(exc, task.get_name())

    def _report(self, exc: BaseException, name: str) -> None:
        if isinstance(exc, self._brief):
            logger.warning("%s: %s", name.removeprefix("ucp: "), exc)
        elif self._loop is not None:
            self._loop.call_exception_handler(
                {"message": self._message, "exception": exc}
            )
        if self._on_error is not None:
            self._on_error(exc)
