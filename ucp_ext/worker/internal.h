/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h: what the files of this room share. */
#ifndef UCP_EXT_WORKER_INTERNAL_H
#define UCP_EXT_WORKER_INTERNAL_H

#include "worker/worker.h"

/* ---- calls.c ---- */

/* Is something due in the worker's thread? */
static inline bool
worker_has_due(const WorkerObject *worker)
{
    return !event_list_is_empty(&worker->wakes) ||
           !event_list_is_empty(&worker->calls);
}

/* Keep `exc`, whose reference is taken over, to be raised when C has returned
 * to Python. */
void worker_keep_exception(WorkerObject *worker, PyObject *exc);

/* Does an exception end the program, and not only a callback? */
bool worker_ends_program(PyObject *exc);

/* Hand the callbacks of all requests to the loop. */
void worker_queue_wakes(WorkerObject *worker);

/* Run as many callbacks of requests as the loop's turn has time for. */
void worker_run_wakes(WorkerObject *worker);

/* Run the other calls that are due. */
void worker_run_calls(WorkerObject *worker, bool is_direct);

/* worker_after_call() after a call of progress: callbacks run even in drive(),
 * as a task that it has resumed may poll without returning to the loop. */
void worker_after_progress(WorkerObject *worker);

/* ---- turn.c ---- */

/* Find the queue of calls of the loop that the worker is bound to, in which
 * worker_extend_turn() sees who else wants the loop. Other loops than asyncio's
 * have none. */
void worker_find_ready(WorkerObject *worker);

/* ---- loop.c ---- */

void worker_remove_reader(WorkerObject *self);

/* Have the loop call the worker when its progress thread has left something to
 * do. -1 with an exception. */
int  worker_add_told_reader(WorkerObject *self);
void worker_remove_told_reader(WorkerObject *self);

/* ---- close.c ---- */

/* Settle the requests of close_all() once nothing is closing any more. */
void worker_settle_closers(WorkerObject *worker);

#endif
