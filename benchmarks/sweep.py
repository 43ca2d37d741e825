# SPDX-License-Identifier: BSD-3-Clause
"""Sweep UCX settings with ucx_perftest, and with ucp when it is installed.

A stage varies one thing: python benchmarks/sweep.py tcp-seg --quick
Or any product: python benchmarks/sweep.py --grid TCP_SNDBUF,TCP_RCVBUF=auto,4m
On top of a choice: python benchmarks/sweep.py tcp-buf --with TCP_TX_SEG_SIZE=256k

With --veth the two processes are in two network namespaces (root only), with
--rate 10gbit behind a token bucket; only tcp is there then.

Columns are lat (half round trip of active messages, us), tag (the same with
tags), bw (active messages, window 16, MB/s). Values of one key list separated
by commas; several keys before "=" get the same value. Ratios are to the first
row. `--markdown FILE` appends the tables to FILE.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
from dataclasses import replace
from pathlib import Path

import _harness
import _veth
from _contenders import CONTENDERS, Case, Contender, Perftest, Python, sizes
from _process import LOOPBACK, Network

SEG = "TCP_TX_SEG_SIZE,TCP_RX_SEG_SIZE"
BUF = "TCP_SNDBUF,TCP_RCVBUF"
SHM_SEG = "POSIX_SEG_SIZE,SYSV_SEG_SIZE"
FIFO = "POSIX_FIFO_SIZE,SYSV_FIFO_SIZE"
ELEM = "POSIX_FIFO_ELEM_SIZE,SYSV_FIFO_ELEM_SIZE"
# Shared memory segments of 64k and more crash the receiver: the length of a
# fragment is a uint16_t there. One row, where everything is rendezvous beside
# one where nothing is, shows at which size the one gets better than the other.
STAGES = {
    "tcp-seg": ("tcp", [f"{SEG}=,16k,32k,64k,128k,256k,512k,1m"]),
    "tcp-rx": ("tcp", ["TCP_TX_SEG_SIZE=128k", "TCP_RX_SEG_SIZE=,128k,256k,512k"]),
    "tcp-buf": ("tcp", [f"{BUF}=,256k,512k,1m,4m"]),
    "tcp-scheme": ("tcp", ["RNDV_SCHEME=,put_zcopy,get_zcopy,am,put_ppln"]),
    "tcp-thresh": ("tcp", ["RNDV_THRESH=,8k,inf"]),
    "shm-seg": ("shm", [f"{SHM_SEG}=,16k,24k,32k,48k,60k"]),
    "shm-fifo": ("shm", [f"{FIFO}=,64,128,512,1024"]),
    "shm-elem": ("shm", [f"{ELEM}=128,320,640,1152,2048"]),
    "shm-thresh": ("shm", ["RNDV_THRESH=,8k,inf"]),
}


def product(grid: list[str]) -> list[dict[str, str]]:
    """Every combination; an empty value leaves the key alone."""
    axes = []
    for axis in grid:
        keys, _, values = axis.partition("=")
        axes.append([dict.fromkeys(keys.split(","), v) for v in values.split(",")])
    return [
        {k: v for part in parts for k, v in part.items() if v}
        for parts in itertools.product(*axes)
    ]


def label(settings: dict[str, str]) -> str:
    """Keys of one value together: TCP_SNDBUF TCP_RCVBUF=4m."""
    by_value: dict[str, list[str]] = {}
    for key, value in settings.items():
        by_value.setdefault(value, []).append(key)
    return " ".join(f"{' '.join(k)}={v}" for v, k in by_value.items()) or "default"


def contender(
    settings: dict[str, str], fixed: dict[str, str], kind: str, network: Network
) -> Contender:
    """The contender that measures one row's column."""
    name, chosen = label(settings), {**fixed, **settings}
    if kind == "ucp":
        ucp = CONTENDERS["ucp"]
        assert isinstance(ucp, Python)
        env = {f"UCX_{key}": value for key, value in chosen.items()}
        return replace(ucp, name=name, env=env, network=network)
    if kind == "tag":
        return Perftest(name, settings=chosen, network=network)
    # -y: eager data is copied to its buffer, as any user of it has to.
    options = ("-e", "-y")
    return Perftest(name, am=True, options=options, settings=chosen, network=network)


def measure(
    grid: list[str], transport: str, network: Network, options: argparse.Namespace
) -> list[tuple[str, _harness.Results]]:
    """Measure and return one Results for each kind of column."""
    fixed = dict(item.split("=") for item in options.fixed)
    kinds = {"lat": "latency", "tag": "latency", "bw": "bandwidth"}
    if "ucp" in CONTENDERS and CONTENDERS["ucp"].missing() is None:
        kinds["ucp"] = "latency"
    found = []
    for kind in options.columns.split(","):
        if kind not in kinds:
            continue
        rows = [contender(row, fixed, kind, network) for row in product(grid)]
        window = 16 if kinds[kind] == "bandwidth" else 1
        cases = [Case(kinds[kind], s, transport, window) for s in options.sizes]
        unit = "us" if kinds[kind] == "latency" else "MB/s"
        plan = _harness.plan_of(options)
        results = _harness.run(kind, unit, rows[0].name, cases, rows, plan)
        found.append((kind, results))
    return found


def table(title: str, columns: list[tuple[str, _harness.Results]]) -> str:
    """Settings as rows; a column is a kind and a size, best (ratio, paired)."""
    head, rows = [title], [[name] for name in columns[0][1].contenders]
    for kind, results in columns:
        for case in results.cases():
            head.append(f"{kind} {case.split()[1]}")
            for row in rows:
                row.append(_harness.cell(results, case, row[0]))
    return _harness.markdown([head, *rows])


if __name__ == "__main__":
    parser = _harness.parser(__doc__.splitlines()[0])
    parser.add_argument("stage", nargs="*", help=", ".join(STAGES))
    parser.add_argument("--grid", nargs="+", help="KEY,KEY=VALUE,VALUE ...")
    parser.add_argument("--transport", default="tcp", help="of --grid")
    parser.add_argument("--with", dest="fixed", nargs="+", default=[])
    parser.add_argument("--sizes", default="64K,1M,16M", type=sizes)
    parser.add_argument("--columns", default="lat,tag,bw,ucp")
    parser.add_argument("--veth", action="store_true")
    parser.add_argument("--rate", help="with --veth, as tc takes it")
    parser.add_argument("--markdown", metavar="FILE")
    options = parser.parse_args()
    where: contextlib.AbstractContextManager[Network]
    where = contextlib.nullcontext(LOOPBACK)
    if options.veth:
        if reason := _veth.missing():
            sys.exit(f"no sweep over veth: {reason}")
        where = _veth.network(options.rate)
    stages = {name: STAGES[name] for name in options.stage or STAGES}
    if options.grid:
        stages = {"grid": (options.transport, options.grid)}
    with where as network:
        for name, (transport, grid) in stages.items():
            columns = measure(grid, transport, network, options)
            text = table(" ".join([name, *options.fixed]), columns)
            print(text, flush=True)
            if options.markdown:
                with Path(options.markdown).open("a") as file:
                    file.write(f"\n{text}\n")
            if options.json:
                columns[0][1].write(f"{options.json}.{name}")
