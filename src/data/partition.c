/* SPDX-License-Identifier: BSD-3-Clause */
/* partition.c: to which partition each row belongs, and where it goes. */
#include "data/partition.h"

#include "data/range.h"
#include "data/row_hash.h"

#include <stdlib.h>

/* The most bytes of strings that offsets of 4 bytes, which are signed, reach.
 */
static const size_t MAX_STRING = INT32_MAX;

/* ---- what is given -------------------------------------------------------
 */

static bool
has_values(const umx_column *column)
{
    return column->type != UMX_COLUMN_NULL &&
           (column->width != 0 || column->type == UMX_COLUMN_BOOL);
}

/* Check that the strings of a column begin and end within its bytes. */
static bool
strings_are_valid(const umx_column *column, size_t num_rows)
{
    return column->type != UMX_COLUMN_STRING || num_rows == 0 ||
           umi_offsets_are_valid((const char *)column->values +
                                     column->offset * column->width,
                                 column->width, num_rows, column->num_bytes);
}

static bool
buffers_are_valid(const umx_column *column, size_t num_rows)
{
    return umi_field_is_valid(column->type, column->width) &&
           (num_rows == 0 || column->values != NULL || !has_values(column)) &&
           strings_are_valid(column, num_rows);
}

static bool
column_is_valid(const umx_column *column, size_t num_rows)
{
    const umx_chunk *dictionary = column->dictionary;

    if (!buffers_are_valid(column, num_rows)) {
        return false;
    }
    if (dictionary == NULL) {
        return true;
    }
    return (column->type == UMX_COLUMN_INT ||
            column->type == UMX_COLUMN_UINT) &&
           column->width <= 8 && dictionary->columns->dictionary == NULL &&
           buffers_are_valid(dictionary->columns, dictionary->num_rows);
}

/* Check column `i` in all chunks, and write its field. */
static umx_status
check_column(const umx_partition_params *params, size_t i, umi_field *field)
{
    const umx_column *first = &params->chunks[0].columns[i];

    *field = (umi_field){.type = first->type, .width = first->width};
    for (size_t k = 0; k < params->num_chunks; k++) {
        const umx_chunk  *chunk  = &params->chunks[k];
        const umx_column *column = &chunk->columns[i];

        if (column->type != field->type || column->width != field->width ||
            (column->dictionary == NULL) != (first->dictionary == NULL) ||
            !column_is_valid(column, chunk->num_rows)) {
            return UMX_ERR_INVALID_PARAM;
        }
        field->has_validity |= column->validity != NULL &&
                               column->type != UMX_COLUMN_NULL;
    }
    return UMX_OK;
}

static umx_status
check_keys(const umx_partition_params *params, size_t *column_p)
{
    for (size_t i = 0; i < params->num_keys; i++) {
        const umx_column *column;

        *column_p = params->keys[i];
        if (*column_p >= params->num_columns) {
            return UMX_ERR_INVALID_PARAM;
        }
        column = &params->chunks[0].columns[*column_p];
        if (column->type == UMX_COLUMN_OPAQUE ||
            (column->dictionary != NULL &&
             column->dictionary->columns->type == UMX_COLUMN_OPAQUE)) {
            return UMX_ERR_UNSUPPORTED;
        }
    }
    return UMX_OK;
}

static umx_status
check_params(const umx_partition_params *params, umi_field *fields,
             size_t *column_p)
{
    umx_status status = check_keys(params, column_p);

    for (size_t i = 0; status == UMX_OK && i < params->num_columns; i++) {
        *column_p = i;
        status    = check_column(params, i, &fields[i]);
    }
    return status;
}

/* Are values of both columns comparable, of which the first has no dictionary?
 */
static bool
are_alike(const umx_column *splitters, const umx_column *key)
{
    const umx_column *values = (key->dictionary != NULL) ?
                                   key->dictionary->columns :
                                   key;

    return splitters->dictionary == NULL && splitters->type == values->type &&
           (splitters->width == values->width ||
            splitters->type == UMX_COLUMN_STRING);
}

/* Check the columns of the rows between partitions; the keys are valid. */
static umx_status
check_splitters(const umx_partition_params *params, const umx_chunk *splitters,
                size_t *column_p)
{
    for (size_t k = 0; k < params->num_keys; k++) {
        const umx_column *column = &splitters->columns[k];

        *column_p = params->keys[k];
        if (!are_alike(column, &params->chunks[0].columns[*column_p]) ||
            !column_is_valid(column, splitters->num_rows)) {
            return UMX_ERR_INVALID_PARAM;
        }
    }
    return UMX_OK;
}

/* ---- the plan ------------------------------------------------------------
 */

/* Add up the bytes of the strings of column `column`. */
static umx_status
measure_strings(const umx_partition *partition, size_t column, size_t *totals)
{
    const umi_order *order = &partition->order;
    uint32_t         width = partition->fields[column].width;

    for (size_t i = 0; i < order->num_blocks; i++) {
        const umi_order_block *block = &order->blocks[i];
        const umx_column *source = &order->chunks[block->chunk].columns[column];
        size_t            first  = source->offset + block->row;
        const umi_run    *run    = order->runs + block->first_run;
        const uint16_t   *rows   = order->rows + block->first_row;

        for (const umi_run *end = run + block->num_runs; run < end; run++) {
            size_t total = 0;

            for (size_t k = 0; k < run->num_rows; k++, rows++) {
                total += umi_offset_at(source->values, width,
                                       first + *rows + 1) -
                         umi_offset_at(source->values, width, first + *rows);
            }
            totals[run->partition] += total;
        }
    }
    for (uint32_t p = 0; p < partition->params.num_partitions; p++) {
        if (width == 4 && totals[p] > MAX_STRING) {
            return UMX_ERR_EXCEEDS_LIMIT;
        }
    }
    return UMX_OK;
}

static umx_status
measure_columns(umx_partition *partition, size_t *column_p)
{
    umx_status status = UMX_OK;

    for (size_t i = 0; status == UMX_OK && i < partition->params.num_columns;
         i++) {
        if (partition->fields[i].type != UMX_COLUMN_STRING) {
            continue;
        }
        *column_p             = i;
        partition->strings[i] = umi_new_array(partition->params.num_partitions,
                                              sizeof(size_t));
        status                = (partition->strings[i] == NULL) ?
                                    UMX_ERR_NO_MEMORY :
                                    measure_strings(partition, i, partition->strings[i]);
    }
    return status;
}

static umx_status
place_regions(umx_partition *partition)
{
    const umx_partition_params *params = &partition->params;
    size_t                      header, end = 0;

    if (!umi_region_header(params->num_columns, &header)) {
        return UMX_ERR_EXCEEDS_LIMIT;
    }
    for (uint32_t p = 0; p < params->num_partitions; p++) {
        umi_span span;

        partition->offsets[p] = end;
        if (__builtin_add_overflow(end, header, &end)) {
            return UMX_ERR_EXCEEDS_LIMIT;
        }
        for (size_t i = 0; i < params->num_columns; i++) {
            if (!umi_region_place(&partition->fields[i], partition->rows[p],
                                  umi_partition_num_bytes(partition, i, p), end,
                                  &span)) {
                return UMX_ERR_EXCEEDS_LIMIT;
            }
            end = span.end;
        }
    }
    partition->offsets[params->num_partitions] = end;
    return UMX_OK;
}

/* Find partitions by the hash: a umi_finder. */
static size_t
find_by_hash(const void *arg, const umx_chunk *chunk, size_t row,
             size_t num_rows, uint16_t *ids)
{
    const umx_partition_params *params = arg;
    uint64_t                    seed   = umi_hash_seed(params->seed);
    uint64_t                    hashes[UMI_FINDER_ROWS];

    for (size_t i = 0; i < num_rows; i++) {
        hashes[i] = seed;
    }
    for (size_t k = 0; k < params->num_keys; k++) {
        if (!umi_hash_rows(&chunk->columns[params->keys[k]], row, num_rows,
                           hashes)) {
            return params->keys[k];
        }
    }
    for (size_t i = 0; i < num_rows; i++) {
        ids[i] = (uint16_t)((hashes[i] >> 32) * params->num_partitions >> 32);
    }
    return SIZE_MAX;
}

/* Sort the rows by what `ranges` says; NULL: by their hash. */
static umx_status
order_rows(umx_partition *partition, const umx_range_params *ranges,
           size_t *column_p)
{
    const umx_partition_params *params = &partition->params;
    umi_finder                  finder = {find_by_hash, params};
    umi_range                   range  = {0};
    umx_status                  status = UMX_OK;

    if (ranges != NULL) {
        status = umi_range_init(&range, params, ranges);
        finder = (umi_finder){umi_range_find, &range};
    }
    if (status == UMX_OK) {
        status = umi_order_init(&partition->order, params, &finder,
                                partition->rows, column_p);
    }
    umi_range_fini(&range);
    return status;
}

static umx_status
make_plan(umx_partition *partition, const umx_range_params *ranges,
          size_t *column_p)
{
    const umx_partition_params *params = &partition->params;
    umx_status                  status;

    status = check_params(params, partition->fields, column_p);
    if (status != UMX_OK) {
        return status;
    }
    if (ranges != NULL) {
        status = check_splitters(params, ranges->splitters, column_p);
        if (status != UMX_OK) {
            return status;
        }
    }
    *column_p = SIZE_MAX;
    status    = order_rows(partition, ranges, column_p);
    if (status != UMX_OK) {
        return status;
    }
    status = measure_columns(partition, column_p);
    if (status != UMX_OK) {
        return status;
    }
    *column_p = SIZE_MAX;
    return place_regions(partition);
}

static umx_partition *
new_partition(const umx_partition_params *params)
{
    umx_partition *partition = calloc(1, sizeof(*partition));

    if (partition == NULL) {
        return NULL;
    }
    partition->params  = *params;
    partition->fields  = umi_new_array(params->num_columns, sizeof(umi_field));
    partition->strings = umi_new_array(params->num_columns, sizeof(size_t *));
    partition->rows    = umi_new_array(params->num_partitions, sizeof(size_t));
    partition->offsets = umi_new_array(params->num_partitions + (size_t)1,
                                       sizeof(size_t));
    if (partition->fields == NULL || partition->strings == NULL ||
        partition->rows == NULL || partition->offsets == NULL) {
        umx_partition_destroy(partition);
        return NULL;
    }
    return partition;
}

static umx_status
create_partition(const umx_partition_params *params,
                 const umx_range_params *ranges, size_t *column_p,
                 umx_partition **partition_p)
{
    size_t         column = SIZE_MAX;
    umx_partition *partition;
    umx_status     status;

    if (column_p == NULL) {
        column_p = &column;
    }
    *column_p = SIZE_MAX;
    if (params->num_partitions == 0 ||
        params->num_partitions > UMX_PARTITIONS_MAX) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (params->num_chunks == 0 ||
        (params->num_keys == 0 &&
         (ranges == NULL || params->num_partitions > 1))) {
        return UMX_ERR_INVALID_PARAM;
    }
    partition = new_partition(params);
    if (partition == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = make_plan(partition, ranges, column_p);
    if (status != UMX_OK) {
        umx_partition_destroy(partition);
        return status;
    }
    *partition_p = partition;
    return UMX_OK;
}

umx_status
umx_hash_partition(const umx_partition_params *params, size_t *column_p,
                   umx_partition **partition_p)
{
    return create_partition(params, NULL, column_p, partition_p);
}

umx_status
umx_range_partition(const umx_partition_params *params,
                    const umx_range_params *ranges, size_t *column_p,
                    umx_partition **partition_p)
{
    return create_partition(params, ranges, column_p, partition_p);
}

const size_t *
umx_partition_offsets(const umx_partition *partition)
{
    return partition->offsets;
}

const size_t *
umx_partition_rows(const umx_partition *partition)
{
    return partition->rows;
}

void
umx_partition_destroy(umx_partition *partition)
{
    if (partition == NULL) {
        return;
    }
    for (size_t i = 0;
         partition->strings != NULL && i < partition->params.num_columns; i++) {
        free(partition->strings[i]);
    }
    umi_order_fini(&partition->order);
    free(partition->offsets);
    free(partition->rows);
    free(partition->strings);
    free(partition->fields);
    free(partition);
}
