# SPDX-License-Identifier: BSD-3-Clause
"""The rooms of the extension lie one above the other."""

import functools
import re
from collections.abc import Iterator

from arrows import (
    FUNCTION,
    NAME,
    OBJECT,
    Arrows,
    circles,
    code_of,
    includes,
    noun,
    room,
    sources,
)

# The rooms of ucp_ext/, each with those that it may include and call.
BELOW: dict[str, set[str]] = {"base": set()}
BELOW["topology"] = BELOW["observe"] = BELOW["buffer"] = {"base"}
BELOW["worker"] = {"buffer", "base"}
BELOW["object"] = BELOW["worker"] | {"worker"}
BELOW["request"] = BELOW["object"] | {"object"}
BELOW["op"] = BELOW["request"] | {"request"}
BELOW["type"] = BELOW["op"] | {"op"}
# Slices: each has the objects, operations and types of one layer of libumx.
BELOW["comm"] = BELOW["op"]
BELOW["shuffle"] = BELOW["comm"] | {"comm"}
BELOW["outputs"] = BELOW["comm"] | {"comm"}
BELOW["proxy"] = BELOW["moe"] = BELOW["comm"] | {"comm"}
BELOW["shmem"] = BELOW["comm"] | {"comm", "op"}
BELOW["capi"] = BELOW["comm"] | {"comm"}
SLICES = {
    "comm",
    "shuffle",
    "outputs",
    "topology",
    "observe",
    "shmem",
    "proxy",
    "moe",
    "capi",
}
BELOW["ucp_ext"] = set(BELOW)  # module.c

# Rooms in which files need each other, and why.
CIRCLES = {
    "base": "the module's state has the exceptions, which are found in it",
    "buffer": "memory is held by its owner, which may be an object of ours",
    "worker": "the loop calls what is due, and what is due has the loop call",
    "object": "libumx tells the object of an endpoint, which asks to be told",
    "request": "an awaitable ends its operation, which ends the awaitable",
    "op": "operations of several kinds are posted by the methods of one",
    "type": "a listener asks libumx to call what it has",
    "capi": "libumx tells of the operations of a request, which asks to be told",
    "moe": "a buffer begins calls, and a call holds its buffer",
    "outputs": "a reader begins fetches, and a fetch holds its reader",
}


def external_names(code: str) -> Iterator[str]:
    for line, name in FUNCTION.findall(code):
        if "static" not in line:
            yield name
    for match in OBJECT.finditer(code):
        if not match.group().startswith("static"):
            yield match.group(1)
    for name in re.findall(r"^EVENT_DROP\((\w+),", code, re.MULTILINE):
        yield f"event_{name}"


def static_names(code: str) -> set[str]:
    return {name for line, name in FUNCTION.findall(code) if "static" in line}


@functools.cache
def arrows() -> Arrows:
    """Which nouns include, or use a function of, which others; and by what."""
    files = sources("ucp_ext/**/*.[ch]")
    headers = {str(path.relative_to(files[0].parents[1])) for path in files}
    codes = {path: code_of(path) for path in files}
    homes = {
        name: noun(path)
        for path, code in codes.items()
        if path.suffix == ".c"
        for name in external_names(code)
    }
    found: Arrows = {}
    for path, code in codes.items():
        for header, first in includes(path):
            if header in headers:
                found[noun(path), f"{first}/{header.split('/')[-1][:-2]}"] = header
        if path.suffix == ".c":
            for name in set(NAME.findall(code)) - static_names(code):
                if name in homes:
                    found[noun(path), homes[name]] = name
    return {(user, used): by for (user, used), by in found.items() if user != used}


def test_every_directory_of_the_extension_is_a_known_room():
    rooms = {path.parent.name for path in sources("ucp_ext/**/*.[ch]")}
    assert rooms == set(BELOW)


def test_rooms_lie_one_above_the_other():
    assert all(BELOW[lower] <= below for below in BELOW.values() for lower in below)
    assert all(room not in below for room, below in BELOW.items())


def test_files_need_only_what_lies_below():
    assert len(arrows()) > 500
    wrong = [
        f"ucp_ext/{user} uses {by} of {used}"
        for (user, used), by in arrows().items()
        if room(used) not in BELOW[room(user)] | {room(user)}
    ]
    assert wrong == []


def test_circles_of_files_are_within_the_rooms_that_are_named():
    rooms = [{room(name) for name in group} for group in circles(arrows())]
    assert [group for group in rooms if len(group) > 1] == []
    assert {name for group in rooms for name in group} == set(CIRCLES)


def test_nothing_needs_a_slice_but_the_module_and_slices_above():
    users = {room(user) for user, used in arrows() if room(used) in SLICES}
    assert users <= SLICES | {"ucp_ext"}


# Calls and fields that give libumx a function of the extension.
REGISTERS = re.compile(
    r"\bumx_(?:worker_submit|worker_set_\w+|ep_set_on_state|listener_set_on_accept"
    r"|log_set|ep_transports|context_options)\s*\("
    r"|\bevent_submit\s*\(|\bEVENT_DROP\("
    r"|\.\s*(?:on_\w+|route|alloc|finish)\s*="
)
USES_PYTHON = re.compile(r"\b_?Py[A-Z_]\w*")


def test_callbacks_of_libumx_are_in_the_files_event_c():
    wrong = [
        f"{path.parent.name}/{path.name}: {match.group()}"
        for path in sources("ucp_ext/**/*.c")
        if path.name != "event.c"
        for match in REGISTERS.finditer(path.read_text())
    ]
    assert wrong == []


def test_callbacks_of_libumx_use_nothing_of_python():
    files = sources("ucp_ext/*/event.c")
    assert len(files) > 5
    text = "\n".join(path.read_text() for path in files)
    assert len(REGISTERS.findall(text)) > 20
    assert set(USES_PYTHON.findall(text)) <= {"Py_ssize_t"}
