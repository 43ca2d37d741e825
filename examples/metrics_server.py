# SPDX-License-Identifier: BSD-3-Clause
# python examples/metrics_server.py [PORT]
"""Serve the metrics of a program to Prometheus: http://127.0.0.1:PORT/metrics.

The server needs nothing but asyncio: it runs in the event loop of the program, whose
messages it counts. A program that has metrics of its own with the package
prometheus_client calls ``ucp.prometheus_collector()`` instead.
"""

import asyncio
import sys

import ucp
from ucp.testing import connected_pair

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def answer(path):
    """The bytes of an answer to ``GET path``."""
    if path != "/metrics":
        return NOT_FOUND
    body = ucp.metrics().encode()
    head = (
        "HTTP/1.1 200 OK\r\n"
        f"Content-Type: {ucp.METRICS_CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


async def serve(reader, writer):
    """Answer one request, and close the connection."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        words = head.split(maxsplit=2)
        path = words[1].decode() if len(words) == 3 and words[0] == b"GET" else ""
        writer.write(answer(path))
        await writer.drain()
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # this was no request
    except ConnectionError:
        pass  # the reader has gone
    finally:
        writer.close()


async def exchange(left, right):
    """The work of the program: a message each tenth of a second."""
    while True:
        await left.send(b"hello")
        await right.recv(bytearray(5))
        await asyncio.sleep(0.1)


async def main(port):
    ucp.measure_latency()
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server, connected_pair() as (left, right), asyncio.TaskGroup() as tasks:
        tasks.create_task(exchange(left, right))
        port = server.sockets[0].getsockname()[1]
        print(f"metrics are at http://127.0.0.1:{port}/metrics", flush=True)
        await server.serve_forever()


try:
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
except KeyboardInterrupt:  # Ctrl-C: as a shell reports it
    sys.exit(130)
