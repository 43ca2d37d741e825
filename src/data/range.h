/* SPDX-License-Identifier: BSD-3-Clause */
/* range.h: partitions of rows by their place between splitters. */
#ifndef UMI_DATA_RANGE_H
#define UMI_DATA_RANGE_H

#include <umx/partition.h>

typedef struct umi_range {
    const umx_partition_params *params;
    const umx_chunk            *splitters;
    const unsigned             *orders;
    /* Of the first key: the words of the splitters that have a value. */
    uint64_t *words;
    size_t    first_word; /* the first splitter that has one */
    size_t    num_words;
} umi_range;

/* Prepare to find partitions. The columns of the splitters have been checked.
 * After a failure umi_range_fini() may be called, as for zeros.
 *
 * Returns UMX_OK, UMX_ERR_NO_MEMORY, or UMX_ERR_INVALID_PARAM: the splitters
 * are not in order, or of another number. */
umx_status umi_range_init(umi_range *range, const umx_partition_params *params,
                          const umx_range_params *ranges);
void       umi_range_fini(umi_range *range);

/* The function of a umi_finder whose `arg` is a umi_range. Thread: any. */
size_t umi_range_find(const void *arg, const umx_chunk *chunk, size_t row,
                      size_t num_rows, uint16_t *ids);

#endif
