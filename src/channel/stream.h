/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.h: byte streams over channels of kind STREAM.
 *
 * A piece is a message; one without bytes is the end. Its place in the stream
 * is `info.tag`, by which `unexpected` is sorted: bytes that a receive gives
 * back return to their place. Thread: the worker's owner. */
#ifndef UMI_CHANNEL_STREAM_H
#define UMI_CHANNEL_STREAM_H

#include "channel/channel.h"

/* A receive. */
typedef struct umi_stream_recv {
    umi_channel *channel;
    uint64_t     place; /* of the first byte in the stream */
    size_t       filled;
    size_t       good; /* of `filled`: before what failed */
    unsigned     num_landing;
    umx_status   status;
    bool         is_wait_all;
    bool         is_ended;
    bool         is_returning; /* see channel.num_returning */
} umi_stream_recv;

UMI_REQUEST_TAIL(umi_stream_recv, umi_stream_of);

static inline bool
umi_channel_is_stream(const umi_channel *channel)
{
    return channel->id >> 16 == UMI_KIND_STREAM;
}

/* The place of its first unread byte. */
static inline uint64_t
umi_stream_place(const umx_message *message)
{
    return message->info.tag + message->read;
}

/* A piece that is next in order, inside UCX's callback. True: it went straight
 * to a receive; false: keep it, and offer it. */
bool umi_stream_arrive(umi_channel *channel, const umi_am_arrival *arrival);

/* umi_channel_offer() and umi_channel_fail_posted() of streams. */
void umi_stream_offer(umi_channel *channel, umx_message *message);
void umi_stream_fail_posted(umi_channel *channel, umx_status status);

/* Does a piece of `channel` land by `req`, and which? */
bool umi_stream_is_landing(const umi_channel *channel, const umx_request *req,
                           uint64_t *place_p);

/* Give receives what there is for them. */
void umi_stream_advance(umi_channel *channel);

#endif
