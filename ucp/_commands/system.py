# SPDX-License-Identifier: BSD-3-Clause
"""doctor: limits of processes, and what separates them from each other."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

from .finding import Finding, Findings, human, note, ok, problem
from .memory import read_number, segments, user_name

_FEW = 4096  # descriptors
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
    """Look at this process, and at what separates it from the process ``pid``."""
    yield from _descriptors()
    yield from _reading()
    yield from _container()
    yield from _cgroup()
    if pid is not None:
        is_apart = yield from _users(pid)
        yield from _namespaces(pid, is_apart)


def _descriptors() -> Findings:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    text = f"{soft} files may be open at a time (RLIMIT_NOFILE; at most {most})"
    if soft - used < 64:
        level = problem
    elif soft < _FEW:
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


def _cgroup() -> Findings:
    """Limits of the control group, of version 2."""
    found = []
    memory = _limit_of("memory.max")
    if memory is not None:
        found.append(f"{human(memory)} of memory")
    tasks = _limit_of("pids.max")
    if tasks is not None:
        found.append(f"{tasks} tasks")
    if found:
        yield ok("control group", f"It allows {' and '.join(found)}")
    cpus = _cpu_quota()
    usable = len(os.sched_getaffinity(0))
    if cpus is not None and cpus < usable:
        yield note(
            "control group",
            f"It allows {cpus:.3g} CPUs of time, and {usable} CPUs are usable: a "
            "process that has used its time up stands still for some milliseconds.",
            "Start as many processes as there are CPUs of time; "
            "ucp.init(config=ucp.Config(spin=0)) waits without using any.",
        )


def _files(name: str) -> list[Path]:
    """The file of this process's control group and of those above it."""
    root = Path("/sys/fs/cgroup")
    try:
        text = Path("/proc/self/cgroup").read_text()
    except OSError:
        return []
    own = next((s[3:] for s in text.splitlines() if s.startswith("0::")), "/")
    folder = root / own.strip("/")
    files = [each / name for each in (folder, *folder.parents) if root in each.parents]
    return [file for file in [*files, root / name] if file.exists()]


def _limit_of(name: str) -> int | None:
    texts = [file.read_text().strip() for file in _files(name)]
    return min((int(text) for text in texts if text != "max"), default=None)


def _cpu_quota() -> float | None:
    words = [file.read_text().split() for file in _files("cpu.max")]
    found = [int(each[0]) / int(each[1]) for each in words if each[0] != "max"]
    return min(found, default=None)


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
