/* SPDX-License-Identifier: BSD-3-Clause */
/* calls.c: calls into the program, once libumx has returned, and the exceptions
 * that nobody awaits. */
#include "worker/internal.h"

#include "base/log.h"
#include "buffer/event.h"
#include "buffer/memh.h"
#include "worker/event.h"
#include "worker/methods.h"
#include "worker/share.h"

/* ---- calls put off until libumx has returned ------------------------------
 */

static void
free_call(call *what)
{
    event_unlink(&what->event);
    Py_DECREF(what->func);
    Py_XDECREF(what->arg);
    Py_DECREF(what->worker);
    PyMem_Free(what);
}

static void
settle_call(event *self)
{
    call *what = EVENT_OF(self, call, event);

    event_append(&what->worker->calls, self);
}

static void
run_call(event *self, bool is_direct)
{
    call *what = EVENT_OF(self, call, event);

    worker_call(what->worker, what->func, what->arg, is_direct);
    free_call(what);
}

static const event_type call_event = {settle_call, run_call};

/* NULL with an exception. */
static call *
new_call(WorkerObject *worker, PyObject *func, PyObject *arg)
{
    call *what = PyMem_Calloc(1, sizeof(*what));

    if (what == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    what->event.type = &call_event;
    what->worker     = (WorkerObject *)Py_NewRef(worker);
    what->func       = Py_NewRef(func);
    what->arg        = Py_XNewRef(arg);
    return what;
}

void
worker_call_later(WorkerObject *worker, PyObject *func, PyObject *arg)
{
    call *what = new_call(worker, func, arg);

    if (what == NULL) {
        PyErr_WriteUnraisable(func);
        return;
    }
    event_append(&worker->calls, &what->event);
}

/* Exceptions that asyncio lets through its callbacks. */
bool
worker_ends_program(PyObject *exc)
{
    return PyErr_GivenExceptionMatches(exc, PyExc_KeyboardInterrupt) ||
           PyErr_GivenExceptionMatches(exc, PyExc_SystemExit);
}

void
worker_keep_exception(WorkerObject *worker, PyObject *exc)
{
    if (worker->raised == NULL) {
        worker->raised = exc;
    } else {
        Py_DECREF(exc);
    }
}

int
worker_raise_kept(WorkerObject *worker)
{
    PyObject *exc = worker->raised;

    if (LIKELY(exc == NULL)) {
        return 0;
    }
    worker->raised = NULL;
    PyErr_SetRaisedException(exc);
    return -1;
}

void
worker_report_exception(WorkerObject *worker, const char *message)
{
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *context, *result = NULL;

    if (worker_ends_program(exc)) {
        worker_keep_exception(worker, exc);
        return;
    }
    if (worker->loop == NULL) {
        PyErr_SetRaisedException(exc);
        PyErr_WriteUnraisable((PyObject *)worker);
        return;
    }
    context = Py_BuildValue("{s:s,s:O}", "message", message, "exception", exc);
    if (context != NULL) {
        result = PyObject_CallMethodOneArg(
            worker->loop, NAME(worker->st, call_exception_handler), context);
        Py_DECREF(context);
    }
    if (result == NULL) {
        PyErr_WriteUnraisable((PyObject *)worker);
    }
    Py_XDECREF(result);
    Py_DECREF(exc);
}

/* Clears the exception, if there is one. */
bool
worker_loop_is_closed(WorkerObject *self)
{
    PyObject *result;
    int       is_closed;

    PyErr_Clear();
    result = PyObject_CallMethodNoArgs(self->loop, NAME(self->st, is_closed));
    is_closed = (result == NULL) ? 1 : PyObject_IsTrue(result);

    PyErr_Clear();
    Py_XDECREF(result);
    return is_closed != 0;
}

/* Has a call failed because the loop is closed? Then nobody is left to hear. */
static bool
failed_as_loop_is_closed(WorkerObject *worker)
{
    PyObject *exc       = PyErr_GetRaisedException();
    bool      is_closed = worker_loop_is_closed(worker);

    if (is_closed) {
        Py_DECREF(exc);
    } else {
        PyErr_SetRaisedException(exc);
    }
    return is_closed;
}

int
worker_call_soon(WorkerObject *worker, PyObject *func, PyObject *arg,
                 PyObject *context)
{
    PyObject *call_soon = Py_NewRef(worker->call_soon); /* close() drops it */
    PyObject *args[]    = {func, arg, context};
    PyObject *handle;

    if (arg == NULL) {
        args[1] = context;
    }
    handle = PyObject_Vectorcall(call_soon, args, arg != NULL ? 2 : 1,
                                 context != NULL ? worker->st->context_kwname :
                                                   NULL);
    Py_DECREF(call_soon);
    Py_XDECREF(handle);
    return (handle == NULL) ? -1 : 0;
}

static int
call_one(WorkerObject *worker, PyObject *func, PyObject *arg, bool is_direct)
{
    PyObject *result;

    if (!is_direct) {
        if (worker->call_soon == NULL ||
            worker_call_soon(worker, func, arg, NULL) == 0 ||
            failed_as_loop_is_closed(worker)) {
            return 0; /* or closed, or no loop */
        }
        return -1;
    }
    result = PyObject_Vectorcall(func, &arg, arg != NULL ? 1 : 0, NULL);
    Py_XDECREF(result);
    return (result == NULL) ? -1 : 0;
}

void
worker_call(WorkerObject *worker, PyObject *func, PyObject *arg, bool is_direct)
{
    if (call_one(worker, func, arg, is_direct || worker->loop == NULL) < 0) {
        worker_report_exception(worker, "a callback of ucp failed");
    }
}

void
worker_queue_wakes(WorkerObject *worker)
{
    event *first;

    while ((first = event_pop(&worker->wakes)) != NULL) {
        first->type->call(first, false);
    }
}

/* The callbacks that are left wait for the next turn: what is woken later must
 * not run first. */
void
worker_run_wakes(WorkerObject *worker)
{
    event *first;

    while (worker->raised == NULL &&
           (first = event_pop(&worker->wakes)) != NULL) {
        first->type->call(first, true);
        if (worker_turn_is_over(worker)) {
            return;
        }
    }
}

void
worker_run_calls(WorkerObject *worker, bool is_direct)
{
    event *first;

    while ((first = event_pop(&worker->calls)) != NULL) {
        is_direct = is_direct && worker->raised == NULL;
        first->type->call(first, is_direct);
    }
}

void
worker_settle_told(WorkerObject *worker)
{
    event *first;

    while ((first = event_pop(&worker->told)) != NULL) {
        first->type->settle(first);
    }
    if (UNLIKELY(event_has_freed())) {
        memory_release_freed();
    }
}

static inline void
run_due(WorkerObject *worker)
{
    if (UNLIKELY(worker->waiters != NULL)) {
        worker_wake_waiters(worker);
    }
    if (UNLIKELY(log_is_due())) {
        worker_schedule_drain(worker);
    }
    if (LIKELY(!worker_has_due(worker))) {
        return;
    }
    if (worker->call_soon == NULL) {
        worker_queue_wakes(worker);
    } else if (!event_list_is_empty(&worker->wakes)) {
        worker_schedule_drain(worker); /* drive() runs them, in their order */
    }
    worker_run_calls(worker, false);
}

/* Do callbacks run in the program's own calls of progress()? */
static bool
is_polled(const WorkerObject *worker)
{
    return worker->loop == NULL && !worker->is_shared;
}

/* Has a call of libumx left nothing to do but what its caller waits for? */
static inline bool
is_quiet(const WorkerObject *worker)
{
    return event_list_is_empty(&worker->told) &&
           event_list_is_empty(&worker->closers) && !worker_has_due(worker) &&
           worker->waiters == NULL && !log_is_due() && !event_has_freed();
}

/* In the loop's own callback drive() runs everything; elsewhere a task is
 * running, and has drive() called. */
void
worker_after_call(WorkerObject *worker)
{
    if (LIKELY(is_quiet(worker))) {
        return;
    }
    worker_settle_told(worker);
    if (UNLIKELY(!event_list_is_empty(&worker->closers))) {
        worker_settle_closers(worker);
    }
    if (!worker->in_callback && !is_polled(worker)) {
        run_due(worker);
    }
}

void
worker_after_progress(WorkerObject *worker)
{
    worker_settle_told(worker);
    if (UNLIKELY(!event_list_is_empty(&worker->closers))) {
        worker_settle_closers(worker);
    }
    worker_queue_wakes(worker); /* a program may do nothing but poll */
    run_due(worker);
}

const char worker_submit_doc[] =
    "_submit($self, callable, /)\n--\n\n"
    "Have the worker's thread call it. Any thread.";

PyObject *
worker_submit_call(PyObject *op, PyObject *callable)
{
    WorkerObject *self = (WorkerObject *)op;
    call         *what;

    if (self->umx == NULL || self->is_shutting) {
        PyErr_SetString(PyExc_RuntimeError, "the worker is closed");
        return NULL;
    }
    if (worker_is_forked(self)) {
        (void)worker_check(self);
        return NULL;
    }
    what = new_call(self, callable, NULL);
    if (what == NULL) {
        return NULL;
    }
    if (!event_submit_call(self, what)) {
        free_call(what);
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}
