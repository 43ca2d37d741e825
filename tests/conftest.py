# SPDX-License-Identifier: BSD-3-Clause
"""Coroutine functions as tests, transports, event loops, peer processes."""

import asyncio
import gc
import inspect
import os
import sys

import pytest
import uvloop
import workers
import zygote
from networks import joined_namespaces
from peer import Peer

import ucp

pytest_plugins = ["cpu", "budget"]

_LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

TLS = {"shm": {}, "tcp": {"TLS": "tcp"}}


# NumPy's library starts threads that wait busily, a large part of what a process
# takes that imports it. No test multiplies large matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_configure():
    """Processes are forked if they can be."""
    zygote.begin()


def pytest_unconfigure():
    zygote.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    zygote.choose(item)
    workers.choose(item)
    environment = dict(os.environ)
    try:
        return (yield)
    finally:  # Dask leaves variables for the processes that it starts
        if environment != os.environ:
            os.environ.clear()
            os.environ.update(environment)


def pytest_collection():
    """What is made of modules of tests stays: the collector would find nothing.

    Each process rewrites the asserts of all tests if it finds no bytecode of them,
    which takes half of the collection. It is kept also where the environment says
    PYTHONDONTWRITEBYTECODE, as that of containers often does.
    """
    gc.disable()
    sys.dont_write_bytecode = False


def pytest_collection_finish():
    """What pytest holds is not looked through by each gc.collect()."""
    sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items):
    """The room of the longest tests comes first: none is waited for at the end."""
    items.sort(key=lambda item: item.path.parent.name != "soak")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a coroutine function in a new loop, the test's if it names one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {
        name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames
    }
    factory = pyfuncitem.funcargs.get("loop_factory", _LOOPS["asyncio"])
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(params=_LOOPS)
def loop_factory(request):
    """Each kind of event loop."""
    return _LOOPS[request.param]


@pytest.fixture(params=TLS)
def transport(request):
    """UCX's own choice, which is shared memory on one host; and tcp only."""
    ucp.reset()
    ucp.init(options=TLS[request.param])
    yield request.param
    ucp.reset()


# For what happens before anything is sent, or whatever carries it.
over_shm = pytest.mark.parametrize("transport", ["shm"], indirect=True)


@pytest.fixture
def fresh_ucx():
    """No context before the test, none after it."""
    ucp.reset()
    yield
    ucp.reset()


@pytest.fixture
def start_peer(request):
    """Start a peer process, of the test's transport; killed at the end."""
    peers = []

    def start(before=(), **env):
        if "transport" in request.fixturenames:
            if request.getfixturevalue("transport") == "tcp":
                env.setdefault("UCX_TLS", "tcp")
        peers.append(Peer(env, before))
        return peers[-1]

    yield start
    for peer in peers:
        peer.kill()


@pytest.fixture
def connect_peer(start_peer):
    """Start a peer process and connect; it has the other end as ``ep``."""

    async def connect(**env):
        peer = start_peer(**env)
        port = await peer.do("listener.port")
        ep = await ucp.create_endpoint("127.0.0.1", port)
        await peer.do("ep = await anext(listener)")
        return peer, ep

    return connect


@pytest.fixture
def mute_server():
    """The port of a server that accepts connections and says nothing."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port():
    """A port of 127.0.0.1 that is taken and not listened on."""
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@pytest.fixture
def namespaces():
    """The names of two network namespaces, joined."""
    with joined_namespaces() as names:
        yield names
