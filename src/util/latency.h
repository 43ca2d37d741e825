/* SPDX-License-Identifier: BSD-3-Clause */
/* latency.h: how long the operations of a worker take: a histogram for each of
 * their names, which are static. Thread: one records; any reads. */
#ifndef UMI_LATENCY_H
#define UMI_LATENCY_H

#include <umx/trace.h>

typedef struct umi_latency umi_latency;

/* The histograms of a worker, which umx_latency_each() finds; NULL when out of
 * memory. */
umi_latency *umi_latency_new(uint64_t worker);
void         umi_latency_free(umi_latency *latency);

/* Count an operation that took so many ticks. The histogram of a name is made
 * with the first one; without memory for it nothing is counted. */
void umi_latency_record(umi_latency *latency, const char *name, uint64_t ticks);

#endif
