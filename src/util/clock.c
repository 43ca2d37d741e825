/* SPDX-License-Identifier: BSD-3-Clause */
/* The TSC's frequency is not told to programs everywhere, so it is measured
 * against CLOCK_MONOTONIC. A thread switch between the two readings of a sample
 * would spoil it: of a few readings the one that took the fewest ticks counts.
 */
#include "util/clock.h"

#if defined(__x86_64__) || defined(__aarch64__)
#include <pthread.h>

#define NS_PER_SECOND 1000000000u

static pthread_once_t calibrate_once = PTHREAD_ONCE_INIT;
static uint64_t       ticks_per_second; /* written under calibrate_once */

#if defined(__x86_64__)

#define CALIBRATION_NS 1000000u
#define SAMPLE_TRIES 8

typedef struct clock_sample {
    uint64_t ns;
    uint64_t ticks;
} clock_sample;

static clock_sample
sample_clocks(void)
{
    clock_sample best     = {0, 0};
    uint64_t     best_gap = UINT64_MAX;

    for (int i = 0; i < SAMPLE_TRIES; i++) {
        uint64_t before = umi_ticks();
        uint64_t ns     = umi_clock_ns();
        uint64_t gap    = umi_ticks() - before;

        if (gap < best_gap) {
            best_gap = gap;
            best     = (clock_sample){ns, before + gap / 2};
        }
    }
    return best;
}

static void
calibrate(void)
{
    clock_sample start = sample_clocks();
    clock_sample end;

    do {
        end = sample_clocks();
    } while (end.ns - start.ns < CALIBRATION_NS);

    ticks_per_second = (uint64_t)((double)(end.ticks - start.ticks) *
                                  NS_PER_SECOND / (double)(end.ns - start.ns));
}

#else

static void
calibrate(void)
{
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(ticks_per_second));
}

#endif

uint64_t
umi_ticks_from_ns(uint64_t ns)
{
    unsigned __int128 ticks;

    (void)pthread_once(&calibrate_once, calibrate);
    ticks = (unsigned __int128)ns * ticks_per_second / NS_PER_SECOND;
    return (ticks > UINT64_MAX) ? UINT64_MAX : (uint64_t)ticks;
}

#else /* umi_ticks() is umi_clock_ns() */

uint64_t
umi_ticks_from_ns(uint64_t ns)
{
    return ns;
}

#endif
