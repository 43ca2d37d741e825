# SPDX-License-Identifier: BSD-3-Clause
"""The programs in README.md and docs/ run and print what they say.

Those of docs/tutorial and docs/howto are run by test_tutorial.py, and those of
docs/hacking.md by test_hacking.py.
"""

import ast
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pages import ENVIRONMENT, PAGES, Block, blocks, name_of
from paths import ROOT

import ucp
import ucp.message
import ucp.moe
import ucp.shuffle
import ucp.sync

PROMISE = re.compile(r"print\(.*\)  # (.+)$", re.MULTILINE)
QUESTIONS = {
    "send a CuPy array": "howto/gpu",
    "why is it slow": "tuning",
    "start 4 processes": "run",
    "C API of put": "reference/c/memory",
}
FILE = re.compile(r"`((?:src|ucp_ext|include|tests|ucp)/[\w/]+\.\w+)`")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#]+)(?:#[^)]*)?\)")
ELSEWHERE = [ROOT / "docs" / where for where in ("tutorial", "howto", "hacking.md")]


def all_blocks(*languages: str) -> list[Block]:
    """The blocks of these languages that are run here."""
    return [
        block
        for page in PAGES
        if not {page, *page.parents} & {*ELSEWHERE}
        for block in blocks(page)
        if block.language in languages and block.reason is None
    ]


def programs() -> Iterator[object]:
    """Each program of each page that needs no other program."""
    for block in all_blocks("python"):
        if block.file is None:
            yield pytest.param(block.text, id=str(block))


def named(name: str) -> str:
    """The program of the quickstart whose first line names it."""
    found = blocks(ROOT / "docs/quickstart.md")
    return next(block.text for block in found if block.file == name)


def run(code: str, *arguments: str) -> list[str]:
    """The lines that a program prints; it prints no errors."""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code, *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("code", list(programs()))
def test_program_runs_and_prints_what_it_says(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    printed = run(code)
    for promise in PROMISE.findall(code):
        assert promise in printed


PARSERS = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
}


def test_blocks_of_data_are_valid():
    for block in all_blocks(*PARSERS):
        assert PARSERS[block.language](block.text), block


@pytest.mark.parametrize("block", all_blocks("c", "cpp"), ids=str)
def test_a_block_in_c_is_compiled(block):
    compiler = ["gcc", "-x", "c"]
    if block.language == "cpp":
        compiler = ["g++", "-std=c++20", "-x", "c++"]
    subprocess.run(
        [
            *(*compiler, "-Wall", "-Werror", "-fsyntax-only", f"-I{ROOT}/include"),
            *(f"-isystem{sysconfig.get_path('include')}", "-"),
        ],
        input=block.text,
        text=True,
        timeout=50,
        check=True,
    )


# Blocks of these languages are run, or checked, and those that are only shown.
RUN = {"python", "console", "c", "cpp", *PARSERS}
SHOWN = {"sh", "text", "diff", "dockerfile", "cmake", "cython", "ini", ""}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_language_of_a_block_says_whether_it_is_run(page):
    wrong = [str(block) for block in blocks(page) if block.language not in RUN | SHOWN]
    assert wrong == []
    marks = re.findall(r"^<!-- not run", page.read_text(), re.MULTILINE)
    reasons = [block.reason for block in blocks(page) if block.language in RUN]
    assert len(marks) == len(reasons) - reasons.count(None)


def test_server_and_client_of_the_quickstart_talk():
    with subprocess.Popen(
        [sys.executable, "-P", "-c", named("server.py")],
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().removeprefix("listening on port ").strip()
            assert run(named("client.py"), port) == ["bytearray(b'hello')"]
        finally:
            server.kill()


# ---- commands, as somebody types them in the checkout --------------------------

FOLDER = ROOT / "examples"
EXAMPLES = sorted([*FOLDER.glob("*.py"), *FOLDER.glob("compat/*.py")])
COMMAND = re.compile(r"^(?:# |    )?(python .*examples/[\w/]+\.py.*)$", re.MULTILINE)


def commands(example: Path) -> list[str]:
    """The command lines in the first comment of an example."""
    return COMMAND.findall(example.read_text().partition("\nimport ")[0])


def typed(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout, without what is optional in it."""
    line = re.sub(r"\[\w+\]", "", command).replace("python", sys.executable, 1)
    env = {name: os.environ[name] for name in os.environ if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        shlex.split(line), cwd=ROOT, env=env, capture_output=True, text=True, timeout=50
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_says_how_it_is_started_in_the_checkout(example):
    name = example.relative_to(ROOT)
    assert all(f" {name}" in line for line in commands(example))
    assert commands(example) != []
    for line in commands(example):
        assert (" -m " in line) == line.startswith("python -m ucp run -n ")


def test_examples_with_two_sides_start_both_by_one_command():
    for example in EXAMPLES:
        lines = commands(example)
        if any(line.endswith(" HOST PORT") or " HOST PORT " in line for line in lines):
            assert any(f"{example.name} --self" in line for line in lines), example.name


def test_the_list_of_examples_has_every_one():
    text = (FOLDER / "README.md").read_text()
    listed = set(re.findall(r"`((?:compat/)?\w+\.(?:py|c))`", text))
    there = {str(path.relative_to(FOLDER)) for path in EXAMPLES}
    there |= {path.name for path in FOLDER.glob("*.c")}
    assert listed == there


RANKS = [example for example in EXAMPLES if " -m ucp run " in commands(example)[0]]


@pytest.mark.parametrize("example", RANKS, ids=lambda example: example.name)
def test_ranks_of_an_example_start_in_the_checkout(example):
    done = typed(commands(example)[0])
    assert done.returncode == 0, done.stderr


def test_the_commands_of_the_readme_find_the_installed_package():
    _, _, table = (ROOT / "README.md").read_text().partition("\n## Commands\n")
    lines = re.findall(r"`(python .*?)`", table.partition("\n## ")[0])
    assert len(lines) == 5
    assert all(line.startswith("python -m ucp") for line in lines)
    for line in ("python -m ucp info", "python -m ucp demo --help"):
        done = typed(line)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_extras_are_installed_from_the_checkout(page):
    """No package index has the distribution."""
    installs = re.findall(r"pip install '([^']*)'", page.read_text())
    assert all(re.fullmatch(r"\.\[\w+\]", what) for what in installs)


@pytest.mark.skipif(
    not (ROOT / "src/build/release/libumx.so.0").exists(),
    reason="make -C src has not been run",
)
@pytest.mark.timeout(300)  # the library is built again if it was in another way
def test_a_program_in_c_is_built_and_started_as_the_page_says(tmp_path):
    page = (ROOT / "docs/c-api.md").read_text()
    block = next(
        block
        for block in re.findall(r"(?:^    .*\n)+", page, re.MULTILINE)
        if "examples/hello.c" in block
    )
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "MAKEFLAGS": f"-j{os.cpu_count()}",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    with subprocess.Popen(
        ["bash", "-ec", textwrap.dedent(block)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            port = next(line for line in server.stdout if line.strip().isdigit())
            with ucp.sync.connect("127.0.0.1", int(port)) as client:
                client.send(b"from Python")
                assert client.recv_obj() == b"from Python"
            assert server.wait(10) == 0
        finally:
            server.kill()
    ucp.reset()


def test_names_of_older_ucxpy_that_are_missing_are_told():
    _, _, text = (ROOT / "docs/py-api.md").read_text().partition("## Names of ucx-py")
    rows = re.findall(
        r"^\| (.*) \| no, because ", text.partition("\n## ")[0], re.MULTILINE
    )
    names = re.findall(r"\w+", " ".join(rows))
    assert {"fin", "endpoint_reuse", "EndpointReuse", "ListenerHandler"} <= {*names}
    assert [name for name in names if name != "ucp" and hasattr(ucp, name)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page):
    # In C++ a bracket and a parenthesis are the beginning of a lambda.
    text = re.sub(r"^```cpp\n.*?^```$", "", page.read_text(), flags=re.M | re.S)
    links = LINK.findall(text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_questions_of_a_stranger_lead_to_pages():
    """The search of the site shows the page first that docs/conf.py names."""
    conf = (ROOT / "docs/conf.py").read_text()
    table = re.search(r"^SEARCHED = (\{.*?^\})$", conf, re.MULTILINE | re.DOTALL)
    assert table is not None
    searched = ast.literal_eval(table[1])
    named = {word: page for page, words in searched.items() for word in words}
    assert {word: named.get(word) for word in QUESTIONS} == QUESTIONS
    pages = {*named.values()}
    files = [[*ROOT.glob(f"docs/{page}.*")] for page in pages]
    assert len(named) == sum(map(len, searched.values())), "a word leads to one page"
    assert all(files)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page):
    # Files that the example of docs/hacking.md makes are tested in test_hacking.py.
    text = re.sub(r", as `[\w/.]+`[.:]", "", page.read_text())
    assert [name for name in FILE.findall(text) if not (ROOT / name).exists()] == []


def test_drawings_are_as_the_tool_draws_them(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import docs_diagrams

    folder = docs_diagrams.FOLDER
    monkeypatch.setattr(docs_diagrams, "FOLDER", tmp_path)
    for drawing in docs_diagrams.DRAWINGS:
        drawing()
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in folder.iterdir()}
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in drawn if f"(diagrams/{name})" not in text] == []


CLASSES = {
    **{
        kind.__name__: kind
        for kind in (
            ucp.BufferPool,
            ucp.Channel,
            ucp.CommMessage,
            ucp.Communicator,
            ucp.Endpoint,
            ucp.Heap,
            ucp.Listener,
            ucp.Memory,
            ucp.Message,
            ucp.RemoteMemory,
            ucp.TagMessage,
            ucp.TopologicalDistance,
            ucp.Worker,
            ucp.message.MessageListener,
            ucp.message.MessageSender,
            ucp.shuffle.Shuffler,
            ucp.shuffle.StagingQueue,
        )
    },
    "moe.Buffer": ucp.moe.Buffer,
    "sync.Communicator": ucp.sync.Communicator,
    "sync.Endpoint": ucp.sync.Endpoint,
    "sync.Listener": ucp.sync.Listener,
}


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_name_of_a_class_is_in_the_reference(name):
    words = set(re.findall(r"\w+", (ROOT / "docs/py-api.md").read_text()))
    assert {name for name in dir(CLASSES[name]) if name[0] != "_"} <= words


def calls_that_end() -> Iterator[object]:
    """Class, call and what docs/concepts.md says about it."""
    page = (ROOT / "docs/concepts.md").read_text()
    table, _, _ = page[page.index("| class |") :].partition("\n\n")
    head, _line, *rows = re.findall(r"^\|(.*)\|$", table, re.MULTILINE)
    calls = re.findall(r"`(\w+)\(\)`", head)
    for row in rows:
        kinds, *cells = row.split("|")
        for kind in re.findall(r"`([\w.]+)`", kinds):
            for call, cell in zip(calls, cells, strict=True):
                yield pytest.param(kind, call, cell.strip(), id=f"{kind}.{call}")


@pytest.mark.parametrize(("kind", "call", "says"), list(calls_that_end()))
def test_calls_that_end_and_wait_are_as_the_table_says(kind, call, says):
    method = getattr(CLASSES[kind], call, None)
    if says in ("", "ends with its loop"):
        assert method is None
        return
    assert inspect.isroutine(method)  # a property of the class is none
    assert inspect.iscoroutinefunction(method) == (
        says == "coroutine" or call == "wait_closed"
    )
    if call == "closed":
        assert says == "yes"
