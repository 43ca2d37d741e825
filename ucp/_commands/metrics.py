# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp metrics``: counters of this host's processes, for Prometheus.

The processes are read without their help, so they may hang: see _observe/page.py.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from .. import _version
from .._core.resolve import host_and_port
from .._observe import page
from .._observe.families import Family, of_host
from .._observe.metrics import CONTENT_TYPE, OLD_CONTENT_TYPE, old_text, open_metrics

_PATH = "/metrics"
_PATIENCE = 10.0  # seconds in which a client has to send its request
_CANNOT_LISTEN = 1


class Address(NamedTuple):
    """Where to listen; ``host`` "": on all addresses of this host."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_and_port(self.host or socket.gethostname(), self.port)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--listen",
        type=_address,
        metavar="[HOST]:PORT",
        help="serve them at http://HOST:PORT/metrics until Ctrl-C; without HOST on all "
        "addresses of this host (default: print them once)",
    )


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdecimal():
        raise argparse.ArgumentTypeError(
            f"expected HOST:PORT or :PORT, as :9400, not {text!r}"
        )
    if len(port) > 5 or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"a port is at most 65535, not {port}")
    return Address(host, int(port))


def run(options: argparse.Namespace) -> int:
    """Print the metrics, or serve them until Ctrl-C."""
    if options.listen is None:
        print(old_text(families()), end="")
        return 0
    try:
        server = _Server(options.listen)
    except OSError as exc:
        print(
            f"python -m ucp metrics: cannot listen on {options.listen}: "
            f"{exc.strerror or exc}",
            file=sys.stderr,
        )
        return _CANNOT_LISTEN
    with server:
        address = Address(options.listen.host, server.server_address[1])
        print(f"listening on http://{address}{_PATH}", flush=True)
        if os.geteuid() != 0:
            print(
                "processes of other users are left out: run this as root to see them",
                file=sys.stderr,
            )
        server.serve_forever()
    return 0


def families() -> list[Family]:
    """The metrics of all processes that this one may read, and of the reading."""
    begin = time.perf_counter()
    processes = page.read_all()
    found = of_host(processes)
    seconds = time.perf_counter() - begin
    return [
        Family(
            "ucp_exporter",
            "info",
            "",
            "The version of ucp that has read the processes.",
            [("_info", {"version": _version.__version__}, 1)],
        ),
        Family(
            "ucp_exporter_processes",
            "gauge",
            "",
            "Processes whose counters were read.",
            [("", {}, len(processes))],
        ),
        Family(
            "ucp_exporter_duration_seconds",
            "gauge",
            "seconds",
            "How long it took to read them.",
            [("", {}, seconds)],
        ),
        *found,
    ]


class _Server(ThreadingHTTPServer):
    """Serves the metrics over HTTP, each client in a thread of its own."""

    daemon_threads = True

    def __init__(self, address: Address) -> None:
        self._sockaddr: Any = ("::", address.port)
        self.address_family = socket.AF_INET6
        if address.host or not socket.has_dualstack_ipv6():
            self.address_family, _, _, _, self._sockaddr = socket.getaddrinfo(
                address.host or "0.0.0.0", address.port, type=socket.SOCK_STREAM
            )[0]
        super().__init__(self._sockaddr[:2], _Handler)

    def server_bind(self) -> None:
        """Bind the socket; that of IPv6 takes IPv4, too, if it has no address."""
        if self._sockaddr[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self._sockaddr)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say why a client has got no answer; one that goes away is no error."""
        exc = sys.exception()
        if not isinstance(exc, ConnectionError | TimeoutError):
            print(f"python -m ucp metrics: {client_address}: {exc!r}", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    server_version = f"ucp/{_version.__version__}"
    sys_version = ""
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Answer ``GET /metrics``."""
        path = self.path.partition("?")[0]
        if path == "/":
            self._answer(f'<a href="{_PATH}">metrics of ucp</a>\n', "text/html")
        elif path != _PATH:
            self.send_error(HTTPStatus.NOT_FOUND, f"there is {_PATH} only")
        elif "application/openmetrics-text" in self.headers.get("Accept", ""):
            self._answer(open_metrics(families()), CONTENT_TYPE)
        else:
            self._answer(old_text(families()), OLD_CONTENT_TYPE)

    def _answer(self, text: str, content_type: str) -> None:
        body = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests: Prometheus asks every few seconds."""
