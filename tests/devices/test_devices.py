# SPDX-License-Identifier: BSD-3-Clause
"""The check for machines with a GPU, with memory of the host."""

import os
import subprocess
import sys

import pytest

from devices import cases
from devices.memory import GUARD, Memory, pattern

CHECK = os.path.dirname(__file__)
HOST = ("bytearray", "numpy", "memory")


def run(*words):
    done = subprocess.run(
        [sys.executable, "-P", CHECK, "--kinds", "bytearray,memory", *words],
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


def test_messages_of_the_host_pass():
    status, lines = run("--only", "messages,kernel", "--sizes", "1,70000")
    assert status == 0, lines
    named = [line for line in lines if line.startswith("ok ")]
    assert len(named) == 5  # the kinds, two that send on one host and two over tcp
    assert lines[-1].endswith(": ok")


def test_a_group_without_time_is_reported():
    status, lines = run("--only", "cancelled", "--limit", "0")
    assert status == 1
    assert "         was not run: the time was up" in lines
    assert lines[-1].endswith(" 1 FAILED")


@pytest.mark.parametrize("kind", HOST)
def test_memory_says_what_is_wrong(kind):
    memory = Memory(kind, 5000, 3)
    assert memory.wrong(3) == ""
    view = memoryview(memory.buffer).cast("B")
    view[1000:2000] = pattern(5000, ~3)[1000:2000]
    assert memory.wrong(3).startswith("1000 of 5000 bytes are wrong, from byte 1000 on")
    view[1000:] = pattern(5000, ~3)[1000:]
    assert memory.wrong(3).endswith("from byte 1000 on, where nothing was written")
    memory.fill(~4)
    assert memory.wrong(4).startswith("5000 of 5000 bytes are wrong, from byte 0 on")


def test_a_write_behind_the_buffer_is_seen():
    memory = Memory("bytearray", 100, 1)
    memory.whole[100 + GUARD - 1] = 1
    assert memory.wrong(1) == "bytes behind the buffer were written"


def test_a_misplaced_fragment_is_seen():
    for size in (8192, 1 << 20):
        data = pattern(1 << 20, 5)
        assert (data[:size] != pattern(1 << 20, 5 + 64)[:size]).any()
        assert (data[: size // 2] != data[size // 2 : size]).any()


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1, "1 B"),
        (8192, "8 KiB"),
        (16383, "16 KiB-1"),
        (16385, "16 KiB+1"),
        ((5 << 20) + 3, "5 MiB+3"),
        (64 << 20, "64 MiB"),
    ],
)
def test_sizes_are_shown_by_their_units(size, text):
    assert cases.shown(size) == text
