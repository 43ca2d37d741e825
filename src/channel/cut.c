/* SPDX-License-Identifier: BSD-3-Clause */
/* cut.c: an ordered channel has no holes.
 *
 * A message that cannot be had any more, whose bytes were with a sender that is
 * gone, or for which there was no memory, cuts its channel at its place:
 * nothing from there on is handed out, and the endpoint fails, or has failed.
 * What is in front of it can still be read. Places are seqs, or those of a
 * stream. */
#include "channel/channel.h"
#include "channel/frames.h"
#include "endpoint/endpoint.h"

/* Compute how far `a` is behind `b`. */
static int64_t
distance(const umi_channel *channel, uint64_t a, uint64_t b)
{
    return channel->ops->distance(a, b);
}

int64_t
umi_channel_seq_distance(uint64_t a, uint64_t b)
{
    return umi_seq_diff((uint32_t)a, (uint32_t)b);
}

uint64_t
umi_channel_seq_place(const umx_recv_info *info)
{
    return info->seq;
}

bool
umi_channel_is_lost(const umi_channel *channel, uint64_t place)
{
    return channel->is_cut && distance(channel, place, channel->cut_at) >= 0;
}

bool
umi_channel_is_behind_lost(const umi_channel *channel, uint64_t place)
{
    return channel->is_cut && distance(channel, place, channel->cut_at) > 0;
}

void
umi_channel_cut(umi_channel *channel, uint64_t place, umx_status status)
{
    if (umi_channel_is_lost(channel, place)) {
        return;
    }
    channel->is_cut = true;
    channel->cut_at = place;
    UMI_LIST_FOREACH_SAFE(node, &channel->unexpected) {
        umx_message *message = umi_message_at(node);

        if (umi_channel_is_lost(channel, channel->ops->place(&message->info))) {
            umi_channel_discard_message(channel, message, status);
        }
    }
    if (channel->ops->cut != NULL) {
        channel->ops->cut(channel, status);
    }
}

void
umi_channel_lose(umi_channel *channel, uint64_t place, umx_status status)
{
    umx_ep *ep = channel->ep;

    umi_channel_cut(channel, place, umi_endpoint_end_status(ep, status));
    if (ep->state != UMX_EP_OPEN) {
        return;
    }
    if (status == UMX_ERR_NO_MEMORY) {
        umi_endpoint_protocol_error(ep, "out of memory for a message");
    } else { /* its sender has ended, whatever UCX calls that */
        umi_endpoint_cannot_land(ep, UMX_ERR_CONNECTION_RESET);
    }
}

/* ---- the end of the endpoint ---------------------------------------------
 */

/* Choose the earlier of two places. */
static uint64_t
first_of(const umi_channel *channel, uint64_t a, uint64_t b)
{
    return (distance(channel, a, b) < 0) ? a : b;
}

/* Find the first place among the messages that land in receives; a landing may
 * be over, and not be reported yet. */
static uint64_t
first_landing(const umi_channel *channel, const umi_list *requests,
              uint64_t first)
{
    UMI_LIST_FOREACH(node, requests) {
        const umx_request *req = umi_channel_request_at(node);

        if (req->status != UMX_OK && umi_land_is_of(req, channel)) {
            first = first_of(channel, channel->ops->place(&req->info), first);
        }
    }
    return first;
}

/* True if a message in the user's hands can still lose bytes. */
static bool
is_unsafe(const umx_message *message)
{
    return (message->frames != NULL) ? umi_frames_is_unsafe(message) :
                                       !umi_message_is_at_hand(message);
}

static uint64_t
first_taken(const umi_channel *channel, uint64_t first)
{
    UMI_LIST_FOREACH(node, &channel->taken) {
        const umx_message *message = umi_message_at(node);

        if (is_unsafe(message)) {
            first = first_of(channel, channel->ops->place(&message->info),
                             first);
        }
    }
    return first;
}

static uint64_t
first_queued(umi_channel *channel, uint64_t first)
{
    if (channel->ops->first_broken != NULL) {
        return channel->ops->first_broken(channel, first);
    }
    UMI_LIST_FOREACH(node, &channel->unexpected) {
        const umx_message *message = umi_message_at(node);

        if (!umi_message_is_at_hand(message)) {
            return first_of(channel, channel->ops->place(&message->info),
                            first);
        }
    }
    return first;
}

void
umi_channel_cut_at_end(umi_channel *channel, umx_status status)
{
    const umx_ep *ep    = channel->ep;
    uint64_t      first = channel->ops->next(channel);

    first = first_queued(channel, first);
    first = first_taken(channel, first);
    first = first_landing(channel, &ep->base.inflight, first);
    first = first_landing(channel, &channel->ended_loans, first);
    first = first_landing(channel, &umi_endpoint_worker(ep)->done, first);
    umi_channel_cut(channel, first, status);
}
