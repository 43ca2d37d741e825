/* SPDX-License-Identifier: BSD-3-Clause */
/* event_fd.h: sleeping until the worker has something to do. Thread: the
 * worker's owner. */
#ifndef UMI_EVENT_FD_H
#define UMI_EVENT_FD_H

#include "util/clock.h"
#include "worker/worker.h"

/* umx_worker_drain() in a (P) call that has begun, from the tick `begin` until
 * `end`. */
umx_status umi_progress_drain(umx_worker *worker, uint64_t begin, uint64_t end);

/* Prepare umx_worker.nap of a new worker. */
void umi_nap_init(umx_worker *worker);

/* Compute until which tick work that begins at `now` may last: the end of the
 * turn that is under way, or of a new one. */
static inline uint64_t
umi_turn_end(const umx_worker *worker, uint64_t now)
{
    return (worker->turn_end != 0) ? worker->turn_end :
                                     now + worker->turn_ticks;
}

static inline bool
umi_turn_is_past(uint64_t now, uint64_t end)
{
    return (int64_t)(now - end) > 0;
}

#endif
