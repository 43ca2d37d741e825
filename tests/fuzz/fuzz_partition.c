/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_partition.c: umx_partition_read(). What is accepted lies within the
 * region, and all of it can be partitioned again: into one partition that has
 * the same rows and nulls. Inputs are tried as they are and with their length
 * put right. */
#include <umx/partition.h>

#include <stdlib.h>
#include <string.h>

enum {
    MAX_COLUMNS = 64
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static bool
is_within(const uint8_t *data, size_t len, const void *at)
{
    return at == NULL ||
           ((const uint8_t *)at >= data && (const uint8_t *)at <= data + len);
}

/* Partition the columns, and compare what comes of it. */
static void
partition_again(const umx_region_column *found, size_t num_columns,
                size_t num_rows)
{
    size_t               key = 0, len, again_columns, again_rows;
    umx_column           columns[MAX_COLUMNS];
    umx_region_column    again[MAX_COLUMNS];
    umx_chunk            chunk  = {num_rows, columns};
    umx_partition_params params = {&chunk, 1, num_columns, &key, 1, 1, 0, 0};
    umx_partition       *partition;
    uint8_t             *out;

    for (size_t i = 0; i < num_columns; i++) {
        columns[i] = found[i].column;
    }
    if (num_columns == 0 || columns[0].type == UMX_COLUMN_OPAQUE) {
        return; /* there is no key */
    }
    require(umx_hash_partition(&params, NULL, &partition) == UMX_OK);
    len = umx_partition_offsets(partition)[1];
    out = aligned_alloc(64, len);
    require(out != NULL && umx_partition_write(partition, out, len) == UMX_OK);
    require(umx_partition_read(out, len, again, MAX_COLUMNS, &again_columns,
                               &again_rows) == UMX_OK);
    require(again_columns == num_columns && again_rows == num_rows);
    for (size_t i = 0; i < num_columns; i++) {
        require(again[i].num_nulls == found[i].num_nulls);
    }
    umx_partition_destroy(partition);
    free(out);
}

static void
check(const uint8_t *data, size_t len)
{
    umx_region_column found[MAX_COLUMNS];
    size_t            num_columns, num_rows;

    if (umx_partition_read(data, len, found, MAX_COLUMNS, &num_columns,
                           &num_rows) != UMX_OK) {
        return;
    }
    for (size_t i = 0; i < num_columns; i++) {
        const umx_column *column = &found[i].column;

        require(is_within(data, len, column->validity));
        require(is_within(data, len, column->values));
        require(is_within(data, len, column->bytes));
    }
    /* Columns without bytes may have more rows than memory has. */
    if (num_rows <= 8 * len) {
        partition_again(found, num_columns, num_rows);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint64_t whole = len & ~(size_t)63;
    uint8_t *copy  = calloc(1, len + 1); /* aligned, and its end is watched */

    if (copy == NULL) {
        return 0;
    }
    if (len != 0) {
        memcpy(copy, data, len);
    }
    check(copy, len);
    if (whole >= 16) {
        memcpy(copy + 8, &whole, sizeof(whole));
        check(copy, whole);
    }
    free(copy);
    return 0;
}
