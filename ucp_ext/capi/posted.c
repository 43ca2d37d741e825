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

    if (all->comm != NULL && !request_is_length_error(req->status)) {
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

    for (size_t i = all->first; i < all->count; i++) {
        if (all->ops[i] != NULL) {
            is_free &= (cancel(all->ops[i]) == UMX_OK);
        }
    }
    return is_free;
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
    if (all->ops != all->few) {
        PyMem_RawFree(all->ops);
    }
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
    all->ops      = all->few;
    all->capacity = POSTED_INLINE;
    all->is_open  = true;
    if (PyObject_TypeCheck(owner, req->worker->st->comm_type)) {
        all->comm = (CommObject *)Py_NewRef(owner);
    }
    TAIL_OF(req, posted_tail)->all  = all;
    TAIL_OF(req, posted_tail)->keep = Py_XNewRef(keep);
    *params_p                       = event_posted_params(req);
    return (PyObject *)req;
}

/* Have room for one more. False: out of memory. */
static bool
grow(posted *all)
{
    size_t        capacity = 2 * all->capacity;
    umx_request **ops;

    if (all->count < all->capacity) {
        return true;
    }
    ops = PyMem_RawMalloc(capacity * sizeof(umx_request *));
    if (ops == NULL) {
        return false;
    }
    memcpy(ops, all->ops, all->count * sizeof(umx_request *));
    if (all->ops != all->few) {
        PyMem_RawFree(all->ops);
    }
    all->ops      = ops;
    all->capacity = capacity;
    return true;
}

/* The GIL is not needed: nobody else has the request yet. */
void
posted_add(PyObject *request, umx_status status, umx_request *op)
{
    RequestObject *req = (RequestObject *)request;
    posted        *all = posted_of(req);

    assert(req->type == &op_posted && all->is_open);
    if (status != UMX_INPROGRESS) {
        if (all->status == UMX_OK) {
            all->status = status;
        }
        return;
    }
    req->num_pending++;
    if (op == NULL) {
        all->is_unnamed = true;
    }
    if (op != NULL && grow(all)) {
        all->ops[all->count++] = op;
    } else {
        all->is_short = true; /* it ends, and cannot be cancelled */
    }
}

/* Get a request that request_new() has made and that is not posted yet; NULL
 * with an exception. */
static RequestObject *
check_open(PyObject *request)
{
    mod_state *st = objects_state(request);

    if (st == NULL || !request_check(st, request) ||
        ((RequestObject *)request)->type != &op_posted) {
        objects_refuse(request, "a Request that request_new() has made");
        return NULL;
    }
    if (!posted_of((RequestObject *)request)->is_open) {
        PyErr_SetString(PyExc_RuntimeError,
                        "request_posted() was called for this Request before");
        return NULL;
    }
    return (RequestObject *)request;
}

int
posted_done(PyObject *request, umx_status status, umx_request *op)
{
    RequestObject *req = check_open(request);
    posted        *all;

    if (req == NULL) {
        return -1;
    }
    posted_add(request, status, op);
    all          = posted_of(req);
    all->is_open = false;
    request_track(req); /* the program's object may refer to it */
    (void)request_posted(req,
                         req->num_pending != 0 ? UMX_INPROGRESS : all->status);
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
    RequestObject *req = check_open(request);

    if (req == NULL) {
        return -1;
    }
    Py_XSETREF(req->result, Py_NewRef(result));
    return 0;
}
