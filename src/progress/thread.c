/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c: progress by a thread of its own.
 *
 * Nobody tells the thread that the owner computes. It sleeps on the worker's fd
 * and sees work arrive; if the owner makes no call for a millisecond, it is
 * away, and the thread does the work. From then on it does so at once, until
 * the owner's next call. So an owner that sleeps in its event loop, and wakes
 * for each message, never waits for the thread, and never meets it in UCX.
 *
 * The fd tells of work only while the worker is armed. A call that leaves it
 * otherwise ends the thread's sleep (umi_guard_unlock()), and the thread looks
 * again each millisecond until the worker is armed, by the owner or by itself.
 */
#define _GNU_SOURCE /* ppoll, pthread_setname_np */
#include "progress/thread.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "host/thread_limit.h"
#include "host/fork.h"
#include "progress/event_fd.h"

enum {
    AWAY_NS  = 1000000, /* without a call: the owner is away */
    SLICE_NS = 50000    /* then others may have the lock */
};

typedef struct progress_thread {
    umi_guard  *guard;
    umx_worker *worker;
    unsigned    seen;    /* calls of the owner so far */
    bool        is_away; /* the owner was, when it had made `seen` calls */
} progress_thread;

static bool
is_stop_due(const progress_thread *self)
{
    return atomic_load(&self->guard->is_stop_due);
}

static bool
has_called(const progress_thread *self)
{
    return atomic_load(&self->guard->entries) != self->seen;
}

/* ---- the lock ------------------------------------------------------------
 */

static void
unlock(umi_guard *guard)
{
    guard->depth = 0;
    atomic_store(&guard->holder, 0);
    pthread_mutex_unlock(&guard->lock);
}

static bool
try_lock(umi_guard *guard)
{
    if (pthread_mutex_trylock(&guard->lock) != 0) {
        return false;
    }
    guard->depth = 1;
    atomic_store(&guard->holder, umi_thread_id());
    if (atomic_exchange(&guard->is_reserved, false)) {
        unlock(guard); /* once: the call may never come */
        return false;
    }
    return true;
}

/* ---- sleeping ------------------------------------------------------------
 */

static void
sleep_until(uint64_t deadline_ns, int fd, int wake_fd)
{
    uint64_t         now   = umi_clock_ns();
    uint64_t         ns    = (deadline_ns > now) ? deadline_ns - now : 0;
    struct timespec  span  = {.tv_sec  = (time_t)(ns / 1000000000u),
                              .tv_nsec = (long)(ns % 1000000000u)};
    struct timespec *limit = (deadline_ns == UINT64_MAX) ? NULL : &span;
    struct pollfd    fds[] = {{.fd = wake_fd, .events = POLLIN},
                              {.fd = fd, .events = POLLIN}};
    uint64_t         count;

    (void)ppoll(fds, 2, limit, NULL); /* interrupted: an early end */
    if (fds[0].revents != 0) {
        (void)!read(wake_fd, &count, sizeof(count));
    }
}

/* Sleep until there is work, if the worker is armed. False: something is left
 * to do, or another thread is doing it. */
static bool
sleep_until_work(progress_thread *self)
{
    umi_guard *guard = self->guard;
    uint64_t   deadline;

    if (!try_lock(guard)) {
        return false;
    }
    if (!self->worker->is_armed) {
        unlock(guard);
        return false;
    }
    deadline           = umi_worker_deadline(self->worker);
    guard->deadline_ns = deadline;
    guard->is_asleep   = true;
    unlock(guard);
    sleep_until(deadline, self->worker->watches.fd, guard->wake_fd);
    return true;
}

/* Give the owner time to make progress itself. */
static void
wait_for_owner(progress_thread *self)
{
    uint64_t until = umi_clock_ns() + AWAY_NS;

    self->seen = atomic_load(&self->guard->entries);
    do {
        sleep_until(until, -1, self->guard->wake_fd);
    } while (umi_clock_ns() < until && !is_stop_due(self));
    self->is_away = !has_called(self);
}

/* ---- working -------------------------------------------------------------
 */

static umx_status
drain_slices(progress_thread *self)
{
    umx_worker *worker  = self->worker;
    umi_guard  *guard   = self->guard;
    unsigned    closing = worker->num_closing;
    uint64_t    begin;
    umx_status  status;

    umi_guard_set_in_thread(worker, true);
    worker->is_inside = true;
    do {
        begin  = umi_ticks();
        status = umi_progress_drain(worker, begin,
                                    begin + umi_ticks_from_ns(SLICE_NS));
    } while (status == UMX_INPROGRESS && atomic_load(&guard->wanted) == 0 &&
             !is_stop_due(self));
    worker->is_inside = false;
    umi_guard_set_in_thread(worker, false);
    guard->is_tell_due |= (worker->num_closing != closing);
    umi_guard_tell(guard);
    return status;
}

/* Do what the owner has left, if it has made no call in the meantime. */
static void
work(progress_thread *self)
{
    umx_status status = UMX_OK;

    if (!try_lock(self->guard)) {
        sleep_until(umi_clock_ns() + AWAY_NS, -1, self->guard->wake_fd);
        return;
    }
    self->guard->is_asleep = false;
    if (!has_called(self) && !is_stop_due(self)) {
        status = drain_slices(self);
    }
    unlock(self->guard);
    if (status < 0) { /* it cannot be armed: do not look all the time */
        sleep_until(umi_clock_ns() + AWAY_NS, -1, self->guard->wake_fd);
    }
}

static void *
run(void *arg)
{
    progress_thread self = {.guard = arg};

    self.worker = self.guard->worker;
    atomic_store(&self.guard->thread_id, umi_thread_id());
    while (!is_stop_due(&self)) {
        bool has_slept = sleep_until_work(&self);

        if (is_stop_due(&self)) {
            break;
        }
        if (!has_slept || !self.is_away || has_called(&self)) {
            wait_for_owner(&self);
        }
        if (self.is_away && !is_stop_due(&self)) {
            work(&self);
        }
    }
    return NULL;
}

/* ---- exit() --------------------------------------------------------------
 */

/* UCX ends with the process: no thread of ours may be in it then. */
static void
watch_exit(void)
{
    (void)atexit(umi_fork_stop_threads);
}

/* ---- public --------------------------------------------------------------
 */

umx_status
umx_progress_start(umx_worker *worker)
{
    UMI_GUARD(worker);
    static pthread_once_t once   = PTHREAD_ONCE_INIT;
    umx_status            status = umi_worker_check(worker);
    umi_guard            *guard;

    if (status != UMX_OK) {
        return status;
    }
    if (worker->is_ending || worker->is_destroy_due) {
        return UMX_ERR_CLOSED;
    }
    if (worker->guard != NULL) {
        return UMX_ERR_BUSY;
    }
    if (worker->is_inside) {
        return UMX_ERR_UNSUPPORTED;
    }
    pthread_once(&once, watch_exit);
    guard = umi_guard_create(worker);
    if (guard == NULL) {
        return UMX_ERR_NO_RESOURCE;
    }
    umi_guard_lock(guard);
    umi_guard_set(worker, guard);
    if (umi_thread_create(&guard->thread, run, guard) == 0) {
        (void)pthread_setname_np(guard->thread, "umx progress");
    } else {
        umi_guard_destroy(guard);
        status = UMX_ERR_THREAD_LIMIT;
    }
    umi_guard_unlock(guard);
    return status;
}

void
umi_progress_stop(umx_worker *worker)
{
    umi_guard *guard = worker->guard;
    uint64_t   one   = 1;

    atomic_store(&guard->is_stop_due, true);
    (void)!write(guard->wake_fd, &one, sizeof(one));
    pthread_join(guard->thread, NULL);
    umi_guard_destroy(guard);
}

void
umx_progress_stop(umx_worker *worker)
{
    if (umi_worker_check(worker) == UMX_OK && worker->guard != NULL) {
        umi_progress_stop(worker);
    }
}

bool
umx_progress_is_running(const umx_worker *worker)
{
    return worker->guard != NULL && umi_worker_check(worker) == UMX_OK;
}

int
umx_progress_fd(const umx_worker *worker)
{
    return (worker->guard != NULL) ? worker->guard->told_fd : -1;
}

bool
umx_progress_hold_off(umx_worker *worker, bool may_wait)
{
    umi_guard *guard = worker->guard;

    if (guard == NULL || worker->generation != umi_fork_generation()) {
        return true;
    }
    atomic_store(&guard->is_reserved, true);
    if (atomic_load(&guard->holder) != 0 &&
        atomic_load(&guard->holder) != umi_thread_id()) {
        if (!may_wait) {
            return false;
        }
        umi_guard_lock(guard);
        umi_guard_unlock(guard);
        atomic_store(&guard->is_reserved, true);
    }
    return true;
}
