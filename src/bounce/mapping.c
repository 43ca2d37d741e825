/* SPDX-License-Identifier: BSD-3-Clause */
#include "bounce/mapping.h"

#include <stdlib.h>
#include <string.h>

#include "bounce/slots.h"
#include "mem/cuda_memory.h"
#include "worker/link.h"

/* The pool of a device of the peer's, mapped for a device of this process. */
typedef struct mapped_pool {
    umi_node        node; /* umi_bounce_link.pools */
    umi_cuda_handle handle;
    int             device;
    void           *data;
} mapped_pool;

void
umi_bounce_init_link(umi_link *link, umi_bounce_link *bounce)
{
    *bounce = (umi_bounce_link){.pinned_by = UMX_DEVICE_NONE};
    umi_list_init(&bounce->pools);
    link->bounce = bounce;
}

void
umi_bounce_fini_link(umi_link *link)
{
    umi_bounce_link *bounce = link->bounce;
    umi_node        *node;

    if (bounce->segment == NULL) {
        return;
    }
    umi_dma_settle_all(link->worker); /* some may read the slots */
    while ((node = umi_list_pop(&bounce->pools)) != NULL) {
        mapped_pool *pool = umi_container_of(node, mapped_pool, node);

        umi_cuda_unmap(pool->device, pool->data);
        free(pool);
    }
    if (bounce->is_pinned) {
        umi_cuda_unpin(bounce->pinned_by, bounce->segment);
    }
    umi_segment_unmap(bounce->segment, 0);
    bounce->segment = NULL;
}

/* A worker has one segment: copies that are under way read it. */
bool
umi_bounce_map(const umi_link *link, const umi_bounce_note *note)
{
    umi_bounce_link *bounce = link->bounce;

    if (bounce->segment != NULL) {
        return bounce->memory == note->memory;
    }
    bounce->segment = umi_bounce_slots_map(note->segment, note->context,
                                           note->memory, &bounce->data);
    bounce->memory  = note->memory;
    return bounce->segment != NULL;
}

/* One try, as umi_bounce_pools_pin(). */
void
umi_bounce_pin(umi_bounce_link *bounce, int device)
{
    if (bounce->pinned_by == UMX_DEVICE_NONE) {
        bounce->pinned_by = device;
        bounce->is_pinned = umi_cuda_pin(device, bounce->segment,
                                         UMI_SEGMENT_HEADER +
                                             UMI_BOUNCE_SIZE) == UMX_OK;
    }
}

const char *
umi_bounce_map_device(umi_bounce_link *bounce, const umi_cuda_handle *handle,
                      int device)
{
    mapped_pool *pool;

    UMI_LIST_FOREACH(node, &bounce->pools) {
        pool = umi_container_of(node, mapped_pool, node);
        if (pool->device == device &&
            memcmp(&pool->handle, handle, sizeof(*handle)) == 0) {
            return pool->data;
        }
    }
    pool = bounce->is_refused ? NULL : malloc(sizeof(*pool));
    if (pool == NULL) {
        return NULL;
    }
    if (umi_cuda_map(device, handle, &pool->data) != UMX_OK) {
        bounce->is_refused = true;
        free(pool);
        return NULL;
    }
    pool->handle = *handle;
    pool->device = device;
    umi_node_init(&pool->node);
    umi_list_append(&bounce->pools, &pool->node);
    return pool->data;
}
