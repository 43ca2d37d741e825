/* SPDX-License-Identifier: BSD-3-Clause */
/* relieve.c: announced messages come into memory of ours, because their sender
 * cannot keep them. */
#include <stdlib.h>
#include <umx/buffer.h>

#include "channel/channel.h"
#include "endpoint/endpoint.h"
#include "util/count.h"

static bool
fetch_finish(umx_request *req)
{
    umx_message *message = umi_recv_of(req)->message;

    umi_land_end(req);
    if (message == NULL) { /* discarded meanwhile */
        free(req->buf.data);
    } else {
        umx_status status = req->status;

        message->lander = NULL;
        if (status == UMX_OK) {
            message->storage = UMI_STORAGE_HEAP;
            message->data    = req->buf.data;
        } else {
            message->storage = UMI_STORAGE_MOVED;
            free(req->buf.data);
            status = umi_endpoint_end_status(umi_endpoint_of(req->ep), status);
        }
        umi_channel_landed(umi_recv_of(req)->landing.channel, message, status);
    }
    umi_request_free(req);
    return false;
}

static const umi_request_ops fetch_ops = {
    .name           = "fetch",
    .finish         = fetch_finish,
    .has_own_memory = true,
};

bool
umi_channel_fetch_one(umi_channel *channel, umx_message *message)
{
    umx_ep      *ep   = channel->ep;
    size_t       len  = message->info.length;
    void        *data = malloc(len);
    umx_request *req;
    umx_status   status;

    if (data == NULL) {
        return false;
    }
    req = umi_request_new(ep->base.worker, &ep->base, &fetch_ops, NULL);
    if (req == NULL) {
        free(data);
        return false;
    }
    req->buf = umx_host_buffer(data, len);
    umi_landing_init(req, channel);
    umi_recv_of(req)->message = message;
    UMI_DECREMENT(ep->num_announced);
    status           = umi_land(req, message->way, message->data, len);
    message->storage = UMI_STORAGE_LANDING;
    message->lander  = req;
    umi_channel_landing_begins(message);
    if (status == UMX_ERR_WITHDRAWN) {
        umi_withdraw_expect(req);
    } else if (status != UMX_INPROGRESS) {
        umi_request_complete(req, status);
    }
    return true;
}

void
umi_channel_fetch(umi_channel *channel, size_t *budget_p)
{
    UMI_LIST_FOREACH(node, &channel->unexpected) {
        umx_message *message = umi_message_at(node);

        if (message->storage != UMI_STORAGE_RNDV) {
            continue;
        }
        if (message->info.length > *budget_p ||
            !umi_channel_fetch_one(channel, message)) {
            return;
        }
        *budget_p -= message->info.length;
    }
}
