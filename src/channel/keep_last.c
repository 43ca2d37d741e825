/* SPDX-License-Identifier: BSD-3-Clause */
/* keep_last.c: of the messages of a channel that nobody has received, only the
 * last few are kept, if the program says so: a slow reader gets what is new.
 * Their number bounds them, and not the peer's credit: each message counts as
 * read when it is queued, or its sender would wait for the reader once those
 * that are kept, or the parts of one that is coming, fill a window. Bytes that
 * were only announced are never fetched.
 *
 * The number is that of whole messages. Of frames a message is whole once its
 * head is here, and all its parts have come or are announced; what a receive
 * has taken, or a cancelled one still lands, is not counted. */
#include "channel/channel.h"
#include "channel/frames.h"
#include "channel/tagged.h"

static void
drop(umi_channel *channel, umx_message *message)
{
    umi_channel_unqueue(channel, message);
    umi_misfit_drop(channel, message);
}

static void
count_dropped(umi_channel *channel)
{
    channel->ep->stats.dropped_messages++;
}

/* ---- messages by their tags ----------------------------------------------
 */

static void
trim_tagged(umi_channel *channel)
{
    UMI_LIST_FOREACH_SAFE(node, &channel->unexpected) {
        umx_message *message = umi_message_at(node);

        if (channel->num_unread <= channel->keep_last) {
            return;
        }
        if (message->storage != UMI_STORAGE_LANDING) {
            drop(channel, message);
            count_dropped(channel);
        }
    }
}

/* ---- frames ---------------------------------------------------------------
 */

/* Find the end of the message whose head is at `node`: what is behind its last
 * part. NULL: not all of it is here. */
static umi_node *
end_of(umi_channel *channel, umi_node *node)
{
    size_t parts = umi_frames_count_parts(channel, umi_message_at(node));

    if (parts == SIZE_MAX) {
        return NULL;
    }
    for (node = node->next; parts > 0; parts--, node = node->next) {
        if (node == &channel->unexpected ||
            umi_message_at(node)->storage == UMI_STORAGE_LANDING) {
            return NULL;
        }
    }
    return node;
}

static void
drop_first(umi_channel *channel)
{
    umi_node *end = end_of(channel, channel->unexpected.next);

    if (end == NULL) { /* out of memory: the next arrival finds them */
        return;
    }
    while (channel->unexpected.next != end) {
        drop(channel, umi_message_at(channel->unexpected.next));
    }
    count_dropped(channel);
}

static void
trim_frames(umi_channel *channel)
{
    umi_node *node  = channel->unexpected.next;
    uint32_t  count = 0;

    if (channel->num_unread <= channel->keep_last || channel->open != NULL ||
        channel->num_returning != 0) {
        return; /* the first ones in the queue are parts of a message */
    }
    while (node != &channel->unexpected &&
           (node = end_of(channel, node)) != NULL) {
        count++;
    }
    for (; count > channel->keep_last; count--) {
        drop_first(channel);
    }
}

/* ---- all ------------------------------------------------------------------
 */

void
umi_channel_trim(umi_channel *channel)
{
    if (channel->keep_last == 0) {
        return;
    }
    if (channel->ops == &umi_frames_ops) {
        trim_frames(channel);
    } else {
        trim_tagged(channel);
    }
}

static void
keep(umi_channel *channel, uint32_t count)
{
    channel->keep_last = count;
    UMI_LIST_FOREACH(node, &channel->unexpected) {
        umi_channel_keep(channel, umi_message_at(node));
    }
    umi_channel_trim(channel);
}

umx_status
umx_channel_keep_last(umx_ep *ep, uint16_t number, uint32_t count)
{
    UMI_GUARD(umi_endpoint_worker(ep));
    umi_channel *messages, *frames;
    umx_status   status = umi_channel_check_recv(
          ep, umi_header_channel_id(UMI_KIND_MESSAGE, number), &messages);

    if (status == UMX_OK) {
        status = umi_channel_check_recv(
            ep, umi_header_channel_id(UMI_KIND_FRAMES, number), &frames);
    }
    if (status != UMX_OK) {
        return status;
    }
    keep(messages, count);
    keep(frames, count);
    return UMX_OK;
}
