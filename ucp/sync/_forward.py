# SPDX-License-Identifier: BSD-3-Clause
"""Methods that wait for the asynchronous ones of their names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])


def forwarded(method: _F) -> _F:
    """Make the method that waits for the one of its name of ``self._async``.

    ``method`` has no code, but a docstring, and the arguments of the asynchronous
    method in their order, with the keyword ``timeout`` besides. The result calls
    ``self._wait_for(timeout, self._async.name, ...)``.

    It is compiled as if it were written there: a function of ``*args`` and
    ``**kwargs`` adds a tenth of a microsecond to operations that take two.
    """
    code = method.__code__
    count = code.co_argcount
    arguments = code.co_varnames[1:count]
    keywords = code.co_varnames[count : count + code.co_kwonlyargcount]
    passed = ["timeout", f"self._async.{method.__name__}", *arguments]
    passed += [f"{name}={name}" for name in keywords if name != "timeout"]
    head = ", ".join(["self", *arguments, "*", *keywords])
    forward = eval(f"lambda {head}: self._wait_for({', '.join(passed)})")
    forward.__code__ = forward.__code__.replace(  # what tracebacks show
        co_name=code.co_name,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )
    forward.__defaults__ = method.__defaults__
    forward.__kwdefaults__ = method.__kwdefaults__
    return cast(_F, functools.update_wrapper(forward, method))
