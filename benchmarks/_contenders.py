# SPDX-License-Identifier: BSD-3-Clause
"""The contenders: how each is started and what its result means."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from _process import LOOPBACK, Child, Network, child_environment, free_port, run_pair

PEERS = Path(__file__).with_name("_peers.py")

# Settings that ucp makes on its own context (docs/tuning.md), for UCX's own benchmark.
# ucp_settings() replaces them by those of the installed ucp.
UCX_SETTINGS = {
    "MM_ERROR_HANDLING": "y",
    "POSIX_ERROR_HANDLING": "y",
    "SYSV_ERROR_HANDLING": "y",
}
UCX_KEYS = [
    "TCP_TX_SEG_SIZE",
    "TCP_RX_SEG_SIZE",
    "TCP_SNDBUF",
    "TCP_RCVBUF",
    "POSIX_SEG_SIZE",
    "SYSV_SEG_SIZE",
    "RNDV_SCHEME",
]


@dataclass(frozen=True)
class Case:
    """One thing to measure; `transport` is "shm" (UCX's default) or "tcp"."""

    test: str
    size: int = 8
    transport: str = "shm"
    window: int = 1
    pinned: bool = True

    def __str__(self) -> str:
        size = f" {human(self.size)}" if self.test != "connect" else ""
        pinned = "" if self.pinned else " unpinned"
        return f"{self.transport}{size}{pinned}"


def human(size: int) -> str:
    """8B, 64K, 1M."""
    for shift, unit in ((20, "M"), (10, "K")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return f"{size}B"


def sizes(text: str) -> list[int]:
    """Parse a list of sizes: "8,4K" is [8, 4096]."""
    shift = {"K": 10, "M": 20}
    return [
        int(item[:-1]) << shift[item[-1]] if item[-1] in shift else int(item)
        for item in text.upper().split(",")
    ]


def ucx_environment(transport: str, settings: dict[str, str]) -> dict[str, str]:
    env = {f"UCX_{key}": value for key, value in settings.items()}
    env["UCX_LOG_LEVEL"] = "error"
    if transport == "tcp":
        env["UCX_TLS"] = "tcp"
    return env


@functools.cache
def libucx() -> Path | None:
    """Where the libucx wheel is."""
    found = importlib.util.find_spec("libucx")
    return Path(found.origin).parent if found and found.origin else None


@dataclass(frozen=True)
class Contender:
    """Base: `run` measures `n` messages once and gives the case's unit."""

    name: str
    # The first run's message count is chosen from this many seconds a message.
    guess: float = 20e-6

    def missing(self) -> str | None:
        """Return why the contender cannot run here, or None."""
        return None

    def supports(self, case: Case) -> bool:
        return True

    def run(self, case: Case, n: int) -> float:
        raise NotImplementedError


@dataclass(frozen=True)
class Python(Contender):
    """A peer of _peers.py in two fresh interpreters."""

    peer: str = ""
    modules: tuple[str, ...] = ()
    tests: tuple[str, ...] = ("latency", "bandwidth", "rate", "connect", "hold")
    env: dict[str, str] = field(default_factory=dict)
    spec: dict[str, object] = field(default_factory=dict)
    ucx: bool = False  # follows UCX_TLS; the others have tcp only
    network: Network = LOOPBACK
    python: str = sys.executable

    def missing(self) -> str | None:
        for module in self.modules:
            if importlib.util.find_spec(module) is None:
                return f"{module} is not installed"
        return None

    def supports(self, case: Case) -> bool:
        anywhere = self.ucx or case.test == "connect"
        return case.test in self.tests and (anywhere or case.transport == "tcp")

    def server(self, spec: dict[str, object]) -> list[str]:
        return [self.python, str(PEERS), "server", json.dumps(spec)]

    def client(self, spec: dict[str, object]) -> list[str]:
        return [self.python, str(PEERS), "client", json.dumps(spec)]

    def environment(self, case: Case) -> dict[str, str]:
        return {**(ucx_environment(case.transport, {}) if self.ucx else {}), **self.env}

    def describe(self, case: Case, n: int) -> dict[str, object]:
        """Return what both processes are told; a rate is counted in whole windows."""
        step = case.window if case.test == "rate" else 1
        return {
            **self.spec,
            "peer": self.peer,
            "test": case.test,
            "size": case.size,
            "window": case.window,
            "n": max(n // step, 1) * step,
            "warmup": max(n // 10 // step, 1) * step,
        }

    def run(self, case: Case, n: int) -> float:
        spec = self.describe(case, n)
        env = self.environment(case)
        where = self.network
        spec["host"] = where.address
        command = [*where.server, *self.server(spec)]
        with Child(command, env, case.pinned, 0) as server:
            spec["port"] = server.message()["port"]
            command = [*where.client, *self.client(spec)]
            with Child(command, env, case.pinned, 1) as client:
                value = float(client.message()["value"])
        return value * 1e6 if case.test == "latency" else value


@functools.cache
def bare_program() -> str:
    """bare_ucx.c, compiled for the life of this process."""
    root = libucx()
    folder = tempfile.mkdtemp(prefix="ucp-bench-")
    atexit.register(shutil.rmtree, folder)
    program = f"{folder}/bare_ucx"
    source = str(PEERS.with_name("bare_ucx.c"))
    command = ["cc", "-O2", f"-I{root}/include", source, "-o", program]
    subprocess.run([*command, f"-L{root}/lib", "-lucp", "-lucs"], check=True)
    return program


@dataclass(frozen=True)
class BareUcx(Python):
    """bare_ucx.c: connections over UCX alone, with the settings of ucp."""

    tests: tuple[str, ...] = ("connect", "hold")
    ucx: bool = True

    def missing(self) -> str | None:
        if libucx() is None or shutil.which("cc") is None:
            return "no libucx wheel, or no C compiler"
        return None

    def environment(self, case: Case) -> dict[str, str]:
        env = ucx_environment(case.transport, ucp_settings())
        return {**env, "LD_LIBRARY_PATH": f"{libucx()}/lib"}

    def server(self, spec: dict[str, object]) -> list[str]:
        return [bare_program(), "server"]

    def client(self, spec: dict[str, object]) -> list[str]:
        test, port, n = str(spec["test"]), str(spec["port"]), str(spec["n"])
        warmup = [str(spec["warmup"])] if test == "connect" else []
        return [bare_program(), test, port, *warmup, n]


@dataclass(frozen=True)
class Perftest(Contender):
    """UCX's own benchmark: the floor, with the settings that ucp uses."""

    am: bool = False  # active messages instead of tags
    options: tuple[str, ...] = ("-e",)
    settings: dict[str, str] = field(default_factory=dict)
    network: Network = LOOPBACK
    guess: float = 1e-6

    def missing(self) -> str | None:
        root = libucx()
        if root is None or not (root / "bin/ucx_perftest").exists():
            return "no libucx wheel with ucx_perftest"
        return None

    def supports(self, case: Case) -> bool:
        return case.test in ("latency", "bandwidth", "rate")

    def test_name(self, case: Case) -> str:
        kind = "lat" if case.test == "latency" else "bw"
        return f"ucp_am_{kind}" if self.am else f"tag_{kind}"

    def run(self, case: Case, n: int) -> float:
        root = libucx()
        assert root is not None
        env = ucx_environment(case.transport, {**ucp_settings(), **self.settings})
        env["LD_LIBRARY_PATH"] = str(root / "lib")
        # While it is loaded, UCX waits for threads of the process: there are none.
        env["UCX_MEM_BISTRO_GRACE_DURATION"] = "0"
        command = [str(root / "bin/ucx_perftest"), "-f", "-v", *self.options]
        command += ["-t", self.test_name(case), "-s", str(case.size)]
        command += ["-n", str(n), "-w", str(max(n // 10, 1))]
        if case.test != "latency":
            command += ["-O", str(case.window)]
        port = free_port()
        command += ["-p", str(port)]
        output = run_pair(command, self.network, env, case.pinned, port)
        return parse_perftest(output, case.test)


def parse_perftest(output: str, test: str) -> float:
    """Microseconds, bytes/s or messages/s from the last CSV line.

    Columns: iterations, latency percentile, average, overall; bandwidth
    average, overall (MiB/s); message rate average, overall.
    """
    lines = [line for line in output.splitlines() if re.match(r" *\d+,", line)]
    if not lines:
        raise RuntimeError(f"ucx_perftest printed no result: {output[-300:]!r}")
    columns = [float(value) for value in lines[-1].split(",")]
    if test == "latency":
        return columns[3]
    return columns[5] * 2**20 if test == "bandwidth" else columns[7]


@functools.cache
def ucp_settings() -> dict[str, str]:
    """Return the settings of the installed ucp, as UCX options without their prefix."""
    code = "import json, ucp; print(json.dumps(ucp.get_config()))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=child_environment({}), capture_output=True, check=False
    )
    if done.returncode != 0:
        return UCX_SETTINGS
    config = json.loads(done.stdout)
    found = {key: config[key] for key in UCX_KEYS if key in config}
    return {**UCX_SETTINGS, **found}


def probe() -> float:
    """Shared memory ping-pong, microseconds: which state the machine is in."""
    perftest = Perftest("probe", options=())
    if reason := perftest.missing():
        raise RuntimeError(reason)
    return perftest.run(Case("latency"), 30_000)


NO_SPIN: dict[str, object] = {"spin": False}


def ucxx(name: str, mode: str, guess: float = 20e-6, **env: str) -> Python:
    spec: dict[str, object] = {"mode": mode}
    return Python(name, guess, "ucxx", ("ucxx",), spec=spec, env=env, ucx=True)


CONTENDERS: dict[str, Contender] = {
    c.name: c
    for c in (
        Python("ucp", 1e-6, "ucp", ("ucp",), ucx=True),
        Python("ucp-uvloop", 1e-6, "ucp-uvloop", ("ucp", "uvloop"), ucx=True),
        Python("ucp-nospin", 10e-6, "ucp", ("ucp",), spec=NO_SPIN, ucx=True),
        Python(
            "ucp-nospin-uvloop",
            guess=10e-6,
            peer="ucp-uvloop",
            modules=("ucp", "uvloop"),
            spec=NO_SPIN,
            ucx=True,
        ),
        Python(
            "ucp-stream",
            1e-6,
            peer="ucp-stream",
            modules=("ucp",),
            tests=("latency", "bandwidth"),
            ucx=True,
        ),
        Python("ucp-tags", 1e-6, "ucp-tags", ("ucp",), ("latency",), ucx=True),
        Python("ucp-am", 1e-6, "ucp-am", ("ucp",), ("latency",), ucx=True),
        BareUcx("ucx"),
        Perftest("perftest"),
        Perftest("perftest-am", am=True),
        Perftest("perftest-sleep", options=("-e", "-E", "sleep"), guess=4e-6),
        ucxx("ucxx-blocking", "blocking"),
        ucxx("ucxx-polling", "polling"),
        ucxx("ucxx-thread-future", "thread+future", guess=50e-6),
        # Not ucxx's default: shared memory for endpoints with error handling.
        ucxx("ucxx-blocking-mm", "blocking", UCX_MM_ERROR_HANDLING="y"),
        ucxx("ucxx-polling-mm", "polling", UCX_MM_ERROR_HANDLING="y"),
        Python("streams", peer="streams"),
        Python("streams-uvloop", peer="streams-uvloop", modules=("uvloop",)),
        Python("protocol", peer="protocol", tests=("latency", "bandwidth", "rate")),
        Python(
            "protocol-uvloop",
            peer="protocol-uvloop",
            modules=("uvloop",),
            tests=("latency", "bandwidth", "rate"),
        ),
        Python("sockets", peer="sockets"),
    )
}
