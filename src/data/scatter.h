/* SPDX-License-Identifier: BSD-3-Clause */
/* scatter.h: copying a column in the order of partitions. Thread: any. */
#ifndef UMI_DATA_SCATTER_H
#define UMI_DATA_SCATTER_H

#include "data/order.h"

/* Where the next row of a partition is written, in one column. */
typedef struct umi_cursor {
    uint8_t *values;
    uint8_t *bytes; /* of strings: where those of the partition begin */
    size_t   count; /* bits written; of strings, bytes */
    size_t   ones;  /* bits that are 1 */
} umi_cursor;

/* Copy column `column` to `cursors`, one for each partition. */
void umi_scatter_values(const umi_order *order, size_t column,
                        umi_cursor *cursors);
/* Copy only the validity bitmap of a column. Rows of chunks without a bitmap
 * have a value. */
void umi_scatter_validity(const umi_order *order, size_t column,
                          umi_cursor *cursors);

#endif
