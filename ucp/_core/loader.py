# SPDX-License-Identifier: BSD-3-Clause
"""Find UCX and libumx and load them before ``ucp._ext`` is imported.

The extension is linked with ``libumx.so.0``, and that with ``libucp.so.0`` and
``libucs.so.0``, without an rpath. The dynamic linker uses a library of that soname
if one is loaded already, so the extension uses the libraries that this module
loads. That is the libumx of this package: a process has one copy, whether other
extensions use it before or after this package. The variable ``UCP_UCX`` of
the environment says which UCX that is:

- ``wheel`` (default): the package ``libucx-cu12`` or ``libucx-cu13``;
- ``system``: what the dynamic linker finds;
- ``/dir``: an installation with ``/dir/lib/libucp.so.0``.

A UCX that is already in the process has precedence over all of them: two copies
would both replace functions of the memory allocator. UCX finds its transport
modules relative to its own library. After the import the environment is the same
as before.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from .. import _version
from . import checkout, neighbours, platforms

#: Oldest UCX that works.
MIN_VERSION = (1, 13)

# In the order in which they need each other.
_SONAMES = ("libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0")

# A wheel contains copies, not links: lib/libucs.so and lib/libucs.so.0 are two
# files, and loading both would load UCX twice. libucx.load_library() uses these
# names too, so other users of the wheel share one copy with this package.
_WHEEL_NAMES = ("libucm.so.0", "libucs.so", "libuct.so", "libucp.so")

# How long UCX spins at each function of libc that it patches when it is loaded,
# for other threads to leave it: 50 ms each, 0.35 s in all, since 1.21.
_GRACE = "UCX_MEM_BISTRO_GRACE_DURATION"

_PACKAGE = Path(__file__).parents[1]
_UMX = "libumx.so.0"

_CHOICES = (
    "Install UCX with 'pip install libucx-cu12' (or libucx-cu13), or set "
    "UCP_UCX=system to use the system's libucp.so.0, or UCP_UCX=/dir to use "
    "/dir/lib/libucp.so.0."
)


@dataclass(frozen=True)
class WhichUCX:
    """The UCX that this process uses.

    Attributes:
        kind: ``"wheel"``, ``"system"``, ``"dir"``, or ``"loaded"`` when
            another library had loaded UCX before.
        path: the file of ``libucp``.
        version: such as ``"1.22.0"``.
    """

    kind: str
    path: str
    version: str


_RTLD_DI_LINKMAP = 2  # dlfcn.h


class _LinkMap(ctypes.Structure):
    _fields_ = (("l_addr", ctypes.c_size_t), ("l_name", ctypes.c_char_p))


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    )


@functools.cache
def load() -> WhichUCX:
    """Load the UCX that ``UCP_UCX`` names, once per process.

    Raises:
        ImportError: there is no usable UCX, or files of another distribution are
            mixed with those of this package; the text says what to do.
    """
    reason = platforms.unsupported()
    if reason is not None:
        raise ImportError(reason)
    _check_proc()
    neighbours.check()
    _check_extension_is_here()
    is_loaded = _has_libumx()
    which = _load_ucx()
    if not is_loaded:
        _load_libumx()
    return which


def which_ucx() -> WhichUCX:
    """Return which UCX this process uses: its kind, its path and its version."""
    return load()


def get_include() -> str:
    """Return the directory of the C headers, for a compiler's option ``-I``.

    ``#include <umx/umx.h>`` finds libumx's headers there.
    """
    return str(_PACKAGE / "include")


def get_library_dir() -> str:
    """Return the directory of libumx, for a linker's option ``-L``.

    ``-lumx`` finds ``libumx.so.0`` there, which this process uses as well. Its
    folders ``pkgconfig`` and ``cmake`` are for pkg-config's ``PKG_CONFIG_PATH``
    and for CMake's ``umx_DIR``.
    """
    return str(_PACKAGE / "lib")


def _load_ucx() -> WhichUCX:
    choice = os.environ.get("UCP_UCX") or "wheel"
    loaded = _loaded_directory()
    if loaded is not None:
        return _load("loaded", _loaded_files(loaded))
    if choice == "wheel":
        return _load("wheel", _wheel_files())
    if choice == "system":
        return _load("system", list(_SONAMES))
    if os.path.isabs(choice):
        return _load("dir", _dir_files(Path(choice)))
    raise ImportError(
        f"UCP_UCX={choice!r}: expected 'wheel', 'system' or an absolute path"
    )


def _check_proc() -> None:
    """Refuse a system without /proc, which UCX reads while it is loaded."""
    if not os.path.exists("/proc/self/maps"):
        raise ImportError(
            "ucp needs /proc, which is not mounted here: 'mount -t proc proc /proc'"
        )


def _check_extension_is_here() -> None:
    archive = next((path for path in _PACKAGE.parents if path.is_file()), None)
    if archive is not None:
        raise ImportError(
            f"{_PACKAGE} lies in the archive {archive}, and no library can be "
            "loaded from there: unpack it, or 'pip install' ucp into a folder."
        )
    if not checkout.is_compiled(_PACKAGE):
        raise ImportError(
            f"{_PACKAGE} has no compiled extension: it is a source tree, and no ucp is "
            f"installed for {sys.executable}. {checkout.remedy()}"
        )


def _has_libumx() -> bool:
    """Return whether something else has loaded libumx; refuse one of another build.

    The dynamic linker gives the extension that library, since it has the soname for
    which the extension asks.
    """
    try:
        loaded = _open(_UMX, os.RTLD_NOLOAD)
    except OSError:
        return False
    file = _file_of_library(loaded)
    own = _PACKAGE / "lib" / _UMX
    if file.exists() and own.exists() and file.samefile(own):
        return True
    try:
        version = _text_of(loaded.umx_version_string)
        headers = _text_of(loaded.umx_headers_id)
    except AttributeError:  # one that is too old, or another library of that name
        version, headers = "unknown", ""
    if version == _version.__version__ and headers == _headers_id():
        return True
    raise ImportError(
        f"this process has loaded {file}, libumx of version {version}, and ucp "
        f"{_version.__version__} needs {own}: both are {_UMX}, and a process has "
        f"one library of a name. Build what loads {file} with ucp's own: headers "
        "in ucp.get_include(), library in ucp.get_library_dir(). Or start Python "
        "without it: look at LD_LIBRARY_PATH and LD_PRELOAD."
    )


def _load_libumx() -> None:
    library = _PACKAGE / "lib" / _UMX
    try:
        _open(str(library))
    except OSError as error:
        _refuse_noexec([str(library)])
        raise ImportError(
            f"ucp cannot load its library {library}: {error}. Install ucp "
            "again; if UCP_UCX names a UCX, look whether that is too old"
        ) from error


def _headers_id() -> str:
    """Return what umx_headers_id() returns in this package's libumx."""
    import hashlib  # takes milliseconds, and is seldom needed

    files = sorted((_PACKAGE / "include/umx").glob("*.h"))
    content = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()[:16]


def _text_of(function: ctypes._NamedFuncPointer) -> str:
    function.restype = ctypes.c_char_p
    return os.fsdecode(function())


def _loaded_directory() -> Path | None:
    """Return the directory of a libucs that was loaded before; None: none was."""
    try:
        libucs = _open("libucs.so.0", os.RTLD_NOLOAD)
    except OSError:
        return None
    return _file_of(libucs.ucs_status_string).parent


def _loaded_files(directory: Path) -> list[str]:
    """What is loaded by its soname; what is not, from beside libucs."""
    names = []
    for soname in _SONAMES:
        try:
            _open(soname, os.RTLD_NOLOAD)
        except OSError:
            names.append(str(directory / soname))
        else:
            names.append(soname)
    return names


def _wheel_files() -> list[str]:
    spec = find_spec("libucx")
    for location in (spec and spec.submodule_search_locations) or ():
        files = [Path(location, "lib", name) for name in _WHEEL_NAMES]
        if all(file.exists() for file in files):
            return [str(file) for file in files]
    raise ImportError(f"ucp found no package libucx. {_CHOICES}")


def _dir_files(prefix: Path) -> list[str]:
    for name in ("lib", "lib64"):
        files = [prefix / name / soname for soname in _SONAMES]
        if all(file.exists() for file in files):
            return [str(file) for file in files]
    raise ImportError(
        f"UCP_UCX={prefix}: there is no {prefix}/lib/libucp.so.0 with libuct, "
        "libucs and libucm beside it"
    )


@contextlib.contextmanager
def _no_grace_if_alone() -> Iterator[None]:
    """Set ``_GRACE`` to 0 in the environment while UCX is loaded.

    This is done only without other threads: then there is no thread to wait for,
    and none that reads the environment in between.
    """
    if _GRACE in os.environ or len(os.listdir("/proc/self/task")) > 1:
        yield
        return
    os.environ[_GRACE] = "0"
    try:
        yield
    finally:
        del os.environ[_GRACE]


def _open_all(kind: str, names: list[str]) -> ctypes.CDLL:
    """Open the libraries in order; return the last, which is libucp."""
    libucm, *others = names
    # libucm needs libucs without being linked with it. libucs is linked with
    # libucm, and not every libucs has an rpath. So libucm is opened first, lazily;
    # where that is refused (LD_BIND_NOW), libucs may still find it.
    with contextlib.suppress(OSError):
        _open(libucm)
    try:
        with _no_grace_if_alone():
            return [_open(name) for name in others][-1]
    except OSError as error:
        _refuse_noexec(names)
        hint = _CHOICES
        if kind == "system":
            hint = (
                "Install the system's UCX (Debian: libucx0), or unset UCP_UCX to "
                "use the package libucx-cu12."
            )
        raise ImportError(f"ucp cannot load UCX ({kind}): {error}. {hint}") from error


def _refuse_noexec(names: list[str]) -> None:
    """Raise ImportError if one of the files may not be executed where it lies."""
    for name in names:
        try:
            flags = os.statvfs(name).f_flag if os.path.isabs(name) else 0
        except OSError:
            continue
        if flags & os.ST_NOEXEC:
            raise ImportError(
                f"{name} cannot be loaded: its file system is mounted with noexec. "
                "Install the package on another one, or mount it without noexec."
            )


def _open(name: str, mode: int = 0) -> ctypes.CDLL:
    """``ctypes.CDLL`` that binds lazily: CDLL itself always binds at once."""
    libc = ctypes.CDLL(None)
    libc.dlopen.argtypes = (ctypes.c_char_p, ctypes.c_int)
    libc.dlopen.restype = ctypes.c_void_p
    libc.dlerror.restype = ctypes.c_char_p
    handle = libc.dlopen(os.fsencode(name), mode | os.RTLD_LAZY | os.RTLD_LOCAL)
    if not handle:
        raise OSError(os.fsdecode(libc.dlerror() or b"not loaded"))
    return ctypes.CDLL(name, handle=handle)


def _load(kind: str, names: list[str]) -> WhichUCX:
    libucp = _open_all(kind, names)
    numbers = [ctypes.c_uint() for _ in range(3)]
    libucp.ucp_get_version(*map(ctypes.byref, numbers))
    version = tuple(number.value for number in numbers)
    text = ".".join(map(str, version))
    path = str(_file_of(libucp.ucp_get_version))
    if version < MIN_VERSION:
        least = ".".join(map(str, MIN_VERSION))
        raise ImportError(
            f"ucp needs UCX {least} or newer; {path} is {text}. {_CHOICES}"
        )
    return WhichUCX(kind, path, text)


def _file_of_library(library: ctypes.CDLL) -> Path:
    """The file of ``library``, whatever functions it has."""
    link = ctypes.POINTER(_LinkMap)()
    dlinfo = ctypes.CDLL(None).dlinfo
    dlinfo.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    dlinfo(library._handle, _RTLD_DI_LINKMAP, ctypes.byref(link))
    return Path(os.fsdecode(link.contents.l_name or b"") if link else "")


def _file_of(function: object) -> Path:
    """The file of the library that has ``function``."""
    info = _DlInfo()
    address = ctypes.cast(function, ctypes.c_void_p)  # type: ignore[arg-type]
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(_DlInfo))
    dladdr(address, ctypes.byref(info))
    return Path(os.fsdecode(info.dli_fname or b""))
