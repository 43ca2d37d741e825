# SPDX-License-Identifier: BSD-3-Clause
"""Check messages between all kinds of memory: `make gpu-check`.

    python -P tests/devices [--only messages,cancelled,killed,kernel,pytest]
        [--kinds device,numpy] [--sizes 1,65536] [--jobs 6] [--limit 170]

Prints a line for each group of cases, then what has failed; the exit status is 1
then. Kinds of memory that are not to be had here are named and left out.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from devices import cases, memory  # noqa: E402
from devices.pair import Group  # noqa: E402

WHAT = ("pytest", "kernel", "killed", "messages", "cancelled")
PRINTED = 4  # failures of a group


def tried(family: str, kinds: list[str]) -> dict[str, str]:
    """Why each kind of a family is not to be had; a process of its own finds out."""
    paths = filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])
    env = {**os.environ, **memory.ENVIRONMENTS.get(family, {})}
    done = subprocess.run(
        [sys.executable, "-P", memory.__file__, *kinds],
        env={**env, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError):
        said = " ".join(done.stderr.splitlines()[-1:])
        raise RuntimeError(f"ended with {done.returncode}: {said}") from None


def available(kinds: list[str], group: Group) -> list[str]:
    """The kinds that are to be had; a process that fails is a failure."""
    found = []
    for family, all_kinds in memory.FAMILIES.items():
        wanted = [kind for kind in all_kinds if kind in kinds]
        if not wanted:
            continue
        group.cases += 1
        try:
            reasons = tried(family, wanted)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            group.fail(f"{', '.join(wanted)}: {error}")
            continue
        missing = [f"without {kind}: {why}" for kind, why in reasons.items() if why]
        for line in missing:
            print(line, flush=True)
        found += [kind for kind in wanted if not reasons[kind]]
    return found


def groups(options: argparse.Namespace, kinds: list[str]) -> list[Group]:
    def chosen(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return options.sizes or sizes

    has_device = any(kind in kinds for kind in memory.ON_DEVICE)
    made = []
    if "pytest" in options.only:
        made.append(cases.tests(options.limit - 10))
    if "kernel" in options.only and has_device:
        made.append(cases.kernel(1 << 20))
    if "killed" in options.only:
        size = max(options.sizes) if options.sizes else cases.KILL_SIZE
        made += cases.kills(kinds, size)
    if "messages" in options.only:
        made += cases.messages(kinds, chosen(cases.SIZES))
        over_tcp = [kind for kind in cases.TCP_KINDS if kind in kinds]
        tls = cases.TCP if has_device else "tcp"
        made += cases.messages(over_tcp, chosen(cases.TCP_SIZES), tls)
    if "cancelled" in options.only:
        some = [kind for kind in cases.CANCEL_KINDS if kind in kinds]
        made += cases.cancels(some, options.sizes)
    return made


def report(group: Group) -> None:
    word = "FAILED" if group.failures else "ok" if group.cases else "-"
    notes = ""
    if group.notes:
        notes = f": {', '.join(dict.fromkeys(group.notes))}"
    print(
        f"{word:6} {group.name} ({group.cases} cases, {group.seconds:.1f} s){notes}",
        flush=True,
    )
    for failure in group.failures[:PRINTED]:
        print(f"         {failure}", flush=True)
    if len(group.failures) > PRINTED:
        print(f"         and {len(group.failures) - PRINTED} more", flush=True)


async def run_all(made: list[Group], jobs: int, limit: float) -> None:
    """Run groups beside each other, each within its time limit and that of all."""
    end = time.monotonic() + limit
    turns, beside = asyncio.Semaphore(jobs), asyncio.Semaphore(jobs)

    async def run(group: Group) -> None:
        async with beside if group.waits else turns:
            start = time.monotonic()
            left = min(group.limit, end - start)
            try:
                if left <= 0:
                    group.fail("was not run: the time was up")
                else:
                    await asyncio.wait_for(group.run(group), left)
            except TimeoutError:
                group.fail(f"the time limit of {left:.0f} s, after {group.cases} cases")
            except Exception as error:
                group.fail(f"{type(error).__name__}: {error}")
            group.seconds = time.monotonic() - start
            report(group)

    await asyncio.gather(*map(run, made))


def listed(text: str) -> list[str]:
    return text.split(",")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", type=listed, default=list(WHAT))
    add("--kinds", type=listed, default=list(memory.FAMILY_OF))
    add("--sizes", type=lambda text: tuple(map(int, text.split(","))))
    add("--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)))
    add("--limit", type=float, default=170.0, help="seconds of the whole")
    options = parser.parse_args()
    for given, known in ((options.only, WHAT), (options.kinds, memory.FAMILY_OF)):
        if unknown := [word for word in given if word not in known]:
            parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    start = time.monotonic()
    probing = Group("kinds of memory", run=cases.nothing)
    kinds = available(options.kinds, probing)
    made = groups(options, kinds)
    spent = probing.seconds = time.monotonic() - start
    report(probing)
    asyncio.run(run_all(made, options.jobs, options.limit - spent))
    made.append(probing)
    failed = [group for group in made if group.failures]
    count = sum(group.cases for group in made)
    seconds = time.monotonic() - start
    result = f"{len(failed)} FAILED" if failed else "ok"
    print(f"{len(made)} groups, {count} cases, {seconds:.0f} s: {result}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
