/* SPDX-License-Identifier: BSD-3-Clause */
/* posted.c: awaitables of operations that C code of the program posts. The
 * operations are counted as those of any request, which cancels them and holds
 * the program's object until all have ended. */
#include "capi/posted.h"

#include "capi/event.h"
#include "capi/objects.h"
#include "object/endpoint.h"
#include "worker/worker.h"

/* ---- the operation -------------------------------------------------------
 */

static PyObject *
posted_error(RequestObject *req)
{
    const posted *all = posted_of(req);

    if (all != NULL && all->comm != NULL &&
        !request_is_length_error(req->status)) {
        return comm_error(all->comm, req->status, req->type->name, -1);
    }
    return request_status_error(req, req->status, &req->info, 0);
}

static void
posted_describe(const RequestObject *req, umx_status status, size_t capacity,
                char *text, size_t size)
{
    (void)capacity;
    if (!request_is_length_error(status)) {
        return;
    }
    if (req->info.length != 0) {
        snprintf(text, size,
                 "length mismatch: the message has %zu bytes, and the buffer "
                 "another length",
                 req->info.length);
    } else {
        snprintf(text, size, "the lengths of message and buffer differ");
    }
}

static bool
posted_cancel(RequestObject *req, cancel_fn *cancel)
{
    const posted *all     = posted_of(req);
    bool          is_free = !all->is_short;

    for (size_t i = all->ops.first; i < all->ops.count; i++) {
        umx_request *op = all->ops.list[i].op;

        if (op != NULL) {
            is_free &= (cancel(op) == UMX_OK);
        }
    }
    return is_free;
}

static bool
posted_is_open(const RequestObject *req)
{
    const posted *all = posted_of(req);

    return all != NULL && all->is_open;
}

static void
posted_release(RequestObject *req)
{
    Py_CLEAR(TAIL_OF(req, posted_tail)->keep);
}

static void
posted_clear(RequestObject *req)
{
    posted *all = posted_of(req);

    if (all == NULL) {
        return;
    }
    TAIL_OF(req, posted_tail)->all = NULL;
    ops_free(&all->ops);
    Py_XDECREF(all->comm);
    PyMem_Free(all);
}

static int
posted_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    const posted_tail *tail = TAIL_OF(req, posted_tail);

    if (tail->all != NULL) {
        Py_VISIT(tail->all->comm);
    }
    if (!request_is_in_flight(req)) {
        Py_VISIT(tail->keep);
    }
    return 0;
}

static const op_type op_posted = {
    .name     = "request_new",
    .flags    = 0,
    .error    = posted_error,
    .describe = posted_describe,
    .cancel   = posted_cancel,
    .is_open  = posted_is_open,
    .release  = posted_release,
    .clear    = posted_clear,
    .traverse = posted_traverse,
};

/* ---- posting -------------------------------------------------------------
 */

/* Make the request of an object whose operations will be posted. NULL with an
 * exception. */
static RequestObject *
new_request_of(PyObject *owner)
{
    mod_state *st = objects_state(owner);

    if (st != NULL && PyObject_TypeCheck(owner, st->worker_type)) {
        return (worker_check((WorkerObject *)owner) < 0) ?
                   NULL :
                   request_new((WorkerObject *)owner, NULL, &op_posted);
    }
    if (st != NULL && PyObject_TypeCheck(owner, st->endpoint_type)) {
        return (objects_endpoint(owner) == NULL) ?
                   NULL :
                   request_new(((EndpointObject *)owner)->worker,
                               (EndpointObject *)owner, &op_posted);
    }
    if (st != NULL && PyObject_TypeCheck(owner, st->comm_type)) {
        return (objects_communicator(owner) == NULL) ?
                   NULL :
                   request_new(((CommObject *)owner)->worker, NULL, &op_posted);
    }
    objects_refuse(owner, "a Worker, an Endpoint or a Communicator");
    return NULL;
}

PyObject *
posted_new(PyObject *owner, PyObject *keep, umx_op_params *params_p)
{
    RequestObject *req = new_request_of(owner);
    posted        *all;

    if (req == NULL) {
        return NULL;
    }
    all = PyMem_Calloc(1, sizeof(*all));
    if (all == NULL) {
        Py_DECREF(req);
        return PyErr_NoMemory();
    }
    ops_init(&all->ops);
    all->is_open = true;
    if (PyObject_TypeCheck(owner, req->worker->st->comm_type)) {
        all->comm = (CommObject *)Py_NewRef(owner);
    }
    TAIL_OF(req, posted_tail)->all  = all;
    TAIL_OF(req, posted_tail)->keep = Py_XNewRef(keep);
    *params_p                       = event_posted_params(req);
    return (PyObject *)req;
}

/* Count an operation that is in progress. NULL: it cannot be cancelled. */
static posted_op *
note_op(RequestObject *req, umx_request *op)
{
    posted    *all   = posted_of(req);
    posted_op *entry = (op != NULL) ? ops_add(&all->ops, op) : NULL;

    req->num_pending++;
    all->is_unnamed |= (op == NULL);
    all->is_short |= (entry == NULL);
    return entry;
}

/* Abandon an operation that was posted after the last one, when `keep` may be
 * gone. It is counted, and so holds the request; its end is not the await's. */
static void
abandon_late(RequestObject *req, umx_status status, umx_request *op)
{
    posted_op *entry;

    if (status != UMX_INPROGRESS || op == NULL) {
        return;
    }
    entry = note_op(req, op);
    if (entry != NULL) {
        entry->is_late = true;
    }
    if (!req->is_orphan) {
        req->is_orphan = true;
        Py_INCREF(req);
    }
    if (umx_request_abandon(op) != UMX_OK && req->endpoint != NULL &&
        req->endpoint->umx != NULL) {
        umx_ep_abort(req->endpoint->umx);
    }
    worker_schedule_drain(req->worker);
}

/* The GIL is not needed while it is open: nobody else has the request yet. */
void
posted_add(PyObject *request, umx_status status, umx_request *op)
{
    RequestObject *req = (RequestObject *)request;
    posted        *all = posted_of(req);

    assert(req->type == &op_posted);
    if (UNLIKELY(!all->is_open)) {
        PyGILState_STATE gil = PyGILState_Ensure();

        abandon_late(req, status, op); /* request_posted() raises */
        PyGILState_Release(gil);
    } else if (status == UMX_INPROGRESS) {
        (void)note_op(req, op);
    } else if (all->status == UMX_OK) {
        all->status = status;
    }
}

/* Get a request that request_new() has made. NULL with an exception. */
static RequestObject *
check_ours(PyObject *request)
{
    mod_state *st = objects_state(request);

    if (st == NULL || !request_check(st, request) ||
        ((RequestObject *)request)->type != &op_posted) {
        objects_refuse(request, "a Request that request_new() has made");
        return NULL;
    }
    return (RequestObject *)request;
}

/* Is the request not posted yet? Else raise RuntimeError. */
static bool
check_open(const RequestObject *req)
{
    if (!posted_is_open(req)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "request_posted() was called for this Request before");
        return false;
    }
    return true;
}

int
posted_done(PyObject *request, umx_status status, umx_request *op)
{
    RequestObject *req = check_ours(request);
    posted        *all;

    if (req == NULL) {
        return -1;
    }
    posted_add(request, status, op);
    if (!check_open(req)) {
        return -1;
    }
    all          = posted_of(req);
    all->is_open = false;
    request_track(req); /* the program's object may refer to it */
    (void)request_posted(req,
                         req->num_pending != 0 ? UMX_INPROGRESS : all->status);
    event_check_lost(req);
    if (all->is_unnamed) {
        PyErr_SetString(PyExc_ValueError,
                        "UMX_INPROGRESS was noted with NULL instead of the "
                        "operation: call the posting function first, in a "
                        "statement of its own, and then request_add() or "
                        "request_posted()");
        return -1;
    }
    return 0;
}

int
posted_set_result(PyObject *request, PyObject *result)
{
    RequestObject *req = check_ours(request);

    if (req == NULL || !check_open(req)) {
        return -1;
    }
    Py_XSETREF(req->result, Py_NewRef(result));
    return 0;
}
