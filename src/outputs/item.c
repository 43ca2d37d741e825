/* SPDX-License-Identifier: BSD-3-Clause */
/* item.c: ranges of partitions that are to be read, and the blocks of those
 * that can be read where they are. */
#include "outputs/fetch.h"

#include <stdlib.h>

enum {
    DOUBT_NS = 1000000000
};

static void
free_item(umi_outputs_item *item)
{
    umi_node_remove(&item->node);
    if (item->entry != NULL) {
        umi_outputs_entry_put(item->entry);
    }
    free(item);
}

void
umi_outputs_items_free(umi_list *list)
{
    umi_node *node;

    while ((node = umi_list_pop(list)) != NULL) {
        free_item(umi_container_of(node, umi_outputs_item, node));
    }
}

umi_outputs_item *
umi_outputs_item_new(uint32_t map, uint32_t first, uint32_t end)
{
    umi_outputs_item *item = calloc(1, sizeof(*item));

    if (item != NULL) {
        umi_node_init(&item->node);
        item->map  = map;
        item->next = first;
        item->end  = end;
    }
    return item;
}

/* ---- items ---------------------------------------------------------------
 */

void
umi_outputs_fetch_fail(umx_outputs_fetch        *fetch,
                       const umx_outputs_failed *failed)
{
    if (fetch->status == UMX_OK) {
        fetch->failed     = *failed;
        fetch->has_failed = true;
        fetch->status     = failed->status;
        umi_outputs_fetch_drop(fetch);
    }
}

/* The file has another one in its place. Who commits a map again gives the new
 * file its name before the slot tells of it: wait for that. */
static void
doubt(umx_outputs_fetch *fetch, umi_outputs_item *item,
      const umx_outputs_failed *why, uint64_t epoch)
{
    umx_worker *worker = fetch->reader->outputs->joint.worker;

    umi_node_remove(&item->node);
    item->doubted = epoch;
    fetch->doubt  = *why;
    if (worker != NULL) {
        umx_timer_start(worker, &fetch->doubts, DOUBT_NS);
    }
    umi_list_append(&fetch->missing, &item->node);
}

/* An output cannot be read: begin again if there is another. */
void
umi_outputs_item_retry(umx_outputs_fetch *fetch, umi_outputs_item *item,
                       const umx_outputs_failed *failed)
{
    umx_outputs_failed why       = *failed; /* which may be the entry's */
    uint64_t           epoch     = item->entry->epoch;
    bool               has_other = umi_outputs_entry_drop(item->entry);

    umi_outputs_entry_put(item->entry);
    item->entry = NULL;
    if (!has_other && why.trouble == UMX_OUTPUTS_CHANGED) {
        doubt(fetch, item, &why, epoch);
        return;
    }
    if (!has_other) {
        free_item(item);
        umi_outputs_fetch_fail(fetch, &why);
        return;
    }
    fetch->reader->info.num_retries++;
    umi_outputs_item_place(fetch, item);
}

/* Put an item on the list where it belongs. */
void
umi_outputs_item_place(umx_outputs_fetch *fetch, umi_outputs_item *item)
{
    umx_status         status = UMX_OK;
    umi_outputs_entry *entry;

    umi_node_remove(&item->node);
    if (item->entry == NULL) {
        item->entry = umi_outputs_entry_get(fetch->reader, item->map, &status);
    }
    entry = item->entry;
    if (status != UMX_OK) {
        umx_outputs_failed failed = {.status = status, .map = item->map};

        free_item(item);
        umi_outputs_fetch_fail(fetch, &failed);
    } else if (entry == NULL) {
        umi_list_append(&fetch->missing, &item->node);
    } else if (entry->state == UMI_OUTPUTS_OPENING) {
        umi_list_append(&fetch->opening, &item->node);
    } else if (entry->state == UMI_OUTPUTS_FAILED) {
        umi_outputs_item_retry(fetch, item, &entry->failed);
    } else if (entry->whole != NULL || entry->fd >= 0) {
        umi_list_append(&fetch->viewed, &item->node);
    } else {
        umi_list_append(&fetch->to_read, &item->node);
    }
}

/* Find the next partition with bytes, for which item->next is set. False: there
 * is none, or the item has failed: it is gone. */
bool
umi_outputs_item_find(umx_outputs_fetch *fetch, umi_outputs_item *item,
                      uint64_t *offset_p, uint64_t *len_p)
{
    const umi_outputs_entry *entry = item->entry;

    for (; item->next < item->end; item->next++) {
        if (!umi_outputs_entry_range(entry, item->next, 1, offset_p, len_p)) {
            umx_outputs_failed failed = {
                .trouble   = UMX_OUTPUTS_DAMAGED,
                .status    = UMX_ERR_PROTOCOL,
                .map       = item->map,
                .partition = item->next,
                .epoch     = umi_outputs_attempt(entry->epoch),
                .rank      = entry->rank};

            umi_outputs_item_retry(fetch, item, &failed);
            return false;
        }
        if (*len_p != 0) {
            return true;
        }
    }
    free_item(item);
    return false;
}

umx_outputs_failed
umi_outputs_failed_of(const umi_outputs_entry *entry,
                      umx_outputs_trouble trouble, umx_status status,
                      uint32_t partition)
{
    return (umx_outputs_failed){.trouble   = trouble,
                                .status    = status,
                                .map       = entry->map,
                                .partition = partition,
                                .epoch     = umi_outputs_attempt(entry->epoch),
                                .rank      = entry->rank};
}

/* ---- blocks --------------------------------------------------------------
 */

/* Make a block of bytes in `extent`, which is held. NULL: out of memory. */
umx_outputs_block *
umi_outputs_block_new(const umi_outputs_entry *entry,
                      umi_outputs_extent *extent, uint32_t partition,
                      const void *data, uint64_t len)
{
    umx_outputs_block *block = calloc(1, sizeof(*block));

    if (block == NULL) {
        return NULL;
    }
    umi_outputs_extent_hold(extent);
    umi_node_init(&block->node);
    block->extent = extent;
    block->info   = (umx_outputs_block_info){
          .data      = data,
          .len       = (size_t)len,
          .map       = entry->map,
          .partition = partition,
          .epoch     = umi_outputs_attempt(entry->epoch),
          .rank      = entry->rank,
          .place     = UMX_OUTPUTS_COPIED};
    return block;
}

/* Make the next block of an item that is read where it is. NULL: the item has
 * none, and is gone, or the fetch has failed. */
umx_outputs_block *
umi_outputs_item_view(umx_outputs_fetch *fetch, umi_outputs_item *item)
{
    umi_outputs_entry  *entry = item->entry;
    umi_outputs_extent *extent;
    umx_outputs_block  *block;
    umx_outputs_failed  failed;
    uint64_t            offset, len;
    const char         *data;
    int                 error;

    if (!umi_outputs_item_find(fetch, item, &offset, &len)) {
        return NULL;
    }
    extent = umi_outputs_entry_view(entry, offset, len, &error);
    if (extent == NULL) {
        failed = umi_outputs_failed_of(
            entry, (error == ESTALE) ? UMX_OUTPUTS_CHANGED : UMX_OUTPUTS_LOST,
            (error == ENOMEM) ? UMX_ERR_NO_MEMORY : UMX_ERR_IO_ERROR,
            item->next);
        failed.error = error;
        umi_outputs_item_retry(fetch, item, &failed);
        return NULL;
    }
    data  = extent->data + (offset - extent->offset);
    block = umi_outputs_block_new(entry, extent, item->next, data, len);
    umi_outputs_extent_put(extent);
    if (block == NULL ||
        !umi_outputs_entry_check(entry, item->next, data, (size_t)len)) {
        failed = umi_outputs_failed_of(
            entry, UMX_OUTPUTS_CHECKSUM,
            (block == NULL) ? UMX_ERR_NO_MEMORY : UMX_ERR_IO_ERROR, item->next);
        if (block != NULL) {
            umx_outputs_block_release(block);
        }
        umi_outputs_item_retry(fetch, item, &failed);
        return NULL;
    }
    block->info.place = (extent->memh != NULL) ? UMX_OUTPUTS_OWN :
                                                 UMX_OUTPUTS_MAPPED;
    item->next++;
    return block;
}

/* Make the next block of an item without its bytes. */
void
umi_outputs_item_name(umx_outputs_fetch *fetch, umi_outputs_item *item)
{
    umi_outputs_entry *entry = item->entry;
    umx_outputs_block *block;
    uint64_t           offset, len;

    if (!umi_outputs_item_find(fetch, item, &offset, &len)) {
        return;
    }
    block = umi_outputs_block_new(entry, entry->away, item->next, NULL, len);
    if (block == NULL) {
        umx_outputs_failed failed = umi_outputs_failed_of(
            entry, UMX_OUTPUTS_LOST, UMX_ERR_NO_MEMORY, item->next);

        umi_outputs_fetch_fail(fetch, &failed);
        return;
    }
    block->info.place = UMX_OUTPUTS_AWAY;
    block->offset     = offset;
    umi_list_append(&fetch->ready, &block->node);
    item->next++;
}
