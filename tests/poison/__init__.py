# SPDX-License-Identifier: BSD-3-Clause
"""Programs that use a buffer for something else as soon as its await has ended.

When an await has ended, by a result, an error, a cancellation or a timeout, the
library neither reads nor writes the buffer any more. Here two processes run random
operations, a third of which are cancelled, and fill each buffer with a pattern in
the turn of the event loop in which its await has ended. Then no message that is
received contains a pattern, and no buffer that was filled holds anything else:

    content.py    bytes of messages, and patterns
    plan.py       sizes; how and when an operation is cancelled
    operation.py  one operation: starts, is cancelled, ends, is poisoned
    lane.py       messages of one kind in one direction
    kinds.py      kinds of messages
    report.py     counts and failures
    side.py       one of two processes: its rounds of lanes
    pair.py       starts them, and stops, blocks and kills the peer
    timeouts.py   time limits that are too short, for what takes long or has an order

``test_poison.py`` here runs a share, ``tests/soak/poison.py`` as much as is wanted.
"""
