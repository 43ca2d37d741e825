/* SPDX-License-Identifier: BSD-3-Clause */
/* close.c: what ends a connection, or waits until it has caught up. */
#include "op/close.h"

#include "object/endpoint.h"
#include "worker/worker.h"

static umx_status
flush_post(RequestObject *req, const umx_op_params *params)
{
    return (req->endpoint != NULL) ?
               umx_ep_flush(req->endpoint->umx, params, &req->op) :
               umx_worker_flush(req->worker->umx, params, &req->op);
}

static umx_status
flush_memory_post(RequestObject *req, const umx_op_params *params)
{
    umx_op_params memory = *params;

    memory.flags = UMX_OP_FLAG_MEMORY;
    if (memory.field_mask & UMX_OP_FIELD_FLAGS) {
        memory.flags |= params->flags;
    }
    memory.field_mask |= UMX_OP_FIELD_FLAGS;
    return umx_ep_flush(req->endpoint->umx, &memory, &req->op);
}

static umx_status
drain_post(RequestObject *req, const umx_op_params *params)
{
    return umx_ep_drain(req->endpoint->umx, req->endpoint->low, params,
                        &req->op);
}

static umx_status
close_post(RequestObject *req, const umx_op_params *params)
{
    return umx_ep_close(req->endpoint->umx, req->ns, params, &req->op);
}

static umx_status
close_listener_post(RequestObject *req, const umx_op_params *params)
{
    return umx_ep_close_listener(req->endpoint->umx, params, &req->op);
}

static PyObject *
close_error(RequestObject *req)
{
    umx_ep   *ep  = req->endpoint->umx;
    PyObject *exc = request_status_error(req, req->status, &req->info, 0);

    if (exc != NULL && ep != NULL &&
        request_set_size(exc, NAME(req->worker->st, unsent_bytes),
                         umx_ep_unsent_bytes(ep)) < 0) {
        Py_CLEAR(exc);
    }
    return exc;
}

const op_type op_flush = {
    .name  = "flush",
    .flags = 0,
    .post  = flush_post,
};

const op_type op_flush_memory = {
    .name  = "flush",
    .flags = 0,
    .post  = flush_memory_post,
};

const op_type op_drain = {
    .name  = "drain",
    .flags = 0,
    .post  = drain_post,
};

const op_type op_close = {
    .name  = "close",
    .flags = OP_END,
    .post  = close_post,
    .error = close_error,
};

const op_type op_close_listener = {
    .name  = "close_listener",
    .flags = 0,
    .post  = close_listener_post,
};

/* ---- all connections of a worker ---------------------------------------
 */

/* The tail of close_all(): on worker->closers, which has a reference. */
typedef struct TAIL closer_tail {
    event event;
} closer_tail;

/* event_type.settle(): nothing is closing any more. */
static void
settle_closer(event *self)
{
    RequestObject *req = EVENT_OF(self, RequestObject, tail);

    if (!request_is_settled(req)) {
        request_settle(req, UMX_OK);
    }
    Py_DECREF(req);
}

static const event_type closer_event = {settle_closer, NULL};

static const op_type op_close_all = {
    .name  = "close_all",
    .flags = OP_END,
};

const char worker_close_all_doc[] =
    "_close_all($self, timeout, /)\n--\n\n"
    "Wait, `timeout` seconds at most, until no close is under way.";

PyObject *
worker_close_all(PyObject *op, PyObject *timeout)
{
    WorkerObject  *self = (WorkerObject *)op;
    RequestObject *req;
    PyObject      *expire, *handle = NULL;

    req = request_new(self, NULL, &op_close_all);
    if (req == NULL) {
        return NULL;
    }
    TAIL_OF(req, closer_tail)->event.type = &closer_event;
    if (worker_check(self) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    if (umx_worker_num_closing(self->umx) == 0) {
        request_settle(req, UMX_OK);
        return (PyObject *)req;
    }
    if (self->loop != NULL) {
        expire = PyObject_GetAttrString((PyObject *)req, "_expire");
        if (expire != NULL) {
            handle = PyObject_CallMethodObjArgs(
                self->loop, NAME(self->st, call_later), timeout, expire, NULL);
            Py_DECREF(expire);
        }
        if (handle == NULL) {
            Py_DECREF(req);
            return NULL;
        }
        Py_DECREF(handle);
        if (self->umx == NULL) { /* the loop's code, or the timeout's, did it */
            request_settle(req, UMX_OK);
            return (PyObject *)req;
        }
        worker_schedule_drain(self);
    }
    Py_INCREF(req); /* for settle_closer() */
    event_append(&self->closers, &TAIL_OF(req, closer_tail)->event);
    return (PyObject *)req;
}
