/* SPDX-License-Identifier: BSD-3-Clause */
/* shuffler.c: the life of a shuffler, and its end. */
#include "shuffle/shuffle.h"
#include "util/count.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEER_CREDIT (64u << 20)

static const umx_request_class close_class = {
    .name = "close",
};

/* ---- references ----------------------------------------------------------
 */

static void
free_shuffler(umx_shuffler *sh)
{
    umx_worker_detach(&sh->dependent);
    for (int i = 0; sh->peers != NULL && i < sh->size; i++) {
        umi_shuffle_peer_fini(&sh->peers[i]);
    }
    if (sh->spill != NULL) {
        umi_shuffle_spill_put(sh->spill);
    }
    free(sh->spill_dir);
    free(sh->peers);
    free(sh->owners);
    free(sh->partitions);
    free(sh->complete);
    (void)pthread_mutex_destroy(&sh->lock);
    free(sh);
}

void
umi_shuffle_hold(umx_shuffler *sh)
{
    umi_shared_refs_get(&sh->refs);
}

void
umi_shuffle_put(umx_shuffler *sh)
{
    if (umi_shared_refs_put(&sh->refs)) {
        free_shuffler(sh);
    }
}

/* ---- the end -------------------------------------------------------------
 */

/* No peer reads anything of this rank any more. */
static void
end_inserts(umx_shuffler *sh, umx_status status)
{
    umi_shuffle_inserts_end(sh, NULL, status);
    if (sh->spill != NULL) {
        umi_shuffle_spill_fill(sh->spill);
    }
}

void
umi_shuffle_fail(umx_shuffler *sh, umx_status status)
{
    umx_request *close_req = sh->close_req;

    if (sh->status != UMX_OK || sh->is_left) {
        return;
    }
    umi_shuffle_hold(sh);
    sh->status    = status;
    sh->close_req = NULL;
    if (close_req != NULL) {
        umx_request_complete(close_req, status);
    }
    umi_shuffle_waits_end(sh, status);
    umi_shuffle_partitions_drop(sh);
    end_inserts(sh, status);
    for (int i = 0; i < sh->size; i++) {
        umi_shuffle_peer_drop_unsent(&sh->peers[i]);
    }
    umi_shuffle_put(sh);
}

void
umi_shuffle_break(umx_shuffler *sh, const char *format, ...)
{
    char    reason[512]; /* the communicator cuts it at a whole character */
    va_list args;

    if (sh->status != UMX_OK || sh->is_left) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    umx_comm_abort(sh->comm, reason);
    umi_shuffle_fail(sh, UMX_ERR_RANK_FAILED);
}

/* Tell the ranks what the user has released. */
static void
tell_released(umx_shuffler *sh)
{
    if (umi_shuffle_free_released(sh)) {
        umi_shuffle_flush(sh);
    }
}

/* Has everything been done that other ranks need of this one, and that this one
 * needs of them? */
static bool
is_over(const umx_shuffler *sh)
{
    if (sh->num_complete != sh->num_owned || sh->num_untaken != 0 ||
        sh->num_unfinished != 0 || sh->num_sending != 0) {
        return false;
    }
    for (int i = 0; i < sh->size; i++) {
        const umi_shuffle_peer *peer = &sh->peers[i];

        if (!peer->is_gone &&
            (!umi_list_is_empty(&peer->unsent) || peer->num_unread != 0)) {
            return false;
        }
    }
    return true;
}

/* Leave the communicator: the shuffle is over. Chunks that the user has stay,
 * and so do views of other ranks. */
static void
leave(umx_shuffler *sh)
{
    umx_request *close_req = sh->close_req;

    umi_shuffle_hold(sh);
    sh->status    = UMX_ERR_CLOSED;
    sh->close_req = NULL;
    umi_shuffle_partitions_drop(sh);
    end_inserts(sh, UMX_ERR_CLOSED);
    sh->is_left = true;
    umx_comm_close(sh->comm);
    umi_shuffle_waits_end(sh, UMX_ERR_CANCELED);
    if (close_req != NULL) {
        umx_request_complete(close_req, UMX_OK);
    }
    umi_shuffle_put(sh);
}

void
umi_shuffle_check_end(umx_shuffler *sh)
{
    if (!sh->is_closing || sh->status != UMX_OK) {
        return;
    }
    tell_released(sh);
    if (is_over(sh)) {
        leave(sh);
    }
}

umx_status
umi_shuffle_status(umx_shuffler *sh)
{
    umx_comm_failure failure;

    if (sh->worker == NULL) {
        return UMX_ERR_CLOSED;
    }
    if (sh->status == UMX_OK && umx_comm_get_failure(sh->comm, &failure)) {
        umi_shuffle_fail(sh, UMX_ERR_RANK_FAILED);
    }
    return (sh->status == UMX_OK && sh->is_closing) ? UMX_ERR_CLOSED :
                                                      sh->status;
}

/* ---- finishing -----------------------------------------------------------
 */

/* Tell the ranks that own `partition`, which may stand for all, that this rank
 * has finished it. */
static umx_status
tell_finished(umx_shuffler *sh, uint32_t partition)
{
    umi_shuffle_record record = {.kind      = UMI_SHUFFLE_RECORD_FINISHED,
                                 .partition = partition};
    int owner = (partition == UMX_PARTITION_ALL) ? -1 : sh->owners[partition];

    for (int i = 0; i < sh->size; i++) {
        umi_shuffle_peer *peer = &sh->peers[i];
        umx_status        status;

        if (i == sh->rank || (owner >= 0 && owner != i)) {
            continue;
        }
        status = umi_shuffle_peer_tell(peer, &record, 1);
        if (status != UMX_OK) {
            umi_shuffle_break(sh, "no memory for a message");
            return status;
        }
        umi_shuffle_peer_flush(peer);
    }
    return UMX_OK;
}

static void
finish_here(umx_shuffler *sh, uint32_t partition)
{
    if (!sh->partitions[partition].is_finished_here) {
        sh->partitions[partition].is_finished_here = true;
        UMI_DECREMENT(sh->num_unfinished);
        if (sh->owners[partition] == sh->rank) {
            umi_shuffle_partition_finish(sh, partition);
        }
    }
}

/* An insert has failed, and its caller need not have looked: no owner may take
 * the other chunks for all. Returns why it has failed. */
static umx_status
fail_lost(umx_shuffler *sh)
{
    umx_status status = sh->lost;

    if (status == UMX_ERR_IO_ERROR) {
        atomic_store_explicit(&sh->error, sh->lost_error, memory_order_relaxed);
        umi_shuffle_break(
            sh, "insert: the spill file cannot grow: [Errno %d] %s: '%s'",
            sh->lost_error, strerror(sh->lost_error), sh->spill_dir);
    } else {
        umi_shuffle_break(sh, "insert: %s", umx_status_string(status));
    }
    return status;
}

umx_status
umi_shuffle_finish(umx_shuffler *sh, uint32_t partition)
{
    umx_status status;

    if (sh->num_unfinished == 0 ||
        (partition != UMX_PARTITION_ALL &&
         sh->partitions[partition].is_finished_here)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (sh->lost != UMX_OK) {
        return fail_lost(sh);
    }
    status = tell_finished(sh, partition);
    if (status != UMX_OK) {
        return status;
    }
    if (partition != UMX_PARTITION_ALL) {
        finish_here(sh, partition);
        return UMX_OK;
    }
    for (uint32_t i = 0; i < sh->num_partitions; i++) {
        finish_here(sh, i);
    }
    return UMX_OK;
}

/* ---- life ----------------------------------------------------------------
 */

static void
on_destroy(umx_dependent *dependent)
{
    umx_shuffler *sh = umi_container_of(dependent, umx_shuffler, dependent);

    umi_shuffle_fail(sh, UMX_ERR_CANCELED);
    (void)pthread_mutex_lock(&sh->lock);
    sh->worker = NULL;
    (void)pthread_mutex_unlock(&sh->lock);
}

/* Ask the user's function which rank owns which partition; without one, take
 * them in turn. */
static umx_status
set_owners(umx_shuffler *sh, const umx_shuffler_params *params)
{
    bool has_fn = (params->field_mask & UMX_SHUFFLER_FIELD_OWNER) != 0;

    for (uint32_t i = 0; i < sh->num_partitions; i++) {
        int owner = has_fn ? params->owner(i, params->owner_arg) :
                             (int)(i % (uint32_t)sh->size);

        if (owner < 0 || owner >= sh->size) {
            return UMX_ERR_OUT_OF_RANGE;
        }
        sh->owners[i] = owner;
        sh->num_owned += (owner == sh->rank) ? 1 : 0;
    }
    return UMX_OK;
}

static umx_status
set_memory(umx_shuffler *sh, const umx_shuffler_params *params)
{
    int error = 0;

    sh->budget      = SIZE_MAX;
    sh->peer_credit = PEER_CREDIT;
    if ((params->field_mask & UMX_SHUFFLER_FIELD_BUDGET) != 0) {
        sh->budget = params->budget / 2;
    }
    if ((params->field_mask & UMX_SHUFFLER_FIELD_PEER_CREDIT) != 0) {
        sh->peer_credit = params->peer_credit;
    }
    if ((params->field_mask & UMX_SHUFFLER_FIELD_SPILL_DIR) == 0) {
        return UMX_OK;
    }
    sh->spill_dir = strdup(params->spill_dir);
    if (sh->spill_dir == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    sh->spill = umi_shuffle_spill_new(params->spill_dir, &error);
    if (sh->spill == NULL) {
        umx_set_errno(error);
        return umi_shuffle_status_of(error);
    }
    return UMX_OK;
}

static umx_status
set_up(umx_shuffler *sh, const umx_shuffler_params *params)
{
    size_t     count  = sh->num_partitions;
    umx_status status = UMX_OK;

    sh->owners     = calloc(count, sizeof(*sh->owners));
    sh->partitions = calloc(count, sizeof(*sh->partitions));
    sh->peers      = calloc((size_t)sh->size, sizeof(*sh->peers));
    if (sh->owners == NULL || sh->partitions == NULL || sh->peers == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = set_owners(sh, params);
    if (status == UMX_OK) {
        sh->complete = calloc((size_t)sh->num_owned + 1, sizeof(*sh->complete));
        status       = (sh->complete == NULL) ? UMX_ERR_NO_MEMORY :
                                                set_memory(sh, params);
    }
    for (int i = 0; i < sh->size && status == UMX_OK; i++) {
        status = umi_shuffle_peer_init(&sh->peers[i], sh, i);
    }
    return status;
}

static umx_status
listen(umx_shuffler *sh)
{
    umx_status status = UMX_OK;

    for (int i = 0; i < sh->size && status == UMX_OK; i++) {
        /* The receive from this rank itself ends when the communicator is
         * revoked. */
        status = umi_shuffle_peer_listen(&sh->peers[i]);
    }
    return status;
}

/* The lock is recursive: a function that is called when memory is freed may
 * release a chunk. */
static void
init_lock(umx_shuffler *sh)
{
    pthread_mutexattr_t attributes;

    (void)pthread_mutexattr_init(&attributes);
    (void)pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&sh->lock, &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
}

umx_status
umx_shuffler_create(umx_comm *comm, const umx_shuffler_params *params,
                    umx_shuffler **shuffler_p)
{
    umx_worker   *worker = umx_comm_get_worker(comm);
    umx_shuffler *sh;
    umx_status    status;

    if (worker == NULL || umx_comm_rank(comm) < 0) {
        return UMX_ERR_CLOSED;
    }
    if (params->num_partitions == 0 ||
        params->num_partitions > UMX_PARTITIONS_MAX) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    sh = calloc(1, sizeof(*sh));
    if (sh == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    UMX_LAYER_LOCK(worker);
    sh->worker               = worker;
    sh->rank                 = umx_comm_rank(comm);
    sh->size                 = umx_comm_size(comm);
    sh->num_partitions       = params->num_partitions;
    sh->num_unfinished       = params->num_partitions;
    sh->stall                = UMX_INPROGRESS;
    sh->dependent.on_destroy = on_destroy;
    sh->dependent.describe   = umi_shuffle_describe;
    sh->errand.fn            = umi_shuffle_run_errand;
    umi_node_init((umi_node *)(void *)&sh->dependent);
    umi_list_init(&sh->waits);
    umi_list_init(&sh->inserts);
    umi_shared_refs_init(&sh->refs);
    init_lock(sh);
    status = set_up(sh, params);
    if (status == UMX_OK) {
        status = umx_comm_derive(comm, params->op_id, &sh->comm);
    }
    if (status != UMX_OK) {
        free_shuffler(sh);
        return status;
    }
    umx_worker_attach(worker, &sh->dependent);
    status = listen(sh);
    if (status != UMX_OK) {
        umx_shuffler_destroy(sh);
        return status;
    }
    umi_shuffle_fetch_all(sh); /* what came before */
    umi_shuffle_flush(sh);
    *shuffler_p = sh;
    return UMX_OK;
}

int
umx_shuffler_owner(const umx_shuffler *sh, uint32_t partition)
{
    return (partition < sh->num_partitions) ? sh->owners[partition] : -1;
}

const umx_comm *
umx_shuffler_comm(const umx_shuffler *sh)
{
    return sh->comm;
}

int
umx_shuffler_spill_error(const umx_shuffler *sh)
{
    return atomic_load_explicit(&sh->error, memory_order_relaxed);
}

void
umx_shuffler_query(umx_shuffler *sh, umx_shuffler_info *info)
{
    UMI_SHUFFLE_LOCK(sh);
    *info              = sh->info;
    info->held         = sh->held_in + sh->held_small + sh->held_out;
    info->num_owned    = sh->num_owned;
    info->num_complete = sh->num_complete;
}

umx_status
umx_shuffler_close(umx_shuffler *sh, const umx_op_params *params,
                   umx_request **req_p)
{
    UMI_SHUFFLE_LOCK(sh);
    umx_status status = umi_shuffle_status(sh);

    if (status != UMX_OK) {
        return status;
    }
    if (sh->num_unfinished != 0) {
        status = umi_shuffle_finish(sh, UMX_PARTITION_ALL);
        if (status != UMX_OK) {
            return status;
        }
    }
    tell_released(sh);
    if (is_over(sh)) {
        leave(sh);
        return UMX_OK;
    }
    sh->close_req = umx_request_create(sh->worker, &close_class, params);
    if (sh->close_req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    sh->is_closing = true;
    *req_p         = sh->close_req;
    return UMX_INPROGRESS;
}

void
umx_shuffler_abort(umx_shuffler *sh, const char *reason)
{
    UMI_SHUFFLE_LOCK(sh);
    umi_shuffle_break(sh, "%s", reason);
}

void
umx_shuffler_destroy(umx_shuffler *sh)
{
    UMI_SHUFFLE_LOCK(sh);
    if (!sh->is_left && sh->status == UMX_OK) {
        tell_released(sh);
        if (is_over(sh)) {
            leave(sh);
        } else {
            umi_shuffle_break(sh, "the shuffler was given back before the "
                                  "shuffle was over");
        }
    }
    sh->is_left = true;
    umx_comm_close(sh->comm);
    umx_comm_destroy(sh->comm);
    sh->comm = NULL;
    umi_shuffle_put(sh);
}
