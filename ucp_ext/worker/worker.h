/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.h: a worker bound to an event loop, and what it does for others. */
#ifndef UCP_EXT_WORKER_WORKER_H
#define UCP_EXT_WORKER_WORKER_H

#include "base/event.h"
#include "base/state.h"

/* A thread that sleeps in a call of a shared worker; see worker/share.h. */
typedef struct waiter waiter;

/* A Python call to make once libumx has returned. */
typedef struct call {
    event         event;
    WorkerObject *worker;
    PyObject     *func;
    PyObject     *arg; /* or NULL */
} call;

struct WorkerObject {
    PyObject_HEAD mod_state *st;
    umx_worker              *umx; /* NULL once closed */
    ContextObject           *context;
    uintptr_t                thread; /* the owner's compat_thread_id(); 0 in
                                        a forked child */
    PyObject     *loop;              /* or NULL */
    PyTypeObject *endpoint_class;
    PyTypeObject *listener_class;
    PyObject     *call_soon;     /* loop.call_soon */
    PyObject     *drain_call;    /* self._drain, for call_soon */
    PyObject     *readable_call; /* self._on_readable */
    PyObject     *ready;    /* loop._ready; NULL: it is not asyncio's own */
    PyObject     *timer;    /* TimerHandle or NULL */
    uint64_t      timer_ns; /* deadline the timer was set for; 0: none */
    size_t        inline_count;
    bool          in_callback; /* called by the loop: no task is running */
    bool          is_drain_scheduled;
    bool          is_turn_due; /* somebody waits for the loop's next turn */
    unsigned      num_due;     /* tasks that do */
    unsigned      num_parts;   /* of this turn, one of each that has waited */
    bool          has_asked;   /* worker_extend_turn(), in this turn */
    bool          is_shutting;
    PyObject     *raised;         /* KeyboardInterrupt or SystemExit, see
                                     worker_raise_kept() */
    event_list         told;      /* by libumx; see event.h */
    event_list         wakes;     /* requests whose callbacks are to run */
    event_list         calls;     /* other calls into the program */
    event_list         closers;   /* of close_all(): op/close.c */
    size_t             num_ended; /* callbacks told that their endpoint ended */
    event              addressed; /* there is an endpoint to take */
    PyObject          *on_addressed; /* or NULL */
    struct am_handler *am_handlers;
    PyObject          *am_host_allocator; /* or NULL */
    PyObject          *am_device_allocator;
    int                told_fd;      /* umx_progress_fd() in the loop, or -1 */
    bool               has_thread;   /* umx_progress_start() */
    bool               is_shared;    /* every thread may call it */
    bool               is_kept;      /* a thread calls worker_keep() */
    unsigned           num_unlocked; /* calls of libumx without the GIL */
    waiter            *waiters;      /* those of `is_shared` that sleep */
    waiter            *leader;     /* the one that polls descriptors; or NULL */
    unsigned           num_awake;  /* threads that drain before they sleep */
    bool               is_in_call; /* it posts what its thread waits for */
    int                wake_fd;    /* of the leader, or -1 */
    int                end_fd;     /* of the thread in _keep(), or -1 */
    PyObject          *weakrefs;
};

/* Have the loop call the worker's drain, once. May be called with an exception
 * set, which stays. */
void worker_schedule_drain(WorkerObject *worker);

/* Get the running event loop, or None: a new reference, or NULL with an
 * exception. */
PyObject *worker_running_loop(mod_state *st);

/* Get the worker of the running event loop, or of this thread: a new
 * reference, or NULL with an exception. */
WorkerObject *worker_current(mod_state *st);

/* Tell where it comes from; of the module. */
PyObject         *worker_set_current(PyObject *module, PyObject *function);
extern const char worker_set_current_doc[];

/* worker_schedule_drain() if a call has left something to be done. */
void worker_drain_if_due(WorkerObject *worker);

/* Settle what libumx has told, after each call that progresses the worker. May
 * close the worker. */
void worker_settle_told(WorkerObject *worker);

/* worker_settle_told(), and run callbacks by call_soon: from a running task. */
void worker_after_call(WorkerObject *worker);

/* Keep the loop's timer in step with libumx's next deadline. */
void worker_update_timer(WorkerObject *worker);

/* Call `func` in the worker's thread, from where there may be a task, or libumx
 * may have been called. */
void worker_call_later(WorkerObject *worker, PyObject *func, PyObject *arg);

/* Call func(arg), or func() if `arg` is NULL, as event_type.call() does. */
void worker_call(WorkerObject *worker, PyObject *func, PyObject *arg,
                 bool is_direct);

/* loop.call_soon(func, arg, context=context); the last two may be NULL. -1 with
 * an exception. */
int worker_call_soon(WorkerObject *worker, PyObject *func, PyObject *arg,
                     PyObject *context);

/* Hand the exception that is set, which nobody awaits, to the loop's exception
 * handler, or keep it if it is to end the program. */
void worker_report_exception(WorkerObject *worker, const char *message);

/* Raise the exception that was kept: -1. */
int worker_raise_kept(WorkerObject *worker);

/* Is the loop of the worker closed? It must have one. Clears an exception. */
bool worker_loop_is_closed(WorkerObject *worker);

/* -1 with RuntimeError unless this thread owns the open worker. */
int worker_check(WorkerObject *worker);

/* Begin a turn: what is done until the next one has one budget of time. Without
 * a loop each call has a budget of its own. */
static inline void
worker_begin_turn(WorkerObject *worker)
{
    worker->has_asked = false;
    worker->num_parts = worker->num_due;
    worker->num_due   = 0;
    if (worker->loop != NULL && worker->umx != NULL) {
        umx_worker_begin_turn(worker->umx);
    }
}

/* A task goes on that has waited for this turn. Without a part of its own it
 * would find the turn over again, as others before it have used it up. */
static inline void
worker_begin_part(const WorkerObject *worker)
{
    if (worker->num_parts > 1 && worker->umx != NULL) {
        umx_worker_divide_turn(worker->umx, worker->num_parts);
    }
}

static inline bool
worker_turn_is_over(const WorkerObject *worker)
{
    return worker->umx != NULL && umx_worker_turn_is_over(worker->umx);
}

/* A task is running, and its turn is over: extend it if nobody else waits for
 * the loop, once a turn. False: it stays over. Keeps exceptions. */
bool worker_extend_turn(WorkerObject *worker);

/* May this thread call what is the owner's? */
static inline bool
worker_is_mine(const WorkerObject *worker)
{
    return LIKELY(worker->thread == compat_thread_id()) || worker->is_shared;
}

/* worker_call_off() of a worker that has a progress thread. */
void worker_wait_for_thread(WorkerObject *worker);

/* Have the progress thread leave UCX, for the next call of libumx: the GIL is
 * let go while it has not. */
static inline void
worker_call_off(WorkerObject *worker)
{
    if (UNLIKELY(worker->has_thread)) {
        worker_wait_for_thread(worker);
    }
}

/* Settle what the progress thread has done, for who asks again and again
 * instead of awaiting. */
void worker_catch_up(WorkerObject *worker);

/* True in a child: the worker is the parent's. */
static inline bool
worker_is_forked(const WorkerObject *worker)
{
    return worker->thread == 0;
}

#endif
