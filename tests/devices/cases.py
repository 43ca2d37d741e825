# SPDX-License-Identifier: BSD-3-Clause
"""The groups: messages, cancelled ones, killed peers, a kernel that fails, pytest."""

import asyncio
import contextlib
import functools
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from devices.memory import FAMILY_OF
from devices.pair import Broken, Group, Pair, run_cases

ROOT = Path(__file__).parents[2]

KIB, MIB = 1 << 10, 1 << 20
SIZES = (
    *(1, 8 * KIB, 16 * KIB - 1, 16 * KIB, 16 * KIB + 1, 64 * KIB),
    *(MIB, 5 * MIB + 3, 64 * MIB),
)
TCP = "tcp,cuda_copy"
TCP_SIZES = (8 * KIB, 16 * KIB + 1, MIB, 5 * MIB + 3)
TCP_KINDS = ("bytearray", "memory", "pinned", "device", "async")
CANCEL_SIZES = (64 * KIB, 5 * MIB + 3)
CANCEL_LARGE = 64 * MIB  # of the kinds whose ways differ most
CANCEL_LARGE_KINDS = ("numpy", "device")
CANCEL_KINDS = ("numpy", "memory", "pinned", "device", "async", "cupy-async")
DELAYS = (0.0, 0.0003, 0.002, 0.01)
KILL_SIZE = 64 * MIB
KILLS = (
    *(("numpy", "device"), ("device", "numpy"), ("device", "device")),
    *(("pinned", "device"), ("async", "device"), ("memory", "device")),
    ("numpy", "numpy"),
)
# Bounds, in seconds.
CANCEL = 1.0  # of a peer that runs
CANCEL_STOPPED = 2.0
CLOSE = 8.0


def shown(size):
    for unit, text in ((MIB, "MiB"), (KIB, "KiB")):
        for rest in (0, 1, -1, 3):
            if size - rest and (size - rest) % unit == 0:
                tail = f"{rest:+d}" if rest else ""
                return f"{(size - rest) // unit} {text}{tail}"
    return f"{size} B"


def families(*kinds):
    """One name for the process: what it imports. Host and driver need nothing."""
    found = {FAMILY_OF[kind] for kind in kinds} - {"host", "driver"}
    return found.pop() if found else "driver"


def by_family(kinds):
    groups = {}
    for kind in kinds:
        groups.setdefault(families(kind), []).append(kind)
    return groups


async def nothing(group):
    """A group whose cases were run before."""


# ---- messages ------------------------------------------------------------------------


async def message(source, target, size, seed, pair):
    sent, got = await pair.both(
        f"await side.send(ep, {source!r}, {size}, {seed})",
        f"await side.receive(ep, {target!r}, {size}, {seed})",
        right_first=seed % 2 == 0,
    )
    return got or (f"the sender's: {sent}" if sent else "")


def messages(kinds, sizes, tls=None):
    """A group for each kind that sends, and each family that receives."""
    for source in kinds:
        for family, targets in by_family(kinds).items():
            seeds = itertools.count(1)
            cases = [
                (
                    f"{source} -> {target}, {shown(size)}",
                    functools.partial(message, source, target, size, next(seeds)),
                )
                for target in targets
                for size in sizes
            ]
            over = f"over {tls}" if tls else "on one host"
            name = f"messages {over}: {source} -> {', '.join(targets)}"
            yield Group(
                name,
                functools.partial(
                    run_cases,
                    families=(families(source), family),
                    cases=cases,
                    tls=tls,
                ),
            )


# ---- cancelled messages --------------------------------------------------------------


def slow(seconds, bound=CANCEL):
    return f"cancelling took {seconds:.2f} s" if seconds > bound else ""


async def cancelled_receive(source, target, size, seed, how, pair):
    delay, has_limit = how
    receiving = (
        f"await side.receive_cancelled(ep, {target!r}, {size}, {seed}, "
        f"{0.0 if delay == 'before' else delay}, {has_limit})"
    )
    sending = f"await side.send(ep, {source!r}, {size}, {seed})"
    if delay == "before":
        begun = pair.begin(pair.right, receiving)
        await asyncio.sleep(0.03)
        sent = await pair.do(pair.left, sending)
        _, seconds, wrong = await pair.result(pair.right, begun)
    else:
        sent, (_, seconds, wrong) = await pair.both(sending, receiving)
    return wrong or sent or slow(seconds)


async def cancelled_send(source, target, size, seed, how, pair):
    delay, receiver_delay = how
    (is_cancelled, seconds, wrong), (has_first, wrong_there) = await pair.both(
        f"await side.send_cancelled(ep, {source!r}, {size}, {seed}, {delay})",
        f"await side.receive_either(ep, {target!r}, {size}, {seed}, {receiver_delay})",
    )
    if not is_cancelled and not has_first:
        return "a send that was not cancelled brought no message"
    return wrong_there or wrong or slow(seconds)


RECEIVES = {
    "receive cancelled before the send": ("before", False),
    **{f"receive cancelled after {1e3 * d:g} ms": (d, False) for d in DELAYS},
    "receive cancelled after its end": (None, False),
    "receive with a time limit of 1 ms": (0.001, True),
    "receive with a time limit of 5 ms": (0.005, True),
}
SENDS = {
    "send cancelled before the receive": (0.005, 0.05),
    **{f"send cancelled after {1e3 * d:g} ms": (d, 0.0) for d in DELAYS},
    "send cancelled after its end": (None, 0.0),
}


def cancels(kinds, sizes=None):
    for source, target in itertools.product(kinds, repeat=2):
        seeds = itertools.count(1, 2)
        is_large = {source, target} <= set(CANCEL_LARGE_KINDS)
        large = [CANCEL_LARGE] if is_large else []
        cases = [
            (
                f"{shown(size)}, {name}",
                functools.partial(function, source, target, size, next(seeds), how),
            )
            for size in sizes or (*CANCEL_SIZES, *large)
            for function, hows in (
                (cancelled_receive, RECEIVES),
                (cancelled_send, SENDS),
            )
            for name, how in hows.items()
        ]
        run = functools.partial(
            run_cases, families=(families(source), families(target)), cases=cases
        )
        yield Group(f"cancelled: {source} -> {target}", run, 60.0)


# ---- killed and stopped peers --------------------------------------------------------


async def killed(group, number, what, mine, theirs, size):
    other = "recv" if what == "send" else "send"
    pair = Pair(families(mine), families(theirs))
    wrong = []
    try:
        await pair.start()
        pair.begin(pair.right, f"await side.repeat(ep, {other!r}, {theirs!r}, {size})")
        # Until messages pass.
        await pair.do(
            pair.left, f"await side.{what_once(what)}(ep, {mine!r}, {size}, 0)"
        )
        begun = pair.begin(
            pair.left, f"await side.survive(ep, {what!r}, {mine!r}, {size}, 1.5)"
        )
        await asyncio.sleep(random.uniform(0.005, 0.06))
        os.kill(pair.right.pid, number)
        end, seconds = await pair.result(pair.left, begun, 30.0)
        if seconds > CANCEL_STOPPED:
            wrong.append(f"cancelling took {seconds:.2f} s")
        seconds = await pair.do(pair.left, "await side.closing(ep, 4)", 30.0)
        if seconds > CLOSE:
            wrong.append(f"closing took {seconds:.2f} s")
        wrong.append(await pair.do(pair.left, f"await side.alive({mine!r})", 30.0))
        wrong.append(await pair.end(pair.left))
        group.notes.append(end)
    except (Broken, AssertionError) as error:
        wrong.append(str(error))
    finally:
        with contextlib.suppress(OSError, IndexError):
            os.kill(pair.right.pid, signal.SIGCONT)
        pair.kill()
    return "; ".join(filter(None, wrong))


def what_once(what):
    return "send" if what == "send" else "receive"


async def run_kills(group, number, what, pairs, size):
    for mine, theirs in pairs:
        group.now = f"{mine} here, {theirs} there"
        wrong = await killed(group, number, what, mine, theirs, size)
        group.cases += 1
        if wrong:
            group.fail(wrong)
    group.now = ""


def kills(kinds, size):
    pairs = [pair for pair in KILLS if set(pair) <= set(kinds)]
    for number, what in itertools.product(
        (signal.SIGKILL, signal.SIGSTOP), ("send", "recv")
    ):
        name = "sends" if what == "send" else "receives"
        event = "killed" if number == signal.SIGKILL else "stopped"
        for part in (pairs[::2], pairs[1::2]):
            if part:
                run = functools.partial(
                    run_kills, number=number, what=what, pairs=part, size=size
                )
                mine = ", ".join(f"{mine}/{theirs}" for mine, theirs in part)
                name_of_group = f"peer {event}, the survivor {name}: {mine}"
                yield Group(name_of_group, run, waits=True)


# ---- a kernel that fails -------------------------------------------------------------


async def run_kernel(group, size):
    pair = Pair("driver", "driver")
    group.now = "device memory"
    try:
        await pair.start()
        begun = pair.begin(pair.right, f"await side.fail_kernel(ep, {size})")
        sending = pair.begin(pair.left, f"await side.send(ep, 'bytearray', {size}, 1)")
        await asyncio.sleep(0.5)
        pair.begin(
            pair.left,
            f"await ep.recv(bytearray(6)); await side.send(ep, 'bytearray', {size}, 2)",
        )
        answer = await pair.result(pair.right, begun)
        if answer is None:
            group.notes.append("left out: this driver loads no kernels")
            return
        await pair.result(pair.left, sending)
        device, host = answer
        group.cases += 1
        group.notes.append(f"the message of the device: {device}; of the host: {host}")
        if device == "None" or not device.startswith("UCX"):
            group.fail(f"expected a UCXError, got {device}")
        if host != "goes on":
            group.fail(f"a message of the host: {host}")
        if wrong := await pair.end(pair.right):
            group.fail(wrong)
    except (Broken, AssertionError) as error:
        group.cases += 1
        group.fail(str(error))
    finally:
        pair.kill()


# ---- the tests -----------------------------------------------------------------------

ROOMS = ("mem", "proxy", "dask", "communicator")


async def run_tests(group, limit):
    missing = [name for name in ("pytest", "pytest_timeout") if not find_spec(name)]
    if missing:
        group.notes.append(f"left out: no {' and '.join(missing)}")
        return
    many = ["-n", str(min(8, os.cpu_count()))] if find_spec("xdist") else []
    command = [
        *(sys.executable, "-P", "-m", "pytest", "-v", "-m", "cuda", *many),
        *("-p", "no:benchmark", "-p", "no:cacheprovider"),
        *(str(ROOT / "tests" / room) for room in ROOMS),
    ]
    with tempfile.TemporaryFile("w+") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            await asyncio.wait_for(process.wait(), limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            if not isinstance(error, TimeoutError):
                raise
            group.fail(f"did not end within {limit:.0f} s")
        output.seek(0)
        lines = output.read().splitlines()
    failed = {}  # by name: -v says it at once, the summary with the reason
    for line in lines:
        for word in ("FAILED ", "ERROR "):
            if word in line and (said := line[line.index(word) :]).count("::"):
                failed[said.split()[1]] = said
    group.cases += sum(" PASSED " in line for line in lines) + len(failed)
    for line in failed.values():
        group.fail(line)
    # 5: there were no tests.
    if process.returncode not in (0, 5, -signal.SIGKILL) and not failed:
        group.fail(f"pytest ended with {process.returncode}")
    group.notes += lines[-1:]


def tests(limit):
    return Group(
        f"pytest -m cuda: {', '.join(ROOMS)}",
        functools.partial(run_tests, limit=limit),
        limit + 5,
        waits=True,
    )


def kernel(size):
    return Group("a kernel that fails", functools.partial(run_kernel, size=size), 60.0)
