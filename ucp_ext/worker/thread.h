/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h: progress while the worker's own thread is blocked. */
#ifndef UCP_EXT_WORKER_THREAD_H
#define UCP_EXT_WORKER_THREAD_H

#include "base/state.h"

enum {
    SIGNALS_NS = 500000000 /* between two looks for signals */
};

/* Sleep without the GIL until drain is due, at most `limit_ns`. Signals end it.
 */
void worker_sleep(WorkerObject *worker, uint64_t limit_ns);

#endif
