/* SPDX-License-Identifier: BSD-3-Clause */
/* timer.h: what a worker does at a given time, in a (P) call. Thread: the
 * worker's owner. */
#ifndef UMI_TIMER_H
#define UMI_TIMER_H

#include <stdint.h>
#include <umx/types.h>

#include "util/list.h"

typedef struct umi_timer umi_timer;
typedef void (*umi_timer_fn)(umi_timer *timer);

struct umi_timer {
    umi_node     node; /* worker->timers, soonest first */
    uint64_t     deadline_ns;
    umi_timer_fn fn;
};

void umi_timer_init(umi_timer *timer, umi_timer_fn fn);
void umi_timer_start(umx_worker *worker, umi_timer *timer, uint64_t timeout_ns);
void umi_timer_stop(umi_timer *timer);

/* Run what has expired. */
void umi_worker_run_timers(umx_worker *worker);

#endif
