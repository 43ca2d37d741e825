/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx.c: operations that are UCX's own put and get.
 *
 *   MOVING --> FLUSHING --in the memory--> SIGNALLING --> ENDING --> done
 *
 * A put is flushed: UCX calls it done when the buffer may be reused. A signal
 * follows its flush; ucp_worker_fence() would do, but waits inside the call for
 * the peer to make progress as soon as there are two lanes. UCX's atomic
 * operations are never used: on endpoints with error handling they fail, and
 * may take the endpoint with them. A signal that is stored is a put, one that
 * is added is executed by the owner. */
#include <umx/buffer.h>

#include "endpoint/endpoint.h"
#include "ops/flush.h"
#include "ops/rma.h"
#include "rma/rma.h"

enum {
    STAGE_MOVING,
    STAGE_FLUSHING,
    STAGE_SIGNALLING,
    STAGE_ENDING
};

/* UCX has nothing more to do for it. */
static void
leave_ucx(umx_request *req)
{
    umx_ep *ep = umi_conn_of(req->ep);

    if (req->u.rma.is_in_ucx) {
        req->u.rma.is_in_ucx = false;
        ep->rma->num_ucx--;
        umi_rma_ucx_done(ep);
    }
}

static umx_status
flush(umx_request *req)
{
    req->status = UMX_INPROGRESS;
    return (req->ep->handle == NULL) ? UMX_ERR_CLOSED : umi_flush_post(req);
}

static umx_status
signal_owner(umx_request *req)
{
    req->status          = UMX_INPROGRESS;
    req->u.rma.num_parts = 1;
    umi_rma_ask_late_signal(req, req->u.rma.rkey, &req->u.rma.signal);
    leave_ucx(req);
    umi_rma_ask_end(req);
    return UMX_INPROGRESS;
}

static umx_status
put_signal(umx_request *req)
{
    const umx_rkey *rkey   = req->u.rma.rkey;
    umx_atomic     *signal = &req->u.rma.signal;
    umx_buffer      value  = umx_host_buffer(&signal->value, signal->size);
    umx_status      status;

    if (req->ep->handle == NULL) {
        return UMX_ERR_CLOSED;
    }
    req->status = UMX_INPROGRESS;
    status      = umi_ucx_rma_post(req, rkey->ucp,
                                   rkey->key.address + signal->offset, &value, true);
    if (status == UMX_INPROGRESS) {
        umi_list_append(&req->ep->inflight, &req->link);
    }
    return status;
}

static bool
is_signal_put(const umx_request *req)
{
    return req->u.rma.has_signal && req->u.rma.signal.op == UMX_ATOMIC_SWAP;
}

/* What comes after a stage that went well. */
static umx_status
next_stage(umx_request *req)
{
    switch (req->u.rma.stage++) {
    case STAGE_MOVING:
        return req->u.rma.is_write ? flush(req) : UMX_OK;
    case STAGE_FLUSHING:
        if (is_signal_put(req)) {
            return put_signal(req);
        }
        return req->u.rma.has_signal ? signal_owner(req) : UMX_OK;
    case STAGE_SIGNALLING:
        return is_signal_put(req) ? flush(req) : UMX_OK;
    }
    return UMX_OK;
}

/* The stage is over: go on. UMX_INPROGRESS: `req` completes again. */
static umx_status
advance(umx_request *req, umx_status status)
{
    while (status == UMX_OK && req->u.rma.stage != STAGE_ENDING) {
        status = next_stage(req);
    }
    return status;
}

static umx_status
end(umx_request *req, umx_status status)
{
    leave_ucx(req);
    umi_rkey_put(req->u.rma.rkey);
    return (status == UMX_OK) ?
               UMX_OK :
               umi_conn_end_status(umi_conn_of(req->ep), status);
}

static bool
finish(umx_request *req)
{
    umx_status status = advance(req, req->status);

    if (status == UMX_INPROGRESS) {
        return false;
    }
    req->status = end(req, status);
    return true;
}

static const umi_request_ops ucx_ops = {.name = "rma", .finish = finish};

static umx_request *
new_request(umx_rkey *rkey, bool is_write, const umx_op_params *params)
{
    umx_ep      *ep = umi_conn_of(rkey->ep);
    umx_request *req;

    if (umi_rma_get_state(ep) == NULL) {
        return NULL;
    }
    req = umi_request_new(ep->base.worker, &ep->base, &ucx_ops, params);
    if (req == NULL) {
        return NULL;
    }
    memset(&req->u.rma, 0, sizeof(req->u.rma));
    req->buf             = (umx_buffer){0};
    req->info            = (umx_recv_info){0};
    req->u.rma.num_parts = 1; /* post() takes it off */
    req->u.rma.is_write  = is_write;
    req->u.rma.is_in_ucx = true;
    req->u.rma.rkey      = rkey;
    umi_rkey_hold(rkey);
    ep->rma->num_ucx++;
    return req;
}

static void
move(umx_request *req, const umx_rma_item *item)
{
    umx_rkey  *rkey = req->u.rma.rkey;
    umx_buffer buf  = item->buf;
    umx_status status;

    if (item->buf.len == 0 || req->u.rma.status != UMX_OK) {
        return;
    }
    umi_request_borrow_part(req, &buf);
    status = umi_ucx_rma_post(req, rkey->ucp, rkey->key.address + item->offset,
                              &buf, req->u.rma.is_write);
    if (status < 0) {
        req->u.rma.status = status;
    }
}

/* All parts are posted. */
static umx_status
post(umx_request *req, umx_request **req_p)
{
    umx_status status;

    if (--req->u.rma.num_parts != 0) {
        req->is_posted = true;
        umi_list_append(&req->ep->inflight, &req->link);
        *req_p = req;
        return UMX_INPROGRESS;
    }
    status = advance(req, req->u.rma.status);
    if (status == UMX_INPROGRESS) {
        *req_p = req;
        return status;
    }
    status = end(req, status);
    umi_request_free(req);
    return status;
}

umx_status
umi_rma_ucx_transfer(umx_rkey *rkey, const umx_rma_item *items, size_t count,
                     bool is_write, const umx_op_params *params,
                     umx_request **req_p)
{
    umx_request *req = new_request(rkey, is_write, params);
    umx_rma_item merged;

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < count;) {
        i = umi_rma_merge(items, count, i, &merged);
        move(req, &merged);
    }
    return post(req, req_p);
}

umx_status
umi_rma_ucx_signal(umx_rkey *rkey, const umx_rma_item *item,
                   const umx_atomic *signal, const umx_op_params *params,
                   umx_request **req_p)
{
    umx_request *req = new_request(rkey, true, params);

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->u.rma.signal     = *signal;
    req->u.rma.has_signal = true;
    move(req, item);
    return post(req, req_p);
}
