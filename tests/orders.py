# SPDX-License-Identifier: BSD-3-Clause
"""Columns of all types that can be sorted, and the order of Arrow."""

import datetime
import decimal

import pyarrow as pa
import pyarrow.compute as pc

NAN = float("nan")
ONE = datetime.date(1970, 1, 1)

# A few values of each type, in their order.
VALUES = {
    **{kind: [-128, -1, 0, 5, 127] for kind in (pa.int8(), pa.int16(), pa.int32())},
    pa.int64(): [-(2**63), -(2**40), 0, 1, 2**63 - 1],
    **{kind: [0, 1, 127, 200, 255] for kind in (pa.uint8(), pa.uint16(), pa.uint32())},
    pa.uint64(): [0, 1, 2**63 - 1, 2**63, 2**64 - 1],
    pa.float32(): [float("-inf"), -1.5, 0.0, 1e-3, float("inf"), NAN],
    pa.float64(): [-1e300, -1e-300, 0.0, 1.0, NAN],
    pa.bool_(): [False, True],
    pa.string(): ["", "a", "a\0", "aaaaaaaa", "aaaaaaaab", "b", "\u00e9"],
    pa.large_binary(): [b"", b"\0", b"abcdefgh", b"abcdefgh\0", b"\xff"],
    pa.binary(3): [b"\0aa", b"aaa", b"aab", b"\xff\0\0"],
    pa.date32(): [ONE - datetime.timedelta(days=9), ONE, datetime.date(2026, 1, 1)],
    pa.timestamp("us"): [datetime.datetime(1900, 1, 1), datetime.datetime(2026, 1, 1)],
    pa.decimal128(30, 2): [decimal.Decimal(n) for n in (-(10**25), -1, 0, 1, 10**25)],
    pa.decimal256(60, 0): [decimal.Decimal(n) for n in (-(10**50), -1, 0, 1, 10**50)],
    pa.dictionary(pa.int8(), pa.string()): ["a", "aa", "b", "c"],
    pa.null(): [],
}


def column_of(kind, rng, rows):
    return pa.array(rng.choices([*VALUES[kind], None], k=rows), kind)


def plain(table):
    """For ``sort_indices``, which has no order of dictionaries."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table[i].cast(pa.string()))
    return table


def in_order(table, by, descending, nulls):
    way = ["descending" if each else "ascending" for each in descending]
    keys = list(zip(by, way, strict=True))
    place = "at_start" if nulls == "first" else "at_end"
    try:
        options = pc.SortOptions([(*key, place) for key in keys])
    except ValueError:  # before Arrow 25
        options = pc.SortOptions(keys, null_placement=place)
    return pc.sort_indices(plain(table), options=options)
