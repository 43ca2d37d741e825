# SPDX-License-Identifier: BSD-3-Clause
"""Round trips between two processes: bandwidth and latency.

Both on this host:

    python -m ucp.benchmarks.send_recv --n-bytes 1MB --n-iter 100 --reuse-alloc

On two hosts; both take the same options, the server starts first:

    python -m ucp.benchmarks.send_recv --server-only --port 13337
    python -m ucp.benchmarks.send_recv --client-only --server-address HOST \\
        --port 13337
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import inspect
import multiprocessing
import os
import signal
import statistics
import sys
from collections.abc import Iterator
from multiprocessing import resource_tracker
from queue import Empty
from typing import Any

import ucp  # noqa: F401 -- says what is wrong with the installation, if anything
from ucp._core import startup
from ucp._libs.utils import (
    format_bytes,
    parse_bytes,
    print_key_value,
    print_separator,
)

from .utils import host_address

# The module in backends/, and what its classes' names begin with.
_BACKENDS = {
    "ucp-async": ("ucp_async", "UCXPyAsync"),
    "ucp-core": ("ucp_core", "UCXPyCore"),
    "tornado": ("tornado", "Tornado"),
}

_LOOK_PERIOD = 0.2  # seconds between looks whether the server is alive

_spawn = multiprocessing.get_context("spawn")


def _backend_class(backend: str, side: str) -> Any:
    """The class of a side, "Server" or "Client"."""
    module, prefix = _BACKENDS[backend]
    return getattr(
        importlib.import_module(f"ucp.benchmarks.backends.{module}"), prefix + side
    )


def _set_up(args: argparse.Namespace, cpu: int, device: int) -> None:
    """Bind this process to its CPU and its CUDA device."""
    if cpu >= 0:
        os.sched_setaffinity(0, [cpu])
    if args.object_type != "numpy":
        os.environ["CUDA_VISIBLE_DEVICES"] = str(device)
        importlib.import_module("numba.cuda").current_context()


def _run(side: Any) -> None:
    if inspect.iscoroutinefunction(side.run):
        asyncio.run(side.run())
    else:
        side.run()


def server(queue: Any, args: argparse.Namespace) -> None:
    """The server's process."""
    _set_up(args, args.server_cpu_affinity, args.server_dev)
    _run(_backend_class(args.backend, "Server")(args, queue))


def client(
    queue: Any, port: int, server_address: str, args: argparse.Namespace
) -> None:
    """The client's process: measures, and prints what it has measured."""
    _set_up(args, args.client_cpu_affinity, args.client_dev)
    backend = _backend_class(args.backend, "Client")(args, queue, server_address, port)
    _run(backend)
    times = queue.get()
    contention = queue.get() if args.report_gil_contention else None
    _print_settings(args, backend)
    _print_summary(args, times)
    if contention is not None:
        print_key_value("GIL contention", contention)
    if not args.no_detailed_report:
        _print_rounds(args, times)


def _print_settings(args: argparse.Namespace, backend: Any) -> None:
    print("Roundtrip benchmark")
    print_separator("=")
    print_key_value("Iterations", args.n_iter)
    print_key_value("Bytes", format_bytes(args.n_bytes))
    print_key_value("Object type", args.object_type)
    print_key_value("Reuse allocation", args.reuse_alloc)
    backend.print_backend_specific_config()
    print_separator("=")
    if args.object_type == "numpy":
        print_key_value("Device(s)", "CPU-only")
        print_key_value("Server CPU", _cpu_text(args.server_cpu_affinity))
        print_key_value("Client CPU", _cpu_text(args.client_cpu_affinity))
    else:
        print_key_value("Device(s)", f"{args.server_dev}, {args.client_dev}")
    print_separator("=")


def _cpu_text(cpu: int) -> str:
    return str(cpu) if cpu >= 0 else "affinity not set"


def _rate(args: argparse.Namespace, seconds: float) -> str:
    """Bytes per second, both ways counted."""
    return f"{format_bytes(2 * args.n_bytes / seconds)}/s"


def _latency(seconds: float) -> int:
    """Nanoseconds of half a round trip."""
    return int(seconds * 1e9 / 2)


def _print_summary(args: argparse.Namespace, times: list[float]) -> None:
    mean, median = statistics.fmean(times), statistics.median(times)
    print_key_value("Bandwidth (average)", _rate(args, mean))
    print_key_value("Bandwidth (median)", _rate(args, median))
    print_key_value("Latency (average)", f"{_latency(mean)} ns")
    print_key_value("Latency (median)", f"{_latency(median)} ns")


def _print_rounds(args: argparse.Namespace, times: list[float]) -> None:
    print_separator("=")
    print_key_value("Iterations", "Bandwidth, Latency")
    print_separator("-")
    for number, seconds in enumerate(times):
        print_key_value(number, f"{_rate(args, seconds)}, {_latency(seconds)}ns")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ucp.benchmarks.send_recv",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_message_options(parser)
    _add_place_options(parser)
    _add_cuda_options(parser)
    _add_backend_options(parser)
    return parser


def _add_message_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("messages").add_argument
    add(
        *("-n", "--n-bytes"),
        metavar="BYTES",
        type=parse_bytes,
        default="10 Mb",
        help="bytes of a message, such as 64KiB (%(default)s)",
    )
    add("--n-iter", metavar="N", type=int, default=10, help="round trips (10)")
    add(
        "--n-warmup-iter",
        metavar="N",
        type=int,
        default=10,
        help="round trips before the measurement (10)",
    )
    add(
        *("-o", "--object_type", "--object-type"),
        choices=["numpy", "cupy", "rmm"],
        default="numpy",
        help="the arrays that are sent (%(default)s)",
    )
    add("--reuse-alloc", action="store_true", help="receive into one array")
    add(
        "--enable-am",
        action="store_true",
        help="active messages instead of tagged messages",
    )
    add("--no-detailed-report", action="store_true", help="no line per round trip")
    add(*("-v", "--verbose"), action="store_true", help="has no effect")


def _add_place_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("processes").add_argument
    add(
        *("-b", "--server-cpu-affinity"),
        metavar="N",
        type=int,
        default=-1,
        help="the server's CPU (any)",
    )
    add(
        *("-c", "--client-cpu-affinity"),
        metavar="N",
        type=int,
        default=-1,
        help="the client's CPU (any)",
    )
    add(
        *("-s", "--server-address"),
        metavar="IP",
        default=host_address(),
        help="the server's address (%(default)s)",
    )
    add(
        *("-p", "--port"),
        type=int,
        help="the server's port (any; a client alone must have it)",
    )
    add("--server-only", action="store_true", help="no client in this command")
    add("--client-only", action="store_true", help="no server in this command")


def _add_cuda_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("CUDA").add_argument
    add(
        *("-d", "--server-dev"),
        metavar="N",
        type=int,
        default=0,
        help="the server's device (0)",
    )
    add(
        *("-e", "--client-dev"),
        metavar="N",
        type=int,
        default=0,
        help="the client's device (0)",
    )
    add(
        "--cuda-profile",
        action="store_true",
        help="start CUDA's profiler around the measurement",
    )
    add(
        "--rmm-init-pool-size",
        metavar="BYTES",
        type=int,
        help="bytes of RMM's pool (RMM's default)",
    )
    add("--rmm-managed-memory", action="store_true", help="RMM's managed memory")


def _add_backend_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("backends").add_argument
    add(
        *("-l", "--backend"),
        choices=list(_BACKENDS),
        default="ucp-async",
        help="what is measured (%(default)s)",
    )
    add(
        "--error-handling",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="for ucx-py's command lines: endpoints always handle errors",
    )
    add(
        "--delay-progress",
        action="store_true",
        help="ucp-core: make progress only at --max-outstanding operations",
    )
    add(
        "--max-outstanding",
        metavar="N",
        type=int,
        default=32,
        help="operations under way with --delay-progress (32)",
    )
    add(
        "--report-gil-contention",
        action="store_true",
        help="tell how often the GIL was waited for; needs gilknocker",
    )


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; ends the program if options contradict."""
    parser = _parser()
    args = parser.parse_args(arguments)
    wrong = _contradiction(args)
    if wrong is not None:
        parser.error(wrong)
    return args


def _contradiction(args: argparse.Namespace) -> str | None:
    is_cuda = args.object_type != "numpy"
    if args.cuda_profile and not is_cuda:
        return "--cuda-profile requires --object_type=cupy or rmm"
    if args.rmm_managed_memory and args.object_type != "rmm":
        return "--rmm-managed-memory requires --object_type=rmm"
    if is_cuda and not _backend_class(args.backend, "Client").has_cuda_support:
        return f"backend {args.backend} sends no arrays of {args.object_type}"
    if args.delay_progress and (args.backend != "ucp-core" or args.enable_am):
        return "--delay-progress requires --backend=ucp-core without --enable-am"
    if args.client_only and (args.server_only or args.port is None):
        return "--client-only requires --port, and no --server-only"
    if args.max_outstanding < 2:
        return "--max-outstanding is at least 2"
    if args.report_gil_contention:
        try:
            importlib.import_module("gilknocker")
        except ImportError:
            return "--report-gil-contention requires the package gilknocker"
    return None


def _first_of(queue: Any, process: Any) -> Any:
    """What ``process`` puts into ``queue``; ends the program if it ends before."""
    while True:
        try:
            return queue.get(timeout=_LOOK_PERIOD)
        except Empty:
            if not process.is_alive():
                sys.exit(1)  # it has said why


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block.

    Queues of multiprocessing that are half made print errors at its end. Processes
    that are started inherit that SIGINT is blocked: this one ends them.
    """
    resource_tracker.ensure_running()  # whoever starts it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Processes:
    """The processes, the client before the server, and queues that they read.

    A queue has to live until its process has opened it.
    """

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._queues: list[Any] = []

    def start(self, function: Any, *args: Any) -> tuple[Any, Any]:
        """Start ``function(queue, *args)``; its process, and the queue."""
        with _interrupted_later():
            queue = _spawn.Queue()
            self._queues.append(queue)
            process = _spawn.Process(target=function, args=(queue, *args))
            self.all.insert(0, process)
            process.start()
        return process, queue

    def end(self) -> None:
        for process in self.all:
            if process.pid is not None:  # it was started
                process.terminate()
                process.join()


def main(arguments: list[str] | None = None) -> int:
    """Run the processes asked for; returns the exit status."""
    args = parse_args(arguments)
    processes = _Processes()
    try:
        return _run_all(args, processes)
    finally:
        processes.end()


def _run_all(args: argparse.Namespace, processes: _Processes) -> int:
    port = args.port
    if not args.client_only:
        process, queue = processes.start(server, args)
        port = _first_of(queue, process)
        print(f"Server Running at {args.server_address}:{port}", flush=True)
    if not args.server_only:
        print(f"Client connecting to server at {args.server_address}:{port}")
        processes.start(client, port, args.server_address, args)
    for process in processes.all:
        process.join()
        if process.exitcode:
            return 1
    return 0


if __name__ == "__main__":
    startup.interrupt_quietly()
    sys.exit(main())
