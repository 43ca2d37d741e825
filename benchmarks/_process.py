# SPDX-License-Identifier: BSD-3-Clause
"""Child processes: one core each, own environment, always ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Self

import _interrupts  # noqa: F401

TIME_LIMIT = 60.0


def core(index: int) -> set[int]:
    cpus = sorted(os.sched_getaffinity(0))
    return {cpus[index % len(cpus)]}


def child_environment(extra: dict[str, str]) -> dict[str, str]:
    """Ours without UCX's settings, so that a run does not depend on them."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("UCX", "UCP_"))}
    return {**env, **extra}


@dataclass(frozen=True)
class Network:
    """How to start a server and a client, and where the server is then."""

    address: str = "127.0.0.1"
    server: tuple[str, ...] = ()
    client: tuple[str, ...] = ()


LOOPBACK = Network()


class Child:
    """A process pinned to core `index`; leaving the block ends it."""

    def __init__(
        self, command: list[str], env: dict[str, str], pinned: bool, index: int
    ) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115, closed in __exit__
        self.last = b""
        self.process = subprocess.Popen(
            command,
            env=child_environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            process_group=0,  # Ctrl-C is for this process, which ends the child
        )
        self.pid = self.process.pid
        if pinned:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(self.pid, core(index))
        self.deadline = time.monotonic() + TIME_LIMIT

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None and self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()

    def failure(self, what: str) -> RuntimeError:
        self.errors.seek(0)
        text = self.errors.read() or self.last
        lines = text.decode(errors="replace").strip().splitlines()
        return RuntimeError(f"{what}: {lines[-1] if lines else 'it said nothing'}")

    def send(self, line: str) -> None:
        """Send the process a line that tells what to do next."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> bytes:
        """Some output, b"" at its end."""
        assert self.process.stdout is not None
        left = self.deadline - time.monotonic()
        if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
            raise self.failure(f"no answer in {TIME_LIMIT:g} s")
        part = os.read(self.process.stdout.fileno(), 65536)
        self.last = part or self.last
        return part

    def message(self) -> dict[str, Any]:
        """The next JSON object the child printed."""
        line = b""
        while not line.endswith(b"\n"):
            if not (part := self.read()):
                raise self.failure("ended without an answer")
            line += part
        return dict(json.loads(line.splitlines()[-1]))

    def output(self) -> str:
        """All output up to the end of a process that succeeds."""
        text = b""
        while part := self.read():
            text += part
        if self.process.wait(5) != 0:
            raise self.failure(f"exit status {self.process.returncode}")
        return text.decode(errors="replace")


def free_port() -> int:
    """Free at every address: ucx_perftest binds to all of them."""
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def wait_listening(port: int, child: Child) -> None:
    """Until `port` is bound; a connection to ask would be taken for a peer."""
    wanted = f":{port:04X} "
    while time.monotonic() < child.deadline:
        if child.process.poll() is not None:
            child.read()
            raise child.failure("the server ended")
        for table in (f"/proc/{child.pid}/net/tcp", f"/proc/{child.pid}/net/tcp6"):
            with contextlib.suppress(OSError), open(table) as lines:
                if any(wanted in line and " 0A " in line for line in lines):
                    return
        time.sleep(0.005)
    raise child.failure("the server does not listen")


def run_pair(
    command: list[str],
    network: Network,
    env: dict[str, str],
    pinned: bool,
    port: int,
) -> str:
    """Output of `command ADDRESS` against a server that is `command`."""
    with Child([*network.server, *command], env, pinned, 0) as server:
        wait_listening(port, server)
        client = [*network.client, *command, network.address]
        with Child(client, env, pinned, 1) as other:
            return other.output()
