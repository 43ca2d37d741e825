/* SPDX-License-Identifier: BSD-3-Clause */
/* reader.c: outputs that a reader has opened. What an output says of itself is
 * a claim: offsets are checked each time they are used. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "outputs/outputs.h"
#include "outputs/remote_read.h"
#include "util/hash.h"

/* ---- life ----------------------------------------------------------------
 */

void
umi_outputs_reader_hold(umx_outputs_reader *reader)
{
    umi_refs_get(&reader->refs);
}

void
umi_outputs_reader_put(umx_outputs_reader *reader)
{
    if (umi_refs_put(&reader->refs)) {
        umi_outputs_put(reader->outputs);
        umi_outputs_store_end(reader->store);
        free(reader->entries);
        free(reader);
    }
}

umx_status
umx_outputs_reader_create(umx_outputs *outputs, unsigned flags,
                          umx_outputs_reader **reader_p)
{
    UMI_OUTPUTS_LOCK(outputs);
    umx_status          status = umi_outputs_status(outputs);
    umx_outputs_reader *reader;

    if (status != UMX_OK) {
        return status;
    }
    reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    reader->entries = calloc(outputs->num_maps, sizeof(void *));
    reader->store   = umi_outputs_store_new();
    if (reader->entries == NULL || reader->store == NULL) {
        if (reader->store != NULL) {
            umi_outputs_store_end(reader->store);
        }
        free(reader->entries);
        free(reader);
        return UMX_ERR_NO_MEMORY;
    }
    umi_outputs_hold(outputs);
    umi_refs_init(&reader->refs);
    reader->outputs = outputs;
    reader->flags   = flags;
    umi_list_init(&reader->fetches);
    umi_list_append(&outputs->readers, &reader->node);
    *reader_p = reader;
    return UMX_OK;
}

/* Take an entry out of the reader's table. */
static void
forget(umx_outputs_reader *reader, uint32_t map)
{
    umi_outputs_entry *entry = reader->entries[map];

    reader->entries[map] = NULL;
    if (entry != NULL) {
        umi_outputs_entry_put(entry);
    }
}

void
umx_outputs_reader_forget(umx_outputs_reader *reader)
{
    UMI_OUTPUTS_LOCK(reader->outputs);

    for (uint32_t i = 0; i < reader->outputs->num_maps; i++) {
        forget(reader, i);
    }
}

void
umx_outputs_reader_destroy(umx_outputs_reader *reader)
{
    UMI_OUTPUTS_LOCK(reader->outputs);
    reader->is_gone = true;
    umi_outputs_fetches_end(reader, UMX_ERR_CLOSED);
    for (uint32_t i = 0; i < reader->outputs->num_maps; i++) {
        forget(reader, i);
    }
    umi_node_remove(&reader->node);
    umi_outputs_reader_put(reader);
}

void
umx_outputs_reader_query(umx_outputs_reader      *reader,
                         umx_outputs_reader_info *info)
{
    UMI_OUTPUTS_LOCK(reader->outputs);
    *info = reader->info;
}

/* ---- entries -------------------------------------------------------------
 */

void
umi_outputs_entry_put(umi_outputs_entry *entry)
{
    if (!umi_refs_put(&entry->refs)) {
        return;
    }
    if (entry->words != NULL &&
        (entry->whole == NULL || entry->words != entry->whole->data)) {
        free(entry->words);
    }
    if (entry->whole != NULL) {
        umi_outputs_extent_put(entry->whole);
    }
    if (entry->away != NULL) {
        umi_outputs_extent_put(entry->away);
    }
    umi_outputs_entry_close_file(entry);
    umi_outputs_reader_put(entry->reader);
    free(entry);
}

bool
umi_outputs_entry_drop(umi_outputs_entry *entry)
{
    umx_outputs_reader *reader = entry->reader;
    uint8_t             copy[UMI_OUTPUTS_PLACE];
    umi_outputs_where   where;

    if (reader->entries[entry->map] == entry) {
        forget(reader, entry->map);
    }
    return umi_outputs_table_find(reader->outputs, entry->map, &where, copy) &&
           where.epoch > entry->epoch;
}

static umi_outputs_entry *
new_entry(umx_outputs_reader *reader, uint32_t map,
          const umi_outputs_where *where)
{
    umi_outputs_entry *entry = calloc(1, sizeof(*entry));

    if (entry == NULL) {
        return NULL;
    }
    umi_outputs_reader_hold(reader);
    umi_refs_init(&entry->refs);
    entry->reader         = reader;
    entry->map            = map;
    entry->epoch          = where->epoch;
    entry->rank           = (int)where->rank;
    entry->kind           = where->kind;
    entry->flags          = where->flags & (uint8_t)~UMI_OUTPUTS_OVERFLOW;
    entry->len            = where->len;
    entry->num_partitions = reader->outputs->num_partitions;
    entry->fd             = -1;
    entry->head = umi_outputs_head_size(entry->num_partitions, entry->flags);
    entry->id   = (umi_outputs_file_id){.device   = where->device,
                                        .inode    = where->inode,
                                        .mtime_ns = where->mtime_ns,
                                        .len      = where->len};
    return entry;
}

/* The entry is open, or cannot be. */
static void
end_opening(umi_outputs_entry *entry, umx_outputs_trouble trouble,
            umx_status status, int error)
{
    if (status == UMX_OK &&
        !umi_outputs_head_is_whole(entry->words, entry->num_partitions,
                                   entry->flags)) {
        trouble = UMX_OUTPUTS_DAMAGED;
        status  = UMX_ERR_PROTOCOL;
    }
    if (status == UMX_OK) {
        entry->state = UMI_OUTPUTS_OPENED;
        entry->reader->info.num_opened++;
        return;
    }
    entry->state  = UMI_OUTPUTS_FAILED;
    entry->failed = (umx_outputs_failed){
        .trouble = trouble,
        .status  = status,
        .error   = error,
        .map     = entry->map,
        .epoch   = umi_outputs_attempt(entry->epoch),
        .rank    = entry->rank};
}

/* ---- the head ------------------------------------------------------------
 */

static void
on_head(umx_status status, void *arg)
{
    umi_outputs_entry  *entry  = arg;
    umx_outputs_reader *reader = entry->reader;
    bool is_elsewhere = (reader->flags & UMX_OUTPUTS_READER_FLAG_ELSEWHERE) !=
                        0;

    if (status == UMX_OK && !is_elsewhere && entry->away != NULL) {
        /* The connection may have been made meanwhile. */
        entry->away->data = umx_rkey_pointer(entry->away->rkey);
        if (entry->away->data != NULL) {
            entry->whole = entry->away;
            umi_outputs_extent_hold(entry->whole);
        }
    }
    end_opening(entry,
                (status == UMX_ERR_IO_ERROR) ? UMX_OUTPUTS_CHANGED :
                                               UMX_OUTPUTS_LOST,
                status, 0);
    if (!reader->is_gone) {
        umi_outputs_fetches_on_entry(reader, entry);
    }
    umi_outputs_entry_put(entry);
}

umx_status
umi_outputs_entry_get_head(umi_outputs_entry *entry)
{
    umx_status status;

    entry->words = malloc((size_t)entry->head);
    if (entry->words == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_outputs_transfer(entry, 0, entry->words, (size_t)entry->head,
                                  on_head, entry);
    if (status == UMX_INPROGRESS) {
        umi_refs_get(&entry->refs);
    }
    return status;
}

/* ---- memory --------------------------------------------------------------
 */

/* This rank's own output. */
static umx_status
open_own(umi_outputs_entry *entry)
{
    umi_outputs_output *output = umi_outputs_find_own(entry->reader->outputs,
                                                      entry->map, entry->epoch);

    if (output == NULL || output->memh == NULL || output->len != entry->len) {
        return UMX_ERR_STALE_KEY;
    }
    entry->whole = umi_outputs_extent_of_memh(output->memh);
    if (entry->whole == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    entry->words = entry->whole->data;
    return UMX_OK;
}

static umx_status
open_memory(umi_outputs_entry *entry, const umi_outputs_where *where)
{
    umx_outputs_reader     *reader = entry->reader;
    const umi_outputs_peer *peer   = &reader->outputs->peers[entry->rank];
    umx_rkey               *rkey;
    umx_status              status;

    if (entry->rank == reader->outputs->joint.rank) {
        return open_own(entry);
    }
    if (peer->table == NULL) {
        return UMX_ERR_UNREACHABLE;
    }
    status = umx_rkey_open(peer->ep, where->key, where->key_len, &rkey);
    if (status != UMX_OK) {
        return status;
    }
    if (umx_rkey_length(rkey) != entry->len) {
        umx_rkey_destroy(rkey);
        return UMX_ERR_PROTOCOL;
    }
    entry->away = umi_outputs_extent_of_rkey(rkey);
    if (entry->away == NULL) {
        umx_rkey_destroy(rkey);
        return UMX_ERR_NO_MEMORY;
    }
    if (entry->away->data == NULL ||
        (reader->flags & UMX_OUTPUTS_READER_FLAG_ELSEWHERE) != 0) {
        return umi_outputs_entry_get_head(entry);
    }
    entry->whole = entry->away;
    umi_outputs_extent_hold(entry->whole);
    entry->words = entry->whole->data;
    return UMX_OK;
}

/* ---- opening -------------------------------------------------------------
 */

/* Open an output of which key and path are known. */
static void
open_where(umi_outputs_entry *entry, const umi_outputs_where *where)
{
    umx_outputs_trouble trouble = UMX_OUTPUTS_LOST;
    umx_status          status;
    int                 error = 0;

    if (entry->len < entry->head) {
        trouble = UMX_OUTPUTS_DAMAGED;
        status  = UMX_ERR_PROTOCOL;
    } else if (entry->kind == UMX_OUTPUTS_MEMORY) {
        status  = open_memory(entry, where);
        trouble = (status == UMX_ERR_PROTOCOL) ? UMX_OUTPUTS_DAMAGED :
                                                 UMX_OUTPUTS_LOST;
    } else {
        status = umi_outputs_entry_open_file(entry, where, &trouble, &error);
    }
    if (status != UMX_INPROGRESS) {
        end_opening(entry, trouble, status, error);
    }
}

/* An overflow that is being read. */
typedef struct umi_outputs_overflow {
    umi_outputs_entry *entry; /* held */
    umx_rkey          *rkey;
    size_t             len;
    uint8_t            data[];
} umi_outputs_overflow;

/* Key and path have come. */
static void
end_overflow(umi_outputs_overflow *overflow, umx_status status)
{
    umi_outputs_entry *entry = overflow->entry;
    umi_outputs_where  where = {0};

    if (status != UMX_OK) {
        end_opening(entry, UMX_OUTPUTS_LOST, status, 0);
    } else if (!umi_outputs_overflow_decode(&where, overflow->data,
                                            overflow->len)) {
        end_opening(entry, UMX_OUTPUTS_DAMAGED, UMX_ERR_PROTOCOL, 0);
    } else {
        open_where(entry, &where);
    }
    umx_rkey_destroy(overflow->rkey);
    free(overflow);
}

static void
on_overflow(umx_request *req, umx_status status, void *arg)
{
    umi_outputs_entry  *entry  = ((umi_outputs_overflow *)arg)->entry;
    umx_outputs_reader *reader = entry->reader;

    (void)req;
    end_overflow(arg, status);
    if (entry->state != UMI_OUTPUTS_OPENING && !reader->is_gone) {
        umi_outputs_fetches_on_entry(reader, entry);
    }
    umi_outputs_entry_put(entry);
}

/* Read key and path from the memory that the slot names. */
static umx_status
get_overflow(umi_outputs_entry *entry, const umi_outputs_where *where)
{
    umx_outputs            *outputs = entry->reader->outputs;
    const umi_outputs_peer *peer    = &outputs->peers[entry->rank];
    umi_outputs_overflow   *overflow;
    umx_rkey               *rkey;
    umx_op_params           params;
    umx_rma_item            item;
    umx_request            *req;
    umx_status              status;
    uint64_t                len;

    if (peer->table == NULL) {
        return UMX_ERR_UNREACHABLE;
    }
    status = umx_rkey_open(peer->ep, where->key, where->key_len, &rkey);
    if (status != UMX_OK) {
        return status;
    }
    len      = umx_rkey_length(rkey);
    overflow = (len > UMI_OUTPUTS_OVERFLOW_MAX) ?
                   NULL :
                   malloc(sizeof(*overflow) + (size_t)len);
    if (overflow == NULL) {
        umx_rkey_destroy(rkey);
        return UMX_ERR_NO_MEMORY;
    }
    *overflow = (umi_outputs_overflow){
        .entry = entry, .rkey = rkey, .len = (size_t)len};
    params = umx_layer_op_params(on_overflow, overflow);
    item   = (umx_rma_item){
          .buf = umx_host_buffer(overflow->data, overflow->len)};
    status = umx_rma_get(rkey, &item, &params, &req);
    if (status == UMX_INPROGRESS) {
        umi_refs_get(&entry->refs);
        return status;
    }
    end_overflow(overflow, status);
    return UMX_INPROGRESS; /* its end has been noted */
}

static void
open_entry(umi_outputs_entry *entry, const umi_outputs_where *where)
{
    const umi_outputs_output *own;
    umi_outputs_where         whole = *where;
    umx_status                status;

    if ((where->flags & UMI_OUTPUTS_OVERFLOW) == 0) {
        open_where(entry, where);
        return;
    }
    if (entry->rank != entry->reader->outputs->joint.rank) {
        status = get_overflow(entry, where);
        if (status != UMX_INPROGRESS) {
            end_opening(entry, UMX_OUTPUTS_LOST, status, 0);
        }
        return;
    }
    own = umi_outputs_find_own(entry->reader->outputs, entry->map,
                               entry->epoch);
    if (own == NULL) {
        end_opening(entry, UMX_OUTPUTS_LOST, UMX_ERR_STALE_KEY, 0);
        return;
    }
    whole.path     = own->path;
    whole.path_len = (uint16_t)((own->path != NULL) ? strlen(own->path) : 0);
    open_where(entry, &whole);
}

umi_outputs_entry *
umi_outputs_entry_get(umx_outputs_reader *reader, uint32_t map,
                      umx_status *status_p)
{
    umx_outputs       *outputs = reader->outputs;
    umi_outputs_entry *entry   = reader->entries[map];
    uint64_t           epoch   = umi_outputs_table_epoch(outputs, map);
    uint8_t            copy[UMI_OUTPUTS_PLACE];
    umi_outputs_where  where;

    *status_p = UMX_OK;
    if (epoch == 0) {
        return NULL;
    }
    if (entry == NULL || entry->epoch != epoch) {
        if (!umi_outputs_table_find(outputs, map, &where, copy)) {
            return NULL;
        }
        if (entry == NULL || where.epoch > entry->epoch) {
            umi_outputs_entry *opened = new_entry(reader, map, &where);

            if (opened == NULL) {
                *status_p = UMX_ERR_NO_MEMORY;
                return NULL;
            }
            forget(reader, map);
            reader->entries[map] = opened;
            open_entry(opened, &where);
            entry = opened;
        }
    }
    umi_refs_get(&entry->refs);
    return entry;
}

/* ---- what is in it -------------------------------------------------------
 */

bool
umi_outputs_entry_range(const umi_outputs_entry *entry, uint32_t first,
                        uint32_t count, uint64_t *offset_p, uint64_t *len_p)
{
    uint64_t begin = umi_outputs_word(entry->words, first, entry->flags);
    uint64_t end   = umi_outputs_word(entry->words, (uint64_t)first + count,
                                      entry->flags);

    if (begin > end || end > entry->len - entry->head) {
        return false;
    }
    *offset_p = entry->head + begin;
    *len_p    = end - begin;
    return true;
}

bool
umi_outputs_entry_check(const umi_outputs_entry *entry, uint32_t partition,
                        const void *data, size_t len)
{
    return (entry->flags & UMX_OUTPUTS_FLAG_CHECKSUMS) == 0 ||
           umi_siphash(data, len) ==
               __atomic_load_n((const uint64_t *)entry->words +
                                   entry->num_partitions + 1 + partition,
                               __ATOMIC_RELAXED);
}
