/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c: progress while the worker's own thread is blocked.
 *
 * A second thread, the helper, shares the worker with its owner. The GIL is
 * the lock: both call libumx only with it, and libumx does nothing while the
 * other one is in a callback that has let go of it. The helper drains, has the
 * loop run what completed, and sleeps in poll() without the GIL. Two
 * descriptors end its sleep: the worker's; and an eventfd, for what that one
 * does not cover: an operation that the owner has posted, an earlier timer, and
 * the end. */
#define _GNU_SOURCE /* ppoll */
#include "worker/thread.h"

#include "worker/internal.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Nanoseconds in which there is nothing to do. */
static uint64_t
idle_time(WorkerObject *worker, uint64_t deadline)
{
    uint64_t now = compat_clock_ns();

    if (!umx_worker_is_armed(worker->umx) || deadline <= now) {
        return 0;
    }
    return (deadline == UINT64_MAX) ? UMX_TIMEOUT_INFINITE : deadline - now;
}

void
worker_sleep(WorkerObject *worker, uint64_t limit_ns)
{
    bool             is_helper = worker_is_helper(worker);
    uint64_t         deadline  = umx_worker_deadline(worker->umx);
    uint64_t         idle      = idle_time(worker, deadline);
    uint64_t         ns        = (idle < limit_ns) ? idle : limit_ns;
    struct timespec  span      = {.tv_sec  = (time_t)(ns / 1000000000u),
                                  .tv_nsec = (long)(ns % 1000000000u)};
    struct timespec *limit     = (ns == UMX_TIMEOUT_INFINITE) ? NULL : &span;
    struct pollfd    fds[]     = {
               {.fd = umx_worker_fd(worker->umx), .events = POLLIN},
               {.fd = is_helper ? worker->wake_fd : -1, .events = POLLIN},
    };

    if (is_helper) {
        worker->helper_deadline = deadline;
    }
    Py_BEGIN_ALLOW_THREADS(void)
        ppoll(fds, 2, limit, NULL); /* interrupted: an early end */
    Py_END_ALLOW_THREADS
}

void
worker_wake_helper(WorkerObject *worker)
{
    uint64_t one = 1;

    if (!worker->is_woken) {
        worker->is_woken = true;
        (void)!write(worker->wake_fd, &one, sizeof(one));
    }
}

static umx_status
run_once(WorkerObject *self)
{
    umx_status status;
    uint64_t   count;

    if (self->is_woken) {
        self->is_woken = false;
        (void)!read(self->wake_fd, &count, sizeof(count));
    }
    worker_begin_turn(self);
    status = umx_worker_drain(self->umx);
    worker_after_call(self);
    return status;
}

static void
end_sharing(WorkerObject *self)
{
    self->helper = 0;
    close(self->wake_fd);
    self->wake_fd     = -1;
    self->is_stop_due = false;
    self->is_woken    = false;
    umx_worker_share(self->umx, false);
}

/* Signals are for the threads of the program. */
static void
block_signals(void)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
}

PyObject *
worker_run(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self   = (WorkerObject *)op;
    umx_status    status = UMX_OK;

    if (self->wake_fd < 0 || self->helper != 0) {
        Py_RETURN_NONE; /* stopped before it began */
    }
    block_signals();
    self->helper = compat_thread_id();
    while (!self->is_stop_due && status >= 0) {
        status = run_once(self);
        if (!self->is_stop_due && status >= 0) {
            worker_sleep(self, UMX_TIMEOUT_INFINITE);
        }
    }
    end_sharing(self);
    if (status < 0) {
        return errors_raise(self->st, status, "run_in_thread", NULL);
    }
    Py_RETURN_NONE;
}

static PyObject *
begin_sharing(WorkerObject *self)
{
    if (worker_check(self) < 0) {
        return NULL;
    }
    if (self->wake_fd >= 0) {
        self->is_stop_due = false; /* it had not ended yet */
        Py_RETURN_FALSE;
    }
    self->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->wake_fd < 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    umx_worker_share(self->umx, true);
    Py_RETURN_TRUE;
}

PyObject *
worker_share(PyObject *op, PyObject *is_shared)
{
    WorkerObject *self = (WorkerObject *)op;

    if (is_shared == Py_True) {
        return begin_sharing(self);
    }
    if (self->wake_fd < 0) {
        Py_RETURN_FALSE;
    }
    self->is_stop_due = true;
    if (self->helper == 0) {
        end_sharing(self);
    } else {
        worker_wake_helper(self);
    }
    if (worker_is_mine(self)) {
        worker_after_call(self);
        worker_schedule_drain(self); /* the loop keeps time again */
    }
    Py_RETURN_TRUE;
}

/* ---- other threads and processes -----------------------------------------
 */

const char worker_adopt_doc[] =
    "_adopt($self, /)\n--\n\n"
    "Take the worker over from a thread that has ended.";

PyObject *
worker_adopt(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    if (self->umx != NULL && !worker_is_forked(self)) {
        umx_worker_adopt(self->umx);
        self->thread = compat_thread_id();
    }
    Py_RETURN_NONE;
}

const char worker_disown_doc[] =
    "_disown($self, /)\n--\n\n"
    "In a forked child: from now on this is the parent's.";

PyObject *
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
