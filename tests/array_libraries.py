# SPDX-License-Identifier: BSD-3-Clause
"""CuPy, torch and Numba as far as ``ucp`` calls them, on memory of any driver.

A program calls install(). The layout of an array is that of a NumPy array that has
no contents; its bytes are in memory of a device.
"""

import contextlib
import sys
import types

import gpu
import numpy as np

current = {"device": 0}
stream = {"handle": None}  # of what arrays say in their interface


@contextlib.contextmanager
def device(number):
    before = current["device"]
    current["device"] = number
    yield
    current["device"] = before


class Array:
    """An array, or a view of one."""

    __slots__ = ("base", "lying", "memory")

    def __init__(self, memory, base, layout):
        self.memory = memory
        self.base = base  # what the layout is a view of: all of the memory
        self.lying = layout

    @classmethod
    def empty(cls, shape, dtype="u1"):
        layout = np.empty(shape, dtype)
        memory = gpu.Memory(max(layout.nbytes, 1), device=current["device"])
        return cls(memory, layout, layout)

    @classmethod
    def of(cls, values):
        """A copy of an array of NumPy."""
        made = cls.empty(values.shape, values.dtype)
        if values.nbytes:
            made.memory.write(np.ascontiguousarray(values).tobytes())
        return made

    @classmethod
    def around(cls, other):
        """An array on the memory of another library's array of bytes."""
        face = other.__cuda_array_interface__
        (nbytes,) = face["shape"]
        if isinstance(other, Array):
            return cls(other.memory, other.base, other.lying)
        layout = np.empty(nbytes, "u1")
        return cls(other, layout, layout)

    def _view(self, layout):
        return type(self)(self.memory, self.base, layout)

    @property
    def address(self):
        offset = self.lying.ctypes.data - self.base.ctypes.data
        return self.memory.address + offset

    @property
    def __cuda_array_interface__(self):
        is_plain = self.lying.flags.c_contiguous
        return {
            "version": 3,
            "shape": self.lying.shape,
            "typestr": self.lying.dtype.str,
            "data": (self.address if self.lying.size else 0, False),
            "strides": None if is_plain else self.lying.strides,
            "stream": stream["handle"],
        }

    def read(self):
        """The values, as an array of NumPy."""
        raw = np.frombuffer(self.memory.read(), "u1")
        first = self.lying.ctypes.data - self.base.ctypes.data
        if not self.lying.size:
            return np.empty(self.lying.shape, self.lying.dtype)
        whole = np.ndarray(
            self.lying.shape, self.lying.dtype, raw, first, self.lying.strides
        )
        return whole.copy()

    shape = property(lambda self: self.lying.shape)
    strides = property(lambda self: self.lying.strides)
    ndim = property(lambda self: self.lying.ndim)

    def __len__(self):
        return len(self.lying)

    def __getitem__(self, key):
        keys = key if isinstance(key, tuple) else (key,)
        if ... not in keys:
            keys = (*keys, ...)  # an array of no dimension is a view, too
        return self._view(self.lying[keys])

    def __reduce__(self):
        raise TypeError("pickled by a copy in memory of the host")


class CupyArray(Array):
    __slots__ = ()
    dtype = property(lambda self: self.lying.dtype)
    device = property(lambda self: device(self.memory.device))

    def copy(self, order):
        assert (order, current["device"]) == ("C", self.memory.device)
        return type(self).of(self.read())

    def view(self, dtype):
        return self._view(self.lying.view(dtype))

    def reshape(self, shape):
        return self._view(self.lying.reshape(shape))

    def transpose(self, axes=None):
        return self._view(self.lying.transpose(axes))

    def __add__(self, other):
        return type(self).of(self.read() + other.read())


class NumbaArray(Array):
    __slots__ = ()
    dtype = property(lambda self: self.lying.dtype)

    @classmethod
    def as_cuda_array(cls, shown):
        """An array that lies as an interface says, at the begin of a memory."""
        face = shown.__cuda_array_interface__
        base = np.empty(shown.nbytes, "u1")
        dtype = np.dtype(face["typestr"])
        lying = np.ndarray(face["shape"], dtype, base, 0, face["strides"])
        memory = getattr(shown._array, "memory", shown._array)
        assert face["data"][0] == memory.address
        return cls(memory, base, lying)

    def reshape(self, shape, order):
        return self._view(self.lying.reshape(shape, order=order))

    def transpose(self, axes):
        return self._view(self.lying.transpose(axes))


class Dtype:
    def __init__(self, name, numpy):
        self.name, self.numpy = name, np.dtype(numpy)

    def __str__(self):
        return f"torch.{self.name}"


DTYPES = {
    each.name: each
    for each in (
        Dtype("uint8", "u1"),
        Dtype("int64", "i8"),
        Dtype("float32", "f4"),
        Dtype("bfloat16", "V2"),
    )
}


class TorchTensor(Array):
    __slots__ = ("_backward_hooks", "is_conjugate", "is_cuda", "requires_grad")
    __dict__ = property(lambda self: {})
    layout = "strided"
    is_quantized = False

    def __init__(self, *args):
        super().__init__(*args)
        self.requires_grad = self.is_conjugate = False
        self.is_cuda, self._backward_hooks = True, None

    def is_conj(self):
        return self.is_conjugate

    def is_neg(self):
        return False

    def detach(self):
        return self._view(self.lying)

    def requires_grad_(self):
        self.requires_grad = True
        return self

    @property
    def dtype(self):
        return next(d for d in DTYPES.values() if d.numpy == self.lying.dtype)

    @property
    def device(self):
        return self.memory.device

    def element_size(self):
        return self.lying.itemsize

    def stride(self):
        size = self.lying.itemsize
        return tuple(stride // size for stride in self.lying.strides)

    def contiguous(self):
        return type(self).of(self.read())

    def data_ptr(self):
        return self.address

    def view(self, what):
        if isinstance(what, Dtype):
            return self._view(self.lying.view(what.numpy))
        return self._view(self.lying.reshape(what))

    def permute(self, axes):
        return self._view(self.lying.transpose(axes))

    def cuda(self):
        return self


def _cupy():
    cupy = types.ModuleType("cupy")
    cupy.ndarray = CupyArray
    cupy.empty = CupyArray.empty
    cupy.array = lambda other, order: CupyArray.of(other.read())

    def asarray(data):
        if isinstance(data, np.ndarray):
            return CupyArray.of(data)
        return CupyArray.around(data)

    cupy.asarray = asarray
    sys.modules["cupy"] = cupy


def _numba():
    numba = types.ModuleType("numba")
    numba.cuda = cuda = types.ModuleType("numba.cuda")
    arrays = types.ModuleType("numba.cuda.cudadrv.devicearray")
    arrays.DeviceNDArray = NumbaArray

    cuda.device_array = NumbaArray.empty
    cuda.as_cuda_array = NumbaArray.as_cuda_array
    cuda.to_device = NumbaArray.of
    for module in (numba, cuda, arrays):
        sys.modules[module.__name__] = module


def _torch():
    torch = types.ModuleType("torch")
    torch.Tensor = TorchTensor
    torch.strided = TorchTensor.layout
    torch.__dict__.update(DTYPES)

    def empty(shape, dtype, device):
        assert device == "cuda"
        return TorchTensor.empty(shape, dtype.numpy)

    torch.empty = empty
    torch.as_tensor = TorchTensor.around
    torch.frombuffer = lambda data, dtype: TorchTensor.of(
        np.frombuffer(data, dtype.numpy)
    )
    torch.cuda = types.ModuleType("torch.cuda")
    handle = types.SimpleNamespace(cuda_stream=0)
    torch.cuda.current_stream = lambda device: handle
    sys.modules["torch"] = torch


LIBRARIES = {"cupy": _cupy, "numba": _numba, "torch": _torch}


def install(*names):
    """Have a program find such libraries; all, where none is named."""
    for name in names or LIBRARIES:
        LIBRARIES[name]()
