# SPDX-License-Identifier: BSD-3-Clause
"""What pyproject.toml, the build backend and the recipe of conda say agrees, and an
old Python is refused before anything is downloaded."""

import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from paths import ROOT

from ucp._version import __version__

BACKEND = ROOT / "packaging/umx_backend.py"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RECIPE = yaml.safe_load(
    (ROOT / "packaging/conda/recipe.yaml").read_text().replace("${{", "$ {{")
)

# The backend, imported by a Python of another version, without setuptools.
IMPORT = """
import collections, sys, types
module = types.ModuleType("setuptools.build_meta")
for name in ("build_editable", "build_sdist", "build_wheel",
             "prepare_metadata_for_build_editable", "prepare_metadata_for_build_wheel"):
    setattr(module, name, None)
sys.modules |= {"setuptools": types.ModuleType("setuptools"), module.__name__: module}
sys.version_info = VERSION
sys.path.insert(0, FOLDER)
import umx_backend
print(umx_backend.get_requires_for_build_wheel())
"""


def import_backend(*version: int, **environ: str) -> subprocess.CompletedProcess[str]:
    code = IMPORT.replace("VERSION", repr(version))
    code = code.replace("FOLDER", repr(str(BACKEND.parent)))
    return subprocess.run(
        [sys.executable, "-I", "-B", "-c", code],
        env=environ,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 8, 0)])
def test_an_old_python_is_refused(version):
    done = import_backend(*version)
    dotted = ".".join(map(str, version))
    assert done.returncode == 1
    assert done.stderr == (
        f"ucp needs CPython 3.11 or newer; {sys.executable} is {dotted}. "
        "Nothing was built.\n"
    )


@pytest.mark.parametrize(
    "environ, asks",
    [({}, True), ({"UCP_UCX": "wheel"}, True), ({"UCP_UCX": "system"}, False)],
    ids=["default", "wheel", "system"],
)
def test_a_build_asks_for_the_package_of_ucx_if_it_uses_it(environ, asks):
    done = import_backend(3, 11, 0, **environ)
    assert done.returncode == 0, done.stderr
    (dependency,) = PYPROJECT["project"]["dependencies"]
    assert (dependency in done.stdout) == asks


def test_nothing_is_required_of_an_old_python():
    system = PYPROJECT["build-system"]
    assert all(one.endswith("; python_version >= '3.11'") for one in system["requires"])
    assert PYPROJECT["project"]["requires-python"] == ">=3.11"


def test_the_addresses_are_mistaken_by_nobody():
    urls = [*PYPROJECT["project"]["urls"].values(), RECIPE["about"]["homepage"]]
    assert all(url.startswith("https://example.invalid/") for url in urls)


def test_extras_are_described():
    page = (ROOT / "docs/install.md").read_text()
    table = page.partition("\n## Extras\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+`) \|", table, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    ours = {"bench", "dev", "docs", "packaging", "test"}
    assert named == PYPROJECT["project"]["optional-dependencies"].keys() - ours


def test_the_recipe_has_the_version():
    assert RECIPE["context"]["version"] == __version__
