# SPDX-License-Identifier: BSD-3-Clause
"""DLPack's capsules, made by hand."""

import ctypes

import numpy as np

CPU, CUDA, CUDA_HOST, OPENCL, MANAGED = 1, 2, 3, 4, 13
READ_ONLY, COPIED = 1, 2


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

MEMORY = np.arange(64, dtype="u1")


class Handmade:
    """Hands out what a test says; the tensor is 64 bytes if nothing else."""

    def __init__(self, name=b"dltensor_versioned", major=1, flags=0, **fields):
        self._name = name
        self._sizes = []  # kept alive
        self.streams = []  # asked for
        values = {
            "data": MEMORY.ctypes.data,
            "device_type": CPU,
            "bits": 8,
            "lanes": 1,
            "shape": [64],
            "strides": None,
            **fields,
        }
        for key in ("shape", "strides"):
            if values[key] is not None:
                values[key] = (ctypes.c_int64 * len(values[key]))(*values[key])
                values.setdefault("ndim", len(values[key]))
                self._sizes.append(values[key])
                values[key] = ctypes.cast(values[key], ctypes.POINTER(ctypes.c_int64))
        tensor = Tensor(**values)
        if name == b"dltensor":
            self._managed = Managed(tensor=tensor)
        else:
            self._managed = Versioned(major=major, flags=flags, tensor=tensor)

    def __dlpack_device__(self):
        return (CPU, 0)

    def __dlpack__(self, max_version=None, stream=None):
        self.streams.append(stream)
        return _new_capsule(ctypes.addressof(self._managed), self._name, None)
