# SPDX-License-Identifier: BSD-3-Clause
"""The layers of the package ``ucp``: imports go one way."""

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from paths import ROOT

import ucp

PACKAGE = ROOT / "ucp"

# The rooms of ucp/, which are folders and modules, each with those that it may
# import. "ucp" is ucp/__init__.py.
BELOW: dict[str, set[str]] = {
    "_ext": set(),
    "_version": set(),
    "exceptions": {"_ext"},
    "cuda": {"_ext"},
    "_topology": {"_ext"},
    "_data": {"_ext"},
    "_core": {"_topology", "cuda", "exceptions", "_ext", "_version"},
}
BELOW["message"] = BELOW["testing"] = BELOW["_core"] | {"_core"}
BELOW["_communicator"] = BELOW["_core"] | {"_core"}
BELOW["_run"] = BELOW["shmem"] = BELOW["_communicator"] | {"_communicator"}
BELOW["_observe"] = BELOW["_communicator"] | {"_communicator", "_version"}
BELOW["sync"] = BELOW["shmem"] | {"shmem"}
BELOW["moe"] = BELOW["sync"] | {"sync"}
BELOW["shuffle"] = BELOW["_communicator"] | {"_communicator", "_data"}
BELOW["proxy"] = BELOW["_communicator"] | {"_communicator"}
BELOW["_tables"] = BELOW["shuffle"] | {"shuffle"}
BELOW["join"] = BELOW["table"] = BELOW["_tables"] | {"_tables"}
BELOW["compat"] = BELOW["_core"] | {"_core"}
# Parts of compat by the paths that they have in ucx-py.
BY_OLD_PATHS = ("core", "utils", "comm", "_libs")
BELOW |= {name: BELOW["compat"] | {"compat"} for name in BY_OLD_PATHS}
BELOW["ucp"] = set(BELOW) - {"_run"}
BELOW["dask"] = BELOW["benchmarks"] = BELOW["ucp"] | {"ucp"}
BELOW["_commands"] = BELOW["_observe"] | {"_observe", "_run"}
BELOW["__main__"] = BELOW["_commands"] | {"_commands"}

# Imports that are not at the top of a module, and why.
LATE = {
    ("ucp._core.submit", "ucp._core.worker"): "for type checkers",
    **{
        ("ucp", f"ucp.{module}"): "for type checkers; ucp.__getattr__() imports it"
        for module in {*ucp._NAMES.values(), "message", "sync"}
    },
    ("ucp._core.context", "ucp._topology.net_devices"): "few programs need it",
    **{
        (f"ucp.compat.ucxpy.libs.{user}", f"ucp.compat.ucxpy.libs.{used}"): (
            "the classes of ucx-py make each other"
        )
        for user, used in (
            ("_endpoint", "_worker"),
            ("_memory", "_endpoint"),
            ("_memory", "_worker"),
        )
    },
}

LONGEST = 800  # lines


class Import(NamedTuple):
    """An import of a module of ``ucp`` by another."""

    user: str
    used: str
    is_late: bool


def name_of(path: Path) -> str:
    """The module that the file has."""
    parts = ("ucp", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in PACKAGE.glob("**/*.py")}
MODULES = {*FILES, "ucp._ext"}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imports_of(user: str) -> Iterator[Import]:
    """What a module imports of ``ucp``, anywhere in it."""
    path = FILES[user]
    package = user if path.name == "__init__.py" else user.rpartition(".")[0]
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: -node.level + 1 or None] if node.level else []
            whole = ".".join([*parts, *filter(None, [node.module])])
            names = [f"{whole}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else whole for name in names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "ucp" and name != user:
                yield Import(user, name, node not in tree.body)


@functools.cache
def imports() -> set[Import]:
    """All of them; not found by each process that collects tests."""
    return {each for user in FILES for each in imports_of(user)}


def test_the_imports_are_found():
    assert len(imports()) > 250
    assert Import("ucp._core.worker", "ucp._core.endpoint", False) in imports()
    assert Import("ucp.sync._communicator", "ucp._ext", False) in imports()
    assert Import("ucp.benchmarks.utils", "ucp", False) in imports()
    assert {each.used for each in imports()} <= MODULES


def test_every_folder_and_module_is_a_known_room():
    assert {room_of(name) for name in MODULES} == set(BELOW)


def test_rooms_lie_one_above_the_other():
    assert all(BELOW[lower] <= below for below in BELOW.values() for lower in below)
    assert all(room not in below for room, below in BELOW.items())


def test_modules_import_only_what_lies_below():
    wrong = [
        f"{each.user} imports {each.used}"
        for each in sorted(imports())
        if room_of(each.used) not in {room_of(each.user), *BELOW[room_of(each.user)]}
    ]
    assert wrong == []


def test_what_is_imported_on_demand_lies_below():
    assert {*ucp._ON_DEMAND, *ucp._ON_DEMAND_IN_DIR} <= BELOW["ucp"]
    assert {room_of(f"ucp.{module}") for module in ucp._NAMES.values()} <= BELOW["ucp"]


def test_only_modules_of_its_old_paths_import_compat():
    users = {room_of(each.user) for each in imports() if room_of(each.used) == "compat"}
    assert users - {"compat"} == set(BY_OLD_PATHS)


def test_modules_of_old_paths_have_nothing_of_their_own():
    for path in (FILES[name] for name in FILES if room_of(name) in BY_OLD_PATHS):
        own = [
            node
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name != "__getattr__"
        ]
        assert own == [], path


def test_late_imports_are_named():
    assert {(each.user, each.used) for each in imports() if each.is_late} == set(LATE)


def test_modules_need_each_other_in_one_direction():
    """graphlib.CycleError names the modules of a circle."""
    sorter = graphlib.TopologicalSorter[str]()
    for each in imports():
        if (each.user, each.used) not in LATE:
            sorter.add(each.user, each.used)
    assert set(sorter.static_order()) <= MODULES


def owner_of(module: str) -> str | None:
    """The package in whose folder the innermost private module lies."""
    parts = module.split(".")
    private = [i for i, part in enumerate(parts) if part.startswith("_")]
    return ".".join(parts[: private[-1]]) if private else None


def test_private_modules_are_imported_in_their_folders_only():
    wrong = [
        f"{each.user} imports {each.used}"
        for each in sorted(imports())
        if (owner := owner_of(each.used)) is not None
        if not f"{each.user}.".startswith(f"{owner}.")
    ]
    assert wrong == []


def test_private_modules_lie_in_folders():
    flat = {path.name for path in PACKAGE.glob("_*.py*")}
    assert flat == {"__init__.py", "__main__.py", "_ext.pyi", "_version.py"}


def test_no_file_is_long():
    lengths = {name: len(path.read_text().splitlines()) for name, path in FILES.items()}
    assert {name for name, length in lengths.items() if length > LONGEST} == set()
