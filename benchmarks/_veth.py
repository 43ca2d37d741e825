# SPDX-License-Identifier: BSD-3-Clause
"""Two network namespaces joined by a veth pair: a network on one machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator

from _process import Network

ADDRESSES = ("192.0.2.1", "192.0.2.2")  # reserved for documentation


def missing() -> str | None:
    """Why there can be no such network here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the command {tool} is not installed"
    return None


def command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def wait_up(space: str, device: str) -> None:
    """UCX takes its devices at the start: the link has to be up by then."""
    deadline = time.monotonic() + 5
    while "state UP" not in command("ip", "-n", space, "link", "show", device):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{device} does not come up")
        time.sleep(0.05)


@contextlib.contextmanager
def network(rate: str | None = None) -> Iterator[Network]:
    """The namespaces; `rate` limits both directions, as in tc: "10gbit"."""
    spaces = [f"ucpbench{os.getpid()}{end}" for end in "ab"]
    devices = [f"ucpb{os.getpid() % 100000}{end}" for end in "ab"]
    with contextlib.ExitStack() as undo:
        for space in spaces:
            command("ip", "netns", "add", space)
            undo.callback(command, "ip", "netns", "del", space)
        first = ["ip", "link", "add", devices[0], "netns", spaces[0], "type", "veth"]
        command(*first, "peer", "name", devices[1], "netns", spaces[1])
        for space, device, address in zip(spaces, devices, ADDRESSES, strict=True):
            inside = ("ip", "-n", space)
            command(*inside, "addr", "add", f"{address}/24", "dev", device)
            command(*inside, "link", "set", device, "up")
            if rate:
                limit = ["rate", rate, "burst", "1mb", "latency", "20ms"]
                shape = ["tc", "-n", space, "qdisc", "add", "dev", device, "root"]
                command(*shape, "tbf", *limit)
        for space, device in zip(spaces, devices, strict=True):
            wait_up(space, device)
        prefixes = [("ip", "netns", "exec", space) for space in spaces]
        yield Network(ADDRESSES[0], prefixes[0], prefixes[1])
