/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file column.h  Columns of a table, in Arrow's memory layout.
 *
 * A column is a few buffers, which are the caller's: a bitmap that says which
 * rows have a value, the values, and the bytes of strings. A table is a list of
 * chunks with the same columns; each chunk has buffers and an offset of its
 * own, as slices of Arrow's arrays have. libumx never writes to a column.
 */
#ifndef UMX_COLUMN_H
#define UMX_COLUMN_H

#include <umx/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the values of a column are. Numbers are never given another meaning:
 * they are part of the layout of a region (umx/partition.h). */
typedef enum umx_column_type {
    UMX_COLUMN_NULL   = 0, /* no row has a value; no buffers */
    UMX_COLUMN_BOOL   = 1, /* a bit, the first is the lowest of a byte */
    UMX_COLUMN_INT    = 2, /* two's complement; 1, 2, 4, 8, 16 or 32 bytes */
    UMX_COLUMN_UINT   = 3, /* without a sign; 1, 2, 4 or 8 bytes */
    UMX_COLUMN_FLOAT  = 4, /* IEEE 754; 2, 4 or 8 bytes */
    UMX_COLUMN_BYTES  = 5, /* `width` bytes, a value by themselves */
    UMX_COLUMN_STRING = 6, /* a number of bytes that differs from row to row */
    UMX_COLUMN_OPAQUE = 7  /* `width` bytes that cannot be a key */
} umx_column_type;

typedef struct umx_chunk umx_chunk;

/** One column of one chunk. Row i is item `offset` + i of each buffer. */
typedef struct umx_column {
    umx_column_type type;
    /* Bytes of a value; of UMX_COLUMN_STRING, of an offset: 4 or 8. 0 for
     * UMX_COLUMN_NULL and UMX_COLUMN_BOOL. */
    uint32_t width;
    size_t   offset;
    /* A bit for each row, 1: it has a value. NULL: every row has one. */
    const uint8_t *validity;
    /* The values. Of UMX_COLUMN_STRING: where each string begins in `bytes`,
     * and one number more, where the last one ends. */
    const void    *values;
    const uint8_t *bytes; /* of UMX_COLUMN_STRING; else NULL */
    size_t         num_bytes;
    /* NULL, or a chunk with one column: the values, of which this column, of
     * type UMX_COLUMN_INT or UMX_COLUMN_UINT with at most 8 bytes, has the
     * numbers. The values have no dictionary themselves. */
    const umx_chunk *dictionary;
} umx_column;

/** Some rows of all columns. */
struct umx_chunk {
    size_t            num_rows;
    const umx_column *columns;
};

#ifdef __cplusplus
}
#endif
#endif
