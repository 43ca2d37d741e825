# SPDX-License-Identifier: BSD-3-Clause
"""``ucp completion``: scripts that complete commands and options in bash and zsh.

They are made from the parsers of the commands, so they have the options of this
version.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from . import main

_FILES = ("FILE", "XML")  # metavars of what is the name of a file


class _Option(NamedTuple):
    """An option of a command.

    Attributes:
        names: such as -v and --verbose.
        help: one line.
        takes: "" for nothing, else a word for what follows.
        choices: what may follow, if that is limited.
    """

    names: list[str]
    help: str
    takes: str
    choices: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", choices=_SHELLS, help="which shell completes")


def run(options: argparse.Namespace) -> int:
    """Print the script; returns the exit status."""
    print("\n".join(_SHELLS[options.shell](main.parsers())))
    return 0


def _options(parser: argparse.ArgumentParser) -> Iterator[_Option]:
    """The options of a command, and an option without names for its arguments."""
    for action in parser._actions:
        if action.help is argparse.SUPPRESS:
            continue
        help_ = (action.help or "").partition("\n")[0]
        if "%(" in help_:
            help_ %= {**vars(action), "prog": parser.prog}
        takes = ""
        if action.nargs != 0:
            takes = str(action.metavar or action.dest)
        choices = [str(each) for each in action.choices or ()]
        yield _Option(list(action.option_strings), help_, takes, choices)


def _bash(parsers: dict[str, argparse.ArgumentParser]) -> Iterator[str]:
    """The script for bash. What it has no words for are files."""
    yield "# bash completion of ucp, made by: ucp completion bash"
    yield "_ucp() {"
    yield "    local words='' current=${COMP_WORDS[COMP_CWORD]}"
    yield "    COMPREPLY=()"
    yield '    case "$COMP_CWORD ${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in'
    yield f"    '1 '*) words='{' '.join([*parsers, '--help', '--version'])}' ;;"
    for name, parser in parsers.items():
        found = list(_options(parser))
        for option in found:
            patterns = "|".join(f"*' {name} {each}'" for each in option.names)
            if patterns and option.takes:
                # Words that are not known leave the names of files.
                yield f"    {patterns}) words='{' '.join(option.choices)}' ;;"
        words = [word for each in found for word in each.names or each.choices]
        # The program of run is a file.
        condition = "[[ $current != -* ]] || " if name == "run" else ""
        yield f"    *' {name} '*) {condition}words='{' '.join(words)}' ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _ucp ucp"


def _zsh(parsers: dict[str, argparse.ArgumentParser]) -> Iterator[str]:
    """The script for zsh."""
    yield "#compdef ucp"
    yield "# zsh completion of ucp, made by: ucp completion zsh"
    yield "_ucp() {"
    yield "    local -a commands=("
    for name, parser in parsers.items():
        summary = (parser.description or "").partition(".")[0]
        yield f"        {_quoted(f'{name}:{_escaped(summary)}')}"
    yield "    )"
    yield "    if (( CURRENT == 2 )); then"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield "    shift words"
    yield "    (( CURRENT-- ))"
    yield "    case $words[1] in"
    for name, parser in parsers.items():
        specs = [_quoted(spec) for each in _options(parser) for spec in _specs(each)]
        yield f"    {name})"
        yield "        _arguments \\"
        yield from (f"            {spec} \\" for spec in specs)
        yield "            '*:file:_files'"
        yield "        ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ $funcstack[1] == _ucp ]]; then _ucp "$@"; else compdef _ucp ucp; fi'


def _specs(option: _Option) -> Iterator[str]:
    """What _arguments of zsh reads of an option."""
    action = ""
    if option.choices:
        action = f"({' '.join(option.choices)})"
    elif option.takes in _FILES:
        action = "_files"
    if not option.names and option.choices:
        yield f"1:{_escaped(option.takes)}:{action}"
    for name in option.names:
        spec = f"{name}[{_escaped(option.help)}]"
        if option.takes:
            spec += f":{_escaped(option.takes)}:{action}"
        yield spec


def _escaped(text: str) -> str:
    """The text without a meaning of its brackets and colons."""
    for char in "\\[]:":
        text = text.replace(char, f"\\{char}")
    return text


def _quoted(text: str) -> str:
    quote = "'"
    return quote + text.replace(quote, "'\\''") + quote


_SHELLS = {"bash": _bash, "zsh": _zsh}
