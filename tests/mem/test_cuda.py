# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/device ext/memory_kind
"""Device memory without a device: NVIDIA's driver is the tests' own library.

UCX knows of no driver, so that each message goes through the library's copies; or
it moves bytes of devices by its own transports.
"""

import os
import subprocess
import sys

import pytest
import standin
from paths import EXAMPLES, TESTS
from script import run_script

PRELUDE = """
import asyncio, ctypes, logging, signal, sys, ucp
from ucp.testing import connected_pair

signal.alarm(50)  # the time limit

def pattern(size):
    return bytes(i * 7 % 251 for i in range(size))

def refused(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it was taken")

async def exchange(sending, receiving):
    return (await asyncio.gather(sending, receiving))[1]
"""


# Behind it, in a program that finds the driver.
DRIVER = f"""
sys.path.append({str(TESTS)!r})
import gpu, standin
from standin import DeviceArray

counts = standin.state()

def zeros(size, **kwargs):
    return DeviceArray(bytes(size), **kwargs)
"""


# For what the arguments and the driver alone decide.
over_shm = pytest.mark.parametrize("run", ["shm"], indirect=True)


# Bytes that UCX moves by its own CUDA transports as well.
by_ucx_too = pytest.mark.parametrize("run", ["shm", "tcp", "ucx"], indirect=True)


@pytest.fixture(params=["shm", "tcp"])
def run(request):
    """Run a program on the driver; it ends with its contexts as they were."""

    def run(body, **env):
        if request.param == "tcp":
            env["UCX_TLS"] = "tcp"
        by_ucx = request.param == "ucx"
        program = f"{PRELUDE}{DRIVER}\nIS_STAGED = {not by_ucx}\nasync def main():\n"
        program += "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
        return run_script(
            f"{program}\nasyncio.run(main())\n"
            "assert counts.pushes == counts.pops\n"
            "assert counts.strays == 0 or not IS_STAGED",
            **standin.settings(ucx=by_ucx),
            **env,
        )

    return run


@by_ucx_too
def test_arrays_go_from_device_to_device(run):
    run("""
async with connected_pair() as (left, right):
    for size in (1, 24, 129, 5000, 40_000, 300_000, 3_000_000):
        sent, got = DeviceArray(pattern(size), device=1), zeros(size, device=2)
        copies = counts.copies
        await exchange(left.send(sent), right.recv(got))
        assert got == sent.bytes
        assert counts.copies > copies or not IS_STAGED
        sending = asyncio.ensure_future(left.send(sent, tag=7))
        await asyncio.sleep(0)
        got = zeros(size, device=3)
        assert await right.recv_into(got) == size
        await sending
        assert got == sent.bytes
""")


@by_ucx_too
def test_arrays_go_between_host_and_device(run):
    run("""
async with connected_pair() as (left, right):
    for size in (1, 5000, 300_000, 3_000_000):
        host, device = pattern(size), zeros(size)
        await exchange(left.send(host), right.recv(device))
        assert device == host
        back = bytearray(size)
        await exchange(right.send(device), left.recv(back))
        assert back == host
        assert await exchange(right.send_obj(device), left.recv_obj()) == host
        assert await exchange(right.am_send(device), left.am_recv()) == host
""")


@by_ucx_too
def test_bytes_of_a_stream_are_received_into_memory_of_a_device(run):
    run("""
async with connected_pair() as (left, right):
    for size in (1, 5000, 300_000, 3_000_000):
        sent = pattern(size)
        sending = asyncio.ensure_future(left.stream_send(DeviceArray(sent)))
        got, came = zeros(size), 0
        first = zeros(size // 2 + 1)
        assert await right.stream_recv(first, wait_all=True) == size // 2 + 1
        assert first == sent[: size // 2 + 1]
        if size > 1:
            rest = zeros(size - size // 2 - 1, device=1)
            await right.stream_recv(rest, wait_all=True)
            assert rest == sent[size // 2 + 1 :]
        await sending
        # Bytes of a receive that is given up are the next one's.
        given_up = right.stream_recv(zeros(size + 5), wait_all=True)
        asking = asyncio.ensure_future(given_up)
        sending = asyncio.ensure_future(left.stream_send(sent))
        await asyncio.wait([asking], timeout=0.02)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        got = zeros(size)
        assert await right.stream_recv(got, wait_all=True) == size
        assert got == sent
        await sending
""")


@by_ucx_too
def test_a_stream_whose_bytes_cannot_be_copied_goes_on(run):
    run(
        """
async with connected_pair() as (left, right):
    for size in (100, 5000):
        got = zeros(size)
        asking = right.stream_recv(got, wait_all=True)
        standin.fail("cuMemcpyHtoDAsync_v2", 304, 1)
        await left.stream_send(pattern(size))
        try:
            await asking
            assert not IS_STAGED
        except ucp.UCXError:
            await right.stream_recv(got, wait_all=True)
        standin.fail(None, 0)
        assert got == pattern(size)
""",
        UCP_LOG_LEVEL="error",
    )


@by_ucx_too
def test_managed_and_pinned_memory_are_the_hosts_too(run):
    run("""
async with connected_pair() as (left, right):
    for size in (1, 5000, 3_000_000):
        sent = DeviceArray(pattern(size), device=1, managed=True)
        got = DeviceArray(bytes(size), device=-1)
        await exchange(left.send(sent), right.recv(got))
        assert got == sent.bytes
        again = zeros(size, device=2, managed=True)
        await exchange(left.send(got), right.recv(again))
        assert again == sent.bytes
""")


@over_shm
def test_memory_that_is_not_there_is_refused(run):
    run("""
freed = zeros(100)
freed.forget()
short = zeros(100, shape=(101,))
wild = zeros(8)
wild.__cuda_array_interface__["data"] = (4096, False)
async with connected_pair() as (left, right):
    for array in (freed, short, wild):
        for call in (left.send, left.recv, left.send_obj, left.am_send):
            assert "where CUDA has no memory or less" in refused(call, array)
    await exchange(left.send(b"after"), right.recv(bytearray(5)))
""")


@by_ucx_too
def test_a_cancelled_receive_loses_no_message(run):
    run("""
async with connected_pair() as (left, right):
    for size in (8, 5000, 300_000, 3_000_000):
        sent = DeviceArray(pattern(size))
        for steps in range(6):
            lost, got = zeros(size, device=1), zeros(size, device=2)
            sending = asyncio.ensure_future(left.send(sent))
            receiving = asyncio.ensure_future(right.recv(lost))
            for _ in range(steps):
                await asyncio.sleep(0)
            if receiving.cancel():
                await right.recv(got)
                assert got == sent.bytes
            else:
                assert lost == sent.bytes
            await sending
""")


def test_a_failure_of_the_driver_is_the_operations(run):
    run(
        """
logging.disable()
async with connected_pair() as (left, right):
    for size in (8, 3_000_000):
        sent, got = DeviceArray(pattern(size)), zeros(size)
        standin.fail("cuMemcpyDtoHAsync_v2", 304, 1)
        host = bytearray(size)
        receiving = asyncio.ensure_future(right.recv(host))
        try:
            await left.send(sent)
            raise AssertionError
        except ucp.UCXError as error:
            assert "send" in str(error), error
        # Nobody gets that message: the receive waits for the next.
        await left.send(sent)
        await receiving
        assert host == sent.bytes
        # A receiver of the same process copies from device to device.
        standin.fail("cuMemcpyHtoDAsync_v2", 304, 1)
        standin.fail("cuMemcpyAsync", 304, 1)
        sending = asyncio.ensure_future(left.send(sent))
        try:
            await right.recv(got)
            raise AssertionError
        except ucp.UCXError as error:
            assert "recv" in str(error), error
        await sending
        standin.fail(None, 0, 0)
        await exchange(left.send(sent), right.recv(got))
        assert got == sent.bytes
"""
    )


@by_ucx_too
def test_the_stream_of_the_array_is_waited_for(run):
    run("""
made = gpu.Stream()
async with connected_pair() as (left, right):
    for stream in (None, 1, 2, made.handle):
        sent, got = zeros(5000, device=1, stream=stream), zeros(5000, stream=stream)
        if stream is not None:
            sent.launch(stream, 5)
            got.launch(stream, 9)  # what writes there comes before the message
        before = counts.waits
        await exchange(left.send(sent), right.recv(got))
        assert got == bytes([5 if stream else 0]) * 5000
        assert counts.waits == before or not IS_STAGED  # the loop has gone on
    # Before version 3 there is no stream: what uses the default one.
    sent, got = zeros(100, version=2), zeros(100)
    sent.launch(1, 6)
    await exchange(left.send(sent), right.recv(got))
    assert got == bytes([6]) * 100
    for stream in (0, -1, 3, 1 << 70, True, "1", 1.0):
        assert "stream" in refused(left.send, zeros(8, stream=stream)), stream
""")


@by_ucx_too
def test_a_stream_of_the_callers_is_waited_for(run):
    run("""
class Stream:
    def __init__(self, name, handle):
        setattr(self, name, (lambda: (0, handle)) if "_" == name[0] else handle)

made = gpu.Stream()
async with connected_pair() as (left, right):
    for stream in (
        made.handle, 2, 1, Stream("__cuda_stream__", made.handle),
        Stream("cuda_stream", made.handle), Stream("ptr", made.handle),
        Stream("ptr", 0),
    ):
        handle = made.handle if isinstance(stream, Stream) else stream
        if getattr(stream, "ptr", None) == 0:
            handle = 1
        for send, recv in (
            (left.send, right.recv),
            (left.channel(3).send, right.channel(3).recv),
        ):
            sent, got = zeros(5000, device=2), zeros(5000)
            sent.launch(handle, 5)
            got.launch(handle, 9)
            await exchange(send(sent, stream=stream), recv(got, stream=stream))
            assert got == b"\\x05" * 5000
        sent.launch(handle, 8)
        sending = left.am_send(sent, stream=stream)
        assert await exchange(sending, right.am_recv()) == b"\\x08" * 5000
    # Bytes that a kernel writes to pinned memory, without an interface.
    sent = bytearray(100)
    busy = zeros(8)
    busy.launch(made.handle, 1)
    sending = left.send(sent, stream=made.handle)
    await exchange(sending, right.recv(bytearray(100)))
    assert counts.waited == made.handle
    for stream in (0, -1, 1 << 70, True, "1", 1.0, Stream("ptr", "1"), object()):
        for call in (left.send, left.recv, left.am_send):
            assert "stream" in refused(call, bytearray(8), stream=stream), stream
""")


@by_ucx_too
def test_the_loop_goes_on_while_a_kernel_writes_what_is_sent(run):
    run("""
made = gpu.Stream()
async with connected_pair() as (left, right), connected_pair() as (a, b):
    for size in (1, 5000, 100_000):
        sent, got = zeros(size, stream=made.handle), zeros(size, device=1)
        standin.hold(True)
        sent.launch(made.handle, 5)
        sending = [left.send(sent), left.send(b"next"), left.channel(2).send(b"c")]
        first, second = right.recv(got), right.recv(host := bytearray(4))
        await right.channel(2).recv(bytearray(1))  # another channel
        for _ in range(20):
            await exchange(a.send(b"x"), b.recv(bytearray(1)))
        assert not first.done() and not second.done() and not sending[0].done()
        standin.hold(False)
        await asyncio.gather(first, second, *sending)
        assert got == bytes([5]) * size and host == b"next"
""")


@by_ucx_too
def test_the_loop_goes_on_while_a_kernel_uses_what_is_received_into(run):
    run("""
made = gpu.Stream()
async with connected_pair() as (left, right):
    for is_first in (False, True):
        for size in (1, 5000, 100_000):
            sent, got = zeros(size), zeros(size, device=1, stream=made.handle)
            sending = [left.send(sent), left.send(b"next"), left.send(b"obj")]
            if is_first:
                while right.probe() is None:
                    await asyncio.sleep(0)
            standin.hold(True)
            got.launch(made.handle, 9)
            receiving = right.recv(got), right.recv(bytearray(4)), right.recv_message()
            for _ in range(20):
                await exchange(right.send(b"x"), left.recv(bytearray(1)))
            assert not any(each.done() for each in receiving)
            standin.hold(False)
            *_, message = await asyncio.gather(*receiving)
            assert got == bytes(size) and message.nbytes == 3
            await message.recv(bytearray(3))
            await asyncio.gather(*sending)
""")


@by_ucx_too
def test_what_waits_for_a_kernel_is_cancelled_at_once(run):
    run("""
import ctypes
made = gpu.Stream()
async with connected_pair() as (left, right):
    for size in (1, 100_000):
        sent, got = zeros(size, stream=made.handle), zeros(size, stream=made.handle)
        standin.hold(True)
        sent.launch(made.handle, 5)
        sending, behind = left.send(sent), left.send(b"next")
        sending.cancel()
        host = bytearray(4)
        await exchange(behind, right.recv(host))
        assert host == b"next" and sending.cancelled()
        try:
            await asyncio.wait_for(left.send(sent), 0.01)
            raise AssertionError
        except TimeoutError:
            pass
        got.launch(made.handle, 9)
        receiving, behind = right.recv(got), right.recv(host)
        await left.send(b"more")
        assert not behind.done()
        receiving.cancel()
        await behind
        assert host == b"more"
        standin.hold(False)
        gpu.call("cuStreamSynchronize", ctypes.c_void_p(made.handle))
        assert got == bytes([9]) * size
        await exchange(left.send(sent), right.recv(got))
        assert got == sent.bytes
""")


@over_shm
@pytest.mark.parametrize("end", ["close", "abort", "peer", "nothing"])
def test_the_end_of_a_connection_ends_what_waits_for_a_kernel(run, end):
    run(
        f"END = {end!r}"
        + """
made = gpu.Stream()
sent, got = zeros(5000, stream=made.handle), zeros(5000, stream=made.handle)
standin.hold(True)
sent.launch(made.handle, 5)
async with connected_pair() as (left, right):
    waiting = [left.send(sent), left.recv(got)]
    if END == "close":  # which waits for sends
        closing = asyncio.ensure_future(left.close())
        await asyncio.sleep(0.02)
        assert not closing.done() and not waiting[0].done()
        standin.hold(False)
        receiving = right.recv(bytearray(5000))
        await asyncio.gather(closing, waiting[0], receiving)
    elif END == "abort":
        left.abort()
    elif END == "peer":
        right.abort()
    if END != "nothing":
        for each in waiting:
            try:
                await each
                assert END == "close" and each is waiting[0]
            except ucp.UCXError:
                pass
# "nothing": the worker goes while the kernel is held.
ucp.reset()
standin.hold(False)
"""
    )


@over_shm
def test_a_message_that_came_before_the_end_is_received_after_a_kernel(run):
    run("""
made = gpu.Stream()
got = zeros(5, stream=made.handle)
async with connected_pair() as (left, right):
    await left.send(b"bytes")
    closing = asyncio.ensure_future(left.close())
    while right.probe() is None:
        await asyncio.sleep(0)
    standin.hold(True)
    got.launch(made.handle, 9)
    receiving = [right.recv(got), right.recv(bytearray(1))]
    await asyncio.sleep(0.02)
    standin.hold(False)
    await receiving[0]
    assert got == b"bytes"
    try:
        await receiving[1]
        raise AssertionError
    except ucp.UCXError:
        pass
    await closing
""")


@over_shm
def test_a_device_that_fails_ends_what_waits_for_its_kernel(run):
    run(
        """
made = gpu.Stream()
sent, got = zeros(5000, stream=made.handle), zeros(5000, stream=made.handle)
async with connected_pair() as (left, right):
    standin.hold(True)
    sent.launch(made.handle, 5)
    got.launch(made.handle, 5)
    waiting = [left.send(sent), right.recv(got)]
    behind = left.send(b"host"), right.recv(host := bytearray(4))
    standin.fail("cuEventQuery", 304, 0)
    for each in waiting:
        try:
            await each
            raise AssertionError
        except ucp.UCXError as error:
            assert "send" in str(error) or "recv" in str(error), error
    standin.fail(None, 0, 0)
    await asyncio.gather(*behind)
    assert host == b"host"
    standin.hold(False)
""",
        UCP_LOG_LEVEL="ERROR",
    )


@over_shm
def test_without_an_event_a_stream_is_waited_for_in_the_call(run):
    run(
        """
made = gpu.Stream()
async with connected_pair() as (left, right):
    for name in ("cuEventRecord", "cuEventCreate", "cuStreamGetCtx"):
        sent, got = zeros(5000, stream=made.handle), zeros(5000)
        sent.launch(made.handle, 5)
        standin.fail(name, 304, 0)
        sending = left.send(sent)
        standin.fail(None, 0, 0)
        await exchange(sending, right.recv(got))
        assert got == bytes([5]) * 5000
""",
        UCP_LOG_LEVEL="ERROR",
    )


@over_shm
def test_a_stream_that_captures_a_graph_is_refused_and_goes_on(run):
    run("""
import ctypes
made = gpu.Stream()
array = zeros(100, stream=made.handle)
async with connected_pair() as (left, right):
    with gpu.Context(0):
        gpu.call("cuStreamBeginCapture_v2", ctypes.c_void_p(made.handle), 0)
        for call in (left.send, left.recv, left.am_send, left.send_obj):
            assert "captures a graph" in refused(call, array), call
        assert "captures a graph" in refused(left.send, b"1", stream=made.handle)
        graph = ctypes.c_void_p()
        handle = ctypes.c_void_p(made.handle)
        gpu.call("cuStreamEndCapture", handle, ctypes.byref(graph))
    await exchange(left.send(array), right.recv(bytearray(100)))
""")


@over_shm
def test_receives_behind_one_that_ends_before_its_kernel_go_on(run):
    run("""
made = gpu.Stream()
busy = zeros(5, stream=made.handle)
async with connected_pair() as (left, right):
    await left.send(b"bytes", tag=2)
    while right.probe(tag=2) is None:
        await asyncio.sleep(0)
    standin.hold(True)
    busy.launch(made.handle, 9)
    first, second = right.recv(busy, tag=1), right.recv(host := bytearray(5), tag=2)
    closing = asyncio.ensure_future(left.close())
    await second  # the first has failed, as nothing can come any more
    assert host == b"bytes" and isinstance(first.exception(), ucp.UCXError)
    # There a receive is refused at once, though its kernel runs.
    for buffer in (busy, host):
        try:
            await right.recv(buffer)
            raise AssertionError
        except ucp.UCXCloseError:
            pass
    await closing
    standin.hold(False)
""")


@over_shm
def test_an_array_whose_interface_runs_other_calls_waits_for_its_own_stream(run):
    run("""
class Array:
    def __init__(self, array, hook):
        self.array, self.hook = array, hook

    @property
    def __cuda_array_interface__(self):
        hook, self.hook = self.hook, lambda: None
        hook()
        return self.array.__cuda_array_interface__

streams = gpu.Stream(), gpu.Stream()
pending = []
async with connected_pair() as (left, right):
    for call, receive in (("am_send", "am_recv"), ("send", "recv_obj")):
        inner = zeros(5000, stream=streams[0].handle)
        outer = zeros(5000, stream=streams[1].handle)
        inner.launch(streams[0].handle, 7)
        outer.launch(streams[1].handle, 8)
        hook = lambda: pending.append(getattr(left, call)(inner))
        sending = left.send(Array(outer, hook))
        assert bytes(await getattr(right, receive)()) == bytes([7]) * 5000
        assert bytes(await right.recv_obj()) == bytes([8]) * 5000
        await asyncio.gather(sending, pending.pop())
""")


@over_shm
def test_a_foreign_thread_waits_for_the_stream_in_the_call(run):
    run("""
made = gpu.Stream()
async with connected_pair() as (left, right):
    sent, got = zeros(5000, stream=made.handle), zeros(5000)
    before = counts.waits
    standin.hold(True)
    sent.launch(made.handle, 7)
    calling = asyncio.ensure_future(asyncio.to_thread(left.send, sent))
    while counts.waits == before:
        await asyncio.sleep(0)
    standin.hold(False)
    sending = await calling
    assert counts.waits == before + 1
    await exchange(sending, right.recv(got))
    assert got == bytes([7]) * 5000
""")


@over_shm
def test_what_was_cancelled_before_its_kernel_is_not_asked_about(run):
    run("""
made = gpu.Stream()
busy = zeros(5000, stream=made.handle)
async with connected_pair() as (left, right):
    standin.hold(True)
    busy.launch(made.handle, 7)
    for _ in range(200):
        left.send(busy).cancel()
        right.recv(busy).cancel()
    await exchange(left.send(b"1"), right.recv(bytearray(1)))
    before = standin.calls().get("cuEventQuery", 0)
    for _ in range(100):
        await exchange(left.send(b"1"), right.recv(bytearray(1)))
    assert standin.calls().get("cuEventQuery", 0) == before
    standin.hold(False)
""")


def test_a_tensor_is_made_ready_for_the_stream_that_is_waited_for(run):
    run(
        f"sys.path.append({str(TESTS)!r})"
        """

from handmade import CUDA, MANAGED, Handmade

class Tensor(Handmade):
    def __init__(self, array, device_type, name):
        super().__init__(name, shape=[array.memory.nbytes], data=array.address,
                         device_type=device_type)
        self.array = array

    def __dlpack__(self, stream=None, **kwargs):
        if stream is not None:
            self.array.launch(stream, 5)  # behind what is on another stream
        return super().__dlpack__(stream=stream)

async with connected_pair() as (left, right):
    for name in (b"dltensor", b"dltensor_versioned"):
        for device_type in (CUDA, MANAGED):
            sent = zeros(5000, device=1, managed=device_type == MANAGED)
            tensor, got = Tensor(sent, device_type, name), zeros(5000)
            before = counts.waits
            await exchange(left.send(tensor), right.recv(got))
            assert counts.waits == before
            assert tensor.streams == [None, 1], tensor.streams
            assert got == b"\\x05" * 5000
    freed = zeros(100)
    lies = Handmade(b"dltensor", shape=[100], data=freed.address, device_type=CUDA)
    freed.forget()
    assert "where CUDA has no memory" in refused(left.send, lies)
"""
    )


@over_shm
def test_an_array_remembers_its_stream(run):
    run("""
from ucp._libs.arr import Array

async with connected_pair() as (left, right):
    made = gpu.Stream()
    sent, got = zeros(5000, device=1, stream=made.handle), zeros(5000)
    counts.waits = 0
    array = Array(sent)
    assert counts.waits == 0
    sent.launch(made.handle, 5)
    await exchange(left.send(array), right.recv(Array(got)))
    assert got == b"\\x05" * 5000
    assert array.cuda
""")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("path", "ucx"),
    [
        ("mem/test_gpu.py", False),
        ("mem/test_gpu.py", True),
        ("mem/test_gpu_layers.py", False),
        ("communicator/test_devices.py", False),
        ("communicator/test_devices.py", True),
        ("dask/test_dask_devices.py", False),
    ],
)
def test_the_tests_for_a_device_pass_on_this_driver(path, ucx):
    """Run the tests for a device here, so that they pass on a machine that has one.

    Neither the options of this run nor plugins that happen to be installed reach it.
    """
    if path.startswith("dask"):
        pytest.importorskip("distributed", reason="distributed is missing")
    env = {name: val for name, val in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", "pytest_timeout", TESTS / path),
        ],
        env={**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **standin.settings(ucx)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@over_shm
def test_whatever_an_interface_says_no_other_memory_is_touched(run):
    run("""
import random

rng = random.Random(6)
array = zeros(1000, device=1)
made = gpu.Stream()
stream = made.handle
inside, last = array.address, array.address + 999
taken = 0

def value(key):
    return {
        "shape": [(1000,), (1001,), (10, 100), (0,), (), (-1,), (1 << 62, 2), "7"],
        "typestr": ["|u1", "<f8", ">i4", "|V10", "O", "|O", "", 7, "<x4", "|u0"],
        "data": [(inside, False), (inside, True), (last, False), (last + 1, False),
                 (4096, False), (0, False), (-1, False), (inside,), None, bytearray(8)],
        "strides": [None, (1,), (8,), (-1,), (100, 1), (1 << 62,), "x", (0,)],
        "stream": [None, 1, 2, stream, 0, -1, "x"],
        "mask": [None, array],
        "version": [3, 2, 0, "x", None],
    }[key]

async with connected_pair() as (left, right):
    for _ in range(4000):
        face = dict(array.__cuda_array_interface__)
        for key in rng.sample(sorted(set(face) | {"stream", "mask"}), rng.randrange(4)):
            if rng.random() < 0.1:
                face.pop(key, None)
            else:
                face[key] = rng.choice(value(key))
        thing = type("Thing", (), {"__cuda_array_interface__": face})()
        try:
            sending = left.send(thing)
        except (ValueError, TypeError, NotImplementedError, OverflowError):
            continue
        got = await exchange(sending, right.recv_obj())
        assert got == bytes(len(got)) and len(got) <= 1000, face
        taken += 1
assert 200 < taken < 3800, taken
""")


@by_ucx_too
def test_memory_of_every_kind_is_sent_and_received(run):
    run("""
KINDS = ("host", "pinned", "cuda", "cuda-managed")

def content(memory, value=None):
    data = ctypes.create_string_buffer(bytes([value or 0]) * memory.nbytes)
    sides = [ctypes.c_void_p(memory.address), data]
    if value is None:
        sides.reverse()
    with gpu.Context(0):
        gpu.call("cuMemcpy", *sides, ctypes.c_size_t(memory.nbytes))
    return data.raw[:-1]

async with connected_pair() as (left, right):
    for size in (8, 5000, 300_000):
        for source in KINDS:
            for target in KINDS:
                sent = ucp.Memory.allocate(size, source)
                got = ucp.Memory.allocate(size, target)
                assert content(got) == bytes(size)  # zeros
                data = content(sent, 7)
                await exchange(left.send(sent), right.recv(got))
                assert content(got) == data
                remote = left.remote(got.key)
                content(sent, 8)
                await remote.put(sent)
                assert content(got) == content(sent)
                content(got, 9)
                await remote.get(sent)
                assert content(sent) == content(got)
    assert counts.allocations == 2  # pairs that were dropped are freed
""")


@over_shm
def test_what_memory_of_a_kind_shows(run):
    run("""
from ucp._libs.arr import Array

for kind, has_buffer, is_cuda in (
    ("host", True, False), ("pinned", True, False),
    ("cuda", False, True), ("cuda-managed", True, True),
):
    memory = ucp.Memory.allocate(100, kind)
    with ucp.BufferPool(1, 100, kind) as pool, await pool.acquire() as buffer:
        for thing in (memory, buffer):
            assert hasattr(thing, "__array_interface__") == has_buffer, kind
            assert hasattr(thing, "__cuda_array_interface__") == is_cuda, kind
            if has_buffer:
                assert memoryview(thing).nbytes == 100
            else:
                why = refused(memoryview, thing)
                assert why.startswith("BufferError: device memory"), why
                assert Array(thing).cuda and Array(thing).shape == (100,)
    device = {"host": (1, 0), "pinned": (1, 0), "cuda": (2, 0), "cuda-managed": (13, 0)}
    assert memory.__dlpack_device__() == device[kind]
    assert ucp.Memory.allocate(0, kind).nbytes == 0
assert ucp.Memory.allocate(8, "cuda", device=3).__dlpack_device__() == (2, 3)
assert counts.allocated == 3
for kwargs, text in (
    ({"kind": "cude"}, "'cuda' or 'cuda-managed', not 'cude'"),
    ({"kind": "cuda", "device": 4}, "CUDA"),
    ({"kind": "cuda", "device": 99}, "there is no device 99"),
    ({"kind": "cuda", "device": -1}, "there is no device -1 for 'cuda'"),
    ({"device": 0}, "there is no device 0 for 'host'"),
):
    logging.disable()
    why = refused(ucp.Memory.allocate, 8, **kwargs)
    assert text in why or text == "CUDA", why
    assert refused(ucp.BufferPool, 2, 8, **kwargs) is not None
""")


@by_ucx_too
def test_a_pool_lends_device_memory(run):
    run("""
async with connected_pair() as (left, right):
    with ucp.BufferPool(2, 5000, "cuda", device=1) as pool:
        allocations = counts.allocations
        for _ in range(20):
            with await pool.acquire() as sent, await pool.acquire() as got:
                await exchange(left.send(sent), right.recv(got))
        assert counts.allocations == allocations
        lost = await pool.acquire()
        receiving = right.recv(lost)
        receiving.cancel()
        lost.release()
        with await pool.acquire() as sent, await pool.acquire() as got:
            await exchange(left.send(sent), right.recv(got))
""")


@by_ucx_too
def test_registered_device_memory_is_reached_by_peers(run):
    run("""
array = zeros(1000, device=2)
async with connected_pair() as (left, right):
    with ucp.Memory.register(array) as memory:
        remote = left.remote(memory.key)
        await remote.put(b"12345678", 8)
        assert array.bytes[8:16] == b"12345678"
        back = bytearray(8)
        await remote.get(back, 8)
        assert back == b"12345678"
        try:
            await remote.fetch_add(8, 1)
            raise AssertionError
        except ucp.UCXError as error:
            assert "unsupported operation" in str(error), error
    wild = zeros(8)
    wild.forget()
    assert "CUDA has no memory" in refused(ucp.Memory.register, wild)
""")


# Function that each library is asked for, and the name of what it makes.
LIBRARIES = {
    "cupy": "cupy.empty = lambda n, dtype: made('cupy', n, dtype == 'u1')",
    "rmm": "rmm.DeviceBuffer = lambda size: made('rmm', size)",
    "numba": "numba.cuda.device_array = lambda n, dtype: made('numba', n, dtype)",
    "torch": """torch.uint8 = 8
torch.empty = lambda n, dtype, device: made('torch', n, (dtype, device) == (8, 'cuda'))
""",
}
LOOK_ALIKES = """
import types

def module(name):
    sys.modules[name] = types.ModuleType(name)
    return sys.modules[name]

def made(library, nbytes, is_right=True):
    assert is_right
    array = zeros(nbytes, device=2)
    array.library = library
    return array
"""


@over_shm
def test_an_allocator_of_host_memory_gives_no_device_memory(run):
    run("""
async with connected_pair() as (left, right):
    ucp.register_am_allocator(zeros)
    await left.am_send(bytes(8))
    try:
        await right.am_recv()
        raise AssertionError
    except ValueError as error:
        assert "gave device memory" in str(error), error
    ucp.register_am_allocator(None)
    assert await right.am_recv() == bytes(8)
""")


@pytest.mark.parametrize("library", LIBRARIES)
def test_messages_are_received_into_arrays_of_a_library(run, library):
    run(
        LOOK_ALIKES
        + f"{library} = module({library!r})\n"
        + ("numba.cuda = module('numba.cuda')\n" if library == "numba" else "")
        + LIBRARIES[library]
        + """
ucp.register_am_allocator(ucp.cuda.allocator, "cuda")
async with connected_pair() as (left, right):
    for size in (1, 5000, 300_000):
        data = pattern(size)
        for sent in (data, DeviceArray(data)):
            got = await exchange(
                left.send_obj(sent), right.recv_obj(allocator=ucp.cuda.allocator)
            )
            assert got == data and got.library == library, got
        got = await exchange(left.am_send(DeviceArray(data)), right.am_recv())
        assert got == data and got.library == library, got
        got = await exchange(left.am_send(data), right.am_recv())
        assert got == data and type(got) is bytearray
""".replace("== library", f"== {library!r}")
    )


def test_the_cupy_example_runs():
    example = EXAMPLES / "cupy_roundtrip.py"
    done = run_script(
        PRELUDE
        + DRIVER
        + LOOK_ALIKES
        + """
import numpy as np

class Array(DeviceArray):
    def __init__(self, items):
        super().__init__(
            items.tobytes(), device=1, shape=items.shape, typestr=items.dtype.str
        )
        self.shape = items.shape

    @property
    def items(self):
        return np.frombuffer(self.bytes).reshape(self.shape)

    def __mul__(self, factor):
        return Array(self.items * factor)

    __rmul__ = __mul__

cupy = module("cupy")
cupy.random = module("cupy.random")
cupy.empty = lambda shape: Array(np.empty(shape))
cupy.zeros_like = lambda array: Array(np.zeros(array.items.shape))
cupy.random.random = lambda shape: Array(np.random.random(shape))
cupy.array_equal = lambda a, b: np.array_equal(a.items, b.items)
"""
        + example.read_text(),
        **standin.settings(),
    )
    assert done.startswith("same\nthere and back in ")


@over_shm
def test_the_library_that_is_imported_is_used_first(run):
    run(
        LOOK_ALIKES
        + """
for name in ("cupy", "rmm", "numba", "torch"):
    sys.modules[name] = None  # as if it was not installed
why = refused(ucp.cuda.allocator, 8)
assert why.startswith("ImportError: arrays in device memory need one of cupy"), why
assert "library is one of cupy, rmm, numba, torch, not 'jax'" in refused(
    ucp.cuda.use, "jax")
assert refused(ucp.cuda.use, "cupy").startswith("ModuleNotFoundError")
rmm = module("rmm")
rmm.DeviceBuffer = lambda size: made("rmm", size)
assert ucp.cuda.allocator(8).library == "rmm"
cupy = module("cupy")
cupy.empty = lambda n, dtype: made("cupy", n)
assert ucp.cuda.allocator(8).library == "rmm"  # as before
ucp.cuda.use(None)
assert ucp.cuda.allocator(8).library == "cupy"
ucp.cuda.use("rmm")
assert ucp.cuda.allocator(8).library == "rmm"
assert ucp.cuda.is_available()
"""
    )


def test_the_buffer_protocol_of_a_device_array_is_left_alone(run):
    """CuPy's arrays have it, and raise."""
    run(
        """
from ucp._libs.arr import Array

class Exporter(bytearray):
    @property
    def __cuda_array_interface__(self):
        return self.there.__cuda_array_interface__

    def __init__(self, there):
        super().__init__(b"not these bytes, " * 9)
        self.there = there

if sys.version_info >= (3, 12):
    class Refusing:
        __cuda_array_interface__ = Exporter.__cuda_array_interface__

        def __init__(self, there):
            self.there = there

        def __buffer__(self, flags):
            raise TypeError("not on the CPU")
else:
    Refusing = Exporter

async with connected_pair() as (left, right):
    for size in (8, 300_000):
        for kind in (Exporter, Refusing):
            there, back = DeviceArray(pattern(size)), zeros(size)
            await exchange(left.send(kind(there)), right.recv(kind(back)))
            assert back == pattern(size)
            got = await exchange(left.send_obj(kind(there)), right.recv_obj())
            assert got == pattern(size)
            got = await exchange(left.am_send(kind(there)), right.am_recv())
            assert got == pattern(size)
    assert Array(kind(there)).nbytes == size
"""
    )


@pytest.mark.parametrize("is_there", [False, True])
def test_without_a_driver_device_memory_is_refused(is_there):
    """Or without a device: a machine may have the driver where no variable leads."""
    run_script(
        PRELUDE
        + """
class Array:
    __cuda_array_interface__ = {
        "version": 3, "shape": (8,), "typestr": "|u1", "data": (4096, False),
    }

async def main():
    assert not ucp.cuda.is_available()
    async with connected_pair() as (left, right):
        for call in (left.send, left.recv, left.am_send):
            assert "no CUDA driver or no device" in refused(call, Array())
        for kind in ("pinned", "cuda", "cuda-managed"):
            why = refused(ucp.Memory.allocate, 8, kind)
            assert "needs a CUDA driver and a device" in why, why
        why = refused(left.send, b"host", stream=1)
        assert why == "ValueError: stream: there is no CUDA driver or no device", why
        await exchange(left.send(b"after"), right.recv(bytearray(5)))

asyncio.run(main())
""",
        **{
            **standin.settings(CUDA_VISIBLE_DEVICES=""),
            **({} if is_there else {"LD_LIBRARY_PATH": os.devnull}),
        },
    )
