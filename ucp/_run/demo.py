# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp demo``: two processes exchange NumPy arrays.

The parent listens and starts a child, which connects and sends every array back.
For each dtype and size, the child compares the checksum of the array that it
received with that of the parent, and the parent compares the checksum and the
bytes of the array that came back. Then each size is timed, and checked again, and
so are asyncio's streams between the same processes.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._core import startup
from .._core.connect import create_endpoint, create_listener
from .._core.context import get_lanes
from .._core.endpoint import Endpoint
from ..exceptions import UCXBaseException, UCXCloseError
from . import ending, streams
from .progress import Progress
from .streams import Streams
from .terminal import Terminal

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_HOST = "127.0.0.1"
_MIB = 1 << 20
_SIZES = (1, 64, 1 << 10, 8 << 10, 64 << 10, _MIB, 16 * _MIB, 256 * _MIB)
_DTYPES: tuple[Any, ...] = (
    "u1",
    "<i4",
    "<f8",
    "<c16",
    "<M8[ns]",
    [("id", "<u4"), ("name", "S12"), ("xyz", "<f8", (3,))],
)
_TIMED_SECONDS = 0.1  # for each size, of ucp and of asyncio's streams
_TURNS = 5
_MAX_ROUNDS = 20_000

# Every dtype sends different bytes, so that bytes of an earlier one are noticed.
_SHIFT = 4096


class DemoError(Exception):
    """The demo found something wrong."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "--max-mib", type=_mib, default=16, help="largest array (default 16)"
    )
    parser.add_argument(
        "--timeout", type=float, default=60, help="seconds (default 60)"
    )
    parser.add_argument("--peer", type=int, nargs=2, help=argparse.SUPPRESS)


def _mib(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected 1 or more, not {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Run the demo, or its child; returns the exit status."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("the demo needs NumPy: pip install numpy", file=sys.stderr)
        return 1
    if options.peer is not None:
        return asyncio.run(_child(*options.peer))
    try:
        asyncio.run(_parent(options.max_mib * _MIB, options.timeout))
    except (DemoError, UCXBaseException) as exc:
        print(f"demo failed: {exc!r}", file=sys.stderr)
        return 1
    except TimeoutError:
        print(f"demo not done in {options.timeout:g} s", file=sys.stderr)
        return 1
    except (OSError, EOFError) as exc:
        if isinstance(exc, BrokenPipeError) and ending.is_output_unread():
            raise
        print(f"demo failed: asyncio's streams: {exc}", file=sys.stderr)
        return 1
    return 0


# The parent.


@dataclass(frozen=True)
class _Timing:
    """What half a round trip takes, in seconds."""

    size: int
    by_ucp: float
    by_streams: float


async def _parent(max_size: int, timeout: float) -> None:
    async with (
        asyncio.timeout(timeout),
        create_listener(host=_HOST) as listener,
        streams.listen() as stream_listener,
        _child_process(listener.port, stream_listener.port) as child,
    ):
        ep = await _accept(anext(listener), child)
        async with ep:
            stream = await _accept(stream_listener.accept(), child)
            sizes = [size for size in _SIZES if size <= max_size]
            await _exchange_all(ep, stream, sizes)
        status = await child.wait()
    if status != 0:
        raise DemoError(f"the child ended with status {status}")


@contextlib.asynccontextmanager
async def _child_process(*ports: int) -> Any:
    """The echoing process; killed if it is still there at the end.

    It also ends when its standard input does, so it never outlives us.
    """
    child = await asyncio.create_subprocess_exec(
        *startup.python(),
        *("-m", "ucp", "demo", "--peer", *map(str, ports)),
        stdin=asyncio.subprocess.PIPE,
        process_group=0,  # Ctrl-C is for the parent, which ends the child
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def _accept(accepted: Any, child: asyncio.subprocess.Process) -> Any:
    """A connection of the child's; fails if the child ends instead."""
    connected = asyncio.ensure_future(accepted)
    ended = asyncio.ensure_future(child.wait())
    try:
        await asyncio.wait({connected, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
        is_connected = connected.done() or not connected.cancel()
    if not is_connected:
        raise DemoError(f"the child ended with status {child.returncode}")
    return connected.result()


async def _exchange_all(ep: Endpoint, stream: Streams, sizes: list[int]) -> None:
    """Exchange every dtype and size, then time each size; print what is found."""
    import numpy as np

    largest = max(sizes)
    rng = np.random.default_rng()
    source = np.frombuffer(rng.bytes(largest + _SHIFT * len(_DTYPES)), dtype=np.uint8)
    result = np.empty(largest, dtype=np.uint8)
    bar = Progress((len(_DTYPES) + 1) * len(sizes))
    for index, descr in enumerate(_DTYPES):
        dtype = np.dtype(descr)
        for size in sizes:
            array = _part(source[index * _SHIFT :], dtype, size)
            bar.step(f"{dtype.name} {_bytes(size)}")
            await _exchange(ep, array, result, rounds=1)
    bar.clear()
    _print_head(sizes, ep)
    for size in sizes:
        array = _part(source, np.dtype("u1"), size)

        async def by_ucp(rounds: int, array: Array = array) -> float:
            return await _exchange(ep, array, result, rounds)

        async def by_streams(rounds: int, array: Array = array) -> float:
            return await _exchange_by_streams(ep, stream, array, rounds)

        bar.step(f"timing {_bytes(size)}")
        timing = _Timing(size, await _time(by_ucp), await _time(by_streams))
        bar.clear()
        _print_row(timing)
    _print_end()


async def _time(exchange: Callable[[int], Awaitable[float]]) -> float:
    """Half a round trip, in the best of some turns: other programs run as well."""
    rounds = int(_TIMED_SECONDS / await exchange(1))
    turns = max(1, min(rounds, _TURNS))
    rounds = max(1, min(rounds, _MAX_ROUNDS) // turns)
    return min([await exchange(rounds) for _ in range(turns)]) / rounds / 2


def _part(memory: Array, dtype: np.dtype[Any], size: int) -> Array:
    """An array of about ``size`` bytes, at least one element."""
    count = max(1, size // dtype.itemsize)
    return memory[: count * dtype.itemsize].view(dtype)


async def _exchange(ep: Endpoint, array: Array, memory: Array, rounds: int) -> float:
    """Send ``array`` and get it back; seconds. Raises on a wrong byte."""
    import numpy as np

    result = memory[: array.nbytes].view(array.dtype)
    memory[: array.nbytes] = 0
    crc = _checksum(array)
    order = {
        "dtype": np.lib.format.dtype_to_descr(array.dtype),
        "count": len(array),
        "rounds": rounds,
        "crc": crc,
    }
    await ep.send_obj(repr(order).encode())
    await ep.recv(bytearray(1))  # ready: its memory is there
    start = time.perf_counter()
    for _ in range(rounds):
        await ep.send(array)
        await ep.recv(result)
    elapsed = time.perf_counter() - start
    verdict = bytes(await ep.recv_obj())
    what = f"{len(array)} x {array.dtype}"
    if verdict != b"same":
        raise DemoError(f"{what}: the child received {verdict.decode()}")
    if _checksum(result) != crc or not _same(array, result):
        raise DemoError(f"{what}: came back changed")
    return elapsed


async def _exchange_by_streams(
    ep: Endpoint, stream: Streams, array: Array, rounds: int
) -> float:
    """Send the bytes of ``array`` by asyncio's streams and get them back; seconds."""
    order = {"stream": array.nbytes, "rounds": rounds}
    await ep.send_obj(repr(order).encode())
    await ep.recv(bytearray(1))
    elapsed, back = await stream.bounce(array.data, rounds)
    if back != array.data:
        raise DemoError(f"{array.nbytes} bytes came back changed by asyncio's streams")
    return elapsed


def _same(one: Array, other: Array) -> bool:
    """Same type and bytes; NaNs compare as what they are."""
    import numpy as np

    return one.dtype == other.dtype and np.array_equal(
        one.view(np.uint8), other.view(np.uint8)
    )


def _checksum(array: Array) -> int:
    import numpy as np

    return zlib.crc32(array.view(np.uint8).data)


# The child.


async def _child(port: int, stream_port: int) -> int:
    """Echo until the parent closes."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    stdin = sys.stdin.fileno()

    def parent_is_gone() -> None:
        loop.remove_reader(stdin)
        task.cancel()

    loop.add_reader(stdin, parent_is_gone)
    try:
        async with await create_endpoint(_HOST, port) as ep:
            stream = await Streams.connect(stream_port)
            with contextlib.suppress(UCXCloseError), contextlib.closing(stream):
                await _echo(ep, stream)
    except asyncio.CancelledError:
        return 1
    finally:
        loop.remove_reader(stdin)
    return 0


async def _echo(ep: Endpoint, stream: Streams) -> None:
    import numpy as np

    memory = np.empty(0, dtype=np.uint8)
    while True:
        order = ast.literal_eval(bytes(await ep.recv_obj()).decode())
        if "stream" in order:
            await ep.send(b"!")
            await stream.echo(order["stream"], order["rounds"])
            continue
        dtype = np.lib.format.descr_to_dtype(order["dtype"])
        nbytes = order["count"] * dtype.itemsize
        if nbytes > len(memory):
            memory = np.zeros(nbytes, dtype=np.uint8)
        array = memory[:nbytes].view(dtype)
        await ep.send(b"!")
        for _ in range(order["rounds"]):
            await ep.recv(array)
            await ep.send(array)
        crc = _checksum(array)
        same = crc == order["crc"]
        await ep.send_obj(b"same" if same else b"checksum %08x" % crc)


# What one sees.


def _print_head(sizes: list[int], ep: Endpoint) -> None:
    print(f"{len(_DTYPES)} dtypes x {len(sizes)} sizes: every byte verified")
    print(f"lanes: {', '.join(get_lanes(ep))}")
    columns = f"{'size':>10} {'ucp us':>12} {'asyncio us':>12} {'faster':>8}"
    head = f"{columns} {'ucp GB/s':>10}"
    print(Terminal(sys.stdout).paint(head, "bold"), flush=True)


def _print_row(timing: _Timing) -> None:
    by_ucp, by_streams = timing.by_ucp, timing.by_streams
    rate = timing.size / by_ucp / 1e9
    print(
        f"{_bytes(timing.size):>10} {by_ucp * 1e6:>12,.2f} {by_streams * 1e6:>12,.2f} "
        f"{by_streams / by_ucp:>6.1f} x {rate:>10.3f}",
        flush=True,
    )


def _print_end() -> None:
    text = (
        "us: half a round trip, the best of some; asyncio: its streams, over TCP; "
        "GB/s: one way, 10^9 bytes"
    )
    print(*Terminal(sys.stdout).wrap(text), sep="\n", flush=True)


def _bytes(size: int) -> str:
    for unit in ("B", "KiB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} MiB"
