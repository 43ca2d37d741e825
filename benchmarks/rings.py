# SPDX-License-Identifier: BSD-3-Clause
"""Rings and proxies of two ranks on this host, in C: rings.c.

    python benchmarks/rings.py [--rounds 5] [--json FILE]

It prints, as the best of the rounds,

- nanoseconds of a command that does nothing, with one producer and with places
  that are reserved as for several;
- nanoseconds of a put of 8 bytes, and of a signal, written one by one;
- for some sizes: microseconds of a put without a proxy, and what the proxy adds
  until the bytes are there. The producer sees that a command is over when the
  word `retired` has come back, which takes half of what a command that does
  nothing takes; this half is not counted.
- the share of a processor that an idle proxy uses, from a second on.

The producer and the proxy need a processor each that nothing else uses."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from _contenders import libucx
from _process import free_port

ROOT = Path(__file__).parents[1]
SIZES = (8, 7168, 65536, 262144, 1 << 20)


def build(folder: str) -> str:
    """rings.c and the library, as a program in `folder`."""
    path = f"{folder}/rings"
    sources = [str(source) for source in ROOT.glob("src/*/*.c")]
    command = ["cc", "-std=gnu11", "-O3", "-pthread"]
    command += [f"-I{ROOT}/include", f"-I{ROOT}/src", f"-I{libucx()}/include"]
    command += [str(ROOT / "benchmarks/rings.c"), *sources, "-o", path]
    command += [f"-L{libucx()}/lib", f"-Wl,-rpath,{libucx()}/lib", "-lucp", "-lucs"]
    subprocess.run(command, check=True)
    return path


def measure(rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="ucp-bench-") as folder:
        done = subprocess.run(
            [build(folder), str(free_port()), str(rounds)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=600,
        )
    pairs = (line.split() for line in done.stdout.splitlines())
    return {name: float(number) for name, number in pairs}


def show(found: dict[str, float]) -> None:
    print(f"a command, one producer    {found['one_producer']:8.1f} ns")
    print(f"a command, place reserved  {found['reserved']:8.1f} ns")
    print(f"a put of 8 bytes           {found['put_8']:8.1f} ns")
    print(f"a signal                   {found['signal']:8.1f} ns")
    for size in SIZES:
        alone, nop = found[f"direct_{size}"], found[f"nop_{size}"]
        added = found[f"retired_{size}"] - alone - nop / 2
        print(f"put of {size:8} bytes: {alone / 1e3:8.2f} us, {added:6.0f} ns added")
    print(f"idle: {100 * found['idle_share']:.2f} % of a processor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = measure(args.rounds)
    show(found)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
