/* SPDX-License-Identifier: BSD-3-Clause */
/* histogram.h: durations, counted in buckets whose limits grow by powers of
 * two, each of which is divided into equal parts: as HdrHistogram has them. One
 * thread records; any reads. */
#ifndef UMI_HISTOGRAM_H
#define UMI_HISTOGRAM_H

#include <umx/trace.h>

/* Find the bucket of `ns`. */
static inline size_t
umi_histogram_index(uint64_t ns)
{
    unsigned shift;

    if (ns >= UINT64_C(1) << UMX_HISTOGRAM_MAX_BITS) {
        return UMX_HISTOGRAM_BUCKETS - 1;
    }
    if (ns < 2u << UMX_HISTOGRAM_SUB_BITS) {
        return ns;
    }
    shift = 63u - UMX_HISTOGRAM_SUB_BITS - (unsigned)__builtin_clzll(ns);
    return ((size_t)shift << UMX_HISTOGRAM_SUB_BITS) + (size_t)(ns >> shift);
}

/* Add 1, for those that read meanwhile. */
static inline void
umi_histogram_count(uint64_t *number, uint64_t more)
{
    __atomic_store_n(number, *number + more, __ATOMIC_RELAXED);
}

/* The number of all comes last: who reads it first finds the others that belong
 * to it. */
static inline void
umi_histogram_add(umx_histogram *histogram, uint64_t ns)
{
    if (ns > histogram->max_ns) {
        __atomic_store_n(&histogram->max_ns, ns, __ATOMIC_RELAXED);
    }
    if (ns < histogram->min_ns) {
        __atomic_store_n(&histogram->min_ns, ns, __ATOMIC_RELAXED);
    }
    umi_histogram_count(&histogram->counts[umi_histogram_index(ns)], 1);
    umi_histogram_count(&histogram->sum_ns, ns);
    __atomic_store_n(&histogram->count, histogram->count + 1, __ATOMIC_RELEASE);
}

#endif
