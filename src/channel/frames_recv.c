/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* frames_recv.c: receives of frames, from their posting to their end.
 *
 *   queued --head--> taken --buffers--> reading --all bytes in--> complete
 *
 * A receive that only takes the message is complete once it has it.
 * frames_read.c reads. */
/* clang-format on */
#include <stdlib.h>

#include "channel/channel.h"
#include "channel/frames.h"
#include "worker/observe.h"

/* ---- the request ---------------------------------------------------------
 */

void
umi_frames_got(umx_request *req, umx_message *message)
{
    umi_frames_op_of(req)->message   = message;
    umi_frames_op_of(req)->all.phase = UMI_FRAMES_TAKEN;
    req->info                        = message->info;
    umi_request_complete(req, UMX_OK);
}

void
umi_frames_refuse(umx_request *req, const umx_message *message)
{
    umi_frames_op_of(req)->all.phase = UMI_FRAMES_COMPLETE;
    req->info                        = message->info;
    req->info.length                 = message->frames->head.info.len;
    umi_request_complete(req, UMX_ERR_MESSAGE_TRUNCATED);
}

/* Ask for memory, which is to be long enough. */
static umx_status
allocate(umx_request *req)
{
    umi_frames *frames  = umi_frames_op_of(req)->message->frames;
    size_t      count   = frames->head.info.count;
    umx_buffer *buffers = calloc(count != 0 ? count : 1, sizeof(*buffers));
    umx_status  status;

    if (buffers == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    frames->buffers                = buffers;
    umi_frames_op_of(req)->buffers = buffers;
    status = umi_frames_op_of(req)->alloc(&frames->head.info, buffers,
                                          umi_frames_op_of(req)->arg);
    return (status == UMX_OK) ?
               umi_frames_check_buffers(frames, buffers, count) :
               status;
}

/* True if bytes of a message are with its sender, and stay there: they never
 * come, or the sender has been told GOODBYE. */
static bool
is_out_of_reach(const umx_message *message)
{
    if (message->frames->is_cut || !message->ep->is_goodbye_sent) {
        return message->frames->is_cut;
    }
    UMI_LIST_FOREACH(node, &message->frames->parts) {
        if (!umi_message_is_at_hand(umi_message_at(node))) {
            return true;
        }
    }
    return false;
}

/* Start to receive the bytes of the message that `req` has. */
static umx_status
start(umx_request *req)
{
    umx_message *message = umi_frames_op_of(req)->message;
    umx_status   status;
    umi_list     landers;

    status = (umi_frames_op_of(req)->alloc != NULL) ?
                 allocate(req) :
                 umi_frames_check_buffers(message->frames,
                                          umi_frames_op_of(req)->buffers,
                                          umi_frames_op_of(req)->count);
    if (status != UMX_OK && umi_frames_op_of(req)->alloc != NULL) {
        umi_frames_op_of(req)->message = NULL;
        umi_frames_put_back(message, NULL);
        return status;
    }
    if (status == UMX_OK && is_out_of_reach(message)) {
        status = umi_endpoint_end_status(message->ep, UMX_ERR_CLOSED);
    }
    if (status != UMX_OK) {
        umi_frames_op_of(req)->message = NULL;
        umi_frames_drop(message);
        return status;
    }
    if (!umi_frames_make_landers(req, &landers)) {
        umi_frames_op_of(req)->message = NULL;
        umi_frames_put_back(message, NULL);
        return UMX_ERR_NO_MEMORY;
    }
    return umi_frames_begin(req, &landers);
}

static bool
recv_finish(umx_request *req)
{
    umx_status status;

    if (umi_frames_op_of(req)->all.phase != UMI_FRAMES_TAKEN ||
        umi_frames_op_of(req)->all.wants_message) {
        return true;
    }
    status = start(req);
    if (status == UMX_INPROGRESS) {
        umi_request_restart(req);
        return false;
    }
    req->status = status;
    return true;
}

static void
recv_cancel(umx_request *req)
{
    if (umi_frames_op_of(req)->all.phase == UMI_FRAMES_QUEUED) {
        umi_request_complete(req, UMX_ERR_CANCELED);
    } else if (umi_frames_give_back(req) == UMX_INPROGRESS) {
        umi_assembly_defer(req);
        umi_assembly_cancel(req);
        umi_frames_check_read(req);
    } else if (umi_frames_op_of(req)->all.num_landing != 0) {
        umi_request_detach(req);
    } else {
        umi_request_complete(req, UMX_ERR_CANCELED);
    }
}

/* Cancel a receive that is complete but not reported: the message goes back to
 * the channel, and so do its bytes, if the receive has read them. */
static void
recv_cancel_complete(umx_request *req)
{
    umx_message      *message = umi_frames_op_of(req)->message;
    const umx_buffer *buffers = NULL;

    if (req->status == UMX_ERR_MESSAGE_TRUNCATED) {
        umi_misfit_forget(umi_frames_op_of(req)->all.channel, req->info.seq);
    }
    if (req->status != UMX_OK) {
        return;
    }
    if (umi_frames_op_of(req)->all.phase != UMI_FRAMES_TAKEN) {
        buffers = umi_frames_op_of(req)->buffers;
    }
    umi_frames_op_of(req)->message   = NULL;
    umi_frames_op_of(req)->all.phase = UMI_FRAMES_COMPLETE;
    req->status                      = UMX_ERR_CANCELED;
    umi_frames_put_back(message, buffers);
}

const umi_request_ops umi_frames_recv_ops = {
    .name            = "frames_recv",
    .finish          = recv_finish,
    .cancel          = recv_cancel,
    .cancel_complete = recv_cancel_complete,
    .describe        = umi_observe_received,
};

static umx_request *
new_recv(umi_channel *channel, const umx_frames_target *target,
         const umx_op_params *params)
{
    umx_ep      *ep  = channel->ep;
    umx_request *req = umi_request_new(ep->base.worker, &ep->base,
                                       &umi_frames_recv_ops, params);

    if (req == NULL) {
        return NULL;
    }
    req->buf = (umx_buffer){0};
    memset(&req->info, 0, sizeof(req->info));
    memset(umi_frames_op_of(req), 0, sizeof(*umi_frames_op_of(req)));
    umi_frames_op_of(req)->all.channel = channel;
    umi_frames_op_of(req)->alloc       = target->alloc;
    umi_frames_op_of(req)->arg         = target->arg;
    umi_frames_op_of(req)->buffers     = target->buffers;
    umi_frames_op_of(req)->count       = target->count;
    return req;
}

/* ---- public --------------------------------------------------------------
 */

/* Tell why a receive need not wait; UMX_OK if it may. */
static umx_status
wait_status(const umi_channel *channel)
{
    bool has_some = !umi_list_is_empty(&channel->unexpected) ||
                    channel->num_returning != 0;

    return (has_some && umi_endpoint_may_read(channel->ep)) ?
               UMX_OK :
               umi_endpoint_recv_status(channel->ep);
}

static umx_status
post(umi_channel *channel, const umx_frames_target *target, bool wants_message,
     const umx_op_params *params, umx_request **req_p)
{
    umx_status   status = wait_status(channel);
    umx_request *req;

    if (status != UMX_OK) {
        return status;
    }
    req = new_recv(channel, target, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_frames_op_of(req)->all.wants_message = wants_message;
    umi_list_append(&channel->posted, &req->node);
    umi_frames_advance(channel);
    *req_p = req;
    return UMX_INPROGRESS;
}

UMI_LOCKED(umx_status, umx_frames_recv, umi_endpoint_worker(ep),
           (umx_ep * ep, uint16_t number, const umx_frames_target *target,
            const umx_op_params *params, umx_request **req_p),
           (ep, number, target, params, req_p))

umx_status
umx_frames_recv(umx_ep *ep, uint16_t number, const umx_frames_target *target,
                const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_frames_recv_locked(ep, number, target, params, req_p);
    }
    static const umx_buffer none;

    umx_frames_target where = *target;
    umi_channel      *channel;
    umx_status        status = umi_channel_check_recv(
               ep, umi_header_channel_id(UMI_KIND_FRAMES, number), &channel);

    if (status != UMX_OK) {
        return status;
    }
    if (where.alloc == NULL && where.buffers == NULL) {
        if (where.count != 0) {
            return UMX_ERR_INVALID_PARAM;
        }
        where.buffers = &none;
    }
    return post(channel, &where, false, params, req_p);
}

static umx_status
recv_message(umx_ep *ep, uint16_t number, const umx_frames_target *target,
             const umx_op_params *params, umx_request **req_p,
             umx_message **message_p)
{
    umi_channel *channel;
    umx_message *message = NULL;
    umx_status   status  = umi_channel_check_recv(
           ep, umi_header_channel_id(UMI_KIND_FRAMES, number), &channel);

    if (status != UMX_OK) {
        return status;
    }
    if (umi_endpoint_may_read(ep)) {
        message = umi_frames_take(channel, target);
    }
    if (message == NULL) {
        return post(channel, target, true, params, req_p);
    }
    *message_p = message;
    return UMX_OK;
}

UMI_LOCKED(umx_status, umx_frames_recv_message, umi_endpoint_worker(ep),
           (umx_ep * ep, uint16_t number, const umx_op_params *params,
            umx_request **req_p, umx_message **message_p),
           (ep, number, params, req_p, message_p))

umx_status
umx_frames_recv_message(umx_ep *ep, uint16_t number,
                        const umx_op_params *params, umx_request **req_p,
                        umx_message **message_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_frames_recv_message_locked(ep, number, params, req_p,
                                              message_p);
    }
    static const umx_frames_target nowhere;

    return recv_message(ep, number, &nowhere, params, req_p, message_p);
}

umx_status
umx_frames_recv_fitting(umx_ep *ep, uint16_t number, const umx_buffer *buffers,
                        size_t count, const umx_op_params *params,
                        umx_request **req_p, umx_message **message_p)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    static const umx_buffer none;
    umx_frames_target       target = {
              .buffers = (count != 0) ? buffers : &none,
              .count   = count,
    };

    return recv_message(ep, number, &target, params, req_p, message_p);
}

const umx_frames_info *
umx_message_frames(const umx_message *message)
{
    return (message->frames != NULL) ? &message->frames->head.info : NULL;
}

bool
umx_message_has_frames(const umx_message *message)
{
    const umi_frames *frames = message->frames;

    if (frames == NULL || frames->num_missing != 0 || frames->is_read) {
        return false;
    }
    UMI_LIST_FOREACH(node, &frames->parts) {
        if (!umi_message_is_at_hand(umi_message_at(node))) {
            return false;
        }
    }
    return true;
}

umx_status
umx_message_recv_frames(umx_message **message_p, const umx_buffer *buffers,
                        size_t count, const umx_op_params *params,
                        umx_request **req_p)
{
    UMI_GUARD((*message_p)->worker);
    umx_frames_target target  = {.buffers = buffers, .count = count};
    umx_message      *message = *message_p;
    umx_request      *req;
    umx_status        status;
    umi_list          landers;

    if (message->ep->base.worker == NULL) {
        *message_p = NULL;
        umi_message_free_orphan(message);
        return UMX_ERR_CLOSED;
    }
    status = (message->frames == NULL || message->frames->is_read) ?
                 UMX_ERR_INVALID_PARAM :
                 umi_frames_check_buffers(message->frames, buffers, count);
    if (status != UMX_OK) {
        return status;
    }
    if (is_out_of_reach(message)) {
        status     = umi_endpoint_end_status(message->ep, UMX_ERR_CLOSED);
        *message_p = NULL;
        umi_frames_drop(message);
        return status;
    }
    req = new_recv(message->channel, &target, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->info                        = message->info;
    umi_frames_op_of(req)->message   = message;
    umi_frames_op_of(req)->all.phase = UMI_FRAMES_TAKEN;
    if (!umi_frames_make_landers(req, &landers)) {
        umi_request_free(req);
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_frames_begin(req, &landers);
    if (status != UMX_INPROGRESS) {
        *message_p = umi_frames_op_of(req)->message;
        umi_request_free(req);
        return status;
    }
    *message_p = NULL;
    *req_p     = req;
    return UMX_INPROGRESS;
}

void
umx_message_unrecv_frames(umx_message *message, const umx_buffer *buffers)
{
    UMI_GUARD(message->worker);
    if (message->ep->base.worker == NULL) {
        umi_message_free_orphan(message);
    } else {
        umi_frames_put_back(message, buffers);
    }
}
