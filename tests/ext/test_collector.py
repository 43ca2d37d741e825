# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/calls ext/event
"""Programs in which the collector runs at nearly every allocation, and code of
the program's in it: what a callback of libumx is about goes while it runs."""

import pytest
from script import run_program

FORCED = """
import gc, numpy as np
from ucp._libs import ucx_api
from ucp.testing import until

class Cycle:
    # What is in it goes when the collector finds it.
    def __init__(self, *things):
        self.things = things
        self.me = self

def brink():
    # The next allocation of a container collects.
    gc.collect()
    gc.set_threshold(1, 1, 1)

"""

OPERATIONS = {
    "messages": """
        for size in (8, 5000, 300_000):
            data, buffer = bytes(size), bytearray(size)
            await asyncio.gather(client.send(data), server.recv(buffer))
            await asyncio.gather(client.send(data, tag=3), server.recv(buffer, tag=3))
            await asyncio.gather(
                client.send_many([data] * 4), server.recv_many([bytearray(size)] * 4)
            )
            sending = client.send(data)
            message = await server.recv_message()
            await message.recv(buffer)
            await sending
    """,
    "active messages": """
        heard = []
        worker.set_am_handler(20, lambda ep, message: heard.append(len(message.header)))
        for size in (8, 5000, 300_000):
            data = bytes(size)
            await asyncio.gather(client.am_send(data), server.am_recv())
            client.am_send(data, id=20, header=b"abc")
            await until(lambda: heard)
            assert heard.pop() == 3
    """,
    "frames and streams": """
        for size in (8, 5000, 300_000):
            data, buffer = bytes(size), bytearray(size)
            await asyncio.gather(client.send_frames([data] * 3), server.recv_frames())
            await asyncio.gather(
                client.send_frames([data]), server.recv_frames(into=[buffer])
            )
            await asyncio.gather(
                client.stream_send(data), server.stream_recv(buffer, wait_all=True)
            )
    """,
    "remote memory": """
        memory = ucp.Memory.register(bytearray(100_000))
        remote = client.remote(memory.key)
        for size in (8, 100_000):
            await remote.put(bytes(size))
            await remote.get(bytearray(size))
        await remote.put_many([(b"x", 0), (b"y", 1)])
        await remote.flush()
        memory.close()
    """,
    "tags": """
        for size in (8, 5000, 300_000):
            buffer = bytearray(size)
            await asyncio.gather(
                worker.send(client, bytes(size), 5), worker.recv(buffer, 5)
            )
    """,
    "messages with metadata": """
        from ucp.message import MessageListener, MessageReceiver, MessageSender
        receivers = []
        def route(metadata):
            receivers.append(MessageReceiver(metadata))
            return receivers[-1]
        listener = MessageListener(server, route)
        async with MessageSender() as sender:
            for size in (8, 300_000):
                await sender.send(client, {"n": size}, [bytes(size)])
                await until(lambda: receivers)
                metadata, buffers = await receivers.pop()
                assert metadata == {"n": size} and len(buffers[0]) == size
        listener.close()
        await listener.wait_closed()
    """,
    "cancelling": """
        for make in (
            lambda: server.recv(bytearray(8)), server.am_recv, server.recv_frames,
            lambda: server.stream_recv(bytearray(8)), server.recv_message,
        ):
            request = make()
            request.cancel()
            task = asyncio.create_task(server.recv_obj())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
    """,
    "connecting": """
        async with ucp.create_listener(host="127.0.0.1") as other:
            for _ in range(3):
                one = await ucp.create_endpoint("127.0.0.1", other.port)
                two = await anext(other)
                one.set_close_callback(lambda: None)
                two.set_close_callback(lambda: None)
                await asyncio.gather(one.close(), two.close())
    """,
}


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("operations", OPERATIONS)
def test_the_collector_may_run_at_any_time(operations, loop):
    run_program(
        FORCED
        + """
class Bomb:
    # Code of the program's, in the collector: it moves messages, and makes and
    # drops requests.
    armed = True
    def __init__(self, worker, endpoint):
        self.worker, self.endpoint, self.me = worker, endpoint, self
    def __del__(self):
        if Bomb.armed and not self.worker.closed():
            self.worker.progress()
            self.endpoint.channel(9).recv(bytearray(8)).cancel()
            Bomb(self.worker, self.endpoint)

async def main():
    worker = ucp.current_worker()
    async with connected_pair() as (client, server):
        Bomb(worker, server)
        gc.set_threshold(1, 1, 1)
        await operate(worker, client, server)
        Bomb.armed = False
        gc.set_threshold(700, 10, 10)

async def operate(worker, client, server):
"""
        + OPERATIONS[operations].replace("\n        ", "\n    ")
        + f"\n{loop}.run(main())\n"
    )


def test_a_listener_may_be_collected_while_it_accepts():
    run_program(
        FORCED
        + """
context = ucx_api.UCXContext()
worker = ucx_api.UCXWorker(context)

class Server:
    def __init__(self):
        self.listener = ucx_api.UCXListener(worker, 0, self.on_connect)
    def on_connect(self, request):
        pass

for _ in range(20):
    gc.disable()
    server = Server()
    endpoint = worker.ep_create("127.0.0.1", server.listener.port, True)
    del server
    gc.enable()
    gc.set_threshold(1, 1, 1)
    while endpoint.state == "connecting" or gc.get_count()[0] < 0:
        worker.progress()
    for _ in range(1000):
        worker.progress()
    gc.set_threshold(700, 10, 10)
"""
    )


def test_an_endpoint_may_be_collected_while_its_message_comes():
    run_program(
        FORCED
        + """
async def main():
    worker = ucp.current_worker()
    heard = []
    worker.set_am_handler(20, lambda ep, message: heard.append(bytes(message)))
    async with ucp.create_listener(host="127.0.0.1") as listener:
        for _ in range(20):
            client = await ucp.create_endpoint("127.0.0.1", listener.port)
            gc.disable()
            Cycle(await anext(listener))
            sending = client.am_send(b"x", id=20)
            gc.enable()
            brink()
            worker.arm()
            await asyncio.sleep(0)
            gc.set_threshold(700, 10, 10)
            sending.exception() if sending.done() else sending.cancel()
            client.abort()
    del client, sending

asyncio.run(main())
"""
    )


def test_a_request_may_be_dropped_on_the_brink_of_a_collection():
    run_program(
        FORCED
        + """
async def main():
    async with connected_pair() as (client, server):
        for _ in range(200):
            done = []
            request = server.am_recv()
            request.add_done_callback(done.append)
            await client.am_send(b"12345678")
            await until(lambda: done)
            done.clear()
            other = asyncio.create_task(server.am_recv())
            await asyncio.sleep(0)
            gc.set_threshold(1, 1, 1)
            del request
            assert await other == b"12345678"
            gc.set_threshold(700, 10, 10)

asyncio.run(main())
"""
    )


@pytest.mark.parametrize("end", ["worker.abort", "client.abort", "server.abort"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_buffers_destructor_may_end_everything(end, loop):
    run_program(
        FORCED
        + f"""
class Array(np.ndarray):
    def __del__(self):
        ends, Array.ends = Array.ends, []
        for end in ends:
            end()

async def main():
    worker = ucp.current_worker()
    async with connected_pair() as (client, server):
        array = np.zeros(8 << 20, "u1").view(Array)
        sending = client.send(array)
        del array
        Array.ends = [{end}]
        try:
            await server.recv(bytearray(8 << 20))
            await sending
        except ucp.UCXBaseException:
            pass
        assert Array.ends == []

Array.ends = []
{loop}.run(main())
"""
    )


def test_a_buffers_destructor_may_reset_everything():
    run_program(
        FORCED
        + """
class Array(np.ndarray):
    def __del__(self):
        ends, Array.ends = Array.ends, []
        for end in ends:
            end()

Array.ends = []

async def main():
    async with connected_pair() as (client, server):
        array = np.zeros(8 << 20, "u1").view(Array)
        sending = client.send(array)
        del array
        Array.ends = [client.abort, server.abort, reset]
        try:
            await server.recv(bytearray(8 << 20))
            await sending
        except ucp.UCXBaseException:
            pass
        assert Array.ends == []

def reset():
    try:
        ucp.reset()
    except ucp.UCXError:
        pass

asyncio.run(main())
"""
    )


def test_a_callback_may_close_the_worker_under_the_low_level_api():
    run_program(
        FORCED
        + """
context = ucx_api.UCXContext()
worker = ucx_api.UCXWorker(context)
accepted, calls = [], []
listener = ucx_api.UCXListener(worker, 0, accepted.append)
client = worker.ep_create("127.0.0.1", listener.port, True)
while not accepted or client.state != "open":
    worker.progress()
server = worker.ep_create_from_conn_request(accepted.pop(), True)
def close(*args):
    calls.append(args)
    worker.close()
data, buffer = bytes(8 << 20), bytearray(8 << 20)
ucx_api.tag_send_nb(client, data, len(data), 5, close)
ucx_api.tag_recv_nb(worker, buffer, len(buffer), 5, close)
while not calls:
    worker.progress()
assert worker.closed()
"""
    )


@pytest.mark.parametrize("step", ["route", "allocate", "finish"])
def test_a_function_for_messages_may_close_the_worker(step):
    run_program(
        FORCED
        + f"""
from ucp.message import MessageListener, MessageReceiver, MessageSender

async def main():
    steps = []
    async with connected_pair() as (client, server):
        worker = ucp.current_worker()
        def reached(step):
            steps.append(step)
            if step == "{step}":
                worker.abort()
        class Receiver(MessageReceiver):
            def allocate(self, sizes):
                reached("allocate")
                return [bytearray(size) for size in sizes]
            def finish(self, buffers):
                reached("finish")
        def route(metadata):
            reached("route")
            return Receiver(metadata)
        listener = MessageListener(server, route)
        sender = MessageSender()
        for size in (1, 300_000):
            sending = sender.send(client, {{"n": size}}, [bytes(size)])
            sending.add_done_callback(lambda sending: sending.exception())
        await until(worker.closed)
        assert "{step}" in steps

asyncio.run(main())
"""
    )


# ---- while something goes ------------------------------------------------------


def test_a_worker_may_be_closed_while_it_closes():
    run_program(
        """
class Loop(asyncio.SelectorEventLoop):
    worker = None
    def remove_reader(self, fd):
        if self.worker is not None:
            worker, self.worker = self.worker, None
            worker.abort()
        return super().remove_reader(fd)

async def main(loop):
    async with connected_pair() as (client, server):
        loop.worker = client.worker
        client.worker.abort()
        assert loop.worker is None
        assert client.worker.closed()
        assert client.closed()

loop = Loop()
loop.run_until_complete(main(loop))
loop.close()
"""
    )


def test_a_loop_may_close_the_worker_when_it_is_asked_whether_it_is_closed():
    run_program(
        """
from ucp import _ext

class Loop(asyncio.SelectorEventLoop):
    worker = None
    def is_closed(self):
        if self.worker is not None:
            worker, self.worker = self.worker, None
            worker.abort()
        return super().is_closed()

loop = Loop()
worker = _ext.Worker(_ext.Context(), loop, _ext.Endpoint, _ext.Listener)
loop.worker = worker
worker._run_until_closed(1.0)
assert worker.closed()
loop.close()
"""
    )


def test_the_collector_may_close_a_sender_that_is_to_be_drained():
    run_program(
        FORCED
        + """
from ucp import _ext

async def main():
    async with connected_pair() as (client, server):
        kept = [server.recv(bytearray(1)) for _ in range(300)]  # none is free
        sender = _ext.MessageSender(client.worker)
        gc.callbacks.append(lambda phase, info: sender._close())
        brink()
        try:
            # gc.collect() has closed it: another one, closed by the next.
            sender = _ext.MessageSender(client.worker)
            while True:
                kept.append(sender.wait_sent())
        except RuntimeError as exc:
            assert "closed" in str(exc)
        gc.callbacks.clear()
        gc.set_threshold(700, 10, 10)
        for request in kept:
            request.cancel()

asyncio.run(main())
"""
    )


@pytest.mark.parametrize(
    ("send", "recv", "length"),
    [
        ("am_send(data)", "am_recv()", "len(it)"),
        ("send_frames([data])", "recv_frames()", "len(it[1][0])"),
        ("send_frames([data])", "recv_frames(bytearray)", "len(it[1][0])"),
        ("send(data)", "recv_message()", "await it.recv(bytearray(it.nbytes))"),
    ],
)
@pytest.mark.parametrize("size", [8, 300_000])
def test_a_weak_reference_may_make_progress_when_its_request_goes(
    send, recv, length, size
):
    run_program(
        f"""
import weakref
from ucp.testing import live_objects, until

async def main():
    warnings.simplefilter("ignore", RuntimeWarning)  # it was dropped
    async with connected_pair() as (client, server):
        worker, calls, data = client.worker, [], bytes({size})
        def progress(_):
            calls.append(worker.progress())
            worker.arm()
        for turns in range(12):
            before = live_objects()["requests"]
            sending = client.{send}
            request = server.{recv}
            reference = weakref.ref(request, progress)
            for _ in range(turns):
                worker.progress()
            del request
            assert reference() is None
            assert len(calls) == turns + 1
            # Nothing is lost, and nothing is there twice.
            it = await server.{recv}
            assert {length} == {size}
            await sending
            del sending, it
            await until(lambda: live_objects()["requests"] == before)

asyncio.run(main())
"""
    )


CLEARED = """
import ctypes
from ucp import _ext

TP_CLEAR = 192  # where the function is in a type

def clear(request):
    # As the collector does, before it clears other objects of the cycle, whose
    # failures it tells a function of the program that knows this request, too.
    address = ctypes.c_void_p.from_address(id(type(request)) + TP_CLEAR).value
    assert ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(address)(request) == 0

def ask(request):
    repr(request)
    for ask in (request.exception, request.result, lambda: request.send(None)):
        try:
            ask()
        except (
            ucp.UCXError,
            asyncio.CancelledError,
            asyncio.InvalidStateError,
            StopIteration,
        ):
            pass

async def main():
    warnings.simplefilter("ignore", RuntimeWarning)  # they were dropped
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    address = bytes(ucp.get_worker_address())
    comm = await ucp.Communicator.connect(address, 0, 1)
    heap = await ucp.shmem.SymmetricHeap.create(comm, 4096)
    array = await heap.zeros(2, "i8")
    outputs = await ucp.shuffle.MapOutputs.create(comm, 1, 1)
    shuffler = ucp.shuffle.Shuffler(comm, 1, 1)
    requests = {
        "receive": comm.irecv(bytearray(8), 0, tag=5),
        "fetch": _ext.SymmetricHeap.atomic_fetch_add(heap, array[:1], 1, 0),
        "wait": array[1:]._wait_until("==", 7),
        "commit": _ext.MapWriter(outputs, 0)._commit(),
        "partition": shuffler._wait(),
        "barrier": comm.barrier(),
    }
    await requests["commit"]
    if sys.argv[1] == "ended":
        shuffler.abort()
        outputs.abort()
        heap.close()
        comm.close()
        await until(lambda: all(request.done() for request in requests.values()))
    for request in requests.values():
        clear(request)
        ask(request)
    for request in requests.values():
        request.cancel()
    requests.clear()
    gc.collect()

asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["open", "ended"])
def test_a_request_that_was_cleared_may_be_asked(state):
    run_program(FORCED + CLEARED, state)
