# SPDX-License-Identifier: BSD-3-Clause
"""The reference has every public name, and an example of each that does what it shows.

The examples are typed at the prompt of ``python -m asyncio``, after the lines that
docs/reference/python/index.rst shows, or for ``ucp.sync`` at that of ``python``.
"""

import ast
import asyncio
import builtins
import contextlib
import doctest
import importlib
import inspect
import io
import re
import sys
import types

import numpy  # noqa: F401 -- can be imported once in a process
import pytest
from paths import ROOT

import ucp
import ucp.sync
from ucp.testing import connected_pair

sys.path.insert(0, str(ROOT / "tools"))
import docs_headers
import docs_python

sys.path.remove(str(ROOT / "tools"))

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
CHECKER = doctest.OutputChecker()
MODULES = [ucp] + [
    importlib.import_module(f"ucp.{name}")
    for name in (
        *("cuda", "dask", "join", "message", "moe", "proxy", "shmem"),
        *("shuffle", "sync", "table", "testing"),
    )
]
FILES = sorted(docs_python.EXAMPLES.glob("*.txt"))


# ---- the examples --------------------------------------------------------------


async def run(code: types.CodeType, names: dict[str, object]) -> None:
    result = types.FunctionType(code, names)()
    if code.co_flags & inspect.CO_COROUTINE:
        await result


def check(step: doctest.Example, printed: str, raised: BaseException | None) -> None:
    if step.exc_msg is not None:
        assert raised is not None, f"{step.source}raised nothing"
        said = f"{type(raised).__module__}.{type(raised).__qualname__}: {raised}\n"
        said = said.removeprefix("builtins.")
        good = CHECKER.check_output(step.exc_msg, said, FLAGS)
        assert good, f"{step.source}raised {said}"
        return
    if raised is not None:
        raise raised
    good = CHECKER.check_output(step.want, printed, FLAGS)
    assert good, f"{step.source}printed {printed}"


def type_in(shown: docs_python.Shown, names: dict[str, object], loop) -> None:
    where = f"{shown.path.name}:{shown.line}"
    for step in doctest.DocTestParser().get_examples(shown.text):
        code = compile(step.source, where, "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        raised = None
        with contextlib.redirect_stdout(io.StringIO()) as out:
            try:
                if loop is None:
                    exec(code, names)
                else:
                    loop.run_until_complete(asyncio.wait_for(run(code, names), 50))
            except Exception as exc:
                raised = exc
        try:
            check(step, out.getvalue(), raised)
        except BaseException as exc:
            exc.add_note(f"in {where}, of {', '.join(shown.names)}")
            raise


def start(loop: asyncio.AbstractEventLoop, names: dict[str, object]):
    """Make what the page of the reference says is there."""

    async def enter():
        pair = connected_pair()
        comm = await ucp.Communicator.from_allgather(0, 1, lambda mine: [mine])
        names["left"], names["right"] = await pair.__aenter__()
        names["comm"] = comm
        return pair, comm

    return loop.run_until_complete(enter())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_examples_do_what_they_show(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if path.stem == "sync":
        for shown in docs_python.read(path):
            type_in(shown, {"ucp": ucp}, None)
        return
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        for shown in docs_python.read(path):
            names = {"__builtins__": builtins, "asyncio": asyncio, "ucp": ucp}
            pair, comm = start(loop, names)
            try:
                type_in(shown, names, loop)
            finally:
                loop.run_until_complete(pair.__aexit__(None, None, None))
                comm.close()


# ---- names ---------------------------------------------------------------------


def public(module: types.ModuleType) -> list[str]:
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, what in vars(module).items()
            if getattr(what, "__module__", None) == module.__name__ and name[0] != "_"
        ]
    return [
        f"{module.__name__}.{name}"
        for name in names
        if name[:2] != "__" and not inspect.ismodule(getattr(module, name))
    ]


PUBLIC = [name for module in MODULES for name in public(module)]


def test_every_public_name_has_an_example():
    shown = {name for example in docs_python.examples() for name in example.names}
    assert [name for name in PUBLIC if name not in shown] == []


def test_examples_are_of_public_names():
    for example in docs_python.examples():
        for name in example.names:
            module = max(
                (m for m in MODULES if name.startswith(m.__name__ + ".")),
                key=lambda module: len(module.__name__),
            )
            what = module
            for part in name.removeprefix(module.__name__ + ".").split("."):
                what = getattr(what, part)


def test_the_reference_of_python_has_every_module():
    """Names of ``ucp`` that no page has are put on one of them: docs_python.py."""
    folder = ROOT / "docs/reference/python"
    pages = "".join(page.read_text() for page in folder.glob("*.rst"))
    whole = re.findall(r"^\.\. automodule:: (ucp\.\w+)$", pages, re.MULTILINE)
    assert {module.__name__ for module in MODULES[1:]} <= {*whole}
    named = re.findall(r"^\.\. auto(?:class|function):: ucp\.(\w+)$", pages, re.M)
    assert len(named) > 50
    assert [name for name in named if not hasattr(ucp, name)] == []


def test_the_reference_of_c_has_every_header_and_name():
    pages = "".join(
        page.read_text() for page in (ROOT / "docs/reference/c").glob("*.rst")
    )
    headers = docs_headers.all_items()
    shown = re.findall(r"umx-header:: (\w+\.h)", pages)
    assert len(shown) == len({*shown}) and {*shown} <= {*headers}
    known = docs_headers.names(
        [item for _, items in headers.values() for item in items]
    )
    for header in headers:
        source = (ROOT / "include/umx" / header).read_text()
        source = docs_headers.without_inner_comments(source)
        declared = set(re.findall(r"\b(umx_\w+)\(", source))
        declared |= set(re.findall(r"^} (umx_\w+);", source, re.MULTILINE))
        declared |= set(re.findall(r"^ {4}(UMX_\w+)(?: = .*)?,$", source, re.MULTILINE))
        assert declared <= set(known), header
