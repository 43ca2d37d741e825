# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp top``: what processes that use ucp are doing.

The counters of a process are read without its help, so it may hang.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .._core.statistics import WorkerStatistics
from .._observe import page

_CLEAR = "\033[H\033[J"
_STATUS_NONE = 1

# The columns: heading, width, and the key of what --json has, too.
_COLUMNS = (
    ("PID", 8, "pid"),
    ("WORKER", 7, "worker"),
    ("OUT/s", 8, "sent_messages_per_second"),
    ("OUT B/s", 8, "sent_bytes_per_second"),
    ("IN/s", 8, "received_messages_per_second"),
    ("IN B/s", 8, "received_bytes_per_second"),
    ("WAKE/s", 8, "wakeups_per_second"),
    ("PENDING", 8, "pending_sends"),
    ("CREDIT", 7, "waiting_sends"),
    ("UNEXP", 7, "unexpected_messages"),
    ("EPS", 6, "endpoints"),
    ("LOOKED", 8, "seconds_since_look"),
)
_RATES = (
    "sent_messages",
    "sent_bytes",
    "received_messages",
    "received_bytes",
    "wakeups",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("pids", nargs="*", type=_pid, metavar="PID", help="default: all of this user")
    add(
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="between two tables; rates are those of the time between (%(default)g)",
    )
    add("--once", action="store_true", help="one table, after one interval")
    add("--json", action="store_true", help="an object on a line for each table")


def _pid(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"not the number of a process: {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0.01 <= number <= 86400:
        raise argparse.ArgumentTypeError(f"expected 0.01 to 86400 s, not {text!r}")
    return number


def run(options: argparse.Namespace) -> int:
    """Print tables until Ctrl-C, or until no process is left."""
    wanted = list(dict.fromkeys(options.pids))
    before = _look(wanted)
    for pid, why in before.errors.items():
        print(f"python -m ucp top: {why}", file=sys.stderr)
        wanted.remove(pid)
    if options.pids and not wanted:
        return _STATUS_NONE
    if not options.once:
        _show([_row(worker, None, 0.0) for worker in before.workers], options)
    while True:
        time.sleep(options.interval)
        now = _look(wanted)
        seconds = now.at - before.at
        old = {worker.key: worker for worker in before.workers}
        rows = [_row(each, old.get(each.key), seconds) for each in now.workers]
        _show(rows, options)
        for pid, why in now.errors.items():
            print(f"python -m ucp top: {why}", file=sys.stderr)
            wanted.remove(pid)
        if options.once or (options.pids and not wanted):
            return 0
        before = now


class _Worker(NamedTuple):
    """A worker of a process, and its counters."""

    process: page.ProcessStatistics
    counters: page.WorkerCounters

    @property
    def key(self) -> tuple[int, float, int]:
        return self.process.pid, self.process.started, self.counters.number

    @property
    def statistics(self) -> WorkerStatistics:
        return self.counters.statistics


@dataclass(frozen=True)
class _Sample:
    """What was seen at one moment.

    Attributes:
        at: the moment, of ``time.monotonic()``.
        workers: those that there are.
        errors: processes that were asked for and have no counters, and why.
    """

    at: float
    workers: list[_Worker]
    errors: dict[int, str]


def _look(pids: list[int]) -> _Sample:
    """Read the counters of these processes; of all of this user if there are none."""
    at = time.monotonic()
    workers: list[_Worker] = []
    errors: dict[int, str] = {}
    for pid in pids or _all_of_this_user():
        try:
            found = page.read(pid)
        except PermissionError:
            errors[pid] = _refused(pid)
            continue
        except OSError as exc:
            errors[pid] = exc.strerror or str(exc)
            continue
        if not found:
            errors[pid] = _why_not(pid)
        workers += [
            _Worker(process, counters)
            for process in found
            for counters in process.workers
        ]
    return _Sample(at, workers, errors if pids else {})


def _all_of_this_user() -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                if entry.stat().st_uid == os.geteuid():
                    yield int(entry.name)
            except OSError:  # it has ended
                continue


def _why_not(pid: int) -> str:
    """Why a process has no counters."""
    who = _who(pid)
    try:
        links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except PermissionError:
        return _refused(pid)
    except OSError:
        return f"{who} has ended"
    if any(link.startswith("/memfd:ucp-stats") for link in links):
        return (
            f"{who} uses another version of ucp, whose counters this version cannot "
            "read: run 'python -m ucp top' of its Python"
        )
    if "/ucp/_ext." in maps or "libumx" in maps:
        return (
            f"{who} has no counters: it has made no worker yet, or was started with "
            "UCP_STATS=0"
        )
    return f"{who} does not use ucp"


def _who(pid: int) -> str:
    name = page.name_of(pid)
    return f"process {pid} ({name})" if name else f"process {pid}"


def _refused(pid: int) -> str:
    """Why a process may not be looked at."""
    with contextlib.suppress(OSError):
        if os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
            return f"{_who(pid)} belongs to another user: run this as root, or as that"
    return (
        f"the system refuses permission to look at {_who(pid)}: it has privileges that "
        "this process has not, as CAP_SYS_PTRACE, or is in another namespace of users"
    )


def _row(worker: _Worker, before: _Worker | None, seconds: float) -> dict[str, Any]:
    """What is told of a worker; rates are None in the first table."""
    now = worker.statistics
    drained = worker.counters.drained
    row: dict[str, Any] = {
        "pid": worker.process.pid,
        "name": worker.process.name,
        "command": _command(worker.process.pid) or worker.process.name,
        "version": worker.process.version,
        "worker": worker.counters.number,
        "pending_sends": now.pending_sends,
        "waiting_sends": now.waiting_sends,
        "unexpected_messages": now.unexpected_messages,
        "endpoints": now.endpoints,
        "seconds_since_look": (
            None if drained is None else max(0.0, time.time() - drained)
        ),
    }
    for name in _RATES:
        rate = None
        if before is not None and seconds > 0:
            grown = getattr(now, name) - getattr(before.statistics, name)
            rate = grown / seconds
        row[f"{name}_per_second"] = rate
    return row


def _command(pid: int) -> str:
    """The command line of a process, with its program's name alone."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    except OSError:
        return ""
    words = text.split("\0")
    return page.printable(" ".join([Path(words[0]).name, *words[1:]]).strip())


def _show(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({"time": time.time(), "workers": rows}), flush=True)
        return
    lines = [_heading(), *map(_line, rows)]
    if not rows:
        lines.append("no process of this user uses ucp" if not options.pids else "")
    if sys.stdout.isatty():
        size = shutil.get_terminal_size()
        lines = [line[: size.columns - 1] for line in lines[: size.lines - 1]]
        print(_CLEAR, end="")
    print("\n".join(lines), flush=True)


def _heading() -> str:
    return "".join(f"{name:>{width}}" for name, width, _ in _COLUMNS) + "  COMMAND"


def _line(row: dict[str, Any]) -> str:
    cells = [f"{_cell(key, row[key]):>{width}}" for _, width, key in _COLUMNS]
    return "".join(cells) + f"  {row['command']}"


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    if key == "seconds_since_look":
        return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"
    if key in ("pid", "worker"):
        return str(value)
    return _short(value)


def _short(number: float) -> str:
    """0, 12.3, 1.23k, 45.6M."""
    for unit in ("", "k", "M", "G"):
        if abs(number) < 999.5:
            text = f"{number:.3g}" if unit or number % 1 else f"{number:.0f}"
            return f"{text}{unit}"
        number /= 1000
    return f"{number:.3g}T"
