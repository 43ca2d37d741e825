/* SPDX-License-Identifier: BSD-3-Clause */
/* inject.c: a short message that UCX takes in the call. Nearly all short
 * messages are such ones, and they need no request: send.c sends the others. */
#include "channel/channel.h"
#include "endpoint/endpoint.h"
#include "ops/am.h"
#include "worker/observe.h"

/* True if a message of `len` bytes goes eagerly and at once, as far as this
 * side knows: there is credit, and nothing that was sent before waits. */
static inline bool
may_inject(const umx_ep *ep, const umi_channel *channel, size_t len,
           umi_charge charge)
{
    return ep->state == UMX_EP_OPEN && !ep->is_closing && !ep->is_peer_closed &&
           ep->base.handle != NULL && umi_list_is_empty(&channel->waiting) &&
           (len != 0 || !umi_credit_counts_all(&ep->peer_limits)) &&
           len < umi_channels_of(ep)->plain_below &&
           umi_credit_allows(channel, charge);
}

umx_status
umi_channel_inject(umx_ep *ep, uint32_t id, uint8_t flags, uint64_t tag,
                   const void *data, size_t len)
{
    umi_charge   charge = umi_charge_eager(len, 0);
    umi_channel *channel;
    umi_header   header;

    if (umi_endpoint_check(ep) != UMX_OK || UMI_IS_OBSERVED()) {
        return UMX_INPROGRESS;
    }
    channel = umi_channel_get(ep, id);
    if (channel == NULL ||
        (!channel->is_ours && umi_channel_use(channel) != UMX_OK)) {
        return UMX_INPROGRESS;
    }
    umi_link_look_first(&ep->base);
    if (!may_inject(ep, channel, len, charge)) {
        return UMX_INPROGRESS;
    }
    header = (umi_header){
        .kind     = (uint8_t)(id >> 16),
        .flags    = flags,
        .channel  = (uint16_t)id,
        .seq      = channel->tx_seq,
        .endpoint = ep->base.remote_id,
        .tag      = tag,
    };
    if (umi_am_inject(&ep->base, UMI_AM_DATA, &header, umi_header_size(flags),
                      data, len) != UMX_OK) {
        return UMX_INPROGRESS;
    }
    channel->tx_seq++;
    umi_channel_count_sent(ep, len);
    umi_credit_sent(channel, charge);
    return UMX_OK;
}
