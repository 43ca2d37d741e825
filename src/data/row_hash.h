/* SPDX-License-Identifier: BSD-3-Clause */
/* row_hash.h: the hashes of rows; umx/partition.h defines them. Pure functions.
 * Thread: any. */
#ifndef UMI_DATA_ROW_HASH_H
#define UMI_DATA_ROW_HASH_H

#include <umx/column.h>

/* Continue the hashes of `num_rows` rows, from row `row` on, with the values of
 * `column`. False: a row's number is not in the dictionary. */
bool umi_hash_rows(const umx_column *column, size_t row, size_t num_rows,
                   uint64_t *hashes);

/* The value that the hash of a row begins with. */
uint64_t umi_hash_seed(uint64_t seed);

#endif
