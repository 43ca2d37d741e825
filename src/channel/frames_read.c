/* SPDX-License-Identifier: BSD-3-Clause */
/* frames_read.c: the bytes of frames come into a receive's buffers. Bytes at
 * hand are copied. Each announced part lands through a request of its own, a
 * lander, by land.c; a part of several frames lands in a gather of their
 * buffers, which no other kind of channel needs. */
#include <stdlib.h>

#include "channel/frames.h"
#include "channel/tagged.h"
#include "mem/memtype.h"
#include "util/count.h"

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

umx_status
umi_frames_check_buffers(const umi_frames *frames, const umx_buffer *buffers,
                         size_t count)
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
    status = umi_frames_check_buffers(frames, buffers, count);
    if (status == UMX_OK) {
        status = copy_packed(frames, buffers);
    }
    UMI_LIST_FOREACH(node, &frames->parts) {
        if (status == UMX_OK) {
            umi_frame_part(&frames->head, part.end, &part);
            status = copy_part(frames, &part, umi_message_at(node)->data,
                               buffers);
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

static void
free_lander(umx_request *lander)
{
    free(lander->gather);
    umi_request_free(lander);
}

/* `n` is the number of the part. */
static umx_request *
new_lander(umx_request *req, const umi_frames *frames, const umi_part *part,
           size_t n)
{
    const umx_buffer *buffers = umi_frames_op_of(req)->buffers;
    umx_request      *lander  = umi_piece_new(req, &umi_frames_part_ops);
    bool              is_good = true;

    if (lander == NULL) {
        return NULL;
    }
    lander->info = req->info;
    if (part->count > 1) {
        is_good = gather_part(lander, frames, part, buffers);
    } else {
        umi_request_hold_buffer(lander, &buffers[part->first]);
        lander->buf.len = part->len;
    }
    if (!is_good) {
        free_lander(lander);
        return NULL;
    }
    umi_landing_init(lander, umi_frames_op_of(req)->all.channel);
    umi_landing_of(lander)->order = (uint32_t)n;
    umi_recv_of(lander)->message  = NULL;
    return lander;
}

bool
umi_frames_make_landers(umx_request *req, umi_list *landers)
{
    const umi_frames *frames = umi_frames_op_of(req)->message->frames;
    umi_part          part   = {0};
    size_t            n      = 0;

    umi_list_init(landers);
    if (req->ep->handle == NULL) {
        return true; /* none of them can be received */
    }
    UMI_LIST_FOREACH(node, &frames->parts) {
        umx_request *lander;

        umi_frame_part(&frames->head, part.end, &part);
        n++;
        if (umi_message_at(node)->storage != UMI_STORAGE_RNDV) {
            continue;
        }
        lander = new_lander(req, frames, &part, n - 1);
        if (lander == NULL) {
            UMI_LIST_FOREACH_SAFE(made, landers) {
                umi_node_remove(made);
                free_lander(umi_channel_request_at(made));
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

/* A part of a receive that was cancelled has landed in memory of ours, or has
 * not: its message is in the queue. */
static void
end_returned(umx_request *lander)
{
    umx_request *req = lander->arg;

    if (umi_recv_of(lander)->message != NULL) { /* nor was it discarded */
        umi_tagged_return_landed(lander);
    }
    if (umi_frames_op_of(req)->all.num_landing == 0) {
        umi_request_complete(req, UMX_ERR_CANCELED);
    }
}

static void
end_read(umx_request *lander)
{
    umx_request *req = lander->arg;

    if (lander->status != UMX_OK) {
        set_status(req, (lander->memory_status != UMX_OK) ?
                            lander->status :
                            umi_endpoint_end_status(umi_endpoint_of(req->ep),
                                                    lander->status));
    }
    umi_frames_check_read(req);
}

static bool
part_finish(umx_request *lander)
{
    umx_request *req = lander->arg;

    if (lander->status != UMX_OK && lander->memory_status == UMX_OK) {
        umi_channel_lose(umi_frames_op_of(req)->all.channel, req->info.seq,
                         lander->status);
    }
    umi_piece_end(lander);
    if (umi_request_is_detached(req)) {
        end_returned(lander);
    } else {
        end_read(lander);
    }
    free_lander(lander);
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
    umx_ep        *ep     = umi_endpoint_of(req->ep);
    umi_frames    *frames = umi_frames_op_of(req)->message->frames;
    const umi_way *way    = message->way;
    void          *data   = message->data;

    if (lander != NULL) {
        UMI_DECREMENT(ep->num_announced);
        message->storage = UMI_STORAGE_MOVED;
    } else if (message->storage == UMI_STORAGE_RNDV) {
        set_status(req, umi_endpoint_end_status(ep, UMX_ERR_CLOSED));
    } else {
        set_status(
            req, copy_part(frames, part, data, umi_frames_op_of(req)->buffers));
    }
    umi_channel_credit(umi_frames_op_of(req)->all.channel, message);
    umi_message_free(message);
    if (lander != NULL) {
        umi_piece_land(lander, way, data, part->len);
    }
    if (ep->has_goodbye) {
        umi_endpoint_due(ep, UMI_DUE_ACK);
    }
}

void
umi_frames_read_part(umx_request *req, umx_message *message,
                     const umi_part *part)
{
    const umi_frames *frames  = umi_frames_op_of(req)->message->frames;
    umx_request      *lander  = NULL;
    bool              is_lost = false;

    if (message->storage == UMI_STORAGE_RNDV && req->ep->handle != NULL) {
        lander  = new_lander(req, frames, part,
                             frames->head.num_parts - frames->num_missing - 1);
        is_lost = lander == NULL;
    }
    if (is_lost) {
        set_status(req, UMX_ERR_NO_MEMORY);
    }
    read_part(req, message, part, lander);
    if (is_lost) { /* not earlier: it takes the message that has the parts */
        umi_channel_lose(umi_frames_op_of(req)->all.channel, req->info.seq,
                         UMX_ERR_NO_MEMORY);
    }
    umi_frames_check_read(req);
}

static bool
is_read(const umx_request *req)
{
    return umi_frames_op_of(req)->all.num_landing == 0 &&
           (umi_frames_op_of(req)->message->frames->num_missing == 0 ||
            umi_frames_op_of(req)->all.is_ended);
}

umx_status
umi_frames_begin(umx_request *req, umi_list *landers)
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

        umi_frame_part(&frames->head, next, &part);
        next = part.end;
        if (part_message->storage == UMI_STORAGE_RNDV &&
            !umi_list_is_empty(landers)) {
            lander = umi_channel_request_at(umi_list_pop(landers));
        }
        read_part(req, part_message, &part, lander);
    }
    if (!is_read(req)) {
        umi_frames_op_of(req)->all.phase = UMI_FRAMES_READING;
        return UMX_INPROGRESS;
    }
    umi_frames_op_of(req)->all.phase = UMI_FRAMES_COMPLETE;
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
    umi_frames_op_of(req)->all.phase = UMI_FRAMES_COMPLETE;
    message->frames->reader          = NULL;
    umi_assembly_settle(req);
    umi_close_check_received(channel->ep);
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
    if (umi_frames_op_of(req)->all.phase == UMI_FRAMES_READING &&
        is_read(req)) {
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
