# SPDX-License-Identifier: BSD-3-Clause
"""Parquet files that ranks read and write together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy

from .._communicator.communicator import Communicator
from .._tables.common import with_common_types
from .._tables.frames import library_of, to_arrow
from .._tables.schemas import (
    decode_table,
    describe_failure,
    encode_table,
    pack,
    unpack_all,
    with_pandas_types,
)
from .._tables.stages import Stages
from .._tables.threads import in_thread
from ..exceptions import UCXRankFailed
from ._files import (
    File,
    Path,
    common_schema,
    find_files,
    key_values,
    known_path,
    read_metadata,
)
from ._hidden import HiddenFile, is_hidden, locked, remove_left
from ._one_rank import AGREE, ENDS, SAMPLE
from ._plan import SIDE, Call, check_calls, describe, make_plan


class _Group(NamedTuple):
    """A row group of a file."""

    file: int
    number: int
    nbytes: int


# --- reading ------------------------------------------------------------------


async def read_files(
    stages: Stages, comm: Communicator, path: Any, columns: Any, filters: Any
) -> Any:
    """The rows of this rank: see ``read_parquet``."""
    cause: Exception | None = None
    try:
        path = known_path(path)
        expression = _expression(filters)
        names = None if columns is None else [str(name) for name in columns]
        if names is not None and not names:
            raise ValueError("columns names no column: give some, or None for all")
        arguments = {"path": path, "columns": names, "filters": str(expression)}
        call = Call("read_parquet", arguments, None, 0)
        mine = pack({"call": call})
        if comm.rank == 0:
            mine = await asyncio.to_thread(
                _describe_files, call, path, names, expression
            )
    except Exception as error:
        cause = error
        mine = describe_failure(error)
    said = await stages.tell_all(mine, AGREE)
    try:
        its, blobs = unpack_all(said)
        check_calls(its)
    except Exception as error:
        raise error from cause
    groups = [_Group(*group) for group in its[0]["groups"]]
    schema = decode_table(blobs[0][0]).schema
    own = _share(groups, comm.rank, comm.size)
    files = [File(*file) for file in its[0]["files"]]
    table = await asyncio.to_thread(_read_groups, files, own, schema, names, expression)
    await stages.tell_all([b"read"], ENDS)
    return table


def _expression(filters: Any) -> Any:
    """An expression of pyarrow.dataset; None: all rows."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if filters is None or isinstance(filters, pc.Expression):
        return filters
    return pq.filters_to_expression(filters)


def _describe_files(
    call: Call, path: Path, columns: list[str] | None, expression: Any
) -> list[Any]:
    """What rank 0 tells the others: files, row groups and the schema."""
    import pyarrow as pa

    files = find_files(path)
    about = [read_metadata(file.path) for file in files]
    schema = common_schema(files, about)
    groups = [
        _Group(number, i, its.row_group(i).total_byte_size)
        for number, its in enumerate(about)
        for i in range(its.num_row_groups)
        if its.row_group(i).num_rows
    ]
    for name in columns or ():
        if name not in schema.names:
            there = ", ".join(map(repr, schema.names))
            raise KeyError(f"{files[0].path!r} has no column {name!r}, only {there}")
    if expression is not None:
        try:
            schema.empty_table().filter(expression)
        except pa.ArrowException as error:
            if "No match for FieldRef" in str(error):
                there = ", ".join(map(repr, schema.names))
                raise KeyError(
                    f"filters have a column that {files[0].path!r} has not: there is "
                    f"only {there}"
                ) from error
    head = {"call": call, "files": files, "groups": groups}
    return pack(head, [encode_table(schema.empty_table())])


def _share(groups: Sequence[_Group], rank: int, size: int) -> list[_Group]:
    """The row groups of a rank: those whose middle lies in its share of the bytes."""
    nbytes = numpy.array([max(1, group.nbytes) for group in groups], float)
    if not len(nbytes):
        return []
    middles = numpy.cumsum(nbytes) - nbytes / 2
    owners = (middles * size // nbytes.sum()).astype(int)
    return [group for group, owner in zip(groups, owners, strict=True) if owner == rank]


def _read_groups(
    files: Sequence[File],
    groups: Sequence[_Group],
    schema: Any,
    columns: list[str] | None,
    expression: Any,
) -> Any:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    names = schema.names if columns is None else columns
    parts = [schema.empty_table().select(names)]
    for file in sorted({group.file for group in groups}):
        numbers = [group.number for group in groups if group.file == file]
        path = files[file].path
        fragment = ds.ParquetFileFormat().make_fragment(
            os.path.abspath(path),
            LocalFileSystem(),
            partition_expression=key_values(files[file]),
            row_groups=numbers,
        )
        try:
            part = fragment.to_table(schema=schema, columns=names, filter=expression)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path!r} cannot be read: {error}") from error
        parts.append(part)
    return pa.concat_tables(parts)


# --- writing ------------------------------------------------------------------


async def write_file(
    stages: Stages,
    comm: Communicator,
    table: Any,
    path: Any,
    overwrite: bool,
    options: dict[str, Any],
) -> str:
    """Write the rows of this rank: see ``write_parquet``."""
    cause: Exception | None = None
    arrow: Any = None
    try:
        path = os.fspath(path)
        arguments = {"path": path, "overwrite": bool(overwrite), "options": options}
        arrow = to_arrow(table, SIDE)
        call = Call("write_parquet", arguments, None, 0)
        mine = describe(call, arrow, library_of(table), True)
        if comm.rank == 0:
            await asyncio.to_thread(_prepare_directory, path, overwrite)
    except Exception as error:
        cause = error
        mine = describe_failure(error)
    said = await stages.tell_all(mine, AGREE)
    try:
        plan = make_plan(said, comm.rank)
    except Exception as error:
        raise error from cause
    arrow, _ = with_common_types(arrow, plan.common)
    if plan.gives == "pandas":
        metadata = with_pandas_types(plan.common).schema.metadata
        arrow = arrow.replace_schema_metadata({b"pandas": metadata[b"pandas"]})
    hidden = HiddenFile(path, comm.rank)
    try:
        await _write_and_name(stages, comm, arrow, path, hidden, overwrite, options)
    finally:
        hidden.remove()
    return os.path.join(path, _name_of(comm.rank))


async def _write_and_name(
    stages: Stages,
    comm: Communicator,
    table: Any,
    path: str,
    hidden: HiddenFile,
    overwrite: bool,
    options: dict[str, Any],
) -> None:
    """Write a file, and have all get their names, or none."""
    old = await in_thread(
        "parquet", lambda: _write_hidden(table, path, hidden, overwrite, options)
    )
    said = await stages.tell_all([hidden.name.encode()], SAMPLE)
    # All ranks have written theirs, and until these have names nothing is awaited.
    mine = pack({})
    cause: Exception | None = None
    if comm.rank == 0:
        try:
            names = [its.decode() for its in said]
            with locked(path):
                _check_directory(path, overwrite)
                _give_names(path, names, old)
        except Exception as error:
            cause = error
            mine = describe_failure(error)
    try:
        said = await stages.tell_all(mine, ENDS)
    except UCXRankFailed:
        if comm.rank == 0 and cause is None:
            return  # a rank has given up too late
        raise
    try:
        unpack_all(said)
    except Exception as error:
        raise error from cause


def _prepare_directory(path: str, overwrite: bool) -> None:
    """Remove what killed writers have left, and refuse a directory that has files."""
    if os.path.isdir(path):
        remove_left(path)
    _check_directory(path, overwrite)


def _check_directory(path: str, overwrite: bool) -> None:
    if os.path.exists(path) and not os.path.isdir(path):
        raise FileExistsError(f"{path!r} is a file: give a directory")
    if overwrite or not os.path.isdir(path):
        return
    if not all(map(is_hidden, os.listdir(path))):
        raise FileExistsError(f"{path!r} is not empty: give overwrite=True")


def _name_of(rank: int) -> str:
    return f"part-{rank:05}.parquet"


def _write_hidden(
    table: Any,
    path: str,
    hidden: HiddenFile,
    overwrite: bool,
    options: dict[str, Any],
) -> list[str]:
    """Write a file that no reader takes for one; the files that it replaces."""
    import pyarrow.parquet as pq

    os.makedirs(path, exist_ok=True)
    old = []
    if overwrite:
        old = [name for name in os.listdir(path) if name.endswith(".parquet")]
    hidden.make()
    pq.write_table(table, hidden.path, **options)
    return old


def _give_names(path: str, hidden: Sequence[str], old: Sequence[str]) -> None:
    """Give the files of all ranks their names, and remove the ``old`` ones.

    A rank that gives up removes its file, so all of them are taken first: if one is
    missing, nothing has changed.
    """
    taken: list[str] = []
    try:
        for file in hidden:
            its = os.path.join(path, f"{file}.all")
            os.replace(os.path.join(path, file), its)
            taken.append(its)
        for rank, its in enumerate(taken):
            os.replace(its, os.path.join(path, _name_of(rank)))
    finally:
        for its in taken:
            with suppress(FileNotFoundError):
                os.remove(its)
    for file in set(old).difference(map(_name_of, range(len(hidden)))):
        with suppress(FileNotFoundError):
            os.remove(os.path.join(path, file))
