# SPDX-License-Identifier: BSD-3-Clause
"""Processes in Python that are forked from one that has imported everything.

An interpreter that imports ``ucp`` and NumPy takes 160 ms of CPU, a fork of one that
has done so a quarter of that. ``Popen`` and ``run`` are those of ``subprocess``; a
command such as ``[sys.executable, "-P", "-c", source]`` becomes a forked process if
nothing would be different in it. Any other command is started as usual, and so is
each command of every eighth test and of a test with the mark ``real_start``, whose
subject is what an import, a fork or the end of an interpreter does.
``UCP_TESTS_FORK=0`` turns forking off.

The process that forks has no context, no worker and no thread. It forks twice, and
the process of the tests is a "subreaper" meanwhile, so what has been forked is a
child of the process of the tests, as what it starts itself.

A forked process differs from a started one in this: the hashes of strings and the
addresses of libraries are those of its siblings, modules that it never imports may
have been imported, /proc shows the command of the process that forked it, and when
its program has returned, the modules other than ``__main__`` are not torn down.
"""

import atexit
import ctypes
import gc
import json
import mmap
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types
import warnings
import zlib

# Variables that a process may find changed after it has imported ucp: UCX reads its
# own where a context or a worker is made, but for those of its libraries as a whole,
# such as UCX_LOG_LEVEL and UCX_MEM_*, which are not among these.
_LATE = re.compile(
    r"UCX_(TLS|\w+_DEVICES|KEEPALIVE_\w+|NUM_\w+|RNDV_\w+|ZCOPY_\w+|PROTO_\w+"
    r"|(MM|POSIX|SYSV|TCP|CMA|SELF|SEG)_\w+|MAX_\w+)"
    r"|UCP_(RANK|SIZE|ROOT|TOKEN|TOKEN_FILE|MEETING|STATS)"
    r"|(RANK|SIZE|ROOT)_OF_TEST|PYTEST_\w+|UCXPY_IFNAME"
    r"|_RJEM_MALLOC_CONF"  # polars sets it when it is imported
)
_SHARE = 8  # one test of so many starts its processes
_MOST = 100_000  # bytes of a request

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None, use_errno=True).prctl


# ---- in the process of the tests ----------------------------------------------------


class Popen(subprocess.Popen):
    """A process: forked if that makes no difference, else started."""

    def _execute_child(self, command, executable, preexec_fn, *others):
        # The rest of what subprocess passes to this method, in its order:
        close_fds, pass_fds, cwd, env, _, _, shell, *pipes = others[:13]
        restore_signals, *users, umask, start_new_session, group = others[13:]
        is_plain = close_fds and restore_signals and (umask, group) == (-1, -1)
        odd = [executable, preexec_fn, pass_fds, shell, start_new_session]
        import budget  # not for the process that forks

        request = None
        if is_plain and not any(odd) and users == [None] * 3 and _forker.is_due():
            request = _request(command, cwd, env)
        if request is None:
            super()._execute_child(command, executable, preexec_fn, *others)
            return
        ours = pipes[0], pipes[3], pipes[5]  # standard input, output and error
        fds = [fd if pipe == -1 else pipe for fd, pipe in enumerate(ours)]
        self.pid = _forker.fork(request, fds)
        budget.count_process()
        self._child_created = True
        self._close_pipe_fds(*pipes)


def run(command, *, timeout=None, check=False, capture_output=False, **options):
    """``subprocess.run()`` of such a process."""
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def choose(item):
    """Decide whether processes of this test are forked."""
    is_real = zlib.crc32(item.nodeid.encode()) % _SHARE == 0
    _forker.is_wanted = not is_real and item.get_closest_marker("real_start") is None


def _request(command, cwd, env):
    """What the forked process is told; None: this command is to be started."""
    words = [os.fsdecode(word) for word in command]
    env = dict(os.environ if env is None else env)
    before = _forker.environment
    changed = {
        name for name in env.keys() | before.keys() if env.get(name) != before.get(name)
    }
    if _Program.parse(words) is None or not all(map(_LATE.fullmatch, changed)):
        return None
    where = os.getcwd() if cwd is None else os.fspath(cwd)
    told = json.dumps({"words": words, "env": env, "cwd": where}).encode()
    return told if len(told) < _MOST else None


class _Forker:
    """The process that forks, which the first request starts."""

    def __init__(self):
        self._lock = threading.Lock()
        self._socket = None
        self._pid = None
        self.environment = {}
        self.is_wanted = False

    def begin(self):
        """Fork from now on, with what the environment is now."""
        if os.environ.get("UCP_TESTS_FORK", "1") != "0":
            self._pid = os.getpid()
            self.environment = dict(os.environ)

    def is_due(self):
        """Is a process to be forked? A fork of the process of the tests starts it."""
        return self.is_wanted and self._pid == os.getpid()

    def fork(self, request, fds):
        """The number of a new process."""
        with self._lock:
            if self._socket is None:
                self._start()
            _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [request], fds)
                answer = self._socket.recv(64)
            except BaseException:  # a time limit: the answer would be the next one's
                self._pid = None  # from now on processes are started
                raise
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert answer, "the process that forks the processes of tests has ended"
        return int(answer)

    def _start(self):
        import budget

        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, budget.uncounted():
            # Its standard streams are pipes, as those of most processes of tests.
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )

    def end(self):
        """End the process that forks; what it has forked lives on."""
        if self._socket is not None and self._pid == os.getpid():
            self._socket.close()
            self._process.communicate()


_forker = _Forker()
begin, end = _forker.begin, _forker.end


# ---- in the process that forks ------------------------------------------------------


def _serve(control):
    import numpy  # noqa: F401
    import uvloop  # noqa: F401

    import ucp.sync
    import ucp.testing  # noqa: F401

    assert len(os.listdir("/proc/self/task")) == 1
    tests = os.getppid()
    gc.collect()
    gc.freeze()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    number = mmap.mmap(-1, 8)  # of the new process
    while True:
        data, fds, _, _ = socket.recv_fds(control, 2 * _MOST, 3)
        if not data:
            os._exit(0)
        held, holds = os.pipe()
        first = os.fork()
        if first == 0:
            second = os.fork()
            if second == 0:
                os.close(holds)
                os.read(held, 1)  # until it is a child of the process of the tests
                _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != tests:
                    os._exit(1)
                return json.loads(data), fds
            number[:] = second.to_bytes(8)
            os._exit(0)
        os.waitpid(first, 0)
        control.send(b"%d" % int.from_bytes(number[:]))
        for fd in (held, holds, *fds):
            os.close(fd)


# ---- in a forked process ------------------------------------------------------------


class _Program:
    """What a command line of Python says that a forked process can do."""

    def __init__(self, filters, kind, name, arguments):
        self.filters = filters  # those of -W
        self.kind = kind  # "-c", "-m" or "file"
        self.name = name
        self.arguments = arguments

    @classmethod
    def parse(cls, words):
        if words[:2] != [sys.executable, "-P"]:
            return None
        rest = words[2:]
        filters = []
        while rest[:1] == ["-W"]:
            filters.append(rest[1])
            del rest[:2]
        # The package asks whether it is imported for ``-m ucp``, which it was not.
        if rest[:1] == ["-c"] or (rest[:1] == ["-m"] and rest[1] != "ucp"):
            return cls(filters, rest[0], rest[1], rest[2:])
        if rest and not rest[0].startswith("-"):
            return cls(filters, "file", rest[0], rest[1:])
        return None

    def code(self):
        if self.kind == "-c":
            return compile(self.name, "<string>", "exec")
        with open(self.name, "rb") as file:
            return compile(file.read(), self.name, "exec")

    def run(self):
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        first = self.name if self.kind == "file" else self.kind
        sys.argv[:] = [first, *self.arguments]
        sys.warnoptions += self.filters
        warnings._processoptions(self.filters)
        if self.kind == "-m":
            runpy._run_module_as_main(self.name)
            return
        if self.kind == "file":
            main.__file__ = self.name
        exec(self.code(), main.__dict__)


def _become(request, fds):
    """Be the process that was asked for, as if it had been started."""
    import numpy

    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    os.closerange(3, 1 << 16)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    numpy.random.seed()
    sys.orig_argv[:] = request["words"]
    gc.enable()
    program = _Program.parse(request["words"])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    try:
        program.run()
    except SystemExit:
        raise
    except BaseException as error:
        # The traceback begins with the program.
        trace = error.__traceback__.tb_next.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.excepthook = lambda *_: None
        raise
    _end()


def _end():
    """End as the interpreter does after a program that has returned.

    It would then free what all modules have, which takes as long as the fork.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.modules["__main__"].__dict__.clear()
    gc.collect()
    for stream in sys.stdout, sys.stderr:
        if stream is not None and not stream.closed:
            stream.flush()
    ctypes.PyDLL(None).exit(0)


if __name__ == "__main__":
    gc.disable()
    _become(*_serve(socket.socket(fileno=int(sys.argv[1]))))
