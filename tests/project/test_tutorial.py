# SPDX-License-Identifier: BSD-3-Clause
"""The programs in docs/tutorial/ and docs/howto/, and the sessions of all pages, do
what they show.

A Python block whose first line is ``# name.py`` is a file of its page. Any other
Python block is a whole program, which prints what its comments behind ``print()``
say. A console block is a session in a folder with the page's files: its commands are
run, and print the lines below them. ``...`` stands for anything, also for lines.
The output of ranks may come in any order. A block with a mark before it, as
docs/hacking.md says, is not run. A server is a program that says
``listening on port``: it runs until the page ends, and where its port is named later
the port is meant that it has.
"""

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pages import ENVIRONMENT, Block, blocks
from pages import PAGES as ALL_PAGES

PAGES = [page for page in ALL_PAGES if page.parent.name in ("tutorial", "howto")]
PROMISE = re.compile(r"print\(.*\)  # (.+)$", re.MULTILINE)
PORT = re.compile(r"listening on port (\d+)")
LIMIT = 100  # seconds for a program; Dask takes long to start on a busy machine
pytestmark = pytest.mark.timeout(3 * LIMIT)
SESSION_ENVIRONMENT = {
    **ENVIRONMENT,
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "error",
}


def run_blocks(page: Path, language: str) -> list[Block]:
    return [
        block
        for block in blocks(page)
        if block.language == language and block.reason is None
    ]


def programs() -> Iterator[object]:
    for page in PAGES:
        for block in run_blocks(page, "python"):
            if block.file is None:
                yield pytest.param(block.text, id=str(block))


@pytest.mark.parametrize("code", list(programs()))
def test_a_program_prints_what_it_says(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=SESSION_ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for promise in PROMISE.findall(code):
        assert promise in done.stdout.splitlines()


def compare(printed: str, shown: list[str], *, in_order: bool) -> None:
    lines = printed.splitlines()
    if not in_order:
        lines, shown = sorted(lines), sorted(shown)
    pattern = ".*".join(
        re.escape(part) for part in "".join(f"{line}\n" for line in shown).split("...")
    )
    text = "".join(f"{line}\n" for line in lines)
    assert re.fullmatch(pattern, text, re.DOTALL), printed


class Session:
    """The commands of a page, in a folder that has its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: list[tuple[subprocess.Popen[str], list[str]]] = []
        self.ports: dict[str, str] = {}

    def start(self, command: str) -> subprocess.Popen[str]:
        for shown, port in self.ports.items():
            command = re.sub(rf"\b{shown}\b", port, command)
        words = shlex.split(command)
        assert words[0] == "python", "a console block has commands that are run"
        return subprocess.Popen(
            [sys.executable, *words[1:]],
            cwd=self.folder,
            env=SESSION_ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str, shown: list[str]) -> None:
        process = self.start(command)
        port = PORT.search(shown[0]) if shown else None
        if port is not None:
            self.servers.append((process, shown))
            assert process.stdout is not None
            line = process.stdout.readline()
            actual = PORT.search(line)
            assert actual is not None, line + process.stdout.read()
            self.ports[port[1]] = actual[1]
            return
        try:
            printed, _ = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
        compare(printed, shown, in_order=" ucp run " not in command)

    def end(self) -> None:
        """Interrupt the servers as Ctrl-C does."""
        for process, shown in self.servers:
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=LIMIT)
            compare(printed, shown[1:], in_order=False)

    def kill(self) -> None:
        for process, _ in self.servers:
            process.kill()
            process.wait()


SESSIONS = [page for page in ALL_PAGES if run_blocks(page, "console")]


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.stem)
def test_a_session_prints_what_is_shown(page, tmp_path):
    for block in run_blocks(page, "python"):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text)
    session = Session(tmp_path)
    try:
        for block in run_blocks(page, "console"):
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                session.run(command, [line for line in shown if line])
        session.end()
    finally:
        session.kill()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_of_a_page_is_used(page):
    names = [block.file for block in run_blocks(page, "python") if block.file]
    used = re.findall(r"^from (\w+) import", page.read_text(), re.MULTILINE)
    used = [f"{name}.py" for name in used]
    for block in run_blocks(page, "console"):
        used += block.text.split()
    assert len(names) == len(set(names))
    assert set(names) <= set(used)


def test_manifests_are_valid():
    pages = [page for page in PAGES if run_blocks(page, "yaml")]
    assert pages != []
    for page in pages:
        for block in run_blocks(page, "yaml"):
            for manifest in yaml.safe_load_all(block.text):
                assert {"apiVersion", "kind", "metadata", "spec"} == {*manifest}, block
