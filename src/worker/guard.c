/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/guard.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "host/fork.h"
#include "worker/worker.h"

enum {
    FORK_TIMEOUT_MS = 1000 /* then fork() goes on */
};

/* A child has the lock as it was in its parent. */
static inline bool
is_parents(const umi_guard *guard)
{
    return guard->generation != umi_fork_generation();
}

void
umi_guard_lock(umi_guard *guard)
{
    if (is_parents(guard)) {
        return;
    }
    if (umi_guard_is_held(guard)) {
        guard->depth++;
        return;
    }
    if (pthread_mutex_trylock(&guard->lock) != 0) {
        atomic_fetch_add(&guard->wanted, 1);
        pthread_mutex_lock(&guard->lock);
        atomic_fetch_sub(&guard->wanted, 1);
    }
    atomic_store(&guard->holder, umi_thread_id());
    guard->depth = 1;
}

bool
umi_guard_try_lock(umi_guard *guard)
{
    enum {
        TRIES = 100
    };
    const struct timespec pause = {.tv_nsec = 1000000};

    if (is_parents(guard) || umi_guard_is_held(guard)) {
        umi_guard_lock(guard);
        return true;
    }
    for (int i = 0; pthread_mutex_trylock(&guard->lock) != 0; i++) {
        if (i == TRIES) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    atomic_store(&guard->holder, umi_thread_id());
    guard->depth = 1;
    return true;
}

static void
ring(int fd)
{
    uint64_t one = 1;

    (void)!write(fd, &one, sizeof(one));
}

/* Does the thread sleep on what does not tell it of all that is due? */
static bool
is_to_wake(umi_guard *guard)
{
    const umx_worker *worker = guard->worker;

    return guard->is_asleep &&
           (!worker->is_armed ||
            umi_worker_deadline(worker) < guard->deadline_ns);
}

static void
free_guard(umi_guard *guard)
{
    pthread_mutex_destroy(&guard->lock);
    close(guard->wake_fd);
    close(guard->told_fd);
    free(guard);
}

void
umi_guard_unlock(umi_guard *guard)
{
    bool is_over;

    if (is_parents(guard) || --guard->depth != 0) {
        return;
    }
    is_over = guard->is_over;
    if (!is_over && is_to_wake(guard)) {
        guard->is_asleep = false;
        ring(guard->wake_fd);
    }
    atomic_store(&guard->is_reserved, false);
    atomic_store(&guard->holder, 0);
    pthread_mutex_unlock(&guard->lock);
    if (is_over) {
        free_guard(guard);
    }
}

/* ---- life ----------------------------------------------------------------
 */

umi_guard *
umi_guard_create(umx_worker *worker)
{
    umi_guard *guard = calloc(1, sizeof(*guard));

    if (guard == NULL) {
        return NULL;
    }
    guard->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    guard->told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (guard->wake_fd < 0 || guard->told_fd < 0 ||
        pthread_mutex_init(&guard->lock, NULL) != 0) {
        if (guard->wake_fd >= 0) {
            close(guard->wake_fd);
        }
        if (guard->told_fd >= 0) {
            close(guard->told_fd);
        }
        free(guard);
        return NULL;
    }
    guard->worker     = worker;
    guard->generation = worker->generation;
    return guard;
}

void
umi_guard_destroy(umi_guard *guard)
{
    umx_worker *worker = guard->worker;

    umi_guard_lock(guard);
    umi_guard_set(worker, NULL);
    worker->has_events = true; /* what was put off */
    worker->is_armed   = false;
    guard->is_over     = true;
    umi_guard_unlock(guard);
}

/* ---- the thread ----------------------------------------------------------
 */

static _Thread_local const umx_worker *in_thread_of;

bool
umi_guard_is_in_thread(const umx_worker *worker)
{
    return in_thread_of == worker;
}

void
umi_guard_set_in_thread(umx_worker *worker, bool is_in_thread)
{
    in_thread_of         = is_in_thread ? worker : NULL;
    worker->is_in_thread = is_in_thread;
}

void
umi_guard_tell(umi_guard *guard)
{
    if (guard->is_tell_due && !guard->is_told) {
        guard->is_told = true;
        ring(guard->told_fd);
    }
    guard->is_tell_due = false;
}

void
umi_guard_take_put_off(umi_guard *guard)
{
    umx_worker *worker = guard->worker;
    uint64_t    count;

    atomic_fetch_add(&guard->entries, 1);
    if (guard->is_told) {
        guard->is_told = false;
        (void)!read(guard->told_fd, &count, sizeof(count));
    }
    if (!umi_list_is_empty(&worker->detached) ||
        !umi_list_is_empty(&worker->put_off) ||
        !umi_list_is_empty(&worker->put_off_done)) {
        worker->has_events = true;
    }
}

/* ---- fork() --------------------------------------------------------------
 */

/* Keep the thread out of UCX. False: it stays in there for too long. */
static bool
keep_out(umi_guard *guard)
{
    uintptr_t       holder = atomic_load(&guard->holder);
    struct timespec until;
    int             error;

    if (holder != 0 && holder != atomic_load(&guard->thread_id)) {
        return false; /* a callback forks, or waits for who forks */
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += FORK_TIMEOUT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    atomic_fetch_add(&guard->wanted, 1);
    error = pthread_mutex_timedlock(&guard->lock, &until);
    atomic_fetch_sub(&guard->wanted, 1);
    return error == 0;
}

static umx_worker *
worker_of(umi_fork_member *member)
{
    return umi_container_of(member, umx_worker, fork);
}

static bool
hold(umi_fork_member *member)
{
    umi_guard *guard = worker_of(member)->guard;

    return guard != NULL && keep_out(guard);
}

static void
let_go(umi_fork_member *member)
{
    pthread_mutex_unlock(&worker_of(member)->guard->lock);
}

/* The guard is leaked, like all the parent's. */
static void
in_child(umi_fork_member *member)
{
    worker_of(member)->guard = NULL;
}

static void
stop(umi_fork_member *member)
{
    umi_guard *guard = worker_of(member)->guard;

    if (guard != NULL) {
        atomic_store(&guard->is_stop_due, true);
        if (keep_out(guard)) {
            let_go(member);
        }
    }
}

void
umi_guard_join_fork(umx_worker *worker)
{
    static const umi_fork_ops ops = {
        .hold = hold, .let_go = let_go, .in_child = in_child, .stop = stop};

    worker->fork.ops = &ops;
    worker->fork.fd  = worker->watches.fd;
    umi_fork_add(&worker->fork);
}

void
umi_guard_set(umx_worker *worker, umi_guard *guard)
{
    umi_fork_lock();
    worker->guard = guard;
    umi_fork_unlock();
}
