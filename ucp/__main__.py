# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp``: ranks, a demo, and information about this host."""

from __future__ import annotations

import argparse
import os
import platform
import socket
import sys

import ucp

from ._core import neighbours

neighbours.check()  # ucp may be the package of another distribution

from ._core import context  # noqa: E402
from ._run import demo as _demo  # noqa: E402
from ._run import launcher  # noqa: E402
from ._topology import text as _topology_text  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ucp", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo", help="exchange NumPy arrays between two processes and verify"
    )
    _demo.add_arguments(demo)
    demo.set_defaults(run=_demo.run)
    ranks = commands.add_parser(
        "run", help="start ranks of a program on this host", allow_abbrev=False
    )
    launcher.add_arguments(ranks)
    ranks.set_defaults(run=launcher.run)
    info = commands.add_parser("info", help="show UCX, its transports and this host")
    info.set_defaults(run=_info)
    topology = commands.add_parser(
        "topology", help="show how far this host's devices are from its GPUs"
    )
    _topology_text.add_arguments(topology)
    topology.set_defaults(run=_topology_text.run)
    if arguments is None:
        arguments = sys.argv[1:]
    program: list[str] = []
    if arguments[:1] == ["run"]:
        own, program = launcher.split(arguments[1:])
        arguments = ["run", *own]
    options = parser.parse_args(arguments, argparse.Namespace(program=program))
    status: int = options.run(options)
    return status


def _info(_options: argparse.Namespace) -> int:
    which = ucp.which_ucx()
    cpus = len(os.sched_getaffinity(0))
    rows = [
        ("ucp", ucp.__version__),
        ("UCX", f"{which.version} ({which.kind}) {which.path}"),
        ("Python", f"{platform.python_version()} {sys.executable}"),
        ("CPUs", f"{cpus} of {os.cpu_count()}"),
    ]
    for transport, device in context.get_devices():
        rows.append(("transport", f"{transport:12} {device}"))
    for _, name in socket.if_nameindex():
        rows.append(("interface", f"{name:12} {' '.join(_addresses(name))}"))
    for limit, number in sorted(context.get_context().config.items()):
        rows.append(("limit", f"{limit:20} {number}"))
    for key, value in rows:
        print(f"{key:10} {value}")
    return 0


def _addresses(ifname: str) -> list[str]:
    found = []
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            found.append(ucp.get_address(ifname, family=family))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
