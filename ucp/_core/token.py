# SPDX-License-Identifier: BSD-3-Clause
"""The shared secret, given as a value, a file, or by the environment."""

from __future__ import annotations

import os
import stat

from ..exceptions import UCXConfigError

#: The variables of the environment.
TOKEN, TOKEN_FILE = "UCP_TOKEN", "UCP_TOKEN_FILE"

_LONGEST = 256  # bytes


def as_token(value: bytes | str | os.PathLike[str]) -> bytes:
    """Return the secret that is ``value``, or that is in the file it names."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return read_token(value)


def read_token(path: str | os.PathLike[str]) -> bytes:
    """Return the secret in a file, without the newline at its end.

    Raises:
        UCXConfigError: the file is not a regular file, belongs to another user,
            may be read or written by others, or contains no secret of 1 to 256
            bytes.
        OSError: the file cannot be read.
    """
    path = os.path.expanduser(path)
    # Without O_NONBLOCK the open would wait if the path were a pipe.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check_file(path, os.fstat(fd))
        token = os.read(fd, _LONGEST + 3)
    finally:
        os.close(fd)
    token = token.removesuffix(b"\n").removesuffix(b"\r")
    if not 1 <= len(token) <= _LONGEST:
        raise UCXConfigError(f"token file {path!r} must hold 1 to {_LONGEST} bytes")
    return token


def _check_file(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UCXConfigError(f"token file {path!r} is not a regular file")
    if found.st_uid != os.geteuid():
        raise UCXConfigError(
            f"token file {path!r} belongs to user {found.st_uid}, not to {os.geteuid()}"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise UCXConfigError(
            f"token file {path!r} is open to others (mode {mode:04o}): chmod 600 it"
        )


def token_of_environment() -> bytes | None:
    """Return the secret of ``UCP_TOKEN``, or of the file that ``UCP_TOKEN_FILE`` names.

    Raises:
        UCXConfigError: both variables are set, or one of them is empty. A mistake
            must not have the effect that peers need no secret.
    """
    value, path = os.environ.get(TOKEN), os.environ.get(TOKEN_FILE)
    if value is not None and path is not None:
        raise UCXConfigError(f"both {TOKEN} and {TOKEN_FILE} are set")
    for name, text in ((TOKEN, value), (TOKEN_FILE, path)):
        if text == "":
            raise UCXConfigError(f"{name} is set, but empty")
    if path is not None:
        return read_token(path)
    return os.fsencode(value) if value is not None else None
