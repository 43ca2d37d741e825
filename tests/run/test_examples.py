# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/main
"""The examples without a launcher, as a user runs them: what they print is right."""

import re
import subprocess
import sys

import pytest
from paths import EXAMPLES


def run(name, *arguments):
    """The lines of an example that has ended well."""
    done = subprocess.run(
        [sys.executable, "-P", EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def run_both(name):
    """The lines of an example's waiting side and of its connecting side."""
    program = [sys.executable, "-P", EXAMPLES / name]
    server = subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        host, port = server.stdout.readline().split()[-1].split(":")
        client = run(name, host, port)
        out, err = server.communicate()
        assert (server.returncode, err) == (0, "")
        return out.splitlines(), client
    finally:
        server.kill()
        server.communicate()


def matches(lines, patterns):
    """Whether each line is what the pattern at its place says: # is a number."""
    number = r"\d[\d,]*(\.\d+)?"
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        whole = re.escape(pattern).replace(r"\#", number)
        assert re.fullmatch(whole, line), (line, pattern)


# What each pair prints: its waiting side, and its connecting side.
PAIRS = {
    "put_get.py": (
        ["first 999999 last 0 counter 10"],
        ["sum 499999500000, read at # GB/s"],
    ),
    "kv_cache.py": (
        [],
        [
            "request 7: 1000 pages are here",
            "request 8: 33 pages are here",
            "request 9: 2500 pages are here",
            "pages came at # GB/s",
        ],
    ),
    "pipeline.py": (
        ["# frames shown, # dropped", "a frame was # ms old when it was shown"],
        [],
    ),
    "compat/hello_address.py": (
        ["hello world"],
        ["HELLO WORLD", "a round trip takes # us"],
    ),
    "compat/probe.py": (
        [
            "0 bytes from 0: intact",
            "5 bytes from 1: intact",
            "10000 bytes from 2: intact",
            "3000000 bytes from 3: intact",
            "asked for and taken at # GB/s",
        ],
        [],
    ),
    "compat/low_level_tags.py": (
        [],
        ["12 squared is 144", "a round trip takes # us"],
    ),
    "compat/low_level_get.py": (
        [],
        ["blocks of 3000 0 150000 5 bytes", "intact", "read at # GB/s"],
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_sides_of_an_example_talk_to_each_other(name):
    waiting, connecting = run_both(name)
    matches(waiting, PAIRS[name][0])
    matches(connecting, PAIRS[name][1])


@pytest.mark.parametrize("name", PAIRS)
def test_an_example_starts_its_other_side_itself(name):
    waiting, connecting = PAIRS[name]
    matches(run(name, "--self"), connecting + waiting)


# What programs print that need no other one.
ALONE = {
    "echo_client.py": (
        ["--self"],
        ["5 messages came back", "a round trip takes # us"],
    ),
    "numpy_roundtrip.py": (
        [],
        ["same", "there and back in # ms: 16 MB and a product"],
    ),
    "web_server.py": (
        ["--self"],
        ["primes below 10, 20, ...: 4 8 10 12 15 17 19 22", "# answers a second"],
    ),
    "reconnecting_client.py": (
        ["--self"],
        ["20 answers, 2 connections were lost", "the longest answer took # ms"],
    ),
    "after_failure.py": (
        ["3"],
        [
            "rank 1 has failed: on from step #",
            "2 of 3 ranks have the sum of all 40 steps",
            "they went on # ms after the failure",
        ],
    ),
    "compat/all_pairs.py": (
        ["5"],
        [
            "5 processes, 25 endpoints: each has the sum {15}",
            "a barrier takes # us",
        ],
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_an_example_says_that_it_is_right(name):
    arguments, lines = ALONE[name]
    matches(run(name, *arguments), lines)


def test_the_echo_examples_talk_to_each_other():
    server = subprocess.Popen(
        [sys.executable, "-P", EXAMPLES / "echo_server.py", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        host, port = server.stdout.readline().split()[-1].split(":")
        matches(run("echo_client.py", host, port), ALONE["echo_client.py"][1])
        lines = run("reconnecting_client.py", host, port)
        assert lines[0] == "20 answers, 0 connections were lost"
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def test_a_slow_viewer_gets_the_newest_frames():
    shown = run("pipeline.py", "--self")[0]
    frames, dropped = map(int, re.findall(r"\d+", shown))
    assert frames + dropped == 200
    assert dropped > 0


@pytest.mark.parametrize("name", ["echo_client.py", "reconnecting_client.py"])
def test_a_client_that_is_not_told_where_its_server_is_says_so(name):
    done = subprocess.run(
        [sys.executable, "-P", EXAMPLES / name], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"usage: python {name} HOST PORT, or --self\n"
