# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp``: one file a command."""

# Layout:
#
#   main        finds the command and runs it
#   info        UCX, transports, limits, addresses
#   doctor      what is wrong here
#     finding                     what it finds
#     installation, ucx, memory, limits, system, gpu, network, exchange
#                                 what it looks at
#   bench       what messages and operations cost
#     table                       its table, beside results of a run before
#     chart                       its picture
#   pair        processes that measure              service   the one that is told
#   top         what processes are doing
#   completion  what bash and zsh complete
