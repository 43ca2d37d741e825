/* SPDX-License-Identifier: BSD-3-Clause */
/* queue.c: messages that no receive has taken yet: `unexpected`. */
#include "channel/channel.h"

/* Give the place of a message's first unread byte. */
static uint64_t
order_of(const umi_channel *channel, const umx_message *message)
{
    return channel->ops->place(&message->info) + message->read;
}

static bool
is_behind(umi_node *node, umi_node *other, const void *arg)
{
    const umi_channel *channel = arg;

    return channel->ops->distance(order_of(channel, umi_message_at(node)),
                                  order_of(channel, umi_message_at(other))) > 0;
}

void
umi_channel_insert(umi_channel *channel, umx_message *message)
{
    umi_list_insert_sorted(&channel->unexpected, &message->node, is_behind,
                           channel);
}

umx_message *
umi_channel_take_first(umi_channel *channel)
{
    umi_node    *first = channel->unexpected.next;
    umx_message *message;

    if (umi_list_is_empty(&channel->unexpected)) {
        return NULL;
    }
    message = umi_message_at(first);
    if (message->storage == UMI_STORAGE_LANDING) {
        return NULL;
    }
    umi_channel_unqueue(channel, message);
    umi_message_take(message);
    return message;
}

void
umi_channel_discard_message(umi_channel *channel, umx_message *message,
                            umx_status status)
{
    umx_request *claimant = message->claimant;

    umi_channel_unqueue(channel, message);
    if (message->lander != NULL) {
        umi_recv_of(message->lander)->message = NULL;
    }
    umi_message_free(message);
    if (claimant != NULL) {
        umi_tagged_fail_claim(claimant, status);
    }
}

void
umi_channel_discard(umi_channel *channel)
{
    umx_status status = umi_endpoint_end_status(channel->ep, UMX_ERR_CANCELED);

    umi_request_complete_all(&channel->late, status);
    while (!umi_list_is_empty(&channel->unexpected)) {
        umi_channel_discard_message(
            channel, umi_message_at(channel->unexpected.next), status);
    }
    UMI_LIST_FOREACH_SAFE(node, &channel->parked) {
        umi_message_free(umi_message_at(node));
    }
}
