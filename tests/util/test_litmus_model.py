# SPDX-License-Identifier: BSD-3-Clause
"""No memory that C11 allows breaks a protocol: tests/model/litmus.py."""

import pytest
from model.litmus import MODELS, PROTOCOLS, is_allowed

WHOLE = [
    pytest.param(threads, id=f"{name}: {part}")
    for name, (whole, _) in PROTOCOLS.items()
    for part, threads in whole.items()
]
BROKEN = [
    pytest.param(threads, models, id=f"{name}: {part}")
    for name, (_, broken) in PROTOCOLS.items()
    for part, (threads, models) in broken.items()
]


def allowing(threads):
    return tuple(model for model in MODELS if is_allowed(threads, model))


@pytest.mark.parametrize("threads", WHOLE)
def test_no_memory_breaks_the_protocol(threads):
    assert allowing(threads) == ()


@pytest.mark.parametrize(("threads", "models"), BROKEN)
def test_each_part_of_the_protocol_is_needed(threads, models):
    assert allowing(threads) == models


def store_buffering(order):
    return (
        (("W", "x", 1, order), ("R", "y", 0, order)),
        (("W", "y", 1, order), ("R", "x", 0, order)),
    )


def load_buffering(order):
    return (
        (("R", "x", 1, "rlx"), ("W", "y", 1, order)),
        (("R", "y", 1, "rlx"), ("W", "x", 1, order)),
    )


def readers_of_two_writers(order):
    return (
        (("W", "x", 1, "rlx"),),
        (("W", "y", 1, "rlx"),),
        (("R", "x", 1, order), ("R", "y", 0, order)),
        (("R", "y", 1, order), ("R", "x", 0, order)),
    )


COHERENCE = ((("W", "x", 1, "rlx"),), (("R", "x", 1, "rlx"), ("R", "x", 0, "rlx")))
TWO_OPERATIONS = (
    (("U", "x", 0, 1, "rlx"),),
    (("U", "x", 0, 2, "rlx"),),
)


@pytest.mark.parametrize(
    ("threads", "models"),
    [
        (store_buffering("rlx"), ("rc11", "aarch64", "aarch64 lse", "x86")),
        (store_buffering("sc"), ()),
        (load_buffering("rlx"), ("aarch64", "aarch64 lse")),
        (load_buffering("rel"), ()),
        (readers_of_two_writers("rlx"), ("rc11", "aarch64", "aarch64 lse")),
        (readers_of_two_writers("acq"), ("rc11",)),
        (COHERENCE, ()),
        (TWO_OPERATIONS, ()),
    ],
)
def test_the_models_know_the_litmus_tests_of_the_literature(threads, models):
    assert allowing(threads) == models
