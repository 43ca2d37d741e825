# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/info ucp/ending ucp/progress ucp/completion
"""``python -m ucp``: help, ends by Ctrl-C, output that nobody reads."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from command import ucp_command
from paths import EXAMPLES, ROOT

import ucp
from ucp._commands import completion, info
from ucp._commands import main as commands
from ucp._run import progress

SIGINT, SIGPIPE = signal.SIGINT, signal.SIGPIPE


def test_without_a_command_all_are_listed(capsys):
    assert commands.main([]) == 2
    lines = capsys.readouterr().err.splitlines()
    for name, command in commands._COMMANDS.items():
        assert f"  {name:12}{command.summary}" in lines
    assert max(map(len, lines)) <= 80


def test_a_wrong_command_is_named(capsys):
    assert commands.main(["dctor"]) == 2
    assert capsys.readouterr().err == (
        "python -m ucp: there is no command 'dctor'; did you mean doctor?\n"
        "python -m ucp --help lists all commands.\n"
    )
    assert commands.main(["frobnicate"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("python -m ucp: there is no command 'frobnicate'\n")
    assert "\n  doctor    " in error


@pytest.mark.parametrize(
    ("option", "meant"),
    [("--jsno", "; did you mean --json?"), ("--verbos=1", "; did you mean --verbose?")],
)
def test_a_wrong_option_is_compared_with_those_that_there_are(option, meant, capsys):
    with pytest.raises(SystemExit):
        commands.main(["doctor", option])
    assert capsys.readouterr().err.endswith(
        f"python -m ucp doctor: error: unrecognized arguments: {option}{meant}\n"
    )
    with pytest.raises(SystemExit):
        commands.main(["doctor", "--xyzzy"])
    assert "did you mean" not in capsys.readouterr().err


def test_help_and_version(capsys):
    assert commands.main(["--help"]) == 0
    assert "\n  doctor    " in capsys.readouterr().out
    assert commands.main(["--version"]) == 0
    assert capsys.readouterr().out == f"ucp {ucp.__version__}\n"


@pytest.mark.parametrize("name", commands._COMMANDS)
def test_the_help_of_each_command_has_examples(name, capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main([name, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert f"python -m ucp {name}" in text.partition("\nexamples:\n")[2]


def test_info_has_stable_keys(capsys):
    assert commands.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts) == [
        *("ucp", "ucx", "python", "cpus", "transports", "interfaces", "limits"),
        "environment",
    ]
    assert facts["ucx"]["version"] == ucp.__ucx_version__
    assert {"name": "lo", "addresses": info.addresses("lo")} in facts["interfaces"]
    assert facts["limits"]["frames_max"] == 65536
    page = (ROOT / "docs/commands.md").read_text()
    assert all(f"`{key}`" in page for key in facts)


def test_info_names_limits_in_units_and_what_is_set(monkeypatch, capsys):
    for name in [name for name in os.environ if name.startswith(info._PREFIXES)]:
        monkeypatch.delenv(name)
    assert commands.main(["info"]) == 0
    text = capsys.readouterr().out
    assert "\nchanged    nothing: no variable UCX_*, UCP_* or UCXPY_* is set\n" in text
    assert re.search(r"\n +credit_bytes +4 MiB\n", text)
    assert re.search(r"\n +close_timeout +10 s\n", text)
    assert re.search(r"\n +heartbeat +0 s \(a peer may be silent forever\)\n", text)
    monkeypatch.setenv("UCP_TOKEN", "a secret")
    monkeypatch.setenv("UCX_TLS", "tcp")
    assert info.environment() == {
        "UCP_TOKEN": {"value": "(secret)", "default": None},
        "UCX_TLS": {"value": "tcp", "default": "all"},
    }
    assert os.environ["UCX_TLS"] == "tcp"
    monkeypatch.setenv("UCX_NET_DEVICES", "\udcff")  # what is no UTF-8
    assert "UCX_NET_DEVICES=\\udcff" in info._changed(info.environment())[1]
    monkeypatch.delenv("UCX_NET_DEVICES")
    assert info._changed(info.environment())[1] == "UCX_TLS=tcp (default: all)"


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(0, "0 s"), (7, "7 ns"), (50_000, "50 us"), (1.5e9, "1.5 s")],
)
def test_durations_have_units(nanoseconds, text):
    assert info._duration(int(nanoseconds)) == text


def test_output_that_nobody_reads_is_no_error():
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "ucp", "info"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (128 + SIGPIPE, b"")


@pytest.mark.parametrize("closed", ["<&- >&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed):
    command = f'"$0" -P -m ucp info {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_closed_standard_error_puts_nothing_into_the_output():
    command = '"$0" -P -m ucp dctor 2>&-'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")


def test_output_that_cannot_be_written_is_told():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "ucp", "info"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    text = "python -m ucp: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, text)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ([], 2, "usage: python -m ucp COMMAND"),
        (["--version"], 0, f"ucp {ucp.__version__}\n"),
        (["bench", "--help"], 0, "The options are not listed"),
    ],
)
def test_help_works_without_ucx(arguments, status, text):
    done = ucp_command(*arguments, UCP_UCX="/nonexistent")
    assert done.returncode == status
    assert text in done.stdout + done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("size", ["0", "-1", "x"])
def test_the_demo_refuses_a_size(size, capsys):
    with pytest.raises(SystemExit):
        commands.main(["demo", f"--max-mib={size}"])
    assert f"expected 1 or more, not '{size}'" in capsys.readouterr().err


# The command ucp, as pip installs it.


SCRIPT = Path(sysconfig.get_path("scripts"), "ucp")


def script(*arguments, **env):
    """Run the script ``ucp``."""
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


def test_the_script_runs_commands_and_names_itself():
    assert script("--version").stdout == f"ucp {ucp.__version__}\n"
    done = script("dctor")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ucp: there is no command 'dctor'; did you mean")
    assert "\n  ucp bench HOST:13337 " in script("bench", "--help").stdout


def test_the_script_starts_processes_that_find_ucp_elsewhere(tmp_path):
    folder = tmp_path / "ucp"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('the wrong one')")
    done = subprocess.run(
        [sys.executable, SCRIPT, "demo", "--max-mib", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_script_says_why_ucp_cannot_be_imported():
    done = script("doctor", UCP_UCX="/nonexistent")
    assert (done.returncode, done.stderr) == (1, "")
    assert "'import ucp' fails: ImportError: UCP_UCX=/nonexistent" in done.stdout


# Completion.


# What bash completes of a line whose last word is under way.
COMPLETED = {
    "ucp do": ["doctor"],
    "ucp --v": ["--version"],
    "ucp top --so": ["--sort"],
    "ucp top --sort p": ["pending", "pid"],
    "ucp top --once --j": ["--json"],
    "ucp bench --json ": [],  # bash completes names of files
    "ucp completion z": ["zsh"],
    "ucp run -n 4 ": [],
    "ucp run --t": ["--timestamps"],
}


def test_bash_completes():
    source = "\n".join(completion._bash(commands.parsers()))
    for line in COMPLETED:
        words = " ".join(f"'{word}'" for word in line.split(" "))
        source += f"\nCOMP_WORDS=({words}); COMP_CWORD={line.count(' ')}; _ucp"
        source += '\necho "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", source], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split() for line in lines] == list(COMPLETED.values())


def test_every_option_is_in_both_scripts(capsys):
    found = {}
    for shell in ("bash", "zsh"):
        assert commands.main(["completion", shell]) == 0
        found[shell] = capsys.readouterr().out
    for name, parser in commands.parsers().items():
        options = re.findall(r"(--[a-z][\w-]*)", parser.format_usage())
        for option in options:
            assert re.search(rf"^ +\*' {name} '.*[ ']{option}[ ']", found["bash"], re.M)
            assert f"'{option}[" in found["zsh"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_completes(tmp_path):
    (tmp_path / "_ucp").write_text("\n".join(completion._zsh(commands.parsers())))
    controller, terminal = os.openpty()
    process = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "dumb", "PS1": "> "},
        start_new_session=True,
    )
    os.close(terminal)
    try:
        fpath = f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D"
        os.write(controller, f"{fpath}; echo re''ady\n".encode())
        read_until(controller, b"\nready")
        os.write(controller, b"ucp doc\t")
        read_until(controller, b"ucp doctor ")
        os.write(controller, b"--verb\t")
        read_until(controller, b"--verbose ")
    finally:
        process.kill()
        process.wait()
        os.close(controller)


def read_until(fd, text):
    found = b""
    while text not in found:
        found += os.read(fd, 1 << 16)


UCP = ("-P", "-m", "ucp")
PAUSE = "print(); import signal; signal.pause()"

# Programs, by what they are; all print a line before they are through.
PROGRAMS = {
    "demo": ((*UCP, "demo", "--max-mib", "1"), -SIGINT),
    "doctor": ((*UCP, "doctor", "-v"), -SIGINT),
    "bench": ((*UCP, "bench", "--tests", "latency"), -SIGINT),
    "listen": ((*UCP, "bench", "--listen", "127.0.0.1:0"), -SIGINT),
    "top": ((*UCP, "top"), -SIGINT),
    "run": ((*UCP, "run", "-n", "2", "-c", PAUSE), -SIGINT),
    "example": (("-P", str(EXAMPLES / "echo_server.py"), "0"), 130),
    "example of two": (("-P", str(EXAMPLES / "put_get.py")), 130),
    "benchmark of ucx-py": (
        ("-P", "-m", "ucp.benchmarks.send_recv", "--n-iter", "100000000"),
        -SIGINT,
    ),
    "benchmark": ((str(ROOT / "benchmarks/heap.py"),), -SIGINT),
}


def descendants(pid):
    """Descriptors of the processes that a process has started, and theirs."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            found = [int(child) for child in file.read().split()]
        own = [os.pidfd_open(child) for child in found]
    except (FileNotFoundError, ProcessLookupError):  # one has ended
        return []
    return [*own, *(each for child in found for each in descendants(child))]


def wait_ended(pidfd):
    select.select([pidfd], [], [])  # the time limit of the test bounds it
    os.close(pidfd)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_ctrl_c_ends_a_program_and_its_processes(kind):
    arguments, status = PROGRAMS[kind]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    env.pop("PYTHONSAFEPATH", None)  # a benchmark imports modules beside it
    with subprocess.Popen(
        [sys.executable, *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
        text=True,
    ) as process:
        assert process.stdout.readline() != ""
        started = descendants(process.pid)
        os.killpg(process.pid, SIGINT)  # as a terminal does
        _, error = process.communicate()
    assert (process.returncode, error) == (status, "")
    for pidfd in started:
        wait_ended(pidfd)


class Terminal:
    """Standard error that is a terminal."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch, capsys):
    bar = progress.Progress(2)
    bar.step("first")
    bar.finish("all")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = progress.Progress(2)
    bar.step("first")
    bar.step("second")
    bar.clear()
    bar.finish("all")
    assert f"[{'#' * 15}{'.' * 15}]  50 % second" in sys.stderr.text
    assert f"[{'#' * 30}] 100 % all" in sys.stderr.text


def test_a_bar_is_no_wider_than_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress.Progress(2).step("first")
    assert sys.stderr.text == f"\r[{'.' * 18}"
