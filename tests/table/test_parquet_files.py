# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/files
"""Files, lists of files and folders of keys that ``ucp.table.read_parquet`` reads."""

import decimal
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds import good_world

import ucp
import ucp.table


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def read(path, size=1, **options):
    """What ranks read, as one table."""

    async def main(comm):
        return await ucp.table.read_parquet(path, comm=comm, **options)

    return pa.concat_tables(good_world(size, main))


def refused(path, error, text, **options):
    """Reading raises the same exception on all ranks."""

    async def main(comm):
        with pytest.raises(error, match=text) as caught:
            await ucp.table.read_parquet(path, comm=comm, **options)
        return type(caught.value), str(caught.value)

    ends = good_world(2, main)
    assert ends[0] == ends[1] and ends[0][0] is error


# --- schemas ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int8(), pa.uint8(), pa.int16()),
        (pa.int16(), pa.float64(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), pa.decimal128(9, 3)),
        (pa.null(), pa.int16(), pa.int16()),
    ],
)
def test_types_of_files_are_made_equal(tmp_path, first, second, kind):
    decimals = pa.types.is_decimal(kind)
    value = pa.scalar(decimal.Decimal("1.25") if decimals else 7)
    if pa.types.is_large_string(kind):
        value = pa.scalar("seven")
    for number, types in enumerate([(first, second), (second, first)]):
        folder = tmp_path / str(number)
        expected = []
        for name, its in zip("ab", types, strict=True):
            array = (
                pa.nulls(1) if pa.types.is_null(its) else pa.array([value.cast(its)])
            )
            write(folder / f"{name}.parquet", c=array)
            expected += array.cast(kind).to_pylist()
        found = read(folder)
        assert found.schema.field("c").type == kind
        assert found["c"].to_pylist() == expected


def test_a_column_that_may_have_nulls_in_a_file_may_have_them(tmp_path):
    strict = pa.schema([pa.field("c", pa.int32(), nullable=False)])
    pq.write_table(pa.table({"c": [1]}, schema=strict), tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", c=pa.array([None, 2**40], pa.int64()))
    found = read(tmp_path, 2, filters=[("c", ">", 0)])
    assert found.to_pydict() == {"c": [1, 2**40]}
    assert found.schema.field("c").nullable
    assert read(tmp_path)["c"].to_pylist() == [1, None, 2**40]


def test_columns_are_those_of_the_first_file_in_its_order(tmp_path):
    write(tmp_path / "a.parquet", x=[1], y=["p"])
    write(tmp_path / "b.parquet", y=["q"], x=[2])
    assert read(tmp_path).to_pydict() == {"x": [1, 2], "y": ["p", "q"]}


def test_files_without_rows_have_no_say_in_types(tmp_path):
    write(tmp_path / "a.parquet", c=pa.array([], pa.string()))
    write(tmp_path / "b.parquet", c=[1.5])
    write(tmp_path / "c.parquet", c=pa.array([], pa.bool_()))
    assert read(tmp_path).to_pydict() == {"c": [1.5]}
    none = read([tmp_path / "a.parquet", tmp_path / "c.parquet"])
    assert none.num_rows == 0 and none.schema.names == ["c"]


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (["x"], [1], "column 'c' is string in .*a.parquet', int64 in .*b.parquet': c"),
        (pa.array([1], pa.uint64()), [1], "'c' is uint64 in .*a.p.*, int64 in .*b.p"),
        (pa.array([1], pa.date32()), pa.array([1], pa.timestamp("s")), "'c' is date32"),
        (pa.array(["x"]).dictionary_encode(), ["x"], "'c' is dictionary.*, string in"),
    ],
)
def test_types_that_are_not_made_equal_are_named(tmp_path, first, second, text):
    write(tmp_path / "a.parquet", c=first)
    write(tmp_path / "b.parquet", c=second)
    refused(tmp_path, TypeError, f"^rank 0: .*{text}")


def test_enums_of_files_have_the_same_categories(tmp_path):
    pl = pytest.importorskip("polars")
    for name, values in {"a": ["x", "y"], "b": ["y", "x"]}.items():
        frame = pl.DataFrame({"c": pl.Series(["x"], dtype=pl.Enum(values))})
        pq.write_table(frame.to_arrow(), tmp_path / f"{name}.parquet")
    refused(tmp_path, TypeError, "'c' is an Enum .* between .*a.parquet' and .*b.parq")


def test_columns_that_a_file_has_not_are_named(tmp_path):
    paths = [
        write(tmp_path / "a.parquet", x=[1], y=[1]),
        write(tmp_path / "b.parquet", x=[1]),
    ]
    text = "b.parquet' has other columns than .*a.parquet': 'y' is in .*a.parquet', and"
    refused(paths, TypeError, text)
    text = "a.parquet' has other columns than .*b.parquet': 'y' is in .*a.parquet', and"
    refused(paths[::-1], TypeError, text)
    twice = pa.table([[1], [2]], names=["x", "x"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    refused([tmp_path / "twice.parquet"], ValueError, "twice.* has 2 columns 'x'")
    refused([*paths[:1], tmp_path / "twice.parquet"], ValueError, "has 2 columns 'x'")


def test_a_value_that_the_common_type_does_not_hold_is_lost_nowhere(tmp_path):
    write(tmp_path / "a.parquet", c=[2**60 + 1])
    write(tmp_path / "b.parquet", c=[0.5])

    async def main(comm):
        errors = (ValueError, ucp.exceptions.UCXRankFailed)
        with pytest.raises(
            errors, match=r"a\.parquet' cannot be read: .* not in range"
        ):
            await ucp.table.read_parquet(tmp_path, comm=comm)
        one = tmp_path / "b.parquet"
        return await ucp.table.read_parquet(one, comm=comm)

    assert pa.concat_tables(good_world(2, main)).to_pydict() == {"c": [0.5]}


# --- lists --------------------------------------------------------------------


def test_a_list_is_read_in_its_order(tmp_path):
    paths = [write(tmp_path / f"{n}.parquet", n=[n]) for n in range(4)]
    write(tmp_path / "folder" / "4.parquet", n=[4])
    given = [paths[2], str(paths[0]), tmp_path / "folder", f"{tmp_path}/[13].parquet"]
    for size in 1, 3:
        assert read(given, size)["n"].to_pylist() == [2, 0, 4, 1, 3]
    assert read(tuple(paths[:2]))["n"].to_pylist() == [0, 1]


def test_a_list_that_cannot_be_read_is_told_to_all(tmp_path):
    path = write(tmp_path / "a.parquet", n=[1])
    text = tmp_path / "b.parquet"
    text.write_text("no Parquet, but some text")
    (tmp_path / "empty").mkdir()
    missing = tmp_path / "c.parquet"
    refused([path, missing], FileNotFoundError, f"no file .*{re.escape(str(missing))}")
    refused([path, tmp_path / "empty"], FileNotFoundError, "/empty' has no file that")
    refused([path, text], ValueError, "b.parquet' cannot be read as a Parquet file: ")
    refused([], ValueError, "rank 0: path is an empty list: give one path or more")
    refused([path, 5], TypeError, "rank 0: expected str")
    refused({path}, TypeError, "rank 0: expected str")


def test_ranks_give_the_same_list(tmp_path):
    paths = [str(write(tmp_path / f"{n}.parquet", n=[n])) for n in range(2)]

    async def main(comm):
        given = paths if comm.rank else paths[:1]
        with pytest.raises(
            ValueError, match=r"^rank 0 calls read_parquet with path=\["
        ):
            await ucp.table.read_parquet(given, comm=comm)

    good_world(2, main)


# --- folders of keys ----------------------------------------------------------


def test_keys_of_folders_are_columns(tmp_path):
    write(tmp_path / "y=2/m=a%20b/p.parquet", n=[3])
    write(tmp_path / "y=10/m=x/p.parquet", n=[1, 2])
    write(tmp_path / "y=__HIVE_DEFAULT_PARTITION__/m=7/p.parquet", n=[4])
    write(tmp_path / "_y=5/p.parquet", other=[1])
    write(tmp_path / ".m=5/p.parquet", other=[1])
    (tmp_path / "y=3").mkdir()
    (tmp_path / "y=4").write_text("This is a file.")
    for size in 1, 2, 3:
        found = read(tmp_path, size)
        assert found.schema == pa.schema(
            {"n": pa.int64(), "y": pa.int64(), "m": pa.string()}
        )
        assert found.to_pylist() == [
            {"n": 1, "y": 10, "m": "x"},
            {"n": 2, "y": 10, "m": "x"},
            {"n": 3, "y": 2, "m": "a b"},
            {"n": 4, "y": None, "m": "7"},
        ]
    some = read(tmp_path, columns=["y"], filters=[("y", "<", 5), ("n", ">", 0)])
    assert some.to_pydict() == {"y": [2]}
    refused(tmp_path, KeyError, "only 'n', 'y', 'm'", columns=["z"])
    files = read(f"{tmp_path}/y=*/**/p.parquet", columns=["n"], filters=[("n", "<", 3)])
    assert files.to_pydict() == {"n": [1, 2]}


def test_what_others_write_in_folders_is_read(tmp_path):
    table = pa.table({"n": [1, 2, 3], "y": ["a/b", None, "é="], "m": [1, 1, 2**40]})
    pq.write_to_dataset(table, tmp_path, partition_cols=["y", "m"])
    found = read(tmp_path).select(["n", "y", "m"]).sort_by("n")
    assert found.equals(table)


def test_integers_that_are_too_large_are_texts(tmp_path):
    write(tmp_path / "y=1/p.parquet", n=[1])
    write(tmp_path / f"y={2**63}/p.parquet", n=[2])
    assert read(tmp_path)["y"].to_pylist() == ["1", str(2**63)]


def test_keys_that_differ_are_refused(tmp_path):
    write(tmp_path / "y=1/p.parquet", n=[1])
    write(tmp_path / "m=1/p.parquet", n=[1])
    text = r"y=1/p.parquet' is in folders of the keys \['y'\], .*m=1/p.* of \['m'\]: "
    refused(tmp_path, TypeError, text)
    write(tmp_path / "top.parquet", n=[1])
    refused(tmp_path, TypeError, r"m=1/p.* of the keys \['m'\], .*top.* of \[\]: ")
    write(tmp_path / "twice/y=1/y=2/p.parquet", n=[1])
    refused(tmp_path / "twice", ValueError, "y=2' has two folders of the key 'y'")
    path = write(tmp_path / "both/n=1/p.parquet", n=[5])
    text = "has a column 'n', which is a key of its folder too: give the files as"
    refused(tmp_path / "both", TypeError, text)
    assert read([path]).to_pydict() == {"n": [5]}
    (tmp_path / "none/y=1").mkdir(parents=True)
    refused(tmp_path / "none", FileNotFoundError, "none' has no file that ends with")
