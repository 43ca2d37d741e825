/* SPDX-License-Identifier: BSD-3-Clause */
/* parallel.h: parts of a work in threads of their own. */
#ifndef UMI_DATA_PARALLEL_H
#define UMI_DATA_PARALLEL_H

#include <stddef.h>

enum {
    UMI_PARALLEL_MAX = 64
};

typedef void (*umi_part_fn)(size_t part, void *arg);

/* Call `fn` for each of `count` parts, at most UMI_PARALLEL_MAX: the first in
 * this thread, the others in new ones, or in this one if there can be no more.
 * Returns when all have returned. */
void umi_parallel_run(size_t count, umi_part_fn fn, void *arg);

#endif
