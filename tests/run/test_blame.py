# SPDX-License-Identifier: BSD-3-Clause
"""Which of the ranks that have failed was the first: by what they have printed."""

import subprocess
import sys

import pytest

from ucp._run import blame

FAILED = "ucp.exceptions.UCXRankFailed: "


def printed(code):
    """What a program that ends by an exception prints on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=40
    )
    return done.stderr


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("raise KeyError", "KeyError"),
        ("raise ValueError('two\\nlines')", "ValueError: two"),
        (
            "try: 1 / 0\nexcept ArithmeticError as e: raise OSError('late') from e",
            "OSError: late",
        ),
        (
            "raise ExceptionGroup('several', [TypeError('a'), ValueError('inner')])",
            "ExceptionGroup: several (2 sub-exceptions)",
        ),
        ("import sys; sys.exit('no input')", "no input"),
        ("def f(:", "no traceback"),
    ],
)
def test_the_reason_is_what_the_program_has_printed_last(code, reason):
    tail = printed(code)
    found = blame.reason_of(tail, 1)
    if reason == "no traceback":
        assert found == "SyntaxError: invalid syntax"
    else:
        assert found == reason


def test_the_exception_of_a_task_group_is_its_last_one():
    code = """
import asyncio
async def fail(): raise ValueError("inner")
async def main():
    async with asyncio.TaskGroup() as group: group.create_task(fail())
asyncio.run(main())
"""
    assert blame.reason_of(printed(code), 1) == "ValueError: inner"


def test_lines_that_tell_nothing_are_no_reason():
    assert blame.reason_of(b"INFO: step 3\n", 42) == ""
    assert blame.reason_of(b"INFO: step 3\n", -9) == ""
    assert blame.reason_of(b"", 1) == ""
    assert blame.reason_of(printed("raise KeyError"), 9) == ""  # it was handled
    assert blame.reason_of(b"\xff\xfe", 1) != ""


def end(rank, reason="", status=1):
    how = f"status {status}" if status > 0 else f"signal {-status}"
    return blame.End(rank, status, how, reason)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rank 1 has ended: connection reset by remote peer", 1),
        ("rank 12 has left the communicator", 12),
        ("barrier (operation 3): cancelled by rank 2; rank 1 had not come to it", 2),
        ("rank 1 has aborted the communicator: ValueError: rank 9", 1),
        ("barrier (operation 3): rank 2 has called bcast, rank 0 barrier", 2),
        ("rank 0 has made no progress for 3.0 s, and rank 1 has gone", None),
        ("all other ranks have left the communicator", None),
    ],
)
def test_a_rank_that_fails_for_another_one_names_it(text, named):
    assert end(0, FAILED + text).names == named


def test_other_exceptions_name_nobody():
    assert end(0, "ValueError: rank 1 is bad").names is None


def said(*ends, size=4, more=0):
    return blame.describe(ends, size, more)


def test_the_first_is_the_one_that_names_nobody():
    victims = [end(rank, FAILED + "rank 1 has ended") for rank in (2, 0)]
    first = end(1, "ValueError: boom", 42)
    assert blame.first_of([*victims, first]) is first
    assert said(*victims, first) == (
        "rank 1 failed first (status 42): ValueError: boom; ranks 0, 2 ended for it"
    )


def test_several_that_name_nobody_fail_by_themselves():
    ends = end(3, "KeyError: 1", 7), end(1, "", -9), end(0, FAILED + "rank 1 has ended")
    assert said(*ends, more=1) == (
        "rank 1 failed first (signal 9); rank 0 ended for it; rank 3 failed, too "
        "(status 7): KeyError: 1; ending 1 more"
    )


def test_without_names_the_first_that_has_ended_counts():
    assert blame.first_of([end(2), end(1)]).rank == 2


def test_a_rank_may_fail_for_one_that_fails_for_the_first():
    ends = (
        end(0, FAILED + "rank 2 has left"),
        end(2, FAILED + "rank 1 has ended"),
        end(1),
    )
    assert said(*ends) == "rank 1 failed first (status 1); ranks 0, 2 ended for it"


def test_a_rank_whose_heap_tells_of_another_one_names_that():
    own = "rank 0 has aborted the communicator: "
    text = "rank 2 has left the communicator"
    assert end(0, FAILED + own + text).names == 2
    assert end(0, FAILED + own + own + text).names == 2
    first = end(2, "ValueError: boom")
    assert blame.first_of([end(0, FAILED + own + text), first]) is first


def test_a_rank_of_another_communicator_is_not_taken_for_the_first():
    ends = end(3, FAILED + "rank 3 has left"), end(7, "ValueError: boom")
    assert blame.first_of(ends).rank == 7


def test_two_that_name_each_other_are_the_first_that_has_ended():
    ends = (
        end(0, FAILED + "rank 1 has called bcast"),
        end(1, FAILED + "rank 0 has called"),
    )
    assert blame.first_of(ends).rank == 0
    assert said(*ends).startswith("rank 0 failed first (status 1): ")
    assert said(*ends).endswith("; rank 1 ended for it")


def test_one_rank_has_no_first():
    assert said(end(0, "KeyError"), size=1) == "rank 0 failed (status 1): KeyError"
