# SPDX-License-Identifier: BSD-3-Clause
"""doctor: what separates processes from each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

from .finding import Finding, Findings, note, ok, problem
from .memory import read_number, segments, user_name

_LIMIT = 20.0  # seconds

# What one process runs, and what another one runs that reads its memory.
_READ = """
import ctypes, os, sys
mine = ctypes.create_string_buffer(b"this is what is read")
print(os.getpid(), ctypes.addressof(mine), flush=True)
sys.stdin.read()
"""
_READER = """
import ctypes, os, sys
class Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))
pid, address = map(int, sys.argv[1:])
got = ctypes.create_string_buffer(20)
local = Iovec(ctypes.addressof(got), 20)
remote = Iovec(address, 20)
libc = ctypes.CDLL(None, use_errno=True)
libc.process_vm_readv.restype = ctypes.c_ssize_t
n = libc.process_vm_readv(
    pid, ctypes.byref(local), ctypes.c_ulong(1), ctypes.byref(remote),
    ctypes.c_ulong(1), ctypes.c_ulong(0))
print("same" if got.raw == b"this is what is read" else os.strerror(ctypes.get_errno()))
"""


def check(pid: int | None = None) -> Findings:
    """Look at what separates processes, and this one from the process ``pid``."""
    yield from _reading()
    yield from _container()
    if pid is not None:
        has_users = yield from _users(pid)
        has_queues = yield from _queues(pid)
        yield from _namespaces(pid, has_users or has_queues)


def _reading() -> Findings:
    """Can one of our processes read the memory of another? Loans need it."""
    name = "loans"
    scope = read_number("/proc/sys/kernel/yama/ptrace_scope")
    yama = f"kernel.yama.ptrace_scope is {scope}" if scope is not None else "no Yama"
    answer = _try_reading()
    if answer == "same":
        yield ok(
            name,
            f"A process can read the memory of another one of this user ({yama}), so "
            "that messages can be lent (Config(cma_max=...))",
        )
        return
    remedy = "Ask whoever runs this host; it matters for Config(cma_max=...) only."
    if scope:
        remedy = "Run 'sysctl -w kernel.yama.ptrace_scope=0' if that is acceptable."
    elif _seccomp() == 2:
        remedy = (
            "A seccomp filter is in force, which may forbid process_vm_readv(): start "
            "the container with --cap-add=SYS_PTRACE, or with a profile that allows it."
        )
    yield note(
        name,
        f"A process cannot read the memory of another one ({yama}): {answer}. "
        "Messages are not lent; all else works.",
        remedy,
    )


def _try_reading() -> str:
    python = [sys.executable, "-I", "-S", "-c"]
    with subprocess.Popen(
        [*python, _READ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,
    ) as read:
        assert read.stdout is not None
        where = read.stdout.readline().decode().split()
        try:
            done = subprocess.run(
                [*python, _READER, *where],
                capture_output=True,
                text=True,
                timeout=_LIMIT,
            )
        except subprocess.TimeoutExpired:
            return f"no answer in {_LIMIT:g} s"
        finally:
            read.kill()
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


def _seccomp() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Seccomp:"):
            return int(line.split()[1])
    return 0


def _container() -> Findings:
    kinds = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman"}
    found = [kind for file, kind in kinds.items() if Path(file).exists()]
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        found.append("Kubernetes")
    if found:
        yield note(
            "container",
            f"This is a container ({', '.join(found)}). Processes of two containers "
            "share memory only if they share three namespaces: network, IPC and "
            "process numbers.",
            f"docker run {_TOGETHER}, or host in place of container:NAME; all three. "
            "'python -m ucp doctor --pid PID' compares with another process.",
        )
    else:
        yield ok("container", "This is no container that is known")


# What two processes need to share for messages through shared memory.
_NEEDED = {"net": "--network", "ipc": "--ipc", "pid": "--pid"}
_TOGETHER = " ".join(f"{option}=container:NAME" for option in _NEEDED.values())


def _users(pid: int) -> Generator[Finding, None, bool]:
    """Whose the other process is; true if no shared memory is used for that."""
    name = "users"
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        user = int(next(each for each in lines if each.startswith("Uid:")).split()[2])
        found = segments(Path("/proc/sysvipc/shm").read_text())
    except (OSError, StopIteration, KeyError, ValueError):
        return False
    if user != os.geteuid():
        yield note(
            name,
            f"Process {pid} is of {user_name(user)}, and this one of "
            f"{user_name(os.geteuid())}: messages between the two go by TCP.",
            "For shared memory run both as one user.",
        )
    former = {each.uid for each in found if each.creator == pid} - {user}
    if former:
        yield note(
            name,
            f"Process {pid} is of {user_name(user)}, and has made shared memory as "
            f"{' and '.join(map(user_name, sorted(former)))}: messages between it and "
            "others go by TCP.",
            "For shared memory change the user before the first use of ucp.",
        )
    return bool(former) or user != os.geteuid()


# How long UCX's queues in shared memory are, and what is in them.
_QUEUE_OPTION = re.compile(
    "UCX_(?:MM|POSIX|SYSV|XPMEM)_(?:FIFO_SIZE|FIFO_ELEM_SIZE|SEG_SIZE)"
)


def _queue_options(environment: Iterable[str]) -> set[str]:
    return {each for each in environment if _QUEUE_OPTION.match(each.split("=")[0])}


def _queues(pid: int) -> Generator[Finding, None, bool]:
    """How the other process was started with other queues; true if it was so."""
    try:
        theirs = _queue_options(
            os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes()).split("\0")
        )
    except OSError:
        return False
    own = _queue_options(f"{key}={value}" for key, value in os.environ.items())
    if own == theirs:
        return False
    yield note(
        "queues",
        f"Process {pid} was started with {_names(theirs - own)}, and this one with "
        f"{_names(own - theirs)}: messages between the two go by TCP, as UCX's "
        "queues in shared memory have to be alike.",
        "For shared memory start both with the same values of these variables.",
    )
    return True


def _names(settings: set[str]) -> str:
    return " and ".join(sorted(settings)) or "none of these variables"


def _namespaces(pid: int, is_apart: bool = False) -> Findings:
    """What separates this process from another one: docs/howto/containers.md."""
    name = "namespaces"
    try:
        shared = {kind: _is_shared(pid, kind) for kind in (*_NEEDED, "user")}
    except FileNotFoundError:
        yield problem(
            name,
            f"There is no process {pid} here: it has ended, or it is in another "
            "namespace of processes.",
            "Give the number that the process has in this namespace.",
        )
        return
    except OSError as exc:
        yield note(
            name,
            f"The namespaces of process {pid} cannot be read: {exc.strerror}.",
            "Run doctor as its user, or as root.",
        )
        return
    own = [kind for kind in _NEEDED if not shared[kind]]
    if not own:
        yield ok(
            name,
            f"Process {pid} shares the namespaces net, ipc and pid"
            + ("" if is_apart else ": messages go through shared memory"),
        )
    elif own == ["pid"]:
        yield note(
            name,
            f"Process {pid} shares the namespaces net and ipc, but not pid: messages "
            "between the two go by TCP.",
            "For shared memory share the namespace pid, too (--pid=container:NAME or "
            "--pid=host).",
        )
    else:
        hosts = " Addresses such as 127.0.0.1 are not shared."
        yield note(
            name,
            f"Process {pid} is in another namespace {' and '.join(own)}: messages "
            f"between the two go by TCP.{'' if shared['net'] else hosts}",
            f"For shared memory start the container with {_TOGETHER}, all three.",
        )
    if not shared["user"]:
        yield note(
            name,
            f"Process {pid} is in another namespace of users: memory of one user is "
            "not that of the same user there.",
            "Give both the same mapping of users.",
        )


def _is_shared(pid: int, kind: str) -> bool:
    ours = os.readlink(f"/proc/self/ns/{kind}")
    return ours == os.readlink(f"/proc/{pid}/ns/{kind}")
