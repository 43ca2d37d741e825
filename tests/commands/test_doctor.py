# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/commands ucp/finding ucp/installation ucp/ucx ucp/memory ucp/limits
# tests: ucp/system ucp/devices ucp/gpu ucp/network ucp/exchange ucp/startup
# tests: ucp/terminal
"""``python -m ucp doctor``: findings, and what to do about them."""

import argparse
import asyncio
import errno
import importlib.metadata
import io
import json
import os
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import standin
from command import ucp_command
from paths import ROOT
from sandbox import PRELUDE as SANDBOX
from sandbox import limit, refuse
from script import run_script, started
from users import ONE, SUPERUSER, as_user
from worlds import good_world

import ucp
from ucp._commands import (
    devices,
    doctor,
    exchange,
    finding,
    gpu,
    installation,
    limits,
    memory,
    network,
    service,
    system,
    ucx,
)
from ucp._commands import main as commands
from ucp._core import startup


def only(findings, level):
    """The findings of a level, each as its text and remedy in one."""
    return [f"{each.text} {each.remedy}" for each in findings if each.level == level]


def test_two_processes_really_exchange():
    done = ucp_command("doctor", "--json", UCX_TLSS="tcp")
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert (report["version"], report["ucp"]) == (1, ucp.__version__)
    problems = [each for each in report["findings"] if each["level"] == "problem"]
    assert report["problems"] == len(problems)
    assert done.returncode == (1 if problems else 0)
    texts = {each["check"]: each["text"] for each in report["findings"]}
    assert "every byte compared: 8 B in " in texts["two processes"]
    assert texts["two processes, TCP"].endswith("by tcp/lo")
    assert {"check", "level", "text", "remedy"} == set(report["findings"][0])
    misspelt = [each for each in report["findings"] if "UCX_TLSS" in each["text"]]
    assert misspelt[0]["remedy"] == "Is UCX_TLS meant?"


def test_doctor_runs_where_the_package_cannot_be_imported():
    done = ucp_command("doctor", "-v", UCP_UCX="/nonexistent")
    assert (done.returncode, done.stderr) == (1, "")
    assert "'import ucp' fails: ImportError: UCP_UCX=/nonexistent" in done.stdout
    assert "-> Unset UCP_UCX, or install UCX with 'pip install" in done.stdout
    assert "1 problem, " in done.stdout
    assert "/dev/shm" in done.stdout  # the rest is looked at all the same


class Shown(io.StringIO):
    """Standard output of a terminal."""

    def isatty(self):
        return True


FINDINGS = [
    finding.ok("Python", "Python is 3.11"),
    finding.note("network", "It is slow."),
    finding.problem("memory", f"There is {'very ' * 20}little.", "Buy some."),
]


def shown(monkeypatch, *, verbose=False, **env):
    """What a terminal of 60 columns gets of FINDINGS."""
    for name, value in {
        "COLUMNS": "60",
        "TERM": "xterm",
        "NO_COLOR": "",
        **env,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Shown())
    report = doctor._Report(argparse.Namespace(json=False, verbose=verbose), 1)
    report.add(FINDINGS)
    assert report.finish() == 1
    return sys.stdout.getvalue()


def test_problems_come_first_and_what_is_ok_is_counted(monkeypatch):
    lines = shown(monkeypatch, NO_COLOR="1").splitlines()
    assert lines[0].startswith("problem  memory: There is very ")
    assert lines[-4:] == [
        "         -> Buy some.",
        "note     network: It is slow.",
        "",
        "1 problem, 1 note, 1 check ok (-v prints them)",
    ]
    assert all(len(line) <= 60 for line in lines)
    words = " ".join(" ".join(lines).split())
    assert f"There is {'very ' * 20}little." in words


def test_everything_is_printed_as_it_comes_with_verbose(monkeypatch):
    text = shown(monkeypatch, verbose=True, NO_COLOR="1")
    levels = [line[:9].strip() for line in text.splitlines() if line[:9].strip()]
    assert levels == ["ok", "note", "problem", "1 problem"]


@pytest.mark.parametrize(
    ("env", "has_colours"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_gets_colours_unless_they_are_refused(monkeypatch, env, has_colours):
    assert ("\033[1;31mproblem\033[0m" in shown(monkeypatch, **env)) is has_colours


def test_a_pipe_gets_neither_colours_nor_other_lines(capsys):
    report = doctor._Report(argparse.Namespace(json=False, verbose=False), 1)
    report.add(FINDINGS)
    report.finish()
    text = capsys.readouterr().out
    assert "\033" not in text
    assert f"problem  memory: There is {'very ' * 20}little.\n" in text


def test_doctor_notices_a_source_tree():
    command = [sys.executable, "-S", "-m", "ucp", "doctor"]  # nothing is installed
    env = {name: os.environ[name] for name in os.environ if name != "PYTHONSAFEPATH"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"{ROOT / 'ucp'} is a source tree without a compiled" in done.stdout
    python = ROOT / ".venv/bin/python"
    remedy = f"Start {python}, where" if python.exists() else "Run 'make demo' in"
    assert f"-> {remedy} " in done.stdout


def test_the_error_of_an_import_names_doctor():
    done = ucp_command("info", UCP_UCX="/nonexistent")
    assert done.returncode == 1
    assert done.stderr.endswith(f"{startup.HINT}\n")


@pytest.mark.parametrize(
    ("argv", "orig_argv", "command"),
    [
        (["-m", "doctor"], ["python", "-m", "ucp", "doctor"], "doctor"),
        (["-m", "info", "--json"], ["python", "-Pmucp", "info", "--json"], "info"),
        (["-m", "doctor"], ["python", "-m", "other", "doctor"], None),
        (["-m"], ["python", "-m", "ucp"], None),
        (["program.py", "doctor"], ["python", "program.py", "doctor"], None),
        (["/opt/venv/bin/ucp", "top"], ["python", "/opt/venv/bin/ucp", "top"], "top"),
    ],
)
def test_the_command_is_known_before_it_is_run(monkeypatch, argv, orig_argv, command):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", orig_argv)
    assert startup.command() == command


# The installation.


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A directory that is taken for the package's."""
    folder = tmp_path / "ucp"
    (folder / "_libs").mkdir(parents=True)
    monkeypatch.setattr(installation, "_PACKAGE", folder)
    return folder


def test_an_extension_for_another_python_is_a_problem(package):
    (package / "_ext.cpython-309-x86_64-linux-gnu.so").touch()
    (text,) = only(installation._package(), "problem")
    assert "built for another Python" in text
    assert f"{sys.executable} -m pip install --force-reinstall" in text


def test_a_package_without_its_library_is_a_problem(package):
    (package / "_ext.abi3.so").touch()
    (text,) = only(installation._package(), "problem")
    assert "has no lib/libumx.so.0" in text


@pytest.mark.parametrize("file", ["_libs/ucx_api.cpython-311.so", "ucp.py"])
def test_files_of_another_distribution_are_a_problem(package, file):
    (package / file).touch()
    (text,) = only(installation._owners(), "problem")
    assert f"has files of another distribution: {file}" in text
    assert "Run 'pip uninstall -y " in text


def test_a_second_owner_of_the_package_is_a_problem(package, monkeypatch):
    owners = {"ucp": ["umx", "ucx-py-cu12"]}
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: owners)
    (text,) = only(installation._owners(), "problem")
    assert "The distributions ucx-py-cu12 have a package ucp, too" in text
    assert "Run 'pip uninstall -y ucx-py-cu12 umx'" in text


# UCX.


def test_other_versions_of_ucx_than_the_tested_ones_are_noted():
    found = {"version": "1.99.0", "kind": "system", "path": "/lib/libucp.so.0"}
    (text,) = only(ucx._version(found), "note")
    assert "ucp was tested with 1.13 to 1.23" in text


def test_missing_transports_are_noted(monkeypatch):
    monkeypatch.setenv("UCX_TLS", "tcp")
    text = only(ucx._transports([["tcp", "lo"]]), "note")
    assert "UCX_TLS=tcp chooses them. Add sysv and posix to UCX_TLS" in text[0]
    assert "The only network device is lo" in text[1]
    (_, text) = only(ucx._transports([["self", "memory"]]), "note")
    assert "There is no network" in text


def test_every_variable_of_the_library_is_known():
    files = [ROOT / "setup.py", *(ROOT / "ucp").rglob("*.py")]
    files += [*(ROOT / "src").glob("*/*.[ch]"), *(ROOT / "ucp_ext").rglob("*.[ch]")]
    source = "".join(file.read_text() for file in files)
    used = set(re.findall(r'"((?:UCP|UCXPY)_[A-Z_]+)"', source))
    assert used - {*ucx.VARIABLES} == set()


def test_variables_that_nobody_reads_are_noted(monkeypatch):
    monkeypatch.setenv("UCP_TOKEN_FIEL", "/x")
    monkeypatch.setenv("UCX_ZZZZ", "1")
    texts = only(ucx._variables(["UCX_TLS"]), "note")
    assert any(
        "UCP_TOKEN_FIEL='/x'" in t and "UCP_TOKEN_FILE meant" in t for t in texts
    )
    assert any("UCX_ZZZZ='1'" in t and t.endswith("Unset it.") for t in texts)


# Memory and limits.

SEGMENTS = """\
       key      shmid perms                  size  cpid  lpid nattch   uid   gid
         0         17   600                 65536     1     1      0 {uid}     0
         0         18   600                 65536 {pid}     1      0 {uid}     0
         0         19   600                 65536     1     1      2 {uid}     0
         0         20   600                 65536     0     0      0 {uid}     0
"""


def test_segments_that_were_left_behind_are_listed():
    gone = subprocess.Popen(["true"])
    gone.wait()
    found = memory.segments(SEGMENTS.format(uid=os.geteuid(), pid=gone.pid))
    assert [each.identifier for each in found] == [17, 18, 19, 20]
    (text,) = only(memory._left_behind("System V", found), "note")
    assert text.endswith("64 KiB. If they are of no use, run 'ipcrm -m 18'.")


def test_few_segments_are_a_problem(monkeypatch):
    monkeypatch.setattr(memory, "read_number", lambda path: 10**9)
    assert only(memory._system_v(), "problem") == []
    monkeypatch.setattr(
        memory, "read_number", lambda path: 1 if "shmmni" in path else 10**9
    )
    monkeypatch.setattr(
        memory, "segments", lambda text: [memory.Segment(0, 1, 1, os.getpid(), 1, 0)]
    )
    (text,) = only(memory._system_v(), "problem")
    assert "1 of 1 segments are in use" in text
    assert "Run 'sysctl -w kernel.shmmni=32768'" in text


class Filesystem:
    f_frsize, f_blocks, f_bavail, f_flag = 4096, 16384, 16384, 0


@pytest.mark.parametrize(
    ("free", "level"), [(16384, "note"), (10, "note"), (4096, "problem")]
)
def test_a_small_or_full_dev_shm_is_told(monkeypatch, free, level):
    monkeypatch.setattr(Filesystem, "f_bavail", free)
    monkeypatch.setattr(os, "statvfs", lambda path: Filesystem)
    (text,) = only(memory._posix(), level)
    assert text.startswith("/dev/shm has 64 MiB")
    assert "--shm-size=2g" in text


def test_a_dev_shm_that_is_read_only_is_a_problem(monkeypatch):
    monkeypatch.setattr(Filesystem, "f_flag", os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda path: Filesystem)
    (text,) = only(memory._posix(), "problem")
    assert "mount -o remount,rw /dev/shm" in text and "UCX_TLS=sysv,tcp,self" in text


def test_little_locked_memory_is_a_problem_with_rdma(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (65536, 65536))
    monkeypatch.setattr(os, "listdir", lambda path: ["mlx5_0"])
    (text,) = only(memory._locked(), "problem")
    assert "64 KiB may be locked" in text and "ulimit -l unlimited" in text


@pytest.mark.parametrize(("soft", "level"), [(40, "problem"), (1024, "note")])
def test_few_descriptors_are_told(monkeypatch, soft, level):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, 1 << 20))
    (text,) = only(limits._descriptors(), level)
    assert f"{soft} files may be open" in text and "'ulimit -n 65536'" in text


def test_a_process_reads_the_memory_of_another_or_says_why_not(monkeypatch):
    assert system._try_reading() in ("same", "Operation not permitted")
    monkeypatch.setattr(system, "_try_reading", lambda: "Operation not permitted")
    monkeypatch.setattr(system, "read_number", lambda path: 1)
    (text,) = only(system._reading(), "note")
    assert "kernel.yama.ptrace_scope is 1): Operation not permitted" in text
    assert "'sysctl -w kernel.yama.ptrace_scope=0'" in text


def test_namespaces_are_compared():
    assert only(system._namespaces(os.getpid()), "note") == []
    (text,) = only(system._namespaces(2**31 - 1), "problem")
    assert "There is no process 2147483647 here" in text


SYSTEM_V = """
from ucp._commands import memory
for each in memory._system_v():
    print(each.level, each.text)
"""


def test_a_sandbox_without_segments_is_noted():
    said = run_script(SANDBOX + refuse("shmget") + SYSTEM_V)
    assert said.startswith("note The system refuses segments of shared memory: Oper")
    assert "UCX goes without its transport sysv" in said


@pytest.mark.parametrize("limits", [{"shmmax": 1}, {"shmall": 0}])
def test_limits_without_room_are_noted(limits):
    said = run_script(SANDBOX + limit(**limits) + SYSTEM_V)
    assert said.startswith("note 0 of ")
    assert said.endswith("UCX goes without its transport sysv.\n")


@pytest.mark.parametrize("ranks", [2, 5])
def test_an_inbox_is_as_large_as_the_library_makes_it(ranks):
    async def main(comm):
        for _ in range(5):
            await comm.barrier()
        found = memory.segments(Path("/proc/sysvipc/shm").read_text())
        await comm.barrier()
        return [each.size for each in found if each.creator == os.getpid()]

    size = memory.inbox_size(ranks)
    for sizes in good_world(ranks, main):
        assert sum(size <= each <= size + 8192 for each in sizes) == ranks


@pytest.mark.parametrize(
    ("shmmax", "shmall", "text"),
    [
        (1 << 40, 1 << 30, "It becomes memory where it is used"),
        (1 << 22, 1 << 30, "and a segment may have 4 MiB (kernel.shmmax). Rings are"),
        (1 << 40, 3000, "MiB are left in all (kernel.shmall). Rings are smaller"),
    ],
)
def test_rings_of_ranks_are_counted(monkeypatch, shmmax, shmall, text):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    (found,) = memory._rings("", (8 << 20) + 4096, shmall * 4096, shmmax)
    assert found.text.startswith("4 ranks of this host, one for each processor, want ")
    assert text in found.text
    assert (found.level == "ok") == (found.remedy == "") == ("becomes" in text)


def test_a_process_of_this_user_is_no_finding():
    assert list(system._users(os.getpid())) == []


def test_a_process_of_another_user_is_noted():
    command = [*as_user(ONE), sys.executable, "-P", "-c", "input()"]
    with started(command, stdin=subprocess.PIPE) as process:
        until_user(process.pid, ONE)
        (text,) = only(system._users(process.pid), "note")
        (more,) = only(system._namespaces(process.pid, True), "ok")
    assert text.startswith(f"Process {process.pid} is of user {ONE}, and this one of ")
    assert "by TCP. For shared memory run both as one user." in text
    assert "shared memory" not in more


def until_user(pid, user):
    while os.stat(f"/proc/{pid}").st_uid != user:
        pass


def until_environment(pid):
    """Popen() returns when the program has been found, and has none yet."""
    while not Path(f"/proc/{pid}/environ").read_bytes():
        pass


def test_a_process_with_other_queues_is_noted(monkeypatch):
    assert list(system._queues(os.getpid())) == []
    env = {**os.environ, "UCX_MM_FIFO_SIZE": "512", "UCX_SYSV_SEG_SIZE": "4k"}
    monkeypatch.setenv("UCX_SYSV_SEG_SIZE", "4k")
    monkeypatch.setenv("UCX_TLS", "all")  # which separates no two processes
    with subprocess.Popen("cat", env=env, stdin=subprocess.PIPE) as process:
        until_environment(process.pid)
        (text,) = only(system._queues(process.pid), "note")
        (more,) = only(system._namespaces(process.pid, True), "ok")
    assert text.startswith(
        f"Process {process.pid} was started with UCX_MM_FIFO_SIZE=512, and this one "
        "with none of these variables: messages between the two go by TCP, "
    )
    assert "shared memory" not in more


CHANGES_ITS_USER = f"""
import asyncio, os, ucp

async def main():
    async with ucp.create_listener(host="127.0.0.1"):
        os.setuid({ONE})
        print("changed", flush=True)
        await asyncio.to_thread(input)

asyncio.run(main())
"""


def test_a_process_that_has_changed_its_user_is_noted():
    command = [*as_user(SUPERUSER), sys.executable, "-P", "-c", CHANGES_ITS_USER]
    with started(command, stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "changed\n"
        texts = only(system._users(process.pid), "note")
    assert f"is of user {ONE}, and has made shared memory as root: " in texts[1]


@pytest.fixture
def groups(monkeypatch, tmp_path):
    """Has this process in control groups whose files are these."""

    def make(own, **files):
        (tmp_path / "cgroup").write_text(own)
        for name, text in files.items():
            file = tmp_path / name.replace("__", "/").replace("_of_", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

        def path(first, *rest):
            place = str(first)
            if place == "/proc/self/cgroup":
                return tmp_path / "cgroup"
            if place == "/sys/fs/cgroup":
                return tmp_path.joinpath(*rest)
            return Path(first, *rest)

        monkeypatch.setattr(limits, "Path", path)

    return make


@pytest.mark.parametrize(
    ("own", "files"),
    [
        (
            "0::/a/b\n",
            {"a__b__cpu_of_max": "max 100000", "a__cpu_of_max": "50000 100000"},
        ),
        (
            "2:cpu,cpuacct:/a\n0::/\n",
            {
                "cpu__a__cpu_of_cfs_quota_us": "50000",
                "cpu__a__cpu_of_cfs_period_us": "100000",
                "cpu__cpu_of_cfs_quota_us": "-1",
                "cpu__cpu_of_cfs_period_us": "100000",
            },
        ),
        ("0::/../of/others\n", {"cpu_of_max": "50000 100000"}),
    ],
    ids=["version 2", "version 1", "container"],
)
def test_less_time_than_cpus_is_noted(groups, own, files):
    groups(own, **files)
    (text,) = only(limits._cpus(), "note")
    assert "It allows 0.5 CPUs of time" in text


@pytest.mark.parametrize(
    ("own", "files"),
    [
        (
            "0::/a\n",
            {"a__memory_of_max": "max", "memory_of_max": str(1 << 30)}
            | dict.fromkeys(
                ["a__memory_of_current", "memory_of_current"], str(1 << 30)
            ),
        ),
        (
            "4:memory:/\n",
            {
                "memory__memory_of_limit_in_bytes": str(1 << 30),
                "memory__memory_of_usage_in_bytes": str((1 << 30) + 4096),
            },
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_little_memory_of_the_control_group_is_noted(groups, own, files):
    groups(own, **files)
    (text,) = only(limits._memory(), "note")
    assert text.startswith("It allows 1 GiB of memory, of which 0 B are left.")
    assert "SIGKILL" in text and "--memory" in text


def test_no_limit_of_memory_is_fine(groups):
    groups(
        "4:memory:/\n",
        memory__memory_of_limit_in_bytes="9223372036854771712",
        memory__memory_of_usage_in_bytes="4096",
    )
    assert only(limits._memory(), "ok") == ["It has no limit of memory "]


@pytest.mark.parametrize(("room", "level"), [(9, "problem"), (200, "note")])
def test_few_threads_are_told(groups, room, level):
    groups("0::/a\n", a__pids_of_max=str(1000 + room), a__pids_of_current="1000")
    (text,) = only(limits._threads(), level)
    assert text.startswith(f"{room} more threads may be started (pids.max of the ")
    assert "--pids-limit" in text


def test_few_threads_of_a_user_are_told(groups, monkeypatch):
    groups("")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1, 1))
    (text,) = only(limits._threads(), "problem")
    assert text.startswith("0 more threads may be started (RLIMIT_NPROC)")


def test_a_gpu_without_its_parts_is_told(monkeypatch, tmp_path):
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64  570.1.2  Release")
    monkeypatch.setattr(gpu, "_DRIVER", driver)
    monkeypatch.setattr(gpu, "_ask", lambda: None)
    (text,) = only(gpu.check({"tcp"}), "problem")
    assert "driver 570.1.2 is loaded, but libcuda.so.1 cannot be loaded" in text
    answer = {"status": 0, "version": 12080, "names": ["a GPU"]}
    monkeypatch.setattr(gpu, "_ask", lambda: answer)
    monkeypatch.setattr(devices, "_measure", list)
    found = list(gpu.check({"tcp"}))
    assert found[0].text == "NVIDIA driver 570.1.2, CUDA 12.8: a GPU"
    assert "UCX has no transport for CUDA" in only(found, "problem")[0]


WAYS = """
from ucp._commands import devices
for finding in devices.check():
    print(finding.level, finding.text)
"""


def test_the_ways_between_devices_are_measured():
    said = run_script(WAYS, **standin.settings(ucx=True)).splitlines()
    assert [line.rsplit(",", 1)[0] for line in said] == [
        "ok host to cuda: by host slots",
        "ok pinned to cuda: by device slots",
        "ok cuda-managed to cuda: by host slots",
        "ok cuda to host: by host slots",
        "ok cuda to cuda: by cuda_ipc",
        "ok cuda of an asynchronous pool to host: by host slots",
        "ok cuda of an asynchronous pool to cuda: by device slots",
    ]


def test_what_keeps_devices_from_each_other_is_told(monkeypatch):
    slow = [("cuda", "cuda", "host slots", 2.0), ("cuda", "cuda", "device slots", 9.0)]
    monkeypatch.setattr(devices, "_measure", lambda: slow)
    found = list(devices.check())
    assert "no process maps device memory of another" in found[0].text
    assert "UCX has no cuda_ipc" in found[1].text
    monkeypatch.setattr(devices, "_measure", lambda: "MemoryError")
    assert "failed: MemoryError" in only(devices.check(), "problem")[0]


def test_addresses_and_the_name_of_the_host_are_told(monkeypatch):
    monkeypatch.setenv("UCXPY_IFNAME", "lo")
    monkeypatch.setattr(socket, "gethostname", lambda: "127.0.0.1")
    found = list(network.check())
    assert "lo 127.0.0.1" in found[0].text
    assert found[1].text.startswith("Peers are told 127.0.0.1 by ucp.get_address()")
    assert "here it works" in found[2].text
    monkeypatch.setenv("UCXPY_IFNAME", "none0")
    assert "UCXPY_IFNAME=none0 names no interface" in list(network.check())[1].text


# The way to another host.


async def reach(port, host="127.0.0.1"):
    return await exchange.reach(host, port, "there")


async def test_each_step_of_the_way_is_told():
    async with ucp.create_listener(service._serve_one, host="127.0.0.1") as listener:
        steps = await reach(listener.port, "localhost")
    assert [step.level for step in steps] == ["ok"] * 3
    assert steps[0].text.startswith("localhost is ")
    assert steps[1].text == f"TCP reaches port {listener.port} of localhost"
    assert steps[2].text.startswith("There and back, every byte compared: 8 B in ")


async def test_a_refused_connection_is_told(closed_port):
    (text,) = only(await reach(closed_port), "problem")
    assert f"refuses connections to port {closed_port}" in text
    assert f"Start 'python -m ucp doctor --listen {closed_port}' there." in text


async def test_a_server_that_is_not_ucp_is_told(mute_server, monkeypatch):
    monkeypatch.setattr(exchange, "_STEP", 0.2)
    (text,) = only(await reach(mute_server), "problem")
    assert "The handshake does not end" in text and "UCX_TCP_PORT_RANGE" in text


async def test_a_name_without_an_address_is_told(monkeypatch):
    def unknown(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    (text,) = only(await reach(1, "nosuch"), "problem")
    assert "The name nosuch is not resolved: " in text


async def test_a_peer_that_does_not_understand_is_told():
    async def other(ep):
        await ep.recv_obj()
        await ep.send_obj(b'{"error": "a riddle"}')
        await ep.recv_obj()

    async with ucp.create_listener(other, host="127.0.0.1") as listener:
        found = await reach(listener.port)
    (text,) = only(found, "problem")
    assert "Messages fail after the handshake: the peer said: a riddle" in text


async def test_a_process_that_does_not_start_is_told(monkeypatch):
    failing = [sys.executable, "-c", "import sys; sys.exit('it is broken')"]
    monkeypatch.setattr(service, "command", lambda *arguments: failing)
    (finding,) = await exchange._two_processes("two processes", {})
    assert finding.text == (
        "The other process did not start: it ended with status 1; it said:\n"
        "it is broken"
    )


async def test_the_signal_that_kills_a_process_is_told(monkeypatch):
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    failing = [sys.executable, "-c", code]
    monkeypatch.setattr(service, "command", lambda *arguments: failing)
    (finding,) = await exchange._two_processes("two processes", {})
    assert "it was killed by SIGSEGV; it said nothing" in finding.text


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ucp.UCXUnreachable("x"), "The two have no transport in common"),
        (ucp.UCXConnectionReset("no transport leads"), "The two have no transport"),
        (ucp.UCXConnectionReset("x"), "The process there has ended"),
        (ucp.UCXProtocolError("x"), "Something that is not ucp may listen there"),
    ],
)
def test_the_remedy_is_that_of_the_error(error, remedy):
    assert exchange._remedy(error, 1).startswith(remedy)


async def test_processes_that_cannot_be_started_are_told(monkeypatch):
    async def refuse(*args, **kwargs):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    (finding,) = await exchange._two_processes("two processes", {})
    assert finding.text == "Processes cannot be started: Too many open files."
    assert "ulimit -n" in finding.remedy


def test_ucx_that_cannot_be_asked_is_told(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert ucx._probe.__wrapped__()[1].endswith("be started: Too many open files.")


async def test_a_process_that_hangs_is_told_and_ended(monkeypatch):
    hanging = [sys.executable, "-c", "import signal; signal.pause()"]
    monkeypatch.setattr(service, "command", lambda *arguments: hanging)
    monkeypatch.setattr(exchange, "_LIMIT", 0.2)
    before = children()
    (finding,) = await exchange._two_processes("two processes", {})
    assert finding.text == "They have exchanged nothing in 0.2 s."
    assert children() == before


def children():
    pid = os.getpid()
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["host"], "expected HOST:PORT, not 'host'"),
        ([":80"], "expected HOST:PORT, not ':80'"),
        (["--listen", "0", "host:1"], "--listen or HOST:PORT, not both"),
    ],
)
def test_a_wrong_address_is_refused(arguments, error, capsys):
    assert commands.main(["doctor", *arguments]) == 2
    assert capsys.readouterr().err == f"python -m ucp doctor: {error}\n"


def test_a_range_of_few_ports_is_a_problem(monkeypatch, closed_port):
    monkeypatch.setenv("UCX_TCP_PORT_RANGE", f"{closed_port}-{closed_port}")
    (text,) = only(network.ports(2), "problem")
    assert "has 0 free ports, and doctor's workers need 2" in text
    monkeypatch.setenv("UCX_TCP_PORT_RANGE", "0")
    assert only(network.ports(2), "problem") == []


@pytest.mark.parametrize("is_another_found", [False, True])
def test_the_way_to_a_host_is_not_looked_at_without_ucx(is_another_found):
    folder = os.path.dirname(ucp.which_ucx().path) if is_another_found else ""
    done = ucp_command(
        "doctor", "host:1", UCP_UCX="/nonexistent", LD_LIBRARY_PATH=folder
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "'import ucp' fails: ImportError: UCP_UCX=/nonexistent" in done.stdout


def test_a_value_that_ucx_refuses_is_a_problem(monkeypatch):
    monkeypatch.setenv("UCX_TCP_MAX_POLL", "bad")
    monkeypatch.setattr(
        ucx, "_probe", lambda with_options: ({"variables": ["UCX_TCP_MAX_POLL"]}, "")
    )
    (text,) = only(ucx._variables([]), "problem")
    assert "UCX_TCP_MAX_POLL='bad' is refused" in text


@pytest.mark.parametrize(
    ("own", "level", "text"),
    [
        ((), "ok", "messages go through shared memory"),
        (("pid",), "note", "go by TCP. For shared memory share the namespace pid"),
        (("net",), "note", "go by TCP. Addresses such as 127.0.0.1 are not shared."),
        (("ipc", "pid"), "note", "another namespace ipc and pid: messages between"),
        (("user",), "note", "another namespace of users"),
    ],
)
def test_what_namespaces_mean_for_messages_is_told(monkeypatch, own, level, text):
    monkeypatch.setattr(system, "_is_shared", lambda pid, kind: kind not in own)
    assert text in only(system._namespaces(1), level)[0]


def test_a_check_that_fails_itself_ends_no_other():
    def broken():
        raise OSError("no such file")
        yield

    (finding,) = doctor._guarded("memory", broken)
    assert finding.text == "This could not be looked at: OSError: no such file"
