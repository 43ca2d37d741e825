# SPDX-License-Identifier: BSD-3-Clause
"""All kinds of operations."""

from . import comm, kinds, memory, others

KINDS = [
    *(kinds.Plain, kinds.Tagged, kinds.Into, kinds.OnChannel, kinds.Many),
    *(kinds.Held, kinds.Owned, kinds.Allocated, kinds.Frames, kinds.OwnedFrames),
    *(kinds.Pickle, kinds.Active, kinds.ActiveHeld, kinds.Stream, kinds.StreamParts),
    *(kinds.Raw, kinds.RawHeld, kinds.Forced, memory.Put, memory.Get, memory.Add),
    *others.KINDS,
]

# Of a communicator.
RANKS = [*comm.MESSAGES, *comm.COLLECTIVES]

# Kinds that cannot be under way at once, as both need the stream of the endpoint.
EXCLUSIVE = {
    kinds.Stream: kinds.StreamParts,
    kinds.StreamParts: kinds.Stream,
}
