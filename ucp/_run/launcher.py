# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp run``: ranks of a program on this host.

Three generations::

    launcher      what the user started: passes signals on, has the exit status
      supervisor  starts the ranks, relays their output, ends what is left
        ranks     each leads a process group of its own, with what it starts

The supervisor leads a session, which has no terminal, and the ranks are part of
it. The kernel divides the processors between sessions first (autogroups), and
sched_yield() lets only processes of the same session run: ranks that outnumber
the processors hand them to each other within one session only.

Launcher and supervisor adopt orphans, so that whatever a rank starts stays
below them. If the launcher is killed, the supervisor is told and ends all; if
the supervisor is killed, the kernel kills the ranks and the launcher the rest.
Both wait for signals only, which they block and take one at a time.

A port of 127.0.0.1 is the root's: a socket is bound to it and does not listen,
from before the first rank starts until the last one has ended. The system gives
such a port to nobody else, neither to who asks for any port nor to a connection
that goes out, and lets rank 0 bind and listen beside it since both sockets have
SO_REUSEADDR. Until then a connection is refused at once.
"""

from __future__ import annotations

import argparse
import functools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .._communicator import meeting
from .._core import startup
from .._core.token import TOKEN, TOKEN_FILE
from . import blame, process_tree
from .ending import die_by
from .output import Relay

_HOST = "127.0.0.1"
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_PATIENCE = 5.0  # seconds in which ranks meet, or are named
# Seconds after the first rank that has failed: others fail for it, or were before it
# and end now; and one that these name may take longer.
_MOMENT, _LONG_MOMENT = 1.5, 4.0
_PARENT_ENDED = signal.SIGUSR2  # to the supervisor, from the kernel

# As a shell has them.
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_KILLED = 128  # and the signal

_WITH_VALUE = ("-n", "--ranks", "--grace", "--patience")
_USAGE = """\
{name} run -n RANKS [options] program [argument ...]
       {name} run -n RANKS [options] -m module [argument ...]
       {name} run -n RANKS [options] -c code [argument ...]"""
_DESCRIPTION = """\
Start RANKS processes of a program on this host. A program is run by this Python
if it is a .py, .pyz or directory, else as it is."""


class _ProgramError(Exception):
    """There is no such program; has the exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The launcher's own arguments, and the program with its arguments.

    All that follows the program, ``-m module`` or ``-c code`` is the program's,
    as with Python itself; so is ``--``, but for one that ends the options.
    """
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        argument = arguments[at]
        if argument == "--":
            return arguments[:at], arguments[at + 1 :]
        if argument in ("-m", "-c"):
            break
        at += 2 if argument in _WITH_VALUE else 1
    return arguments[:at], arguments[at:]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the subcommand; the program comes from split()."""
    parser.usage = _USAGE.format(name=startup.program())
    parser.description = _DESCRIPTION
    parser.add_argument(
        "-n", "--ranks", type=_ranks, required=True, help="how many processes"
    )
    parser.add_argument(
        "--no-prefix",
        action="store_true",
        help="print lines as they are, without [rank] before them",
    )
    parser.add_argument(
        "--timestamps",
        action="store_true",
        help="print the time of day before each line",
    )
    parser.add_argument(
        "--grace",
        type=_seconds,
        default=_GRACE,
        metavar="SECONDS",
        help="between SIGTERM and SIGKILL (default %(default)g)",
    )
    parser.add_argument(
        "--patience",
        type=_seconds,
        default=_PATIENCE,
        metavar="SECONDS",
        help="until ranks that the others wait for are named (default %(default)g)",
    )


def _ranks(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number: {text!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least one rank, not {number}")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number: {text!r}") from None
    if not 0 <= number < 1e6:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text}")
    return number


@dataclass(frozen=True)
class _Job:
    """What the supervisor needs to know."""

    arguments: list[str]  # that start a rank
    environment: dict[str, str]  # of all ranks
    size: int
    grace: float
    patience: float
    has_input: bool  # standard input goes to rank 0
    interrupts: set[int]  # signals that end all
    mask: set[int]  # signals that were blocked before


def run(options: argparse.Namespace) -> int:
    """Run the ranks; returns the exit status, or ends by an interrupting signal."""
    try:
        arguments = _arguments(options.program)
    except _ProgramError as exc:
        print(f"ucp run: {exc}", file=sys.stderr)
        return exc.status
    _open_standard_files()
    interrupts = {
        int(signum)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(signum) is not signal.SIG_IGN  # nohup, cmd & in scripts
    }
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    blocked = {*interrupts, signal.SIGCHLD, _PARENT_ENDED, meeting.WAKE}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    process_tree.adopt_orphans()
    launcher = os.getpid()
    with _reserve_port() as root:
        job = _Job(
            arguments=arguments,
            environment=_environment(options.ranks, root.getsockname()[1]),
            size=options.ranks,
            grace=options.grace,
            patience=options.patience,
            has_input=_may_read_input(),
            interrupts=interrupts,
            mask={int(signum) for signum in mask},
        )
        supervisor = os.fork()
        if supervisor == 0:
            os.setsid()
            process_tree.adopt_orphans()
            process_tree.end_with_parent(launcher, _PARENT_ENDED)
            _supervise(job, prefix=not options.no_prefix, timestamps=options.timestamps)
    return _follow(supervisor, interrupts)


def _arguments(command: list[str]) -> list[str]:
    """The arguments that start a rank."""
    if not command:
        raise _ProgramError(f"no program (see {startup.program()} run --help)", 2)
    # Options of Python are the ranks', too: python -P -W error -m ucp run ...
    python = [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
    program = command[0]
    if program in ("-m", "-c"):
        if len(command) == 1:
            what = "a module" if program == "-m" else "code"
            raise _ProgramError(f"{program} without {what}", 2)
        return [*python, *command]
    path = Path(program)
    if path.is_dir() or path.suffix in (".py", ".pyw", ".pyz"):
        if not path.exists():
            raise _ProgramError(f"no program {program!r}", _NOT_FOUND)
        return [*python, *command]
    found = shutil.which(program)
    if found is not None:
        return [found, *command[1:]]
    if not path.exists():
        raise _ProgramError(f"no program {program!r}", _NOT_FOUND)
    if not os.access(path, os.X_OK):
        raise _ProgramError(
            f"{program!r} is neither executable nor a .py file", _NOT_EXECUTABLE
        )
    raise _ProgramError(
        f"no program {program!r} in PATH; the one here is ./{program}", _NOT_FOUND
    )


def _open_standard_files() -> None:
    """Nothing that is opened later becomes standard input, output or error."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _reserve_port() -> socket.socket:
    root = socket.socket()
    root.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    root.bind((_HOST, 0))
    return root


def _environment(size: int, port: int) -> dict[str, str]:
    """What all ranks get; UCP_RANK is each one's own."""
    environment = dict(os.environ)
    environment["UCP_SIZE"] = str(size)
    environment["UCP_ROOT"] = f"{_HOST}:{port}"
    if TOKEN not in environment and TOKEN_FILE not in environment:
        environment[TOKEN] = secrets.token_hex()
    # Lines come when they are printed, and a rank that is killed loses none.
    environment.setdefault("PYTHONUNBUFFERED", "1")
    return environment


def _may_read_input() -> bool:
    """Is standard input other than the terminal of a background job?

    It is not the terminal of the ranks' session: the terminal would not stop a
    rank that reads what is typed for another program.
    """
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # not this process's terminal, or none
        return True


# The launcher.


def _follow(supervisor: int, interrupts: set[int]) -> int:
    """Pass signals to the supervisor until it ends; the exit status."""
    while True:
        signum = signal.sigwait({*interrupts, signal.SIGCHLD})
        if signum != signal.SIGCHLD:
            os.kill(supervisor, signum)
        elif (ended := os.waitpid(supervisor, os.WNOHANG))[0] != 0:
            break
    process_tree.kill_descendants(_GRACE)
    status = os.waitstatus_to_exitcode(ended[1])
    if status >= 0:
        return status
    if -status in interrupts:  # by way of this process, or by itself
        die_by(-status)  # who waits for this process sees the reason
    print(
        f"ucp run: the supervisor was killed by {_signal_name(-status)}, "
        "and all ranks with it",
        file=sys.stderr,
    )
    return _KILLED - status


# The supervisor.


def _supervise(job: _Job, *, prefix: bool, timestamps: bool) -> NoReturn:
    """Start the ranks and end with the status of all."""
    status = 1
    try:
        # The thread says that it has ended as a child does.
        on_end = functools.partial(os.kill, os.getpid(), signal.SIGCHLD)
        relay = Relay(prefix=prefix, timestamps=timestamps, on_end=on_end)
        supervisor = _Supervisor(job, relay)
        supervisor.start()
        relay.start()
        supervisor.wait()
        supervisor.drain()
        status = supervisor.status
        if status < 0:
            die_by(-status)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class _Supervisor:
    """Starts ranks and ends them.

    Attributes:
        status: the exit status; the negative number of the signal that
            interrupted it.
    """

    status: int

    def __init__(self, job: _Job, relay: Relay) -> None:
        self.status = 0
        self._job = job
        self._relay = relay
        self._meeting = meeting.Meeting(job.size, job.patience)
        self._tells = {signal.SIGCHLD, meeting.WAKE}  # there is something to read
        self._wakes = {*job.interrupts, _PARENT_ENDED, *self._tells}
        self._ranks: dict[int, int] = {}  # that run, by process
        self._failed: list[tuple[int, int]] = []  # ranks and their wait status
        self._failed_at = 0.0
        self._judge_at: float | None = None  # ranks have failed: by whose fault?
        self._verdict: str | None = None
        self._is_ending = False
        self._is_interrupted = False
        self._kill_at: float | None = None  # SIGTERM has been sent

    def start(self) -> None:
        """Start all ranks; if one cannot be started, all are to end."""
        for rank in range(self._job.size):
            try:
                self._start(rank)
            except OSError as exc:
                more = f"; ending {rank} more" if rank else ""
                self._fail(
                    f"rank {rank} cannot be started: {exc}{more}", _NOT_EXECUTABLE
                )
                return

    def _start(self, rank: int) -> None:
        stdout = self._make_pipe(rank, 1)
        stderr = self._make_pipe(rank, 2)
        try:
            process = subprocess.Popen(
                self._job.arguments,
                env={
                    **self._job.environment,
                    "UCP_RANK": str(rank),
                    meeting.MEETING: self._meeting.path,
                },
                stdin=None if rank == 0 and self._job.has_input else subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                process_group=0,  # the session stays the supervisor's
                # Safe: this process has one thread as yet.
                preexec_fn=functools.partial(
                    _prepare_rank, os.getpid(), self._job.mask
                ),
            )
        finally:
            os.close(stdout)
            os.close(stderr)
        process.returncode = 0  # _reap() waits for all, not Popen
        self._ranks[process.pid] = rank

    def _make_pipe(self, rank: int, to: int) -> int:
        reader, writer = os.pipe()
        self._relay.add(reader, rank, to)
        return writer

    def wait(self) -> None:
        """Return when no process is left, or none that can be killed."""
        while self._reap():
            self._note_meeting()
            self._judge()
            if self._kill_at is None and (self._is_ending or not self._ranks):
                self._is_ending = True
                process_tree.terminate_descendants()
                self._kill_at = time.monotonic() + self._job.grace
            if self._kill_at is None:
                due = [self._meeting.due(), self._judge_at]
                self._sleep(min((at for at in due if at is not None), default=None))
            elif not self._sleep(self._kill_at):
                self._kill()
                break
        self._judge()
        if self._verdict is not None and self._relay.has_printed():
            self._relay.say(self._verdict)  # the last line

    def drain(self) -> None:
        """Return when all output is written.

        A full pipe holds that up until it is read; after an interruption for
        the time of grace only.
        """
        self._relay.finish()
        give_up_at = None
        while not self._relay.has_ended():
            if self._is_interrupted and give_up_at is None:
                give_up_at = time.monotonic() + self._job.grace
            if not self._sleep(give_up_at):
                return

    def _sleep(self, until: float | None) -> bool:
        """Wait for a signal and take it; False: the time is over."""
        if until is None:
            info: signal.struct_siginfo | None = signal.sigwaitinfo(self._wakes)
        else:
            left = until - time.monotonic()
            if left <= 0:
                return False
            info = signal.sigtimedwait(self._wakes, left)
        if info is not None and info.si_signo not in self._tells:
            self._interrupt(info.si_signo)
        return True

    def _interrupt(self, signum: int) -> None:
        if self.status == 0:
            self.status = -signum
        if self._is_interrupted and signum == signal.SIGINT:
            self._kill_at = time.monotonic()  # Ctrl-C once more
        self._is_ending = self._is_interrupted = True

    def _reap(self) -> bool:
        """Take the processes that have ended; are there others?"""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid not in self._ranks:
                continue  # an orphan
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                self._note_stop(self._ranks[pid], status)
            else:
                self._note_end(self._ranks.pop(pid), status)

    def _note_stop(self, rank: int, status: int) -> None:
        if self._is_ending:
            return
        if os.WIFSTOPPED(status):
            name = _signal_name(os.WSTOPSIG(status))
            self._relay.say(f"rank {rank} was stopped by {name}")
        else:
            self._relay.say(f"rank {rank} was continued")

    def _note_meeting(self) -> None:
        news = self._meeting.news(self._ranks.values())
        if not self._is_ending:
            for text in news:
                self._relay.say(text)

    def _note_end(self, rank: int, status: int) -> None:
        if status == 0 or self._is_ending:
            return
        if signal.sigpending() & self._job.interrupts:
            return  # all are to end, and this rank was told, too
        self._failed.append((rank, status))
        if self._judge_at is None:
            self._failed_at = time.monotonic()
            self._judge_at = self._failed_at + _MOMENT

    def _judge(self) -> None:
        """Say who has failed first, when those that fail with it have ended."""
        if self._judge_at is None:
            return
        now = time.monotonic()
        if self._ranks and not self._is_ending and now < self._judge_at:
            return
        self._relay.settle()
        ends = [self._end_of(*failed) for failed in self._failed]
        named = {end.names for end in ends}.intersection(self._ranks.values())
        longest = self._failed_at + _LONG_MOMENT
        if named and not self._is_ending and now < longest:
            self._judge_at = min(longest, now + _MOMENT)
            return
        self._judge_at = None
        status = blame.first_of(ends).status
        self._fail(
            blame.describe(ends, self._job.size, len(self._ranks)),
            status if status > 0 else _KILLED - status,
        )

    def _end_of(self, rank: int, status: int) -> blame.End:
        code = os.waitstatus_to_exitcode(status)
        if code > 0:
            how = f"status {code}"
        else:
            core = ", core dumped" if os.WCOREDUMP(status) else ""
            how = f"{_signal_name(-code)}{core}"
        return blame.End(rank, code, how, blame.reason_of(self._relay.tail(rank), code))

    def _fail(self, text: str, status: int) -> None:
        self._verdict = text
        self._relay.say(text)
        self.status = status
        self._is_ending = True

    def _kill(self) -> None:
        who = [f"rank {rank}" for rank in sorted(self._ranks.values())]
        for name in who or ["what ranks have left behind"]:
            self._relay.say(f"{name} did not end in {self._job.grace:g} s: SIGKILL")
        for pid in process_tree.kill_descendants(_GRACE):
            self._relay.say(f"process {pid} cannot be killed")


def _prepare_rank(supervisor: int, mask: Iterable[int]) -> None:
    """In the child, before it becomes the program."""
    process_tree.end_with_parent(supervisor, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
