/* SPDX-License-Identifier: BSD-3-Clause */
#include "keys/slab.h"

#include <stdlib.h>

#include "host/fork.h"
#include "util/count.h"

enum {
    GRANULE = 64, /* bytes; no two blocks have a line of the CPU's in common */
    PAGE    = 4096
};

static umi_block *
block_at(umi_node *node)
{
    return umi_container_of(node, umi_block, node);
}

static umi_slab *
slab_at(umi_node *node)
{
    return umi_container_of(node, umi_slab, node);
}

/* ---- free blocks ---------------------------------------------------------
 */

/* Where `len` bytes begin at the earliest from `offset` on: in the middle of a
 * page if they fill one, as in a segment of their own (segment.h). */
static size_t
align(size_t offset, size_t len)
{
    if (len < PAGE) {
        return offset;
    }
    offset += PAGE - UMI_SEGMENT_HEADER;
    return (offset + PAGE - 1) / PAGE * PAGE - (PAGE - UMI_SEGMENT_HEADER);
}

/* Cut what lies from `offset` on off a free block: a free block of its own. */
static umi_block *
cut(umi_block *block, size_t offset)
{
    umi_block *rest = malloc(sizeof(*rest));

    if (rest == NULL) {
        return NULL;
    }
    rest->slab   = block->slab;
    rest->offset = offset;
    rest->len    = block->offset + block->len - offset;
    rest->place  = 0;
    block->len   = offset - block->offset;
    umi_node_insert_before(block->node.next, &rest->node);
    return rest;
}

/* `next` follows `block` in the list of free blocks: make one of them if they
 * are neighbours. True if so. */
static bool
join(umi_block *block, umi_block *next)
{
    if (block->offset + block->len != next->offset) {
        return false;
    }
    block->len += next->len;
    umi_node_remove(&next->node);
    free(next);
    return true;
}

/* Insert `block` into the list of free blocks, joined with its neighbours.
 * `hint` is a node of that list. Returns the node of what it is in now. */
static umi_node *
insert(umi_slab *slab, umi_node *hint, umi_block *block)
{
    umi_list *list = &slab->free;
    umi_node *next = hint;

    while (next != list && block_at(next)->offset < block->offset) {
        next = next->next;
    }
    while (next->prev != list && block_at(next->prev)->offset > block->offset) {
        next = next->prev;
    }
    umi_node_insert_before(next, &block->node);
    if (next != list) {
        (void)join(block, block_at(next));
    }
    if (block->node.prev != list) {
        umi_block *before = block_at(block->node.prev);

        return join(before, block) ? &before->node : &block->node;
    }
    return &block->node;
}

/* What was used is free again, if nobody has it mapped. */
static bool
clean(umi_slab *slab)
{
    umi_node *hint = &slab->free, *node;

    if (umi_list_is_empty(&slab->dirty) ||
        umi_segment_is_shared(slab->number)) {
        return false;
    }
    while ((node = umi_list_pop(&slab->dirty)) != NULL) {
        umi_block *block = block_at(node);

        slab->places[slab->num_places++] = (uint16_t)block->place;
        block->place                     = 0;
        hint                             = insert(slab, hint, block);
    }
    return true;
}

/* ---- slabs ---------------------------------------------------------------
 */

static umx_status
slab_create(umi_slab_set *set)
{
    umi_slab  *slab = calloc(1, sizeof(*slab));
    umi_block *all  = malloc(sizeof(*all));
    umx_status status;

    if (slab == NULL || all == NULL) {
        status = UMX_ERR_NO_MEMORY;
        goto free_slab;
    }
    status = umi_segment_create_slab(set->slab_size, set->context,
                                     &slab->address, &slab->number);
    if (status != UMX_OK) {
        goto free_slab;
    }
    slab->set        = set;
    slab->num_used   = 0;
    slab->num_places = 0;
    for (uint16_t place = UMI_SLAB_CELLS - 1; place > 0; place--) {
        slab->places[slab->num_places++] = place;
    }
    *all = (umi_block){.slab   = slab,
                       .offset = UMI_SLAB_TABLE,
                       .len    = set->slab_size - UMI_SLAB_TABLE};
    umi_list_init(&slab->dirty);
    umi_list_init(&slab->free);
    umi_list_append(&slab->free, &all->node);
    umi_list_prepend(&set->slabs, &slab->node);
    set->num_slabs++;
    set->num_empty++;
    return UMX_OK;

free_slab:
    free(all);
    free(slab);
    return status;
}

static void
free_blocks(umi_list *list)
{
    umi_node *node;

    while ((node = umi_list_pop(list)) != NULL) {
        free(block_at(node));
    }
}

/* Nothing in it is used. Those who have it mapped keep it. */
static void
slab_destroy(umi_slab *slab)
{
    umi_node_remove(&slab->node);
    UMI_DECREMENT(slab->set->num_slabs);
    UMI_DECREMENT(slab->set->num_empty);
    free_blocks(&slab->free);
    free_blocks(&slab->dirty);
    umi_pin_end(&slab->pin);
    umi_segment_unmap(slab->address, 0);
    free(slab);
}

/* A block out of free ones of `slab`; UMX_ERR_NO_ELEM: none is large enough. */
static umx_status
slab_take(umi_slab *slab, size_t len, umi_block **block_p)
{
    UMI_LIST_FOREACH(node, &slab->free) {
        umi_block *block  = block_at(node);
        size_t     offset = align(block->offset, len);

        if (offset + len > block->offset + block->len) {
            continue;
        }
        if (offset != block->offset && (block = cut(block, offset)) == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
        if (block->len != len && cut(block, offset + len) == NULL) {
            if (block->node.prev != &slab->free) {
                (void)join(block_at(block->node.prev), block);
            }
            return UMX_ERR_NO_MEMORY;
        }
        umi_node_remove(&block->node);
        *block_p = block;
        return UMX_OK;
    }
    return UMX_ERR_NO_ELEM;
}

/* ---- the set -------------------------------------------------------------
 */

umi_slab_set *
umi_slab_set_create(uint64_t context, size_t slab_size)
{
    umi_slab_set *set = calloc(1, sizeof(*set));

    if (set != NULL) {
        pthread_mutex_init(&set->lock, NULL);
        set->generation = umi_fork_generation();
        set->context    = context;
        set->slab_size  = slab_size;
        umi_list_init(&set->slabs);
    }
    return set;
}

static void
set_free(umi_slab_set *set)
{
    while (!umi_list_is_empty(&set->slabs)) {
        slab_destroy(slab_at(set->slabs.next));
    }
    pthread_mutex_destroy(&set->lock);
    free(set);
}

/* End a change that began with the lock; the set may have gone then. */
static void
unlock(umi_slab_set *set)
{
    bool is_over = set->is_closed && set->num_used == 0;

    pthread_mutex_unlock(&set->lock);
    if (is_over) {
        set_free(set);
    }
}

void
umi_slab_set_destroy(umi_slab_set *set)
{
    if (set->generation != umi_fork_generation()) {
        return; /* the parent's; somebody may have held the lock */
    }
    pthread_mutex_lock(&set->lock);
    set->is_closed = true;
    unlock(set);
}

/* Take from any slab as it is; `is_clean`: after a look at what is dirty. */
static umx_status
take_from_any(umi_slab_set *set, size_t len, bool is_clean, umi_block **block_p)
{
    UMI_LIST_FOREACH_SAFE(node, &set->slabs) {
        umi_slab  *slab = slab_at(node);
        umx_status status;

        if (is_clean && !clean(slab)) {
            if (slab->num_used == 0 && !umi_list_is_empty(&slab->dirty)) {
                slab_destroy(slab); /* its peers' alone from now on */
            }
            continue;
        }
        if (slab->num_places == 0) {
            continue;
        }
        status = slab_take(slab, len, block_p);
        if (status != UMX_ERR_NO_ELEM) {
            return status;
        }
    }
    return UMX_ERR_NO_ELEM;
}

/* What is free first, then what has become free, then what is new. */
static umx_status
take(umi_slab_set *set, size_t len, umi_block **block_p)
{
    umx_status status = take_from_any(set, len, false, block_p);

    if (status == UMX_ERR_NO_ELEM) {
        status = take_from_any(set, len, true, block_p);
    }
    if (status == UMX_ERR_NO_ELEM) {
        status = slab_create(set);
        if (status == UMX_OK) {
            status = slab_take(slab_at(set->slabs.next), len, block_p);
        }
    }
    return status;
}

static void
begin_use(umi_block *block)
{
    umi_slab     *slab = block->slab;
    umi_slab_set *set  = slab->set;

    block->place = slab->places[--slab->num_places];
    set->num_empty -= (slab->num_used == 0);
    slab->num_used++;
    set->num_used++;
    if (set->slabs.next != &slab->node) {
        umi_node_remove(&slab->node);
        umi_list_prepend(&set->slabs, &slab->node);
    }
}

umx_status
umi_block_take(umi_slab_set *set, size_t len, umi_block **block_p)
{
    umi_block *block;
    umx_status status;

    len = (len == 0) ? GRANULE : (len + GRANULE - 1) / GRANULE * GRANULE;
    pthread_mutex_lock(&set->lock);
    status = take(set, len, &block);
    if (status == UMX_OK) {
        begin_use(block);
        *block_p = block;
    }
    pthread_mutex_unlock(&set->lock);
    return status;
}

/* One empty slab is kept for the next block. */
void
umi_block_put(umi_block *block)
{
    umi_slab     *slab = block->slab;
    umi_slab_set *set  = slab->set;

    if (set->generation != umi_fork_generation()) {
        return;
    }
    pthread_mutex_lock(&set->lock);
    umi_list_append(&slab->dirty, &block->node);
    UMI_DECREMENT(set->num_used);
    if (UMI_DECREMENT(slab->num_used) == 0 && ++set->num_empty > 1) {
        slab_destroy(slab);
    }
    unlock(set);
}
