# SPDX-License-Identifier: BSD-3-Clause
"""How ranks find rank 0, the root: by a file, or by what all have gathered."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .._core.worker import Worker
from .._ext import UCXAddress
from ..exceptions import UCXConfigError, UCXTimeout

LOOK = 0.05  # seconds between two looks at the file of a root


def rank_number(rank: int | None) -> int:
    if rank is None:
        return -1
    if rank < 0:
        raise ValueError(f"rank is {rank}; None is any")
    return rank


def own_part(rank: int, worker: Worker) -> bytes:
    """What a rank gives to the other ranks by other means."""
    return _bytes_of(worker.get_address()) if rank == 0 else b""


def root_part(rank: int, size: int, parts: Iterable[bytes]) -> bytes | None:
    """The address of the root, out of what all ranks have given."""
    given = list(parts)
    if len(given) != size:
        raise ValueError(f"allgather gave {len(given)} parts for {size} ranks")
    return None if rank == 0 else bytes(given[0])


def _bytes_of(address: Any) -> bytes:
    return bytes(address)


# Roots in files.


def path_of(url: str, rank: int) -> Path:
    """Return the path in the URL ``file:///path``, and check URL and rank."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise UCXConfigError(f"the root is not file:///path: {url!r}")
    if rank < 0:
        raise UCXConfigError(f"a root in a file, {url}, needs the rank of each")
    path = Path(unquote(parts.path))
    if path.is_dir():
        raise UCXConfigError(
            f"the root {url} is a directory; it is a file, which rank 0 writes"
        )
    return path


@contextmanager
def root_file(path: Path, worker: Worker) -> Iterator[None]:
    """Have the worker's address in the file while the ranks meet."""
    address = _bytes_of(worker.get_address())
    _write(path, address)
    try:
        yield
    finally:
        if _read(path) == address:
            path.unlink(missing_ok=True)


def _write(path: Path, address: bytes) -> None:
    """Write the whole file at once, readable for this user only."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UCXConfigError(
            f"the root {path} cannot be written: {path.parent} is no directory"
        ) from None
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(number, "wb") as file:
        file.write(address)
    part.replace(path)


def _read(path: Path) -> bytes | None:
    """The address in the file; None: there is none yet.

    Raises:
        UCXConfigError: another user has written it.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(number, "rb") as file:
        if os.fstat(number).st_uid != os.getuid():
            raise UCXConfigError(f"the file of the root is another user's: {path}")
        return file.read()


def read_root(
    path: Path, end: float | None, timeout: float | None
) -> UCXAddress | None:
    """Return the address in the file, or None if there is no file yet.

    Raises:
        UCXTimeout: there is no file, and the time ``end`` has passed.
        UCXConfigError: the file has no address, or belongs to another user.
    """
    data = _read(path)
    if data is None:
        if end is not None and time.monotonic() >= end:
            raise UCXTimeout(
                f"the root, rank 0, has not come within {timeout:g} s: "
                f"there is no file {path}"
            )
        return None
    try:
        return UCXAddress.from_buffer(data)
    except ValueError as exc:
        raise UCXConfigError(f"{path}: {exc}") from None


def has_changed(path: Path, root: UCXAddress) -> bool:
    """True if the file has another root's address by now."""
    now = _read(path)
    return now is not None and now != _bytes_of(root)
