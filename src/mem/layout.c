/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/layout.h"

#include <string.h>

/* ---- making --------------------------------------------------------------
 */

/* Add one dimension further out. */
static void
add_dim(umx_layout *layout, size_t count, ptrdiff_t stride)
{
    umx_dim *inner = NULL;

    if (count == 1) {
        return;
    }
    if (layout->num_dims != 0) {
        inner = &layout->dims[layout->num_dims - 1];
    }
    if (inner == NULL && stride == (ptrdiff_t)layout->run) {
        layout->run *= count;
    } else if (inner != NULL &&
               stride == inner->stride * (ptrdiff_t)inner->count) {
        inner->count *= count;
    } else {
        layout->dims[layout->num_dims++] = (umx_dim){count, stride};
    }
}

umx_status
umx_layout_init(umx_layout *layout, size_t itemsize, unsigned num_dims,
                const umx_dim *dims, size_t *len_p)
{
    size_t len = itemsize;

    if (num_dims > UMX_LAYOUT_MAX_DIMS) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    for (unsigned i = 0; i < num_dims; i++) {
        if (dims[i].count == 0) {
            len = 0;
        }
    }
    for (unsigned i = 0; i < num_dims && len != 0; i++) {
        if (__builtin_mul_overflow(len, dims[i].count, &len) ||
            len > PTRDIFF_MAX) {
            return UMX_ERR_OUT_OF_RANGE;
        }
    }
    layout->run      = itemsize;
    layout->num_dims = 0;
    for (unsigned i = num_dims; i-- > 0 && len != 0;) {
        add_dim(layout, dims[i].count, dims[i].stride);
    }
    if (layout->num_dims == 0) {
        layout->dims[layout->num_dims++] = (umx_dim){1, 0};
    }
    *len_p = len;
    return UMX_OK;
}

bool
umx_layout_is_writable(const umx_layout *layout)
{
    for (unsigned i = 0; i < layout->num_dims; i++) {
        if (layout->dims[i].stride == 0 && layout->dims[i].count > 1) {
            return false;
        }
    }
    return true;
}

/* ---- moving bytes --------------------------------------------------------
 */

/* A position in a layout: a run, and `within` bytes behind its beginning. */
typedef struct position {
    const umx_layout *layout;
    char             *run;
    size_t            within;
    size_t            index[UMX_LAYOUT_MAX_DIMS];
} position;

static void
seek(position *pos, const umx_buffer *buf, size_t offset)
{
    const umx_layout *layout = buf->layout;
    size_t            nth    = offset / layout->run;

    pos->layout = layout;
    pos->run    = buf->data;
    pos->within = offset % layout->run;
    for (unsigned i = 0; i < layout->num_dims; i++) {
        const umx_dim *dim = &layout->dims[i];

        pos->index[i] = nth % dim->count;
        nth /= dim->count;
        pos->run += (ptrdiff_t)pos->index[i] * dim->stride;
    }
}

/* `count` runs on, which is not beyond the end of the innermost dimension. */
static void
advance(position *pos, size_t count)
{
    const umx_layout *layout = pos->layout;

    pos->run += (ptrdiff_t)count * layout->dims[0].stride;
    pos->index[0] += count;
    for (unsigned i = 0; pos->index[i] == layout->dims[i].count; i++) {
        pos->run -= (ptrdiff_t)layout->dims[i].count * layout->dims[i].stride;
        pos->index[i] = 0;
        if (i + 1 == layout->num_dims) {
            return; /* that was the last */
        }
        pos->run += layout->dims[i + 1].stride;
        pos->index[i + 1]++;
    }
}

/* `count` runs of `size` bytes; with a constant size the copy is a move. */
static inline __attribute__((always_inline)) void
copy_runs(char *run, ptrdiff_t stride, char *packed, size_t size, size_t count,
          bool is_write)
{
    for (size_t i = 0; i < count; i++, run += stride, packed += size) {
        memcpy(is_write ? run : packed, is_write ? packed : run, size);
    }
}

static inline __attribute__((always_inline)) void
move_runs(const position *pos, char *packed, size_t count, bool is_write)
{
    ptrdiff_t stride = pos->layout->dims[0].stride;

    switch (pos->layout->run) {
    case 1:
        copy_runs(pos->run, stride, packed, 1, count, is_write);
        break;
    case 2:
        copy_runs(pos->run, stride, packed, 2, count, is_write);
        break;
    case 4:
        copy_runs(pos->run, stride, packed, 4, count, is_write);
        break;
    case 8:
        copy_runs(pos->run, stride, packed, 8, count, is_write);
        break;
    case 16:
        copy_runs(pos->run, stride, packed, 16, count, is_write);
        break;
    default:
        copy_runs(pos->run, stride, packed, pos->layout->run, count, is_write);
        break;
    }
}

/* ---- transposed matrices -------------------------------------------------
 *
 * Items of a row lie far apart, and those of a column together: a row by itself
 * brings a line of the cache for each item. Several rows are moved at a time.
 */

enum {
    LINE  = 64, /* bytes that come together */
    LINES = 4   /* of a column that are moved at a time */
};

static bool
is_transposed(const umx_layout *layout)
{
    return layout->num_dims == 2 && layout->run <= LINE / 4 &&
           layout->dims[1].stride == (ptrdiff_t)layout->run &&
           layout->dims[0].stride >= LINE;
}

/* `rows` rows from `at` on, whose items have `size` bytes: by tiles, of which
 * each line of the packed memory is filled, or read, in one go. */
static inline __attribute__((always_inline)) void
copy_rows(char *at, const umx_layout *layout, char *packed, size_t size,
          size_t rows, bool is_write)
{
    ptrdiff_t stride = layout->dims[0].stride;
    size_t    count = layout->dims[0].count, most = LINE / size, now;

    for (size_t i = 0; i < count; i += now, at += (ptrdiff_t)now * stride) {
        now = (count - i < most) ? count - i : most;
        for (size_t row = 0; row < rows; row++) {
            copy_runs(at + row * size, stride,
                      packed + (row * count + i) * size, size, now, is_write);
        }
    }
}

static inline __attribute__((always_inline)) void
move_rows(char *at, const umx_layout *layout, char *packed, size_t rows,
          bool is_write)
{
    switch (layout->run) {
    case 1:
        copy_rows(at, layout, packed, 1, rows, is_write);
        break;
    case 2:
        copy_rows(at, layout, packed, 2, rows, is_write);
        break;
    case 4:
        copy_rows(at, layout, packed, 4, rows, is_write);
        break;
    case 8:
        copy_rows(at, layout, packed, 8, rows, is_write);
        break;
    default:
        copy_rows(at, layout, packed, layout->run, rows, is_write);
        break;
    }
}

/* Move the whole rows at `offset`, where one begins, in `len` bytes: how many
 * bytes these are. */
static inline __attribute__((always_inline)) size_t
move_transposed(const umx_buffer *buf, size_t offset, char *packed, size_t len,
                bool is_write)
{
    const umx_layout *layout = buf->layout;
    size_t            width  = layout->dims[0].count * layout->run;
    size_t            rows = len / width, most = LINES * LINE / layout->run;
    char             *at = (char *)buf->data + offset / width * layout->run;

    for (size_t row = 0; row < rows; row += most) {
        size_t now = (rows - row < most) ? rows - row : most;

        move_rows(at + row * layout->run, layout, packed + row * width, now,
                  is_write);
    }
    return rows * width;
}

/* ---- any layout ----------------------------------------------------------
 */

static inline __attribute__((always_inline)) void
move_any(const umx_buffer *buf, size_t offset, char *packed, size_t len,
         bool is_write)
{
    size_t   run = buf->layout->run;
    position pos;

    if (len == 0) {
        return;
    }
    seek(&pos, buf, offset);
    while (len != 0) {
        size_t count = buf->layout->dims[0].count - pos.index[0];
        size_t moved;

        if (pos.within != 0 || len < run) { /* a part of one */
            moved = (len < run - pos.within) ? len : run - pos.within;
            copy_runs(pos.run + pos.within, 0, packed, moved, 1, is_write);
            count = (pos.within + moved == run) ? 1 : 0;
        } else {
            count = (count < len / run) ? count : len / run;
            moved = count * run;
            move_runs(&pos, packed, count, is_write);
        }
        pos.within = 0;
        packed += moved;
        len -= moved;
        if (len != 0) {
            advance(&pos, count);
        }
    }
}

static inline __attribute__((always_inline)) void
move(const umx_buffer *buf, size_t offset, char *packed, size_t len,
     bool is_write)
{
    const umx_layout *layout = buf->layout;

    if (is_transposed(layout)) {
        size_t width = layout->dims[0].count * layout->run;
        size_t head  = (width - offset % width) % width, moved;

        head = (head < len) ? head : len;
        move_any(buf, offset, packed, head, is_write);
        moved = head + move_transposed(buf, offset + head, packed + head,
                                       len - head, is_write);
        offset += moved;
        packed += moved;
        len -= moved;
    }
    move_any(buf, offset, packed, len, is_write);
}

void
umi_layout_read(const umx_buffer *buf, size_t offset, void *packed, size_t len)
{
    move(buf, offset, packed, len, false);
}

void
umi_layout_write(const umx_buffer *buf, size_t offset, const void *packed,
                 size_t len)
{
    move(buf, offset, (char *)(uintptr_t)packed, len, true);
}
