# SPDX-License-Identifier: BSD-3-Clause
"""What everything waits for, as text: for programs that hang.

The text is made from a snapshot that changes nothing. It is read with the GIL, so
that no thread is in a call of libumx meanwhile; a worker's progress thread, which
needs no GIL, is waited for a tenth of a second at most. So any thread may ask, and
a signal's handler, too.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import IO, Any

from .._core import lifecycle
from .._core.worker import Worker
from ..exceptions import UCXBusy, UCXWarning

SIGNAL = "UCP_DUMP_SIGNAL"

_MAX_LINES = 400  # of all workers
_MAX_TASKS = 40  # of each event loop
_MAX_FRAMES = 6  # of each task and thread
_MAX_THREADS = 100
_MAX_TEXT = 200  # characters of a repr
_ERRORS = "backslashreplace"  # names of files may have what UTF-8 has not

_FAULTS = (
    signal.SIGSEGV,
    signal.SIGFPE,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGILL,
)

File = str | os.PathLike[str] | IO[str] | None


def dump(file: File = None) -> None:
    """Write what everything of ``ucp`` in this process waits for.

    The text has every worker with its state, its communicators with the ranks that
    they wait for, shuffles, listeners, endpoints with their peers, bytes, posted
    receives, messages that no receive has asked for, and sends that wait; then the
    tasks of the event loops and the lines at which they wait, and the threads. Its
    length is bounded, and it says how much was left out.

    Nothing is changed, and no lock is waited for. Any thread may call this, and so
    may the handler of a signal.

    Args:
        file: a path, to whose file the text is appended; or an open text file, in
            which it comes before what the program has written and not flushed.
            None: standard error.

    Raises:
        OSError: the file cannot be opened or written.
        TypeError: ``file`` is no path and no text file.
        ValueError: the file is closed.
    """
    _check(file, "dump")
    _write(file, _text(has_threads=True))


def dump_on_signal(signum: int = signal.SIGUSR1, file: File = None) -> None:
    """Have a signal write Python's stacks and ``dump()``, whatever the program does.

    The stack of the thread that the system chose, as a rule the main one, comes at
    once from ``faulthandler``, even while code in C runs or hangs. The dump, with
    the stacks of all threads, follows when the main thread next runs Python code:
    at once if it sleeps in an event loop, or in a call of ``ucp.sync``. A handler
    that the program has set for the signal before is called after it.

    Args:
        signum: the signal.
        file: as for ``dump()``. An open file has to have a descriptor, or it gets
            no stacks.

    Raises:
        ValueError: this is not the main thread, there is no such signal, it is one of
            faults, such as SIGSEGV, or the file is closed.
        TypeError: ``file`` is no path and no text file.
        OSError: the signal cannot be caught, or the file cannot be opened.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ValueError(
            "dump_on_signal() sets a signal's handler: the main thread does"
        )
    if signum in _FAULTS:
        raise ValueError(
            f"{signal.Signals(signum).name} says that the program is at fault, and it "
            "cannot go on: faulthandler.enable() writes its stacks"
        )
    _check(file, "dump_on_signal")
    handler = _Handler(file, signal.getsignal(signum))
    faulthandler.unregister(signum)  # or it would think that it is still there
    try:
        before = signal.signal(signum, handler)
    except OSError:
        handler.close()
        raise
    if isinstance(before, _Handler):
        before.close()
    descriptor = handler.descriptor()
    if descriptor is not None:
        # Of all threads it would read the stacks without the GIL, which crashes
        # when one of them ends: the dump has those.
        faulthandler.register(signum, descriptor, all_threads=False, chain=True)


class _Handler:
    """Writes a dump when the signal comes, and calls what was there before.

    It has a descriptor of its own: the program may close its file, and another one
    get the number.
    """

    def __init__(self, file: File, before: Any) -> None:
        self._before: Any = before._before if isinstance(before, _Handler) else before
        self._file = file
        self._own: int | None = None
        if isinstance(file, str | os.PathLike):
            self._own = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        elif file is not None:
            descriptor = _descriptor(file)
            self._own = None if descriptor is None else os.dup(descriptor)

    def descriptor(self) -> int | None:
        return _descriptor(self._file) if self._own is None else self._own

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)

    def __call__(self, number: int, frame: types.FrameType | None) -> None:
        try:
            text = _text(has_threads=True)
            if self._own is None:
                _write(self._file, text)
            else:
                _write_to(self._own, text)
        except (OSError, ValueError):  # the file is closed, or its disk full
            pass
        if callable(self._before):
            self._before(number, frame)


def apply_environment(environ: Any = os.environ) -> None:
    """Do what ``UCP_DUMP_SIGNAL`` says, if it is set."""
    name = environ.get(SIGNAL, "")
    if not name:
        return
    try:
        dump_on_signal(_signal_of(name))
    except (OSError, ValueError) as exc:
        warnings.warn(
            f"{SIGNAL}={name!r} has no effect: {exc}", UCXWarning, stacklevel=2
        )


def _signal_of(name: str) -> signal.Signals:
    """The signal of a name, with or without SIG, or of a number."""
    try:
        if name.isdecimal():
            return signal.Signals(int(name))
        return signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"]
    except (KeyError, ValueError):
        raise ValueError("a signal is a name such as USR1, or a number") from None


# ---- the file ------------------------------------------------------------------


def _check(file: File, call: str) -> None:
    """Raise if ``file`` is nothing that a text can be written to."""
    file = sys.stderr if file is None else file
    if file is None or isinstance(file, str | os.PathLike):
        return
    if getattr(file, "closed", False):
        raise ValueError(f"ucp.{call}() was given a file that is closed: {file!r}")
    if _descriptor(file) is None:
        try:
            file.write("")
        except (AttributeError, TypeError):
            raise TypeError(
                f"ucp.{call}() writes to a path, or to an open text file, not to "
                f"{file!r}"
            ) from None


def _descriptor(file: File) -> int | None:
    try:
        return (file if file is not None else sys.stderr).fileno()  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return None


def _write(file: File, text: str) -> None:
    """Write past the buffers of Python's files, whose locks a thread may hold."""
    if isinstance(file, str | os.PathLike):
        with open(file, "a", encoding="utf-8", errors=_ERRORS) as opened:
            opened.write(text)
        return
    descriptor = _descriptor(file)
    if descriptor is None:
        target = file if file is not None else sys.stderr
        if target is not None:
            encoding = getattr(target, "encoding", None) or "utf-8"
            target.write(text.encode(encoding, _ERRORS).decode(encoding))
        return
    _write_to(descriptor, text)


def _write_to(descriptor: int, text: str) -> None:
    data = text.encode(errors=_ERRORS)
    while data:
        data = data[os.write(descriptor, data) :]


# ---- the text ------------------------------------------------------------------


def _text(has_threads: bool) -> str:
    """Make the text. What cannot be read says why, and the rest goes on."""
    lines: list[str] = []
    parts: list[Callable[[], Iterator[str]]] = [_head, _workers, _loops]
    if has_threads:
        parts.append(_threads)
    for part in parts:
        try:
            lines.extend(part())
        except Exception as exc:
            lines.append(f"({part.__name__.strip('_')} cannot be read: {exc!r})")
    lines.append("=== end of ucp.dump")
    return "\n".join(lines) + "\n"


def _head() -> Iterator[str]:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    yield f"=== ucp.dump of process {os.getpid()} at {now}"


def _short(thing: object) -> str:
    try:
        text = repr(thing)
    except Exception as exc:
        text = f"<{type(thing).__name__}: {exc!r}>"
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."


def _workers() -> Iterator[str]:
    workers = [it for it in list(lifecycle._workers.values()) if not it.closed()]
    if not workers:
        yield "no worker is open: ucp has not been used yet, or is closed"
    for worker in workers:
        yield from _worker(worker, max(50, _MAX_LINES // len(workers)))


def _worker(worker: Worker, limit: int) -> Iterator[str]:
    thread = worker._thread
    kind = (
        "shared by threads: ucp.sync.Communicator"
        if worker._is_shared
        else f"of thread {thread.name!r}{'' if thread.is_alive() else ' (ended)'}"
    )
    yield f"worker {kind}, {_loop_state(worker.loop)}"
    if worker._blocks:
        yield f"  run_in_thread(): {worker._blocks} blocks, so a thread makes progress"
    if worker._submissions:
        yield f"  {len(worker._submissions)} calls of submit() are not done"
    try:
        text, more = worker._describe(limit)
    except UCXBusy:
        yield "  (cannot be read now: another thread is in a call of it; ask again)"
        return
    except Exception as exc:
        yield f"  (cannot be read: {exc})"
        return
    yield from text.splitlines()
    if more:
        yield f"  ... and {more} more lines"


def _loop_state(loop: asyncio.AbstractEventLoop | None) -> str:
    if loop is None:
        return "without an event loop: progress() drives it"
    if loop.is_closed():
        return "whose event loop is closed"
    return "whose event loop runs" if loop.is_running() else "whose loop does not run"


# ---- tasks and threads ---------------------------------------------------------


def _loops() -> Iterator[str]:
    loops = {id(it.loop): it.loop for it in list(lifecycle._workers.values())}
    for loop in loops.values():
        if loop is None or loop.is_closed():
            continue
        tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
        tasks.sort(key=lambda task: task.get_name())
        yield f"event loop {_short(loop)}: {len(tasks)} tasks"
        for task in tasks[:_MAX_TASKS]:
            yield from _task(task)
        if len(tasks) > _MAX_TASKS:
            yield f"  ... and {len(tasks) - _MAX_TASKS} more tasks"


def _task(task: asyncio.Task[Any]) -> Iterator[str]:
    waiter = getattr(task, "_fut_waiter", None)
    waits = f"waits for {_short(waiter)}" if waiter is not None else "runs, or is due"
    yield f"  task {task.get_name()!r} {waits}"
    places = list(_places(task.get_coro()))
    yield from (f"    {place}" for place in places[-_MAX_FRAMES:])


def _places(coro: Any) -> Iterator[str]:
    """The lines at which a coroutine and those that it awaits stand."""
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
        if frame is None:
            return
        yield _place(frame)
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)


def _place(frame: types.FrameType) -> str:
    code = frame.f_code
    return f'File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}'


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in list(threading._active.values())}  # type: ignore[attr-defined]
    frames = list(sys._current_frames().items())
    for ident, frame in frames[:_MAX_THREADS]:
        mine = ", which calls dump()" if ident == threading.get_ident() else ""
        yield f"thread {names.get(ident, ident)!r}{mine}"
        stack = list(_stack(frame))
        yield from (f"  {place}" for place in reversed(stack[:_MAX_FRAMES]))
        if len(stack) > _MAX_FRAMES:
            yield f"  below {len(stack) - _MAX_FRAMES} more frames"
    if len(frames) > _MAX_THREADS:
        yield f"and {len(frames) - _MAX_THREADS} more threads"


def _stack(frame: types.FrameType | None) -> Iterator[str]:
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            yield _place(frame)
        frame = frame.f_back
