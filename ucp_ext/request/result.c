/* SPDX-License-Identifier: BSD-3-Clause */
/* result.c: a result: handed out, or given back to where it came from. */
#include "request/internal.h"

#include "base/errors.h"
#include "object/endpoint.h"
#include "object/message.h"
#include "request/event.h"
#include "worker/worker.h"

PyObject *
request_length(RequestObject *self)
{
    return PyLong_FromSize_t(self->info.length);
}

PyObject *
request_message(RequestObject *self)
{
    PyObject *object = message_new(self->endpoint, self->message);

    if (object != NULL) {
        self->message = NULL;
    }
    return object;
}

PyObject *
request_value(RequestObject *self)
{
    if (UNLIKELY(self->state == REQUEST_CANCELLED)) {
        return request_raise_cancelled(self);
    }
    if (LIKELY(self->status == UMX_OK)) {
        if (self->result != NULL) {
            return Py_NewRef(self->result);
        }
        if (LIKELY(self->type->result == NULL)) {
            return Py_NewRef(Py_None);
        }
        if (self->is_making) { /* code of an allocator, or the collector */
            PyErr_SetString(PyExc_RuntimeError, "the result is being made");
            return NULL;
        }
        self->is_making = true;
        self->result    = self->type->result(self);
        self->is_making = false;
        if (self->result != NULL && PyObject_IS_GC(self->result)) {
            request_track(self);
        }
        return Py_XNewRef(self->result);
    }
    return errors_set(request_exception_object(self));
}

void
request_mark_handed_out(RequestObject *self)
{
    self->is_handed_out = true;
    if (self->can_unrecv) {
        self->can_unrecv = false;
        request_release_buffers(self);
        if (UNLIKELY(self->message != NULL)) {
            umx_message *message = self->message;

            self->message = NULL;
            message_drop(self->worker, message);
        }
    }
}

/* Fail a request that had succeeded with the exception that is set, and return
 * that. */
static PyObject *
take_exception(RequestObject *self, umx_status status)
{
    PyObject *exc = PyErr_GetRaisedException();

    request_track(self);
    request_set_exception(self, Py_NewRef(exc));
    self->status  = status;
    self->is_seen = true;
    return exc;
}

void
request_fail_result(RequestObject *req)
{
    PyObject *exc = take_exception(req, UMX_ERR_NO_MEMORY);

    if (req->message != NULL) { /* the program may run in this */
        request_return_message(req);
    } else {
        req->can_unrecv = true;
        request_return_unseen(req);
    }
    PyErr_SetRaisedException(exc);
}

/* Make what the program gets of a value, whose reference is taken over. */
static NOINLINE PyObject *
decode(RequestObject *self, PyObject *value)
{
    PyObject *function = request_function(self);
    PyObject *decoded;

    if (self->is_decoded) {
        return value;
    }
    if (self->is_making || function == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        self->is_making ? "the result is being made" :
                                          "the request has been collected");
        Py_DECREF(value);
        return NULL;
    }
    Py_INCREF(function);
    self->is_making = true;
    decoded         = PyObject_CallOneArg(function, value);
    self->is_making = false;
    Py_DECREF(function);
    Py_DECREF(value);
    if (decoded == NULL) {
        PyErr_SetRaisedException(take_exception(self, UMX_ERR_PROTOCOL));
        Py_CLEAR(self->result);
        return NULL;
    }
    self->is_decoded = true;
    Py_XSETREF(self->result, Py_NewRef(decoded));
    return decoded;
}

PySendResult
request_hand_out(RequestObject *self, PyObject **out)
{
    request_mark_handed_out(self);
    if (UNLIKELY(self->type->forget != NULL) && self->status == UMX_OK) {
        request_forget(self);
    }
    *out = request_value(self);
    if (UNLIKELY(request_is_a(self, OP_DECODES)) && *out != NULL) {
        *out = decode(self, *out);
    }
    if (UNLIKELY(request_is_a(self, OP_ONCE))) {
        Py_CLEAR(self->result); /* dropping the endpoint closes it: at once */
    }
    return (*out == NULL) ? PYGEN_ERROR : PYGEN_RETURN;
}

PyObject *
request_take(RequestObject *self, PyObject **exc_p)
{
    PyObject *value = NULL;

    *exc_p = NULL;
    if (self->status != UMX_OK) {
        request_mark_handed_out(self);
        *exc_p = request_exception_object(self);
    } else if (request_hand_out(self, &value) == PYGEN_ERROR) {
        *exc_p = PyErr_GetRaisedException();
    }
    return value;
}

PyObject *
request_take_or_raise(RequestObject *self)
{
    PyObject *exc;
    PyObject *value = request_take(self, &exc);

    return (value != NULL) ? value : errors_set(exc);
}

/* ---- giving up -----------------------------------------------------------
 */

void
request_undo(RequestObject *self)
{
    WorkerObject *worker = self->worker;

    self->is_seen = true;
    if (self->is_handed_out || self->is_making || worker->umx == NULL ||
        !worker_is_mine(worker)) {
        return;
    }
    if (self->can_unrecv) {
        self->can_unrecv = false;
        request_unrecv(self);
        request_release_buffers(self);
    }
    request_return_message(self);
    if (self->type->give_back != NULL) {
        self->type->give_back(self);
    }
    if (request_is_a(self, OP_RECV) && request_has_bytes(self, self->status)) {
        request_set_state(self, REQUEST_CANCELLED); /* it has nothing to give */
    }
    worker_after_call(worker);
    worker_schedule_drain(worker); /* another receive may have got it */
}

/* Release what was lent: libumx has no use for it any more. */
static void
release_lent(RequestObject *self)
{
    Py_INCREF(self); /* code of an exporter may run in this */
    request_release_buffers(self);
    Py_DECREF(self);
}

/* Cancel the operation in libumx. False: its buffer stays lent until it ends.
 */
static bool
cancel_operation(RequestObject *self, cancel_fn *cancel)
{
    bool is_free = true;

    if (self->worker->umx == NULL || !worker_is_mine(self->worker)) {
        return true; /* it completes by itself; the buffer stays held */
    }
    if (self->op != NULL) {
        is_free = cancel(self->op) == UMX_OK;
    } else if (self->type->cancel != NULL) {
        is_free = self->type->cancel(self, cancel);
    }
    if (self->op == NULL) {
        request_return_message(self); /* of what has a second step */
    }
    if (is_free && !self->can_unrecv) {
        release_lent(self);
    }
    worker_schedule_drain(self->worker);
    return is_free;
}

void
request_cancel_at_once(RequestObject *self)
{
    if (!cancel_operation(self, umx_request_abandon) &&
        self->endpoint != NULL && self->endpoint->umx != NULL) {
        umx_ep_abort(self->endpoint->umx);
    }
}

/* Have the owner's thread cancel the operation. False: its worker is closing,
 * or there is no memory. */
static bool
cancel_elsewhere(RequestObject *self)
{
    if (self->is_withdrawn) {
        return true;
    }
    if (worker_is_forked(self->worker)) {
        return false;
    }
    self->is_withdrawn = true; /* request_settle_told() does it */
    Py_INCREF(self);
    if (!event_submit_request(self->worker, self)) {
        self->is_withdrawn = false;
        Py_DECREF(self);
        return false;
    }
    return true;
}

/* Note that the awaitable has ended. What libumx has told of is the owner's
 * thread's to settle; `is_told_elsewhere`: it will run the callbacks as well.
 */
static void
end_awaitable(RequestObject *self, bool is_told_elsewhere)
{
    request_set_state(self, REQUEST_CANCELLED);
    if (request_has_callbacks(self)) {
        request_hold(self);
    }
    if (!is_told_elsewhere) {
        request_link_wake(self);
    }
    if (worker_is_mine(self->worker)) {
        worker_after_call(self->worker);
    }
}

/* Cancel an operation whose callback of ucp._libs tells when the buffer is
 * free. */
static void
cancel_low_level(RequestObject *self)
{
    if (worker_is_mine(self->worker)) {
        (void)cancel_operation(self, umx_request_cancel);
    } else {
        (void)cancel_elsewhere(self);
    }
}

bool
request_abandon(RequestObject *self)
{
    bool is_posted, is_told_elsewhere = false;

    if (request_is_settled(self)) {
        return false;
    }
    if (request_low_level(self) != NULL) {
        cancel_low_level(self);
        return true;
    }
    Py_INCREF(self);
    is_posted = self->state != REQUEST_DEFERRED;
    request_set_state(self, REQUEST_CANCELLED); /* for code that runs in this */
    if (!is_posted) {
        request_release_buffers(self);
        request_forget(self);
    } else if (worker_is_mine(self->worker)) {
        request_cancel_at_once(self);
    } else {
        is_told_elsewhere = cancel_elsewhere(self);
    }
    end_awaitable(self, is_told_elsewhere);
    Py_DECREF(self);
    return true;
}

void
request_cancel_told(RequestObject *self)
{
    if (request_low_level(self) != NULL) {
        (void)cancel_operation(self, umx_request_cancel);
    } else if (self->is_landed && request_is_a(self, OP_UNRECV_LATE)) {
        return; /* its message came before this: release_told() returns that */
    } else if (self->state != REQUEST_CANCELLING) {
        request_cancel_at_once(self);
    } else if (cancel_operation(self, umx_request_cancel) &&
               !request_is_settled(self)) {
        end_awaitable(self, false);
    }
}

/* Have the owner's thread cancel a pending operation. False: it stays pending,
 * as there is no memory to tell that thread. */
static bool
begin_cancelling_elsewhere(RequestObject *self)
{
    const WorkerObject *worker = self->worker;

    if (cancel_elsewhere(self)) {
        request_set_state(self, REQUEST_CANCELLING);
        return true;
    }
    if (worker->umx != NULL && !worker->is_shutting &&
        !worker_is_forked(worker)) {
        return false;
    }
    end_awaitable(self, false); /* nothing of it is left that could go on */
    return true;
}

/* Has the operation been lent memory? Else nothing is to be waited for. */
static bool
is_lent_memory(const RequestObject *self)
{
    return self->hold.owner != NULL || self->type->release != NULL ||
           self->num_pending != 0;
}

bool
request_begin_cancelling(RequestObject *self)
{
    bool is_free;

    if (self->state == REQUEST_DEFERRED || request_is_settled(self) ||
        request_low_level(self) != NULL) {
        return request_abandon(self);
    }
    if (self->state == REQUEST_CANCELLING) {
        return true;
    }
    if (!worker_is_mine(self->worker)) {
        return begin_cancelling_elsewhere(self);
    }
    request_set_state(self, REQUEST_CANCELLING);
    Py_INCREF(self);
    is_free = !is_lent_memory(self);
    is_free |= cancel_operation(self, umx_request_cancel);
    if (is_free && !request_is_settled(self)) {
        end_awaitable(self, false);
    } else {
        worker_after_call(self->worker);
    }
    Py_DECREF(self);
    return true;
}

void
request_give_up(RequestObject *req)
{
    PyObject *exc = PyErr_GetRaisedException();

    if (!request_abandon(req)) {
        request_undo(req);
    }
    PyErr_SetRaisedException(exc);
}

/* Has it received anything that nobody has been handed? */
static bool
has_unseen_message(const RequestObject *self)
{
    if (self->state != REQUEST_DONE || self->is_handed_out || self->is_making ||
        request_low_level(self) != NULL) {
        return false;
    }
    if (self->can_unrecv || self->message != NULL) {
        return true;
    }
    return self->type->has_unseen != NULL && self->type->has_unseen(self);
}

bool
request_give_message_back(RequestObject *self)
{
    if (!has_unseen_message(self) || self->worker->umx == NULL ||
        !worker_is_mine(self->worker)) {
        return false;
    }
    Py_INCREF(self);
    request_set_state(self, REQUEST_CANCELLED);
    request_undo(self);
    Py_DECREF(self);
    return true;
}
