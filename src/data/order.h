/* SPDX-License-Identifier: BSD-3-Clause */
/* order.h: the order of rows by partition.
 *
 * The rows of a chunk are cut into blocks, whose columns fit into the cache. In
 * a block rows are sorted by partition: a run for each partition that has some,
 * and for each row of the run its number in the block. So each run is read from
 * the cache and written in one piece, whatever the number of partitions.
 *
 * Thread: any. */
#ifndef UMI_DATA_ORDER_H
#define UMI_DATA_ORDER_H

#include <umx/partition.h>

#include <stdlib.h>

#include "data/parallel.h"

typedef struct umi_order_block {
    size_t   chunk;
    size_t   row; /* the first, in the chunk */
    uint32_t num_rows;
    uint32_t num_runs;
    size_t   first_row; /* in order->rows */
    size_t   first_run; /* in order->runs */
} umi_order_block;

/* Rows of a block that belong to one partition. */
typedef struct umi_run {
    uint16_t partition;
    uint16_t num_rows;
} umi_run;

typedef struct umi_order {
    const umx_chunk *chunks;
    umi_order_block *blocks;
    size_t           num_blocks;
    size_t           num_rows;
    umi_run         *runs; /* of all blocks, with gaps between these */
    uint16_t        *rows; /* of all runs: numbers in their block */
} umi_order;

enum {
    UMI_FINDER_ROWS = 512 /* at a time: what is found of them stays in cache */
};

/* What decides to which partition rows belong. */
typedef struct umi_finder {
    /* Write the partitions of at most UMI_FINDER_ROWS rows, from `row` on.
     * Returns SIZE_MAX; or the number of a column, one of whose dictionaries
     * lacks the number that a row has. Thread: several at once. */
    size_t (*find)(const void *arg, const umx_chunk *chunk, size_t row,
                   size_t num_rows, uint16_t *ids);
    const void *arg;
} umi_finder;

/* Sort the rows, and count in `totals`, which begins as zeros, those of each
 * partition. On a failure umi_order_fini() is needed, too, and the number of
 * the column at fault is written.
 *
 * Returns UMX_OK, UMX_ERR_NO_MEMORY, or UMX_ERR_INVALID_PARAM: a dictionary has
 * not the number that a row has. */
umx_status umi_order_init(umi_order *order, const umx_partition_params *params,
                          const umi_finder *finder, size_t *totals,
                          size_t *column_p);
void       umi_order_fini(umi_order *order);

/* In how many threads `count` parts of the work are done. */
static inline size_t
umi_parallel_count(const umx_partition_params *params, size_t count)
{
    size_t wanted = (params->num_threads < UMI_PARALLEL_MAX) ?
                        params->num_threads :
                        UMI_PARALLEL_MAX;

    wanted = (wanted < count) ? wanted : count;
    return (wanted != 0) ? wanted : 1;
}

/* Allocate an array of zeros. An empty one is not NULL; NULL: out of memory. */
static inline void *
umi_new_array(size_t count, size_t size)
{
    return calloc(count != 0 ? count : 1, size);
}

#endif
