# SPDX-License-Identifier: BSD-3-Clause
"""Do one thing very often and look whether anything grows.

    python tests/soak connects 100000 [--tcp]

In a process of its own, so that nothing else grows. ``make soak`` runs all of
it with the full counts, tests/soak/test_soak.py with small ones.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time

import cancels
import communicators
import connects
import floods
import heaps
import joins
import kills
import messages
import pools
import shuffles
import tables
import topologies
import waits
from flat import Flat

import ucp

_SUBJECTS = {
    "connects": connects.run,
    "messages": messages.run,
    "cancels": cancels.run,
    "kills": kills.run,
    "floods": floods.run,
    "pools": pools.run,
    "heaps": heaps.run,
    "waits": waits.run,
    "communicators": communicators.run,
    "shuffles": shuffles.run,
    "joins": joins.run,
    "tables": tables.run,
    "topologies": topologies.run,
}

# Processes that do the same.
_RANKS = {
    "communicators": communicators.RANKS,
    "shuffles": shuffles.RANKS,
    "joins": joins.RANKS,
    "tables": tables.RANKS,
}


async def soak(name, count):
    """Warm up, measure, run, measure again."""
    run = _SUBJECTS[name]
    flat = Flat()
    await run(flat.warm_up(name, count))
    await flat.start()
    started = time.monotonic()
    done = await run(count)
    elapsed = time.monotonic() - started
    growth = await flat.stop()
    print(f"{name}: {done}, {elapsed:.1f} s; {growth}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="tests/soak", description=__doc__)
    parser.add_argument("subject", choices=_SUBJECTS)
    parser.add_argument("count", type=int)
    parser.add_argument("--tcp", action="store_true", help="tcp only")
    arguments = parser.parse_args()
    ranks = _RANKS.get(arguments.subject, 1)
    if ranks > 1 and "UCP_RANK" not in os.environ:
        launcher = ["-m", "ucp", "run", "--no-prefix", "-n", str(ranks)]
        flags = subprocess._args_from_interpreter_flags()
        os.execv(sys.executable, [sys.executable, *flags, *launcher, *sys.argv])
    ucp.init(options={"TLS": "tcp"} if arguments.tcp else None)
    asyncio.run(soak(arguments.subject, arguments.count))
    ucp.reset()
    assert not any(ucp._ext.live_objects().values()), ucp._ext.live_objects()


if __name__ == "__main__":
    sys.exit(main())
