# SPDX-License-Identifier: BSD-3-Clause
"""CuPy for examples, on the tests' own driver: NumPy computes.

An array is in memory of the host, of which the driver is told that it is a device's
when ``ucp`` asks where it is; then it is the driver's for good.
"""

import contextlib
import ctypes
import functools

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

_known = {}  # what the driver was told of: address and array


@functools.cache
def _driver():
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuInit(0) == 0
    return driver


def _tell(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    address = array.ctypes.data
    if _known.get(address) is not array and array.nbytes:
        assert address not in _known
        _known[address] = array
        _driver().standin_add(
            ctypes.c_void_p(address),
            ctypes.c_size_t(array.nbytes),
            ctypes.c_int(0),
            ctypes.c_bool(False),
        )


def _bare(value):
    if isinstance(value, ndarray):
        return value._values
    if isinstance(value, tuple | list):
        return type(value)(map(_bare, value))
    return value


def _wrapped(value):
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    if isinstance(value, tuple):
        return tuple(map(_wrapped, value))
    return value


def _called(function):
    def call(*args, **kwargs):
        named = {name: _bare(value) for name, value in kwargs.items()}
        return _wrapped(function(*map(_bare, args), **named))

    return call


class ndarray(NDArrayOperatorsMixin):
    device = contextlib.nullcontext()

    def __init__(self, values):
        self._values = values

    def __array__(self, *args, **kwargs):
        raise TypeError("an implicit copy to the host")

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return _called(getattr(ufunc, method))(*args, **kwargs)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._values, name)
        return _called(found) if callable(found) else _wrapped(found)

    @property
    def __cuda_array_interface__(self):
        _tell(self._values)
        face = self._values.__array_interface__
        return {
            name: face[name] for name in ("shape", "typestr", "data", "strides")
        } | {"version": 3}

    def __len__(self):
        return len(self._values)

    def __int__(self):
        return int(self._values)

    def __float__(self):
        return float(self._values)

    def __bool__(self):
        return bool(self._values)

    def __getitem__(self, key):
        return _wrapped(self._values[_bare(key)])

    def __setitem__(self, key, value):
        self._values[_bare(key)] = _bare(value)

    def get(self):
        return self._values.copy()


def asarray(value, dtype=None):
    """Copy an array of the host; take another one as it is."""
    if isinstance(value, ndarray):
        return value
    if isinstance(value, np.ndarray):
        return ndarray(value.astype(dtype or value.dtype))
    face = value.__cuda_array_interface__
    memory = (ctypes.c_ubyte * face["shape"][0]).from_address(face["data"][0])
    array = np.frombuffer(memory, face["typestr"])
    _known[array.ctypes.data] = _known[face["data"][0]] = array
    _owners.append(value)
    return ndarray(array)


_owners = []


def asnumpy(array):
    return array.get()


class _Device:
    def __init__(self, number):
        self.number = number

    def use(self):
        pass


class _Stream:
    def synchronize(self):
        pass


class cuda:
    Device = _Device
    get_current_stream = _Stream

    class runtime:
        @staticmethod
        def getDeviceCount():
            return 1


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    found = getattr(np, name)
    if isinstance(found, type) or not callable(found):
        return found
    return _called(found)
