# SPDX-License-Identifier: BSD-3-Clause
"""Processes that talk to each other at random while some are killed or stopped.

    python tests/soak/chaos 20 [--over shm|tcp|mixed|network] [--seed 7] [--runs 10]

Each process (process.py) has several event loops; each loop listens, and
connects to all the others with a kind of traffic chosen at random
(traffic.py). Connections are closed, aborted, or lost with a process.
What must hold: messages arrive whole and in order until a receive raises;
nobody waits longer than 15 s; every process ends by itself; nothing is written
to stderr. With `network` the processes are on two hosts (tests/relay.py, which
needs root), between which everything is lost for 1 to 6 s now and then, one way or
both; nobody waits longer than 30 s. The seed decides what is done, not when: a
fault need not come back.
"""

import argparse
import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time

import process

PROGRAM = os.path.dirname(__file__)
sys.path.append(os.path.dirname(os.path.dirname(PROGRAM)))  # of the tests
import relay  # noqa: E402

# After the time is over: connections end, loops close, the interpreter goes.
END_S = 45

# The last of the time passes without kills, so that calm traffic follows them.
CALM_S = 4


class Process:
    """One that takes part; killed, another takes its place."""

    def __init__(self, arguments, rng, seconds, host, before):
        over = rng.choice(["shm", "tcp"]) if arguments.over == "mixed" else None
        self._process = subprocess.Popen(
            [
                *before,
                *(sys.executable, "-P", "-X", "faulthandler", "-W", "default"),
                *(PROGRAM, "process", str(seconds), str(rng.randrange(1 << 30))),
                *("--over", over or arguments.over, "--loops", str(arguments.loops)),
                *("--host", host, "--kinds", *arguments.kinds),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.addresses = []

    def start(self):
        """Wait for the addresses of its loops; [] if it has ended before."""
        self.addresses = self._process.stdout.readline().split()

    def has_ended(self):
        return self._process.poll() is not None

    def tell(self, addresses):
        try:
            self._process.stdin.write(" ".join(addresses) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its exit status says the rest

    def kill(self, number):
        self._process.send_signal(number)

    def last_words(self):
        """Of one that was killed."""
        self._process.kill()
        return self._process.communicate()[1]

    def end(self, timeout):
        """Its output, and what was wrong with it, or an empty string."""
        self.tell([])
        try:
            out, err = self._process.communicate(timeout=max(timeout, 0))
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # faulthandler says where
            out, err = self._process.communicate()
            return out, f"process {self.pid} does not end\n{err}"
        status = self._process.returncode
        if status != 0 or err:
            return out, f"process {self.pid} ended with {status}\n{err}"
        return out, ""


class Chaos:
    def __init__(self, arguments, link):
        """``link``: of the two hosts, or None."""
        self._arguments = arguments
        self._link = link
        self._rng = random.Random(arguments.seed)
        self._end = time.monotonic() + arguments.seconds
        self._processes = []
        self.kills = self.stops = self.cuts = 0
        self.faults = []
        self.totals = {}

    def run(self):
        self._processes = [self._new(n) for n in range(self._arguments.processes)]
        for each in self._processes:
            each.start()
        self._tell()
        while time.monotonic() < self._end - CALM_S and not self._has_fault():
            self._wait(self._rng.uniform(0.1, 1.5))
            if not self._arguments.no_kills:
                self._disturb(self._rng.randrange(len(self._processes)))
        deadline = self._end + END_S
        for each in self._processes:
            if self._has_fault() and not each.has_ended():
                each.kill(signal.SIGUSR1)  # its part in what another has found
                self._wait(0.5)
                self.faults.append(f"process {each.pid}:\n{each.last_words()}")
                continue
            out, fault = each.end(deadline - time.monotonic())
            if fault:
                self.faults.append(fault)
            self._count(out)

    def _new(self, number):
        seconds = max(self._end - time.monotonic(), 1)
        host, before = "127.0.0.1", []
        if self._link is not None:
            host = relay.HOSTS[number % 2]
            before = relay.as_host(self._link.namespaces[number % 2])
        return Process(self._arguments, self._rng, seconds, host, before)

    def _tell(self):
        addresses = [address for each in self._processes for address in each.addresses]
        for each in self._processes:
            each.tell(addresses)

    def _has_fault(self):
        return bool(self.faults) or any(
            each.has_ended() for each in self._processes if time.monotonic() < self._end
        )

    def _wait(self, seconds):
        select.select([], [], [], seconds)

    def _disturb(self, number):
        victim = self._processes[number]
        if self._link is not None and self._rng.random() < 0.5:
            self._cut()
            return
        if self._link is None and self._rng.random() < 0.3:
            self.stops += 1
            victim.kill(signal.SIGSTOP)
            self._wait(self._rng.uniform(0.05, 1))
            if self._rng.random() < 0.7:
                victim.kill(signal.SIGCONT)
                return
        self.kills += 1
        words = victim.last_words()
        if words:
            self.faults.append(f"process {victim.pid}, before it was killed\n{words}")
        self._processes[number] = self._new(number)
        self._processes[number].start()
        self._tell()

    def _cut(self):
        self.cuts += 1
        self._link.set(drop=self._rng.choice(["first", "second", "both"]))
        self._wait(self._rng.uniform(1, 6))
        self._link.set(drop="none", delay=self._rng.choice([0, 0.0005, 0.01]))

    def _count(self, out):
        for word in out.split():
            key, _, value = word.partition("=")
            if value.isdigit():
                self.totals[key] = self.totals.get(key, 0) + int(value)


OVER = ["shm", "tcp", "mixed", "network"]


def main():
    if sys.argv[1:2] == ["process"]:
        process.main(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--over", choices=OVER, default="shm")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--loops", type=int, default=2, help="in each process")
    parser.add_argument("--no-kills", action="store_true")
    parser.add_argument("--kinds", nargs="+", default=list(process.KINDS))
    parser.add_argument("--runs", type=int, default=1, help="of one seed after another")
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.randrange(1 << 30)
    num_faults = 0
    for _ in range(arguments.runs):
        num_faults += run(arguments)
        arguments.seed += 1
    return 1 if num_faults else 0


def run(arguments):
    """How many faults it found."""
    with contextlib.ExitStack() as undo:
        link = None
        if arguments.over == "network":
            link = undo.enter_context(relay.joined_hosts())
        chaos = Chaos(arguments, link)
        chaos.run()
    done = " ".join(f"{key}={chaos.totals[key]}" for key in sorted(chaos.totals))
    print(
        f"chaos: seed {arguments.seed}, over {arguments.over}, {chaos.kills} kills, "
        f"{chaos.stops} stops, {chaos.cuts} cuts; {done or 'nothing'}",
        flush=True,
    )
    for fault in chaos.faults:
        print(fault, file=sys.stderr, flush=True)
    return len(chaos.faults)


if __name__ == "__main__":
    sys.exit(main())
