/* SPDX-License-Identifier: BSD-3-Clause */
/* sort_word.h: the order of values, by words. umx/partition.h defines the
 * order.
 *
 * A value has a word of 64 bits: of two values, the one with the smaller word
 * comes first. Values with equal words are equal if their type is exact; else
 * the values themselves decide. Pure functions. Thread: any. */
#ifndef UMI_DATA_SORT_WORD_H
#define UMI_DATA_SORT_WORD_H

#include <umx/column.h>

#include <stdint.h>

/* Are values of a column equal if their words are? */
bool umi_word_is_exact(const umx_column *column);

/* Write the words of rows, and which have no value: there the word is 0.
 * Numbers of dictionaries are known. False: all rows have a value, and
 * `is_null` is not written. */
bool umi_word_rows(const umx_column *column, size_t row, size_t num_rows,
                   unsigned order, uint64_t *words, bool *is_null);

/* Are the numbers of rows in the column's dictionary, if it has one? */
bool umi_word_are_known(const umx_column *column, size_t row, size_t num_rows);

/* Compare row `i` of `a` with row `j` of `b`, columns of values of the same
 * type: less than 0, 0 or more, as memcmp(). Numbers of dictionaries are
 * known. */
int umi_word_compare(const umx_column *a, size_t i, const umx_column *b,
                     size_t j, unsigned order);

#endif
