# SPDX-License-Identifier: BSD-3-Clause
"""A second process that runs what a test tells it, line by line.

``Peer.do("await ep.send(b'x')")`` runs that source in the peer and gives its
value. The peer has ``ucp``, ``np``, ``asyncio``, ``gc`` and a ``listener`` on
127.0.0.1; what one line assigns the next ones see.
"""

import ast
import asyncio
import itertools
import json
import os
import select
import signal
import subprocess
import sys

# Types of values that can travel back; any other value becomes None.
_LITERALS = int | float | str | bytes | list | tuple | dict


class Peer:
    """The test's end."""

    def __init__(self, env, before=()):
        import zygote  # not for the peer, which runs this file as well

        self._process = zygote.Popen(
            [*before, sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
        )
        self._ids = itertools.count()
        self._answers = {}
        self._buffer = b""

    @property
    def pid(self):
        return self._process.pid

    async def do(self, source):
        """Run ``source`` in the peer; its value if it is an expression."""
        return await self.result(self.begin(source))

    def begin(self, source):
        """Start ``source``; an id for ``result``."""
        number = next(self._ids)
        line = json.dumps([number, source]) + "\n"
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        return number

    async def result(self, number):
        """The value of what ``begin`` started."""
        while number not in self._answers:
            key, value, error = json.loads(await self._line())
            self._answers[key] = value, error
        value, error = self._answers.pop(number)
        assert error is None, f"in the peer: {error}"
        return ast.literal_eval(value)

    async def _line(self):
        while b"\n" not in self._buffer:
            await _readable(self._process.stdout.fileno())
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            assert data, f"the peer ended with {self._process.wait()}"
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def wait_answer(self):
        """Until it has answered; our event loop stands still meanwhile."""
        select.select([self._process.stdout], [], [])

    def stop(self):
        """SIGSTOP; returns once the process has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_stopped()

    def wait_stopped(self):
        """Wait until the process has stopped, itself for example."""
        os.waitpid(self.pid, os.WUNTRACED)

    def resume(self):
        """Undo stop()."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        """SIGKILL, and wait."""
        self._process.kill()
        self.wait()

    def end_input(self):
        """Let it return from its main function."""
        self._process.stdin.close()

    def wait(self):
        """Wait for the exit status of the peer, then close its pipes."""
        status = self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        return status


def visit(port):
    """Run in a child process of a test: say hello, get a megabyte."""
    asyncio.run(_visit(port))


async def _visit(port):
    import ucp

    ep = await ucp.create_endpoint("127.0.0.1", port)
    await ep.send(b"hello")
    assert await ep.recv_obj() == bytes(1_000_000)
    await ep.close()


async def _readable(fd):
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(fd, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(fd)


async def _serve():
    """The peer's end: run each line of standard input as a task."""
    import gc

    import ucp

    names = {"ucp": ucp, "asyncio": asyncio, "gc": gc}
    names["listener"] = ucp.create_listener(host="127.0.0.1")
    tasks = set()
    buffer = b""
    while True:
        await _readable(0)
        data = os.read(0, 1 << 16)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            task = asyncio.create_task(_run(names, *json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


async def _run(names, number, source):
    try:
        value, error = await _evaluate(names, source), None
    except BaseException as exc:
        value, error = None, repr(exc)
    print(json.dumps([number, repr(value), error]), flush=True)


async def _evaluate(names, source):
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        code = compile(source, "<test>", "eval", flags=flags)
    except SyntaxError:
        code = compile(source, "<test>", "exec", flags=flags)
    if "np." in source and "np" not in names:
        import numpy

        names["np"] = numpy
    value = eval(code, names)
    if asyncio.iscoroutine(value):
        value = await value
    return value if isinstance(value, _LITERALS) else None


if __name__ == "__main__":
    asyncio.run(_serve())
