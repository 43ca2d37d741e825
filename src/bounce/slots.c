/* SPDX-License-Identifier: BSD-3-Clause */
#include "bounce/slots.h"

#include "bounce/bounce.h"
#include "util/hash.h"

/* ---- the owner's ---------------------------------------------------------
 */

void
umi_bounce_slots_begin(umx_worker *worker, umi_bounce_slots *slots)
{
    umi_list_init(&slots->waiting);
    slots->device = UMX_DEVICE_NONE;
    for (uint32_t i = 0; i < UMI_BOUNCE_SLOTS; i++) {
        slots->slots[i] = (umi_bounce_slot){.worker = worker, .index = i};
        umi_node_init(&slots->slots[i].copy.node);
    }
}

void
umi_bounce_slots_end(umi_bounce_slots *slots)
{
    if (slots->segment == NULL) {
        return;
    }
    if (slots->is_pinned) {
        umi_cuda_unpin(slots->device, slots->segment);
    }
    umi_timer_stop(&slots->timer);
    umi_segment_close(slots->segment);
    umi_segment_unmap(slots->segment, 0);
    slots->segment = NULL;
}

umx_status
umi_bounce_slots_make(umx_worker *worker, umi_bounce_slots *slots)
{
    umx_status status;

    if (slots->segment != NULL) {
        return UMX_OK;
    }
    if (!umi_random_bytes(&slots->memory, sizeof(slots->memory))) {
        return UMX_ERR_NO_RESOURCE;
    }
    status = umi_segment_create(UMI_BOUNCE_SIZE, &slots->segment,
                                &slots->number);
    if (status != UMX_OK) {
        return status;
    }
    slots->data = (char *)slots->segment + UMI_SEGMENT_HEADER;
    umi_segment_publish(slots->segment, worker->context->id, slots->memory,
                        UMI_SEGMENT_HEADER, UMI_BOUNCE_SIZE);
    return UMX_OK;
}

/* One try: without, the copies go by way of the driver's own memory. */
void
umi_bounce_slots_pin(umi_bounce_slots *slots, int device)
{
    if (slots->device == UMX_DEVICE_NONE) {
        slots->device    = device;
        slots->is_pinned = umi_cuda_pin(device, slots->segment,
                                        UMI_SEGMENT_HEADER + UMI_BOUNCE_SIZE) ==
                           UMX_OK;
    }
}

umi_bounce_slot *
umi_bounce_slots_take(umi_bounce_slots *slots)
{
    for (int i = 0; i < UMI_BOUNCE_SLOTS; i++) {
        if (slots->slots[i].state == UMI_BOUNCE_FREE) {
            return &slots->slots[i];
        }
    }
    return NULL;
}

static umi_bounce_table *
table_of(const char *data)
{
    return (umi_bounce_table *)(uintptr_t)data;
}

/* The store comes before whatever is written to the slot from now on. */
void
umi_bounce_slot_turn(umi_bounce_slot *slot)
{
    const umi_bounce_slots *slots = &slot->worker->bounce->slots;

    slot->turn++;
    atomic_store_explicit(&table_of(slots->data)->turns[slot->index],
                          slot->turn, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

char *
umi_bounce_slot_data(const umi_bounce_slot *slot)
{
    return (char *)(uintptr_t)umi_bounce_slots_at(
        slot->worker->bounce->slots.data, slot->index);
}

/* ---- the peer's ----------------------------------------------------------
 */

umi_segment *
umi_bounce_slots_map(int number, uint64_t context, uint64_t memory,
                     char **data_p)
{
    const umi_key key = {
        .flags   = UMI_KEY_SEGMENT,
        .context = context,
        .memory  = memory,
        .length  = UMI_BOUNCE_SIZE,
        .segment = number,
    };

    return umi_segment_map(&key, data_p);
}

bool
umi_bounce_slots_is_turn(const char *data, uint32_t index, uint32_t turn)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&table_of(data)->turns[index],
                                memory_order_relaxed) == turn;
}
