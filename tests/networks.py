# SPDX-License-Identifier: BSD-3-Clause
"""Two network namespaces joined by a veth pair: a network between two hosts."""

import contextlib
import os
import shutil
import subprocess
import sys

import pytest
from script import started

HOST = "192.0.2.1"  # reserved for documentation, as is 192.0.2.2


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, check=True, text=True)


def wait_up(name, device):
    """UCX takes its devices when it starts: the link has to be up by then."""
    while "state UP" not in ip("-n", name, "link", "show", device).stdout:
        pass


@contextlib.contextmanager
def joined_namespaces():
    """Names of both, or the test is skipped; the first has the address HOST."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the command ip")
    names = [f"ucptest{os.getpid()}{end}" for end in "ab"]
    devices = [f"ucpt{os.getpid() % 100000}{end}" for end in "ab"]
    with contextlib.ExitStack() as undo:
        for name in names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
            undo.callback(ip, "netns", "del", name)
        first = ["link", "add", devices[0], "netns", names[0], "type", "veth"]
        ip(*first, "peer", "name", devices[1], "netns", names[1])
        for number, (name, device) in enumerate(zip(names, devices, strict=True), 1):
            ip("-n", name, "addr", "add", f"192.0.2.{number}/24", "dev", device)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", device, "up")
        for name, device in zip(names, devices, strict=True):
            wait_up(name, device)
        yield names


def first_device():
    """The first namespace's end of the pair."""
    return f"ucpt{os.getpid() % 100000}a"


def cut(namespaces):
    """Nothing goes from one to the other any more."""
    ip("-n", namespaces[0], "link", "set", first_device(), "down")


def start(namespace, program, *arguments):
    command = [sys.executable, "-P", "-c", program, *arguments]
    return started(["ip", "netns", "exec", namespace, *command], stdin=subprocess.PIPE)
