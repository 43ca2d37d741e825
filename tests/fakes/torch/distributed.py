# SPDX-License-Identifier: BSD-3-Clause
"""As much of torch.distributed as examples/torch_ranks.py calls, over a socket."""

import os
from multiprocessing.connection import Client, Listener

_ADDRESS = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
_others = []  # rank 0: connections to the others, by rank; else: the one to rank 0


def get_rank():
    return int(os.environ["RANK"])


def get_world_size():
    return int(os.environ["WORLD_SIZE"])


def init_process_group(backend):
    assert backend == "gloo"
    if get_rank() == 0:
        _others.extend([None] * (get_world_size() - 1))
        with Listener(_ADDRESS) as listener:
            for _ in range(get_world_size() - 1):
                connection = listener.accept()
                _others[connection.recv() - 1] = connection
    else:
        _others.append(_connect())
        _others[0].send(get_rank())


def _connect():
    while True:
        try:
            return Client(_ADDRESS)
        except ConnectionRefusedError:
            pass  # rank 0 does not listen yet


def all_gather_object(parts, part):
    if get_rank() == 0:
        parts[:] = [part, *(other.recv() for other in _others)]
        for other in _others:
            other.send(parts)
    else:
        _others[0].send(part)
        parts[:] = _others[0].recv()


def destroy_process_group():
    for other in _others:
        other.close()
