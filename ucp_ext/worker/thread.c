/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c: progress while the worker's own thread is blocked.
 *
 * libumx has a thread for that (umx/progress.h), which knows nothing of Python:
 * it never takes the GIL, and calls nothing here. What it has done is told in
 * the next call of the worker's own thread, which the loop makes when a second
 * descriptor becomes readable. Calls of libumx wait for the thread to leave
 * UCX; who has the GIL lets it go before. */
#define _GNU_SOURCE /* ppoll */
#include "worker/thread.h"

#include "worker/internal.h"
#include "worker/methods.h"
#include "worker/share.h"

#include <poll.h>

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
    uint64_t         idle = idle_time(worker, umx_worker_deadline(worker->umx));
    uint64_t         ns   = (idle < limit_ns) ? idle : limit_ns;
    struct timespec  span = {.tv_sec  = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
    struct timespec *limit = (ns == UMX_TIMEOUT_INFINITE) ? NULL : &span;
    struct pollfd    fds[] = {
           {.fd = umx_worker_fd(worker->umx), .events = POLLIN},
           {.fd = umx_progress_fd(worker->umx), .events = POLLIN},
           {.fd = worker->wake_fd, .events = POLLIN},
    };

    Py_BEGIN_ALLOW_THREADS(void)
        ppoll(fds, 3, limit, NULL); /* interrupted: an early end */
    Py_END_ALLOW_THREADS
}

NOINLINE void
worker_wait_for_thread(WorkerObject *worker)
{
    umx_worker *umx = worker->umx;

    if (!umx_progress_hold_off(umx, false)) {
        Py_BEGIN_ALLOW_THREADS(void) umx_progress_hold_off(umx, true);
        Py_END_ALLOW_THREADS
    }
}

void
worker_catch_up(WorkerObject *worker)
{
    if (worker->has_thread && worker_is_mine(worker)) {
        worker_call_off(worker);
        (void)umx_worker_poll(worker->umx);
        worker_after_call(worker);
    }
}

static int
start_thread(WorkerObject *self)
{
    umx_status status = umx_progress_start(self->umx);

    if (status != UMX_OK) {
        (void)errors_raise(self->st, status, "run_in_thread", NULL);
        return -1;
    }
    if (worker_add_told_reader(self) < 0) {
        umx_progress_stop(self->umx);
        return -1;
    }
    self->has_thread = true;
    return 0;
}

static void
stop_thread(WorkerObject *self)
{
    worker_remove_told_reader(self);
    if (self->umx == NULL || !self->has_thread) {
        return; /* the loop's code has closed it */
    }
    Py_BEGIN_ALLOW_THREADS(void) umx_progress_stop(self->umx);
    Py_END_ALLOW_THREADS self->has_thread = false;
    worker_after_call(self);
    worker_schedule_drain(self);
}

PyObject *
worker_set_thread(PyObject *op, PyObject *has_thread)
{
    WorkerObject *self = (WorkerObject *)op;

    if (has_thread == Py_True) {
        if (worker_check(self) < 0 ||
            (!self->has_thread && start_thread(self) < 0)) {
            return NULL;
        }
    } else if (self->has_thread && worker_is_mine(self)) {
        stop_thread(self);
    }
    Py_RETURN_NONE;
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

    self->thread     = 0;
    self->has_thread = false;
    self->is_shared  = false;
    worker_forget_waiters(self);
    self->told_fd = -1;
    Py_RETURN_NONE;
}
