# SPDX-License-Identifier: BSD-3-Clause
# tests: comm/collective_rounds comm/send comm/recv
"""Operations of communicators on memory of a device."""

import pytest
from paths import TESTS
from worlds import Ranks

import ucp

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not ucp.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.timeout(120),
]

# Bytes of a part: the last are not copied when a rank sends them to itself.
SIZES = (8, 1000, 70_000)

PRELUDE = (
    f"""
import itertools
sys.path.append({str(TESTS)!r})
import gpu
"""
    + """
class Host(bytearray):
    def write(self, data):
        self[:] = data

    def read(self):
        return bytes(self)

def memory(kind, data):
    made = Host(len(data)) if kind == "host" else gpu.Memory(len(data), kind)
    made.write(data)
    return made

KINDS = ("host", "managed", "device")
BYTES = bytes(range(251)) * 300

def part(source, target=0):
    '''What a rank has for another one.'''
    first = source * 7 + target * 3
    return BYTES[first : first + SIZE]

def parts(pairs):
    return b"".join(part(*pair) for pair in pairs)

async def run(body):
    try:
        async with asyncio.timeout(40), await connect() as comm:
            await body(comm)
            await comm.barrier()
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    assert gpu.current_device() is None
"""
)


def run(size, body):
    """Run ``body`` on each rank: for parts of few bytes and of many, from each kind
    of memory to each."""
    source = (
        f"{PRELUDE}\nn = {size}\nasync def main(comm):\n"
        "    rank = comm.rank\n"
        "    global SIZE\n"
        f"    for SIZE, mine, theirs in itertools.product({SIZES}, KINDS, KINDS):\n"
        + "".join(f"        {line}\n" for line in body.strip("\n").splitlines())
        + "asyncio.run(run(main))\n"
    )
    with Ranks(size, source) as ranks:
        for rank in range(size):
            ranks.end(rank)


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_gather_and_scatter(size):
    run(
        size,
        """
of_all = parts((other,) for other in range(n))
for root in range(n):
    own, got = memory(mine, part(rank)), memory(theirs, bytes(n * SIZE))
    await comm.gather(own, got if rank == root else None, root)
    assert rank != root or got.read() == of_all
    whole, got = memory(mine, of_all), memory(theirs, bytes(SIZE))
    await comm.scatter(whole if rank == root else None, got, root)
    assert got.read() == part(rank)
    got = memory(theirs, part(root) if rank == root else bytes(SIZE))
    await comm.bcast(got, root)
    assert got.read() == part(root)
""",
    )


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_ranks_gather_and_exchange(size):
    run(
        size,
        """
of_all = parts((other,) for other in range(n))
own, got = memory(mine, part(rank)), memory(theirs, bytes(n * SIZE))
await comm.allgather(own, got)
assert got.read() == of_all
whole = bytes(rank * SIZE) + part(rank) + bytes((n - 1 - rank) * SIZE)
got = memory(theirs, whole)
await comm.allgather(ucp.IN_PLACE, got)
assert got.read() == of_all
out = memory(mine, parts((rank, other) for other in range(n)))
got = memory(theirs, bytes(n * SIZE))
expected = parts((other, rank) for other in range(n))
await comm.alltoall(out, got)
assert got.read() == expected
got = memory(theirs, out.read())
await comm.alltoall(ucp.IN_PLACE, got)
assert got.read() == expected
buffers = [memory(mine, part(rank, other)) for other in range(n)]
for other, came in enumerate(await comm.alltoall_buffers(buffers)):
    assert came == part(other, rank)
""",
    )


@pytest.mark.parametrize("size", [1, 2])
def test_a_rank_sends_to_itself(size):
    run(
        size,
        """
sent, got = memory(mine, part(rank)), memory(theirs, bytes(SIZE + 5))
receiving = comm.recv(got, rank, 3)  # it waits
await comm.send(sent, rank, 3)
assert (await receiving).nbytes == SIZE
assert got.read() == part(rank) + bytes(5)
sending = comm.send(sent, rank, 4)  # nobody waits
got = memory(theirs, bytes(SIZE))
await comm.recv(got, rank, 4)
await sending
assert got.read() == part(rank)
await comm.sendrecv(sent, rank, got, rank)
short = memory(theirs, bytes(1))
sending = comm.send(sent, rank, 5)
try:
    await comm.recv(short, rank, 5)
    raise AssertionError
except ucp.UCXMsgTruncated:
    pass
await sending
""",
    )


def test_memories_of_two_devices():
    run(
        1,
        """
last = gpu.num_devices() - 1
for first, second in ((0, last), (last, 0)):
    sent, got = gpu.Memory(SIZE, device=first), gpu.Memory(SIZE, device=second)
    sent.write(part(0))
    await comm.allgather(sent, got)
    assert got.read() == part(0)
""",
    )


# Items of a device: those of `Memory` are bytes.
ITEMS = """
class Items:
    def __init__(self, kind, values, typestr="<i4"):
        self.memory = memory(kind, b"".join(struct.pack("<i", v) for v in values))
        self.host = memoryview(self.memory).cast("i") if kind == "host" else None
        if kind != "host":
            self.__cuda_array_interface__ = {
                **self.memory.__cuda_array_interface__,
                "shape": (len(values),), "typestr": typestr,
            }

    @property
    def values(self):
        data = self.memory.read()
        return [value for value, in struct.iter_unpack("<i", data)]

    @property
    def array(self):
        return self if self.host is None else self.host
"""


def test_reductions_combine_memory_of_devices_on_the_host():
    run(
        3,
        ITEMS
        + """
import struct
n, count = comm.size, SIZE // 4
mine_, theirs_ = (("host", "managed", "device").index(kind) for kind in (mine, theirs))
kinds = [mine, theirs, KINDS[(mine_ + theirs_) % 3]]  # each rank has another one
kind = kinds[rank]
sent = Items(kind, [rank + 1] * count)
got = Items(kinds[rank - 1], [0] * count)
await comm.allreduce(sent.array, got.array)
assert got.values == [6] * count
await comm.reduce(sent.array, got.array if rank == 1 else None, op="prod", root=1)
assert got.values == [6] * count
await comm.scan(sent.array, got.array, op="max")
assert got.values == [rank + 1] * count
third = count // 3 + 1
part_ = Items(kind, [0] * third)
whole = Items(kinds[rank - 2], [rank] * (third * 3))
await comm.reduce_scatter(whole.array, part_.array)
assert part_.values == [3] * third
await comm.allreduce(ucp.IN_PLACE, sent.array)
assert sent.values == [6] * count
""",
    )


def test_what_cannot_be_reduced_is_refused_before_its_first_message():
    run(
        2,
        ITEMS
        + """
import struct
long = Items(theirs, [0] * 70_000)
odd = Items(theirs, [0] * 8, "<V4")
swapped = Items(theirs, [0] * 8, ">i4")
if theirs != "host":
    for call in (comm.allreduce, comm.reduce, comm.reduce_scatter, comm.scan):
        for array, why in ((odd, "<V4"), (swapped, ">i4"), (long, "NCCL")):
            if array is long and theirs != "device":
                continue
            try:
                await call(array, array)
                raise AssertionError(call)
            except ValueError as error:
                assert why in str(error), error
""",
    )


def test_a_copy_that_fails_ends_the_send_alone():
    run(
        1,
        """
freed, got = gpu.Memory(SIZE), Host(SIZE)
receiving = comm.recv(got, 0, 1)
freed.free()
try:
    await comm.send(freed, 0, 1)
    raise AssertionError
except ValueError as error:
    assert "CUDA has no memory" in str(error), error
await comm.send(bytes(SIZE), 0, 1)
assert (await receiving).nbytes == SIZE
""",
    )
