# SPDX-License-Identifier: BSD-3-Clause
"""doctor: UCX, its transports, and variables of the environment.

UCX is looked at in a process of its own, which may crash, and so that doctor itself
runs without UCX.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import subprocess
from typing import Any

from .._core import startup
from .finding import Findings, ended, note, ok, problem

# Oldest and newest UCX that ucp was tested with.
_TESTED = (1, 13), (1, 23)
_LIMIT = 60.0  # seconds

# What the process of its own runs: a line of JSON is its last.
_PROBE = """
import ctypes, json, os, tempfile
import ucp
from ucp._core import context
which = ucp.which_ucx()
found = {"version": which.version, "kind": which.kind, "path": which.path}
found["devices"] = context.get_devices()
print(json.dumps(found), flush=True)
# All variables that UCX knows: as 'ucx_info -c -f' prints them.
libucs = ctypes.CDLL("libucs.so.0", mode=os.RTLD_NOLOAD)
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fclose.argtypes = (ctypes.c_void_p,)
with tempfile.NamedTemporaryFile() as file:
    stream = libc.fopen(file.name.encode(), b"w")
    options = ctypes.addressof(ctypes.c_char.in_dll(libucs, "ucs_config_global_list"))
    libucs.ucs_config_parser_print_all_opts.argtypes = (
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p
    )
    libucs.ucs_config_parser_print_all_opts(stream, b"UCX_", 1 | 8, options, None)
    libc.fclose(stream)
    lines = file.read().decode(errors="replace").splitlines()
names = {line.partition("=")[0].strip("# ") for line in lines if "=" in line}
found["variables"] = sorted(name for name in names if name.startswith("UCX_"))
print(json.dumps(found))
"""

#: Variables of ucp: docs/environment.md tells of them.
VARIABLES = (
    "UCP_DEBUG",
    "UCP_DUMP_SIGNAL",
    "UCP_LATENCY",
    "UCP_LOG_LEVEL",
    "UCP_MEETING",
    "UCP_RANK",
    "UCP_ROOT",
    "UCP_SANITIZE",
    "UCP_SIZE",
    "UCP_STATS",
    "UCP_TOKEN",
    "UCP_TOKEN_FILE",
    "UCP_TRACE",
    "UCP_UCX",
    "UCP_WERROR",
    "UCXPY_CONNECT_TIMEOUT",
    "UCXPY_IFNAME",
    "UCXPY_LOG_LEVEL",
)


def check() -> Findings:
    """Look at UCX."""
    found, said = _probe()
    if found is None:
        yield problem(
            "UCX",
            f"UCX cannot be used: {said}",
            _remedy(said),
        )
        yield from _variables(None)
        return
    yield from _version(found)
    yield from _transports(found["devices"])
    yield from _variables(found.get("variables"))


def _remedy(said: str) -> str:
    if "token" in said.lower():
        return (
            "Set one of UCP_TOKEN and UCP_TOKEN_FILE, or none. The secret must not be "
            "empty, and only this user may be allowed to read the file."
        )
    return (
        "Look at what was found above. Unset the variables UCX_* of the environment, "
        "one after the other, if there are some."
    )


def transports() -> set[str] | None:
    """The names of the transports that UCX may use; None: it cannot be used."""
    found, _ = _probe()
    return None if found is None else {name for name, _ in found["devices"]}


@functools.cache
def _probe(with_options: bool = True) -> tuple[dict[str, Any] | None, str]:
    """What UCX says of itself, with or without variables UCX_*; None, and why."""
    env = dict(os.environ)
    if not with_options:
        env = {name: env[name] for name in env if not name.startswith("UCX_")}
    try:
        done = subprocess.run(
            [*startup.python(), "-c", _PROBE],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT,
            env=env,
        )
    except OSError as exc:
        return None, f"no process can be started: {exc.strerror}."
    except subprocess.TimeoutExpired:
        return None, f"it does not start in {_LIMIT:g} s."
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if lines:  # what comes after the first line may have failed
        found: dict[str, Any] = json.loads(lines[-1])
        return found, ""
    errors = [line for line in done.stderr.splitlines() if line.strip()]
    said = errors[-1] if errors else f"the process {ended(done.returncode)}."
    said = said.removeprefix("ucp.exceptions.")
    return None, said


def _version(found: dict[str, Any]) -> Findings:
    version = tuple(map(int, found["version"].split(".")))[:2]
    text = f"UCX is {found['version']} ({found['kind']}): {found['path']}"
    oldest, newest = (".".join(map(str, each)) for each in _TESTED)
    if _TESTED[0] <= version <= _TESTED[1]:
        yield ok("UCX", text)
    else:
        yield note(
            "UCX",
            f"{text}. ucp was tested with {oldest} to {newest}.",
            f"If something fails, try another: pip install libucx-cu12=={newest}.*",
        )


def _transports(devices: list[list[str]]) -> Findings:
    names: dict[str, list[str]] = {}
    for transport, device in devices:
        names.setdefault(transport, []).append(device)
    listed = ", ".join(f"{name} ({' '.join(names[name])})" for name in names)
    yield ok("transports", f"UCX may use {listed}")
    chosen = os.environ.get("UCX_TLS")
    because = f" UCX_TLS={chosen} chooses them." if chosen is not None else ""
    if not {"sysv", "posix"} & set(names):
        yield note(
            "transports",
            f"There is no shared memory: processes of one host use the network, which "
            f"is several times slower.{because}",
            "Add sysv and posix to UCX_TLS, or unset it."
            if chosen is not None
            else "Give this process a /dev/shm and System V shared memory.",
        )
    if "tcp" not in names and not any(name.startswith(("rc", "dc")) for name in names):
        yield note(
            "transports",
            f"There is no network: other hosts cannot be reached.{because}",
            "Add tcp to UCX_TLS, or unset it, and look at UCX_NET_DEVICES.",
        )
    devices_here = os.environ.get("UCX_NET_DEVICES")
    if names.get("tcp") == ["lo"]:
        yield note(
            "transports",
            "The only network device is lo: other hosts cannot be reached.",
            f"Change UCX_NET_DEVICES={devices_here}."
            if devices_here is not None
            else "Give this host, or this container, a network interface.",
        )


def _is_refused(name: str) -> bool:
    """UCX lists no variables of a part of it that has a value it does not read."""
    found, _ = _probe(with_options=False)
    return found is not None and name in found.get("variables", ())


def _variables(known: list[str] | None) -> Findings:
    """Variables that nobody reads are most likely misspelt."""
    wrong = 0
    for name in sorted(os.environ):
        if name.startswith("UCX_"):
            if known is None or name in known:
                continue
            names, who = known, "UCX"
        elif name.startswith(("UCP_", "UCXPY_")):
            if name in VARIABLES:
                continue
            names, who = list(VARIABLES), "ucp"
        else:
            continue
        wrong += 1
        if who == "UCX" and _is_refused(name):
            yield problem(
                "environment",
                f"{name}={os.environ[name]!r:.60} is refused: UCX has this variable, "
                "and does not understand the value.",
                "Correct the value, or unset the variable: UCX's lines, here or of any "
                "program that uses ucp, say what it expects.",
            )
            continue
        near = difflib.get_close_matches(name, names, 1, 0.75)
        yield note(
            "environment",
            f"{name}={os.environ[name]!r:.60} has no effect: this {who} has no "
            "variable of that name.",
            f"Is {near[0]} meant?" if near else "Unset it.",
        )
    if not wrong:
        number = sum(name.startswith(("UCX", "UCP_")) for name in os.environ)
        yield ok(
            "environment", f"Each of the {number} variables UCX_* and UCP_* is known"
        )
