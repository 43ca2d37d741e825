/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about workers. */
#ifndef UCP_EXT_WORKER_EVENT_H
#define UCP_EXT_WORKER_EVENT_H

#include "worker/worker.h"

/* Have the worker settle `self` once libumx has returned. */
static inline void
event_tell(WorkerObject *worker, event *self)
{
    if (!event_is_listed(self)) {
        event_append(&worker->told, self);
    }
}

/* Have libumx tell `worker->addressed` when umx_worker_take_addressed() has
 * another endpoint. */
umx_status event_watch_addressed(WorkerObject *worker);

/* Lines that libumx has written. */
typedef struct text_lines {
    size_t   len;
    char    *text;     /* each ends with a newline; of malloc */
    size_t   count;    /* in `text` */
    size_t   max;      /* of `count` */
    uint64_t num_more; /* that were too many, or for which there is no memory */
} text_lines;

umx_status event_describe(const umx_worker *umx, text_lines *lines);

/* Have the owner's thread call `fn`, of a worker that is open; false: it will
 * not. Any thread. */
bool event_submit(WorkerObject *worker, umx_call_fn fn, void *arg);

/* The owner's thread tells it; the call is held until then. */
bool event_submit_call(WorkerObject *worker, call *self);

/* Call `fn` in the thread of the worker, from whichever thread: drop or return
 * `dropped`, which is leaked if the worker ends before. True: it was this
 * thread, and the worker may have something to do. */
bool event_end(WorkerObject *worker, umx_call_fn fn, void *dropped);

/* Define event_##name(), which is event_end() of an object of libumx. */
#define EVENT_DROP(name, type, function)                            \
    static void on_##name(umx_worker *umx, umx_status s, void *arg) \
    {                                                               \
        (void)umx;                                                  \
        (void)s;                                                    \
        function(arg);                                              \
    }                                                               \
                                                                    \
    bool event_##name(WorkerObject *worker, type *dropped)          \
    {                                                               \
        return event_end(worker, on_##name, dropped);               \
    }

#endif
