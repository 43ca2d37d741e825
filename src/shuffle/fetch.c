/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch.c: read chunks whose memory cannot be mapped, as far as there is room.
 */
#include <errno.h>
#include <stdlib.h>

#include "shuffle/shuffle.h"

void
umi_shuffle_key_put(umi_shuffle_key *key)
{
    if (--key->refs == 0) {
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
    error = umi_shuffle_spill_alloc(sh->spill, chunk->len, &chunk->data,
                                    &chunk->spill_at);
    if (error != 0) {
        sh->error = error;
        return (error == ENOMEM) ? UMX_ERR_NO_MEMORY : UMX_ERR_IO_ERROR;
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

    peer->fetching -= chunk->len;
    sh->num_fetching--;
    chunk->is_coming = false;
    if (chunk->is_dropped) {
        umi_shuffle_chunk_drop(chunk);
        return;
    }
    if (status != UMX_OK) {
        umi_shuffle_break(sh, "a chunk of rank %d could not be read: %s",
                          peer->rank, umx_status_string(status));
        return;
    }
    chunk->key = NULL;
    umi_shuffle_key_put(key);
    if (chunk->place == UMX_CHUNK_SPILLED) {
        umi_shuffle_spill_let_go(chunk->data, chunk->len);
    }
    umi_shuffle_peer_say(peer, UMI_SHUFFLE_RECORD_RELEASED, chunk->id);
    if (sh->status == UMX_OK) { /* or the chunk has been dropped */
        umi_shuffle_chunk_landed(chunk);
    }
}

static void
on_fetched(umx_request *req, umx_status status, void *arg)
{
    umx_shuffle_chunk *chunk = arg;
    umx_shuffler      *sh    = chunk->sh;

    (void)req;
    umi_shuffle_hold(sh);
    end_fetch(chunk, status);
    if (sh->status == UMX_OK) {
        umi_shuffle_fetch_all(sh);
        umi_shuffle_flush(sh);
        umi_shuffle_check_end(sh);
    }
    umi_shuffle_put(sh);
}

static void
begin(umx_shuffle_chunk *chunk)
{
    umi_shuffle_peer *peer   = chunk->peer;
    umx_op_params     params = umi_shuffle_op(on_fetched, chunk);
    umx_rma_item      item   = {chunk->offset,
                                umx_host_buffer(chunk->data, chunk->len)};
    umx_request      *req;
    umx_status        status;

    umi_node_remove(&chunk->node);
    chunk->is_coming = true;
    peer->fetching += chunk->len;
    peer->sh->num_fetching++;
    status = umx_rma_get(chunk->key->rkey, &item, &params, &req);
    if (status != UMX_INPROGRESS) {
        end_fetch(chunk, status);
    }
}

/* Read chunks of one rank. */
static void
fetch(umi_shuffle_peer *peer)
{
    umx_shuffler *sh = peer->sh;

    while (sh->status == UMX_OK && !umi_list_is_empty(&peer->to_fetch)) {
        umx_shuffle_chunk *chunk = umi_container_of(peer->to_fetch.next,
                                                    umx_shuffle_chunk, node);
        umx_status         status;

        if (peer->fetching != 0 &&
            (peer->fetching > sh->peer_credit ||
             chunk->len > sh->peer_credit - peer->fetching)) {
            return;
        }
        status = get_room(chunk);
        if (status != UMX_OK) {
            sh->shortage = status;
            return;
        }
        begin(chunk);
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
