/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/flush.h"

#include "ops/post.h"

/* Of an endpoint. */
static void
on_flushed(void *request, ucs_status_t status, void *arg)
{
    ucp_request_free(request);
    umi_request_complete(arg, umi_ep_status(status));
}

static void
end_engine(umx_request *req, umx_status status)
{
    req->u.flush.num_left--;
    if (status != UMX_OK && req->u.flush.status == UMX_OK) {
        req->u.flush.status = status;
    }
}

static void
on_engine_flushed(void *request, ucs_status_t status, void *arg)
{
    umx_request *req = arg;

    ucp_request_free(request);
    end_engine(req, umi_ep_status(status));
    if (req->u.flush.num_left == 0) {
        umi_request_complete(req, req->u.flush.status);
    }
}

static void
flush_engine(umx_request *req, const umi_engine *engine)
{
    ucp_request_param_t params;
    ucs_status_ptr_t    result;

    umi_post_params(&params, req);
    params.cb.send = on_engine_flushed;
    req->u.flush.num_left++;
    result = ucp_worker_flush_nbx(engine->ucp, &params);
    if (!UCS_PTR_IS_PTR(result)) {
        end_engine(req, umi_ep_status(UCS_PTR_STATUS(result)));
    }
}

static umx_status
flush_worker(umx_request *req)
{
    umx_worker *worker = req->worker;

    req->u.flush.num_left = 1; /* this call's own */
    req->u.flush.status   = UMX_OK;
    flush_engine(req, worker->engine);
    UMI_LIST_FOREACH(link, &worker->old_engines) {
        flush_engine(req, umi_container_of(link, umi_engine, link));
    }
    if (--req->u.flush.num_left == 0) {
        return req->u.flush.status;
    }
    worker->is_armed = false;
    req->is_posted   = true;
    umi_list_append(&worker->orphans, &req->link);
    return UMX_INPROGRESS;
}

umx_status
umi_flush_post(umx_request *req)
{
    ucp_request_param_t params;
    ucs_status_ptr_t    result;

    if (req->ep == NULL) {
        return flush_worker(req);
    }
    umi_post_params(&params, req);
    params.cb.send = on_flushed;
    result         = ucp_ep_flush_nbx(req->ep->handle, &params);
    return umi_post_result(req, result, &req->ep->inflight);
}

static const umi_request_ops flush_ops = {
    .name = "flush", .cancel = umi_post_cancel, .post = umi_flush_post};

static umx_request *
new_flush(umx_worker *worker, umi_ep *ep, const umx_op_params *params)
{
    umx_request *req = umi_request_new(worker, ep, &flush_ops, params);

    if (req != NULL) {
        req->buf = (umx_buffer){0};
    }
    return req;
}

/* Does it have to wait? Frees `req` on a failure. */
static umx_status
hold_flush(umx_request *req, umx_request **req_p)
{
    const umi_worker_hooks *hooks = req->worker->hooks;
    umx_status status = (hooks->hold_flush != NULL) ? hooks->hold_flush(req) :
                                                      UMX_OK;

    if (status == UMX_INPROGRESS) {
        *req_p = req;
    } else if (status != UMX_OK) {
        umi_request_free(req);
    }
    return status;
}

umx_status
umx_worker_flush(umx_worker *worker, const umx_op_params *params,
                 umx_request **req_p)
{
    umx_status   status = umi_worker_check(worker);
    umx_request *req;

    if (status != UMX_OK) {
        return status;
    }
    umi_worker_flush_gathered(worker);
    req = new_flush(worker, NULL, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = hold_flush(req, req_p);
    if (status != UMX_OK) {
        return status;
    }
    status = umi_flush_post(req);
    if (status != UMX_INPROGRESS) {
        umi_request_free(req);
        return status;
    }
    *req_p = req;
    return status;
}

umx_status
umx_ep_flush(umx_ep *ep, const umx_op_params *params, umx_request **req_p)
{
    umi_ep      *base = umi_ep_of(ep);
    umx_request *req;
    umx_status   status;

    if (base->worker == NULL) {
        return UMX_ERR_CLOSED;
    }
    status = umi_worker_check(base->worker);
    if (status != UMX_OK) {
        return status;
    }
    umi_ep_flush_gathered(base, false);
    /* While it closes there is something to flush still. */
    if (base->is_bound ? base->handle == NULL : base->end_status != UMX_OK) {
        return UMX_ERR_CLOSED;
    }
    req = new_flush(base->worker, base, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = hold_flush(req, req_p);
    return (status != UMX_OK) ? status : umi_ep_post(base, req, req_p);
}
