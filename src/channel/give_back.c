/* SPDX-License-Identifier: BSD-3-Clause */
/* give_back.c: a receive gives its message back to the queue, at the user's
 * wish or because it was cancelled. A stream's receive gives bytes back. What
 * lands in a cancelled receive of several messages is awaited first: land.c. */
#include "channel/frames.h"
#include "channel/stream.h"
#include "channel/tagged.h"
#include "mem/memtype.h"

/* ---- messages by their tags ----------------------------------------------
 */

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
    umi_tagged_uncount(channel);
    umi_channel_offer(channel, message);
    return UMX_OK;
}

umx_status
umx_channel_unrecv(umx_ep *ep, uint16_t number, const umx_recv_info *info,
                   const umx_buffer *buf)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    umi_channel *channel;
    umx_status   status = umi_channel_check_recv(
          ep, umi_channel_id(UMI_KIND_MESSAGE, number), &channel);

    return (status == UMX_OK) ?
               umi_channel_unrecv(channel, info, NULL, 0, buf) :
               status;
}

void
umi_tagged_return_received(umx_request *req)
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

/* Let what comes for `req` land in memory of ours, with what has come. */
static umx_status
land_elsewhere(umx_request *req)
{
    size_t len = req->info.length;

    if (umi_recv_of(req)->landing.staged != NULL) {
        return UMX_OK; /* it does */
    }
    if (req->status != UMX_INPROGRESS) {
        req->is_abandoned = true; /* it is over: nothing could be waited for */
    } else if (req->moved < len) {
        len = req->moved;
    }
    return umi_request_copy(req, req->info.length, len);
}

void
umi_tagged_return_landing(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_ep      *ep      = channel->ep;
    umx_message *message;
    umx_status   status;

    if (!umi_endpoint_may_read(ep) ||
        umi_channel_is_lost(channel, req->info.seq)) {
        if (umi_request_void(req)) { /* nobody receives it any more */
            umi_request_detach(req);
        }
        return;
    }
    status  = umi_recv_of(req)->landing.is_withdrawn ? UMX_OK :
                                                       land_elsewhere(req);
    message = NULL;
    if (umi_recv_of(req)->landing.is_withdrawn) {
        (void)umi_request_void(req);
    } else if (status >= 0) {
        message = umi_message_copy(ep, NULL, 0);
    }
    if (message == NULL && !umi_recv_of(req)->landing.is_withdrawn) {
        umi_endpoint_cannot_copy(ep);
        (void)umi_request_void(req);
    }
    if (message != NULL) {
        message->channel          = channel;
        message->info             = req->info;
        message->storage          = UMI_STORAGE_LANDING;
        message->data             = NULL;
        message->lander           = req;
        umi_recv_of(req)->message = message;
        umi_tagged_uncount(channel);
    }
    if (status == UMX_INPROGRESS) {
        umi_endpoint_defer(ep);
    } else if (req->status == UMX_INPROGRESS) {
        umi_request_detach(req);
    }
    if (message != NULL) {
        umi_channel_offer(channel, message);
    }
}

/* Give the message the memory that a cancelled receive has its bytes in, or a
 * copy of them. */
static umx_status
take_bytes(umx_message *message, umx_request *req)
{
    umi_spare *copy = umi_request_take_spare(req);

    if (copy != NULL) {
        message->storage = UMI_STORAGE_COPY;
        message->copy    = copy;
        message->data    = copy->bytes;
        return UMX_OK;
    }
    return umi_message_make_room(message, message->info.length) ?
               umi_copy_out(&req->buf, message->data, message->info.length) :
               UMX_ERR_NO_MEMORY;
}

void
umi_tagged_return_landed(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_message *message = umi_recv_of(req)->message;
    umx_status   status  = req->status;

    umi_recv_of(req)->message = NULL;
    message->lander           = NULL;
    message->storage          = UMI_STORAGE_MOVED;
    if (status == UMX_OK) {
        status = take_bytes(message, req);
    }
    umi_channel_landed(channel, message, status);
}

/* ---- streams -------------------------------------------------------------
 */

umx_status
umi_stream_put_back(umi_channel *channel, uint64_t place, const void *data,
                    size_t len)
{
    umx_ep      *ep = channel->ep;
    umx_message *message;

    if (len == 0) {
        return UMX_OK;
    }
    if (!umi_endpoint_may_read(ep) || ep->is_dropped ||
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

void
umi_stream_give_back(umx_request *req)
{
    umi_channel *channel = umi_stream_of(req)->all.channel;
    size_t       len     = umi_stream_of(req)->filled;

    if (len > umi_stream_of(req)->good) {
        len = umi_stream_of(req)->good;
    }
    umi_stream_of(req)->filled = 0;
    if (umi_stream_put_back(channel, req->info.tag, req->buf.data, len) ==
        UMX_ERR_NO_MEMORY) {
        umi_channel_lose(channel, req->info.tag, UMX_ERR_NO_MEMORY);
    }
}

/* ---- frames --------------------------------------------------------------
 */

/* Make a part that was read anew, from `buffers`. */
static bool
rebuild_part(umx_message *head, const umi_part *part, uint32_t seq,
             const umx_buffer *buffers)
{
    const umx_frame *frames  = head->frames->head.frames;
    umx_message     *message = umi_message_copy(head->ep, NULL, 0);
    umx_status       status  = UMX_OK;
    char            *pos;

    if (message == NULL) {
        return false;
    }
    if (!umi_message_make_room(message, part->len)) {
        umi_message_free(message);
        return false;
    }
    pos = message->data;
    for (size_t i = part->first; i < part->end && status == UMX_OK; i++) {
        if (frames[i].place != UMI_FRAME_IN_HEAD) {
            status = umi_copy_out(&buffers[i], pos, frames[i].len);
            pos += frames[i].len;
        }
    }
    message->channel     = head->channel;
    message->info        = head->info;
    message->info.length = part->len;
    message->info.seq    = seq;
    umi_channel_queue(head->channel, message);
    return status == UMX_OK;
}

/* Put back the parts that were read, and those that nobody has read. */
static bool
put_back_parts(umx_message *head, const umx_buffer *buffers)
{
    umi_frames *frames = head->frames;
    uint32_t    seq    = head->info.seq + 1;
    size_t      end    = umi_list_is_empty(&frames->parts) ? frames->next : 0;
    umi_part    part;

    UMI_LIST_FOREACH_SAFE(node, &frames->parts) {
        umx_message *message = umi_message_at(node);

        umi_node_remove(&message->node);
        message->is_taken = false;
        umi_channel_queue(head->channel, message);
    }
    for (size_t i = 0; i < end; i = part.end, seq++) {
        umi_frames_part(&frames->head, i, &part);
        if (!rebuild_part(head, &part, seq, buffers)) {
            return false;
        }
    }
    return true;
}

void
umi_frames_put_back(umx_message *message, const umx_buffer *buffers)
{
    umi_channel *channel = message->channel;
    umx_worker  *worker  = message->worker;
    umx_ep      *ep      = message->ep;

    if (!umi_endpoint_may_read(ep) || ep->is_dropped ||
        message->frames->is_cut ||
        umi_channel_is_lost(channel, message->info.seq)) {
        umi_frames_drop(message);
        return;
    }
    if (!put_back_parts(message, buffers)) {
        umi_channel_lose(channel, message->info.seq, UMX_ERR_NO_MEMORY);
        umi_frames_drop(message);
        return;
    }
    umi_frames_free(message);
    umi_node_remove(&message->node);
    message->is_taken = false;
    umi_channel_queue(channel, message);
    umi_frames_advance(channel);
    umi_message_end_taken(worker, ep);
}
