# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts whose network has a delay, a rate, losses and silence.

Each "host" is a network namespace; a relay (support/relay.c) between them is the
network. `joined_hosts()` makes them, `start()` runs a program in one of them as if
in a machine of its own: it shares no process ids and no System V memory with the
other one, so UCX takes the network.

This module needs no pytest unless a test is to be skipped: benchmarks use it, too.
"""

import contextlib
import functools
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from script import started

HOSTS = ("192.0.2.1", "192.0.2.2")  # reserved for documentation
DEVICE = "net0"  # of both hosts

UNSHARE = (
    *("unshare", "--ipc", "--uts", "--pid", "--mount-proc"),
    *("--fork", "--kill-child"),
)

_DROPS = {"none": 0, "first": 1, "second": 2, "both": 3}
_numbers = itertools.count()


def missing():
    """Why there can be no such network here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "unshare", os.environ.get("CC", "cc").split()[0]):
        if shutil.which(tool) is None:
            return f"the command {tool} is not installed"
    probe = subprocess.run(
        [*UNSHARE, "--net", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no namespaces here: {probe.stderr.strip()}" if probe.returncode else None


def _ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def _built():
    """The folder of the relay, which is removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="ucp-relay-")
    source = Path(__file__).parent / "support" / "relay.c"
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-O2", "-o", f"{folder.name}/relay", source], check=True)
    return folder


class Link:
    """The network between two hosts, `namespaces`. It begins without any limit."""

    def __init__(self, namespaces, relay):
        self.namespaces = namespaces
        self._relay = relay
        self._limits = {"rate": 0, "loss": 0}
        self._segments = 65535

    def _say(self, *words):
        print(*words, file=self._relay.stdin, flush=True)
        answer = self._relay.stdout.readline().strip()
        if not answer or answer.startswith("relay:"):
            raise RuntimeError(answer or "the relay has ended")
        return answer

    def set(self, *, delay=None, rate=None, queue=None, loss=None, drop=None):
        """Change what is given, for both directions; it holds when this returns.

        `delay` is the time of one way and `queue` the longest time that a packet
        waits for the rate, both in seconds; `rate` is in bits per second, 0 for no
        limit; `loss` is the part of the packets that are lost; `drop` says of whom
        everything is lost: "none", "first" (host), "second" or "both".
        """
        if delay is not None:
            self._say("delay", round(delay * 1e6))
        if rate is not None:
            self._say("rate", round(rate / 1e3))
        if queue is not None:
            self._say("queue", round(queue * 1e6))
        if loss is not None:
            self._say("loss", round(loss * 1e6))
        self._set_segments(rate, loss)
        if drop is not None:
            self._say("drop", _DROPS[drop])

    def _set_segments(self, rate, loss):
        """What the kernel hands over uncut is lost as a whole, and fills the queue.

        So it is one packet of the network where some are lost, and else takes at
        most a millisecond at the rate.
        """
        self._limits |= {
            name: value
            for name, value in {"rate": rate, "loss": loss}.items()
            if value is not None
        }
        segments = int(self._limits["rate"] * 1e-3 / 8 / 1500) or 1
        if self._limits["loss"]:
            segments = 1
        elif not self._limits["rate"]:
            segments = 65535
        if segments != self._segments:
            self._segments = segments
            for namespace in self.namespaces:
                words = ("gso_max_segs", str(min(segments, 65535)))
                _ip("-n", namespace, "link", "set", DEVICE, *words)

    def counts(self):
        """(packets, bytes, lost packets) from the first host, and from the second."""
        numbers = [int(word) for word in self._say("count").split()]
        return tuple(numbers[:3]), tuple(numbers[3:])


def _prepare(undo):
    """Make the namespaces and their devices; return their names."""
    base = f"ucp{os.getpid()}n{next(_numbers)}"
    *hosts, between = (base + end for end in "abr")
    for name in (*hosts, between):
        _ip("netns", "add", name)
        undo.callback(_ip, "netns", "del", name)
    quiet = ("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
    _ip("netns", "exec", between, *quiet)
    for number, host in enumerate(hosts):
        inside = ("-n", host)
        pair = ("link", "add", DEVICE, "netns", host, "type", "veth")
        _ip(*pair, "peer", "name", f"r{number}", "netns", between)
        _ip(*inside, "addr", "add", f"{HOSTS[number]}/24", "dev", DEVICE)
        _ip(*inside, "link", "set", "lo", "up")
        _ip("-n", between, "link", "set", f"r{number}", "up")
        _ip(*inside, "link", "set", DEVICE, "up")
    for host in hosts:  # UCX takes its devices when it starts
        while "state UP" not in _ip("-n", host, "link", "show", DEVICE):
            pass
    return hosts, between


@contextlib.contextmanager
def joined_hosts(**settings):
    """The Link of two hosts, set as by Link.set(); or the test is skipped."""
    if reason := missing():
        import pytest

        pytest.skip(reason)
    with contextlib.ExitStack() as undo:
        hosts, between = _prepare(undo)
        relay = undo.enter_context(
            subprocess.Popen(
                [*exec_in(between), f"{_built().name}/relay", "r0", "r1"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )  # its input is closed at the end of this block, and with it it ends
        link = Link(hosts, relay)
        link.counts()  # answered when it relays
        link.set(**settings)
        yield link


def exec_in(namespace):
    """The words in front of a command that runs in the namespace."""
    return ["ip", "netns", "exec", namespace]


def as_host(namespace):
    """The words in front of a command that runs as if on a machine of its own."""
    return [*exec_in(namespace), *UNSHARE]


def start(namespace, program, *arguments):
    """A Python program on a host, with pipes; it is killed at the end."""
    command = [sys.executable, "-P", "-c", program, *map(str, arguments)]
    return started([*as_host(namespace), *command], stdin=subprocess.PIPE)
