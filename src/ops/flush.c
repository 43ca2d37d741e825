#include "ops/flush.h"

#include "ops/post.h"

static const umi_request_ops flush_ops = {.name = "flush"};

static void
on_flushed(void *request, ucs_status_t status, void *arg)
{
    ucp_request_free(request);
    umi_request_complete(arg, umi_ep_status(status));
}

umx_status
umi_flush(umx_request *req)
{
    ucp_request_param_t params;
    ucs_status_ptr_t    result;

    umi_post_params(&params, req);
    params.cb.send = on_flushed;
    if (req->ep != NULL) {
        result = ucp_ep_flush_nbx(req->ep->handle, &params);
    } else {
        result = ucp_worker_flush_nbx(req->worker->ucp, &params);
    }
    return umi_post_result(req, result,
                           req->ep != NULL ? &req->ep->inflight :
                                             &req->worker->orphans);
}

static umx_status
flush(umx_worker *worker, umi_ep *ep, const umx_op_params *params,
      umx_request **req_p)
{
    umx_request *req = umi_request_new(worker, ep, &flush_ops, params);
    umx_status   status;

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->buf = (umx_buffer){0};
    status   = umi_flush(req);
    if (status != UMX_INPROGRESS) {
        umi_request_free(req);
        return status;
    }
    *req_p = req;
    return status;
}

umx_status
umx_worker_flush(umx_worker *worker, const umx_op_params *params,
                 umx_request **req_p)
{
    umx_status status = umi_worker_check(worker);

    return (status != UMX_OK) ? status : flush(worker, NULL, params, req_p);
}

umx_status
umx_ep_flush(umx_ep *ep, const umx_op_params *params, umx_request **req_p)
{
    umi_ep    *base   = umi_ep_of(ep);
    umx_status status = umi_worker_check(base->worker);

    if (status != UMX_OK) {
        return status;
    }
    if (base->handle == NULL) {
        return UMX_ERR_CLOSED;
    }
    return flush(base->worker, base, params, req_p);
}
