/* SPDX-License-Identifier: BSD-3-Clause */
#include "keys/waiters.h"

bool
umi_waiters_add(umx_context *context, umi_waiter *waiter,
                const atomic_bool *is_closed)
{
    bool is_open;

    pthread_mutex_lock(&context->waiters_lock);
    is_open = !atomic_load_explicit(is_closed, memory_order_acquire);
    if (is_open) {
        umi_list_append(&context->waiters, &waiter->node);
    }
    pthread_mutex_unlock(&context->waiters_lock);
    return is_open;
}

void
umi_waiters_remove(umx_context *context, umi_waiter *waiter)
{
    pthread_mutex_lock(&context->waiters_lock);
    umi_node_remove(&waiter->node);
    pthread_mutex_unlock(&context->waiters_lock);
}

void
umi_waiters_wake(umx_context *context, uint64_t memory,
                 const umx_worker *inside)
{
    const umx_worker *last = NULL;

    pthread_mutex_lock(&context->waiters_lock);
    UMI_LIST_FOREACH(node, &context->waiters) {
        const umi_waiter *waiter = umi_container_of(node, umi_waiter, node);

        if ((memory == 0 || waiter->memory == memory) &&
            waiter->worker != inside && waiter->worker != last) {
            last = waiter->worker;
            waiter->wake(waiter->worker);
        }
    }
    pthread_mutex_unlock(&context->waiters_lock);
}
