# SPDX-License-Identifier: BSD-3-Clause
"""Read the counters of a process of this host, whatever it does meanwhile.

libumx keeps the counters of a process's workers in a memory file named
``ucp-stats``, which other processes of the same user find in ``/proc/PID/fd``:
src/util/page.h describes it. The process that is looked at does nothing for it,
and may hang. Each number is read as a whole; two numbers that are read one after
the other may be of two moments.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .._core.statistics import Statistics, WorkerStatistics

_LINK = "/memfd:ucp-stats"
_MAGIC = b"ucpstats"
_VERSIONS = (1, 2)  # the first one has no rows of hosts
# umi_page_header: magic, version, header_size, slot_size, num_slots, pid,
# begun_ns, ticks, ticks_ns, ticks_per_second, umx_version, hosts_offset, host_size,
# num_hosts, spare, names
_HEADER = struct.Struct("=8sIIIIQQQQQ16sQII32x1024s")
# umi_page_host: turn, worker, umi_traffic, name, transports
_HOST = struct.Struct("=QQQQQQ64s80s")
_TRAFFIC = ("sent_messages", "sent_bytes", "received_messages", "received_bytes")
_FIELDS = tuple(field.name for field in dataclasses.fields(WorkerStatistics))
_NEEDED = {"number", "begun_ns", "drained"}
_MAX_SIZE = 4 << 20  # bytes

#: The name of all hosts together that are not counted by themselves.
OTHER_HOSTS = "other"


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerCounters(Statistics):
    """The counters of one worker, as other threads and processes see them.

    Attributes:
        number: counts the workers of the process, from 1.
        started: when the worker was made, in seconds of ``time.time()``.
        drained: when its loop has last looked for messages, in such seconds; None
            if it never has. A worker with nothing to do does not look.
        statistics: what ``Worker.statistics`` is; requests are those of the last
            look.
        rank: its rank in the communicator that was made last; None if there is none,
            or the process uses an older version of ucp.
        communicator: the name of that communicator; "" if it has none.
    """

    number: int
    started: float
    drained: float | None
    statistics: WorkerStatistics
    rank: int | None = None
    communicator: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class HostCounters(Statistics):
    """What a worker has exchanged with the processes of one host.

    Attributes:
        worker: the number of the worker.
        host: the address of the host; "localhost"; "other": all hosts together that
            are not counted by themselves.
        transports: UCX's, by which messages went to the host. Those of "other" are
            not known.
        sent_messages: messages that were given to UCX.
        sent_bytes: their bytes.
        received_messages: messages that have come, whether read or not.
        received_bytes: their bytes.
    """

    worker: int
    host: str
    transports: tuple[str, ...]
    sent_messages: int
    sent_bytes: int
    received_messages: int
    received_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessStatistics(Statistics):
    """The counters of a process that uses ucp.

    Attributes:
        pid: its number.
        name: the name of its program, as ``ps`` shows it; "" if it has ended.
        version: the version of ucp that it uses.
        started: when it has made its first worker, in seconds of ``time.time()``.
        workers: the workers that there are.
        hosts: what each of them has exchanged with each host.
    """

    pid: int
    name: str
    version: str
    started: float
    workers: tuple[WorkerCounters, ...]
    hosts: tuple[HostCounters, ...] = ()


def read(pid: int) -> list[ProcessStatistics]:
    """Return the counters of the process ``pid``.

    The list has one element; none if the process has no worker, does not use ucp
    or was started with ``UCP_STATS=0``; several if copies of the library are in it.

    Raises:
        ProcessLookupError: there is no such process.
        PermissionError: it belongs to another user.
    """
    folder = Path(f"/proc/{pid}/fd")
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        raise ProcessLookupError(
            errno.ESRCH, f"there is no process {pid} on this host"
        ) from None
    except PermissionError:
        raise PermissionError(
            errno.EACCES,
            f"process {pid} belongs to another user, or has other privileges; its "
            "counters are for its own user and root",
        ) from None
    found = [_read_file(pid, path) for path in paths if _is_page(path)]
    return [each for each in found if each is not None]


def read_all() -> list[ProcessStatistics]:
    """Return the counters of all processes of this host that this one may read.

    Those of other users are among them if this process is root's.
    """
    found: list[ProcessStatistics] = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                found += read(int(entry.name))
    return found


def program_of(pid: int) -> str:
    """What a process runs: a script's or module's name if it is an interpreter.

    "" if there is no such process.
    """
    name = name_of(pid)
    if not name.startswith("python"):  # also one that has named itself
        return name
    return printable(_script_of(words_of(pid)[1:]) or name)


def words_of(pid: int) -> list[str]:
    """The command line of a process, and "" behind it; []: there is no process."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    except OSError:
        return []
    return line.split("\0")


def _script_of(words: list[str]) -> str:
    """The script or module in the arguments of an interpreter; "" if none is."""
    rest = iter(words)
    for word in rest:
        if word.startswith("-m"):
            return word[2:] or next(rest, "")
        if word in ("-W", "-X"):
            next(rest, "")
        elif not word or word.startswith("-c") or word == "-":
            return ""
        elif not word.startswith("-"):
            return Path(word).name
    return ""


def name_of(pid: int) -> str:
    """The name of a process's program; "" if there is no such process.

    A program may give itself any bytes: what cannot be printed is "?" here.
    """
    try:
        name = Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""
    return printable(name)


def printable(text: str) -> str:
    """The text for a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _is_page(path: Path) -> bool:
    try:
        return os.readlink(path).startswith(_LINK)
    except OSError:  # it has been closed
        return False


def _read_file(pid: int, path: Path) -> ProcessStatistics | None:
    try:
        with path.open("rb") as file:
            # Not by mmap(): a file that shrinks would end this process.
            data = os.pread(file.fileno(), _MAX_SIZE, 0)
            return _read_memory(
                pid, memoryview(data), lambda at: os.pread(file.fileno(), 8, at)
            )
    except OSError:  # closed meanwhile
        return None


def _read_memory(
    pid: int, view: memoryview, read_word: Callable[[int], bytes] | None = None
) -> ProcessStatistics | None:
    """What ``view`` says; ``read_word`` reads a word of the memory again, later."""
    if len(view) < _HEADER.size:
        return None
    magic, version, *rest = _HEADER.unpack_from(view)
    if magic != _MAGIC or version not in _VERSIONS:
        return None
    header_size, slot_size, num_slots, _, begun_ns, *clock = rest[:-5]
    umx_version, hosts_offset, host_size, num_hosts, _ = rest[-5:]
    names = _text(rest[-1]).split(",")
    if not _NEEDED.issubset(names) or clock[-1] == 0:
        return None
    if slot_size % 8 != 0 or slot_size < 8 * (len(names) + 1):
        return None
    if len(view) < header_size + num_slots * slot_size or len(view) % 8 != 0:
        return None
    if header_size % 8 != 0:
        return None
    # First the rows, which a worker that ends gives back before its slot: the rows
    # of a slot that is in use after that are those that it had.
    hosts: list[HostCounters] = []
    if version != 1:
        hosts += _hosts(view, hosts_offset, host_size, num_hosts, read_word)
    found = [
        view[start : start + slot_size].cast("Q")
        for start in range(header_size, header_size + num_slots * slot_size, slot_size)
        if _is_in_use(view, start, read_word)
    ]
    names.insert(0, "turn")
    all_slots = [(dict(zip(names, slot, strict=False)), slot) for slot in found]
    # A page of another user may have a number twice.
    slots = {numbers["number"]: (numbers, slot) for numbers, slot in all_slots}.values()
    if version != 1:
        hosts += [_other_hosts(numbers) for numbers, _ in slots]
    by_worker = hosts_by_worker(hosts)
    for numbers, _ in slots:
        _add_traffic(numbers, by_worker.get(numbers["number"], ()))
    workers = tuple(
        _worker(numbers, _name_in(slot, names), *clock) for numbers, slot in slots
    )
    known = {worker.number for worker in workers}
    return ProcessStatistics(
        pid=pid,
        name=name_of(pid),
        version=_text(umx_version),
        started=begun_ns / 1e9,
        workers=workers,
        hosts=tuple(host for host in hosts if host.worker in known),
    )


def _hosts(
    view: memoryview,
    offset: int,
    size: int,
    count: int,
    read_word: Callable[[int], bytes] | None,
) -> Iterator[HostCounters]:
    """The rows of hosts that are in use."""
    if size < _HOST.size or offset % 8 != 0 or offset + count * size > len(view):
        return
    for start in range(offset, offset + count * size, size):
        if _is_in_use(view, start, read_word):
            _, worker, *traffic, name, transports = _HOST.unpack_from(view, start)
            words = filter(None, printable(_text(transports)).split(","))
            yield HostCounters(worker, printable(_text(name)), tuple(words), *traffic)


def _other_hosts(numbers: dict[str, int]) -> HostCounters:
    """What a worker has exchanged with hosts that have no row."""
    traffic = (numbers.get(f"other_{name}", 0) for name in _TRAFFIC)
    return HostCounters(numbers["number"], OTHER_HOSTS, (), *traffic)


def hosts_by_worker(hosts: Iterable[HostCounters]) -> dict[int, list[HostCounters]]:
    """Hosts by the number of their worker."""
    found: dict[int, list[HostCounters]] = {}
    for host in hosts:
        found.setdefault(host.worker, []).append(host)
    return found


def _add_traffic(numbers: dict[str, int], hosts: Iterable[HostCounters]) -> None:
    """Add to a worker's numbers what it has exchanged with ``hosts``, all of its."""
    for host in hosts:
        for name in _TRAFFIC:
            numbers[name] = numbers.get(name, 0) + getattr(host, name)


def _text(padded: bytes) -> str:
    return padded.partition(b"\0")[0].decode("ascii", "replace")


def _is_in_use(
    view: memoryview, start: int, read_word: Callable[[int], bytes] | None
) -> bool:
    """True if a slot is in use, and has not changed hands while it was read."""
    turn = bytes(view[start : start + 8])
    if int.from_bytes(turn, sys.byteorder) % 2 == 0:
        return False
    return read_word is None or read_word(start) == turn


def _name_in(slot: memoryview, names: list[str]) -> str:
    """The text of a slot, which is the last of what has a name."""
    if names[-1] != "communicator":  # of another version
        return ""
    return printable(
        bytes(slot[len(names) - 1 :]).partition(b"\0")[0].decode("utf-8", "replace")
    )


def _worker(
    slot: dict[str, int],
    communicator: str,
    ticks: int,
    ticks_ns: int,
    ticks_per_second: int,
) -> WorkerCounters:
    drained = None
    if slot["drained"]:
        drained = ticks_ns / 1e9 + (slot["drained"] - ticks) / ticks_per_second
    return WorkerCounters(
        number=slot["number"],
        started=slot["begun_ns"] / 1e9,
        drained=drained,
        statistics=statistics_of(slot),
        rank=slot["rank"] if slot.get("num_ranks") else None,
        communicator=communicator,
    )


def statistics_of(numbers: dict[str, Any]) -> WorkerStatistics:
    """Statistics of numbers by their names; what another version lacks is 0."""
    return WorkerStatistics(**{name: numbers.get(name, 0) for name in _FIELDS})
