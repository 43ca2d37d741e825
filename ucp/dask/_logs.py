# SPDX-License-Identifier: BSD-3-Clause
"""The log of ``ucp`` in processes of Dask, which configures its own loggers only."""

import logging

from .._core.log import Fallback

_source = logging.getLogger("ucp")
_target = logging.getLogger("distributed.comm.ucp")


class _Forwarder(logging.Handler):
    """Hands records to distributed's handlers unless the program has its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if not self._has_others() and _target.isEnabledFor(record.levelno):
            _target.handle(record)

    def _has_others(self) -> bool:
        if any(not isinstance(it, (_Forwarder, Fallback)) for it in _source.handlers):
            return True
        return _source.propagate and logging.getLogger().hasHandlers()


def forward() -> None:
    """Let what ``ucp`` logs appear among the lines of distributed."""
    if not any(isinstance(handler, _Forwarder) for handler in _source.handlers):
        _source.addHandler(_Forwarder())
