/* SPDX-License-Identifier: BSD-3-Clause */
/* partition.c: the chunks of this rank's partitions, who waits for them, and
 * their way to the user and back. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shuffle/shuffle.h"
#include "util/count.h"
#include "util/trace.h"

typedef struct umi_shuffle_wait {
    umi_node      node; /* sh->waits */
    umx_shuffler *sh;
    umx_request  *req;
    uint32_t      partition;
} umi_shuffle_wait;

/* The state of a request, which outlives the wait. */
typedef struct umi_shuffle_wait_state {
    umi_shuffle_wait *wait; /* NULL: it is over */
    uint32_t          result;
} umi_shuffle_wait_state;

/* ---- waiting -------------------------------------------------------------
 */

static umi_shuffle_wait_state *
state_of(const umx_request *req)
{
    return umx_request_state(req);
}

static void
end_wait(umi_shuffle_wait *wait, umx_status status, uint32_t result)
{
    umx_request *req = wait->req;

    umi_node_remove(&wait->node);
    free(wait);
    state_of(req)->wait   = NULL;
    state_of(req)->result = result;
    umx_request_complete(req, status);
}

static void
cancel_wait(umx_request *req)
{
    umi_shuffle_wait *wait = state_of(req)->wait;

    if (wait != NULL) {
        end_wait(wait, UMX_ERR_CANCELED, UMX_PARTITION_ALL);
    }
}

static const umx_request_class wait_class = {
    .name   = "wait",
    .cancel = cancel_wait,
};

/* Tell with which status a wait for `partition` can end now. UMX_INPROGRESS:
 * the wait goes on. */
static umx_status
look(umx_shuffler *sh, uint32_t partition, uint32_t *result)
{
    *result = partition;
    if (partition != UMX_PARTITION_ALL) {
        return (sh->partitions[partition].state == UMI_SHUFFLE_COLLECTING) ?
                   sh->stall :
                   UMX_OK;
    }
    while (sh->next_given < sh->num_complete) {
        *result = sh->complete[sh->next_given++];
        if (sh->partitions[*result].state != UMI_SHUFFLE_EXTRACTED) {
            return UMX_OK;
        }
    }
    *result = UMX_PARTITION_ALL;
    if (sh->next_given == sh->num_owned) {
        return UMX_OK;
    }
    /* The user may be about to extract a partition that was given before. */
    return (sh->num_extracted == sh->num_complete) ? sh->stall : UMX_INPROGRESS;
}

void
umi_shuffle_waits_serve(umx_shuffler *sh)
{
    UMI_LIST_FOREACH_SAFE(node, &sh->waits) {
        umi_shuffle_wait *wait = umi_container_of(node, umi_shuffle_wait, node);
        uint32_t          result;
        umx_status        status = look(sh, wait->partition, &result);

        if (status != UMX_INPROGRESS) {
            end_wait(wait, status, result);
        }
    }
}

void
umi_shuffle_waits_end(umx_shuffler *sh, umx_status status)
{
    UMI_LIST_FOREACH_SAFE(node, &sh->waits) {
        end_wait(umi_container_of(node, umi_shuffle_wait, node), status,
                 UMX_PARTITION_ALL);
    }
}

uint32_t
umx_shuffler_result(const umx_request *req)
{
    return state_of(req)->result;
}

static umx_status
check_owned(umx_shuffler *sh, uint32_t partition)
{
    umx_status status = umi_shuffle_status(sh);

    if (status != UMX_OK) {
        return status;
    }
    return (partition < sh->num_partitions &&
            sh->owners[partition] == sh->rank) ?
               UMX_OK :
               UMX_ERR_OUT_OF_RANGE;
}

umx_status
umx_shuffler_wait(umx_shuffler *sh, uint32_t partition,
                  const umx_op_params *params, umx_request **req_p,
                  uint32_t *partition_p)
{
    UMI_SHUFFLE_LOCK(sh);
    umx_status        status = (partition == UMX_PARTITION_ALL) ?
                                   umi_shuffle_status(sh) :
                                   check_owned(sh, partition);
    umi_shuffle_wait *wait;

    if (status != UMX_OK) {
        return status;
    }
    status = look(sh, partition, partition_p);
    if (status != UMX_INPROGRESS) {
        return status;
    }
    wait = malloc(sizeof(*wait));
    if (wait == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    wait->req = umx_request_create(sh->worker, &wait_class, params);
    if (wait->req == NULL) {
        free(wait);
        return UMX_ERR_NO_MEMORY;
    }
    if (UMI_IS_OBSERVED()) {
        umx_request_describe(wait->req, "shuffle_wait", 0, partition, -1);
    }
    wait->sh                  = sh;
    wait->partition           = partition;
    state_of(wait->req)->wait = wait;
    umi_list_append(&sh->waits, &wait->node);
    *req_p = wait->req;
    return UMX_INPROGRESS;
}

/* ---- completion ----------------------------------------------------------
 */

/* Change the state to the next one of the drawing. */
static void
set_state(umi_shuffle_partition *partition, umi_shuffle_partition_state state)
{
    assert(state == partition->state + 1);
    partition->state = state;
}

static void
check_complete(umx_shuffler *sh, uint32_t number)
{
    umi_shuffle_partition *partition = &sh->partitions[number];

    if (partition->num_finished < sh->size || partition->num_missing != 0 ||
        partition->state != UMI_SHUFFLE_COLLECTING) {
        return;
    }
    set_state(partition, UMI_SHUFFLE_COMPLETE);
    sh->complete[sh->num_complete++] = number;
    umi_shuffle_waits_serve(sh);
}

void
umi_shuffle_partition_finish(umx_shuffler *sh, uint32_t number)
{
    sh->partitions[number].num_finished++;
    check_complete(sh, number);
}

/* True if the bytes of the chunk came in a message, and lie behind the chunk:
 * such bytes count as held once they are there, others when memory is made. */
static bool
has_own_bytes(const umx_shuffle_chunk *chunk)
{
    return chunk->data == chunk->bytes;
}

void
umi_shuffle_chunk_landed(umx_shuffle_chunk *chunk)
{
    umx_shuffler *sh = chunk->sh;

    switch (chunk->place) {
    case UMX_CHUNK_OWN:
        sh->info.own += chunk->len;
        break;
    case UMX_CHUNK_MAPPED:
        sh->info.mapped += chunk->len;
        break;
    case UMX_CHUNK_COPIED:
        sh->info.copied += chunk->len;
        if (has_own_bytes(chunk)) {
            chunk->is_counted = true;
            sh->held_small += chunk->len;
            umi_shuffle_note_held(sh);
        }
        break;
    case UMX_CHUNK_SPILLED:
        sh->info.spilled_in += (chunk->source != sh->rank) ? chunk->len : 0;
        break;
    }
    sh->info.num_received++;
    sh->info.received += chunk->len;
    UMI_DECREMENT(sh->partitions[chunk->partition].num_missing);
    check_complete(sh, chunk->partition);
}

/* ---- chunks --------------------------------------------------------------
 */

umx_shuffle_chunk *
umi_shuffle_chunk_new(umx_shuffler *sh, uint32_t number, int source,
                      size_t extra)
{
    umi_shuffle_partition *partition = &sh->partitions[number];
    umx_shuffle_chunk     *chunk     = malloc(sizeof(*chunk) + extra);

    if (chunk == NULL) {
        return NULL;
    }
    *chunk = (umx_shuffle_chunk){.sh        = sh,
                                 .source    = source,
                                 .partition = number,
                                 .order     = partition->num_chunks,
                                 .place     = UMX_CHUNK_COPIED,
                                 .len       = extra};
    umi_node_init(&chunk->node);
    umi_shuffle_hold(sh);
    if (partition->last != NULL) {
        partition->last->next = chunk;
    } else {
        partition->first = chunk;
    }
    partition->last = chunk;
    partition->num_chunks++;
    partition->num_missing++;
    return chunk;
}

/* Is a copy to be put into the spill file? */
static bool
is_too_much(const umx_shuffler *sh, size_t len)
{
    size_t held = sh->held_in + sh->held_small;

    return sh->spill != NULL && len >= UMI_SHUFFLE_SPILL_MIN &&
           (held > sh->budget || len > sh->budget - held);
}

umx_shuffle_chunk *
umi_shuffle_chunk_copy(umx_shuffler *sh, uint32_t number, int source,
                       const void *data, size_t len)
{
    umi_shuffle_extent *extent = NULL;
    void               *copy   = NULL;
    umx_shuffle_chunk  *chunk;

    if (is_too_much(sh, len) &&
        umi_shuffle_spill_alloc(sh->spill, UMI_SHUFFLE_IN, len, &extent,
                                &copy) != 0) {
        extent = NULL; /* the disk is full: memory may hold the chunk */
    }
    chunk = umi_shuffle_chunk_new(sh, number, source,
                                  (extent == NULL) ? len : 0);
    if (chunk == NULL) {
        goto put_extent;
    }
    chunk->len  = len;
    chunk->data = (extent == NULL) ? chunk->bytes : copy;
    if (len != 0) {
        memcpy(chunk->data, data, len);
    }
    if (extent != NULL) {
        chunk->place  = UMX_CHUNK_SPILLED;
        chunk->extent = extent;
        umi_shuffle_extent_written(extent);
    }
    return chunk;

put_extent:
    if (extent != NULL) {
        umi_shuffle_extent_put(extent);
    }
    return NULL;
}

/* Take a chunk out of the budget. */
static void
uncount(umx_shuffle_chunk *chunk)
{
    umx_shuffler *sh   = chunk->sh;
    size_t       *held = has_own_bytes(chunk) ? &sh->held_small : &sh->held_in;

    if (chunk->is_counted) {
        chunk->is_counted = false;
        *held -= chunk->len;
    }
}

/* Free a chunk that nobody reads any more, and tell its sender. */
static void
free_chunk(umx_shuffle_chunk *chunk)
{
    umx_shuffler *sh = chunk->sh;

    umi_node_remove(&chunk->node);
    uncount(chunk);
    if (chunk->key != NULL) {
        umi_shuffle_key_put(chunk->key);
    }
    if (chunk->place == UMX_CHUNK_SPILLED) {
        umi_shuffle_extent_put(chunk->extent);
    } else if (chunk->place == UMX_CHUNK_COPIED &&
               chunk->data != chunk->bytes) {
        free(chunk->data);
    } else if (chunk->place == UMX_CHUNK_MAPPED) {
        umi_shuffle_peer_say(chunk->peer, UMI_SHUFFLE_RECORD_RELEASED,
                             chunk->id);
    }
    if (chunk->insert != NULL) {
        umi_shuffle_insert_end(chunk->insert, UMX_OK);
    }
    free(chunk);
    umi_shuffle_put(sh);
}

static void
drop(umi_shuffle_partition *partition)
{
    umx_shuffle_chunk *chunk = partition->first;

    partition->first = partition->last = NULL;
    while (chunk != NULL) {
        umx_shuffle_chunk *next = chunk->next;

        if (chunk->is_coming) {
            chunk->is_dropped = true; /* umi_shuffle_chunk_drop() follows */
        } else {
            free_chunk(chunk);
        }
        chunk = next;
    }
}

void
umi_shuffle_partitions_drop(umx_shuffler *sh)
{
    for (uint32_t i = 0; i < sh->num_partitions; i++) {
        drop(&sh->partitions[i]);
    }
}

void
umi_shuffle_chunk_drop(umx_shuffle_chunk *chunk)
{
    umx_shuffler *sh = chunk->sh; /* held by the caller */

    (void)pthread_mutex_lock(&sh->lock);
    free_chunk(chunk);
    (void)pthread_mutex_unlock(&sh->lock);
}

static int
compare(const void *a, const void *b)
{
    const umx_shuffle_chunk *left  = *(umx_shuffle_chunk *const *)a;
    const umx_shuffle_chunk *right = *(umx_shuffle_chunk *const *)b;

    if (left->source != right->source) {
        return (left->source < right->source) ? -1 : 1;
    }
    return (left->order < right->order) ? -1 : 1;
}

/* Use memory that has become free for chunks that wait for it. */
static void
make_room(umx_shuffler *sh)
{
    umi_shuffle_fetch_all(sh);
    umi_shuffle_flush(sh);
}

umx_status
umx_shuffler_extract(umx_shuffler *sh, uint32_t number,
                     umx_shuffle_chunk **chunks, size_t *count_p)
{
    UMI_SHUFFLE_LOCK(sh);
    umx_status             status = check_owned(sh, number);
    umi_shuffle_partition *partition;
    size_t                 room = *count_p, count = 0;

    if (status != UMX_OK) {
        return status;
    }
    partition = &sh->partitions[number];
    if (partition->state == UMI_SHUFFLE_COLLECTING) {
        return UMX_ERR_BUSY;
    }
    if (partition->state == UMI_SHUFFLE_EXTRACTED) {
        return UMX_ERR_NO_ELEM;
    }
    *count_p = partition->num_chunks;
    if (room < partition->num_chunks) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    for (umx_shuffle_chunk *chunk = partition->first; chunk != NULL;
         chunk                    = chunk->next) {
        chunks[count++] = chunk;
        uncount(chunk);
    }
    if (count != 0) { /* else `chunks` may be NULL, which qsort() may not get */
        qsort(chunks, count, sizeof(*chunks), compare);
    }
    partition->first = partition->last = NULL;
    set_state(partition, UMI_SHUFFLE_EXTRACTED);
    sh->num_extracted++;
    make_room(sh);
    return UMX_OK;
}

void
umx_shuffle_chunk_query(const umx_shuffle_chunk *chunk,
                        umx_shuffle_chunk_info  *info)
{
    info->data   = chunk->data;
    info->len    = chunk->len;
    info->source = chunk->source;
    info->place  = chunk->place;
}

/* ---- what any thread has released ----------------------------------------
 */

static bool
free_all(umx_shuffle_chunk *chunk)
{
    bool had_some = chunk != NULL;

    while (chunk != NULL) {
        umx_shuffle_chunk *next = chunk->next;

        free_chunk(chunk);
        chunk = next;
    }
    return had_some;
}

static umx_shuffle_chunk *
take_released(umx_shuffler *sh)
{
    umx_shuffle_chunk *chunks = sh->released;

    sh->released = NULL;
    return chunks;
}

bool
umi_shuffle_free_released(umx_shuffler *sh)
{
    umx_shuffle_chunk *chunks;

    (void)pthread_mutex_lock(&sh->lock);
    chunks = take_released(sh);
    (void)pthread_mutex_unlock(&sh->lock);
    return free_all(chunks);
}

void
umi_shuffle_run_errand(umx_errand *errand)
{
    umx_shuffler *sh = umi_container_of(errand, umx_shuffler, errand);

    (void)pthread_mutex_lock(&sh->lock);
    sh->is_errand_posted = false; /* who releases a chunk now posts it again */
    if (sh->worker == NULL) {
        (void)free_all(take_released(sh));
    }
    (void)pthread_mutex_unlock(&sh->lock);
    if (sh->worker != NULL) {
        (void)umi_shuffle_free_released(sh);
    }
    if (sh->worker != NULL && sh->status == UMX_OK) {
        make_room(sh);
    }
    umi_shuffle_put(sh); /* the errand's */
}

/* Without a worker, threads free chunks one after the other: what chunks share
 * has no other lock. With one, `sh` may be gone when the lock is given back. */
void
umx_shuffle_chunk_release(umx_shuffle_chunk *chunk)
{
    umx_shuffler *sh = chunk->sh;
    bool          is_freed;

    (void)pthread_mutex_lock(&sh->lock);
    chunk->next  = sh->released;
    sh->released = chunk;
    is_freed     = sh->worker == NULL;
    if (is_freed) {
        umi_shuffle_hold(sh); /* until it has been unlocked */
        (void)free_all(take_released(sh));
    } else if (!sh->is_errand_posted) {
        sh->is_errand_posted = true;
        umi_shuffle_hold(sh); /* until the errand's end */
        umx_worker_post(sh->worker, &sh->errand);
    }
    (void)pthread_mutex_unlock(&sh->lock);
    if (is_freed) {
        umi_shuffle_put(sh);
    }
}
