# SPDX-License-Identifier: BSD-3-Clause
# tests: bounce/movable host/loader mem/cuda_kernel channel/frames_send
"""Frames in memory of devices: many short ones are a part of the message, which the
device gathers and scatters, by a kernel or by copies."""

import ast

import pytest
import standin
from paths import TESTS
from script import run_script

pytestmark = pytest.mark.timeout(120)

# What both sides have.
SIDE = """
import asyncio, random, gpu, standin, ucp

class Host(bytearray):
    @property
    def nbytes(self):
        return len(self)

    def write(self, data):
        self[:] = data

    def read(self):
        return bytes(self)

def memory(kind, size):
    if kind == "host" or size == 0:
        return Host(size)
    if kind == "other":
        return gpu.Memory(size, "device", 1)
    return gpu.Memory(size, kind)

def bytes_of(seed, size):
    return random.Random(seed).randbytes(size)

async def receive(ep, frames):
    '''Into memory of these kinds; what is wrong.'''
    got = [memory(kind, size) for kind, size in frames]
    for frame in got:
        frame.write(b"?" * frame.nbytes)
    await ep.recv_frames(into=got)
    return [
        (n, *frames[n])
        for n, frame in enumerate(got)
        if frame.read() != bytes_of(n, frame.nbytes)
    ]

async def send(ep, frames):
    sent = [memory(kind, size) for kind, size in frames]
    for n, frame in enumerate(sent):
        frame.write(bytes_of(n, frame.nbytes))
    await ep.send_frames(sent)
"""

PROGRAM = f"""
import asyncio, sys
sys.path.append({str(TESTS)!r})
from peer import Peer
{SIDE}
SIDE = {SIDE!r}

async def begin():
    peer = Peer({{}})
    await peer.do(f"import sys; sys.path.append({str(TESTS)!r})")
    await peer.do(SIDE)
    ep = await ucp.create_endpoint("127.0.0.1", await peer.do("listener.port"))
    await peer.do("ep = await anext(listener)")
    return peer, ep

async def exchange(peer, ep, frames, into):
    await peer.do(f"task = asyncio.ensure_future(receive(ep, {{into!r}}))")
    await send(ep, frames)
    wrong = await peer.do("await task")
    assert not wrong, (frames, wrong)

async def load(peer, ep):
    '''Exchange frames until both devices have the kernel.'''
    frames = [("device", 5000)] * 40
    while not (
        standin.state().launches and await peer.do("standin.state().launches")
    ):
        await exchange(peer, ep, frames, frames)
"""

MANY = """
SIZES = [1, 3, 100, 4096, 8191, 8192, 8192, 60_000, 0, 17]

def frames(kinds, count):
    return [(kinds[n % len(kinds)], SIZES[n % len(SIZES)]) for n in range(count)]

async def main():
    peer, ep = await begin()
    host, one = ["host"], ["device"]
    ways = [(one, one), (one, host), (host, one), (["device", "host"], one),
            (one, ["device", "host"]), (["device", "other"], one),
            (one, ["other", "device", "device"]), (["managed", "device"], one)]
    for is_again in (False, True):
        if is_again and HAS_KERNEL:
            await load(peer, ep)
        for mine, theirs in ways:
            for count in (2, 7, 64, 300):
                sizes = [size for _, size in frames(one, count)]
                into = [(kind, size) for (kind, _), size in
                        zip(frames(theirs, count), sizes)]
                await exchange(peer, ep, frames(mine, count), into)
    before = ep.ways()["bounce"]["sent"]
    launches = standin.state().launches
    there = await peer.do("standin.state().launches")
    many = [("device", 8192)] * 64
    await exchange(peer, ep, many, many)
    print((
        ep.ways()["bounce"]["sent"] - before,
        standin.state().launches - launches,
        await peer.do("standin.state().launches") - there,
    ))
    peer.kill()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("env", "has_kernel"),
    [
        ({}, True),
        ({"UCX_TLS": "^cuda_ipc"}, True),
        ({"STANDIN_IPC": "0"}, False),  # through slots of the host: copies only
        ({"STANDIN_FAIL": "cuModuleLoadData:218:0"}, False),
        ({"STANDIN_STEP_US": "100"}, True),
    ],
    ids=["cuda_ipc", "slots of a device", "of the host", "no kernel", "slow copies"],
)
def test_short_frames_of_a_device_go_together(env, has_kernel):
    source = f"HAS_KERNEL = {has_kernel}\n{PROGRAM}{MANY}"
    said = run_script(source, UCP_LOG_LEVEL="error", **standin.settings(True, **env))
    parts, here, there = ast.literal_eval(said.splitlines()[-1])
    assert parts == 1
    if has_kernel:
        assert here > 0 and there > 0
    else:
        assert here == there == 0


# A message is given up by either side, at any time, and its memory is written to at
# once. What comes is a whole message, in order.
GIVEN_UP = """
def fill(parts, seed):
    for n, part in enumerate(parts):
        part.write(bytes_of((seed, n).__hash__(), part.nbytes))

def which(parts, seeds):
    '''The seed of the message that all have; None: of none.'''
    for seed in seeds:
        if all(part.read() == bytes_of((seed, n).__hash__(), part.nbytes)
               for n, part in enumerate(parts)):
            return seed

async def take(ep, frames, seeds, delay):
    '''Receive one of the messages; -1: given up, and nothing was written since.'''
    got = [memory(*frame) for frame in frames]
    receiving = asyncio.ensure_future(ep.recv_frames(into=got))
    if delay is not None:
        await asyncio.wait([receiving], timeout=delay)
        receiving.cancel()
    await asyncio.wait([receiving])
    if not receiving.cancelled():
        receiving.result()
        return which(got, seeds)
    for part in got:
        part.write(b"?" * part.nbytes)
    await asyncio.sleep(0.02)
    return -1 if all(set(part.read()) == {ord("?")} for part in got) else None

async def take_all(ep, frames, seeds, delay):
    '''What was taken, up to the last message.'''
    got = [await take(ep, frames, seeds, delay)]
    while got[-1] is not None and got[-1] != seeds[-1]:
        got.append(await take(ep, frames, seeds, None))
    return got
"""

GIVING_UP = """
async def main():
    peer, ep = await begin()
    await peer.do(GIVEN_UP)
    chance = random.Random(59)
    kinds = [["device"], ["device", "host"], ["device", "other"]]
    outcomes = []
    for number in range(60):
        some = kinds[number % 3]
        frames = [(some[n % len(some)], 1 + n * 131) for n in range(40)]
        parts = [memory(*frame) for frame in frames]
        seeds = (2 * number, 2 * number + 1)
        delays = [chance.choice([None, chance.random() * 0.01]) for _ in range(2)]
        begun = peer.begin(f"await take_all(ep, {frames!r}, {seeds!r}, {delays[0]!r})")
        fill(parts, seeds[0])
        sending = asyncio.ensure_future(ep.send_frames(parts))
        if delays[1] is not None:
            await asyncio.wait([sending], timeout=delays[1])
            sending.cancel()
        await asyncio.wait([sending])
        fill(parts, seeds[1])
        second = asyncio.ensure_future(ep.send_frames(parts))
        got = await peer.result(begun)
        assert got[-1] is not None, (number, delays, got)
        await second
        came = [one for one in got if one != -1]
        assert came in ([seeds[1]], list(seeds)), (number, delays, got)
        assert sending.cancelled() or came == list(seeds), (number, delays, got)
        outcomes.append((len(got), sending.cancelled()))
    print(len(set(outcomes)))
    peer.kill()

asyncio.run(main())
"""


@pytest.mark.parametrize("ipc", ["1", "0"], ids=["slots of a device", "of the host"])
def test_frames_that_are_given_up_come_whole_or_not_at_all(ipc):
    source = f"{PROGRAM}{GIVEN_UP}GIVEN_UP = {GIVEN_UP!r}\n{GIVING_UP}"
    env = standin.settings(STANDIN_IPC=ipc, STANDIN_STEP_US="200")
    said = run_script(source, UCP_LOG_LEVEL="error", **env)
    assert int(said) > 2


# A receive ends while UCX brings the bytes: they go to the next one all the same.
AGAIN = """
async def main():
    peer, ep = await begin()
    await peer.do(GIVEN_UP)
    for number in range(12):
        sizes = [[151_108], [101_091, 151_108, 189_575]][number % 2]
        frames = [("device", size) for size in sizes]
        delay = number // 2 * 0.0005
        begun = peer.begin(f"await take_all(ep, {frames!r}, ({number},), {delay})")
        parts = [memory(*frame) for frame in frames]
        fill(parts, number)
        await ep.send_frames(parts)
        got = await peer.result(begun)
        assert got in ([number], [-1, number]), (number, got)
    print(ep.ways()["cuda_ipc"]["sent"])
    peer.kill()

asyncio.run(main())
"""


def test_what_ucx_brings_for_a_receive_that_has_ended_comes_again():
    source = f"{PROGRAM}{GIVEN_UP}GIVEN_UP = {GIVEN_UP!r}\n{AGAIN}"
    said = run_script(source, UCP_LOG_LEVEL="error", **standin.settings(True))
    assert int(said.splitlines()[-1]) > 0


# Memory of another context of the device than the library's, as PyCUDA makes it.
FOREIGN = """
class Foreign(gpu.Memory):
    def __init__(self, nbytes):
        context = ctypes.c_void_p()
        gpu.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
        address = ctypes.c_void_p()
        gpu.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        gpu.call("cuCtxPopCurrent_v2", ctypes.byref(context))
        self.nbytes, self.kind, self.device, self.stream = nbytes, "freed", 0, None
        self.address = address.value

    def write(self, data):
        self.kind = "device"
        super().write(data)
        self.kind = "freed"  # it lives as long as the program

async def main():
    peer, ep = await begin()
    frames = [("device", 5000)] * 40
    await load(peer, ep)
    launches = standin.state().launches
    sent = [Foreign(5000) for _ in range(40)]
    for n, frame in enumerate(sent):
        frame.write(bytes_of(n, frame.nbytes))
    await peer.do(f"task = asyncio.ensure_future(receive(ep, {frames!r}))")
    await ep.send_frames(sent)
    assert not await peer.do("await task")
    print(launches > 0, standin.state().launches == launches)
    peer.kill()

asyncio.run(main())
"""


def test_no_kernel_reaches_into_another_context():
    said = run_script(
        f"import ctypes\n{PROGRAM}{FOREIGN}",
        UCP_LOG_LEVEL="error",
        **standin.settings(),
    )
    assert said == "True True\n"


# Later launches fail: the frames are copied.
LAUNCH = """
async def main():
    peer, ep = await begin()
    frames = [("device", 5000)] * 40
    await load(peer, ep)
    standin.fail("cuLaunchKernel", 701, 1)
    await exchange(peer, ep, frames, frames)
    failed = standin.calls()["cuLaunchKernel"]
    await exchange(peer, ep, frames, frames)
    print(failed > 0, standin.calls()["cuLaunchKernel"] == failed)
    peer.kill()

asyncio.run(main())
"""


def test_where_the_kernel_cannot_be_launched_all_is_copied():
    source = f"{PROGRAM}{LAUNCH}"
    said = run_script(source, UCP_LOG_LEVEL="error", **standin.settings())
    assert said == "True True\n"
