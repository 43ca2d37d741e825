/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/flush.h"

#include "ops/post.h"
#include "util/count.h"
#include "worker/link.h"

/* The flush of a worker. */
typedef struct worker_flush {
    unsigned   num_left; /* endpoints */
    umx_status status;   /* of posting */
} worker_flush;

UMI_REQUEST_TAIL(worker_flush, flush_of);

/* End the flush of an endpoint. */
static void
on_flushed(void *request, ucs_status_t status, void *arg)
{
    ucp_request_free(request);
    umi_link_end_flush(umi_ep_flush_of(arg)->held);
    umi_ep_flush_of(arg)->held = NULL;
    umi_request_complete(arg, umi_ep_status(status));
}

/* ---- a whole worker ------------------------------------------------------
 */

/* A flush of one endpoint is over, or is not waited for any longer. What fails
 * there is told by the endpoint. */
static void
end_part(umx_request *part)
{
    umx_request *req = part->arg;

    if (req != NULL) {
        part->arg = NULL;
        if (UMI_DECREMENT(flush_of(req)->num_left) == 0) {
            umi_request_complete(req, req->worker->is_ending ?
                                          UMX_ERR_CANCELED :
                                          flush_of(req)->status);
        }
    }
}

static void
on_part_lost(umx_request *part, umx_status status, void *arg)
{
    (void)status;
    (void)arg;
    end_part(part);
}

static bool
part_finish(umx_request *part)
{
    end_part(part);
    umi_request_free(part);
    return false;
}

static const umi_request_ops part_ops = {.name   = "flush_part",
                                         .finish = part_finish};

static umx_status
post_part(umx_request *req, umi_ep_base *ep)
{
    umx_request *part = umi_request_new(req->worker, ep, &part_ops, NULL);

    if (part == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    part->buf     = (umx_buffer){0};
    part->on_lost = on_part_lost;
    part->arg     = req;
    if (umi_flush_post(part) == UMX_INPROGRESS) {
        flush_of(req)->num_left++;
    } else {
        umi_request_free(part);
    }
    return UMX_OK;
}

/* Endpoint by endpoint: UCX's own flush of a worker waits for those that are
 * closed, too, and with one whose peer has died with a full queue it never
 * ends. Those that share one of UCX's, too: any of them may end before the
 * others. */
static umx_status
flush_worker(umx_request *req)
{
    flush_of(req)->num_left = 1; /* this call's own */
    flush_of(req)->status   = UMX_OK;
    UMI_LIST_FOREACH(node, &req->worker->eps) {
        umi_ep_base *ep = umi_container_of(node, umi_ep_base, node);

        if (ep->handle != NULL && flush_of(req)->status == UMX_OK) {
            flush_of(req)->status = post_part(req, ep);
        }
    }
    if (UMI_DECREMENT(flush_of(req)->num_left) == 0) {
        return flush_of(req)->status;
    }
    umi_request_posted(req);
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

    umi_ep_flush_of(req)->held = UCS_PTR_IS_PTR(result) ?
                                     umi_link_begin_flush(req->ep->link) :
                                     NULL;
    return umi_post_result(req, result, &req->ep->inflight);
}

/* UCX does not take a flush back; but nobody has lent anything to it. */
static void
cancel(umx_request *req)
{
    if (!umi_request_is_posted(req)) {
        umi_request_cancel_queued(req);
    } else {
        umi_request_detach(req);
    }
}

static const umi_request_ops flush_ops = {
    .name = "flush", .cancel = cancel, .post = umi_flush_post};

static umx_request *
new_flush(umx_worker *worker, umi_ep_base *ep, const umx_op_params *params)
{
    umx_request *req = umi_request_new(worker, ep, &flush_ops, params);

    if (req != NULL) {
        req->buf = (umx_buffer){0};
    }
    return req;
}

static bool
has_messages(const umx_op_params *params)
{
    return params == NULL || !(params->field_mask & UMX_OP_FIELD_FLAGS) ||
           !(params->flags & UMX_OP_FLAG_MEMORY);
}

/* Find out whether the flush has to wait. Frees `req` on a failure. */
static umx_status
hold_flush(umx_request *req, const umx_op_params *params, umx_request **req_p)
{
    const umi_worker_hooks *hooks  = req->worker->hooks;
    umx_status              status = UMX_OK;

    if (hooks->hold_flush != NULL) {
        status = hooks->hold_flush(req, has_messages(params));
    }

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
    UMI_GUARD(worker);
    umx_status   status = umi_worker_check_begin(worker);
    umx_request *req;

    if (status != UMX_OK) {
        return status;
    }
    umi_worker_flush_gathered(worker);
    req = new_flush(worker, NULL, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = hold_flush(req, params, req_p);
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
    UMI_GUARD_IF_ANY(umi_ep_base_of(ep)->worker);
    umi_ep_base *base = umi_ep_base_of(ep);
    umx_request *req;
    umx_status   status;

    if (base->worker == NULL) {
        return UMX_ERR_CLOSED;
    }
    status = umi_worker_check(base->worker);
    if (status != UMX_OK) {
        return status;
    }
    umi_ep_base_flush_gathered(base, false);
    /* While an endpoint closes there is still something to flush. */
    if (base->is_bound ? base->handle == NULL : base->end_status != UMX_OK) {
        return UMX_ERR_CLOSED;
    }
    req = new_flush(base->worker, base, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = hold_flush(req, params, req_p);
    return (status != UMX_OK) ? status : umi_ep_base_post(base, req, req_p);
}
