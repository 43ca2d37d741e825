# SPDX-License-Identifier: BSD-3-Clause
"""Blocking calls, for programs and threads that have no event loop.

    with ucp.sync.connect("127.0.0.1", port, timeout=5) as ep:
        ep.send(b"ping")
        ep.recv(buffer, timeout=1)

Each call is submitted to a worker whose event loop runs in a thread of its own,
and waits for the result without the GIL. So messages move and heartbeats are
answered between the calls, too. Any thread may call, and several threads may use
one endpoint. The thread of the worker starts with the first call and ends with
``ucp.reset()`` or the process. ``Communicator`` is faster: its calls make progress
in the threads that call.

``timeout`` is in seconds. None waits forever, and 0 does not wait: the call
succeeds only if its result is available already. A call whose time has run out
raises UCXTimeout; otherwise a call raises the exceptions of the asynchronous one.
After a receive that timed out, the next receive gets the message. A message whose
send timed out may still arrive, and its buffer is in use until then.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar, cast

from .._communicator import blocking, environment, meeting
from .._communicator import communicator as _communicator
from .._communicator.communicator import ANY_SOURCE, ANY_TAG, PeerPath
from .._core import connect as _connect
from .._core import endpoint as _endpoint
from .._core import lifecycle, resolve
from .._core import listener as _listener
from .._core import memory as _memory
from .._core import worker as _worker
from .._core.closing import Closing
from .._core.objects import Tag
from .._ext import ANY, AnyTag, CommMessage, InPlace, Status, UCXAddress, UCXRankFailed
from ..exceptions import UCXCanceled, UCXCloseError, UCXTimeout

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Endpoint(Closing):
    """A connection to one peer, made by connect() or Listener.accept().

    Dropping the last reference closes the endpoint in the background.
    """

    def __init__(self, endpoint: _endpoint.Endpoint) -> None:
        self._endpoint = endpoint
        self._worker = cast(_worker.Worker, endpoint.worker)

    def __repr__(self) -> str:
        return f"<ucp.sync.Endpoint of {self._endpoint!r}>"

    def send(
        self, buffer: Any, tag: Tag | None = None, *, timeout: float | None = None
    ) -> None:
        """Send all of ``buffer`` as one message."""
        _call(self._worker, timeout, self._endpoint.send, buffer, tag)

    def recv(
        self, buffer: Any, tag: Tag | None = None, *, timeout: float | None = None
    ) -> None:
        """Receive one message of exactly the length of ``buffer``."""
        _call(self._worker, timeout, self._endpoint.recv, buffer, tag)

    def recv_into(
        self,
        buffer: Any,
        tag: Tag | AnyTag | None = ANY,
        *,
        timeout: float | None = None,
    ) -> int:
        """Receive a message of at most the length of ``buffer``; return its length."""
        return _call(self._worker, timeout, self._endpoint.recv_into, buffer, tag)

    def recv_obj(
        self, tag: Tag | None = None, *, timeout: float | None = None
    ) -> bytearray:
        """Receive the next message, of any length, and return its bytes."""
        message: bytearray = _call(self._worker, timeout, self._endpoint.recv_obj, tag)
        return message

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything that was sent has reached the peer's memory."""
        _call(self._worker, timeout, self._endpoint.flush)

    def close(self, timeout: float | None = None) -> None:
        """Close in agreement with the peer.

        After ``timeout`` seconds the endpoint is closed by force, and UCXTimeout is
        raised. None is ``Config.close_timeout``.
        """
        if not self._worker.closed():
            _call(self._worker, None, self._endpoint.close, timeout)

    def _close_soon(self) -> None:
        if not self._worker.closed():
            _submit(self._worker, self._endpoint._close_soon)

    def abort(self) -> None:
        """Close the endpoint immediately; pending operations raise UCXCanceled."""
        if not self._worker.closed():
            _submit(self._worker, self._endpoint.abort)

    def closed(self) -> bool:
        """True if either side has closed the endpoint, or it has failed."""
        return self._endpoint.closed()

    @property
    def peer_address(self) -> tuple[Any, ...] | None:
        """The peer's (host, port)."""
        return self._endpoint.peer_address


class Listener(Closing):
    """A port to which peers connect, made by listen()."""

    def __init__(self, worker: _worker.Worker, listener: _listener.Listener) -> None:
        self._worker = worker
        self._listener = listener
        self.host = listener.host
        self.port = listener.port
        self.addresses = listener.addresses

    def __repr__(self) -> str:
        return f"<ucp.sync.Listener of {self._listener!r}>"

    def accept(self, *, timeout: float | None = None) -> Endpoint:
        """Wait for the next peer that connects, and return its endpoint.

        Raises:
            UCXCloseError: the listener is closed.
        """
        return Endpoint(_call(self._worker, timeout, self._listener.accept))

    def close(self) -> None:
        """Stop listening; end accept(). A second call does nothing."""
        if not self._worker.closed():
            _submit(self._worker, self._listener.close)

    def closed(self) -> bool:
        """True after close()."""
        return self._listener.closed()


_ReduceOp = Literal["sum", "prod", "min", "max"]
_Counts = Sequence[int]


class Communicator:
    """``ucp.Communicator`` whose operations return when they have ended.

        with ucp.sync.Communicator.from_env() as comm:
            array = np.full(1000, comm.rank, dtype="f8")
            comm.allreduce(array)

    Made by connect(), from_env(), from_allgather() or split(). It has a worker of
    its own, which those that are split off share. An operation makes progress in
    the thread that calls it; between the calls a thread of the library does, so
    that other ranks hear of this one while it computes. Arguments, results and
    exceptions are those of ``ucp.Communicator``, and ``timeout`` that of this
    module: a collective operation whose time runs out, or that Ctrl-C interrupts,
    revokes the communicator. Dropping the last reference without close() aborts.
    """

    def __init__(
        self,
        communicator: _communicator.Communicator,
        shared: blocking.SharedWorker,
    ) -> None:
        self._comm = communicator
        self._shared = shared
        self._worker = shared.worker
        shared.hold()
        self._release = weakref.finalize(self, shared.release, os.getpid())

    @classmethod
    def connect(
        cls,
        root: str | UCXAddress | bytes,
        rank: int | None,
        size: int,
        timeout: float | None = 60,
        name: str = "",
        heartbeat: float | None = 10,
    ) -> Self:
        """Meet the other ranks; as ``ucp.Communicator.connect()``."""
        shared = blocking.SharedWorker()
        try:
            comm = blocking.connect(
                shared.worker, root, rank, size, timeout, name, heartbeat
            )
        except BaseException:
            shared.stop()
            raise
        return cls(comm, shared)

    @classmethod
    def from_env(
        cls,
        timeout: float | None = 60,
        name: str = "",
        heartbeat: float | None = 10,
    ) -> Self:
        """Meet the ranks that a launcher has started."""
        ranks = environment.from_environment()
        with meeting.announced(ranks):
            return cls.connect(
                ranks.root, ranks.rank, ranks.size, timeout, name, heartbeat
            )

    @classmethod
    def from_allgather(
        cls,
        rank: int,
        size: int,
        allgather: Callable[[bytes], Iterable[bytes]],
        timeout: float | None = 60,
        name: str = "",
        heartbeat: float | None = 10,
    ) -> Self:
        """Meet ranks that can reach each other by other means.

        ``allgather`` is called in this thread.
        """
        shared = blocking.SharedWorker()
        worker = shared.worker
        try:
            own = _communicator.own_part(rank, worker)
            root = _communicator.root_part(rank, size, allgather(own))
            comm = blocking.meet(worker, rank, size, root, timeout, name, heartbeat)
        except BaseException:
            shared.stop()
            raise
        return cls(comm, shared)

    def __repr__(self) -> str:
        return f"<ucp.sync.Communicator of {self._comm!r}>"

    @property
    def rank(self) -> int:
        """This process's rank, from 0."""
        return self._comm.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._comm.size

    @property
    def name(self) -> str:
        """Its name; "" if it was given none."""
        return self._comm.name

    @property
    def failure(self) -> UCXRankFailed | None:
        """What operations raise once it has failed; or None."""
        return self._comm.failure

    def explain(self) -> list[PeerPath]:
        """Say for each rank by which path messages of collective operations reach
        it, and why."""
        self._shared.check()
        return self._comm.explain()

    def send(
        self, buffer: Any, dest: int, tag: int = 0, *, timeout: float | None = None
    ) -> None:
        """Send all of ``buffer`` to the rank ``dest``."""
        self._worker._call(timeout, self._comm.send, buffer, dest, tag)

    def recv(
        self,
        buffer: Any,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        timeout: float | None = None,
    ) -> Status:
        """Receive the next message of a rank, or of any; with a tag, or any."""
        return self._worker._call(timeout, self._comm.recv, buffer, source, tag)

    def isend(
        self, buffer: Any, dest: int, tag: int = 0
    ) -> concurrent.futures.Future[None]:
        """Begin to send; the future is done when ``buffer`` may be used again."""
        self._shared.check()
        return self._shared.future_of(self._comm.send(buffer, dest, tag))

    def irecv(
        self, buffer: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG
    ) -> concurrent.futures.Future[Status]:
        """Begin to receive; a future of the Status."""
        self._shared.check()
        return self._shared.future_of(self._comm.recv(buffer, source, tag))

    def probe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        timeout: float | None = None,
    ) -> Status:
        """Wait for a message, and take nothing."""
        return self._worker._call(timeout, self._comm.probe, source, tag)

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        """The Status of a message that has come; or None."""
        self._make_progress()
        return self._comm.iprobe(source, tag)

    def mprobe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        timeout: float | None = None,
    ) -> CommMessage:
        """Wait for a message and take it without its bytes, for mrecv()."""
        end = None if timeout is None else time.monotonic() + timeout
        while (message := self.improbe(source, tag)) is None:
            left = None if end is None else max(0, end - time.monotonic())
            try:
                self.probe(source, tag, timeout=left)
            except UCXTimeout:
                raise UCXTimeout(f"not done within {timeout} s") from None
        return message

    def _make_progress(self) -> None:
        self._shared.check()
        self._worker.progress()

    def improbe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG
    ) -> CommMessage | None:
        """Take a message that has come, without its bytes, for mrecv(); or None."""
        self._make_progress()
        return self._comm.improbe(source, tag)

    def mrecv(
        self, message: CommMessage, buffer: Any, *, timeout: float | None = None
    ) -> Status:
        """Receive the bytes of a message of mprobe() or improbe()."""
        return self._worker._call(timeout, message.recv, buffer)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Wait until every rank has called it."""
        self._worker._call(timeout, self._comm.barrier)

    def bcast(
        self, buffer: Any, root: int = 0, *, timeout: float | None = None
    ) -> None:
        """Copy the bytes of the root's ``buffer`` to every rank's."""
        self._worker._call(timeout, self._comm.bcast, buffer, root)

    def gather(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        *,
        counts: _Counts | None = None,
        displs: _Counts | None = None,
        timeout: float | None = None,
    ) -> None:
        """Collect every rank's ``send`` in the root's ``recv``."""
        self._worker._call(
            timeout,
            self._comm.gather,
            send,
            recv,
            root,
            counts=counts,
            displs=displs,
        )

    def scatter(
        self,
        send: Any,
        recv: Any,
        root: int = 0,
        *,
        counts: _Counts | None = None,
        displs: _Counts | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give each rank its part of the root's ``send``, in its ``recv``."""
        self._worker._call(
            timeout,
            self._comm.scatter,
            send,
            recv,
            root,
            counts=counts,
            displs=displs,
        )

    def allgather(self, send: Any, recv: Any, *, timeout: float | None = None) -> None:
        """Collect every rank's ``send`` in every rank's ``recv``."""
        self._worker._call(timeout, self._comm.allgather, send, recv)

    def allgatherv(
        self,
        send: Any,
        recv: Any,
        counts: _Counts,
        displs: _Counts | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """allgather() of parts of different lengths, in items of ``recv``."""
        self._worker._call(timeout, self._comm.allgatherv, send, recv, counts, displs)

    def alltoall(self, send: Any, recv: Any, *, timeout: float | None = None) -> None:
        """Send part i of ``send`` to rank i; receive part i of ``recv`` from it."""
        self._worker._call(timeout, self._comm.alltoall, send, recv)

    def alltoallv(
        self,
        send: Any,
        send_counts: _Counts,
        recv: Any,
        recv_counts: _Counts,
        *,
        send_displs: _Counts | None = None,
        recv_displs: _Counts | None = None,
        timeout: float | None = None,
    ) -> None:
        """alltoall() of parts of different lengths, in items of the buffers."""
        self._worker._call(
            timeout,
            self._comm.alltoallv,
            send,
            send_counts,
            recv,
            recv_counts,
            send_displs=send_displs,
            recv_displs=recv_displs,
        )

    def alltoall_buffers(
        self, buffers: Sequence[Any], *, timeout: float | None = None
    ) -> list[memoryview]:
        """Send buffers[i] to rank i; return what the ranks have sent."""
        return self._worker._call(timeout, self._comm.alltoall_buffers, buffers)

    def reduce(
        self,
        send: Any,
        recv: Any = None,
        op: _ReduceOp = "sum",
        root: int = 0,
        *,
        timeout: float | None = None,
    ) -> None:
        """Combine the arrays of all ranks into the root's ``recv``."""
        self._worker._call(timeout, self._comm.reduce, send, recv, op, root)

    def allreduce(
        self,
        send: Any | InPlace,
        recv: Any = None,
        op: _ReduceOp = "sum",
        *,
        timeout: float | None = None,
    ) -> None:
        """reduce() whose result every rank gets; without ``recv`` in ``send``."""
        if isinstance(recv, str):
            recv, op = None, cast(_ReduceOp, recv)
        self._worker._call(timeout, self._comm.allreduce, send, recv, op)

    def split(
        self, color: int | None, key: int = 0, *, timeout: float | None = None
    ) -> Self | None:
        """Make communicators of the ranks that give the same ``color``."""
        made = self._worker._call(timeout, self._comm.split, color, key)
        return None if made is None else type(self)(made, self._shared)

    def abort(
        self, reason: str | None = None, _fault: tuple[int, int, int] | None = None
    ) -> None:
        """End it on every rank."""
        if not self._worker.closed():
            self._comm.abort(reason, _fault)

    def close(self) -> None:
        """Leave it. A second call does nothing."""
        if self._release.alive:
            if not self._worker.closed():
                self._comm.close()
            self._release()

    def closed(self) -> bool:
        """True after close(), and when ucp was shut down."""
        return self._comm.closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception abort, which tells it to the other ranks."""
        if exc is not None:
            self.abort(_communicator.reason_of(exc), _communicator.fault_of(exc))
        self.close()


def connect(
    host: str, port: int, *, timeout: float | None = None, local_host: str | None = None
) -> Endpoint:
    """Connect to a listener; arguments and exceptions as ``ucp.connect()``.

    Raises:
        RuntimeError: the listener belongs to an event loop of the calling thread.
            It cannot accept while the thread waits.
    """
    _refuse_own_listener(host, port)
    return Endpoint(
        _call(_current_worker(), None, _connect_to, host, port, timeout, local_host)
    )


def listen(
    port: int | None = None, *, host: str | None = None, backlog: int | None = None
) -> Listener:
    """Listen for connections; arguments and exceptions as ``ucp.create_listener()``."""
    worker = _current_worker()
    return Listener(worker, _submit(worker, _listen, port, host, backlog))


def wait_until(
    memory: _memory.Memory,
    offset: int,
    cmp: Literal["==", "!=", ">", ">=", "<", "<="],
    value: int,
    bits: int = 64,
    *,
    timeout: float | None = None,
) -> None:
    """Wait until a number in ``memory`` has a value; as ``Memory.wait_until()``."""
    if memory.test(offset, cmp, value, bits):
        return
    _call(_current_worker(), timeout, memory.wait_until, offset, cmp, value, bits)


def _refuse_own_listener(host: str, port: int) -> None:
    """Raise RuntimeError if a listener of this thread is at the address."""
    own = [
        listener
        for worker in lifecycle.workers_of_thread()
        if not worker._serves_in_thread()
        for listener in worker._listeners
        if listener.port == port and not listener.closed()
    ]
    if not own:
        return
    for address in resolve.resolve_now(host, port):
        for listener in own:
            if resolve.is_reached(address, listener.addresses):
                raise RuntimeError(
                    f"{listener!r} belongs to the event loop of this thread, which "
                    "this call blocks: use 'await ucp.connect()', or call this "
                    "function in another thread, as by asyncio.to_thread()"
                )


async def _connect_to(
    host: str, port: int, timeout: float | None, local_host: str | None
) -> _endpoint.Endpoint:
    return await _connect.create_endpoint(
        host, port, connect_timeout=timeout, local_host=local_host
    )


def _listen(
    port: int | None, host: str | None, backlog: int | None
) -> _listener.Listener:
    return _connect.create_listener(None, port, host=host, backlog=backlog)


# ---- the thread --------------------------------------------------------------


class _Runner:
    """An event loop in a thread of its own, until stop()."""

    def __init__(self) -> None:
        started: concurrent.futures.Future[_worker.Worker] = concurrent.futures.Future()
        self.thread = threading.Thread(
            target=asyncio.run,
            args=(self._main(started),),
            name="ucp sync",
            daemon=True,
        )
        self.thread.start()
        self.worker = started.result()

    async def _main(self, started: concurrent.futures.Future[_worker.Worker]) -> None:
        self._stopping = asyncio.Event()
        try:
            started.set_result(lifecycle.current_worker())
        except BaseException as exc:
            started.set_exception(exc)
        else:
            await self._stopping.wait()

    def stop(self) -> None:
        """Close the endpoints and listeners, and end the thread."""
        self.worker.submit(self._stopping.set)
        if self.thread is not threading.current_thread():
            self.thread.join()


_runner: _Runner | None = None
_lock = threading.Lock()


def _current_worker() -> _worker.Worker:
    global _runner
    with _lock:
        if _runner is None:
            _runner = _Runner()
        return _runner.worker


def _stop() -> None:
    global _runner
    with _lock:
        runner, _runner = _runner, None
    if runner is not None:
        runner.stop()


def _stop_if_unused() -> None:
    """End the thread if nothing is open: reset() cannot work while it runs."""
    if _runner is not None:
        worker = _runner.worker
        things: list[_endpoint.Endpoint | _listener.Listener] = [
            *worker._endpoints,
            *worker._listeners,
        ]
        if all(thing.closed() for thing in things):
            _stop()


def _forget_after_fork() -> None:
    """Forget the thread, which belongs to the parent."""
    global _runner, _lock
    _runner = None
    _lock = threading.Lock()


lifecycle.before_reset.append(_stop_if_unused)
atexit.register(_stop)
os.register_at_fork(after_in_child=_forget_after_fork)


# ---- calls -------------------------------------------------------------------


def _call(
    worker: _worker.Worker,
    timeout: float | None,
    function: Callable[_P, Awaitable[_T]],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Await ``function(...)`` in the worker's loop."""
    result: _T
    if timeout is None:
        result = _run(worker, function, *args, **kwargs)
    else:
        result = _run(worker, _within, timeout, function, *args, **kwargs)
    return result


def _submit(
    worker: _worker.Worker,
    function: Callable[_P, _T],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Call ``function(...)`` in the worker's loop."""
    result: _T = _run(worker, function, *args, **kwargs)
    return result


def _run(
    worker: _worker.Worker, work: Callable[..., object], *args: Any, **kwargs: Any
) -> Any:
    _check(worker)
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    submission = None
    try:
        submission = worker._submit_for(future, work, args, kwargs)
        return future.result()
    except concurrent.futures.CancelledError:
        raise UCXCanceled("ucp was shut down meanwhile") from None
    finally:
        # After Ctrl-C nobody would hear how the work ends, and until then its
        # buffers are not the caller's.
        if future.cancel() and submission is not None:
            submission.wait()
        del future  # it holds the exception, whose traceback holds this frame


def _check(worker: _worker.Worker) -> None:
    if worker.closed():
        raise UCXCloseError("ucp was shut down meanwhile")
    if worker._thread is threading.current_thread():
        raise RuntimeError("a blocking call in the thread that it would wait for")


async def _within(
    timeout: float,
    function: Callable[_P, Awaitable[_T]],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    # The event loop measures the time and cancels, which loses no message.
    try:
        async with asyncio.timeout(timeout):
            return await function(*args, **kwargs)
    except UCXTimeout:
        raise
    except TimeoutError:
        raise UCXTimeout(f"not done within {timeout} s") from None


__all__ = ["Communicator", "Endpoint", "Listener", "connect", "listen", "wait_until"]
