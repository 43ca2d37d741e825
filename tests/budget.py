# SPDX-License-Identifier: BSD-3-Clause
"""How many processes tests start and how many workers they make: a plugin of pytest.

Both are what a run of the tests costs, and unlike seconds they are the same on every
machine. ``tests/budget.toml`` has a budget for each room; a run of a whole room that
exceeds it by more than 5 % fails, and names the tests.

    python tests/budget.py --write [FILE]

writes the numbers of the rooms that were run last into that file, by what pytest has
written with ``--junitxml``: ``build/tests.xml``, which ``make test`` leaves behind.

Counted is what the process that runs a test does in its setup and in itself: programs,
forks, processes of ``multiprocessing``, and what calls ``count_process()``; workers of
``ucp.Worker``. What these processes start in turn is not seen. What is done once in a
process that runs tests, and so as often as there are such processes, is not counted:
fixtures for more than one test, functions that ``functools.cache`` keeps the results
of, and what is done in ``uncounted()``.
"""

import argparse
import collections
import contextlib
import functools
import multiprocessing.process
import os
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

TESTS = Path(__file__).parent
FILE = TESTS / "budget.toml"
LAST = TESTS.parent / "build/tests.xml"
KINDS = ("processes", "workers")
HEAD = """# SPDX-License-Identifier: BSD-3-Clause
# How many processes the tests of each room start and how many workers they make, and
# how many of each file: [processes, workers]. See budget.py, which writes this file.
"""

# ---- counting ----------------------------------------------------------------

_seen = []  # a kind for each process and worker; appending is atomic
_paused = 0  # uncounted() blocks that are open
_COUNTS = pytest.StashKey[collections.Counter]()


def count_process():
    """Count a process that was started in a way of its own, as by a fork server."""
    _count("processes")


@contextlib.contextmanager
def uncounted():
    """A block that is run once for all tests of this process."""
    global _paused
    _paused += 1
    try:
        yield
    finally:
        _paused -= 1


def _count(kind):
    if not _paused:
        _seen.append(kind)


# Modules of Python that start a process by several of the calls below.
_INSIDE = ("subprocess", "multiprocessing.popen_fork")


def _audit(event, arguments):
    """Python calls this before it starts a process, and for much else."""
    if event == "subprocess.Popen":
        _, words, *_ = arguments
        if not _is_question(words) and not _is_cached(sys._getframe()):
            count_process()
    elif event in ("os.fork", "os.forkpty", "os.posix_spawn", "os.system"):
        frame = sys._getframe(1)
        if frame.f_globals.get("__name__") not in _INSIDE and not _is_cached(frame):
            count_process()


def _is_question(words):
    """Is it the command ip, which is asked until a link is up?"""
    first = os.fsdecode(words if isinstance(words, str | bytes) else words[0])
    return os.path.basename(first) == "ip" and "exec" not in words


def _is_cached(frame):
    """Is it in a function whose result is kept?"""
    while frame is not None:
        kept = frame.f_globals.get(frame.f_code.co_name)
        if isinstance(kept, functools._lru_cache_wrapper):
            if kept.__wrapped__.__code__ is frame.f_code:
                return True
        frame = frame.f_back
    return False


def _count_calls(owner, name, kind):
    function = getattr(owner, name)

    @functools.wraps(function)
    def counted(*arguments, **options):
        _count(kind)
        return function(*arguments, **options)

    setattr(owner, name, counted)


@functools.cache
def _begin():
    """Once in a process; there is no end to it."""
    import ucp

    sys.addaudithook(_audit)
    _count_calls(multiprocessing.process.BaseProcess, "start", "processes")
    _count_calls(ucp.Worker, "__new__", "workers")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    _begin()
    _seen.clear()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    if fixturedef.scope == "function":
        return (yield)
    with uncounted():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item):
    """What fixtures do at their end is not counted: the last test has it."""
    item.stash[_COUNTS] = collections.Counter(_seen)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    """The report of a teardown takes the properties along, to the file."""
    if call.when == "teardown" and item.get_closest_marker("cuda") is None:
        counts = item.stash.get(_COUNTS, {})
        item.user_properties += [(kind, counts[kind]) for kind in counts]


# ---- comparing ---------------------------------------------------------------


class Room:
    """What the tests of a room have started, by file and by test."""

    def __init__(self):
        self.files = collections.defaultdict(collections.Counter)
        self.tests = collections.defaultdict(collections.Counter)

    def add(self, file, test, counts):
        self.files[file].update(counts)
        self.tests[file, test.partition("[")[0]].update(counts)

    def total(self, kind):
        return sum(counts[kind] for counts in self.files.values())


def excess(name, room, budget):
    """Lines that say by how much the room exceeds its budget, if it does."""
    for at, kind in enumerate(KINDS):
        total, allowed = room.total(kind), budget[kind]
        if 100 * total <= 105 * allowed:
            continue
        yield (
            f"room {name}: {total} {kind}, {total - allowed} more than the {allowed} "
            f"of tests/{FILE.name}; 5 % are allowed"
        )
        for file, counts in sorted(room.files.items()):
            before = budget.get("files", {}).get(file, (0, 0))[at]
            if counts[kind] > before:
                yield f"  {name}/{file}.py: {before} -> {counts[kind]}, of which"
                yield from largest(room, file, kind)


def largest(room, file, kind):
    found = [
        (counts[kind], test)
        for (where, test), counts in room.tests.items()
        if where == file and counts[kind]
    ]
    for count, test in sorted(found, reverse=True)[:10]:
        yield f"    {count:4} {test}"


class Guard:
    """Where the reports of all processes come together."""

    def __init__(self, config, file):
        self._budgets = tomllib.loads(file.read_text())
        self._whole = list(whole_rooms(config, self._budgets))
        self._rooms = collections.defaultdict(Room)
        self._lines = []

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            path, _, test = report.nodeid.partition("::")
            *_, room, file = path.removesuffix(".py").split("/")
            counts = {k: n for k, n in report.user_properties if k in KINDS}
            self._rooms[room].add(file, test, counts)

    def pytest_sessionfinish(self, session, exitstatus):
        for name in self._whole:
            self._lines += excess(name, self._rooms[name], self._budgets[name])
        if self._lines and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if self._lines:
            terminalreporter.section("budget exceeded")
            for line in self._lines:
                terminalreporter.line(line)
            terminalreporter.line(
                "If a test can do with fewer, let it. If not: "
                "python tests/budget.py --write"
            )


def whole_rooms(config, names):
    """Those whose folder was asked for, or one above it.

    Options may take tests away, of which the rest exceeds nothing.
    """
    root = config.invocation_params.dir
    asked = [root / argument for argument in config.args if "::" not in argument]
    for name in names:
        folder = config.rootpath / "tests" / name
        if any(folder.is_relative_to(path) for path in asked):
            yield name


def pytest_configure(config):
    is_xdist_worker = hasattr(config, "workerinput")
    file = config.rootpath / "tests" / FILE.name
    if not is_xdist_worker and file.exists():
        config.pluginmanager.register(Guard(config, file))


# ---- writing -----------------------------------------------------------------


def read(file):
    """The rooms of what --junitxml has written."""
    rooms = collections.defaultdict(Room)
    for case in ElementTree.parse(file).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            sys.exit(f"{file}: {case.get('name')} has failed: no number of it is right")
        _tests, room, module, *_ = case.get("classname").split(".")
        found = {each.get("name"): each.get("value") for each in case.iter("property")}
        counts = {kind: int(found[kind]) for kind in KINDS if kind in found}
        rooms[room].add(module, case.get("name"), counts)
    return rooms


def text_of(budgets):
    lines = [HEAD]
    for name, budget in sorted(budgets.items()):
        lines.append(f"[{name}]")
        lines += [f"{kind} = {budget[kind]}" for kind in KINDS]
        for file, counts in sorted(budget.get("files", {}).items()):
            lines.append(f"files.{file} = {list(counts)}")
        lines.append("")
    return "\n".join(lines)


def write(budgets, rooms):
    """Replace the budgets of these rooms; says what changes."""
    for name, room in sorted(rooms.items()):
        before = budgets.get(name, dict.fromkeys(KINDS, "none"))
        budgets[name] = {kind: room.total(kind) for kind in KINDS} | {
            "files": {
                file: [counts[kind] for kind in KINDS]
                for file, counts in room.files.items()
                if any(counts.values())
            }
        }
        for kind in KINDS:
            if before[kind] != budgets[name][kind]:
                print(f"{name}: {kind} {before[kind]} -> {budgets[name][kind]}")
    return text_of(budgets)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", required=True)
    parser.add_argument("file", nargs="?", type=Path, default=LAST, metavar="FILE")
    file = parser.parse_args().file
    if not file.exists():
        parser.error(f"{file} does not exist: run `make test` first")
    budgets = tomllib.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.write_text(write(budgets, read(file)))


if __name__ == "__main__":
    main()
