/* SPDX-License-Identifier: BSD-3-Clause */
/* connection.c: what the channels of an endpoint do as it opens, closes and
 * ends: umi_endpoint_hooks. */
#include "channel/channel.h"
#include "endpoint/log.h"
#include "host/trip.h"
#include "ops/transfer.h"

/* Give the channel after `channel`, for EACH_CHANNEL(); NULL: none. */
static umi_channel *
next_channel(const umx_ep *ep, const umi_channel *channel)
{
    const umi_list *others = &umi_channels_of(ep)->others;
    const umi_node *next   = (channel == &umi_channels_of(ep)->channel0) ?
                                 others->next :
                                 channel->node.next;

    return (next == others) ? NULL : umi_container_of(next, umi_channel, node);
}

#define EACH_CHANNEL(channel, ep)                                   \
    for (umi_channel *channel     = &umi_channels_of(ep)->channel0; \
         channel != NULL; channel = next_channel(ep, channel))

/* ---- an open connection --------------------------------------------------
 */

/* Give the time of a round trip; 0 for a peer on this host. */
static uint64_t
trip_of(const umx_ep *ep)
{
    return (ep->base.link->has_shm || ep->socket.is_local) ?
               0 :
               umi_socket_trip_ns(&ep->socket);
}

static void
log_offers(const umx_ep *ep)
{
    char name[UMI_ENDPOINT_NAME], ways[UMI_OFFERS_TEXT];

    umi_endpoint_name(ep, name);
    umi_offer_text(ep, ways);
    umi_log_line(UMI_LOG_DEBUG, "%s: ways of messages: %s", name, ways);
}

void
umi_channels_open(umx_ep *ep)
{
    umi_channels *channels = umi_channels_of(ep);

    channels->trip_ns = trip_of(ep);
    umi_offer_open(ep);
    if (umi_log_is_on(UMI_LOG_DEBUG)) {
        log_offers(ep);
    }
    channels->tx_limit.bytes = ep->peer_limits.bytes;
    channels->tx_limit.rndv  = ep->peer_limits.rndv;
    umi_channels_limit(ep);
    umi_channels_each(ep, umi_credit_start);
}

static void
grant(umi_channel *channel)
{
    umi_control control = {.kind = UMI_CREDIT};

    if (channel->owes_credit && channel->ep->base.handle != NULL) {
        umi_credit_grant(channel, &control.u.credit.limits,
                         &control.u.credit.reserve);
        control.u.credit.channel = channel->id;
        umi_endpoint_send_control(channel->ep, &control);
    }
}

void
umi_channels_grant(umx_ep *ep)
{
    umi_channels_each(ep, grant);
}

void
umi_channels_on_credit(umx_ep *ep, const umi_control *credit)
{
    umi_channel *channel = umi_channel_find(ep, credit->u.credit.channel);

    if (channel == NULL || !channel->is_ours) {
        umi_endpoint_protocol_error(ep,
                                    "credit for a channel that is not in use");
    } else {
        umi_credit_take(channel, &credit->u.credit.limits,
                        credit->u.credit.reserve);
        umi_endpoint_due(ep, UMI_DUE_SEND);
    }
}

void
umi_channels_send(umx_ep *ep)
{
    umi_channels_each(ep, umi_channel_send_waiting);
}

void
umi_channel_due(umi_channel *channel)
{
    if (!umi_node_is_linked(&channel->due_node)) {
        umi_list_append(&umi_channels_of(channel->ep)->due, &channel->due_node);
    }
    umi_endpoint_due(channel->ep, UMI_DUE_RECV);
}

void
umi_channels_hand_out(umx_ep *ep)
{
    umi_node *node;

    while ((node = umi_list_pop(&umi_channels_of(ep)->due)) != NULL) {
        umi_channel *channel = umi_container_of(node, umi_channel, due_node);

        channel->ops->advance(channel);
    }
}

/* ---- what waits ----------------------------------------------------------
 */

/* True if a message has a place (umi_channels.num_queued) below `place`. */
static bool
is_before(const umx_request *req, uint32_t place)
{
    return (int32_t)(req->info.seq - place) < 0;
}

/* True if a short message that has a place below `place` is announced. */
static bool
has_short_before(const umx_ep *ep, uint32_t place)
{
    if (umi_channels_of(ep)->num_short == 0) {
        return false;
    }
    UMI_LIST_FOREACH(node, &ep->base.inflight) {
        const umx_request *req = umi_channel_request_at(node);

        if (req->ops == &umi_channel_send_ops && umi_send_of(req)->is_short &&
            is_before(req, place)) {
            return true;
        }
    }
    return false;
}

/* True if the first send that waits on `channel` has a place below `place`. */
static bool
waits_before(const umi_channel *channel, uint32_t place)
{
    return !umi_list_is_empty(&channel->waiting) &&
           is_before(umi_channel_request_at(channel->waiting.next), place);
}

/* True if the peer takes nothing any more. */
static bool
is_over(const umx_ep *ep)
{
    return ep->is_peer_closed || ep->state == UMX_EP_CLOSED ||
           ep->state == UMX_EP_FAILED;
}

bool
umi_channels_have_sent(const umx_ep *ep, uint32_t place)
{
    if (is_over(ep)) {
        return true;
    }
    EACH_CHANNEL(channel, ep)
    {
        if (waits_before(channel, place)) {
            return false;
        }
    }
    return umi_transfer_first(&ep->base, place) == place &&
           !has_short_before(ep, place);
}

bool
umi_channels_have_waiting(const umx_ep *ep)
{
    EACH_CHANNEL(channel, ep)
    {
        if (!umi_list_is_empty(&channel->waiting)) {
            return true;
        }
    }
    return false;
}

bool
umi_channels_have_deferred(const umx_ep *ep)
{
    EACH_CHANNEL(channel, ep)
    {
        if (umi_requests_have_deferred(&channel->waiting, &ep->base)) {
            return true;
        }
    }
    return false;
}

/* True if a receive waits for a message that lands in the buffer of another
 * one, which is cancelled, or in memory of ours. */
static bool
has_claimant(const umi_channel *channel)
{
    UMI_LIST_FOREACH(node, &channel->unexpected) {
        if (umi_message_at(node)->claimant != NULL) {
            return true;
        }
    }
    return false;
}

bool
umi_channels_are_receiving(const umx_ep *ep)
{
    EACH_CHANNEL(channel, ep)
    {
        if (umi_frames_are_read(channel) ||
            (ep->num_landing != 0 && has_claimant(channel))) {
            return true;
        }
    }
    if (ep->num_landing != 0) {
        UMI_LIST_FOREACH(node, &ep->base.inflight) {
            if (umi_land_is_awaited(umi_channel_request_at(node))) {
                return true;
            }
        }
    }
    return false;
}

uint64_t
umi_channels_unsent_bytes(const umx_ep *ep)
{
    uint64_t bytes = 0;

    EACH_CHANNEL(channel, ep)
    {
        bytes += umi_channel_waiting_bytes(channel);
    }
    UMI_LIST_FOREACH(node, &ep->base.inflight) {
        const umx_request *req = umi_channel_request_at(node);

        if (req->ops == &umi_channel_send_ops && !req->is_void) {
            bytes += req->buf.len;
        }
    }
    return bytes;
}

static void
count_waiting(const umi_channel *channel, umx_ep_stats *stats)
{
    UMI_LIST_FOREACH(node, &channel->waiting) {
        stats->waiting_sends++;
    }
    UMI_LIST_FOREACH(node, &channel->unexpected) {
        stats->unexpected_messages++;
        stats->unexpected_bytes += umi_message_at(node)->info.length;
    }
}

void
umi_channels_count_waiting(const umx_ep *ep, umx_ep_stats *stats)
{
    EACH_CHANNEL(channel, ep)
    {
        count_waiting(channel, stats);
    }
}

static umx_unread_kind
unread_kind(uint32_t id)
{
    switch (id >> 16) {
    case UMI_KIND_AM:
        return UMX_UNREAD_AM;
    case UMI_KIND_STREAM:
        return UMX_UNREAD_STREAM;
    case UMI_KIND_FRAMES:
        return UMX_UNREAD_FRAMES;
    default:
        return UMX_UNREAD_MESSAGE;
    }
}

bool
umi_channels_find_unread(const umx_ep *ep, umx_unread *unread)
{
    EACH_CHANNEL(channel, ep)
    {
        const umx_recv_info *info;

        if (umi_channel_is_of_library(channel->id) ||
            umi_list_is_empty(&channel->unexpected)) {
            continue;
        }
        info    = &umi_message_at(channel->unexpected.next)->info;
        *unread = (umx_unread){.kind        = unread_kind(channel->id),
                               .number      = (uint16_t)channel->id,
                               .tag         = info->tag,
                               .is_untagged = info->is_untagged};
        return true;
    }
    return false;
}

/* ---- closing -------------------------------------------------------------
 */

static void
add_entry(umx_ep *ep, umi_control *control, const umi_channel *channel)
{
    umi_goodbye_entry *entry;

    if (!channel->is_ours) {
        return; /* nothing was sent on it */
    }
    if (control->u.goodbye.count == UMI_GOODBYE_MAX) {
        umi_endpoint_send_control(ep, control);
        control->u.goodbye.count = 0;
    }
    entry           = &control->u.goodbye.entries[control->u.goodbye.count++];
    entry->channel  = channel->id;
    entry->next_seq = channel->tx_seq;
}

void
umi_channels_write_goodbye(umx_ep *ep, umi_control *goodbye)
{
    EACH_CHANNEL(channel, ep)
    {
        add_entry(ep, goodbye, channel);
    }
}

/* UCX tells the sender of an announcement that is dropped that it has been
 * received: what the peer has not received by now it never will. In the order
 * of arrival. */
void
umi_channels_on_goodbye(umx_ep *ep)
{
    UMI_LIST_FOREACH(node, &ep->base.inflight) {
        umx_request *req = umi_channel_request_at(node);

        if (req->ops == &umi_channel_send_ops) {
            umi_send_of(req)->is_unread = umi_send_of(req)->is_rndv;
        }
    }
}

bool
umi_channels_read_goodbye(umx_ep *ep, const umi_control *goodbye)
{
    for (unsigned i = 0; i < goodbye->u.goodbye.count; i++) {
        const umi_goodbye_entry *entry = &goodbye->u.goodbye.entries[i];
        umi_channel *channel = umi_channel_of_peer(ep, entry->channel);

        if (channel == NULL) {
            return false;
        }
        channel->has_goodbye = true;
        channel->goodbye_seq = entry->next_seq;
    }
    return true;
}

bool
umi_channels_have_arrived(const umx_ep *ep)
{
    EACH_CHANNEL(channel, ep)
    {
        if (channel->has_goodbye && channel->rx_seq != channel->goodbye_seq) {
            return false;
        }
    }
    return true;
}

/* Count the bytes that were fetched and are not read yet. */
static size_t
heap_bytes(const umi_channel *channel)
{
    size_t bytes = 0;

    UMI_LIST_FOREACH(node, &channel->unexpected) {
        const umx_message *message = umi_container_of(node, umx_message, node);

        if (message->storage == UMI_STORAGE_HEAP ||
            message->storage == UMI_STORAGE_COPY ||
            message->storage == UMI_STORAGE_LANDING) {
            bytes += message->info.length;
        }
    }
    return bytes;
}

void
umi_channels_fetch(umx_ep *ep)
{
    size_t budget = umi_endpoint_worker(ep)->context->config.goodbye_bytes;
    size_t used   = 0;

    EACH_CHANNEL(channel, ep)
    {
        used += heap_bytes(channel);
    }
    budget = (used < budget) ? budget - used : 0;
    EACH_CHANNEL(channel, ep)
    {
        umi_channel_fetch(channel, &budget);
    }
}

void
umi_channels_fail_recvs(umx_ep *ep, umx_status status)
{
    EACH_CHANNEL(channel, ep)
    {
        umi_channel_fail_posted(channel, status);
    }
}

/* Give back the credit of messages that are kept, and will not be read: if the
 * peer closes, too, its GOODBYE waits until it has sent all. */
void
umi_channels_stop_reading(umx_ep *ep)
{
    EACH_CHANNEL(channel, ep)
    {
        if (channel->is_replies || channel->is_requests) {
            continue;
        }
        UMI_LIST_FOREACH(node, &channel->unexpected) {
            umi_channel_credit(channel, umi_message_at(node));
        }
        UMI_LIST_FOREACH(node, &channel->taken) {
            umi_channel_credit(channel, umi_message_at(node));
        }
    }
    umi_channels_fail_recvs(ep, UMX_ERR_PEER_CLOSED);
}

void
umi_channels_fail_sends(umx_ep *ep, umx_status status)
{
    EACH_CHANNEL(channel, ep)
    {
        umi_channel_fail_waiting(channel, status);
    }
}

/* ---- the end -------------------------------------------------------------
 */

void
umi_channels_finish(umx_ep *ep, umx_status status)
{
    EACH_CHANNEL(channel, ep)
    {
        umi_channel_fail_waiting(channel, status);
        if (umi_endpoint_reads_on(ep)) {
            umi_channel_cut_at_end(channel, status);
            umi_channel_fail_posted(channel, status);
        } else {
            umi_channel_fail_posted(channel, status);
            umi_channel_discard(channel);
        }
        umi_withdraw_fail_expected(channel, status);
    }
}

void
umi_channels_discard(umx_ep *ep)
{
    umi_channels_each(ep, umi_channel_discard);
}
