/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/follow.h"

#include "codec/header.h"
#include "ops/post.h"
#include "worker/link.h"

typedef struct followed_header {
    uint64_t len;
    uint8_t  message[UMI_HEADER_MAX];
} followed_header;

/* ---- sending -------------------------------------------------------------
 */

/* A header that UCX could not send at once. */
typedef struct pending_header {
    umx_worker     *worker;
    followed_header header;
} pending_header;

_Static_assert(sizeof(pending_header) <= UMI_SMALL_SIZE, "one of the smalls");

bool
umi_follow_may_move(const umx_request *req)
{
    return req->gather == NULL &&
           umi_context_is_host_buffer(req->worker->context, &req->buf);
}

static void
on_header_sent(void *request, ucs_status_t status, void *arg)
{
    pending_header *pending = arg;

    (void)status; /* the bytes that follow end alike */
    ucp_request_free(request);
    umi_pool_put(&pending->worker->smalls, pending);
}

static umx_status
send_later(const umi_ep_base *ep, const followed_header *header, size_t len,
           ucp_request_param_t *params)
{
    pending_header  *pending = umi_pool_get(&ep->worker->smalls);
    ucs_status_ptr_t result;

    if (pending == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    pending->worker   = ep->worker;
    pending->header   = *header;
    params->user_data = pending;
    params->op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    result = ucp_am_send_nbx(ep->handle, UMI_AM_FOLLOWED, &pending->header, len,
                             NULL, 0, params);
    if (UCS_PTR_IS_PTR(result)) {
        ep->worker->is_armed = false;
        return UMX_OK;
    }
    umi_pool_put(&ep->worker->smalls, pending);
    return umi_ep_status(UCS_PTR_STATUS(result));
}

static umx_status
send_header(const umi_ep_base *ep, size_t len, const void *message,
            size_t message_len)
{
    followed_header     header = {.len = len};
    size_t              size   = sizeof(header.len) + message_len;
    ucs_status_ptr_t    result;
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
        .flags   = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY,
        .cb.send = on_header_sent,
    };

    memcpy(header.message, message, message_len);
    result = ucp_am_send_nbx(ep->handle, UMI_AM_FOLLOWED, &header, size, NULL,
                             0, &params);
    return (result == UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE)) ?
               send_later(ep, &header, size, &params) :
               umi_ep_status(UCS_PTR_STATUS(result));
}

umx_status
umi_follow_send(umx_request *req, const void *header, size_t header_len)
{
    void               *data;
    size_t              count;
    umx_status          status;
    ucs_status_ptr_t    result;
    ucp_request_param_t params;

    status = send_header(req->ep, req->buf.len, header, header_len);
    if (status != UMX_OK) {
        return status;
    }
    umi_post_params(&params, req);
    params.cb.send = umi_post_on_sent;
    data   = umi_post_memory(req, &params, &count, req->ep->link->has_hardware);
    result = ucp_stream_send_nbx(req->ep->handle, data, count, &params);
    if (UCS_PTR_IS_ERR(result)) { /* what the peer waits for never comes */
        status = umi_ep_status(UCS_PTR_STATUS(result));
        umi_link_break(req->ep->link, status, "cannot send");
        umi_request_complete(req, status);
        return UMX_INPROGRESS;
    }
    return umi_post_result(req, result, &req->ep->inflight);
}

/* ---- receiving -----------------------------------------------------------
 */

/* What a descriptor points to, while the header is handled. */
typedef struct following {
    ucp_ep_h handle;
    bool     is_taken; /* a receive for the bytes has been posted */
} following;

static umx_status
follow_recv(umx_request *req, void *desc, size_t len)
{
    following          *it = desc;
    size_t              count, received;
    void               *data;
    ucs_status_ptr_t    result;
    ucp_request_param_t params;

    umi_post_params(&params, req);
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    params.flags          = UCP_STREAM_RECV_FLAG_WAITALL;
    params.cb.recv_stream = umi_post_on_received;
    data = umi_post_memory(req, &params, &count, req->ep->link->has_hardware);
    if (req->is_movable) {
        params.datatype  = req->worker->datatypes.arriving;
        req->info.length = len;
    } else {
        count = len;
    }
    result = ucp_stream_recv_nbx(it->handle, data, count, &received, &params);
    it->is_taken = !UCS_PTR_IS_ERR(result);
    return umi_post_result(req, result, &req->ep->inflight);
}

const umi_way umi_way_follow = {
    .is_for_messages = true,
    .suits           = umi_follow_may_move,
    .recv            = follow_recv,
};

static void
on_dropped(void *request, ucs_status_t status, size_t len, void *arg)
{
    (void)status;
    (void)len;
    (void)arg;
    ucp_request_free(request);
}

/* Take bytes that nobody gets off the stream. */
static umx_status
drop(umx_worker *worker, ucp_ep_h handle, size_t len)
{
    size_t              received;
    ucs_status_ptr_t    result;
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_DATATYPE,
        .flags          = UCP_STREAM_RECV_FLAG_WAITALL,
        .cb.recv_stream = on_dropped,
        .datatype       = worker->datatypes.nowhere,
    };

    result = ucp_stream_recv_nbx(handle, NULL, len, &received, &params);
    return UCS_PTR_IS_ERR(result) ? umi_ep_status(UCS_PTR_STATUS(result)) :
                                    UMX_OK;
}

/* Find out whose a message is. False: nobody's, or refused. */
static bool
is_welcome(umx_worker *worker, const umi_am_arrival *arrival,
           const umi_am_arrival *message, ucp_ep_h handle)
{
    umi_ep_base *ep;
    uint64_t     endpoint;

    if (message->header_len < UMI_HEADER_MIN) {
        worker->stats->protocol_errors++; /* whose it is cannot be known */
        umi_worker_stray(worker, 0);
        return false;
    }
    memcpy(&endpoint,
           (const char *)message->header + offsetof(umi_header, endpoint),
           sizeof(endpoint));
    ep = umi_ids_get(&worker->eps_by_id, endpoint);
    if (ep == NULL || ep->link == NULL) {
        umi_worker_stray(worker, endpoint);
        return false;
    }
    if (ep->handle != handle || arrival->len != 0) {
        umi_ep_base_refuse(ep, "bytes that follow on another connection");
        return false;
    }
    return true;
}

/* Break the connections of UCX's endpoint whose stream is out of step. */
static void
give_up(umx_worker *worker, ucp_ep_h handle, umx_status status)
{
    UMI_LIST_FOREACH(node, &worker->links) {
        umi_link *link = umi_container_of(node, umi_link, node);

        if (link->handle == handle) {
            umi_link_break(link, status, "bytes cannot be received");
            return;
        }
    }
}

static int
on_followed(umx_worker *worker, const umi_am_arrival *arrival)
{
    following      it      = {.handle = arrival->reply_ep};
    umx_status     status  = UMX_OK;
    umi_am_arrival message = {0};
    uint64_t       len     = 0;

    if (arrival->header_len >= sizeof(len)) {
        memcpy(&len, arrival->header, sizeof(len));
    }
    if (it.handle == NULL || len == 0 || len > SIZE_MAX / 2) {
        worker->stats->protocol_errors++;
        give_up(worker, it.handle, UMX_ERR_PROTOCOL);
        return UMI_AM_CONSUMED;
    }
    message.header     = (const char *)arrival->header + sizeof(len);
    message.header_len = arrival->header_len - sizeof(len);
    message.way        = &umi_way_follow;
    message.data       = &it;
    message.len        = (size_t)len;
    if (is_welcome(worker, arrival, &message, it.handle)) {
        (void)worker->am_handlers[UMI_AM_DATA].fn(worker, &message);
    }
    if (!it.is_taken) {
        status = drop(worker, it.handle, message.len);
    }
    if (status != UMX_OK) {
        give_up(worker, it.handle, status);
    }
    return UMI_AM_CONSUMED;
}

umx_status
umi_follow_listen(umx_worker *worker)
{
    return umi_am_set_handler(worker, UMI_AM_FOLLOWED, on_followed);
}
