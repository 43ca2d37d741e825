# SPDX-License-Identifier: BSD-3-Clause
"""As much of Ray as examples/ray_ranks.py calls: actors are threads with a loop."""

import asyncio
import threading


class _Actor:
    def __init__(self, cls, arguments):
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

        async def make():
            return cls(*arguments)

        self._made = self._submit(make())

    def _submit(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def __getattr__(self, name):
        return _Method(self, getattr(self._made.result(), name))


class _Method:
    def __init__(self, actor, function):
        self._actor, self._function = actor, function

    def remote(self, *arguments):
        return _Ref(self._actor._submit(self._function(*arguments)))


class _Ref:
    def __init__(self, future):
        self.future = future

    def __await__(self):
        return asyncio.wrap_future(self.future).__await__()


def remote(cls):
    cls.remote = lambda *arguments: _Actor(cls, arguments)
    return cls


def get(refs):
    return [ref.future.result() for ref in refs]


def init(**options):
    pass


def shutdown():
    pass
