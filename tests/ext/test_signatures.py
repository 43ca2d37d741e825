# SPDX-License-Identifier: BSD-3-Clause
"""What help() shows of the extension."""

import inspect

from ucp import _ext


def callables():
    for name, thing in vars(_ext).items():
        if inspect.isclass(thing):
            for attribute, member in vars(thing).items():
                if callable(member):
                    yield f"{name}.{attribute}", member
        elif callable(thing):
            yield name, thing


def test_no_docstring_begins_with_the_signature_of_another_name():
    # CPython cuts a signature off only if it begins with the name of the function.
    marked = [name for name, thing in callables() if "\n--\n" in (thing.__doc__ or "")]
    assert marked == []


def test_other_names_of_send_and_recv_have_their_signatures():
    kind = _ext.Communicator
    for name in ("send", "recv"):
        begins = inspect.signature(getattr(kind, f"i{name}"))
        assert begins == inspect.signature(getattr(kind, name))
