# SPDX-License-Identifier: BSD-3-Clause
"""A range of ports for UCX, ``UCX_TCP_PORT_RANGE``, that is used up."""

from script import run_script

_WORKER = """
import asyncio, os, socket, ucp

async def main():
    with socket.socket() as sock:
        sock.bind(("", 0))
        port = sock.getsockname()[1]
        ucp.init(options={"TCP_PORT_RANGE": f"{port}-{port}"})
        try:
            ucp.current_worker()
        except ucp.UCXBusy as error:
            print(error)

asyncio.run(main())
"""


def test_the_error_says_what_to_do():
    assert run_script(_WORKER) == (
        "Worker: no port of UCX_TCP_PORT_RANGE is free: every worker of a host needs "
        "one, those of clients, too\n"
    )
