# SPDX-License-Identifier: BSD-3-Clause
"""``ucp.trace()``: a timeline of what happens in this process.

The variable ``UCP_TRACE=file.json`` of the environment traces a program from the
import of ucp until its end; ``%p`` in the name is the number of the process, and
forked children have files of their own then. Those of ``multiprocessing`` end
without the functions of ``atexit``, and so are told by its own.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import sys
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TextIO

from .. import _ext
from ..exceptions import UCXWarning
from .page import name_of
from .timeline import has_events, join, write

_MAX_EVENTS = 1 << 18
_LAST = -100  # the priority of what multiprocessing does last


class Trace:
    """Records what ucp does in this process, and writes it as a timeline.

    ``with ucp.trace("file.json"):`` traces a block, also if that ends by an
    exception; ``start()`` and ``stop()`` do the same without one. Perfetto
    (https://ui.perfetto.dev) opens the file: it shows operations from call to end,
    with bytes, endpoints and tags, what they wait for, collective operations,
    shuffles, and wake-ups of the event loop, of all workers of the process.

    There is one trace at a time in a process. It has the last events only if there
    are too many; ``otherData.dropped_events`` in the file says how many are missing.

    Args:
        path: where the file is written; ``%p`` is replaced by the number of this
            process.
        max_events: how many events are kept at most, of 64 bytes each. An operation
            has two.

    Example:
        >>> import pathlib, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> with ucp.trace(f"{folder.name}/trace-%p.json") as trace:
        ...     pass
        >>> trace.path.name == f"trace-{os.getpid()}.json"
        True
        >>> folder.cleanup()
    """

    _running: Trace | None = None  # of this process
    _lock = threading.RLock()  # held while a trace begins or ends

    def __init__(
        self, path: str | os.PathLike[str], *, max_events: int = _MAX_EVENTS
    ) -> None:
        self.path = Path(os.fsdecode(path).replace("%p", str(os.getpid())))
        self._max_events = max_events
        self._file: TextIO | None = None  # None while it runs: stop() opens it
        self._pid = 0  # of the process that it runs in

    def start(self) -> Trace:
        """Begin to record; returns the trace itself.

        Raises:
            OSError: the file cannot be written, or another process is about to
                write its trace into it.
            RuntimeError: another trace of this process has begun, or this one.
            ValueError: ``max_events`` is too small, or too large.
            MemoryError: there is no memory for so many events.
        """
        with Trace._lock:
            return self._start(opens=True)

    def _start(self, opens: bool) -> Trace:
        running = Trace._running
        if running is not None:
            raise RuntimeError(
                f"a trace of this process is being written to {running.path}; stop it "
                "before another begins"
            )
        if not _ext.trace_start(self._max_events):
            raise RuntimeError(
                "another trace of this process has begun; stop it before another begins"
            )
        try:
            self._file = _open(self.path) if opens else None
        except BaseException:
            _ext.trace_stop()
            _ext.trace_release()
            raise
        self._pid = os.getpid()
        Trace._running = self
        return self

    def stop(self) -> None:
        """Record no more, and write the file.

        Does nothing if the trace is not running, or if the parent process started
        it and this process was forked afterwards.

        Raises:
            OSError: the file cannot be written.
        """
        with Trace._lock:
            self._stop()

    def _stop(self) -> None:
        file, self._file = self._file, None
        pid, self._pid = self._pid, 0
        if pid != os.getpid():
            return
        Trace._running = None
        _ext.trace_stop()
        try:
            if file is None:
                if not has_events():
                    return  # a child that has had nothing to do with ucp
                file = _open(self.path)
            with file:
                try:
                    write(file, pid, name_of(pid))
                    file.flush()
                finally:
                    _lock(file, fcntl.LOCK_UN)  # a child may have the file, too
        finally:
            _ext.trace_release()

    def _leave_to_parent(self) -> None:
        """Close the file in a forked child, which keeps its lock."""
        if self._file is not None:
            self._file.close()  # nothing has been written yet

    def __enter__(self) -> Trace:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @staticmethod
    def join(
        paths: Iterable[str | os.PathLike[str]], target: str | os.PathLike[str]
    ) -> None:
        """Write the traces of several processes into one file.

        Processes of one host share a clock. The events of several hosts are ordered by
        the time of day of each host. They are shifted if these clocks differ.

        Raises:
            ValueError: ``paths`` is empty, or a file is not a trace: the text names it.
            TypeError: ``paths`` is a single path.
            OSError: a file cannot be read, or ``target`` cannot be written.
        """
        if isinstance(paths, str | bytes | os.PathLike):
            raise TypeError(f"paths is a list of paths of traces, not {paths!r}")
        files = [Path(os.fsdecode(path)) for path in paths]
        if not files:
            raise ValueError("there are no traces to join: paths is empty")
        join(files, Path(os.fsdecode(target)))


def _open(path: Path) -> TextIO:
    """Open the file of a trace, for this process alone."""
    file = path.open("a", encoding="utf-8")
    if not _lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
        file.close()
        raise BlockingIOError(
            errno.EWOULDBLOCK,
            "another process is about to write its trace into this file; with %p in "
            "the name each has a file of its own",
            str(path),
        )
    if path.is_file():
        file.truncate(0)
    return file


def _lock(file: TextIO, how: int) -> bool:
    """Lock the file, or unlock it. False: another process has the lock."""
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    except OSError:
        pass  # the file system has no locks
    return True


# ---- the environment -------------------------------------------------------------


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it has been removed
        return ""


_folder = _current_folder()  # that the path is relative to, in children as well


def _start_by_environment(is_child: bool = False) -> None:
    """Begin the trace that ``UCP_TRACE`` asks for.

    That of a forked child, which may end at once, opens its file at the end.
    """
    path = os.environ.get("UCP_TRACE", "")
    if path:
        try:
            trace = Trace(os.path.join(_folder, path))
            with Trace._lock:
                trace._start(opens=not is_child)
        except (OSError, RuntimeError, MemoryError) as exc:
            _warn(exc)
            return
        atexit.register(_finish, trace)
        _finish_with_multiprocessing(trace)


def _finish(trace: Trace) -> None:
    try:
        trace.stop()
    except OSError as exc:
        _warn(exc)


def _warn(exc: BaseException) -> None:
    path = os.environ.get("UCP_TRACE", "")
    warnings.warn(f"UCP_TRACE={path!r} has no effect: {exc}", UCXWarning, stacklevel=3)


def _finish_with_multiprocessing(trace: Trace) -> None:
    """Finish the trace at the end of a child of ``multiprocessing``, if this is one.

    It forgets what its parent has wanted done at the end, and asks again.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return
    util.register_after_fork(trace, _finish_in_child)
    if sys.modules["multiprocessing.process"].parent_process() is not None:
        _finish_in_child(trace)


def _finish_in_child(trace: Trace) -> None:
    if trace._pid == os.getpid():
        util = sys.modules["multiprocessing.util"]
        util.Finalize(None, _finish, args=(trace,), exitpriority=_LAST)


def _forget_after_fork() -> None:
    """The parent's trace is not this process's; one of a name of its own begins."""
    Trace._lock = threading.RLock()  # a thread of the parent's may have held it
    running, Trace._running = Trace._running, None
    if running is not None:
        running._leave_to_parent()
        if "%p" in os.environ.get("UCP_TRACE", ""):
            _start_by_environment(is_child=True)


os.register_at_fork(after_in_child=_forget_after_fork)
_start_by_environment()
