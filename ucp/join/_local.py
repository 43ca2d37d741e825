# SPDX-License-Identifier: BSD-3-Clause
"""How a rank joins the rows that it has: with Arrow, pandas or cuDF."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from .._tables.frames import copy_table, pandas_frame
from .._tables.rows import MOST_BYTES, narrow, wide_type

How = Literal["inner", "left", "right", "outer", "semi", "anti"]

# The types of Arrow, and those with the tables in the other order.
_ARROW_TYPES: dict[How, tuple[str, str]] = {
    "inner": ("inner", "inner"),
    "left": ("left outer", "right outer"),
    "right": ("right outer", "left outer"),
    "outer": ("full outer", "full outer"),
    "semi": ("left semi", "right semi"),
    "anti": ("left anti", "right anti"),
}

# Rows of a batch of Arrow's joins, at most.
_BATCH = 32768


class JoinSpec(NamedTuple):
    """What a local join is asked for.

    Attributes:
        how: ``"inner"``, ``"left"``, ``"right"``, ``"outer"``, ``"semi"`` or
            ``"anti"``.
        left_on: key columns of the left table.
        right_on: key columns of the right table, as many; their types are those
            of the left ones.
        suffixes: what is appended to the names of columns that both have.
        use_threads: whether this rank has more than one core to itself.
    """

    how: How
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    suffixes: tuple[str, str]
    use_threads: bool = False


class LocalJoin(Protocol):
    """The join of two tables in one process: an argument of every join.

    Its methods are called in another thread, and should release the GIL. They must
    not return views of the tables that they were given. ``len()`` of what they
    return is the number of its rows.
    """

    def join(self, left: Any, right: Any, spec: JoinSpec) -> Any:
        """Join two ``pyarrow.Table``, either of which may have no rows."""

    def concat(self, parts: Sequence[Any]) -> Any:
        """Put results of ``join()`` together; there is at least one."""


class ArrowJoin:
    """``pyarrow.Table.join``: a null is equal to nothing.

    Key columns have the names of the left table. Other columns that both tables
    have get the suffixes.
    """

    def join(self, left: Any, right: Any, spec: JoinSpec) -> Any:
        import pyarrow as pa

        left, right, keys = rename_columns(left, right, spec)
        straight, swapped = _ARROW_TYPES[spec.how]
        # Arrow makes its hash table of the second one: the smaller is better.
        if right.num_rows <= left.num_rows:
            tables, join_type = (left, right), straight
        else:
            tables, join_type = (right, left), swapped
        first, second = (
            _widen(_decode_floats(_order(_with_storage(table, keys), keys, False)))
            for table in tables
        )
        found = first.join(
            second, keys, join_type=join_type, use_threads=spec.use_threads
        )
        names = names_of_result(left, right, keys, spec.how)
        types = _types_of((*left.schema, *right.schema))
        ordered = [
            name
            for name in set(keys).intersection(names)
            if pa.types.is_dictionary(types[name]) and types[name].ordered
        ]
        found = _with_extensions(found.select(names), keys, types)
        found = _order(_narrow(found, types), ordered, True)
        return _compact(_encode_floats(found, types))

    def concat(self, parts: Sequence[Any]) -> Any:
        import pyarrow as pa

        table = pa.concat_tables(parts)
        if any(map(_is_of_floats, table.schema.types)):
            table = table.unify_dictionaries()
        return table


def _order(table: Any, names: Iterable[str], is_ordered: bool) -> Any:
    """With dictionaries that are ordered or not: Arrow forgets it of some keys."""
    import pyarrow as pa

    for name in names:
        i = table.schema.get_field_index(name)
        kind = table.schema.field(i).type
        if pa.types.is_dictionary(kind) and kind.ordered != is_ordered:
            new = pa.dictionary(kind.index_type, kind.value_type, is_ordered)
            chunks = [
                pa.DictionaryArray.from_arrays(
                    chunk.indices, chunk.dictionary, ordered=is_ordered, safe=False
                )
                for chunk in table[i].chunks
            ]
            table = table.set_column(i, name, pa.chunked_array(chunks, type=new))
    return table


def _with_storage(table: Any, keys: Iterable[str]) -> Any:
    """With keys as their storage: Arrow has no outer joins by extension types."""
    import pyarrow as pa

    for name in keys:
        i = table.schema.get_field_index(name)
        kind = table.schema.field(i).type
        if isinstance(kind, pa.BaseExtensionType):
            chunks = [chunk.storage for chunk in table[i].chunks]
            column = pa.chunked_array(chunks, kind.storage_type)
            table = table.set_column(i, name, column)
    return table


def _with_extensions(table: Any, keys: Iterable[str], types: Mapping[str, Any]) -> Any:
    """With the extension types that ``_with_storage`` has taken away."""
    import pyarrow as pa

    for name in set(keys).intersection(table.column_names):
        i, kind = table.schema.get_field_index(name), types[name]
        if isinstance(kind, pa.BaseExtensionType):
            chunks = [
                pa.ExtensionArray.from_storage(kind, chunk.cast(kind.storage_type))
                for chunk in table[i].chunks
            ]
            table = table.set_column(i, name, pa.chunked_array(chunks, kind))
    return table


def _is_of_floats(kind: Any) -> bool:
    """Is it a dictionary of floats, which Arrow finds different if one is NaN?"""
    import pyarrow.types as is_type

    return bool(is_type.is_dictionary(kind) and is_type.is_floating(kind.value_type))


def _decode_floats(table: Any) -> Any:
    for i, field in enumerate(table.schema):
        if _is_of_floats(field.type):
            plain = table[i].cast(field.type.value_type)
            table = table.set_column(i, field.name, plain)
    return table


def _encode_floats(table: Any, types: Mapping[str, Any]) -> Any:
    for i, field in enumerate(table.schema):
        kind = types[field.name]
        if field.type != kind and _is_of_floats(kind):
            column = table[i].dictionary_encode().cast(kind)
            table = table.set_column(i, field.name, column)
    return table


def _widen(table: Any) -> Any:
    """With offsets of 64 bits where values are long.

    Arrow joins batches of at most ``_BATCH`` rows, and with offsets of 32 bits a
    batch that would have 2 GiB of a column writes where it must not.
    """
    import pyarrow.compute as pc

    for i, field in enumerate(table.schema):
        wide = wide_type(field.type)
        if wide is None:
            continue
        longest = pc.max(pc.binary_length(table[i])).as_py()
        if longest is not None and longest * _BATCH >= MOST_BYTES:
            table = table.set_column(i, field.name, table[i].cast(wide))
    return table


def _types_of(fields: Iterable[Any]) -> dict[str, Any]:
    """The type of each column by its name; the left table's come first."""
    types: dict[str, Any] = {}
    for field in fields:
        types.setdefault(field.name, field.type)
    return types


def _narrow(table: Any, types: Mapping[str, Any]) -> Any:
    """With the types that the columns had, in chunks of less than 2 GiB."""
    for i, field in enumerate(table.schema):
        kind = types[field.name]
        if field.type != kind and field.type == wide_type(kind):
            table = table.set_column(i, field.name, narrow(table[i], kind))
    return table


def _compact(table: Any) -> Any:
    """The table in memory of its size, if Arrow has given it more.

    Arrow allocates whole batches, so a hundred rows of a thousand columns hold
    hundreds of times as much as they are.
    """
    return copy_table(table) if table.nbytes < 4 * _BATCH * table.num_columns else table


class PandasJoin:
    """``pandas.merge``: the result is a ``DataFrame``, and nulls are equal.

    Key columns with different names are both in the result.
    """

    nan_is_null = True
    _module = "pandas"

    def join(self, left: Any, right: Any, spec: JoinSpec) -> Any:
        keys = (
            {"on": list(spec.left_on)}
            if spec.left_on == spec.right_on
            else {"left_on": list(spec.left_on), "right_on": list(spec.right_on)}
        )
        first, second = self._frame(left), self._frame(right)
        if spec.how in ("semi", "anti"):
            return self._filter(first, second, spec)
        return first.merge(second, how=spec.how, suffixes=spec.suffixes, **keys)

    def concat(self, parts: Sequence[Any]) -> Any:
        found = [part for part in parts if len(part)] or parts[:1]
        return importlib.import_module(self._module).concat(found, ignore_index=True)

    def without_categories(self, part: Any, like: Any) -> Any:
        """With values for categories where the whole result has no categories.

        Keys with other categories lose them, unless a part has rows of one side only.
        """
        for i, (own, its) in enumerate(zip(part.dtypes, like.dtypes, strict=True)):
            if str(own) == "category" != str(its):
                column = part.iloc[:, i]
                kind = own.categories.dtype
                if kind.kind in "iub" and column.hasnans:
                    kind = object if kind.kind == "b" else "float64"
                part = part.copy(deep=False)
                part.isetitem(i, column.astype(kind))
        return part

    def dtypes(self, result: Any) -> list[str] | None:
        """What the ranks tell each other of their results; None: it has no rows."""
        return list(map(str, result.dtypes)) if len(result) else None

    def with_dtypes(self, result: Any, every: Sequence[list[str] | None]) -> Any:
        """The result with the types that those of all ranks have together."""
        there = [dtypes for dtypes in every if dtypes is not None]
        for number, names in enumerate(zip(*there, strict=True)):
            name = result.columns[number]
            if len({*names, str(result.dtypes.iloc[number])}) > 1:
                common = self._common_dtype(sorted(set(names)))
                if common is not None:
                    result[name] = result[name].astype(common)
        return result

    def _common_dtype(self, names: Sequence[str]) -> Any:
        """The type of a column of all of these; None: it has to be what it is."""
        pd = importlib.import_module(self._module)
        if "category" in names:
            return None if len(names) == 1 else object
        try:
            empty = [pd.Series([], dtype=_dtype_of(name)) for name in names]
        except (TypeError, NotImplementedError):
            # pandas has types that it does not know by their name.
            return object if len(names) > 1 else None
        return pd.concat(empty).dtype

    def _frame(self, table: Any) -> Any:
        """A copy: pandas keeps views, also in what it merges."""
        frame = pandas_frame(table)
        return frame if len(frame) else _with_chunks(frame)

    def _filter(self, first: Any, second: Any, spec: JoinSpec) -> Any:
        there = max([*first.columns, ""], key=len) + "+"  # no column of theirs
        names = dict(zip(spec.right_on, spec.left_on, strict=True))
        keys = second[list(spec.right_on)].drop_duplicates().rename(columns=names)
        keys[there] = True
        found = first.merge(keys, how="left", on=list(spec.left_on))
        is_there = found.pop(there).notna()
        return found[is_there if spec.how == "semi" else ~is_there]


class CudfJoin(PandasJoin):
    """``cudf.DataFrame.merge``: the result is a cuDF ``DataFrame`` on the device."""

    nan_is_null = False
    _module = "cudf"

    def without_categories(self, part: Any, like: Any) -> Any:
        return part

    def _frame(self, table: Any) -> Any:
        return importlib.import_module(self._module).DataFrame.from_arrow(table)


def _dtype_of(name: str) -> Any:
    """pandas' type of this name, which for strings of Arrow has two meanings."""
    import pyarrow as pa

    if name == "string[pyarrow]":
        return importlib.import_module("pandas").ArrowDtype(pa.string())
    return name


def _with_chunks(frame: Any) -> Any:
    """A frame without rows: pandas fails to merge strings that have no chunk."""
    pd = importlib.import_module("pandas")
    strings = {
        name: dtype
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, pd.StringDtype)
    }
    return frame.astype(dict.fromkeys(strings, object)).astype(strings)


def rename_columns(left: Any, right: Any, spec: JoinSpec) -> tuple[Any, Any, list[str]]:
    """Give keys the left one's names, and suffixes to names that both tables have.

    Returns:
        Both tables, and the names of the keys.
    """
    others = [name for name in right.column_names if name not in spec.right_on]
    if spec.how in ("semi", "anti"):
        others = []  # they are not in the result
        right = right.select(list(spec.right_on))
    both = set(others).intersection(left.column_names)
    first, second = spec.suffixes

    def longer(name: str, suffix: str) -> str:
        return name + suffix if name in both else name

    keys = [longer(name, first) for name in spec.left_on]
    new = dict(zip(spec.right_on, keys, strict=True))
    return (
        left.rename_columns([longer(name, first) for name in left.column_names]),
        right.rename_columns(
            [
                new[name] if name in new else longer(name, second)
                for name in right.column_names
            ]
        ),
        keys,
    )


def rows_are_left(how: How) -> bool:
    """Are the rows of the result rows of the left table, without the right one's?"""
    return how in ("semi", "anti")


def names_of_result(left: Any, right: Any, keys: list[str], how: How) -> list[str]:
    names: list[str] = left.column_names
    if how not in ("semi", "anti"):
        names = names + [name for name in right.column_names if name not in keys]
    return names


def metadata_of_result(left: Any, right: Any, spec: JoinSpec) -> dict[str, Any]:
    """The metadata of the result's columns, from the schemas of the tables."""
    first, second, _ = rename_columns(left.empty_table(), right.empty_table(), spec)
    found: dict[str, Any] = {}
    for name, field in zip(first.column_names, left, strict=True):
        found[name] = field.metadata
    for name, field in zip(second.column_names, right, strict=False):
        found.setdefault(name, field.metadata)
    return found


def check_names(left: Any, right: Any, spec: JoinSpec) -> None:
    """Refuse two columns of a name in the result.

    Raises:
        ValueError: there are some.
    """
    left, right, keys = rename_columns(left, right, spec)
    names = names_of_result(left, right, keys, spec.how)
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(
            f"the result would have two columns {twice[0]!r}: choose other suffixes "
            f"than {spec.suffixes}"
        )
