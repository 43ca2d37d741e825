/* SPDX-License-Identifier: BSD-3-Clause */
/* segment_limit.h: what the system allows of System V's segments, and who has
 * how many of them. Thread: any. */
#ifndef UMI_SEGMENT_LIMIT_H
#define UMI_SEGMENT_LIMIT_H

#include <stdbool.h>
#include <stddef.h>

/* True if a segment of `size` bytes is larger than any may be. */
bool umi_segments_cannot_hold(size_t size);

/* Are there as many segments as there may be? */
bool umi_segments_are_used_up(void);

/* Try whether the system gives a worker of UCX its segments: 0, or an errno. */
int umi_segments_try(void);

#endif
