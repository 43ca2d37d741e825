/* SPDX-License-Identifier: BSD-3-Clause */
/* frames_queue.c: messages of frames as they come; see frames.h.
 *
 * Heads and parts are messages of their channel: credit, parking, GOODBYE and
 * the peer's close treat them as all others. A receive takes the first head,
 * which an announced one has to be pulled in for, and the parts go to it in
 * their order, now or as they come; only then is the next head looked at. A
 * message that does not fit the buffers of a receive stays where it is, or is
 * dropped (misfit.c): that is decided by its head, in the order of messages.
 * What is given back returns to its places, which makes it the next message
 * again; parts of it may be landing then. While bytes land in the buffers of a
 * deferred receive, that is waited for. */
#include <stdlib.h>
#include <string.h>

#include "channel/channel.h"
#include "channel/frames.h"
#include "mem/memtype.h"
#include "util/count.h"

static umi_frame_limits
limits_of(const umi_channel *channel)
{
    const umx_config *config =
        &umi_endpoint_worker(channel->ep)->context->config;

    return (umi_frame_limits){.frames = config->frames_max,
                              .bytes  = config->frames_bytes_max};
}

static umx_message *
first_message(const umi_channel *channel)
{
    return umi_list_is_empty(&channel->unexpected) ?
               NULL :
               umi_message_at(channel->unexpected.next);
}

/* Decode the head. False: it is none, or there is no memory. */
static bool
open_head(umi_channel *channel, umx_message *message, const char **why_p)
{
    umi_frame_limits limits = limits_of(channel);
    umi_frames      *frames = umi_pool_get(
             &umi_endpoint_worker(channel->ep)->frames);

    if (frames == NULL) {
        *why_p = "out of memory for a message";
        return false;
    }
    memset(frames, 0, offsetof(umi_frames, head));
    umi_list_init(&frames->parts);
    *why_p              = umi_frame_head_decode(&frames->head, message->data,
                                                message->info.length, &limits);
    frames->num_missing = frames->head.num_parts;
    message->frames     = frames;
    if (*why_p != NULL) {
        umi_frames_free(message);
        return false;
    }
    return true;
}

void
umi_frames_free(umx_message *message)
{
    umi_frames *frames = message->frames;
    umx_worker *worker = message->is_taken ? message->worker :
                                             umi_endpoint_worker(message->ep);

    if (message->channel->open == message) {
        message->channel->open = NULL;
    }
    UMI_LIST_FOREACH_SAFE(node, &frames->parts) {
        umi_message_free(umi_message_at(node));
    }
    umi_frame_head_fini(&frames->head);
    free(frames->buffers);
    umi_pool_put(&worker->frames, frames);
    message->frames = NULL;
}

void
umi_frames_orphan(umx_message *message)
{
    UMI_LIST_FOREACH(node, &message->frames->parts) {
        umx_message *part = umi_message_at(node);

        if (part->storage == UMI_STORAGE_RNDV) {
            part->storage = UMI_STORAGE_MOVED;
        }
    }
}

/* ---- taking --------------------------------------------------------------
 */

/* Fail the endpoint: the message that begins with `seq` can never be read. */
static void
refuse(umi_channel *channel, uint32_t seq, const char *why)
{
    umi_endpoint_protocol_error(channel->ep, why);
    umi_channel_cut(channel, seq, UMX_ERR_PROTOCOL);
}

/* Fetch a head: its bytes are needed to know what comes next. */
static void
fetch_head(umi_channel *channel, umx_message *message)
{
    umi_frame_limits limits = limits_of(channel);

    if (message->info.length > umi_frame_head_max(&limits)) {
        refuse(channel, message->info.seq, "a head of frames too long");
    } else if (!umi_channel_fetch_one(channel, message)) {
        refuse(channel, message->info.seq, "out of memory for a message");
    }
}

/* Find the next head, decode it and leave it in the queue. NULL: it is not here
 * yet, or cannot be read. */
static umx_message *
find_head(umi_channel *channel)
{
    umx_message *message = first_message(channel);
    const char  *why;

    if (message == NULL || message->storage == UMI_STORAGE_LANDING) {
        return NULL;
    }
    if (message->storage == UMI_STORAGE_RNDV) {
        fetch_head(channel, message);
        return NULL;
    }
    if (!open_head(channel, message, &why)) {
        refuse(channel, message->info.seq, why);
        return NULL;
    }
    return message;
}

/* Take a head off the queue. */
static void
take_head(umi_channel *channel, umx_message *message)
{
    umi_channel_unqueue(channel, message);
    umi_message_take(message);
    if (message->frames->num_missing != 0) {
        channel->open = message;
        umi_list_append(&channel->taken, &message->node);
    }
}

/* Drop a part that nobody wants. */
static void
drop_part(umi_channel *channel, umx_message *part)
{
    umi_channel_credit(channel, part);
    umi_message_free(part);
    if (channel->ep->has_goodbye) {
        umi_endpoint_due(channel->ep, UMI_DUE_ACK);
    }
}

/* Add a part to the message that is open. False: `message` is no part of it. */
static bool
take_part(umi_channel *channel, umx_message *message)
{
    umx_message *head   = channel->open;
    umi_frames  *frames = head->frames;
    umi_part     part;

    umi_frame_part(&frames->head, frames->next, &part);
    if (message->info.length != part.len) {
        refuse(channel, head->info.seq, "frames whose sizes lie");
        return false;
    }
    umi_channel_unqueue(channel, message);
    message->is_taken = true;
    message->worker   = umi_endpoint_worker(channel->ep);
    frames->next      = part.end;
    UMI_DECREMENT(frames->num_missing);
    if (frames->num_missing == 0) {
        channel->open = NULL;
    }
    if (frames->is_dropped) {
        drop_part(channel, message);
        if (frames->num_missing == 0) {
            umi_message_free(head);
        }
    } else if (frames->reader != NULL) {
        umi_frames_read_part(frames->reader, message, &part);
    } else {
        umi_list_append(&frames->parts, &message->node);
    }
    return true;
}

static uint32_t
seq_of_next_part(const umx_message *head)
{
    const umi_frames *frames = head->frames;

    return head->info.seq + 1 +
           (uint32_t)(frames->head.num_parts - frames->num_missing);
}

/* Find the part that the open message waits for. In front of it there may be
 * what a cancelled receive has given back. */
static umx_message *
next_part(const umi_channel *channel)
{
    uint32_t seq = seq_of_next_part(channel->open);

    UMI_LIST_FOREACH(node, &channel->unexpected) {
        umx_message *message = umi_message_at(node);

        if (umi_seq_diff(message->info.seq, seq) >= 0) {
            return message;
        }
    }
    return NULL;
}

static void
take_parts(umi_channel *channel)
{
    umx_message *message;

    while (channel->open != NULL && (message = next_part(channel)) != NULL &&
           message->storage != UMI_STORAGE_LANDING &&
           take_part(channel, message)) {
    }
}

/* True if the message is one for a receive with that target. */
static bool
fits(const umx_message *message, const umx_frames_target *target)
{
    return target->buffers == NULL ||
           umi_frames_check_buffers(message->frames, target->buffers,
                                    target->count) != UMX_ERR_BUFFER_TOO_SMALL;
}

umx_message *
umi_frames_take(umi_channel *channel, const umx_frames_target *target)
{
    umx_message *message;

    if (channel->open != NULL || channel->num_returning != 0 ||
        !umi_list_is_empty(&channel->posted)) {
        return NULL;
    }
    message = find_head(channel);
    if (message == NULL) {
        return NULL;
    }
    if (!fits(message, target)) {
        umi_frames_free(message);
        return NULL;
    }
    take_head(channel, message);
    take_parts(channel);
    return message;
}

/* True if a message in the queue is a part of the open message. */
static bool
is_of_open(const umi_channel *channel, const umx_message *message)
{
    const umx_message *head = channel->open;
    int32_t            ahead;

    if (head == NULL) {
        return false;
    }
    ahead = umi_seq_diff(message->info.seq, head->info.seq);
    return ahead > 0 && (size_t)ahead <= head->frames->head.num_parts;
}

void
umi_frames_cut_open(umi_channel *channel, umx_status status)
{
    umx_message *head = channel->open;

    if (head == NULL) {
        return;
    }
    UMI_LIST_FOREACH_SAFE(node, &channel->unexpected) {
        umx_message *message = umi_message_at(node);

        if (is_of_open(channel, message)) {
            umi_channel_discard_message(channel, message, status);
        }
    }
    channel->open        = NULL;
    head->frames->is_cut = true;
    if (head->frames->is_dropped) {
        umi_message_free(head);
    } else if (head->frames->reader != NULL) {
        umi_frames_fail(head->frames->reader, status);
    }
}

/* End the open message if the channel is cut in front of its end. */
static void
cut(umi_channel *channel, umx_status status)
{
    const umx_message *head = channel->open;

    if (head != NULL &&
        umi_channel_is_lost(
            channel, head->info.seq + (uint32_t)head->frames->head.num_parts)) {
        umi_frames_cut_open(channel, status);
    }
}

/* Fail the receives that wait: nothing is left, and nothing comes any more. */
static void
end_posted(umi_channel *channel)
{
    umx_status status = umi_endpoint_recv_status(channel->ep);

    if (status != UMX_OK && umi_list_is_empty(&channel->unexpected) &&
        !umi_frames_are_read(channel)) {
        umi_frames_cut_open(channel, status);
        umi_request_complete_all(&channel->posted, status);
    }
}

/* Let go of a message that is taken. */
static void
drop_taken(umx_message *message)
{
    umi_channel *channel = message->channel;
    umi_frames  *frames  = message->frames;

    umi_channel_credit(channel, message);
    UMI_LIST_FOREACH_SAFE(node, &frames->parts) {
        drop_part(channel, umi_message_at(node));
    }
    if (channel->open == message) {
        message->is_taken = false; /* the channel's, until its parts are here */
        frames->is_dropped = true;
    } else {
        umi_message_free(message);
    }
}

/* Compute how many bytes a receive has room for. */
static size_t
capacity_of(const umx_request *req)
{
    const umi_frames_op *op    = umi_frames_op_of(req);
    size_t               bytes = 0;

    for (size_t i = 0; i < op->count; i++) {
        bytes += op->buffers[i].len;
    }
    return bytes;
}

/* The message in front does not fit the first receive: that one ends, or the
 * message does. */
static void
meet_misfit(umi_channel *channel, umx_message *message, umx_request *req)
{
    umx_ep     *ep     = channel->ep;
    umx_worker *worker = umi_endpoint_worker(ep);

    if (message->is_refused) {
        umi_misfit_log(channel, message->frames->head.info.len,
                       capacity_of(req));
        take_head(channel, message);
        drop_taken(message);
        umi_message_end_taken(worker, ep);
        return;
    }
    message->is_refused = true;
    umi_frames_refuse(req, message);
    umi_frames_free(message);
}

/* Hand the message in front to the first receive. */
static void
hand_out(umi_channel *channel, umx_message *message, umx_request *req)
{
    umx_frames_target target = {.buffers = umi_frames_op_of(req)->buffers,
                                .count   = umi_frames_op_of(req)->count};

    if (fits(message, &target)) {
        take_head(channel, message);
        umi_frames_got(req, message);
    } else {
        meet_misfit(channel, message, req);
    }
    take_parts(channel);
}

void
umi_frames_advance(umi_channel *channel)
{
    umx_message *message;

    if (channel->num_returning != 0) {
        return;
    }
    take_parts(channel);
    while (channel->open == NULL && !umi_list_is_empty(&channel->posted) &&
           (message = find_head(channel)) != NULL) {
        hand_out(channel, message,
                 umi_channel_request_at(channel->posted.next));
    }
    umi_channel_trim(channel);
    end_posted(channel);
}

/* ---- arrival and end -----------------------------------------------------
 */

bool
umi_frames_are_read(const umi_channel *channel)
{
    const umx_ep      *ep   = channel->ep;
    const umx_message *head = channel->open;
    const umx_request *reader;

    if (head == NULL || head->frames->reader == NULL || !ep->is_closing ||
        (ep->state != UMX_EP_OPEN && ep->state != UMX_EP_DRAINING) ||
        ep->is_goodbye_sent || ep->is_peer_closed) {
        return false;
    }
    reader = head->frames->reader;
    return !reader->is_cancelled && umi_assembly_of(reader)->status == UMX_OK;
}

static void
offer(umi_channel *channel, umx_message *message)
{
    umi_channel_queue(channel, message);
    umi_channel_keep(channel, message);
    if (channel->open != NULL || !umi_list_is_empty(&channel->posted) ||
        channel->keep_last != 0) {
        umi_channel_due(channel); /* UCX is calling */
    }
}

static void
fail_posted(umi_channel *channel, umx_status status)
{
    if (umi_endpoint_reads_on(channel->ep)) {
        umi_frames_advance(channel); /* what has come can be read */
        return;
    }
    umi_request_complete_all(&channel->posted, status);
    if (channel->num_returning == 0) {
        take_parts(channel);
    }
    if (!umi_frames_are_read(channel)) {
        umi_frames_cut_open(channel, status);
    }
}

/* True if the bytes of a message in the queue are here. */
static bool
is_here(const umx_message *message)
{
    return umi_message_is_at_hand(message) &&
           message->storage != UMI_STORAGE_MOVED;
}

size_t
umi_frames_count_parts(umi_channel *channel, umx_message *message)
{
    const char *why;
    size_t      count;

    if (!is_here(message) || !open_head(channel, message, &why)) {
        return SIZE_MAX;
    }
    count = message->frames->head.num_parts;
    umi_frames_free(message);
    return count;
}

/* True if the bytes of a part in the queue are here, or have just landed. */
static bool
is_in(const umx_message *part)
{
    return is_here(part) || (part->storage == UMI_STORAGE_LANDING &&
                             part->lander->status == UMX_OK);
}

static uint64_t
first_broken(umi_channel *channel, uint64_t none)
{
    const umi_node *whole   = channel->unexpected.next; /* behind the last */
    size_t          missing = 0;

    UMI_LIST_FOREACH(node, &channel->unexpected) {
        umx_message *message = umi_message_at(node);
        bool         is_part = missing != 0 || is_of_open(channel, message);

        if (!(is_part ? is_in(message) : is_here(message))) {
            break;
        }
        if (!is_part) {
            missing = umi_frames_count_parts(channel, message);
        } else if (missing != 0) {
            missing--;
        }
        if (missing == 0) {
            whole = node->next;
        }
    }
    return (whole == &channel->unexpected) ?
               none :
               umi_container_of(whole, const umx_message, node)->info.seq;
}

/* True if all parts that the open message misses are in the queue. */
static bool
has_all_parts(const umx_message *head)
{
    const umi_channel *channel = head->channel;
    uint32_t           seq     = seq_of_next_part(head);
    size_t             count   = 0;

    UMI_LIST_FOREACH(node, &channel->unexpected) {
        const umx_message *message = umi_message_at(node);

        if (message->info.seq == seq + (uint32_t)count &&
            count < head->frames->num_missing) {
            if (!is_in(message)) {
                return false;
            }
            count++;
        }
    }
    return count == head->frames->num_missing;
}

bool
umi_frames_is_unsafe(const umx_message *head)
{
    const umi_frames *frames = head->frames;

    if (frames->is_dropped) {
        return false; /* nobody wants them */
    }
    if (frames->num_missing != 0 && !has_all_parts(head)) {
        return true;
    }
    UMI_LIST_FOREACH(node, &frames->parts) {
        if (!umi_message_is_at_hand(umi_message_at(node))) {
            return true;
        }
    }
    return false;
}

/* ---- messages in the user's hands ----------------------------------------
 */

void
umi_frames_return(umx_message *message)
{
    if (message->frames->is_read && message->frames->head.num_parts != 0) {
        umi_frames_drop(message); /* its bytes are not ours any more */
    } else {
        umi_frames_put_back(message, NULL);
    }
}

void
umi_frames_drop(umx_message *message)
{
    umi_channel *channel = message->channel;
    umx_worker  *worker  = message->worker;
    umx_ep      *ep      = message->ep;

    drop_taken(message);
    umi_frames_advance(channel);
    umi_message_end_taken(worker, ep);
}

/* ---- the kind ------------------------------------------------------------
 */

/* A head has to be decoded first, and a part needs its head. */
static umi_arrived
arrive(umi_channel *channel, const umx_recv_info *info,
       const umi_am_arrival *arrival)
{
    (void)channel;
    (void)info;
    (void)arrival;
    return UMI_ARRIVED_TO_KEEP;
}

static void
landed(umi_channel *channel, umx_message *message, umx_status status)
{
    (void)message;
    (void)status;
    umi_frames_advance(channel);
}

static uint64_t
next(const umi_channel *channel)
{
    return channel->rx_seq;
}

const umi_channel_ops umi_frames_ops = {
    .arrive       = arrive,
    .offer        = offer,
    .landed       = landed,
    .advance      = umi_frames_advance,
    .fail_posted  = fail_posted,
    .cut          = cut,
    .first_broken = first_broken,
    .place        = umi_channel_seq_place,
    .distance     = umi_channel_seq_distance,
    .next         = next,
    .lander       = &umi_frames_part_ops,
};
