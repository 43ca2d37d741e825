/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about requests: see base/event.h. */
#include "request/event.h"

#include "request/internal.h"
#include "worker/worker.h"

/* What an operation ends with that succeeds if its peer or worker has gone. */
static inline umx_status
status_of_end(umx_status status)
{
    switch (status) {
    case UMX_ERR_CONNECTION_RESET:
    case UMX_ERR_ENDPOINT_TIMEOUT:
    case UMX_ERR_WORKER_GONE:
        return UMX_OK;
    default:
        return status;
    }
}

void
event_mark_done(RequestObject *req, umx_status status)
{
    unsigned flags = req->type->flags;

    if (UNLIKELY(flags & OP_END)) {
        status = status_of_end(status);
    }

    if (UNLIKELY(status == UMX_ERR_WITHDRAWN) && (flags & OP_FETCH) != 0 &&
        req->state == REQUEST_PENDING) {
        req->is_again = true; /* the next message is as good */
        return;
    }
    if (UNLIKELY(req->state == REQUEST_CANCELLING)) {
        request_set_state(req, REQUEST_CANCELLED);
    }
    if (UNLIKELY(request_is_settled(req))) { /* cancelled, or lost */
        req->is_landed = request_has_bytes(req, status);
        return;
    }
    if (UNLIKELY(flags & OP_EXACT) && status == UMX_OK &&
        req->info.length < req->hold.buf.len) {
        status = UMX_ERR_LENGTH_MISMATCH; /* UCX takes any that fits */
    }
    req->status = status;
    request_set_state(req, REQUEST_DONE);
    req->can_unrecv = (flags & OP_UNRECV) != 0 &&
                      request_has_bytes(req, status) &&
                      request_holds_bytes(req);
}

static NOINLINE void
mark_other(RequestObject *req, umx_request *op, umx_status status)
{
    if (req->type->flags & (OP_SEND | OP_RECV)) {
        req->info = *umx_request_info(op);
    }
    if (req->type->note != NULL) {
        req->type->note(req, op, status);
    }
    /* What has a second step is settled by its first look at the message. */
    if (!request_has_second_step(req, status)) {
        event_mark_done(req, status);
    }
}

void
event_tell_request(RequestObject *req)
{
    if (req->is_held) { /* else nothing but its dealloc has moved the event */
        event_unlink(&req->event);
    }
    event_tell(req->worker, &req->event);
}

/* Is there nothing to do until somebody asks for the result? The message is in
 * the buffer, which stays held as the message may go back. Threads that share a
 * worker are told of every end. */
static inline bool
waits_for_await(const RequestObject *req)
{
    return req->can_unrecv && req->has_odd_end == 0 && req->num_pending == 0 &&
           !request_has_callbacks(req) && !event_is_listed(&req->event) &&
           !req->worker->is_shared;
}

static void
on_done(umx_request *op, umx_status status, void *arg)
{
    RequestObject *req = arg;

    req->op      = NULL;
    req->is_told = true;
    if (req->type->flags & OP_PLAIN) {
        req->info = *umx_request_info(op);
        event_mark_done(req, status);
        if (LIKELY(waits_for_await(req))) {
            return;
        }
    } else {
        mark_other(req, op, status);
    }
    event_tell_request(req);
}

void
event_mark_lost(RequestObject *req, umx_status status)
{
    if (!request_is_settled(req)) {
        req->status = (req->type->flags & OP_END) ? status_of_end(status) :
                                                    status;
        request_set_state(req, (req->state == REQUEST_CANCELLING) ?
                                   REQUEST_CANCELLED :
                                   REQUEST_DONE);
        req->is_told = true;
        event_tell_request(req);
    }
}

/* End the awaitable; on_done() ends the operation and the loan of the buffer.
 */
static void
on_lost(umx_request *op, umx_status status, void *arg)
{
    (void)op;
    event_mark_lost(arg, status);
}

umx_op_params
event_op_params(RequestObject *req)
{
    return (umx_op_params){.field_mask = UMX_OP_FIELD_ON_DONE |
                                         UMX_OP_FIELD_ON_LOST,
                           .on_done = on_done,
                           .arg     = req,
                           .on_lost = on_lost};
}

static void
on_submitted_request(umx_worker *umx, umx_status status, void *arg)
{
    RequestObject *req = arg;

    (void)umx;
    (void)status;
    req->is_submitted = true;
    event_unlink(&req->event); /* what it waited for on a list is over */
    event_tell_request(req);
}

bool
event_submit_request(WorkerObject *worker, RequestObject *req)
{
    return event_submit(worker, on_submitted_request, req);
}
