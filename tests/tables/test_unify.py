# SPDX-License-Identifier: BSD-3-Clause
"""Columns that ranks have with other types, or without values."""

import pyarrow as pa
import pytest

from ucp._tables.unify import Known, cast_table, common_field

COLUMN = r"^column 'c' of the table is "


def common(*kinds, is_pandas=True, has_values=()):
    """The type of a column that ranks have with these types."""
    columns = [
        Known(rank, pa.field("c", kind), True, rank not in has_values)
        for rank, kind in enumerate(kinds)
    ]
    return common_field("table", columns, is_pandas).type


CONCATENATED = [
    (pa.int64(), pa.float64(), pa.float64()),
    (pa.int8(), pa.uint8(), pa.int16()),
    (pa.int64(), pa.uint64(), pa.float64()),
    (pa.int32(), pa.int64(), pa.int64()),
    (pa.float32(), pa.int16(), pa.float32()),
    (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
    (pa.timestamp("ns", "UTC"), pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC")),
    (pa.duration("ms"), pa.duration("s"), pa.duration("ms")),
    (pa.string(), pa.large_string(), pa.large_string()),
]


@pytest.mark.parametrize(("first", "second", "found"), CONCATENATED)
def test_types_of_frames_of_pandas_are_made_equal_as_it_does(first, second, found):
    pd = pytest.importorskip("pandas")
    assert common(first, second) == common(second, first) == found
    own = [pd.Series(pa.nulls(0, kind).to_pandas()) for kind in (first, second)]
    if not pa.types.is_large_string(found):
        whole = pd.concat(own).to_frame("c")
        assert pa.Table.from_pandas(whole).schema.field("c").type == found
    with pytest.raises(TypeError, match=COLUMN):
        common(first, second, is_pandas=False)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.string(), pa.int64()),
        (pa.bool_(), pa.int64()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.duration("us")),
        (pa.date32(), pa.timestamp("us")),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.int8())),
    ],
)
def test_types_that_have_no_common_one_are_named(first, second):
    with pytest.raises(TypeError, match=COLUMN + r".* on rank 0, .* on rank 1: cast"):
        common(first, second)


@pytest.mark.parametrize("is_pandas", [True, False])
def test_a_column_without_values_has_no_type(is_pandas):
    options = {"is_pandas": is_pandas}
    for other in (pa.float64(), pa.string(), pa.null(), pa.timestamp("s")):
        assert common(pa.int64(), other, has_values=[1], **options) == pa.int64()
        assert common(other, pa.int64(), has_values=[0], **options) == pa.int64()
    assert common(pa.int8(), pa.string(), has_values=[0, 1], **options) == pa.int8()
    assert common(pa.null(), pa.int8(), has_values=[0, 1], **options) == pa.int8()


def test_values_get_the_common_type():
    given = pa.table({"c": [1, 2**60 + 1], "n": pa.array([None, None], pa.int8())})
    kind = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema({"c": pa.float64(), "n": kind})
    found = cast_table(given, schema)
    assert found.schema == schema and found["n"].null_count == 2
    assert found["c"].to_pylist() == [1.0, 2.0**60]
    old = pa.table({"c": pa.array([-(2**40)], pa.timestamp("s"))})
    with pytest.raises(ValueError, match=r"^column 'c' is timestamp\[s\] here, and t"):
        cast_table(old, pa.schema({"c": pa.timestamp("ns")}))
