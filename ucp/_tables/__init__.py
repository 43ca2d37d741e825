# SPDX-License-Identifier: BSD-3-Clause
"""What operations on tables have in common whose rows are on many ranks.

frames    tables of any library as Arrow tables, and back
schemas   what ranks tell each other of their tables, and what follows from that
common    tables with the types and dictionaries that all ranks have
calls     the coroutine of a call, one at a time on a communicator
stages    the shuffles of which a call consists
exchange  partitions that are lent to other ranks, chunks that are viewed, a thread
spans     what was done when
skew      keys of too many rows
options   arguments that several calls have
begun     a coroutine that may end before its first step
libraries which libraries are installed
"""
