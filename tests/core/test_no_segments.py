# SPDX-License-Identifier: BSD-3-Clause
# tests: host/transports host/segment_limit host/config
"""Processes that the system gives no shared memory of System V: UCX has others."""

import textwrap

import pytest
from pages import blocks
from paths import ROOT
from sandbox import PRELUDE, limit, refuse
from script import run_script
from worlds import Ranks

WORKER = """
import ucp
from ucp.testing import connected_pair

async def exchange():
    async with connected_pair() as (client, server):
        for size in (8, 64 << 10, 16 << 20):
            got = bytearray(size)
            await asyncio.gather(client.send(bytes(size)), server.recv(got))
            await asyncio.gather(server.send(bytes(size)), client.recv(got))
    ucp.reset()

asyncio.run(exchange())
asyncio.run(exchange())
print("\\n".join(said))
"""

NO_SYSV = "UCX goes without its transport sysv"


def run(first, program=WORKER, **env):
    return run_script(PRELUDE + first + textwrap.dedent(program), **env)


@pytest.mark.parametrize("call", ["shmget", "shmat", "shmctl"])
def test_a_sandbox_may_refuse_the_system_call(call):
    # UCX tries out whether it sees segments come and go, and removes what it has
    # made: where it may not, the segments go with a namespace.
    first = limit() if call == "shmctl" else ""
    said = run(first + refuse(call))
    assert said == (
        "the system has no shared memory segments for this process (System V: "
        f"Operation not permitted): {NO_SYSV}\n"
    )


@pytest.mark.parametrize("error", ["EACCES", "ENOSYS"])
def test_it_may_do_so_by_another_error(error):
    assert run(refuse("shmget", error)).endswith(f"{NO_SYSV}\n")


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"shmmax": 1}, "kernel.shmmax is 1 bytes"),
        ({"shmmni": 0}, "kernel.shmmni is 0, and 0 are in use"),
        ({"shmmni": 1}, "kernel.shmmni is 1, and 0 are in use"),
        ({"shmall": 10}, "kernel.shmall is 10 pages"),
    ],
)
def test_the_limit_that_leaves_no_room_is_named_once(limits, named):
    said = run(limit(**limits))
    assert said.startswith("there is no room for shared memory segments (System V: ")
    assert NO_SYSV in said
    assert named in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("tls", ["sysv,posix,self,tcp", "sysv,tcp", "sm,self", "^tcp"])
def test_lists_of_transports_are_kept_but_for_sysv(tls):
    assert run(refuse("shmget"), UCX_TLS=tls).endswith(f"{NO_SYSV}\n")


@pytest.mark.parametrize("tls", ["tcp,self", "posix,self", "^sysv"])
def test_nothing_is_told_where_sysv_is_not_wanted(tls):
    assert run(refuse("shmget"), UCX_TLS=tls) == "\n"


def test_the_options_say_what_ucx_got():
    program = "import ucp; print(ucp.get_config()['TLS'])"
    assert run(refuse("shmget"), program, UCX_TLS="sysv,tcp") == "tcp\n"


LAYERS = """
import numpy as np
import ucp.shmem
from ucp.shuffle import MapOutputs, Reader, Writer

def connect():
    rank, size = int(os.environ["RANK_OF_TEST"]), int(os.environ["SIZE_OF_TEST"])
    return ucp.Communicator.connect(os.environ["ROOT_OF_TEST"], rank, size, 30)

async def messages(comm):
    for size in (1, 8192, 300_000):
        total = np.full(size, comm.rank + 1.0)
        await comm.allreduce(total)
        assert (total == 3).all()
    path = comm.explain()[1 - comm.rank]
    assert path.reason == "this rank has no shared memory for an inbox", path

async def heap(comm):
    async with await ucp.shmem.SymmetricHeap.create(comm, 1 << 20) as heap:
        x, signal = await heap.zeros(1000, "i8"), await heap.zeros(1, "u8")
        other = 1 - comm.rank
        await heap.put_signal(x, np.full(1000, comm.rank), other, signal, 1)
        await signal.wait_until(">=", 1)
        assert (x.local == other).all()
        await heap.barrier_all()

async def outputs(comm):
    outputs = await MapOutputs.create(comm, num_maps=2, num_partitions=2)
    async with Writer(outputs, comm.rank) as writer:
        for partition in range(2):
            writer.write(partition, bytes([comm.rank]) * 100_000)
        await writer.commit()
    reader, got = Reader(outputs), set()
    async for block in reader.fetch(0, timeout=30):
        got.add(bytes(block))
        block.release()
    assert got == {bytes(100_000), bytes([1]) * 100_000}
    await comm.barrier()
    reader.close()
    await outputs.close(30)

async def refused(comm):
    for call in (ucp.Memory.allocate, ucp.Heap().allocate):
        try:
            call(1000)
        except ucp.UCXNoMemory as exc:
            assert "kernel.shmmax is 1 bytes" in str(exc)
        else:
            raise AssertionError("not refused")
    for create in (
        ucp.shmem.SymmetricHeap.create(comm, 1 << 20),
        MapOutputs.create(comm, 2, 2),
    ):
        try:
            await create
        except ucp.UCXNoMemory as exc:
            assert "limit on shared memory segments" in str(exc)
        else:
            raise AssertionError("not refused")

async def main(*parts):
    async with await connect() as comm:
        for part in parts:
            await part(comm)
        await comm.barrier()
"""


def run_ranks(first, last):
    program = PRELUDE + first + LAYERS + last
    with Ranks(2, program) as ranks:
        assert [ranks.end(rank) for rank in range(2)] == ["", ""]


def test_layers_do_without_memory_that_others_map():
    run_ranks(refuse("shmget"), "asyncio.run(main(messages, heap, outputs))")


LENDING = """
ucp.init(config=ucp.Config(cma_min=4096, cma_max=2 << 20))
asyncio.run(main(messages, heap, outputs))
"""


# What a strict filter of seccomp refuses a container.
REFUSED = ("shmget", "process_vm_readv", "process_vm_writev")


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
def test_layers_do_without_reading_each_others_memory_too(error):
    run_ranks("".join(refuse(call, error) for call in REFUSED), LENDING)


def test_the_first_program_of_the_readme_runs_there():
    page = blocks(ROOT / "README.md")
    program = next(each.text for each in page if each.language == "python")
    first = "".join(map(refuse, REFUSED))
    assert run_script(PRELUDE + first + program) == "1999998.0\n"


def test_where_there_is_a_limit_the_layers_name_it():
    """The program may raise the limit, and is not made slow in silence."""
    run_ranks(limit(shmmax=1), "asyncio.run(main(messages, refused))")
