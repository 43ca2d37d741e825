/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.h: weighted sums of rows. */
#ifndef UMI_MOE_ROWS_H
#define UMI_MOE_ROWS_H

#include <umx/moe.h>

/* A row that is part of a sum. */
typedef struct umi_moe_row {
    const void  *data;   /* NULL: it is left out */
    const float *scales; /* of FP8 */
    float        weight;
} umi_moe_row;

/* Write the sum of `count` rows to `out`, F32 or BF16. Each number is rounded
 * to a float after each product and each addition, in the order of the rows. */
void umi_moe_add_rows(void *out, umx_moe_dtype out_dtype,
                      const umi_moe_row *rows, size_t count,
                      umx_moe_dtype dtype, size_t hidden);

#endif
