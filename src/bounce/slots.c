/* SPDX-License-Identifier: BSD-3-Clause */
#include "bounce/slots.h"

#include <stdlib.h>

#include "bounce/bounce.h"
#include "util/hash.h"

/* ---- the owner's ---------------------------------------------------------
 */

static void
begin_pool(umi_bounce_pool *pool, umx_worker *worker, int device, size_t size,
           umi_timer_fn on_timer)
{
    *pool = (umi_bounce_pool){.worker = worker, .device = device, .size = size};
    umi_list_init(&pool->waiting);
    umi_timer_init(&pool->timer, on_timer);
    for (uint32_t i = 0; i < UMI_BOUNCE_SLOTS; i++) {
        umi_bounce_slot *slot = &pool->slots[i];

        slot->pool  = pool;
        slot->index = i + (uint32_t)(device + 1) * UMI_BOUNCE_SLOTS;
        umi_node_init(&slot->copy.node);
    }
}

void
umi_bounce_pools_begin(umx_worker *worker, umi_bounce_pools *pools,
                       umi_timer_fn on_timer)
{
    _Static_assert(UMX_DEVICE_NONE == -1, "the host's are numbered from 0 on");
    pools->pinned_by = UMX_DEVICE_NONE;
    pools->on_timer  = on_timer;
    begin_pool(&pools->host, worker, UMX_DEVICE_NONE, UMI_BOUNCE_SLOT,
               on_timer);
}

static void
end_pool(umi_bounce_pool *pool)
{
    umi_timer_stop(&pool->timer);
    umi_cuda_free(UMX_MEMTYPE_CUDA, pool->first);
    free(pool);
}

void
umi_bounce_pools_end(umi_bounce_pools *pools)
{
    for (int i = 0; i < UMI_BOUNCE_DEVICES; i++) {
        if (pools->devices[i] != NULL) {
            end_pool(pools->devices[i]);
        }
    }
    umi_timer_stop(&pools->host.timer);
    if (pools->segment == NULL) {
        return;
    }
    if (pools->is_pinned) {
        umi_cuda_unpin(pools->pinned_by, pools->segment);
    }
    umi_segment_close(pools->segment);
    umi_segment_unmap(pools->segment, 0);
    pools->segment = NULL;
}

umx_status
umi_bounce_pool_of_host(umi_bounce_pools *pools, umi_bounce_pool **pool_p)
{
    umx_status status;

    *pool_p = &pools->host;
    if (pools->segment != NULL) {
        return UMX_OK;
    }
    if (!umi_random_bytes(&pools->memory, sizeof(pools->memory))) {
        return UMX_ERR_NO_RESOURCE;
    }
    status = umi_segment_create(UMI_BOUNCE_SIZE, &pools->segment,
                                &pools->number);
    if (status != UMX_OK) {
        return status;
    }
    pools->host.first = (char *)pools->segment + UMI_SEGMENT_HEADER +
                        UMI_BOUNCE_TABLE;
    umi_segment_publish(pools->segment, pools->host.worker->context->id,
                        pools->memory, UMI_SEGMENT_HEADER, UMI_BOUNCE_SIZE);
    return UMX_OK;
}

umx_status
umi_bounce_pool_of(umi_bounce_pools *pools, int device,
                   umi_bounce_pool **pool_p)
{
    umi_bounce_pool *pool;
    void            *data;
    umx_status       status = umi_bounce_pool_of_host(pools, pool_p);

    if (status != UMX_OK || device < 0 || device >= UMI_BOUNCE_DEVICES) {
        return (status != UMX_OK) ? status : UMX_ERR_OUT_OF_RANGE;
    }
    if (pools->devices[device] != NULL) {
        *pool_p = pools->devices[device];
        return UMX_OK;
    }
    pool = malloc(sizeof(*pool));
    if (pool == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    begin_pool(pool, pools->host.worker, device, UMI_BOUNCE_DEVICE_SLOT,
               pools->on_timer);
    status = umi_cuda_alloc_exported(
        device, (size_t)UMI_BOUNCE_SLOTS * UMI_BOUNCE_DEVICE_SLOT, &data,
        &pool->handle);
    if (status != UMX_OK) {
        free(pool);
        return status;
    }
    pool->first            = data;
    pools->devices[device] = pool;
    *pool_p                = pool;
    return UMX_OK;
}

/* One try: without, the copies go by way of the driver's own memory. */
void
umi_bounce_pools_pin(umi_bounce_pools *pools, int device)
{
    if (pools->pinned_by == UMX_DEVICE_NONE) {
        pools->pinned_by = device;
        pools->is_pinned = umi_cuda_pin(device, pools->segment,
                                        UMI_SEGMENT_HEADER + UMI_BOUNCE_SIZE) ==
                           UMX_OK;
    }
}

umi_bounce_slot *
umi_bounce_pool_take(umi_bounce_pool *pool)
{
    for (int i = 0; i < UMI_BOUNCE_SLOTS; i++) {
        if (pool->slots[i].state == UMI_BOUNCE_FREE) {
            return &pool->slots[i];
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
    const umi_bounce_pools *pools = &slot->pool->worker->bounce->pools;
    const char *data = (const char *)pools->segment + UMI_SEGMENT_HEADER;

    slot->turn++;
    atomic_store_explicit(&table_of(data)->turns[slot->index], slot->turn,
                          memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

char *
umi_bounce_slot_data(const umi_bounce_slot *slot)
{
    return slot->pool->first +
           (size_t)(slot->index % UMI_BOUNCE_SLOTS) * slot->pool->size;
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
