# SPDX-License-Identifier: BSD-3-Clause
"""Pass a number round a ring of ranks; each adds its own.

python -m ucp run -n 4 examples/ring.py
"""

import asyncio
import sys

import numpy as np

import ucp


async def main():
    async with await ucp.Communicator.from_env() as comm:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        number = np.zeros(1, "i8")
        if comm.rank == 0:
            sending = comm.send(number, right)
            total = np.zeros(1, "i8")
            await comm.recv(total, left)
            await sending
            print(f"{comm.size} ranks have the sum {total[0]}")
        else:
            await comm.recv(number, left)
            number += comm.rank
            await comm.send(number, right)


try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
