/* SPDX-License-Identifier: BSD-3-Clause */
/* waiters.h: the workers of a context that wait for memory of it to be stored
 * to. Each has an entry for each wait; worker/wait.h says how a wait goes.
 * Thread: any.
 */
#ifndef UMI_WAITERS_H
#define UMI_WAITERS_H

#include <umx/wait.h>

#include "keys/context.h"

/* What umi_waiters counts: announcements so far << UMI_WAITERS_BITS | those
 * that are not withdrawn, one of each wait. */
enum {
    UMI_WAITERS_BITS = 24
};

_Static_assert(UMX_WAITERS_MASK == (1 << UMI_WAITERS_BITS) - 1, "public");

static inline bool
umi_waiters_are_announced(uint64_t waiters)
{
    return (waiters & UMX_WAITERS_MASK) != 0;
}

static inline uint64_t
umi_waiters_announcement(uint64_t waiters)
{
    return waiters >> UMI_WAITERS_BITS;
}

/* Of one wait. */
typedef struct umi_waiter {
    umi_node    node;   /* context->waiters */
    uint64_t    memory; /* umx_memh.number */
    umx_worker *worker; /* that waits, and how it is woken: from any thread */
    void (*wake)(umx_worker *worker);
} umi_waiter;

/* Add a waiter, unless the memory is closed: then false. Whoever closes the
 * memory finds the waiter, or this call finds the memory closed. */
bool umi_waiters_add(umx_context *context, umi_waiter *waiter,
                     const atomic_bool *is_closed);

void umi_waiters_remove(umx_context *context, umi_waiter *waiter);

/* Have the workers look that wait for a memory, by its id, or (0) for any; all
 * but `inside`, which is in a (P) call and looks at its end. */
void umi_waiters_wake(umx_context *context, uint64_t memory,
                      const umx_worker *inside);

#endif
