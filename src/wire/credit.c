/* credit.c: how much a peer may send before it is read.
 *
 * UCX gives a receiver no way to refuse an eager message. So each side grants,
 * per channel, running totals: bytes and number of eager messages, and number
 * of rendezvous announcements. Reading raises the totals; a CREDIT message
 * tells the peer when half a window has been read, so a ping-pong pays for one
 * every few thousand messages. Totals may wrap: they are compared as serial
 * numbers. */
#include "wire/conn.h"

void
umi_credit_start(umi_channel *channel, const umi_limits *peer_limits)
{
    channel->tx_limits = *peer_limits;
}

bool
umi_credit_allows(const umi_channel *channel, size_t len, bool is_rndv)
{
    const umi_limits *sent   = &channel->tx_sent;
    const umi_limits *limits = &channel->tx_limits;

    if (is_rndv) {
        return (int32_t)(limits->rndv - sent->rndv) > 0;
    }
    return (int32_t)(limits->messages - sent->messages) > 0 &&
           (int64_t)(limits->bytes - sent->bytes) >= (int64_t)len;
}

void
umi_credit_sent(umi_channel *channel, size_t len, bool is_rndv)
{
    umi_limits *sent = &channel->tx_sent;

    if (is_rndv) {
        sent->rndv++;
    } else {
        sent->messages++;
        sent->bytes += len;
    }
}

/* A peer that keeps to its credit never has more here than one window: what it
 * may have sent less what has been read. */
bool
umi_credit_keep(umi_channel *channel, size_t len, bool is_rndv)
{
    const umx_config *config = &umi_conn_worker(channel->ep)->context->config;
    umi_limits       *kept   = &channel->rx_kept;

    if (is_rndv) {
        if (kept->rndv >= config->credit_rndv) {
            return false;
        }
        kept->rndv++;
        return true;
    }
    if (kept->messages >= config->credit_messages ||
        len > config->credit_bytes - kept->bytes) {
        return false;
    }
    kept->messages++;
    kept->bytes += len;
    return true;
}

void
umi_credit_unkeep(umi_channel *channel, size_t len, bool is_rndv)
{
    umi_limits *kept = &channel->rx_kept;

    if (is_rndv) {
        kept->rndv--;
    } else {
        kept->messages--;
        kept->bytes -= len;
    }
}

/* More than half a window read since the last grant? */
static bool
is_grant_due(const umi_channel *channel)
{
    const umx_config *config  = &umi_conn_worker(channel->ep)->context->config;
    const umi_limits *read    = &channel->rx_read;
    const umi_limits *granted = &channel->rx_granted;

    return read->messages - granted->messages > config->credit_messages / 2 ||
           read->bytes - granted->bytes > config->credit_bytes / 2 ||
           read->rndv - granted->rndv > config->credit_rndv / 2;
}

void
umi_credit_read(umi_channel *channel, size_t len, bool is_rndv)
{
    umi_limits *read = &channel->rx_read;

    if (is_rndv) {
        read->rndv++;
    } else {
        read->messages++;
        read->bytes += len;
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

    channel->owes_credit = false;
    channel->rx_granted  = channel->rx_read;
    limits->bytes        = channel->rx_read.bytes + config->credit_bytes;
    limits->messages     = channel->rx_read.messages + config->credit_messages;
    limits->rndv         = channel->rx_read.rndv + config->credit_rndv;
}
