# SPDX-License-Identifier: BSD-3-Clause
"""The logger ``ucp``: what it tells, its level, and where lines go."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import textwrap

import pytest
from script import run_script

import ucp
from ucp._core import log
from ucp.testing import connected_pair, until


@pytest.fixture
def lines(fresh_ucx, caplog):
    """What ``ucp`` logs, at DEBUG."""
    caplog.set_level(logging.DEBUG, "ucp")
    return caplog


def texts(caplog, level=logging.DEBUG):
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "ucp" and record.levelno >= level
    ]


def has(caplog, *words, level=logging.DEBUG):
    return any(all(word in text for word in words) for text in texts(caplog, level))


# ---- what is told ------------------------------------------------------------


async def test_the_life_of_a_connection_is_told(lines):
    async with connected_pair() as (client, server):
        uid, port = client.uid, client.peer_address[1]
        to = f"endpoint {uid} to 127.0.0.1:{port}"
        await client.send(bytes(8))
        await server.recv(bytearray(8))
        await client.close()
        await server.close()
    log.catch_up()
    assert has(lines, f"listener on 127.0.0.1:{port}: begun", level=logging.INFO)
    assert has(lines, f"{to}: connecting")
    assert has(lines, f"{to} (process {os.getpid()}): connected after", " ms, by ")
    assert has(lines, f"endpoint {server.uid} to 127.0.0.1:", "accepted after")
    assert has(lines, to, "closed by this side", "messages sent: 1, received: 0")
    assert has(lines, f"endpoint {server.uid} ", "closed by the peer")
    assert has(lines, f"listener on 127.0.0.1:{port}: closed")
    assert not has(lines, to, level=logging.WARNING)


async def test_a_refused_connection_is_told_with_the_reason(lines):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(ucp.UCXNotConnected):
            await ucp.create_endpoint("127.0.0.1", bound.getsockname()[1])
    log.catch_up()
    assert has(lines, "not connected after", "Connection refused (errno 111)")


async def test_a_peer_that_dies_is_told(lines, connect_peer):
    peer, ep = await connect_peer()
    receiving = ep.recv(bytearray(8))
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await receiving
    log.catch_up()
    assert has(lines, f"endpoint {ep.uid} ", "the connection is lost: ")


async def test_a_line_that_a_call_makes_comes_with_the_next_turn(lines):
    """Though nothing else happens to the worker."""
    async with connected_pair() as (client, server):
        await client.send(b"12345")
        await until(lambda: server.statistics.received_messages == 1)
        receives = [server.recv(bytearray(1)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert has(lines, "a message of 5 bytes is dropped")
        with pytest.raises(ucp.UCXMsgTruncated):
            await receives[0]
        receives[1].cancel()


async def test_the_way_of_long_messages_is_told_once(lines):
    async with connected_pair() as (client, server):
        for _ in range(3):
            receiving = server.recv(bytearray(4 << 20))
            await client.send(bytes(4 << 20))
            await receiving
    log.catch_up()
    told = [text for text in texts(lines) if "messages such as one of" in text]
    assert len(told) == 1
    assert told[0].startswith(f"endpoint {client.uid} ")


async def test_no_line_is_made_for_each_message(lines):
    async with connected_pair() as (client, server):
        log.catch_up()
        lines.clear()
        for _ in range(200):
            receiving = server.recv(bytearray(8))
            await client.send(bytes(8))
            await receiving
        log.catch_up()
        assert len(texts(lines)) <= 1


# ---- the level ---------------------------------------------------------------


async def test_lines_that_nobody_wants_are_not_made(fresh_ucx, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "ucp")
    seen = []
    monkeypatch.setattr(log.logger, "log", lambda level, *_: seen.append(level))
    async with connected_pair():
        pass
    log.catch_up()
    assert [level for level in seen if level < logging.WARNING] == []


async def test_a_change_of_the_level_takes_effect(lines):
    lines.set_level(logging.WARNING, "ucp")
    async with connected_pair():
        pass
    log.catch_up()
    assert texts(lines) == []
    lines.set_level(logging.INFO, "ucp")
    async with connected_pair():
        pass
    log.catch_up()
    assert has(lines, "connected after")
    assert not has(lines, ": connecting")


async def test_the_root_loggers_level_counts(fresh_ucx, caplog):
    caplog.set_level(logging.INFO)
    async with connected_pair():
        pass
    log.catch_up()
    assert has(caplog, "connected after")


# ---- UCP_LOG_LEVEL ------------------------------------------------------------

CONNECT = """
import asyncio, logging
{first}
import ucp
from ucp.testing import connected_pair, until
{then}
async def main():
    async with connected_pair():
        pass
asyncio.run(main())
"""


def standard_error(level, first="", then=""):
    """What a program writes to standard error."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", CONNECT.format(first=first, then=then)],
        env={**os.environ, "UCP_LOG_LEVEL": level},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return done.stderr


def test_a_level_of_the_environment_makes_lines_on_standard_error():
    text = standard_error("info")
    assert "INFO: listener on 127.0.0.1:" in text
    assert "aborted by this side" in text.splitlines()[-1]  # with its worker
    assert "DEBUG" not in text
    assert standard_error("") == ""


def test_a_handler_of_the_program_gets_the_lines_instead():
    text = standard_error("debug", then="logging.basicConfig(format='>%(message)s')")
    assert ">listener on 127.0.0.1:" in text
    assert all(line.startswith(">") for line in text.splitlines())


def test_standard_error_is_that_of_the_moment():
    source = """
    import asyncio, io, sys, ucp
    from ucp.testing import connected_pair, until

    async def main():
        async with connected_pair():
            pass

    ours, sys.stderr = sys.stderr, io.StringIO()
    asyncio.run(main())
    assert "INFO: listener on 127.0.0.1:" in sys.stderr.getvalue()
    sys.stderr = None
    asyncio.run(main())
    sys.stderr = ours
    """
    run_script(source, UCP_LOG_LEVEL="info")


def test_a_level_that_is_none_is_warned_of():
    text = standard_error("loud")
    assert "UCP_LOG_LEVEL='loud' is no level: it is error, warning, info" in text
    assert "listener" not in text


# ---- lines on their way --------------------------------------------------------


def test_many_lines_come_whole_and_in_order():
    """UCX makes thousands of lines in one call."""
    source = """
    import logging, ucp
    from ucp import _ext
    lines = []
    _ext.set_log_handler(lambda level, text: lines.append(text), lambda: 3)
    ucp._ext.Context({"LOG_LEVEL": "info"})
    _ext.log_catch_up()
    print(sum("dropped" in line for line in lines))
    """
    assert run_script(source) == "0\n"


def test_what_a_peer_says_is_escaped(caplog):
    caplog.set_level(logging.DEBUG, "ucp")
    log._on_line(1, "a\nb\x1b[31m\u202e \xe9")
    assert texts(caplog) == [r"a\nb\x1b[31m\u202e \xe9"]


def test_a_handler_that_raises_is_reported_and_lines_go_on():
    source = """
    import sys, ucp
    from ucp import _ext
    seen = []
    def handler(level, text):
        seen.append(text)
        raise ValueError(text)
    sys.unraisablehook = lambda it: None
    _ext.set_log_handler(handler, lambda: 1 / 0)
    _ext.log_catch_up()
    _ext.set_log_handler(None)
    for wrong in (1, "a"):
        try:
            _ext.set_log_handler(wrong)
        except TypeError as exc:
            print(exc)
    """
    assert run_script(source).splitlines() == [
        "the handler must be callable or None, not int",
        "the handler must be callable or None, not str",
    ]


def test_ctrl_c_in_a_handler_ends_the_program_and_not_the_line():
    source = """
    import asyncio, logging, ucp
    from ucp.testing import connected_pair, until

    class Handler(logging.Handler):
        def emit(self, record):
            seen.append(record)
            if len(seen) == 2:
                raise KeyboardInterrupt

    seen = []
    ucp_logger = logging.getLogger("ucp")
    ucp_logger.addHandler(Handler())
    ucp_logger.setLevel(logging.INFO)

    async def main():
        async with connected_pair():
            await asyncio.sleep(50)

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print(len(seen) > 2)
    """
    assert run_script(source) == "True\n"


@pytest.mark.real_start
def test_a_forked_child_delivers_no_line_of_its_parent():
    source = textwrap.dedent("""
    import os, sys, warnings
    import ucp
    from ucp import _ext
    from ucp._core import lifecycle
    warnings.simplefilter("ignore")
    seen = []
    _ext.set_log_handler(lambda level, text: seen.append(text), lambda: 3)
    worker = lifecycle.current_worker()
    _ext.set_log_handler(lambda level, text: seen.append(text), lambda: 3)
    listener = ucp.create_listener(print, host="127.0.0.1")
    pid = os.fork()
    if pid == 0:
        _ext.log_catch_up()
        os._exit(sum("listener" in text for text in seen))
    assert os.waitpid(pid, 0)[1] == 0
    _ext.log_catch_up()
    assert sum("listener" in text for text in seen) == 1
    listener.close()
    """)
    run_script(source)
