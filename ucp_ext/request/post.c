/* SPDX-License-Identifier: BSD-3-Clause */
/* post.c: a request on its way to libumx. */
#include "request/internal.h"

#include "base/errors.h"
#include "base/log.h"
#include "object/endpoint.h"
#include "request/event.h"
#include "worker/worker.h"

/* Note what a call of libumx returned that has posted the operation. */
static inline void
note_posted(RequestObject *req, umx_status status)
{
    if (status == UMX_INPROGRESS) {
        return;
    }
    if (UNLIKELY(status < 0)) {
        request_return_message(req); /* a message that was not taken over */
    } else if (UNLIKELY(req->message != NULL) &&
               request_has_second_step(req, status)) {
        request_begin_second_step(req);
        return;
    }
    /* Pending when the peer closed: UCXPeerClosed. Called after it: closed. */
    request_settle(req,
                   status == UMX_ERR_PEER_CLOSED ? UMX_ERR_CLOSED : status);
}

/* End an operation whose worker or endpoint has gone; OP_END: a success. */
static NOINLINE void
end_unposted(RequestObject *req, umx_status status)
{
    request_forget(req);
    request_settle(req, request_is_a(req, OP_END) ? UMX_OK : status);
}

void
request_post_now(RequestObject *req)
{
    umx_op_params params = event_op_params(req);

    if (UNLIKELY(req->worker->umx == NULL ||
                 (req->endpoint != NULL && req->endpoint->umx == NULL))) {
        end_unposted(req, UMX_ERR_CLOSED);
        return;
    }
    note_posted(req, req->type->post(req, &params));
}

void
request_post_again(RequestObject *req)
{
    req->is_again = false;
    req->is_told  = false;
    Py_CLEAR(req->result);
    request_release_buffers(req);
    if (req->type->clear != NULL) {
        req->type->clear(req);
    }
    if (!request_is_settled(req)) { /* still, after code of the program */
        request_post_now(req);
    }
    request_drain_soon(req);
}

void
request_fetched(RequestObject *req, umx_message *message, umx_status status)
{
    req->message = message;
    if (status == UMX_INPROGRESS) {
        return;
    }
    if (status < 0) {
        request_return_message(req);
    }
    request_settle(req, status);
}

/* Get the name of the current thread, as its Thread object has it; NULL:
 * unknown. */
static PyObject *
thread_name(void)
{
    PyObject *module = PyImport_ImportModule("threading");
    PyObject *thread = NULL, *name = NULL;

    if (module != NULL) {
        thread = PyObject_CallMethod(module, "current_thread", NULL);
        Py_DECREF(module);
    }
    if (thread != NULL) {
        name = PyObject_GetAttrString(thread, "name");
        Py_DECREF(thread);
    }
    if (name != NULL && !PyUnicode_Check(name)) {
        Py_CLEAR(name);
    }
    PyErr_Clear();
    return name;
}

/* Have the loop do in its next turn what is due after posting. */
void
request_drain_soon(RequestObject *req)
{
    if (request_is_settled(req) && !log_is_due()) {
        worker_drain_if_due(req->worker);
    } else {
        worker_schedule_drain(req->worker);
    }
}

/* Show the request to the collector if the buffer that it holds may refer to
 * the request; most buffers have no references. */
static inline void
track_if_due(RequestObject *req)
{
    if (buffer_is_in_gc(&req->hold)) {
        request_track(req);
    }
}

PyObject *
request_posted(RequestObject *req, umx_status status)
{
    note_posted(req, status);
    track_if_due(req);
    request_drain_soon(req);
    return (PyObject *)req;
}

void
request_end_in_call(RequestObject *req)
{
    req->status = UMX_OK;
    request_set_state(req, REQUEST_DONE);
    request_drain_soon(req);
}

/* Put off a request of a foreign thread: it starts when its own loop takes
 * it. */
static NOINLINE void
defer(RequestObject *req)
{
    request_rare *rare = request_get_rare(req);

    if (rare != NULL) {
        rare->thread = thread_name();
    } else {
        PyErr_Clear(); /* its warning will not name the thread */
    }
    request_set_state(req, REQUEST_DEFERRED);
    track_if_due(req);
}

/* A call in a forked child is refused at once: its result might never be
 * awaited. Closing succeeds. */
static NOINLINE PyObject *
post_elsewhere(RequestObject *req)
{
    mod_state  *st   = req->worker->st;
    const char *name = req->type->name;

    if (!worker_is_forked(req->worker)) {
        defer(req);
    } else if (request_is_a(req, OP_END)) {
        end_unposted(req, UMX_OK);
    } else {
        Py_DECREF(req);
        return errors_raise(st, UMX_ERR_FORKED, name, NULL);
    }
    return (PyObject *)req;
}

PyObject *
request_post(RequestObject *req)
{
    if (LIKELY(worker_is_mine(req->worker))) {
        request_post_now(req);
        track_if_due(req);
        request_drain_soon(req);
        return (PyObject *)req;
    }
    return post_elsewhere(req);
}

PyObject *
request_begin(WorkerObject *worker, EndpointObject *endpoint,
              const op_type *type)
{
    RequestObject *req = request_new(worker, endpoint, type);

    return (req != NULL) ? request_post(req) : NULL;
}
