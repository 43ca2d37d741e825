/* SPDX-License-Identifier: BSD-3-Clause */
/* row_hash.c: the hashes of rows. Each loop is compiled for one type and width:
 * UMI_ALWAYS_INLINE functions are called with constants. */
#include "data/row_hash.h"

#include "data/item.h"

#define IS_LITTLE_ENDIAN (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

static const uint64_t NULL_WORD = 0xa0761d6478bd642fu;
static const uint64_t NAN_WORD  = 0x7ff8000000000000u;
static const uint64_t MUL_1     = 0x9fb21c651e98df25u;
static const uint64_t MUL_2     = 0xd6e8feb86659fd93u;

UMI_ALWAYS_INLINE uint64_t
mix(uint64_t h)
{
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53u;
    h ^= h >> 33;
    return h;
}

uint64_t
umi_hash_seed(uint64_t seed)
{
    return mix(seed + 0x9e3779b97f4a7c15u);
}

/* ---- bytes ---------------------------------------------------------------
 */

UMI_ALWAYS_INLINE uint64_t
rotate_left(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

UMI_ALWAYS_INLINE uint64_t
add_word(uint64_t h, uint64_t word)
{
    if (!IS_LITTLE_ENDIAN) {
        word = __builtin_bswap64(word);
    }
    h ^= rotate_left(word * MUL_1, 32) * MUL_2;
    return rotate_left(h, 29) * MUL_1;
}

static uint64_t
hash_bytes(uint64_t h, const uint8_t *bytes, size_t len)
{
    uint64_t word;
    size_t   left = len;

    for (; left >= sizeof(word); left -= sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        h = add_word(h, word);
        bytes += sizeof(word);
    }
    if (left != 0) {
        word = 0;
        memcpy(&word, bytes, left);
        h = add_word(h, word);
    }
    return mix(h ^ len);
}

/* ---- numbers -------------------------------------------------------------
 */

UMI_ALWAYS_INLINE uint64_t
float_word(double value)
{
    uint64_t word;

    if (value == 0) {
        value = 0; /* the other zero is equal */
    }
    memcpy(&word, &value, sizeof(word));
    return (value != value) ? NAN_WORD : word;
}

/* Read item `i` of values that fit into a word. */
UMI_ALWAYS_INLINE uint64_t
load_word(const uint8_t *values, size_t i, umx_column_type type, uint32_t width)
{
    const uint8_t *at = values + i * width;

    if (type == UMX_COLUMN_BOOL) {
        return umi_item_bit(values, i);
    }
    if (type == UMX_COLUMN_FLOAT) {
        return float_word(umi_item_float(at, width));
    }
    return umi_item_integer(at, type, width);
}

/* Hash an integer of 16 or 32 bytes. */
static uint64_t
hash_wide(uint64_t h, const uint8_t *at, uint32_t width)
{
    uint64_t words[4], sign;
    unsigned count = width / 8;

    for (unsigned i = 0; i < count; i++) {
        words[i] = umi_item_word(at, width, i);
    }
    sign = (words[count - 1] >> 63) ? UINT64_MAX : 0;
    while (count > 1 && words[count - 1] == sign &&
           (words[count - 2] ^ sign) >> 63 == 0) {
        count--;
    }
    for (unsigned i = 0; i < count; i++) {
        h = mix(h ^ words[i]);
    }
    return h;
}

/* Hash an integer or a float of up to 8 bytes. */
UMI_ALWAYS_INLINE uint64_t
hash_number(const uint8_t *values, size_t i, umx_column_type type,
            uint32_t width, uint64_t h)
{
    uint64_t word = load_word(values, i, type, width);

    h = mix(h ^ word);
    if (type == UMX_COLUMN_UINT && width == 8 && word >> 63 != 0) {
        h = mix(h); /* the next word, 0, is not the sign of this one */
    }
    return h;
}

/* ---- columns -------------------------------------------------------------
 */

UMI_ALWAYS_INLINE uint64_t
hash_string(const umx_column *column, size_t i, uint64_t h)
{
    size_t         len;
    const uint8_t *bytes = umi_item_string(column, i, &len);

    return hash_bytes(h, bytes, len);
}

/* Hash item `i`, which has a value, of a column of any type. */
UMI_ALWAYS_INLINE uint64_t
hash_item(const umx_column *column, size_t i, umx_column_type type,
          uint32_t width, uint64_t h)
{
    const uint8_t *values = column->values;

    switch (type) {
    case UMX_COLUMN_STRING:
        return hash_string(column, i, h);
    case UMX_COLUMN_BYTES:
        return hash_bytes(h, values + i * width, width);
    default:
        return (width > 8) ? hash_wide(h, values + i * width, width) :
                             hash_number(values, i, type, width, h);
    }
}

UMI_ALWAYS_INLINE void
hash_items(const umx_column *column, size_t first, size_t num_rows,
           umx_column_type type, uint32_t width, uint64_t *hashes)
{
    const uint8_t *validity = column->validity;

    if (validity == NULL) {
        for (size_t i = 0; i < num_rows; i++) {
            hashes[i] = hash_item(column, first + i, type, width, hashes[i]);
        }
        return;
    }
    for (size_t i = 0; i < num_rows; i++) {
        hashes[i] = umi_item_bit(validity, first + i) ?
                        hash_item(column, first + i, type, width, hashes[i]) :
                        mix(hashes[i] ^ NULL_WORD);
    }
}

#define CASE(type, width)                                         \
    case (type) << 8 | (width):                                   \
        hash_items(column, first, num_rows, type, width, hashes); \
        break

static void
hash_plain(const umx_column *column, size_t first, size_t num_rows,
           uint64_t *hashes)
{
    switch ((unsigned)column->type << 8 | (column->width & 255)) {
        CASE(UMX_COLUMN_BOOL, 0);
        CASE(UMX_COLUMN_INT, 1);
        CASE(UMX_COLUMN_INT, 2);
        CASE(UMX_COLUMN_INT, 4);
        CASE(UMX_COLUMN_INT, 8);
        CASE(UMX_COLUMN_INT, 16);
        CASE(UMX_COLUMN_INT, 32);
        CASE(UMX_COLUMN_UINT, 1);
        CASE(UMX_COLUMN_UINT, 2);
        CASE(UMX_COLUMN_UINT, 4);
        CASE(UMX_COLUMN_UINT, 8);
        CASE(UMX_COLUMN_FLOAT, 2);
        CASE(UMX_COLUMN_FLOAT, 4);
        CASE(UMX_COLUMN_FLOAT, 8);
        CASE(UMX_COLUMN_STRING, 4);
        CASE(UMX_COLUMN_STRING, 8);
    default:
        hash_items(column, first, num_rows, UMX_COLUMN_BYTES, column->width,
                   hashes);
    }
}

static void
hash_null(uint64_t *h)
{
    *h = mix(*h ^ NULL_WORD);
}

static bool
hash_by_dictionary(const umx_column *column, size_t first, size_t num_rows,
                   uint64_t *hashes)
{
    const umx_chunk  *dictionary = column->dictionary;
    const umx_column *values     = dictionary->columns;

    for (size_t i = first; i < first + num_rows; i++, hashes++) {
        uint64_t n;

        if (column->validity != NULL && !umi_item_bit(column->validity, i)) {
            hash_null(hashes);
            continue;
        }
        n = load_word(column->values, i, column->type, column->width);
        if (n >= dictionary->num_rows) { /* a negative number, too */
            return false;
        }
        if (values->type == UMX_COLUMN_NULL) {
            hash_null(hashes);
        } else {
            hash_plain(values, values->offset + n, 1, hashes);
        }
    }
    return true;
}

bool
umi_hash_rows(const umx_column *column, size_t row, size_t num_rows,
              uint64_t *hashes)
{
    size_t first = column->offset + row;

    if (column->dictionary != NULL) {
        return hash_by_dictionary(column, first, num_rows, hashes);
    }
    if (column->type == UMX_COLUMN_NULL) {
        for (size_t i = 0; i < num_rows; i++) {
            hash_null(&hashes[i]);
        }
    } else {
        hash_plain(column, first, num_rows, hashes);
    }
    return true;
}
