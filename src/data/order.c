/* SPDX-License-Identifier: BSD-3-Clause */
/* order.c: the order of rows by partition. */
#include "data/order.h"

#include "data/row_hash.h"

#include <stdlib.h>
#include <string.h>

enum {
    HASH_ROWS = 512, /* hashed at a time: their hashes stay in the cache */
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
    uint16_t                   *ids;    /* of the block's rows */
    uint32_t                   *counts; /* for each lane, of each partition */
} block_sorter;

/* Compute the partitions of a block's rows. Returns SIZE_MAX; or the number of
 * a column, one of whose dictionaries lacks the number that a row has. */
static size_t
find_partitions(const block_sorter *sorter, const umi_order_block *block)
{
    const umx_partition_params *params = sorter->params;
    const umx_chunk            *chunk  = &params->chunks[block->chunk];
    uint64_t                    seed   = umi_hash_seed(params->seed);
    uint64_t                    hashes[HASH_ROWS];

    for (size_t begin = 0; begin < block->num_rows; begin += HASH_ROWS) {
        size_t left = block->num_rows - begin;
        size_t n    = (left < HASH_ROWS) ? left : HASH_ROWS;

        for (size_t i = 0; i < n; i++) {
            hashes[i] = seed;
        }
        for (size_t k = 0; k < params->num_keys; k++) {
            if (!umi_hash_rows(&chunk->columns[params->keys[k]],
                               block->row + begin, n, hashes)) {
                return params->keys[k];
            }
        }
        for (size_t i = 0; i < n; i++) {
            sorter->ids[begin + i] =
                (uint16_t)((hashes[i] >> 32) * params->num_partitions >> 32);
        }
    }
    return SIZE_MAX;
}

/* Rows are counted and placed in lanes: in each quarter of a block by counters
 * of its own. With few partitions rows often follow each other into the same
 * one, and the processor would wait for its counter. */
static void
sort_in_lanes(const block_sorter *sorter, size_t num_rows,
              size_t num_partitions, uint16_t *rows)
{
    const uint16_t *ids     = sorter->ids;
    uint32_t       *counts  = sorter->counts;
    size_t          quarter = num_rows / LANES;
    uint32_t        begin   = 0;

    memset(counts, 0, LANES * num_partitions * sizeof(*counts));
    for (size_t i = 0; i < quarter; i++) {
        for (size_t lane = 0; lane < LANES; lane++) {
            counts[lane * num_partitions + ids[lane * quarter + i]]++;
        }
    }
    for (size_t i = LANES * quarter; i < num_rows; i++) {
        counts[(LANES - 1) * num_partitions + ids[i]]++;
    }
    for (size_t p = 0; p < num_partitions; p++) {
        for (size_t lane = 0; lane < LANES; lane++) {
            uint32_t count = counts[lane * num_partitions + p];

            counts[lane * num_partitions + p] = begin;
            begin += count;
        }
    }
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

static void
sort_plainly(const block_sorter *sorter, size_t num_rows, size_t num_partitions,
             uint16_t *rows)
{
    const uint16_t *ids    = sorter->ids;
    uint32_t       *counts = sorter->counts;
    uint32_t        begin  = 0;

    memset(counts, 0, num_partitions * sizeof(*counts));
    for (size_t i = 0; i < num_rows; i++) {
        counts[ids[i]]++;
    }
    for (size_t p = 0; p < num_partitions; p++) {
        uint32_t count = counts[p];

        counts[p] = begin;
        begin += count;
    }
    for (size_t i = 0; i < num_rows; i++) {
        rows[counts[ids[i]]++] = (uint16_t)i;
    }
}

/* Sort a block: fill `rows`, and `runs`, and add to `totals`. */
static void
sort_block(const block_sorter *sorter, umi_order_block *block, uint16_t *rows,
           umi_run *runs, size_t *totals)
{
    size_t num_partitions = sorter->params->num_partitions;
    /* Where the partitions of the last lane end, after sorting. */
    const uint32_t *ends  = sorter->counts;
    uint32_t        begin = 0;

    if (num_partitions <= LANES_MAX) {
        sort_in_lanes(sorter, block->num_rows, num_partitions, rows);
        ends += (LANES - 1) * num_partitions;
    } else {
        sort_plainly(sorter, block->num_rows, num_partitions, rows);
    }
    for (size_t p = 0; p < num_partitions; p++) {
        uint32_t n = ends[p] - begin;

        if (n != 0) {
            runs[block->num_runs++] = (umi_run){(uint16_t)p, (uint16_t)n};
            totals[p] += n;
            begin = ends[p];
        }
    }
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
    size_t runs = 0;

    for (size_t i = 0; i < params->num_chunks; i++) {
        size_t num_rows = params->chunks[i].num_rows;

        for (size_t row = 0; row < num_rows; row += size, block++) {
            size_t n = (num_rows - row < size) ? num_rows - row : size;

            *block = (umi_order_block){
                .chunk = i, .row = row, .num_rows = (uint32_t)n};
            runs += (n < params->num_partitions) ? n : params->num_partitions;
        }
    }
    return runs;
}

static umx_status
sort_blocks(umi_order *order, const block_sorter *sorter, size_t *totals,
            size_t *column_p)
{
    uint16_t *rows = order->rows;
    umi_run  *runs = order->runs;

    for (size_t i = 0; i < order->num_blocks; i++) {
        umi_order_block *block = &order->blocks[i];

        *column_p = find_partitions(sorter, block);
        if (*column_p != SIZE_MAX) {
            return UMX_ERR_INVALID_PARAM;
        }
        sort_block(sorter, block, rows, runs, totals);
        rows += block->num_rows;
        runs += block->num_runs;
    }
    return UMX_OK;
}

umx_status
umi_order_init(umi_order *order, const umx_partition_params *params,
               size_t *totals, size_t *column_p)
{
    umx_status   status = UMX_ERR_NO_MEMORY;
    block_sorter sorter = {.params = params};
    size_t       num_rows, lanes;

    lanes             = (params->num_partitions <= LANES_MAX) ? LANES : 1;
    order->chunks     = params->chunks;
    order->num_blocks = count_blocks(params, &num_rows);
    order->blocks = umi_new_array(order->num_blocks, sizeof(umi_order_block));
    if (order->blocks == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    order->runs   = umi_new_array(fill_blocks(params, order->blocks),
                                  sizeof(umi_run));
    order->rows   = umi_new_array(num_rows, sizeof(*order->rows));
    sorter.ids    = umi_new_array(BLOCK_MAX, sizeof(*sorter.ids));
    sorter.counts = umi_new_array(lanes * params->num_partitions,
                                  sizeof(*sorter.counts));
    if (order->runs != NULL && order->rows != NULL && sorter.ids != NULL &&
        sorter.counts != NULL) {
        status = sort_blocks(order, &sorter, totals, column_p);
    }
    free(sorter.counts);
    free(sorter.ids);
    return status;
}

void
umi_order_fini(umi_order *order)
{
    free(order->rows);
    free(order->runs);
    free(order->blocks);
}
