# SPDX-License-Identifier: BSD-3-Clause
"""Which rank this process is, and where rank 0 is, by the environment.

Rank and size come from the first launcher of this list that has set them:

=================  =============================================================
``ucp run``, user  UCP_RANK, UCP_SIZE
torchrun           RANK, WORLD_SIZE
Open MPI           OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
MPICH, Intel MPI   PMI_RANK, PMI_SIZE
Slurm              SLURM_PROCID, SLURM_STEP_NUM_TASKS (or SLURM_NTASKS)
=================  =============================================================

Slurm is last: within its jobs, torchrun and mpirun are started by a step of
Slurm's, whose variables number the hosts. The root comes from

1. UCP_ROOT, ``host:port``;
2. MASTER_ADDR and MASTER_PORT, with another port: that one is torch's store;
3. Slurm's step: its first host, and a port made of the numbers of job and step;
4. mpirun on one host: a file that is named after the job.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .._core.resolve import host_and_port
from ..exceptions import UCXConfigError

_ROOT = "UCP_ROOT"
_OWN = "UCP_RANK", "UCP_SIZE"
_TORCH = "RANK", "WORLD_SIZE"
_OPEN_MPI = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
_PMI = "PMI_RANK", "PMI_SIZE"
_SLURM = "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"

_MAX_PORT = 65535
_HOST_NAME = r"[A-Za-z0-9._%:-]+"

_HOW = (
    "start the program with python -m ucp run, torchrun, mpirun or srun, or set "
    "UCP_RANK, UCP_SIZE and UCP_ROOT"
)
_HOW_ROOT = "set UCP_ROOT to host:port of rank 0, or use from_allgather()"


class Ranks(NamedTuple):
    """What the environment says.

    Attributes:
        rank: this process's, from 0.
        size: how many there are.
        root: where rank 0 listens, ``tcp://host:port``; or ``file:///path`` of a
            file on this host into which rank 0 writes the address.
        launcher: who has set the variables, for error messages.
    """

    rank: int
    size: int
    root: str
    launcher: str


def from_environment(environ: Mapping[str, str] = os.environ) -> Ranks:
    """Read rank, size and root.

    Raises:
        UCXConfigError: a variable is missing or makes no sense, or two launchers
            say different things; the message names the variables.
    """
    rank, size, launcher = _rank_and_size(environ)
    return Ranks(rank, size, _root(environ, launcher), launcher)


# Rank and size.


def _rank_and_size(environ: Mapping[str, str]) -> tuple[int, int, str]:
    found = next(_launchers(environ), None)
    if found is None:
        raise UCXConfigError(f"no rank in the environment: {_HOW}")
    launcher, names = found
    missing = [name for name in names if name not in environ]
    if missing:
        other = next(name for name in names if name in environ)
        raise UCXConfigError(f"{other} is set, but {missing[0]} is not: {_HOW}")
    rank, size = (_number(environ, name) for name in names)
    if size < 1:
        raise UCXConfigError(f"{names[1]} is {size}: at least one rank")
    if rank >= size:
        raise UCXConfigError(f"{names[0]} is {rank}, but {names[1]} is {size}")
    _check_mpi(environ, launcher)
    return rank, size, launcher


def _launchers(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Those that have set a variable, the one that counts first.

    RANK and WORLD_SIZE alone are anybody's: both must be there.
    """
    if any(name in environ for name in _OWN):
        yield "ucp", _OWN
    if all(name in environ for name in _TORCH):
        yield "torchrun", _TORCH
    if any(name in environ for name in _OPEN_MPI):
        yield "Open MPI", _OPEN_MPI
    if any(name in environ for name in _PMI):
        yield "PMI", _PMI
    if "SLURM_PROCID" in environ:
        yield "Slurm", _slurm_names(environ)
    if any(name in environ for name in _TORCH):
        yield "torchrun", _TORCH


def _slurm_names(environ: Mapping[str, str]) -> tuple[str, str]:
    if "SLURM_STEP_ID" not in environ:
        raise UCXConfigError(
            "SLURM_PROCID is set, but SLURM_STEP_ID is not: a batch script is one "
            "process; start the ranks in it with srun"
        )
    if "SLURM_STEP_NUM_TASKS" not in environ and "SLURM_NTASKS" in environ:
        return "SLURM_PROCID", "SLURM_NTASKS"
    return _SLURM


def _check_mpi(environ: Mapping[str, str], launcher: str) -> None:
    """Open MPI and another MPI: nothing tells which one has started the other."""
    names = [*_OPEN_MPI, *_PMI]
    if launcher != "Open MPI" or not all(name in environ for name in names):
        return
    values = [environ[name] for name in names]
    if values[:2] != values[2:]:
        pairs = ", ".join(f"{name}={environ[name]!r}" for name in names)
        raise UCXConfigError(
            f"the environment contradicts itself ({pairs}): set UCP_RANK, UCP_SIZE"
        )


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    # int() takes more: blanks, signs, underscores, other alphabets' digits.
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise UCXConfigError(f"{name} is not a number: {text!r}")
    return int(text)


# The root.


def _root(environ: Mapping[str, str], launcher: str) -> str:
    if _ROOT in environ:
        return _url(*split_address(environ[_ROOT], _ROOT))
    if "MASTER_ADDR" in environ:
        return _torch_root(environ)
    if launcher == "Slurm":
        return _slurm_root(environ)
    if launcher in ("Open MPI", "PMI"):
        job = _open_mpi_job(environ) if launcher == "Open MPI" else _pmi_job(environ)
        return (_directory(environ) / job).as_uri()
    raise UCXConfigError(
        f"{launcher} has set a rank, but nothing says where rank 0 is: {_HOW_ROOT}"
    )


def _url(host: str, port: int) -> str:
    return f"tcp://{host_and_port(host, port)}"


def split_address(text: str, name: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[IPv6 address]:port``."""
    address = text.removeprefix("tcp://")
    found = re.fullmatch(r"(\[.*\]|[^:]*):([0-9]{1,5})", address)
    host = _bare(found[1]) if found else ""
    if found is None or not re.fullmatch(_HOST_NAME, host):
        raise UCXConfigError(f"{name} is not host:port: {text!r}")
    port = int(found[2])
    if not 1 <= port <= _MAX_PORT:
        raise UCXConfigError(f"{name} has no port of 1 to {_MAX_PORT}: {text!r}")
    return host, port


def _bare(host: str) -> str:
    """The host without the brackets of an IPv6 address."""
    return host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host


def _torch_root(environ: Mapping[str, str]) -> str:
    host = _bare(environ["MASTER_ADDR"])
    if not re.fullmatch(_HOST_NAME, host):
        raise UCXConfigError(f"MASTER_ADDR is not a host: {environ['MASTER_ADDR']!r}")
    if "MASTER_PORT" not in environ:
        raise UCXConfigError(f"MASTER_ADDR is set, but MASTER_PORT is not: {_HOW_ROOT}")
    port = _number(environ, "MASTER_PORT")
    if not 1 <= port <= _MAX_PORT:
        raise UCXConfigError(f"MASTER_PORT is {port}, not 1 to {_MAX_PORT}")
    return _url(host, _beside(port))


def _beside(port: int) -> int:
    """Another port for each port.

    Ports from 1024 are swapped in pairs, so that two jobs of one host whose
    ports differ get ports that differ. What Linux gives to connections that go
    out, 32768 to 60999, becomes a port outside of that, and so does 29500.
    """
    half = 32256
    return port + half if port < 1024 + half else port - half


def _slurm_root(environ: Mapping[str, str]) -> str:
    for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_ID"):
        if not environ.get(name):
            raise UCXConfigError(f"SLURM_PROCID is set, but {name} is not: {_HOW_ROOT}")
    host = first_host(environ["SLURM_STEP_NODELIST"])
    job = _number(environ, "SLURM_JOB_ID")
    step = _number(environ, "SLURM_STEP_ID")
    # Below the ports of connections that go out. Jobs that follow each other,
    # and the first hundred steps of each, have different ones.
    return _url(host, 20000 + (101 * job + step) % 12000)


def first_host(hosts: str) -> str:
    """The first host of a list such as ``node[01-03,07],gpu1``.

    Raises:
        UCXConfigError: it is not a list of this form.
    """
    first = re.split(r",(?![^[]*\])", hosts)[0]  # at commas outside of brackets
    name = re.sub(r"\[([0-9]+)(?:[-,][0-9]+)*\]", r"\1", first)  # a[1-2]b[3,5-6]
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise UCXConfigError(f"SLURM_STEP_NODELIST is not a list of hosts: {hosts!r}")
    return name


# Jobs of mpirun's on one host.


def _open_mpi_job(environ: Mapping[str, str]) -> str:
    _check_one_host(environ, "OMPI_COMM_WORLD_LOCAL_SIZE", _OPEN_MPI[1])
    job = environ.get("PMIX_NAMESPACE")
    if not job:
        raise UCXConfigError(
            f"{_OPEN_MPI[0]} is set, but PMIX_NAMESPACE is not: {_HOW_ROOT}"
        )
    return "openmpi-" + re.sub(r"[^A-Za-z0-9]", "-", job)


def _pmi_job(environ: Mapping[str, str]) -> str:
    """Named by the process that has started all ranks of this host."""
    _check_one_host(environ, "MPI_LOCALNRANKS", _PMI[1])
    pid = os.getpid()
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:  # a parent that has ended
            break
        name = stat[stat.find(b"(") + 1 : stat.rfind(b")")]
        fields = stat[stat.rfind(b")") + 2 :].split()
        if name.startswith((b"hydra_pmi_proxy", b"hydra_bstrap")):
            return f"pmi-{pid}-{int(fields[19])}"  # and when it was started
        pid = int(fields[1])
    raise UCXConfigError(
        f"{_PMI[0]} is set, but no process above this one is mpirun's: {_HOW_ROOT}"
    )


def _check_one_host(environ: Mapping[str, str], local: str, size: str) -> None:
    if local not in environ:
        raise UCXConfigError(f"{size} is set, but {local} is not: {_HOW_ROOT}")
    if _number(environ, local) != _number(environ, size):
        raise UCXConfigError(
            f"{environ[local]} of {environ[size]} ranks are on this host, and nothing "
            f"says where rank 0 is: {_HOW_ROOT}"
        )


def _directory(environ: Mapping[str, str]) -> Path:
    """Where files of this user's jobs are."""
    own = environ.get("XDG_RUNTIME_DIR", "")
    parent = own if os.path.isdir(own) else tempfile.gettempdir()
    return Path(parent).absolute() / f"ucp-{os.getuid()}"
