/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h: progress by a thread of its own. Thread: the worker's owner. */
#ifndef UMI_PROGRESS_THREAD_H
#define UMI_PROGRESS_THREAD_H

#include <umx/progress.h>

/* Stop the progress thread of a worker: umi_worker_hooks.stop_thread. */
void umi_progress_stop(umx_worker *worker);

#endif
