/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch.c: blocks of partitions, on their way to the user.
 *
 *   item      a range of partitions of a map, on one of these lists:
 *
 *     missing --committed--> opening --> viewed   read where it is
 *                                   \--> to_read --> a group of it is read
 *
 *   group     partitions that follow each other and are read together
 *
 * An item whose output cannot be read begins again if another epoch of the
 * output has been committed meanwhile; else the fetch fails. */
#include "outputs/fetch.h"

#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

enum {
    MAX_BYTES = 48 << 20
};

/* ---- life ----------------------------------------------------------------
 */

/* Drop what has not been handed out. */
void
umi_outputs_fetch_drop(umx_outputs_fetch *fetch)
{
    umi_node *node;

    umi_outputs_items_free(&fetch->missing);
    umi_outputs_items_free(&fetch->opening);
    umi_outputs_items_free(&fetch->viewed);
    umi_outputs_items_free(&fetch->to_read);
    while ((node = umi_list_pop(&fetch->ready)) != NULL) {
        umx_outputs_block_release(
            umi_container_of(node, umx_outputs_block, node));
    }
}

void
umi_outputs_fetch_put(umx_outputs_fetch *fetch)
{
    if (umi_refs_put(&fetch->refs)) {
        umi_outputs_reader_put(fetch->reader);
        free(fetch);
    }
}

/* End the call that waits. */
static void
complete(umx_outputs_fetch *fetch, umx_status status)
{
    umx_request *req = fetch->req;

    fetch->req = NULL;
    umx_timer_stop(&fetch->timer);
    fetch->reader->info.waited_ns += umi_clock_ns() - fetch->waits_since_ns;
    umx_request_complete(req, status);
}

/* End a fetch: its user has gone, or the outputs have. */
static void
end(umx_outputs_fetch *fetch, umx_status status)
{
    fetch->status = status;
    umx_timer_stop(&fetch->doubts);
    umi_node_remove(&fetch->node);
    if (fetch->req != NULL) {
        complete(fetch, status);
    }
    umi_outputs_fetch_drop(fetch);
}

void
umi_outputs_fetches_end(umx_outputs_reader *reader, umx_status status)
{
    umi_node *node;

    while ((node = umi_list_pop(&reader->fetches)) != NULL) {
        end(umi_container_of(node, umx_outputs_fetch, node), status);
    }
}

void
umx_outputs_fetch_destroy(umx_outputs_fetch *fetch)
{
    UMI_OUTPUTS_LOCK(fetch->reader->outputs);
    end(fetch, UMX_ERR_CANCELED);
    umi_outputs_fetch_put(fetch);
}

/* ---- handing out ---------------------------------------------------------
 */

static bool
has_items(const umx_outputs_fetch *fetch)
{
    return !umi_list_is_empty(&fetch->missing) ||
           !umi_list_is_empty(&fetch->opening) ||
           !umi_list_is_empty(&fetch->viewed) ||
           !umi_list_is_empty(&fetch->to_read);
}

static umi_outputs_item *
first_item(const umi_list *list)
{
    return umi_list_is_empty(list) ?
               NULL :
               umi_container_of(list->next, umi_outputs_item, node);
}

/* Are blocks of the entry handed out without their bytes? */
static bool
is_for_later(const umx_outputs_fetch *fetch, const umi_outputs_entry *entry)
{
    return (fetch->flags & UMX_OUTPUTS_FETCH_FLAG_LATER) != 0 &&
           entry->away != NULL &&
           (entry->flags & UMX_OUTPUTS_FLAG_CHECKSUMS) == 0;
}

/* Read as much as there is room for, unless a block is ready that need not be
 * read. */
static void
read_all(umx_outputs_fetch *fetch)
{
    umi_outputs_item *item;

    while (fetch->status == UMX_OK &&
           (item = first_item(&fetch->to_read)) != NULL) {
        if (is_for_later(fetch, item->entry)) {
            if (!umi_list_is_empty(&fetch->ready)) {
                return;
            }
            umi_outputs_item_name(fetch, item);
        } else if (fetch->held == 0 || fetch->held < fetch->max_bytes) {
            umi_outputs_item_read(fetch, item);
        } else {
            return;
        }
    }
}

/* Take a block that is ready; or NULL. */
static umx_outputs_block *
take_ready(umx_outputs_fetch *fetch)
{
    umi_node          *node = umi_list_pop(&fetch->ready);
    umx_outputs_block *block;

    if (node == NULL) {
        return NULL;
    }
    block = umi_container_of(node, umx_outputs_block, node);
    if (block->info.place == UMX_OUTPUTS_COPIED) {
        fetch->held -= block->info.len;
        read_all(fetch);
    }
    return block;
}

static void
count_block(umx_outputs_reader *reader, const umx_outputs_block *block)
{
    umx_outputs_reader_info *info = &reader->info;
    size_t                   len  = block->info.len;

    info->num_blocks++;
    switch (block->info.place) {
    case UMX_OUTPUTS_OWN:
        info->own += len;
        return;
    case UMX_OUTPUTS_MAPPED:
        info->mapped += len;
        return;
    default:
        info->copied += len;
    }
}

/* End the call that waits, if it can end. */
/* Is there something to take, or nothing to wait for? */
static bool
is_served(const umx_outputs_fetch *fetch)
{
    return fetch->status != UMX_OK || !umi_list_is_empty(&fetch->ready) ||
           !umi_list_is_empty(&fetch->viewed) ||
           (!has_items(fetch) && fetch->num_reading == 0);
}

void
umi_outputs_fetch_serve(umx_outputs_fetch *fetch)
{
    read_all(fetch);
    if (fetch->req != NULL && is_served(fetch)) {
        complete(fetch, UMX_OK);
    }
}

/* Place the items whose output has come. True: there were some. */
static bool
place_missing(umx_outputs_fetch *fetch)
{
    const umx_outputs *outputs = fetch->reader->outputs;
    bool               is_new  = false;
    umi_list           all;
    umi_node          *node;

    umi_list_init(&all);
    umi_list_splice(&all, &fetch->missing);
    while (fetch->status == UMX_OK && (node = umi_list_pop(&all)) != NULL) {
        umi_outputs_item *item = umi_container_of(node, umi_outputs_item, node);

        if (umi_outputs_table_epoch(outputs, item->map) > item->doubted) {
            umi_outputs_item_place(fetch, item);
            is_new = true;
        } else {
            umi_list_append(&fetch->missing, &item->node);
        }
    }
    umi_outputs_items_free(&all); /* the fetch has failed */
    return is_new;
}

void
umi_outputs_fetches_step(umx_outputs_reader *reader)
{
    size_t    left = umi_list_count(&reader->fetches);
    umi_node *node;

    while ((node = umi_list_turn(&reader->fetches, &left)) != NULL) {
        umx_outputs_fetch *fetch = umi_container_of(node, umx_outputs_fetch,
                                                    node);

        if (place_missing(fetch) && fetch->req != NULL &&
            fetch->timeout_ns != UMX_TIMEOUT_INFINITE) {
            umx_timer_start(reader->outputs->joint.worker, &fetch->timer,
                            fetch->timeout_ns);
        }
        umi_outputs_fetch_serve(fetch);
    }
}

void
umi_outputs_fetches_on_entry(umx_outputs_reader *reader,
                             umi_outputs_entry  *entry)
{
    size_t    left = umi_list_count(&reader->fetches);
    umi_node *fetch_node, *node;

    while ((fetch_node = umi_list_turn(&reader->fetches, &left)) != NULL) {
        umx_outputs_fetch *fetch = umi_container_of(fetch_node,
                                                    umx_outputs_fetch, node);
        umi_list           all;

        umi_list_init(&all);
        umi_list_splice(&all, &fetch->opening);
        while (fetch->status == UMX_OK && (node = umi_list_pop(&all)) != NULL) {
            umi_outputs_item *item = umi_container_of(node, umi_outputs_item,
                                                      node);

            if (item->entry == entry) {
                umi_outputs_item_place(fetch, item);
            } else {
                umi_list_append(&fetch->opening, &item->node);
            }
        }
        umi_outputs_items_free(&all);
        umi_outputs_fetch_serve(fetch);
    }
}

static void
on_timeout(umx_timer *timer)
{
    umx_outputs_fetch *fetch = umi_container_of(timer, umx_outputs_fetch,
                                                timer);

    if (fetch->req != NULL) {
        complete(fetch, UMX_ERR_TIMED_OUT);
    }
}

/* Fail a fetch of maps that are doubted, and that nobody has committed again.
 */
static void
on_doubts(umx_timer *timer)
{
    umx_outputs_fetch *fetch      = umi_container_of(timer, umx_outputs_fetch,
                                                     doubts);
    bool               is_doubted = false;

    UMI_LIST_FOREACH(node, &fetch->missing) {
        is_doubted |= umi_container_of(node, umi_outputs_item, node)->doubted !=
                      0;
    }
    if (is_doubted) {
        umi_outputs_fetch_fail(fetch, &fetch->doubt);
        umi_outputs_fetch_serve(fetch);
    }
}

/* ---- public --------------------------------------------------------------
 */

static umx_status
check_params(const umx_outputs *outputs, const umx_outputs_fetch_params *params)
{
    if (params->first > outputs->num_partitions ||
        params->count > outputs->num_partitions - params->first) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    for (size_t i = 0;
         (params->field_mask & UMX_OUTPUTS_FETCH_FIELD_MAPS) != 0 &&
         i < params->num_maps;
         i++) {
        if (params->maps[i] >= outputs->num_maps) {
            return UMX_ERR_OUT_OF_RANGE;
        }
    }
    return umi_outputs_status(outputs);
}

static umx_outputs_fetch *
new_fetch(umx_outputs_reader *reader, const umx_outputs_fetch_params *params)
{
    umx_outputs_fetch *fetch  = calloc(1, sizeof(*fetch));
    uint64_t           fields = params->field_mask;

    if (fetch == NULL) {
        return NULL;
    }
    umi_outputs_reader_hold(reader);
    umi_list_init(&fetch->missing);
    umi_list_init(&fetch->opening);
    umi_list_init(&fetch->viewed);
    umi_list_init(&fetch->to_read);
    umi_list_init(&fetch->ready);
    umx_timer_init(&fetch->timer, on_timeout);
    umx_timer_init(&fetch->doubts, on_doubts);
    umi_refs_init(&fetch->refs);
    fetch->reader     = reader;
    fetch->max_bytes  = ((fields & UMX_OUTPUTS_FETCH_FIELD_BYTES) != 0) ?
                            params->max_bytes :
                            MAX_BYTES;
    fetch->timeout_ns = ((fields & UMX_OUTPUTS_FETCH_FIELD_TIMEOUT) != 0) ?
                            params->timeout_ns :
                            UMX_TIMEOUT_INFINITE;
    fetch->flags      = ((fields & UMX_OUTPUTS_FETCH_FIELD_FLAGS) != 0) ?
                            params->flags :
                            0;
    umi_list_append(&reader->fetches, &fetch->node);
    return fetch;
}

umx_status
umx_outputs_fetch_create(umx_outputs_reader             *reader,
                         const umx_outputs_fetch_params *params,
                         umx_outputs_fetch             **fetch_p)
{
    UMI_OUTPUTS_LOCK(reader->outputs);
    bool   has_maps = (params->field_mask & UMX_OUTPUTS_FETCH_FIELD_MAPS) != 0;
    size_t count    = has_maps ? params->num_maps : reader->outputs->num_maps;
    umx_status         status = check_params(reader->outputs, params);
    umx_outputs_fetch *fetch;

    if (status != UMX_OK) {
        return status;
    }
    fetch = new_fetch(reader, params);
    for (size_t i = 0; fetch != NULL && i < count; i++) {
        umi_outputs_item *item = umi_outputs_item_new(
            has_maps ? params->maps[i] : (uint32_t)i, params->first,
            params->first + params->count);

        if (item == NULL) {
            umx_outputs_fetch_destroy(fetch);
            return UMX_ERR_NO_MEMORY;
        }
        umi_list_append(&fetch->missing, &item->node);
    }
    if (fetch == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    (void)place_missing(fetch);
    read_all(fetch);
    *fetch_p = fetch;
    return UMX_OK;
}

umx_status
umx_outputs_take(umx_outputs_fetch *fetch, umx_outputs_block **block_p)
{
    UMI_OUTPUTS_LOCK(fetch->reader->outputs);
    umx_outputs_block *block;
    umi_outputs_item  *item;

    read_all(fetch);
    block = take_ready(fetch);
    while (block == NULL && (item = first_item(&fetch->viewed)) != NULL) {
        block = umi_outputs_item_view(fetch, item);
    }
    if (block != NULL) {
        count_block(fetch->reader, block);
    } else if (fetch->status != UMX_OK) {
        return fetch->status;
    } else if (has_items(fetch) || fetch->num_reading != 0) {
        return UMX_INPROGRESS;
    }
    *block_p = block;
    return UMX_OK;
}

static void
cancel(umx_request *req)
{
    complete(UMX_REQUEST_OF(req, umx_outputs_fetch), UMX_ERR_CANCELED);
}

static const umx_request_class wait_class = {.name = "wait", .cancel = cancel};

umx_status
umx_outputs_wait(umx_outputs_fetch *fetch, const umx_op_params *op,
                 umx_request **req_p)
{
    umx_outputs *outputs = fetch->reader->outputs;
    UMI_OUTPUTS_LOCK(outputs);

    if (fetch->req != NULL) {
        return UMX_ERR_BUSY;
    }
    read_all(fetch);
    if (is_served(fetch)) {
        return UMX_OK;
    }
    fetch->req = umx_request_create(outputs->joint.worker, &wait_class, op);
    if (fetch->req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    UMX_REQUEST_OF(fetch->req, umx_outputs_fetch) = fetch;
    fetch->waits_since_ns                         = umi_clock_ns();
    if (fetch->timeout_ns != UMX_TIMEOUT_INFINITE) {
        umx_timer_start(outputs->joint.worker, &fetch->timer,
                        fetch->timeout_ns);
    }
    *req_p = fetch->req;
    return UMX_INPROGRESS;
}

size_t
umx_outputs_missing(umx_outputs_fetch *fetch, uint32_t *maps, size_t size)
{
    UMI_OUTPUTS_LOCK(fetch->reader->outputs);
    size_t count = 0;

    UMI_LIST_FOREACH(node, &fetch->missing) {
        const umi_outputs_item *item = umi_container_of(node, umi_outputs_item,
                                                        node);

        if (item->doubted != 0) {
            continue;
        }
        if (count < size) {
            maps[count] = item->map;
        }
        count++;
    }
    return count;
}

bool
umx_outputs_failure(umx_outputs_fetch *fetch, umx_outputs_failed *failed)
{
    UMI_OUTPUTS_LOCK(fetch->reader->outputs);
    *failed = fetch->failed;
    return fetch->has_failed;
}
