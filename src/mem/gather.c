/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/gather.h"

#include "mem/memtype.h"

/* The piece with the byte at `offset`, which is not beyond the end. */
static void
seek(umi_gather *gather, size_t offset)
{
    if (offset < gather->start) {
        gather->index = 0;
        gather->start = 0;
    }
    while (offset - gather->start >= gather->pieces[gather->index].len) {
        gather->start += gather->pieces[gather->index].len;
        gather->index++;
    }
}

static umx_status
move_within(const umx_buffer *piece, size_t offset, char *packed, size_t len,
            bool is_write)
{
    umx_buffer part = *piece;

    assert(offset <= piece->len && len <= piece->len - offset);
    if (piece->layout != NULL) {
        if (is_write) {
            umi_layout_write(piece, offset, packed, len);
        } else {
            umi_layout_read(piece, offset, packed, len);
        }
        return UMX_OK;
    }
    part.data = (char *)piece->data + offset;
    part.len  = len;
    return is_write ? umi_copy_in(&part, packed, len) :
                      umi_copy_out(&part, packed, len);
}

static umx_status
move(umi_gather *gather, size_t offset, char *packed, size_t len, bool is_write)
{
    umx_status status = UMX_OK;

    while (len != 0 && status == UMX_OK) {
        const umx_buffer *piece;
        size_t            within, moved;

        seek(gather, offset);
        piece  = &gather->pieces[gather->index];
        within = offset - gather->start;
        moved  = (len < piece->len - within) ? len : piece->len - within;
        status = move_within(piece, within, packed, moved, is_write);
        offset += moved;
        packed += moved;
        len -= moved;
    }
    return status;
}

umx_status
umi_gather_read(umi_gather *gather, size_t offset, void *packed, size_t len)
{
    return move(gather, offset, packed, len, false);
}

umx_status
umi_gather_write(umi_gather *gather, size_t offset, const void *packed,
                 size_t len)
{
    return move(gather, offset, (char *)(uintptr_t)packed, len, true);
}
