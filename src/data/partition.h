/* SPDX-License-Identifier: BSD-3-Clause */
/* partition.h: a plan of regions, between making and writing it. */
#ifndef UMI_DATA_PARTITION_H
#define UMI_DATA_PARTITION_H

#include "data/order.h"
#include "data/region.h"

struct umx_partition {
    umx_partition_params params;
    umi_field           *fields; /* of each column */
    umi_order            order;
    size_t              *rows;    /* of each partition */
    size_t              *offsets; /* of each region, and the end */
    /* Bytes of strings: for each column that has some, of each partition. */
    size_t **strings;
};

/* Tell how many bytes the strings of a column have in partition `p`. */
static inline size_t
umi_partition_num_bytes(const umx_partition *partition, size_t column, size_t p)
{
    return (partition->strings[column] == NULL) ? 0 :
                                                  partition->strings[column][p];
}

#endif
