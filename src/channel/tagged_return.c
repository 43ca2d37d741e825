/* SPDX-License-Identifier: BSD-3-Clause */
/* tagged_return.c: a receive gives its message back, at the user's wish or
 * because it was cancelled. */
#include "channel/tagged.h"
#include "mem/memtype.h"

umx_status
umi_channel_unrecv(umi_channel *channel, const umx_recv_info *info,
                   const void *header, size_t header_len, const umx_buffer *buf)
{
    umx_ep      *ep = channel->ep;
    umx_message *message;
    umx_status   status;

    if (info->length > buf->len) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (!umi_endpoint_may_read(ep) || umi_channel_is_lost(channel, info->seq)) {
        return UMX_ERR_CLOSED;
    }
    status = umi_message_rebuild(ep, header, header_len, buf, info->length,
                                 &message);
    if (status != UMX_OK) {
        return status;
    }
    message->channel = channel;
    message->info    = *info;
    umi_tagged_uncount(channel);
    umi_channel_offer(channel, message);
    return UMX_OK;
}

umx_status
umx_channel_unrecv(umx_ep *ep, uint16_t number, const umx_recv_info *info,
                   const umx_buffer *buf)
{
    umi_channel *channel;
    umx_status   status = umi_channel_check_recv(
          ep, umi_channel_id(UMI_KIND_MESSAGE, number), &channel);

    return (status == UMX_OK) ?
               umi_channel_unrecv(channel, info, NULL, 0, buf) :
               status;
}

/* ---- cancelled receives --------------------------------------------------
 */

void
umi_tagged_return_received(umx_request *req)
{
    umx_status status = UMX_OK;

    if (umi_recv_of(req)->message != NULL) {
        umx_message_return(umi_recv_of(req)->message);
        umi_recv_of(req)->message = NULL;
    } else if (req->status == UMX_OK ||
               req->status == UMX_ERR_LENGTH_MISMATCH) {
        status = umi_channel_unrecv(umi_recv_of(req)->landing.channel,
                                    &req->info, NULL, 0, &req->buf);
    }
    if (status != UMX_ERR_NO_MEMORY) {
        req->status = UMX_ERR_CANCELED;
    }
}

void
umi_tagged_return_landing(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_ep      *ep      = channel->ep;
    umx_message *message;

    if (!umi_endpoint_may_read(ep) ||
        umi_channel_is_lost(channel, req->info.seq)) {
        return; /* nobody receives it any more */
    }
    message = umi_message_copy(ep, NULL, 0);
    if (message == NULL) {
        req->is_cancelled = false; /* it is received after all */
        return;
    }
    message->channel          = channel;
    message->info             = req->info;
    message->storage          = UMI_STORAGE_LANDING;
    message->data             = NULL;
    message->lander           = req;
    umi_recv_of(req)->message = message;
    umi_tagged_uncount(channel);
    umi_channel_offer(channel, message);
}

void
umi_tagged_return_landed(umx_request *req)
{
    umi_channel *channel = umi_recv_of(req)->landing.channel;
    umx_message *message = umi_recv_of(req)->message;
    umx_status   status  = req->status;

    umi_recv_of(req)->message = NULL;
    message->lander           = NULL;
    message->storage          = UMI_STORAGE_MOVED;
    if (status == UMX_OK) {
        status = umi_message_make_room(message, message->info.length) ?
                     umi_copy_out(&req->buf, message->data,
                                  message->info.length) :
                     UMX_ERR_NO_MEMORY;
    }
    umi_channel_landed(channel, message, status);
}
