/* SPDX-License-Identifier: BSD-3-Clause */
/* mpsc.h: a queue that many threads fill and one empties, without locks.
 *
 * It is a stack that is taken as a whole and turned round, so nothing is ever
 * popped from a stack that others push to, and the ABA problem has no place to
 * occur. Thread: push from any; take by one at a time. */
#ifndef UMI_MPSC_H
#define UMI_MPSC_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct umi_mpsc_node {
    struct umi_mpsc_node *next;
} umi_mpsc_node;

typedef struct umi_mpsc {
    _Atomic(umi_mpsc_node *) newest;
} umi_mpsc;

static inline void
umi_mpsc_init(umi_mpsc *queue)
{
    atomic_init(&queue->newest, NULL);
}

static inline bool
umi_mpsc_is_empty(const umi_mpsc *queue)
{
    return atomic_load_explicit(&queue->newest, memory_order_relaxed) == NULL;
}

/* True if the queue was empty: whoever takes has to be woken. */
static inline bool
umi_mpsc_push(umi_mpsc *queue, umi_mpsc_node *node)
{
    umi_mpsc_node *newest = atomic_load_explicit(&queue->newest,
                                                 memory_order_relaxed);

    do {
        assert(node != newest);
        node->next = newest;
    } while (!atomic_compare_exchange_weak_explicit(&queue->newest, &newest,
                                                    node, memory_order_release,
                                                    memory_order_relaxed));
    return newest == NULL;
}

/* Take all nodes, linked by `next`, the oldest first. */
static inline umi_mpsc_node *
umi_mpsc_take(umi_mpsc *queue)
{
    umi_mpsc_node *newest = atomic_exchange_explicit(&queue->newest, NULL,
                                                     memory_order_acquire);
    umi_mpsc_node *oldest = NULL;

    while (newest != NULL) {
        umi_mpsc_node *next = newest->next;

        newest->next = oldest;
        oldest       = newest;
        newest       = next;
    }
    return oldest;
}

#endif
