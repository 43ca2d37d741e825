/* SPDX-License-Identifier: BSD-3-Clause */
/* stream_send.c: sending a byte stream.
 *
 * A send goes as messages of at most PIECE_MAX bytes: a receiver that asks for
 * less at a time has to keep a whole one. */
#include <umx/stream.h>

#include "channel/channel.h"
#include "channel/stream.h"
#include "mem/memtype.h"

enum {
    PIECE_MAX = 1 << 20
};

static const umi_outgoing what = {
    .channel = UMI_STREAM_0,
    .flags   = UMI_FLAG_UNTAGGED,
};

static const umi_outgoing part = {
    .channel = UMI_STREAM_0,
    .flags   = UMI_FLAG_UNTAGGED,
    .is_part = true,
};

static umx_status
check_send(umx_ep *ep, umi_channel **channel_p)
{
    umx_status status = umi_channel_check_recv(ep, UMI_STREAM_0, channel_p);

    return (status == UMX_OK) ? umi_endpoint_send_status(ep) : status;
}

/* ---- a send of several pieces --------------------------------------------
 */

void
umi_split_send_on_done(umx_request *piece, umx_status status, void *arg)
{
    umx_request *req = arg;

    (void)piece;
    if (umi_split_send_of(req)->status == UMX_OK) {
        umi_split_send_of(req)->status = status;
    }
    if (--umi_split_send_of(req)->pending == 0) {
        umi_request_complete(req, umi_split_send_of(req)->status);
    }
}

/* A piece that goes on without its request, which may be gone, is none of its
 * any more. */
static bool
is_piece_of(const umx_request *piece, const umx_request *req)
{
    return piece->ops == &umi_channel_send_ops && piece->arg == req &&
           !umi_request_is_detached(piece);
}

/* True if none of the pieces has been posted. */
static bool
all_wait(const umx_request *req)
{
    unsigned count = 0;

    UMI_LIST_FOREACH(node, &umi_split_send_of(req)->channel->waiting) {
        count += is_piece_of(umi_channel_request_at(node), req);
    }
    return count == umi_split_send_of(req)->count;
}

/* Cancel the pieces, none of which has been posted, so that no byte of `req` is
 * sent. */
static void
drop_pieces(umx_request *req)
{
    UMI_LIST_FOREACH_SAFE(node, &umi_split_send_of(req)->channel->waiting) {
        umx_request *piece = umi_channel_request_at(node);

        if (is_piece_of(piece, req)) {
            piece->is_cancelled = true;
            umi_request_complete(piece, UMX_ERR_CANCELED);
        }
    }
}

/* True if `req` has been cancelled, or abandoned, since `piece` was. */
static bool
is_cancel_due(const umx_request *piece, const umx_request *req)
{
    return is_piece_of(piece, req) &&
           (!piece->is_cancelled ||
            (req->is_abandoned && !piece->is_abandoned));
}

/* The first piece on a list that is to be cancelled; or NULL. */
static umx_request *
next_piece(const umx_request *req, const umi_list *list)
{
    UMI_LIST_FOREACH(node, list) {
        if (is_cancel_due(umi_channel_request_at(node), req)) {
            return umi_channel_request_at(node);
        }
    }
    return NULL;
}

/* Cancel the pieces of `req` on a list. UCX may run meanwhile, and pieces are
 * on other lists then. False: the buffer of one of them stays lent. */
static bool
cancel_pieces(umx_request *req, const umi_list *list)
{
    bool         is_free = true;
    umx_request *piece;

    while ((piece = next_piece(req, list)) != NULL) {
        piece->is_abandoned = req->is_abandoned;
        is_free &= (umx_request_cancel(piece) == UMX_OK);
    }
    return is_free;
}

void
umi_split_send_cancel(umx_request *req)
{
    umi_channel *channel = umi_split_send_of(req)->channel;
    bool         is_free;

    if (all_wait(req)) {
        drop_pieces(req);
        umi_request_detach(req);
        return;
    }
    is_free = cancel_pieces(req, &channel->waiting);
    is_free &= cancel_pieces(req, &channel->ep->base.inflight);
    if (is_free) {
        umi_request_detach(req);
    }
}

static const umi_request_ops pieces_ops = {
    .name   = "stream_send",
    .cancel = umi_split_send_cancel,
};

static umx_status
send_pieces(umx_ep *ep, umx_request *req)
{
    umx_op_params params = {.flags      = UMI_OP_FLAG_INTERNAL,
                            .field_mask = UMX_OP_FIELD_FLAGS |
                                          UMX_OP_FIELD_ON_DONE |
                                          UMX_OP_FIELD_ON_LOST,
                            .on_done = umi_split_send_on_done,
                            .on_lost = umi_request_lose_whole,
                            .arg     = req};
    umx_buffer    piece  = req->buf;
    size_t        left   = req->buf.len;
    umx_status    status = UMX_OK;

    for (; left != 0 && status >= 0; left -= piece.len) {
        umx_request *ignored;

        piece.data = (char *)req->buf.data + (req->buf.len - left);
        piece.len  = (left < PIECE_MAX) ? left : PIECE_MAX;
        status     = umi_channel_send(ep, &part, &piece, &params, &ignored);
        umi_split_send_of(req)->count++;
        if (status == UMX_INPROGRESS) {
            umi_split_send_of(req)->pending++;
        }
    }
    if (status < 0 && umi_split_send_of(req)->count > 1) {
        umi_endpoint_finish(ep, UMX_EP_FAILED, status); /* cut in the middle */
    }
    if (status < 0 && umi_split_send_of(req)->pending != 0) {
        umi_split_send_of(req)->status = status;
    }
    return (umi_split_send_of(req)->pending != 0) ? UMX_INPROGRESS : status;
}

static umx_status
send_long(umx_ep *ep, umi_channel *channel, const umx_buffer *buf,
          const umx_op_params *params, umx_request **req_p)
{
    umx_request *req = umi_request_new(ep->base.worker, &ep->base, &pieces_ops,
                                       params);
    umx_status   status;

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_request_hold_buffer(req, buf);
    umi_split_send_of(req)->channel = channel;
    umi_split_send_of(req)->count   = 0;
    umi_split_send_of(req)->pending = 0;
    umi_split_send_of(req)->status  = UMX_OK;
    status                          = send_pieces(ep, req);
    if (status != UMX_INPROGRESS) {
        umi_request_free(req);
        return status;
    }
    *req_p = req;
    return UMX_INPROGRESS;
}

/* ---- public --------------------------------------------------------------
 */

UMI_LOCKED(umx_status, umx_stream_send, umi_endpoint_worker(ep),
           (umx_ep * ep, const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p),
           (ep, buf, params, req_p))

umx_status
umx_stream_send(umx_ep *ep, const umx_buffer *buf, const umx_op_params *params,
                umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_stream_send_locked(ep, buf, params, req_p);
    }
    umi_channel *channel;
    umx_status   status = check_send(ep, &channel);

    if (status == UMX_OK && channel->is_shut) {
        status = UMX_ERR_CLOSED;
    }
    if (status == UMX_OK) {
        status = umi_endpoint_check_contiguous(buf);
    }
    if (status != UMX_OK || buf->len == 0) {
        return status;
    }
    if (buf->len <= PIECE_MAX) {
        return umi_channel_send(ep, &what, buf, params, req_p);
    }
    return send_long(ep, channel, buf, params, req_p);
}

static void
on_end_sent(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    (void)status;
    (void)arg;
}

umx_status
umx_stream_shutdown(umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    static const umx_buffer    nothing;
    static const umx_op_params params = {.flags      = UMI_OP_FLAG_INTERNAL,
                                         .field_mask = UMX_OP_FIELD_FLAGS |
                                                       UMX_OP_FIELD_ON_DONE,
                                         .on_done = on_end_sent};

    umx_request *ignored;
    umi_channel *channel;
    umx_status   status = check_send(ep, &channel);

    if (status != UMX_OK || channel->is_shut) {
        return status;
    }
    status = umi_channel_send(ep, &what, &nothing, &params, &ignored);
    if (status < 0) {
        return status;
    }
    channel->is_shut = true;
    return UMX_OK;
}
