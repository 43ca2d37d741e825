# SPDX-License-Identifier: BSD-3-Clause
"""Few sentences have to be read twice, and tools/english.py finds those."""

import subprocess
import sys

import pytest
from paths import ROOT

TOOL = [sys.executable, str(ROOT / "tools/english.py")]


def english(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*TOOL, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


@pytest.mark.parametrize(("group", "most"), [("pages", 1.6), ("docstrings", 9.0)])
def test_few_sentences_have_to_be_read_twice(group, most):
    """A sentence that is too much is shown by --list."""
    done = english("--only", group, "--max", most)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("kind", "sentence", "better"),
    [
        ("also", "It is kept, also if the peer dies.", "It is kept. It also stays."),
        ("is-no", "That is no error.", "There is no error. It is no longer one."),
        ("that-of", "It has the rank and that of a peer.", "It has that rank."),
        ("what", "What was sent is kept.", "What was sent? This is what was sent."),
        ("what", "It ends; what was sent is kept.", "It keeps what was sent."),
        ("own", "It has a worker of its own.", "It has its own worker."),
        ("whatever", "It ends, whatever happens.", "It always ends."),
        ("hand", "It is given back to the queue.", "It returns to the queue."),
        ("hand", "A block is handed out.", "It is on the other hand, and out."),
    ],
)
def test_turns_are_found(kind, sentence, better, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\nFirst of all. {sentence}\n")
    done = english("--list", "--max", "0", page)
    assert done.returncode == 1
    assert f"{page}:3: {kind}: {sentence}" in done.stdout
    page.write_text(f"# Title\n\nFirst of all. {better}\n")
    done = english("--list", "--max", "0", page)
    assert done.returncode == 0, done.stdout


def test_code_is_not_counted(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Text `, also of its own` ends.\n\n```sh\nWhat was sent\n```\n")
    assert english("--max", "0", page).returncode == 0


def test_docstrings_are_counted(tmp_path):
    module = tmp_path / "module.py"
    module.write_text('"""Do it.\n\nArgs:\n    size: whatever fits.\n"""\n')
    done = english("--list", "--max", "0", module)
    assert done.returncode == 1
    assert "whatever" in done.stdout


def test_a_file_that_does_not_exist_is_named():
    done = english("nowhere.md")
    assert done.returncode == 2
    assert "nowhere.md" in done.stderr
