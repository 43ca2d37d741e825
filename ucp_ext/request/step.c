/* SPDX-License-Identifier: BSD-3-Clause */
/* step.c: a step of an await. */
#include "request/internal.h"

#include "base/errors.h"
#include "worker/worker.h"

/* Look at the clock only every so many awaits that were done at once; those of
 * so many bytes, which were copied, count for two. */
enum {
    INLINE_PER_CLOCK = 16,
    INLINE_BYTES     = 4096
};

/* ---- awaiting ------------------------------------------------------------
 */

NOINLINE PySendResult
request_refuse_foreign_thread(RequestObject *self)
{
    WorkerObject *worker = self->worker;
    PyObject     *loop;

    self->is_refused = true;
    if (worker_is_forked(worker)) {
        (void)errors_raise(worker->st, UMX_ERR_FORKED, self->type->name, NULL);
        return PYGEN_ERROR;
    }
    loop = worker_running_loop(worker->st);
    if (loop != NULL) {
        PyErr_Format(PyExc_RuntimeError,
                     "%R of the loop %R is awaited in another thread, in the "
                     "loop %R",
                     self, worker->loop != NULL ? worker->loop : Py_None, loop);
        Py_DECREF(loop);
    }
    return PYGEN_ERROR;
}

/* Poll, then drain and arm. UMX_INPROGRESS: the request is not settled. */
static umx_status
wait_inline(RequestObject *self)
{
    WorkerObject *worker = self->worker;
    umx_status    status = UMX_INPROGRESS;

    while (worker->umx != NULL) {
        if (umx_worker_spin(worker->umx, &self->is_told)) {
            worker_after_call(worker);
            if (request_is_settled(self) || self->is_told) {
                break; /* done, or the program is asked for memory */
            }
        } else if (!umx_worker_turn_is_over(worker->umx) ||
                   !worker_extend_turn(worker)) {
            break;
        }
    }
    if (!request_is_settled(self) && worker->umx != NULL) {
        status = umx_worker_drain(worker->umx);
        worker_after_call(worker);
    }
    if (request_is_settled(self) || status < 0) {
        return status < 0 ? status : UMX_OK;
    }
    if (status != UMX_OK) {
        worker_schedule_drain(worker);
    }
    worker_update_timer(worker);
    return UMX_INPROGRESS;
}

/* Has the loop been kept waiting for too long? */
static inline bool
loop_is_due(WorkerObject *worker)
{
    return worker->loop != NULL && worker_turn_is_over(worker) &&
           !worker_extend_turn(worker);
}

static NOINLINE PySendResult
let_loop(RequestObject *self, PyObject **out)
{
    WorkerObject *worker = self->worker;

    self->has_let_loop  = true;
    self->is_waiting    = true;
    worker->is_turn_due = true;
    worker->num_due++;
    worker_schedule_drain(worker); /* before the task: it begins the turn */
    *out = Py_NewRef(Py_None);
    return PYGEN_NEXT;
}

static PySendResult
yield_itself(RequestObject *self, PyObject **out)
{
    if (self->worker->loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this worker has no event loop: a pending Request "
                        "cannot be awaited");
        return PYGEN_ERROR;
    }
    request_track(self);
    self->has_yielded = true;
    self->is_blocking = true;
    *out              = Py_NewRef(self);
    return PYGEN_NEXT;
}

/* End the await with the exception that is set. */
static NOINLINE PySendResult
end_await(RequestObject *self)
{
    request_give_up(self);
    return PYGEN_ERROR;
}

int
request_check_posted(const RequestObject *self)
{
    if (LIKELY(self->type->is_open == NULL) || !self->type->is_open(self)) {
        return 0;
    }
    PyErr_SetString(PyExc_RuntimeError,
                    "request_posted() was not called for this Request: it "
                    "cannot be awaited yet");
    return -1;
}

NOINLINE void
request_start(RequestObject *self)
{
    request_set_state(self, REQUEST_PENDING);
    request_post_now(self);
}

/* Hand out the value of a settled request: nearly always None. */
static inline PySendResult
hand_out(RequestObject *self, PyObject **out)
{
    if (LIKELY(self->state == REQUEST_DONE && self->status == UMX_OK &&
               request_is_a(self, OP_BARE))) {
        request_mark_handed_out(self);
        *out = Py_NewRef(Py_None);
        return PYGEN_RETURN;
    }
    return request_hand_out(self, out);
}

static NOINLINE PySendResult
step_pending(RequestObject *self, PyObject **out)
{
    WorkerObject *worker = self->worker;
    umx_status    status = UMX_INPROGRESS;

    if (!worker_is_mine(worker)) {
        return request_refuse_foreign_thread(self);
    }
    if (request_check_posted(self) < 0) {
        return PYGEN_ERROR;
    }
    worker_call_off(worker);
    if (self->state == REQUEST_DEFERRED) {
        request_start(self);
    }
    if (!request_is_settled(self) && !self->has_yielded) {
        /* Here, and not once it has waited: a wait that its turn ends in arms
         * the worker and sleeps, which costs more than to let the loop. */
        if (!self->has_let_loop && loop_is_due(worker)) {
            return let_loop(self, out);
        }
        status = wait_inline(self);
    }
    if (status < 0) {
        (void)errors_raise(worker->st, status, self->type->name, NULL);
        return end_await(self);
    }
    if (worker_raise_kept(worker) < 0) {
        return end_await(self);
    }
    if (!request_is_settled(self)) {
        return yield_itself(self, out);
    }
    worker_drain_if_due(worker);
    return hand_out(self, out);
}

const char request_look_doc[] =
    "_look($self, /)\n--\n\n"
    "Make progress, as an await does before its task sleeps. True: the\n"
    "request is done, and the event loop has not been kept waiting.";

PyObject *
request_look(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *self   = (RequestObject *)op;
    WorkerObject  *worker = self->worker;

    if (!worker_is_mine(worker)) {
        Py_RETURN_FALSE;
    }
    if (self->state == REQUEST_PENDING && self->type->is_open == NULL &&
        !loop_is_due(worker)) {
        worker_call_off(worker);
        (void)wait_inline(self); /* what fails, an await hears of */
        if (worker_raise_kept(worker) < 0) {
            return NULL;
        }
        worker_drain_if_due(worker);
    }
    return PyBool_FromLong(request_is_settled(self) && !loop_is_due(worker));
}

/* Note that the task has come back from a bare yield. */
static void
end_wait(RequestObject *self)
{
    if (self->is_waiting) {
        self->is_waiting = false;
        if (worker_is_mine(self->worker)) {
            worker_begin_part(self->worker);
        }
    }
}

static inline PySendResult
request_step(RequestObject *self, PyObject **out)
{
    WorkerObject *worker = self->worker;

    if (UNLIKELY(self->is_waiting)) {
        end_wait(self);
    }
    if (UNLIKELY(!request_is_settled(self))) {
        return step_pending(self, out);
    }
    worker->inline_count += 1 + self->info.length / INLINE_BYTES;
    if (UNLIKELY(worker->inline_count >= INLINE_PER_CLOCK)) {
        worker->inline_count = 0;
        /* A task of another thread's loop has no part in the turn. */
        if (!self->has_yielded && !self->has_let_loop &&
            worker_is_mine(worker) && loop_is_due(worker)) {
            return let_loop(self, out);
        }
    }
    return hand_out(self, out);
}

PySendResult
request_am_send(PyObject *op, PyObject *value, PyObject **out)
{
    (void)value;
    return request_step((RequestObject *)op, out);
}

PyObject *
request_await(PyObject *op)
{
    return Py_NewRef(op);
}

/* A cached StopIteration while nobody else has it: to build one costs more than
 * the rest of the await. NULL with an exception. */
static PyObject *
cached_stop_iteration(mod_state *st)
{
    if (st->stop_iteration == NULL || Py_REFCNT(st->stop_iteration) != 1) {
        Py_XSETREF(st->stop_iteration,
                   PyObject_CallNoArgs(PyExc_StopIteration));
    }
    return Py_XNewRef(st->stop_iteration);
}

/* StopIteration(value). The cached one lives on with its value, so it is for
 * numbers only: another object would stay alive until the next await. */
static void
set_stop_iteration(mod_state *st, PyObject *value)
{
    PyObject *stop;

    if (!PyLong_CheckExact(value)) {
        stop = PyObject_CallNoArgs(PyExc_StopIteration);
    } else {
        stop = cached_stop_iteration(st);
    }
    if (stop != NULL) {
        Py_XSETREF(((PyStopIterationObject *)stop)->value, Py_NewRef(value));
        PyErr_SetRaisedException(stop);
    }
}

PyObject *
request_iternext(PyObject *op)
{
    PyObject *out;

    switch (request_step((RequestObject *)op, &out)) {
    case PYGEN_NEXT:
        return out;
    case PYGEN_RETURN:
        if (out != Py_None) {
            set_stop_iteration(((RequestObject *)op)->worker->st, out);
        }
        Py_DECREF(out);
        break;
    case PYGEN_ERROR:
        break;
    }
    return NULL;
}

const char request_send_doc[] = "send($self, value, /)\n--\n\n"
                                "One step of the awaitable, as a coroutine's.";

PyObject *
request_send(PyObject *op, PyObject *value)
{
    PyObject *out;

    (void)value;
    switch (request_step((RequestObject *)op, &out)) {
    case PYGEN_NEXT:
        return out;
    case PYGEN_RETURN:
        set_stop_iteration(((RequestObject *)op)->worker->st, out);
        Py_DECREF(out);
        break;
    case PYGEN_ERROR:
        break;
    }
    return NULL;
}

/* Raise what throw() was given. */
static void
raise_thrown(PyObject *type, PyObject *value, PyObject *traceback)
{
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else if (PyExceptionClass_Check(type)) {
        PyErr_Restore(Py_NewRef(type),
                      value == Py_None ? NULL : Py_XNewRef(value),
                      traceback == Py_None ? NULL : Py_XNewRef(traceback));
    } else {
        PyErr_SetString(PyExc_TypeError,
                        "exceptions must be classes or instances deriving "
                        "from BaseException");
    }
}

const char request_throw_doc[] =
    "throw($self, type, value=None, traceback=None, /)\n--\n\n"
    "End the awaitable with an exception; a message received but not\n"
    "handed out returns to its queue. CancelledError is raised once the\n"
    "buffer is free: see cancel().";

/* Is that CancelledError, or its class? */
static bool
is_cancelled_error(RequestObject *self, PyObject *type)
{
    PyObject *cancelled = self->worker->st->cancelled_error;

    return PyExceptionInstance_Check(type) ?
               PyObject_TypeCheck(type, (PyTypeObject *)cancelled) :
               type == cancelled;
}

/* Begin to end a pending await by CancelledError. True: it ends later, and
 * yields until then. */
static bool
begin_throw(RequestObject *self, PyObject *type)
{
    PyObject *args, *message;

    if (request_is_settled(self) || self->worker->loop == NULL ||
        !is_cancelled_error(self, type) || !request_begin_cancelling(self) ||
        self->state != REQUEST_CANCELLING) {
        return false;
    }
    if (PyExceptionInstance_Check(type)) {
        args    = ((PyBaseExceptionObject *)type)->args;
        message = (PyTuple_GET_SIZE(args) != 0) ? PyTuple_GET_ITEM(args, 0) :
                                                  Py_None;
        if (request_set_cancel_message(self, message) < 0) {
            PyErr_Clear();
        }
    }
    return true;
}

PyObject *
request_throw(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    RequestObject *self = (RequestObject *)op;
    PyObject      *out;

    if (nargs < 1 || nargs > 3) {
        PyErr_Format(PyExc_TypeError,
                     "throw() takes 1 to 3 arguments but %zd were given",
                     nargs);
        return NULL;
    }
    if (begin_throw(self, args[0])) {
        end_wait(self);
        return (yield_itself(self, &out) == PYGEN_NEXT) ? out : NULL;
    }
    /* A task's wake-up takes our exception from result() and throws it in. */
    if (self->rare != NULL && args[0] == self->rare->exception) {
        request_mark_handed_out(self);
    } else if (!request_abandon(self)) {
        request_undo(self);
    }
    raise_thrown(args[0], nargs > 1 ? args[1] : NULL,
                 nargs > 2 ? args[2] : NULL);
    return NULL;
}

const char request_close_doc[] = "close($self, /)\n--\n\n"
                                 "End the awaitable, as a coroutine's close().";

PyObject *
request_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *self = (RequestObject *)op;

    if (self->rare != NULL) {
        Py_CLEAR(self->rare->low_level);
    }
    request_let_go(self);
    if (!request_abandon(self)) {
        request_undo(self);
    }
    Py_RETURN_NONE;
}
