# SPDX-License-Identifier: BSD-3-Clause
"""Objects in memory of a device that distributed knows as it knows cuDF's."""

import ctypes
import math
import sys
import types

import gpu
import numpy as np
from distributed.protocol import dask_deserialize, dask_serialize
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize

import ucp


def use_array_library():
    """On the tests' own driver, a CuPy that makes arrays to receive into."""
    if ucp.cuda.is_available() and gpu.is_fake():
        sys.modules["cupy"] = types.ModuleType("cupy")
        sys.modules["cupy"].empty = lambda nbytes, dtype: gpu.Memory(nbytes)


def content(first, nbytes):
    return bytes((first + i) % 251 for i in range(nbytes))


class Series:
    """Two columns: of a device, or where there is none, bytes of the host."""

    def __init__(self, columns, via=None):
        self.columns = columns
        self.via = via  # the family by which it has come

    @classmethod
    def of(cls, data, via=None):
        columns = list(data)
        if ucp.cuda.is_available():
            columns = [gpu.Memory(len(column)) for column in data]
            for column, values in zip(columns, data, strict=True):
                column.write(values)
        return cls(columns, via)

    def __reduce__(self):
        return type(self).of, (self.read(), "pickle")

    @property
    def nbytes(self):
        return sum(map(len, self.read()))

    def is_on_device(self):
        return all(hasattr(c, "__cuda_array_interface__") for c in self.columns)

    def read(self):
        return [
            read_device(c) if hasattr(c, "__cuda_array_interface__") else bytes(c)
            for c in self.columns
        ]


class Table(Series):
    """The function of the family "cuda" does not know all of them."""


class HostOnly(Series):
    """There is no function of the family "cuda"; that of "dask" takes it."""


class Pickled(Series):
    """It is only pickled."""


def read_device(array):
    """The bytes of any library's array in memory of the first device."""
    face = array.__cuda_array_interface__
    nbytes = math.prod(face["shape"]) * np.dtype(face["typestr"]).itemsize
    data = ctypes.create_string_buffer(nbytes)
    with gpu.Context(0):
        gpu.call(
            "cuMemcpyDtoH_v2",
            data,
            ctypes.c_void_p(face["data"][0]),
            ctypes.c_size_t(nbytes),
        )
    return data.raw


@cuda_serialize.register(Series)
def _(series):
    if isinstance(series, HostOnly | Pickled | Table):
        raise NotImplementedError
    return {"kind": "series"}, list(series.columns)


@cuda_deserialize.register(Series)
def _(header, frames):
    assert header["kind"] == "series"
    return Series(list(frames), "cuda")


@dask_serialize.register(Series)
def _(series):
    if isinstance(series, Pickled):
        raise NotImplementedError
    return {}, series.read()


@dask_deserialize.register(Series)
def _(header, frames):
    return Series.of([bytes(frame) for frame in frames], "dask")


# What is run on workers.

KINDS = {kind.__name__: kind for kind in (Series, Table, HostOnly, Pickled)}


def make(kind, nbytes):
    return KINDS[kind].of([content(3, nbytes), content(7, nbytes)])


def make_many(nbytes, count):
    return {str(i): make("Series", nbytes) for i in range(count)}


def describe(series):
    """The family, whether it is on a device, whether all bytes are right."""
    nbytes = len(series.read()[0])
    is_right = series.read() == [content(3, nbytes), content(7, nbytes)]
    return series.via, series.is_on_device(), is_right


def describe_many(many):
    return {describe(series) for series in many.values()}
