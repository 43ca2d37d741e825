# SPDX-License-Identifier: BSD-3-Clause
"""What may be on its way, and unread, between hosts with a delay between them."""

# tests: host/trip channel/credit

import contextlib

from relay import HOSTS, joined_hosts, start

MIB = 1 << 20
PIECE = MIB // 4 - 1  # the longest message that waits for no receiver nearby

# Receives what the lines of its input say: messages of a size, or a stream.
RECEIVER = """
import asyncio, sys, ucp

async def main(host, credit_bytes_max):
    ucp.init(config=ucp.Config(credit_bytes_max=int(credit_bytes_max)))
    listener = ucp.create_listener(host=host)
    print(listener.port, flush=True)
    ep = await anext(listener)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        what, count, size = line.split()
        data = bytearray(int(size))
        for number in range(int(count)):
            if what == "messages":
                await ep.recv(data)
            else:
                await ep.stream_recv(data, wait_all=True)
            assert data.strip(b"\\0") == number.to_bytes(2, "little").strip(b"\\0")
        print("received", flush=True)
    await ep.close()

asyncio.run(main(*sys.argv[1:]))
"""

# Sends so, one after the other. "unread COUNT SIZE" posts sends that nobody
# receives, and waits for one more than fit into what a peer may send at first.
# Prints how many of all these have ended.
SENDER = """
import asyncio, sys, ucp

async def main(host, port):
    ep = await ucp.create_endpoint(host, int(port))
    loop = asyncio.get_running_loop()
    kept = []
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        what, count, size = line.split()
        for number in range(int(count)):
            data = number.to_bytes(2, "little").ljust(int(size), b"\\0")
            if what == "messages":
                await ep.send(data)
            elif what == "stream":
                await ep.stream_send(data)
            else:
                kept.append(ep.send(data))
        if what == "unread":
            await kept[(4 << 20) // int(size) + 1]
            await ep.ping()
        print(sum(request.done() for request in kept), flush=True)
    ep.abort()

asyncio.run(main(*sys.argv[1:]))
"""


class Pair:
    def __init__(self, sender, receiver):
        self.sender = sender
        self.receiver = receiver

    def send(self, *words):
        """Return the answer when the sends have ended."""
        print(*words, file=self.sender.stdin, flush=True)
        return int(self.sender.stdout.readline())

    def recv(self, *words):
        print(*words, file=self.receiver.stdin, flush=True)

    def received(self):
        assert self.receiver.stdout.readline() == "received\n"


@contextlib.contextmanager
def far_pair(credit_bytes_max):
    """Two processes, 10 ms of a round trip apart."""
    with joined_hosts(delay=0.005) as link:
        names = link.namespaces
        with start(names[1], RECEIVER, HOSTS[1], credit_bytes_max) as receiver:
            port = receiver.stdout.readline().strip()
            with start(names[0], SENDER, HOSTS[1], port) as sender:
                yield Pair(sender, receiver)


def test_long_messages_and_streams_wait_for_no_receiver_that_is_far_away():
    with far_pair(64 * MIB) as pair:
        pair.send("messages", 2, MIB)
        pair.send("stream", 1, MIB)
        pair.recv("messages", 2, MIB)
        pair.received()
        pair.recv("stream", 1, MIB)
        pair.received()


def test_what_may_be_unread_grows_up_to_its_bound():
    with far_pair(8 * MIB) as pair:
        pair.recv("messages", 100, PIECE)
        pair.send("messages", 100, PIECE)
        pair.received()
        ended = pair.send("unread", 60, PIECE)
        assert 4 * MIB < ended * PIECE <= 8 * MIB
        pair.recv("messages", 60, PIECE)
        pair.received()
