/* SPDX-License-Identifier: BSD-3-Clause */
/* tagged.c: receiving messages, by their tags. */

#include "channel/channel.h"
#include "channel/match.h"
#include "mem/memtype.h"
#include "util/hash.h"
#include "util/log.h"

/* Where a receive is. */
enum recv_phase {
    RECV_QUEUED,   /* in channel->posted */
    RECV_CLAIMING, /* waits for a message that lands elsewhere */
    RECV_LANDING,  /* UCX writes into its buffer */
    RECV_COMPLETE
};

static const umi_request_ops recv_ops;

/* ---- the queue of messages -----------------------------------------------
 */

static bool
request_matches(const umx_request *req, const umx_recv_info *info)
{
    return umi_match(umi_recv_of(req)->tag, umi_recv_of(req)->mask,
                     umi_recv_of(req)->flags, info);
}

static umx_request *
find_posted(const umi_channel *channel, const umx_recv_info *info)
{
    UMI_LIST_FOREACH(node, &channel->posted) {
        umx_request *req = umi_request_at(node);

        if (request_matches(req, info)) {
            return req;
        }
    }
    return NULL;
}

static umx_message *
find_unexpected(const umi_channel *channel, const umx_match *match)
{
    UMI_LIST_FOREACH(node, &channel->unexpected) {
        umx_message *message = umi_message_at(node);

        if (message->claimant == NULL &&
            umi_match(match->tag, match->mask, match->flags, &message->info)) {
            return message;
        }
    }
    return NULL;
}

static bool
is_counted(const umi_channel *channel)
{
    return channel->id == UMI_CHANNEL_0 || channel->id == UMI_CHANNEL_PLAIN_AM;
}

/* A receive has got a message. */
static void
count_recv(umi_channel *channel)
{
    if (is_counted(channel)) {
        channel->ep->recv_count++;
        umi_close_check_count(channel->ep);
    }
}

void
umi_channel_uncount(umi_channel *channel)
{
    if (is_counted(channel)) {
        channel->ep->recv_count--;
    }
}

static umx_status
length_status(const umx_recv_info *info, size_t capacity, uint32_t flags)
{
    return (info->length < capacity && (flags & UMX_MATCH_EXACT)) ?
               UMX_ERR_LENGTH_MISMATCH :
               UMX_OK;
}

/* ---- receiving -----------------------------------------------------------
 */

static void
end_landing(umx_request *req)
{
    umi_recv_of(req)->phase = RECV_COMPLETE;
    umi_land_end(req);
}

/* Have the announced bytes written into `req->buf`. */
static umx_status
land(umx_request *req, void *desc, size_t len)
{
    umx_ep    *ep = umi_endpoint_of(req->ep);
    umx_status status;

    umi_recv_of(req)->phase   = RECV_LANDING;
    umi_recv_of(req)->message = NULL;
    status                    = umi_land(req, desc, len);
    if (status == UMX_INPROGRESS) {
        return status;
    }
    end_landing(req);
    if (status != UMX_OK) {
        umi_endpoint_cannot_land(ep, status);
        umi_channel_cut(umi_recv_of(req)->landing.channel, req->info.seq,
                        status);
        return status;
    }
    return length_status(&req->info, req->buf.len, umi_recv_of(req)->flags);
}

/* The bytes of `message`, which is off its queue, into `buf`; the message is
 * gone after it. Not for RNDV and LANDING. */
umx_status
umi_channel_copy_out(umi_channel *channel, umx_message *message,
                     const umx_buffer *buf, uint32_t flags)
{
    size_t     len = message->info.length;
    umx_status status;

    if (len > buf->len) {
        status = UMX_ERR_MESSAGE_TRUNCATED;
    } else {
        status = umi_copy_in(buf, message->data, len);
        if (status == UMX_OK) {
            status = length_status(&message->info, buf->len, flags);
        }
    }
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

/* The bytes of an announced message, off its queue, into `req`. */
umx_status
umi_channel_deliver_announced(umi_channel *channel, umx_message *message,
                              umx_request *req)
{
    void    *desc = message->data;
    size_t   len  = message->info.length;
    uint32_t seq  = message->info.seq;

    if (len <= req->buf.len && channel->ep->base.handle != NULL &&
        !umi_channel_is_lost(channel, seq)) {
        channel->ep->num_announced--;
        message->storage = UMI_STORAGE_MOVED;
        umi_channel_credit(channel, message);
        umi_message_free(message);
        return land(req, desc, len);
    }
    umi_channel_credit(channel, message);
    umi_message_free(message);
    if (channel->ep->has_goodbye) {
        umi_endpoint_due(channel->ep, UMI_DUE_ACK);
    }
    if (len > req->buf.len) {
        return UMX_ERR_MESSAGE_TRUNCATED;
    }
    umi_channel_cut(channel, seq,
                    umi_endpoint_end_status(channel->ep, UMX_ERR_CLOSED));
    return umi_endpoint_end_status(channel->ep, UMX_ERR_CLOSED);
}

/* `message`, off its queue, to `req`, off its list. UMX_INPROGRESS: landing. */
static umx_status
deliver(umi_channel *channel, umx_message *message, umx_request *req)
{
    req->info = message->info;
    count_recv(channel);
    if (umi_recv_of(req)->flags & UMI_MATCH_WANT_MESSAGE) {
        take_message(message, req);
        return UMX_OK;
    }
    if (message->storage == UMI_STORAGE_RNDV) {
        return umi_channel_deliver_announced(channel, message, req);
    }
    return umi_channel_copy_out(channel, message, &req->buf,
                                umi_recv_of(req)->flags);
}

static void
complete_recv(umx_request *req, umx_status status)
{
    umi_recv_of(req)->phase = RECV_COMPLETE;
    umi_request_complete(req, status);
}

static void
offer(umi_channel *channel, umx_message *message)
{
    umx_request *req;
    umx_status   status;

    req = find_posted(channel, &message->info);
    if (req == NULL) {
        umi_channel_queue(channel, message);
        if (channel->user != NULL) {
            umi_endpoint_due(channel->ep, UMI_DUE_HANDLERS);
        }
        return;
    }
    umi_node_remove(&req->node);
    if (message->storage == UMI_STORAGE_LANDING) {
        message->claimant         = req;
        umi_recv_of(req)->phase   = RECV_CLAIMING;
        umi_recv_of(req)->message = message;
        umi_channel_queue(channel, message);
        return;
    }
    status = deliver(channel, message, req);
    if (status != UMX_INPROGRESS) {
        complete_recv(req, status);
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
    count_recv(channel);
    if (arrival->len > req->buf.len) {
        status = UMX_ERR_MESSAGE_TRUNCATED;
    } else if (arrival->is_rndv) {
        status = land(req, arrival->data, arrival->len);
    } else {
        status = umi_copy_in(&req->buf, arrival->data, arrival->len);
        if (status == UMX_OK) {
            status = length_status(info, req->buf.len, umi_recv_of(req)->flags);
        }
    }
    umi_credit_read(channel, umi_charge_of(arrival));
    if (status != UMX_INPROGRESS) {
        complete_recv(req, status);
    }
}

/* Does it get the bytes, not a message? */
static bool
takes_bytes(const umx_request *req, const umi_am_arrival *arrival)
{
    if (!(umi_recv_of(req)->flags & UMI_MATCH_WANT_MESSAGE)) {
        return true;
    }
    return req->buf.len != 0 && arrival->len <= req->buf.len &&
           !arrival->is_rndv && arrival->header_len == UMI_HEADER_MIN;
}

static bool
arrive(umi_channel *channel, const umx_recv_info *info,
       const umi_am_arrival *arrival)
{
    umx_request *req = find_posted(channel, info);

    if (req == NULL || !takes_bytes(req, arrival)) {
        return false;
    }
    arrive_at_request(channel, req, info, arrival);
    return true;
}

/* ---- posting a receive ---------------------------------------------------
 */

umx_status
umi_channel_end_recv(umx_request *req, umx_status status)
{
    status = umi_land_unstage(req, status, req->info.length);
    umi_request_free(req);
    return status;
}

umx_request *
umi_channel_new_recv(umi_channel *channel, const umx_match *match,
                     uint32_t flags, const umx_buffer *buf,
                     const umx_op_params *params)
{
    umx_ep      *ep  = channel->ep;
    umx_request *req = umi_request_new(ep->base.worker, &ep->base, &recv_ops,
                                       params);

    if (req == NULL) {
        return NULL;
    }
    umi_request_hold_buffer(req, buf);
    req->info.length          = 0;
    umi_recv_of(req)->tag     = match->tag;
    umi_recv_of(req)->mask    = match->mask;
    umi_recv_of(req)->flags   = flags;
    umi_recv_of(req)->message = NULL;
    umi_recv_of(req)->phase   = RECV_QUEUED;
    if (!umi_landing_init(req, channel)) {
        umi_request_free(req);
        return NULL;
    }
    return req;
}

/* A receive that meets a message which must land, or is landing elsewhere. */
static umx_status
recv_later(umi_channel *channel, umx_message *message, umx_request *req)
{
    if (message->storage == UMI_STORAGE_LANDING) {
        message->claimant         = req;
        umi_recv_of(req)->phase   = RECV_CLAIMING;
        umi_recv_of(req)->message = message;
        return UMX_INPROGRESS;
    }
    umi_channel_unqueue(channel, message);
    return deliver(channel, message, req);
}

static umx_status
recv_queued(umi_channel *channel, umx_message *message, const umx_match *match,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p, umx_recv_info *info)
{
    umx_request *req;
    umx_status   status;

    if (umi_message_is_at_hand(message)) {
        *info = message->info;
        umi_channel_unqueue(channel, message);
        count_recv(channel);
        return umi_channel_copy_out(channel, message, buf, match->flags);
    }
    req = umi_channel_new_recv(channel, match, match->flags, buf, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = recv_later(channel, message, req);
    if (status != UMX_INPROGRESS) {
        *info = req->info;
        return umi_channel_end_recv(req, status);
    }
    *req_p = req;
    return UMX_INPROGRESS;
}

umx_status
umx_channel_recv(umx_ep *ep, uint16_t number, const umx_match *match,
                 const umx_buffer *buf, const umx_op_params *params,
                 umx_request **req_p, umx_recv_info *info)
{
    umi_channel *channel;
    umx_message *message;
    umx_request *req;
    umx_status   status = umi_channel_check_recv(
          ep, umi_channel_id(UMI_KIND_MESSAGE, number), &channel);

    if (status != UMX_OK) {
        return status;
    }
    status = umi_endpoint_check_buffer(buf);
    if (status != UMX_OK) {
        return status;
    }
    if (!umi_list_is_empty(&channel->unexpected) && umi_endpoint_may_read(ep)) {
        message = find_unexpected(channel, match);
        if (message != NULL) {
            return recv_queued(channel, message, match, buf, params, req_p,
                               info);
        }
    }
    status = umi_endpoint_recv_status(ep);
    if (status != UMX_OK) {
        return status;
    }
    req = umi_channel_new_recv(channel, match, match->flags, buf, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_list_append(&channel->posted, &req->node);
    *req_p = req;
    return UMX_INPROGRESS;
}

umx_status
umi_channel_recv_message(umx_ep *ep, uint32_t id, const umx_match *match,
                         const umx_buffer *small, const umx_op_params *params,
                         umx_request **req_p, umx_message **message_p)
{
    static const umx_buffer nothing;

    umi_channel *channel;
    umx_message *message = NULL;
    umx_request *req;
    umx_status   status = umi_channel_check_recv(ep, id, &channel);

    if (status != UMX_OK) {
        return status;
    }
    if (umi_endpoint_may_read(ep)) {
        message = find_unexpected(channel, match);
    }
    if (message == NULL) {
        status = umi_endpoint_recv_status(ep);
        if (status != UMX_OK) {
            return status;
        }
    }
    req = umi_channel_new_recv(channel, match,
                               match->flags | UMI_MATCH_WANT_MESSAGE,
                               small != NULL ? small : &nothing, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (message == NULL) {
        umi_list_append(&channel->posted, &req->node);
        status = UMX_INPROGRESS;
    } else {
        status = recv_later(channel, message, req);
    }
    if (status == UMX_INPROGRESS) {
        *req_p = req;
    } else {
        *message_p = umi_recv_of(req)->message;
        umi_request_free(req);
    }
    return status;
}

umx_status
umx_channel_recv_message(umx_ep *ep, uint16_t number, const umx_match *match,
                         const umx_op_params *params, umx_request **req_p,
                         umx_message **message_p)
{
    return umi_channel_recv_message(ep,
                                    umi_channel_id(UMI_KIND_MESSAGE, number),
                                    match, NULL, params, req_p, message_p);
}

umx_status
umi_channel_probe(umx_ep *ep, uint32_t id, const umx_match *match,
                  umx_recv_info *info)
{
    umi_channel *channel;
    umx_message *message;
    umx_status   status = umi_channel_check_recv(ep, id, &channel);

    if (status != UMX_OK) {
        return status;
    }
    message = umi_endpoint_may_read(ep) ? find_unexpected(channel, match) :
                                          NULL;
    if (message == NULL) {
        return UMX_ERR_NO_MESSAGE;
    }
    *info = message->info;
    return UMX_OK;
}

umx_status
umx_channel_probe(umx_ep *ep, uint16_t number, const umx_match *match,
                  umx_recv_info *info)
{
    return umi_channel_probe(ep, umi_channel_id(UMI_KIND_MESSAGE, number),
                             match, info);
}

umx_status
umi_channel_unrecv(umi_channel *channel, const umx_recv_info *info,
                   const void *header, size_t header_len, const umx_buffer *buf)
{
    umx_ep      *ep = channel->ep;
    umx_message *message;
    umx_status   status;

    if (info->length > buf->len) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (!umi_endpoint_may_read(ep) || umi_channel_is_lost(channel, info->seq)) {
        return UMX_ERR_CLOSED;
    }
    status = umi_message_rebuild(ep, header, header_len, buf, info->length,
                                 &message);
    if (status != UMX_OK) {
        return status;
    }
    message->channel = channel;
    message->info    = *info;
    umi_channel_uncount(channel);
    umi_channel_offer(channel, message);
    return UMX_OK;
}

umx_status
umx_channel_unrecv(umx_ep *ep, uint16_t number, const umx_recv_info *info,
                   const umx_buffer *buf)
{
    umi_channel *channel;
    umx_status   status = umi_channel_check_recv(
          ep, umi_channel_id(UMI_KIND_MESSAGE, number), &channel);

    return (status == UMX_OK) ?
               umi_channel_unrecv(channel, info, NULL, 0, buf) :
               status;
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
        return;
    }
    umi_recv_of(claimant)->message = NULL;
    umi_channel_unqueue(channel, message);
    complete_recv(claimant, deliver(channel, message, claimant));
}

/* A cancelled receive's bytes are in: they move out of the lent buffer. */
static void
settle_cancelled_landing(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_message *message = umi_recv_of(req)->message;
    umx_status   status  = req->status;

    umi_recv_of(req)->message = NULL;
    message->lander           = NULL;
    message->storage          = UMI_STORAGE_MOVED;
    if (status == UMX_OK) {
        status = umi_message_make_room(message, message->info.length) ?
                     umi_copy_out(&req->buf, message->data,
                                  message->info.length) :
                     UMX_ERR_NO_MEMORY;
    }
    umi_channel_landed(channel, message, status);
}

static void
finish_landing(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_ep      *ep      = channel->ep;

    end_landing(req);
    if (req->status != UMX_OK && umi_recv_of(req)->message == NULL) {
        umi_channel_lose(channel, req->info.seq, req->status);
    }
    if (umi_channel_is_behind_lost(channel, req->info.seq)) {
        req->status = UMX_ERR_CLOSED;
    }
    if (req->status != UMX_OK) {
        req->status = umi_endpoint_end_status(ep, req->status);
    }
    if (umi_recv_of(req)->message != NULL) {
        settle_cancelled_landing(req);
        req->status = UMX_ERR_CANCELED;
    } else if (req->status == UMX_OK) {
        req->status = length_status(&req->info, req->buf.len,
                                    umi_recv_of(req)->flags);
    }
}

/* Cancelled between completion and report: the message goes back. If there is
 * no memory for it, the cancellation has come too late. */
static void
uncomplete(umx_request *req)
{
    umx_status status = UMX_OK;

    if (umi_recv_of(req)->message != NULL) {
        umx_message_return(umi_recv_of(req)->message);
        umi_recv_of(req)->message = NULL;
    } else if (req->status == UMX_OK ||
               req->status == UMX_ERR_LENGTH_MISMATCH) {
        status = umi_channel_unrecv(umi_recv_of(req)->landing.channel,
                                    &req->info, NULL, 0, &req->buf);
    }
    if (status != UMX_ERR_NO_MEMORY) {
        req->status = UMX_ERR_CANCELED;
    }
}

/* What few receives need at their end. */
static __attribute__((noinline)) void
finish_odd(umx_request *req)
{
    if (umi_recv_of(req)->phase == RECV_LANDING) {
        finish_landing(req);
    }
    if (req->is_cancelled && req->status != UMX_ERR_CANCELED) {
        uncomplete(req);
    }
    req->status = umi_land_unstage(req, req->status, req->info.length);
}

static bool
recv_finish(umx_request *req)
{
    if (umi_recv_of(req)->phase == RECV_LANDING || req->is_cancelled ||
        umi_recv_of(req)->landing.staged != NULL) {
        finish_odd(req);
    }
    return true;
}

/* The message that lands in a cancelled receive's buffer takes its place in
 * the queue now, so that later receives see it in order. */
static void
cancel_landing(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_ep      *ep      = channel->ep;
    umx_message *message;

    if (!umi_endpoint_may_read(ep) ||
        umi_channel_is_lost(channel, req->info.seq)) {
        return; /* nobody receives it any more */
    }
    message = umi_message_copy(ep, NULL, 0);
    if (message == NULL) {
        req->is_cancelled = false; /* it is received after all */
        return;
    }
    message->channel          = channel;
    message->info             = req->info;
    message->storage          = UMI_STORAGE_LANDING;
    message->data             = NULL;
    message->lander           = req;
    umi_recv_of(req)->message = message;
    umi_channel_uncount(channel);
    umi_channel_offer(channel, message);
}

static void
recv_cancel(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_message *message = umi_recv_of(req)->message;

    switch ((enum recv_phase)umi_recv_of(req)->phase) {
    case RECV_QUEUED:
        complete_recv(req, UMX_ERR_CANCELED);
        break;
    case RECV_CLAIMING:
        message->claimant         = NULL;
        umi_recv_of(req)->message = NULL;
        complete_recv(req, UMX_ERR_CANCELED);
        umi_channel_unqueue(channel, message);
        umi_channel_offer(channel, message);
        break;
    case RECV_LANDING:
        cancel_landing(req);
        break;
    case RECV_COMPLETE:
        break;
    }
}

static const umi_request_ops recv_ops = {
    .name   = "recv",
    .finish = recv_finish,
    .cancel = recv_cancel,
};

static void
fail_posted(umi_channel *channel, umx_status status)
{
    UMI_LIST_FOREACH_SAFE(node, &channel->posted) {
        complete_recv(umi_request_at(node), status);
    }
}

void
umi_tagged_fail_claim(umx_request *claimant, umx_status status)
{
    umi_recv_of(claimant)->message = NULL;
    complete_recv(claimant, status);
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
    .place       = umi_seq_place,
    .distance    = umi_seq_distance,
    .next        = next,
    .lander      = &recv_ops,
};

uint64_t
umx_tag_hash(const void *data, size_t len)
{
    return umi_siphash(data, len);
}
