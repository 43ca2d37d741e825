"""Run a program of a test in a Python of its own."""

import os
import subprocess
import sys
import textwrap


def run_script(source, *arguments, **env):
    """Run ``source``; its standard output. Fails on noise or a bad status."""
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-W",
            "default",
            "-c",
            textwrap.dedent(source),
            *arguments,
        ],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    assert done.stderr == "", done.stderr
    assert done.returncode == 0
    return done.stdout
