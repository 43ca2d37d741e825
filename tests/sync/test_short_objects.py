# SPDX-License-Identifier: BSD-3-Clause
"""Objects whose pickle is a part of the message's head."""

# tests: ext/pickled ucp/parcels ucp/pickled ucp/short ucp/steps

import pickle
import sys
import threading

import pytest
from worlds import free_root

import ucp
import ucp.sync
from ucp import _ext
from ucp._communicator import parcels, steps

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


def head_of(length, tag=0, kind="send_pickle"):
    """A head that promises so many bytes, and none of them."""
    return parcels.BEGINS[kind] + b"".join(
        number.to_bytes(8, "little") for number in (length, tag)
    )


def message_of(data, kind="send_pickle"):
    return head_of(len(data), 0, kind) + data


@pytest.mark.parametrize("length", [1, parcels.SHORT, parcels.SHORT + 1, 1 << 63])
def test_a_head_that_promises_more_than_came_is_refused(comm, length):
    comm.send(head_of(length), 0)
    with pytest.raises(ucp.UCXError, match=r"^the message is no pickled object$"):
        comm.recv_pickle(0, **LIMIT)
    comm.send_pickle("next", 0)
    assert comm.recv_pickle(0, **LIMIT) == "next"


def test_a_head_that_promises_frames_waits_for_them_and_is_given_back(comm):
    comm.send(head_of(parcels.SHORT + 1, 77), 0)
    with pytest.raises(ucp.UCXTimeout, match=r"^recv_pickle"):
        comm.recv_pickle(0, timeout=0.05)
    assert comm.recv(bytearray(100), **LIMIT).nbytes == 28


@pytest.mark.parametrize("nbytes", [0, 4, 30, 10_000])
def test_a_message_that_is_no_object_is_taken_and_refused(comm, nbytes):
    head = message_of(bytes(100))
    comm.send(head[:nbytes].ljust(nbytes), 0)
    with pytest.raises(ucp.UCXError, match=r"^the message is no pickled object$"):
        comm.recv_pickle(0, **LIMIT)
    assert comm.iprobe() is None


def test_what_cannot_be_unpickled_is_taken_and_raises(comm):
    comm.send(message_of(b"nothing"), 0)
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
    value = {"a": 1}
    for kind in parcels.KINDS:
        room = parcels.pack_short(kind, value)
        assert room == message_of(pickle.dumps(value, 5), kind).ljust(
            parcels.HEAD_SIZE, b"\0"
        )
        begin, size = parcels.BEGINS[kind], len(room)
        assert _ext.has_objects(begin, room, size, -1)
        assert _ext.load_object(begin, room, 0, size, None, None) == value
        head = parcels.read_head(room)
        assert pickle.loads(head.body) == value
        assert parcels.KINDS[head.kind] == kind
    sent, default = parcels.BEGINS["send_pickle"], object()  # it is of another kind
    assert not _ext.has_objects(sent, room, size, -1)
    assert _ext.load_object(sent, room, 0, size, default, None) is default
    error = parcels.pack_error("send_pickle", ValueError, "why").head
    room = error.ljust(parcels.HEAD_SIZE, b"\0")
    assert not _ext.has_objects(sent, room, size, -1)


def test_each_place_is_looked_at_but_one():
    begin = parcels.BEGINS["gather_pickle"]
    good, bad = parcels.pack_short("gather_pickle", 1), bytes(parcels.HEAD_SIZE)
    for at in range(3):
        heads = b"".join(bad if i == at else good for i in range(3))
        for skip in range(-1, 3):
            found = _ext.has_objects(begin, heads, parcels.HEAD_SIZE, skip)
            assert found is (skip == at)


@pytest.mark.parametrize(
    "offset, end", [(-1, 512), (1, 512), (513, 512), (600, 700), (0, 0), (0, -5)]
)
def test_an_object_is_read_from_its_place_alone(offset, end):
    head, default = parcels.pack_short("gather_pickle", 1), object()
    begin = parcels.BEGINS["gather_pickle"]
    assert _ext.load_object(begin, head, offset, end, default, None) is default


def test_what_is_pickled_stays_with_its_call():
    """The list of buffers is used again by the next call, and by a call within."""
    array = bytearray(b"x" * 100_000)

    class Within:
        def __reduce__(self):
            inner = parcels.pack_message(pickle.PickleBuffer(array))
            assert [bytes(buffer) for buffer in inner[1]] == [array]
            return str, ("within",)

    for _ in range(3):
        data, buffers = parcels.pack_message([Within(), pickle.PickleBuffer(array)])
        assert len(buffers) == 1
        assert pickle.loads(data, buffers=buffers)[0] == "within"
        message = parcels.pack_message(Within())
        assert type(message) is bytes
        with pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
            parcels.pack_message([pickle.PickleBuffer(array), lambda: None])
        assert parcels.pack_message(5) == message_of(pickle.dumps(5, 5))


def test_the_buffers_of_one_object_are_not_those_of_the_next():
    """Though the first had none: another thread may pickle before it is sent."""
    first = parcels.pack_message("x" * 10_000)
    second = parcels.pack_message(pickle.PickleBuffer(bytearray(100_000)))
    assert first[1] == []
    assert len(second[1]) == 1


@pytest.mark.parametrize("call", ["bcast_pickle", "gather_pickle"])
def test_a_root_that_there_is_not_is_refused_and_no_more(comm, call):
    with pytest.raises(ValueError, match=r"^root is 99"):
        getattr(comm, call)(1, root=99)
    assert comm.failure is None
    assert comm.allgather_pickle(1) == [1]


def test_ctrl_c_before_the_first_step_ends_the_communicator(comm):
    """The heads have gone, and the frames have not."""

    def press(frame, event, _):
        if event == "call" and frame.f_code is steps.run.__code__:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(press)
    try:
        with pytest.raises(KeyboardInterrupt):
            comm.allgather_pickle("x" * 100_000)
    finally:
        sys.setprofile(None)
    assert "rank 0 has left allgather_pickle: KeyboardInterrupt" in str(comm.failure)


def test_small_buffers_go_into_the_pickle():
    small = bytearray(b"y" * (16 * 1024 - 1))
    packed = _ext.pack_object(
        parcels.BEGINS["send_pickle"], pickle.PickleBuffer(small), 1 << 20, 0
    )
    assert type(packed) is bytes
    assert pickle.loads(packed[28:]) == small
    large = pickle.PickleBuffer(small + b"y")
    packed = _ext.pack_object(parcels.BEGINS["send_pickle"], large, 1 << 20, 0)
    assert [buffer.nbytes for buffer in packed[1]] == [16 * 1024]


def test_threads_receive_at_a_time_into_memory_of_their_own(comm):
    count, failures = 300, []

    def exchange(number):
        try:
            for i in range(count):
                comm.send_pickle([number, i, "z" * (i % 50)], 0, number)
                got = comm.recv_pickle(0, number, **LIMIT)
                assert got == [number, i, "z" * (i % 50)]
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=exchange, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
