/* SPDX-License-Identifier: BSD-3-Clause */
#include "channel/land.h"

#include "channel/channel.h"
#include "util/count.h"

/* ---- one message ---------------------------------------------------------
 */

umx_status
umi_land(umx_request *req, const umi_way *way, void *desc, size_t len)
{
    umx_ep *ep = umi_endpoint_of(req->ep);

    umi_landing_of(req)->is_landing = true;
    ep->num_landing++;
    umi_offer_note_received(ep, way);
    return way->recv(req, desc, len);
}

/* End a landing, for which a close of either side may have waited. */
void
umi_land_end(umx_request *req)
{
    umx_ep *ep = umi_endpoint_of(req->ep);

    umi_landing_of(req)->is_landing = false;
    UMI_DECREMENT(ep->num_landing);
    if (ep->has_goodbye) {
        umi_endpoint_due(ep, UMI_DUE_ACK);
    }
    umi_close_check_received(ep);
}

/* True if the receive that a piece is of will be done with its bytes. */
static bool
is_piece_wanted(const umx_request *piece)
{
    const umx_request *req = piece->arg;

    return !req->is_cancelled && umi_assembly_of(req)->status == UMX_OK;
}

bool
umi_land_is_awaited(const umx_request *req)
{
    bool is_piece = req->ops == umi_stream_ops.lander ||
                    req->ops == umi_frames_ops.lander;

    if ((!is_piece && req->ops != umi_tagged_ops.lander) ||
        !umi_landing_of(req)->is_landing || req->is_cancelled || req->is_void) {
        return false;
    }
    return !is_piece || is_piece_wanted(req);
}

bool
umi_land_is_of(const umx_request *req, const umi_channel *channel)
{
    return req->ops == channel->ops->lander &&
           umi_landing_of(req)->channel == channel &&
           umi_landing_of(req)->is_landing;
}

void
umi_channel_landed(umi_channel *channel, umx_message *message,
                   umx_status status)
{
    umi_channel_landing_ends(message);
    if (status != UMX_OK) {
        umi_channel_lose(channel, channel->ops->place(&message->info), status);
    }
    channel->ops->landed(channel, message, status);
}

/* ---- several pieces ------------------------------------------------------
 */

/* UCX keeps bytes, for which those behind a cancelled receive wait. */
static void
on_lost(umx_request *piece, umx_status status, void *arg)
{
    umx_request  *req      = arg;
    umi_assembly *assembly = umi_assembly_of(req);
    umi_channel  *channel  = assembly->channel;

    (void)piece;
    umi_request_lose(req, status);
    if (assembly->is_returning) {
        assembly->is_returning = false;
        UMI_DECREMENT(channel->num_returning);
        umi_channel_lose(channel, channel->ops->place(&req->info), status);
        channel->ops->advance(channel);
    }
}

umx_request *
umi_piece_new(umx_request *req, const umi_request_ops *ops)
{
    umx_request *piece = umi_request_new(req->worker, req->ep, ops, NULL);

    if (piece != NULL) {
        piece->on_lost = on_lost;
        piece->arg     = req;
    }
    return piece;
}

void
umi_piece_land(umx_request *piece, const umi_way *way, void *desc, size_t len)
{
    umx_status status;

    umi_assembly_of(piece->arg)->num_landing++;
    status = umi_land(piece, way, desc, len);
    if (status == UMX_ERR_WITHDRAWN) { /* which a part never is */
        status = UMX_ERR_CONNECTION_RESET;
    }
    if (status < 0) {
        umi_endpoint_cannot_land(umi_endpoint_of(piece->ep), status);
    }
    if (status != UMX_INPROGRESS) {
        umi_request_complete(piece, status);
    }
}

void
umi_piece_end(umx_request *piece)
{
    UMI_DECREMENT(umi_assembly_of(piece->arg)->num_landing);
    umi_land_end(piece);
}

static void
each_of_list(const umx_request *req, const umi_list *list, umi_piece_fn fn,
             void *arg)
{
    const umi_channel *channel = umi_assembly_of(req)->channel;

    UMI_LIST_FOREACH(node, list) {
        umx_request *piece = umi_channel_request_at(node);

        if (umi_land_is_of(piece, channel) && piece->arg == req) {
            fn(piece, arg);
        }
    }
}

void
umi_pieces_each(umx_request *req, umi_piece_fn fn, void *arg)
{
    if (umi_assembly_of(req)->num_landing != 0) {
        each_of_list(req, &req->ep->inflight, fn, arg);
        each_of_list(req, &req->worker->done, fn, arg);
    }
}

static void
check_move(umx_request *piece, void *arg)
{
    bool *can_move = arg;

    if (umi_request_is_fixed(piece)) {
        *can_move = false;
    }
}

bool
umi_pieces_can_move(umx_request *req)
{
    bool can_move = true;

    umi_pieces_each(req, check_move, &can_move);
    return can_move;
}

static void
make_void(umx_request *piece, void *arg)
{
    (void)arg;
    (void)umi_request_void(piece);
}

void
umi_pieces_void(umx_request *req)
{
    umi_pieces_each(req, make_void, NULL);
}

void
umi_assembly_cancel(umx_request *req)
{
    umi_assembly *assembly = umi_assembly_of(req);
    umi_channel  *channel  = assembly->channel;

    assembly->is_ended = true;
    if (assembly->num_landing != 0 && !assembly->is_returning &&
        !umi_channel_is_lost(channel, channel->ops->place(&req->info))) {
        assembly->is_returning = true;
        channel->num_returning++;
    }
}

void
umi_assembly_settle(umx_request *req)
{
    if (umi_assembly_of(req)->is_returning) {
        umi_assembly_of(req)->is_returning = false;
        UMI_DECREMENT(umi_assembly_of(req)->channel->num_returning);
    }
}

static void
defer(umx_request *piece, void *arg)
{
    (void)arg;
    umi_request_defer(piece); /* defer.c looks for such */
}

void
umi_assembly_defer(umx_request *req)
{
    umi_pieces_each(req, defer, NULL);
    umi_endpoint_defer(umi_endpoint_of(req->ep));
}
