/* SPDX-License-Identifier: BSD-3-Clause */
/* insert.c: chunks that are inserted here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shuffle/shuffle.h"
#include "util/count.h"
#include "util/trace.h"

static const umx_request_class insert_class = {
    .name = "insert",
};

/* ---- keys ----------------------------------------------------------------
 */

/* Find the number that a memory has for the rank, which has its key; or a free
 * number, whose `memh` is NULL. False: out of memory. */
static bool
find_sent_key(umi_shuffle_peer *peer, const umx_memh *memh, uint32_t *key)
{
    uint32_t              free_one = peer->num_sent_keys, size;
    umi_shuffle_sent_key *sent_keys;

    if (peer->last_sent_key < peer->num_sent_keys &&
        peer->sent_keys[peer->last_sent_key].memh == memh) {
        *key = peer->last_sent_key;
        return true;
    }
    for (uint32_t i = 0; i < peer->num_sent_keys; i++) {
        if (peer->sent_keys[i].memh == memh) {
            *key = peer->last_sent_key = i;
            return true;
        }
        if (peer->sent_keys[i].memh == NULL) {
            free_one = i;
        }
    }
    if (free_one == peer->num_sent_keys) {
        size      = (peer->num_sent_keys == 0) ? 8 : 2 * peer->num_sent_keys;
        sent_keys = realloc(peer->sent_keys, size * sizeof(*sent_keys));
        if (sent_keys == NULL) {
            return false;
        }
        memset(sent_keys + peer->num_sent_keys, 0,
               (size - peer->num_sent_keys) * sizeof(*sent_keys));
        peer->sent_keys     = sent_keys;
        peer->num_sent_keys = size;
    }
    *key = peer->last_sent_key = free_one;
    return true;
}

/* A chunk of that memory is over: with the last one, the rank is to forget the
 * key. */
static void
put_sent_key(umi_shuffle_peer *peer, uint32_t key)
{
    umi_shuffle_sent_key *sent_key = &peer->sent_keys[key];
    umi_shuffle_record forget = {.kind = UMI_SHUFFLE_RECORD_FORGET, .key = key};

    if (UMI_DECREMENT(sent_key->num_inserts) != 0) {
        return;
    }
    umx_memh_put(sent_key->memh);
    sent_key->memh = NULL;
    if (peer->sh->status == UMX_OK && !peer->is_gone &&
        umi_shuffle_peer_tell(peer, &forget, 1) != UMX_OK) {
        umi_shuffle_break(peer->sh, "no memory for a message");
    }
}

/* ---- life ----------------------------------------------------------------
 */

void
umi_shuffle_insert_taken(umi_shuffle_insert *insert)
{
    if (!insert->is_taken) {
        insert->is_taken = true;
        UMI_DECREMENT(insert->sh->num_untaken);
    }
}

/* No peer reads the chunk in the spill file any more. */
static void
end_lent(umi_shuffle_insert *insert)
{
    if (insert->extent != NULL) {
        UMI_DECREMENT(insert->extent->num_lent);
        umi_shuffle_extent_close(insert->extent);
    }
}

void
umi_shuffle_insert_end(umi_shuffle_insert *insert, umx_status status)
{
    umx_shuffler *sh = insert->sh;

    umi_shuffle_insert_taken(insert);
    umi_node_remove(&insert->node);
    if (insert->is_counted) {
        sh->held_out -= insert->len;
    }
    if (insert->peer != NULL) {
        umi_slots_remove(&insert->peer->inserts, insert->id);
        put_sent_key(insert->peer, insert->key);
    }
    if (insert->req != NULL) {
        umx_request_complete(insert->req, status);
    }
    end_lent(insert);
    umx_memh_put(insert->memh);
    free(insert);
    umi_shuffle_put(sh);
}

void
umi_shuffle_inserts_end(umx_shuffler *sh, const umi_shuffle_peer *peer,
                        umx_status status)
{
    size_t    left = umi_list_count(&sh->inserts);
    umi_node *node;

    while ((node = umi_list_turn(&sh->inserts, &left)) != NULL) {
        umi_shuffle_insert *insert = umi_container_of(node, umi_shuffle_insert,
                                                      node);

        if (peer != NULL && insert->peer != peer) {
            continue;
        }
        if (insert->chunk == NULL) {
            umi_shuffle_insert_end(insert, status);
        } else if (insert->req != NULL) {
            umx_request_complete(insert->req, status);
            insert->req = NULL;
        }
    }
}

static umi_shuffle_insert *
new_insert(umx_shuffler *sh, umx_memh *memh, size_t len)
{
    umi_shuffle_insert *insert = calloc(1, sizeof(*insert));

    if (insert == NULL) {
        return NULL;
    }
    insert->sh   = sh;
    insert->memh = memh;
    insert->len  = len;
    umx_memh_hold(memh);
    umi_shuffle_hold(sh);
    umi_list_append(&sh->inserts, &insert->node);
    sh->num_untaken++;
    return insert;
}

/* Free an insert that the rank has not been told of. Returns `status`. */
static umx_status
give_up(umi_shuffle_insert *insert, umx_status status)
{
    umx_shuffler *sh = insert->sh;

    umi_shuffle_insert_taken(insert);
    umi_node_remove(&insert->node);
    if (insert->id != 0) {
        umi_slots_remove(&insert->peer->inserts, insert->id);
    }
    if (insert->req != NULL) {
        umx_request_discard(insert->req);
    }
    end_lent(insert);
    umx_memh_put(insert->memh);
    free(insert);
    umi_shuffle_put(sh);
    return status;
}

/* Tell the owner of the partition where its bytes are. */
static umx_status
announce(umi_shuffle_insert *insert, uint32_t partition, size_t offset)
{
    umi_shuffle_peer     *peer = insert->peer;
    umi_shuffle_record    records[2];
    size_t                count = 0, len;
    umi_shuffle_sent_key *sent_key;
    umx_status            status;

    insert->id = umi_slots_add(&peer->inserts, insert, peer->nonce++);
    if (insert->id == 0 || !find_sent_key(peer, insert->memh, &insert->key)) {
        return UMX_ERR_NO_MEMORY;
    }
    sent_key = &peer->sent_keys[insert->key];
    if (sent_key->memh == NULL) {
        records[count].kind  = UMI_SHUFFLE_RECORD_KEY;
        records[count].key   = insert->key;
        records[count].data  = umx_memh_key(insert->memh, &len);
        records[count++].len = len;
    }
    records[count++] = (umi_shuffle_record){.kind = UMI_SHUFFLE_RECORD_CHUNK,
                                            .id   = insert->id,
                                            .partition = partition,
                                            .key       = insert->key,
                                            .offset    = offset,
                                            .len       = insert->len};
    status           = umi_shuffle_peer_tell(peer, records, count);
    if (status == UMX_OK) {
        if (sent_key->memh == NULL) {
            sent_key->memh = insert->memh;
            umx_memh_hold(insert->memh);
        }
        sent_key->num_inserts++;
    }
    return status;
}

/* ---- small chunks --------------------------------------------------------
 */

static umx_status
insert_small(umx_shuffler *sh, uint32_t partition, const void *data, size_t len)
{
    umi_shuffle_peer  *peer   = &sh->peers[sh->owners[partition]];
    umi_shuffle_record record = {.kind      = UMI_SHUFFLE_RECORD_INLINE,
                                 .partition = partition,
                                 .data      = data,
                                 .len       = len};
    umx_shuffle_chunk *chunk;
    umx_status         status;

    if (peer->rank != sh->rank) {
        status = umi_shuffle_peer_tell(peer, &record, 1);
        umi_shuffle_peer_flush(peer);
        return status;
    }
    chunk = umi_shuffle_chunk_copy(sh, partition, sh->rank, data, len);
    if (chunk == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    sh->info.spilled_out += (chunk->place == UMX_CHUNK_SPILLED) ? len : 0;
    umi_shuffle_chunk_landed(chunk);
    return UMX_OK;
}

/* ---- chunks in the spill file --------------------------------------------
 */

static void
free_memory(void *arg)
{
    umi_shuffle_extent_put(arg);
}

/* Let peers read the extent. */
static umx_status
register_extent(umx_shuffler *sh, umi_shuffle_extent *extent)
{
    umx_memh_params params = {.field_mask = UMX_MEMH_FIELD_FLAGS |
                                            UMX_MEMH_FIELD_ON_FREE,
                              .flags   = UMX_MEMH_FLAG_READONLY,
                              .on_free = free_memory,
                              .arg     = extent};
    umx_buffer      buf    = umx_host_buffer(extent->data, extent->size);
    umx_status      status;

    if (extent->memh != NULL) {
        return UMX_OK;
    }
    status = umx_memh_register(umx_worker_get_context(sh->worker), &buf,
                               &params, &extent->memh);
    if (status == UMX_OK) {
        umi_shared_refs_get(&extent->refs);
    }
    return status;
}

/* Tell the owner of the partition, another rank, of `len` bytes at `data`. */
static umx_status
announce_spilled(umx_shuffler *sh, uint32_t partition,
                 umi_shuffle_extent *extent, const void *data, size_t len)
{
    umi_shuffle_insert *insert;
    umx_status          status = register_extent(sh, extent);

    if (status != UMX_OK) {
        return status;
    }
    insert = new_insert(sh, extent->memh, len);
    if (insert == NULL) {
        umi_shuffle_extent_close(extent);
        return UMX_ERR_NO_MEMORY;
    }
    insert->extent = extent;
    insert->peer   = &sh->peers[sh->owners[partition]];
    extent->num_lent++;
    status = announce(
        insert, partition,
        (size_t)((const char *)data - (const char *)extent->data));
    if (status != UMX_OK) {
        return give_up(insert, status);
    }
    umi_shuffle_peer_flush(insert->peer);
    return UMX_OK;
}

/* Add `len` bytes at `data` to a partition of this rank. */
static umx_status
keep_spilled(umx_shuffler *sh, uint32_t partition, umi_shuffle_extent *extent,
             void *data, size_t len)
{
    umx_shuffle_chunk *chunk = umi_shuffle_chunk_new(sh, partition, sh->rank,
                                                     0);

    if (chunk == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    chunk->place  = UMX_CHUNK_SPILLED;
    chunk->data   = data;
    chunk->len    = len;
    chunk->extent = extent;
    umi_shared_refs_get(&extent->refs);
    umi_shuffle_chunk_landed(chunk);
    return UMX_OK;
}

static umx_status
insert_spilled(umx_shuffler *sh, uint32_t partition, const void *data,
               size_t len)
{
    umi_shuffle_extent *extent;
    void               *copy;
    umx_status          status;
    int error = umi_shuffle_spill_alloc(sh->spill, UMI_SHUFFLE_OUT, len,
                                        &extent, &copy);

    if (error != 0) {
        return umi_shuffle_note_error(sh, error);
    }
    memcpy(copy, data, len);
    umi_shuffle_extent_written(extent);
    status = (sh->owners[partition] == sh->rank) ?
                 keep_spilled(sh, partition, extent, copy, len) :
                 announce_spilled(sh, partition, extent, copy, len);
    umi_shuffle_extent_put(extent); /* that of the allocation */
    return status;
}

/* ---- chunks that are lent ------------------------------------------------
 */

/* Add the chunk to the partition, which this rank owns. */
static umx_status
keep(umi_shuffle_insert *insert, uint32_t partition, const void *data)
{
    umx_shuffle_chunk *chunk = umi_shuffle_chunk_new(insert->sh, partition,
                                                     insert->sh->rank, 0);

    if (chunk == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    chunk->place  = UMX_CHUNK_OWN;
    chunk->data   = (void *)(uintptr_t)data;
    chunk->len    = insert->len;
    chunk->insert = insert;
    insert->chunk = chunk;
    umi_shuffle_insert_taken(insert);
    umi_shuffle_chunk_landed(chunk);
    return UMX_OK;
}

static umx_status
insert_lent(umx_shuffler *sh, uint32_t partition, umx_memh *memh, size_t offset,
            size_t len, const umx_op_params *params, umx_request **req_p)
{
    umi_shuffle_peer   *peer   = &sh->peers[sh->owners[partition]];
    umi_shuffle_insert *insert = new_insert(sh, memh, len);
    umx_status          status;

    if (insert == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    insert->req = umx_request_create(sh->worker, &insert_class, params);
    if (insert->req == NULL) {
        return give_up(insert, UMX_ERR_NO_MEMORY);
    }
    if (UMI_IS_OBSERVED()) {
        umx_request_describe(insert->req, "shuffle_insert", len, partition,
                             peer->rank);
    }
    if (peer->rank == sh->rank) {
        status = keep(insert, partition,
                      (const char *)umx_memh_buffer(memh)->data + offset);
    } else {
        insert->peer = peer;
        status       = announce(insert, partition, offset);
    }
    if (status != UMX_OK) {
        return give_up(insert, status);
    }
    insert->is_counted = true;
    sh->held_out += len;
    *req_p = insert->req;
    umi_shuffle_peer_flush(peer);
    return UMX_INPROGRESS;
}

/* ---- inserting -----------------------------------------------------------
 */

static umx_status
check(umx_shuffler *sh, uint32_t partition, const umx_memh *memh, size_t offset,
      size_t len)
{
    const umx_buffer *buf    = umx_memh_buffer(memh);
    umx_status        status = umi_shuffle_status(sh);

    if (status != UMX_OK) {
        return status;
    }
    if (partition >= sh->num_partitions || offset > buf->len ||
        len > buf->len - offset) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (sh->partitions[partition].is_finished_here) {
        return UMX_ERR_INVALID_PARAM;
    }
    return (buf->memtype > UMX_MEMTYPE_HOST || buf->layout != NULL) ?
               UMX_ERR_UNSUPPORTED :
               UMX_OK;
}

/* Remember the first insert that has failed, and not for its arguments. */
static void
note_lost(umx_shuffler *sh, umx_status status)
{
    if (sh->lost != UMX_OK) {
        return;
    }
    sh->lost = status;
    if (status == UMX_ERR_IO_ERROR) {
        sh->lost_error = umx_shuffler_spill_error(sh);
    }
}

umx_status
umx_shuffler_insert(umx_shuffler *sh, uint32_t partition, umx_memh *memh,
                    size_t offset, size_t len, const umx_op_params *params,
                    umx_request **req_p)
{
    UMI_SHUFFLE_LOCK(sh);
    const char *data   = (const char *)umx_memh_buffer(memh)->data + offset;
    umx_status  status = check(sh, partition, memh, offset, len);

    if (status != UMX_OK) {
        return status;
    }
    if (len <= UMI_SHUFFLE_INLINE_MAX) {
        status = insert_small(sh, partition, data, len);
    } else if (sh->spill != NULL &&
               (sh->held_out > sh->budget || len > sh->budget - sh->held_out)) {
        status = insert_spilled(sh, partition, data, len);
        sh->info.spilled_out += (status == UMX_OK) ? len : 0;
    } else {
        status = insert_lent(sh, partition, memh, offset, len, params, req_p);
    }
    if (status >= 0) {
        sh->info.num_inserted++;
        sh->info.inserted += len;
        umi_shuffle_note_held(sh);
    } else {
        note_lost(sh, status);
    }
    return status;
}

umx_status
umx_shuffler_insert_finished(umx_shuffler *sh, uint32_t partition)
{
    UMI_SHUFFLE_LOCK(sh);
    umx_status status = umi_shuffle_status(sh);

    if (status != UMX_OK) {
        return status;
    }
    if (partition != UMX_PARTITION_ALL && partition >= sh->num_partitions) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    return umi_shuffle_finish(sh, partition);
}
