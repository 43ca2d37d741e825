/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.c: a worker bound to an event loop.
 *
 * The rule that keeps it from hanging and from burning a core: when the loop
 * goes to sleep, the worker is armed or a call of _drain is scheduled. An await
 * that yields drains and arms before it does; the reader callback and _drain
 * end armed or scheduled; whatever posts without awaiting schedules _drain. */
#include "worker/worker.h"

#include "args.h"
#include "log.h"
#include "op/am.h"
#include "op/close.h"
#include "op/connect.h"
#include "op/tag.h"
#include "request/request.h"
#include "types/context.h"
#include "types/endpoint.h"
#include "types/listener.h"
#include "types/memh.h"
#include "worker/address.h"
#include "worker/thread.h"

#include <sys/socket.h>
#include <unistd.h>

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

/* As asyncio does: these end the program, not the callback. */
static bool
ends_program(PyObject *exc)
{
    return PyErr_GivenExceptionMatches(exc, PyExc_KeyboardInterrupt) ||
           PyErr_GivenExceptionMatches(exc, PyExc_SystemExit);
}

/* To be raised when C has returned to Python. */
static void
keep_exception(WorkerObject *worker, PyObject *exc)
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

    if (ends_program(exc)) {
        keep_exception(worker, exc);
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

/* Nobody is left to hear. */
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

/* Hand all to the loop. */
static void
queue_wakes(WorkerObject *worker)
{
    event *first;

    while ((first = event_pop(&worker->wakes)) != NULL) {
        first->type->call(first, false);
    }
}

/* As many as the loop's turn has time for. The rest wait for the next: what is
 * woken later must not run first. */
static void
run_wakes(WorkerObject *worker)
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

static void
run_calls(WorkerObject *worker, bool is_direct)
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

/* What is due in the worker's thread. */
static inline bool
has_due(const WorkerObject *worker)
{
    return !event_list_is_empty(&worker->wakes) ||
           !event_list_is_empty(&worker->calls);
}

/* close_all() is done once nothing is closing any more. */
static void
settle_closers(WorkerObject *worker)
{
    if (worker->umx != NULL && umx_worker_num_closing(worker->umx) != 0) {
        return;
    }
    while (worker->closers != NULL) {
        RequestObject *req = worker->closers;

        worker->closers = req->next;
        req->next       = NULL;
        if (!req->is_settled) {
            request_settle(req, UMX_OK);
        }
        Py_DECREF(req);
    }
}

static inline void
run_due(WorkerObject *worker)
{
    if (LIKELY(!has_due(worker))) {
        return;
    }
    if (worker_is_helper(worker)) {
        worker_schedule_drain(worker);
        return;
    }
    if (worker->call_soon == NULL) {
        queue_wakes(worker);
    } else if (!event_list_is_empty(&worker->wakes)) {
        worker_schedule_drain(worker); /* drive() runs them, in their order */
    }
    run_calls(worker, false);
}

/* What libumx has told, and what that left to do. In the loop's own callback
 * everything is run by drive(); elsewhere a task is running, and it goes
 * through call_soon(). */
void
worker_after_call(WorkerObject *worker)
{
    worker_settle_told(worker);
    if (UNLIKELY(worker->closers != NULL)) {
        settle_closers(worker);
    }
    if (!worker->in_callback) {
        run_due(worker);
    }
}

/* The same after a call whose purpose this is: a task that drive() has resumed
 * may wait for it without returning to the loop. */
static void
after_progress(WorkerObject *worker)
{
    worker_settle_told(worker);
    if (UNLIKELY(worker->closers != NULL)) {
        settle_closers(worker);
    }
    run_due(worker);
}

/* ---- the loop's side -----------------------------------------------------
 */

/* Without a loop, or if it is closed: the owner's next call finds it. */
static void
schedule_drain_as_helper(WorkerObject *worker)
{
    PyObject *handle;

    worker->is_drain_scheduled = true;
    handle                     = PyObject_CallMethodOneArg(worker->loop,
                                                           NAME(worker->st, call_soon_threadsafe),
                                                           worker->drain_call);
    if (handle == NULL) {
        worker->is_drain_scheduled = false;
        PyErr_Clear();
    }
    Py_XDECREF(handle);
}

/* The collector may run in it, and with it code that closes the worker. */
static PyObject *
call_soon_drain(WorkerObject *worker)
{
    PyObject *call_soon = Py_NewRef(worker->call_soon);
    PyObject *args[]    = {Py_NewRef(worker->drain_call)};
    PyObject *handle    = PyObject_Vectorcall(call_soon, args, 1, NULL);

    Py_DECREF(call_soon);
    Py_DECREF(args[0]);
    return handle;
}

static void
schedule_drain_as_owner(WorkerObject *worker)
{
    PyObject *handle = call_soon_drain(worker);

    if (UNLIKELY(handle == NULL)) {
        PyObject *exc = PyErr_GetRaisedException();

        if (!ends_program(exc)) {
            Py_DECREF(exc); /* the loop is closed */
            return;
        }
        /* A signal's handler raised in the middle of it. */
        keep_exception(worker, exc);
        handle = (worker->call_soon != NULL) ? call_soon_drain(worker) : NULL;
        if (handle == NULL) {
            PyErr_Clear();
            return;
        }
    }
    worker->is_drain_scheduled = true;
    Py_DECREF(handle);
}

void
worker_schedule_drain(WorkerObject *worker)
{
    PyObject *raised;

    if (UNLIKELY(worker->helper != 0)) {
        worker_wake_helper(worker); /* the loop may be blocked */
    }
    if (worker->is_drain_scheduled || worker->in_callback ||
        worker->call_soon == NULL) {
        return; /* drive() looks again before it returns */
    }
    raised = PyErr_GetRaisedException();
    if (worker_is_helper(worker)) {
        schedule_drain_as_helper(worker);
    } else {
        schedule_drain_as_owner(worker);
    }
    if (raised != NULL) {
        PyErr_SetRaisedException(raised);
    }
}

void
worker_drain_if_due(WorkerObject *worker)
{
    if (worker->umx != NULL && !umx_worker_is_armed(worker->umx)) {
        worker_schedule_drain(worker);
    }
}

static void
cancel_timer(WorkerObject *worker)
{
    PyObject *timer = worker->timer, *result;

    worker->timer    = NULL;
    worker->timer_ns = 0;
    if (timer != NULL) {
        result = PyObject_CallMethodNoArgs(timer, NAME(worker->st, cancel));
        if (result == NULL) {
            PyErr_Clear();
        }
        Py_XDECREF(result);
        Py_DECREF(timer);
    }
}

static NOINLINE void
set_timer(WorkerObject *worker, uint64_t deadline)
{
    uint64_t  now   = compat_clock_ns();
    double    delay = (deadline > now) ? (double)(deadline - now) * 1e-9 : 0;
    PyObject *seconds, *timer = NULL;

    cancel_timer(worker);
    if (deadline == UINT64_MAX || worker->call_soon == NULL) {
        return;
    }
    seconds = PyFloat_FromDouble(delay);
    if (seconds != NULL) {
        PyObject *args[] = {worker->loop, seconds,
                            Py_NewRef(worker->drain_call)};

        timer = PyObject_VectorcallMethod(NAME(worker->st, call_later), args, 3,
                                          NULL);
        Py_DECREF(args[2]);
        Py_DECREF(seconds);
    }
    if (timer != NULL) {
        Py_XSETREF(worker->timer, timer); /* another one that its code set */
        worker->timer_ns = deadline;
        return;
    }
    {
        PyObject *exc = PyErr_GetRaisedException();

        if (worker_loop_is_closed(worker)) {
            Py_XDECREF(exc); /* at exit: run_until_closed() keeps time */
            return;
        }
        PyErr_SetRaisedException(exc);
        worker_report_exception(worker, "ucp cannot set a timer");
    }
}

void
worker_update_timer(WorkerObject *worker)
{
    uint64_t deadline;

    if (worker->umx == NULL) {
        return;
    }
    deadline = umx_worker_deadline(worker->umx);
    if (UNLIKELY(worker->helper != 0) && deadline < worker->helper_deadline) {
        worker_wake_helper(worker);
    }
    if (worker->loop == NULL || worker_is_helper(worker)) {
        return;
    }
    if (UNLIKELY(deadline != worker->timer_ns &&
                 (deadline != UINT64_MAX || worker->timer_ns != 0))) {
        set_timer(worker, deadline);
    }
}

/* Called by the loop: no task is running. Ends armed, or scheduled. Returns
 * None, or NULL with what is to end the program. */
static PyObject *
drive(WorkerObject *worker)
{
    umx_status status = UMX_OK;
    int        rc;

    if (UNLIKELY(!worker_is_mine(worker))) {
        Py_RETURN_NONE; /* the parent's loop, run on in a forked child */
    }
    Py_INCREF(worker);
    worker->in_callback = true;
    worker->is_turn_due = false;
    worker_begin_turn(worker);
    while (worker->umx != NULL) {
        status = umx_worker_drain(worker->umx);
        worker_settle_told(worker);
        settle_closers(worker);
        run_wakes(worker);
        run_calls(worker, true);
        if (worker->umx == NULL || status < 0 || worker->raised != NULL ||
            worker->is_turn_due || worker_turn_is_over(worker)) {
            break;
        }
        if (umx_worker_is_armed(worker->umx) && !has_due(worker)) {
            break;
        }
    }
    worker->in_callback = false;
    if (worker->umx != NULL) {
        if (!umx_worker_is_armed(worker->umx) || has_due(worker) ||
            worker->is_turn_due) {
            worker_schedule_drain(worker);
        }
        worker_update_timer(worker);
    }
    log_deliver(worker->st);
    rc = worker_raise_kept(worker);
    Py_DECREF(worker);
    return (rc < 0) ? NULL : Py_NewRef(Py_None);
}

static PyObject *
worker_on_readable(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    /* What is scheduled runs in this turn of the loop or the next: a turn has
     * one budget. */
    return self->is_drain_scheduled ? Py_NewRef(Py_None) : drive(self);
}

/* Scheduled by call_soon() or call_later(). */
static PyObject *
worker_on_drain(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    self->is_drain_scheduled = false;
    if (self->timer != NULL && self->timer_ns <= compat_clock_ns()) {
        self->timer_ns = 0; /* it was the timer: set it anew */
        Py_CLEAR(self->timer);
    }
    return drive(self);
}

/* ---- life ----------------------------------------------------------------
 */

static int
add_reader(WorkerObject *self)
{
    PyObject *reader, *fd, *result = NULL;

    self->call_soon  = PyObject_GetAttr(self->loop, NAME(self->st, call_soon));
    self->drain_call = PyObject_GetAttrString((PyObject *)self, "_on_drain");
    reader           = PyObject_GetAttrString((PyObject *)self, "_on_readable");
    fd               = PyLong_FromLong(umx_worker_fd(self->umx));
    if (self->call_soon != NULL && self->drain_call != NULL && reader != NULL &&
        fd != NULL) {
        result = PyObject_CallMethodObjArgs(
            self->loop, NAME(self->st, add_reader), fd, reader, NULL);
    }
    Py_XDECREF(fd);
    Py_XDECREF(reader);
    if (result == NULL) {
        return -1;
    }
    Py_DECREF(result);
    worker_schedule_drain(self); /* arms */
    return 0;
}

static void
remove_reader(WorkerObject *self)
{
    PyObject *result, *fd;

    cancel_timer(self);
    if (self->loop == NULL) {
        return;
    }
    fd     = PyLong_FromLong(umx_worker_fd(self->umx));
    result = (fd == NULL) ? NULL :
                            PyObject_CallMethodOneArg(
                                self->loop, NAME(self->st, remove_reader), fd);
    if (result == NULL) {
        PyErr_Clear(); /* the loop is closed: it has dropped the fd */
    }
    Py_XDECREF(result);
    Py_XDECREF(fd);
}

static void
worker_shut(WorkerObject *self)
{
    umx_worker *umx = self->umx;

    if (umx == NULL || self->is_shutting) {
        return;
    }
    self->is_shutting = true; /* the loop's code may close it again */
    remove_reader(self);
    if (self->loop != NULL && worker_loop_is_closed(self)) {
        Py_CLEAR(self->call_soon);
    }
    self->in_callback = true; /* collect what completes */
    umx_worker_destroy(umx);
    self->umx = NULL;
    worker_settle_told(self);
    settle_closers(self);
    self->in_callback = false;
    queue_wakes(self);
    run_calls(self, false);
    self->st->num_workers--;
    Py_CLEAR(self->call_soon);
    Py_CLEAR(self->drain_call);
}

static PyObject *
worker_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"context", "loop", "endpoint_type",
                               "listener_type", NULL};

    mod_state    *st = state_of_type(type);
    PyObject     *context, *loop, *endpoint_class, *listener_class;
    WorkerObject *self;
    umx_status    status;

    if (st == NULL || !PyArg_ParseTupleAndKeywords(
                          args, kwargs, "O!OO!O!:Worker", keywords,
                          st->context_type, &context, &loop, &PyType_Type,
                          &endpoint_class, &PyType_Type, &listener_class)) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)endpoint_class, st->endpoint_type) ||
        !PyType_IsSubtype((PyTypeObject *)listener_class, st->listener_type)) {
        PyErr_SetString(PyExc_TypeError,
                        "endpoint_type and listener_type must be subclasses "
                        "of Endpoint and Listener");
        return NULL;
    }
    self = (WorkerObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->st = st;
    event_list_init(&self->told);
    event_list_init(&self->wakes);
    event_list_init(&self->calls);
    self->addressed.type = &worker_addressed_event;
    self->wake_fd        = -1;
    self->thread         = compat_thread_id();
    self->context        = (ContextObject *)Py_NewRef(context);
    self->endpoint_class = (PyTypeObject *)Py_NewRef(endpoint_class);
    self->listener_class = (PyTypeObject *)Py_NewRef(listener_class);
    status               = umx_worker_create(self->context->umx, &self->umx);
    if (status != UMX_OK) {
        Py_DECREF(self);
        return errors_raise(st, status, "Worker", NULL);
    }
    st->num_workers++;
    if (loop != Py_None) {
        self->loop = Py_NewRef(loop);
        worker_begin_turn(self);
        if (add_reader(self) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static int
worker_traverse(PyObject *op, visitproc visit, void *arg)
{
    WorkerObject *self = (WorkerObject *)op;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->context);
    Py_VISIT(self->loop);
    Py_VISIT(self->endpoint_class);
    Py_VISIT(self->listener_class);
    Py_VISIT(self->call_soon);
    Py_VISIT(self->drain_call);
    Py_VISIT(self->timer);
    Py_VISIT(self->raised);
    Py_VISIT(self->on_addressed);
    for (am_handler *handler = self->am_handlers; handler != NULL;
         handler             = handler->next) {
        Py_VISIT(handler->func);
    }
    Py_VISIT(self->am_host_allocator);
    Py_VISIT(self->am_device_allocator);
    return 0;
}

static int
worker_clear(PyObject *op)
{
    WorkerObject *self = (WorkerObject *)op;

    Py_CLEAR(self->loop);
    Py_CLEAR(self->call_soon);
    Py_CLEAR(self->drain_call);
    Py_CLEAR(self->timer);
    Py_CLEAR(self->raised);
    Py_CLEAR(self->on_addressed);
    Py_CLEAR(self->am_host_allocator);
    Py_CLEAR(self->am_device_allocator);
    am_clear_handlers(self);
    return 0;
}

static void
worker_dealloc(PyObject *op)
{
    WorkerObject *self = (WorkerObject *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject     *exc  = PyErr_GetRaisedException();

    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    if (self->umx != NULL) {
        /* In another thread or process UCX may not be touched: it is leaked. */
        (void)worker_clear(op);
        if (worker_is_mine(self)) {
            worker_shut(self);
        } else if (!worker_is_forked(self) &&
                   PyErr_WarnEx(PyExc_ResourceWarning,
                                "a ucp Worker was dropped in another thread "
                                "than its own without close()",
                                1) < 0) {
            PyErr_WriteUnraisable(NULL);
        }
    }
    (void)worker_clear(op);
    event_unlink(&self->addressed);
    am_free_handlers(self);
    Py_CLEAR(self->context);
    Py_CLEAR(self->endpoint_class);
    Py_CLEAR(self->listener_class);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- methods -------------------------------------------------------------
 */

int
worker_check(WorkerObject *self)
{
    if (self->umx == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the worker is closed");
        return -1;
    }
    if (umx_worker_is_owner(self->umx) && worker_is_mine(self)) {
        return 0;
    }
    PyErr_SetString(PyExc_RuntimeError,
                    worker_is_forked(self) ?
                        "the worker belongs to the parent process" :
                        "the worker belongs to another thread");
    return -1;
}

static int
check_not_shared(WorkerObject *self)
{
    if (worker_check(self) < 0) {
        return -1;
    }
    if (self->wake_fd >= 0) {
        PyErr_SetString(PyExc_RuntimeError, "the worker runs in a thread");
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(fileno_doc,
             "fileno($self, /)\n--\n\n"
             "File descriptor that is readable when drain() is due.");

static PyObject *
worker_fileno(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    return (worker_check(self) < 0) ? NULL :
                                      PyLong_FromLong(umx_worker_fd(self->umx));
}

PyDoc_STRVAR(progress_doc, "progress($self, /)\n--\n\n"
                           "Poll UCX once; returns the number of events.");

static PyObject *
worker_progress(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    unsigned      events;

    if (worker_check(self) < 0) {
        return NULL;
    }
    events = umx_worker_poll(self->umx);
    after_progress(self);
    worker_drain_if_due(self);
    worker_update_timer(self);
    return (worker_raise_kept(self) < 0) ? NULL :
                                           PyLong_FromUnsignedLong(events);
}

PyDoc_STRVAR(poll_doc,
             "_poll($self, /)\n--\n\n"
             "progress() until a callback is due, or nothing is left.");

static PyObject *
worker_poll(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    if (worker_check(self) < 0) {
        return NULL;
    }
    while (umx_worker_poll(self->umx) != 0 &&
           event_list_is_empty(&self->told) && !has_due(self)) {
    }
    after_progress(self);
    return (worker_raise_kept(self) < 0) ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(arm_doc,
             "arm($self, /)\n--\n\n"
             "Progress until nothing is left, then arm. True: idle, wait for\n"
             "fileno(). False: the time budget ran out, call again.");

static PyObject *
worker_arm(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    umx_status    status;

    if (worker_check(self) < 0) {
        return NULL;
    }
    status = umx_worker_drain(self->umx);
    worker_after_call(self);
    worker_update_timer(self);
    if (worker_raise_kept(self) < 0) {
        return NULL;
    }
    if (status < 0) {
        return errors_raise(self->st, status, "arm", NULL);
    }
    return PyBool_FromLong(status == UMX_OK);
}

PyDoc_STRVAR(worker_abort_doc,
             "abort($self, /)\n--\n\n"
             "Destroy the worker and all under it: listeners stop, endpoints\n"
             "are closed by force, pending requests are cancelled.");

static PyObject *
worker_abort(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    if (self->umx == NULL || worker_is_forked(self)) {
        Py_RETURN_NONE;
    }
    if (check_not_shared(self) < 0) {
        return NULL;
    }
    worker_shut(self);
    return (worker_raise_kept(self) < 0) ? NULL : Py_NewRef(Py_None);
}

/* ---- other threads and processes -----------------------------------------
 */

PyDoc_STRVAR(submit_doc, "_submit($self, callable, /)\n--\n\n"
                         "Have the worker's thread call it. Any thread.");

static PyObject *
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

PyDoc_STRVAR(adopt_doc, "_adopt($self, /)\n--\n\n"
                        "Take the worker over from a thread that has ended.");

static PyObject *
worker_adopt(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    if (self->umx != NULL && !worker_is_forked(self)) {
        umx_worker_adopt(self->umx);
        self->thread = compat_thread_id();
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(disown_doc,
             "_disown($self, /)\n--\n\n"
             "In a forked child: from now on this is the parent's.");

static PyObject *
worker_disown(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    self->thread = 0;
    self->helper = 0;
    if (self->wake_fd >= 0) {
        close(self->wake_fd);
        self->wake_fd = -1;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(close_all_doc,
             "_close_all($self, timeout, /)\n--\n\n"
             "Wait, `timeout` seconds at most, until no close is under way.");

static PyObject *
worker_close_all(PyObject *op, PyObject *timeout)
{
    WorkerObject  *self = (WorkerObject *)op;
    RequestObject *req;
    PyObject      *expire, *handle = NULL;

    req = request_new(self, NULL, &op_close_all);
    if (req == NULL) {
        return NULL;
    }
    if (worker_check(self) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    if (umx_worker_num_closing(self->umx) == 0) {
        request_settle(req, UMX_OK);
        return (PyObject *)req;
    }
    if (self->loop != NULL) {
        expire = PyObject_GetAttrString((PyObject *)req, "_expire");
        if (expire != NULL) {
            handle = PyObject_CallMethodObjArgs(
                self->loop, NAME(self->st, call_later), timeout, expire, NULL);
            Py_DECREF(expire);
        }
        if (handle == NULL) {
            Py_DECREF(req);
            return NULL;
        }
        Py_DECREF(handle);
        if (self->umx == NULL) { /* the loop's code, or the timeout's, did it */
            request_settle(req, UMX_OK);
            return (PyObject *)req;
        }
        worker_schedule_drain(self);
    }
    req->next     = self->closers;
    self->closers = (RequestObject *)Py_NewRef(req);
    return (PyObject *)req;
}

enum {
    SIGNALS_NS = 500000000 /* between two looks for signals */
};

PyDoc_STRVAR(run_until_closed_doc,
             "_run_until_closed($self, timeout, /)\n--\n\n"
             "Block, `timeout` seconds at most, until no close is under way.");

static PyObject *
worker_run_until_closed(PyObject *op, PyObject *timeout)
{
    WorkerObject *self = (WorkerObject *)op;
    uint64_t      timeout_ns, start = compat_clock_ns(), now = start;
    umx_status    status;

    if (args_timeout(timeout, 0, &timeout_ns) < 0 ||
        check_not_shared(self) < 0) {
        return NULL;
    }
    if (self->loop != NULL && worker_loop_is_closed(self)) {
        Py_CLEAR(self->call_soon);
    }
    if (self->umx == NULL) {
        Py_RETURN_NONE; /* the loop's code closed it */
    }
    /* Endpoints dropped just now start to close in this. */
    worker_begin_turn(self);
    status = umx_worker_drain(self->umx);
    worker_after_call(self);
    while (status >= 0 && self->umx != NULL &&
           umx_worker_num_closing(self->umx) != 0 && now - start < timeout_ns) {
        uint64_t left = timeout_ns - (now - start);

        /* Not for long: a signal may have come just before. */
        worker_sleep(self, (left < SIGNALS_NS) ? left : SIGNALS_NS);
        if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
        if (self->umx == NULL) {
            Py_RETURN_NONE; /* a signal's handler closed it */
        }
        worker_begin_turn(self);
        status = umx_worker_drain(self->umx);
        worker_after_call(self);
        if (self->umx == NULL) {
            Py_RETURN_NONE; /* so did a callback */
        }
        now = compat_clock_ns();
    }
    if (status < 0) {
        return errors_raise(self->st, status, "run_until_closed", NULL);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(check_doc,
             "_check($self, /)\n--\n\n"
             "Raise RuntimeError unless this thread owns the open worker.");

static PyObject *
worker_check_owner(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return (worker_check((WorkerObject *)op) < 0) ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(overslept_doc,
             "_overslept($self, /)\n--\n\n"
             "For tests, called by the loop: True if work was left that\n"
             "nothing would have woken the loop for. It is being done now.");

static PyObject *
worker_overslept(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    bool          is_lost;

    if (worker_check(self) < 0) {
        return NULL;
    }
    if (self->is_drain_scheduled || self->wake_fd >= 0) {
        Py_RETURN_FALSE;
    }
    is_lost = !umx_worker_is_armed(self->umx) ||
              umx_worker_overslept(self->umx);
    worker_after_call(self);
    if (is_lost) {
        worker_schedule_drain(self);
    }
    return PyBool_FromLong(is_lost);
}

PyDoc_STRVAR(share_doc,
             "_share($self, is_shared, /)\n--\n\n"
             "Let another thread call _run(), or have that return; False if\n"
             "nothing changes.");

PyDoc_STRVAR(run_doc, "_run($self, /)\n--\n\n"
                      "Progress until _share(False).");

PyDoc_STRVAR(info_doc,
             "info($self, /)\n--\n\nUCX's own description of the worker.");

static PyObject *
worker_info(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    PyObject     *text;
    char         *chars;
    umx_status    status;

    if (worker_check(self) < 0) {
        return NULL;
    }
    status = umx_worker_info(self->umx, &chars);
    if (status != UMX_OK) {
        return errors_raise(self->st, status, "info", NULL);
    }
    text = PyUnicode_FromString(chars);
    free(chars);
    return text;
}

PyDoc_STRVAR(stats_doc, "stats($self, /)\n--\n\nCounters by name.");

static PyObject *
worker_stats(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject    *self = (WorkerObject *)op;
    umx_worker_stats stats;

    if (worker_check(self) < 0) {
        return NULL;
    }
    umx_worker_query(self->umx, &stats);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}",
        "requests_in_use", stats.requests_in_use, "requests_peak",
        stats.requests_peak, "requests_lost", stats.requests_lost, "endpoints",
        stats.endpoints, "listeners", stats.listeners, "unexpected_messages",
        stats.unexpected_messages, "unexpected_bytes", stats.unexpected_bytes,
        "protocol_errors", stats.protocol_errors, "stray_messages",
        stats.stray_messages, "wakeups", stats.wakeups, "spins", stats.spins,
        "spin_hits", stats.spin_hits, "loans", stats.loans, "renewals",
        stats.renewals);
}

PyDoc_STRVAR(worker_flush_doc,
             "flush($self, /)\n--\n\n"
             "Wait until all that was sent is in the peers' memory.");

static PyObject *
worker_flush(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject  *self = (WorkerObject *)op;
    RequestObject *req;

    if (worker_check(self) < 0) {
        return NULL;
    }
    req = request_new(self, NULL, &op_flush);
    return (req == NULL) ? NULL : request_post(req);
}

PyDoc_STRVAR(take_num_ended_doc,
             "_take_num_ended($self, /)\n--\n\n"
             "Callbacks told since the last call that their endpoint ended.");

static PyObject *
worker_take_num_ended(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    size_t        num  = self->num_ended;

    self->num_ended = 0;
    return PyLong_FromSize_t(num);
}

PyDoc_STRVAR(worker_fence_doc, "fence($self, /)\n--\n\n"
                               "Endpoint.fence() for every endpoint.");

static PyObject *
worker_fence(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    umx_status    status;

    if (worker_check(self) < 0) {
        return NULL;
    }
    status = umx_worker_fence(self->umx);
    if (status != UMX_OK) {
        return errors_raise(self->st, status, "fence", NULL);
    }
    Py_RETURN_NONE;
}

/* ---- attributes ----------------------------------------------------------
 */

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\nTrue once it has ended.");

static PyObject *
worker_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    return PyBool_FromLong(self->umx == NULL || worker_is_forked(self));
}

static PyObject *
get_is_armed(PyObject *op, void *Py_UNUSED(closure))
{
    WorkerObject *self = (WorkerObject *)op;

    return PyBool_FromLong(self->umx != NULL && umx_worker_is_armed(self->umx));
}

static PyObject *
get_num_closing(PyObject *op, void *Py_UNUSED(closure))
{
    WorkerObject *self = (WorkerObject *)op;

    return PyLong_FromUnsignedLong(
        self->umx == NULL ? 0 : umx_worker_num_closing(self->umx));
}

static PyObject *
get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    WorkerObject *self = (WorkerObject *)op;

    return (self->umx == NULL) ?
               PyLong_FromLong(0) :
               PyLong_FromVoidPtr(umx_worker_handle(self->umx));
}

static PyObject *
get_loop(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *loop = ((WorkerObject *)op)->loop;

    return Py_NewRef(loop != NULL ? loop : Py_None);
}

static PyObject *
get_context(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((WorkerObject *)op)->context);
}

/* ---- listening -----------------------------------------------------------
 */

PyDoc_STRVAR(listen_doc,
             "listen($self, sockaddr, on_accept, *, backlog=None,\n"
             "       timeout=None, on_remote_close=None)\n--\n\n"
             "Listen on (host, port[, flowinfo, scope]), numeric; a host of\n"
             "None is all addresses, of IPv6 where there is some. Calls\n"
             "on_accept(endpoint) for each peer whose handshake is complete.\n"
             "With on_remote_close accepted peers may close it; that is\n"
             "called then.");

static PyObject *
worker_listen(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames)
{
    static const char *const keywords[] = {"sockaddr", "on_accept", "backlog",
                                           "timeout", "on_remote_close"};
    WorkerObject            *self       = (WorkerObject *)op;
    PyObject                *values[5];

    if (args_parse("listen", args, nargs, kwnames, keywords, 5, 2, 2, values) <
        0) {
        return NULL;
    }
    if (!PyCallable_Check(values[1])) {
        PyErr_Format(PyExc_TypeError, "on_accept must be callable, not %.200s",
                     Py_TYPE(values[1])->tp_name);
        return NULL;
    }
    return listener_new(self, values[0], values[1], values[2], values[3],
                        values[4]);
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef worker_methods[] = {
    {"fileno", worker_fileno, METH_NOARGS, fileno_doc},
    {"progress", worker_progress, METH_NOARGS, progress_doc},
    {"_poll", worker_poll, METH_NOARGS, poll_doc},
    {"arm", worker_arm, METH_NOARGS, arm_doc},
    {"abort", worker_abort, METH_NOARGS, worker_abort_doc},
    {"closed", worker_closed, METH_NOARGS, closed_doc},
    {"_close_all", worker_close_all, METH_O, close_all_doc},
    {"_run_until_closed", worker_run_until_closed, METH_O,
     run_until_closed_doc},
    {"info", worker_info, METH_NOARGS, info_doc},
    {"stats", worker_stats, METH_NOARGS, stats_doc},
    {"flush", worker_flush, METH_NOARGS, worker_flush_doc},
    {"fence", worker_fence, METH_NOARGS, worker_fence_doc},
    {"send", KEYWORDS_FUNC(worker_send), KEYWORDS, worker_send_doc},
    {"recv", KEYWORDS_FUNC(worker_recv), KEYWORDS, worker_recv_doc},
    {"_tag_recv", KEYWORDS_FUNC(worker_tag_recv), KEYWORDS,
     worker_tag_recv_doc},
    {"recv_message", KEYWORDS_FUNC(worker_recv_message), KEYWORDS,
     worker_recv_message_doc},
    {"probe", KEYWORDS_FUNC(worker_probe), KEYWORDS, worker_probe_doc},
    {"tag_probe", KEYWORDS_FUNC(worker_tag_probe), KEYWORDS,
     worker_tag_probe_doc},
    {"_connect", KEYWORDS_FUNC(worker_connect), KEYWORDS, worker_connect_doc},
    {"_start_connect", KEYWORDS_FUNC(worker_start_connect), KEYWORDS,
     worker_start_connect_doc},
    {"_take_num_ended", worker_take_num_ended, METH_NOARGS, take_num_ended_doc},
    {"_listen", KEYWORDS_FUNC(worker_listen), KEYWORDS, listen_doc},
    {"get_address", worker_get_address, METH_NOARGS, worker_get_address_doc},
    {"_connect_address", KEYWORDS_FUNC(worker_connect_address), KEYWORDS,
     worker_connect_address_doc},
    {"_take_addressed", worker_take_addressed, METH_NOARGS,
     worker_take_addressed_doc},
    {"_withdraw_address", worker_withdraw_address, METH_NOARGS,
     worker_withdraw_address_doc},
    {"_set_am_handler", KEYWORDS_FUNC(worker_set_am_handler), METH_FASTCALL,
     NULL},
    {"_set_am_allocator", KEYWORDS_FUNC(worker_set_am_allocator), METH_FASTCALL,
     NULL},
    {"_submit", worker_submit_call, METH_O, submit_doc},
    {"_adopt", worker_adopt, METH_NOARGS, adopt_doc},
    {"_disown", worker_disown, METH_NOARGS, disown_doc},
    {"_check", worker_check_owner, METH_NOARGS, check_doc},
    {"_overslept", worker_overslept, METH_NOARGS, overslept_doc},
    {"_share", worker_share, METH_O, share_doc},
    {"_run", worker_run, METH_NOARGS, run_doc},
    {"_on_readable", worker_on_readable, METH_NOARGS, NULL},
    {"_on_drain", worker_on_drain, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef worker_getset[] = {
    {"_is_armed", get_is_armed, NULL,
     "True if fileno() covers all that can happen.", NULL},
    {"_num_closing", get_num_closing, NULL,
     "Number of endpoints whose close is under way.", NULL},
    {"handle", get_handle, NULL, "UCX's ucp_worker_h; 0 once closed.", NULL},
    {"loop", get_loop, NULL, "The event loop, or None.", NULL},
    {"context", get_context, NULL, "The Context.", NULL},
    {"_on_addressed", worker_get_on_addressed, worker_set_on_addressed,
     "Called when take_addressed() has another endpoint.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef worker_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(WorkerObject, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(worker_doc,
             "Worker(context, loop, endpoint_type, listener_type)\n--\n\n"
             "Moves the messages of its endpoints, driven by `loop`, or by\n"
             "progress() and drain() if that is None. Belongs to the thread\n"
             "that made it.");

static PyType_Slot worker_slots[] = {
    {Py_tp_doc, (void *)worker_doc},
    {Py_tp_new, worker_new},
    {Py_tp_dealloc, worker_dealloc},
    {Py_tp_traverse, worker_traverse},
    {Py_tp_clear, worker_clear},
    {Py_tp_methods, worker_methods},
    {Py_tp_getset, worker_getset},
    {Py_tp_members, worker_members},
    {0, NULL},
};

PyType_Spec worker_spec = {
    .name      = "ucp._ext.Worker",
    .basicsize = sizeof(WorkerObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = worker_slots,
};
