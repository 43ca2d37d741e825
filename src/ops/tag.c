#include <umx/tag.h>

#include "ops/post.h"

static void
cancel_recv(umx_request *req)
{
    /* Calls the callback before it returns, which only queues. */
    ucp_request_cancel(req->worker->ucp, req->u.raw.handle);
}

/* Cancelled by its endpoint's end, not by the user: say why. */
static bool
finish_recv(umx_request *req)
{
    if (req->status == UMX_ERR_CANCELED && !req->is_cancelled &&
        req->ep != NULL && req->ep->end_status != UMX_OK) {
        req->status = req->ep->end_status;
    }
    return true;
}

static const umi_request_ops send_ops = {.name = "tag_send"};
static const umi_request_ops recv_ops = {.name        = "tag_recv",
                                         .finish      = finish_recv,
                                         .cancel      = cancel_recv,
                                         .outlives_ep = true};

static void
on_sent(void *request, ucs_status_t status, void *arg)
{
    umx_request *req = arg;

    ucp_request_free(request);
    if (--req->ep->num_tag_sends == 0 && req->ep->is_draining) {
        umi_ep_raise(req->ep, UMI_EP_EVENT_LAYER); /* the close may go on */
    }
    umi_request_complete(req, umi_ep_status(status));
}

umx_status
umx_tag_send(umx_ep *ep, uint64_t tag, const umx_buffer *buf,
             const umx_op_params *params, umx_request **req_p)
{
    umi_ep             *base   = umi_ep_of(ep);
    umx_status          status = umi_worker_check(base->worker);
    ucp_request_param_t ucp_params;
    umx_request        *req;

    if (status != UMX_OK) {
        return status;
    }
    if (base->handle == NULL || base->is_draining) {
        return UMX_ERR_CLOSED;
    }
    if (buf->data == NULL && buf->len != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    req = umi_request_new(base->worker, base, &send_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->buf = *buf;
    umi_post_params(&ucp_params, req);
    ucp_params.cb.send = on_sent;
    status             = umi_post_result(
                    req,
                    ucp_tag_send_nbx(base->handle, buf->data, buf->len, tag, &ucp_params),
                    &base->inflight);
    base->raw_tags += (status >= 0);
    if (status != UMX_INPROGRESS) {
        umi_request_free(req);
        return status;
    }
    base->num_tag_sends++;
    *req_p = req;
    return status;
}

static void
on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
            void *arg)
{
    umx_request *req = arg;

    if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
        req->info.tag    = info->sender_tag;
        req->info.length = info->length;
    }
    ucp_request_free(request);
    umi_request_complete(req, umi_ep_status(status));
}

umx_status
umx_tag_recv(umx_worker *worker, umx_ep *ep, uint64_t tag, uint64_t mask,
             const umx_buffer *buf, const umx_op_params *params,
             umx_request **req_p, umx_recv_info *info)
{
    umi_ep             *base   = (ep != NULL) ? umi_ep_of(ep) : NULL;
    umx_status          status = umi_worker_check(worker);
    ucp_request_param_t ucp_params;
    umx_request        *req;
    ucs_status_ptr_t    result;

    (void)info; /* never done at once */
    if (status != UMX_OK) {
        return status;
    }
    if (base != NULL && base->handle == NULL) {
        return UMX_ERR_CLOSED;
    }
    if (buf->data == NULL && buf->len != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    req = umi_request_new(worker, base, &recv_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->buf  = *buf;
    req->info = (umx_recv_info){0};
    umi_post_params(&ucp_params, req);
    /* UCX 1.13 tells tag and length to the callback only. */
    ucp_params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    ucp_params.cb.recv = on_received;
    result = ucp_tag_recv_nbx(worker->ucp, buf->data, buf->len, tag, mask,
                              &ucp_params);
    status = umi_post_result(req, result,
                             base != NULL ? &base->inflight : &worker->orphans);
    if (status != UMX_INPROGRESS) {
        umi_request_free(req);
        return status;
    }
    req->u.raw.handle = result;
    *req_p            = req;
    return status;
}
