/* SPDX-License-Identifier: BSD-3-Clause */
/* tagged_recv.c: posting receives of messages by their tags, and probes. */
#include "channel/tagged.h"
#include "util/hash.h"
#include "worker/dma.h"
#include "worker/observe.h"

umx_message *
umi_tagged_find(const umi_channel *channel, uint64_t tag, uint64_t mask,
                uint32_t flags)
{
    UMI_LIST_FOREACH(node, &channel->unexpected) {
        umx_message *message = umi_message_at(node);

        if (message->claimant == NULL &&
            umi_match(tag, mask, flags, &message->info)) {
            return message;
        }
    }
    return NULL;
}

static umx_message *
find_unexpected(const umi_channel *channel, const umx_match *match)
{
    return umi_tagged_find(channel, match->tag, match->mask, match->flags);
}

static bool
is_behind(umi_node *node, umi_node *other, const void *arg)
{
    (void)arg;
    return umi_seq_diff(umi_landing_of(umi_channel_request_at(node))->order,
                        umi_landing_of(umi_channel_request_at(other))->order) >
           0;
}

/* Add a receive to `posted`, in the order of posting. */
static void
add_posted(umi_channel *channel, umx_request *req)
{
    umi_list_insert_sorted(&channel->posted, &req->node, is_behind, NULL);
}

umx_request *
umi_channel_new_recv(umi_channel *channel, const umx_match *match,
                     uint32_t flags, const umx_buffer *buf,
                     const umx_op_params *params)
{
    umx_ep      *ep  = channel->ep;
    umx_request *req = umi_request_new(ep->base.worker, &ep->base,
                                       &umi_tagged_recv_ops, params);

    if (req == NULL) {
        return NULL;
    }
    umi_request_hold_buffer(req, buf);
    req->info.length          = 0;
    umi_recv_of(req)->tag     = match->tag;
    umi_recv_of(req)->mask    = match->mask;
    umi_recv_of(req)->flags   = flags;
    umi_recv_of(req)->message = NULL;
    umi_recv_of(req)->phase   = UMI_RECV_QUEUED;
    umi_landing_init(req, channel);
    umi_landing_of(req)->order = channel->num_recvs++;
    return req;
}

umx_status
umi_tagged_recv_later(umi_channel *channel, umx_message *message,
                      umx_request *req)
{
    message->is_refused = false;
    if (message->storage == UMI_STORAGE_LANDING) {
        message->claimant         = req;
        umi_recv_of(req)->phase   = UMI_RECV_CLAIMING;
        umi_recv_of(req)->message = message;
        return UMX_INPROGRESS;
    }
    umi_channel_unqueue(channel, message);
    return umi_tagged_deliver(channel, message, req);
}

/* ---- memory that is not ready --------------------------------------------
 */

umx_status
umi_tagged_post_now(umi_channel *channel, umx_request *req)
{
    const umi_recv *recv  = umi_recv_of(req);
    umx_match       match = {
              .tag = recv->tag, .mask = recv->mask, .flags = recv->flags};
    umx_message *message = NULL;
    umx_status   status  = UMX_OK;

    umi_recv_of(req)->phase = UMI_RECV_QUEUED;
    if (umi_endpoint_may_read(channel->ep)) {
        message = umi_tagged_find_fitting(channel, &match, req->buf.len,
                                          &status);
    }
    if (status != UMX_OK) {
        req->info = message->info;
        return status;
    }
    if (message != NULL) {
        return umi_tagged_recv_later(channel, message, req);
    }
    status = umi_endpoint_recv_status(channel->ep);
    if (status != UMX_OK) {
        return status;
    }
    add_posted(channel, req);
    return UMX_INPROGRESS;
}

void
umi_tagged_post_late(umi_channel *channel)
{
    while (!umi_list_is_empty(&channel->late)) {
        umx_request *req = umi_channel_request_at(channel->late.next);
        umx_status   status;

        if (req->num_dmas != 0) {
            return;
        }
        umi_node_remove(&req->node);
        status = umi_tagged_post_now(channel, req);
        if (status != UMX_INPROGRESS) {
            umi_tagged_complete(req, status);
        }
    }
}

void
umi_tagged_ready(umx_request *req, umx_status status)
{
    umi_channel *channel = umi_landing_of(req)->channel;

    if (status != UMX_OK) {
        umi_tagged_complete(req, status);
    }
    umi_tagged_post_late(channel);
}

/* True if a receive must wait for its memory, or for those in front of it. */
static inline bool
is_late(const umi_channel *channel, const umx_op_params *params)
{
    return __builtin_expect(
        umi_dma_has_stream(params) || !umi_list_is_empty(&channel->late), 0);
}

/* Post a receive once its memory is ready. */
static umx_status
recv_when_ready(umi_channel *channel, const umx_match *match, uint32_t flags,
                const umx_buffer *buf, const umx_op_params *params,
                umx_request **req_p)
{
    umx_status   status = umi_endpoint_recv_status(channel->ep);
    umx_request *req = umi_channel_new_recv(channel, match, flags, buf, params);

    *req_p = req;
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (status != UMX_OK && umi_tagged_has_message(channel, req)) {
        status = UMX_OK;
    }
    if (status == UMX_OK && umi_dma_has_stream(params)) {
        status = umi_dma_after(req, params);
    }
    if (status != UMX_OK) {
        return status;
    }
    if (req->num_dmas == 0 && umi_list_is_empty(&channel->late)) {
        return umi_tagged_post_now(channel, req);
    }
    umi_recv_of(req)->phase = UMI_RECV_LATE;
    umi_list_append(&channel->late, &req->node);
    return UMX_INPROGRESS;
}

/* ---- posting -------------------------------------------------------------
 */

static umx_status
recv_queued(umi_channel *channel, umx_message *message, const umx_match *match,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p, umx_recv_info *info)
{
    umx_request *req;
    umx_status   status;

    if (umi_message_is_at_hand(message)) {
        *info = message->info;
        umi_channel_unqueue(channel, message);
        umi_tagged_count(channel);
        if (UMI_IS_OBSERVED()) {
            umi_observe_at_once(&channel->ep->base,
                                umi_tagged_recv_name(channel), info->length,
                                info->tag);
        }
        return umi_channel_copy_out(channel, message, buf);
    }
    req = umi_channel_new_recv(channel, match, match->flags, buf, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_tagged_recv_later(channel, message, req);
    if (status != UMX_INPROGRESS) {
        *info = req->info;
        umi_request_free(req);
        return status;
    }
    *req_p = req;
    return UMX_INPROGRESS;
}

/* Give a receive to its caller, or what has become of it at once. */
static umx_status
hand_out(umx_status status, umx_request *req, umx_request **req_p,
         umx_recv_info *info)
{
    if (status == UMX_INPROGRESS) {
        *req_p = req;
    } else if (req != NULL) {
        *info = req->info;
        umi_request_free(req);
    }
    return status;
}

UMI_LOCKED(umx_status, umx_channel_recv, umi_endpoint_worker(ep),
           (umx_ep * ep, uint16_t number, const umx_match *match,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p, umx_recv_info *info),
           (ep, number, match, buf, params, req_p, info))

umx_status
umx_channel_recv(umx_ep *ep, uint16_t number, const umx_match *match,
                 const umx_buffer *buf, const umx_op_params *params,
                 umx_request **req_p, umx_recv_info *info)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_channel_recv_locked(ep, number, match, buf, params, req_p,
                                       info);
    }
    umi_channel *channel;
    umx_message *message;
    umx_request *req;
    umx_status   status = umi_channel_check_recv(
          ep, umi_header_channel_id(UMI_KIND_MESSAGE, number), &channel);

    if (status != UMX_OK) {
        return status;
    }
    status = umi_endpoint_check_buffer(buf);
    if (status != UMX_OK) {
        return status;
    }
    if (is_late(channel, params)) {
        status = recv_when_ready(channel, match, match->flags, buf, params,
                                 &req);
        return hand_out(status, req, req_p, info);
    }
    if (!umi_list_is_empty(&channel->unexpected) && umi_endpoint_may_read(ep)) {
        message = umi_tagged_find_fitting(channel, match, buf->len, &status);
        if (status != UMX_OK) {
            *info = message->info;
            return status;
        }
        if (message != NULL) {
            return recv_queued(channel, message, match, buf, params, req_p,
                               info);
        }
    }
    status = umi_endpoint_recv_status(ep);
    if (status != UMX_OK) {
        return status;
    }
    req = umi_channel_new_recv(channel, match, match->flags, buf, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_list_append(&channel->posted, &req->node);
    *req_p = req;
    return UMX_INPROGRESS;
}

umx_status
umi_channel_recv_message(umx_ep *ep, uint32_t id, const umx_match *match,
                         const umx_buffer *small, const umx_op_params *params,
                         umx_request **req_p, umx_message **message_p)
{
    static const umx_buffer nothing;

    umi_channel *channel;
    umx_request *req;
    uint32_t     flags;
    umx_status   status = umi_channel_check_recv(ep, id, &channel);

    if (status != UMX_OK) {
        return status;
    }
    if (small == NULL) {
        small = &nothing;
    }
    flags = match->flags | UMI_MATCH_WANT_MESSAGE;
    if (is_late(channel, params)) {
        status = recv_when_ready(channel, match, flags, small, params, &req);
    } else {
        req    = umi_channel_new_recv(channel, match, flags, small, params);
        status = (req == NULL) ? UMX_ERR_NO_MEMORY :
                                 umi_tagged_post_now(channel, req);
    }
    if (status == UMX_INPROGRESS) {
        *req_p = req;
    } else if (req != NULL) {
        *message_p = umi_recv_of(req)->message;
        umi_request_free(req);
    }
    return status;
}

UMI_LOCKED(umx_status, umx_channel_recv_message, umi_endpoint_worker(ep),
           (umx_ep * ep, uint16_t number, const umx_match *match,
            const umx_op_params *params, umx_request **req_p,
            umx_message **message_p),
           (ep, number, match, params, req_p, message_p))

umx_status
umx_channel_recv_message(umx_ep *ep, uint16_t number, const umx_match *match,
                         const umx_op_params *params, umx_request **req_p,
                         umx_message **message_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_channel_recv_message_locked(ep, number, match, params, req_p,
                                               message_p);
    }
    return umi_channel_recv_message(
        ep, umi_header_channel_id(UMI_KIND_MESSAGE, number), match, NULL,
        params, req_p, message_p);
}

umx_status
umi_channel_probe(umx_ep *ep, uint32_t id, const umx_match *match,
                  umx_recv_info *info)
{
    umi_channel *channel;
    umx_message *message;
    umx_status   status = umi_channel_check_recv(ep, id, &channel);

    if (status != UMX_OK) {
        return status;
    }
    message = umi_endpoint_may_read(ep) ? find_unexpected(channel, match) :
                                          NULL;
    if (message == NULL) {
        return UMX_ERR_NO_MESSAGE;
    }
    *info = message->info;
    return UMX_OK;
}

umx_status
umx_channel_probe(umx_ep *ep, uint16_t number, const umx_match *match,
                  umx_recv_info *info)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return umi_channel_probe(
        ep, umi_header_channel_id(UMI_KIND_MESSAGE, number), match, info);
}

uint64_t
umx_tag_hash(const void *data, size_t len)
{
    return umi_siphash(data, len);
}
