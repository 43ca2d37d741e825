#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run the installed ucp with other UCX: what `make ucx` does.

    tools/ucx_versions.py [VERSION ...]     such as libucx-cu12==1.20.*, debian, system

For each UCX, the program of README.md, `python -m ucp doctor`, a barrier of two ranks,
and the tests in TESTS. The packages are downloaded into build/ucx, also `debian`, that
of the suite in use, which is not installed; `system` is the one that the dynamic linker
finds. What is not to be had is left out. The lines at the end say what has passed.
"""

import ctypes.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from wheels_test import debian_ucx, readme

ROOT = Path(__file__).parents[1]
VERSIONS = (
    *(f"libucx-cu12==1.{minor}.*" for minor in range(18, 23)),
    "libucx-cu13==1.22.*",
    "debian",
    "system",
)
TESTS = ("tests/channel/test_tags.py", "tests/rma/test_rma.py")
RANKS = """
import asyncio
import ucp
async def main():
    async with ucp.Communicator.from_env() as comm:
        await comm.barrier()
asyncio.run(main())
"""


def run(env: dict[str, str], *arguments: str) -> str:
    """What the program printed, if it has failed."""
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout if done.returncode != 0 else ""


def environment(version: str) -> dict[str, str] | None:
    """The environment in which that UCX is used; None: it is not to be had."""
    env = {k: v for k, v in os.environ.items() if k != "UCP_UCX"}
    if version == "system":
        return {**env, "UCP_UCX": "system"} if ctypes.util.find_library("ucp") else None
    if version == "debian":
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            return None
        folder = ROOT / "build/ucx/debian"
        return {
            **env,
            "UCP_UCX": str(folder if folder.exists() else debian_ucx(folder)),
        }
    folder = ROOT / "build/ucx" / version.replace("==", "-").removesuffix(".*")
    if not (folder / "libucx").exists():
        pip = ["-m", "pip", "install", "-q", "--no-deps", "-t", str(folder), version]
        if said := run(env, *pip):
            print(said)
            return None
    return {**env, "PYTHONPATH": str(folder)}


def checks(env: dict[str, str], ranks: str) -> Iterator[tuple[str, str]]:
    yield "program", run(env, "-c", readme())
    yield "doctor", run(env, "-m", "ucp", "doctor")
    yield "ranks", run(env, "-m", "ucp", "run", "-n", "2", ranks)
    options = ["-q", "-p", "no:cacheprovider", "-n", "2"]
    yield "tests", run({**env, "UCP_TESTS_FORK": "0"}, "-m", "pytest", *options, *TESTS)


def main() -> None:
    lines = []
    failed = False
    ranks = ROOT / "build/ucx/ranks.py"
    ranks.parent.mkdir(parents=True, exist_ok=True)
    ranks.write_text(RANKS)
    for version in sys.argv[1:] or VERSIONS:
        env = environment(version)
        if env is None:
            lines.append(f"{version}: left out, it is not to be had here")
            continue
        words = []
        for name, said in checks(env, str(ranks)):
            words.append(f"{name} {'failed' if said else 'passed'}")
            failed |= bool(said)
            print(said, end="", flush=True)
        lines.append(f"{version}: {', '.join(words)}")
        print(lines[-1], flush=True)
    print(*lines, sep="\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
