/* SPDX-License-Identifier: BSD-3-Clause */
/* range.c: partitions of rows by their place between splitters.
 *
 * The words of the first key (data/sort_word.h) decide nearly always. A row
 * whose word is that of some splitters is compared with these. */
#include "data/range.h"

#include <stdlib.h>
#include <string.h>

#include "data/item.h"
#include "data/order.h"
#include "data/sort_word.h"

static unsigned
order_of(const umi_range *range, size_t key)
{
    return (range->orders != NULL) ? range->orders[key] : 0;
}

/* Compare a row with a splitter by the keys from `key` on. */
static int
compare(const umi_range *range, const umx_chunk *chunk, size_t row,
        size_t splitter, size_t key)
{
    const umx_partition_params *params = range->params;

    for (; key < params->num_keys; key++) {
        int result = umi_word_compare(&chunk->columns[params->keys[key]], row,
                                      &range->splitters->columns[key], splitter,
                                      order_of(range, key));

        if (result != 0) {
            return result;
        }
    }
    return 0;
}

/* ---- splitters -----------------------------------------------------------
 */

static bool
are_in_order(const umi_range *range)
{
    const umx_chunk *splitters = range->splitters;

    for (size_t i = 1; i < splitters->num_rows; i++) {
        int result = 0;

        for (size_t k = 0; result == 0 && k < range->params->num_keys; k++) {
            const umx_column *column = &splitters->columns[k];

            result = umi_word_compare(column, i - 1, column, i,
                                      order_of(range, k));
        }
        if (result > 0) {
            return false;
        }
    }
    return true;
}

/* Fill in the words; those without a value are at one end. */
static void
fill_words(umi_range *range, bool *is_null)
{
    size_t count     = range->splitters->num_rows;
    size_t num_nulls = 0;

    if (umi_word_rows(&range->splitters->columns[0], 0, count,
                      order_of(range, 0), range->words, is_null)) {
        for (size_t i = 0; i < count; i++) {
            num_nulls += is_null[i];
        }
    }
    range->num_words = count - num_nulls;
    if ((order_of(range, 0) & UMX_ORDER_NULLS_FIRST) != 0) {
        range->first_word = num_nulls;
    }
}

umx_status
umi_range_init(umi_range *range, const umx_partition_params *params,
               const umx_range_params *ranges)
{
    size_t count = ranges->splitters->num_rows;
    bool  *is_null;

    *range = (umi_range){.params    = params,
                         .splitters = ranges->splitters,
                         .orders    = ranges->orders};
    if (count + 1 != params->num_partitions || !are_in_order(range)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (params->num_keys == 0) {
        return UMX_OK;
    }
    range->words = umi_new_array(count, sizeof(*range->words));
    is_null      = umi_new_array(count, sizeof(*is_null));
    if (range->words == NULL || is_null == NULL) {
        free(is_null);
        return UMX_ERR_NO_MEMORY;
    }
    fill_words(range, is_null);
    free(is_null);
    return UMX_OK;
}

void
umi_range_fini(umi_range *range)
{
    free(range->words);
}

/* ---- rows ----------------------------------------------------------------
 */

/* Count the words that are less than `word`, or less or equal. No branch
 * depends on them, as none could be predicted. */
UMI_ALWAYS_INLINE size_t
count_words(const uint64_t *words, size_t count, uint64_t word, bool or_equal)
{
    const uint64_t *base = words;

    if (count == 0) {
        return 0;
    }
    while (count > 1) {
        size_t half      = count / 2;
        bool   is_before = or_equal ? base[half - 1] <= word :
                                      base[half - 1] < word;

        base += half & -(size_t)is_before;
        count -= half;
    }
    return (size_t)(base - words) + (or_equal ? *base <= word : *base < word);
}

/* Count the splitters in [begin, end) that are not behind a row. Those before
 * and behind these are. */
static size_t
count_between(const umi_range *range, const umx_chunk *chunk, size_t row,
              size_t begin, size_t end, size_t key)
{
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;

        if (compare(range, chunk, row, middle, key) >= 0) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

/* The partition of a row that has no value of the first key. */
static size_t
find_null(const umi_range *range, const umx_chunk *chunk, size_t row)
{
    size_t begin = range->num_words, end = range->splitters->num_rows;

    if ((order_of(range, 0) & UMX_ORDER_NULLS_FIRST) != 0) {
        begin = 0;
        end   = range->first_word;
    }
    return count_between(range, chunk, row, begin, end, 1);
}

/* The partition of a row that has one, whose word may not decide. */
static size_t
find_value(const umi_range *range, const umx_chunk *chunk, size_t row,
           uint64_t word)
{
    const uint64_t *words = range->words + range->first_word;
    size_t          begin = count_words(words, range->num_words, word, false);
    size_t          end   = count_words(words, range->num_words, word, true);

    return count_between(range, chunk, row, range->first_word + begin,
                         range->first_word + end, 0);
}

static size_t
find_unknown(const umx_partition_params *params, const umx_chunk *chunk,
             size_t row, size_t num_rows)
{
    for (size_t k = 0; k < params->num_keys; k++) {
        if (!umi_word_are_known(&chunk->columns[params->keys[k]], row,
                                num_rows)) {
            return params->keys[k];
        }
    }
    return SIZE_MAX;
}

/* Find the partitions of rows by the first key, and by others if it does not
 * decide. */
static void
find_rows(const umi_range *range, const umx_chunk *chunk, size_t row,
          size_t num_rows, uint16_t *ids)
{
    const umx_partition_params *params = range->params;
    const umx_column           *first  = &chunk->columns[params->keys[0]];
    const uint64_t             *words  = range->words + range->first_word;
    uint64_t                    found[UMI_FINDER_ROWS];
    bool                        is_null[UMI_FINDER_ROWS];
    bool                        has_nulls;

    has_nulls = umi_word_rows(first, row, num_rows, order_of(range, 0), found,
                              is_null);
    if (params->num_keys == 1 &&
        umi_word_is_exact(&range->splitters->columns[0])) {
        for (size_t i = 0; i < num_rows; i++) {
            ids[i] = (uint16_t)(range->first_word +
                                count_words(words, range->num_words, found[i],
                                            true));
        }
    } else {
        for (size_t i = 0; i < num_rows; i++) {
            ids[i] = (uint16_t)find_value(range, chunk, row + i, found[i]);
        }
    }
    for (size_t i = 0; has_nulls && i < num_rows; i++) {
        if (is_null[i]) {
            ids[i] = (uint16_t)find_null(range, chunk, row + i);
        }
    }
}

size_t
umi_range_find(const void *arg, const umx_chunk *chunk, size_t row,
               size_t num_rows, uint16_t *ids)
{
    const umi_range *range  = arg;
    size_t           column = find_unknown(range->params, chunk, row, num_rows);

    if (column == SIZE_MAX && range->params->num_partitions > 1) {
        find_rows(range, chunk, row, num_rows, ids);
    } else {
        memset(ids, 0, num_rows * sizeof(*ids));
    }
    return column;
}
