/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/parked.h"

#include "core/worker.h"
#include "util/clock.h"
#include "util/log.h"

/* How long the last parked workers have, in all and while nothing comes of
 * UCX. Nothing is in their way any more, but for connections that UCX does not
 * get closed. */
enum {
    LAST_GRACE_MS = 1000,
    SILENCE_MS    = 100
};

void
umi_parked_init(umi_parked *parked)
{
    pthread_mutex_init(&parked->lock, NULL);
    umi_list_init(&parked->workers);
}

void
umi_parked_add(umi_parked *parked, umx_worker *worker)
{
    pthread_mutex_lock(&parked->lock);
    umi_list_append(&parked->workers, &worker->parked_node);
    pthread_mutex_unlock(&parked->lock);
}

unsigned
umi_parked_progress(umi_parked *parked)
{
    unsigned events = 0;

    pthread_mutex_lock(&parked->lock);
    UMI_LIST_FOREACH_SAFE(node, &parked->workers) {
        umx_worker *worker = umi_container_of(node, umx_worker, parked_node);

        events += ucp_worker_progress(worker->engine->ucp);
        events += umi_engines_progress(worker);
        if (!umi_worker_is_in_ucx(worker)) {
            umi_node_remove(node);
            umi_worker_free(worker);
        }
    }
    pthread_mutex_unlock(&parked->lock);
    return events;
}

/* UCX gives the operations of a connection up after its worker has closed it,
 * or has gone. Connections that it does not get closed, to processes that died
 * with their queues full, may be of several workers, each with operations that
 * wait for the others': none of these workers can be the first to go. */
bool
umi_parked_fini(umi_parked *parked)
{
    uint64_t  now      = umi_clock_ns();
    uint64_t  deadline = now + LAST_GRACE_MS * UINT64_C(1000000);
    uint64_t  silence  = now + SILENCE_MS * UINT64_C(1000000);
    umi_node *last;

    while (!umi_list_is_empty(&parked->workers) && now < deadline &&
           now < silence) {
        unsigned events = umi_parked_progress(parked);

        now = umi_clock_ns();
        if (events != 0) {
            silence = now + SILENCE_MS * UINT64_C(1000000);
        }
    }
    if (parked->workers.next != parked->workers.prev) {
        umi_log(UMI_LOG_INFO, "UCX keeps operations of several workers, which "
                              "stay until the process ends");
        return false;
    }
    last = umi_list_pop(&parked->workers);
    if (last != NULL) {
        umi_worker_free(umi_container_of(last, umx_worker, parked_node));
    }
    pthread_mutex_destroy(&parked->lock);
    return true;
}
