# SPDX-License-Identifier: BSD-3-Clause
# python examples/web_server.py [PORT]
# python examples/web_server.py --self   asks it some times, and ends
"""An asyncio web server whose work is done by another process, over ucp.

The front end speaks HTTP, with nothing but asyncio. It has one connection to a back
end, on which many questions are under way at once: each has a number, which is the tag
of its answer. The back end may be slow, or may compute: the front end goes on serving.

    curl http://127.0.0.1:PORT/primes/100
"""

import asyncio
import itertools
import json
import multiprocessing
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import ucp

LARGEST = 100_000
CLIENTS, ASKED_EACH = 8, 25  # of --self


# ---- the back end: a process ----------------------------------------------------


def primes_below(limit):
    is_prime = bytearray([1]) * limit
    is_prime[:2] = bytes(len(is_prime[:2]))
    for number in range(2, int(limit**0.5) + 1):
        if is_prime[number]:
            multiples = range(number * number, limit, number)
            is_prime[number * number :: number] = bytes(len(multiples))
    return list(itertools.compress(range(limit), is_prime))


async def back_end(pipe):
    """Answer questions until the front end closes."""
    async with ucp.create_listener(host="127.0.0.1") as listener:
        pipe.send(listener.port)
        ep = await listener.accept()
    async for message in ep:
        question = json.loads(bytes(message))
        primes = primes_below(question["limit"])
        answer = {"count": len(primes), "last": primes[-1] if primes else None}
        await ep.send(json.dumps(answer).encode(), tag=question["number"])
    await ep.close()


def run_back_end(pipe):
    try:
        asyncio.run(back_end(pipe))
    except KeyboardInterrupt:
        sys.exit(130)


# ---- the front end ---------------------------------------------------------------


class FrontEnd:
    """Serves HTTP, and asks the back end."""

    def __init__(self, ep):
        self.ep = ep
        self.numbers = itertools.count(1)

    async def ask(self, limit):
        """The answer of the back end, which others do not wait for."""
        number = next(self.numbers)
        question = {"number": number, "limit": limit}
        await self.ep.send(json.dumps(question).encode())
        return bytes(await self.ep.recv_obj(tag=number))

    async def answer(self, path):
        """The status and body of the answer to ``GET path``."""
        first, _, limit = path.removeprefix("/").partition("/")
        if first != "primes" or not limit.isdecimal() or int(limit) > LARGEST:
            return "404 Not Found", f'{{"try": "/primes/0 to {LARGEST}"}}'.encode()
        try:
            async with asyncio.timeout(10):
                return "200 OK", await self.ask(int(limit))
        except (ucp.UCXBaseException, TimeoutError) as exc:
            text = {"error": f"the back end does not answer: {exc}"}
            return "503 Service Unavailable", json.dumps(text).encode()

    async def serve(self, reader, writer):
        """Answer one request, and close the connection."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            words = head.split(maxsplit=2)
            path = words[1].decode() if len(words) == 3 and words[0] == b"GET" else ""
            status, body = await self.answer(path)
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # this was no request
        except ConnectionError:
            pass  # the client has gone
        finally:
            writer.close()


# ---- some clients, to see it work --------------------------------------------------


def ask_often(url):
    """Ask as a browser would; the answers."""
    found = []
    for _ in range(ASKED_EACH):
        with urllib.request.urlopen(url, timeout=20) as answer:
            found.append(json.load(answer))
    return found


async def try_it(url):
    loop = asyncio.get_running_loop()
    begun = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        asking = [
            loop.run_in_executor(pool, ask_often, f"{url}/primes/{10 * (client + 1)}")
            for client in range(CLIENTS)
        ]
        answers = await asyncio.gather(*asking)
    seconds = time.perf_counter() - begun
    print("primes below 10, 20, ...:", *(each[0]["count"] for each in answers))
    print(f"{CLIENTS * ASKED_EACH / seconds:.0f} answers a second")


async def main(port, is_trial):
    context = multiprocessing.get_context("spawn")
    pipe, end = context.Pipe()
    # A daemon ends with this process, however that ends.
    child = context.Process(target=run_back_end, args=(end,), daemon=True)
    child.start()
    back_end_port = await asyncio.to_thread(pipe.recv)
    async with ucp.connect("127.0.0.1", back_end_port) as ep:
        front_end = FrontEnd(ep)
        server = await asyncio.start_server(front_end.serve, "127.0.0.1", port)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            if is_trial:
                await try_it(url)
            else:
                print(f"try {url}/primes/100", flush=True)
                await server.serve_forever()
    await asyncio.to_thread(child.join)


if __name__ == "__main__":
    is_trial = sys.argv[1:] == ["--self"]
    try:
        asyncio.run(
            main(0 if is_trial or len(sys.argv) < 2 else int(sys.argv[1]), is_trial)
        )
    except KeyboardInterrupt:
        sys.exit(130)
