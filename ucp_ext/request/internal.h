/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h: what the files of this room share. */
#ifndef UCP_EXT_REQUEST_INTERNAL_H
#define UCP_EXT_REQUEST_INTERNAL_H

#include "request/request.h"

/* What few requests have, in a block. */
struct request_rare {
    PyObject *exception;      /* of a failure that was handed out */
    PyObject *cancel_message; /* of cancel() */
    PyObject *thread; /* the name of the one that made it, if deferred */
    PyObject *more_callbacks; /* list of (callback, context) */
    PyObject *low_level;      /* see request/callback.c */
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

/* Everything the operation was lent. */
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

/* What the operation needs for a result. */
void request_forget(RequestObject *req);

/* Until the operation is over its record is somebody else's, who is not seen
 * from here. */
int request_traverse(PyObject *op, visitproc visit, void *arg);

/* Memory that libumx has, or that a message is to be put back from, stays. */
int request_clear(PyObject *op);

/* What was received returns to its queue. Without memory it is lost, which ends
 * the endpoint: the next receive must not get what is behind it. */
void request_unrecv(RequestObject *self);

void request_dealloc(PyObject *op);

/* ---- wake.c ---- */

/* The end of that, if no callbacks are left. The caller has a reference. */
void request_let_go(RequestObject *req);

/* A message has come, without its bytes. */
void request_begin_second_step(RequestObject *req);

void request_settle_told(RequestObject *req);

/* ---- post.c ---- */

void request_post_now(RequestObject *req);

/* What is due after posting is done in the loop's next turn. */
void request_drain_soon(RequestObject *req);

/* ---- error.c ---- */

const char *request_op_name(const RequestObject *req);

PyObject *request_error(RequestObject *self);

/* The exception of a failed request; new reference. */
PyObject *request_exception_object(RequestObject *self);

/* asyncio's, with the message of cancel(): whoever has cancelled knows by it
 * that the exception is its own, as anyio's scopes do. */
PyObject *request_new_cancelled_error(const RequestObject *self);

/* Returns NULL. */
PyObject *request_raise_cancelled(const RequestObject *self);

/* ---- result.c ---- */

/* The value of a settled request as a new reference, or its exception. */
PyObject *request_value(RequestObject *self);

void request_mark_handed_out(RequestObject *self);

PySendResult request_hand_out(RequestObject *self, PyObject **out);

/* Nobody will take the result: messages go back to their queue, and of a
 * failure nobody needs to hear, as who waited for it has another reason to end.
 */
void request_undo(RequestObject *self);

void request_cancel_operation(RequestObject *self);

/* False if there was nothing to cancel. */
bool request_abandon(RequestObject *self);

/* The message of a receive that is complete returns to its queue. False if it
 * was handed out, or there is none. */
bool request_give_message_back(RequestObject *self);

/* ---- step.c ---- */

PySendResult request_refuse_foreign_thread(RequestObject *self);

/* In its own loop: it was made in another thread. */
void request_start(RequestObject *self);

PySendResult request_am_send(PyObject *op, PyObject *value, PyObject **out);

PyObject *request_await(PyObject *op);

PyObject *request_iternext(PyObject *op);

PyObject *request_send(PyObject *op, PyObject *value);

PyObject *request_throw(PyObject *op, PyObject *const *args, Py_ssize_t nargs);

PyObject *request_close(PyObject *op, PyObject *ignored);

extern const char request_send_doc[], request_throw_doc[], request_close_doc[];

extern const event_type request_event;

#endif
