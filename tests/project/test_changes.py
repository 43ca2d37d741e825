# SPDX-License-Identifier: BSD-3-Clause
"""Notes of changes, and the releases of which they become parts."""

import re

from paths import ROOT

from ucp import _version

NOTES = ROOT / "docs/changes"
NAME = re.compile(r"\d+\.(?:[\w-]+\.)?(?:breaking|feature|bugfix|doc|packaging)\.md")
SECTION = re.compile(r"^## (\d+\.\d+\.\d+)$", re.MULTILINE)


def test_a_note_is_named_after_its_issue_and_its_kind():
    names = [path.name for path in NOTES.iterdir() if path.name != "README.md"]
    assert [name for name in names if not NAME.fullmatch(name)] == []


def test_a_note_says_something():
    assert [path.name for path in NOTES.iterdir() if not path.read_text().strip()] == []


def test_the_newest_section_is_that_of_the_version():
    sections = SECTION.findall((ROOT / "CHANGELOG.md").read_text())
    numbers = [tuple(map(int, section.split("."))) for section in sections]
    assert sections[0] == _version.__version__
    assert numbers == sorted(set(numbers), reverse=True)
