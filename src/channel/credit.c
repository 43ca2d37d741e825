/* SPDX-License-Identifier: BSD-3-Clause */
/* credit.c: how much a peer may send before it is read.
 *
 * UCX gives a receiver no way to refuse an eager message. So each side grants
 * running totals, and the sender stays below them:
 *
 *   of all channels   bytes of eager messages; rendezvous announcements
 *   of each channel   eager messages; messages of its reserve
 *
 * What a message is charged for (umi_charge) bounds the memory that keeping it
 * takes, so the receiver's own record of a message counts, too: an eager
 * message is charged for its bytes, the user's header in front of them and
 * UMI_CREDIT_OVERHEAD bytes, a constant of the wire. Otherwise empty messages
 * would be kept without bound. An announcement keeps its bytes with the sender
 * and is charged as one, whatever its length.
 *
 * Where a channel has used up what the channels share and is not read, the
 * others must not wait for it. Without eager credit a message is announced;
 * without credit for announcements it goes as one of the UMI_CREDIT_RESERVE
 * messages that each channel may have unread on top of all that. So does a
 * message without bytes, which cannot be announced, where only the shared bytes
 * are lacking. A short message to a peer that is far away waits where only
 * messages of its own channel are lacking: to fetch it would take the peer
 * longer. The header says that a message is of the reserve. So one peer can
 * have here at most
 *
 *   credit_bytes + (credit_rndv + channels * UMI_CREDIT_RESERVE) * about 1 KiB
 *
 * as far as its channels are in use; how many it may use is limited, too.
 *
 * A side may want fewer messages unread than all that, of one connection: its
 * limits then grant no announcements, and each message of a channel counts as
 * one of its messages, however it goes: an eager one is charged for its bytes
 * as well, an announced or empty one for nothing else, so that no channel waits
 * for another. The library's own channels, which are read at once, may have
 * UMI_CREDIT_OWN messages on their way. Such windows do not grow.
 *
 * Messages with raw tags (ops/tag.h) have no credit: UCX keeps those, and does
 * not tell how much.
 *
 * Windows grow for a peer that is far away, as those of TCP do. What is on its
 * way, and its credit's way back, take a round trip: a peer that may have no
 * more unread than it sends in that time lacks credit, though all is read as it
 * comes. Two signs tell that a window is narrow: a quarter of it or more is
 * read in a round trip; or a message for which a receive waits is announced,
 * though it is short enough to go eagerly. Then it is doubled, up to the bound
 * in umx_config. A receiver that reads slowly, or not at all, keeps its window,
 * and one that reads no more has at most one window here.
 *
 * Reading raises the totals; a CREDIT message tells the peer when half a
 * window, as it was at first, has been read, so a ping-pong pays for one every
 * few thousand messages. Each window of a channel's own is told in time by the
 * channel's own reading, which is why no channel waits for good on another.
 * Totals may wrap: they are compared as serial numbers. */
#include "channel/channel.h"
#include "util/clock.h"
#include "util/count.h"

/* Of windows of so few messages each one that is read is told at once. */
enum {
    FEW_MESSAGES = 8
};

/* Compute how many messages of a channel's reserve may be unread. */
static uint32_t
reserve_of(const umi_limits *limits)
{
    return (limits->rndv < UMI_CREDIT_RESERVE) ? limits->rndv :
                                                 UMI_CREDIT_RESERVE;
}

/* Compute how many messages of a channel may be unread at first. */
static uint32_t
messages_of(const umi_limits *limits, uint32_t id)
{
    return (umi_credit_counts_all(limits) && umi_channel_is_of_library(id) &&
            limits->messages < UMI_CREDIT_OWN) ?
               UMI_CREDIT_OWN :
               limits->messages;
}

void
umi_credit_init(umi_channel *channel)
{
    const umi_limits *limits = &channel->ep->own_limits;

    channel->rx_window = messages_of(limits, channel->id);
    channel->rx_untold = channel->rx_window / 2;
    if (umi_credit_counts_all(limits) && channel->rx_window <= FEW_MESSAGES) {
        channel->rx_untold = 0;
    }
}

void
umi_credit_start(umi_channel *channel)
{
    const umi_limits *limits   = &channel->ep->peer_limits;
    uint32_t          messages = messages_of(limits, channel->id);

    channel->tx_limits = (umi_counts){.messages = messages,
                                      .reserve  = reserve_of(limits)};
}

bool
umi_credit_allows_odd(const umi_channel *channel, umi_charge charge)
{
    const umi_counts *sent   = &channel->tx_sent;
    const umi_counts *limits = &channel->tx_limits;
    const umx_ep     *ep     = channel->ep;

    switch (charge.kind) {
    case UMI_CHARGE_RNDV:
        return (int32_t)(umi_channels_of(ep)->tx_limit.rndv -
                         umi_channels_of(ep)->tx_sent.rndv) > 0;
    case UMI_CHARGE_RESERVE:
        return (int32_t)(limits->reserve - sent->reserve) > 0;
    case UMI_CHARGE_ANY:
        return (int32_t)(limits->messages - sent->messages) > 0;
    case UMI_CHARGE_EAGER:
    case UMI_CHARGE_NONE:
        break;
    }
    return true;
}

static void
add(umi_endpoint_counts *shared, umi_counts *own, umi_charge charge)
{
    if (charge.kind == UMI_CHARGE_EAGER) { /* nearly always */
        own->messages++;
        shared->bytes += charge.bytes;
    } else if (charge.kind == UMI_CHARGE_RNDV) {
        shared->rndv++;
    } else if (charge.kind == UMI_CHARGE_RESERVE) {
        own->reserve++;
    } else if (charge.kind == UMI_CHARGE_ANY) {
        own->messages++;
    }
}

void
umi_credit_sent(umi_channel *channel, umi_charge charge)
{
    umi_endpoint_counts *shared = &umi_channels_of(channel->ep)->tx_sent;

    if (charge.kind == UMI_CHARGE_EAGER) { /* nearly always */
        add(shared, &channel->tx_sent, charge);
    } else {
        add(shared, &channel->tx_sent, charge);
        umi_endpoint_worker(channel->ep)->stats->rendezvous +=
            (charge.kind == UMI_CHARGE_RNDV);
    }
}

/* A peer that keeps to its credit never has more here than one window: what it
 * may have sent less what has been read. */
bool
umi_credit_keep(umi_channel *channel, umi_charge charge)
{
    const umi_limits          *limits = &channel->ep->own_limits;
    const umi_counts          *kept   = &channel->rx_kept;
    const umi_endpoint_counts *shared = &umi_channels_of(channel->ep)->rx_kept;

    if ((charge.kind == UMI_CHARGE_EAGER &&
         (kept->messages >= channel->rx_window ||
          charge.bytes >
              umi_channels_of(channel->ep)->rx_window - shared->bytes)) ||
        (charge.kind == UMI_CHARGE_RNDV && shared->rndv >= limits->rndv) ||
        (charge.kind == UMI_CHARGE_RESERVE &&
         kept->reserve >= reserve_of(limits)) ||
        (charge.kind == UMI_CHARGE_ANY &&
         kept->messages >= channel->rx_window)) {
        return false;
    }
    add(&umi_channels_of(channel->ep)->rx_kept, &channel->rx_kept, charge);
    return true;
}

void
umi_credit_unkeep(umi_channel *channel, umi_charge charge)
{
    umi_counts          *kept   = &channel->rx_kept;
    umi_endpoint_counts *shared = &umi_channels_of(channel->ep)->rx_kept;

    switch (charge.kind) {
    case UMI_CHARGE_EAGER:
        assert(shared->bytes >= charge.bytes);
        UMI_DECREMENT(kept->messages);
        shared->bytes -= charge.bytes;
        break;
    case UMI_CHARGE_RNDV:
        UMI_DECREMENT(shared->rndv);
        break;
    case UMI_CHARGE_RESERVE:
        UMI_DECREMENT(kept->reserve);
        break;
    case UMI_CHARGE_ANY:
        UMI_DECREMENT(kept->messages);
        break;
    case UMI_CHARGE_NONE:
        break;
    }
}

static void
owe_credit(umi_channel *channel)
{
    /* A peer that has said goodbye sends no more, and may be gone already. */
    if (!channel->owes_credit && !channel->ep->has_goodbye) {
        channel->owes_credit = true;
        umi_endpoint_due(channel->ep, UMI_DUE_CREDIT);
    }
}

/* ---- windows --------------------------------------------------------------
 */

static uint64_t
doubled(uint64_t window, uint64_t max)
{
    if (window >= max) {
        return window;
    }
    return (window < max / 2) ? 2 * window : max;
}

/* Tell whether a quarter of a window or more is read in a round trip. So much
 * is known once more has been read than a window: what was here already when
 * the program began to read does not tell how fast it reads what comes. */
static bool
is_narrow(umi_pace *pace, uint64_t window, uint64_t total, uint64_t now,
          uint64_t trip_ns)
{
    uint64_t read = total - pace->read;
    uint64_t ns   = now - pace->begun_ns;

    if (read < window + window / 4) {
        return false;
    }
    *pace = (umi_pace){.begun_ns = now, .read = total};
    return (double)read * (double)trip_ns * 4 > (double)window * (double)ns;
}

static void
widen_bytes(umi_channel *channel)
{
    umi_channels *channels = umi_channels_of(channel->ep);

    channels->rx_window = doubled(channels->rx_window,
                                  channel->ep->most_limits.bytes);
}

static void
widen_messages(umi_channel *channel)
{
    channel->rx_window = (uint32_t)doubled(channel->rx_window,
                                           channel->ep->most_limits.messages);
}

/* The first message is read after windows have been told. Begin anew after a
 * pause, which says nothing of the pace. */
static void
note_pause(umi_channel *channel)
{
    umi_channels *channels = umi_channels_of(channel->ep);
    uint64_t      now      = umi_clock_ns();

    if (now - channels->told_ns > 4 * channels->trip_ns) {
        channels->told_ns = now;
        channels->pace    = (umi_pace){.begun_ns = now,
                                       .read     = channels->rx_read.bytes};
        channel->pace     = (umi_pace){.begun_ns = now,
                                       .read     = channel->rx_read.messages};
    }
}

/* Let windows grow before they are told. The totals of messages wrap. */
static void
grow_windows(umi_channel *channel)
{
    umi_channels *channels = umi_channels_of(channel->ep);
    uint64_t      now      = umi_clock_ns();
    uint32_t read = channel->rx_read.messages - (uint32_t)channel->pace.read;

    channels->told_ns = now;
    if (is_narrow(&channels->pace, channels->rx_window, channels->rx_read.bytes,
                  now, channels->trip_ns)) {
        widen_bytes(channel);
    }
    if (is_narrow(&channel->pace, channel->rx_window, channel->pace.read + read,
                  now, channels->trip_ns)) {
        widen_messages(channel);
    }
}

/* The program waits, and the message would be here if the peer had more credit:
 * what of it is lacking is not known. Messages are charged for bytes in any
 * case, so these bound what is kept. It takes a round trip until the peer has
 * heard of it and what it has announced meanwhile is here, and as long again
 * where that has waited behind other bytes. */
void
umi_credit_waited(umi_channel *channel, size_t len)
{
    umi_channels *channels = umi_channels_of(channel->ep);
    uint64_t      now;

    if (channels->trip_ns == 0 || umi_channel_is_long(channel->ep, len) ||
        channels->rx_kept.bytes >= channels->rx_window / 4) {
        return;
    }
    now = umi_clock_ns();
    if (now - channels->grown_ns >= 2 * channels->trip_ns) {
        channels->grown_ns = now;
        widen_bytes(channel);
        widen_messages(channel);
        owe_credit(channel);
    }
}

/* ---- what has been read ---------------------------------------------------
 */

/* True if so many messages have been read that a CREDIT is due. */
static inline bool
has_read_many(const umi_channel *channel)
{
    return channel->rx_read.messages - channel->rx_granted.messages >
           channel->rx_untold;
}

/* A CREDIT is due once more than half a window has been read since the last. */
void
umi_credit_read(umi_channel *channel, umi_charge charge)
{
    umx_ep           *ep      = channel->ep;
    const umi_limits *limits  = &ep->own_limits;
    umi_counts       *read    = &channel->rx_read;
    const umi_counts *granted = &channel->rx_granted;
    bool              is_due  = false;

    switch (charge.kind) {
    case UMI_CHARGE_EAGER:
        if (umi_channels_of(ep)->trip_ns != 0 &&
            umi_channels_of(ep)->rx_read.bytes ==
                umi_channels_of(ep)->rx_granted.bytes) {
            note_pause(channel);
        }
        read->messages++;
        umi_channels_of(ep)->rx_read.bytes += charge.bytes;
        is_due = has_read_many(channel) ||
                 umi_channels_of(ep)->rx_read.bytes -
                         umi_channels_of(ep)->rx_granted.bytes >
                     limits->bytes / 2;
        break;
    case UMI_CHARGE_RNDV:
        umi_channels_of(ep)->rx_read.rndv++;
        is_due = umi_channels_of(ep)->rx_read.rndv -
                     umi_channels_of(ep)->rx_granted.rndv >
                 limits->rndv / 2;
        break;
    case UMI_CHARGE_RESERVE:
        read->reserve++;
        is_due = read->reserve - granted->reserve > reserve_of(limits) / 2;
        break;
    case UMI_CHARGE_ANY:
        read->messages++;
        is_due = has_read_many(channel);
        break;
    case UMI_CHARGE_NONE:
        break;
    }
    if (is_due) {
        owe_credit(channel);
    }
}

void
umi_credit_grant(umi_channel *channel, umi_limits *limits, uint32_t *reserve_p)
{
    umx_ep       *ep       = channel->ep;
    umi_channels *channels = umi_channels_of(ep);

    if (channels->trip_ns != 0) {
        grow_windows(channel);
    }
    channel->owes_credit = false;
    channel->rx_granted  = channel->rx_read;
    channels->rx_granted = channels->rx_read;
    limits->bytes        = channels->rx_read.bytes + channels->rx_window;
    limits->rndv         = channels->rx_read.rndv + ep->own_limits.rndv;
    limits->messages     = channel->rx_read.messages + channel->rx_window;
    *reserve_p = channel->rx_read.reserve + reserve_of(&ep->own_limits);
}

void
umi_credit_take(umi_channel *channel, const umi_limits *limits,
                uint32_t reserve)
{
    umi_endpoint_counts *limit = &umi_channels_of(channel->ep)->tx_limit;

    channel->tx_limits = (umi_counts){.messages = limits->messages,
                                      .reserve  = reserve};
    if ((int64_t)(limits->bytes - limit->bytes) > 0) {
        limit->bytes = limits->bytes;
    }
    if ((int32_t)(limits->rndv - limit->rndv) > 0) {
        limit->rndv = limits->rndv;
    }
}
