# SPDX-License-Identifier: BSD-3-Clause
"""tests/budget.py: processes that tests start, and workers that they make."""

import os
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import budget
import pytest
from paths import ROOT

PROGRAM = """
import asyncio, functools, multiprocessing, os, subprocess, sys
import pytest
import budget
import ucp

TRUE = ["/bin/true"]

def test_programs():
    subprocess.run(TRUE)
    subprocess.run(TRUE, close_fds=False)
    subprocess.Popen(TRUE).wait()

def test_forks():
    for start in (os.fork, lambda: os.posix_spawn("/bin/true", TRUE, {})):
        pid = start()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

def test_processes_of_multiprocessing():
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()

def test_processes_of_asyncio():
    async def main():
        process = await asyncio.create_subprocess_exec(*TRUE)
        await process.wait()

    asyncio.run(main())

@pytest.mark.parametrize("loops", [1, 2])
def test_workers(loops):
    async def main():
        assert not ucp.current_worker().closed()

    for _ in range(loops):
        asyncio.run(main())

def test_a_start_of_its_own():
    budget.count_process()

def test_ip_is_asked_any_number_of_times():
    subprocess.run(["ip", "link"], executable="/bin/true")

@functools.cache
def kept():
    return subprocess.run(TRUE).returncode

def test_a_result_that_is_kept():
    kept()

@pytest.fixture(scope="module")
def shared():
    subprocess.run(TRUE)

def test_a_fixture_of_several_tests(shared):
    pass

@pytest.fixture
def own():
    subprocess.run(TRUE)

def test_a_fixture_of_one_test(own):
    pass

def test_what_is_done_once_for_all():
    with budget.uncounted():
        subprocess.run(TRUE)

@pytest.mark.skip(reason="not here")
def test_skipped():
    pass
"""
NUMBERS = {
    "test_programs": {"processes": 3},
    "test_forks": {"processes": 2},
    "test_processes_of_multiprocessing": {"processes": 1},
    "test_processes_of_asyncio": {"processes": 1},
    "test_workers": {"workers": 3},
    "test_a_start_of_its_own": {"processes": 1},
    "test_a_fixture_of_one_test": {"processes": 1},
}
SETTINGS = """[pytest]
filterwarnings = ignore::DeprecationWarning
addopts = --import-mode=importlib
"""


# Plugins that happen to be installed take longer to import than the tests run.
PLAIN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(tree, processes, *options):
    """The tests of one room, and how they end if their budget is so many processes."""
    (tree / "pytest.ini").write_text(SETTINGS)
    room = tree / "tests/room"
    room.mkdir(parents=True, exist_ok=True)
    (room / "test_it.py").write_text(PROGRAM)
    given = {"processes": processes, "workers": 3, "files": {"test_it": [processes, 3]}}
    (tree / "tests/budget.toml").write_text(budget.text_of({"room": given}))
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "budget"]
    return subprocess.run(
        [*command, "--junitxml", "tests.xml", *options],
        cwd=tree,
        env={**os.environ, **PLAIN, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
    )


def numbers(tree):
    room = budget.read(tree / "tests.xml")["room"]
    return {test: counts for (_, test), counts in room.tests.items() if counts}


def test_what_tests_start_themselves_is_counted(tmp_path):
    done = run(tmp_path, 9)
    assert done.returncode == 0, done.stdout
    assert numbers(tmp_path) == NUMBERS


def test_a_room_that_exceeds_its_budget_fails_whoever_runs_its_tests(tmp_path):
    done = run(tmp_path, 8, "-p", "xdist", "-n", "2")
    assert done.returncode == 1
    assert numbers(tmp_path) == NUMBERS
    part = done.stdout[done.stdout.index("budget exceeded") :].splitlines()
    assert part[1:6] == [
        "room room: 9 processes, 1 more than the 8 of tests/budget.toml; "
        "5 % are allowed",
        "  room/test_it.py: 8 -> 9, of which",
        "       3 test_programs",
        "       2 test_forks",
        "       1 test_processes_of_multiprocessing",
    ]
    assert "python tests/budget.py --write" in done.stdout


def room_of(**files):
    """A room with a test of so many processes in each file."""
    room = budget.Room()
    for file, processes in files.items():
        room.add(file, "test_any[0]", {"processes": processes})
    return room


def excess(room, processes, **files):
    given = {"processes": processes, "workers": 0, "files": files}
    return list(budget.excess("room", room, given))


def test_five_percent_are_allowed():
    assert excess(room_of(test_it=21), 20, test_it=[20, 0]) == []
    assert excess(room_of(test_it=21), 19, test_it=[19, 0]) != []
    assert excess(room_of(test_it=1), 0) != []


def test_files_that_have_not_grown_are_not_named():
    lines = excess(
        room_of(test_a=10, test_b=5, test_c=2), 14, test_a=[10, 0], test_b=[4, 0]
    )
    assert lines[1:] == [
        "  room/test_b.py: 4 -> 5, of which",
        "       5 test_any",
        "  room/test_c.py: 0 -> 2, of which",
        "       2 test_any",
    ]


@pytest.mark.parametrize(
    ("asked", "whole"),
    [
        ("tests", True),
        ("tests/room", True),
        (".", True),
        ("tests/other", False),
        ("tests/room/test_it.py", False),
        ("tests/room/test_it.py::test_programs", False),
    ],
)
def test_only_whole_rooms_have_a_budget(tmp_path, asked, whole):
    invoked = SimpleNamespace(dir=tmp_path)
    config = SimpleNamespace(invocation_params=invoked, rootpath=tmp_path, args=[asked])
    assert list(budget.whole_rooms(config, ["room"])) == ["room"] * whole


def report(result=""):
    return (
        "<testsuite>"
        '<testcase classname="tests.room.test_it" name="test_a[1]">'
        '<properties><property name="cpu" value="0.1"/>'
        '<property name="processes" value="2"/></properties></testcase>'
        '<testcase classname="tests.room.test_it" name="test_a[2]">'
        '<properties><property name="workers" value="3"/></properties></testcase>'
        f'<testcase classname="tests.room.test_no" name="test_b">{result}</testcase>'
        "</testsuite>"
    )


def test_the_file_is_written_by_what_the_last_run_has_left(tmp_path, capsys):
    (tmp_path / "tests.xml").write_text(report())
    old = {"processes": 1, "workers": 1, "files": {"test_x": [1, 1]}}
    text = budget.write({"other": old}, budget.read(tmp_path / "tests.xml"))
    assert tomllib.loads(text) == {
        "other": old,
        "room": {"processes": 2, "workers": 3, "files": {"test_it": [2, 3]}},
    }
    told = capsys.readouterr().out.splitlines()
    assert told == ["room: processes none -> 2", "room: workers none -> 3"]


def test_no_budget_is_made_of_a_run_that_has_failed(tmp_path):
    (tmp_path / "tests.xml").write_text(report("<failure/>"))
    with pytest.raises(SystemExit, match="test_b has failed"):
        budget.read(tmp_path / "tests.xml")


def test_the_file_of_this_tree_is_as_it_is_written():
    text = budget.FILE.read_text()
    budgets = tomllib.loads(text)
    assert text == budget.text_of(budgets)
    rooms = {path.parent.name for path in budget.TESTS.glob("*/test_*.py")}
    assert budgets.keys() <= rooms
    for room in budgets.values():
        for at, kind in enumerate(budget.KINDS):
            assert (
                sum(counts[at] for counts in room.get("files", {}).values())
                == room[kind]
            )
