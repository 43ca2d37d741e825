/* SPDX-License-Identifier: BSD-3-Clause */
/* tagged.c: a channel whose receives take messages by their tags: a message
 * meets a receive, and the receive ends. tagged_recv.c posts receives,
 * give_back.c gives the message of a cancelled one back. */

#include "channel/tagged.h"
#include "mem/memtype.h"
#include "util/count.h"
#include "worker/observe.h"

/* ---- the queue of messages -----------------------------------------------
 */

static bool
request_matches(const umx_request *req, const umx_recv_info *info)
{
    return umi_match(umi_recv_of(req)->tag, umi_recv_of(req)->mask,
                     umi_recv_of(req)->flags, info);
}

void
umi_tagged_complete(umx_request *req, umx_status status)
{
    umi_recv_of(req)->phase = UMI_RECV_COMPLETE;
    umi_request_complete(req, status);
}

/* End `req`, which meets a message that does not fit. */
static void
refuse_length(umx_request *req, const umx_recv_info *info, umx_status status)
{
    umi_node_remove(&req->node);
    req->info = *info;
    umi_tagged_complete(req, status);
}

static umx_request *
first_posted(const umi_channel *channel, const umx_recv_info *info)
{
    UMI_LIST_FOREACH(node, &channel->posted) {
        umx_request *req = umi_channel_request_at(node);

        if (request_matches(req, info)) {
            return req;
        }
    }
    return NULL;
}

/* Find the receive that gets a message. The first one that the message does not
 * fit ends, if none has yet; where it does not fit another one, nobody gets it.
 */
static umx_request *
find_posted(const umi_channel *channel, const umx_recv_info *info,
            bool *is_refused_p, bool *is_dropped_p)
{
    umx_request *req;

    *is_dropped_p = false;
    while ((req = first_posted(channel, info)) != NULL) {
        umx_status status = umi_tagged_fits(info->length, req->buf.len,
                                            umi_recv_of(req)->flags);

        if (status == UMX_OK) {
            break;
        }
        if (*is_refused_p) {
            umi_misfit_log(channel, info->length, req->buf.len);
            *is_dropped_p = true;
            return NULL;
        }
        refuse_length(req, info, status);
        *is_refused_p = true;
    }
    return req;
}

umx_message *
umi_tagged_find_fitting(umi_channel *channel, const umx_match *match,
                        size_t capacity, umx_status *status_p)
{
    umx_message *message;

    *status_p = UMX_OK;
    while ((message = umi_tagged_find(channel, match->tag, match->mask,
                                      match->flags)) != NULL) {
        *status_p = umi_tagged_fits(message->info.length, capacity,
                                    match->flags);
        if (*status_p == UMX_OK || !message->is_refused) {
            break;
        }
        *status_p = UMX_OK;
        umi_misfit_log(channel, message->info.length, capacity);
        umi_channel_unqueue(channel, message);
        umi_misfit_drop(channel, message);
    }
    if (message != NULL) {
        message->is_refused = *status_p != UMX_OK;
    }
    return message;
}

/* ---- receiving -----------------------------------------------------------
 */

void
umi_tagged_end_landing(umx_request *req)
{
    umi_recv_of(req)->phase = UMI_RECV_COMPLETE;
    umi_land_end(req);
}

/* Have bytes that are elsewhere written into `req->buf`. */
static umx_status
land(umx_request *req, const umi_way *way, void *desc, size_t len)
{
    umx_ep    *ep = umi_endpoint_of(req->ep);
    umx_status status;

    umi_recv_of(req)->phase   = UMI_RECV_LANDING;
    umi_recv_of(req)->message = NULL;
    status                    = umi_land(req, way, desc, len);
    if (status == UMX_INPROGRESS) {
        return status;
    }
    if (status == UMX_ERR_WITHDRAWN) {
        umi_withdraw_expect(req);
        return UMX_INPROGRESS;
    }
    umi_tagged_end_landing(req);
    if (status != UMX_OK) {
        umi_endpoint_cannot_land(ep, status);
        umi_channel_cut(umi_recv_of(req)->landing.channel, req->info.seq,
                        status);
    }
    return status;
}

/* The bytes of `message`, which is off its queue, into `buf`; the message is
 * gone after it. Not for RNDV and LANDING. */
umx_status
umi_channel_copy_out(umi_channel *channel, umx_message *message,
                     const umx_buffer *buf)
{
    umx_status status = umi_copy_in(buf, message->data, message->info.length);

    umi_channel_credit(channel, message);
    umi_message_free(message);
    return status;
}

static void
take_message(umx_message *message, umx_request *req)
{
    umi_message_take(message);
    umi_recv_of(req)->message = message;
}

/* True if the peer can be asked for bytes. Once it has been told GOODBYE it
 * knows that what it has announced is not read. */
static bool
may_ask(const umi_channel *channel)
{
    const umx_ep *ep = channel->ep;

    return ep->base.handle != NULL &&
           (!ep->is_goodbye_sent || channel->is_requests ||
            channel->is_replies);
}

/* The bytes of an announced message, off its queue, into `req`. */
umx_status
umi_channel_deliver_announced(umi_channel *channel, umx_message *message,
                              umx_request *req)
{
    const umi_way *way  = message->way;
    void          *desc = message->data;
    size_t         len  = message->info.length;
    uint32_t       seq  = message->info.seq;

    if (may_ask(channel) && !umi_channel_is_lost(channel, seq)) {
        UMI_DECREMENT(channel->ep->num_announced);
        message->storage = UMI_STORAGE_MOVED;
        umi_channel_credit(channel, message);
        umi_message_free(message);
        return land(req, way, desc, len);
    }
    umi_channel_credit(channel, message);
    umi_message_free(message);
    if (channel->ep->has_goodbye) {
        umi_endpoint_due(channel->ep, UMI_DUE_ACK);
    }
    umi_channel_cut(channel, seq,
                    umi_endpoint_end_status(channel->ep, UMX_ERR_CLOSED));
    return umi_endpoint_end_status(channel->ep, UMX_ERR_CLOSED);
}

umx_status
umi_tagged_deliver(umi_channel *channel, umx_message *message, umx_request *req)
{
    req->info = message->info;
    umi_tagged_count(channel);
    if (umi_recv_of(req)->flags & UMI_MATCH_WANT_MESSAGE) {
        take_message(message, req);
        return UMX_OK;
    }
    if (message->storage == UMI_STORAGE_RNDV) {
        return umi_channel_deliver_announced(channel, message, req);
    }
    return umi_channel_copy_out(channel, message, &req->buf);
}

static void
offer(umi_channel *channel, umx_message *message)
{
    umx_request *req;
    umx_status   status;
    bool         is_dropped;

    req = find_posted(channel, &message->info, &message->is_refused,
                      &is_dropped);
    if (is_dropped) {
        umi_misfit_drop(channel, message);
        return;
    }
    if (req == NULL) {
        umi_channel_queue(channel, message);
        if (channel->user != NULL) {
            umi_endpoint_due(channel->ep, UMI_DUE_HANDLERS);
        }
        umi_channel_keep(channel, message);
        umi_channel_trim(channel);
        return;
    }
    umi_node_remove(&req->node);
    message->is_refused = false;
    if (message->storage == UMI_STORAGE_LANDING) {
        message->claimant         = req;
        umi_recv_of(req)->phase   = UMI_RECV_CLAIMING;
        umi_recv_of(req)->message = message;
        umi_channel_queue(channel, message);
        return;
    }
    status = umi_tagged_deliver(channel, message, req);
    if (status != UMX_INPROGRESS) {
        umi_tagged_complete(req, status);
    }
}

/* ---- arrival, inside UCX's callback --------------------------------------
 */

static void
arrive_at_request(umi_channel *channel, umx_request *req,
                  const umx_recv_info *info, const umi_am_arrival *arrival)
{
    umx_status status;

    umi_node_remove(&req->node);
    req->info = *info;
    umi_tagged_count(channel);
    if (umi_am_is_at_hand(arrival)) {
        status = umi_copy_in(&req->buf, arrival->data, arrival->len);
    } else {
        status = land(req, arrival->way, arrival->data, arrival->len);
    }
    umi_credit_read(channel, umi_charge_of(channel, arrival));
    if (status != UMX_INPROGRESS) {
        umi_tagged_complete(req, status);
    }
}

/* True if `req` gets the bytes of the message, not the message. */
static bool
takes_bytes(const umx_request *req, const umi_am_arrival *arrival)
{
    if (!umi_am_suits(arrival, req)) {
        return false;
    }
    if (!(umi_recv_of(req)->flags & UMI_MATCH_WANT_MESSAGE)) {
        return true;
    }
    return req->buf.len != 0 && arrival->len <= req->buf.len &&
           umi_am_is_at_hand(arrival) && arrival->header_len == UMI_HEADER_MIN;
}

static umi_arrived
arrive(umi_channel *channel, const umx_recv_info *info,
       const umi_am_arrival *arrival)
{
    bool         is_refused = false, is_dropped;
    umx_request *req = find_posted(channel, info, &is_refused, &is_dropped);

    if (is_dropped) {
        umi_credit_read(channel, umi_charge_of(channel, arrival));
        return UMI_ARRIVED;
    }
    if (req == NULL || !takes_bytes(req, arrival)) {
        return is_refused ? UMI_ARRIVED_REFUSED : UMI_ARRIVED_TO_KEEP;
    }
    arrive_at_request(channel, req, info, arrival);
    return UMI_ARRIVED;
}

/* ---- the end of a receive ------------------------------------------------
 */

static void
landed(umi_channel *channel, umx_message *message, umx_status status)
{
    umx_request *claimant;

    if (status != UMX_OK) {
        return; /* it has been dropped */
    }
    claimant          = message->claimant;
    message->claimant = NULL;
    if (claimant == NULL) {
        if (channel->user != NULL) {
            umi_endpoint_due(channel->ep, UMI_DUE_HANDLERS);
        }
        umi_channel_trim(channel);
        return;
    }
    umi_recv_of(claimant)->message = NULL;
    umi_channel_unqueue(channel, message);
    umi_tagged_complete(claimant,
                        umi_tagged_deliver(channel, message, claimant));
}

static void
finish_landing(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_ep      *ep      = channel->ep;

    umi_tagged_end_landing(req);
    if (req->status != UMX_OK && umi_recv_of(req)->message == NULL &&
        req->memory_status == UMX_OK) {
        umi_channel_lose(channel, req->info.seq, req->status);
    }
    if (umi_channel_is_behind_lost(channel, req->info.seq)) {
        req->status = UMX_ERR_CLOSED;
    }
    if (req->status != UMX_OK && req->memory_status == UMX_OK) {
        req->status = umi_endpoint_end_status(ep, req->status);
    }
    if (umi_recv_of(req)->message != NULL) {
        umi_tagged_return_landed(req);
        req->status = UMX_ERR_CANCELED;
    }
}

/* End the landing of a message that its sender has withdrawn: what has landed
 * means nothing. False: the receive waits again. */
static bool
finish_withdrawn(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;

    umi_tagged_end_landing(req);
    umi_recv_of(req)->landing.is_withdrawn = false;
    if (umi_request_is_detached(req) || req->is_cancelled) {
        req->status = UMX_ERR_CANCELED;
        return true;
    }
    req->is_void = false;
    if (req->status != UMX_OK) {
        req->status = umi_endpoint_end_status(channel->ep, req->status);
        return true;
    }
    if (umi_recv_of(req)->flags & UMI_MATCH_OF_MESSAGE) {
        req->status = UMX_ERR_WITHDRAWN;
        return true;
    }
    umi_tagged_uncount(channel);
    umi_tagged_repost(req);
    return false;
}

void
umi_tagged_repost(umx_request *req)
{
    umx_status status;

    umi_request_restart(req);
    req->info.length          = 0;
    umi_recv_of(req)->message = NULL;
    status = umi_tagged_post_now(umi_landing_of(req)->channel, req);
    if (status != UMX_INPROGRESS) {
        umi_tagged_complete(req, status);
    }
}

/* Do what few receives need at their end. */
static __attribute__((noinline)) bool
finish_odd(umx_request *req)
{
    if (umi_recv_of(req)->landing.is_withdrawn) {
        if (!finish_withdrawn(req)) {
            return false;
        }
    } else if (umi_recv_of(req)->phase == UMI_RECV_LANDING) {
        finish_landing(req);
    }
    if (req->is_void) {
        req->status = UMX_ERR_CANCELED;
    } else if (req->is_cancelled && req->status != UMX_ERR_CANCELED) {
        umi_tagged_return_received(req);
    }
    return true;
}

static bool
recv_finish(umx_request *req)
{
    if (umi_recv_of(req)->phase == UMI_RECV_LANDING || req->is_cancelled) {
        return finish_odd(req);
    }
    return true;
}

static void
recv_cancel(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_message *message = umi_recv_of(req)->message;

    switch ((enum umi_recv_phase)umi_recv_of(req)->phase) {
    case UMI_RECV_LATE:
        umi_tagged_complete(req, UMX_ERR_CANCELED);
        umi_tagged_post_late(channel);
        break;
    case UMI_RECV_QUEUED:
        umi_tagged_complete(req, UMX_ERR_CANCELED);
        break;
    case UMI_RECV_CLAIMING:
        message->claimant         = NULL;
        umi_recv_of(req)->message = NULL;
        umi_tagged_complete(req, UMX_ERR_CANCELED);
        /* The message is for the next receive that matches. */
        umi_channel_unqueue(channel, message);
        umi_channel_offer(channel, message);
        break;
    case UMI_RECV_LANDING:
        umi_tagged_return_landing(req);
        break;
    case UMI_RECV_COMPLETE:
        break;
    }
}

/* The bytes are in, and `finish` would return the message from the buffer. */
static void
recv_cancel_complete(umx_request *req)
{
    if (req->status == UMX_ERR_MESSAGE_TRUNCATED ||
        req->status == UMX_ERR_LENGTH_MISMATCH) {
        umi_misfit_forget(umi_recv_of(req)->landing.channel, req->info.seq);
    }
    if (umi_recv_of(req)->phase != UMI_RECV_LANDING) {
        umi_tagged_return_received(req);
        if (req->status != UMX_ERR_CANCELED) {
            umi_channel_lose(umi_recv_of(req)->landing.channel, req->info.seq,
                             UMX_ERR_NO_MEMORY);
            req->status = UMX_ERR_CANCELED;
        }
    } else if (req->status == UMX_OK) {
        umi_tagged_return_landing(req);
    }
}

const char *
umi_tagged_recv_name(const umi_channel *channel)
{
    return (channel->id >> 16 == UMI_KIND_AM) ? "am_recv" : "recv";
}

static void
recv_describe(const umx_request *req, umx_trace_event *event)
{
    umi_observe_received(req, event);
    event->name = umi_tagged_recv_name(umi_landing_of(req)->channel);
}

const umi_request_ops umi_tagged_recv_ops = {
    .name            = "recv",
    .finish          = recv_finish,
    .cancel          = recv_cancel,
    .cancel_complete = recv_cancel_complete,
    .ready           = umi_tagged_ready,
    .describe        = recv_describe,
};

bool
umi_tagged_has_message(const umi_channel *channel, const umx_request *req)
{
    const umi_recv *recv = umi_recv_of(req);

    return umi_endpoint_reads_on(channel->ep) &&
           umi_tagged_find(channel, recv->tag, recv->mask, recv->flags) != NULL;
}

static void
fail_posted(umi_channel *channel, umx_status status)
{
    UMI_LIST_FOREACH_SAFE(node, &channel->posted) {
        umi_tagged_complete(umi_channel_request_at(node), status);
    }
    UMI_LIST_FOREACH_SAFE(node, &channel->late) {
        umx_request *req = umi_channel_request_at(node);

        if (!umi_tagged_has_message(channel, req)) {
            umi_tagged_complete(req, status);
        }
    }
    umi_tagged_post_late(channel); /* the first may be another one now */
}

void
umi_tagged_fail_claim(umx_request *claimant, umx_status status)
{
    umi_recv_of(claimant)->message = NULL;
    umi_tagged_complete(claimant, status);
}

static uint64_t
next(const umi_channel *channel)
{
    return channel->rx_seq;
}

const umi_channel_ops umi_tagged_ops = {
    .arrive      = arrive,
    .offer       = offer,
    .landed      = landed,
    .fail_posted = fail_posted,
    .place       = umi_channel_seq_place,
    .distance    = umi_channel_seq_distance,
    .next        = next,
    .lander      = &umi_tagged_recv_ops,
};
