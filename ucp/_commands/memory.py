# SPDX-License-Identifier: BSD-3-Clause
"""doctor: shared memory, and limits of memory."""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import resource
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .finding import Findings, human, note, ok, problem

_SHM = Path("/dev/shm")
_SMALL = 1 << 30  # bytes of a /dev/shm that may not be enough
_ENOUGH_LOCKED = 1 << 30
_SEGMENT = 2176 << 10  # bytes of the largest segment of a worker of UCX
# UCX 1.22 crashes when it makes a worker with so much free in /dev/shm: with less
# it uses memory of System V, with more a file. Others' files come and go meanwhile.
_CRASHES = range((16 << 20) - (256 << 10), (16 << 20) + (256 << 10))
_NEARLY = 0.9
# Of the inbox of a rank, as in src/comm/inbox_cell.h: bytes of a ring, at most and at
# least, of all rings of an inbox, of a line, and what a rank has beside its ring.
_RING_MAX, _RING_MIN, _RINGS_MAX = 2 << 20, 16 << 10, 8 << 20
_LINE, _LINES = 64, 1 + 64


def check() -> Findings:
    """Look at memory."""
    yield from _posix()
    yield from _system_v()
    yield from _locked()
    yield from _overcommit()


def read_number(path: str) -> int | None:
    """The number in a file of the kernel; None: there is no such file."""
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _posix() -> Findings:
    name = "shared memory"
    try:
        found = os.statvfs(_SHM)
    except OSError as exc:
        yield note(
            name,
            f"There is no /dev/shm: {exc.strerror}. UCX uses memory of System V.",
            "Mount a tmpfs there: mount -t tmpfs tmpfs /dev/shm",
        )
        return
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    text = f"/dev/shm has {human(total)}, {human(free)} of them free"
    more = (
        "Start the container with more (docker run --shm-size=2g; in Kubernetes an "
        "emptyDir with medium: Memory), or run 'mount -o remount,size=2g /dev/shm'."
    )
    if found.f_flag & os.ST_RDONLY:
        yield problem(
            name,
            f"{text}, but it is mounted read-only.",
            "Run 'mount -o remount,rw /dev/shm', or set UCX_TLS=sysv,tcp,self, with "
            "which UCX does not use it.",
        )
    elif not os.access(_SHM, os.W_OK | os.X_OK):
        yield problem(
            name, f"{text}, but this user may not write there.", "chmod 1777 /dev/shm"
        )
    elif free in _CRASHES:
        yield problem(
            name,
            f"{text}: UCX 1.22 crashes if 16 MiB are free when it makes a worker.",
            f"{more} Or set UCX_TLS=sysv,tcp,self, with which UCX does not use it.",
        )
    elif free < total * (1 - _NEARLY) or free < 16 << 20:
        yield note(
            name,
            f"{text}: when it is full, UCX uses memory of System V instead.",
            f"Remove files of programs that have ended. {more}",
        )
    elif total < _SMALL:
        yield note(name, f"{text}: little for many processes.", more)
    else:
        yield ok(name, text)


@dataclass(frozen=True)
class Segment:
    """A segment of System V: a line of /proc/sysvipc/shm."""

    key: int
    identifier: int
    size: int
    creator: int
    attached: int
    uid: int


def segments(text: str) -> list[Segment]:
    """Read /proc/sysvipc/shm."""
    lines = text.splitlines()
    names = lines[0].split() if lines else []
    rows = [dict(zip(names, line.split(), strict=False)) for line in lines[1:]]
    return [
        Segment(
            int(row["key"]),
            int(row["shmid"]),
            int(row["size"]),
            int(row["cpid"]),
            int(row["nattch"]),
            int(row["uid"]),
        )
        for row in rows
    ]


def _try_segment() -> int:
    """The errno with which the system refuses a segment; 0: it does not."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.shmget(0, _SEGMENT, 0o600)
    error = ctypes.get_errno() if number < 0 else 0
    if number >= 0:
        libc.shmctl(number, 0, None)  # removes it
    return error


def _system_v() -> Findings:
    name = "System V"
    error = _try_segment()
    if error in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        yield note(
            name,
            f"The system refuses segments of shared memory: {os.strerror(error)}. UCX "
            "goes without its transport sysv, and no process maps the memories of "
            "another.",
            "Allow shmget, shmat, shmdt and shmctl in the sandbox, for example in the "
            "seccomp profile of the container.",
        )
        return
    without = " UCX goes without its transport sysv." if error else ""
    try:
        found = segments(Path("/proc/sysvipc/shm").read_text())
    except (OSError, KeyError, ValueError):
        yield note(name, "The kernel does not tell about segments of System V.")
        return
    most = read_number("/proc/sys/kernel/shmmni") or 0
    pages = read_number("/proc/sys/kernel/shmall") or 0
    largest = read_number("/proc/sys/kernel/shmmax") or 0
    size = sum(segment.size for segment in found)
    limit = pages * resource.getpagesize()
    whose = Counter(user_name(segment.uid) for segment in found)
    listed = ", ".join(f"{count} of {user}" for user, count in whose.most_common(4))
    text = (
        f"{len(found)} of {most} segments are in use (kernel.shmmni)"
        f"{f': {listed}' if listed else ''}; {human(size)} together"
    )
    if most and len(found) > _NEARLY * most:
        yield problem(
            name,
            f"{text}. Memories need segments, and UCX's transport sysv.{without}",
            f"Run 'sysctl -w kernel.shmmni={max(32768, 4 * most)}', and remove those "
            "that nobody uses: 'ipcs -m' lists them, 'ipcrm -m ID' removes one.",
        )
    elif limit and size > _NEARLY * limit:
        yield problem(
            name,
            f"{text}, of at most {human(limit)} (kernel.shmall).{without}",
            "Raise kernel.shmall with sysctl; it counts pages.",
        )
    elif largest and largest < _SMALL:
        yield note(
            name,
            f"{text}. The largest segment may have {human(largest)} "
            f"(kernel.shmmax).{without}",
            "Raise kernel.shmmax with sysctl.",
        )
    elif error:
        yield note(
            name,
            f"{text}. Another one is refused: {os.strerror(error)}.{without}",
            "Raise kernel.shmall with sysctl; it counts pages.",
        )
    else:
        yield ok(name, text)
    if not error:
        yield from _rings(name, size, limit, largest)
    yield from _left_behind(name, found)


def inbox_size(ranks: int) -> int:
    """Bytes of the inbox that each of so many ranks of a host makes."""
    ring = _RING_MAX
    while ring > _RING_MIN and ring * ranks > _RINGS_MAX:
        ring //= 2
    return _LINE + ranks * (_LINES * _LINE + ring)


def _rings(name: str, used: int, limit: int, largest: int) -> Findings:
    """Is there room for the inboxes of a rank for each processor?"""
    ranks = max(2, len(os.sched_getaffinity(0)))
    each = inbox_size(ranks)
    text = (
        f"{ranks} ranks of this host, one for each processor, want {human(each)} each "
        "for the rings of their collective operations"
    )
    smaller = "Rings are smaller, then, or there are none, and messages take longer."
    if largest and largest < each:
        yield note(
            name,
            f"{text}, and a segment may have {human(largest)} (kernel.shmmax). "
            f"{smaller}",
            f"Run 'sysctl -w kernel.shmmax={2 * each}'.",
        )
    elif limit and used + ranks * each > limit:
        yield note(
            name,
            f"{text}, and {human(max(0, limit - used))} are left in all "
            f"(kernel.shmall). {smaller}",
            "Raise kernel.shmall with sysctl; it counts pages.",
        )
    else:
        yield ok(name, f"{text}. It becomes memory where it is used")


def _left_behind(name: str, found: list[Segment]) -> Findings:
    """Segments that nobody has attached and whose maker has ended.

    The kernel gives 0 for a maker in another namespace of processes: whether that
    one has ended is not known.
    """
    left = [
        segment
        for segment in found
        if segment.attached == 0
        and segment.uid == os.geteuid()
        and segment.creator != 0
        and not Path(f"/proc/{segment.creator}").exists()
    ]
    if left:
        identifiers = " ".join(f"-m {segment.identifier}" for segment in left[:8])
        more = f", and {len(left) - 8} more" if len(left) > 8 else ""
        yield note(
            name,
            f"{len(left)} segments of this user are attached by no process, and their "
            f"makers have ended: {human(sum(s.size for s in left))}.",
            f"If they are of no use, run 'ipcrm {identifiers}'{more}.",
        )


def user_name(uid: int) -> str:
    """The name of a user, or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _locked() -> Findings:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    text = f"{_limit(soft)} may be locked (RLIMIT_MEMLOCK; at most {_limit(hard)})"
    try:
        devices = sorted(os.listdir("/sys/class/infiniband"))
    except OSError:
        devices = []
    if not devices:
        yield ok("locked memory", f"{text}; without RDMA devices nothing needs it")
    elif soft != resource.RLIM_INFINITY and soft < _ENOUGH_LOCKED:
        yield problem(
            "locked memory",
            f"{text}, and RDMA registers memory by locking it: {', '.join(devices)}.",
            "Run 'ulimit -l unlimited' before the program; for all, write 'memlock "
            "unlimited' into /etc/security/limits.conf, LimitMEMLOCK=infinity into the "
            "unit of systemd, or start the container with --ulimit memlock=-1.",
        )
    else:
        yield ok("locked memory", f"{text}; RDMA devices: {', '.join(devices)}")


def _limit(number: int) -> str:
    return "any amount" if number == resource.RLIM_INFINITY else human(number)


def _overcommit() -> Findings:
    if read_number("/proc/sys/vm/overcommit_memory") == 2:
        yield note(
            "overcommit",
            "vm.overcommit_memory is 2: mapped memory counts although it is not used, "
            "and large heaps and fork() may fail with MemoryError.",
            "Run 'sysctl -w vm.overcommit_memory=0', or raise vm.overcommit_ratio.",
        )
