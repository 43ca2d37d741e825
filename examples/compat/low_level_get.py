# SPDX-License-Identifier: BSD-3-Clause
# python examples/compat/low_level_get.py            the owner: prints where it listens
# python examples/compat/low_level_get.py HOST PORT  the reader
# python examples/compat/low_level_get.py --self     both sides, in two processes
"""The low-level API: blocks of a peer's memory are read by its keys.

These are the steps of a shuffle by remote memory, as SparkUCX has them in Java: the
owner registers memory and sends a table of where its blocks are, with the packed key;
the reader unpacks the key, begins all gets at once, and makes progress until the last
callback has been called. The owner takes no part in a get, but makes progress.
"""

import struct
import subprocess
import sys
import time

from ucp._libs import ucx_api
from ucp._libs.arr import Array

TABLE, DONE = 1, 2  # tags
BLOCKS = [b"one" * 1000, b"", b"two" * 50_000, b"three"]
ROUNDS = 50
ROW = struct.Struct("<QQ")  # address and length of a block


class Done:
    """A callback that counts."""

    def __init__(self):
        self.count = 0

    def __call__(self, request, exception):
        if exception is not None:
            raise exception
        self.count += 1


def wait(worker, done, requests):
    """Make progress until what the requests stand for is done; None is done."""
    pending = sum(request is not None for request in requests)
    while done.count < pending:
        worker.progress()


def send(worker, ep, data, tag):
    done, array = Done(), Array(data)
    wait(worker, done, [ucx_api.tag_send_nb(ep, array, array.nbytes, tag, done)])


def recv(worker, ep, data, tag):
    done, array = Done(), Array(data)
    request = ucx_api.tag_recv_nb(worker, array, array.nbytes, tag, done, ep=ep)
    wait(worker, done, [request])


def own(context, worker):
    memory = ucx_api.UCXMemoryHandle.alloc(context, sum(map(len, BLOCKS)))
    view, at, table = memoryview(memory), 0, []
    for block in BLOCKS:
        view[at : at + len(block)] = block
        table.append(ROW.pack(memory.address + at, len(block)))
        at += len(block)
    requests = []
    listener = ucx_api.UCXListener(worker, 0, requests.append)
    print(f"listening on 127.0.0.1:{listener.port}", flush=True)
    while not requests:
        worker.progress()
    ep = ucx_api.UCXEndpoint.create_from_conn_request(worker, requests.pop(), True)
    rows, key = b"".join(table), bytes(memory.pack_rkey())
    send(worker, ep, struct.pack("<QQ", len(rows), len(key)), TABLE)
    send(worker, ep, rows, TABLE)
    send(worker, ep, key, TABLE)
    recv(worker, ep, bytearray(4), DONE)


def get_all(worker, rkey, table, blocks):
    done, requests = Done(), []
    for (address, length), block in zip(table, blocks, strict=True):
        if length:  # 0 would be all of the memory
            remote = ucx_api.RemoteMemory(rkey, address, length)
            requests.append(remote.get_nb(block, done))
    wait(worker, done, requests)


def read(worker, host, port):
    ep = ucx_api.UCXEndpoint.create(worker, host, port, True)
    lengths = bytearray(16)
    recv(worker, ep, lengths, TABLE)
    rows, key = (bytearray(length) for length in struct.unpack("<QQ", lengths))
    recv(worker, ep, rows, TABLE)
    recv(worker, ep, key, TABLE)
    rkey = ep.unpack_rkey(bytes(key))
    table = list(ROW.iter_unpack(rows))
    blocks = [bytearray(length) for _, length in table]
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        get_all(worker, rkey, table, blocks)
        times.append(time.perf_counter() - begun)
    print("blocks of", *map(len, blocks), "bytes")
    print("intact" if blocks == BLOCKS else "damaged")
    print(f"read at {sum(map(len, blocks)) / min(times) / 1e9:.2f} GB/s")
    send(worker, ep, b"done", DONE)


def both_sides(worker):
    """Start the other side as a process, and connect to it."""
    command = [sys.executable, "-P", __file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            host, port = other.stdout.readline().split()[-1].split(":")
            read(worker, host, int(port))
            print(other.stdout.read(), end="")
        except BaseException:
            other.kill()
            raise


context = ucx_api.UCXContext(feature_flags=(ucx_api.Feature.TAG, ucx_api.Feature.RMA))
worker = ucx_api.UCXWorker(context)
try:
    if sys.argv[1:] == ["--self"]:
        both_sides(worker)
    elif len(sys.argv) == 1:
        own(context, worker)
    else:
        read(worker, sys.argv[1], int(sys.argv[2]))
    worker.close()  # closes the endpoint, and waits until all is delivered
except KeyboardInterrupt:
    sys.exit(130)
