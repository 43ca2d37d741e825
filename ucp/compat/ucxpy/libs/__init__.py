# SPDX-License-Identifier: BSD-3-Clause
"""The low-level API of ucx-py: operations that call a function when they are done.

``ucx_api`` has the whole API, as thin classes over the extension. Programs of ucx-py
import these modules from ``ucp._libs``.
"""

# Layout:
#
#   ucx_api     what programs import, with what is of no other module
#   _worker     contexts and workers       _endpoint  endpoints, listeners
#   _memory     memory that peers read and write
#   arr         Array                      exceptions the tree of ucp
#   utils       texts and addresses        utils_test operations that wait
