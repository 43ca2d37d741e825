# SPDX-License-Identifier: BSD-3-Clause
"""Objects whose pickle is a part of the message's head."""

# tests: ucp/parcels ucp/pickled ucp/steps

import pickle

import pytest
from worlds import free_root

import ucp
import ucp.sync
from ucp._communicator import parcels

LIMIT = {"timeout": 20}


@pytest.fixture
def comm():
    root = free_root()
    with ucp.sync.Communicator.connect(root, 0, 1, 20, allow_pickle=True) as comm:
        yield comm


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("limit", [{}, LIMIT])
def test_objects_around_the_room_of_a_head_arrive(comm, more, limit):
    text = "x" * (parcels.SHORT + more - len(pickle.dumps("x" * 1000, 5)) + 1000)
    assert len(pickle.dumps(text, 5)) == parcels.SHORT + more
    comm.send_pickle(text, 0, 5, **limit)
    got, status = comm.recv_pickle(0, with_status=True, **limit)
    assert got == text
    assert status == (0, 5, parcels.SHORT + more)


def head_of(length):
    """A head that promises so many bytes, and none of them."""
    head = parcels.short_head("send_pickle", b"")
    return head[:12] + length.to_bytes(8, "little") + head[20:]


@pytest.mark.parametrize("length", [1, parcels.SHORT])
def test_a_head_that_promises_more_than_came_is_refused(comm, length):
    comm.send(head_of(length), 0)
    with pytest.raises(ucp.UCXError, match=r"^the message is no pickled object$"):
        comm.recv_pickle(0, **LIMIT)
    comm.send_pickle("next", 0)
    assert comm.recv_pickle(0, **LIMIT) == "next"


def test_a_head_that_promises_frames_waits_for_them_and_is_given_back(comm):
    comm.send(head_of(parcels.SHORT + 1), 0)
    with pytest.raises(ucp.UCXTimeout, match=r"^recv_pickle"):
        comm.recv_pickle(0, timeout=0.05)
    assert comm.recv(bytearray(100), **LIMIT).nbytes == 28


@pytest.mark.parametrize("nbytes", [0, 4, 30, 10_000])
def test_a_message_that_is_no_object_is_taken_and_refused(comm, nbytes):
    head = parcels.short_head("send_pickle", bytes(100))
    comm.send(head[:nbytes].ljust(nbytes), 0)
    with pytest.raises(ucp.UCXError, match=r"^the message is no pickled object$"):
        comm.recv_pickle(0, **LIMIT)
    assert comm.iprobe() is None


def test_what_cannot_be_unpickled_is_taken_and_raises(comm):
    comm.send(parcels.short_head("send_pickle", b"nothing"), 0)
    with pytest.raises(pickle.UnpicklingError, match=r"^rank 0 cannot unpickle the"):
        comm.recv_pickle(0, **LIMIT)
    assert comm.iprobe() is None


def test_a_receive_whose_time_runs_out_names_itself_and_takes_nothing(comm):
    with pytest.raises(ucp.UCXTimeout, match=r"^recv_pickle.* within 0.05 s") as raised:
        comm.recv_pickle(0, 3, timeout=0.05)
    assert raised.value.op == "recv_pickle"
    comm.send_pickle([1], 0, 3)
    assert comm.recv_pickle(0, 3, **LIMIT) == [1]


def test_what_cannot_be_pickled_is_not_sent(comm):
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        comm.send_pickle(lambda: None, 0)
    assert comm.iprobe() is None


def test_objects_after_the_end_are_refused(comm):
    comm.close()
    for call in (lambda: comm.send_pickle(1, 0), comm.recv_pickle):
        with pytest.raises(ucp.UCXCloseError, match=r"^ucp was shut down meanwhile$"):
            call()


def test_a_head_without_frames_is_read_by_either_reader():
    data = pickle.dumps({"a": 1})
    for kind in parcels.KINDS:
        head = parcels.short_head(kind, data)
        room = memoryview(head.ljust(parcels.HEAD_SIZE, b"\0"))
        assert parcels.short_body(kind, room) == data
        assert parcels.read_head(room).body == data
        assert parcels.KINDS[parcels.read_head(room).kind] == kind
    assert parcels.short_body("send_pickle", room) is None  # it is of another kind
    error = parcels.pack_error("send_pickle", ValueError, "why").head
    room = memoryview(error.ljust(parcels.HEAD_SIZE, b"\0"))
    assert parcels.short_body("send_pickle", room) is None
