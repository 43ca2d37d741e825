# SPDX-License-Identifier: BSD-3-Clause
"""Reading Dask's configuration, and starting UCX with it."""

from __future__ import annotations

import difflib
import importlib
import inspect
import threading
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any
from weakref import WeakSet

import dask.config
import yaml
from dask.utils import parse_bytes, parse_timedelta

import ucp
from ucp import cuda

from .._core.context import current_context
from .._core.lifecycle import current_worker
from .._core.token import read_token
from .._core.worker import Worker

_NAMESPACE = "distributed.comm.ucp"
# Of ucx-py's and ucxx's backends: what a false takes away from UCX. Connections
# are made without rdmacm.
_LEGACY = {
    "tcp": "tcp",
    "infiniband": "ib",
    "nvlink": "cuda_ipc",
    "cuda-copy": "cuda_copy",
}

_lock = threading.Lock()
_workers: WeakSet[Worker] = WeakSet()  # those with an allocator
_has_pool = False


_defaults = yaml.safe_load(
    resources.files(__package__).joinpath("ucp.yaml").read_text()
)


def load_defaults() -> None:
    """Add the defaults in ``ucp.yaml`` to Dask's configuration."""
    dask.config.update_defaults(_defaults)


def get(key: str) -> Any:
    """Return a value below ``distributed.comm.ucp``, or the default of its key."""
    default = _defaults["distributed"]["comm"]["ucp"][key]
    return dask.config.get(f"{_NAMESPACE}.{key}", default)


def get_bytes(key: str) -> int:
    return int(parse_bytes(get(key)))


def get_seconds(key: str) -> float:
    return float(parse_timedelta(get(key), default="seconds"))


def shard_size() -> int | None:
    value = get("shard")
    return None if value is None else int(parse_bytes(value))


def ucx_options() -> dict[str, str]:
    """Return UCX's options: of earlier backends' keys, then of ``options``."""
    legacy = dask.config.get("distributed.comm.ucx", None) or {}
    options = _as_options(legacy.get("environment") or {})
    without = [name for key, name in _LEGACY.items() if _is_off(legacy, key)]
    if without:
        options.setdefault("TLS", "^" + ",".join(without))
    return {**options, **_as_options(get("options") or {})}


def _is_off(legacy: dict[str, Any], key: str) -> bool:
    return legacy.get(key, legacy.get(key.replace("-", "_"))) is False


def _as_options(values: dict[str, Any]) -> dict[str, str]:
    """Convert ``{"some-option": 1}`` to ``{"SOME_OPTION": "1"}``."""
    return {key.replace("-", "_").upper(): _as_text(val) for key, val in values.items()}


def _as_text(value: Any) -> str:
    """Convert a value of YAML to the text that UCX expects."""
    if isinstance(value, bool):
        return "y" if value else "n"
    return str(value)


def ucp_config() -> ucp.Config:
    values = {key.replace("-", "_"): val for key, val in (get("config") or {}).items()}
    token = get("token")
    if token is not None:
        values.setdefault("token", str(token).encode())
    path = get("token-file")
    if path is not None:
        if token is not None:
            raise ValueError("both token and token-file are configured")
        values.setdefault("token", read_token(path))
    seconds = parse_timedelta(
        dask.config.get("distributed.comm.timeouts.tcp"), default="seconds"
    )
    if "keepalive_ns" not in values:
        values.setdefault("keepalive", seconds)
    return ucp.Config(**values)


def check_keys() -> None:
    """Refuse unknown keys.

    If a mistyped ``token`` were ignored, every peer could connect.

    Raises:
        ValueError: there is an unknown key; the text lists the known ones.
    """
    given = dask.config.get(_NAMESPACE, None) or {}
    _refuse_unknown(_NAMESPACE, given, _defaults["distributed"]["comm"]["ucp"])
    fields = inspect.signature(ucp.Config).parameters
    _refuse_unknown(f"{_NAMESPACE}.config", given.get("config") or {}, fields)


def _refuse_unknown(
    place: str, given: Mapping[str, object], known: Iterable[str]
) -> None:
    names = {_canonical(name): name.replace("_", "-") for name in known}
    for key in given:
        if _canonical(key) not in names:
            close = difflib.get_close_matches(_canonical(key), names, 1)
            hint = f", is {names[close[0]]!r} meant?" if close else "."
            raise ValueError(
                f"{place} in Dask's configuration has no key {key!r}{hint} "
                f"There are: {', '.join(sorted(names.values()))}"
            )


def _canonical(key: str) -> str:
    """Replace ``_`` by ``-``, which Dask treats as equal."""
    return str(key).replace("-", "_")


def start() -> Worker:
    """Return the worker of the running loop; start UCX if it is not started.

    Raises:
        ValueError: UCX or ``ucp.Config`` refuses the configuration, or it has an
            unknown key.
    """
    check_keys()
    if current_context() is None:
        with _lock:
            _start_ucx()
    worker = current_worker()
    if worker not in _workers:
        _workers.add(worker)
        _give_allocator(worker)
    return worker


def _start_ucx() -> None:
    if current_context() is not None:
        return
    _make_pool()
    try:
        ucp.init(ucx_options(), env_takes_precedence=True, config=ucp_config())
    except (ucp.UCXBaseException, ValueError, OverflowError, TypeError) as exc:
        raise ValueError(f"{_NAMESPACE} in Dask's configuration: {exc}") from exc
    except RuntimeError:  # something else of the program was faster
        if current_context() is None:
            raise


def _make_pool() -> None:
    """Make RMM's pool of the size that ``distributed.rmm.pool-size`` names."""
    global _has_pool
    size = dask.config.get("distributed.rmm.pool-size", None)
    if size is None or _has_pool:
        return
    _has_pool = True
    try:
        rmm = importlib.import_module("rmm")
    except ImportError:
        return
    rmm.reinitialize(pool_allocator=True, initial_pool_size=parse_bytes(size))


def _give_allocator(worker: Worker) -> None:
    """Receive frames that were sent from a device in device memory, if there is one."""
    if cuda.is_available():
        # distributed makes an rmm.DeviceBuffer of such memory only.
        cuda._prefer("rmm")
        worker.register_am_allocator(cuda.allocator, "cuda")
