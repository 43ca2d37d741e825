# SPDX-License-Identifier: BSD-3-Clause
"""docs/hacking.md: what it names exists, and what it tells to do works."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

import ucp

PAGE = (ROOT / "docs/hacking.md").read_text()
OPERATION = PAGE[PAGE.index("## To add an op") : PAGE.index("## To add a layer")]
LAYER = PAGE[PAGE.index("## To add a layer") : PAGE.index("## Find a fault")]
EXAMPLES = (OPERATION, LAYER)

NOT_COPIED = shutil.ignore_patterns(
    ".*", "build", "*.egg-info", "__pycache__", "corpus", "*.so"
)

STEP = re.compile(r"^\| \d+\. .* \| `(.+)` \| `(\w+)` \|$", re.MULTILINE)
NEW_FILE = re.compile(
    r", as `([\w/.]+)`[.:][^`]*```(?:c|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
CHANGE = re.compile(r"^```diff\n\+\+\+ ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def new_files(example: str) -> dict[str, str]:
    return dict(NEW_FILE.findall(example))


def changes(example: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """File, the lines that it has, and the lines that follow these as new ones."""
    for name, body in CHANGE.findall(example):
        lines = body.splitlines()
        there = [line[1:] for line in lines if line[0] == " "]
        added = [line[1:] for line in lines if line[0] == "+"]
        assert lines == [f" {line}" for line in there] + [f"+{line}" for line in added]
        yield name, there, added


def apply(example: str, tree: Path) -> None:
    for name, text in new_files(example).items():
        assert not (tree / name).exists()
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    for name, there, added in changes(example):
        text = (tree / name).read_text()
        before = "\n" + "\n".join(there) + "\n"
        assert text.count(before) == 1, f"{name} has not once: {before}"
        after = "\n" + "\n".join(there + added) + "\n"
        (tree / name).write_text(text.replace(before, after))


def test_every_room_is_in_the_table():
    rooms = {f"src/{path.parent.name}" for path in ROOT.glob("src/*/*.c")}
    rooms |= {f"ucp_ext/{path.parent.name}" for path in ROOT.glob("ucp_ext/*/*.c")}
    rooms |= {f"ucp/{path.parent.name}" for path in ROOT.glob("ucp/*/*.py")}
    listed = set(re.findall(r"^\| `([\w/]+)` \|", PAGE, re.MULTILINE))
    assert rooms <= listed
    assert [room for room in listed if not (ROOT / room).is_dir()] == []


@pytest.mark.parametrize(("name", "function"), STEP.findall(PAGE))
def test_a_message_takes_the_way_that_is_told(name, function):
    text = (ROOT / name).read_text()
    assert re.search(rf"^(?:.* )?{function}(?:\(|\[| = )", text, re.MULTILINE)


def test_targets_of_make_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?:`|^    |&& )make ([a-z][\w-]*)", PAGE, re.M))
    assert len(targets) > 8
    assert [t for t in targets if f"\n{t}:" not in makefile] == []


def test_the_example_is_as_short_as_it_says():
    files = [name for name in new_files(OPERATION) if name.startswith("ucp_ext/")]
    in_c = [
        (name, added)
        for name, _, added in changes(OPERATION)
        if name.startswith("ucp_ext/")
    ]
    assert len(files) == 1
    lines = [line for _, added in in_c for line in added if line]
    assert (len(lines), len(in_c)) == (2, 2)
    assert "one new file and two lines in two others" in OPERATION


def library() -> Path:
    """libumx as ``make -C src`` has built it, if it is up to date."""
    built = ROOT / "src/build/release/libumx.a"
    patterns = ("src/*/*.[ch]", "include/umx/*.h")
    sources = [path for pattern in patterns for path in ROOT.glob(pattern)]
    newest = max(path.stat().st_mtime for path in sources)
    if not built.exists() or built.stat().st_mtime < newest:
        pytest.skip("make -C src has not been run")
    return built


def run(tree: Path, *command: str | Path, **env: str) -> str:
    done = subprocess.run(
        command,
        cwd=tree,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=["operation", "layer"])
def test_an_example_is_laid_out_as_the_rest(example, tmp_path):
    tools = Path(sys.executable).parent
    if not (tools / "ruff").exists() or not (tools / "clang-format").exists():
        pytest.skip("no ruff, or no clang-format")
    changed = {name for name, _, _ in changes(example)}
    # ruff takes modules for this project's if they are there.
    for folder in ("ucp", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=NOT_COPIED)
    for name in {"pyproject.toml", ".clang-format", *changed}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    apply(example, tmp_path)
    names = {*new_files(example), *changed}
    in_c = [name for name in names if name.startswith(("ucp_ext/", "src/"))]
    in_python = [name for name in names if name.endswith((".py", ".pyi"))]
    run(tmp_path, tools / "clang-format", "--dry-run", "-Werror", *in_c)
    run(tmp_path, tools / "ruff", "check", *in_python)
    run(tmp_path, tools / "ruff", "format", "--check", *in_python)


def compile_layer(tree: Path) -> Iterator[Path]:
    """What ``make -C src`` would compile beside libumx."""
    compiler = shlex.split(sysconfig.get_config_var("CC"))
    flags = ["-std=gnu11", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
    for name in new_files(LAYER):
        if name.startswith("src/"):
            target = tree / f"{Path(name).stem}.o"
            run(tree, *compiler, *flags, "-Iinclude", "-Isrc", "-c", name, "-o", target)
            yield target


def link_library(tree: Path, objects: list[Path], folder: Path) -> None:
    compiler = shlex.split(sysconfig.get_config_var("CC"))
    folder.mkdir(parents=True)
    run(
        tree,
        *(*compiler, "-shared", "-pthread", "-Wl,-soname,libumx.so.0"),
        *("-o", folder / "libumx.so.0", "-Wl,--whole-archive", *objects),
        *("-Wl,--no-whole-archive", f"-L{Path(ucp.which_ucx().path).parent}"),
        *("-l:libucp.so.0", "-l:libucs.so.0"),
    )


# Half a minute of one core: the extension is compiled, libumx is not.
@pytest.mark.timeout(300)
def test_the_examples_build_and_pass_their_tests(tmp_path):
    pytest.importorskip("setuptools", "77")
    libumx = library()
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, ignore=NOT_COPIED)
    for example in EXAMPLES:
        apply(example, tree)
    # A library that is newer than its sources is not built again.
    link_library(tree, [*compile_layer(tree), libumx], tree / "built/libumx")
    build = ("setup.py", "build", "--build-base=built", "build_ext", "--inplace")
    python = (sys.executable, "-P")
    run(tree, *python, *build, UCP_DEBUG="1")
    reference = "every_public_name_of_a_class_is_in_the_reference and Endpoint"
    docs = ["tests/project/test_docs.py", "-k", reference]
    layers = sorted(str(path) for path in tree.glob("tests/project/test_layers*.py"))
    rooms = ["tests/project/test_hacking.py", "-k", "every_room or targets"]
    own = ["tests/core/test_noop.py", "tests/echo"]
    sources = ["tests/project/test_sources.py", "-k", "rooms or source"]
    for tests in (own, docs, layers, rooms, sources):
        output = run(tree, *python, "-m", "pytest", "-q", *tests, PYTHONPATH=str(tree))
        assert re.search(r"^[1-9]\d* passed", output, re.MULTILINE), output
