/* SPDX-License-Identifier: BSD-3-Clause */
/* land.c: bytes that are with their sender come into a receive's buffer. */
#include "channel/channel.h"
#include "lend/lend.h"

umx_status
umi_land_post(umx_request *req, void *desc, size_t len)
{
    return umi_cma_is_loan(desc) ? umi_cma_read(req, desc) :
                                   umi_am_recv(req, desc, len);
}

void
umi_channel_landed(umi_channel *channel, umx_message *message,
                   umx_status status)
{
    if (status != UMX_OK) {
        umi_channel_lose(channel, channel->ops->place(message), status);
    }
    channel->ops->landed(channel, message, status);
}
