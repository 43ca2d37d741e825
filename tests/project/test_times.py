# SPDX-License-Identifier: BSD-3-Clause
"""tools/times.py: how long the tests of each room take."""

import subprocess
import sys

from paths import ROOT

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.channel.test_tags" name="test_a" time="1.5"/>
<testcase classname="tests.channel.test_tags" name="test_b" time="0.25"/>
<testcase classname="tests.rma.test_rma" name="test_c[shm]" time="2.0"/>
</testsuite></testsuites>"""


def times(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / "tools/times.py", *arguments],
        capture_output=True,
        text=True,
    )


def test_python_tests_are_added_up_by_room(tmp_path):
    (tmp_path / "tests.xml").write_text(JUNIT)
    lines = times(tmp_path / "tests.xml").stdout.splitlines()
    assert lines[2:5] == [
        "| rma | 1 | 2.0 | 2.0 test_rma: test_c[shm] |",
        "| channel | 2 | 1.8 | 1.5 test_tags: test_a |",
        "| all | 3 | 3.8 | |",
    ]


def test_programs_in_c_are_in_the_room_of_their_source(tmp_path):
    (tmp_path / "closing.times").write_text("0.500 test_list\n1.250 test_match\n")
    lines = times(tmp_path / "closing.times").stdout.splitlines()
    assert lines[2:] == [
        "| channel | 1 | 1.2 | 1.2 test_match |",
        "| util | 1 | 0.5 | 0.5 test_list |",
        "| all | 2 | 1.8 | |",
        "",
    ]


def test_a_file_that_is_missing_is_named(tmp_path):
    done = times(tmp_path / "none.xml")
    assert done.returncode == 2
    assert f"{tmp_path}/none.xml does not exist: run `make test` first" in done.stderr
