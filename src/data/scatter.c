/* SPDX-License-Identifier: BSD-3-Clause */
/* scatter.c: copying a column by partition. */
#include "data/scatter.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    LINE       = 64,      /* bytes of a cache line */
    LARGE_ROWS = 1 << 19, /* with more, a column is larger than most caches */
    LONG_RUN   = 48       /* rows: most of the lines of a run are its own */
};

/* The rows of one run of a block, in one column. */
typedef void (*copy_fn)(const umx_column *column, size_t first,
                        const uint16_t *rows, size_t num_rows,
                        umi_cursor *cursor);

/* Fetch the values of the next block, a part of them for each run of this one:
 * the first run would wait for all of them. */
typedef struct fetcher {
    const uint8_t *at;
    const uint8_t *end;
    size_t         step;
} fetcher;

ALWAYS_INLINE fetcher
fetch_next(const umi_order *order, size_t i, size_t column)
{
    const umi_order_block *block = &order->blocks[i + 1];
    const umx_column      *source;
    fetcher                next = {NULL, NULL, 0};

    if (i + 1 < order->num_blocks) {
        source  = &order->chunks[block->chunk].columns[column];
        next.at = (const uint8_t *)source->values +
                  (source->offset + block->row) * source->width;
        next.end  = next.at + (size_t)block->num_rows * source->width;
        next.step = (size_t)block->num_rows * source->width /
                        order->blocks[i].num_runs +
                    LINE;
    }
    return next;
}

ALWAYS_INLINE void
fetch(fetcher *next)
{
    const uint8_t *end = next->at + next->step;

    if (next->step == 0) {
        return;
    }
    for (; next->at < end && next->at < next->end; next->at += LINE) {
        __builtin_prefetch(next->at);
    }
}

ALWAYS_INLINE void
for_each_run(const umi_order *order, size_t column, umi_cursor *cursors,
             copy_fn copy)
{
    for (size_t i = 0; i < order->num_blocks; i++) {
        const umi_order_block *block = &order->blocks[i];
        const umx_column *source = &order->chunks[block->chunk].columns[column];
        const umi_run    *run    = order->runs + block->first_run;
        const umi_run    *end    = run + block->num_runs;
        const uint16_t   *rows   = order->rows + block->first_row;
        fetcher           next   = fetch_next(order, i, column);

        for (; run < end; run++) {
            fetch(&next);
            copy(source, source->offset + block->row, rows, run->num_rows,
                 &cursors[run->partition]);
            rows += run->num_rows;
        }
    }
}

/* ---- values of a fixed width ---------------------------------------------
 */

ALWAYS_INLINE void
copy_width(const umx_column *column, size_t first, const uint16_t *rows,
           size_t num_rows, umi_cursor *cursor, size_t width)
{
    const uint8_t *values = (const uint8_t *)column->values + first * width;
    uint8_t       *to     = cursor->values;

    for (size_t i = 0; i < num_rows; i++) {
        memcpy(to + i * width, values + rows[i] * width, width);
    }
    cursor->values = to + num_rows * width;
}

#define DEFINE_COPY(width)                                                  \
    ALWAYS_INLINE void copy_##width(const umx_column *column, size_t first, \
                                    const uint16_t *rows, size_t num_rows,  \
                                    umi_cursor *cursor)                     \
    {                                                                       \
        copy_width(column, first, rows, num_rows, cursor, width);           \
    }
DEFINE_COPY(1)
DEFINE_COPY(2)
DEFINE_COPY(4)
DEFINE_COPY(8)
DEFINE_COPY(16)
DEFINE_COPY(32)

#ifdef __SSE2__
/* Copy values of 8 bytes past the caches, a line of them at a time: memory that
 * is about to be overwritten is not read first. Lines that are shared with the
 * run before or after are written as usual. */
ALWAYS_INLINE void
copy_8_past_caches(const umx_column *column, size_t first, const uint16_t *rows,
                   size_t num_rows, umi_cursor *cursor)
{
    const uint8_t *values = (const uint8_t *)column->values + first * 8;
    uint8_t       *to     = cursor->values;
    size_t         i      = 0;

    for (; i < num_rows && ((uintptr_t)to & (LINE - 1)) != 0; i++, to += 8) {
        memcpy(to, values + (size_t)rows[i] * 8, 8);
    }
    for (; i + 8 <= num_rows; i += 8, to += LINE) {
        for (size_t k = 0; k < 8; k += 2) {
            int64_t pair[2];

            memcpy(&pair[0], values + (size_t)rows[i + k] * 8, 8);
            memcpy(&pair[1], values + (size_t)rows[i + k + 1] * 8, 8);
            _mm_stream_si128((__m128i *)(void *)(to + k * 8),
                             _mm_set_epi64x(pair[1], pair[0]));
        }
    }
    for (; i < num_rows; i++, to += 8) {
        memcpy(to, values + (size_t)rows[i] * 8, 8);
    }
    cursor->values = to;
}

/* Are there more rows than the caches hold, in runs that fill their lines? */
static inline bool
goes_past_caches(const umi_order *order)
{
    return order->num_rows > LARGE_ROWS &&
           order->blocks[0].num_rows >=
               (size_t)order->blocks[0].num_runs * LONG_RUN;
}
#endif

ALWAYS_INLINE void
copy_any(const umx_column *column, size_t first, const uint16_t *rows,
         size_t num_rows, umi_cursor *cursor)
{
    if (column->width != 0) {
        copy_width(column, first, rows, num_rows, cursor, column->width);
    }
}

static void
scatter_fixed(const umi_order *order, size_t column, uint32_t width,
              umi_cursor *cursors)
{
    switch (width) {
    case 1:
        for_each_run(order, column, cursors, copy_1);
        break;
    case 2:
        for_each_run(order, column, cursors, copy_2);
        break;
    case 4:
        for_each_run(order, column, cursors, copy_4);
        break;
    case 8:
#ifdef __SSE2__
        if (goes_past_caches(order)) {
            for_each_run(order, column, cursors, copy_8_past_caches);
            _mm_sfence();
            break;
        }
#endif
        for_each_run(order, column, cursors, copy_8);
        break;
    case 16:
        for_each_run(order, column, cursors, copy_16);
        break;
    case 32:
        for_each_run(order, column, cursors, copy_32);
        break;
    default:
        for_each_run(order, column, cursors, copy_any);
    }
}

/* ---- bits ----------------------------------------------------------------
 */

/* Append bits, a word of them at a time: the padding has room for the last
 * word. */
ALWAYS_INLINE void
copy_bits(const uint8_t *bits, size_t first, const uint16_t *rows,
          size_t num_rows, umi_cursor *cursor)
{
    unsigned fill = cursor->count % 64;
    uint8_t *to   = cursor->values + cursor->count / 64 * 8;
    uint64_t word = 0;
    size_t   ones = 0;

    if (fill != 0) {
        memcpy(&word, to, sizeof(word));
    }
    for (size_t i = 0; i < num_rows; i++) {
        size_t   at  = first + rows[i];
        uint64_t bit = (bits == NULL) ? 1 : (bits[at >> 3] >> (at & 7)) & 1;

        word |= bit << fill;
        ones += bit;
        if (++fill == 64) {
            memcpy(to, &word, sizeof(word));
            to += sizeof(word);
            word = 0;
            fill = 0;
        }
    }
    if (fill != 0) {
        memcpy(to, &word, sizeof(word));
    }
    cursor->count += num_rows;
    cursor->ones += ones;
}

ALWAYS_INLINE void
copy_bools(const umx_column *column, size_t first, const uint16_t *rows,
           size_t num_rows, umi_cursor *cursor)
{
    copy_bits(column->values, first, rows, num_rows, cursor);
}

ALWAYS_INLINE void
copy_validity(const umx_column *column, size_t first, const uint16_t *rows,
              size_t num_rows, umi_cursor *cursor)
{
    copy_bits(column->validity, first, rows, num_rows, cursor);
}

void
umi_scatter_validity(const umi_order *order, size_t column, umi_cursor *cursors)
{
    for_each_run(order, column, cursors, copy_validity);
}

/* ---- strings -------------------------------------------------------------
 */

#define DEFINE_COPY_STRINGS(name, type)                                     \
    ALWAYS_INLINE void name(const umx_column *column, size_t first,         \
                            const uint16_t *rows, size_t num_rows,          \
                            umi_cursor *cursor)                             \
    {                                                                       \
        const uint8_t *offsets = (const uint8_t *)column->values +          \
                                 first * sizeof(type);                      \
        size_t used = cursor->count;                                        \
                                                                            \
        for (size_t i = 0; i < num_rows; i++) {                             \
            type range[2], end;                                             \
                                                                            \
            memcpy(range, offsets + rows[i] * sizeof(type), sizeof(range)); \
            if (range[1] != range[0]) {                                     \
                memcpy(cursor->bytes + used, column->bytes + range[0],      \
                       range[1] - range[0]);                                \
            }                                                               \
            used += range[1] - range[0];                                    \
            end = (type)used;                                               \
            memcpy(cursor->values + i * sizeof(type), &end, sizeof(end));   \
        }                                                                   \
        cursor->values += num_rows * sizeof(type);                          \
        cursor->count = used;                                               \
    }
DEFINE_COPY_STRINGS(copy_strings, uint32_t)
DEFINE_COPY_STRINGS(copy_large_strings, uint64_t)

void
umi_scatter_values(const umi_order *order, size_t column, umi_cursor *cursors)
{
    const umx_column *any = &order->chunks[0].columns[column];

    switch (any->type) {
    case UMX_COLUMN_NULL:
        break;
    case UMX_COLUMN_BOOL:
        for_each_run(order, column, cursors, copy_bools);
        break;
    case UMX_COLUMN_STRING:
        if (any->width == 4) {
            for_each_run(order, column, cursors, copy_strings);
        } else {
            for_each_run(order, column, cursors, copy_large_strings);
        }
        break;
    default:
        scatter_fixed(order, column, any->width, cursors);
    }
}
