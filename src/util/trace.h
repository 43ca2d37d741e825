/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.h: the events of a trace, in a ring of memory. Thread: any.
 *
 * Who records takes the next place of the ring, by one atomic operation, and
 * fills it. A thread that was slow to fill its place may do so after the end:
 * so the addresses of a ring are for good, and only its pages are given back to
 * the system, when its trace has been read or another one begins. */
#ifndef UMI_TRACE_H
#define UMI_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <umx/trace.h>

#include "util/clock.h"

enum {
    UMI_OBSERVED_TRACE   = 1u << 0,
    UMI_OBSERVED_LATENCY = 1u << 1
};

/* What is recorded now: UMI_OBSERVED_*. Read without order: who sees a change
 * late records one event more, or less. */
extern unsigned umi_observed __attribute__((visibility("hidden")));

/* True if anything is recorded: two instructions where nothing is. */
#define UMI_IS_OBSERVED() __builtin_expect(umi_observed != 0, 0)

/* Begin and end to record what one of UMI_OBSERVED_* stands for. */
void umi_observed_set(unsigned what, bool is_on);

typedef struct umi_trace_ring {
    uint64_t         head; /* events that were ever recorded */
    uint64_t         mask;
    umx_trace_event *events; /* times are in ticks */
} umi_trace_ring;

extern umi_trace_ring *umi_trace_current;

/* Take a place, to be filled and given to umi_trace_commit(). NULL: there has
 * been no trace. */
static inline umx_trace_event *
umi_trace_claim(void)
{
    umi_trace_ring  *ring = __atomic_load_n(&umi_trace_current,
                                            __ATOMIC_ACQUIRE);
    umx_trace_event *event;

    if (ring == NULL) {
        return NULL;
    }
    event = &ring->events[__atomic_fetch_add(&ring->head, 1, __ATOMIC_RELAXED) &
                          ring->mask];
    __atomic_store_n(&event->kind, 0, __ATOMIC_RELAXED);
    return event;
}

static inline void
umi_trace_commit(umx_trace_event *event, umx_trace_kind kind)
{
    __atomic_store_n(&event->kind, (uint8_t)kind, __ATOMIC_RELEASE);
}

#endif
