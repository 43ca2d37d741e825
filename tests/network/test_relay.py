# SPDX-License-Identifier: BSD-3-Clause
"""The network of these tests: what its relay does to packets of plain sockets."""

import subprocess

import pytest
from relay import HOSTS, joined_hosts, start

ANSWER = f"""
import socket
with socket.create_server(("{HOSTS[1]}", 0)) as server:
    print(server.getsockname()[1], flush=True)
    peer, _ = server.accept()
    with peer:
        while data := peer.recv(1 << 16):
            peer.sendall(data)
"""

# Reads numbers of bytes to send there and back, prints the seconds that it took.
ASK = f"""
import socket, sys, time
with socket.create_connection(("{HOSTS[1]}", int(sys.argv[1]))) as peer:
    print("connected", flush=True)
    for line in sys.stdin:
        size, start, got = int(line), time.monotonic(), 0
        peer.sendall(b"x" * size)
        while got < size:
            got += len(peer.recv(1 << 16))
        print(time.monotonic() - start, flush=True)
"""


class Pair:
    def __init__(self, link, client):
        self.link = link
        self.client = client

    def ask(self, size):
        print(size, file=self.client.stdin, flush=True)

    def seconds(self):
        return float(self.client.stdout.readline())


@pytest.fixture
def pair():
    with joined_hosts() as link, start(link.namespaces[1], ANSWER) as server:
        port = server.stdout.readline().strip()
        with start(link.namespaces[0], ASK, port) as client:
            assert client.stdout.readline() == "connected\n"
            yield Pair(link, client)


def test_a_delay_takes_each_way(pair):
    pair.link.set(delay=0.05)
    pair.ask(1)
    assert pair.seconds() >= 0.1


def test_a_rate_limits_each_way(pair):
    pair.link.set(rate=8e6)
    pair.ask(200_000)
    assert pair.seconds() >= 0.2


def test_bytes_pass_whole_though_packets_are_lost(pair):
    pair.link.set(loss=0.02)
    pair.ask(2_000_000)
    pair.seconds()
    assert all(lost > 0 for _packets, _bytes, lost in pair.link.counts())


@pytest.mark.parametrize(("drop", "index"), [("first", 0), ("second", 1)])
def test_what_one_side_sends_is_lost_until_it_is_no_more(pair, drop, index):
    before = pair.link.counts()
    pair.link.set(drop=drop)
    pair.ask(1)
    while pair.link.counts()[index][2] == before[index][2]:
        pass
    assert pair.link.counts()[1 - index][2] == before[1 - index][2]
    pair.link.set(drop="none")
    pair.seconds()


def test_a_full_queue_drops_packets(pair):
    pair.link.set(rate=8e6, queue=0.005)
    pair.ask(300_000)
    pair.seconds()
    assert pair.link.counts()[0][2] > 0


def test_nothing_is_left_of_a_network():
    with joined_hosts(delay=0.001, rate=1e9) as link:
        names = link.namespaces
        for wrong in {"delay": -1}, {"loss": 2}:
            with pytest.raises(RuntimeError, match=r"^relay: .* is not a command$"):
                link.set(**wrong)
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True)
    assert not any(name in left.stdout for name in names)
