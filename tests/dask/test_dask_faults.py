# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/logs
"""Processes and networks that fail under Dask: as over tcp, so over ucp."""

import asyncio
import contextlib
import gc
import json
import os
import pickle
import re
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
import pytest
from clusters import OPTIONS, run_cluster
from networks import cut, start
from script import run_script

distributed = pytest.importorskip("distributed", reason="distributed is missing")

from distributed.comm import CommClosedError, connect, listen, parse_address  # noqa: E402
from distributed.protocol import to_serialize  # noqa: E402

from ucp.testing import live_objects, until  # noqa: E402

pytestmark = pytest.mark.default_workers  # of namespaces, which have other devices


@pytest.fixture(params=["ucp", "tcp"] if os.environ.get("TCP_OF_TEST") else ["ucp"])
def protocol(request):
    """Of Dask's: the same is expected of each. Over tcp nothing of ours runs."""
    return request.param


def run_faulty(directory, program, protocol):
    """Run it with a cluster; distributed tells of faults on stderr."""
    run_cluster(directory, program.replace("'ucp'", repr(protocol)))


# ---- clusters ----------------------------------------------------------------

MISSING = [name for name in ("pandas", "pyarrow") if find_spec(name) is None]

# A worker that is the first to compute one of these dies: partition 7 of the input,
# while others have been shuffled and are on their way, or one of the output.
SHUFFLE = f"""
import dask.dataframe, pandas

died = os.path.abspath("died")

def die_once():
    try:
        os.close(os.open(died, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

def part(number):
    if "STAGE" == "input" and number == 7:
        die_once()
    keys = np.arange(20_000) % 1000
    return pandas.DataFrame(dict(key=keys, value=np.full(20_000, number)))

def total(partition):
    if "STAGE" == "output":
        die_once()
    return partition.groupby("key").sum()

empty = part(0).iloc[:0]
frame = dask.dataframe.from_map(part, range(12), meta=empty)
with LocalCluster(n_workers=2, processes=True, {OPTIONS}) as cluster:
    with Client(cluster) as client:
        shuffled = frame.shuffle("key", shuffle_method="p2p")
        totals = shuffled.map_partitions(total, meta=empty.groupby("key").sum())
        result = client.compute(totals).result()
assert os.path.exists(died)
assert len(result) == 1000 and (result.value == 20 * sum(range(12))).all()
print("done")
"""


@pytest.mark.skipif(MISSING, reason=f"missing: {', '.join(MISSING)}")
@pytest.mark.parametrize("stage", ["input", "output"])
def test_a_shuffle_outlives_a_worker(tmp_path, protocol, stage):
    run_faulty(tmp_path, SHUFFLE.replace("STAGE", stage), protocol)


CLIENT = """
import os, sys, time
import numpy as np
from distributed import Client

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)

client = Client(sys.argv[1])
kept = client.scatter(list(range(100)), broadcast=True)
first, second = client.scheduler_info()["workers"]
waiting = client.submit(wait_for, sys.argv[2], workers=[first])
big = client.submit(np.ones, 4_000_000, workers=[second])
for number in range(1_000_000):
    client.gather(big)
    client.scatter(np.full(4_000_000, number))
    print("busy", flush=True)
"""

KILLED_CLIENT = f"""
import subprocess, sys

go = os.path.abspath("go")
with LocalCluster(n_workers=2, processes=True, {OPTIONS}) as cluster:
    scheduler = cluster.scheduler
    command = [sys.executable, "-P", "client.py", cluster.scheduler_address, go]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        for _ in range(3):
            assert process.stdout.readline() == b"busy\\n"
        assert len(scheduler.tasks) > 100
        process.kill()
    while scheduler.tasks or scheduler.client_comms:
        time.sleep(0.01)
    open(go, "w").close()
    with Client(cluster) as client:
        assert sum(client.gather(client.map(lambda x: x + 1, range(100)))) == 5050
print("done")
"""


def test_the_tasks_of_a_killed_client_are_dropped(tmp_path, protocol):
    (tmp_path / "client.py").write_text(CLIENT)
    run_faulty(tmp_path, KILLED_CLIENT, protocol)


@contextlib.contextmanager
def dask_command(name, *arguments):
    """Run ``dask scheduler`` or ``dask worker``; killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "dask", name, "--no-dashboard", *arguments],
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def dask_scheduler(directory, protocol, port):
    """A scheduler's process; and its address once it listens."""
    file = directory / "scheduler.json"
    file.unlink(missing_ok=True)
    arguments = ["--host", "127.0.0.1", "--protocol", protocol, "--port", str(port)]
    with dask_command(
        "scheduler", *arguments, "--scheduler-file", str(file)
    ) as process:
        yield process, address_in(file, process)


def address_in(file, process):
    while True:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return json.loads(file.read_text())["address"]
        assert process.poll() is None
        time.sleep(0.01)


def test_a_killed_scheduler_comes_back_on_its_port(tmp_path, protocol):
    with dask_scheduler(tmp_path, protocol, 0) as (process, address):
        assert address.startswith(f"{protocol}://127.0.0.1:")
        with dask_command("worker", address, "--no-nanny", "--nthreads", "1") as worker:
            client = distributed.Client(address)
            try:
                assert client.submit(pow, 2, 10).result() == 1024
                process.kill()
                process.wait()
                port = parse_address(address)[1].rsplit(":")[-1]
                reconnected(tmp_path, protocol, port, client)
                assert worker.wait() == 0  # the worker ends with the scheduler
            finally:
                client.close()


def reconnected(directory, protocol, port, client):
    with dask_scheduler(directory, protocol, port) as (_, address):
        with dask_command("worker", address, "--no-nanny", "--nthreads", "1"):
            while client.status != "running":
                time.sleep(0.01)
            assert client.submit(pow, 3, 4).result() == 81


# ---- idle clusters -----------------------------------------------------------

# Counts, and of the same seconds, so that what else the machine does is the same.
IDLE = """
def wake_ups(pid):
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as file:
            (line,) = [line for line in file if line.startswith("voluntary_ctxt")]
        total += int(line.split()[1])
    return total

def pid_of(cluster):
    with Client(cluster) as client:
        assert client.submit(abs, -3).result() == 3
        (pid,) = client.run(os.getpid).values()
        return pid

options = dict(n_workers=1, threads_per_worker=1, dashboard_address=":0")
with LocalCluster(protocol="ucp", **options) as ours:
    with LocalCluster(protocol="tcp", **options) as theirs:
        pids = [pid_of(cluster) for cluster in (ours, theirs)]
        before = [wake_ups(pid) for pid in pids]
        time.sleep(5)
        ucp, tcp = [wake_ups(pid) - n for pid, n in zip(pids, before)]
# distributed itself looks at the clock 100 times a second. The client's farewell
# may fall into these seconds.
assert ucp <= 1.5 * tcp + 20, (ucp, tcp)
print("done")
"""


def test_idle_workers_wake_up_no_more_than_over_tcp(tmp_path):
    run_cluster(tmp_path, IDLE)


# ---- many messages -----------------------------------------------------------

MANY = '''
import asyncio, logging, sys
from distributed.comm import connect, listen

logging.getLogger("ucp").setLevel("ERROR")  # a close that waits for long says so

def memory():
    """The most there was so far, in MiB; a new program's getrusage() begins with
    what its parent has."""
    with open("/proc/self/status") as file:
        (line,) = [line for line in file if line.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024

async def main(count):
    accepted = asyncio.get_running_loop().create_future()

    async def handle(comm):
        accepted.set_result(comm)

    async with listen("ucp://127.0.0.1", handle) as listener:
        a = await connect(listener.contact_address)
        b = await accepted

    async def write(numbers):
        for number in numbers:
            await a.write({"op": "x", "number": number})
        await a.close()

    async def read(numbers):
        for number in numbers:
            assert await b.read() == {"op": "x", "number": number}

    before = memory()
    writing = asyncio.create_task(write(range(count)))
    await read(range(count))
    await writing
    # Without a bound it is 70 MiB of messages that wait for the reader.
    assert memory() - before < 45, (before, memory())

asyncio.run(main(int(sys.argv[1])))
'''


@pytest.mark.parametrize("tls", ["", "tcp"])
def test_very_many_messages_come_in_order_and_take_bounded_memory(tls):
    run_script(MANY, "60000", **({"UCX_TLS": tls} if tls else {}))


# ---- peers that lie ----------------------------------------------------------

LIAR = """
import asyncio, mmap, signal, sys, ucp

async def main(port):
    ep = await ucp.create_endpoint("127.0.0.1", port)
    await ep.ping()  # who hangs up before may not have been accepted yet
    # What is sent fails once the listener has had enough, which is no news.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    LIE
    try:
        while True:
            await ep.recv_frames()
    except ucp.UCXBaseException:
        pass

signal.alarm(50)
ucp.init(config=ucp.Config(frames_max=1 << 24, frames_bytes_max=1 << 50))
asyncio.run(main(int(sys.argv[1])))
"""

# Messages of other kinds, and frames of which the library, what packs them, or
# msgpack says that they cannot be.
LIES = {
    "garbage": "await ep.send(b'x'); await ep.am_send(b'y'); ep.abort()",
    "no msgpack": "ep.send_frames([b'\\xc1 is none'])",
    "no frames": "ep.send_frames([])",
    "too many frames": "ep.send_frames([b''] * 1_000_000)",
    "fewer packed frames": "ep.send_frames([bytes(5) + b'abc'], b'packed')",
    # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    "terabytes": "ep.send_frames([mmap.mmap(-1, 1 << 43, 0x4022)])",
    "hangs up": "ep.send_frames([bytes(64 << 20)]); ep.abort()",
}


async def echo(comm):
    with contextlib.suppress(CommClosedError):
        while True:
            await comm.write(await comm.read())


async def answers(comm):
    await comm.write("question")
    return await comm.read() == "question"


@pytest.mark.parametrize("lie", LIES)
async def test_a_peer_that_lies_is_dropped(transport, lie):
    """The connection of a peer that lies ends on both sides; others are served."""
    env = {"UCX_TLS": "tcp"} if transport == "tcp" else {}
    program = LIAR.replace("LIE", LIES[lie])
    accepted = []
    async with listen("ucp://127.0.0.1", echo) as listener:
        shake_hands = listener.on_connection

        async def on_connection(comm):
            accepted.append(comm)
            await shake_hands(comm)

        listener.on_connection = on_connection
        other = await connect(listener.contact_address)
        port = str(listener.get_host_port()[1])
        await asyncio.to_thread(run_script, program, port, **env)
        assert await answers(other)
        late = await connect(listener.contact_address)
        assert await answers(late)
        await until(accepted[1].closed)
        await other.close()
        await late.close()


async def test_a_message_larger_than_the_memory_closes_its_connection(
    transport, monkeypatch
):
    def allocate(size):
        raise MemoryError

    ends = asyncio.Queue()

    async def handle(comm):
        monkeypatch.setattr("ucp.dask._blocks.host_array", allocate)
        with pytest.raises(MemoryError):
            await comm.read()
        await ends.put(comm.closed())

    async with listen("ucp://127.0.0.1", handle) as listener:
        comm = await connect(listener.contact_address)
        await comm.write({"x": to_serialize(bytes(8 << 20))})
        assert await ends.get()
        with pytest.raises(CommClosedError):
            await comm.read()


# ---- networks that are cut ---------------------------------------------------

CUT = """
import asyncio, sys, dask
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

async def reach(address):
    accepted = asyncio.get_running_loop().create_future()

    async def handle(comm):
        accepted.set_result(comm)

    if address:
        return await connect(address)
    listener = await listen("ucp://192.0.2.1", handle)
    print(listener.contact_address, flush=True)
    return await accepted

async def main(what, address=None):
    comm = await reach(address)
    await comm.write("hello")
    assert await comm.read() == "hello"
    if what == "writing":
        await comm.write(to_serialize(bytes(256 << 20)))
    print("connected", flush=True)
    await asyncio.to_thread(input)  # until it is cut
    try:
        while True:
            await comm.read()
    except CommClosedError:
        print("closed", comm.closed(), flush=True)

dask.config.set({"distributed.comm.timeouts.tcp": "2s"})
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("what", ["idle", "writing"])
def test_a_cut_network_ends_connections(namespaces, what):
    with start(namespaces[0], CUT, what) as server:
        address = server.stdout.readline().strip()
        with start(namespaces[1], CUT, what, address) as client:
            for process in server, client:
                assert process.stdout.readline() == "connected\n"
            cut(namespaces)
            assert client.communicate("\n")[0] == "closed True\n"
        assert server.communicate("\n")[0] == "closed True\n"


# ---- peers that are refused --------------------------------------------------

STRANGER = """
import asyncio, dask, sys
from distributed import Client, Worker
from ucp.dask import PeerRefusedError

async def run(address):
    try:
        await Worker(address, host="127.0.0.1")
    except RuntimeError as exc:
        assert type(exc.__cause__) is PeerRefusedError, exc.__cause__
    else:
        raise AssertionError

if token := sys.argv[2]:
    dask.config.set({"distributed.comm.ucp.token": token})
try:
    Client(sys.argv[1], timeout=30)
except PeerRefusedError as exc:
    print(exc)
else:
    raise AssertionError
asyncio.run(run(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("token", "reason"),
    [("wrong", "peer failed authentication"), ("", "the listener asks for a token")],
)
def test_a_wrong_token_ends_the_attempt_and_is_logged(tmp_path, token, reason):
    stderr = run_cluster(
        tmp_path,
        f"""
import dask, sys
dask.config.set({{"distributed.comm.ucp.token": "right"}})

async def run():
    async with Scheduler(
        protocol="ucp", host="127.0.0.1", dashboard_address=":0"
    ) as scheduler:
        stranger = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", {STRANGER!r}, scheduler.address, {token!r},
            stdout=-1)
        said, _ = await stranger.communicate()
        assert stranger.returncode == 0
        assert said.decode().startswith(scheduler.address + ": "), said
        assert {reason!r} in said.decode(), said

asyncio.run(run())
print("done")
""",
    )
    why = (
        "the token is not ours" if token else "it left when it was asked for the token"
    )
    line = rf" - ucp - WARNING - 127\.0\.0\.1:\d+ dropped: {why}"
    assert re.search(line, stderr), stderr


SILENT = """
import asyncio, signal
from distributed.comm import listen

async def accept(comm):
    await asyncio.sleep(50)

async def main():
    async with listen("ucp://127.0.0.1", accept) as listener:
        print(listener.contact_address, flush=True)
        await asyncio.sleep(50)

signal.alarm(50)
asyncio.run(main())
"""


async def test_messages_queued_to_a_peer_that_dies_are_not_reported():
    heard, before = [], live_objects()["requests"]
    asyncio.get_running_loop().set_exception_handler(lambda _, said: heard.append(said))
    with subprocess.Popen(
        [sys.executable, "-P", "-c", SILENT], stdout=subprocess.PIPE, text=True
    ) as peer:
        try:
            comm = await connect(peer.stdout.readline().strip())
            for _ in range(3):
                await comm.write({"data": to_serialize(np.ones(1 << 20))})
        finally:
            peer.kill()
        with pytest.raises(CommClosedError):
            await comm.read()
    comm.abort()
    del comm
    gc.collect()
    await until(lambda: live_objects()["requests"] <= before)
    assert heard == []


@contextlib.asynccontextmanager
async def written_to_the_scheduler(message):
    """What the other side reads of a message that has been written."""
    accepted = asyncio.get_running_loop().create_future()

    async def accept(comm):
        accepted.set_result(comm)

    async with listen("ucp://127.0.0.1", accept) as listener:
        comm = await connect(listener.contact_address)
        comm.name = "Client->Scheduler"  # as distributed calls it
        await comm.write(message)
        server = await accepted
        yield server.read
        await comm.close()
        await server.close()


class Columns:
    """Pickled as memory in Fortran's order."""

    def __init__(self, array):
        self.array = array

    def __reduce_ex__(self, protocol):
        return _columns, (pickle.PickleBuffer(self.array), self.array.shape)


def _columns(memory, shape):
    return np.frombuffer(memory, "u1").reshape(shape, order="F")


async def test_memory_in_another_order_arrives_as_it_is():
    array = np.asfortranarray(np.arange(6000, dtype="u2").view("u1").reshape(100, 120))
    async with written_to_the_scheduler(
        {"array": to_serialize(Columns(array))}
    ) as read:
        assert np.array_equal((await read())["array"], array)


@pytest.mark.parametrize("size", [100, 5000, 200_000, 8 << 20])
async def test_a_message_to_the_scheduler_has_left_its_array(size):
    array = np.zeros(size, "u1")
    async with written_to_the_scheduler({"array": to_serialize(array)}) as read:
        array[:] = 1
        assert not np.asarray((await read())["array"]).any()
