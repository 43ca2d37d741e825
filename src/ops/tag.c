/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/tag.h"

#include "mem/memtype.h"
#include "ops/post.h"

/* ---- sending -------------------------------------------------------------
 */

static void
on_sent(void *request, ucs_status_t status, void *arg)
{
    umx_request *req = arg;

    ucp_request_free(request);
    if (--req->ep->num_tag_sends == 0 && req->ep->is_draining) {
        umi_ep_base_raise(req->ep,
                          UMI_EP_EVENT_LAYER); /* the close may go on */
    }
    umi_request_complete(req, umi_post_status(req, status));
}

static umx_status
post_send(umx_request *req)
{
    umi_ep_base        *ep = req->ep;
    ucp_request_param_t params;
    ucs_status_ptr_t    result;
    umx_status          status = umi_memory_enter(&req->buf);

    if (status != UMX_OK) {
        return status;
    }
    umi_post_params(&params, req);
    umi_post_memh(&params, req->worker, &req->buf);
    params.cb.send = on_sent;
    ep->num_tag_sends++;
    if (umi_tag_op_of(req)->is_sync) {
        result = ucp_tag_send_sync_nbx(ep->handle, req->buf.data, req->buf.len,
                                       umi_tag_op_of(req)->tag, &params);
    } else {
        result = ucp_tag_send_nbx(ep->handle, req->buf.data, req->buf.len,
                                  umi_tag_op_of(req)->tag, &params);
    }
    umi_memory_leave(&req->buf);
    status = umi_post_result(req, result, &ep->inflight);
    ep->num_tag_sends -= (status != UMX_INPROGRESS);
    ep->raw_tags += (status >= 0);
    return status;
}

/* UCX tells that something broke, the endpoint knows why. */
static bool
finish_send(umx_request *req)
{
    if (req->status < 0 && !req->is_cancelled &&
        req->ep->end_status != UMX_OK) {
        req->status = req->ep->end_status;
    }
    return true;
}

const umi_request_ops umi_tag_send_ops = {.name   = "tag_send",
                                          .finish = finish_send,
                                          .cancel = umi_post_cancel,
                                          .post   = post_send};

umx_status
umi_tag_check_buffer(const umx_worker *worker, const umx_buffer *buf)
{
    umx_status status = umi_must_stage(worker->context, buf) ?
                            UMX_ERR_UNSUPPORTED :
                            umi_check_contiguous(buf);

    return (status == UMX_OK) ? umi_memh_check(buf) : status;
}

static umx_status
send_tagged(umx_ep *ep, uint64_t tag, const umx_buffer *buf, bool is_sync,
            const umx_op_params *params, umx_request **req_p)
{
    umi_ep_base *base   = umi_ep_base_of(ep);
    umx_status   status = umi_ep_base_post_status(base);
    umx_request *req;

    if (status != UMX_OK) {
        return status;
    }
    status = umi_tag_check_buffer(base->worker, buf);
    if (status != UMX_OK) {
        return status;
    }
    req = umi_request_new(base->worker, base, &umi_tag_send_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_request_hold_buffer(req, buf);
    umi_tag_op_of(req)->tag     = tag;
    umi_tag_op_of(req)->is_sync = is_sync;
    return umi_ep_base_post(base, req, req_p);
}

UMI_LOCKED(umx_status, umx_tag_send, umi_ep_base_of(ep)->worker,
           (umx_ep * ep, uint64_t tag, const umx_buffer *buf,
            const umx_op_params *params, umx_request **req_p),
           (ep, tag, buf, params, req_p))

umx_status
umx_tag_send(umx_ep *ep, uint64_t tag, const umx_buffer *buf,
             const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_ep_base_of(ep)->worker)) {
        return umx_tag_send_locked(ep, tag, buf, params, req_p);
    }
    return send_tagged(ep, tag, buf, false, params, req_p);
}

umx_status
umx_tag_send_sync(umx_ep *ep, uint64_t tag, const umx_buffer *buf,
                  const umx_op_params *params, umx_request **req_p)
{
    UMI_GUARD_IF_ANY(umi_ep_base_of(ep)->worker);
    return send_tagged(ep, tag, buf, true, params, req_p);
}

/* ---- receiving -----------------------------------------------------------
 */

static void
cancel_recv(umx_request *req)
{
    /* UCX calls the callback, which only queues, before this returns. */
    ucp_request_cancel(umi_tag_op_of(req)->engine->ucp,
                       umi_tag_op_of(req)->handle);
}

static bool
finish_recv(umx_request *req)
{
    if (req->is_cancelled) {
        /* The message had landed before: it goes back, for the next receive. */
        if (req->status == UMX_OK &&
            umi_tag_keep(req->worker, &req->info, &req->buf) == UMX_OK) {
            req->status = UMX_ERR_CANCELED;
        }
    } else if (req->status == UMX_ERR_CANCELED && req->ep != NULL &&
               req->ep->end_status != UMX_OK) {
        /* The end of its endpoint cancelled the receive, not the user: say why.
         */
        req->status = req->ep->end_status;
    }
    return true;
}

const umi_request_ops umi_tag_recv_ops = {
    .name = "tag_recv", .finish = finish_recv, .cancel = cancel_recv};

umx_status
umi_tag_post_result(umx_request *req, umi_engine *engine,
                    ucs_status_ptr_t result)
{
    umx_status status = umi_post_result(req, result, &req->worker->inflight);

    if (req->is_posted) {
        umi_tag_op_of(req)->handle = result;
        umi_tag_op_of(req)->engine = engine;
        umi_engine_hold(engine);
    }
    return status;
}

void
umi_tag_end_post(umx_request *req, void *request)
{
    ucp_request_free(request);
    if (req->is_posted) {
        umi_engine_release(umi_tag_op_of(req)->engine);
    }
}

/* Taken back from UCX for `message`, unless that was too late. */
static void
settle_redirected(umx_request *req, umx_tag_message *message,
                  ucs_status_t ucs_status)
{
    umx_status status;

    if (ucs_status != UCS_ERR_CANCELED || req->is_cancelled) {
        umi_tag_return(message);
        umi_request_complete(req, umi_ep_status(ucs_status));
        return;
    }
    req->is_posted = false;
    umi_node_remove(&req->node);
    status = umi_tag_deliver(req, message);
    if (status != UMX_INPROGRESS) {
        umi_request_complete(req, status);
    }
}

static umx_status post_recv(umx_request *req);

/* Taken back from an old engine. */
static void
post_again(umx_request *req)
{
    umx_status status;

    umi_tag_op_of(req)->is_moving = false;
    req->is_posted                = false;
    umi_node_remove(&req->node);
    status = post_recv(req);
    if (status != UMX_INPROGRESS) {
        umi_request_complete(req, status);
    }
}

void
umi_tag_move(umx_worker *worker, const umi_engine *old)
{
    UMI_LIST_FOREACH_SAFE(node, &worker->inflight) {
        umx_request *req = umi_container_of(node, umx_request, node);

        /* A receive whose message lands stays where it is: UCX does not cancel
         * it. */
        if (umi_tag_op_of(req)->engine == old &&
            umi_tag_op_of(req)->message == NULL && !req->is_cancelled) {
            umi_tag_op_of(req)->is_moving = true;
            ucp_request_cancel(old->ucp, umi_tag_op_of(req)->handle);
        }
    }
}

static void
on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
            void *arg)
{
    umx_request     *req     = arg;
    umx_tag_message *message = umi_tag_op_of(req)->message;

    if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
        req->info.tag    = info->sender_tag;
        req->info.length = info->length;
        req->info.seq    = req->worker->tags->seq++;
    }
    umi_tag_end_post(req, request);
    if (umi_tag_op_of(req)->is_moving && status == UCS_ERR_CANCELED &&
        !req->is_cancelled) {
        post_again(req);
    } else if (message != NULL) {
        umi_tag_op_of(req)->message = NULL;
        settle_redirected(req, message, status);
    } else {
        umi_request_complete(req, umi_ep_status(status));
    }
}

void
umi_tag_redirect(umx_request *req, umx_tag_message *message)
{
    umi_node_remove(&message->node);
    umi_tag_op_of(req)->message = message;
    /* UCX does not cancel a receive whose message lands: then `message` waits
     * for the end of that. */
    ucp_request_cancel(umi_tag_op_of(req)->engine->ucp,
                       umi_tag_op_of(req)->handle);
}

static umx_status
post_recv(umx_request *req)
{
    umi_engine         *engine = req->worker->engine;
    ucp_request_param_t params;
    ucs_status_ptr_t    result;
    umx_status          status = umi_memory_enter(&req->buf);

    if (status != UMX_OK) {
        return status;
    }
    umi_post_params(&params, req);
    umi_post_memh(&params, req->worker, &req->buf);
    /* UCX 1.13 tells tag and length to the callback only. */
    params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.cb.recv = on_received;
    result         = ucp_tag_recv_nbx(engine->ucp, req->buf.data, req->buf.len,
                                      umi_tag_op_of(req)->tag, umi_tag_op_of(req)->mask,
                                      &params);
    umi_memory_leave(&req->buf);
    return umi_tag_post_result(req, engine, result);
}

/* What has come is the worker's: an endpoint that the peer ended takes nothing
 * from those who come late, as on channels. */
static umx_status
check_recv(umx_worker *worker, const umi_ep_base *ep, uint64_t tag,
           uint64_t mask, const umx_buffer *buf)
{
    umx_status    status = umi_worker_check(worker);
    umx_recv_info info;

    if (status == UMX_OK && ep != NULL) {
        status = umi_ep_base_post_status(ep);
        if (status != UMX_OK && status != UMX_ERR_CLOSED &&
            umx_tag_probe(worker, tag, mask, &info) == UMX_OK) {
            status = UMX_OK;
        }
    }
    return (status == UMX_OK) ? umi_tag_check_buffer(worker, buf) : status;
}

UMI_LOCKED(umx_status, umx_tag_recv, worker,
           (umx_worker * worker, umx_ep *ep, uint64_t tag, uint64_t mask,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p, umx_recv_info *info),
           (worker, ep, tag, mask, buf, params, req_p, info))

umx_status
umx_tag_recv(umx_worker *worker, umx_ep *ep, uint64_t tag, uint64_t mask,
             const umx_buffer *buf, const umx_op_params *params,
             umx_request **req_p, umx_recv_info *info)
{
    if (UMI_IS_UNLOCKED(worker)) {
        return umx_tag_recv_locked(worker, ep, tag, mask, buf, params, req_p,
                                   info);
    }
    umi_ep_base     *base   = (ep != NULL) ? umi_ep_base_of(ep) : NULL;
    umx_status       status = check_recv(worker, base, tag, mask, buf);
    umx_request     *req;
    umx_tag_message *message;

    if (status != UMX_OK) {
        return status;
    }
    req = umi_request_new(worker, base, &umi_tag_recv_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_request_hold_buffer(req, buf);
    req->info                     = (umx_recv_info){0};
    umi_tag_op_of(req)->tag       = tag;
    umi_tag_op_of(req)->mask      = mask;
    umi_tag_op_of(req)->message   = NULL;
    umi_tag_op_of(req)->is_moving = false;
    message                       = umi_tag_find(worker, tag, mask);
    status = (message != NULL) ? umi_tag_deliver(req, message) : post_recv(req);
    if (status == UMX_INPROGRESS) {
        *req_p = req;
    } else {
        *info = req->info;
        umi_request_free(req);
    }
    return status;
}
