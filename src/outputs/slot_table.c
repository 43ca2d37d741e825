/* SPDX-License-Identifier: BSD-3-Clause */
/* slot_table.c: this rank's copy of the table of slots.
 *
 *   count of commits u64, zeros | slot of map 0 | slot of map 1 | ...
 *
 * A slot has two places, for odd and for even commits. Other ranks put into one
 * and add to the count, which whoever waits for maps watches. What is read is
 * copied first, and then checked: it may be written meanwhile. */
#include <string.h>

#include "outputs/outputs.h"

size_t
umi_outputs_table_size(uint32_t num_maps)
{
    return UMI_OUTPUTS_HEADER + (size_t)num_maps * UMI_OUTPUTS_SLOT;
}

size_t
umi_outputs_table_offset(uint32_t map, uint64_t epoch)
{
    return UMI_OUTPUTS_HEADER + (size_t)map * UMI_OUTPUTS_SLOT +
           (umi_outputs_attempt(epoch) & 1) * UMI_OUTPUTS_PLACE;
}

static char *
bytes_of(const umx_outputs *outputs)
{
    return umx_memh_buffer(outputs->table)->data;
}

/* The epoch that is written in a place. */
static uint64_t
epoch_at(const char *place)
{
    return __atomic_load_n((const uint64_t *)(const void *)(place + 8),
                           __ATOMIC_SEQ_CST);
}

static char *
slot_of(const umx_outputs *outputs, uint32_t map)
{
    return bytes_of(outputs) + UMI_OUTPUTS_HEADER +
           (size_t)map * UMI_OUTPUTS_SLOT;
}

uint64_t
umi_outputs_table_epoch(const umx_outputs *outputs, uint32_t map)
{
    const char *slot = slot_of(outputs, map);
    uint64_t    a    = epoch_at(slot);
    uint64_t    b    = epoch_at(slot + UMI_OUTPUTS_PLACE);

    return (a > b) ? a : b;
}

static bool
read_place(const umx_outputs *outputs, const char *place,
           umi_outputs_where *where, uint8_t *copy)
{
    memcpy(copy, place, UMI_OUTPUTS_PLACE);
    return umi_outputs_slot_decode(where, copy) &&
           where->rank < (uint32_t)outputs->joint.size;
}

bool
umi_outputs_table_find(const umx_outputs *outputs, uint32_t map,
                       umi_outputs_where *where, uint8_t *copy)
{
    const char *first  = slot_of(outputs, map);
    const char *second = first + UMI_OUTPUTS_PLACE;

    if (epoch_at(second) > epoch_at(first)) {
        first  = second;
        second = first - UMI_OUTPUTS_PLACE;
    }
    return read_place(outputs, first, where, copy) ||
           read_place(outputs, second, where, copy);
}

void
umi_outputs_table_write(umx_outputs *outputs, uint32_t map, uint64_t epoch,
                        const uint8_t *place, size_t len)
{
    char *table = bytes_of(outputs);

    memcpy(table + umi_outputs_table_offset(map, epoch), place, len);
    (void)__atomic_fetch_add((uint64_t *)(void *)table, 1, __ATOMIC_SEQ_CST);
    umx_memh_notify(outputs->table);
}

umx_atomic
umi_outputs_table_signal(void)
{
    return (umx_atomic){.op = UMX_ATOMIC_ADD, .size = 8, .value = 1};
}

bool
umi_outputs_table_has_news(umx_outputs *outputs)
{
    uint64_t count = __atomic_load_n(
        (const uint64_t *)(const void *)bytes_of(outputs), __ATOMIC_SEQ_CST);
    bool is_new = count != outputs->seen;

    outputs->seen = count;
    return is_new;
}
