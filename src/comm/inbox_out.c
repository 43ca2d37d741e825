/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/inbox_out.h"

#include <string.h>

#include <umx/buffer.h>
#include <umx/wait.h>

/* How many bytes of the ring, of all ever used, are free again? */
static uint64_t
freed_bytes(const umi_comm_out *out)
{
    return (out->consumed == 0) ?
               0 :
               out->ends[(out->consumed - 1) % UMI_COMM_CELLS];
}

/* Find room for a message: true if there is a cell, and room for `len` bytes of
 * the ring, at `*at_p`. */
static bool
find_room(const umi_comm_out *out, size_t len, uint64_t *at_p)
{
    uint64_t at = out->used;

    if (at % out->ring + len > out->ring) { /* not in two parts */
        at += out->ring - at % out->ring;
    }
    *at_p = at;
    return out->sent - out->consumed < UMI_COMM_CELLS &&
           at + len - freed_bytes(out) <= out->ring;
}

/* Look at what the rank has consumed. False: there is no news, or nonsense. */
static bool
look_consumed(umi_comm_out *out)
{
    uint64_t consumed = __atomic_load_n(umi_comm_consumed_of(out->area),
                                        __ATOMIC_ACQUIRE);

    if (consumed <= out->consumed || consumed > out->sent) {
        return false;
    }
    out->consumed = consumed;
    return true;
}

static bool
get_room(umi_comm_out *out, size_t len, uint64_t *at_p)
{
    return len <= out->ring &&
           (find_room(out, len, at_p) ||
            (look_consumed(out) && find_room(out, len, at_p)));
}

bool
umi_comm_out_has_room(umi_comm_out *out, size_t len)
{
    uint64_t at;

    return get_room(out, len, &at);
}

/* Has half of the inbox not been consumed, as far as is known here? */
static bool
seems_ahead(const umi_comm_out *out)
{
    return out->sent - out->consumed >= UMI_COMM_CELLS / 2 ||
           out->used - freed_bytes(out) >= out->ring / 2;
}

bool
umi_comm_out_is_ahead(umi_comm_out *out)
{
    return seems_ahead(out) && (!look_consumed(out) || seems_ahead(out));
}

/* Write into a cell where in the ring its bytes, or its key, are. */
static void
set_place(umi_comm_cell *c, size_t at)
{
    if (c->kind == UMI_COMM_CELL_PULL) {
        c->key.line = (uint16_t)(at / UMI_COMM_CELL_SIZE);
    } else {
        c->at = (uint32_t)at;
    }
}

/* Copy some of the bytes into the ring, at `to`. Host memory can be read. */
static void
copy_part(char *to, const umx_buffer *bytes, size_t from, size_t len)
{
    umx_buffer part = *bytes;

    part.data = (char *)bytes->data + from;
    part.len  = len;
    (void)!umx_buffer_read(&part, to + from, len);
}

/* Let the rank see the cell. */
static void
show(umi_comm_out *out, const umi_comm_cell *c, umi_comm_cell *to)
{
    memcpy((char *)to + sizeof(c->stamp), (const char *)c + sizeof(c->stamp),
           sizeof(*c) - sizeof(c->stamp));
    __atomic_store_n(&to->stamp, out->sent, __ATOMIC_RELEASE);
    (void)!umx_rkey_notify(out->rkey); /* who has ended is told of elsewhere */
}

/* Copy the bytes and tell in the cell, which is seen, how many are there. */
static void
follow(umi_comm_out *out, const umx_buffer *bytes, size_t step, char *ring,
       umi_comm_cell *to)
{
    for (size_t done = 0; done < bytes->len;) {
        size_t len = (bytes->len - done < step) ? bytes->len - done : step;

        copy_part(ring, bytes, done, len);
        done += len;
        __atomic_store_n(&to->word, done, __ATOMIC_RELEASE);
    }
    (void)!umx_rkey_notify(out->rkey);
}

bool
umi_comm_out_put(umi_comm_out *out, umi_comm_cell *c, const umx_buffer *bytes,
                 size_t step)
{
    umi_comm_cell *to      = umi_comm_cell_of(out->area, out->sent);
    size_t         len     = bytes->len;
    bool           is_late = len > step;
    char          *ring;
    uint64_t       at;

    if (!get_room(out, len, &at)) {
        return false;
    }
    ring = umi_comm_ring_of(out->area) + at % out->ring;
    if (len != 0) {
        set_place(c, at % out->ring);
        out->used = (at + len + UMI_COMM_CELL_SIZE - 1) / UMI_COMM_CELL_SIZE *
                    UMI_COMM_CELL_SIZE;
    }
    if (len != 0 && !is_late) {
        copy_part(ring, bytes, 0, len);
    }
    if (len != 0 && c->kind != UMI_COMM_CELL_PULL) {
        c->word = is_late ? 0 : len;
    }
    out->ends[out->sent % UMI_COMM_CELLS] = out->used;
    out->sent++;
    show(out, c, to);
    if (is_late) {
        follow(out, bytes, step, ring, to);
    }
    return true;
}
