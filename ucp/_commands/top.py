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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .._core import startup
from .._core.statistics import WorkerStatistics
from .._observe import page
from .._run.keys import Keys
from .._run.terminal import Terminal

_CLEAR = "\033[H\033[J"
_STATUS_NONE = 1

_LATE = 1.0  # seconds after which a worker with pending sends should have looked
_TITLE = 18  # columns that the name of a process gets at least


class _Column(NamedTuple):
    """A column of the table.

    Attributes:
        heading: its first line.
        width: of the cells, with the blank in front and the mark behind.
        key: what --json has, too.
        rank: a narrow terminal lacks that of rank 1 first; 0: it lacks none of these.
    """

    heading: str
    width: int
    key: str
    rank: int = 0


_COLUMNS = (
    _Column("PID", 8, "pid"),
    _Column("WORKER", 7, "worker", 3),
    _Column("OUT/s", 6, "sent_messages_per_second", 5),
    _Column("OUT B/s", 8, "sent_bytes_per_second"),
    _Column("IN/s", 6, "received_messages_per_second", 5),
    _Column("IN B/s", 7, "received_bytes_per_second"),
    _Column("WAKE/s", 7, "wakeups_per_second", 1),
    _Column("PENDING", 8, "pending_sends"),
    _Column("CREDIT", 8, "waiting_sends"),
    _Column("UNEXP", 6, "unexpected_messages", 4),
    _Column("EPS", 5, "endpoints", 2),
    _Column("LOOKED", 8, "seconds_since_look"),
)
# By what rows can be sorted: the greatest comes first, but for the last two.
_ORDERS = ("traffic", "messages", "pending", "credit", "looked", "pid", "name")
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
    add(
        "--sort",
        choices=_ORDERS,
        default=_ORDERS[0],
        help="what the rows are sorted by; the key s goes on to the next (%(default)s)",
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
    """Print tables until q or Ctrl-C, or until no process is left."""
    wanted = list(dict.fromkeys(options.pids))
    before = _look(wanted)
    for pid, why in before.errors.items():
        print(f"{startup.program()} top: {why}", file=sys.stderr)
        wanted.remove(pid)
    if options.pids and not wanted:
        return _STATUS_NONE
    with Keys(is_wanted=not (options.once or options.json)) as keys:
        rows = [_row(worker, None, 0.0) for worker in before.workers]
        if not options.once:
            _show(rows, options, keys.are_read)
        while _wait(keys, rows, options):
            now = _look(wanted)
            seconds = now.at - before.at
            old = {worker.key: worker for worker in before.workers}
            rows = [_row(each, old.get(each.key), seconds) for each in now.workers]
            _show(rows, options, keys.are_read)
            for pid, why in now.errors.items():
                print(f"{startup.program()} top: {why}", file=sys.stderr)
                wanted.remove(pid)
            if options.once or (options.pids and not wanted):
                break
            before = now
    return 0


def _wait(keys: Keys, rows: list[dict[str, Any]], options: argparse.Namespace) -> bool:
    """Wait for the next table, and do what keys say; False: q ends the command."""
    end = time.monotonic() + options.interval
    while (left := end - time.monotonic()) > 0:
        match keys.wait(left):
            case "q" | "Q":
                return False
            case "s":
                place = _ORDERS.index(options.sort) + 1
                options.sort = _ORDERS[place % len(_ORDERS)]
                _show(rows, options, keys.are_read)
    return True


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
    words = page.words_of(pid)
    if not words:
        return ""
    return page.printable(" ".join([Path(words[0]).name, *words[1:]]).strip())


def _show(
    rows: list[dict[str, Any]], options: argparse.Namespace, are_keys_read: bool = False
) -> None:
    rows = sorted(rows, key=_sort_key(options.sort))
    if options.json:
        print(json.dumps({"time": time.time(), "workers": rows}), flush=True)
        return
    terminal = Terminal(sys.stdout)
    columns = _columns(terminal.columns)
    lines = [terminal.paint(_heading(columns), "bold")]
    lines += [_line(row, columns, terminal) for row in rows]
    if not rows:
        lines.append("no process of this user uses ucp" if not options.pids else "")
    legend = _legend(rows, options, are_keys_read)
    if terminal.is_terminal:
        height = shutil.get_terminal_size().lines - 1
        below = [line for text in legend for line in terminal.wrap(text)]
        lines = [*lines[: max(height - len(below), 2)], *below]
        print(_CLEAR, end="")
    else:
        lines += legend
    print("\n".join(lines), flush=True)


def _sort_key(order: str) -> Callable[[dict[str, Any]], Any]:
    keys = {
        "traffic": ("sent_bytes_per_second", "received_bytes_per_second"),
        "messages": ("sent_messages_per_second", "received_messages_per_second"),
        "pending": ("pending_sends",),
        "credit": ("waiting_sends",),
        "looked": ("seconds_since_look",),
        "pid": (),
        "name": (),
    }[order]

    def key(row: dict[str, Any]) -> Any:
        name = _title(row["command"]) if order == "name" else ""
        return -sum(row[key] or 0 for key in keys), name, row["pid"], row["worker"]

    return key


def _columns(width: int | None) -> list[_Column]:
    """The columns of a terminal: those that leave room for the names of processes."""
    found = list(_COLUMNS)
    if width is None:
        return found
    for rank in sorted({column.rank for column in found} - {0}):
        if sum(column.width for column in found) + 2 + _TITLE < width:
            break
        found = [column for column in found if column.rank != rank]
    return found


def _heading(columns: list[_Column]) -> str:
    return (
        "".join(f"{each.heading:>{each.width - 1}} " for each in columns) + " COMMAND"
    )


def _line(row: dict[str, Any], columns: list[_Column], terminal: Terminal) -> str:
    cells = []
    for column in columns:
        mark = "!" if _is_marked(column.key, row) else " "
        text = f"{_cell(column.key, row[column.key]) + mark:>{column.width}}"
        cells.append(terminal.paint(text, "bold red" if mark == "!" else ""))
    command = row["command"]
    if terminal.columns is not None:
        room = terminal.columns - 1 - sum(column.width for column in columns) - 1
        if len(command) > room:
            command = _title(command)[: max(room, 0)]
    return "".join(cells) + f" {command}"


def _is_marked(key: str, row: dict[str, Any]) -> bool:
    """Is this a number that says why a program may stand still?"""
    if key == "waiting_sends":
        return bool(row[key] > 0)
    if key == "seconds_since_look":
        return row["pending_sends"] > 0 and (row[key] or 0.0) > _LATE
    return False


def _legend(
    rows: list[dict[str, Any]], options: argparse.Namespace, are_keys_read: bool
) -> list[str]:
    """What is marked, and which keys there are."""
    lines = []
    if any(_is_marked("waiting_sends", row) for row in rows):
        lines.append("CREDIT!: sends wait until the peer reads what it has been sent")
    if any(_is_marked("seconds_since_look", row) for row in rows):
        lines.append(
            "LOOKED!: sends are pending, and the worker does not look: its event loop "
            "is blocked, or its peer does not receive"
        )
    if are_keys_read:
        lines.append(f"sorted by {options.sort}; keys: s sorts by another, q ends")
    return lines


def _title(command: str) -> str:
    """The program of a command line, without Python, and its arguments."""
    words = command.split()
    if not words or not words[0].startswith("python"):
        return command
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] not in ("-c", "-m", "-"):
        rest = rest[2 if rest[0] in ("-W", "-X") else 1 :]
    if not rest or rest[0] == "-c":
        return command
    if rest[0] == "-m":
        return " ".join(rest[1:])
    return " ".join([Path(rest[0]).name, *rest[1:]])


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
