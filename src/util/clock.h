/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h: time in nanoseconds. umi_clock_ns() is CLOCK_MONOTONIC; umi_ticks()
 * is the cheapest counter that the machine has (TSC, cntvct, else
 * CLOCK_MONOTONIC), for short intervals only. Thread: any. */
#ifndef UMI_CLOCK_H
#define UMI_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t
umi_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t
umi_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return umi_clock_ns();
#endif
}

/* Let a loop that waits for another core go easy on this one. */
static inline void
umi_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Compute the ticks in `ns`. The first call may measure the counter, for about
 * 1 ms. */
uint64_t umi_ticks_from_ns(uint64_t ns);

#endif
