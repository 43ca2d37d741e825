/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.c: what the channels of an endpoint wait for, for people. */
#include <inttypes.h>
#include <stdio.h>

#include "channel/channel.h"
#include "channel/tagged.h"

enum {
    SHOWN = 4 /* receives, and messages, of each channel */
};

/* Name a channel as programs do; the library's own by their numbers. */
static void
name_channel(const umi_channel *channel, char *text, size_t size)
{
    static const char *const kinds[] = {
        [UMI_KIND_MESSAGE] = "channel",
        [UMI_KIND_AM]      = "active messages",
        [UMI_KIND_STREAM]  = "stream",
        [UMI_KIND_FRAMES]  = "frames",
    };
    unsigned kind = channel->id >> 16;

    snprintf(text, size, "%s %u",
             (kind < sizeof(kinds) / sizeof(*kinds) && kinds[kind] != NULL) ?
                 kinds[kind] :
                 "?",
             channel->id & 0xffff);
}

static bool
has_tags(const umi_channel *channel)
{
    return channel->ops == &umi_tagged_ops;
}

/* Write which messages a receive takes. */
static void
name_match(const umi_channel *channel, const umx_request *req, char *text,
           size_t size)
{
    const umi_recv *recv = umi_recv_of(req);

    if (!has_tags(channel)) {
        snprintf(text, size, "%zu bytes", req->buf.len);
    } else if (recv->flags & UMX_MATCH_ANY) {
        snprintf(text, size, "any tag, %zu bytes", req->buf.len);
    } else if (recv->flags & UMX_MATCH_UNTAGGED) {
        snprintf(text, size, "no tag, %zu bytes", req->buf.len);
    } else if (recv->mask == UINT64_MAX) {
        snprintf(text, size, "tag %" PRIu64 ", %zu bytes", recv->tag,
                 req->buf.len);
    } else {
        snprintf(text, size,
                 "tag %#" PRIx64 " with mask %#" PRIx64 ", %zu bytes",
                 recv->tag, recv->mask, req->buf.len);
    }
}

static void
describe_posted(const umi_channel *channel, const char *name,
                const umi_lines *lines)
{
    unsigned count = 0;
    char     match[96];

    UMI_LIST_FOREACH(node, &channel->posted) {
        if (count++ < SHOWN) {
            name_match(channel, umi_channel_request_at(node), match,
                       sizeof(match));
            umi_lines_add(lines, "    %s: a receive waits for a message (%s)",
                          name, match);
        }
    }
    if (count > SHOWN) {
        umi_lines_add(lines, "    %s: %u more receives wait", name,
                      count - SHOWN);
    }
    count = (unsigned)umi_list_count(&channel->late);
    if (count != 0) {
        umi_lines_add(lines,
                      "    %s: %u receives wait for a kernel that uses the "
                      "memory of the first",
                      name, count);
    }
}

static void
describe_unread(const umi_channel *channel, const char *name,
                const umi_lines *lines)
{
    unsigned count            = 0;
    uint64_t bytes            = 0;
    char     tags[SHOWN * 24] = "";
    size_t   len              = 0;

    UMI_LIST_FOREACH(node, &channel->unexpected) {
        const umx_recv_info *info = &umi_message_at(node)->info;

        bytes += info->length;
        if (count++ < SHOWN && has_tags(channel)) {
            len += (size_t)(info->is_untagged ?
                                snprintf(tags + len, sizeof(tags) - len,
                                         "%snone", (len != 0) ? ", " : "") :
                                snprintf(tags + len, sizeof(tags) - len,
                                         "%s%" PRIu64, (len != 0) ? ", " : "",
                                         info->tag));
        }
    }
    if (count != 0) {
        umi_lines_add(
            lines,
            "    %s: no receive has asked for %u message%s of %" PRIu64
            " bytes%s%s%s",
            name, count, (count == 1) ? "" : "s", bytes,
            (len != 0) ? "; tags: " : "", tags,
            (len != 0 && count > SHOWN) ? ", ..." : "");
    }
}

static void
describe_waiting(const umi_channel *channel, const char *name,
                 const umi_lines *lines)
{
    const umi_channels *channels = umi_channels_of(channel->ep);
    unsigned            count    = 0;

    UMI_LIST_FOREACH(node, &channel->waiting) {
        count++;
    }
    if (count != 0) {
        umi_lines_add(
            lines,
            "    %s: %u send%s of %" PRIu64 " bytes wait%s for credit: the "
            "peer has not read what came before (credit left: %" PRId64
            " bytes, %" PRId32 " messages, %" PRId32 " announcements)",
            name, count, (count == 1) ? "" : "s",
            umi_channel_waiting_bytes(channel), (count == 1) ? "s" : "",
            (int64_t)(channels->tx_limit.bytes - channels->tx_sent.bytes),
            (int32_t)(channel->tx_limits.messages - channel->tx_sent.messages),
            (int32_t)(channels->tx_limit.rndv - channels->tx_sent.rndv));
    }
}

static void
describe_channel(const umi_channel *channel, const umi_lines *lines)
{
    char name[48];

    name_channel(channel, name, sizeof(name));
    describe_waiting(channel, name, lines);
    describe_posted(channel, name, lines);
    describe_unread(channel, name, lines);
    if (!umi_list_is_empty(&channel->parked)) {
        umi_lines_add(lines,
                      "    %s: messages have come before an earlier one, "
                      "number %" PRIu32,
                      name, channel->rx_seq);
    }
}

/* Say how messages went that were fetched: those of devices. */
static void
describe_routes(const umx_ep *ep, const umi_lines *lines)
{
    for (int route = 0; route < UMI_BOUNCE_ROUTES; route++) {
        uint64_t sent     = ep->bounce.sent[route];
        uint64_t received = ep->bounce.received[route];

        if ((sent | received) != 0) {
            umi_lines_add(lines,
                          "    messages of devices by %s: %" PRIu64
                          " sent, %" PRIu64 " received",
                          umi_bounce_texts[route].name, sent, received);
        }
    }
}

void
umi_channels_describe(const umx_ep *ep, const umi_lines *lines)
{
    const umi_channels *channels = umi_channels_of(ep);
    char                ways[UMI_OFFERS_TEXT];

    if (ep->state == UMX_EP_OPEN) {
        umi_offer_text(ep, ways);
        umi_lines_add(lines, "    ways of messages: %s", ways);
        describe_routes(ep, lines);
    }
    describe_channel(&channels->channel0, lines);
    UMI_LIST_FOREACH(node, &channels->others) {
        describe_channel(umi_container_of(node, umi_channel, node), lines);
    }
}
