# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/owned
"""Every object: used when it is closed, closed again, in a cycle, collected on
another thread, alive at the end, without its loop, in another loop.

What only one kind of object has is tested with it: test_close.py,
test_listener.py, test_loops.py, test_threads.py, test_init.py.
"""

import asyncio
import gc
import sys
import threading

import pytest
from paths import TESTS
from script import run_script

import ucp
from ucp.testing import live_objects, until

pytestmark = [
    pytest.mark.usefixtures("fresh_ucx"),
    # test_dropped.py is about that.
    pytest.mark.filterwarnings("ignore:ucp. the Request of recv:RuntimeWarning"),
]

KINDS = ["context", "worker", "listener", "client", "server", "message"]
KINDS += ["receive", "send"]


async def everything():
    """Make one object of each kind, all open, with a message in every place."""
    listener = ucp.create_listener(host="127.0.0.1")
    client = await ucp.create_endpoint("127.0.0.1", listener.port)
    server = await anext(listener)
    await client.send(b"taken")
    message = await server.recv_message()
    await client.send(b"unread")
    worker = ucp.current_worker()
    objects = [worker.context, worker, listener, client, server, message]
    objects += [client.recv(bytearray(1)), client.send(bytes(1 << 20))]
    return dict(zip(KINDS, objects, strict=True))


def end(loop):
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


# ---- used after, and closed again --------------------------------------------

ENDPOINT_CALLS = {
    "send": [b"x"],
    "recv": [bytearray(1)],
    "recv_into": [bytearray(1)],
    "recv_obj": [],
    "recv_message": [],
    "flush": [],
    "drain": [],
    "transports": [],
    "_info": [],
    "close_after_n_recv": [1],
}
WORKER_CALLS = {
    "progress": [],
    "arm": [],
    "fileno": [],
    "info": [],
    "flush": [],
    "_tag_recv": [bytearray(1), 1],
    "_connect": [("127.0.0.1", 1), 1.0],
    "_listen": [("127.0.0.1", 0), print],
    "submit": [int],
    "_close_all": [1.0],
    "_run_until_closed": [1.0],
}


async def call(thing, name, arguments):
    result = getattr(thing, name)(*arguments)
    if hasattr(result, "__await__"):
        await result


@pytest.mark.parametrize("name", ENDPOINT_CALLS)
async def test_an_endpoint_says_that_its_worker_has_closed_it(name):
    things = await everything()
    things["worker"].abort()
    for kind in ("client", "server"):
        with pytest.raises(
            ucp.UCXCloseError, match=r"^Endpoint closed: its worker is "
        ):
            await call(things[kind], name, ENDPOINT_CALLS[name])


@pytest.mark.parametrize("name", WORKER_CALLS)
async def test_a_closed_worker_says_so(name):
    worker = (await everything())["worker"]
    worker.abort()
    with pytest.raises(RuntimeError, match=r"^the worker is closed$"):
        await call(worker, name, WORKER_CALLS[name])


async def test_a_message_says_that_its_worker_is_closed():
    things = await everything()
    things["worker"].abort()
    with pytest.raises(ucp.UCXCloseError, match=r"^Endpoint closed: its worker is "):
        await things["message"].recv(bytearray(5))
    assert things["message"].nbytes == 5


async def test_what_is_pending_when_the_worker_closes_is_cancelled():
    things = await everything()
    things["worker"].abort()
    for kind in ("receive", "send"):
        with pytest.raises(ucp.UCXCanceled):
            await things[kind]


async def test_everything_can_be_closed_twice_in_any_order():
    things = await everything()
    for _ in range(2):
        things["listener"].close()
        things["client"].abort()
        await things["server"].close()
        await things["client"].close()
    for _ in range(2):
        things["worker"].abort()
    things["listener"].close()
    await things["client"].close()
    things["server"].abort()
    assert things["client"].closed() and things["listener"].closed()
    assert things["worker"].closed()


async def test_everything_describes_itself_when_all_is_closed():
    things = await everything()
    things["worker"].abort()
    assert repr(things["client"]).endswith(", closed>")
    assert repr(things["listener"]) == "<ucp.Listener closed>"
    assert repr(things["worker"]).endswith(", closed>")
    assert repr(things["receive"]) == (
        f"<ucp.Request recv on {things['client']!r}, request canceled>"
    )
    assert things["client"].transports is not None
    assert things["client"].ucx_info() == f"# {things['client']!r}\n"


# ---- collected ---------------------------------------------------------------


_others: dict[str, int] = {}


@pytest.fixture(autouse=True)
def _objects_of_other_tests():
    """What another test, or what it uses, keeps is not looked at."""
    ucp.reset()
    gc.collect()
    _others.update(live_objects())


def left():
    """What is alive beside what was when the test began."""
    gc.collect()
    now = live_objects()
    return {kind: n for kind, n in now.items() if n > _others[kind]}


async def emptied():
    """Endpoints close in the background; then nothing may be left."""
    try:
        async with asyncio.timeout(30):
            await until(lambda: "endpoints" not in left())
            ucp.reset()
            await until(lambda: not left())
    except TimeoutError:
        pass
    assert left() == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_anything_in_a_cycle_is_collected(kind):
    things = await everything()
    thing = things.pop(kind)
    cycle = [thing]
    if kind == "client":
        thing.set_close_callback(cycle.copy)
    elif kind in ("receive", "send"):
        thing.add_done_callback(cycle.append)
    else:
        cycle.append(cycle)
    del things, thing, cycle
    gc.collect()
    await emptied()


@pytest.mark.parametrize("kind", KINDS)
async def test_anything_can_be_dropped_on_another_thread(kind):
    things = await everything()
    holder = [things.pop(kind)]
    await asyncio.to_thread(holder.clear)
    del things
    await emptied()


@pytest.mark.parametrize("kind", KINDS)
async def test_anything_can_be_the_last_to_go(kind):
    things = await everything()
    last = things[kind]
    things["worker"].abort()
    del things
    gc.collect()
    assert last is not None
    del last
    await emptied()


@pytest.mark.parametrize("kind", KINDS)
def test_anything_alive_at_interpreter_exit_is_quiet(kind):
    run_script(
        """
        import asyncio, sys
        import test_lifetimes

        async def main():
            things = await test_lifetimes.everything()
            kept = things.pop(sys.argv[1])
            for kind in ("receive", "send"):
                if kind in things:
                    things[kind].cancel()
            return kept

        kept = asyncio.run(main())
        """,
        kind,
        PYTHONPATH=":".join([*sys.path, str(TESTS / "ext")]),
    )


# ---- without its loop, in another one ----------------------------------------


def test_everything_survives_that_its_loop_is_closed_first(loop_factory):
    loop = loop_factory()
    things = loop.run_until_complete(everything())
    loop.close()
    things["client"].abort()
    things["listener"].close()
    things["worker"].abort()
    assert things["receive"].done()
    assert things["server"].closed()


AWAITED = {
    "client": lambda client: client.recv(bytearray(1)),
    "server": lambda server: server.recv_obj(tag=1),
    "listener": anext,
    "receive": lambda request: request,
    "worker": lambda worker: worker._tag_recv(bytearray(1), 1),
}


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("kind", AWAITED)
def test_waiting_in_a_second_loop_is_refused(kind, is_closed, loop_factory):
    async def wait(thing):
        await AWAITED[kind](thing)

    first, second = loop_factory(), loop_factory()
    things = first.run_until_complete(everything())
    if is_closed:
        first.close()
    with pytest.raises(RuntimeError, match=r"(different loop|of the loop)"):
        second.run_until_complete(wait(things[kind]))
    end(second)
    if not is_closed:
        end(first)


@pytest.mark.parametrize("kind", AWAITED)
def test_waiting_in_the_loop_of_another_thread_is_refused(kind, loop_factory):
    errors = []

    async def wait(thing):
        await AWAITED[kind](thing)

    def run():
        try:
            asyncio.run(wait(things[kind]))
        except RuntimeError as exc:
            errors.append(str(exc))

    loop = loop_factory()
    things = loop.run_until_complete(everything())
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (error,) = errors
    assert "of the loop" in error or "worker belongs to another thread" in error
    end(loop)


def test_everything_works_in_the_loop_of_a_thread(loop_factory):
    done = []

    async def main():
        things = await everything()
        buffer = bytearray(5)
        await things["message"].recv(buffer)
        assert buffer == b"taken"
        assert await things["server"].recv_obj() == b"unread"
        assert len(await things["server"].recv_obj()) == 1 << 20
        await things["send"]
        await things["server"].send(b"1")
        await things["receive"]
        await things["client"].close()
        done.append(True)

    def run():
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True]
