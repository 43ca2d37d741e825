# SPDX-License-Identifier: BSD-3-Clause
"""Processes that are connected to each other, each with a rank.

A server brings workers together: each tells it its address, gets those of all,
connects to all of higher rank, runs a function of the program's, and tells the
server the function's result. What they tell is pickled: all of them must trust
each other.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import multiprocessing
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import ucp

_Queue = Any  # multiprocessing's, which is of no public class
_Options = Mapping[str, str]
_WorkerFunc = Callable[[int, dict[int, ucp.Endpoint], Any], Any]


def get_allocator(
    object_type: str,
    rmm_init_pool_size: int | None = None,
    rmm_managed_memory: bool = False,
) -> Any:
    """The module whose arrays are sent: ``numpy``, or ``cupy``.

    Args:
        object_type: "numpy", "cupy", or "rmm" for arrays of cupy in memory of
            RMM's.
        rmm_init_pool_size: bytes of RMM's pool; None: RMM's default.
        rmm_managed_memory: whether RMM allocates managed memory.
    """
    if object_type == "numpy":
        return importlib.import_module("numpy")
    xp = importlib.import_module("cupy")
    if object_type == "rmm":
        rmm = importlib.import_module("rmm")
        rmm.reinitialize(
            pool_allocator=True,
            managed_memory=rmm_managed_memory,
            initial_pool_size=rmm_init_pool_size,
        )
        allocators = importlib.import_module("rmm.allocators.cupy")
        xp.cuda.set_allocator(allocators.rmm_cupy_allocator)
    return xp


def am_allocators(object_type: str) -> dict[str, Callable[[int], Any]]:
    """What active messages are received in, by the kind of memory."""
    np = importlib.import_module("numpy")
    allocators = {"host": lambda n: np.empty(n, dtype="u1")}
    if object_type == "cupy":
        cupy = importlib.import_module("cupy")
        allocators["cuda"] = lambda n: cupy.empty(n, dtype="u1")
    elif object_type == "rmm":
        rmm = importlib.import_module("rmm")
        allocators["cuda"] = lambda n: rmm.DeviceBuffer(size=n)
    return allocators


async def send_pickled_msg(ep: ucp.Endpoint, obj: object) -> None:
    """Send an object, pickled."""
    await ep.send_obj(pickle.dumps(obj))


async def recv_pickled_msg(ep: ucp.Endpoint) -> Any:
    """Receive an object that a trusted peer has pickled."""
    return pickle.loads(await ep.recv_obj())


def host_address() -> str:
    """``ucp.get_address()``; the loopback's on a host without a network."""
    try:
        return ucp.get_address()
    except RuntimeError:
        return "127.0.0.1"


# ---- the server ----------------------------------------------------------


class _Meeting:
    """What the server knows of its workers."""

    def __init__(self, n_workers: int) -> None:
        self._n_workers = n_workers
        self._addresses: dict[int, tuple[str, int]] = {}
        self._results: dict[int, Any] = {}
        self._all_came = asyncio.Event()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def take_part(self, ep: ucp.Endpoint) -> None:
        """Serve one worker."""
        rank, host, port = await recv_pickled_msg(ep)
        self._addresses[rank] = (host, port)
        if len(self._addresses) == self._n_workers:
            self._all_came.set()
        await self._all_came.wait()
        await send_pickled_msg(ep, self._addresses)
        self._results[rank] = await recv_pickled_msg(ep)
        if len(self._results) == self._n_workers and not self._ended.done():
            self._ended.set_result(None)

    def fail(self, exc: BaseException) -> None:
        """A worker is lost."""
        if not self._ended.done():
            self._ended.set_exception(exc)

    async def results(self) -> list[Any]:
        """The workers' results by rank, when all have told theirs."""
        await self._ended
        return [self._results[rank] for rank in sorted(self._results)]


async def _hold_meeting(server_file: str | None, n_workers: int) -> list[Any]:
    meeting = _Meeting(n_workers)
    listener = ucp.create_listener(meeting.take_part, on_error=meeting.fail)
    text = json.dumps({"address": host_address(), "port": listener.port})
    if server_file is None:
        print(text, flush=True)
    else:
        Path(server_file).write_text(text)
    try:
        return await meeting.results()
    finally:
        listener.close()


def _server_process(
    q: _Queue, server_file: str | None, n_workers: int, ucx_options: _Options | None
) -> None:
    if ucx_options is not None:
        ucp.init(ucx_options)
    for result in asyncio.run(_hold_meeting(server_file, n_workers)):
        q.put(result)


def _run_cluster_server(
    server_file: str | None,
    n_workers: int,
    ucx_options_list: _Options | None = None,
) -> tuple[BaseProcess, _Queue]:
    """Start the server in its own process.

    Args:
        server_file: the file that it writes its address to, as JSON; None:
            standard output.
        n_workers: how many workers it waits for.
        ucx_options_list: options for ``ucp.init``.

    Returns:
        The process, and a queue that gets the workers' results by rank.
    """
    queue: _Queue = multiprocessing.Queue()
    process = multiprocessing.Process(
        target=_server_process, args=(queue, server_file, n_workers, ucx_options_list)
    )
    process.start()
    return process, queue


def run_cluster_server(
    server_file: str | None,
    n_workers: int,
    ucx_options_list: _Options | None = None,
) -> list[Any]:
    """Run the server to its end; the workers' results by rank."""
    process, queue = _run_cluster_server(server_file, n_workers, ucx_options_list)
    # A process ends only when its queue has been read.
    results = [queue.get() for _ in range(n_workers)]
    _join(process)
    return results


def _join(process: BaseProcess) -> None:
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{process.name} ended with exit code {process.exitcode}")


# ---- the workers ---------------------------------------------------------


class _Peers:
    """The endpoints to all other workers, by rank."""

    def __init__(self) -> None:
        self.endpoints: dict[int, ucp.Endpoint] = {}
        self._came = asyncio.Event()

    def add(self, rank: int, ep: ucp.Endpoint) -> None:
        self.endpoints[rank] = ep
        self._came.set()

    async def wait(self, number: int) -> None:
        """Wait until there are that many."""
        while len(self.endpoints) < number:
            self._came.clear()
            await self._came.wait()


async def _work(
    server_info: Mapping[str, Any], rank: int, func: _WorkerFunc, args: Any
) -> None:
    peers = _Peers()

    async def greet(ep: ucp.Endpoint) -> None:
        peers.add(await recv_pickled_msg(ep), ep)

    listener = ucp.create_listener(greet)
    server = await ucp.create_endpoint(server_info["address"], server_info["port"])
    await send_pickled_msg(server, (rank, host_address(), listener.port))
    addresses = await recv_pickled_msg(server)
    for higher in range(rank + 1, len(addresses)):
        ep = await ucp.create_endpoint(*addresses[higher])
        await send_pickled_msg(ep, rank)
        peers.add(higher, ep)
    await peers.wait(len(addresses) - 1)
    result = func(rank, peers.endpoints, args)
    if inspect.isawaitable(result):
        result = await result
    await send_pickled_msg(server, result)
    listener.close()


def _use_device(devices: Sequence[int], rank: int) -> None:
    """Choose the process's CUDA device, before UCX looks at it."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(devices[rank % len(devices)])
    importlib.import_module("numba.cuda").current_context()


def _worker_process(
    server_info: Mapping[str, Any],
    rank: int,
    ucx_options: _Options | None,
    devices: Sequence[int] | None,
    func: _WorkerFunc,
    args: Any,
) -> None:
    if devices is not None:
        _use_device(devices, rank)
    if ucx_options is not None:
        ucp.init(ucx_options)
    asyncio.run(_work(server_info, rank, func, args))


def _run_cluster_workers(
    server_info: str | Mapping[str, Any],
    num_workers: int,
    num_node_workers: int,
    node_idx: int,
    worker_func: _WorkerFunc,
    worker_args: Any = None,
    ucx_options_list: Sequence[_Options] | None = None,
    ensure_cuda_device: bool = False,
) -> list[BaseProcess]:
    """Start this host's workers, each in its own process.

    Args:
        server_info: the server's file, or what is in it.
        num_workers: not used: the server knows how many there are.
        num_node_workers: how many workers this host runs; all hosts run
            the same number.
        node_idx: this host's number, from 0; a worker's rank is its number on the
            host, plus the workers of the hosts before.
        worker_func: called with the rank, a dictionary of rank and
            endpoint, and ``worker_args``; may be a coroutine function.
        ucx_options_list: options for ``ucp.init``, by rank.
        ensure_cuda_device: choose the device by rank among ``worker_args.devs``.

    Returns:
        The processes.
    """
    if isinstance(server_info, str):
        server_info = json.loads(Path(server_info).read_text())
    if not isinstance(server_info, Mapping):
        raise ValueError(
            f"server_info is the server's file or what is in it, not {server_info!r}"
        )
    processes: list[BaseProcess] = []
    for number in range(num_node_workers):
        rank = node_idx * num_node_workers + number
        process = multiprocessing.Process(
            target=_worker_process,
            args=(
                server_info,
                rank,
                None if ucx_options_list is None else ucx_options_list[rank],
                worker_args.devs if ensure_cuda_device else None,
                worker_func,
                worker_args,
            ),
        )
        process.start()
        processes.append(process)
    return processes


def run_cluster_workers(*args: Any, **kwargs: Any) -> None:
    """As ``_run_cluster_workers``; returns when all have ended.

    Raises:
        RuntimeError: one has failed.
    """
    for process in _run_cluster_workers(*args, **kwargs):
        _join(process)
