# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in memory of a device, inside objects that are pickled.

CuPy and torch pickle such an array by a copy in memory of the host, and Numba does not
pickle it. Here the bytes of the array stay out of the pickle, and go from its memory
into memory of the receiver's device. In the pickle is a call of ``made()``, with the
shape, the type and the order of the items, and a buffer out of band, as protocol 5 of
pickle has them for memory of the host. The unpickler puts what has come into the place
of such a buffer, whatever that is: an array of ``ucp.cuda.allocator``.

Only arrays of exactly these libraries' types are treated so. All else is pickled as
pickle.dumps() does it, and so is all where there is no device.
"""

from __future__ import annotations

import copyreg
import importlib
import math
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .. import cuda
from ..exceptions import UCXError

_NUMBA_ARRAYS = "numba.cuda.cudadrv.devicearray"
_PLAIN = (int, str, bytes, float, bool, type(None))


class Frame:
    """The bytes of an array, which lie one behind the other in memory of a device."""

    __slots__ = ("__cuda_array_interface__", "_array", "nbytes")

    def __init__(self, array: Any, address: int, nbytes: int, **interface: Any) -> None:
        self._array = array  # whose memory it is
        self.nbytes = nbytes
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "stream": None,
            **interface,
        }


# ---- pickling ------------------------------------------------------------------


class _Dumper:
    """Pickles objects, one after the other."""

    __slots__ = (
        "_buffers",
        "_chunks",
        "_min_apart",
        "_num_modules",
        "_pickler",
        "_placed",
        "_reducers",
    )

    def __init__(self) -> None:
        self._chunks: list[bytes] = []  # of the pickle
        self._buffers: list[Any] = []
        self._placed: dict[int, tuple[pickle.PickleBuffer, Frame]] = {}
        self._min_apart = 0
        self._num_modules = 0
        self._reducers: dict[type, Callable[[Any], Any]] = {}
        self._pickler = pickle.Pickler(self, 5, buffer_callback=self._keep)

    def write(self, data: Any) -> None:
        """The pickler calls it; what is not bytes may be the program's bytearray."""
        self._chunks.append(data if type(data) is bytes else bytes(data))

    def dump(self, obj: object, min_apart: int) -> tuple[bytes, list[Any]]:
        """As ``dumps()``. After an exception this object is of no use."""
        if self._num_modules != len(sys.modules):
            self._reducers = _reducers(self._place)
            self._num_modules = 0 if _is_half_imported() else len(sys.modules)
        self._min_apart = min_apart
        self._pickler.dispatch_table = {**copyreg.dispatch_table, **self._reducers}
        self._pickler.dump(obj)
        self._pickler.clear_memo()  # it refers to the object
        pickled, buffers = b"".join(self._chunks), self._buffers
        self._chunks.clear()
        self._buffers = []
        return pickled, buffers

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Is a buffer to be in the pickle? Otherwise keep it."""
        found = self._placed.pop(id(buffer), None)
        if found is not None:
            self._buffers.append(found[1])
            return False
        raw = buffer.raw()
        if raw.nbytes < self._min_apart:
            return True
        self._buffers.append(raw)
        return False

    def _place(self, frame: Frame) -> pickle.PickleBuffer:
        """A buffer of the host that stands for a frame."""
        buffer = pickle.PickleBuffer(bytearray(1))
        self._placed[id(buffer)] = buffer, frame
        return buffer


_free: list[_Dumper] = []  # threads take them


def dumps(obj: object, min_apart: int) -> tuple[bytes, list[Any]]:
    """Pickle an object.

    Args:
        obj: the object.
        min_apart: buffers of memory of the host stay out of the pickle if they have
            at least so many bytes.

    Returns:
        The pickle, and what is not in it: memoryviews and ``Frame``s.
    """
    if type(obj) in _PLAIN:
        return pickle.dumps(obj, 5), []
    try:
        dumper = _free.pop()
    except IndexError:
        dumper = _Dumper()
    result = dumper.dump(obj, min_apart)
    _free.append(dumper)
    return result


def _reducers(place: Callable[[Frame], Any]) -> dict[type, Callable[[Any], Any]]:
    """How arrays are pickled, of those libraries that the program has imported. None
    where there is no device."""
    found: dict[type, Callable[[Any], Any]] = {}
    if not cuda.is_available():
        return found
    for module, name, reduce in _TYPES:
        kind = getattr(sys.modules.get(module), name, None)  # None: half imported
        if isinstance(kind, type):
            found[kind] = partial(reduce, place)
    return found


def _is_half_imported() -> bool:
    return any(
        module in sys.modules and not hasattr(sys.modules[module], name)
        for module, name, _ in _TYPES
    )


def _axes(
    shape: Sequence[int], strides: Sequence[int] | None, itemsize: int
) -> tuple[int, ...] | None:
    """The axes from that of the longest stride to that of the shortest one, if the
    items lie one behind the other in that order; None: they do not."""
    axes = tuple(range(len(shape)))
    if strides is None or math.prod(shape) <= 1:
        return axes
    axes = tuple(sorted(axes, key=lambda axis: -strides[axis]))
    expected = itemsize
    for axis in reversed(axes):
        if shape[axis] != 1:
            if strides[axis] != expected:
                return None
            expected *= shape[axis]
    return axes


def _reduce_cupy(place: Callable[[Frame], Any], array: Any) -> Any:
    with array.device:
        return _reduce_interface(place, "cupy", array, lambda: array.copy("C"))


def _reduce_numba(place: Callable[[Frame], Any], array: Any) -> Any:
    return _reduce_interface(place, "numba.cuda", array, lambda: _without_gaps(array))


def _reduce_interface(
    place: Callable[[Frame], Any], library: str, array: Any, copy: Callable[[], Any]
) -> Any:
    """Pickle an array by its __cuda_array_interface__ and its dtype."""
    shape, dtype = tuple(array.shape), array.dtype
    face = array.__cuda_array_interface__
    axes = _axes(shape, face.get("strides"), dtype.itemsize)
    if axes is None:
        array = copy()
        face, axes = array.__cuda_array_interface__, tuple(range(len(shape)))
    nbytes = math.prod(shape) * dtype.itemsize
    data = None
    if nbytes:
        address, stream = face["data"][0], face.get("stream")
        data = place(Frame(array, address, nbytes, stream=stream))
    return made, (data, library, dtype, shape, axes)


def _without_gaps(array: Any) -> Any:
    """A copy of an array of Numba, which has no function that makes it."""
    for name in ("cupy", "torch"):
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        if name == "cupy":
            return library.array(array, order="C")
        return library.as_tensor(array).contiguous()
    raise pickle.PicklingError(
        f"an array of Numba has gaps (strides {array.strides}): to copy it takes CuPy "
        "or torch, or a copy by the program"
    )


def _reduce_torch(place: Callable[[Frame], Any], tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if (
        not tensor.is_cuda
        or tensor.layout != torch.strided
        or tensor.is_quantized
        or tensor.is_conj()
        or tensor.is_neg()
        or tensor.__dict__
        or tensor._backward_hooks
    ):
        return tensor.__reduce_ex__(5)
    plain = tensor.detach()
    shape, itemsize = tuple(plain.shape), plain.element_size()
    axes = _axes(shape, plain.stride(), 1)
    if axes is None:
        plain, axes = plain.contiguous(), tuple(range(len(shape)))
    nbytes = math.prod(shape) * itemsize
    data = None
    if nbytes:
        # Torch's number of the default stream is that of no stream in the interface.
        stream = torch.cuda.current_stream(plain.device).cuda_stream or 1
        data = place(Frame(plain, plain.data_ptr(), nbytes, stream=stream))
    dtype = str(plain.dtype).removeprefix("torch.")
    return made, (data, "torch", dtype, shape, axes, tensor.requires_grad)


_TYPES: list[tuple[str, str, Callable[[Callable[[Frame], Any], Any], Any]]] = [
    ("cupy", "ndarray", _reduce_cupy),
    ("torch", "Tensor", _reduce_torch),
    (_NUMBA_ARRAYS, "DeviceNDArray", _reduce_numba),
]


# ---- unpickling ----------------------------------------------------------------


def allocate(nbytes: int) -> Any:
    """Allocate memory for a frame: on the current device, or on the host if this
    process cannot allocate on a device. In the second case ``made()`` says why."""
    if cuda.is_available():
        try:
            return cuda.allocator(nbytes)
        except ImportError:
            pass
    return bytearray(nbytes)


def allocate_anyhow(nbytes: int) -> Any:
    """Call ``allocate()``; if it fails, allocate on the host, so that the bytes can
    be received. ``made()`` then tries again."""
    try:
        return allocate(nbytes)
    except Exception:
        return bytearray(nbytes)


def made(
    data: Any,
    library: str,
    dtype: Any,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    *more: Any,
) -> Any:
    """Make an array.

    Args:
        data: its bytes, an array of any library; memory of the host if it could not be
            received into memory of a device; None: there are none.
        library: whose array it was, and is.
        dtype: NumPy's, or the name of torch's.
        shape: of the array.
        axes: those of ``shape``, in the order in which they lie in ``data``.
        more: what the library's function takes besides.
    """
    make = _MAKE[library]
    if not cuda.is_available():
        raise UCXError(
            f"there is an array of {library} in memory of a device in the object, and "
            "this process has no CUDA device: its sender has to copy it to the host"
        )
    try:
        module = importlib.import_module(library)
    except ImportError as exc:
        raise ImportError(
            f"there is an array of {library} in the object, and {library} cannot be "
            f"imported here: {exc}"
        ) from exc
    memory_shape = tuple(shape[axis] for axis in axes)
    back = tuple(sorted(range(len(axes)), key=axes.__getitem__))
    return make(module, data, dtype, memory_shape, back, *more)


def _is_on_host(data: Any) -> bool:
    return isinstance(data, bytearray | memoryview)


def _make_cupy(
    cupy: Any, data: Any, dtype: Any, shape: tuple[int, ...], back: tuple[int, ...]
) -> Any:
    if data is None:
        return cupy.empty(shape, dtype).transpose(back)
    if _is_on_host(data):
        numpy = importlib.import_module("numpy")
        data = numpy.frombuffer(data, "u1")
    return cupy.asarray(data).view(dtype).reshape(shape).transpose(back)


def _make_numba(
    numba: Any, data: Any, dtype: Any, shape: tuple[int, ...], back: tuple[int, ...]
) -> Any:
    strides = [dtype.itemsize] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    shape = tuple(shape[axis] for axis in back)
    if data is None:
        return numba.device_array(shape, dtype)
    if _is_on_host(data):
        numpy = importlib.import_module("numpy")
        data = numba.to_device(numpy.frombuffer(data, "u1"))
    array = numba.as_cuda_array(
        Frame(
            data,
            data.__cuda_array_interface__["data"][0],
            math.prod(shape) * dtype.itemsize,
            shape=shape,
            typestr=dtype.str,
            strides=tuple(strides[axis] for axis in back),
        )
    )
    return array if array.dtype == dtype else array.view(dtype)  # of records


def _make_torch(
    torch: Any,
    data: Any,
    name: str,
    shape: tuple[int, ...],
    back: tuple[int, ...],
    requires_grad: bool,
) -> Any:
    dtype = getattr(torch, name)
    if data is None:
        flat = torch.empty(0, dtype=dtype, device="cuda")
    elif _is_on_host(data):
        flat = torch.frombuffer(data, dtype=torch.uint8).cuda()
    else:
        flat = torch.as_tensor(data)
    tensor = flat.view(dtype).view(shape).permute(back)
    return tensor.requires_grad_() if requires_grad else tensor


_MAKE: dict[str, Callable[..., Any]] = {
    "cupy": _make_cupy,
    "numba.cuda": _make_numba,
    "torch": _make_torch,
}
