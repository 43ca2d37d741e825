# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx.testing``: processes of tests."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from queue import Empty
from typing import Any

__all__ = ["join_processes", "run_in_subprocess", "terminate_process"]


def run_in_subprocess(
    target: Callable[..., Any], error_queue: Any, *args: Any, **kwargs: Any
) -> None:
    """Call ``target``; put the text of its failure into ``error_queue``.

    For ``multiprocessing.Process(target=run_in_subprocess, ...)``; the process
    still fails.
    """
    try:
        target(*args, **kwargs)
    except Exception:
        error_queue.put(traceback.format_exc())
        raise


def join_processes(processes: Sequence[BaseProcess], timeout: float) -> None:
    """Join processes, within ``timeout`` seconds in all."""
    deadline = time.monotonic() + timeout
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0))


def terminate_process(
    process: BaseProcess, kill_wait: float = 3.0, error_queue: Any = None
) -> None:
    """Kill a process that is alive; complain of one that has failed.

    Raises:
        RuntimeError: its exit code is not 0; with the text that
            ``run_in_subprocess`` has put into ``error_queue``.
        ValueError: it is alive ``kill_wait`` seconds after it was killed.
    """
    if process.is_alive():
        process.kill()
    process.join(kill_wait)
    if process.is_alive():
        raise ValueError(f"{process.name} is alive {kill_wait} s after it was killed")
    if process.exitcode == 0:
        return
    text = f"Process did not exit cleanly (exit code: {process.exitcode})"
    try:
        failure = None if error_queue is None else error_queue.get_nowait()
    except Empty:
        failure = None
    if failure is not None:
        text += f"\n\nSubprocess traceback:\n{failure}"
    raise RuntimeError(text)
