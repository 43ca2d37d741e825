/* SPDX-License-Identifier: BSD-3-Clause */
/* region.h: where a region has what; umx/partition.h draws it. Pure functions.
 * Thread: any. */
#ifndef UMI_DATA_REGION_H
#define UMI_DATA_REGION_H

#include <umx/column.h>

#include <string.h>

enum {
    UMI_REGION_ALIGN  = 64,
    UMI_REGION_HEADER = 32,
    UMI_REGION_FIELD  = 24
};

#define UMI_REGION_MAGIC "umxpart1"

/* The type and the sizes of a column, as a region's header tells them and as a
 * plan keeps them. */
typedef struct umi_field {
    umx_column_type type;
    uint32_t        width;
    bool            has_validity;
} umi_field;

/* Positions in a region of a column's buffers; each ends before the padding. */
typedef struct umi_span {
    size_t validity; /* the begin of `values` if there is none */
    size_t values;
    size_t values_end;
    size_t bytes;
    size_t bytes_end;
    size_t end; /* where the next column begins */
} umi_span;

/* May columns of that type have that width? */
bool umi_field_is_valid(umx_column_type type, uint32_t width);

/* Compute the size of a region's header, with its padding. False: the size is
 * too large. */
bool umi_region_header(size_t num_columns, size_t *len_p);

/* Compute the positions of a column that begins at `begin`, a multiple of
 * UMI_REGION_ALIGN. False: the column is too long. */
bool umi_region_place(const umi_field *field, size_t num_rows, size_t num_bytes,
                      size_t begin, umi_span *span);

/* Check the offsets of `num_rows` strings, of `width` bytes each: they do not
 * decrease, the first is at least 0, and the last at most `num_bytes`. */
bool umi_offsets_are_valid(const void *offsets, uint32_t width, size_t num_rows,
                           size_t num_bytes);

/* Read offset number `i`. */
static inline size_t
umi_offset_at(const void *offsets, uint32_t width, size_t i)
{
    const char *at = (const char *)offsets + i * width;
    uint32_t    n32;
    uint64_t    n64;

    if (width == sizeof(n32)) {
        memcpy(&n32, at, sizeof(n32));
        return n32;
    }
    memcpy(&n64, at, sizeof(n64));
    return (size_t)n64;
}

#endif
