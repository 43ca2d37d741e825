# SPDX-License-Identifier: BSD-3-Clause
"""The process at the other end: ``--listen`` of bench and doctor.

It does what a leader orders: see pair.py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping

from .._core import startup
from .._core.connect import create_listener
from .._core.endpoint import Endpoint
from .._core.resolve import host_and_port
from ..exceptions import UCXBaseException
from .finding import ended
from .pair import Pair, PairError, follow


def address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``[IPV6]:PORT`` or ``PORT``, which has no host."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal():
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, not {text!r}")
    if len(port) > 5 or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"a port is at most 65535, not {port}")
    return host, int(port)


def peer(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT`` of who listens."""
    host, port = address(text)
    if not host or not port:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, not {text!r}")
    return host, port


async def serve(host: str, port: int, *, end_with_input: bool) -> None:
    """Serve leaders, one after the other or several, until this is cancelled."""
    listener = create_listener(_serve_one, port, host=host or None)
    async with listener:
        where = host_and_port(host or "*", listener.port)
        print(f"listening on {where}", flush=True)
        if end_with_input:
            await _input_ended()
        else:
            await asyncio.Event().wait()


async def _serve_one(ep: Endpoint) -> None:
    side = Pair(ep, 1)
    try:
        await follow(side)
    except (UCXBaseException, PairError) as exc:
        if not ep.closed():
            print(f"a peer was sent away: {exc}", file=sys.stderr)
    finally:
        side.close()
        await ep.close()


async def _input_ended() -> None:
    """Wait until the process that holds the other end of standard input ends."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(0, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(0)


@contextlib.asynccontextmanager
async def process(
    *, cpu: int | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[int]:
    """Start a process of this host that serves; its port.

    It ends with the block, and when this process does, however that ends.

    Raises:
        PairError: it has not started, or has ended before the block; the text is
            how it ended, and what it said.
    """
    child = await asyncio.create_subprocess_exec(
        *command("bench", "--listen", "127.0.0.1:0", "--end-with-input"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
        process_group=0,  # Ctrl-C is for this process, which ends the child
    )
    assert child.stdout is not None and child.stderr is not None
    try:
        line = await child.stdout.readline()
        if not line.startswith(b"listening on "):
            said = (line + await child.stderr.read()).decode(errors="replace").strip()
            how = ended(await child.wait())
            text = f"it said:\n{said}" if said else "it said nothing"
            raise PairError(f"the other process did not start: it {how}; {text}")
        if cpu is not None:
            os.sched_setaffinity(child.pid, {cpu})
        yield int(line.rpartition(b":")[2])
        if _has_ended(child.pid):
            said = (await child.stderr.read()).decode(errors="replace").strip()
            how = ended(await child.wait())
            raise PairError(
                f"the other process {how}{f'; it said: {said}' * bool(said)}"
            )
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()  # its pipes are closed, and it is waited for


def _has_ended(pid: int) -> bool:
    """Has a child ended, whether it was waited for or not?"""
    try:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, pid, options) is not None
    except ChildProcessError:
        return True


def command(*arguments: str) -> list[str]:
    """``python -m ucp`` of this interpreter, found as this one was found."""
    return [*startup.python(), "-m", "ucp", *arguments]
