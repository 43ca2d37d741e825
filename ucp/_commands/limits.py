# SPDX-License-Identifier: BSD-3-Clause
"""doctor: limits of processes: descriptors, threads, the control group."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from .finding import Findings, human, note, ok, problem
from .memory import read_number

_FEW_FILES = 4096
_FEW_THREADS = 256
_LITTLE_MEMORY = 256 << 20

# What version 1 calls a file of version 2, and in which hierarchy that is.
_VERSION_1 = {
    "memory.max": ("memory", "memory.limit_in_bytes"),
    "memory.current": ("memory", "memory.usage_in_bytes"),
    "pids.max": ("pids", "pids.max"),
    "pids.current": ("pids", "pids.current"),
}
_UNLIMITED = 1 << 60  # bytes: version 1 has a number of pages that is as large


def check() -> Findings:
    """Look at this process and its control group."""
    yield from _descriptors()
    yield from _threads()
    yield from _memory()
    yield from _cpus()


def _descriptors() -> Findings:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    text = f"{soft} files may be open at a time (RLIMIT_NOFILE; at most {most})"
    if soft - used < 64:
        level = problem
    elif soft < _FEW_FILES:
        level = note
    else:
        yield ok("descriptors", text)
        return
    more = hard == resource.RLIM_INFINITY or hard > soft
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    yield level(
        "descriptors",
        f"{text}. A worker and each of its connections need several.",
        (f"Run 'ulimit -n {wanted}' before the program. " if more else "")
        + "For all, write 'nofile' into /etc/security/limits.conf, LimitNOFILE= into "
        "the unit of systemd, or start the container with --ulimit nofile=65536.",
    )


def _threads() -> Findings:
    """UCX and ucp start some; UCX ends the process where it may not."""
    found = {
        "RLIMIT_NPROC": _room_of_user(),
        "kernel.threads-max": _room(
            read_number("/proc/sys/kernel/threads-max"), _all_threads()
        ),
        "pids.max of the control group": _least_room("pids"),
    }
    rooms = {name: room for name, room in found.items() if room is not None}
    if not rooms:
        yield ok("threads", "No limit on the number of threads")
        return
    name = min(rooms, key=lambda each: rooms[each])
    text = f"{rooms[name]} more threads may be started ({name})"
    if rooms[name] >= _FEW_THREADS:
        yield ok("threads", text)
        return
    level = problem if rooms[name] < 16 else note
    yield level(
        "threads",
        f"{text}. Processes count as threads, and each that uses ucp has several.",
        "End processes that are not needed, or raise the limit: 'ulimit -u', "
        "'sysctl -w kernel.threads-max=...', TasksMax= in the unit of systemd, or "
        "--pids-limit of the container.",
    )


def _room(limit: int | None, used: int | None) -> int | None:
    return None if limit is None or used is None else max(limit - used, 0)


def _all_threads() -> int | None:
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return None


def _room_of_user() -> int | None:
    """Threads that this user may start; None: any number, as the superuser."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if limit == resource.RLIM_INFINITY or os.geteuid() == 0:
        return None
    used = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == os.getuid():
                used += len(os.listdir(folder / "task"))
        except OSError:  # it has ended, or may not be looked at
            pass
    return max(limit - used, 0)


def _memory() -> Findings:
    name = "control group"
    room = _least_room("memory")
    if room is None:
        yield ok(name, "It has no limit of memory")
        return
    limit = _least(_numbers("memory.max"))
    text = f"It allows {human(limit or 0)} of memory, of which {human(room)} are left"
    if room >= _LITTLE_MEMORY:
        yield ok(name, text)
        return
    yield note(
        name,
        f"{text}. Shared memory counts as well, and the system kills (SIGKILL) what "
        "needs more.",
        "Raise the limit (--memory of the container, MemoryMax= in the unit of "
        "systemd), or have less in flight: docs/tuning.md says what takes memory.",
    )


def _cpus() -> Findings:
    cpus = _cpu_quota()
    usable = len(os.sched_getaffinity(0))
    if cpus is None or cpus >= usable:
        yield ok("control group", "It allows all CPUs that are usable all the time")
        return
    yield note(
        "control group",
        f"It allows {cpus:.3g} CPUs of time, and {usable} CPUs are usable: a "
        "process that has used its time up stands still for some milliseconds.",
        "Start as many processes as there are CPUs of time; "
        "ucp.init(config=ucp.Config(spin=0)) waits without using any.",
    )


# ---- files of control groups


def _least_room(what: str) -> int | None:
    """What is left below the limit of this group or of one above it."""
    limits, used = _numbers(f"{what}.max"), _numbers(f"{what}.current")
    rooms = [
        max(limit - used[folder], 0)
        for folder, limit in limits.items()
        if folder in used and limit < _UNLIMITED
    ]
    return min(rooms, default=None)


def _least(numbers: dict[Path, int]) -> int | None:
    return min(numbers.values(), default=None)


def _numbers(name: str) -> dict[Path, int]:
    """What such files of this process's groups say; "max" says nothing."""
    kind, former = _VERSION_1[name]
    files = [*_files("", name), *_files(kind, former)]
    found = {file.parent: read_number(str(file)) for file in files}
    return {folder: n for folder, n in found.items() if n is not None}


def _files(kind: str, name: str) -> list[Path]:
    """Files of this process's control group and of those above it, in the hierarchy
    of a kind, "" for that of version 2."""
    own = _groups().get(kind)
    if own is None:
        return []
    root = Path("/sys/fs/cgroup", kind)
    folder = root / own.strip("/")
    files = [each / name for each in (folder, *folder.parents) if root in each.parents]
    return [file for file in [*files, root / name] if file.exists()]


def _groups() -> dict[str, str]:
    """The group of this process in each hierarchy: lines such as "4:memory:/a"."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        _, kinds, group = line.split(":", 2)
        found |= dict.fromkeys(kinds.split(","), group)
    return found


def _cpu_quota() -> float | None:
    found = []
    for file in _files("", "cpu.max"):
        quota, period = file.read_text().split()
        if quota != "max":
            found.append(int(quota) / int(period))
    for file in _files("cpu", "cpu.cfs_quota_us"):
        allowed = read_number(str(file))
        every = read_number(str(file.with_name("cpu.cfs_period_us")))
        if allowed is not None and allowed > 0 and every:
            found.append(allowed / every)
    return min(found, default=None)
