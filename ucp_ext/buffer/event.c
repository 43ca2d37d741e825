/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about memory that was lent: see base/event.h. */
#include "buffer/event.h"

#include "buffer/memh.h"

#include <stdatomic.h>

/* In any thread, without the GIL. */
static _Atomic(memory_loan *) freed;

static void
on_free(void *arg)
{
    memory_loan *loan = arg;

    loan->next = atomic_load_explicit(&freed, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&freed, &loan->next, loan,
                                                  memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

void
event_watch_memory(umx_memh_params *params, memory_loan *loan)
{
    params->field_mask |= UMX_MEMH_FIELD_ON_FREE;
    params->on_free = on_free;
    params->arg     = loan;
}

bool
event_has_freed(void)
{
    return atomic_load_explicit(&freed, memory_order_relaxed) != NULL;
}

/* Take the whole list: with the GIL nobody else takes from it. */
memory_loan *
event_take_freed(void)
{
    return atomic_exchange_explicit(&freed, NULL, memory_order_acquire);
}
