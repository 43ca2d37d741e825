# SPDX-License-Identifier: BSD-3-Clause
"""The Parquet files that a path means, and the schema that they have in common."""

from __future__ import annotations

import functools
import glob
import operator
import os
import re
import urllib.parse
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._tables.unify import common_decimal, concatenated, enum_of

_ENDINGS = (".parquet", ".parq")
_NULL = "__HIVE_DEFAULT_PARTITION__"  # the folder of rows whose key is null
_MOST = 2**63  # of 64-bit integers

Path = str | list[str]


class File(NamedTuple):
    """A file to read.

    Attributes:
        path: of the file.
        keys: names and values of the folders ``name=value`` in which it is; None:
            the value is null.
    """

    path: str
    keys: dict[str, int | str | None]


class _Column(NamedTuple):
    """A column of the files up to one.

    Attributes:
        field: that of all of these files.
        path: of the file by which it has got its type.
        kind: the type in that file.
    """

    field: Any
    path: str
    kind: Any


# --- which files --------------------------------------------------------------


def known_path(path: Any) -> Path:
    """The path, or the paths, that a call names.

    Raises:
        TypeError: one of them is not a path.
        ValueError: there is none.
    """
    if not isinstance(path, list | tuple):
        return os.fsdecode(path)
    if not path:
        raise ValueError("path is an empty list: give one path or more")
    return [os.fsdecode(one) for one in path]


def find_files(path: Path) -> list[File]:
    """The files that a path means, in the order in which they are read.

    Raises:
        FileNotFoundError: there is no such path, or a directory has no files.
        TypeError: the folders of files have different keys.
    """
    found: list[File] = []
    for one in [path] if isinstance(path, str) else path:
        found += _files_of(one)
    first = found[0]
    for file in found:
        if list(file.keys) != list(first.keys):
            raise TypeError(
                f"{file.path!r} is in folders of the keys {list(file.keys)}, "
                f"{first.path!r} in those of {list(first.keys)}: read them by calls "
                "of their own"
            )
    for name in first.keys:
        if all(_is_integer(file.keys[name]) for file in found):
            for file in found:
                text = file.keys[name]
                file.keys[name] = None if text is None else int(text)
    return found


def _files_of(path: str) -> list[File]:
    """The files of a directory, of a pattern, or a file."""
    if os.path.isdir(path):
        if not (found := _files_in(path, {})):
            raise FileNotFoundError(
                f"the directory {path!r} has no file that ends with .parquet"
            )
        return found
    if os.path.exists(path):
        return [File(path, {})]
    names = sorted(glob.glob(path, recursive=True))
    files = [File(name, {}) for name in names if not os.path.isdir(name)]
    if not files:
        what = "file" if names else "file or directory"
        raise FileNotFoundError(f"there is no {what} {path!r}")
    return files


def _files_in(folder: str, keys: dict[str, int | str | None]) -> list[File]:
    """Those of a folder, then those of its folders ``name=value``."""
    files, within = [], []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        key, is_key, value = name.partition("=")
        if name.startswith((".", "_")):
            continue
        if key and is_key and os.path.isdir(path):
            key, value = map(urllib.parse.unquote, (key, value))
            if key in keys:
                raise ValueError(f"{path!r} has two folders of the key {key!r}")
            within += _files_in(path, {**keys, key: None if value == _NULL else value})
        elif name.endswith(_ENDINGS):
            files.append(File(path, dict(keys)))
    return files + within


def _is_integer(text: int | str | None) -> bool:
    if text is None:
        return True
    is_number = re.fullmatch("-?[0-9]+", str(text), re.ASCII) is not None
    return is_number and -_MOST <= int(text) < _MOST


def key_fields(files: Sequence[File]) -> list[Any]:
    """The columns that folders make: int64 if all values are integers, or string."""
    import pyarrow as pa

    def kind(name: str) -> Any:
        is_text = any(isinstance(file.keys[name], str) for file in files)
        is_null = all(file.keys[name] is None for file in files)
        return pa.string() if is_text or is_null else pa.int64()

    return [pa.field(name, kind(name)) for name in files[0].keys]


def key_values(file: File) -> Any:
    """What the folders of a file say of all its rows; None: nothing."""
    import pyarrow.dataset as ds

    said = [
        ds.field(name).is_null() if value is None else ds.field(name) == value
        for name, value in file.keys.items()
    ]
    return functools.reduce(operator.and_, said) if said else None


# --- their schema -------------------------------------------------------------


def read_metadata(path: str) -> Any:
    """What the end of a Parquet file says of it.

    Raises:
        ValueError: the file is no Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{path!r} cannot be read as a Parquet file: {error}"
        ) from None


def common_schema(files: Sequence[File], about: Sequence[Any]) -> Any:
    """The schema by which all files are read, with the keys of their folders.

    Columns have the names and the order of the first file. Their types hold the values
    of all files; a file without rows has no say in them.

    Args:
        files: the files.
        about: the metadata of each.

    Raises:
        TypeError: two files have different columns, or a column has types in them
            that are not made equal.
        ValueError: a file has several columns of a name.
    """
    import pyarrow as pa

    names: list[str] = []
    known: dict[str, _Column] = {}
    last = None
    found = [
        (file.path, its.schema.to_arrow_schema().remove_metadata(), its.num_rows)
        for file, its in zip(files, about, strict=True)
    ]
    for path, schema, _ in found:
        if last is None:
            names = schema.names
            _check_names(files[0], names)
        elif not schema.equals(last, check_metadata=True):
            _check_same_names(files[0].path, names, path, schema.names)
        last = schema
    # The types of files with rows come first, and those of others give way to them.
    for path, schema, rows in sorted(found, key=lambda one: one[2] == 0):
        for field in schema:
            ours = known.get(field.name, _Column(field, path, field.type))
            known[field.name] = _with_field(ours, path, field, rows > 0)
    fields = [known[name].field for name in names]
    return pa.schema([*fields, *key_fields(files)])


def _check_names(file: File, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{file.path!r} has {names.count(name)} columns {name!r}")
        if name in file.keys:
            raise TypeError(
                f"{file.path!r} has a column {name!r}, which is a key of its folder "
                "too: give the files as a list to read the column"
            )


def _check_same_names(
    first: str, ours: Sequence[str], path: str, theirs: Sequence[str]
) -> None:
    for name in theirs:
        if theirs.count(name) > 1:
            raise ValueError(f"{path!r} has {theirs.count(name)} columns {name!r}")
    pairs = [(first, ours, path, theirs), (path, theirs, first, ours)]
    for that_has, its, that_has_not, others in pairs:
        for name in its:
            if name not in others:
                raise TypeError(
                    f"{path!r} has other columns than {first!r}: {name!r} is in "
                    f"{that_has!r}, and not in {that_has_not!r}"
                )


def _with_field(ours: _Column, path: str, field: Any, has_rows: bool) -> _Column:
    """A column after one more file."""
    is_nullable = ours.field.nullable or field.nullable
    common = _common_field(ours.field, field)
    if common is None:
        if has_rows:
            _raise_difference(ours, path, field)
        common = ours.field
    common = common.with_nullable(is_nullable)
    if common.type.equals(ours.field.type):
        return ours._replace(field=common)
    return _Column(common, path, field.type)


def _common_field(ours: Any, theirs: Any) -> Any:
    """A field whose type holds the values of both; None: there is none."""
    import pyarrow.types as is_type

    pair = (ours.type, theirs.type)
    if is_type.is_null(theirs.type):
        return ours
    if is_type.is_null(ours.type):
        return theirs
    if enum_of(ours) != enum_of(theirs):
        return None
    if all(map(is_type.is_decimal, pair)):
        kind = common_decimal(*pair)
    else:
        kind = concatenated(*pair)
    if kind is None:
        return None
    if all(map(is_type.is_integer, pair)) and not is_type.is_integer(kind):
        return None  # floats do not hold large integers
    return ours.with_type(kind)


def _raise_difference(ours: _Column, path: str, field: Any) -> None:
    name = field.name
    if ours.kind.equals(field.type):
        raise TypeError(
            f"column {name!r} is an Enum whose categories differ between {ours.path!r} "
            f"and {path!r}"
        )
    raise TypeError(
        f"column {name!r} is {ours.kind} in {ours.path!r}, {field.type} in {path!r}: "
        "cast one of them"
    )
