# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/interface
"""Whatever an array interface says: a clear error, or it is what it says."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from objects import kept_objects

import ucp
from ucp.testing import connected_pair, live_objects

NAMES = ["__array_interface__", "__cuda_array_interface__"]

_MEMORY = np.zeros(64, dtype="u1")

sizes = st.one_of(
    st.integers(0, 4), st.sampled_from([-1, 2**31, 2**62, 2**63 - 1, 2**63, 2**64])
)
junk = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    *(st.binary(max_size=8), st.lists(st.integers(), max_size=3)),
    st.tuples(junk_item := st.one_of(st.none(), st.integers(), st.text()), junk_item),
)
shapes = st.lists(sizes, max_size=70).map(tuple) | st.lists(sizes, max_size=3).map(
    tuple
)
typestrs = st.from_regex(
    r"[<>|=x]?[biufcmMSUVOtz?][ +-]?[0-9]{0,21}(\[ns\])?", fullmatch=True
)
interfaces = st.fixed_dictionaries(
    {},
    optional={
        "shape": shapes | junk,
        "typestr": typestrs | st.just("<f8") | junk,
        "strides": shapes | junk,
        "data": st.tuples(st.sampled_from([0, _MEMORY.ctypes.data, -1]), st.booleans())
        | st.builds(bytearray, st.integers(0, 64))
        | junk,
        "offset": sizes | junk,
        "mask": st.none() | junk,
        "version": junk,
    },
)


class Array:
    """Has an interface and nothing else."""

    def __init__(self, name, interface):
        setattr(self, name, interface)


@pytest.mark.parametrize("name", NAMES)
async def test_what_an_interface_says_is_checked(name):
    async with connected_pair() as (client, _server):
        before = kept_objects()["requests"]

        @settings(max_examples=500, derandomize=True, database=None, deadline=None)
        @given(interface=interfaces | junk)
        def check(interface):
            # A receive that gets no message touches no memory.
            try:
                request = client.recv(Array(name, interface))
            except (ValueError, TypeError, OverflowError, NotImplementedError):
                return
            assert request.cancel()

        check()
        for _ in range(3):
            ucp.progress()
        assert live_objects()["requests"] == before


@settings(
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    dtype=st.sampled_from(["u1", "<i2", ">f8", "<U3", "S5", "<M8[ns]", "V0"]),
    shape=st.lists(st.integers(0, 3), max_size=4),
    order=st.permutations(range(4)),
    step=st.sampled_from([1, 1, 2, -1]),
)
def test_an_interface_is_taken_as_numpy_means_it(small_pair, dtype, shape, order, step):
    array = np.zeros(shape, dtype=dtype)
    array = array.transpose([axis for axis in order if axis < array.ndim])
    if array.ndim:
        array = array[::step]
    client, server = small_pair
    proxy = Array("__array_interface__", array.__array_interface__)
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        with pytest.raises(ValueError, match=r"^expected a contiguous buffer"):
            client.send(proxy)
        return
    assert client.send(proxy).done()
    while server.probe() is None:
        server.worker.progress()
    assert server.probe() == (array.nbytes, None)
    assert server.recv(bytearray(array.nbytes)).done()


@pytest.fixture
def small_pair():
    """Two endpoints outside of any event loop."""
    import asyncio

    loop = asyncio.new_event_loop()
    pair = connected_pair()
    yield loop.run_until_complete(pair.__aenter__())
    loop.run_until_complete(pair.__aexit__(None, None, None))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.mark.parametrize(
    "typestr",
    [
        *("<U9223372036854775807", "<U2305843009213693952", "|V99999999999999999999"),
        *("<f +8", "<f-8", "<f 8", "|V2147483648"),
    ],
)
async def test_item_sizes_that_are_none_are_refused(typestr):
    interface = {"shape": (1,), "typestr": typestr, "data": bytearray(64)}
    async with connected_pair() as (client, _server):
        with pytest.raises(ValueError, match="'typestr' has no usable item size"):
            client.recv(Array("__array_interface__", interface))
