/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* ucx.c: operations that are UCX's own put and get.
 *
 *   MOVING --> FLUSHING --in the memory--> SIGNALLING --> ENDING --> done
 *
 * A put is flushed: UCX calls it done when the buffer may be reused. A signal
 * follows its flush; ucp_worker_fence() would do, but waits inside the call for
 * the peer to make progress as soon as there are two lanes. UCX's atomic
 * operations are never used: on endpoints with error handling they fail, and
 * may take the endpoint with them. A signal that is stored is a put, one that
 * is added is executed by the owner.
 *
 * The owner does not see what UCX writes. Somebody may wait for it there, so an
 * empty put follows, which the owner executes, one at a time for each key. */
/* clang-format on */
#include <umx/buffer.h>

#include "endpoint/endpoint.h"
#include "ops/flush.h"
#include "ops/rma.h"
#include "rma/rma.h"
#include "util/count.h"
#include "worker/observe.h"

enum {
    STAGE_MOVING,
    STAGE_FLUSHING,
    STAGE_SIGNALLING,
    STAGE_ENDING
};

/* Count an operation as out of UCX's hands. */
static void
leave_ucx(umx_request *req)
{
    umx_ep *ep = umi_endpoint_of(req->ep);

    if (umi_rma_op_of(req)->is_in_ucx) {
        umi_rma_op_of(req)->is_in_ucx = false;
        UMI_DECREMENT(ep->rma->num_ucx);
        umi_initiator_ucx_done(ep);
    }
}

static umx_status
flush(umx_request *req)
{
    umi_request_restart(req);
    return (req->ep->handle == NULL) ? UMX_ERR_CLOSED : umi_flush_post(req);
}

static umx_status
signal_owner(umx_request *req)
{
    umi_request_restart(req);
    umi_rma_op_of(req)->num_parts = 1;
    umi_initiator_late_signal(req, umi_rma_op_of(req)->signal_rkey,
                              &umi_rma_op_of(req)->signal);
    leave_ucx(req);
    umi_initiator_end(req);
    return UMX_INPROGRESS;
}

static umx_status
put_signal(umx_request *req)
{
    const umx_rkey *rkey   = umi_rma_op_of(req)->signal_rkey;
    umx_atomic     *signal = &umi_rma_op_of(req)->signal;
    umx_buffer      value  = umx_host_buffer(&signal->value, signal->size);
    umx_status      status;

    if (req->ep->handle == NULL) {
        return UMX_ERR_CLOSED;
    }
    umi_request_restart(req);
    status = umi_post_rma(req, rkey->ucp, rkey->key.address + signal->offset,
                          &value, true);
    if (status == UMX_INPROGRESS) {
        umi_list_append(&req->ep->inflight, &req->node);
    }
    return status;
}

static bool
is_signal_put(const umx_request *req)
{
    return umi_rma_op_of(req)->has_signal &&
           umi_rma_op_of(req)->signal.op == UMX_ATOMIC_SWAP &&
           umi_rma_op_of(req)->signal_rkey->ucp != NULL;
}

/* Go on after a stage that went well. */
static umx_status
next_stage(umx_request *req)
{
    switch (umi_rma_op_of(req)->stage++) {
    case STAGE_MOVING:
        return umi_rma_op_of(req)->is_write ? flush(req) : UMX_OK;
    case STAGE_FLUSHING:
        if (is_signal_put(req)) {
            return put_signal(req);
        }
        return umi_rma_op_of(req)->has_signal ? signal_owner(req) : UMX_OK;
    case STAGE_SIGNALLING:
        return is_signal_put(req) ? flush(req) : UMX_OK;
    }
    return UMX_OK;
}

/* The stage is over: go on. UMX_INPROGRESS: `req` completes again. */
static umx_status
advance(umx_request *req, umx_status status)
{
    while (status == UMX_OK && umi_rma_op_of(req)->stage != STAGE_ENDING) {
        status = next_stage(req);
    }
    return status;
}

static void on_told(umx_request *req, umx_status status, void *arg);

/* Have the owner look who waits for the memory. */
static umx_status
tell_owner(umx_rkey *rkey)
{
    static const umx_rma_item nothing;

    umx_op_params params = {.flags      = UMI_OP_FLAG_INTERNAL,
                            .field_mask = UMX_OP_FIELD_FLAGS |
                                          UMX_OP_FIELD_ON_DONE,
                            .on_done = on_told,
                            .arg     = rkey};
    umx_request  *req;

    if (rkey->is_telling) {
        rkey->is_tell_due = true;
        return UMX_OK;
    }
    req = umi_initiator_begin(rkey, &params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    rkey->is_telling  = true;
    rkey->is_tell_due = false;
    umi_rkey_hold(rkey);
    umi_initiator_transfer(req, rkey, &nothing, true);
    umi_initiator_end(req);
    return UMX_OK;
}

static void
on_told(umx_request *req, umx_status status, void *arg)
{
    umx_rkey *rkey = arg;

    (void)req;
    rkey->is_telling = false;
    if (status == UMX_OK && rkey->is_tell_due && tell_owner(rkey) != UMX_OK) {
        umi_endpoint_protocol_error(umi_endpoint_of(rkey->ep),
                                    "out of memory for a request");
    }
    umi_rkey_put(rkey);
}

/* What UCX has written, the owner is told of. */
static umx_status
tell_of(const umx_request *req)
{
    umi_rma_op *op     = umi_rma_op_of(req);
    umx_status  status = op->is_write ? tell_owner(op->rkey) : UMX_OK;

    if (status == UMX_OK && is_signal_put(req) && op->signal_rkey != op->rkey) {
        status = tell_owner(op->signal_rkey);
    }
    return status;
}

static umx_status
end(umx_request *req, umx_status status)
{
    leave_ucx(req);
    if (status == UMX_OK) {
        status = tell_of(req);
    }
    if (umi_rma_op_of(req)->signal_rkey != NULL) {
        umi_rkey_put(umi_rma_op_of(req)->signal_rkey);
    }
    umi_rkey_put(umi_rma_op_of(req)->rkey);
    return (status == UMX_OK) ?
               UMX_OK :
               umi_endpoint_end_status(umi_endpoint_of(req->ep), status);
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

/* UCX has the memory itself until the bytes have moved. What goes on then comes
 * before what is posted later. */
static void
cancel(umx_request *req)
{
    umi_rma *rma = umi_endpoint_of(req->ep)->rma;

    if (umi_rma_op_of(req)->stage == STAGE_MOVING) {
        umi_endpoint_defer(umi_endpoint_of(req->ep));
    } else {
        rma->is_fence_due = true;
        rma->is_fenced    = true;
        umi_request_detach(req);
    }
}

static void
describe(const umx_request *req, umx_trace_event *event)
{
    event->name = umi_rma_op_of(req)->is_write ? "put" : "get";
}

static const umi_request_ops ucx_ops = {
    .name = "rma", .finish = finish, .cancel = cancel, .describe = describe};

static umx_request *
new_request(umx_rkey *rkey, bool is_write, const umx_op_params *params)
{
    umx_ep      *ep = umi_endpoint_of(rkey->ep);
    umx_request *req;

    if (umi_rma_get_state(ep) == NULL) {
        return NULL;
    }
    req = umi_request_new(ep->base.worker, &ep->base, &ucx_ops, params);
    if (req == NULL) {
        return NULL;
    }
    memset(umi_rma_op_of(req), 0, sizeof(*umi_rma_op_of(req)));
    req->buf                      = (umx_buffer){0};
    req->info                     = (umx_recv_info){0};
    umi_rma_op_of(req)->num_parts = 1; /* post() takes it off */
    umi_rma_op_of(req)->is_write  = is_write;
    umi_rma_op_of(req)->is_in_ucx = true;
    umi_rma_op_of(req)->rkey      = rkey;
    umi_rkey_hold(rkey);
    ep->rma->num_ucx++;
    return req;
}

static void
move(umx_request *req, const umx_rma_item *item)
{
    umx_rkey  *rkey = umi_rma_op_of(req)->rkey;
    umx_buffer buf  = item->buf;
    umx_status status;

    if (UMI_IS_OBSERVED()) {
        umx_request_describe(req, NULL, item->buf.len, 0, -1);
    }
    if (item->buf.len == 0 || umi_rma_op_of(req)->status != UMX_OK) {
        return;
    }
    umi_request_hold_part(req, &buf);
    status = umi_post_rma(req, rkey->ucp, rkey->key.address + item->offset,
                          &buf, umi_rma_op_of(req)->is_write);
    if (status < 0) {
        umi_rma_op_of(req)->status = status;
    }
}

/* End posting: all parts are posted. */
static umx_status
post(umx_request *req, umx_request **req_p)
{
    umx_status status;

    if (UMI_DECREMENT(umi_rma_op_of(req)->num_parts) != 0) {
        umi_request_posted(req);
        umi_list_append(&req->ep->inflight, &req->node);
        *req_p = req;
        return UMX_INPROGRESS;
    }
    status = advance(req, umi_rma_op_of(req)->status);
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
                   umx_rkey *signal_rkey, const umx_atomic *signal,
                   const umx_op_params *params, umx_request **req_p)
{
    umx_request *req = new_request(rkey, true, params);

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_rma_op_of(req)->signal      = *signal;
    umi_rma_op_of(req)->has_signal  = true;
    umi_rma_op_of(req)->signal_rkey = signal_rkey;
    umi_rkey_hold(signal_rkey);
    move(req, item);
    return post(req, req_p);
}
