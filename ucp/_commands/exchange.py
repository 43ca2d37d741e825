# SPDX-License-Identifier: BSD-3-Clause
"""doctor: do two processes really exchange messages?

One of them is ``python -m ucp doctor HOST:PORT``, on this host or on another one, the
other one ``--listen``. Each step has a finding of its own, the first one that fails is
the last.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket

from .._core.connect import create_endpoint
from .._core.context import get_lanes
from ..exceptions import (
    UCXAuthError,
    UCXBaseException,
    UCXConfigError,
    UCXConnectionReset,
    UCXTimeout,
    UCXUnreachable,
)
from . import service
from .finding import Finding, ended, note, ok, problem
from .pair import Order, Pair, PairError, verify

_LIMIT = 40.0  # seconds for two processes of this host
_STEP = 10.0  # seconds for a step
#: Workers that are there at a time, each of which takes a port of UCX.
WORKERS, WORKERS_HERE = 4, 1  # check(), reach()
_SIZES = {8: 100, 1 << 20: 5}  # bytes, and how often


async def reach(host: str, port: int, name: str) -> list[Finding]:
    """Connect to ``--listen`` of bench or doctor, and exchange messages."""
    found: list[Finding] = []
    try:
        await _resolve(host, port, name, found)
        await _connect(host, port, name, found)
        await _exchange(host, port, name, found)
    except _StepError as exc:
        found.append(exc.finding)
    return found


class _StepError(Exception):
    """A step has failed."""

    def __init__(self, name: str, text: str, remedy: str) -> None:
        super().__init__(text)
        self.finding = problem(name, text, remedy)


async def _resolve(host: str, port: int, name: str, found: list[Finding]) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_STEP):
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as exc:
        raise _StepError(
            name,
            f"The name {host} is not resolved: {_why(exc)}.",
            "Give an address, or enter the name into /etc/hosts or the name server.",
        ) from exc
    addresses = ", ".join(dict.fromkeys(str(info[4][0]) for info in infos))
    if addresses != host:
        found.append(ok(name, f"{host} is {addresses}"))


async def _connect(host: str, port: int, name: str, found: list[Finding]) -> None:
    """Connect by TCP alone: a firewall is the most common reason to fail."""
    try:
        async with asyncio.timeout(_STEP):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError as exc:
        raise _StepError(
            name,
            f"{host} refuses connections to port {port}.",
            f"Start 'python -m ucp doctor --listen {port}' there. If it runs, a "
            "firewall rejects, or it listens at another address.",
        ) from exc
    except TimeoutError as exc:
        raise _StepError(
            name,
            f"{host} does not answer at port {port} within {_STEP:g} s.",
            f"A firewall drops packets, or the address is wrong: allow port {port} of "
            "TCP on both hosts and between them.",
        ) from exc
    except OSError as exc:
        raise _StepError(
            name,
            f"{host} is not reached: {_why(exc)}.",
            "Look at the routes and interfaces of both hosts: 'ip route get ADDRESS'.",
        ) from exc
    writer.close()
    found.append(ok(name, f"TCP reaches port {port} of {host}"))


async def _exchange(host: str, port: int, name: str, found: list[Finding]) -> None:
    try:
        ep = await create_endpoint(host, port, connect_timeout=_STEP)
    except UCXAuthError as exc:
        raise _StepError(
            name, f"The handshake fails: {exc}.", "Give both the same UCP_TOKEN."
        ) from exc
    except UCXTimeout as exc:
        raise _StepError(
            name,
            f"The handshake does not end: {exc}. UCX connects by ports of its own.",
            "Allow all ports of TCP between the two hosts, or set "
            "UCX_TCP_PORT_RANGE=20000-20100 on both and allow these. If a host has "
            "several networks, set UCX_NET_DEVICES to the one that both share.",
        ) from exc
    except (UCXBaseException, OSError) as exc:
        raise _StepError(
            name, f"The handshake fails: {exc}.", _remedy(exc, port)
        ) from exc
    try:
        async with ep:
            texts = await _messages(ep)
    except (UCXBaseException, PairError, TimeoutError) as exc:
        lanes = ", ".join(get_lanes(ep)) if not ep.closed() else "closed"
        raise _StepError(
            name,
            f"Messages fail after the handshake: {_why(exc)} (lanes: {lanes}).",
            "Look at the other process's output; allow all ports of TCP between two "
            "hosts; try UCX_TLS=tcp.",
        ) from exc
    found.append(ok(name, texts))


def _remedy(exc: BaseException, port: int) -> str:
    """What to do if the handshake fails."""
    if isinstance(exc, UCXConfigError):
        return "Look at the variables UCX_* and UCP_* of the environment."
    if isinstance(exc, UCXUnreachable) or "no transport" in str(exc):
        return (
            "The two have no transport in common: look at UCX_TLS and UCX_NET_DEVICES "
            "of both. Containers of one host that do not share process numbers need "
            "tcp."
        )
    start = f"start 'python -m ucp doctor --listen {port}' there"
    if isinstance(exc, UCXConnectionReset):
        return (
            "The process there has ended or sent this one away: look at its output. If "
            f"it does not use ucp, {start}."
        )
    return f"Something that is not ucp may listen there: {start}."


async def _messages(ep) -> str:  # type: ignore[no-untyped-def]
    """Send each size there and back; what to say of it."""
    side = Pair(ep, 0)
    took = []
    async with asyncio.timeout(_STEP):
        await side.tell(Order("hello"))
        for size, rounds in _SIZES.items():
            seconds = await verify(side, size, rounds)
            what = "1 MiB" if size == 1 << 20 else f"{size} B"
            took.append(f"{what} in {seconds * 1e6:,.1f} us")
        lanes = ", ".join(get_lanes(ep))
        await side.tell(Order("end"))
    return f"There and back, every byte compared: {' and '.join(took)}, by {lanes}"


def _why(exc: BaseException) -> str:
    if isinstance(exc, TimeoutError) and not str(exc):
        return "no answer in time"
    return str(exc) or type(exc).__name__


async def check() -> list[Finding]:
    """Two processes of this host: by UCX's own choice, and by TCP."""
    env = {"UCX_WARN_UNUSED_ENV_VARS": "n"}  # a finding of its own
    by_choice, by_tcp = await asyncio.gather(
        _two_processes("two processes", env),
        _two_processes("two processes, TCP", {**env, "UCX_TLS": "tcp"}),
    )
    return [*by_choice, *by_tcp]


async def _two_processes(name: str, env: dict[str, str]) -> list[Finding]:
    try:
        async with asyncio.timeout(_LIMIT), service.process(env=env) as port:
            return await _client(name, port, env)
    except PairError as exc:
        return [problem(name, f"{_sentence(exc)}", "Look at what was found above.")]
    except TimeoutError:
        return [
            problem(
                name,
                f"They have exchanged nothing in {_LIMIT:g} s.",
                "Run 'UCX_LOG_LEVEL=info python -m ucp demo' to see where it stays.",
            )
        ]
    except OSError as exc:
        return [not_tried(name, exc)]


async def _client(name: str, port: int, env: dict[str, str]) -> list[Finding]:
    child = await asyncio.create_subprocess_exec(
        *service.command("doctor", "--json", "--name", name, f"127.0.0.1:{port}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
        process_group=0,  # Ctrl-C is for this process, which ends the child
    )
    try:
        out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    said = err.decode(errors="replace").strip()
    try:
        found = [Finding(**each) for each in json.loads(out)["findings"]]
    except (ValueError, KeyError, TypeError):
        return [
            problem(
                name,
                f"The process {ended(child.returncode)}; it said: {said or 'nothing'}",
                "Look at what was found above.",
            )
        ]
    if said:
        found.append(note(name, f"It also said: {said}"))
    return found


def not_tried(name: str, exc: OSError) -> Finding:
    """What the system refuses, such as one more descriptor."""
    return problem(
        name,
        f"Processes cannot be started: {exc.strerror or exc}.",
        "Look at the limits above, 'ulimit -n' and 'ulimit -u'.",
    )


def _sentence(exc: BaseException) -> str:
    text = str(exc)
    return text[:1].upper() + text[1:]
