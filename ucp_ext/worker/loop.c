/* SPDX-License-Identifier: BSD-3-Clause */
/* loop.c: the binding of a worker to its event loop.
 *
 * The rule that keeps it from hanging and from burning a core: when the loop
 * goes to sleep, the worker is armed or a call of _drain is scheduled. An await
 * that yields drains and arms before it does; the reader callback and _drain
 * end armed or scheduled; whatever posts without awaiting schedules _drain. */
#include "worker/internal.h"

#include "base/log.h"
#include "worker/methods.h"
#include "worker/share.h"

/* ---- the loop's side -----------------------------------------------------
 */

/* Schedule _drain. The collector may run in this, and close the worker. */
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
schedule_drain(WorkerObject *worker)
{
    PyObject *handle = call_soon_drain(worker);

    if (UNLIKELY(handle == NULL)) {
        PyObject *exc = PyErr_GetRaisedException();

        if (!worker_ends_program(exc)) {
            Py_DECREF(exc); /* the loop is closed */
            return;
        }
        /* A signal's handler raised in the middle of it. */
        worker_keep_exception(worker, exc);
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

    if (worker->is_drain_scheduled || worker->in_callback ||
        worker->call_soon == NULL) {
        worker_wake_leader(worker);
        return; /* drive() looks again before it returns */
    }
    raised = PyErr_GetRaisedException();
    schedule_drain(worker);
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
    if (worker->loop == NULL) {
        return;
    }
    if (UNLIKELY(deadline != worker->timer_ns &&
                 (deadline != UINT64_MAX || worker->timer_ns != 0))) {
        set_timer(worker, deadline);
    }
}

/* Progress the worker; the loop calls this, so no task is running. Ends with
 * the worker armed or _drain scheduled. Returns None, or NULL with an exception
 * that is to end the program. */
static PyObject *
drive(WorkerObject *worker)
{
    umx_status status = UMX_OK;
    int        rc;

    if (UNLIKELY(!worker_is_mine(worker))) {
        Py_RETURN_NONE; /* the parent's loop, run on in a forked child */
    }
    Py_INCREF(worker);
    log_follow(worker->st);
    worker_call_off(worker);
    worker->in_callback = true;
    worker->is_turn_due = false;
    worker_begin_turn(worker);
    while (worker->umx != NULL) {
        status = umx_worker_drain(worker->umx);
        worker_settle_told(worker);
        worker_settle_closers(worker);
        worker_run_wakes(worker);
        worker_run_calls(worker, true);
        if (worker->umx == NULL || status < 0 || worker->raised != NULL ||
            worker->is_turn_due || worker_turn_is_over(worker)) {
            break;
        }
        if (umx_worker_is_armed(worker->umx) && !worker_has_due(worker)) {
            break;
        }
    }
    worker->in_callback = false;
    if (worker->umx != NULL) {
        if (!umx_worker_is_armed(worker->umx) || worker_has_due(worker) ||
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

PyObject *
worker_on_readable(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    /* What is scheduled runs in this turn of the loop or the next: a turn has
     * one budget. */
    return self->is_drain_scheduled ? Py_NewRef(Py_None) : drive(self);
}

/* Scheduled by call_soon() or call_later(). */
PyObject *
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

static int
add_reader(WorkerObject *self, int descriptor)
{
    PyObject *reader = Py_NewRef(self->readable_call); /* close() drops it */
    PyObject *fd     = PyLong_FromLong(descriptor);
    PyObject *result = NULL;

    if (fd != NULL) {
        result = PyObject_CallMethodObjArgs(
            self->loop, NAME(self->st, add_reader), fd, reader, NULL);
    }
    Py_XDECREF(fd);
    Py_DECREF(reader);
    Py_XDECREF(result);
    return (result == NULL) ? -1 : 0;
}

/* An exception that is set stays. */
static void
remove_reader(WorkerObject *self, int descriptor)
{
    PyObject *raised = PyErr_GetRaisedException();
    PyObject *fd     = PyLong_FromLong(descriptor);
    PyObject *result = NULL;

    if (fd != NULL) {
        result = PyObject_CallMethodOneArg(self->loop,
                                           NAME(self->st, remove_reader), fd);
    }
    PyErr_Clear(); /* the loop is closed: it has dropped the fd */
    Py_XDECREF(result);
    Py_XDECREF(fd);
    if (raised != NULL) {
        PyErr_SetRaisedException(raised);
    }
}

int
worker_add_told_reader(WorkerObject *self)
{
    int fd = umx_progress_fd(self->umx);

    if (self->call_soon == NULL) {
        return 0; /* there is no loop */
    }
    if (add_reader(self, fd) < 0) {
        return -1;
    }
    self->told_fd = fd;
    return 0;
}

void
worker_remove_told_reader(WorkerObject *self)
{
    int fd = self->told_fd;

    if (fd >= 0) {
        self->told_fd = -1;
        if (self->loop != NULL) {
            remove_reader(self, fd);
        }
    }
}

/* Look up what the loop and the worker call of each other. The loop's code may
 * close the worker: -1 with an exception. */
static int
find_calls(WorkerObject *self)
{
    self->call_soon = PyObject_GetAttr(self->loop, NAME(self->st, call_soon));
    if (self->call_soon == NULL) {
        return -1;
    }
    self->drain_call = PyObject_GetAttrString((PyObject *)self, "_on_drain");
    if (self->drain_call == NULL) {
        return -1;
    }
    self->readable_call = PyObject_GetAttrString((PyObject *)self,
                                                 "_on_readable");
    return (self->readable_call == NULL) ? -1 : worker_check(self);
}

int
worker_add_reader(WorkerObject *self)
{
    if (find_calls(self) < 0 ||
        add_reader(self, umx_worker_fd(self->umx)) < 0) {
        return -1;
    }
    worker_find_ready(self);
    worker_schedule_drain(self); /* arms */
    return 0;
}

void
worker_remove_reader(WorkerObject *self)
{
    cancel_timer(self);
    worker_remove_told_reader(self);
    if (self->loop != NULL) {
        remove_reader(self, umx_worker_fd(self->umx));
    }
}

/* ---- driving it from outside ------------------------------------------------
 */

const char worker_fileno_doc[] =
    "fileno($self, /)\n--\n\n"
    "Return the file descriptor that becomes readable when arm()\n"
    "has to be called again.";

PyObject *
worker_fileno(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    return (worker_check(self) < 0) ? NULL :
                                      PyLong_FromLong(umx_worker_fd(self->umx));
}

const char worker_progress_doc[] =
    "progress($self, /)\n--\n\n"
    "Poll UCX once, without waiting; return the number of events.";

PyObject *
worker_progress(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    unsigned      events;

    if (worker_check(self) < 0) {
        return NULL;
    }
    events = umx_worker_poll(self->umx);
    worker_after_progress(self);
    worker_drain_if_due(self);
    worker_update_timer(self);
    log_deliver(self->st);
    return (worker_raise_kept(self) < 0) ? NULL :
                                           PyLong_FromUnsignedLong(events);
}

const char worker_poll_doc[] =
    "_poll($self, /)\n--\n\n"
    "progress() until a callback is due, or nothing is left.";

PyObject *
worker_poll(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    if (worker_check(self) < 0) {
        return NULL;
    }
    while (umx_worker_poll(self->umx) != 0 &&
           event_list_is_empty(&self->told) && !worker_has_due(self)) {
    }
    worker_after_progress(self);
    log_deliver(self->st);
    return (worker_raise_kept(self) < 0) ? NULL : Py_NewRef(Py_None);
}

const char worker_arm_doc[] =
    "arm($self, /)\n--\n\n"
    "Make progress until nothing is left to do, then arm the file\n"
    "descriptor. True: wait until fileno() is readable. False: the\n"
    "time limit was reached, call again.";

PyObject *
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
    log_deliver(self->st);
    if (worker_raise_kept(self) < 0) {
        return NULL;
    }
    if (status < 0) {
        return errors_raise(self->st, status, "arm", NULL);
    }
    return PyBool_FromLong(status == UMX_OK);
}

const char worker_overslept_doc[] =
    "_overslept($self, /)\n--\n\n"
    "For tests, called by the loop: True if work was left that\n"
    "nothing would have woken the loop for. It is being done now.";

PyObject *
worker_overslept(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    bool          is_lost;

    if (worker_check(self) < 0) {
        return NULL;
    }
    if (self->is_drain_scheduled || self->has_thread) {
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
