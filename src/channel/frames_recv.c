/* SPDX-License-Identifier: BSD-3-Clause */
/* frames_recv.c: receiving the bytes of frames.
 *
 *   queued --head--> taken --buffers--> reading --all bytes in--> complete
 *
 * A receive that only takes the message is complete once it has it. Reading,
 * bytes at hand are copied, and each announced part lands where it belongs,
 * through a request of its own. */
#include <stdlib.h>

#include "channel/channel.h"
#include "channel/frames.h"
#include "mem/memtype.h"

enum recv_phase {
    RECV_QUEUED, /* in channel->posted */
    RECV_TAKEN,
    RECV_READING,
    RECV_COMPLETE
};

/* ---- copying -------------------------------------------------------------
 */

static umx_status
copy_packed(const umi_frames *frames, const umx_buffer *buffers)
{
    const uint8_t *pos    = frames->head.packed;
    umx_status     status = UMX_OK;

    for (size_t i = 0; i < frames->head.info.count && status == UMX_OK; i++) {
        const umx_frame *frame = &frames->head.frames[i];

        if (frame->place == UMI_FRAME_IN_HEAD && frame->len != 0) {
            status = umi_copy_in(&buffers[i], pos, frame->len);
            pos += frame->len;
        }
    }
    return status;
}

static umx_status
copy_part(const umi_frames *frames, const umi_part *part, const char *pos,
          const umx_buffer *buffers)
{
    umx_status status = UMX_OK;

    for (size_t i = part->first; i < part->end && status == UMX_OK; i++) {
        const umx_frame *frame = &frames->head.frames[i];

        if (frame->place != UMI_FRAME_IN_HEAD) {
            status = umi_copy_in(&buffers[i], pos, frame->len);
            pos += frame->len;
        }
    }
    return status;
}

/* ---- landing -------------------------------------------------------------
 */

/* Several frames: UCX puts the bytes where they belong. */
static bool
gather_part(umx_request *lander, const umi_frames *frames, const umi_part *part,
            const umx_buffer *buffers)
{
    umi_gather *gather = malloc(umi_gather_size(part->count));

    if (gather == NULL) {
        return false;
    }
    umi_gather_init(gather);
    for (size_t i = part->first; i < part->end; i++) {
        if (frames->head.frames[i].place != UMI_FRAME_IN_HEAD) {
            umx_buffer piece = buffers[i];

            piece.len = frames->head.frames[i].len;
            umi_gather_add(gather, &piece);
        }
    }
    lander->gather = gather;
    lander->buf    = umx_host_buffer(gather, part->len);
    return true;
}

/* One that has not begun, or is over. */
static void
free_lander(umx_request *lander)
{
    if (umi_landing_of(lander)->staged != NULL) {
        umi_message_free(umi_landing_of(lander)->staged);
    }
    free(lander->gather);
    umi_request_free(lander);
}

static umx_request *
new_lander(umx_request *req, const umi_frames *frames, const umi_part *part)
{
    const umx_buffer *buffers = umi_frames_op_of(req)->buffers;
    umx_request      *lander  = umi_piece_new(req, &umi_frames_part_ops);
    bool              is_good = true;

    if (lander == NULL) {
        return NULL;
    }
    umi_landing_of(lander)->staged = NULL;
    lander->info                   = req->info;
    if (part->count > 1) {
        is_good = gather_part(lander, frames, part, buffers);
    } else {
        umi_request_hold_buffer(lander, &buffers[part->first]);
        lander->buf.len = part->len;
    }
    if (!is_good ||
        !umi_landing_init(lander, umi_frames_op_of(req)->all.channel)) {
        free_lander(lander);
        return NULL;
    }
    return lander;
}

/* Everything that is needed to receive what has come of the message of `req`:
 * a lander for each announced part. False when out of memory; then there are
 * none. */
static bool
make_landers(umx_request *req, umi_list *landers)
{
    const umi_frames *frames = umi_frames_op_of(req)->message->frames;
    umi_part          part   = {0};

    umi_list_init(landers);
    if (req->ep->handle == NULL) {
        return true; /* none of them can be received */
    }
    UMI_LIST_FOREACH(node, &frames->parts) {
        umx_request *lander;

        umi_frames_part(&frames->head, part.end, &part);
        if (umi_message_at(node)->storage != UMI_STORAGE_RNDV) {
            continue;
        }
        lander = new_lander(req, frames, &part);
        if (lander == NULL) {
            UMI_LIST_FOREACH_SAFE(made, landers) {
                umi_node_remove(made);
                free_lander(umi_request_at(made));
            }
            return false;
        }
        umi_list_append(landers, &lander->node);
    }
    return true;
}

static void
set_status(umx_request *req, umx_status status)
{
    if (umi_frames_op_of(req)->all.status == UMX_OK) {
        umi_frames_op_of(req)->all.status = status;
    }
}

static bool
part_finish(umx_request *lander)
{
    umx_request *req    = lander->arg;
    umx_status   status = umi_land_unstage(lander, lander->status,
                                           lander->buf.len);

    if (lander->status != UMX_OK) {
        umi_channel_lose(umi_frames_op_of(req)->all.channel, req->info.seq,
                         lander->status);
    }
    umi_piece_end(lander);
    if (status != UMX_OK) {
        set_status(req,
                   umi_endpoint_end_status(umi_endpoint_of(req->ep), status));
    }
    free_lander(lander);
    umi_frames_check_read(req);
    return false;
}

const umi_request_ops umi_frames_part_ops = {
    .name   = "frames_part",
    .finish = part_finish,
};

/* ---- reading -------------------------------------------------------------
 */

/* The bytes of a part, which is gone after it; an announced one lands by
 * `lander`, unless its sender is gone. */
static void
read_part(umx_request *req, umx_message *message, const umi_part *part,
          umx_request *lander)
{
    umx_ep     *ep     = umi_endpoint_of(req->ep);
    umi_frames *frames = umi_frames_op_of(req)->message->frames;
    void       *desc   = message->data;

    if (lander != NULL) {
        ep->num_announced--;
        message->storage = UMI_STORAGE_MOVED;
    } else if (message->storage == UMI_STORAGE_RNDV) {
        set_status(req, umi_endpoint_end_status(ep, UMX_ERR_CLOSED));
    } else {
        set_status(
            req, copy_part(frames, part, desc, umi_frames_op_of(req)->buffers));
    }
    umi_channel_credit(umi_frames_op_of(req)->all.channel, message);
    umi_message_free(message);
    if (lander != NULL) {
        umi_piece_land(lander, desc, part->len);
    }
    if (ep->has_goodbye) {
        umi_endpoint_due(ep, UMI_DUE_ACK);
    }
}

void
umi_frames_read_part(umx_request *req, umx_message *message,
                     const umi_part *part)
{
    umx_request *lander = NULL;

    if (message->storage == UMI_STORAGE_RNDV && req->ep->handle != NULL) {
        lander = new_lander(req, umi_frames_op_of(req)->message->frames, part);
        if (lander == NULL) {
            set_status(req, UMX_ERR_NO_MEMORY);
            umi_channel_lose(umi_frames_op_of(req)->all.channel, req->info.seq,
                             UMX_ERR_NO_MEMORY);
        }
    }
    read_part(req, message, part, lander);
    umi_frames_check_read(req);
}

static bool
is_read(const umx_request *req)
{
    return umi_frames_op_of(req)->all.num_landing == 0 &&
           (umi_frames_op_of(req)->message->frames->num_missing == 0 ||
            umi_frames_op_of(req)->all.is_ended);
}

/* All that there is of the message, by what make_landers() has made;
 * UMX_INPROGRESS: there will be more. On a failure `req` has no message any
 * more. */
static umx_status
begin(umx_request *req, umi_list *landers)
{
    umx_message *message = umi_frames_op_of(req)->message;
    umi_frames  *frames  = message->frames;
    size_t       next    = 0;

    frames->reader = req;
    set_status(req, copy_packed(frames, umi_frames_op_of(req)->buffers));
    umi_channel_credit(message->channel, message);
    UMI_LIST_FOREACH_SAFE(node, &frames->parts) {
        umx_message *part_message = umi_message_at(node);
        umx_request *lander       = NULL;
        umi_part     part;

        umi_frames_part(&frames->head, next, &part);
        next = part.end;
        if (part_message->storage == UMI_STORAGE_RNDV &&
            !umi_list_is_empty(landers)) {
            lander = umi_request_at(umi_list_pop(landers));
        }
        read_part(req, part_message, &part, lander);
    }
    if (!is_read(req)) {
        umi_frames_op_of(req)->all.phase = RECV_READING;
        return UMX_INPROGRESS;
    }
    umi_frames_op_of(req)->all.phase = RECV_COMPLETE;
    frames->reader                   = NULL;
    frames->is_read                  = true;
    if (umi_frames_op_of(req)->all.status != UMX_OK) {
        umi_frames_op_of(req)->message = NULL;
        umi_frames_drop(message);
    }
    return umi_frames_op_of(req)->all.status;
}

static void
settle(umx_request *req)
{
    umi_channel *channel = umi_frames_op_of(req)->all.channel;
    umx_message *message = umi_frames_op_of(req)->message;
    umx_status   status  = umi_frames_op_of(req)->all.status;

    if (umi_channel_is_behind_lost(channel, message->info.seq) &&
        status == UMX_OK) {
        status = umi_endpoint_end_status(channel->ep, UMX_ERR_CLOSED);
    }
    umi_frames_op_of(req)->all.phase = RECV_COMPLETE;
    message->frames->reader          = NULL;
    umi_assembly_settle(req);
    if (status == UMX_OK && !req->is_cancelled) {
        message->frames->is_read = true;
        umi_request_complete(req, UMX_OK);
        return;
    }
    umi_frames_op_of(req)->message = NULL;
    umi_request_complete(req, req->is_cancelled ? UMX_ERR_CANCELED : status);
    if (status == UMX_OK) {
        umi_frames_put_back(message, umi_frames_op_of(req)->buffers);
    } else {
        umi_frames_drop(message);
    }
}

void
umi_frames_check_read(umx_request *req)
{
    if (umi_frames_op_of(req)->all.phase == RECV_READING && is_read(req)) {
        settle(req);
    }
}

void
umi_frames_fail(umx_request *req, umx_status status)
{
    umi_frames_op_of(req)->all.is_ended = true;
    set_status(req, status);
    umi_frames_check_read(req);
}

/* ---- the request ---------------------------------------------------------
 */

void
umi_frames_got(umx_request *req, umx_message *message)
{
    umi_frames_op_of(req)->message   = message;
    umi_frames_op_of(req)->all.phase = RECV_TAKEN;
    req->info                        = message->info;
    umi_request_complete(req, UMX_OK);
}

static umx_status
check_buffers(const umi_frames *frames, const umx_buffer *buffers, size_t count)
{
    if (count < frames->head.info.count) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    for (size_t i = 0; i < frames->head.info.count; i++) {
        umx_status status = umi_endpoint_check_buffer(&buffers[i]);

        if (status != UMX_OK) {
            return status;
        }
        if (buffers[i].len < frames->head.frames[i].len) {
            return UMX_ERR_BUFFER_TOO_SMALL;
        }
    }
    return UMX_OK;
}

/* Ask for memory. */
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
    return (status == UMX_OK) ? check_buffers(frames, buffers, count) : status;
}

/* It has the message; now its bytes. */
static umx_status
start(umx_request *req)
{
    umx_message *message = umi_frames_op_of(req)->message;
    umx_status   status  = UMX_OK;
    umi_list     landers;

    if (umi_frames_op_of(req)->alloc != NULL) {
        status = allocate(req);
        if (status != UMX_OK) {
            umi_frames_op_of(req)->message = NULL;
            umi_frames_put_back(message, NULL);
            return status;
        }
    } else {
        status = check_buffers(message->frames, umi_frames_op_of(req)->buffers,
                               umi_frames_op_of(req)->count);
    }
    if (status == UMX_OK && message->frames->is_cut) {
        status = umi_endpoint_end_status(message->ep, UMX_ERR_CLOSED);
    }
    if (status != UMX_OK) {
        umi_frames_op_of(req)->message = NULL;
        umi_frames_drop(message);
        return (status == UMX_ERR_BUFFER_TOO_SMALL) ?
                   UMX_ERR_MESSAGE_TRUNCATED :
                   status;
    }
    if (!make_landers(req, &landers)) {
        umi_frames_op_of(req)->message = NULL;
        umi_frames_put_back(message, NULL);
        return UMX_ERR_NO_MEMORY;
    }
    return begin(req, &landers);
}

static bool
wants_bytes(const umx_request *req)
{
    return umi_frames_op_of(req)->alloc != NULL ||
           umi_frames_op_of(req)->buffers != NULL;
}

static bool
recv_finish(umx_request *req)
{
    umx_message *message = umi_frames_op_of(req)->message;

    if (req->is_cancelled && req->status == UMX_OK) {
        /* Between completion and report: the message goes back. */
        const umx_buffer *buffers = (umi_frames_op_of(req)->all.phase ==
                                     RECV_TAKEN) ?
                                        NULL :
                                        umi_frames_op_of(req)->buffers;

        umi_frames_op_of(req)->message   = NULL;
        umi_frames_op_of(req)->all.phase = RECV_COMPLETE;
        req->status                      = UMX_ERR_CANCELED;
        umi_frames_put_back(message, buffers);
        return true;
    }
    if (umi_frames_op_of(req)->all.phase != RECV_TAKEN || !wants_bytes(req)) {
        return true;
    }
    req->status = start(req);
    return req->status != UMX_INPROGRESS;
}

static void
recv_cancel(umx_request *req)
{
    if (umi_frames_op_of(req)->all.phase == RECV_QUEUED) {
        umi_request_complete(req, UMX_ERR_CANCELED);
        return;
    }
    umi_assembly_cancel(req);
    umi_frames_check_read(req);
}

const umi_request_ops umi_frames_recv_ops = {
    .name   = "frames_recv",
    .finish = recv_finish,
    .cancel = recv_cancel,
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

/* Why a receive need not wait; UMX_OK if it may. */
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
post(umi_channel *channel, const umx_frames_target *target,
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
    umi_list_append(&channel->posted, &req->node);
    umi_frames_advance(channel);
    *req_p = req;
    return UMX_INPROGRESS;
}

umx_status
umx_frames_recv(umx_ep *ep, uint16_t number, const umx_frames_target *target,
                const umx_op_params *params, umx_request **req_p)
{
    static const umx_buffer none;

    umx_frames_target where = *target;
    umi_channel      *channel;
    umx_status        status = umi_channel_check_recv(
               ep, umi_channel_id(UMI_KIND_FRAMES, number), &channel);

    if (status != UMX_OK) {
        return status;
    }
    if (where.alloc == NULL && where.buffers == NULL) {
        if (where.count != 0) {
            return UMX_ERR_INVALID_PARAM;
        }
        where.buffers = &none;
    }
    return post(channel, &where, params, req_p);
}

umx_status
umx_frames_recv_message(umx_ep *ep, uint16_t number,
                        const umx_op_params *params, umx_request **req_p,
                        umx_message **message_p)
{
    static const umx_frames_target nowhere;

    umi_channel *channel;
    umx_message *message = NULL;
    umx_status   status  = umi_channel_check_recv(
           ep, umi_channel_id(UMI_KIND_FRAMES, number), &channel);

    if (status != UMX_OK) {
        return status;
    }
    if (umi_endpoint_may_read(ep)) {
        message = umi_frames_take(channel);
    }
    if (message == NULL) {
        return post(channel, &nowhere, params, req_p);
    }
    *message_p = message;
    return UMX_OK;
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
umx_message_copy_frames(const umx_message *message, const umx_buffer *buffers,
                        size_t count)
{
    const umi_frames *frames = message->frames;
    umi_part          part   = {0};
    umx_status        status;

    if (!umx_message_has_frames(message)) {
        return UMX_ERR_INVALID_PARAM;
    }
    status = check_buffers(frames, buffers, count);
    if (status == UMX_OK) {
        status = copy_packed(frames, buffers);
    }
    UMI_LIST_FOREACH(node, &frames->parts) {
        if (status == UMX_OK) {
            umi_frames_part(&frames->head, part.end, &part);
            status = copy_part(frames, &part, umi_message_at(node)->data,
                               buffers);
        }
    }
    return status;
}

umx_status
umx_message_recv_frames(umx_message **message_p, const umx_buffer *buffers,
                        size_t count, const umx_op_params *params,
                        umx_request **req_p)
{
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
                 check_buffers(message->frames, buffers, count);
    if (status != UMX_OK) {
        return status;
    }
    if (message->frames->is_cut) {
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
    umi_frames_op_of(req)->all.phase = RECV_TAKEN;
    if (!make_landers(req, &landers)) {
        umi_request_free(req);
        return UMX_ERR_NO_MEMORY;
    }
    status = begin(req, &landers);
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
    if (message->ep->base.worker == NULL) {
        umi_message_free_orphan(message);
    } else {
        umi_frames_put_back(message, buffers);
    }
}
