# SPDX-License-Identifier: BSD-3-Clause
"""Programs with a Dask cluster, each in a Python of its own."""

import os
import re
import sys
import textwrap

import zygote

# A worker that closes does not wait for the heartbeat under way, over tcp
# neither, and distributed logs that as an error.
LOG_RECORD = re.compile(r"^(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - )", re.MULTILINE)
LOST_HEARTBEAT = "Failed to communicate with scheduler during heartbeat."


def complaints(stderr):
    """What a program has printed but for lost heartbeats."""
    records = LOG_RECORD.split(stderr)
    return "".join(record for record in records if LOST_HEARTBEAT not in record)


CLUSTER = """
import asyncio, logging, os, signal, time
import numpy as np
from distributed import Client, LocalCluster, Scheduler, Worker, wait

def main():
    signal.alarm(50)
    logging.getLogger("distributed").setLevel(logging.WARNING)
    PROGRAM

if __name__ == "__main__":
    main()
"""


def run_cluster(directory, program, **env):
    """Run ``program`` from a file, as processes it starts import it; its stderr."""
    file = directory / "program.py"
    file.write_text(
        CLUSTER.replace("PROGRAM", textwrap.indent(program, "    ").strip())
    )
    done = zygote.run(
        [sys.executable, "-P", str(file)],
        cwd=directory,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    return done.stderr


OPTIONS = "protocol='ucp', dashboard_address=':0', threads_per_worker=1"
