/* SPDX-License-Identifier: BSD-3-Clause */
/* channels.c: the channels of an endpoint: found by their ids, and how many
 * there may be. */
#include <stdlib.h>

#include "channel/am.h"
#include "channel/channel.h"
#include "util/count.h"

void
umi_channels_init(umx_ep *ep)
{
    umi_channels *channels = umi_channels_of(ep);

    channels->rx_window = ep->own_limits.bytes;
    umi_channel_init(&channels->channel0, ep, UMI_CHANNEL_0);
    channels->channel0.is_ours  = true;
    channels->channel0.is_peers = true;
    umi_list_init(&channels->others);
    umi_list_init(&channels->due);
    umi_table_init(&channels->by_id);
    umi_offer_init(ep);
}

void
umi_channels_fini(umx_ep *ep)
{
    umi_channels *channels = umi_channels_of(ep);
    umi_node     *node;

    while ((node = umi_list_pop(&channels->others)) != NULL) {
        umi_channel *channel = umi_container_of(node, umi_channel, node);

        umi_node_remove(&channel->user_node);
        umi_withdraw_fini(channel);
        free(channel);
    }
    umi_withdraw_fini(&channels->channel0);
    umi_table_fini(&channels->by_id);
}

umi_channel *
umi_channel_find(umx_ep *ep, uint32_t id)
{
    umi_channel *channel = umi_channels_of(ep)->recent;

    if (id == UMI_CHANNEL_0) {
        return &umi_channels_of(ep)->channel0;
    }
    if (channel != NULL && channel->id == id) {
        return channel;
    }
    channel = umi_table_get(&umi_channels_of(ep)->by_id, id);
    if (channel != NULL) {
        umi_channels_of(ep)->recent = channel;
    }
    return channel;
}

static umi_channel *
add_channel(umx_ep *ep, uint32_t id)
{
    umi_channel *channel = malloc(sizeof(*channel));

    if (channel == NULL ||
        !umi_table_add(&umi_channels_of(ep)->by_id, id, channel)) {
        free(channel);
        return NULL;
    }
    umi_channel_init(channel, ep, id);
    channel->user = umi_channel_am_find(ep->base.worker, id);
    umi_credit_start(channel);
    umi_list_append(&umi_channels_of(ep)->others, &channel->node);
    return channel;
}

umi_channel *
umi_channel_make(umx_ep *ep, uint32_t id)
{
    umi_channel *channel = umi_channel_find(ep, id);

    return (channel != NULL) ? channel : add_channel(ep, id);
}

umi_channel *
umi_channel_of_peer(umx_ep *ep, uint32_t id)
{
    umi_channel *channel;

    if (id == UMI_CHANNEL_0) {
        return &umi_channels_of(ep)->channel0;
    }
    channel = umi_channel_find(ep, id);
    if (channel != NULL && channel->is_peers) {
        return channel;
    }
    if (!umi_channel_is_of_library(id) &&
        umi_channels_of(ep)->num_peers >=
            umi_endpoint_worker(ep)->context->config.channels_max) {
        umi_endpoint_protocol_error(ep, "more channels than are accepted");
        return NULL;
    }
    if (channel == NULL) {
        channel = add_channel(ep, id);
    }
    if (channel == NULL) {
        umi_endpoint_protocol_error(ep, "out of memory for a channel");
        return NULL;
    }
    channel->is_peers = true;
    umi_channels_of(ep)->num_peers += !umi_channel_is_of_library(id);
    return channel;
}

umx_status
umi_channel_use(umi_channel *channel)
{
    umx_ep *ep = channel->ep;

    if (channel->is_ours) {
        return UMX_OK;
    }
    if (!umi_channel_is_of_library(channel->id)) {
        if (ep->peer_channels != 0 &&
            umi_channels_of(ep)->num_ours >= ep->peer_channels) {
            return UMX_ERR_CHANNEL_LIMIT;
        }
        umi_channels_of(ep)->num_ours++;
    }
    channel->is_ours = true;
    return UMX_OK;
}

void
umi_channels_limit(umx_ep *ep)
{
    uint32_t left = ep->peer_channels;

    UMI_LIST_FOREACH(node, &umi_channels_of(ep)->others) {
        umi_channel *channel = umi_container_of(node, umi_channel, node);

        if (!channel->is_ours || umi_channel_is_of_library(channel->id)) {
            continue;
        }
        if (left > 0) {
            left--;
            continue;
        }
        channel->is_ours = false;
        UMI_DECREMENT(umi_channels_of(ep)->num_ours);
        umi_channel_fail_waiting(channel, UMX_ERR_CHANNEL_LIMIT);
    }
}

void
umi_channels_each(umx_ep *ep, void (*fn)(umi_channel *channel))
{
    umi_list *others = &umi_channels_of(ep)->others;

    /* `fn` may run UCX, and call back: channels come, and none goes. */
    fn(&umi_channels_of(ep)->channel0);
    for (umi_node *node = others->next; node != others; node = node->next) {
        fn(umi_container_of(node, umi_channel, node));
    }
}

umx_status
umi_channel_check_recv(umx_ep *ep, uint32_t id, umi_channel **channel_p)
{
    umx_status status;

    status = umi_endpoint_check(ep);
    if (status != UMX_OK) {
        return status;
    }
    *channel_p = umi_channel_get(ep, id);
    return (*channel_p == NULL) ? UMX_ERR_NO_MEMORY : UMX_OK;
}
