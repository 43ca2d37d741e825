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

from .._core import context, loader, resolve
from .._version import __version__


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
    for key, value in _rows(facts):
        print(f"{key:10} {value}")
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
    }


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    ucx, python, cpus = facts["ucx"], facts["python"], facts["cpus"]
    return [
        ("ucp", facts["ucp"]),
        ("UCX", f"{ucx['version']} ({ucx['kind']}) {ucx['path']}"),
        ("Python", f"{python['version']} {python['path']}"),
        ("CPUs", f"{cpus['usable']} of {cpus['present']}"),
        *(("transport", f"{t['name']:12} {t['device']}") for t in facts["transports"]),
        *(
            ("interface", f"{i['name']:12} {' '.join(i['addresses'])}")
            for i in facts["interfaces"]
        ),
        *(("limit", f"{key:20} {value}") for key, value in facts["limits"].items()),
    ]


def addresses(ifname: str) -> list[str]:
    """The addresses of an interface, at most one of each family."""
    found = []
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            found.append(resolve.get_address(ifname, family=family))
        except OSError:
            continue
    return found
