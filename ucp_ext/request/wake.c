/* SPDX-License-Identifier: BSD-3-Clause */
/* wake.c: the callbacks of a request, and what libumx has told of it. */
#include "request/internal.h"

#include "request/callback.h"
#include "request/event.h"
#include "worker/worker.h"

/* ---- wake-ups ------------------------------------------------------------
 */

void
request_link_wake(RequestObject *req)
{
    if (request_has_callbacks(req) && !event_is_listed(&req->event)) {
        event_append(&req->worker->wakes, &req->event);
    }
}

void
request_hold(RequestObject *req)
{
    if (!req->is_held) {
        req->is_held = true;
        Py_INCREF(req);
    }
}

void
request_let_go(RequestObject *req)
{
    if (req->is_held && !request_has_callbacks(req)) {
        req->is_held = false;
        Py_DECREF(req);
    }
}

static void
call_in_context(RequestObject *req, PyObject *callback, PyObject *context)
{
    PyObject *result = PyObject_CallOneArg(callback, (PyObject *)req);
    PyObject *exc    = (result == NULL) ? PyErr_GetRaisedException() : NULL;

    (void)!PyContext_Exit(context);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
    Py_XDECREF(result);
}

/* Threads that share the worker have no event loop: they run it directly. */
static void
run_callback(RequestObject *req, PyObject *callback, PyObject *context,
             bool is_direct)
{
    WorkerObject *worker = req->worker;

    if (worker->call_soon == NULL && !worker->is_shared) {
        return; /* no loop, or closed: nobody is left to hear */
    }
    if ((is_direct || worker->is_shared) && context != NULL &&
        PyContext_Enter(context) == 0) {
        call_in_context(req, callback, context);
    } else if (worker->is_shared) {
        PyErr_Clear(); /* the context is entered already */
        Py_XDECREF(PyObject_CallOneArg(callback, (PyObject *)req));
    } else {
        PyErr_Clear(); /* the context is entered already: the slow way */
        (void)!worker_call_soon(worker, callback, (PyObject *)req, context);
    }
    if (PyErr_Occurred()) {
        worker_report_exception(worker, "a callback of a Request failed");
    }
}

static void
run_callbacks(RequestObject *req, bool is_direct)
{
    PyObject *callback = req->callback;
    PyObject *context  = req->context;
    PyObject *more     = NULL;

    req->callback = NULL;
    req->context  = NULL;
    if (req->rare != NULL) {
        more                      = req->rare->more_callbacks;
        req->rare->more_callbacks = NULL;
    }
    if (callback != NULL) {
        run_callback(req, callback, context, is_direct);
        Py_DECREF(callback);
        Py_XDECREF(context);
    }
    if (more != NULL) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(more); i++) {
            PyObject *pair = PyList_GET_ITEM(more, i); /* borrowed */
            PyObject *ctx  = PyTuple_GET_ITEM(pair, 1);

            run_callback(req, PyTuple_GET_ITEM(pair, 0),
                         ctx == Py_None ? NULL : ctx, is_direct);
        }
        Py_DECREF(more);
    }
}

/* Get memory for a message that has come, and receive its bytes. */
static void
fetch(RequestObject *req)
{
    WorkerObject *worker = req->worker;

    if (worker->umx == NULL) {
        request_return_message(req);
        request_settle(req, UMX_ERR_CLOSED);
    } else {
        req->type->fetch(req);
    }
    worker_schedule_drain(worker);
}

/* event_type.call(): begin the second step, in which the program is asked for
 * memory; or run the callbacks of a settled request. */
static void
call_program(event *self, bool is_direct)
{
    RequestObject *req = EVENT_OF(self, RequestObject, event);

    Py_INCREF(req);
    if (!request_is_settled(req)) {
        fetch(req);
    }
    if (request_is_settled(req)) {
        event_unlink(self);
        if (request_low_level(req) != NULL) {
            callback_run(req);
        }
        run_callbacks(req, is_direct);
        request_let_go(req);
    }
    Py_DECREF(req);
}

/* ---- completion ----------------------------------------------------------
 */

void
request_begin_second_step(RequestObject *req)
{
    WorkerObject *worker = req->worker;

    if (req->type->start != NULL && req->type->start(req)) {
        if (!request_is_settled(req)) {
            request_settle(req, UMX_OK);
        }
    } else if (req->type->runs_program(req)) {
        event_append(&worker->calls, &req->event);
    } else {
        fetch(req);
    }
}

/* Release what was lent, unless its bytes may have to go back to their queue.
 */
static inline void
release_unless_needed(RequestObject *req)
{
    if (!req->can_unrecv && !req->is_returning) {
        request_release_buffers(req);
    }
}

/* Release what was lent if libumx is done with it: the program may run in
 * this. */
static void
release_told(RequestObject *req)
{
    if (request_is_in_flight(req)) {
        return;
    }
    if (UNLIKELY(req->is_landed)) {
        req->is_landed = false;
        if (req->worker->umx != NULL && request_is_a(req, OP_UNRECV_LATE) &&
            request_holds_bytes(req) &&
            (req->hold.owner != NULL || request_is_a(req, OP_BLOCK))) {
            request_unrecv(req); /* the cancellation came too late for libumx */
        }
        request_return_message(req);
    }
    if (UNLIKELY(req->state == REQUEST_CANCELLED)) {
        if (req->type->give_back != NULL && req->worker->umx != NULL) {
            req->type->give_back(req);
        }
        request_forget(req);
    }
    release_unless_needed(req);
}

/* Is the operation over, with nothing left but to run callbacks? */
static inline bool
is_just_done(const RequestObject *req)
{
    return req->state == REQUEST_DONE && req->has_odd_end == 0 &&
           !request_is_in_flight(req);
}

static inline void
release_done(RequestObject *req)
{
    release_unless_needed(req);
    request_link_wake(req);
}

/* Do what another thread has asked for. The message may have come, and have
 * been told of, before that. */
static NOINLINE void
do_submitted(RequestObject *req)
{
    req->is_submitted = false;
    if (req->is_withdrawn) {
        req->is_withdrawn = false;
        request_cancel_told(req);
        Py_DECREF(req); /* the reference of who asked for it */
    }
    if (req->is_returning) {
        req->is_returning = false;
        if (req->worker->umx != NULL) {
            request_unrecv(req);
        }
        Py_DECREF(req); /* the reference of request_return_unseen() */
    }
}

void
request_settle_told(RequestObject *req)
{
    if (UNLIKELY(req->is_submitted)) {
        do_submitted(req);
    }
    if (UNLIKELY(req->is_again)) {
        request_post_again(req);
    } else if (req->type->told != NULL && req->num_pending != 0 &&
               req->is_told) {
        req->type->told(req);
    } else if (request_has_second_step(req, UMX_OK)) {
        request_begin_second_step(req);
    } else if (request_is_settled(req)) { /* else it is being cancelled */
        release_told(req);
        request_link_wake(req);
    }
}

/* Settle a request that libumx has told of; code of the program may run in
 * this. */
static NOINLINE void
settle_held(RequestObject *req)
{
    Py_INCREF(req);
    if (LIKELY(is_just_done(req))) {
        release_done(req);
        Py_DECREF(req);
        return;
    }
    request_settle_told(req);
    if (UNLIKELY(req->is_orphan) && !request_is_in_flight(req)) {
        req->is_orphan = false;
        Py_DECREF(req); /* the reference of the operation */
    }
    Py_DECREF(req);
}

/* event_type.settle() */
static void
settle_told(event *self)
{
    RequestObject *req = EVENT_OF(self, RequestObject, event);

    if (is_just_done(req) && req->can_unrecv) {
        request_link_wake(req); /* its buffer stays held: nothing else runs */
        return;
    }
    settle_held(req);
}

void
request_settle(RequestObject *req, umx_status status)
{
    event_mark_done(req, status);
    if (UNLIKELY(req->is_again)) {
        request_post_again(req);
        return;
    }
    if (LIKELY(is_just_done(req))) {
        release_done(req);
        return;
    }
    release_told(req);
    request_link_wake(req);
}

const event_type request_event = {settle_told, call_program};
