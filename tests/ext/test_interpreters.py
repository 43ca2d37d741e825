# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/module ext/state
"""Sub-interpreters: they work while all share one GIL; else a clear error."""

import sys
import sysconfig

import pytest
from script import run_script

pytestmark = pytest.mark.real_start

_IN_TWO_INTERPRETERS = """
import asyncio, sys

interpreters = __import__(sys.argv[1])

source = '''
import asyncio
try:
    import ucp
    from ucp.testing import connected_pair
except ImportError as error:
    print("ImportError:", error)
else:
    async def ping():
        async with connected_pair() as (client, server):
            sending = client.send(b"ping")
            print(bytes(await server.recv_obj()))
            await sending
    asyncio.run(ping())
'''
for _ in range(2):
    number = interpreters.create()
    interpreters.run_string(number, source)
    interpreters.destroy(number)
exec(source)  # the main one goes on
"""


def run(module):
    return run_script(_IN_TWO_INTERPRETERS, module).splitlines()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="each has a GIL of its own")
def test_a_sub_interpreter_is_as_good_as_the_main_one():
    assert run("_xxsubinterpreters") == ["b'ping'"] * 3


@pytest.mark.skipif(sys.version_info < (3, 12), reason="all share one GIL")
def test_an_interpreter_with_its_own_gil_is_refused():
    name = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"
    *refused, works = run(name)
    for line in refused:
        assert line.startswith("ImportError: ")
        assert line.endswith("does not support loading in subinterpreters")
    assert works == "b'ping'"


_WITHOUT_GIL = """
import sys

sys._is_gil_enabled = lambda: False  # what PYTHON_GIL=0 makes of it
try:
    import ucp
except ImportError as error:
    print(error)
"""


def test_a_process_without_the_gil_is_refused():
    assert run_script(_WITHOUT_GIL) == (
        "ucp needs the GIL, and this process was started without it: "
        "unset PYTHON_GIL=0, or leave out -X gil=0\n"
    )


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has its GIL"
)
def test_a_free_threaded_python_switches_the_gil_on_or_is_refused():
    script = """
        import sys, warnings
        warnings.simplefilter("ignore", RuntimeWarning)  # that the GIL is on now
        try:
            import ucp
        except ImportError as error:
            print(error)
        else:
            print(sys._is_gil_enabled())
        """
    assert run_script(script).strip() == "True"
    assert run_script(script, PYTHON_GIL="0").startswith("ucp needs the GIL")
