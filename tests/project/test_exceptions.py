# SPDX-License-Identifier: BSD-3-Clause
"""The table of exceptions in docs/py-api.md has each class, and what to do."""

import re

from paths import ROOT

from ucp import exceptions

ROW = re.compile(r"^\| `(UCX\w+)` \| (.*) \| (.*) \|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, str]]:
    section = (ROOT / "docs/py-api.md").read_text().split("## Exceptions")[1]
    table = section.split("\n## ")[0]
    return {name: (when, remedy) for name, when, remedy in ROW.findall(table)}


def test_the_table_has_each_class_once():
    section = (ROOT / "docs/py-api.md").read_text().split("## Exceptions")[1]
    names = [name for name, _, _ in ROW.findall(section.split("\n## ")[0])]
    assert sorted(names) == sorted(exceptions.__all__)


def test_each_row_says_when_and_what_to_do():
    for name, (when, remedy) in rows().items():
        assert len(when) > 10 and len(remedy) > 10, name


def test_the_docstring_names_each_class():
    text = exceptions.__doc__ or ""
    assert [name for name in exceptions.__all__ if name not in text] == []
