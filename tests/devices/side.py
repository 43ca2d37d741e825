# SPDX-License-Identifier: BSD-3-Clause
"""What the processes of a case group do: each function is one side of a case."""

import asyncio
import ctypes
import time

import gpu

import ucp
from devices.memory import Memory
from ucp.testing import connected_pair

OTHER = 1000  # the seed of what is written after a buffer has been given back
LATE = 0.02  # seconds in which a late write would come


async def send(ep, kind, size, seed):
    """Send; what is wrong with the sender's bytes afterwards."""
    memory = Memory(kind, size, seed)
    await ep.send(memory.buffer)
    return memory.wrong(seed)


async def receive(ep, kind, size, seed):
    """Receive into poisoned memory; what is wrong with the bytes."""
    memory = Memory(kind, size, ~seed)
    await ep.recv(memory.buffer)
    return memory.wrong(seed)


async def _cancelled(request, delay):
    """Cancel after a delay, which None makes the end: was it, and in what time?"""
    task = asyncio.ensure_future(request)
    if delay is None:
        await task
    else:
        await asyncio.sleep(delay)
    start = time.perf_counter()
    task.cancel()
    try:
        await task
        is_cancelled = False
    except asyncio.CancelledError:
        is_cancelled = True
    return is_cancelled, time.perf_counter() - start


async def _out_of_time(request, limit):
    start = time.perf_counter()
    try:
        await asyncio.wait_for(request, limit)
        is_cancelled = False
    except TimeoutError:
        is_cancelled = True
    return is_cancelled, max(0.0, time.perf_counter() - start - limit)


async def receive_cancelled(ep, kind, size, seed, delay, has_limit=False):
    """Cancel a receive, use its buffer at once, and receive the message again."""
    memory = Memory(kind, size, ~seed)
    end = _out_of_time if has_limit else _cancelled
    is_cancelled, seconds = await end(ep.recv(memory.buffer), delay)
    if is_cancelled:
        memory.fill(OTHER)
        again = Memory(kind, size, ~seed)
        await ep.recv(again.buffer)
        wrong = again.wrong(seed)
    else:
        wrong = memory.wrong(seed)
        memory.fill(OTHER)
    await asyncio.sleep(LATE)
    if not wrong and (late := memory.wrong(OTHER)):
        wrong = f"written after its await had ended: {late}"
    return is_cancelled, seconds, wrong


async def send_cancelled(ep, kind, size, seed, delay):
    """Cancel a send, use its buffer at once, and send another message."""
    memory = Memory(kind, size, seed)
    is_cancelled, seconds = await _cancelled(ep.send(memory.buffer), delay)
    memory.fill(OTHER)
    await ep.send(Memory(kind, size, seed + 1).buffer)
    await asyncio.sleep(LATE)
    return is_cancelled, seconds, memory.wrong(OTHER)


async def receive_either(ep, kind, size, seed, delay):
    """Receive what send_cancelled() sends: did the first come; what is wrong?"""
    await asyncio.sleep(delay)
    memory = Memory(kind, size, ~seed)
    await ep.recv(memory.buffer)
    if not memory.wrong(seed + 1):
        return False, ""
    if wrong := memory.wrong(seed):
        return True, wrong
    memory.fill(~(seed + 1))
    await ep.recv(memory.buffer)
    return True, memory.wrong(seed + 1)


async def repeat(ep, what, kind, size):
    """Send, or receive, until an error."""
    memory = Memory(kind, size)
    while True:
        await getattr(ep, what)(memory.buffer)


async def survive(ep, what, kind, size, patience):
    """Go on until the peer does not: how it ended, and seconds of the cancelling."""
    memory = Memory(kind, size)
    seconds = 0.0
    while True:
        start = time.perf_counter()
        try:
            await asyncio.wait_for(getattr(ep, what)(memory.buffer), patience)
        except TimeoutError:
            seconds = max(0.0, time.perf_counter() - start - patience)
            return "TimeoutError", seconds
        except ucp.UCXError as error:
            return type(error).__name__, seconds


async def closing(ep, limit):
    """Seconds of close(), and of abort() if the limit ended that."""
    start = time.perf_counter()
    try:
        await asyncio.wait_for(ep.close(), limit)
    except (TimeoutError, ucp.UCXError):
        ep.abort()
    return time.perf_counter() - start


async def alive(kind):
    """Does the process still send: bytes of the host, and the kind?"""
    async with connected_pair() as (left, right):
        for each in ("bytearray", kind):
            sent, got = Memory(each, 1 << 20, 7), Memory(each, 1 << 20, ~7)
            try:
                await asyncio.gather(left.send(sent.buffer), right.recv(got.buffer))
                wrong = got.wrong(7)
            except ucp.UCXError as error:
                wrong = repr(error)
            if wrong:
                return f"a message of {each} within the survivor: {wrong}"
    return ""


# ---- a kernel that fails ------------------------------------------------------------

KERNEL = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry bad()
{
    .reg .b64 %address;
    .reg .b32 %value;
    mov.u64 %address, 8;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
"""


def bad_kernel():
    """Load a kernel that writes where no memory is; None: this driver loads none."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    if not hasattr(gpu.driver(), "cuModuleLoadData"):
        return None
    with gpu.Context(0):
        gpu.call("cuModuleLoadData", ctypes.byref(module), KERNEL)
        gpu.call("cuModuleGetFunction", ctypes.byref(function), module, b"bad")

    def launch():
        ones = map(ctypes.c_uint, (1, 1, 1, 1, 1, 1, 0))
        with gpu.Context(0):
            gpu.call("cuLaunchKernel", function, *ones, None, None, None)

    return launch


async def fail_kernel(ep, size):
    """A kernel fails while a receive into a device waits: how do messages end?"""
    launch = bad_kernel()
    if launch is None:
        return None
    memory = Memory("device", size)
    await ep.recv(memory.buffer)
    if wrong := memory.wrong(1):
        return wrong, ""
    receiving = asyncio.ensure_future(ep.recv(memory.buffer))
    await asyncio.sleep(0.05)
    launch()
    await asyncio.sleep(0.05)
    await ep.send(b"failed")
    [device] = await asyncio.gather(receiving, return_exceptions=True)
    host = "goes on"
    try:
        async with connected_pair() as (left, right):
            got = bytearray(1 << 20)
            await asyncio.gather(left.send(b"x" * (1 << 20)), right.recv(got))
    except Exception as error:
        host = repr(error)
    return repr(device), host
