/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h: what the files of this room share. */
#ifndef UCP_EXT_REQUEST_INTERNAL_H
#define UCP_EXT_REQUEST_INTERNAL_H

#include "request/request.h"

/* What few requests have, in a block. */
struct request_rare {
    PyObject     *exception;      /* of a failure that was handed out */
    PyObject     *cancel_message; /* of cancel() */
    PyObject     *thread; /* the name of the one that made it, if deferred */
    PyObject     *more_callbacks; /* list of (callback, context) */
    PyObject     *low_level;      /* see request/callback.c */
    PyObject     *function;       /* allocates or decodes the result */
    buffer_stream after;          /* its memory is not ready before */
};
_Static_assert(sizeof(request_rare) <= BLOCK_SIZE, "request_rare");

/* Made on first use; NULL with an exception. */
request_rare *request_get_rare(RequestObject *self);

/* The function that ucp._libs has called at the end, and more; or NULL. */
static inline PyObject *
request_low_level(const RequestObject *self)
{
    return (self->rare != NULL) ? self->rare->low_level : NULL;
}

static inline bool
request_is_a(const RequestObject *self, unsigned flags)
{
    return (self->type->flags & flags) != 0;
}

/* Release all memory that the operation was lent. */
static inline void
request_release_buffers(RequestObject *req)
{
    buffer_release(&req->hold);
    if (UNLIKELY(req->type->release != NULL)) {
        req->type->release(req);
    }
}

static inline bool
request_has_callbacks(const RequestObject *self)
{
    const request_rare *rare = self->rare;

    return self->callback != NULL ||
           (UNLIKELY(rare != NULL) &&
            (rare->more_callbacks != NULL || rare->low_level != NULL));
}

/* ---- life.c ---- */

/* Release what a result would be made of. */
void request_forget(RequestObject *req);

/* tp_traverse. Until the operation is over libumx has a reference to its memory
 * that the collector does not see. */
int request_traverse(PyObject *op, visitproc visit, void *arg);

/* tp_clear. */
int request_clear(PyObject *op);

/* Return the bytes received to their queue, or end the endpoint if there is no
 * memory for that. */
void request_unrecv(RequestObject *self);
/* Return a short message that nobody has seen to its queue; the worker's thread
 * does it. */
void request_return_unseen(RequestObject *self);

void request_dealloc(PyObject *op);

/* ---- wake.c ---- */

/* End request_hold() if no callbacks are left. The caller has a reference. */
void request_let_go(RequestObject *req);

/* Begin the second step: a message has come, without its bytes. */
void request_begin_second_step(RequestObject *req);

void request_settle_told(RequestObject *req);

/* ---- post.c ---- */

void request_post_now(RequestObject *req);

/* Post a receive once more: its message was withdrawn while its bytes came. */
void request_post_again(RequestObject *req);

/* Have the loop do in its next turn what is due after posting. */
void request_drain_soon(RequestObject *req);

/* ---- error.c ---- */

const char *request_op_name(const RequestObject *req);

PyObject *request_error(RequestObject *self);

/* The exception of a failed request; new reference. */
PyObject *request_exception_object(RequestObject *self);

/* Make asyncio's CancelledError with the message of cancel(), by which whoever
 * has cancelled knows that the exception is its own, as anyio's scopes do. */
PyObject *request_new_cancelled_error(const RequestObject *self);

/* Raise CancelledError; returns NULL. */
PyObject *request_raise_cancelled(const RequestObject *self);

/* ---- result.c ---- */

/* The value of a settled request as a new reference, or its exception. */
PyObject *request_value(RequestObject *self);

void request_mark_handed_out(RequestObject *self);

PySendResult request_hand_out(RequestObject *self, PyObject **out);

/* Give up a result that nobody will take: messages go back to their queue, and
 * a failure is not reported, as its waiter has another reason to end. */
void request_undo(RequestObject *self);

/* Cancel the operation for somebody who cannot wait: where libumx cannot give
 * the buffer back, the connection ends. */
void request_cancel_at_once(RequestObject *self);

/* Cancel the operation as another thread has asked. */
void request_cancel_told(RequestObject *self);

/* End the awaitable and cancel its operation. False if it is settled. */
bool request_abandon(RequestObject *self);

/* request_abandon() that may wait: the awaitable is REQUEST_CANCELLING then,
 * and ends as cancelled once its buffer is free. */
bool request_begin_cancelling(RequestObject *self);

/* Return the message of a complete receive to its queue. False if it was handed
 * out, or there is none. */
bool request_give_message_back(RequestObject *self);

/* ---- future.c ---- */

/* Keep the message of cancel(): None is that of a request that has none. -1
 * with an exception. */
int request_set_cancel_message(RequestObject *self, PyObject *message);

/* ---- step.c ---- */

PySendResult request_refuse_foreign_thread(RequestObject *self);

/* -1 with RuntimeError: more operations may follow, so that it is not over when
 * those are that were posted. */
int request_check_posted(const RequestObject *self);

/* Post a deferred request, in the worker's thread. */
void request_start(RequestObject *self);

/* The base of both kinds. */
extern PyType_Spec request_spec;

/* Somebody has asked whether it is a future: it is one from now on, unless it
 * has been awaited. */
void request_become_future(RequestObject *self);
/* Make it what a new request is. */
void request_become_coroutine(RequestObject *self, const mod_state *st);

/* Make the iterator that an await of a future is. */
PyObject *request_await_future(PyObject *op);

PySendResult request_am_send(PyObject *op, PyObject *value, PyObject **out);

PyObject *request_await(PyObject *op);

PyObject *request_iternext(PyObject *op);

PyObject *request_send(PyObject *op, PyObject *value);

PyObject *request_throw(PyObject *op, PyObject *const *args, Py_ssize_t nargs);

PyObject *request_close(PyObject *op, PyObject *ignored);

PyObject         *request_look(PyObject *op, PyObject *ignored);
extern const char request_send_doc[], request_throw_doc[], request_close_doc[],
    request_look_doc[];

extern const event_type request_event;

#endif
