/* SPDX-License-Identifier: BSD-3-Clause */
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
 * copy. While bytes of a cancelled one are landing nobody may read on: they are
 * next. */
#include "channel/stream.h"

#include <string.h>
#include <umx/stream.h>

#include "channel/channel.h"
#include "mem/memtype.h"

/* Of a piece that lands: a request of its own. */
typedef struct landing {
    umx_request *target;
    size_t       at; /* in its buffer */
} landing;

UMI_REQUEST_TAIL(landing, landing_of);

static const umi_request_ops recv_ops;
static const umi_request_ops land_ops;

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

/* Does it return with what it has? */
static bool
is_satisfied(const umx_request *req)
{
    return room(req) == 0 || (umi_stream_of(req)->filled != 0 &&
                              !umi_stream_of(req)->is_wait_all);
}

/* ---- giving back ---------------------------------------------------------
 */

static umx_status
put_back(umi_channel *channel, uint64_t place, const void *data, size_t len)
{
    umx_ep      *ep = channel->ep;
    umx_message *message;

    if (len == 0) {
        return UMX_OK;
    }
    if (!umi_conn_may_read(ep) || ep->is_dropped ||
        umi_channel_is_lost(channel, place)) {
        return UMX_ERR_CLOSED;
    }
    if (umi_channel_is_lost(channel, place + len)) {
        len = channel->cut_at - place;
    }
    message = umi_message_copy(ep, data, len);
    if (message == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    message->channel  = channel;
    message->info.tag = place;
    umi_channel_queue(channel, message);
    return UMX_OK;
}

/* The bytes of `req`, up to the first that are missing. */
static void
give_back(umx_request *req)
{
    umi_channel *channel = umi_stream_of(req)->channel;
    size_t       len     = umi_stream_of(req)->filled;

    if (len > umi_stream_of(req)->good) {
        len = umi_stream_of(req)->good;
    }
    umi_stream_of(req)->filled = 0;
    if (put_back(channel, umi_stream_of(req)->place, req->buf.data, len) ==
        UMX_ERR_NO_MEMORY) {
        umi_channel_lose(channel, umi_stream_of(req)->place, UMX_ERR_NO_MEMORY);
    }
}

/* ---- the end of a receive ------------------------------------------------
 */

/* Ended, and nothing lands any more. */
static void
settle(umx_request *req)
{
    umx_status status = req->is_cancelled ? UMX_ERR_CANCELED :
                                            umi_stream_of(req)->status;

    if (umi_stream_of(req)->is_returning) {
        umi_stream_of(req)->channel->num_returning--;
    }
    req->info.tag    = umi_stream_of(req)->place;
    req->info.length = umi_stream_of(req)->filled;
    if (status != UMX_OK) {
        give_back(req);
    }
    umi_request_complete(req, status);
}

static void
end(umx_request *req, umx_status status)
{
    umi_link_remove(&req->link);
    umi_stream_of(req)->is_ended = true;
    if (umi_stream_of(req)->status == UMX_OK) {
        umi_stream_of(req)->status = status;
    }
    if (umi_stream_of(req)->num_landing == 0) {
        settle(req);
    }
}

static void advance(umi_channel *channel);

/* UCX keeps bytes, for which those behind a cancelled receive wait. */
static void
on_lost(umx_request *lander, umx_status status, void *arg)
{
    umx_request *req     = arg;
    umi_channel *channel = umi_stream_of(req)->channel;

    (void)lander;
    umi_request_lose(req, status);
    if (umi_stream_of(req)->is_returning) {
        umi_stream_of(req)->is_returning = false;
        channel->num_returning--;
        umi_channel_lose(channel, umi_stream_of(req)->place, status);
        advance(channel);
    }
}

/* ---- filling -------------------------------------------------------------
 */

static void
copy(umx_request *req, uint64_t place, const void *data, size_t len)
{
    if (umi_stream_of(req)->filled == 0) {
        umi_stream_of(req)->place = place;
    }
    memcpy((char *)req->buf.data + umi_stream_of(req)->filled, data, len);
    umi_stream_of(req)->filled += len;
}

/* Have UCX write an announced piece into `req`, where it fits. False when out
 * of memory. */
static bool
land(umx_request *req, uint64_t place, void *desc, size_t len)
{
    umx_ep      *ep     = umi_conn_of(req->ep);
    umx_request *lander = umi_request_new(ep->base.worker, &ep->base, &land_ops,
                                          NULL);
    umx_status   status;

    if (lander == NULL) {
        return false;
    }
    lander->on_lost = on_lost;
    lander->arg     = req;
    if (umi_stream_of(req)->filled == 0) {
        umi_stream_of(req)->place = place;
    }
    umi_request_borrow(lander, &req->buf);
    lander->buf.data = (char *)req->buf.data + umi_stream_of(req)->filled;
    lander->buf.len  = len;
    landing_of(lander)->target = req;
    landing_of(lander)->at     = umi_stream_of(req)->filled;
    umi_stream_of(req)->filled += len;
    umi_stream_of(req)->num_landing++;
    ep->num_landing++;
    status = umi_land_post(lander, desc, len);
    if (status < 0) {
        umi_conn_cannot_land(ep, status);
    }
    if (status != UMX_INPROGRESS) {
        umi_request_complete(lander, status);
    }
    return true;
}

static void
consume(umi_channel *channel, umx_message *message)
{
    umi_channel_unqueue(channel, message);
    umi_channel_credit(channel, message);
    umi_message_free(message);
}

static void
fill_at_hand(umi_channel *channel, umx_request *req, umx_message *message)
{
    size_t len = message->info.length - message->read;

    if (len > room(req)) {
        len = room(req);
    }
    copy(req, umi_stream_place(message),
         (const char *)message->data + message->read, len);
    message->read += len;
    if (message->read == message->info.length) {
        consume(channel, message);
    }
}

/* False: it has to be pulled in first, or nothing can be done. */
static bool
fill_announced(umi_channel *channel, umx_request *req, umx_message *message)
{
    void *desc = message->data;

    if (message->info.length > room(req)) {
        if (!is_satisfied(req) && !umi_channel_pull_one(channel, message)) {
            umi_stream_of(req)->status = UMX_ERR_NO_MEMORY;
        }
        return false;
    }
    if (!land(req, message->info.tag, desc, message->info.length)) {
        umi_stream_of(req)->status = UMX_ERR_NO_MEMORY;
        return false;
    }
    channel->ep->num_announced--;
    message->storage = UMI_STORAGE_MOVED;
    consume(channel, message);
    return true;
}

/* One step. False: there is nothing more for `req` now. */
static bool
fill_from(umi_channel *channel, umx_request *req, umx_message *message)
{
    if (umi_stream_of(req)->filled != 0 &&
        umi_stream_place(message) < umi_stream_of(req)->place) {
        /* Given back by an earlier receive: those bytes are first. */
        if (umi_stream_of(req)->num_landing != 0) {
            return false;
        }
        give_back(req);
        return true;
    }
    if (umi_message_is_at_hand(message)) {
        fill_at_hand(channel, req, message);
        return true;
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
        return message->info.length == 0;
    }
    status = umi_conn_recv_status(channel->ep);
    if (status != UMX_ERR_PEER_CLOSED ||
        umi_channel_is_behind_lost(channel, channel->place)) {
        umi_stream_of(req)->status = status;
    }
    return status != UMX_OK;
}

/* True: `req` need not wait for more. */
static bool
fill(umi_channel *channel, umx_request *req)
{
    umx_message *message;

    while (room(req) != 0 && (message = first_message(channel)) != NULL &&
           message->info.length != 0 && fill_from(channel, req, message)) {
    }
    return umi_stream_of(req)->status != UMX_OK || is_satisfied(req) ||
           is_at_end(channel, req);
}

static void
advance(umi_channel *channel)
{
    while (channel->num_returning == 0 &&
           !umi_list_is_empty(&channel->posted)) {
        umx_request *req = umi_request_at(channel->posted.next);

        if (!fill(channel, req)) {
            return;
        }
        end(req, UMX_OK);
    }
}

/* ---- arrival -------------------------------------------------------------
 */

static bool
arrive(umi_channel *channel, const umx_recv_info *info,
       const umi_am_arrival *arrival)
{
    umx_request *req;

    (void)info;
    if (umi_list_is_empty(&channel->posted) || channel->num_returning != 0 ||
        !umi_list_is_empty(&channel->unexpected) || arrival->len == 0) {
        return false;
    }
    req = umi_request_at(channel->posted.next);
    if (arrival->len > room(req)) {
        return false;
    }
    if (!arrival->is_rndv) {
        copy(req, channel->place, arrival->data, arrival->len);
    } else if (!land(req, channel->place, arrival->data, arrival->len)) {
        return false;
    }
    channel->place += arrival->len;
    umi_credit_read(channel, umi_charge_of(arrival));
    if (is_satisfied(req)) {
        end(req, UMX_OK);
    }
    return true;
}

static void
offer(umi_channel *channel, umx_message *message)
{
    if (channel->has_end) {
        umi_conn_protocol_error(channel->ep, "bytes after the end of a stream");
        umi_message_free(message);
        return;
    }
    channel->has_end  = message->info.length == 0;
    message->info.tag = channel->place;
    channel->place += message->info.length;
    umi_channel_queue(channel, message);
    if (!umi_list_is_empty(&channel->posted)) {
        umi_channel_due(channel); /* UCX is calling */
    }
}

/* A slice of a receive is in, or will not come. */
static bool
land_finish(umx_request *lander)
{
    umx_request *req     = landing_of(lander)->target;
    umi_channel *channel = umi_stream_of(req)->channel;
    umx_ep      *ep      = channel->ep;
    size_t       at      = landing_of(lander)->at;
    umx_status   status  = lander->status;

    ep->num_landing--;
    umi_stream_of(req)->num_landing--;
    if (status != UMX_OK) {
        umi_channel_lose(channel, umi_stream_of(req)->place + at, status);
    } else if (umi_channel_is_behind_lost(channel,
                                          umi_stream_of(req)->place + at)) {
        status = UMX_ERR_CLOSED;
    }
    if (status != UMX_OK) {
        umi_stream_of(req)->status = umi_conn_end_status(ep, status);
        if (at < umi_stream_of(req)->good) {
            umi_stream_of(req)->good = at;
        }
    }
    if (ep->has_goodbye) {
        umi_conn_due(ep, UMI_DUE_ACK);
    }
    if (umi_stream_of(req)->num_landing == 0 && umi_stream_of(req)->is_ended) {
        settle(req);
    }
    umi_request_free(lander);
    advance(channel);
    return false;
}

static const umi_request_ops land_ops = {
    .name   = "land",
    .finish = land_finish,
};

static bool
is_landing(const umi_channel *channel, const umx_request *req,
           uint64_t *place_p)
{
    const umx_request *target = landing_of(req)->target;

    if (req->ops != &land_ops || umi_stream_of(target)->channel != channel) {
        return false;
    }
    *place_p = umi_stream_of(target)->place + landing_of(req)->at;
    return true;
}

/* ---- cancelling and failing ----------------------------------------------
 */

static bool
recv_finish(umx_request *req)
{
    /* Cancelled between completion and report. */
    if (req->is_cancelled && req->status == UMX_OK) {
        give_back(req);
        req->status = UMX_ERR_CANCELED;
        advance(umi_stream_of(req)->channel);
    }
    return true;
}

static void
recv_cancel(umx_request *req)
{
    umi_channel *channel = umi_stream_of(req)->channel;

    if (umi_stream_of(req)->num_landing != 0 &&
        !umi_channel_is_lost(channel, umi_stream_of(req)->place)) {
        umi_stream_of(req)->is_returning = true;
        channel->num_returning++;
    }
    end(req, UMX_ERR_CANCELED);
    advance(channel);
}

static const umi_request_ops recv_ops = {
    .name   = "stream_recv",
    .finish = recv_finish,
    .cancel = recv_cancel,
};

static void
fail_posted(umi_channel *channel, umx_status status)
{
    if (umi_conn_reads_on(channel->ep)) {
        advance(channel); /* to the end of the stream, or a failure */
        return;
    }
    UMI_LIST_FOREACH_SAFE(link, &channel->posted) {
        end(umi_request_at(link), status);
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
place_of(const umx_message *message)
{
    return message->info.tag;
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
    .is_landing  = is_landing,
    .place       = place_of,
    .distance    = distance,
    .next        = next,
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
    umi_request_borrow(req, buf);
    memset(&req->info, 0, sizeof(req->info));
    memset(umi_stream_of(req), 0, sizeof(*umi_stream_of(req)));
    umi_stream_of(req)->channel     = channel;
    umi_stream_of(req)->good        = SIZE_MAX;
    umi_stream_of(req)->is_wait_all = (flags & UMX_STREAM_WAITALL) != 0;
    return req;
}

/* With what is there. UMX_INPROGRESS: it is in `posted`, or bytes land. */
static umx_status
start(umi_channel *channel, umx_request *req)
{
    bool is_first = umi_list_is_empty(&channel->posted) &&
                    channel->num_returning == 0;

    if (!umi_conn_may_read(channel->ep)) {
        return UMX_ERR_CLOSED;
    }
    if (is_first && fill(channel, req)) {
        if (umi_stream_of(req)->num_landing != 0) {
            umi_stream_of(req)->is_ended = true;
            return UMX_INPROGRESS;
        }
        if (umi_stream_of(req)->status != UMX_OK) {
            give_back(req);
        }
        return umi_stream_of(req)->status;
    }
    umi_list_append(&channel->posted, &req->link);
    return UMX_INPROGRESS;
}

umx_status
umx_stream_recv(umx_ep *ep, const umx_buffer *buf, unsigned flags,
                const umx_op_params *params, umx_request **req_p,
                umx_recv_info *info)
{
    umi_channel *channel;
    umx_request *req;
    umx_status   status;

    status = umi_channel_check_recv(ep, UMI_STREAM_0, &channel);
    if (status != UMX_OK) {
        return status;
    }
    status = umi_conn_check_contiguous(buf);
    if (status != UMX_OK) {
        return status;
    }
    if (!umi_is_host_readable(buf)) {
        return UMX_ERR_UNSUPPORTED; /* bytes could not go back */
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
        info->tag    = umi_stream_of(req)->place;
        info->length = umi_stream_of(req)->filled;
    }
    umi_request_free(req);
    return status;
}

umx_status
umx_stream_unrecv(umx_ep *ep, const umx_recv_info *info, const umx_buffer *buf)
{
    umi_channel *channel;
    umx_status   status = umi_channel_check_recv(ep, UMI_STREAM_0, &channel);

    if (status != UMX_OK) {
        return status;
    }
    if (info->length > buf->len || buf->layout != NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    status = put_back(channel, info->tag, buf->data, info->length);
    if (status == UMX_OK) {
        advance(channel);
    }
    return status;
}
