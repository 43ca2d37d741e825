/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.h: the lock of a worker that has a progress thread.
 *
 * Every public call on the worker, or on what is under it, holds the lock from
 * UMI_GUARD() to its end. A worker without a thread has no guard, and the call
 * one branch more. Callbacks run with the lock held and may call anything: the
 * lock is recursive.
 *
 * The thread runs nothing of the program's. What it would call is put off: it
 * goes on a list of the worker's, and the next (P) call of the program runs it.
 * So the callbacks of a program run in the program's own calls, with or without
 * a thread. */
#ifndef UMI_GUARD_H
#define UMI_GUARD_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/thread_limit.h"
#include "util/list.h"

struct umx_worker;

/* A call of the program's that the thread has put off. */
typedef struct umi_put_off {
    umi_node node;
    /* In a (P) call of the program; `put_off` is on no list then. */
    void (*run)(struct umi_put_off *put_off);
} umi_put_off;

typedef struct umi_guard {
    pthread_mutex_t    lock;
    _Atomic(uintptr_t) holder;      /* umi_thread_id() of who has it, or 0 */
    _Atomic(uintptr_t) thread_id;   /* of the thread; 0: it has not begun */
    atomic_uint        wanted;      /* calls that wait for it */
    atomic_uint        entries;     /* (P) calls of the program so far */
    atomic_bool        is_reserved; /* a call of the program's is to come */
    atomic_bool        is_stop_due;
    unsigned           generation; /* of the process: host/fork.h */
    int                wake_fd;    /* ends the thread's sleep */
    int                told_fd;    /* wakes the program */
    pthread_t          thread;
    /* with the lock */
    unsigned           depth;
    struct umx_worker *worker;
    bool               is_over;     /* the thread has ended */
    bool               is_asleep;   /* the thread, until `deadline_ns` or ... */
    uint64_t           deadline_ns; /* ... what the armed worker's fd tells */
    bool               is_tell_due; /* there is something for the program */
    bool               is_told;     /* told_fd is readable */
} umi_guard;

void umi_guard_lock(umi_guard *guard);

/* Lock, unless the thread keeps the lock for a tenth of a second: then false.
 */
bool umi_guard_try_lock(umi_guard *guard);
void umi_guard_unlock(umi_guard *guard);

/* Give the lock up; `guard` may be freed in this. */
static inline void
umi_guard_leave(umi_guard *const *guard_p)
{
    if (__builtin_expect(*guard_p != NULL, 0)) {
        umi_guard_unlock(*guard_p);
    }
}

static inline umi_guard *
umi_guard_enter(umi_guard *guard)
{
    if (__builtin_expect(guard != NULL, 0)) {
        umi_guard_lock(guard);
    }
    return guard;
}

/* Hold the lock of `worker` until the end of the block. */
#define UMI_GUARD(worker)                             \
    __attribute__((cleanup(umi_guard_leave), unused)) \
    umi_guard *const umi_guard_of_call = umi_guard_enter((worker)->guard)

/* Hold the lock of the worker of an object that outlives its worker: `worker`
 * may be NULL. */
#define UMI_GUARD_IF_ANY(worker)                      \
    __attribute__((cleanup(umi_guard_leave), unused)) \
    umi_guard *const umi_guard_of_call =              \
        umi_guard_enter((worker) != NULL ? (worker)->guard : NULL)

/* Does the calling thread hold the lock? */
static inline bool
umi_guard_is_held(const umi_guard *guard)
{
    return atomic_load_explicit(&guard->holder, memory_order_relaxed) ==
           umi_thread_id();
}

/* Has `worker` a lock that the calling thread does not hold? */
#define UMI_IS_UNLOCKED(worker)                      \
    (__builtin_expect((worker)->guard != NULL, 0) && \
     !umi_guard_is_held((worker)->guard))

/* UMI_IS_UNLOCKED() of what outlives its worker: `worker` may be NULL. */
#define UMI_IS_UNLOCKED_IF_ANY(worker) \
    (__builtin_expect((worker) != NULL, 1) && UMI_IS_UNLOCKED(worker))

/* What changes the state of `worker` is in a call that holds the lock. */
#define UMI_ASSERT_LOCKED(worker) assert(!UMI_IS_UNLOCKED(worker))

/* UMI_GUARD() for functions that run for each message, which costs a worker
 * without a thread one branch, and no registers. Define name_locked(), which
 * calls `name` with the lock held. `name` begins with
 *
 *     if (UMI_IS_UNLOCKED(worker)) {
 *         return name_locked(...);
 *     }
 */
#define UMI_LOCKED(type, name, worker, parameters, arguments)            \
    static __attribute__((noinline, cold)) type name##_locked parameters \
    {                                                                    \
        UMI_GUARD(worker);                                               \
        return name arguments;                                           \
    }

/* Is the calling thread the progress thread of `worker`, in a call? Any thread.
 */
bool umi_guard_is_in_thread(const struct umx_worker *worker);
void umi_guard_set_in_thread(struct umx_worker *worker, bool is_in_thread);

/* A worker gets a thread, which is to be started; NULL: no descriptors, or out
 * of memory. */
umi_guard *umi_guard_create(struct umx_worker *worker);

/* The thread has ended: what it has put off is due. */
void umi_guard_destroy(umi_guard *guard);

/* A (P) call of the program begins: what was put off is due in it. */
void umi_guard_take_put_off(umi_guard *guard);

/* The thread has made a call: tell the program what is due. */
void umi_guard_tell(umi_guard *guard);

/* Let fork() wait for the thread of `worker`, if it has one; umi_fork_remove()
 * ends that. */
void umi_guard_join_fork(struct umx_worker *worker);

/* Change worker->guard: a fork() waits for the thread that it is for. */
void umi_guard_set(struct umx_worker *worker, umi_guard *guard);

#endif
