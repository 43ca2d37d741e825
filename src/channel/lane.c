/* SPDX-License-Identifier: BSD-3-Clause */
/* lane.c: what arrives on a channel comes in order: a message that is early is
 * parked, and each is taken in the order of seqs. */
#include <string.h>

#include "channel/channel.h"
#include "channel/frames.h"
#include "channel/stream.h"

static const umi_channel_ops *
ops_of(uint32_t id)
{
    switch (id >> 16) {
    case UMI_KIND_STREAM:
        return &umi_stream_ops;
    case UMI_KIND_FRAMES:
        return &umi_frames_ops;
    default: /* an active message is a tagged one whose channel has a user */
        return &umi_tagged_ops;
    }
}

void
umi_channel_init(umi_channel *channel, umx_ep *ep, uint32_t id)
{
    memset(channel, 0, sizeof(*channel));
    umi_node_init(&channel->node);
    umi_node_init(&channel->due_node);
    umi_node_init(&channel->user_node);
    umi_list_init(&channel->waiting);
    umi_list_init(&channel->posted);
    umi_list_init(&channel->late);
    umi_list_init(&channel->unexpected);
    umi_list_init(&channel->parked);
    umi_list_init(&channel->taken);
    umi_list_init(&channel->withdrawn);
    umi_list_init(&channel->ended_loans);
    channel->ep          = ep;
    channel->id          = id;
    channel->ops         = ops_of(id);
    channel->is_replies  = (id == UMI_CHANNEL_REPLIES);
    channel->is_requests = (id == UMI_CHANNEL_REQUESTS);
    umi_credit_init(channel);
}

/* ---- arrival, inside UCX's callback --------------------------------------
 */

static bool
is_behind(umi_node *node, umi_node *other, const void *arg)
{
    (void)arg;
    return umi_seq_diff(umi_message_at(node)->info.seq,
                        umi_message_at(other)->info.seq) > 0;
}

static void
park(umi_channel *channel, umx_message *message)
{
    umi_list_insert_sorted(&channel->parked, &message->node, is_behind, NULL);
}

static int
keep(umi_channel *channel, const umx_recv_info *info,
     const umi_am_arrival *arrival, bool is_early, bool is_refused)
{
    int          verdict = UMI_AM_CONSUMED;
    umi_charge   charge  = umi_charge_of(channel, arrival);
    umx_message *message;

    if (!umi_credit_keep(channel, charge)) {
        umi_endpoint_protocol_error(channel->ep, "a message beyond its credit");
        return UMI_AM_REFUSED;
    }
    message = umi_message_keep(channel->ep, arrival, &verdict);
    if (message == NULL) {
        umi_endpoint_protocol_error(channel->ep, "out of memory for a message");
        return UMI_AM_REFUSED;
    }
    message->channel    = channel;
    message->info       = *info;
    message->charge     = charge;
    message->is_refused = is_refused;
    if (!umi_am_is_at_hand(arrival) && !arrival->way->is_announced &&
        !umi_channel_fetch_one(channel, message)) {
        umi_message_free(message);
        umi_endpoint_protocol_error(channel->ep, "out of memory for a message");
        return UMI_AM_REFUSED;
    }
    if (is_early) {
        park(channel, message);
    } else {
        umi_channel_offer(channel, message);
    }
    return verdict;
}

static int
arrive_in_order(umi_channel *channel, const umx_recv_info *info,
                const umi_am_arrival *arrival)
{
    umi_arrived arrived;

    if (!umi_channel_is_reading(channel)) {
        /* Closed here: nobody will read it, and nobody has to wait for that. */
        umi_credit_read(channel, umi_charge_of(channel, arrival));
        return UMI_AM_REFUSED;
    }
    arrived = channel->ops->arrive(channel, info, arrival);
    if (arrived == UMI_ARRIVED) {
        if (umi_am_is_announced(arrival) && !info->is_device) {
            umi_credit_waited(channel, arrival->len);
        }
        return UMI_AM_CONSUMED;
    }
    return keep(channel, info, arrival, false, arrived == UMI_ARRIVED_REFUSED);
}

/* Take the messages that came early and are in order now. */
static void
unpark(umi_channel *channel)
{
    while (!umi_list_is_empty(&channel->parked)) {
        umx_message *message = umi_message_at(channel->parked.next);

        int32_t ahead = umi_seq_diff(message->info.seq, channel->rx_seq);

        if (ahead > 0) {
            return;
        }
        if (ahead < 0) {
            umi_endpoint_protocol_error(channel->ep, "a message came twice");
            return;
        }
        if (channel->ep->protocol_error != NULL) {
            return;
        }
        umi_node_remove(&message->node);
        channel->rx_seq++;
        if (umi_channel_is_reading(channel)) {
            umi_channel_offer(channel, message);
        } else {
            umi_channel_credit(channel, message);
            umi_message_free(message);
        }
    }
}

/* Tell what is wrong with the way in which a message comes; NULL: nothing. */
static const char *
check_way(const umi_header *header, const umi_am_arrival *arrival)
{
    if (!umi_am_is_at_hand(arrival) && arrival->way->is_for_messages &&
        header->kind != UMI_KIND_MESSAGE) {
        return "bytes that follow a message of that kind";
    }
    return ((header->flags & UMI_FLAG_RESERVE) && arrival->len != 0 &&
            !umi_am_is_announced(arrival)) ?
               "bytes beyond their credit" :
               NULL;
}

static int
arrive(umi_channel *channel, const umi_header *header,
       const umi_am_arrival *arrival)
{
    umx_recv_info info = {
        .tag         = header->tag,
        .length      = arrival->len,
        .seq         = header->seq,
        .is_untagged = (header->flags & UMI_FLAG_UNTAGGED) != 0,
        .is_device   = (header->flags & UMI_FLAG_DEVICE) != 0,
        .channel     = channel->id,
    };
    int32_t     ahead = umi_seq_diff(header->seq, channel->rx_seq);
    const char *why   = check_way(header, arrival);
    int         verdict;

    if (why != NULL) {
        umi_endpoint_protocol_error(channel->ep, why);
        return UMI_AM_REFUSED;
    }
    if (ahead < 0) {
        umi_endpoint_protocol_error(channel->ep, "a message came twice");
        return UMI_AM_REFUSED;
    }
    if (ahead > 0) {
        return keep(channel, &info, arrival, true, false);
    }
    verdict = arrive_in_order(channel, &info, arrival);
    channel->rx_seq++;
    if (!umi_list_is_empty(&channel->parked)) {
        unpark(channel);
    }
    umi_withdraw_due(channel);
    return verdict;
}

int
umi_channel_on_arrival(umx_worker *worker, const umi_am_arrival *arrival)
{
    umi_header   header;
    umi_channel *channel;
    umx_ep      *ep;
    int          verdict;

    if (!umi_header_decode(&header, arrival->header, arrival->header_len)) {
        worker->stats->protocol_errors++; /* whose it is cannot be known */
        umi_worker_stray(worker, 0);
        return UMI_AM_REFUSED;
    }
    ep = umi_endpoint_find(worker, header.endpoint);
    if (ep == NULL) {
        umi_worker_stray(worker, header.endpoint);
        return UMI_AM_REFUSED;
    }
    ep->num_arrivals++;
    ep->stats.received_messages++;
    ep->stats.received_bytes += arrival->len;
    ep->traffic->received_messages++;
    ep->traffic->received_bytes += arrival->len;
    channel = umi_channel_of_peer(
        ep, umi_header_channel_id(header.kind, header.channel));
    if (channel == NULL) {
        return UMI_AM_REFUSED;
    }
    if (channel->is_cut || ep->protocol_error != NULL) {
        return UMI_AM_REFUSED; /* behind what is lost */
    }
    verdict = arrive(channel, &header, arrival);
    if (ep->has_goodbye) {
        umi_close_check_arrived(ep);
    }
    return verdict;
}
