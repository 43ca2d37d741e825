/* SPDX-License-Identifier: BSD-3-Clause */
/* message_api.c: messages in the user's hands. They outlive their worker: what
 * is left of it stays until the last one is given back. */
#include <assert.h>
#include "channel/frames.h"
#include "channel/match.h"
#include "channel/tagged.h"
#include "endpoint/endpoint.h"
#include "mem/memtype.h"
#include "util/count.h"

void
umi_message_take(umx_message *message)
{
    assert(!message->is_taken && !message->is_queued);
    message->is_taken    = true;
    message->is_refused  = false;
    message->worker      = umi_endpoint_worker(message->ep);
    message->is_to_fetch = (message->storage == UMI_STORAGE_RNDV);
    if (message->is_to_fetch) {
        message->ep->num_to_fetch++;
        umi_list_append(&message->channel->taken, &message->node);
    }
    umi_worker_hold_memory(message->worker);
    umi_ep_base_hold(&message->ep->base);
}

/* End a message's turn to be fetched: its bytes come now, or nobody wants them.
 * close_after_recv() waits for the bytes of what was taken. */
static void
end_fetch(umx_message *message)
{
    umx_ep *ep = message->ep;

    if (message->is_to_fetch) {
        message->is_to_fetch = false;
        UMI_DECREMENT(ep->num_to_fetch);
        umi_close_check_count(ep);
    }
}

void
umi_message_withdraw(umx_message *message)
{
    umx_ep *ep = message->ep;

    end_fetch(message);
    umi_node_remove(&message->node);
    umi_message_release_bytes(message, message->worker);
    message->data         = NULL;
    message->is_withdrawn = true;
    umi_channel_credit(message->channel, message);
    if (ep->has_goodbye) {
        umi_endpoint_due(ep, UMI_DUE_ACK);
    }
}

bool
umx_message_is_withdrawn(const umx_message *message)
{
    UMI_GUARD(message->worker);
    return message->is_withdrawn;
}

/* The user is done with `message`, whose memory may be gone already. */
static void
let_go(umx_worker *worker, umx_ep *ep)
{
    umi_ep_base_release(&ep->base);
    umi_worker_release_memory(worker);
}

void
umi_message_free_orphan(umx_message *message)
{
    umx_worker *worker = message->worker;
    umx_ep     *ep     = message->ep;

    if (message->storage == UMI_STORAGE_RNDV) {
        message->storage = UMI_STORAGE_MOVED; /* went with its endpoint */
    }
    if (message->frames != NULL) {
        umi_frames_orphan(message);
    }
    umi_message_free(message);
    let_go(worker, ep);
}

const umx_recv_info *
umx_message_info(const umx_message *message)
{
    return &message->info;
}

const void *
umx_message_header(const umx_message *message, size_t *len_p)
{
    *len_p = message->header_len;
    return message->header;
}

const void *
umx_message_data(const umx_message *message)
{
    return umi_message_is_at_hand(message) ? message->data : NULL;
}

umx_message *
umx_request_message(const umx_request *req)
{
    if (req == NULL) {
        return NULL;
    }
    return (req->ops == &umi_frames_recv_ops) ? umi_frames_op_of(req)->message :
                                                umi_recv_of(req)->message;
}

static umx_status
recv_at_hand(umi_channel *channel, umx_message *message, const umx_buffer *buf)
{
    umx_worker *worker = message->worker;
    umx_ep     *ep     = message->ep;
    umx_status  status = umi_channel_copy_out(channel, message, buf);

    let_go(worker, ep);
    return status;
}

UMI_LOCKED(umx_status, umx_message_recv, (*message_p)->worker,
           (umx_message * *message_p, const umx_buffer *buf,
            const umx_op_params *params, umx_request **req_p),
           (message_p, buf, params, req_p))

umx_status
umx_message_recv(umx_message **message_p, const umx_buffer *buf,
                 const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY((*message_p)->worker)) {
        return umx_message_recv_locked(message_p, buf, params, req_p);
    }
    static const umx_match any = {.flags = UMX_MATCH_ANY};

    umx_message *message = *message_p;
    umx_ep      *ep      = message->ep;
    umx_worker  *worker  = message->worker;
    umi_channel *channel = message->channel;
    umx_request *req;
    umx_status   status;

    if (ep->base.worker == NULL) {
        *message_p = NULL;
        umi_message_free_orphan(message);
        return UMX_ERR_CLOSED;
    }
    if (message->is_withdrawn) {
        *message_p = NULL;
        umx_message_drop(message);
        return UMX_ERR_WITHDRAWN;
    }
    status = (message->frames != NULL) ? UMX_ERR_INVALID_PARAM :
                                         umi_endpoint_check_buffer(buf);
    if (status != UMX_OK) {
        return status;
    }
    if (buf->len < message->info.length) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    if (umi_message_is_at_hand(message)) {
        *message_p = NULL;
        return recv_at_hand(channel, message, buf);
    }
    req = umi_channel_new_recv(
        channel, &any, UMX_MATCH_ANY | UMI_MATCH_OF_MESSAGE, buf, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    *message_p = NULL;
    req->info  = message->info;
    end_fetch(message);
    status = umi_channel_deliver_announced(channel, message, req);
    let_go(worker, ep);
    if (status != UMX_INPROGRESS) {
        umi_request_free(req);
        return status;
    }
    *req_p = req;
    return UMX_INPROGRESS;
}

umx_status
umx_message_unrecv(umx_ep *ep, const umx_recv_info *info, const void *header,
                   size_t header_len, const umx_buffer *buf)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    umi_channel *channel;
    umx_status   status;

    if (!umi_header_channel_id_is_valid(info->channel)) {
        return UMX_ERR_INVALID_PARAM;
    }
    status = umi_channel_check_recv(ep, info->channel, &channel);
    return (status == UMX_OK) ?
               umi_channel_unrecv(channel, info, header, header_len, buf) :
               status;
}

void
umi_message_end_taken(umx_worker *worker, umx_ep *ep)
{
    if (ep->has_goodbye) {
        umi_endpoint_due(ep, UMI_DUE_ACK);
    }
    let_go(worker, ep);
}

void
umx_message_return(umx_message *message)
{
    UMI_GUARD(message->worker);
    umx_worker *worker = message->worker;
    umx_ep     *ep     = message->ep;

    if (ep->base.worker == NULL) {
        umi_message_free_orphan(message);
        return;
    }
    if (message->frames != NULL) {
        umi_frames_return(message);
        return;
    }
    message->is_taken = false;
    umi_tagged_uncount(message->channel);
    end_fetch(message);
    umi_node_remove(&message->node);
    if (!message->is_withdrawn && umi_endpoint_may_read(ep) &&
        !ep->is_dropped &&
        !umi_channel_is_lost(message->channel, message->info.seq)) {
        umi_channel_offer(message->channel, message);
    } else {
        umi_message_free(message);
    }
    umi_message_end_taken(worker, ep);
}

void
umx_message_drop(umx_message *message)
{
    UMI_GUARD(message->worker);
    umx_worker *worker = message->worker;
    umx_ep     *ep     = message->ep;

    if (ep->base.worker == NULL) {
        umi_message_free_orphan(message);
        return;
    }
    if (message->frames != NULL) {
        umi_frames_drop(message);
        return;
    }
    end_fetch(message);
    umi_channel_credit(message->channel, message);
    umi_message_free(message);
    umi_message_end_taken(worker, ep);
}
