# SPDX-License-Identifier: BSD-3-Clause
"""Run a program of a test in a Python of its own."""

import contextlib
import os
import subprocess
import sys
import textwrap

import zygote

# For programs with processes of their own.
PRELUDE = """
import asyncio, os, signal, sys, threading, traceback, ucp, uvloop, warnings
from ucp.testing import connected_pair

# Python warns of threads: UCX's, which fork() is made safe for.
warnings.filterwarnings("ignore", ".* is multi-threaded", DeprecationWarning)
signal.alarm(50)  # the time limit; a child does not inherit it

async def ping_pong():
    async with connected_pair() as (client, server):
        for size in (4, 1_000_000):
            sending = client.send(bytes(size))
            assert len(await server.recv_obj()) == size
            await sending

def in_child(function):
    pid = os.fork()
    if pid == 0:
        signal.alarm(50)
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid

def end_of(pid):
    assert os.waitpid(pid, 0)[1] == 0
"""


def run_script(source, *arguments, cwd=None, run=zygote.run, **env):
    """Run ``source``; its standard output. Fails on noise or a bad status."""
    done = run(
        [
            sys.executable,
            "-P",
            "-W",
            "default",
            "-W",  # a listener that the end of its loop has closed
            "ignore:<ucp.Listener:ResourceWarning",
            "-W",  # Python warns of threads: UCX's, which fork() is made safe for
            "ignore:This process (pid=:DeprecationWarning",
            "-c",
            textwrap.dedent(source),
            *arguments,
        ],
        env={**os.environ, **env},
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert done.stderr == "", done.stderr
    assert done.returncode == 0
    return done.stdout


def run_program(source, *arguments, **env):
    """Run ``source`` behind PRELUDE, in a Python that no other has forked."""
    source = PRELUDE + textwrap.dedent(source)
    return run_script(source, *arguments, run=subprocess.run, **env)


@contextlib.contextmanager
def started(command, **options):
    """A process whose output is read as text; it is killed at the end."""
    with zygote.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()
