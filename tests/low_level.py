# SPDX-License-Identifier: BSD-3-Clause
"""Two low-level workers of one thread, and what moves them."""

from ucp._libs import ucx_api


class Call:
    """A callback that remembers what it was called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, first, exception, *args, **kwargs):
        self.calls.append((first, exception, args, kwargs))

    @property
    def exception(self):
        ((_, exception, _, _),) = self.calls
        return exception


class Pair:
    """``client`` is connected to ``server``, each under a worker of its own."""

    def __init__(self, options=None, **kwargs):
        self.context = ucx_api.UCXContext(options, **kwargs)
        self.here = ucx_api.UCXWorker(self.context)
        self.there = ucx_api.UCXWorker(self.context)
        self.accepted = []
        self.listener = ucx_api.UCXListener(self.there, 0, self.accepted.append)
        self.client = self.connect()
        self.until(lambda: self.accepted)
        self.server = ucx_api.UCXEndpoint.create_from_conn_request(
            self.there, self.accepted.pop(), True
        )

    def connect(self):
        return ucx_api.UCXEndpoint.create(
            self.here, "127.0.0.1", self.listener.port, True
        )

    def until(self, condition):
        """Move both workers until ``condition()``."""
        while not condition():
            self.here.progress()
            self.there.progress()

    def wait(self, *calls):
        self.until(lambda: all(call.calls for call in calls))

    def done(self, request, call):
        """Wait for an operation that returned ``request``."""
        self.until(lambda: request is None or call.calls)

    def send(self, data, tag=0, ep=None):
        """Send with a tag, from the client; wait."""
        call = Call()
        request = ucx_api.tag_send_nb(ep or self.client, data, len(data), tag, call)
        self.done(request, call)

    def close(self):
        self.here.close()
        self.there.close()
