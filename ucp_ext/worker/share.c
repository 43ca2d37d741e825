/* SPDX-License-Identifier: BSD-3-Clause */
/* share.c: a worker that every thread may call, and calls that wait.
 *
 * The worker has no event loop. The GIL is the lock under which threads call
 * libumx, one after the other: no callback of libumx runs Python, and nothing
 * here gives the GIL up in the middle of a call. libumx's progress thread,
 * which needs no GIL, serves the peers while no thread of the program calls.
 *
 * A call posts its request, spins, drains and arms, and then sleeps without the
 * GIL. The first thread that sleeps is the leader: it polls the descriptors.
 * The others are followers, each on a lock of its own. These wake a thread:
 *
 *   - Whoever has made progress wakes the threads whose requests are settled.
 *   - A leader that is about to leave wakes a follower, which inherits the
 *     duty: it becomes the leader, or passes the duty on when it leaves. So a
 *     follower never sleeps without a leader that sleeps, or a thread awake
 *     that has the duty.
 *   - Whoever posts without waiting leaves the worker unarmed, so that the
 *     leader's descriptor would not tell. If no thread is awake in a call that
 *     is to drain, the leader is woken. A thread that leaves its call drains,
 *     if there is a leader.
 *
 * A thread is on the list of waiters from before it gives the GIL up until it
 * has it again, and what it waits for changes under the GIL only. So no wake-up
 * can fall between its look and its sleep. */
#include "worker/share.h"

#include "base/errors.h"
#include "base/log.h"
#include "request/request.h"
#include "worker/internal.h"
#include "worker/thread.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct waiter {
    waiter              *next;
    const RequestObject *req;
    PyThread_type_lock   lock; /* of a follower; NULL: it is the leader */
    bool                 is_woken;
    bool has_duty; /* has been the leader, and others may wait for one */
};

/* ---- waking --------------------------------------------------------------
 */

static void
write_fd(int fd)
{
    uint64_t one = 1;

    (void)!write(fd, &one, sizeof(one));
}

static void
wake(const WorkerObject *worker, waiter *which)
{
    if (which->is_woken) {
        return;
    }
    which->is_woken = true;
    if (which->lock == NULL) {
        write_fd(worker->wake_fd);
    } else {
        PyThread_release_lock(which->lock);
    }
}

void
worker_wake_waiters(WorkerObject *worker)
{
    for (waiter *one = worker->waiters; one != NULL; one = one->next) {
        if (one->req->is_settled || worker->umx == NULL) {
            wake(worker, one);
        }
    }
}

void
worker_wake_leader(WorkerObject *worker)
{
    if (worker->leader != NULL && worker->num_awake == 0) {
        wake(worker, worker->leader);
    }
}

void
worker_forget_waiters(WorkerObject *worker)
{
    worker->waiters   = NULL;
    worker->leader    = NULL;
    worker->num_awake = 0;
}

void
worker_end_keeper(WorkerObject *worker)
{
    if (worker->end_fd >= 0) {
        write_fd(worker->end_fd);
    }
}

void
worker_close_wake_fds(WorkerObject *worker)
{
    if (worker->wake_fd >= 0) {
        (void)close(worker->wake_fd);
    }
    if (worker->end_fd >= 0) {
        (void)close(worker->end_fd);
    }
}

/* ---- sleeping ------------------------------------------------------------
 */

static void
unlink_waiter(WorkerObject *worker, const waiter *self)
{
    waiter **place = &worker->waiters;

    while (*place != NULL && *place != self) {
        place = &(*place)->next;
    }
    if (*place != NULL) {
        *place = self->next;
    }
}

static void
lead(WorkerObject *worker, waiter *self, uint64_t limit_ns)
{
    uint64_t count;

    worker->leader = self;
    self->lock     = NULL;
    self->has_duty = true;
    worker_sleep(worker, limit_ns);
    worker->leader = NULL;
    if (self->is_woken) {
        (void)!read(worker->wake_fd, &count, sizeof(count));
    }
}

/* -1 with an exception. */
static int
follow(waiter *self, uint64_t limit_ns)
{
    PyThreadState *state;
    PyLockStatus   got;

    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    (void)PyThread_acquire_lock(self->lock, NOWAIT_LOCK);
    state = PyEval_SaveThread();
    got   = PyThread_acquire_lock_timed(
          self->lock, (PY_TIMEOUT_T)(limit_ns / 1000 + 1), true);
    PyEval_RestoreThread(state);
    if (got == PY_LOCK_ACQUIRED || !self->is_woken) {
        PyThread_release_lock(self->lock);
    }
    PyThread_free_lock(self->lock);
    self->lock = NULL;
    return 0;
}

/* Sleep until woken, and `limit_ns` at most. -1 with an exception. */
static int
sleep_now(WorkerObject *worker, waiter *self, uint64_t limit_ns)
{
    int rc = 0;

    self->is_woken  = false;
    self->next      = worker->waiters;
    worker->waiters = self;
    if (worker->leader == NULL) {
        lead(worker, self, limit_ns);
    } else {
        rc = follow(self, limit_ns);
    }
    unlink_waiter(worker, self);
    return rc;
}

/* Have a follower become the leader. */
static void
hand_over(WorkerObject *worker)
{
    if (worker->leader != NULL) {
        return;
    }
    for (waiter *one = worker->waiters; one != NULL; one = one->next) {
        if (!one->is_woken) {
            one->has_duty = true;
            wake(worker, one);
            return;
        }
    }
}

/* Let the progress thread leave UCX, as calls of libumx wait for that. Other
 * threads have the GIL meanwhile, and may close the worker. */
static void
let_progress_thread_leave(const WorkerObject *worker)
{
    while (worker->umx != NULL && !umx_progress_hold_off(worker->umx, false)) {
        PyThreadState *state = PyEval_SaveThread();

        sched_yield();
        PyEval_RestoreThread(state);
    }
}

/* ---- waiting -------------------------------------------------------------
 */

/* Make progress. UMX_OK: the worker is armed. */
static umx_status
make_progress(WorkerObject *worker, const RequestObject *req)
{
    umx_status status = UMX_OK;

    (void)umx_worker_spin(worker->umx, &req->is_told);
    worker_after_call(worker);
    if (!req->is_settled && worker->umx != NULL) {
        status = umx_worker_drain(worker->umx);
        worker_after_call(worker);
    }
    return status;
}

static bool
is_armed(const WorkerObject *worker)
{
    return worker->umx == NULL || umx_worker_is_armed(worker->umx);
}

/* Sleep, or let other threads have the GIL. -1 with an exception. */
static int
rest(WorkerObject *worker, waiter *self, uint64_t left_ns)
{
    int rc = 0;

    worker->num_awake--;
    if (is_armed(worker)) {
        rc = sleep_now(worker, self,
                       (left_ns < SIGNALS_NS) ? left_ns : SIGNALS_NS);
    } else {
        PyEval_RestoreThread(PyEval_SaveThread());
    }
    worker->num_awake++;
    let_progress_thread_leave(worker);
    return rc;
}

/* 1: the request is settled; 0: the time is out; -1: with an exception. */
static int
wait_until(WorkerObject *worker, waiter *self, uint64_t end_ns)
{
    const RequestObject *req = self->req;

    while (!req->is_settled) {
        umx_status status;
        uint64_t   now;

        if (worker->umx == NULL) {
            PyErr_SetString(worker->st->exceptions[EXC_UCXCloseError],
                            "ucp was shut down meanwhile");
            return -1;
        }
        status = make_progress(worker, req);
        if (worker_raise_kept(worker) < 0) {
            return -1;
        }
        if (req->is_settled) {
            break;
        }
        if (PyErr_CheckSignals() < 0) {
            return -1;
        }
        if (status < 0) {
            (void)errors_raise(worker->st, status, req->type->name, NULL);
            return -1;
        }
        now = (end_ns == UINT64_MAX) ? 0 : compat_clock_ns();
        if (now >= end_ns) {
            return 0;
        }
        /* A signal's handler may have settled it, or closed the worker. */
        if (!req->is_settled && worker->umx != NULL &&
            rest(worker, self, end_ns - now) < 0) {
            return -1;
        }
    }
    return 1;
}

/* The thread leaves: others may go on without it. Keeps exceptions. */
static void
leave(WorkerObject *worker, const waiter *self)
{
    PyObject *exc = PyErr_GetRaisedException();

    worker->num_awake--;
    if (UNLIKELY(worker->leader != NULL) && !is_armed(worker)) {
        if (umx_worker_drain(worker->umx) != UMX_OK) {
            worker_wake_leader(worker);
        }
        worker_after_call(worker);
    }
    if (self->has_duty) {
        hand_over(worker);
    }
    log_deliver(worker->st);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* As wait_until(); worker->num_awake counts this thread. */
static int
wait_and_leave(WorkerObject *worker, const RequestObject *req, uint64_t end_ns)
{
    waiter self = {.req = req};
    int    rc   = (req != NULL) ? wait_until(worker, &self, end_ns) : 1;

    leave(worker, &self);
    return rc;
}

/* The time at which `seconds`, or None, have passed. -1 with an exception. */
static int
parse_end(PyObject *seconds, uint64_t *end_p)
{
    double value;

    *end_p = UINT64_MAX;
    if (seconds == Py_None) {
        return 0;
    }
    value = PyFloat_AsDouble(seconds);
    if (value == -1.0 && PyErr_Occurred()) {
        return -1;
    }
    if (!(value > 0)) {
        *end_p = 0;
    } else if (value < 1e9) {
        *end_p = compat_clock_ns() + (uint64_t)(value * 1e9);
    }
    return 0;
}

static int
check_open(WorkerObject *worker)
{
    if (UNLIKELY(worker->umx == NULL || !worker->is_shared)) {
        PyErr_SetString(worker->st->exceptions[EXC_UCXCloseError],
                        "ucp was shut down meanwhile");
        return -1;
    }
    return 0;
}

/* ---- methods -------------------------------------------------------------
 */

const char worker_call_and_wait_doc[] =
    "_call($self, timeout, method, /, *args, **kwargs)\n--\n\n"
    "Call `method` and wait for the Request that it returns, `timeout`\n"
    "seconds at most or for ever if it is None; return its result. Any\n"
    "thread may call it once the worker is shared.";

/* Return what the request gives; or cancel it, without a message lost. */
static PyObject *
finish(WorkerObject *worker, RequestObject *req, int rc, PyObject *timeout)
{
    PyObject *value, *exc;

    if (rc > 0) {
        value = request_take(req, &exc);
        if (exc != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
            Py_DECREF(exc);
        }
        return value;
    }
    if (rc == 0) {
        PyErr_Format(worker->st->exceptions[EXC_UCXTimeout],
                     "not done within %S s", timeout);
    }
    request_give_up(req);
    return NULL;
}

PyObject *
worker_call_and_wait(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames)
{
    WorkerObject  *self = (WorkerObject *)op;
    RequestObject *req  = NULL;
    PyObject      *result;
    uint64_t       end_ns;
    int            rc;

    if (nargs < 2) {
        return PyErr_Format(PyExc_TypeError,
                            "_call() takes a timeout and a method");
    }
    if (check_open(self) < 0 || parse_end(args[0], &end_ns) < 0) {
        return NULL;
    }
    self->num_awake++;
    let_progress_thread_leave(self);
    result = PyObject_Vectorcall(args[1], args + 2, (size_t)(nargs - 2),
                                 kwnames);
    if (result != NULL && request_check(self->st, result) &&
        ((RequestObject *)result)->worker == self) {
        req = (RequestObject *)result;
    }
    rc = wait_and_leave(self, req, end_ns);
    if (req != NULL) {
        result = finish(self, req, rc, args[0]);
        Py_DECREF(req);
    }
    return result;
}

const char worker_wait_for_request_doc[] =
    "_wait($self, timeout, request, /)\n--\n\n"
    "Wait until the request is done: True; or until the time is out.";

PyObject *
worker_wait_for_request(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    WorkerObject *self = (WorkerObject *)op;
    uint64_t      end_ns;
    int           rc;

    if (nargs != 2 || !request_check(self->st, args[1])) {
        return PyErr_Format(PyExc_TypeError,
                            "_wait() takes a timeout and a Request");
    }
    if (((RequestObject *)args[1])->is_settled) {
        Py_RETURN_TRUE;
    }
    if (check_open(self) < 0 || parse_end(args[0], &end_ns) < 0) {
        return NULL;
    }
    self->num_awake++;
    rc = wait_and_leave(self, (RequestObject *)args[1], end_ns);
    return (rc < 0) ? NULL : PyBool_FromLong(rc);
}

const char worker_keep_doc[] =
    "_keep($self, /)\n--\n\n"
    "Sleep until libumx's progress thread has ended an operation, and have\n"
    "its callbacks run. False: the worker has ended.";

PyObject *
worker_keep(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject  *self = (WorkerObject *)op;
    PyThreadState *state;
    struct pollfd  fds[2];

    if (self->umx == NULL || !self->is_shared) {
        Py_RETURN_FALSE;
    }
    fds[0] = (struct pollfd){.fd     = umx_progress_fd(self->umx),
                             .events = POLLIN};
    fds[1] = (struct pollfd){.fd = self->end_fd, .events = POLLIN};
    state  = PyEval_SaveThread();
    (void)poll(fds, 2, -1);
    PyEval_RestoreThread(state);
    if (self->umx != NULL && self->is_shared) {
        (void)umx_worker_poll(self->umx);
        worker_after_call(self);
    }
    return (worker_raise_kept(self) < 0) ? NULL :
                                           PyBool_FromLong(self->umx != NULL);
}

const char worker_share_doc[] =
    "_share($self, /)\n--\n\n"
    "Let every thread call a worker without an event loop, for good. A\n"
    "thread of libumx's makes progress while none calls.";

PyObject *
worker_share(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    umx_status    status;

    if (worker_check(self) < 0) {
        return NULL;
    }
    if (self->loop != NULL || self->is_shared) {
        return PyErr_Format(PyExc_RuntimeError,
                            "the worker has an event loop, or is shared");
    }
    self->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->end_fd  = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status        = (self->wake_fd < 0 || self->end_fd < 0) ?
                        UMX_ERR_NO_RESOURCE :
                        umx_progress_start(self->umx);
    if (status != UMX_OK) {
        return errors_raise(self->st, status, "_share", NULL);
    }
    umx_worker_share(self->umx);
    self->is_shared = true;
    Py_RETURN_NONE;
}
