# SPDX-License-Identifier: BSD-3-Clause
"""Programs to which the system refuses shared memory of System V, or other calls."""

import os
import platform

import pytest

_NUMBERS = {
    "x86_64": {
        "shmget": 29,
        "shmat": 30,
        "shmctl": 31,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
    },
    "aarch64": {
        "shmget": 194,
        "shmat": 196,
        "shmctl": 195,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
    },
}

# In front of a program: ``refuse(number, error)`` makes a system call fail from then
# on, as a sandbox does. ``limit(shmmax=1)`` makes a namespace with limits.
PRELUDE = """
import asyncio, ctypes, errno, logging, os, signal, struct, sys
signal.alarm(50)
_libc = ctypes.CDLL(None, use_errno=True)

def _call(result):
    assert result == 0, os.strerror(ctypes.get_errno())

def refuse(number, error):
    load, equal, ret, allow = 0x20, 0x15, 0x06, 0x7FFF0000
    program = b"".join(
        struct.pack("HBBI", *each)
        for each in (
            (load, 0, 0, 0),
            (equal, 0, 1, number),
            (ret, 0, 0, 0x00050000 | error),
            (ret, 0, 0, allow),
        )
    )
    code = ctypes.create_string_buffer(program)
    _call(_libc.prctl(38, 1, 0, 0, 0))  # no new privileges
    fprog = struct.pack("HxxxxxxP", 4, ctypes.addressof(code))
    _call(_libc.prctl(22, 2, fprog, 0, 0))  # a filter of seccomp

def limit(**limits):
    _call(_libc.unshare(0x08000000))  # CLONE_NEWIPC
    for name, value in limits.items():
        with open(f"/proc/sys/kernel/{name}", "w") as file:
            file.write(str(value))

said = []

class _Said(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())

logging.getLogger("ucp").addHandler(_Said())
"""


def refuse(call, error="EPERM"):
    """A line of a program that has the system refuse a call."""
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        pytest.skip("the numbers of system calls are not known here")
    return f"refuse({numbers[call]}, errno.{error})\n"


def limit(**limits):
    """A line of a program that has the system allow little, in a namespace."""
    if os.geteuid() != 0:
        pytest.skip("a namespace needs root")
    words = ", ".join(f"{name}={value}" for name, value in limits.items())
    return f"limit({words})\n"
