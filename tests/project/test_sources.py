# SPDX-License-Identifier: BSD-3-Clause
"""Each source file has a test that bears its name, or names it.

A source file goes by its tree and its stem: ``channel/land`` is src/channel/land.c,
and its header; ``ext/loan`` is loan.c, wherever in ucp_ext; ``ucp/pool`` is pool.py or
_pool.py in ucp, and ``compat/arr`` is arr.py below ucp/compat. A package goes by the
name of its folder. So a file that moves within its tree keeps its name here.

``tests/c/channel/test_land.c`` and ``tests/channel/test_land.py`` are tests of
``channel/land`` by their names, and the second one of ``ext/land`` and ``ucp/land``,
too. Any other test names what it tests, in lines below its licence::

    /* tests: channel/land lend/note */
    # tests: ext/loan ucp/pool
"""

import re
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT, TESTS

LINE = re.compile(r"^(?:# tests: (.+)|/\* tests: (.+) \*/)$", re.MULTILINE)

# Folders of ucp whose modules are not found by a name that begins with "ucp".
APART = ("compat", "benchmarks")


def has_code(path: Path) -> bool:
    """A header of declarations only needs no test."""
    return path.suffix == ".c" or "\nstatic inline" in path.read_text()


def sources() -> dict[str, list[Path]]:
    """The files of each source."""
    found: dict[str, list[Path]] = {}
    for path in filter(has_code, ROOT.glob("src/*/*.[ch]")):
        found.setdefault(f"{path.parent.name}/{path.stem}", []).append(path)
    for path in filter(has_code, (ROOT / "ucp_ext").rglob("*.[ch]")):
        found.setdefault(f"ext/{path.stem}", []).append(path)
    for path in (ROOT / "ucp").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        stem = parts[-2] if parts[-1] == "__init__" else parts[-1]
        tree = parts[1] if parts[1] in APART else parts[0]
        found.setdefault(f"{tree}/{stem.strip('_')}", []).append(path)
    return found


def all_tests() -> Iterator[Path]:
    yield from TESTS.glob("c/*/test_*.c")
    yield from TESTS.glob("*/test_*.py")


def own_names(test: Path) -> set[str]:
    """What a test of this name and room is one of."""
    room, stem = test.parent.name, test.stem.removeprefix("test_")
    trees = ("ext", "ucp") if test.suffix == ".py" and room not in APART else ()
    return {f"{tree}/{stem}" for tree in (room, *trees)}


def named(test: Path) -> list[str]:
    """What a test says that it tests."""
    return [
        name
        for pair in LINE.findall(test.read_text())
        for name in " ".join(pair).split()
    ]


def rooms() -> set[str]:
    """The names of the rooms of src and of ucp, and what tests have beside these."""
    found = {path.parent.name for path in ROOT.glob("src/*/*.c")}
    found |= {path.parent.name.strip("_") for path in ROOT.glob("ucp/*/__init__.py")}
    return found | {"ext", "native", "network", "project", "soak", "poison", "devices"}


def test_tests_lie_in_folders_that_are_named_after_rooms():
    assert {test.parent.name for test in all_tests()} <= rooms()


def test_each_source_has_a_test():
    tested = {name for test in all_tests() for name in own_names(test) | {*named(test)}}
    missing = {name: files for name, files in sources().items() if name not in tested}
    assert missing == {}  # name each in the test of it, as this file's text says


def test_each_name_in_a_test_is_that_of_a_source():
    known = sources()
    wrong = {test.name: set(named(test)) - known.keys() for test in all_tests()}
    assert {test: names for test, names in wrong.items() if names} == {}


def test_no_test_names_what_its_own_name_says():
    twice = {test.name: own_names(test) & {*named(test)} for test in all_tests()}
    assert {test: names for test, names in twice.items() if names} == {}


def c_tests() -> Iterator[tuple[Path, set[str]]]:
    """Each test in C, and the words by which it is linked."""
    for test in ROOT.glob("tests/c/*/test_*.c"):
        link = re.search(r"^/\* link: (.*) \*/$", test.read_text(), re.MULTILINE)
        yield test, {*link[1].split()} if link else set()


# Words of tests that run optimised as well; those that have none of these, and
# replace functions of the library, cannot: the library is optimised as a whole.
OPTIMISED = {"optimised", "tsan"}


def replaces_functions(words: set[str]) -> bool:
    return any(word.startswith("wrap=um") for word in words)


def test_c_tests_with_threads_run_optimised_as_well():
    """`make test` runs the other ones under AddressSanitizer only."""
    threads = re.compile(r"\bpthread_create\b")
    missing = set()
    for test, words in c_tests():
        helpers = [ROOT / "tests/c" / f"{word}.c" for word in words]
        sources = [file.read_text() for file in (test, *helpers) if file.exists()]
        includes_source = any('.c"\n' in source for source in sources)
        if replaces_functions(words) or includes_source or words & OPTIMISED:
            continue
        if any(map(threads.search, sources)):
            missing.add(test.name)
    assert missing == set()  # say so in its line "link:": src/Makefile


def test_c_tests_that_run_optimised_replace_no_function_of_the_library():
    """Their calls would go past what they replace."""
    for test, words in c_tests():
        assert not (words & OPTIMISED and replaces_functions(words)), test
