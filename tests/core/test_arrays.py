# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in memory of a device, in objects that are pickled.

The driver is the tests' own, and so are CuPy, torch and Numba.
"""

import standin
from paths import TESTS
from script import run_script

PRELUDE = f"""
import sys
sys.path.append({str(TESTS)!r})
"""

# Behind it, in a program that finds the driver.
DRIVER = """
import asyncio, pickle, signal, threading
import array_libraries, gpu, standin
import numpy as np
import ucp
from array_libraries import CupyArray, NumbaArray, TorchTensor
from ucp.testing import connected_pair

signal.alarm(50)  # the time limit
values = np.arange(6000.0).reshape(20, 30, 10)

async def sent(ep, other, obj):
    sending = ep.send_pickle(obj)
    got = await other.recv_pickle(allow_pickle=True)
    await sending
    return got

def same(got, array):
    assert type(got) is type(array), type(got)
    assert got.shape == array.shape
    assert np.array_equal(got.read(), array.read()), (got.read(), array.read())
    assert got.memory is not array.memory
"""


def run(body, *libraries, **env):
    """Run a program, with libraries that it has imported."""
    program = f"{PRELUDE}{DRIVER}\narray_libraries.install(*{libraries!r})\n"
    program += "async def main():\n"
    program += "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return run_script(
        f"{program}\nasyncio.run(main())\nassert gpu.current_device() is None\n",
        **standin.settings(),
        **env,
    )


def test_arrays_of_each_library_stay_on_the_device():
    run("""
async with connected_pair() as (left, right):
    for kind in (CupyArray, NumbaArray, TorchTensor):
        wide = kind.of(values.astype("f4"))
        host = np.arange(50_000)
        got = await sent(left, right, {"wide": wide, "host": host, "text": "t"})
        same(got["wide"], wide)
        assert got["wide"].dtype == wide.dtype
        assert np.array_equal(got["host"], host) and got["text"] == "t"
""")


def test_views_are_sent_in_the_order_in_which_they_lie():
    run("""
async with connected_pair() as (left, right):
    whole = CupyArray.of(values)
    for view in (
        whole[3], whole[2:5], whole[:, 1], whole[::2], whole[:, ::-1], whole[1, 2, 3],
        whole.transpose(), whole.transpose((1, 0, 2)), whole.transpose()[::3],
        whole[:, :1], whole[..., None],
    ):
        same(await sent(left, right, view), view)
        got = await sent(left, right, view)
        if view.lying.flags.f_contiguous:
            assert got.lying.flags.f_contiguous
    flat = NumbaArray.of(values[0])
    for view in (flat, flat[3], flat[2:9], flat.reshape((30, 10), "F"), flat[::2]):
        same(await sent(left, right, view), view)
    same(await sent(left, right, deep := NumbaArray.of(values)), deep)
    same(await sent(left, right, deep.transpose((1, 2, 0))), deep.transpose((1, 2, 0)))
    tensor = TorchTensor.of(values.astype("i8"))
    for view in (tensor[3], tensor[::2], tensor.permute((2, 0, 1)), tensor[1, 2, 3]):
        same(await sent(left, right, view), view)
""")


def test_numba_alone_cannot_copy_an_array_with_gaps():
    run(
        """
async with connected_pair() as (left, right):
    array = NumbaArray.of(values[0])
    same(await sent(left, right, array), array)
    try:
        left.send_pickle([array[::2]])
        raise AssertionError
    except pickle.PicklingError as error:
        assert "an array of Numba has gaps (strides (160, 8))" in str(error), error
""",
        "numba",
    )


def test_an_array_that_is_there_twice_arrives_once():
    run("""
async with connected_pair() as (left, right):
    array = CupyArray.of(values)
    allocated = standin.state().allocations
    got = await sent(left, right, [array, {"again": array}, array[:]])
    assert standin.state().allocations == allocated + 2
    assert got[0] is got[1]["again"] and got[0] is not got[2]
    same(got[2], array)
""")


def test_arrays_without_items_have_no_frame():
    run("""
async with connected_pair() as (left, right):
    for shape in ((0,), (3, 0, 2)):
        for kind in (CupyArray, NumbaArray, TorchTensor):
            empty = kind.empty(shape, "f4")
            (got,) = await sent(left, right, [empty])
            same(got, empty)
""")


def test_arrays_of_two_devices_arrive_on_the_receivers_current_one():
    run("""
async with connected_pair() as (left, right):
    arrays = []
    for number in (0, 2):
        with array_libraries.device(number):
            arrays.append(CupyArray.of(values + number))
            arrays.append(arrays[-1][::2])
    with array_libraries.device(1):
        got = await sent(left, right, arrays)
    for one, other in zip(got, arrays, strict=True):
        same(one, other)
        assert one.memory.device == 1
""")


def test_many_arrays_and_a_long_one():
    run("""
async with connected_pair() as (left, right):
    many = [CupyArray.of(np.arange(i, i + 9)) for i in range(300)]
    for one, other in zip(await sent(left, right, many), many, strict=True):
        same(one, other)
    long = CupyArray.of(np.arange(3_000_000))
    same(await sent(left, right, long), long)
""")


def test_tensors_keep_their_type_and_their_gradient():
    run("""
async with connected_pair() as (left, right):
    tensor = TorchTensor.of(values[0].astype("f4")).requires_grad_()
    half = TorchTensor.of(np.frombuffer(bytes(range(40)), "V2"))
    got = await sent(left, right, [tensor, half])
    assert got[0].requires_grad and not got[1].requires_grad
    assert str(got[1].dtype) == "torch.bfloat16"
    same(got[0], tensor)
    assert got[1].read().tobytes() == bytes(range(40))
    host = TorchTensor.of(values)  # of the host, and a lazy one: torch's own pickle
    host.is_cuda = False
    lazy = TorchTensor.of(values)
    lazy.is_conjugate = True
    for other in (host, lazy):
        try:
            left.send_pickle(other)
            raise AssertionError
        except TypeError as error:
            assert str(error) == "pickled by a copy in memory of the host"
""")


def test_bytes_that_change_while_an_object_is_pickled_go_as_they_were():
    run("""
class Log:
    def __reduce__(self):
        data.clear()
        return list, ()

data = bytearray(b"a" * 200_000)
async with connected_pair() as (left, right):
    got = await sent(left, right, [data, Log()])
    assert got == [bytearray(b"a" * 200_000), []]
""")


def test_classes_that_are_derived_pickle_themselves():
    run("""
import copyreg
class Derived(CupyArray):
    def __reduce__(self):
        return str, ("derived",)

class Registered:
    pass

copyreg.pickle(Registered, lambda obj: (str, ("registered",)))
async with connected_pair() as (left, right):
    array = CupyArray.of(values)
    derived = Derived(array.memory, array.base, array.lying)
    got = await sent(left, right, [derived, Registered(), array])
    assert got[:2] == ["derived", "registered"]
    same(got[2], array)
""")


def test_kernels_that_write_an_array_end_before_it_is_sent():
    run("""
async with connected_pair() as (left, right):
    array = CupyArray.of(np.zeros(100_000, "u1"))
    stream = gpu.Stream()
    array_libraries.stream["handle"] = stream.handle
    result = gpu.driver().standin_launch(
        *(gpu.ctypes.c_void_p(each) for each in (stream.handle, array.address)),
        gpu.ctypes.c_size_t(100_000), 7, gpu.ctypes.c_double(20_000),
    )
    assert result == 0
    got = await sent(left, right, array)
    assert (got.read() == 7).all()
    del stream
""")


def test_memory_of_the_host_becomes_memory_of_the_device():
    """CuPy's managed arrays, for example."""
    run("""
async with connected_pair() as (left, right):
    for kind in (CupyArray, NumbaArray, TorchTensor):
        array = kind.of(values.astype("f4"))
        managed = gpu.Memory(array.memory.nbytes, "managed")
        managed.write(array.memory.read())
        array.memory = managed
        got = await sent(left, right, [array])
        same(got[0], array)
        assert got[0].memory.kind == "device"
""")


def test_a_receive_that_is_cancelled_loses_nothing():
    run("""
async with connected_pair() as (left, right):
    array = CupyArray.of(np.arange(500_000))
    for turns in range(12):
        sending = asyncio.ensure_future(left.send_pickle([array, turns]))
        receiving = asyncio.ensure_future(right.recv_pickle(allow_pickle=True))
        for _ in range(turns):
            await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        if receiving.cancelled():
            got = await right.recv_pickle(allow_pickle=True)
        else:
            got = receiving.result()
        await sending
        assert got[1] == turns
        same(got[0], array)
""")


def test_a_device_without_memory_loses_nothing():
    run("""
cupy = sys.modules["cupy"]
empty = cupy.empty

def refuse(nbytes, dtype):
    raise MemoryError(f"no {nbytes} bytes")

async with connected_pair() as (left, right):
    array = CupyArray.of(values)
    for first in (b"", bytes(100_000)):
        cupy.empty = refuse
        sending = left.send_pickle([first, array])
        for _ in range(2):
            try:
                await right.recv_pickle(allow_pickle=True)
                raise AssertionError
            except MemoryError as error:
                assert str(error) == "no 48000 bytes"
        cupy.empty = empty
        got = await right.recv_pickle(allow_pickle=True)
        await sending
        assert got[0] == first
        same(got[1], array)
""")


def test_a_function_of_the_driver_that_fails_ends_the_object_alone():
    run(
        """
async def send(left, array):
    await left.send_pickle([array])

async def attempt(left, right, array):
    sending = asyncio.ensure_future(send(left, array))
    receiving = asyncio.ensure_future(right.recv_pickle(allow_pickle=True))
    tasks = {sending, receiving}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION, timeout=20)
    standin.fail(None, 0)
    for task in tasks:
        task.cancel()  # one that waits for the other
    return await asyncio.gather(sending, receiving, return_exceptions=True)

array = CupyArray.of(np.arange(100_000))
async with connected_pair() as (left, right):
    same(await sent(left, right, array), array)
failed = 0
for name in sorted(standin.calls()):
    if not name.startswith(("cuMemcpy", "cuEvent", "cuStream", "cuPointer")):
        continue
    async with connected_pair() as (left, right):
        standin.fail(name, 304, 1)
        ends = await attempt(left, right, array)
        errors = [end for end in ends if isinstance(end, Exception)]
        for each in errors:
            assert isinstance(each, ucp.UCXError | ValueError), ends
            assert not isinstance(each, TimeoutError), ends
        failed += bool(errors)
        if not errors and isinstance(ends[1], list):
            same(ends[1][0], array)
    async with connected_pair() as (left, right):
        same(await sent(left, right, array), array)
assert failed > 0
""",
        UCP_LOG_LEVEL="error",
    )


def test_an_array_that_was_freed_is_not_sent():
    run("""
async with connected_pair() as (left, right):
    array = CupyArray.of(values)
    array.memory.free()
    try:
        await left.send_pickle([array])
        raise AssertionError
    except ValueError as error:
        assert "CUDA has no memory" in str(error), error
    assert await sent(left, right, "next") == "next"
""")


def test_a_library_that_is_missing_is_named():
    run("""
async with connected_pair() as (left, right):
    for name, kind in (("cupy", CupyArray), ("torch", TorchTensor)):
        sending = left.send_pickle([kind.of(values.astype("f4"))])
        library = sys.modules.pop(name)
        sys.modules[name] = None  # as if it were not installed
        try:
            await right.recv_pickle(allow_pickle=True)
            raise AssertionError
        except ImportError as error:
            text = f"an array of {name} in the object, and {name} cannot be imported"
            assert text in str(error), error
        sys.modules[name] = library
        await sending
    assert await sent(left, right, "next") == "next"
""")


def test_trust_is_asked_for_as_ever():
    run("""
async with connected_pair() as (left, right):
    sending = left.send_pickle(CupyArray.of(values))
    try:
        right.recv_pickle()
        raise AssertionError
    except ValueError as error:
        assert "allow_pickle=True says that you trust it" in str(error)
    await right.recv_pickle(allow_pickle=True)
    await sending
""")


def test_blocking_calls_and_channels_have_them_too():
    run("""
array = CupyArray.of(values)

def serve(listener):
    with listener.accept() as ep:
        ep.send_pickle(ep.recv_pickle(allow_pickle=True))

def talk():
    with ucp.sync.listen(host="127.0.0.1") as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        with ucp.sync.connect("127.0.0.1", listener.port) as ep:
            ep.send_pickle([array])
            (got,) = ep.recv_pickle(allow_pickle=True)
        thread.join()
    same(got, array)

async with connected_pair() as (left, right):
    same(await sent(left.channel(3), right.channel(3), array), array)
    await asyncio.to_thread(talk)
""")
