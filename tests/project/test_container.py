# SPDX-License-Identifier: BSD-3-Clause
"""The container in .devcontainer has what the Makefile asks for."""

import json
import re

from paths import ROOT

FOLDER = ROOT / ".devcontainer"


def test_the_container_has_the_packages_that_the_makefile_needs():
    needed = re.findall(r"\$\(need\) ([\w-]+) ", (ROOT / "Makefile").read_text())
    installed = (FOLDER / "Dockerfile").read_text().split()
    assert {"build-essential", "libcmocka-dev"} <= {*needed}
    assert {*needed} <= {*installed}


def test_the_container_begins_with_the_demo():
    settings = json.loads((FOLDER / "devcontainer.json").read_text())
    assert (FOLDER / settings["build"]["dockerfile"]).exists()
    assert settings["postCreateCommand"] == "make demo"
    user = settings["remoteUser"]
    assert f"USER {user}\n" in (FOLDER / "Dockerfile").read_text()
