/* SPDX-License-Identifier: BSD-3-Clause */
/* credit.c: how much a peer may send before it is read.
 *
 * UCX gives a receiver no way to refuse an eager message. So each side grants
 * running totals: bytes of the eager messages of all channels, and for each
 * channel the number of eager messages and of rendezvous announcements. Where
 * bytes are used up by channels that nobody reads, the others announce, so that
 * none is held up by another. Reading raises the totals; a CREDIT message tells
 * the peer when half a window has been read, so a ping-pong pays for one every
 * few thousand messages. Totals may wrap: they are compared as serial numbers.
 */
#include "wire/conn.h"

static void
set_limits(umi_channel *channel, const umi_limits *limits)
{
    channel->tx_limits = (umi_counts){.messages = limits->messages,
                                      .rndv     = limits->rndv};
}

void
umi_credit_start(umi_channel *channel)
{
    set_limits(channel, &channel->ep->peer_limits);
}

bool
umi_credit_allows(const umi_channel *channel, size_t len, bool is_rndv)
{
    const umi_counts      *sent   = &channel->tx_sent;
    const umi_counts      *limits = &channel->tx_limits;
    const umi_byte_credit *bytes  = &channel->ep->bytes;

    if (is_rndv) {
        return (int32_t)(limits->rndv - sent->rndv) > 0;
    }
    return (int32_t)(limits->messages - sent->messages) > 0 &&
           (int64_t)(bytes->tx_limit - bytes->tx_sent) >= (int64_t)len;
}

void
umi_credit_sent(umi_channel *channel, size_t len, bool is_rndv)
{
    if (is_rndv) {
        channel->tx_sent.rndv++;
    } else {
        channel->tx_sent.messages++;
        channel->ep->bytes.tx_sent += len;
    }
}

/* A peer that keeps to its credit never has more here than one window: what it
 * may have sent less what has been read. */
bool
umi_credit_keep(umi_channel *channel, size_t len, bool is_rndv)
{
    const umx_config *config = &umi_conn_worker(channel->ep)->context->config;
    umi_counts       *kept   = &channel->rx_kept;
    uint64_t         *bytes  = &channel->ep->bytes.rx_kept;

    if (is_rndv) {
        if (kept->rndv >= config->credit_rndv) {
            return false;
        }
        kept->rndv++;
        return true;
    }
    if (kept->messages >= config->credit_messages ||
        len > config->credit_bytes - *bytes) {
        return false;
    }
    kept->messages++;
    *bytes += len;
    return true;
}

void
umi_credit_unkeep(umi_channel *channel, size_t len, bool is_rndv)
{
    if (is_rndv) {
        channel->rx_kept.rndv--;
    } else {
        channel->rx_kept.messages--;
        channel->ep->bytes.rx_kept -= len;
    }
}

/* More than half a window read since the last grant? */
static bool
is_grant_due(const umi_channel *channel)
{
    const umx_config *config  = &umi_conn_worker(channel->ep)->context->config;
    const umi_counts *read    = &channel->rx_read;
    const umi_counts *granted = &channel->rx_granted;
    const umi_byte_credit *bytes = &channel->ep->bytes;

    return read->messages - granted->messages > config->credit_messages / 2 ||
           read->rndv - granted->rndv > config->credit_rndv / 2 ||
           bytes->rx_read - bytes->rx_granted > config->credit_bytes / 2;
}

void
umi_credit_read(umi_channel *channel, size_t len, bool is_rndv)
{
    if (is_rndv) {
        channel->rx_read.rndv++;
    } else {
        channel->rx_read.messages++;
        channel->ep->bytes.rx_read += len;
    }
    /* A peer that has said goodbye sends no more, and may be gone already. */
    if (is_grant_due(channel) && !channel->owes_credit &&
        !channel->ep->has_goodbye) {
        channel->owes_credit = true;
        umi_conn_due(channel->ep, UMI_DUE_CREDIT);
    }
}

void
umi_credit_grant(umi_channel *channel, umi_limits *limits)
{
    const umx_config *config = &umi_conn_worker(channel->ep)->context->config;
    umi_byte_credit  *bytes  = &channel->ep->bytes;

    channel->owes_credit = false;
    channel->rx_granted  = channel->rx_read;
    bytes->rx_granted    = bytes->rx_read;
    limits->bytes        = bytes->rx_read + config->credit_bytes;
    limits->messages     = channel->rx_read.messages + config->credit_messages;
    limits->rndv         = channel->rx_read.rndv + config->credit_rndv;
}

void
umi_credit_take(umi_channel *channel, const umi_limits *limits)
{
    uint64_t *limit = &channel->ep->bytes.tx_limit;

    set_limits(channel, limits);
    if ((int64_t)(limits->bytes - *limit) > 0) {
        *limit = limits->bytes;
    }
}
