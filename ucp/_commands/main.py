# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp``: finds the command and runs it."""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from .._core import startup
from .._run import ending
from .._version import __version__


class _Command(NamedTuple):
    """A command: its module has ``add_arguments()`` and ``run()``."""

    module: str
    summary: str
    examples: str


# A module is imported when its command is run: doctor has to start although
# others cannot be imported.
_COMMANDS = {
    "demo": _Command(
        "_run.demo",
        "exchange NumPy arrays between two processes and verify",
        """\
  python -m ucp demo
  python -m ucp demo --max-mib 256    arrays of up to 256 MiB
  UCX_TLS=tcp python -m ucp demo      without shared memory""",
    ),
    "run": _Command(
        "_run.launcher",
        "start ranks of a program on this host",
        """\
  python -m ucp run -n 4 prog.py
  python -m ucp run -n 4 --timestamps -m package.module argument""",
    ),
    "doctor": _Command(
        "_commands.doctor",
        "look for what keeps ucp from working here, or makes it slow",
        """\
  python -m ucp doctor                this host
  python -m ucp doctor --listen 13337    here, and on another host:
  python -m ucp doctor HOST:13337        the network between the two
  python -m ucp doctor --pid 4711     what separates this process from that one
  python -m ucp doctor --json         the findings, for programs""",
    ),
    "bench": _Command(
        "_commands.bench",
        "measure latency, bandwidth, rate and collective operations",
        """\
  python -m ucp bench                 between two processes of this host
  python -m ucp bench --tests latency --sizes 8,1K,64K
  python -m ucp bench --plot bench.png --json bench.json
  python -m ucp bench --listen 13337     here, and on another host:
  python -m ucp bench HOST:13337         between the two hosts
  python -m ucp run -n 4 -m ucp bench    between ranks""",
    ),
    "top": _Command(
        "_commands.top",
        "show what processes that use ucp are doing, again and again",
        """\
  python -m ucp top                   all processes of this user
  python -m ucp top 4711 4712
  python -m ucp top --once --json     one table, for programs""",
    ),
    "metrics": _Command(
        "_commands.metrics",
        "print or serve counters of this host's processes, for Prometheus",
        """\
  python -m ucp metrics               print them once
  python -m ucp metrics --listen :9400           serve them on all addresses
  python -m ucp metrics --listen 127.0.0.1:9400  serve them to this host""",
    ),
    "info": _Command(
        "_commands.info",
        "show UCX, its transports, the limits in force and this host",
        """\
  python -m ucp info
  python -m ucp info --json""",
    ),
    "topology": _Command(
        "_topology.text",
        "show how far this host's devices are from its GPUs",
        """\
  python -m ucp topology
  python -m ucp topology --svg host.svg""",
    ),
    "completion": _Command(
        "_commands.completion",
        "print a script that completes the command ucp in bash or zsh",
        """\
  python -m ucp completion bash >~/.local/share/bash-completion/completions/ucp
  python -m ucp completion zsh >~/.zfunc/_ucp     a folder of $fpath""",
    ),
}


# import ucp is failing: see exit_without_ucx().
_without_ucx = False

# What a write to a file fails with.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    if arguments is None:
        arguments = sys.argv[1:]
    ending.open_streams()
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not ending.is_output_unread():
            raise
        ending.drop_output()  # python -m ucp info | head -1
        return ending.BROKEN_PIPE
    except OSError as exc:
        if exc.errno not in _FULL:
            raise
        ending.drop_output()
        name = startup.program()
        print(f"{name}: standard output: {exc.strerror}", file=sys.stderr)
        return 1


def exit_without_ucx() -> NoReturn:
    """Run the command, which needs neither UCX nor the extension, and exit.

    ``import ucp`` is about to fail, so that ``ucp.__main__`` would not be run.
    """
    global _without_ucx
    _without_ucx = True
    # The dynamic linker may find another UCX than the one that was asked for, the
    # system's; commands would then use the extension with that one.
    sys.modules["ucp._ext"] = None  # type: ignore[assignment]
    sys.exit(main())


def _help_without_options(name: str, command: _Command) -> str:
    """The help of a command whose module, which has the options, cannot be imported."""
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    return (
        f"usage: {startup.program()} {name} [argument ...]\n\n{summary}\n\n"
        f"examples:\n{_examples(command)}\n\n"
        "The options are not listed, since ucp cannot be imported here: "
        f"{startup.HINT}."
    )


def _examples(command: _Command) -> str:
    """The examples, as this program was started."""
    return command.examples.replace("python -m ucp", startup.program())


def _run(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    command = _COMMANDS.get(name)
    if command is None:
        return _overview(name)
    try:
        module = importlib.import_module(f"ucp.{command.module}")
    except ImportError:
        if not _without_ucx:
            raise
        print(_help_without_options(name, command))
        return 0
    program: list[str] = []
    arguments = arguments[1:]
    if name == "run":
        arguments, program = module.split(arguments)
    options = _parser(name, module).parse_args(
        arguments, argparse.Namespace(program=program)
    )
    status: int = module.run(options)
    return status


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    found = {}
    for name, command in _COMMANDS.items():
        found[name] = _parser(name, importlib.import_module(f"ucp.{command.module}"))
    return found


class _Parser(argparse.ArgumentParser):
    """Answers an option that does not exist with one that was probably meant."""

    def error(self, message: str) -> NoReturn:
        word = message.partition("unrecognized arguments: ")[2].partition("=")[0]
        known = [name for action in self._actions for name in action.option_strings]
        super().error(message + _meant(word, known))


def _meant(word: str, known: Iterable[str]) -> str:
    """The end of an error that names what was probably meant; "": nothing is near."""
    similar = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {similar[0]}?" if similar else ""


def _parser(name: str, module: Any) -> argparse.ArgumentParser:
    command = _COMMANDS[name]
    parser = _Parser(
        prog=f"{startup.program()} {name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"examples:\n{_examples(command)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return parser


def _overview(name: str) -> int:
    """Answer what is no command: the exit status."""
    if name in ("-V", "--version"):
        print(f"ucp {__version__}")
        return 0
    program = startup.program()
    lines = [
        f"usage: {program} COMMAND [argument ...]",
        "",
        *(f"  {each:12}{command.summary}" for each, command in _COMMANDS.items()),
        "",
        f"{program} COMMAND --help tells more; {program} --version the version.",
    ]
    if name in ("-h", "--help"):
        print("\n".join(lines))
        return 0
    if name:
        meant = _meant(name, _COMMANDS)
        if meant:
            lines = [f"{program} --help lists all commands."]
        lines.insert(0, f"{program}: there is no command {name!r}{meant}")
    print("\n".join(lines), file=sys.stderr)
    return 2
