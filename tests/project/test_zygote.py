# SPDX-License-Identifier: BSD-3-Clause
"""Forked processes of tests are like started ones; what differs is started."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import zygote
from script import run_script

PROGRAM = [sys.executable, "-P"]
COMMAND = "print(open('/proc/self/cmdline').read())"


@pytest.fixture
def forked(monkeypatch):
    """This test is none of those that start their processes."""
    monkeypatch.setattr(zygote._forker, "is_wanted", True)
    if not zygote._forker.is_due():
        pytest.skip("UCP_TESTS_FORK=0")


@pytest.fixture(params=[True, False], ids=["forked", "started"])
def either(request, monkeypatch):
    monkeypatch.setattr(zygote._forker, "is_wanted", request.param)


def output(*words, **options):
    done = zygote.run([*PROGRAM, *words], capture_output=True, text=True, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def was_forked(*words, **options):
    options.setdefault("capture_output", True)
    done = zygote.run([*PROGRAM, *words, "-c", COMMAND], text=True, **options)
    return "zygote.py" in done.stdout


@pytest.mark.usefixtures("forked")
class TestChoice:
    def test_what_is_like_a_started_process_is_forked(self):
        assert was_forked()
        assert was_forked("-W", "error", cwd="/", env={**os.environ, "UCX_TLS": "tcp"})

    @pytest.mark.parametrize(
        "name",
        ["UCX_LOG_LEVEL", "UCX_MEM_EVENTS", "UCP_TRACE", "LD_PRELOAD", "PYTHONPATH"],
    )
    def test_a_variable_that_is_read_at_load_needs_a_start(self, name):
        assert not was_forked(env={**os.environ, name: ""})

    def test_a_variable_that_is_missing_needs_a_start(self):
        env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
        assert not was_forked(env=env)

    @pytest.mark.parametrize("words", [["-X", "dev"], ["-O"], ["-I"]], ids="".join)
    def test_an_option_of_the_interpreter_needs_a_start(self, words):
        assert not was_forked(*words)

    @pytest.mark.parametrize(
        "option", [{"start_new_session": True}, {"close_fds": False}, {"umask": 0}]
    )
    def test_an_option_of_the_process_needs_a_start(self, option):
        assert not was_forked(**option)


@pytest.mark.usefixtures("either")
class TestProcess:
    @pytest.mark.parametrize(
        ("source", "status", "last"),
        [
            ("pass", 0, ""),
            ("raise SystemExit", 0, ""),
            ("raise SystemExit(3)", 3, ""),
            ("raise SystemExit('no')", 1, "no"),
            ("1 / 0", 1, "ZeroDivisionError: division by zero"),
            ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
            ("import os; os.abort()", -6, ""),
            ("import os; os._exit(5)", 5, ""),
            ("syntax error", 1, "SyntaxError: invalid syntax"),
        ],
    )
    def test_its_end_is_its_exit_status(self, source, status, last):
        done = zygote.run([*PROGRAM, "-c", source], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (status, "")
        lines = done.stderr.splitlines() or [""]
        assert lines[-1] == last
        if "Error:" in last and "Syntax" not in last:
            assert lines[:-1] == [
                "Traceback (most recent call last):",
                '  File "<string>", line 1, in <module>',
            ]

    def test_signals_reach_it_at_once(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with zygote.Popen([*PROGRAM, "-c", "import time; time.sleep(60)"]) as one:
                one.send_signal(number)
                assert one.wait() == -number
            assert one.poll() == -number

    def test_it_is_stopped_and_waited_for_as_a_child(self):
        with zygote.Popen([*PROGRAM, "-c", "import time; time.sleep(60)"]) as one:
            os.kill(one.pid, signal.SIGSTOP)
            pid, status = os.waitpid(one.pid, os.WUNTRACED)
            assert pid == one.pid and os.WIFSTOPPED(status)
            one.kill()

    def test_it_has_streams_arguments_folder_and_environment(self, tmp_path):
        source = """if True:
            import os, sys
            print(sys.argv, os.getcwd(), os.environ["UCX_TLS"], __name__)
            print(sys.stdin.read().upper(), file=sys.stderr)
        """
        with zygote.Popen(
            [*PROGRAM, "-c", source, "a", "b"],
            cwd=tmp_path,
            env={**os.environ, "UCX_TLS": "tcp"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as one:
            out, err = one.communicate("text", timeout=30)
        assert out == f"['-c', 'a', 'b'] {tmp_path} tcp __main__\n"
        assert err == "TEXT\n"

    def test_files_and_modules_are_run(self, tmp_path):
        file = tmp_path / "program.py"
        file.write_text("import sys; print(__name__, __file__, sys.argv)")
        assert output(file, "x") == f"__main__ {file} ['{file}', 'x']\n"
        assert output("-m", "platform", "--terse").startswith("Linux")

    def test_it_has_no_descriptors_but_its_streams(self):
        source = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
        assert output("-c", source) == "[0, 1, 2, 3]\n"  # one is that of the folder

    def test_warnings_are_filtered_as_the_command_says(self):
        source = "import warnings; warnings.warn('oh', ResourceWarning)"
        done = zygote.run(
            [*PROGRAM, "-W", "error", "-c", source], capture_output=True, text=True
        )
        assert done.stderr.endswith("\nResourceWarning: oh\n")
        assert output("-c", source) == ""

    def test_atexit_and_threads_are_waited_for(self):
        source = """if True:
            import atexit, threading, time
            atexit.register(print, "exit")
            threading.Thread(target=lambda: (time.sleep(0.01), print("thread"))).start()
            class Kept:
                def __del__(self):
                    print("freed")
            kept = Kept()
            kept.itself = kept
        """
        assert output("-c", source) == "thread\nexit\nfreed\n"

    def test_what_is_random_differs(self):
        source = """if True:
            import json, os, random
            import numpy as np
            print(json.dumps([random.random(), np.random.random(), os.getpid()]))
        """
        both = [json.loads(output("-c", source)) for _ in range(2)]
        assert all(one != other for one, other in zip(*both, strict=True))

    def test_messages_are_sent(self):
        run_script("""
        import asyncio
        from ucp.testing import connected_pair

        async def main():
            async with connected_pair() as (client, server):
                await client.send(b"four")
                await server.recv(bytearray(4))

        asyncio.run(main())
        """)


def test_what_was_forked_ends_with_the_process_of_the_tests():
    source = f"""if True:
        import os, sys
        sys.path.insert(0, {os.path.dirname(zygote.__file__)!r})
        import zygote
        zygote.begin()
        zygote._forker.is_wanted = True
        command = [sys.executable, "-P", "-c", "import signal; signal.pause()"]
        print(zygote.Popen(command).pid, zygote._forker._process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    env = {**os.environ, "UCP_TESTS_FORK": "1"}
    done = subprocess.run([*PROGRAM, "-c", source], stdout=subprocess.PIPE, env=env)
    assert done.returncode == -9
    for pid in done.stdout.split():
        while is_running(pid.decode()):
            time.sleep(0.01)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
