# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/bootstrap ucp/launcher ucp/meeting ucp/output ucp/process_tree
"""``python -m ucp run``: ranks on this host, what they print, how all end."""

import contextlib
import errno
import hashlib
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from paths import ROOT
from script import run_script

from ucp._run import launcher, process_tree

RUN = [sys.executable, "-P", "-m", "ucp", "run"]

# How long a launcher may take that should end by itself.
LIMIT = 40

# Lines that each rank prints when it is up: its process and its children's.
UP = """
import os, signal, subprocess, sys, time
rank = int(os.environ["UCP_RANK"])
def up(*pids):
    print("up", os.getpid(), *pids)
def child(source):
    return subprocess.Popen(
        [sys.executable, "-c", source + "; import time; print(flush=True); "
         "time.sleep(100)"],
        stdout=subprocess.PIPE, start_new_session=True)
def wait():
    time.sleep(100)
"""


def run(*arguments, text=True, **options):
    """Run ranks; the launcher when it has ended."""
    return subprocess.run(
        [*RUN, *arguments], capture_output=True, text=text, timeout=LIMIT, **options
    )


def run_code(ranks, code, *options, **more):
    return run("-n", str(ranks), *options, "-c", UP + code, **more)


@contextlib.contextmanager
def started(ranks, code, *options, **more):
    """A launcher whose ranks are up, and the processes that they named."""
    launcher = subprocess.Popen(
        [*RUN, "-n", str(ranks), *options, "-c", UP + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )
    try:
        pids = {}
        while len(pids) < ranks:
            rank, word, *numbers = launcher.stdout.readline().split()
            if word == "up":
                pids[int(rank[1:-1])] = [*map(int, numbers)]
        yield launcher, [pid for rank in sorted(pids) for pid in pids[rank]]
    finally:
        launcher.kill()
        launcher.communicate(timeout=LIMIT)  # until nobody has its output


def end_of(launcher):
    """The status and standard error of a launcher that ends by itself."""
    _, err = launcher.communicate(timeout=LIMIT)
    return launcher.returncode, err


def supervisor_of(launcher):
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    return int(children.read_text())


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def await_end(pids):
    """Wait until all processes are gone: a new parent may still have to reap them."""
    while any(is_there(pid) for pid in pids):
        time.sleep(0.01)


def by_rank(output):
    """The lines of each rank, in order."""
    lines = {}
    for line in output.splitlines():
        rank, text = re.fullmatch(r"\[(\d+)\] (.*)", line).groups()
        lines.setdefault(int(rank), []).append(text)
    return lines


# ---- the environment ---------------------------------------------------------

ENVIRONMENT = """
print(*(os.environ.get(name, "-") for name in
      ("UCP_RANK", "UCP_SIZE", "UCP_ROOT", "UCP_TOKEN", "UCP_TOKEN_FILE")))
"""


def environments(ranks, **env):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("UCP_TOKEN")}
    done = run_code(ranks, ENVIRONMENT, env=environ | env)
    assert (done.returncode, done.stderr) == (0, "")
    lines = by_rank(done.stdout)
    return [line.split() for rank in range(ranks) for line in lines[rank]]


def test_each_rank_has_its_number_and_all_the_same_size_root_and_token():
    ranks = environments(3)
    assert [rank[:2] for rank in ranks] == [["0", "3"], ["1", "3"], ["2", "3"]]
    ((root, token, token_file),) = {tuple(rank[2:]) for rank in ranks}
    host, port = root.split(":")
    assert host == "127.0.0.1" and 1024 <= int(port) <= 65535
    assert len(token) == 64 and token_file == "-"


def test_each_run_has_a_token_of_its_own():
    assert environments(1)[0][3] != environments(1)[0][3]


@pytest.mark.parametrize("name", ["UCP_TOKEN", "UCP_TOKEN_FILE"])
def test_a_token_that_is_there_is_left(name):
    (rank,) = environments(1, **{name: "mine"})
    assert sorted(rank[3:]) == ["-", "mine"]


MEET = """
import asyncio, ucp
from ucp._communicator import environment

async def root(host, port, size):
    async with ucp.create_listener(host=host, port=port) as listener:
        for _ in range(1, size):
            ep = await listener.accept()
            await ep.send_obj(b"hello " + await ep.recv_obj())
            await ep.close()

async def other(host, port, rank):
    while True:
        try:
            ep = await ucp.connect(host, port)
        except ucp.exceptions.UCXNotConnected:
            continue  # rank 0 does not listen yet
        await ep.send_obj(b"%d" % rank)
        print((await ep.recv_obj()).decode())
        await ep.close()
        return

ranks = environment.from_environment()
host, port = ranks.root.removeprefix("tcp://").split(":")
if ranks.rank == 0:
    asyncio.run(root(host, int(port), ranks.size))
else:
    asyncio.run(other(host, int(port), ranks.rank))
"""


def test_rank_0_listens_at_the_root_and_the_others_connect():
    done = run("-n", "3", "-c", MEET)
    assert (done.returncode, done.stderr) == (0, "")
    assert by_rank(done.stdout) == {1: ["hello 1"], 2: ["hello 2"]}


def test_who_has_no_token_does_not_get_in():
    code = "import os\nif os.environ['UCP_RANK'] == '1': del os.environ['UCP_TOKEN']\n"
    done = run("-n", "2", "-c", code + MEET)
    assert done.returncode == 1
    assert "UCXAuthError" in done.stderr
    assert "ucp run: rank 1 failed first (status 1): " in done.stderr


@pytest.fixture
def reserved_port():
    with launcher._reserve_port() as root:
        yield root.getsockname()[1]


@pytest.fixture
def only_that_port(reserved_port):
    """A socket for which the system has to choose the reserved port."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ip_local_port_range = 51
        try:
            sock.setsockopt(
                socket.IPPROTO_IP,
                ip_local_port_range,
                struct.pack("I", reserved_port << 16 | reserved_port),
            )
        except OSError:
            pytest.skip("Linux 6.3 chooses from a range of the program's")
        yield sock


def test_the_reserved_port_is_given_to_nobody_who_asks_for_any(only_that_port):
    with pytest.raises(OSError) as raised:
        only_that_port.bind(("127.0.0.1", 0))
    assert raised.value.errno == errno.EADDRINUSE


def test_the_reserved_port_is_given_to_no_connection(only_that_port):
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(OSError) as raised:
            only_that_port.connect(server.getsockname())
    assert raised.value.errno == errno.EADDRNOTAVAIL


def test_the_reserved_port_refuses_connections_until_somebody_listens(reserved_port):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", reserved_port))
    with socket.create_server(("127.0.0.1", reserved_port)):
        socket.create_connection(("127.0.0.1", reserved_port)).close()


# ---- while ranks wait for each other -----------------------------------------

# Rank 0 comes at once, the others when the test says so: rank 0 has its input.
COME = """
import threading, ucp
def come():
    with ucp.sync.Communicator.from_env() as comm:
        comm.barrier()
        print("met")
def wait_for(path):
    while not os.path.exists(path): time.sleep(0.01)
"""
NOT_COME = "ucp run: rank {} has not come to Communicator.from_env() within 0.2 s"


def test_ranks_that_have_not_come_are_named_and_then_that_they_have(tmp_path):
    gates = [tmp_path / f"{rank}" for rank in range(3)]
    code = (
        COME
        + f"""
up()
if rank: wait_for({str(tmp_path)!r} + f"/{{rank}}")
come()
"""
    )
    with started(3, code, "--patience", "0.2") as (launcher, _):
        lines = [launcher.stderr.readline().strip() for _ in range(2)]
        assert lines == [NOT_COME.format(1), NOT_COME.format(2)]
        gates[2].touch()
        assert launcher.stderr.readline() == "ucp run: rank 2 has come\n"
        gates[1].touch()
        out, err = launcher.communicate(timeout=LIMIT)
        assert (launcher.returncode, sorted(by_rank(out))) == (0, [0, 1, 2])
        # It may meet the others before the launcher has read that it has come.
        assert err in ("", "ucp run: rank 1 has come\n")


def test_a_rank_that_has_ended_without_coming_is_named_so(tmp_path):
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    code = (
        COME
        + f"""
if rank == 1: os.open({fifo!r}, os.O_WRONLY); sys.exit()
open({fifo!r}).read()  # until the system has closed it: the other one has ended
try: come()
except ucp.UCXTimeout: pass
"""
    )
    code = code.replace("from_env()", "from_env(timeout=1)")
    done = run_code(2, code, "--patience", "0.2")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == NOT_COME.format(1) + ": it has ended\n"


@pytest.mark.parametrize("call", ["await ucp.Communicator", "ucp.sync.Communicator"])
def test_nothing_is_said_of_ranks_that_come_in_time_or_have_met_before(call):
    # Without patience all would be named who have not come with the first.
    code = f"""
import asyncio, ucp
async def main():
    comm = {call}.from_env()
    comm.close()
    if rank == 0: await ucp.Communicator.from_env(timeout=0.5)
try: asyncio.run(main())
except ucp.UCXTimeout: print("alone")
"""
    done = run_code(2, code, "--patience", "30")
    assert (done.returncode, done.stderr) == (0, "")


def test_who_writes_anything_to_the_pipe_of_the_meeting_does_no_harm():
    code = (
        COME
        + """
with open(os.environ["UCP_MEETING"], "wb") as pipe:
    pipe.write(b"\\xff 7\\n99999999999\\n" + b"x" * 10_000 + b"\\n" * 10_000)
come()
"""
    )
    done = run_code(2, code)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_path_of_a_meeting_that_is_no_pipe_is_not_written_to(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.touch()
    code = COME + f"os.environ['UCP_MEETING'] = {str(path)!r}; come()"
    done = run_code(1, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_bytes() == b""


# ---- output ------------------------------------------------------------------


def test_lines_are_whole_and_in_order():
    code = """
for n in range(200):
    for part in (f"line {n} ", "x" * (n * 50), f" of {rank}\\n"):
        sys.stdout.write(part)  # each is written by itself
"""
    done = run_code(4, code)
    assert (done.returncode, done.stderr) == (0, "")
    lines = by_rank(done.stdout)
    for rank in range(4):
        assert lines[rank] == [f"line {n} {'x' * n * 50} of {rank}" for n in range(200)]


def test_lines_are_whole_where_both_outputs_are_one_file():
    code = """
for n in range(200):
    for file in (sys.stdout, sys.stderr):
        file.write(f"{file.name} ")
        file.write("x" * 5000 + "\\n")
"""
    done = subprocess.run(
        [*RUN, "-n", "2", "-c", UP + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0
    for lines in by_rank(done.stdout).values():
        for name in ("<stdout>", "<stderr>"):
            assert lines.count(f"{name} {'x' * 5000}") == 200


def test_a_line_appears_while_its_rank_goes_on():
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with started(2, "up(); wait()", env=env) as (launcher, _):
        assert launcher.poll() is None


def test_standard_error_stays_standard_error():
    done = run_code(2, "print('out', rank); print('err', rank, file=sys.stderr)")
    assert by_rank(done.stdout) == {0: ["out 0"], 1: ["out 1"]}
    assert by_rank(done.stderr) == {0: ["err 0"], 1: ["err 1"]}


def test_a_last_line_without_a_newline_is_a_line():
    done = run_code(3, "sys.stdout.write(f'a{rank}\\nend of {rank}')")
    assert by_rank(done.stdout) == {n: [f"a{n}", f"end of {n}"] for n in range(3)}


def test_empty_lines_and_carriage_returns_stay():
    done = run_code(1, r"sys.stdout.write('\n\n10%\r20%\n')", text=False)
    assert done.stdout == b"[0] \n[0] \n[0] 10%\r20%\n"


def test_bytes_are_not_decoded():
    data = bytes(range(256)).replace(b"\n", b"") * 2
    done = run_code(
        1, f"sys.stdout.buffer.write({data!r}); sys.stdout.flush()", text=False
    )
    assert (done.returncode, done.stdout) == (0, b"[0] " + data + b"\n")


def test_without_prefix_the_bytes_are_the_programs():
    code = "import random; data = random.Random(1).randbytes(1_000_000)"
    scope = {}
    exec(code, scope)
    done = run_code(
        1, code + "; sys.stdout.buffer.write(data)", "--no-prefix", text=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, scope["data"], b"")


def test_without_prefix_lines_are_whole_too():
    code = (
        "for _ in range(99): sys.stdout.write(f'{rank}' * 30); sys.stdout.write('\\n')"
    )
    done = run_code(3, code + "\nsys.stdout.write(f'end of {rank}')", "--no-prefix")
    lines = done.stdout.splitlines()
    expected = [line for n in range(3) for line in [f"{n}" * 30] * 99 + [f"end of {n}"]]
    assert sorted(lines) == sorted(expected)


def test_one_file_for_both_outputs_has_whole_lines_without_prefix():
    code = "import sys; sys.stdout.write('a'); sys.stderr.write('b')"
    done = subprocess.run(
        [*RUN, "-n", "1", "--no-prefix", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT,
    )
    assert done.stdout in (b"a\nb", b"b\na")


def test_what_a_rank_has_printed_comes_before_what_is_said_of_it():
    printed = run_script("""
import os, threading
from ucp._run.output import Relay
ended = threading.Event()
os.dup2(1, 2)
relay = Relay(prefix=True, timestamps=False, on_end=ended.set)
for rank in range(3):
    reader, writer = os.pipe()
    relay.add(reader, rank, 1)
    os.write(writer, b"x" * 50_000 + b"\\n")
relay.say("the end of all")
relay.start()
relay.finish()
ended.wait()
""")
    *lines, last = printed.splitlines()
    assert sorted(lines) == [f"[{rank}] {'x' * 50_000}" for rank in range(3)]
    assert last == "ucp run: the end of all"


def test_timestamps_are_the_time_of_day():
    out = run_code(1, "print('a')", "--timestamps").stdout
    assert re.fullmatch(r"\[0\] [0-2]\d:[0-5]\d:[0-5]\d\.\d{3} a\n", out)
    out = run_code(1, "print('a')", "--timestamps", "--no-prefix").stdout
    assert re.fullmatch(r"[0-2]\d:[0-5]\d:[0-5]\d\.\d{3} a\n", out)


def test_a_hundred_million_bytes_come_through():
    code = """
line = f"{rank}" * 999 + "\\n"
for _ in range(500): sys.stdout.write(line * 100)
"""
    found = [hashlib.sha256(), hashlib.sha256()]
    launcher = subprocess.Popen(
        [*RUN, "-n", "2", "-c", UP + code], stdout=subprocess.PIPE
    )
    with launcher:
        for line in launcher.stdout:
            found[int(line[1:2])].update(line[4:])
    assert launcher.returncode == 0
    for rank in range(2):
        expected = hashlib.sha256((b"%d" % rank * 999 + b"\n") * 50_000)
        assert found[rank].hexdigest() == expected.hexdigest()


def test_ranks_that_have_closed_their_output_go_on():
    done = run_code(2, "os.close(1); os.close(2); sys.exit(3 * rank)", "--grace", "0.1")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("ucp run: rank 1 failed first (status 3)")


def test_ranks_whose_output_nobody_reads_end_as_without_a_launcher():
    with started(2, "up()\nwhile True: print('x' * 1000)") as (launcher, pids):
        launcher.stdout.close()
        launcher.stdout = None
        status, err = end_of(launcher)
        assert status == 1
        assert "BrokenPipeError" in err
        assert not any(map(is_there, pids))


def test_ranks_wait_for_who_reads_their_output():
    code = "up()\nfor n in range(100): print(n, 'x' * 10_000)"
    with started(1, code) as (launcher, pids):
        assert is_there(pids[0])  # a million bytes fill every pipe
        assert len(launcher.stdout.readlines()) == 100
        assert end_of(launcher) == (0, "")


def test_output_that_nobody_takes_does_not_keep_an_interrupted_launcher():
    code = "up()\nwhile True: print('x' * 1000)"
    with started(2, code, "--grace", "0.5") as (launcher, pids):
        launcher.terminate()
        assert launcher.wait(LIMIT) == -signal.SIGTERM
        assert not any(map(is_there, pids))


def test_standard_files_may_be_closed():
    done = subprocess.run(
        ["sh", "-c", '"$@" 0<&- 1>&- 2>&-', "sh", *RUN, "-n", "2", "-c", UP],
        timeout=LIMIT,
    )
    assert done.returncode == 0


# ---- input -------------------------------------------------------------------


def test_rank_0_has_the_input_and_the_others_nothing():
    done = run_code(3, "print(repr(sys.stdin.read()))", input="a\nb")
    assert by_rank(done.stdout) == {0: ["'a\\nb'"], 1: ["''"], 2: ["''"]}


# Becomes a program of the foreground of its standard input's terminal.
IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def in_terminal(*command):
    """A program, and the other end of its terminal."""
    master, terminal = pty.openpty()
    with (
        open(master, "r+b", buffering=0) as master_file,
        open(terminal, "r+b", 0) as end,
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", IN_TERMINAL, *command],
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        try:
            yield process, master_file
        finally:
            process.kill()
            process.wait()


def read_until(master, what):
    seen = b""
    while what not in seen:
        seen += os.read(master.fileno(), 1000)
    return seen


def test_rank_0_reads_from_a_terminal_and_ctrl_c_there_ends_all():
    code = "print(input(f'from {rank}? ')) if rank == 0 else None; up(); wait()"
    with in_terminal(*RUN, "-n", "2", "-c", UP + code) as (launcher, master):
        master.write(b"typed\n")
        seen = read_until(master, b"from 0? typed\r\n")
        while len(pids := re.findall(rb" up (\d+)\r", seen)) < 2:
            seen += os.read(master.fileno(), 1000)
        master.write(b"\x03")
        assert launcher.wait(LIMIT) == -signal.SIGINT
        assert not any(is_there(int(pid)) for pid in pids)


# ---- the program -------------------------------------------------------------

SHOW = "import sys; print(sys.argv)"


def shown(*arguments, **options):
    done = run("-n", "1", *arguments, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.removeprefix("[0] ").removesuffix("\n")


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "prog.py"
    path.write_text(SHOW)
    return str(path)


@pytest.mark.parametrize(
    "arguments",
    [[], ["-n", "7", "--help", "--", "-m"], ["--", "-c", "a b", "", "*"]],
)
def test_what_follows_the_program_is_its_own(program, arguments):
    assert shown(program, *arguments) == repr([program, *arguments])
    assert shown("-c", SHOW, *arguments) == repr(["-c", *arguments])
    assert shown("--", program, *arguments) == repr([program, *arguments])


def test_a_module_runs_as_python_runs_it(program, tmp_path):
    path = str(tmp_path)
    env = os.environ | {"PYTHONPATH": path}
    assert shown("-m", "prog", "-n", "2", env=env) == repr([program, "-n", "2"])


def test_a_directory_with_main_runs(tmp_path):
    (tmp_path / "__main__.py").write_text(SHOW)
    assert shown(str(tmp_path), "a") == repr([str(tmp_path), "a"])


def test_another_program_runs_as_it_is(tmp_path):
    path = tmp_path / "prog"
    path.write_text('#!/bin/sh\necho "$UCP_RANK $@"\n')
    path.chmod(0o700)
    assert shown(str(path), "-n", "b") == "0 -n b"
    assert shown("./prog", cwd=tmp_path) == "0 "
    assert shown("sh", "-c", "echo $UCP_SIZE") == "1"


def test_options_of_python_are_the_ranks_too():
    code = "import sys; print(sys.flags, sys.warnoptions, sys._xoptions)"
    python = [sys.executable, "-P", "-O", "-W", "error", "-X", "dev"]
    alone, rank = (
        subprocess.run(
            [*python, *command, "-c", code],
            capture_output=True,
            text=True,
            timeout=LIMIT,
        ).stdout
        for command in ([], [*RUN[2:], "-n", "1"])
    )
    assert rank == f"[0] {alone}"


@pytest.mark.parametrize(
    ("number", "error"),
    [
        ("0", "at least one rank, not 0"),
        ("-3", "at least one rank, not -3"),
        ("two", "not a number: 'two'"),
        ("1.5", "not a number: '1.5'"),
        ("", "not a number: ''"),
    ],
)
def test_a_number_of_ranks_that_is_none_is_refused(number, error):
    done = run("-n", number, "-c", "print()")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"error: argument -n/--ranks: {error}\n")


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_a_time_of_grace_that_is_none_is_refused(seconds):
    done = run("-n", "1", "--grace", seconds, "-c", "print()")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: argument --grace: not a number" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (["-c", "print()"], 2, "the following arguments are required: -n/--ranks"),
        (["-n"], 2, "argument -n/--ranks: expected one argument"),
        (["-n", "1"], 2, "ucp run: no program (see python -m ucp run --help)"),
        (["-n", "1", "--"], 2, "ucp run: no program (see python -m ucp run --help)"),
        (["-n", "1", "-m"], 2, "ucp run: -m without a module"),
        (["-n", "1", "-c"], 2, "ucp run: -c without code"),
        (["-n", "1", "--no-such", "x"], 2, "unrecognized arguments: --no-such"),
        (["-n", "1", "nosuch.py"], 127, "ucp run: no program 'nosuch.py'"),
        (["-n", "1", "nosuch"], 127, "ucp run: no program 'nosuch'"),
        (["-n", "1", "./nosuch"], 127, "ucp run: no program './nosuch'"),
        (
            ["-n", "1", "plain"],
            126,
            "ucp run: 'plain' is neither executable nor a .py file",
        ),
        (
            ["-n", "1", "tool"],
            127,
            "ucp run: no program 'tool' in PATH; the one here is ./tool",
        ),
        (
            ["-n", "2", "./tool"],
            126,
            "ucp run: rank 0 cannot be started: [Errno 8] Exec format error: './tool'",
        ),
    ],
)
def test_what_cannot_be_started_is_said(tmp_path, arguments, status, error):
    (tmp_path / "plain").write_text("")
    (tmp_path / "tool").write_text("neither ELF nor a script\n")
    (tmp_path / "tool").chmod(0o700)
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.endswith(f"{error}\n")


def test_the_program_of_the_page_prints_what_the_page_says(tmp_path):
    page = (ROOT / "docs/run.md").read_text()
    program = re.search(r"^```python\n(# hello.py\n.*?)^```$", page, re.M | re.S)[1]
    (tmp_path / "hello.py").write_text(program)
    printed = re.search(r"^    \$ python -m ucp run (.*)\n((?:    .*\n)+)", page, re.M)
    done = run(*printed[1].split(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    expected = [line.strip() for line in printed[2].splitlines()]
    assert sorted(done.stdout.splitlines()) == sorted(expected)


def test_the_subcommand_is_listed():
    done = subprocess.run(
        [*RUN[:-1], "--help"], capture_output=True, text=True, timeout=LIMIT
    )
    assert re.search(
        r"^ +run +start ranks of a program on this host$", done.stdout, re.M
    )
    assert "python -m ucp run -n RANKS [options] -m module" in run("--help").stdout


# ---- the end -----------------------------------------------------------------


def test_ranks_that_succeed_are_success():
    done = run_code(4, "time.sleep(rank / 50)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_many_ranks():
    done = run("-n", "64", "sh", "-c", "echo $UCP_RANK of $UCP_SIZE")
    assert (done.returncode, done.stderr) == (0, "")
    assert by_rank(done.stdout) == {n: [f"{n} of 64"] for n in range(64)}


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("sys.exit(7)", 7, "(status 7)"),
        ("raise ValueError('why')", 1, "(status 1): ValueError: why"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, "(SIGTERM)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "(SIGKILL)"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 3)", 165, "(signal 37)"),
    ],
)
def test_a_rank_that_fails_ends_all_and_is_named(how, status, said):
    code = f"up()\nif rank == 0: sys.stdin.read(); {how}\nwait()"
    with started(3, code, stdin=subprocess.PIPE) as (launcher, pids):
        launcher.stdin.close()
        launcher.stdin = None
        assert launcher.wait(LIMIT) == status
        *before, said_last = launcher.stderr.read().splitlines()
        assert said_last == f"ucp run: rank 0 failed first {said}; ending 2 more"
        assert bool(before) == ("why" in how)  # the traceback comes first
        assert not any(map(is_there, pids))


def test_the_first_that_fails_has_the_status():
    code = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
up()
if rank == 0: sys.stdin.read(); sys.exit(5)
wait()
"""
    with started(3, code, stdin=subprocess.PIPE) as (launcher, _):
        launcher.stdin.close()
        launcher.stdin = None
        assert launcher.wait(LIMIT) == 5
        assert launcher.stderr.read() == (
            "ucp run: rank 0 failed first (status 5); ending 2 more\n"
        )


# Rank 0 and 2 fail for rank 1, which ends when they are gone.
VICTIMS = """
import pathlib
up()
gone = pathlib.Path(sys.argv[1])
if rank == 1:
    while len(list(gone.iterdir())) < 2: time.sleep(0.01)
    {how}
class UCXRankFailed(Exception): pass
(gone / str(rank)).touch()
raise UCXRankFailed("rank 1 has ended: connection reset by remote peer")
"""


def victims(how, directory):
    done = run("-n", "3", "-c", UP + VICTIMS.format(how=how), str(directory))
    return done.returncode, done.stderr.splitlines()[-1].removeprefix("ucp run: ")


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("sys.exit(42)", 42, "(status 42)"),
        ("raise ValueError('boom')", 1, "(status 1): ValueError: boom"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "(SIGSEGV)"),
        ("os.dup2(os.open(os.devnull, 1), 2); sys.exit(5)", 5, "(status 5)"),
    ],
)
def test_the_rank_that_others_fail_for_is_named_and_has_the_status(
    how, status, said, tmp_path
):
    got, text = victims(how, tmp_path)
    assert got == status
    text = text.replace(", core dumped", "")
    assert text == f"rank 1 failed first {said}; ranks 0, 2 ended for it"


def test_a_rank_that_others_fail_for_and_that_hangs_is_ended(tmp_path):
    got, text = victims("wait()", tmp_path)
    assert got == 1
    assert text == (
        "rank 0 failed first (status 1): UCXRankFailed: rank 1 has ended: connection "
        "reset by remote peer; rank 2 failed, too (status 1): UCXRankFailed: rank 1 "
        "has ended: connection reset by remote peer; ending 1 more"
    ) or text.startswith("rank 2 failed first")


def test_the_verdict_is_the_last_line_also_if_ranks_print_when_they_are_ended():
    code = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
up()
if rank == 0: sys.stdin.read(); sys.exit(5)
wait()
"""
    with started(2, code, stdin=subprocess.PIPE) as (launcher, _):
        launcher.stdin.close()
        launcher.stdin = None
        assert launcher.wait(LIMIT) == 5
        verdict = "ucp run: rank 0 failed first (status 5); ending 1 more"
        assert launcher.stderr.read().splitlines() == [verdict, "[1] ended", verdict]


def test_ranks_may_end_one_after_the_other():
    done = run_code(3, "sys.exit(4 if rank == 2 else 0)")
    assert done.returncode == 4
    assert re.fullmatch(
        r"ucp run: rank 2 failed first \(status 4\)(; ending [12] more)?\n", done.stderr
    )


def test_ranks_get_sigterm_first():
    code = """
def clean(*_):
    print("clean")
    sys.exit()
signal.signal(signal.SIGTERM, clean)
up()
if rank == 0: sys.exit(sys.stdin.read() or 3)
wait()
"""
    with started(2, code, stdin=subprocess.PIPE) as (launcher, _):
        launcher.stdin.close()
        launcher.stdin = None
        assert launcher.wait(LIMIT) == 3
        assert launcher.stdout.read() == "[1] clean\n"


def test_ranks_that_ignore_sigterm_are_killed_after_the_time_of_grace():
    code = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
up()
if rank == 0: sys.exit(sys.stdin.read() or 3)
wait()
"""
    more = {"stdin": subprocess.PIPE}
    with started(3, code, "--grace", "0.3", **more) as (launcher, pids):
        launcher.stdin.close()
        launcher.stdin = None
        assert launcher.wait(LIMIT) == 3
        assert launcher.stderr.read().splitlines() == [
            "ucp run: rank 0 failed first (status 3); ending 2 more",
            "ucp run: rank 1 did not end in 0.3 s: SIGKILL",
            "ucp run: rank 2 did not end in 0.3 s: SIGKILL",
        ]
        assert not any(map(is_there, pids))


# A child in a session of its own that ignores SIGTERM, and one whose parent has
# ended.
FAMILY = """
one = child("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
one.stdout.readline()
grandchild, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    pid = os.fork()
    if pid == 0:
        time.sleep(100)
    os.write(writer, str(pid).encode())
    os._exit(0)
os.wait()
up(one.pid, int(os.read(grandchild, 100)))
"""
LEFT_BEHIND = "ucp run: what ranks have left behind did not end in 0.3 s: SIGKILL\n"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_launcher_ends_all_and_dies_by_that_signal(signum):
    code = FAMILY + "wait()"
    with started(2, code, "--grace", "0.3") as (launcher, pids):
        assert len(pids) == 6 and all(map(is_there, pids))
        launcher.send_signal(signum)
        assert end_of(launcher) == (-signum, LEFT_BEHIND)
        assert not any(map(is_there, pids))


def test_ctrl_c_twice_kills_at_once():
    code = "signal.signal(signal.SIGTERM, lambda *_: print('told')); up(); wait()"
    with started(2, code, "--grace", "1000") as (launcher, pids):
        launcher.send_signal(signal.SIGINT)
        told = {launcher.stdout.readline() for _ in pids}
        assert told == {"[0] told\n", "[1] told\n"}
        launcher.send_signal(signal.SIGINT)
        assert end_of(launcher)[0] == -signal.SIGINT
        assert not any(map(is_there, pids))


def test_an_ignored_signal_stays_ignored():
    code = "up(); sys.stdin.read()"
    with contextlib.ExitStack() as stack:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup does this
        try:
            launcher, _ = stack.enter_context(started(1, code, stdin=subprocess.PIPE))
        finally:
            signal.signal(signal.SIGHUP, before)
        launcher.send_signal(signal.SIGHUP)
        launcher.stdin.close()
        launcher.stdin = None
        assert end_of(launcher) == (0, "")


def test_ranks_have_the_signals_of_a_program_that_a_shell_starts():
    code = """
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()),
      *(signal.getsignal(n) == signal.SIG_DFL for n in (15, signal.SIGCHLD, 31, 1)))
"""
    out = run_code(1, code).stdout
    assert "[0] set() True True True True\n" in out
    # Python itself ignores SIGPIPE and SIGXFSZ, which is not the ranks'. What a
    # library has had this process ignore beside them, its children ignore too.
    show = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]
    plain = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    blocked = run("-n", "1", *show).stdout
    own = 0b11 << 31  # of the C library: those that posix_spawn() starts ignore them
    masks, others = (
        [int(mask, 16) & ~own for mask in re.findall(r"\t(\w+)$", text, re.M)]
        for text in (blocked, plain)
    )
    assert masks == others
    assert all(mask & 0x7FFFFFFF == 0 for mask in masks)


@pytest.mark.parametrize("which", ["launcher", "supervisor"])
def test_nothing_is_left_when_a_process_of_the_launcher_is_killed(which):
    code = FAMILY + "wait()"
    with started(2, code, "--grace", "0.3") as (launcher, pids):
        assert len(pids) == 6 and all(map(is_there, pids))
        if which == "launcher":
            launcher.kill()
            assert end_of(launcher) == (-signal.SIGKILL, LEFT_BEHIND)
        else:
            os.kill(supervisor_of(launcher), signal.SIGKILL)
            status, err = end_of(launcher)
            assert status == 128 + signal.SIGKILL
            assert err == (
                "ucp run: the supervisor was killed by SIGKILL, and all ranks with it\n"
            )
        await_end(pids)


def test_ranks_end_when_both_processes_of_the_launcher_are_killed():
    with started(2, "up(); wait()") as (launcher, pids):
        supervisor = supervisor_of(launcher)
        launcher.send_signal(signal.SIGSTOP)  # keeps the launcher from acting
        os.kill(supervisor, signal.SIGKILL)
        launcher.kill()
        await_end(pids)


def test_what_a_rank_has_left_behind_ends_with_the_last_rank():
    with started(2, FAMILY, "--grace", "0.3") as (launcher, pids):
        assert end_of(launcher) == (0, LEFT_BEHIND)
        assert not any(map(is_there, pids))


def test_a_process_that_never_stays_does_not_escape():
    # Each generation ends once it has started the next.
    code = """
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while os.fork() == 0: pass
    os._exit(0)
up()
wait()
"""
    with started(1, code, "--grace", "0.1") as (launcher, _pids):
        launcher.terminate()
        # Standard output ends with the last process that has it.
        assert launcher.stdout.read() == ""
        assert end_of(launcher)[0] == -signal.SIGTERM


def test_a_rank_that_is_stopped_is_named_and_ended():
    with started(2, "up(); wait()") as (launcher, pids):
        os.kill(pids[1], signal.SIGSTOP)
        assert launcher.stderr.readline() == "ucp run: rank 1 was stopped by SIGSTOP\n"
        os.kill(pids[1], signal.SIGCONT)
        assert launcher.stderr.readline() == "ucp run: rank 1 was continued\n"
        os.kill(pids[1], signal.SIGSTOP)
        assert launcher.stderr.readline() == "ucp run: rank 1 was stopped by SIGSTOP\n"
        os.kill(pids[0], signal.SIGKILL)
        assert launcher.wait(LIMIT) == 128 + signal.SIGKILL
        assert launcher.stderr.read() == (
            "ucp run: rank 0 failed first (SIGKILL); ending 1 more\n"
        )
        assert not any(map(is_there, pids))


# ---- sessions and groups -----------------------------------------------------

WHERE = """
group = "/proc/self/autogroup"  # as "/autogroup-12 nice 0"
own = open(group).read().split()[0] if os.path.exists(group) else "-"
print(os.getsid(0), os.getpgrp(), os.getpid(), os.getppid(), own)
"""


def test_ranks_are_in_one_session_each_with_a_process_group_of_its_own():
    lines = by_rank(run_code(3, WHERE).stdout)
    ranks = [lines[rank][0].split() for rank in range(3)]
    sessions, groups, pids, parents, autogroups = zip(*ranks, strict=True)
    assert set(sessions) == set(parents) and len(set(parents)) == 1  # the supervisor
    assert groups == pids and len(set(pids)) == 3
    assert len(set(autogroups)) == 1


@pytest.mark.parametrize("signum", [signal.SIGTSTP, signal.SIGTTIN])
def test_a_rank_is_stopped_by_the_signals_of_a_terminal_and_named(signum):
    with started(2, "up(); wait()") as (launcher, pids):
        os.kill(pids[1], signum)
        name = signum.name
        assert launcher.stderr.readline() == f"ucp run: rank 1 was stopped by {name}\n"
        launcher.terminate()
        assert end_of(launcher)[0] == -signal.SIGTERM
        assert not any(map(is_there, pids))


# A shell with job control, which says so when its job has stopped, and continues
# it for a line of input.
SHELL = 'set -m; "$@"; echo "is stopped"; read line; fg; echo "has ended: $?"'


def test_ctrl_z_stops_the_launcher_while_the_ranks_go_on():
    code = """
def wait_for(name):
    while not os.path.exists(os.path.join(sys.argv[1], name)): time.sleep(0.01)
up()
wait_for("go")
open(os.path.join(sys.argv[1], f"went{rank}"), "w").close()
wait_for("end")
"""
    with tempfile.TemporaryDirectory() as folder:
        command = [*RUN, "-n", "2", "-c", UP + code, folder]
        with in_terminal("/bin/sh", "-c", SHELL, "sh", *command) as (shell, master):
            seen = b""
            while seen.count(b" up ") < 2:
                seen += os.read(master.fileno(), 1000)
            master.write(b"\x1a")
            read_until(master, b"is stopped\r")
            Path(folder, "go").touch()
            while not all(Path(folder, f"went{rank}").exists() for rank in range(2)):
                time.sleep(0.01)
            Path(folder, "end").touch()
            master.write(b"\n")
            read_until(master, b"has ended: 0\r")
            assert shell.wait(LIMIT) == 0


def test_a_signal_to_the_own_group_reaches_what_the_rank_has_started_only():
    code = """
if rank == 0:
    signal.signal(signal.SIGUSR1, lambda *_: None)
    child = subprocess.Popen(["sleep", "100"])
    os.killpg(0, signal.SIGUSR1)
    print(child.wait())
    open(sys.argv[1], "w").close()
else:
    while not os.path.exists(sys.argv[1]): time.sleep(0.01)
    print("here")
"""
    with tempfile.TemporaryDirectory() as folder:
        done = run("-n", "2", "-c", UP + code, f"{folder}/go")
    assert (done.returncode, done.stderr) == (0, "")
    assert by_rank(done.stdout) == {0: [str(-signal.SIGUSR1)], 1: ["here"]}


def test_too_many_ranks_for_the_limit_of_files_end():
    limited = ["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", *RUN]
    done = subprocess.run(
        [*limited, "-n", "60", "sh", "-c", "echo $$; sleep 100"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 126
    assert re.search(
        r"^ucp run: rank \d+ cannot be started: \[Errno 24\] Too many open files; "
        r"ending \d+ more$",
        done.stderr,
        re.M,
    )
    pids = [int(pid) for lines in by_rank(done.stdout).values() for pid in lines]
    assert not any(map(is_there, pids))


def test_parents_get_a_signal_before_their_children(monkeypatch):
    found = [process_tree.Process(pid, pid) for pid in (40, 17, 33, 2, 9)]
    told = []
    monkeypatch.setattr(process_tree, "descendants", lambda: found)
    monkeypatch.setattr(os, "killpg", lambda group, signum: told.append(group))
    process_tree.signal_descendants(signal.SIGTERM)
    assert told == [40, 17, 33, 2, 9]


def test_a_launcher_within_a_rank_ends_with_it():
    inner = [*RUN, "-n", "2", "--no-prefix", "-c", UP + "up(); wait()"]
    code = f"""
inner = subprocess.Popen({inner!r}, stdout=subprocess.PIPE, text=True)
pids = [word for _ in "ab" for word in inner.stdout.readline().split()[1:]]
up(inner.pid, *pids)
wait()
"""
    with started(1, code) as (launcher, pids):
        assert len(pids) == 4 and all(map(is_there, pids))
        launcher.terminate()
        assert end_of(launcher) == (-signal.SIGTERM, "")
        assert not any(map(is_there, pids))
