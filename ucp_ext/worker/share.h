/* SPDX-License-Identifier: BSD-3-Clause */
/* share.h: a worker that every thread may call. */
#ifndef UCP_EXT_WORKER_SHARE_H
#define UCP_EXT_WORKER_SHARE_H

#include "worker/worker.h"

struct waiter {
    waiter *next;
    /* Is there nothing to sleep for any more? Runs no Python. */
    bool (*is_over)(const waiter *self);
    PyThread_type_lock lock; /* of a follower; NULL: it is the leader */
    bool               is_woken;
    bool has_duty; /* has been the leader, and others may wait for one */
};

/* Wake the threads that have nothing to sleep for, or all if the worker has
 * ended. Runs no Python. */
void worker_wake_waiters(WorkerObject *worker);

/* Something has been posted: wake the thread that sleeps for all if none is
 * awake that will drain the worker. Runs no Python. */
void worker_wake_leader(WorkerObject *worker);

/* Forget the threads of the parent process. */
void worker_forget_waiters(WorkerObject *worker);

/* The worker has ended: the thread in _keep() returns. */
void worker_end_keeper(WorkerObject *worker);

/* Sleep until woken, and `limit_ns` at most. -1 with an exception. */
int worker_sleep_shared(WorkerObject *worker, waiter *self, uint64_t limit_ns);

/* Have a follower become the leader. */
void worker_hand_over(WorkerObject *worker);

/* Let the progress thread leave UCX, as calls of libumx wait for that. Other
 * threads have the GIL meanwhile, and may close the worker. */
void worker_let_thread_leave(const WorkerObject *worker);

#endif
