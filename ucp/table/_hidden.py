# SPDX-License-Identifier: BSD-3-Clause
"""Files that ranks write before they get names by which readers find them.

A writer holds a lock on its file until the call ends, and the system takes the lock
away when the process ends. So a hidden file without a lock has no writer any more, and
the next one that writes to the directory removes it. Files of a directory get names by
one writer at a time, which has a lock on the directory meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NAME = re.compile(r"\.part-[0-9]{5,}\.[0-9a-f]{16}\.tmp(\.all)?")


class HiddenFile:
    """The file of a rank in a directory, which it makes and locks.

    Args:
        folder: the directory.
        rank: the number of the rank.
    """

    def __init__(self, folder: str, rank: int) -> None:
        self._folder = folder
        self._rank = rank
        self._file = -1
        self.name = ""

    @property
    def path(self) -> str:
        return os.path.join(self._folder, self.name)

    def make(self) -> None:
        """Make an empty file, which nobody removes until ``remove()``.

        Another writer may remove it before it is locked. Then one of another name is
        made.
        """
        while not self.name:
            name = f".part-{self._rank:05}.{secrets.token_hex(8)}.tmp"
            path = os.path.join(self._folder, name)
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o666)
            with suppress(OSError):  # of file systems without locks
                fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.path.exists(path):
                self.name = name
            else:
                self._close()

    def remove(self) -> None:
        """Remove the file, unless it has got another name, and unlock it."""
        try:
            if self.name:
                with suppress(FileNotFoundError):
                    os.remove(self.path)
        finally:
            self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def is_hidden(name: str) -> bool:
    """Is it the name of a hidden file?"""
    return _NAME.fullmatch(name) is not None


def remove_left(folder: str) -> None:
    """Remove the hidden files whose writers have ended, killed for example.

    Files stay that cannot be locked: those of writers that go on, of other users, and
    all of a file system without locks.
    """
    for name in filter(is_hidden, os.listdir(folder)):
        path = os.path.join(folder, name)
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.remove(path)
        except OSError:
            continue
        finally:
            os.close(file)


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Nobody else gives files of the directory their names meanwhile.

    Raises:
        FileExistsError: somebody does.
    """
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileExistsError(
                f"another program finishes its files in {folder!r}: write one after "
                "the other, or give another directory"
            ) from None
        except OSError:
            pass  # The file system has no locks.
        yield
    finally:
        os.close(file)
