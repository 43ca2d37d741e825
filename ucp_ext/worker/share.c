/* SPDX-License-Identifier: BSD-3-Clause */
/* share.c: a worker that every thread may call.
 *
 * The worker has no event loop. The GIL is the lock under which threads call
 * libumx, one after the other: no callback of libumx runs Python, and nothing
 * here gives the GIL up in the middle of a call. libumx's progress thread,
 * which needs no GIL, serves the peers while no thread of the program calls.
 *
 * A call (op/call.c) posts its request, spins, drains and arms, and then sleeps
 * without the GIL. The first thread that sleeps is the leader: it polls the
 * descriptors. The others are followers, each on a lock of its own. These wake
 * a thread:
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

#include "worker/methods.h"
#include "worker/thread.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

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
        if (one->is_over(one) || worker->umx == NULL) {
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

int
worker_sleep_shared(WorkerObject *worker, waiter *self, uint64_t limit_ns)
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

void
worker_hand_over(WorkerObject *worker)
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

void
worker_let_thread_leave(const WorkerObject *worker)
{
    while (worker->umx != NULL && !umx_progress_hold_off(worker->umx, false)) {
        PyThreadState *state = PyEval_SaveThread();

        sched_yield();
        PyEval_RestoreThread(state);
    }
}

/* ---- methods -------------------------------------------------------------
 */

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
