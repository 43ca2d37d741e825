# SPDX-License-Identifier: BSD-3-Clause
# python examples/reconnecting_client.py HOST PORT
# python examples/reconnecting_client.py --self     with a server that is killed twice
"""A client that outlives its server: it connects again, and asks again.

It asks echo_server.py once in a while, until it has 20 answers. With --self it starts
the server itself, kills it in between, and starts it again at the same port.
"""

import asyncio
import random
import sys
import time
from pathlib import Path

import ucp

LOST = (
    ucp.UCXNotConnected,
    ucp.UCXConnectionReset,
    ucp.UCXCloseError,
    ucp.UCXUnreachable,
    ucp.UCXTimeout,
)
SHORTEST, LONGEST = 0.01, 1.0  # seconds between two attempts
QUESTIONS = 20


class Connection:
    """A connection that is made again when it breaks.

    A question may be answered twice by the server: that of an answer which is lost is
    asked again.
    """

    def __init__(self, host, port, patience=20.0):
        self.host, self.port, self.patience = host, port, patience
        self.answers = self.losses = 0
        self._ep = None
        self._lock = asyncio.Lock()  # one question at a time

    async def ask(self, question):
        """The answer. TimeoutError: there was none for ``patience`` seconds."""
        pause = SHORTEST
        async with self._lock, asyncio.timeout(self.patience):
            while True:
                try:
                    return await self._ask_once(question)
                except LOST:
                    self.losses += self._ep is not None
                    self._drop()
                # Clients that have lost one server do not all come at once.
                await asyncio.sleep(pause * random.uniform(0.5, 1))
                pause = min(2 * pause, LONGEST)

    async def _ask_once(self, question):
        if self._ep is None:
            self._ep = await ucp.connect(self.host, self.port, timeout=2)
        await self._ep.send(question)
        answer = await self._ep.recv_obj()
        self.answers += 1
        return answer

    def _drop(self):
        if self._ep is not None:
            self._ep.abort()
            self._ep = None

    async def close(self):
        if self._ep is not None:
            await self._ep.close()


async def ask_all(connection):
    """Ask all questions; the longest time that an answer took."""
    longest = 0.0
    for number in range(QUESTIONS):
        question = f"question {number}".encode()
        begun = time.perf_counter()
        if await connection.ask(question) != question:
            sys.exit("an answer is another one's")
        longest = max(longest, time.perf_counter() - begun)
        await asyncio.sleep(0.05)
    await connection.close()
    return longest


async def start_server(port):
    """Start the server; its process and port."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", Path(__file__).with_name("echo_server.py"), str(port)),
        stdout=asyncio.subprocess.PIPE,
    )
    line = await server.stdout.readline()
    return server, int(line.rpartition(b":")[2])


async def kill_twice(server, port, connection):
    """Kill the server twice, and start it again; the one that is left."""
    for answers in (QUESTIONS // 4, QUESTIONS // 2):
        while connection.answers < answers:
            await asyncio.sleep(0.01)
        server.kill()
        await server.wait()
        server, _ = await start_server(port)
    return server


async def main(host, port):
    connection = Connection(host, port)
    longest = await ask_all(connection)
    report(connection, longest)


async def main_with_server():
    server, port = await start_server(0)
    connection = Connection("127.0.0.1", port)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask_all(connection))
        killing = tasks.create_task(kill_twice(server, port, connection))
    report(connection, asking.result())
    server = killing.result()
    server.kill()
    await server.wait()


def report(connection, longest):
    print(f"{QUESTIONS} answers, {connection.losses} connections were lost")
    print(f"the longest answer took {longest * 1e3:.0f} ms")


try:
    if sys.argv[1:] == ["--self"]:
        asyncio.run(main_with_server())
    elif len(sys.argv) == 3:
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    else:
        sys.exit("usage: python reconnecting_client.py HOST PORT, or --self")
except TimeoutError:
    sys.exit("the server does not answer")
except KeyboardInterrupt:
    sys.exit(130)
