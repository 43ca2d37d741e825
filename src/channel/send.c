/* SPDX-License-Identifier: BSD-3-Clause */
/* send.c: the sending half of channel.h. How a message goes is decided once, as
 * it goes: credit says whether it is announced, and offer.h by which way.
 * The bytes stay the program's: UCX gets them by a datatype (worker/datatype.h)
 * wherever no hardware reads them by itself. */
#include <string.h>

#include "bounce/bounce.h"
#include "channel/channel.h"
#include "endpoint/endpoint.h"
#include "endpoint/log.h"
#include "lend/lend.h"
#include "mem/memtype.h"
#include "ops/transfer.h"
#include "util/count.h"
#include "worker/dma.h"
#include "worker/observe.h"

enum {
    SHORT_MAX =
        1024 /* bytes of messages that wait for their channel's credit */
};

/* The header in front of the message; UCX reads it until the send is over. */
static char *
header_of(umx_request *req)
{
    umx_message *longer = umi_send_of(req)->longer;

    return (longer != NULL) ? longer->data : (char *)umi_send_of(req)->header;
}

static umi_charge
charge_eager(umx_request *req)
{
    uint8_t flags;

    if (umi_send_of(req)->longer == NULL) {
        return umi_charge_eager(req->buf.len, 0); /* no header of the user's */
    }
    flags = (uint8_t)header_of(req)[offsetof(umi_header, flags)];
    return umi_charge_eager(req->buf.len, umi_send_of(req)->header_len -
                                              umi_header_size(flags));
}

/* True if a message waits for its channel's own credit, rather than be
 * announced. To fetch it from far away takes the peer longer than to read what
 * it has of the channel, for which the credit comes. */
static bool
waits_for_own_credit(const umi_channel *channel, const umx_request *req)
{
    return umi_channels_of(channel->ep)->trip_ns != 0 &&
           req->buf.len <= SHORT_MAX &&
           channel->tx_sent.messages == channel->tx_limits.messages;
}

/* Find out whether a message is announced, and if credit allows what it costs.
 * Without credit for eager messages a message is announced, so that its bytes
 * stay here; without credit for announcements it may be of the channel's
 * reserve. */
static bool
choose_charge(const umi_channel *channel, umx_request *req, bool has_room,
              umi_charge *charge_p)
{
    bool counts_all = umi_credit_counts_all(&channel->ep->peer_limits);

    if (!umi_send_of(req)->must_announce && has_room &&
        !(req->buf.len == 0 && counts_all)) {
        *charge_p = charge_eager(req);
        if (umi_credit_allows(channel, *charge_p)) {
            return true;
        }
        if (waits_for_own_credit(channel, req)) {
            return false;
        }
    }
    if (counts_all) {
        *charge_p = (umi_charge){.kind = UMI_CHARGE_ANY};
        return umi_credit_allows(channel, *charge_p);
    }
    *charge_p = (umi_charge){.kind = UMI_CHARGE_RNDV};
    if (req->buf.len != 0 && umi_credit_allows(channel, *charge_p)) {
        return true;
    }
    if (req->buf.len == 0 &&
        channel->tx_sent.messages == channel->tx_limits.messages) {
        return false; /* only what is shared may be lacking */
    }
    *charge_p = (umi_charge){.kind = UMI_CHARGE_RESERVE};
    return umi_credit_allows(channel, *charge_p);
}

/* True if a message goes eagerly where there is credit: nearly all do. */
static inline bool
is_plain(const umi_channel *channel, const umx_request *req)
{
    return req->buf.len < umi_channels_of(channel->ep)->plain_below &&
           !umi_send_of(req)->is_lent &&
           (req->buf.len == 0 || !umi_channel_is_of_device(req));
}

/* Decide how a message goes, by what is known of it here, and keep that in the
 * send. False: it waits for credit. */
static bool
decide(const umi_channel *channel, umx_request *req, umi_charge *charge_p)
{
    umi_send *send  = umi_send_of(req);
    bool      plain = is_plain(channel, req);

    send->must_announce = !plain && umi_offer_must_announce(req);
    if (!choose_charge(channel, req, plain || umi_offer_has_room(req),
                       charge_p)) {
        return false;
    }
    send->is_rndv = charge_p->kind != UMI_CHARGE_EAGER && req->buf.len != 0;
    send->way     = (plain && !send->is_rndv) ?
                        UMI_OFFER_EAGER :
                        umi_offer_choose(req, send->is_rndv);
    return true;
}

/* Post a message by a way that not all take; log the first. */
static __attribute__((noinline)) umx_status
post_by_way(umx_request *req, const void *header)
{
    const umi_send  *send  = umi_send_of(req);
    const umi_offer *offer = &umi_offers[send->way];
    umx_ep          *ep    = umi_endpoint_of(req->ep);
    umx_status       status;

    if (umi_log_is_on(UMI_LOG_DEBUG)) {
        umi_endpoint_log_way(ep, send->way, offer->how, req->buf.len);
    }
    status = offer->send(req, header, send->header_len, send->is_rndv);
    if (status >= 0) {
        umi_channels_of(ep)->sent_by[send->way]++;
    }
    return status;
}

static umx_status
post_message(umx_request *req, const void *header)
{
    return (umi_send_of(req)->way == UMI_OFFER_EAGER) ?
               umi_am_send(req, UMI_AM_DATA, header,
                           umi_send_of(req)->header_len, false) :
               post_by_way(req, header);
}

/* True if the bytes are lent to the peer. */
static bool
is_loan(const umx_request *req)
{
    return umi_send_of(req)->way == UMI_OFFER_LOAN;
}

/* Note that a message is announced. A flush waits for one that is short enough
 * to go eagerly, as for one that waits here: the program does not know which of
 * the two becomes of it. */
static void
note_announced(umx_request *req)
{
    umx_ep *ep = umi_endpoint_of(req->ep);

    umi_send_of(req)->is_short = !umi_send_of(req)->must_announce;
    if (umi_send_of(req)->is_short) {
        (void)umi_channel_place(req);
        umi_channels_of(ep)->num_short++;
    }
}

/* Note that such a message is over, or that nobody gets it. */
static void
end_short(umx_request *req)
{
    umx_ep *ep = umi_endpoint_of(req->ep);

    if (umi_send_of(req)->is_short) {
        umi_send_of(req)->is_short = false;
        UMI_DECREMENT(umi_channels_of(ep)->num_short);
        umi_endpoint_due(ep, UMI_DUE_SEND); /* a flush may wait for it */
    }
}

static umx_status
post(umi_channel *channel, umx_request *req, umi_charge charge)
{
    uint32_t   seq      = channel->tx_seq;
    uint64_t   endpoint = channel->ep->base.remote_id;
    char      *header   = header_of(req);
    umx_status status;

    memcpy(header + offsetof(umi_header, seq), &seq, sizeof(seq));
    memcpy(header + offsetof(umi_header, endpoint), &endpoint,
           sizeof(endpoint));
    if (charge.kind == UMI_CHARGE_RESERVE) {
        header[offsetof(umi_header, flags)] |= UMI_FLAG_RESERVE;
    }
    umi_send_of(req)->is_unread = false;
    status                      = post_message(req, header);
    if (status == UMX_INPROGRESS && umi_send_of(req)->is_rndv) {
        note_announced(req);
    }
    if (status >= 0) {
        umi_send_of(req)->is_sent = true;
        channel->tx_seq++;
        umi_channel_count_sent(channel->ep, req->buf.len);
        umi_credit_sent(channel, charge);
    }
    return status;
}

static __attribute__((noinline)) void
free_what_there_is(umx_request *req)
{
    if (umi_send_of(req)->longer != NULL) {
        umi_message_free(umi_send_of(req)->longer);
        umi_send_of(req)->longer = NULL;
    }
    if (umi_send_of(req)->memory != NULL) {
        umi_message_free(umi_send_of(req)->memory);
        umi_send_of(req)->memory = NULL;
    }
}

/* Few requests have any. */
static inline void
free_memory(umx_request *req)
{
    if (((uintptr_t)umi_send_of(req)->longer |
         (uintptr_t)umi_send_of(req)->memory) != 0) {
        free_what_there_is(req);
    }
}

/* Make the header with the user's header behind it. */
static __attribute__((noinline)) bool
fill_longer_header(umx_request *req, const umi_outgoing *what,
                   const umi_header *header)
{
    size_t       size   = umi_header_size(header->flags);
    umx_message *longer = umi_message_empty(umi_endpoint_of(req->ep));

    umi_send_of(req)->longer = longer;
    umi_send_of(req)->header_len += (uint32_t)what->header_len;
    if (longer == NULL ||
        !umi_message_make_room(longer, umi_send_of(req)->header_len)) {
        return false;
    }
    memcpy(longer->data, header, size);
    memcpy((char *)longer->data + size, what->header, what->header_len);
    return true;
}

static bool
fill_header(umx_request *req, const umi_outgoing *what)
{
    umi_header header = {
        .kind    = (uint8_t)(what->channel >> 16),
        .flags   = what->flags,
        .channel = (uint16_t)what->channel,
        .tag     = what->tag,
    };

    if (req->buf.memtype == UMX_MEMTYPE_CUDA) {
        header.flags |= UMI_FLAG_DEVICE;
    }
    umi_send_of(req)->header_len = (uint32_t)umi_header_size(header.flags);
    if (what->header_len != 0) {
        return fill_longer_header(req, what, &header);
    }
    memcpy(umi_send_of(req)->header, &header, sizeof(header));
    return true;
}

/* A request for `what`, not posted. */
static umx_status
new_send(umx_ep *ep, const umi_outgoing *what, umi_channel *channel,
         const umx_buffer *buf, const umx_op_params *params,
         umx_request **req_p)
{
    umx_status   status = UMX_OK;
    umx_request *req    = umi_request_new(ep->base.worker, &ep->base,
                                          &umi_channel_send_ops, params);

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_request_hold_buffer(req, buf);
    req->gather                    = what->gather;
    umi_send_of(req)->channel      = channel;
    umi_send_of(req)->longer       = NULL;
    umi_send_of(req)->memory       = NULL;
    umi_send_of(req)->way          = UMI_OFFER_EAGER;
    umi_send_of(req)->is_part      = what->is_part;
    umi_send_of(req)->is_sent      = false;
    umi_send_of(req)->is_queued    = false;
    umi_send_of(req)->is_short     = false;
    umi_send_of(req)->has_place    = false;
    umi_send_of(req)->is_withdrawn = false;
    umi_send_of(req)->is_lent      = params != NULL &&
                                (params->field_mask & UMX_OP_FIELD_FLAGS) &&
                                (params->flags & UMX_OP_FLAG_LEND);
    if (!fill_header(req, what)) {
        status = UMX_ERR_NO_MEMORY;
    } else {
        umi_send_of(req)->memory = what->memory;
    }
    if (status != UMX_OK) {
        free_memory(req);
        umi_request_free(req);
        return status;
    }
    *req_p = req;
    return UMX_OK;
}

/* True if `what` is the reply to a request that is served while this side
 * closes: see umi_channel_is_reading(). */
static bool
may_reply(const umx_ep *ep, const umi_outgoing *what)
{
    return ep->state == UMX_EP_DRAINING && !ep->is_goodbye_sent &&
           !ep->is_peer_closed && what->channel == UMI_CHANNEL_REPLIES;
}

static umx_status
check_send(umx_ep *ep, const umi_outgoing *what, const umx_buffer *buf,
           umi_channel **channel_p)
{
    umx_status status = umi_endpoint_check(ep);

    if (status == UMX_OK && !may_reply(ep, what)) {
        status = umi_endpoint_send_status(ep);
    }
    if (status == UMX_OK) {
        status = umi_endpoint_check_buffer(buf);
    }
    if (status != UMX_OK) {
        return status;
    }
    *channel_p = umi_channel_get(ep, what->channel);
    if (*channel_p == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    return (*channel_p)->is_ours ? UMX_OK : umi_channel_use(*channel_p);
}

/* A connection whose peer is gone, and that has not heard of it, has none. */
static bool
may_post(const umx_ep *ep)
{
    return ep->state == UMX_EP_OPEN && ep->base.handle != NULL;
}

/* Let a send wait. */
static void
enqueue(umi_channel *channel, umx_request *req)
{
    (void)umi_channel_place(req);
    umi_list_append(&channel->waiting, &req->node);
    umi_send_of(req)->is_queued = true;
    req->worker->stats->waiting_sends++;
    if (UMI_IS_OBSERVED()) {
        umi_observe_wait(req, UMX_TRACE_WAIT);
    }
}

/* Note that a send does not wait any more. */
static inline void
leave_queue(umx_request *req)
{
    if (umi_send_of(req)->is_queued) {
        umi_send_of(req)->is_queued = false;
        req->worker->stats->waiting_sends--;
        if (UMI_IS_OBSERVED()) {
            umi_observe_wait(req, UMX_TRACE_GO);
        }
    }
}

/* Note that a send is not complete when its call returns. */
static void
count_pending(umx_ep *ep, size_t len)
{
    umx_worker_stats *stats = umi_endpoint_worker(ep)->stats;

    ep->pending_bytes += len;
    stats->pending_sends++;
    stats->pending_bytes += len;
}

static void
count_finished(umx_ep *ep, size_t len)
{
    umx_worker_stats *stats = umi_endpoint_worker(ep)->stats;

    ep->pending_bytes -= len;
    stats->pending_sends--;
    stats->pending_bytes -= len;
}

umx_status
umi_channel_send(umx_ep *ep, const umi_outgoing *what, const umx_buffer *buf,
                 const umx_op_params *params, umx_request **req_p)
{
    umi_channel *channel;
    umx_request *req;
    umx_status   status = check_send(ep, what, buf, &channel);
    umi_charge   charge;

    if (status == UMX_OK) {
        status = new_send(ep, what, channel, buf, params, &req);
    }
    if (status != UMX_OK) {
        if (what->memory != NULL) {
            umi_message_free(what->memory);
        }
        return status;
    }
    if (umi_dma_has_stream(params)) {
        status = umi_dma_after(req, params);
        if (status != UMX_OK) {
            free_memory(req);
            umi_request_free(req);
            return status;
        }
    }
    umi_link_look_first(&ep->base);
    if (!may_post(ep) || !umi_list_is_empty(&channel->waiting) ||
        req->num_dmas != 0 || !decide(channel, req, &charge)) {
        enqueue(channel, req);
        if (ep->state == UMX_EP_DRAINING) {
            umi_endpoint_due(ep, UMI_DUE_SEND);
        }
        count_pending(ep, buf->len);
        *req_p = req;
        return UMX_INPROGRESS;
    }
    status = post(channel, req, charge);
    if (status != UMX_INPROGRESS) {
        free_memory(req);
        umi_request_free(req);
        return (status == UMX_OK) ? status :
                                    umi_endpoint_end_status(ep, status);
    }
    count_pending(ep, buf->len);
    *req_p = req;
    return UMX_INPROGRESS;
}

/* True if nothing of a send but its length keeps it from being injected. */
static inline bool
may_inject(const umx_buffer *buf, const umx_op_params *params)
{
    return buf->len <= UMI_INJECT_MAX && buf->memtype == UMX_MEMTYPE_HOST &&
           buf->layout == NULL && buf->memh == NULL && buf->data != NULL &&
           (params == NULL ||
            (params->field_mask & (UMX_OP_FIELD_FLAGS | UMX_OP_FIELD_STREAM)) ==
                0);
}

UMI_LOCKED(umx_status, umx_channel_send, umi_endpoint_worker(ep),
           (umx_ep * ep, uint16_t channel, const umx_match *match,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p),
           (ep, channel, match, buf, params, req_p))

umx_status
umx_channel_send(umx_ep *ep, uint16_t channel, const umx_match *match,
                 const umx_buffer *buf, const umx_op_params *params,
                 umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_channel_send_locked(ep, channel, match, buf, params, req_p);
    }
    bool         is_untagged = (match->flags & UMX_MATCH_UNTAGGED) != 0;
    umi_outgoing what        = {
               .channel = umi_header_channel_id(UMI_KIND_MESSAGE, channel),
               .flags   = is_untagged ? UMI_FLAG_UNTAGGED : 0,
               .tag     = is_untagged ? 0 : match->tag,
    };

    if (may_inject(buf, params) &&
        umi_channel_inject(ep, what.channel, what.flags, what.tag, buf->data,
                           buf->len) == UMX_OK) {
        return UMX_OK;
    }
    return umi_channel_send(ep, &what, buf, params, req_p);
}

void
umi_channel_send_waiting(umi_channel *channel)
{
    umi_charge charge;

    while (!umi_list_is_empty(&channel->waiting)) {
        umx_request *req = umi_channel_request_at(channel->waiting.next);
        umx_status   status;

        if (channel->ep->base.handle == NULL || req->num_dmas != 0 ||
            !decide(channel, req, &charge)) {
            return;
        }
        umi_node_remove(&req->node);
        leave_queue(req);
        status = post(channel, req, charge);
        if (status != UMX_INPROGRESS) {
            umi_request_complete(req, status);
        }
    }
}

/* A send that UCX accepted and then failed leaves a hole in the sequence: the
 * endpoint cannot go on. */
static bool
send_finish(umx_request *req)
{
    umx_ep *ep = umi_endpoint_of(req->ep);

    free_memory(req);
    leave_queue(req);
    end_short(req);
    if (!umi_list_is_empty(&ep->bounce.fills)) {
        umi_bounce_forget(req);
    }
    count_finished(ep, req->buf.len);
    if (umi_channels_of(ep)->lengths[UMI_OFFER_PIECES].min != SIZE_MAX ||
        umi_send_of(req)->way == UMI_OFFER_PIECES) {
        umi_endpoint_due(ep, UMI_DUE_SEND); /* a flush may wait for it */
    }
    if (req->status >= 0 && umi_send_of(req)->is_unread) {
        req->status = UMX_ERR_PEER_CLOSED;
    }
    if (req->status >= 0 || req->is_cancelled ||
        umi_send_of(req)->is_withdrawn ||
        req->status == UMX_ERR_CHANNEL_LIMIT /* never sent */) {
        if (!umi_list_is_empty(&ep->drainers)) {
            umi_drain_check(ep);
        }
        return true;
    }
    /* The endpoint ends, and with it who waits for it to be drained. The peer
     * has refused the message: it closes, or its end is over. */
    if (req->status == UMX_ERR_CANCELED && ep->state == UMX_EP_OPEN) {
        req->status = (ep->has_goodbye || !umi_socket_is_over(&ep->socket)) ?
                          UMX_ERR_PEER_CLOSED :
                          UMX_ERR_CONNECTION_RESET;
        return true;
    }
    if (ep->state == UMX_EP_OPEN && !ep->is_peer_closed) {
        umi_endpoint_finish(ep, UMX_EP_FAILED, req->status);
    }
    req->status = umi_endpoint_end_status(ep, req->status);
    return true;
}

/* The memory of a send that waits is ready, or nothing will write it any more:
 * then the message is not sent. */
static void
send_ready(umx_request *req, umx_status status)
{
    if (status != UMX_OK) {
        umi_send_of(req)->is_withdrawn = true;
        umi_request_complete(req, status);
    }
    umi_endpoint_due(umi_endpoint_of(req->ep), UMI_DUE_SEND);
}

/* ---- cancelling ----------------------------------------------------------
 */

/* True if nothing of the user's memory is in the message. */
static bool
has_own_memory(const umx_request *req)
{
    return req->buf.len == 0 || req->small != NULL || req->copy != NULL ||
           (umi_send_of(req)->memory != NULL && req->gather == NULL);
}

/* True if the connection has ended, and UCX's endpoint with it: UCX has the
 * message still, and nobody gets its bytes. Where other connections keep UCX's
 * endpoint, the peer may get the message before it hears of the end. */
static bool
is_for_nobody(umx_request *req)
{
    return umi_request_is_posted(req) && req->ep->handle == NULL &&
           !req->ep->is_outlived && umi_request_void(req);
}

/* Tell the peer that an announced message is not to be had any more. False: its
 * bytes must go on. The peer may have asked for them, and UCX have them in its
 * queue before the WITHDRAW: then the peer receives them, or drops them. A loan
 * that has ended is not read, and slots of a message that is fetched are not
 * filled. The user's part ends with `status`. */
static bool
withdraw(umx_request *req, umx_status status)
{
    umi_channel  *channel  = umi_send_of(req)->channel;
    umi_control   control  = {.kind = UMI_WITHDRAW};
    umi_transfer *transfer = umi_transfer_of(req);

    memcpy(&control.u.withdraw.seq, header_of(req) + offsetof(umi_header, seq),
           sizeof(control.u.withdraw.seq));
    control.u.withdraw.channel = channel->id;
    if (is_loan(req)) {
        umi_lend_withdraw(req);
        (void)umi_endpoint_send_control(channel->ep, &control);
        return true;
    }
    if (transfer != NULL) {
        /* What has gone of it is in front of the message, which may end the
         * connection. */
        umi_send_of(req)->is_withdrawn = true;
        umi_transfer_withdraw(transfer, status);
        (void)umi_endpoint_send_control(channel->ep, &control);
        return true;
    }
    if (!umi_endpoint_send_control(channel->ep, &control)) {
        return false;
    }
    umi_bounce_stop_filling(req);
    req->is_void = true;
    end_short(req);
    umi_request_detach_as(req, status);
    return true;
}

/* True if the peer has asked for no byte of an announced message, fetches them,
 * or they go in pieces. A part of what is sent as several messages, or as a
 * stream, cannot be withdrawn by itself. On several lanes the bytes that the
 * peer has asked for meanwhile could overtake the WITHDRAW. */
static bool
may_withdraw(const umx_request *req)
{
    const umi_channel *channel = umi_send_of(req)->channel;

    if (umi_send_of(req)->is_part || !umi_send_of(req)->is_rndv ||
        channel->ops == &umi_stream_ops || channel->ep->base.handle == NULL) {
        return false;
    }
    return is_loan(req) || umi_transfer_of(req) != NULL ||
           umi_bounce_is_filling(req) ||
           (req->is_movable && req->moved == 0 &&
            req->ep->link->num_lanes <= 1);
}

/* Go on with a copy of the bytes. */
static void
go_on_with_copy(umx_request *req)
{
    umx_status status = umi_request_copy(req, req->buf.len, req->buf.len,
                                         false);

    if (status == UMX_INPROGRESS) {
        umi_endpoint_defer(umi_endpoint_of(req->ep));
        return;
    }
    umi_bounce_move(req);
    if (is_loan(req) && umi_request_is_posted(req)) {
        umi_lend_turn(req);
    }
    if (status < 0) {
        (void)umi_request_void(req);
        umi_endpoint_cannot_copy(umi_endpoint_of(req->ep));
    }
    umi_request_detach(req);
}

static void
send_cancel(umx_request *req)
{
    if (!umi_request_is_posted(req) && !umi_send_of(req)->is_part) {
        umi_request_complete(req, UMX_ERR_CANCELED);
        umi_endpoint_due(umi_endpoint_of(req->ep),
                         UMI_DUE_SEND); /* a flush may wait for it */
    } else if (has_own_memory(req) || is_for_nobody(req)) {
        umi_request_detach(req);
    } else if (!may_withdraw(req) || !withdraw(req, UMX_ERR_CANCELED)) {
        go_on_with_copy(req);
    }
}

/* ---- messages that are fetched -------------------------------------------
 */

umx_request *
umi_channel_find_sent(const umi_ep_base *ep, uint32_t channel, uint32_t seq)
{
    UMI_LIST_FOREACH(node, &ep->inflight) {
        umx_request *req = umi_channel_request_at(node);
        uint32_t     own;

        if (req->ops == &umi_channel_send_ops && umi_send_of(req)->is_rndv &&
            umi_send_of(req)->channel->id == channel) {
            memcpy(&own, header_of(req) + offsetof(umi_header, seq),
                   sizeof(own));
            if (own == seq) {
                return req;
            }
        }
    }
    return NULL;
}

/* A message that is part of another, or of a stream, cannot be taken out: its
 * connection ends. */
void
umi_channel_fail_sent(umx_request *req, umx_status status)
{
    if (umi_request_is_detached(req) || req->status != UMX_INPROGRESS) {
        return;
    }
    if (umi_send_of(req)->is_part ||
        umi_send_of(req)->channel->ops == &umi_stream_ops ||
        req->ep->handle == NULL || !withdraw(req, status)) {
        umi_bounce_stop_filling(req);
        (void)umi_request_void(req);
        umi_endpoint_finish(umi_endpoint_of(req->ep), UMX_EP_FAILED, status);
    }
}

/* Name a send by what its channel is for. */
static const char *
name_of(const umi_channel *channel)
{
    switch (channel->id >> 16) {
    case UMI_KIND_AM:
        return "am_send";
    case UMI_KIND_STREAM:
        return "stream_send";
    case UMI_KIND_FRAMES:
        return "frames_send";
    default:
        return "send";
    }
}

static void
send_describe(const umx_request *req, umx_trace_event *event)
{
    const umi_send *send = umi_send_of(req);

    event->name  = name_of(send->channel);
    event->bytes = req->buf.len;
    if (send->longer == NULL) {
        memcpy(&event->tag,
               (const char *)send->header + offsetof(umi_header, tag),
               sizeof(event->tag));
    }
    if (send->is_part) {
        event->flags |= UMX_TRACE_IS_PART;
    }
    if (is_loan(req)) {
        event->flags |= UMX_TRACE_IS_LOAN;
    } else if (send->is_sent && send->is_rndv) {
        event->flags |= UMX_TRACE_IS_RENDEZVOUS;
    }
}

const umi_request_ops umi_channel_send_ops = {
    .name     = "send",
    .finish   = send_finish,
    .ready    = send_ready,
    .cancel   = send_cancel,
    .describe = send_describe,
};

uint64_t
umi_channel_waiting_bytes(const umi_channel *channel)
{
    uint64_t bytes = 0;

    UMI_LIST_FOREACH(node, &channel->waiting) {
        bytes += umi_channel_request_at(node)->buf.len;
    }
    return bytes;
}

void
umi_channel_fail_waiting(umi_channel *channel, umx_status status)
{
    umi_request_complete_all(&channel->waiting, status);
}
