# SPDX-License-Identifier: BSD-3-Clause
"""tests/pairs.py: which combinations of parameters are tried."""

import itertools

from pairs import pairwise

VALUES = ["abcd", (1, 2, 3), [True, False], [None, 0]]


def pairs_of(rows):
    return {pair for row in rows for pair in itertools.combinations(enumerate(row), 2)}


def test_each_two_values_occur_together():
    rows = pairwise(*VALUES)
    assert pairs_of(rows) == pairs_of(itertools.product(*VALUES))
    assert 12 <= len(rows) <= 16  # of 48
    assert rows == pairwise(*VALUES)


def test_what_is_not_allowed_is_left_out():
    def allowed(letter, number, flag, _):
        return (letter, number) != ("a", 1) and not (letter == "b" and flag)

    rows = pairwise(*VALUES, allowed=allowed)
    possible = [row for row in itertools.product(*VALUES) if allowed(*row)]
    assert set(rows) <= set(possible)
    assert pairs_of(rows) == pairs_of(possible)


def test_two_parameters_give_all_combinations():
    assert pairwise("ab", [1, 2]) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert pairwise("ab", []) == []
