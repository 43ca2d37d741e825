# SPDX-License-Identifier: BSD-3-Clause
"""Blocking calls, for programs and threads that have no event loop.

    with ucp.sync.connect("127.0.0.1", port, timeout=5) as ep:
        ep.send(b"ping")
        ep.recv(buffer, timeout=1)

Each call is submitted to a worker whose event loop runs in its own thread,
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

from .._communicator.futures import testall, testany, waitall, waitany
from ._communicator import Communicator
from ._endpoint import Endpoint, Listener, connect, listen
from ._memory import wait_until
from ._messages import Channel
from ._remote import RemoteMemory
from ._shmem import SymmetricArray, SymmetricHeap

__all__ = [
    "Channel",
    "Communicator",
    "Endpoint",
    "Listener",
    "RemoteMemory",
    "SymmetricArray",
    "SymmetricHeap",
    "connect",
    "listen",
    "testall",
    "testany",
    "wait_until",
    "waitall",
    "waitany",
]


def __dir__() -> list[str]:
    return __all__
