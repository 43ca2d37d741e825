/* SPDX-License-Identifier: BSD-3-Clause */
#include "progress/yield.h"

#include <sched.h>

#include "util/clock.h"

enum {
    ALONE_NS  = 1500,   /* a switch to another process and back takes longer */
    SLICE_NS  = 200000, /* a yield that takes longer has cost a time slice */
    MAX_SKIPS = 4096
};

bool
umi_yields_begin(umi_yields *yields)
{
    if (yields->skip > 0) {
        yields->skip--;
        return false;
    }
    return true;
}

umi_yielded
umi_yields_once(umi_yields *yields)
{
    uint64_t start = umi_ticks();
    uint64_t took;

    (void)sched_yield();
    took              = umi_ticks() - start;
    yields->is_shared = took > umi_ticks_from_ns(ALONE_NS) ||
                        yields->num_crowds != 0;
    if (!yields->is_shared) {
        return UMI_YIELDED_ALONE;
    }
    if (took <= umi_ticks_from_ns(SLICE_NS)) {
        return UMI_YIELDED_SHARED;
    }
    yields->backoff = (yields->backoff == 0)        ? 2 :
                      (yields->backoff < MAX_SKIPS) ? 2 * yields->backoff :
                                                      MAX_SKIPS;
    yields->skip    = yields->backoff;
    return UMI_YIELDED_SLICE;
}

void
umi_yields_end(umi_yields *yields)
{
    yields->backoff = (yields->backoff + 1) / 2;
}
