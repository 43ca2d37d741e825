/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.h: byte streams over channels of kind STREAM.
 *
 * A piece is a message; one without bytes is the end. Its place in the stream
 * is `info.tag`, by which `unexpected` is sorted: bytes that a receive gives
 * back return to their place. Thread: the worker's owner. */
#ifndef UMI_CHANNEL_STREAM_H
#define UMI_CHANNEL_STREAM_H

#include "channel/channel.h"

/* A receive; `info.tag` is the place of its first byte. */
typedef struct umi_stream_recv {
    umi_assembly all;
    size_t       filled;
    size_t       good; /* of `filled`: before what failed */
    bool         is_wait_all;
} umi_stream_recv;

UMI_REQUEST_TAIL(umi_stream_recv, umi_stream_of);

/* The place of its first unread byte. */
static inline uint64_t
umi_stream_place(const umx_message *message)
{
    return message->info.tag + message->read;
}

/* ---- give_back.c ---------------------------------------------------------
 */

/* Put `len` bytes of `buf`, which a receive has got, back to their place, by
 * copy. */
umx_status umi_stream_put_back(umi_channel *channel, uint64_t place,
                               const umx_buffer *buf, size_t len);

/* Put the bytes of `req` back, up to the first that are missing. */
void umi_stream_give_back(umx_request *req);

/* Let the bytes that land for `req` land in memory of ours, with those that
 * have come: `move` gets each piece, and where that memory begins.
 * UMX_INPROGRESS: it cannot be done, or must not. On a failure nobody gets the
 * bytes. */
umx_status umi_stream_move(umx_request *req, umi_piece_fn move);

#endif
