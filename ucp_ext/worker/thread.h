/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h: progress while the worker's own thread is blocked. */
#ifndef UCP_EXT_WORKER_THREAD_H
#define UCP_EXT_WORKER_THREAD_H

#include "state.h"

/* Methods of Worker. */
PyObject *worker_share(PyObject *op, PyObject *is_shared);
PyObject *worker_run(PyObject *op, PyObject *ignored);

/* Have the helper thread drain, and look at the next deadline. */
void worker_wake_helper(WorkerObject *worker);

/* Sleep without the GIL until drain is due, at most `limit_ns`; the helper also
 * until it is woken. Signals end it. */
void worker_sleep(WorkerObject *worker, uint64_t limit_ns);

#endif
