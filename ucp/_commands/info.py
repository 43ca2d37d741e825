# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp info``: UCX, its transports, limits in force and this host."""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import sys
from typing import Any

from .. import _ext
from .._core import context, loader, resolve
from .._run.terminal import Terminal
from .._version import __version__
from .finding import human

_PREFIXES = ("UCX_", "UCP_", "UCXPY_")
_SECRET = "UCP_TOKEN"

# How the names of limits end that count bytes.
_BYTES = (
    *("_bytes", "_bytes_max", "cma_min", "cma_max", "frames_copy_max"),
    *("frames_alone_min", "rndv_thresh_shm", "rndv_thresh_net"),
)
_MEANINGS = {
    ("cma_max", 0): "no messages are lent",
    ("heartbeat_ns", 0): "a peer may be silent forever",
    ("keepalive_ns", 0): "a network may be silent forever",
    ("cancel_timeout_ns", 0): "forever",
    ("spin_ns", 0): "never",
    ("rma_ucx", 0): "never",
    ("rma_ucx", 1): "with RDMA lanes",
    ("rma_ucx", 2): "always",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, with stable keys"
    )


def run(options: argparse.Namespace) -> int:
    """Print; returns the exit status."""
    facts = collect()
    if options.json:
        print(json.dumps(facts, indent=2))
        return 0
    _print(facts)
    return 0


def collect() -> dict[str, Any]:
    """What the command prints, as docs/commands.md describes it."""
    which = loader.which_ucx()
    return {
        "ucp": __version__,
        "ucx": {"version": which.version, "kind": which.kind, "path": which.path},
        "python": {"version": platform.python_version(), "path": sys.executable},
        "cpus": {"usable": len(os.sched_getaffinity(0)), "present": os.cpu_count()},
        "transports": [
            {"name": name, "device": device} for name, device in context.get_devices()
        ],
        "interfaces": [
            {"name": name, "addresses": addresses(name)}
            for _, name in socket.if_nameindex()
        ],
        "limits": {
            key: value
            for key, value in sorted(context.get_context().config.items())
            if isinstance(value, int)
        },
        "environment": environment(),
    }


def environment() -> dict[str, dict[str, str | None]]:
    """The variables of UCX and ucp that are set: value, and UCX's default if known."""
    names = sorted(name for name in os.environ if name.startswith(_PREFIXES))
    defaults = _defaults() if names else {}
    return {
        name: {
            "value": "(secret)" if name == _SECRET else os.environ[name],
            "default": defaults.get(name),
        }
        for name in names
    }


def _defaults() -> dict[str, str]:
    """What UCX's variables are by default."""
    saved = {name: os.environ[name] for name in os.environ if name.startswith("UCX_")}
    for name in saved:
        del os.environ[name]
    try:
        options = _ext.config_options({}, False)
    finally:
        os.environ.update(saved)
    return {f"UCX_{name}": value for name, value in options.items()}


def _print(facts: dict[str, Any]) -> None:
    """The facts as text: a heading in front of each group, limits in units."""
    terminal = Terminal(sys.stdout)
    ucx, python, cpus = facts["ucx"], facts["python"], facts["cpus"]
    groups = [
        ("ucp", [facts["ucp"]]),
        ("UCX", [f"{ucx['version']} ({ucx['kind']})", ucx["path"]]),
        ("Python", [python["version"], python["path"]]),
        ("CPUs", [f"{cpus['usable']} of {cpus['present']}"]),
        ("transports", _transports(facts["transports"])),
        ("interfaces", _interfaces(facts["interfaces"])),
        ("changed", _changed(facts["environment"])),
        ("limits", [_limit(*item) for item in facts["limits"].items()]),
    ]
    for name, lines in groups:
        head = terminal.paint(f"{name:11}", "bold")
        for number, line in enumerate(lines):
            # A line is wrapped behind where the values of its group begin.
            first, *others = terminal.wrap(line, " " * 11, " " * 15)
            print((head if number == 0 else first[:11]) + first[11:])
            for other in others:
                print(other)


def _transports(found: list[dict[str, str]]) -> list[str]:
    """A line for each transport, with its devices."""
    devices: dict[str, list[str]] = {}
    for each in found:
        devices.setdefault(each["name"], []).append(each["device"])
    return [f"{name:8} {' '.join(devices[name])}" for name in devices]


def _interfaces(found: list[dict[str, Any]]) -> list[str]:
    """A line for each interface that has an address."""
    with_address = [each for each in found if each["addresses"]]
    return [f"{i['name']:8} {' '.join(i['addresses'])}" for i in with_address]


def _changed(variables: dict[str, dict[str, str | None]]) -> list[str]:
    """What differs from the defaults: the environment alone can change that here."""
    lines = []
    for name, each in variables.items():
        default = each["default"]
        behind = "" if default is None else f" (default: {default})"
        line = f"{name}={each['value']}{behind}"
        lines.append(line.encode(errors="backslashreplace").decode())  # any bytes
    return lines or ["nothing: no variable UCX_*, UCP_* or UCXPY_* is set"]


def _limit(name: str, value: int) -> str:
    """A limit by its name in Config and in its unit."""
    meaning = _MEANINGS.get((name, value))
    if name.endswith("_ns"):
        text = _duration(value)
    elif name.endswith(_BYTES):
        text = human(value)
    else:
        text = f"{value:,}"
    behind = f" ({meaning})" if meaning else ""
    return f"{name.removesuffix('_ns'):20} {text}{behind}"


def _duration(nanoseconds: int) -> str:
    """0 s, 50 us, 1.5 s."""
    for unit, length in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if nanoseconds >= length:
            return f"{nanoseconds / length:.4g} {unit}"
    return f"{nanoseconds} ns" if nanoseconds else "0 s"


def addresses(ifname: str) -> list[str]:
    """The addresses of an interface, at most one of each family."""
    found = []
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            found.append(resolve.get_address(ifname, family=family))
        except OSError:
            continue
    return found
