# SPDX-License-Identifier: BSD-3-Clause
# tests: compat/alias compat/install compat/main
"""Other people's ``import ucxx``, answered by ``ucp.compat.ucxx``."""

import multiprocessing
import queue
import subprocess
import sys
import time

import pytest
from script import run_script

from ucp.compat.ucxx import core, testing, utils

pytestmark = pytest.mark.real_start

# Lines with which programs for ucxx begin.
PROGRAM = """
import asyncio, multiprocessing, sys
import ucxx
import ucxx._lib.libucxx as ucx_api
from ucxx._lib.arr import Array
from ucxx._lib_async.endpoint import Endpoint
from ucxx._lib_async.utils import get_event_loop, hash64bits
from ucxx.exceptions import UCXCanceledError
from ucxx.testing import join_processes
from ucxx.types import Tag
from ucxx.utils import format_bytes, parse_bytes

async def main():
    async def serve(ep):
        assert type(ep) is Endpoint
        await ep.send(Array(b"hello"))
    listener = ucxx.create_listener(serve)
    ep = await ucxx.create_endpoint("127.0.0.1", listener.port)
    buffer = bytearray(5)
    await ep.recv(buffer)
    print(buffer.decode(), *sys.argv[1:], flush=True)
    await ep.close()

def child():
    import ucxx.core
    print(ucxx.__name__, flush=True)

if __name__ == "__main__":
    assert ucx_api.UCXCanceledError is UCXCanceledError
    asyncio.run(main())
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    join_processes([process], 30)
    assert process.exitcode == 0
"""
OUTPUT = "hello one two\nucp.compat.ucxx\n"


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


def python(*arguments, **kwargs) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=50,
        **kwargs,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_program_is_run_as_it_is(program):
    assert python("-P", "-m", "ucp.compat.ucxx", program, "one", "two") == OUTPUT


def test_a_module_is_run_as_it_is(program):
    arguments = ("-P", "-m", "ucp.compat.ucxx", "-m", "program", "one", "two")
    environment = {"PYTHONPATH": str(program.parent)}
    assert python(*arguments, env=environment) == OUTPUT


def test_a_directory_on_the_path_does_it_as_well(program):
    path = python("-P", "-m", "ucp.compat.ucxx", "--path").strip()
    assert python("-P", program, "one", "two", env={"PYTHONPATH": path}) == OUTPUT


def test_nothing_is_installed_by_default():
    run_script(
        """
        import sys, ucp, ucp.compat.ucxx
        assert "ucxx" not in sys.modules
        try:
            import ucxx
        except ImportError:
            pass
        else:  # the real one is installed here
            assert ucxx is not ucp.compat.ucxx
        """
    )


def test_install_may_be_called_twice():
    run_script(
        """
        import ucp.compat.ucxx
        ucp.compat.ucxx.install()
        ucp.compat.ucxx.install()
        import ucxx, ucxx._lib_async.listener, ucxx.core
        assert ucxx is ucp.compat.ucxx and ucxx.core is ucp.compat.ucxx.core
        assert ucxx._lib_async.Listener is ucxx.Listener
        """
    )


def test_install_does_not_replace_what_is_imported(tmp_path):
    (tmp_path / "ucxx.py").write_text("")
    run_script(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import ucxx
        import ucp.compat.ucxx
        try:
            ucp.compat.ucxx.install()
        except RuntimeError as exc:
            assert str(exc).startswith("ucxx has been imported already, from ")
        else:
            raise AssertionError
        """,
        str(tmp_path),
    )


def test_names_of_the_cxx_objects_say_that_there_are_none():
    from ucp.compat.ucxx._lib import libucxx

    with pytest.raises(AttributeError, match=r"'UCXWorker' .* ucp\._libs\.ucx_api$"):
        libucxx.UCXWorker  # noqa: B018


def test_versions_are_there():
    from ucp.compat import ucxx

    assert isinstance(ucxx.__version__, str)
    assert ".".join(map(str, ucxx._ucx_version)) == ucxx.__ucx_version__


def test_the_context_knows_its_progress_mode(fresh_ucx):
    assert core._ctx is None
    core.init(progress_mode="polling")
    assert core._ctx.progress_mode == core._get_ctx().progress_mode == "polling"
    core._get_ctx().stop_notifier_thread()
    core.reset()
    assert core._get_ctx().progress_mode == "thread"


def test_addresses_may_be_ipv6():
    assert utils.get_address("lo") == "127.0.0.1"
    with pytest.raises(OSError):
        utils.get_address("nosuch", use_ipv6=True)


def test_a_process_that_failed_tells_why():
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    process = context.Process(
        target=testing.run_in_subprocess, args=(int, failures, "why")
    )
    process.start()
    testing.join_processes([process], 30)
    with pytest.raises(RuntimeError, match=r"\(exit code: 1\)\n\nSub(?s:.*)'why'"):
        testing.terminate_process(process, error_queue=failures)


def test_a_process_that_lives_is_killed():
    process = multiprocessing.get_context("spawn").Process(
        target=time.sleep, args=(1000,)
    )
    process.start()
    with pytest.raises(RuntimeError, match=r"^Process .* \(exit code: -9\)$"):
        testing.terminate_process(process, error_queue=queue.Queue())
