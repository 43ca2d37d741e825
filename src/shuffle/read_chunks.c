/* SPDX-License-Identifier: BSD-3-Clause */
/* read_chunks.c: read chunks whose memory cannot be mapped, as far as there is
 * room.
 *
 * Small chunks of one memory are read together. Those that are neighbours in
 * the spill files of both ranks are one transfer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "shuffle/shuffle.h"
#include "util/count.h"

enum {
    BATCH       = 128,    /* chunks that are read together */
    BATCH_BYTES = 1 << 18 /* what is more begins another batch */
};

/* Chunks of one rank in one memory that are being read. */
typedef struct umi_shuffle_batch {
    umi_shuffle_peer  *peer;
    size_t             count;
    umx_shuffle_chunk *chunks[BATCH];
} umi_shuffle_batch;

void
umi_shuffle_key_put(umi_shuffle_key *key)
{
    if (umi_refs_put(&key->refs)) {
        umx_rkey_destroy(key->rkey);
        free(key);
    }
}

void
umi_shuffle_note_held(umx_shuffler *sh)
{
    size_t held = sh->held_in + sh->held_small + sh->held_out;

    if (held > sh->info.most_held) {
        sh->info.most_held = held;
    }
}

/* Get memory for the bytes of a chunk. UMX_ERR_EXCEEDS_LIMIT: there is no room
 * now. */
static umx_status
get_room(umx_shuffle_chunk *chunk)
{
    umx_shuffler *sh   = chunk->sh;
    size_t        held = sh->held_in + sh->held_small;
    int           error;

    if (sh->held_in == 0 ||
        (held <= sh->budget && chunk->len <= sh->budget - held)) {
        chunk->data = malloc(chunk->len);
        if (chunk->data == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
        chunk->is_counted = true;
        sh->held_in += chunk->len;
        umi_shuffle_note_held(sh);
        return UMX_OK;
    }
    if (sh->spill == NULL) {
        return UMX_ERR_EXCEEDS_LIMIT;
    }
    error = umi_shuffle_spill_alloc(sh->spill, UMI_SHUFFLE_IN, chunk->len,
                                    &chunk->extent, &chunk->data);
    if (error != 0) {
        return umi_shuffle_note_error(sh, error);
    }
    chunk->place = UMX_CHUNK_SPILLED;
    return UMX_OK;
}

/* The bytes of a chunk have come, or will not come. */
static void
end_fetch(umx_shuffle_chunk *chunk, umx_status status)
{
    umx_shuffler     *sh   = chunk->sh;
    umi_shuffle_peer *peer = chunk->peer;
    umi_shuffle_key  *key  = chunk->key;
    char              why[128];

    peer->fetching -= chunk->len;
    UMI_DECREMENT(sh->num_fetching);
    chunk->is_coming = false;
    if (chunk->is_dropped) {
        umi_shuffle_chunk_drop(chunk);
        return;
    }
    if (status != UMX_OK) {
        (void)snprintf(why, sizeof(why), "a chunk could not be read: %s",
                       umx_status_string(status));
        if (!umx_comm_doubt(sh->comm, peer->rank, status, why)) {
            umi_shuffle_break(sh, "a chunk of rank %d could not be read: %s",
                              peer->rank, umx_status_string(status));
        }
        return;
    }
    chunk->key = NULL;
    umi_shuffle_key_put(key);
    if (chunk->place == UMX_CHUNK_SPILLED) {
        umi_shuffle_extent_written(chunk->extent);
    }
    umi_shuffle_peer_say(peer, UMI_SHUFFLE_RECORD_RELEASED, chunk->id);
    if (sh->status == UMX_OK) { /* or the chunk has been dropped */
        umi_shuffle_chunk_landed(chunk);
    }
}

static void
end_batch(umi_shuffle_batch *batch, umx_status status)
{
    for (size_t i = 0; i < batch->count; i++) {
        end_fetch(batch->chunks[i], status);
    }
    free(batch);
}

static void
on_fetched(umx_request *req, umx_status status, void *arg)
{
    umi_shuffle_batch *batch = arg;
    umx_shuffler      *sh    = batch->peer->sh;

    (void)req;
    umi_shuffle_hold(sh);
    end_batch(batch, status);
    if (sh->status == UMX_OK) {
        umi_shuffle_fetch_all(sh);
        umi_shuffle_flush(sh);
        umi_shuffle_check_end(sh);
    }
    umi_shuffle_put(sh);
}

/* Make an item longer by a chunk that follows it in both memories, with a
 * gap of less than the alignment of the spill file. */
static bool
extend(umx_rma_item *item, const umx_shuffle_chunk *chunk)
{
    uint64_t distance = chunk->offset - item->offset;

    if (chunk->offset < item->offset + item->buf.len ||
        distance - item->buf.len >= UMI_SHUFFLE_SPILL_ALIGN ||
        (char *)item->buf.data + distance != (char *)chunk->data) {
        return false;
    }
    item->buf.len = (size_t)distance + chunk->len;
    return true;
}

static void
begin(umi_shuffle_batch *batch)
{
    umx_shuffler *sh     = batch->peer->sh;
    umx_op_params params = umx_layer_op_params(on_fetched, batch);
    umx_rma_item  items[BATCH];
    umx_request  *req;
    umx_status    status;
    size_t        count = 0;

    for (size_t i = 0; i < batch->count; i++) {
        const umx_shuffle_chunk *chunk = batch->chunks[i];

        if (count == 0 || chunk->extent == NULL ||
            chunk->extent != batch->chunks[i - 1]->extent ||
            !extend(&items[count - 1], chunk)) {
            items[count].offset = chunk->offset;
            items[count++].buf  = umx_host_buffer(chunk->data, chunk->len);
        }
    }
    status = umx_rma_get_many(batch->chunks[0]->key->rkey, items, count,
                              &params, &req);
    if (status != UMX_INPROGRESS) {
        umi_shuffle_hold(sh);
        end_batch(batch, status);
        umi_shuffle_put(sh);
    }
}

static bool
has_credit(const umi_shuffle_peer *peer, const umx_shuffle_chunk *chunk)
{
    size_t credit = peer->sh->peer_credit;

    return peer->fetching == 0 ||
           (peer->fetching <= credit && chunk->len <= credit - peer->fetching);
}

/* Take the next chunks of one memory for which there is room now. */
static void
collect(umi_shuffle_batch *batch)
{
    umi_shuffle_peer *peer   = batch->peer;
    size_t            nbytes = 0;

    while (batch->count < BATCH && nbytes < BATCH_BYTES &&
           !umi_list_is_empty(&peer->to_fetch)) {
        umx_shuffle_chunk *chunk = umi_container_of(peer->to_fetch.next,
                                                    umx_shuffle_chunk, node);
        umx_status         status;

        if ((batch->count != 0 && chunk->key != batch->chunks[0]->key) ||
            !has_credit(peer, chunk)) {
            return;
        }
        status = get_room(chunk);
        if (status != UMX_OK) {
            peer->sh->shortage = status;
            return;
        }
        umi_node_remove(&chunk->node);
        chunk->is_coming = true;
        peer->fetching += chunk->len;
        peer->sh->num_fetching++;
        nbytes += chunk->len;
        batch->chunks[batch->count++] = chunk;
    }
}

/* Read chunks of one rank. */
static void
fetch(umi_shuffle_peer *peer)
{
    umx_shuffler *sh = peer->sh;

    while (sh->status == UMX_OK && !umi_list_is_empty(&peer->to_fetch)) {
        umi_shuffle_batch *batch = calloc(1, sizeof(*batch));

        if (batch == NULL) {
            sh->shortage = UMX_ERR_NO_MEMORY;
            return;
        }
        batch->peer = peer;
        collect(batch);
        if (batch->count == 0) {
            free(batch);
            return;
        }
        begin(batch);
    }
}

static bool
has_to_fetch(const umx_shuffler *sh)
{
    for (int i = 0; i < sh->size; i++) {
        if (!umi_list_is_empty(&sh->peers[i].to_fetch)) {
            return true;
        }
    }
    return false;
}

void
umi_shuffle_fetch_all(umx_shuffler *sh)
{
    sh->stall = UMX_INPROGRESS;
    for (int i = 0; i < sh->size; i++) {
        fetch(&sh->peers[i]);
    }
    if (sh->status == UMX_OK && sh->num_fetching == 0 && has_to_fetch(sh)) {
        sh->stall = sh->shortage;
        umi_shuffle_waits_serve(sh);
    }
}
