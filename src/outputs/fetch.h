/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch.h: blocks of partitions, on their way to the user. */
#ifndef UMI_OUTPUTS_FETCH_H
#define UMI_OUTPUTS_FETCH_H

#include <errno.h>

#include "outputs/outputs.h"
#include "util/refcnt.h"

struct umx_outputs_fetch {
    umi_node            node;   /* reader->fetches */
    umx_outputs_reader *reader; /* held */
    umi_refs            refs;   /* the user's, and of groups */
    unsigned            flags;
    size_t              max_bytes;
    uint64_t            timeout_ns;
    /* items */
    umi_list missing; /* their output has not been committed */
    umi_list opening;
    umi_list viewed;
    umi_list to_read;
    /* blocks */
    umi_list ready;       /* umx_outputs_block.node */
    size_t   held;        /* bytes that are being read, or are ready */
    unsigned num_reading; /* groups */
    /* the call that waits */
    umx_request *req; /* NULL: none does */
    umx_timer    timer;
    uint64_t     waits_since_ns;
    /* the end */
    umx_status         status; /* UMX_OK until it has failed, or has ended */
    bool               has_failed;
    umx_outputs_failed failed;
    /* A file is another one: its map may be being committed again. */
    umx_timer          doubts;
    umx_outputs_failed doubt;
};

/* ---- fetch.c -------------------------------------------------------------
 */

/* Drop what has not been handed out. */
void umi_outputs_fetch_drop(umx_outputs_fetch *fetch);
void umi_outputs_fetch_put(umx_outputs_fetch *fetch);

/* End the call that waits, if it can end. */
void umi_outputs_fetch_serve(umx_outputs_fetch *fetch);

/* ---- item.c --------------------------------------------------------------
 */

typedef struct umi_outputs_item {
    umi_node           node;
    umi_outputs_entry *entry; /* held; NULL: missing */
    uint32_t           map;
    uint32_t           next;    /* partitions that have not been read yet, */
    uint32_t           end;     /* the last of them excluded */
    uint64_t           doubted; /* an epoch that cannot be read; or 0 */
} umi_outputs_item;

umi_outputs_item *umi_outputs_item_new(uint32_t map, uint32_t first,
                                       uint32_t end);
void              umi_outputs_items_free(umi_list *list);

/* Put an item on the list where it belongs. */
void umi_outputs_item_place(umx_outputs_fetch *fetch, umi_outputs_item *item);

/* Find the next partition with bytes, for which item->next is set. False: there
 * is none, or the item has failed: it is gone. */
bool umi_outputs_item_find(umx_outputs_fetch *fetch, umi_outputs_item *item,
                           uint64_t *offset_p, uint64_t *len_p);

/* An output cannot be read: begin again if there is another. */
void umi_outputs_item_retry(umx_outputs_fetch *fetch, umi_outputs_item *item,
                            const umx_outputs_failed *failed);

void               umi_outputs_fetch_fail(umx_outputs_fetch        *fetch,
                                          const umx_outputs_failed *failed);
umx_outputs_failed umi_outputs_failed_of(const umi_outputs_entry *entry,
                                         umx_outputs_trouble      trouble,
                                         umx_status status, uint32_t partition);

/* Make a block of bytes in `extent`, which is held. NULL: out of memory. */
umx_outputs_block *umi_outputs_block_new(const umi_outputs_entry *entry,
                                         umi_outputs_extent      *extent,
                                         uint32_t partition, const void *data,
                                         uint64_t len);

/* Make the next block of an item that is read where it is. NULL: the item has
 * none, and is gone, or the fetch has failed. */
umx_outputs_block *umi_outputs_item_view(umx_outputs_fetch *fetch,
                                         umi_outputs_item  *item);

/* Make the next block of an item without its bytes; it is ready. */
void umi_outputs_item_name(umx_outputs_fetch *fetch, umi_outputs_item *item);

/* ---- group.c -------------------------------------------------------------
 */

/* Begin to read the next partitions of an item. */
void umi_outputs_item_read(umx_outputs_fetch *fetch, umi_outputs_item *item);

#endif
