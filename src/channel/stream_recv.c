/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* stream_recv.c: receiving a byte stream. See stream.h.
 *
 * A receive takes pieces in the order of their places, from the queue or as
 * they come. Bytes at hand are copied; an announced piece lands in the buffer
 * if the whole of it fits, else it is pulled into memory of ours and copied
 * from there. Several may land at a time. Once a receive has got all it waits
 * for, it is off `posted` and only its landings keep it.
 *
 *   posted --has enough, or failed--> ended --nothing lands--> complete
 *
 * What an incomplete or unwanted receive has got goes back to the queue, by
 * copy. The bytes of a cancelled one are copied in the call, and those that land
 * do so in the copy, which becomes the message. Until they are in nobody may read
 * on: they are next. */
/* clang-format on */
#include "channel/stream.h"

#include <string.h>
#include <umx/stream.h>

#include "channel/channel.h"
#include "mem/memtype.h"
#include "util/count.h"
#include "worker/observe.h"

/* A piece that lands. */
typedef struct slice {
    umi_landing landing;
    size_t      at; /* in the buffer of the receive */
} slice;

UMI_REQUEST_TAIL(slice, slice_of);

static const umi_request_ops recv_ops;
static const umi_request_ops slice_ops;

/* True of the message without bytes that ends a stream. */
static bool
is_end(const umx_message *message)
{
    return message->info.length == 0;
}

static umx_message *
first_message(const umi_channel *channel)
{
    return umi_list_is_empty(&channel->unexpected) ?
               NULL :
               umi_message_at(channel->unexpected.next);
}

static size_t
room(const umx_request *req)
{
    return req->buf.len - umi_stream_of(req)->filled;
}

/* True if `req` returns with what it has. */
static bool
is_satisfied(const umx_request *req)
{
    return room(req) == 0 || (umi_stream_of(req)->filled != 0 &&
                              !umi_stream_of(req)->is_wait_all);
}

/* ---- the end of a receive ------------------------------------------------
 */

/* Ended, and nothing lands any more. */
static void
settle(umx_request *req)
{
    umx_status status = req->is_cancelled ? UMX_ERR_CANCELED :
                                            umi_stream_of(req)->all.status;

    umi_assembly_settle(req);
    req->info.length = umi_stream_of(req)->filled;
    if (status != UMX_OK) {
        umi_stream_give_back(req);
    }
    umi_request_complete(req, status);
}

static void
end(umx_request *req, umx_status status)
{
    umi_node_remove(&req->node);
    umi_stream_of(req)->all.is_ended = true;
    if (umi_stream_of(req)->all.status == UMX_OK) {
        umi_stream_of(req)->all.status = status;
    }
    if (umi_stream_of(req)->all.num_landing == 0) {
        settle(req);
    }
}

/* ---- filling -------------------------------------------------------------
 */

/* Copy bytes to where they belong. False: they cannot be, which ends the
 * receive; they are the next one's. */
static bool
copy(umx_request *req, uint64_t place, const void *data, size_t len)
{
    umi_stream_recv *recv = umi_stream_of(req);
    umx_buffer       part = req->buf;
    umx_status       status;

    part.data = (char *)part.data + recv->filled;
    part.len  = len;
    status    = umi_copy_in(&part, data, len);
    if (status != UMX_OK) {
        recv->all.status = status;
        return false;
    }
    if (recv->filled == 0) {
        req->info.tag = place;
    }
    recv->filled += len;
    return true;
}

/* Have an announced piece written into `req`, where it fits. False when out of
 * memory. */
static bool
land(umx_request *req, uint64_t place, const umi_way *way, void *desc,
     size_t len)
{
    umi_stream_recv *recv  = umi_stream_of(req);
    umx_request     *piece = umi_piece_new(req, &slice_ops);

    if (piece == NULL) {
        return false;
    }
    if (recv->filled == 0) {
        req->info.tag = place;
    }
    umi_request_hold_buffer(piece, &req->buf);
    piece->buf.data     = (char *)req->buf.data + recv->filled;
    piece->buf.len      = len;
    piece->info.tag     = place;
    slice_of(piece)->at = recv->filled;
    umi_landing_init(piece, recv->all.channel);
    recv->filled += len;
    umi_piece_land(piece, way, desc, len);
    return true;
}

static void
consume(umi_channel *channel, umx_message *message)
{
    umi_channel_unqueue(channel, message);
    umi_channel_credit(channel, message);
    umi_message_free(message);
}

static bool
fill_at_hand(umi_channel *channel, umx_request *req, umx_message *message)
{
    size_t len = message->info.length - message->read;

    if (len > room(req)) {
        len = room(req);
    }
    if (!copy(req, umi_stream_place(message),
              (const char *)message->data + message->read, len)) {
        return false;
    }
    message->read += len;
    if (message->read == message->info.length) {
        consume(channel, message);
    }
    return true;
}

/* Land an announced message. False: it has to be fetched first, or nothing can
 * be done. */
static bool
fill_announced(umi_channel *channel, umx_request *req, umx_message *message)
{
    if (message->info.length > room(req)) {
        if (!is_satisfied(req) && !umi_channel_fetch_one(channel, message)) {
            umi_stream_of(req)->all.status = UMX_ERR_NO_MEMORY;
        }
        return false;
    }
    if (!land(req, message->info.tag, message->way, message->data,
              message->info.length)) {
        umi_stream_of(req)->all.status = UMX_ERR_NO_MEMORY;
        return false;
    }
    UMI_DECREMENT(channel->ep->num_announced);
    message->storage = UMI_STORAGE_MOVED;
    consume(channel, message);
    return true;
}

/* Take what `message` has for `req`. False: there is nothing more for `req`
 * now. */
static bool
fill_from(umi_channel *channel, umx_request *req, umx_message *message)
{
    if (umi_stream_of(req)->filled != 0 &&
        umi_stream_place(message) < req->info.tag) {
        /* Given back by an earlier receive: those bytes are first. */
        if (umi_stream_of(req)->all.num_landing != 0) {
            return false;
        }
        umi_stream_give_back(req);
        return true;
    }
    if (umi_message_is_at_hand(message)) {
        return fill_at_hand(channel, req, message);
    }
    return message->storage == UMI_STORAGE_RNDV &&
           fill_announced(channel, req, message);
}

/* Will nothing come behind what there is? That is the end of the stream if the
 * peer says so, or a failure. */
static bool
is_at_end(const umi_channel *channel, umx_request *req)
{
    const umx_message *message = first_message(channel);
    umx_status         status;

    if (message != NULL) {
        return is_end(message);
    }
    status = umi_endpoint_recv_status(channel->ep);
    if (status != UMX_ERR_PEER_CLOSED ||
        umi_channel_is_behind_lost(channel, channel->place)) {
        umi_stream_of(req)->all.status = status;
    }
    return status != UMX_OK;
}

/* Fill the buffer of `req` with what is queued. True: `req` need not wait for
 * more. */
static bool
fill(umi_channel *channel, umx_request *req)
{
    umx_message *message;

    while (room(req) != 0 && (message = first_message(channel)) != NULL &&
           !is_end(message) && fill_from(channel, req, message)) {
    }
    return umi_stream_of(req)->all.status != UMX_OK || is_satisfied(req) ||
           is_at_end(channel, req);
}

static void
advance(umi_channel *channel)
{
    while (channel->num_returning == 0 &&
           !umi_list_is_empty(&channel->posted)) {
        umx_request *req = umi_channel_request_at(channel->posted.next);

        if (!fill(channel, req)) {
            return;
        }
        end(req, UMX_OK);
    }
}

/* ---- arrival -------------------------------------------------------------
 */

static umi_arrived
arrive(umi_channel *channel, const umx_recv_info *info,
       const umi_am_arrival *arrival)
{
    umx_request *req;

    (void)info;
    if (umi_list_is_empty(&channel->posted) || channel->num_returning != 0 ||
        !umi_list_is_empty(&channel->unexpected) || arrival->len == 0) {
        return UMI_ARRIVED_TO_KEEP;
    }
    req = umi_channel_request_at(channel->posted.next);
    if (arrival->len > room(req)) {
        return UMI_ARRIVED_TO_KEEP;
    }
    if (umi_am_is_at_hand(arrival)) {
        if (!copy(req, channel->place, arrival->data, arrival->len)) {
            return UMI_ARRIVED_TO_KEEP;
        }
    } else if (!land(req, channel->place, arrival->way, arrival->data,
                     arrival->len)) {
        return UMI_ARRIVED_TO_KEEP;
    }
    channel->place += arrival->len;
    umi_credit_read(channel, umi_charge_of(channel, arrival));
    if (is_satisfied(req)) {
        end(req, UMX_OK);
    }
    return UMI_ARRIVED;
}

static void
offer(umi_channel *channel, umx_message *message)
{
    if (channel->has_end) {
        umi_endpoint_protocol_error(channel->ep,
                                    "bytes after the end of a stream");
        umi_message_free(message);
        return;
    }
    channel->has_end  = is_end(message);
    message->info.tag = channel->place;
    channel->place += message->info.length;
    umi_channel_queue(channel, message);
    if (!umi_list_is_empty(&channel->posted)) {
        umi_channel_due(channel); /* UCX is calling */
    }
}

/* A slice of a receive is in, or will not come. */
static bool
slice_finish(umx_request *piece)
{
    umx_request *req     = piece->arg;
    umi_channel *channel = umi_stream_of(req)->all.channel;
    size_t       at      = slice_of(piece)->at;
    umx_status   status  = piece->status;

    umi_piece_end(piece);
    if (status != UMX_OK) {
        umi_channel_lose(channel, req->info.tag + at, status);
    } else if (umi_channel_is_behind_lost(channel, req->info.tag + at)) {
        status = UMX_ERR_CLOSED;
    }
    if (status != UMX_OK) {
        umi_stream_of(req)->all.status = umi_endpoint_end_status(channel->ep,
                                                                 status);
        if (at < umi_stream_of(req)->good) {
            umi_stream_of(req)->good = at;
        }
    }
    if (umi_stream_of(req)->all.num_landing == 0 &&
        umi_stream_of(req)->all.is_ended) {
        settle(req);
    }
    umi_request_free(piece);
    advance(channel);
    return false;
}

static const umi_request_ops slice_ops = {
    .name   = "land",
    .finish = slice_finish,
};

/* ---- cancelling and failing ----------------------------------------------
 */

static void
move_slice(umx_request *piece, void *bytes)
{
    umi_request_drop_buffer(piece);
    piece->buf.data    = (char *)bytes + slice_of(piece)->at;
    piece->buf.memtype = UMX_MEMTYPE_HOST;
}

static void
recv_cancel(umx_request *req)
{
    umi_channel *channel = umi_stream_of(req)->all.channel;

    if (umi_stream_move(req, move_slice) == UMX_INPROGRESS) {
        umi_assembly_defer(req);
    } else if (umi_stream_of(req)->all.num_landing != 0) {
        umi_request_detach(req);
    }
    umi_assembly_cancel(req);
    end(req, UMX_ERR_CANCELED);
    advance(channel);
}

/* Cancel a receive that is complete but not reported: the bytes go back to the
 * stream. */
static void
recv_cancel_complete(umx_request *req)
{
    if (req->status == UMX_OK) {
        umi_stream_give_back(req);
        req->status = UMX_ERR_CANCELED;
        advance(umi_stream_of(req)->all.channel);
    }
}

static const umi_request_ops recv_ops = {
    .name            = "stream_recv",
    .cancel          = recv_cancel,
    .cancel_complete = recv_cancel_complete,
    .describe        = umi_observe_received,
};

static void
fail_posted(umi_channel *channel, umx_status status)
{
    if (umi_endpoint_reads_on(channel->ep)) {
        advance(channel); /* to the end of the stream, or a failure */
        return;
    }
    UMI_LIST_FOREACH_SAFE(node, &channel->posted) {
        end(umi_channel_request_at(node), status);
    }
}

/* ---- the kind ------------------------------------------------------------
 */

static void
landed(umi_channel *channel, umx_message *message, umx_status status)
{
    (void)message;
    (void)status;
    advance(channel);
}

static uint64_t
place_of(const umx_recv_info *info)
{
    return info->tag;
}

static int64_t
distance(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b);
}

static uint64_t
next(const umi_channel *channel)
{
    return channel->place;
}

const umi_channel_ops umi_stream_ops = {
    .arrive      = arrive,
    .offer       = offer,
    .landed      = landed,
    .advance     = advance,
    .fail_posted = fail_posted,
    .place       = place_of,
    .distance    = distance,
    .next        = next,
    .lander      = &slice_ops,
};

/* ---- public --------------------------------------------------------------
 */

static umx_request *
new_recv(umi_channel *channel, const umx_buffer *buf, unsigned flags,
         const umx_op_params *params)
{
    umx_ep      *ep  = channel->ep;
    umx_request *req = umi_request_new(ep->base.worker, &ep->base, &recv_ops,
                                       params);

    if (req == NULL) {
        return NULL;
    }
    umi_request_hold_buffer(req, buf);
    memset(&req->info, 0, sizeof(req->info));
    memset(umi_stream_of(req), 0, sizeof(*umi_stream_of(req)));
    umi_stream_of(req)->all.channel = channel;
    umi_stream_of(req)->good        = SIZE_MAX;
    umi_stream_of(req)->is_wait_all = (flags & UMX_STREAM_WAITALL) != 0;
    return req;
}

/* Start a receive with the bytes at hand. UMX_INPROGRESS: the receive is in
 * `posted`, or bytes land. */
static umx_status
start(umi_channel *channel, umx_request *req)
{
    bool is_first = umi_list_is_empty(&channel->posted) &&
                    channel->num_returning == 0;

    if (!umi_endpoint_may_read(channel->ep)) {
        return UMX_ERR_CLOSED;
    }
    if (is_first && fill(channel, req)) {
        if (umi_stream_of(req)->all.num_landing != 0) {
            umi_stream_of(req)->all.is_ended = true;
            return UMX_INPROGRESS;
        }
        if (umi_stream_of(req)->all.status != UMX_OK) {
            umi_stream_give_back(req);
        }
        return umi_stream_of(req)->all.status;
    }
    umi_list_append(&channel->posted, &req->node);
    return UMX_INPROGRESS;
}

UMI_LOCKED(umx_status, umx_stream_recv, umi_endpoint_worker(ep),
           (umx_ep * ep, const umx_buffer *buf, unsigned flags,
            const umx_op_params *params, umx_request **req_p,
            umx_recv_info *info),
           (ep, buf, flags, params, req_p, info))

umx_status
umx_stream_recv(umx_ep *ep, const umx_buffer *buf, unsigned flags,
                const umx_op_params *params, umx_request **req_p,
                umx_recv_info *info)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_stream_recv_locked(ep, buf, flags, params, req_p, info);
    }
    umi_channel *channel;
    umx_request *req;
    umx_status   status;

    status = umi_channel_check_recv(ep, UMI_STREAM_0, &channel);
    if (status != UMX_OK) {
        return status;
    }
    status = umi_endpoint_check_contiguous(buf);
    if (status != UMX_OK) {
        return status;
    }
    req = new_recv(channel, buf, flags, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = start(channel, req);
    if (status == UMX_INPROGRESS) {
        *req_p = req;
        return status;
    }
    if (status == UMX_OK) {
        *info        = req->info;
        info->tag    = req->info.tag;
        info->length = umi_stream_of(req)->filled;
    }
    umi_request_free(req);
    return status;
}

umx_status
umx_stream_unrecv(umx_ep *ep, const umx_recv_info *info, const umx_buffer *buf)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    umi_channel *channel;
    umx_status   status = umi_channel_check_recv(ep, UMI_STREAM_0, &channel);

    if (status != UMX_OK) {
        return status;
    }
    if (info->length > buf->len || buf->layout != NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    status = umi_stream_put_back(channel, info->tag, buf, info->length);
    if (status == UMX_OK) {
        advance(channel);
    }
    return status;
}
