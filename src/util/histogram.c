/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/histogram.h"

#include <string.h>

void
umx_histogram_init(umx_histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram->min_ns = UINT64_MAX;
}

void
umx_histogram_record(umx_histogram *histogram, uint64_t ns)
{
    umi_histogram_add(histogram, ns);
}

void
umx_histogram_merge(umx_histogram *histogram, const umx_histogram *other)
{
    uint64_t count = __atomic_load_n(&other->count, __ATOMIC_ACQUIRE);
    uint64_t most  = __atomic_load_n(&other->max_ns, __ATOMIC_RELAXED);
    uint64_t least = __atomic_load_n(&other->min_ns, __ATOMIC_RELAXED);

    for (size_t i = 0; i < UMX_HISTOGRAM_BUCKETS; i++) {
        histogram->counts[i] += __atomic_load_n(&other->counts[i],
                                                __ATOMIC_RELAXED);
    }
    histogram->count += count;
    histogram->sum_ns += __atomic_load_n(&other->sum_ns, __ATOMIC_RELAXED);
    if (most > histogram->max_ns) {
        histogram->max_ns = most;
    }
    if (least < histogram->min_ns) {
        histogram->min_ns = least;
    }
}

uint64_t
umx_histogram_limit(size_t i)
{
    const uint64_t parts = UINT64_C(1) << UMX_HISTOGRAM_SUB_BITS;
    uint64_t       shift;

    if (i < 2 * parts) {
        return i + 1;
    }
    shift = i / parts - 1;
    return (i % parts + parts + 1) << shift;
}

uint64_t
umx_histogram_percentile(const umx_histogram *histogram, double percent)
{
    double   wanted = (double)histogram->count * percent / 100;
    uint64_t seen   = 0;

    for (size_t i = 0; i < UMX_HISTOGRAM_BUCKETS; i++) {
        seen += histogram->counts[i];
        if (seen != 0 && (double)seen >= wanted) {
            uint64_t top = umx_histogram_limit(i) - 1;

            /* The last bucket has no limit. */
            return (i < UMX_HISTOGRAM_BUCKETS - 1 && top < histogram->max_ns) ?
                       top :
                       histogram->max_ns;
        }
    }
    return histogram->max_ns;
}
