# SPDX-License-Identifier: BSD-3-Clause
"""tools/draw.py: functions to be read by somebody who does not know the code."""

import re
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

HEADER = """/* ---- ring.c ------------------------------------------------
 */

/* Make a ring of
 * `size` slots. */
ring *
ring_create(int size);
void ring_destroy(ring *self);
"""
C = """static int count; /* of rings */

static int
check(int size)
{
    if (size < 0) {
        return -1;
    }
    return 0;
}

ring *
ring_create(int size)
{
    return (check(size) < 0) ? NULL : &rings[count++];
}

/* Give it back: there is
 * another one. */
void
ring_destroy(ring *self)
{
    count--;
}
"""
PYTHON = '''class Ring:
    # Called by the loop.
    @property
    def size(self):
        """The slots."""
        return sum(map(lambda each: 1, self.slots))


def walk(ring):
    def step():
        return 1

    return step
'''


@pytest.fixture
def tree(tmp_path):
    """A small tree of sources, and the tool in it."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/draw.py", tmp_path / "tools")
    for name, text in {
        "src/util/ring.h": HEADER,
        "src/util/ring.c": C,
        "src/build/made.c": C,
        "ucp/ring.py": PYTHON,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def draw(root, *arguments):
    return subprocess.run(
        [sys.executable, root / "tools/draw.py", *arguments],
        capture_output=True,
        text=True,
    )


def drawn(root, *arguments):
    """What is printed of each function, by its heading."""
    done = draw(root, *arguments)
    assert done.returncode == 0, done.stderr
    parts = re.split(r"\n#### (.+)\n", done.stdout)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_all_functions_can_be_drawn_and_builds_have_none(tree):
    assert drawn(tree, "100").keys() == {
        "src/util/ring.c:4: check",
        "src/util/ring.c:13: ring_create",
        "src/util/ring.c:21: ring_destroy",
        "ucp/ring.py:4: Ring.size",
        "ucp/ring.py:9: walk",
    }


def test_a_function_has_its_own_comment(tree):
    found = drawn(tree, "100")
    assert found["src/util/ring.c:21: ring_destroy"].startswith(
        "/* Give it back: there is\n * another one. */\nvoid\nring_destroy("
    )
    assert found["src/util/ring.c:4: check"].startswith("static int\ncheck(")
    assert found["ucp/ring.py:4: Ring.size"].startswith("    # Called by the loop.\n")


def test_what_a_header_says_comes_first(tree):
    assert drawn(tree, "100")["src/util/ring.c:13: ring_create"].startswith(
        "(src/util/ring.h:7)\n/* Make a ring of\n * `size` slots. */\nring *\n"
        "ring_create(int size);\n\nring *\nring_create(int size)\n{\n"
    )


def test_a_room_is_drawn_alone(tree):
    assert {*drawn(tree, "1", "ucp")} < {
        "ucp/ring.py:4: Ring.size",
        "ucp/ring.py:9: walk",
    }


def test_one_seed_draws_the_same_functions():
    first, second, other = (
        drawn(ROOT, "--seed", seed, "20") for seed in ("3", "3", "4")
    )
    assert len(first) == 20
    assert first == second != other


def test_functions_of_the_library_begin_where_the_heading_says():
    for heading in drawn(ROOT, "200"):
        place, name = heading.split(": ")
        path, line = place.split(":")
        text = (ROOT / path).read_text().splitlines()[int(line) - 1]
        assert f"{name.rpartition('.')[2]}(" in text


@pytest.mark.parametrize(
    ("room", "error"),
    [
        ("tests", "'tests' is not in src, ucp_ext, ucp"),
        ("src/none", "there is no directory 'src/none'"),
    ],
)
def test_a_room_without_functions_is_refused(tree, room, error):
    done = draw(tree, "1", room)
    assert done.returncode == 2
    assert error in done.stderr
