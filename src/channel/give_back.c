/* SPDX-License-Identifier: BSD-3-Clause */
/* give_back.c: a receive gives its message back to the queue, at the user's
 * wish or because it was cancelled. A stream's receive gives bytes back.
 *
 * A message of frames goes back at once: the parts that were read are copied,
 * and those that land do so in memory of ours, which becomes that of their
 * messages. What lands in a stream's receive is awaited first: land.c. */
#include <stdlib.h>

#include "bounce/bounce.h"
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
          ep, umi_header_channel_id(UMI_KIND_MESSAGE, number), &channel);

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
    } else if (req->status == UMX_OK) {
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
    size_t len     = req->info.length;
    bool   is_over = req->status != UMX_INPROGRESS;

    /* What is over cannot be waited for. */
    return umi_request_copy(req, len, umi_request_num_moved(req, len), is_over);
}

/* Make the message anew whose bytes land by `req`. NULL: out of memory. */
static umx_message *
new_of_landing(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_message *message = umi_message_empty(channel->ep);

    if (message != NULL) {
        message->channel          = channel;
        message->info             = req->info;
        message->storage          = UMI_STORAGE_LANDING;
        message->data             = NULL;
        message->lander           = req;
        umi_recv_of(req)->message = message;
    }
    return message;
}

static void
detach_if_pending(umx_request *req)
{
    if (req->status == UMX_INPROGRESS) {
        umi_request_detach(req);
    }
}

/* Give a message back as it was announced, by that way. */
static void
return_announced(umx_request *req, const umi_way *way, void *desc)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_ep      *ep      = channel->ep;
    umx_message *message = umi_message_empty(ep);

    if (message == NULL) {
        way->release(&ep->base, desc);
        umi_channel_lose(channel, req->info.seq, UMX_ERR_NO_MEMORY);
        umi_request_complete(req, UMX_ERR_CANCELED);
        return;
    }
    message->channel = channel;
    message->info    = req->info;
    message->storage = UMI_STORAGE_RNDV;
    message->way     = way;
    message->data    = desc;
    ep->num_announced++;
    umi_tagged_end_landing(req);
    umi_tagged_uncount(channel);
    umi_request_complete(req, UMX_ERR_CANCELED);
    umi_channel_offer(channel, message);
}

/* True if the message that lands by `req` can be received again. */
static bool
may_return(const umx_request *req)
{
    const umi_channel *channel = umi_recv_of(req)->landing.channel;

    return umi_endpoint_may_read(channel->ep) &&
           !umi_channel_is_lost(channel, req->info.seq) &&
           !umi_recv_of(req)->landing.is_withdrawn;
}

/* Give a message back that is being fetched: nothing of it has been taken from
 * its sender. False: it is not. */
static bool
return_fetched(umx_request *req)
{
    void *desc = umi_bounce_stop(req);

    if (desc == NULL) {
        return false;
    }
    return_announced(req, &umi_way_bounce, desc);
    return true;
}

void
umi_channel_fail_landing(umx_request *req, umx_status status)
{
    void *desc = umi_bounce_stop(req);

    if (desc != NULL) {
        umi_way_bounce.release(req->ep, desc);
    }
    req->memory_status = (int16_t)status;
    umi_request_complete(req, status);
}

void
umi_tagged_return_landing(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_ep      *ep      = channel->ep;
    umx_message *message = NULL;
    umx_status   status;

    if (may_return(req) && return_fetched(req)) {
        return;
    }

    if (!umi_endpoint_may_read(ep) ||
        umi_channel_is_lost(channel, req->info.seq)) {
        if (umi_request_void(req)) { /* nobody receives it any more */
            detach_if_pending(req);
        }
        return;
    }
    if (umi_recv_of(req)->landing.is_withdrawn) {
        (void)umi_request_void(req);
        detach_if_pending(req);
        return;
    }
    status = land_elsewhere(req);
    if (status >= 0) {
        message = new_of_landing(req);
    }
    if (message != NULL) {
        umi_tagged_uncount(channel);
    } else {
        umi_endpoint_cannot_copy(ep);
        (void)umi_request_void(req);
    }
    if (status == UMX_INPROGRESS) {
        umi_endpoint_defer(ep);
    } else {
        detach_if_pending(req);
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

/* True if bytes of that place may be read again. */
static bool
may_put_back(const umi_channel *channel, uint64_t place)
{
    return umi_endpoint_may_read(channel->ep) && !channel->ep->is_dropped &&
           !umi_channel_is_lost(channel, place);
}

/* Compute how many of `len` bytes are in front of what is lost. */
static size_t
length_to_put_back(const umi_channel *channel, uint64_t place, size_t len)
{
    return umi_channel_is_lost(channel, place + len) ? channel->cut_at - place :
                                                       len;
}

static void
queue_bytes(umi_channel *channel, umx_message *message, uint64_t place)
{
    message->channel  = channel;
    message->info.tag = place;
    umi_channel_queue(channel, message);
}

umx_status
umi_stream_put_back(umi_channel *channel, uint64_t place, const umx_buffer *buf,
                    size_t len)
{
    umx_message *message;
    umx_status   status;

    if (len == 0) {
        return UMX_OK;
    }
    if (!may_put_back(channel, place)) {
        return UMX_ERR_CLOSED;
    }
    status = umi_message_rebuild(channel->ep, NULL, 0, buf,
                                 length_to_put_back(channel, place, len),
                                 &message);
    if (status != UMX_OK) {
        return status;
    }
    queue_bytes(channel, message, place);
    return UMX_OK;
}

/* Put the first `len` bytes of `req` back: in the memory that the receive was
 * given when it was cancelled, or by copy. */
static umx_status
put_back_received(umx_request *req, size_t len)
{
    umi_channel *channel = umi_stream_of(req)->all.channel;
    uint64_t     place   = req->info.tag;
    umx_message *message;
    umx_status   status;

    if (len == 0 || !may_put_back(channel, place)) {
        return UMX_OK;
    }
    message = umi_message_empty(channel->ep);
    if (message == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    message->info.length = length_to_put_back(channel, place, len);
    status               = take_bytes(message, req);
    if (status != UMX_OK) {
        umi_message_free(message);
        return status;
    }
    queue_bytes(channel, message, place);
    return UMX_OK;
}

void
umi_stream_give_back(umx_request *req)
{
    size_t len = umi_stream_of(req)->filled;

    if (len > umi_stream_of(req)->good) {
        len = umi_stream_of(req)->good;
    }
    umi_stream_of(req)->filled = 0;
    if (put_back_received(req, len) != UMX_OK) {
        umi_channel_lose(umi_stream_of(req)->all.channel, req->info.tag,
                         UMX_ERR_NO_MEMORY);
    }
}

/* Drop the bytes of `req`, some of which are landing. */
static void
drop_bytes(umx_request *req)
{
    umi_pieces_void(req);
    umi_stream_of(req)->filled = 0;
}

umx_status
umi_stream_move(umx_request *req, umi_piece_fn move)
{
    umi_channel *channel = umi_stream_of(req)->all.channel;
    size_t       len     = umi_stream_of(req)->filled;
    umx_status   status;

    if (umi_stream_of(req)->all.num_landing == 0) {
        return UMX_OK; /* they go back at once */
    }
    if (!umi_pieces_can_move(req)) {
        return UMX_INPROGRESS;
    }
    if (!may_put_back(channel, req->info.tag)) {
        drop_bytes(req);
        return UMX_OK;
    }
    status = umi_request_copy(req, len, len, false);
    if (status == UMX_OK) {
        umi_pieces_each(req, move, req->copy->bytes);
    } else if (status < 0) {
        drop_bytes(req);
        umi_endpoint_cannot_copy(channel->ep);
        umi_channel_lose(channel, req->info.tag, UMX_ERR_NO_MEMORY);
    }
    return status;
}

/* ---- frames --------------------------------------------------------------
 */

/* Copy a part that was read from `buffers`. */
static bool
copy_part(umx_message *message, const umx_message *head, const umi_part *part,
          const umx_buffer *buffers)
{
    const umx_frame *frames = head->frames->head.frames;
    umx_status       status = UMX_OK;
    char            *pos;

    if (!umi_message_make_room(message, part->len)) {
        return false;
    }
    pos = message->data;
    for (size_t i = part->first; i < part->end && status == UMX_OK; i++) {
        if (frames[i].place != UMI_FRAME_IN_HEAD) {
            status = umi_copy_out(&buffers[i], pos, frames[i].len);
            pos += frames[i].len;
        }
    }
    return status == UMX_OK;
}

/* Make a part anew that was read from `buffers`, or that lands by `lander`. */
static bool
rebuild_part(umx_message *head, const umi_part *part, uint32_t seq,
             const umx_buffer *buffers, umx_request *lander)
{
    umx_message *message = umi_message_empty(head->ep);

    if (message == NULL) {
        return false;
    }
    if (lander != NULL) {
        umi_recv_of(lander)->message = message;
        message->lander              = lander;
        message->storage             = UMI_STORAGE_LANDING;
    } else if (!copy_part(message, head, part, buffers)) {
        umi_message_free(message);
        return false;
    }
    message->channel     = head->channel;
    message->info        = head->info;
    message->info.length = part->len;
    message->info.seq    = seq;
    umi_channel_queue(head->channel, message);
    return true;
}

/* Put back the parts that were read, and those that nobody has read. */
static bool
put_back_parts(umx_message *head, const umx_buffer *buffers,
               umx_request **landers)
{
    umi_frames *frames = head->frames;
    size_t      end    = umi_list_is_empty(&frames->parts) ? frames->next : 0;
    uint32_t    n      = 0;
    umi_part    part;

    UMI_LIST_FOREACH_SAFE(node, &frames->parts) {
        umx_message *message = umi_message_at(node);

        umi_node_remove(&message->node);
        message->is_taken = false;
        umi_channel_queue(head->channel, message);
    }
    for (size_t i = 0; i < end; i = part.end, n++) {
        umi_frame_part(&frames->head, i, &part);
        if (!rebuild_part(head, &part, head->info.seq + 1 + n, buffers,
                          landers != NULL ? landers[n] : NULL)) {
            return false;
        }
    }
    return true;
}

/* True if a message that is taken may be received again. */
static bool
is_to_go_back(const umx_message *message)
{
    return umi_endpoint_may_read(message->ep) && !message->ep->is_dropped &&
           !message->frames->is_cut &&
           !umi_channel_is_lost(message->channel, message->info.seq);
}

/* umi_frames_put_back(); parts that land do so by `landers`, or NULL. */
static void
put_back(umx_message *message, const umx_buffer *buffers, umx_request **landers)
{
    umi_channel *channel = message->channel;
    umx_worker  *worker  = message->worker;
    umx_ep      *ep      = message->ep;

    if (!is_to_go_back(message)) {
        umi_frames_drop(message);
        return;
    }
    if (!put_back_parts(message, buffers, landers)) {
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

void
umi_frames_put_back(umx_message *message, const umx_buffer *buffers)
{
    put_back(message, buffers, NULL);
}

/* Compute how many bytes the parts have that were read, or land. */
static size_t
bytes_of_parts(const umi_frames *frames)
{
    size_t   bytes = 0;
    umi_part part  = {0};

    while (part.end < frames->next) {
        umi_frame_part(&frames->head, part.end, &part);
        bytes += part.len;
    }
    return bytes;
}

/* Give each part that lands memory of ours; enter it in `landers`, by its
 * number. */
typedef struct moved_parts {
    umx_request **landers;
    umx_status    status;
} moved_parts;

static void
move_part(umx_request *lander, void *arg)
{
    moved_parts *moved = arg;
    size_t       len   = lander->buf.len;

    if (moved->status != UMX_OK) {
        return;
    }
    moved->landers[umi_landing_of(lander)->order] = lander;
    /* umi_frames_give_back() has checked the limit. */
    moved->status = umi_request_copy(lander, len,
                                     umi_request_num_moved(lander, len), true);
}

/* Let the message of `req` go, whose bytes nobody gets. */
static void
drop_reading(umx_request *req, umx_message *message)
{
    umi_pieces_void(req);
    umi_frames_drop(message);
}

/* Put the message of `req` back into the queue, though parts may still land:
 * these land in copies from now on. Without memory for copies the message is
 * lost. */
static void
put_back_landing(umx_request *req, umx_message *message)
{
    const umi_frames *frames = message->frames;
    size_t            count  = frames->head.num_parts - frames->num_missing;
    moved_parts       moved  = {.landers = calloc(count + 1, sizeof(void *)),
                                .status  = UMX_ERR_NO_MEMORY};

    if (moved.landers != NULL) {
        moved.status = UMX_OK;
        umi_pieces_each(req, move_part, &moved);
    }
    if (moved.status == UMX_OK) {
        put_back(message, umi_frames_op_of(req)->buffers, moved.landers);
    } else {
        umi_endpoint_cannot_copy(message->ep);
        umi_channel_lose(message->channel, message->info.seq,
                         UMX_ERR_NO_MEMORY);
        drop_reading(req, message);
    }
    free(moved.landers);
}

umx_status
umi_frames_give_back(umx_request *req)
{
    umx_message *message = umi_frames_op_of(req)->message;

    if (!umi_pieces_can_move(req)) {
        return UMX_INPROGRESS;
    }
    if (umi_frames_op_of(req)->all.num_landing != 0 && is_to_go_back(message) &&
        !umi_request_may_copy(req, bytes_of_parts(message->frames))) {
        return UMX_INPROGRESS;
    }
    message->frames->reader          = NULL;
    umi_frames_op_of(req)->message   = NULL;
    umi_frames_op_of(req)->all.phase = UMI_FRAMES_COMPLETE;
    umi_assembly_settle(req);
    if (is_to_go_back(message)) {
        put_back_landing(req, message);
    } else {
        drop_reading(req, message);
    }
    return UMX_OK;
}
