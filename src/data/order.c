/* SPDX-License-Identifier: BSD-3-Clause */
/* order.c: the order of rows by partition. */
#include "data/order.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIND_ROWS = UMI_FINDER_ROWS,
    BLOCK_MIN = 4096,
    BLOCK_MAX = 32768, /* rows of a block are counted in 16 bits */
    RUN_ROWS  = 64,    /* of each partition in a block, if these are alike */
    LANES     = 4,
    LANES_MAX = 256 /* the most partitions for which there are lanes */
};

/* Tell how many rows a block has, but for the last one of a chunk. */
static size_t
block_size(uint32_t num_partitions)
{
    size_t size = (size_t)num_partitions * RUN_ROWS;

    return (size < BLOCK_MIN) ? BLOCK_MIN :
           (size > BLOCK_MAX) ? BLOCK_MAX :
                                size;
}

/* The memory that sorting a block needs. */
typedef struct block_sorter {
    const umx_partition_params *params;
    const umi_finder           *finder;
    uint16_t                   *ids;    /* of the block's rows */
    uint32_t                   *counts; /* for each lane, of each partition */
} block_sorter;

/* A block is sorted in lanes: the rows of each quarter have counters of their
 * own. With few partitions rows often follow each other into the same one, and
 * the processor would wait for its counter. With many there is one lane. */
static size_t
num_lanes(const umx_partition_params *params)
{
    return (params->num_partitions <= LANES_MAX) ? LANES : 1;
}

/* Compute the partitions of rows of a block, and count them in `counts`.
 * Returns SIZE_MAX; or the number of a column, one of whose dictionaries lacks
 * the number that a row has. */
static size_t
find_partitions(const block_sorter *sorter, const umi_order_block *block,
                size_t begin, size_t end, uint32_t *counts)
{
    const umi_finder *finder = sorter->finder;
    const umx_chunk  *chunk  = &sorter->params->chunks[block->chunk];

    for (; begin < end; begin += FIND_ROWS) {
        size_t    n   = (end - begin < FIND_ROWS) ? end - begin : FIND_ROWS;
        uint16_t *ids = sorter->ids + begin;
        size_t column = finder->find(finder->arg, chunk, block->row + begin, n,
                                     ids);

        if (column != SIZE_MAX) {
            return column;
        }
        for (size_t i = 0; i < n; i++) {
            counts[ids[i]]++;
        }
    }
    return SIZE_MAX;
}

/* find_partitions() of each lane, and where its partitions begin. */
static size_t
count_lanes(const block_sorter *sorter, const umi_order_block *block,
            size_t lanes)
{
    size_t    num_partitions = sorter->params->num_partitions;
    uint32_t *counts         = sorter->counts;
    size_t    part           = block->num_rows / lanes;
    uint32_t  begin          = 0;

    memset(counts, 0, lanes * num_partitions * sizeof(*counts));
    for (size_t lane = 0; lane < lanes; lane++) {
        size_t end = (lane + 1 < lanes) ? (lane + 1) * part : block->num_rows;
        size_t column = find_partitions(sorter, block, lane * part, end,
                                        counts + lane * num_partitions);

        if (column != SIZE_MAX) {
            return column;
        }
    }
    for (size_t p = 0; p < num_partitions; p++) {
        for (size_t lane = 0; lane < lanes; lane++) {
            uint32_t count = counts[lane * num_partitions + p];

            counts[lane * num_partitions + p] = begin;
            begin += count;
        }
    }
    return SIZE_MAX;
}

static void
place_in_lanes(const block_sorter *sorter, size_t num_rows,
               size_t num_partitions, uint16_t *rows)
{
    const uint16_t *ids     = sorter->ids;
    uint32_t       *counts  = sorter->counts;
    size_t          quarter = num_rows / LANES;

    for (size_t i = 0; i < quarter; i++) {
        for (size_t lane = 0; lane < LANES; lane++) {
            size_t row = lane * quarter + i;

            rows[counts[lane * num_partitions + ids[row]]++] = (uint16_t)row;
        }
    }
    for (size_t i = LANES * quarter; i < num_rows; i++) {
        rows[counts[(LANES - 1) * num_partitions + ids[i]]++] = (uint16_t)i;
    }
}

/* Sort a block: fill `rows`, and `runs`, and add to `totals`. Returns what
 * find_partitions() does. */
static size_t
sort_block(const block_sorter *sorter, umi_order_block *block, uint16_t *rows,
           umi_run *runs, size_t *totals)
{
    size_t num_partitions = sorter->params->num_partitions;
    /* Where the partitions of the last lane end, after sorting. */
    size_t          lanes  = num_lanes(sorter->params);
    const uint32_t *ends   = sorter->counts + (lanes - 1) * num_partitions;
    size_t          column = count_lanes(sorter, block, lanes);
    uint32_t        begin  = 0;

    if (column != SIZE_MAX) {
        return column;
    }
    if (lanes == LANES) {
        place_in_lanes(sorter, block->num_rows, num_partitions, rows);
    } else {
        for (size_t i = 0; i < block->num_rows; i++) {
            rows[sorter->counts[sorter->ids[i]]++] = (uint16_t)i;
        }
    }
    for (size_t p = 0; p < num_partitions; p++) {
        uint32_t n = ends[p] - begin;

        if (n != 0) {
            runs[block->num_runs++] = (umi_run){(uint16_t)p, (uint16_t)n};
            totals[p] += n;
            begin = ends[p];
        }
    }
    return SIZE_MAX;
}

static size_t
count_blocks(const umx_partition_params *params, size_t *num_rows_p)
{
    size_t size  = block_size(params->num_partitions);
    size_t count = 0;

    *num_rows_p = 0;
    for (size_t i = 0; i < params->num_chunks; i++) {
        count += (params->chunks[i].num_rows + size - 1) / size;
        *num_rows_p += params->chunks[i].num_rows;
    }
    return count;
}

/* Write where the blocks of all chunks begin. Returns the most runs that the
 * blocks can have. */
static size_t
fill_blocks(const umx_partition_params *params, umi_order_block *block)
{
    size_t size = block_size(params->num_partitions);
    size_t runs = 0, rows = 0;

    for (size_t i = 0; i < params->num_chunks; i++) {
        size_t num_rows = params->chunks[i].num_rows;

        for (size_t row = 0; row < num_rows; row += size, block++) {
            size_t n = (num_rows - row < size) ? num_rows - row : size;

            *block = (umi_order_block){.chunk     = i,
                                       .row       = row,
                                       .num_rows  = (uint32_t)n,
                                       .first_row = rows,
                                       .first_run = runs};
            rows += n;
            runs += (n < params->num_partitions) ? n : params->num_partitions;
        }
    }
    return runs;
}

/* A part of the blocks, which one thread sorts. */
typedef struct sort_part {
    umi_order   *order;
    block_sorter sorter;
    size_t      *totals;
    size_t       begin;
    size_t       end;
    size_t       column; /* what find_partitions() returns */
} sort_part;

static void
sort_blocks(size_t number, void *arg)
{
    sort_part *part  = (sort_part *)arg + number;
    umi_order *order = part->order;

    part->column = SIZE_MAX;
    for (size_t i = part->begin; i < part->end && part->column == SIZE_MAX;
         i++) {
        umi_order_block *block = &order->blocks[i];

        part->column = sort_block(&part->sorter, block,
                                  order->rows + block->first_row,
                                  order->runs + block->first_run, part->totals);
    }
}

static bool
init_part(sort_part *part, umi_order *order, const umx_partition_params *params,
          const umi_finder *finder)
{
    part->order         = order;
    part->sorter.params = params;
    part->sorter.finder = finder;
    part->sorter.ids    = umi_new_array(BLOCK_MAX, sizeof(uint16_t));
    part->sorter.counts = umi_new_array(
        num_lanes(params) * params->num_partitions, sizeof(uint32_t));
    part->totals = umi_new_array(params->num_partitions, sizeof(size_t));
    return part->sorter.ids != NULL && part->sorter.counts != NULL &&
           part->totals != NULL;
}

static void
fini_part(sort_part *part)
{
    free(part->totals);
    free(part->sorter.counts);
    free(part->sorter.ids);
}

/* Sort all blocks in `count` parts. */
static umx_status
sort_in_parts(umi_order *order, const umx_partition_params *params,
              const umi_finder *finder, size_t count, size_t *totals,
              size_t *column_p)
{
    sort_part  parts[UMI_PARALLEL_MAX] = {0};
    umx_status status                  = UMX_OK;

    for (size_t i = 0; i < count; i++) {
        parts[i].begin = order->num_blocks * i / count;
        parts[i].end   = order->num_blocks * (i + 1) / count;
        if (!init_part(&parts[i], order, params, finder)) {
            status = UMX_ERR_NO_MEMORY;
        }
    }
    if (status == UMX_OK) {
        umi_parallel_run(count, sort_blocks, parts);
    }
    for (size_t i = 0; i < count; i++) {
        if (status == UMX_OK && parts[i].column != SIZE_MAX) {
            *column_p = parts[i].column;
            status    = UMX_ERR_INVALID_PARAM;
        }
        for (size_t p = 0; status == UMX_OK && p < params->num_partitions;
             p++) {
            totals[p] += parts[i].totals[p];
        }
        fini_part(&parts[i]);
    }
    return status;
}

umx_status
umi_order_init(umi_order *order, const umx_partition_params *params,
               const umi_finder *finder, size_t *totals, size_t *column_p)
{
    size_t num_rows, num_runs, count;

    order->chunks     = params->chunks;
    order->num_blocks = count_blocks(params, &num_rows);
    order->blocks = umi_new_array(order->num_blocks, sizeof(umi_order_block));
    if (order->blocks == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    order->num_rows = num_rows;
    num_runs        = fill_blocks(params, order->blocks);
    /* Rows and runs are large, and all that is read is written first. */
    order->runs = malloc((num_runs + 1) * sizeof(*order->runs));
    order->rows = malloc((num_rows + 1) * sizeof(*order->rows));
    if (order->runs == NULL || order->rows == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    count = umi_parallel_count(params, order->num_blocks);
    return sort_in_parts(order, params, finder, count, totals, column_p);
}

void
umi_order_fini(umi_order *order)
{
    free(order->rows);
    free(order->runs);
    free(order->blocks);
}
