# SPDX-License-Identifier: BSD-3-Clause
# tests: compat/exceptions compat/utils ucp/utils
"""``ucp._libs.utils``, ``ucp._libs.exceptions`` and ``ucp.utils``."""

import asyncio
import logging
import subprocess
import sys

import pytest

import ucp.utils
from ucp._libs import exceptions, utils


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5, "2.500 s"),
        (1.5e-3, "1.500 ms"),
        (2e-6, "2.000 us"),
        (3e-9, "3.000 ns"),
        (0, "0.000 ns"),
    ],
)
def test_times_are_in_the_unit_that_fits(seconds, text):
    assert utils.format_time(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (3 << 20, "3.00 MiB"),
        (5 << 30, "5.00 GiB"),
        (2048 << 40, "2048.00 TiB"),
    ],
)
def test_sizes_are_in_the_unit_that_fits(size, text):
    assert utils.format_bytes(size) == text


def test_rows_have_columns(capsys):
    utils.print_separator("=", 5)
    utils.print_key_value("key", 1, key_length=5)
    utils.print_multi(("a", "b", "c"), key_length=3)
    assert capsys.readouterr().out == "=====\nkey   | 1\na   | b   | c\n"


def test_a_profiler_range_without_a_profiler():
    with utils.nvtx_annotate("name", color="blue", domain="ucp"):
        pass


def test_log_errors_logs_and_swallows(caplog):
    with exceptions.log_errors():
        raise ValueError("logged")
    assert "logged" in caplog.text
    with pytest.raises(KeyError), exceptions.log_errors(reraise_exception=True):
        raise KeyError


def test_the_exceptions_are_those_of_ucp():
    assert exceptions.UCXError is ucp.UCXError


def test_the_event_loop_is_the_running_one_or_a_new_one():
    async def main():
        assert ucp.utils.get_event_loop() is asyncio.get_running_loop()

    asyncio.run(main())
    loop = ucp.utils.get_event_loop()
    assert not loop.is_running()
    loop.close()


def test_hashes_are_the_same_in_every_process():
    source = "import ucp.utils; print(ucp.utils.hash64bits('a', 1, b'b'))"
    outputs = {
        subprocess.check_output([sys.executable, "-P", "-c", source]) for _ in range(2)
    }
    assert outputs == {f"{ucp.utils.hash64bits('a', 1, b'b')}\n".encode()}
    assert ucp.utils.hash64bits("a") != ucp.utils.hash64bits("b")
    assert 0 <= ucp.utils.hash64bits() < 1 << 64


def test_the_logger_has_one_handler(monkeypatch):
    monkeypatch.setenv("UCXPY_LOG_LEVEL", "ERROR")
    logger = logging.getLogger("ucx")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    assert ucp.utils.get_ucxpy_logger() is ucp.utils.get_ucxpy_logger() is logger
    assert logger.level == logging.ERROR
    assert len(logger.handlers) == 1


def test_the_harmonic_mean():
    assert ucp.utils.hmean([1, 4, 4]) == 2
    assert ucp.utils.hmean([]) == 0
