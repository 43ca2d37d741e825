/* SPDX-License-Identifier: BSD-3-Clause */
#include "near/ring.h"

#include <string.h>

enum {
    /* The reader tells of so many cells, or bytes, at a time. */
    TELL_CELLS = UMI_NEAR_CELLS / 4,
    TELL_BYTES = UMI_NEAR_BYTES / 4
};

/* True if the header and the bytes are in the cell. */
static inline bool
fits(size_t header_len, size_t len)
{
    return header_len + len <= UMI_NEAR_ROOM;
}

/* Compute where the bytes of a message begin if `used` of the circle have been
 * used: not in two parts. */
static inline uint64_t
place_of(uint64_t used, size_t len)
{
    size_t left = UMI_NEAR_BYTES - used % UMI_NEAR_BYTES;

    return (len <= left) ? used : used + left;
}

static inline uint64_t
behind(uint64_t place, size_t len)
{
    return place + (len + UMI_NEAR_LINE - 1) / UMI_NEAR_LINE * UMI_NEAR_LINE;
}

/* ---- the writer's --------------------------------------------------------
 */

static inline bool
has_room(const umi_near_out *out, uint64_t end)
{
    return out->sent - out->consumed < UMI_NEAR_CELLS &&
           end - out->freed <= UMI_NEAR_BYTES;
}

/* Look at what the reader has read. False: there is no news, or nonsense. */
static bool
look_consumed(umi_near_out *out)
{
    uint32_t consumed = atomic_load_explicit(&out->ring->reader.consumed,
                                             memory_order_acquire);

    if (consumed == out->consumed ||
        consumed - out->consumed > out->sent - out->consumed) {
        return false;
    }
    out->consumed = consumed;
    out->freed    = out->ends[(consumed - 1) % UMI_NEAR_CELLS];
    return true;
}

bool
umi_near_ring_put(umi_near_out *out, const void *header, size_t header_len,
                  const void *data, size_t len)
{
    umi_near_cell *cell  = &out->ring->cells[out->sent % UMI_NEAR_CELLS];
    uint64_t       place = out->used;
    uint64_t       end   = place;
    bool           is_in = fits(header_len, len);

    if (!is_in) {
        place = place_of(place, len);
        end   = behind(place, len);
    }
    if (!has_room(out, end) && !(look_consumed(out) && has_room(out, end))) {
        return false;
    }
    cell->len        = (uint16_t)len;
    cell->header_len = (uint8_t)header_len;
    memcpy(cell->room, header, header_len);
    if (len != 0) {
        memcpy(is_in ? cell->room + header_len :
                       out->ring->bytes + place % UMI_NEAR_BYTES,
               data, len);
    }
    out->used                             = end;
    out->ends[out->sent % UMI_NEAR_CELLS] = end;
    out->sent++;
    atomic_store_explicit(&cell->stamp, out->sent, memory_order_release);
    return true;
}

uint32_t
umi_near_ring_sleeper(const umi_near_out *out)
{
    uint32_t asleep;

    if (out->is_ordered) {
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_thread_fence(memory_order_seq_cst);
    }
    asleep = atomic_load_explicit(&out->ring->reader.asleep,
                                  memory_order_relaxed);
    return (asleep % 2 != 0 && asleep != out->rung) ? asleep : 0;
}

/* ---- the reader's --------------------------------------------------------
 */

umi_near_look
umi_near_ring_take(umi_near_in *in, umi_near_taken *taken)
{
    const umi_near_cell *from = &in->ring->cells[in->seen % UMI_NEAR_CELLS];
    uint64_t             place;

    if (!umi_near_ring_has_next(in)) {
        return UMI_NEAR_NOTHING;
    }
    memcpy((char *)&taken->cell + sizeof(from->stamp),
           (const char *)from + sizeof(from->stamp),
           sizeof(*from) - sizeof(from->stamp));
    /* What is checked below is not read again: it may have changed. */
    atomic_signal_fence(memory_order_acq_rel);
    if (taken->cell.len > in->max || taken->cell.header_len > UMI_NEAR_ROOM ||
        taken->cell.zero != 0) {
        return UMI_NEAR_NONSENSE;
    }
    in->seen++;
    if (fits(taken->cell.header_len, taken->cell.len)) {
        taken->bytes = taken->cell.room + taken->cell.header_len;
        return UMI_NEAR_MESSAGE;
    }
    place        = place_of(in->used, taken->cell.len);
    in->used     = behind(place, taken->cell.len);
    taken->bytes = in->ring->bytes + place % UMI_NEAR_BYTES;
    return UMI_NEAR_MESSAGE;
}

void
umi_near_ring_read(umi_near_in *in)
{
    if (in->seen - in->told >= TELL_CELLS ||
        in->used - in->told_used >= TELL_BYTES) {
        in->told      = in->seen;
        in->told_used = in->used;
        atomic_store_explicit(&in->ring->reader.consumed, in->seen,
                              memory_order_release);
    }
}

void
umi_near_ring_announce(umi_near_in *in, bool is_asleep)
{
    uint32_t asleep = atomic_load_explicit(&in->ring->reader.asleep,
                                           memory_order_relaxed);

    if ((asleep % 2 != 0) != is_asleep) {
        atomic_store_explicit(&in->ring->reader.asleep, asleep + 1,
                              memory_order_release);
    }
}
