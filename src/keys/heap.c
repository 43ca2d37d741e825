/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.c: the context's memories (memh.h) in the blocks of a set of slabs
 * (slab.h). */
#include <umx/heap.h>

#include <stdlib.h>

#include "keys/context.h"
#include "keys/memh.h"
#include "keys/slab.h"

/* Up to 64 KiB clearing what was used before takes a sixth of the time that
 * making a segment does; at 256 KiB it takes longer. */
enum {
    SLAB_SIZE     = 1 << 20, /* bytes */
    MIN_SLAB_SIZE = 1 << 18,
    MAX_SLAB_SIZE = 1 << 30,
    SHARE         = 16 /* of a slab that a memory may take at most */
};

struct umx_heap {
    umx_context  *context; /* held */
    umi_slab_set *slabs;
};

umx_status
umx_heap_create(umx_context *context, const umx_heap_params *params,
                umx_heap **heap_p)
{
    uint64_t  fields    = (params != NULL) ? params->field_mask : 0;
    size_t    slab_size = SLAB_SIZE;
    umx_heap *heap;

    if (context->generation != umi_fork_generation()) {
        return UMX_ERR_FORKED;
    }
    if (fields & UMX_HEAP_FIELD_SLAB_SIZE) {
        slab_size = params->slab_size;
    }
    if (slab_size < MIN_SLAB_SIZE || slab_size > MAX_SLAB_SIZE) {
        return UMX_ERR_INVALID_PARAM;
    }
    heap = malloc(sizeof(*heap));
    if (heap == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    heap->slabs = umi_slab_set_create(context->id, slab_size);
    if (heap->slabs == NULL) {
        free(heap);
        return UMX_ERR_NO_MEMORY;
    }
    heap->context = context;
    umi_context_hold(context);
    *heap_p = heap;
    return UMX_OK;
}

umx_status
umx_heap_alloc(umx_heap *heap, size_t len, umx_memh **memh_p)
{
    umi_block *block;
    umx_status status;

    if (heap->context->generation != umi_fork_generation()) {
        return UMX_ERR_FORKED;
    }
    if (len > heap->slabs->slab_size / SHARE) {
        return umx_memh_alloc(heap->context, len, memh_p);
    }
    status = umi_block_take(heap->slabs, len, &block);
    if (status == UMX_ERR_UNSUPPORTED) {
        return umx_memh_alloc(heap->context, len, memh_p);
    }
    if (status != UMX_OK) {
        return status;
    }
    return umi_memh_open_block(heap->context, block, len, memh_p);
}

void
umx_heap_query(umx_heap *heap, umx_heap_info *info)
{
    umi_slab_set *slabs = heap->slabs;

    *info = (umx_heap_info){0};
    if (slabs->generation != umi_fork_generation()) {
        return;
    }
    pthread_mutex_lock(&slabs->lock);
    info->num_slabs    = slabs->num_slabs;
    info->num_memories = slabs->num_used;
    pthread_mutex_unlock(&slabs->lock);
}

void
umx_heap_destroy(umx_heap *heap)
{
    umx_context *context = heap->context;

    umi_slab_set_destroy(heap->slabs);
    free(heap);
    umx_context_release(context);
}
