# SPDX-License-Identifier: BSD-3-Clause
"""Some of the combinations of parameters: each two values occur together in one."""

import itertools
import random


def pairwise(*parameters, allowed=lambda *_row: True):
    """Combinations of one value of each parameter, in the order of the product.

    Each pair of values of two parameters occurs in one of them, unless no
    combination that is ``allowed`` has it. The same arguments give the same result.
    """
    parameters = [list(values) for values in parameters]
    count = itertools.count()
    numbers = [[next(count) for _ in values] for values in parameters]
    rows = [
        (row, list(itertools.combinations(its, 2)))
        for row, its in zip(
            itertools.product(*parameters), itertools.product(*numbers), strict=True
        )
        if allowed(*row)
    ]
    order = list(range(len(rows)))
    random.Random(0).shuffle(order)
    missing = {pair for _, pairs in rows for pair in pairs}
    chosen = []
    most = len(rows[0][1]) if rows else 0
    for least in range(most, 0, -1):  # those that add the most pairs come first
        for at in order:
            if not missing:
                break
            new = missing.intersection(rows[at][1])
            if len(new) >= least:
                chosen.append(at)
                missing -= new
    return [rows[at][0] for at in sorted(chosen)]
