/* SPDX-License-Identifier: BSD-3-Clause */
/* result.c: a result: handed out, or given back to where it came from. */
#include "request/internal.h"

#include "types/message.h"
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
    {
        PyObject *exc = request_exception_object(self);

        if (exc != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
            Py_DECREF(exc);
        }
        return NULL;
    }
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

void
request_keep_unseen(RequestObject *req)
{
    req->is_handed_out = false;
    req->can_unrecv    = (req->message == NULL);
}

PySendResult
request_hand_out(RequestObject *self, PyObject **out)
{
    request_mark_handed_out(self);
    if (UNLIKELY(self->type->forget != NULL) && self->status == UMX_OK) {
        request_forget(self);
    }
    *out = request_value(self);
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
    if (request_is_a(self, OP_RECV) && request_has_bytes(self->status)) {
        self->state = REQUEST_CANCELLED; /* it has nothing to give any more */
    }
    worker_after_call(worker);
    worker_schedule_drain(worker); /* another receive may have got it */
}

void
request_cancel_operation(RequestObject *self)
{
    if (self->is_deferred) {
        request_release_buffers(self);
        request_forget(self);
        return;
    }
    if (self->worker->umx == NULL || !worker_is_mine(self->worker)) {
        return; /* it completes by itself; the buffer stays held */
    }
    if (self->op != NULL) {
        umx_request_cancel(self->op);
    } else if (self->type->cancel != NULL) {
        self->type->cancel(self);
    }
    if (self->op == NULL) {
        request_return_message(self); /* of what has a second step */
    }
    worker_schedule_drain(self->worker);
}

bool
request_abandon(RequestObject *self)
{
    if (self->state != REQUEST_PENDING) {
        return false;
    }
    if (request_low_level(self) != NULL) {
        request_cancel_operation(
            self); /* its callback tells when the buffer is free */
        return true;
    }
    self->state      = REQUEST_CANCELLED;
    self->is_settled = true;
    Py_INCREF(self);
    request_cancel_operation(self);
    self->is_deferred = false;
    if (request_has_callbacks(self)) {
        request_hold(self);
    }
    request_link_wake(self);
    worker_after_call(self->worker);
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
    self->state = REQUEST_CANCELLED;
    request_undo(self);
    Py_DECREF(self);
    return true;
}
