# SPDX-License-Identifier: BSD-3-Clause
"""tools/times.py: how long the tests of each room take."""

import os
import subprocess
import sys
from xml.etree import ElementTree

from paths import ROOT

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.channel.test_tags" name="test_a" time="1.5">
<properties><property name="cpu" value="0.5"/></properties></testcase>
<testcase classname="tests.channel.test_tags" name="test_b" time="0.25">
<properties><property name="cpu" value="0.125"/></properties></testcase>
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
        "| rma | 1 | 2.0 | ? | 2.0 test_rma: test_c[shm] |",
        "| channel | 2 | 1.8 | 0.6 | 1.5 test_tags: test_a |",
        "| all | 3 | 3.8 | 0.6 | |",
    ]


def test_the_slowest_have_both_times(tmp_path):
    (tmp_path / "tests.xml").write_text(JUNIT)
    lines = times("--slowest", "2", tmp_path / "tests.xml").stdout.splitlines()
    assert lines[-4:] == [
        " seconds      CPU",
        "     2.0        ?  rma  test_rma: test_c[shm]",
        "     1.5      0.5  channel  test_tags: test_a",
        "",
    ]


def test_programs_in_c_are_in_the_room_of_their_source(tmp_path):
    written = "0.500 0.250 test_list\n1.250 0.500 test_match\n"
    (tmp_path / "closing.times").write_text(written)
    lines = times(tmp_path / "closing.times").stdout.splitlines()
    assert lines[2:] == [
        "| channel | 1 | 1.2 | 0.5 | 1.2 test_match |",
        "| util | 1 | 0.5 | 0.2 | 0.5 test_list |",
        "| all | 2 | 1.8 | 0.8 | |",
        "",
    ]


def test_times_of_older_runs_have_no_cpu(tmp_path):
    (tmp_path / "closing.times").write_text("0.500 test_list\n")
    lines = times(tmp_path / "closing.times").stdout.splitlines()
    assert lines[2] == "| util | 1 | 0.5 | ? | 0.5 test_list |"


def test_a_program_in_c_has_its_own_cpu_beside_the_clock(tmp_path):
    programs = {
        "busy": "n=0; while [ $n -lt 300000 ]; do n=$((n + 1)); done",
        "idle": "sleep 0.3",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    command = ["sh", ROOT / "tests/c/run.sh", "closing", *programs]
    paths = [f"./{name}" if name in programs else name for name in command]
    done = subprocess.run(paths, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "closing.times").read_text().split("\n")[:-1]
    found = {line.split()[2]: [*map(float, line.split()[:2])] for line in lines}
    assert found.keys() == programs.keys()
    assert found["idle"][0] >= 0.3 > found["idle"][1]
    assert found["busy"][1] > found["idle"][1]


def test_a_python_test_has_the_cpu_of_its_processes(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import subprocess, sys\n"
        "BUSY = 'import time\\nwhile time.process_time() < 0.3: pass'\n"
        "def test_busy(): subprocess.run([sys.executable, '-c', BUSY])\n"
        "def test_idle(): pass\n"
    )
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "cpu"]
    done = subprocess.run(
        [*command, "--junitxml", "tests.xml", "--rootdir", ".", "-c", "/dev/null"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    cases = ElementTree.parse(tmp_path / "tests.xml").iter("testcase")
    busy, idle = (float(case.find(".//property").get("value")) for case in cases)
    assert busy >= 0.3 > idle


def test_a_file_that_is_missing_is_named(tmp_path):
    done = times(tmp_path / "none.xml")
    assert done.returncode == 2
    assert f"{tmp_path}/none.xml does not exist: run `make test` first" in done.stderr
