/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/timer.h"

#include "worker/worker.h"

void
umi_timer_init(umi_timer *timer, umi_timer_fn fn)
{
    umi_node_init(&timer->node);
    timer->fn = fn;
}

static bool
is_behind(umi_node *node, umi_node *other, const void *arg)
{
    (void)arg;
    return umi_container_of(node, umi_timer, node)->deadline_ns >
           umi_container_of(other, umi_timer, node)->deadline_ns;
}

void
umi_timer_start(umx_worker *worker, umi_timer *timer, uint64_t timeout_ns)
{
    uint64_t now = umi_clock_ns();

    umi_timer_stop(timer);
    if (timeout_ns >= UINT64_MAX - now) {
        return;
    }
    timer->deadline_ns = now + timeout_ns;
    umi_list_insert_sorted(&worker->timers, &timer->node, is_behind, NULL);
}

void
umi_timer_stop(umi_timer *timer)
{
    umi_node_remove(&timer->node);
}

void
umi_worker_run_timers(umx_worker *worker)
{
    while (!umi_list_is_empty(&worker->timers)) {
        umi_timer *timer = umi_container_of(worker->timers.next, umi_timer,
                                            node);

        if (timer->deadline_ns > umi_clock_ns()) {
            return;
        }
        umi_timer_stop(timer);
        timer->fn(timer);
        worker->activity++;
    }
}

uint64_t
umx_worker_deadline(const umx_worker *worker)
{
    UMI_GUARD(worker);
    return umi_worker_deadline(worker);
}
