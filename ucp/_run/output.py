# SPDX-License-Identifier: BSD-3-Clause
"""What several processes print, as whole lines with a prefix each.

One thread reads all pipes and writes. A line is kept until it ends, so lines of
two processes never mix; bytes are not decoded. If nobody takes the output, the
thread waits, the pipes fill and the processes wait, as they would without it.
If the file cannot be written (its reader is gone), the pipes that lead to it
are closed, and the processes find that out as they would without it.
"""

from __future__ import annotations

import os
import select
import selectors
import threading
from collections.abc import Callable
from datetime import datetime

# At least what a pipe holds: one read empties it.
_CHUNK = 1 << 16

# What is kept of standard error, in bytes: a traceback that ends it has its exception
# in there.
_TAIL = 1 << 14

_SETTLED = b"\0"  # of settle()
_SETTLE_LIMIT = 0.5  # seconds


class _Sink:
    """A file that lines are written to."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._within_line = False  # the last line had no newline: rare, unprefixed

    def write(self, lines: bytes) -> None:
        if self._within_line:
            lines = b"\n" + lines
        self._within_line = not lines.endswith(b"\n")
        rest = memoryview(lines)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # whoever opened it made it non-blocking
                select.select([], [self._fd], [])


class _Source:
    """A pipe that lines come from."""

    def __init__(self, sink: _Sink, prefix: Callable[[], bytes]) -> None:
        self.sink = sink
        self.tail = b""
        self._prefix = prefix
        self._line = bytearray()  # which has not ended

    def add(self, data: bytes) -> None:
        """Write the lines that ``data`` ends, and keep what follows."""
        self.tail = (self.tail + data)[-_TAIL:]
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._line += data
            return
        lines = bytes(self._line) + data[:end]
        self._line = bytearray(data[end:])
        self._write(lines)

    def flush(self) -> None:
        """Write a last line that has no newline."""
        if self._line:
            self._write(bytes(self._line))
            self._line.clear()

    def _write(self, lines: bytes) -> None:
        prefix = self._prefix()
        if prefix:
            if not lines.endswith(b"\n"):
                lines += b"\n"
            inner = lines[:-1].replace(b"\n", b"\n" + prefix)
            lines = prefix + inner + lines[-1:]
        self.sink.write(lines)


class Relay:
    """Writes the lines of processes to standard output and standard error.

    Args:
        prefix: put ``[rank] `` before each line.
        timestamps: put the time of day before each line, behind the rank.
        on_end: called by the thread when it has written all; has_ended() is true
            then.
    """

    def __init__(
        self, *, prefix: bool, timestamps: bool, on_end: Callable[[], object]
    ) -> None:
        self._prefix = prefix
        self._timestamps = timestamps
        self._on_end = on_end
        self._ended = False
        out = _Sink(1)
        # One file has one line that has not ended.
        self._sinks = {1: out, 2: out if os.path.sameopenfile(1, 2) else _Sink(2)}
        self._errors: dict[int, _Source] = {}  # standard error, by rank
        self._has_printed = False  # since the last line of the launcher's own
        self._settled = threading.Event()
        self._selector = selectors.DefaultSelector()
        reader, self._messages = os.pipe()
        os.set_blocking(self._messages, False)
        self._reader = reader
        self._selector.register(
            reader, selectors.EVENT_READ, _Source(self._sinks[2], bytes)
        )
        self._thread = threading.Thread(target=self._run, name="ucp run: output")
        self._thread.daemon = True  # a full pipe does not keep the process

    def add(self, fd: int, rank: int, to: int) -> None:
        """Relay the pipe ``fd`` of ``rank`` to 1 or 2. Before start()."""
        label = b"[%d] " % rank if self._prefix else b""

        def prefix() -> bytes:
            if not self._timestamps:
                return label
            now = datetime.now().isoformat(" ", "milliseconds").split()[1]
            return label + now.encode() + b" "

        source = _Source(self._sinks[to], prefix)
        if to == 2:
            self._errors[rank] = source
        self._selector.register(fd, selectors.EVENT_READ, source)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def say(self, text: str) -> None:
        """A line of the launcher's own on standard error.

        It comes behind all that processes have printed before.
        """
        try:
            os.write(self._messages, f"ucp run: {text}\n".encode())
        except OSError:  # standard error takes nothing
            pass

    def settle(self) -> None:
        """Wait until what processes have printed so far is read; but not for long, as
        nobody may take the output."""
        self._settled.clear()
        try:
            os.write(self._messages, _SETTLED)
        except OSError:
            return
        self._settled.wait(_SETTLE_LIMIT)

    def tail(self, rank: int) -> bytes:
        """The end of what ``rank`` has printed on standard error: see settle()."""
        source = self._errors.get(rank)
        return b"" if source is None else source.tail

    def has_printed(self) -> bool:
        """Has a process printed anything after the last say()?"""
        self.settle()
        return self._has_printed

    def finish(self) -> None:
        """Nobody writes any more: write what is there, and end."""
        os.close(self._messages)

    def has_ended(self) -> bool:
        """Is all written?"""
        return self._ended

    def _run(self) -> None:
        try:
            while self._reader in self._selector.get_map():
                self._read(None)
            # A process that is none of the ranks' may have a pipe open: what
            # counts is what the pipes hold now.
            while self._read(0):
                pass
            for key in list(self._selector.get_map().values()):
                self._end(key)
        finally:
            self._ended = True
            self._on_end()

    def _read(self, timeout: float | None) -> bool:
        """Read once from each pipe that has something; was there one?"""
        ready = [key for key, _ in self._selector.select(timeout)]
        # What a process printed before something was said about it goes first.
        ready.sort(key=lambda key: key.fd == self._reader)
        for key in ready:
            if key.fd not in self._selector.get_map():
                continue  # closed with its sink just now
            data = os.read(key.fd, _CHUNK)
            if data and key.fd == self._reader:
                self._say(key.data, data)
            elif data:
                self._has_printed = True
                self._try(key.data.sink, key.data.add, data)
            else:
                self._end(key)
        return bool(ready)

    def _say(self, source: _Source, data: bytes) -> None:
        """Write lines of the launcher's own."""
        text = data.replace(_SETTLED, b"")
        if text:
            self._try(source.sink, source.add, text)
            self._has_printed = False
        if text != data:
            self._settled.set()

    def _end(self, key: selectors.SelectorKey) -> None:
        self._close(key)
        self._try(key.data.sink, key.data.flush)

    def _try(self, sink: _Sink, write: Callable[..., None], *data: bytes) -> None:
        try:
            write(*data)
        except OSError:  # nobody reads it, its disk is full, its terminal gone
            for key in list(self._selector.get_map().values()):
                if key.data.sink is sink and key.fd != self._reader:
                    self._close(key)

    def _close(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fd)
        os.close(key.fd)
