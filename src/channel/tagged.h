/* SPDX-License-Identifier: BSD-3-Clause */
/* tagged.h: the parts of a channel whose receives take messages by their tags.
 * Thread: the worker's owner. */
#ifndef UMI_CHANNEL_TAGGED_H
#define UMI_CHANNEL_TAGGED_H

#include "channel/channel.h"
#include "channel/match.h"

/* The phases of a receive. */
enum umi_recv_phase {
    UMI_RECV_LATE,     /* in channel->late */
    UMI_RECV_QUEUED,   /* in channel->posted */
    UMI_RECV_CLAIMING, /* waits for a message that lands elsewhere */
    UMI_RECV_LANDING,  /* UCX writes into its buffer */
    UMI_RECV_COMPLETE
};

/* The receive of a message. */
extern const umi_request_ops umi_tagged_recv_ops;

/* What traces call a receive on `channel`. */
const char *umi_tagged_recv_name(const umi_channel *channel);

/* True if umx_ep_close_after_recv() counts receives on `channel`. */
static inline bool
umi_tagged_is_counted(const umi_channel *channel)
{
    return channel->id == UMI_CHANNEL_0 || channel->id == UMI_CHANNEL_PLAIN_AM;
}

/* Count a receive that has got a message. */
static inline void
umi_tagged_count(umi_channel *channel)
{
    if (umi_tagged_is_counted(channel)) {
        channel->ep->recv_count++;
        umi_close_check_count(channel->ep);
    }
}

/* Count a receive's message back: it is given back. */
static inline void
umi_tagged_uncount(umi_channel *channel)
{
    if (umi_tagged_is_counted(channel)) {
        channel->ep->recv_count--;
    }
}

/* UMX_OK; else why a message of `len` bytes is not for a receive of `capacity`
 * bytes: see misfit.c. */
static inline umx_status
umi_tagged_fits(size_t len, size_t capacity, uint32_t flags)
{
    if (flags & UMI_MATCH_WANT_MESSAGE) {
        return UMX_OK; /* its bytes come later */
    }
    if (len > capacity) {
        return UMX_ERR_MESSAGE_TRUNCATED;
    }
    return (len < capacity && (flags & UMX_MATCH_EXACT)) ?
               UMX_ERR_LENGTH_MISMATCH :
               UMX_OK;
}

/* Hand `message`, off its queue, to `req`, off its list, which it fits.
 * UMX_INPROGRESS: its bytes land. */
umx_status umi_tagged_deliver(umi_channel *channel, umx_message *message,
                              umx_request *req);

/* The landing of a receive is over, whatever has come. */
void umi_tagged_end_landing(umx_request *req);

/* Let a receive wait again, at its place: its message has been withdrawn. */
void umi_tagged_repost(umx_request *req);

/* The first message in the queue that a receive may have; NULL: none. */
umx_message *umi_tagged_find(const umi_channel *channel, uint64_t tag,
                             uint64_t mask, uint32_t flags);

/* Likewise, for a receive of `capacity` bytes. Unless `*status_p` is UMX_OK the
 * message does not fit, and is for the next receive; one that did not fit the
 * receive before, either, is dropped on the way. */
umx_message *umi_tagged_find_fitting(umi_channel     *channel,
                                     const umx_match *match, size_t capacity,
                                     umx_status *status_p);

/* Complete a receive, wherever it is. */
void umi_tagged_complete(umx_request *req, umx_status status);

/* True if a receive that is posted later may get a message that is here. */
bool umi_tagged_has_message(const umi_channel *channel, const umx_request *req);

/* Post `req`, of no list, as if the program did so now, but at its place among
 * those that wait. UMX_INPROGRESS: it waits, or its bytes land. */
umx_status umi_tagged_post_now(umi_channel *channel, umx_request *req);

/* Post the first of those that are late, if its memory is ready now, and those
 * behind it. */
void umi_tagged_post_late(umi_channel *channel);

/* The memory of a late receive is ready, or that has failed. */
void umi_tagged_ready(umx_request *req, umx_status status);

/* A receive meets a message that must land, or is landing elsewhere. */
umx_status umi_tagged_recv_later(umi_channel *channel, umx_message *message,
                                 umx_request *req);

/* ---- give_back.c ---------------------------------------------------------
 */

/* Give back the message of a receive that was cancelled between completion and
 * report. If there is no memory for it, the cancellation has come too late. */
void umi_tagged_return_received(umx_request *req);

/* Give back the message that lands in the buffer of a cancelled receive: it
 * takes its place in the queue now, so that later receives see it in order. */
void umi_tagged_return_landing(umx_request *req);

/* Move the bytes of such a message, which are in, out of the lent buffer. */
void umi_tagged_return_landed(umx_request *req);

/* ---- elsewhere.c ---------------------------------------------------------
 */

/* umx_request_move() and umx_request_drop() of a receive that
 * umx_message_recv() has begun. */
umx_status umi_recv_move(umx_request *req, bool is_forced, umi_spare **copy_p);
umx_status umi_recv_drop(umx_request *req);

#endif
