# SPDX-License-Identifier: BSD-3-Clause
"""CITATION.cff says what pyproject.toml and the package say."""

import tomllib

import yaml
from paths import ROOT

import ucp

REQUIRED = {"cff-version", "message", "title", "authors"}
OTHERS = {"type", "abstract", "version", "license", "keywords"}


def test_the_citation_agrees_with_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == ucp.__version__
    assert citation["license"] == project["license"]
    assert citation["authors"] == project["authors"]


def test_the_citation_has_fields_of_version_1_2_0_of_the_format():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {*citation} - OTHERS == REQUIRED
    assert citation["type"] == "software"
    assert all(isinstance(citation[name], str) for name in ("message", "title"))
    assert all({*author} == {"name"} for author in citation["authors"])
