# SPDX-License-Identifier: BSD-3-Clause
"""An event loop in its own thread, for a worker's communicators."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class LoopThread:
    """The loop runs until ``stop()``."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def begin(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run it in the loop; from any thread."""
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:
            coroutine.close()  # the loop is closed
            raise

    def wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run it in the loop and wait for its result, in another thread."""
        return self.begin(coroutine).result()

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function in the loop and wait for its result, in another thread."""

        async def called() -> _T:
            return function()

        return self.wait(called())

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have a function be called in the loop; from any thread."""
        self.loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """End the loop, in another thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            if pending:
                self.loop.run_until_complete(
                    asyncio.gather(*pending, return_exceptions=True)
                )
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()
