/* SPDX-License-Identifier: BSD-3-Clause */
/* group.c: partitions that follow each other, and are read from another rank
 * together. */
#include "outputs/fetch.h"

#include <stdlib.h>

#include "outputs/remote_read.h"
#include "util/count.h"

enum {
    GROUP_BYTES = 8 << 20 /* that are read together, if not in one partition */
};

typedef struct umi_outputs_group {
    umx_outputs_fetch  *fetch; /* held */
    umi_outputs_entry  *entry; /* held */
    uint32_t            first;
    uint32_t            end;
    uint64_t            offset; /* in the output */
    size_t              len;
    umi_outputs_extent *extent;
} umi_outputs_group;

/* Make blocks of what has been read. False: `*failed` is why not. */
static bool
land(umi_outputs_group *group, umx_outputs_failed *failed)
{
    umx_outputs_fetch       *fetch = group->fetch;
    const umi_outputs_entry *entry = group->entry;

    for (uint32_t i = group->first; i < group->end; i++) {
        umx_outputs_block *block;
        uint64_t           offset, len;
        const char        *data;

        if (!umi_outputs_entry_range(entry, i, 1, &offset, &len) || len == 0) {
            continue; /* the range of all has been checked */
        }
        data = group->extent->data + (offset - group->offset);
        if (!umi_outputs_entry_check(entry, i, data, (size_t)len)) {
            *failed      = umi_outputs_failed_of(entry, UMX_OUTPUTS_CHECKSUM,
                                                 UMX_ERR_IO_ERROR, i);
            group->first = i;
            return false;
        }
        block = umi_outputs_block_new(entry, group->extent, i, data, len);
        if (block == NULL) {
            *failed      = umi_outputs_failed_of(entry, UMX_OUTPUTS_LOST,
                                                 UMX_ERR_NO_MEMORY, i);
            group->first = i;
            return false;
        }
        umi_list_append(&fetch->ready, &block->node);
        fetch->held += (size_t)len;
    }
    return true;
}

static void
free_group(umi_outputs_group *group)
{
    umx_outputs_fetch *fetch = group->fetch;

    umi_outputs_extent_put(group->extent);
    umi_outputs_entry_put(group->entry);
    free(group);
    umi_outputs_fetch_put(fetch);
}

/* A group cannot be read: its partitions are an item again. */
static void
retry_group(umi_outputs_group *group, const umx_outputs_failed *failed)
{
    umi_outputs_item *item = umi_outputs_item_new(group->entry->map,
                                                  group->first, group->end);

    if (item == NULL) {
        umi_outputs_fetch_fail(group->fetch, failed);
        return;
    }
    item->entry = group->entry;
    umi_refs_get(&group->entry->refs);
    umi_outputs_item_retry(group->fetch, item, failed);
}

static void
end_group(umi_outputs_group *group, umx_status status)
{
    umx_outputs_fetch *fetch = group->fetch;
    umx_outputs_failed failed;

    UMI_DECREMENT(fetch->num_reading);
    fetch->held -= group->len;
    if (fetch->status == UMX_OK && status == UMX_OK) {
        if (!land(group, &failed)) {
            retry_group(group, &failed);
        }
    } else if (fetch->status == UMX_OK) {
        failed = umi_outputs_failed_of(group->entry,
                                       (status == UMX_ERR_IO_ERROR) ?
                                           UMX_OUTPUTS_CHANGED :
                                           UMX_OUTPUTS_LOST,
                                       status, group->first);
        retry_group(group, &failed);
    }
    free_group(group);
}

static void
on_read(umx_status status, void *arg)
{
    umi_outputs_group *group = arg;
    umx_outputs_fetch *fetch = group->fetch;

    umi_refs_get(&fetch->refs);
    end_group(group, status);
    umi_outputs_fetch_serve(fetch);
    umi_outputs_fetch_put(fetch);
}

/* Begin to read the next partitions of an item. */
void
umi_outputs_item_read(umx_outputs_fetch *fetch, umi_outputs_item *item)
{
    umi_outputs_entry *entry = item->entry;
    umi_outputs_group *group;
    uint64_t           offset, len, more, at;
    uint64_t           limit = fetch->max_bytes;
    umx_status         status;

    if (limit > GROUP_BYTES) {
        limit = GROUP_BYTES;
    }
    if (!umi_outputs_item_find(fetch, item, &offset, &len)) {
        return;
    }
    group = calloc(1, sizeof(*group));
    if (group != NULL) {
        group->first = item->next++;
        while (item->next < item->end && len < limit &&
               umi_outputs_entry_range(entry, item->next, 1, &at, &more) &&
               at == offset + len && more <= limit - len) {
            len += more;
            item->next++;
        }
        group->extent = umi_outputs_extent_alloc(fetch->reader->store,
                                                 (size_t)len);
    }
    if (group == NULL || group->extent == NULL) {
        umx_outputs_failed failed = umi_outputs_failed_of(
            entry, UMX_OUTPUTS_LOST, UMX_ERR_NO_MEMORY, item->next);

        free(group);
        umi_outputs_fetch_fail(fetch, &failed);
        return;
    }
    group->end    = item->next;
    group->offset = offset;
    group->len    = (size_t)len;
    group->fetch  = fetch;
    group->entry  = entry;
    umi_refs_get(&fetch->refs);
    umi_refs_get(&entry->refs);
    fetch->num_reading++;
    fetch->held += group->len;
    fetch->reader->info.num_reads++;
    status = umi_outputs_transfer(entry, offset, group->extent->data,
                                  group->len, on_read, group);
    if (status != UMX_INPROGRESS) {
        end_group(group, status);
    }
}
