# SPDX-License-Identifier: BSD-3-Clause
"""A kernel of a device writes commands into a pinned ring; a proxy, in another
process than the target's, carries them out."""

import pytest
from paths import TESTS
from worlds import Ranks

import ucp

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not ucp.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.timeout(120),
]

PROGRAM = (
    f"import sys; sys.path.append({str(TESTS)!r})"
    """
import gpu, gpu_producer
from gpu_producer import BLOCK, BLOCKS
from ucp.proxy import Proxy

SOURCE, TARGET, PRODUCERS, CAPACITY = "%s", "%s", %d, %d
SIGNALS = BLOCK * BLOCKS * PRODUCERS
if gpu.is_fake():
    print("skip: the driver is the tests' own")
    sys.exit()
if not gpu_producer.is_available():
    print("skip: NVRTC is not installed")
    sys.exit()

def pattern(of):
    number = np.arange(SIGNALS // 4, dtype="u4")
    return (number * 2654435761 + of).astype("u4").tobytes()

async def main():
    async with await connect() as comm:
        # A signal goes to memory of the host, where a core may add to it.
        target = ucp.Memory.allocate(SIGNALS, TARGET)
        counts = ucp.Memory.allocate(64)
        source = ucp.Memory.allocate(SIGNALS, SOURCE)
        gpu_producer.write(source, pattern(comm.rank))
        async with await Proxy.create(comm) as proxy:
            region = await proxy.add_region(target, source)
            counted = await proxy.add_region(counts)
            if comm.rank == 0:
                ring = proxy.ring(
                    CAPACITY,
                    memory=ucp.Memory.allocate(384 + 16 * CAPACITY, "pinned"),
                    producers="several" if PRODUCERS > 1 else "one",
                    device=True,
                )
                kernel = gpu_producer.Kernel()
                kernel.launch(ring, PRODUCERS, region, counted, dst=1)
                await asyncio.to_thread(kernel.synchronize)
                assert kernel.errors() == [0] * PRODUCERS
                await ring.quiet()
                assert ring.statistics.puts == BLOCKS * PRODUCERS
                assert ring.statistics.nbytes == SIGNALS
            else:
                async with asyncio.timeout(40):
                    await counts.wait_until(0, "==", BLOCKS * PRODUCERS)
                assert gpu_producer.read(target) == pattern(0)
            await comm.barrier()
    print("whole")

asyncio.run(main())
"""
)


@pytest.mark.parametrize(("producers", "capacity"), [(1, 16), (8, 64)])
@pytest.mark.parametrize("target", ["host", "pinned", "cuda"])
@pytest.mark.parametrize("source", ["host", "pinned", "cuda"])
def test_a_kernel_writes_commands(source, target, producers, capacity):
    with Ranks(2, PROGRAM % (source, target, producers, capacity)) as ranks:
        ends = [ranks.end(rank).splitlines()[-1] for rank in (0, 1)]
    if ends[0].startswith("skip: "):
        pytest.skip(ends[0].removeprefix("skip: "))
    assert ends == ["whole", "whole"]


ENDED = (
    f"import sys; sys.path.append({str(TESTS)!r})"
    """
import gpu, gpu_producer
from ucp.proxy import Proxy

if gpu.is_fake() or not gpu_producer.is_available():
    print("skip: no device, or no NVRTC")
    sys.exit()

async def main():
    async with await connect() as comm:
        memory = ucp.Memory.allocate(1 << 20)
        async with await Proxy.create(comm) as proxy:
            region = await proxy.add_region(memory)
            ring = proxy.ring(
                16, memory=ucp.Memory.allocate(384 + 256, "pinned"), device=True
            )
            kernel = gpu_producer.Kernel()
            kernel.launch(ring, 1, region, region, dst=7)  # there is no rank 7
            await asyncio.to_thread(kernel.synchronize)
            [error] = kernel.errors()
            assert error != 0, error
            try:
                await ring.quiet()
            except IndexError as exc:
                print(exc)

asyncio.run(main())
"""
)


def test_an_error_ends_a_kernel_that_waits_for_room():
    with Ranks(1, ENDED) as ranks:
        end = ranks.end(0)
    if end.startswith("skip: "):
        pytest.skip(end.removeprefix("skip: "))
    assert "rank 7" in end
