# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/environment
"""Rank, size and root as launchers leave them in the environment."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ucp._communicator.environment import first_host, from_environment
from ucp.exceptions import UCXConfigError

OWN = {"UCP_RANK": "1", "UCP_SIZE": "4", "UCP_ROOT": "10.0.0.1:7000"}
TORCH = {
    "RANK": "2",
    "WORLD_SIZE": "8",
    "MASTER_ADDR": "node7",
    "MASTER_PORT": "29500",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-node7-7880@1",
}
PMI = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_NODELIST": "node[03-07,11],gpu1",
    "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "2",
}


def without(environ, *names):
    return {name: text for name, text in environ.items() if name not in names}


# ---- each launcher -----------------------------------------------------------


def test_own_variables():
    assert from_environment(OWN) == (1, 4, "tcp://10.0.0.1:7000", "ucp")


def test_variables_of_torchrun():
    rank, size, root, launcher = from_environment(TORCH)
    assert (rank, size, launcher) == (2, 8, "torchrun")
    assert root == "tcp://node7:61756"


def test_variables_of_slurm():
    rank, size, root, launcher = from_environment(SLURM)
    assert (rank, size, launcher) == (5, 6, "Slurm")
    assert root == f"tcp://node03:{20000 + (101 * 1234 + 2) % 12000}"


def test_slurm_without_the_number_of_the_steps_tasks():
    assert from_environment(without(SLURM, "SLURM_STEP_NUM_TASKS")).size == 16


def test_variables_of_open_mpi_on_one_host():
    rank, size, root, launcher = from_environment(OPEN_MPI | {"XDG_RUNTIME_DIR": ""})
    assert (rank, size, launcher) == (0, 2, "Open MPI")
    own = Path(tempfile.gettempdir(), f"ucp-{os.getuid()}")
    assert root == (own / "openmpi-prterun-node7-7880-1").as_uri()


def test_a_file_of_a_job_lies_in_the_users_own_directory(tmp_path):
    environ = OPEN_MPI | {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert from_environment(environ).root.startswith(tmp_path.as_uri() + "/")


ENVIRONMENT = "from ucp._communicator.environment import from_environment"
PRINT_ROOT = f"{ENVIRONMENT}; print(from_environment().root)"


def test_ranks_of_mpich_on_one_host_have_the_file_of_their_mpirun(tmp_path):
    # Ranks of mpirun run below a process of this name, possibly behind shells.
    proxy = tmp_path / "hydra_pmi_proxy"
    proxy.write_text('#!/bin/sh\n"$@"\nsh -c \'"$@"; true\' sh "$@"\ntrue\n')
    proxy.chmod(0o700)
    command = [proxy, sys.executable, "-P", "-c", PRINT_ROOT]
    jobs = [
        subprocess.run(
            command, env=os.environ | PMI, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert all(len(roots) == 2 and len(set(roots)) == 1 for roots in jobs)
    assert jobs[0][0] != jobs[1][0]
    assert "/pmi-" in jobs[0][0]


# ---- several launchers -------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "launcher"),
    [
        (OWN | TORCH | OPEN_MPI | PMI | SLURM, "ucp"),
        (TORCH | OPEN_MPI | SLURM, "torchrun"),
        (OPEN_MPI | SLURM, "Open MPI"),
        (PMI | SLURM | {"UCP_ROOT": "a:1"}, "PMI"),
        (SLURM | {"RANK": "1"}, "Slurm"),
        (OWN | without(SLURM, "SLURM_STEP_ID"), "ucp"),
    ],
)
def test_the_launcher_that_the_others_have_started_counts(environ, launcher):
    assert from_environment(environ).launcher == launcher


@pytest.mark.parametrize("environ", [TORCH, OPEN_MPI, PMI, SLURM])
def test_ucp_root_goes_with_every_launcher(environ):
    assert from_environment(environ | {"UCP_ROOT": "a:1"}).root == "tcp://a:1"


def test_a_master_goes_with_ranks_of_another_launcher():
    environ = SLURM | {"MASTER_ADDR": "::1", "MASTER_PORT": "40000"}
    assert from_environment(environ).root == "tcp://[::1]:7744"


def test_two_kinds_of_mpi_that_agree_are_one():
    environ = OPEN_MPI | {"PMI_RANK": "0", "PMI_SIZE": "2"}
    assert from_environment(environ).launcher == "Open MPI"


def test_two_kinds_of_mpi_that_contradict_each_other_are_refused():
    with pytest.raises(
        UCXConfigError,
        match=r"^the environment contradicts itself \(OMPI_COMM_WORLD_RANK='0', "
        r"OMPI_COMM_WORLD_SIZE='2', PMI_RANK='3', PMI_SIZE='4'\): set UCP_RANK, "
        r"UCP_SIZE$",
    ):
        from_environment(OPEN_MPI | PMI)


# ---- what is missing or makes no sense ---------------------------------------

START = (
    r"start the program with python -m ucp run, torchrun, mpirun or srun, or set "
    r"UCP_RANK, UCP_SIZE and UCP_ROOT$"
)
ROOT = r"set UCP_ROOT to host:port of rank 0, or use from_allgather\(\)$"


@pytest.mark.parametrize(
    ("environ", "error"),
    [
        ({}, f"no rank in the environment: {START}"),
        ({"MASTER_ADDR": "a"}, f"no rank in the environment: {START}"),
        (without(OWN, "UCP_SIZE"), f"UCP_RANK is set, but UCP_SIZE is not: {START}"),
        (without(OWN, "UCP_RANK"), f"UCP_SIZE is set, but UCP_RANK is not: {START}"),
        (without(OWN, "UCP_RANK") | TORCH, f"UCP_SIZE is set, but UCP_RANK .*{START}"),
        ({"RANK": "1"}, f"RANK is set, but WORLD_SIZE is not: {START}"),
        (without(PMI, "PMI_SIZE"), f"PMI_RANK is set, but PMI_SIZE is not: {START}"),
        (
            without(OWN, "UCP_ROOT"),
            f"ucp has set a rank, but nothing says where rank 0 is: {ROOT}",
        ),
        (
            without(TORCH, "MASTER_ADDR"),
            f"torchrun has set a rank, but nothing says where rank 0 is: {ROOT}",
        ),
        (
            without(TORCH, "MASTER_PORT"),
            f"MASTER_ADDR is set, but MASTER_PORT is not: {ROOT}",
        ),
        (
            without(SLURM, "SLURM_STEP_ID", "SLURM_STEP_NODELIST"),
            "SLURM_PROCID is set, but SLURM_STEP_ID is not: a batch script is one "
            "process; start the ranks in it with srun",
        ),
        (
            without(SLURM, "SLURM_STEP_NODELIST"),
            f"SLURM_PROCID is set, but SLURM_STEP_NODELIST is not: {ROOT}",
        ),
        (
            without(SLURM, "SLURM_JOB_ID"),
            f"SLURM_PROCID is set, but SLURM_JOB_ID is not: {ROOT}",
        ),
        (
            without(SLURM, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
            f"SLURM_PROCID is set, but SLURM_STEP_NUM_TASKS is not: {START}",
        ),
        (
            OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
            f"1 of 2 ranks are on this host, and nothing says where rank 0 is: {ROOT}",
        ),
        (
            without(OPEN_MPI, "PMIX_NAMESPACE"),
            f"OMPI_COMM_WORLD_RANK is set, but PMIX_NAMESPACE is not: {ROOT}",
        ),
        (
            without(PMI, "MPI_LOCALNRANKS"),
            f"PMI_SIZE is set, but MPI_LOCALNRANKS is not: {ROOT}",
        ),
        (PMI, f"PMI_RANK is set, but no process above this one is mpirun's: {ROOT}"),
    ],
)
def test_what_is_missing_is_named(environ, error):
    with pytest.raises(UCXConfigError, match=f"^{error}"):
        from_environment(environ)


@pytest.mark.parametrize("names", [tuple(OWN)[:2], tuple(TORCH)[:2], tuple(PMI)[:2]])
@pytest.mark.parametrize(
    ("rank", "size", "error"),
    [
        ("4", "4", "{0} is 4, but {1} is 4"),
        ("999999999", "2", "{0} is 999999999, but {1} is 2"),
        ("0", "0", "{1} is 0: at least one rank"),
        ("-1", "4", "{0} is not a number: '-1'"),
        ("", "4", "{0} is not a number: ''"),
        ("0", "", "{1} is not a number: ''"),
        ("one", "4", "{0} is not a number: 'one'"),
        (" 1", "4", "{0} is not a number: ' 1'"),
        ("1_0", "40", "{0} is not a number: '1_0'"),
        ("1\n", "4", r"{0} is not a number: '1\n'"),
        ("\u0661", "4", "{0} is not a number: '\u0661'"),
        ("1.0", "4", "{0} is not a number: '1.0'"),
        ("0", "1" * 10, "{1} is not a number: '1111111111'"),
    ],
)
def test_numbers_are_numbers_and_ranks_less_than_the_size(names, rank, size, error):
    environ = OWN | TORCH | PMI
    for name in OWN if names[0] != "UCP_RANK" else ():
        del environ[name]
    for name in TORCH if names[0] == "PMI_RANK" else ():
        del environ[name]
    environ |= {names[0]: rank, names[1]: size}
    error = re.escape(error.format(*names))
    with pytest.raises(UCXConfigError, match=f"^{error}$"):
        from_environment(environ)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("a:1", "tcp://a:1"),
        ("tcp://a.b-c.example:65535", "tcp://a.b-c.example:65535"),
        ("[::1]:7000", "tcp://[::1]:7000"),
        ("[fe80::1%eth0]:7000", "tcp://[fe80::1%eth0]:7000"),
    ],
)
def test_a_root_is_host_and_port(text, url):
    assert from_environment(OWN | {"UCP_ROOT": text}).root == url


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "a", "a:", ":1", "a:b", "::1", "::1:7000", "a:1:2", "a b:1"),
        *("[]:1", "[[::1]]:1", "[::1:1", "a]:1", "a/b:1", "http://a:1", "a:1\n"),
        *("a:-1", "a: 1", "a:123456"),
    ],
)
def test_a_root_without_host_or_port_is_refused(text):
    with pytest.raises(UCXConfigError, match=r"^UCP_ROOT is not host:port: "):
        from_environment(OWN | {"UCP_ROOT": text})


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(UCXConfigError, match=r"^UCP_ROOT has no port of 1 to 65535: "):
        from_environment(OWN | {"UCP_ROOT": f"a:{port}"})
    with pytest.raises(
        UCXConfigError, match=r"^MASTER_PORT is [0-9]+, not 1 to 65535$"
    ):
        from_environment(TORCH | {"MASTER_PORT": port})


@pytest.mark.parametrize("host", ["", "a b", "a/b", "a\n", "[]", "[a", "a]"])
def test_a_master_that_is_no_host_is_refused(host):
    with pytest.raises(UCXConfigError, match=r"^MASTER_ADDR is not a host: "):
        from_environment(TORCH | {"MASTER_ADDR": host})


def port_beside(port):
    root = from_environment(TORCH | {"MASTER_PORT": str(port)}).root
    return int(root.rpartition(":")[2])


def test_each_master_port_has_a_port_of_its_own_beside_it():
    ports = range(1024, 65536)
    beside = {port: port_beside(port) for port in ports}
    assert set(beside.values()) == set(ports)
    assert all(beside[other] == port != other for port, other in beside.items())


# ---- lists of hosts ----------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[01-03,07],gpu1", "node01"),
        ("gpu1,node[01-03,07]", "gpu1"),
        ("node[7]", "node7"),
        ("node[7,9-11]", "node7"),
        ("rack[2-3]node[001-128]", "rack2node001"),
        ("a-b.c[09-10]-ib,x", "a-b.c09-ib"),
        ("[1-2]", "1"),
    ],
)
def test_the_first_host_of_a_list(hosts, first):
    assert first_host(hosts) == first


@pytest.mark.parametrize(
    "hosts",
    [
        *("", ",", ",a", "node[", "node]", "node[]", "node[a-b]", "node[1-"),
        *("node[-1]", "node[1,]", "node[[1]]", "node[1]]", "node[1--2]"),
        *("a b", "a;b", "a\n"),
    ],
)
def test_what_is_no_list_of_hosts_is_refused(hosts):
    with pytest.raises(
        UCXConfigError, match=r"^SLURM_STEP_NODELIST is not a list of hosts: "
    ):
        first_host(hosts)


def test_steps_of_a_job_have_ports_of_their_own():
    jobs = [
        SLURM | {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)}
        for job in range(50)
        for step in range(100)
    ]
    ports = {int(from_environment(job).root.rpartition(":")[2]) for job in jobs}
    assert len(ports) == len(jobs)
    assert min(ports) >= 20000 and max(ports) < 32000


def test_the_environment_of_the_process_is_the_default():
    script = f"{ENVIRONMENT}; import json; print(json.dumps(from_environment()))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, **OWN},
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) == [1, 4, "tcp://10.0.0.1:7000", "ucp"]
