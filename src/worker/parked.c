/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/parked.h"

#include "util/clock.h"
#include "util/log.h"
#include "worker/worker.h"

/* How long the last parked workers have, in all and while nothing comes of
 * UCX. Nothing is in their way any more, but for connections that UCX does not
 * get closed. */
enum {
    LAST_GRACE_MS = 1000,
    SILENCE_MS    = 100
};

void
umi_parked_add(umx_worker *worker)
{
    umx_context *context = worker->context;

    pthread_mutex_lock(&context->parked_lock);
    umi_list_append(&context->parked, &worker->parked_node);
    context->end_parked = umi_parked_end;
    pthread_mutex_unlock(&context->parked_lock);
}

unsigned
umi_parked_progress(umx_context *context)
{
    unsigned events = 0;

    pthread_mutex_lock(&context->parked_lock);
    UMI_LIST_FOREACH_SAFE(node, &context->parked) {
        umx_worker *worker = umi_container_of(node, umx_worker, parked_node);

        events += ucp_worker_progress(worker->engine->ucp);
        events += umi_engines_progress(worker);
        if (!umi_worker_is_in_ucx(worker)) {
            umi_node_remove(node);
            umi_worker_free(worker);
        }
    }
    pthread_mutex_unlock(&context->parked_lock);
    return events;
}

/* UCX gives the operations of a connection up after its worker has closed it,
 * or has gone. Connections that it does not get closed, to processes that died
 * with their queues full, may be of several workers, each with operations that
 * wait for the others': none of these workers can be the first to go. */
bool
umi_parked_end(umx_context *context)
{
    uint64_t  now      = umi_clock_ns();
    uint64_t  deadline = now + LAST_GRACE_MS * UINT64_C(1000000);
    uint64_t  silence  = now + SILENCE_MS * UINT64_C(1000000);
    umi_node *last;

    while (!umi_list_is_empty(&context->parked) && now < deadline &&
           now < silence) {
        unsigned events = umi_parked_progress(context);

        now = umi_clock_ns();
        if (events != 0) {
            silence = now + SILENCE_MS * UINT64_C(1000000);
        }
    }
    if (context->parked.next != context->parked.prev) {
        umi_log(UMI_LOG_INFO, "UCX keeps operations of several workers, which "
                              "stay until the process ends");
        return false;
    }
    last = umi_list_pop(&context->parked);
    if (last != NULL) {
        umi_worker_free(umi_container_of(last, umx_worker, parked_node));
    }
    return true;
}
