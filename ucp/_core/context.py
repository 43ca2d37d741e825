# SPDX-License-Identifier: BSD-3-Clause
"""The UCX context of the process, made on first use and shared by all workers."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import numbers
import os
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _ext
from ..exceptions import UCXConfigError, UCXError
from . import loader, log
from .alive import Alive
from .log import logger
from .token import as_token, token_of_environment

_NO_DEVICE = -14  # UCS_ERR_NO_DEVICE
# UCX's options that leave it with fewer transports or devices.
_CHOOSING = ("TLS", "NET_DEVICES", "SHM_DEVICES", "SELF_DEVICES", "ACC_DEVICES")

_DEFAULT_CONNECT_TIMEOUT = 5.0  # seconds, as in ucx-py


# The fields of Config that are times. libumx counts nanoseconds.
_TIMES = (
    "spin",
    "drain",
    "close_timeout",
    "connect_timeout",
    "heartbeat",
    "keepalive",
    "cancel_timeout",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Limits and thresholds of libumx. None selects the default of libumx.

    Times are in seconds. Each time can also be given in nanoseconds, as an
    integer, by its name in C: ``Config(spin_ns=0)`` equals ``Config(spin=0)``.

    The defaults and the reasons for them are in ``src/host/config.c``.

    Raises:
        TypeError: a time is not a number.
        ValueError: a time is not finite, or is given by both of its names.

    ``init()`` raises UCXConfigError for a value that is out of range.
    """

    spin: float | None = None
    """Longest time one ``await`` polls before it sleeps; 0 means never."""
    drain: float | None = None
    """Longest time spent on messages in one turn of the event loop; a task
    may take as long again if nothing else waits for the loop."""
    rndv_thresh_shm: int | None = None
    """Bytes; sends of this size and above go by rendezvous over shared
    memory."""
    rndv_thresh_net: int | None = None
    """Bytes; sends of this size and above go by rendezvous without shared
    memory."""
    cma_min: int | None = None
    """Bytes; the receiver reads messages of this size and above, up to
    ``cma_max``, from the memory of the sender, where the system allows that."""
    cma_max: int | None = None
    """Bytes; the receiver reads no longer messages from the memory of the
    sender. 0 means that it reads none."""
    credit_bytes: int | None = None
    """Bytes that a peer may have sent in eager messages that have not been
    received yet. Each message counts 512 bytes more than its length."""
    credit_bytes_max: int | None = None
    """Bytes; ``credit_bytes`` of a peer grows up to here if the peer is far away
    and what it sends is received quickly: a network of a long delay holds as much
    as it delivers in a round trip. A number below ``credit_bytes`` means that it
    does not grow."""
    credit_messages: int | None = None
    """Eager messages that a peer may have sent on one channel and that have not
    been received yet."""
    credit_messages_max: int | None = None
    """Messages; ``credit_messages`` of a channel grows up to here, as
    ``credit_bytes`` does."""
    credit_rndv: int | None = None
    """Large messages that a peer may have announced on all channels together and
    that have not been received yet. Each channel may have 16 more."""
    channels_max: int | None = None
    """Channels of all kinds on which a peer may send to one endpoint, besides
    channel 0."""
    close_timeout: float | None = None
    """Deadline of ``close()`` without a timeout and of closes in the
    background."""
    connect_timeout: float | None = None
    """Longest time the handshake of an accepted endpoint may take."""
    heartbeat: float | None = None
    """If a peer is silent for this long, up to half as long again, the
    connection ends with UCXConnectionReset. Detects a peer that is stopped and a
    network that has failed. It must be longer than any peer blocks its event
    loop. 0, the default, means that a peer may be silent forever."""
    keepalive: float | None = None
    """If the host of a peer does not answer the kernel's probes for this long,
    up to half as long again, the connection ends with UCXConnectionReset; the
    process of the peer may be busy meanwhile. Rounded up to whole seconds, 4 at
    least.
    Default: as long as ``heartbeat`` if that is given, else 30. 0 means that the
    network may be silent forever."""
    goodbye_bytes: int | None = None
    """Bytes of unread large messages that are fetched when the peer closes, so
    that they can still be received."""
    cancel_bytes: int | None = None
    """Bytes that all copies for cancelled operations of a worker may have at a
    time. An operation for whose copy there is no room ends when its buffer is
    free."""
    cancel_timeout: float | None = None
    """If a cancelled operation waits for a peer that shows no sign of life for
    this long, the connection ends with UCXConnectionReset. 0 means that it waits
    forever."""
    rma_ucx: int | None = None
    """Whether ``put`` and ``get`` of memory that is not mapped are UCX's own
    operations: 0 never, 1 on connections with RDMA lanes, 2 always. UCX does not
    check which memory peers access: with 2 and without RDMA, an outdated key of a
    peer may crash this process."""
    frames_copy_max: int | None = None
    """Bytes; the small frames of a message are copied into one block if they are
    at most this long together; otherwise UCX gathers them."""
    frames_alone_min: int | None = None
    """Bytes; frames of this size and above are sent as messages of their own."""
    frames_max: int | None = None
    """Frames of one message, sent or received. A peer that sends more is
    disconnected."""
    frames_bytes_max: int | None = None
    """Bytes of all frames of one message, sent or received. A peer that sends
    more is disconnected."""
    token: bytes | None = None
    """Shared secret of 1 to 256 bytes; peers without it are refused. See
    ``init()`` for other ways to give it."""

    # These are in the order of _TIMES, and are stored in the fields above as seconds.
    spin_ns: dataclasses.InitVar[int | None] = None
    drain_ns: dataclasses.InitVar[int | None] = None
    close_timeout_ns: dataclasses.InitVar[int | None] = None
    connect_timeout_ns: dataclasses.InitVar[int | None] = None
    heartbeat_ns: dataclasses.InitVar[int | None] = None
    keepalive_ns: dataclasses.InitVar[int | None] = None
    cancel_timeout_ns: dataclasses.InitVar[int | None] = None

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
        """The values that are not None, by the names and in the units of libumx."""
        values = dataclasses.asdict(self)
        if self.keepalive is None:
            values["keepalive"] = self.heartbeat
        for name in _TIMES:
            seconds = values.pop(name)
            if seconds is not None:
                values[f"{name}_ns"] = round(seconds * 1e9)
        return {key: val for key, val in values.items() if val is not None}


def _similar(name: str, names: Iterable[str]) -> str:
    """A question that names what may have been meant; or nothing."""
    import difflib  # few programs have such a name

    *others, last = difflib.get_close_matches(name, names, 3) or [""]
    if not last:
        return ""
    return f"; did you mean {' or '.join(filter(None, [', '.join(others), last]))}?"


_init_config = Config.__init__


@functools.wraps(_init_config)
def _checked_init(self: Config, **given: Any) -> None:
    names = _init_config.__kwdefaults__ or {}
    for name in given:
        if name not in names:
            is_ns = name.endswith("_ns")
            near = _similar(name, [n for n in names if n.endswith("_ns") == is_ns])
            near = near or "; help(ucp.Config) shows what it has"
            raise TypeError(f"Config has no {name}{near}")
    _init_config(self, **given)


Config.__init__ = _checked_init  # type: ignore[method-assign]


def _check_time(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {value}")


@dataclasses.dataclass
class _State:
    """The state that init() sets and reset() clears."""

    context: _ext.Context | None = None
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    env_first: bool = False
    connect_timeout: float | None = None


_state = _State()
_said: list[str] | None = None  # the texts logged while a context is made
memories: Alive[_ext.Memory | _ext.BufferPool | _ext.Heap] = Alive()
_lock = threading.Lock()


def init(
    options: Mapping[str, str] | None = None,
    env_takes_precedence: bool = False,
    blocking_progress_mode: bool | None = None,
    connect_timeout: float | None = None,
    *,
    config: Config | None = None,
    token: bytes | str | os.PathLike[str] | None = None,
    net_devices: str | None = None,
) -> None:
    """Create the context of the process with these settings.

    If ``init`` is not called, the first call that needs a context creates one
    with default settings.

    Args:
        options: UCX options, without the prefix ``UCX_``.
        env_takes_precedence: True if the variables ``UCX_*`` of the environment
            override ``options``.
        blocking_progress_mode: accepted for compatibility with ucx-py. It has no
            effect: a wait polls for a short time, then sleeps.
        connect_timeout: seconds that ``connect`` and ``create_endpoint`` wait when
            they are given no timeout. Default: the variable
            ``UCXPY_CONNECT_TIMEOUT`` of the environment, else 5.
        config: limits and thresholds of this library.
        token: shared secret of 1 to 256 bytes, or the path of a file with the
            secret, which only its owner may be able to open. Peers without the
            secret are refused. Default: ``config.token``, else the variable
            ``UCP_TOKEN`` of the environment, or the file that ``UCP_TOKEN_FILE``
            names. Without a token every process that reaches a listener can
            connect: see ``docs/security.md``.
        net_devices: UCX's option ``NET_DEVICES``, the network devices that UCX may
            use. ``"closest:cuda0"`` selects all those at the least distance from
            the first GPU; behind ``closest:`` can be any device that
            ``TopologicalDistance`` takes. If ``env_takes_precedence`` and the
            variable ``UCX_NET_DEVICES`` is set, ``net_devices`` is ignored.

    Raises:
        ImportError: ``net_devices`` needs hwloc, which is not installed.
        LookupError: ``net_devices`` names a device that does not exist, or there
            is no network device.
        RuntimeError: the context exists already.
        ValueError: ``token`` and ``config.token`` are given, or ``net_devices``
            and the option ``NET_DEVICES``.
        UCXConfigError: UCX does not know an option or refuses its value; or the
            file or the variable of the token is not valid.
    """
    if token is not None:
        if config is not None and config.token is not None:
            raise ValueError("both token and config.token are given")
        config = dataclasses.replace(config or Config(), token=as_token(token))
    options = dict(options or {})
    with _lock:
        if _state.context is not None:
            raise RuntimeError(
                "UCX is already initiated. Call reset() and init() "
                "in order to re-initate UCX with new options."
            )
        if blocking_progress_mode is not None:
            logger.debug("blocking_progress_mode has no effect")
        if net_devices is not None:
            _choose_devices(options, net_devices, env_takes_precedence)
        _create(options, env_takes_precedence, config)
        _state.connect_timeout = connect_timeout


def _choose_devices(options: dict[str, str], net_devices: str, env_first: bool) -> None:
    """Enter ``net_devices`` into the options."""
    if "NET_DEVICES" in options:
        raise ValueError("both net_devices and the option NET_DEVICES are given")
    if env_first and "UCX_NET_DEVICES" in os.environ:
        return
    # Few programs give net_devices: `import ucp` is shorter without the topology.
    from .._topology.net_devices import net_devices_of

    options["NET_DEVICES"] = net_devices_of(net_devices)


def _create(
    options: dict[str, str], env_first: bool, config: Config | None
) -> _ext.Context:
    log.listen()
    given = config._given() if config is not None else {}
    if "token" not in given:
        token = token_of_environment()
        if token is not None:
            given["token"] = token
    try:
        with log.hearing() as said:
            context = _ext.Context(
                options,
                env_first=env_first,
                config=given or None,
            )
    except UCXError as exc:
        if exc.status == _NO_DEVICE:
            raise _no_device(options, env_first) from exc
        unknown = re.fullmatch(r'UCX has no option "(\w+)"', str(exc))
        if unknown is not None:
            names = _ext.config_options({}, False)
            near = _similar(unknown[1].removeprefix("UCX_"), names)
            near = near or "; ucp.get_config() has those of this UCX"
            raise UCXConfigError(f"{exc}{near}") from None
        refused = _refused_variable(said)
        if refused is not None and "UCX refuses" not in str(exc):
            raise UCXConfigError(refused) from exc
        raise
    _state.context = context
    _state.options = options
    _state.env_first = env_first
    # Programs of ucx-py read the logger of this name.
    logging.getLogger("ucx").info(
        "UCX %s with options %s", loader.which_ucx().version, options
    )
    return context


def _no_device(options: dict[str, str], env_first: bool) -> UCXConfigError:
    """An exception that names the given options for transports and devices."""
    in_force = _ext.config_options(options, env_first)
    given = [
        f'{name}="{in_force[name]}"'
        for name in _CHOOSING
        if name in options or f"UCX_{name}" in os.environ
    ]
    what = ", ".join(given) or "the system's"
    return UCXConfigError(
        f"UCX finds no transport and device to use among {what}{_all_devices()}"
    )


def _all_devices() -> str:
    """Tell which transports and devices a context without options finds."""
    devices: dict[str, list[str]] = {}
    try:
        every = _ext.Context(dict.fromkeys(_CHOOSING, "all"))
    except UCXError:
        return ""
    for transport, device in _resources(every.info()):
        devices.setdefault(transport, []).append(device)
    texts = [f"{name} ({', '.join(devices[name])})" for name in sorted(devices)]
    return f"; there are {', '.join(texts)}" if texts else ""


_REFUSED = re.compile(r"Invalid value for (\w+): '(.*?)'\. Expected: (.*)")


def _refused_variable(said: list[str]) -> str | None:
    """Describe the variable of the environment that UCX has refused."""
    for match in filter(None, map(_REFUSED.search, said)):
        name, value, expected = match.groups()
        return f'UCX refuses UCX_{name}="{value}", it expects {expected}'
    return None


def get_context() -> _ext.Context:
    """Return the context of the process, which is made if there is none."""
    with _lock:
        if _state.context is not None:
            return _state.context
        return _create({}, False, None)


def current_context() -> _ext.Context | None:
    """Return the context of the process, or None before the first use."""
    return _state.context


def forget_context() -> None:
    """Drop the context and the settings of init()."""
    with _lock:
        _state.context = None
        _state.options = {}
        _state.env_first = False
        _state.connect_timeout = None


def connect_timeout() -> float:
    """Seconds that create_endpoint() waits when it is given no timeout."""
    if _state.connect_timeout is not None:
        return _state.connect_timeout
    text = os.environ.get("UCXPY_CONNECT_TIMEOUT")
    return float(text) if text else _DEFAULT_CONNECT_TIMEOUT


def close_timeout() -> float:
    """Seconds that a close takes at most when it is given no timeout."""
    return int(get_context().config["close_timeout_ns"]) / 1e9


def get_config() -> dict[str, str]:
    """Return UCX's options, without the prefix ``UCX_``.

    Before the first use of UCX these are the options that a context would get
    now. This call creates no context.
    """
    return _ext.config_options(_state.options, _state.env_first)


def get_ucx_version() -> tuple[int, int, int]:
    """Version of the UCX in use, such as ``(1, 22, 0)``."""
    major, minor, patch = loader.which_ucx().version.split(".")
    return int(major), int(minor), int(patch)


def get_ucp_context_info() -> str:
    """Return UCX's description of the context, one fact on each line."""
    return get_context().info()


def get_active_transports() -> set[str]:
    """Return the names of the transports that UCX may use.

    ``endpoint.transports()`` returns those that a connection uses.
    """
    return {transport for transport, _ in get_devices()}


def get_devices() -> list[tuple[str, str]]:
    """The (transport, device) pairs UCX may use."""
    return _resources(get_ucp_context_info())


def get_lanes(ep: _ext.Endpoint) -> list[str]:
    """What a connection uses, such as "tcp/lo"."""
    return sorted("/".join(filter(None, lane)) for lane in ep.transports())


def _resources(info: str) -> list[tuple[str, str]]:
    """Parse ``#  resource 0 : md 0 dev 0 flags -- tcp/eth0``."""
    pairs = []
    for line in info.splitlines():
        words = line.strip("# ").split()
        if words[:1] == ["resource"] and "flags" in words:
            transport, _, device = words[-1].partition("/")
            pairs.append((transport, device))
    return pairs


def cuda_support() -> bool:
    """True if a CUDA transport is among those UCX may use."""
    return any(name.startswith("cuda") for name in get_active_transports())
