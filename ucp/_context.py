# SPDX-License-Identifier: BSD-3-Clause
"""The process's UCX context: made on first use, shared by all workers."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import numbers
import os
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakSet

from . import _ext, _loader
from ._token import as_token, token_of_environment
from .exceptions import UCXConfigError, UCXError

logger = logging.getLogger("ucp")

# What libumx's log levels are in the logging module.
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

_NO_DEVICE = -14  # UCS_ERR_NO_DEVICE
# UCX's options that leave it with fewer transports or devices.
_CHOOSING = ("TLS", "NET_DEVICES", "SHM_DEVICES", "SELF_DEVICES", "ACC_DEVICES")

_DEFAULT_CONNECT_TIMEOUT = 5.0  # seconds; ucx-py's


# The fields of Config that are times. libumx counts nanoseconds.
_TIMES = ("spin", "drain", "close_timeout", "connect_timeout", "heartbeat", "keepalive")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Limits and thresholds of libumx; None means its default.

    Times are in seconds. Each can be given as an integer of nanoseconds instead,
    by the name that it has in C: ``Config(spin_ns=0)`` equals ``Config(spin=0)``.

    The defaults and their reasons are in ``src/core/config.c``.

    Raises:
        TypeError: a time is no number.
        ValueError: a time is not finite, or given by both of its names.

    ``init()`` raises UCXConfigError for a value that is out of range.
    """

    spin: float | None = None
    """Longest time one ``await`` polls before it sleeps; 0 means never."""
    drain: float | None = None
    """Longest time spent on messages before the loop gets its turn."""
    rndv_thresh_shm: int | None = None
    """Bytes; sends of this size and above go by rendezvous over shared
    memory."""
    rndv_thresh_net: int | None = None
    """Bytes; sends of this size and above go by rendezvous without shared
    memory."""
    cma_min: int | None = None
    """Bytes; sends of this size and above, up to ``cma_max``, are read by the
    receiver out of the sender's memory, where the system allows that."""
    cma_max: int | None = None
    """Bytes; longer sends are not read out of the sender's memory. 0 means
    that none are."""
    credit_bytes: int | None = None
    """Eager bytes a peer may have sent that are not received yet, and 512 for
    each eager message."""
    credit_messages: int | None = None
    """Eager messages likewise, of each channel."""
    credit_rndv: int | None = None
    """Announced large messages likewise, of all channels; each channel may have
    16 more."""
    channels_max: int | None = None
    """Channels that a peer may send on to one endpoint, all kinds together,
    besides the endpoint's own messages."""
    close_timeout: float | None = None
    """Deadline of ``close()`` without a timeout and of closes in the
    background."""
    connect_timeout: float | None = None
    """Longest time the handshake of an accepted endpoint may take."""
    heartbeat: float | None = None
    """A peer silent for this long is given up with UCXConnectionReset: one that
    is stopped, or behind a network that has gone. 0 means never; longer than
    any peer may hold its loop."""
    keepalive: float | None = None
    """A peer whose host has not answered the kernel's probes for this long is
    given up with UCXConnectionReset; it may be as busy as it likes. Rounded up
    to whole seconds. 0 means never."""
    goodbye_bytes: int | None = None
    """Unread large-message bytes pulled in when the peer closes."""
    rma_ucx: int | None = None
    """Whether ``put`` and ``get`` of memory that is not mapped are UCX's own: 0
    never, 1 where the connection has RDMA lanes, 2 always. UCX does not check
    what peers reach: with 2 and without RDMA a peer's stale key may end this
    process."""
    frames_copy_max: int | None = None
    """Bytes; the small frames of a message are copied together up to here, else
    UCX gathers them."""
    frames_alone_min: int | None = None
    """Bytes; frames of this size and above travel on their own."""
    frames_max: int | None = None
    """Frames of one message, sent or received. A peer that sends more is
    dropped."""
    frames_bytes_max: int | None = None
    """Bytes of all frames of one message, sent or received. A peer that sends
    more is dropped."""
    token: bytes | None = None
    """Shared secret of 1 to 256 bytes; peers without it are refused. See
    ``init()`` for other ways to give it."""

    # In the order of _TIMES. Accepted, and kept as seconds in the fields above.
    spin_ns: dataclasses.InitVar[int | None] = None
    drain_ns: dataclasses.InitVar[int | None] = None
    close_timeout_ns: dataclasses.InitVar[int | None] = None
    connect_timeout_ns: dataclasses.InitVar[int | None] = None
    heartbeat_ns: dataclasses.InitVar[int | None] = None
    keepalive_ns: dataclasses.InitVar[int | None] = None

    def __post_init__(self, *nanoseconds: int | None) -> None:
        for name, value in zip(_TIMES, nanoseconds, strict=True):
            if value is not None:
                if getattr(self, name) is not None:
                    raise ValueError(f"both {name} and {name}_ns are given")
                _check_time(f"{name}_ns", value)
                object.__setattr__(self, name, value / 1e9)
            else:
                _check_time(name, getattr(self, name))

    def _given(self) -> dict[str, int | bytes | None]:
        """What is not None, by the names and in the units of libumx."""
        values = dataclasses.asdict(self)
        for name in _TIMES:
            seconds = values.pop(name)
            if seconds is not None:
                values[f"{name}_ns"] = round(seconds * 1e9)
        return {key: val for key, val in values.items() if val is not None}


def _check_time(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {value}")


@dataclasses.dataclass
class _State:
    """What init() sets and reset() clears."""

    context: _ext.Context | None = None
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    env_first: bool = False
    connect_timeout: float | None = None


_state = _State()
_said: list[str] | None = None  # what is logged while a context is made
memories: WeakSet[_ext.Memory | _ext.BufferPool | _ext.Heap] = WeakSet()  # those alive
_lock = threading.Lock()


def init(
    options: Mapping[str, str] | None = None,
    env_takes_precedence: bool = False,
    blocking_progress_mode: bool | None = None,
    connect_timeout: float | None = None,
    *,
    config: Config | None = None,
    token: bytes | str | os.PathLike[str] | None = None,
) -> None:
    """Create the process's context with these settings.

    Without it the first call that needs a context makes one with defaults.

    Args:
        options: UCX options without the ``UCX_`` prefix.
        env_takes_precedence: the environment's ``UCX_*`` win over ``options``.
        blocking_progress_mode: accepted for ucx-py's sake; a wait spins
            briefly, then sleeps, whatever it is.
        connect_timeout: seconds; what ``create_endpoint`` uses when it gets
            none. Default ``UCXPY_CONNECT_TIMEOUT``, else 5.
        config: limits and thresholds of this library.
        token: shared secret of 1 to 256 bytes, or the path of a file with it,
            which nobody but its owner may be able to open. Peers without the
            secret are refused. Default: ``config.token``, else the environment's
            ``UCP_TOKEN``, or the file that ``UCP_TOKEN_FILE`` names. Without
            any, who reaches a listener is trusted: see ``docs/security.md``.

    Raises:
        RuntimeError: there is a context already.
        UCXConfigError: UCX knows no such option, or refuses its value; or the
            token's file or variable is not as it should be.
    """
    if token is not None:
        if config is not None and config.token is not None:
            raise ValueError("both token and config.token are given")
        config = dataclasses.replace(config or Config(), token=as_token(token))
    with _lock:
        if _state.context is not None:
            raise RuntimeError(
                "UCX is already initiated. Call reset() and init() "
                "in order to re-initate UCX with new options."
            )
        if blocking_progress_mode is not None:
            logger.debug("blocking_progress_mode has no effect")
        _create(dict(options or {}), env_takes_precedence, config)
        _state.connect_timeout = connect_timeout


def _create(
    options: dict[str, str], env_first: bool, config: Config | None
) -> _ext.Context:
    _ext.set_log_handler(_log)
    given = config._given() if config is not None else {}
    if "token" not in given:
        token = token_of_environment()
        if token is not None:
            given["token"] = token
    try:
        with _hearing() as said:
            context = _ext.Context(
                options,
                env_first=env_first,
                config=given or None,
            )
    except UCXError as exc:
        if exc.status == _NO_DEVICE:
            raise _no_device(options, env_first) from exc
        refused = _refused_variable(said)
        if refused is not None and "UCX refuses" not in str(exc):
            raise UCXConfigError(refused) from exc
        raise
    _state.context = context
    _state.options = options
    _state.env_first = env_first
    # The name that programs of ucx-py listen to.
    logging.getLogger("ucx").info(
        "UCX %s with options %s", _loader.which_ucx().version, options
    )
    return context


def _no_device(options: dict[str, str], env_first: bool) -> UCXConfigError:
    """Name the options that choose transports and devices, as they were given."""
    in_force = _ext.config_options(options, env_first)
    given = [
        f'{name}="{in_force[name]}"'
        for name in _CHOOSING
        if name in options or f"UCX_{name}" in os.environ
    ]
    what = ", ".join(given) or "the system's"
    return UCXConfigError(f"UCX finds no transport and device to use among {what}")


_REFUSED = re.compile(r"Invalid value for (\w+): '(.*?)'\. Expected: (.*)")


def _refused_variable(said: list[str]) -> str | None:
    """The variable of the environment that UCX has complained of, in words."""
    for match in filter(None, map(_REFUSED.search, said)):
        name, value, expected = match.groups()
        return f'UCX refuses UCX_{name}="{value}", it expects {expected}'
    return None


@contextlib.contextmanager
def _hearing() -> Iterator[list[str]]:
    """The texts that the library and UCX log in the block; they are logged, too."""
    global _said
    _said = []
    try:
        yield _said
    finally:
        _said = None


def _log(level: int, text: str) -> None:
    if _said is not None:
        _said.append(text)
    logger.log(_LEVELS[min(level, len(_LEVELS) - 1)], "%s", text)


def get_context() -> _ext.Context:
    """The process's context, made now if there is none."""
    with _lock:
        if _state.context is not None:
            return _state.context
        return _create({}, False, None)


def current_context() -> _ext.Context | None:
    """The process's context, or None before the first use."""
    return _state.context


def forget_context() -> None:
    """Drop the context and the settings of init()."""
    with _lock:
        _state.context = None
        _state.options = {}
        _state.env_first = False
        _state.connect_timeout = None


def connect_timeout() -> float:
    """Seconds that create_endpoint() waits when it is given none."""
    if _state.connect_timeout is not None:
        return _state.connect_timeout
    text = os.environ.get("UCXPY_CONNECT_TIMEOUT")
    return float(text) if text else _DEFAULT_CONNECT_TIMEOUT


def close_timeout() -> float:
    """Seconds that a close takes at most when it is given no timeout."""
    return int(get_context().config["close_timeout_ns"]) / 1e9


def get_config() -> dict[str, str]:
    """UCX's options without the ``UCX_`` prefix.

    Those in use, or before the first use those that would be. Creates no
    context.
    """
    return _ext.config_options(_state.options, _state.env_first)


def get_ucx_version() -> tuple[int, int, int]:
    """Version of the UCX in use, such as ``(1, 22, 0)``."""
    major, minor, patch = _loader.which_ucx().version.split(".")
    return int(major), int(minor), int(patch)


def get_ucp_context_info() -> str:
    """UCX's own description of the context, one fact a line."""
    return get_context().info()


def get_active_transports() -> set[str]:
    """Names of the transports UCX may use, as it reports them.

    ``endpoint.transports()`` tells which ones a connection does use.
    """
    return {transport for transport, _ in _resources()}


def get_devices() -> list[tuple[str, str]]:
    """The (transport, device) pairs UCX may use."""
    return _resources()


def _resources() -> list[tuple[str, str]]:
    """Parse ``#  resource 0 : md 0 dev 0 flags -- tcp/eth0``."""
    pairs = []
    for line in get_ucp_context_info().splitlines():
        words = line.strip("# ").split()
        if words[:1] == ["resource"] and "flags" in words:
            transport, _, device = words[-1].partition("/")
            pairs.append((transport, device))
    return pairs


def cuda_support() -> bool:
    """True if a CUDA transport is among those UCX may use."""
    return any(name.startswith("cuda") for name in get_active_transports())
