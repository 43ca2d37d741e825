# SPDX-License-Identifier: BSD-3-Clause
"""Ranks compare what they have been called with, and all raise the same error.

Before a call does anything, each rank tells the others its arguments, or why they
are wrong. What follows from that is computed on every rank from the same data, so
it is the same everywhere, an exception too.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .communicator import Communicator

_LENGTH = struct.Struct("<Q")

_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        KeyError,
        TypeError,
        ValueError,
        BufferError,
        ImportError,
        OverflowError,
        OSError,
        FileExistsError,
        FileNotFoundError,
        IsADirectoryError,
        NotADirectoryError,
        PermissionError,
    )
}


async def allgather_bytes(comm: Communicator, data: bytes) -> list[bytes]:
    """The bytes of all ranks, whose lengths may differ."""
    told = bytearray(_LENGTH.size * comm.size)
    await comm.allgather(_LENGTH.pack(len(data)), told)
    sizes = [size for (size,) in _LENGTH.iter_unpack(told)]
    whole = bytearray(sum(sizes))
    await comm.allgatherv(data, whole, sizes)
    ends = itertools.accumulate(sizes)
    return [
        bytes(whole[end - size : end]) for size, end in zip(sizes, ends, strict=True)
    ]


async def allgather_json(comm: Communicator, said: Mapping[str, Any]) -> list[Any]:
    """What each rank says."""
    return [
        json.loads(data)
        for data in await allgather_bytes(comm, json.dumps(said).encode())
    ]


def describe_error(error: Exception) -> dict[str, Any]:
    """What a rank says instead of its arguments, which are wrong."""
    names = [kind.__name__ for kind in type(error).__mro__]
    name = next((name for name in names if name in _KINDS), "ValueError")
    try:
        text = str(error.args[0]) if name == "KeyError" and error.args else str(error)
    except Exception:  # a program's class may raise
        text = "it has no text"
    if name not in names:
        text = f"{names[0]}: {text}"
    return {"error": [name, text]}


def raise_first_error(said: Iterable[Mapping[str, Any]]) -> None:
    """Raise the error of the lowest rank that has one, with the rank in its text."""
    for rank, its in enumerate(said):
        if "error" in its:
            name, text = its["error"]
            raise _KINDS[name](f"rank {rank}: {text}")


def check_same(what: str, names: Sequence[str], calls: Iterable[Sequence[Any]]) -> None:
    """Compare the arguments of all ranks.

    Args:
        what: what a rank does with them, as in "joins".
        names: of the arguments.
        calls: those of each rank.

    Raises:
        ValueError: two ranks, the argument in which they differ, and both values.
    """
    first: Sequence[Any] | None = None
    for rank, call in enumerate(calls):
        if first is None:
            first = call
        for name, ours, theirs in zip(names, first, call, strict=True):
            if ours != theirs:
                raise ValueError(
                    f"rank 0 {what} with {name}={ours!r}, rank {rank} with {theirs!r}"
                )


def host_id() -> str:
    """The same in processes that can read each other's memory."""
    words = [str(os.getuid())]
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            words.append(file.read())
        words += [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "user")]
    except OSError:
        return os.urandom(16).hex()  # near nobody
    return hashlib.blake2b("\n".join(words).encode(), digest_size=16).hexdigest()
