# SPDX-License-Identifier: BSD-3-Clause
# tests: host/descriptors
"""A process near its limit of open files (``ulimit -n``): UCX would abort it."""

import pytest
from script import run_script

# Workers of threads are made with few descriptors left, one after the other.
_WORKERS = """
import asyncio, logging, os, resource, threading
import ucp
from ucp.testing import connected_pair

logging.disable()  # UCX says, too, what it lacks
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

def take_all():
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        return taken

async def listen():
    ucp.create_listener(host="127.0.0.1").close()

def other(loop, said):
    try:
        loop.run_until_complete(listen())
        said.append("made")
    except ucp.UCXError as exc:
        said.append(str(exc))

async def main():
    said = []
    async with connected_pair() as (client, server):
        await client.ping()  # UCX has its descriptors
        for left in range(60):
            loop = asyncio.new_event_loop()
            taken = take_all()
            for fd in taken[len(taken) - left :]:
                os.close(fd)
            thread = threading.Thread(target=other, args=(loop, said))
            thread.start()
            thread.join()
            for fd in taken[: len(taken) - left]:
                os.close(fd)
            loop.close()
            await client.ping()
    print(len(said), *dict.fromkeys(said), sep="\\n")

asyncio.run(main())
"""

# A process calls UCX first when it has few descriptors left, and again with more.
_FIRST = """
import asyncio, logging, os, resource
import ucp

logging.disable()
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

def take_all():
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        return taken

async def listen():
    ucp.create_listener(host="127.0.0.1").close()

def attempt(loop, left):
    taken = take_all()
    for fd in taken[len(taken) - left :]:
        os.close(fd)
    try:
        loop.run_until_complete(listen())
        return "made"
    except ucp.UCXNoMemory as exc:
        return str(exc)
    finally:
        for fd in taken[: len(taken) - left]:
            os.close(fd)

said = []
loop = asyncio.new_event_loop()
while "made" not in said:
    said.append(attempt(loop, len(said)))
loop.close()
print(*dict.fromkeys(said), sep="\\n")
"""

LIMIT = (
    "too few file descriptors are left for UCX: "
    "raise the limit of open files (ulimit -n)"
)


@pytest.mark.parametrize("tls", ["all", "tcp,self", "sysv,self", "posix,self"])
def test_a_worker_is_made_or_an_error_names_the_limit(tls, monkeypatch):
    monkeypatch.setenv("UCX_TLS", tls)
    assert run_script(_WORKERS).splitlines() == ["60", f"Worker: {LIMIT}", "made"]


@pytest.mark.parametrize("tls", ["all", "tcp,self", "sysv,self"])
def test_the_first_call_of_a_process_names_the_limit(tls, monkeypatch):
    monkeypatch.setenv("UCX_TLS", tls)
    said = run_script(_FIRST).splitlines()
    assert said == [f"init: {LIMIT}", f"Worker: {LIMIT}", "made"]
