# SPDX-License-Identifier: BSD-3-Clause
"""The API of ucx-py on top of ``ucp``.

Programs of ucx-py import ``ucp``, ``ucp.core``, ``ucp.utils``, ``ucp.comm`` and
``ucp._libs``; the modules of these names re-export the names of this package.
"""

# Layout:
#
#   core   the functions, and the context as an object    utils  helpers
#   comm   operations as asyncio's futures                libs   the low-level API
#   faces  the private attributes of endpoints that programs of ucx-py use
