/* SPDX-License-Identifier: BSD-3-Clause */
/* sort_word.c: the order of values, by words. */
#include "data/sort_word.h"

#include <umx/partition.h>

#include "data/item.h"

static const uint64_t SIGN = UINT64_C(1) << 63;

/* ---- words ---------------------------------------------------------------
 */

/* The first 8 bytes as a number; a shorter string ends with zeros. */
UMI_ALWAYS_INLINE uint64_t
bytes_word(const uint8_t *bytes, size_t len)
{
    uint64_t word = 0;

    if (len >= sizeof(word)) {
        word = UMI_LOAD(uint64_t, bytes);
        return (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) ?
                   __builtin_bswap64(word) :
                   word;
    }
    for (size_t i = 0; i < len; i++) {
        word |= (uint64_t)bytes[i] << (56 - 8 * i);
    }
    return word;
}

/* No number has the words 0 and UINT64_MAX: those of an infinity are the
 * last. */
UMI_ALWAYS_INLINE uint64_t
float_word(double value, unsigned order)
{
    uint64_t word;

    if (value != value) {
        return (order & UMX_ORDER_NULLS_FIRST) ? 0 : UINT64_MAX;
    }
    value += 0.0; /* the other zero is equal */
    memcpy(&word, &value, sizeof(word));
    word = (word & SIGN) ? ~word : word | SIGN;
    return (order & UMX_ORDER_DESCENDING) ? ~word : word;
}

/* The word of item `i`, which has a value, in ascending order. */
UMI_ALWAYS_INLINE uint64_t
ascending_word(const umx_column *column, size_t i, umx_column_type type,
               uint32_t width)
{
    const uint8_t *values = column->values;
    size_t         len;

    switch (type) {
    case UMX_COLUMN_STRING:
        values = umi_item_string(column, i, &len);
        return bytes_word(values, len);
    case UMX_COLUMN_BYTES:
        return bytes_word(values + i * width, width);
    case UMX_COLUMN_BOOL:
        return umi_item_bit(values, i);
    case UMX_COLUMN_UINT:
        return umi_item_integer(values + i * width, type, width);
    default:
        return (width > 8 ?
                    umi_item_word(values + i * width, width, width / 8 - 1) :
                    umi_item_integer(values + i * width, type, width)) ^
               SIGN;
    }
}

UMI_ALWAYS_INLINE uint64_t
item_word(const umx_column *column, size_t i, umx_column_type type,
          uint32_t width, unsigned order)
{
    uint64_t word;

    if (type == UMX_COLUMN_FLOAT) {
        return float_word(
            umi_item_float((const uint8_t *)column->values + i * width, width),
            order);
    }
    word = ascending_word(column, i, type, width);
    return (order & UMX_ORDER_DESCENDING) ? ~word : word;
}

#define CASE(type, width)                                                \
    case (type) << 8 | (width):                                          \
        for (size_t i = 0; i < num_rows; i++) {                          \
            words[i] = item_word(column, first + i, type, width, order); \
        }                                                                \
        break

/* The words of items, which all have values, or bytes in their place. */
static void
plain_words(const umx_column *column, size_t first, size_t num_rows,
            unsigned order, uint64_t *words)
{
    switch ((unsigned)column->type << 8 | (column->width & 255)) {
        CASE(UMX_COLUMN_INT, 1);
        CASE(UMX_COLUMN_INT, 2);
        CASE(UMX_COLUMN_INT, 4);
        CASE(UMX_COLUMN_INT, 8);
        CASE(UMX_COLUMN_UINT, 1);
        CASE(UMX_COLUMN_UINT, 2);
        CASE(UMX_COLUMN_UINT, 4);
        CASE(UMX_COLUMN_UINT, 8);
        CASE(UMX_COLUMN_FLOAT, 4);
        CASE(UMX_COLUMN_FLOAT, 8);
        CASE(UMX_COLUMN_STRING, 4);
        CASE(UMX_COLUMN_STRING, 8);
    default:
        for (size_t i = 0; i < num_rows; i++) {
            words[i] = item_word(column, first + i, column->type, column->width,
                                 order);
        }
    }
}

bool
umi_word_is_exact(const umx_column *column)
{
    return column->type != UMX_COLUMN_STRING && column->width <= 8;
}

/* ---- rows ----------------------------------------------------------------
 */

/* Find the value of item `*i_p`, through the dictionary: the column that has it
 * as item `*i_p`; NULL: it has none. */
static const umx_column *
find_value(const umx_column *column, size_t *i_p)
{
    if (column->validity != NULL && !umi_item_bit(column->validity, *i_p)) {
        return NULL;
    }
    if (column->dictionary != NULL) {
        const umx_column *values = column->dictionary->columns;

        *i_p = values->offset +
               (size_t)umi_item_integer((const uint8_t *)column->values +
                                            *i_p * column->width,
                                        column->type, column->width);
        column = values;
        if (column->validity != NULL && !umi_item_bit(column->validity, *i_p)) {
            return NULL;
        }
    }
    return (column->type == UMX_COLUMN_NULL) ? NULL : column;
}

bool
umi_word_are_known(const umx_column *column, size_t row, size_t num_rows)
{
    size_t begin = column->offset + row;

    if (column->dictionary == NULL) {
        return true;
    }
    for (size_t i = begin; i < begin + num_rows; i++) {
        uint64_t n;

        if (column->validity != NULL && !umi_item_bit(column->validity, i)) {
            continue;
        }
        n = umi_item_integer((const uint8_t *)column->values +
                                 i * column->width,
                             column->type, column->width);
        if (n >= column->dictionary->num_rows) { /* a negative number, too */
            return false;
        }
    }
    return true;
}

bool
umi_word_rows(const umx_column *column, size_t row, size_t num_rows,
              unsigned order, uint64_t *words, bool *is_null)
{
    size_t first = column->offset + row;

    if (column->dictionary == NULL && column->validity == NULL &&
        column->type != UMX_COLUMN_NULL) {
        plain_words(column, first, num_rows, order, words);
        return false;
    }
    for (size_t k = 0; k < num_rows; k++) {
        size_t            i     = first + k;
        const umx_column *found = find_value(column, &i);

        is_null[k] = found == NULL;
        words[k]   = 0;
        if (found != NULL) {
            plain_words(found, i, 1, order, &words[k]);
        }
    }
    return true;
}

/* ---- comparing -----------------------------------------------------------
 */

static int
compare_bytes(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    size_t len    = (a_len < b_len) ? a_len : b_len;
    int    result = (len == 0) ? 0 : memcmp(a, b, len);

    return (result != 0) ? result : (a_len > b_len) - (a_len < b_len);
}

/* Compare integers of 16 or 32 bytes whose highest words are equal. */
static int
compare_wide(const uint8_t *a, const uint8_t *b, uint32_t width)
{
    for (unsigned i = width / 8 - 1; i-- > 0;) {
        uint64_t x = umi_item_word(a, width, i);
        uint64_t y = umi_item_word(b, width, i);

        if (x != y) {
            return (x < y) ? -1 : 1;
        }
    }
    return 0;
}

/* Compare values whose words are equal, in ascending order. */
static int
compare_values(const umx_column *a, size_t i, const umx_column *b, size_t j)
{
    const uint8_t *left, *right;
    size_t         left_len = a->width, right_len = b->width;

    if (umi_word_is_exact(a)) {
        return 0;
    }
    if (a->type == UMX_COLUMN_STRING) {
        left  = umi_item_string(a, i, &left_len);
        right = umi_item_string(b, j, &right_len);
        return compare_bytes(left, left_len, right, right_len);
    }
    left  = (const uint8_t *)a->values + i * a->width;
    right = (const uint8_t *)b->values + j * b->width;
    return (a->type == UMX_COLUMN_BYTES) ?
               compare_bytes(left, left_len, right, right_len) :
               compare_wide(left, right, a->width);
}

int
umi_word_compare(const umx_column *a, size_t i, const umx_column *b, size_t j,
                 unsigned order)
{
    uint64_t left, right;
    int      result;

    i += a->offset;
    j += b->offset;
    a = find_value(a, &i);
    b = find_value(b, &j);
    if (a == NULL || b == NULL) {
        result = (a == NULL) - (b == NULL);
        return (order & UMX_ORDER_NULLS_FIRST) ? -result : result;
    }
    plain_words(a, i, 1, order, &left);
    plain_words(b, j, 1, order, &right);
    if (left != right) {
        return (left < right) ? -1 : 1;
    }
    result = compare_values(a, i, b, j);
    return (order & UMX_ORDER_DESCENDING) ? (result < 0) - (result > 0) :
                                            result;
}
