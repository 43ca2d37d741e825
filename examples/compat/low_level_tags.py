# SPDX-License-Identifier: BSD-3-Clause
# python examples/compat/low_level_tags.py            a server: prints where it listens
# python examples/compat/low_level_tags.py HOST PORT  the client
# python examples/compat/low_level_tags.py --self     both sides, in two processes
"""The low-level API: callbacks instead of awaitables, without an event loop.

Messages move in ``progress()`` only, which also calls the callbacks.
"""

import subprocess
import sys
import time

from ucp._libs import ucx_api
from ucp._libs.arr import Array

REQUEST, REPLY = 1, 2  # tags
ROUNDS = 1000


class Done:
    """A callback: remembers that it was called."""

    def __init__(self):
        self.value = False

    def __call__(self, request, exception):
        if exception is not None:
            raise exception
        self.value = True

    def wait(self, request, worker):
        """Make progress until the operation that returned ``request`` is done."""
        while request is not None and not self.value:
            worker.progress()


def send(worker, ep, data, tag):
    done = Done()
    array = Array(data)
    done.wait(ucx_api.tag_send_nb(ep, array, array.nbytes, tag, done), worker)


def recv(worker, ep, data, tag):
    done = Done()
    array = Array(data)
    request = ucx_api.tag_recv_nb(worker, array, array.nbytes, tag, done, ep=ep)
    done.wait(request, worker)


def serve(worker):
    requests = []
    listener = ucx_api.UCXListener(worker, 0, requests.append)
    print(f"listening on 127.0.0.1:{listener.port}", flush=True)
    while not requests:
        worker.progress()
    ep = ucx_api.UCXEndpoint.create_from_conn_request(worker, requests.pop(), True)
    number = bytearray(8)
    for _ in range(ROUNDS):
        recv(worker, ep, number, REQUEST)
        value = int.from_bytes(number, "little")
        send(worker, ep, (value * value).to_bytes(8, "little"), REPLY)


def ask(worker, host, port):
    ep = ucx_api.UCXEndpoint.create(worker, host, port, True)
    reply = bytearray(8)
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        send(worker, ep, (12).to_bytes(8, "little"), REQUEST)
        recv(worker, ep, reply, REPLY)
        times.append(time.perf_counter() - begun)
    print("12 squared is", int.from_bytes(reply, "little"))
    print(f"a round trip takes {min(times) * 1e6:.1f} us")


def both_sides(worker):
    """Start the other side as a process, and connect to it."""
    command = [sys.executable, "-P", __file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            host, port = other.stdout.readline().split()[-1].split(":")
            ask(worker, host, int(port))
            print(other.stdout.read(), end="")
        except BaseException:
            other.kill()
            raise


context = ucx_api.UCXContext(feature_flags=(ucx_api.Feature.TAG,))
worker = ucx_api.UCXWorker(context)
try:
    if sys.argv[1:] == ["--self"]:
        both_sides(worker)
    elif len(sys.argv) == 1:
        serve(worker)
    else:
        ask(worker, sys.argv[1], int(sys.argv[2]))
    worker.close()  # closes the endpoint, and waits until all is delivered
except KeyboardInterrupt:
    sys.exit(130)
