/* SPDX-License-Identifier: BSD-3-Clause */
/* moe.c: the life of a group of experts on one rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/moe.h"

#define LABEL UINT64_C(0x6d6f65206d6f6520) /* of the derived communicator */
#define TAG UINT64_C(0x6d6f652077617463)   /* of messages that nobody sends */

/* ---- references ----------------------------------------------------------
 */

static void
free_moe(umx_moe *moe)
{
    if (moe->region != NULL) {
        umx_region_destroy(moe->region);
    }
    if (moe->comm != NULL) {
        umx_comm_destroy(moe->comm);
    }
    if (moe->memh != NULL) {
        umx_memh_put(moe->memh);
    }
    umx_worker_detach(&moe->dependent);
    free(moe->peers);
    free(moe);
}

void
umi_moe_hold(umx_moe *moe)
{
    moe->refs++;
}

void
umi_moe_put(umx_moe *moe)
{
    if (--moe->refs == 0) {
        free_moe(moe);
    }
}

/* ---- the end -------------------------------------------------------------
 */

static void
stop_watches(umx_moe *moe)
{
    for (int i = 0; i < moe->size; i++) {
        if (moe->peers[i].watch != NULL) {
            (void)umx_request_cancel(moe->peers[i].watch);
        }
    }
}

/* Tell the others that this rank cannot go on, and whose fault that is. */
static void
blame(umx_moe *moe, umx_status status, int rank)
{
    umx_comm_failure failure = {.rank = rank, .op = "", .cause = status};
    char             reason[128];

    if (status == UMX_ERR_TIMED_OUT) {
        snprintf(reason, sizeof(reason),
                 "rank %d has not come within the time limit of rank %d", rank,
                 moe->rank);
    } else if (status == UMX_ERR_RANK_FAILED) {
        snprintf(reason, sizeof(reason),
                 "rank %d has closed its buffer, or has ended", rank);
    } else {
        snprintf(reason, sizeof(reason), "memory of rank %d: %s", rank,
                 umx_status_string(status));
    }
    failure.member = umx_comm_member(moe->comm, rank, &failure.group);
    umx_comm_abort_for(moe->comm, &failure, reason);
}

/* Leave, or tell the others why this rank cannot go on. */
static void
leave(umx_moe *moe, umx_status status, int rank)
{
    char reason[128];

    if (status == UMX_ERR_CLOSED || status == UMX_ERR_INVALID_PARAM ||
        (moe->peers[moe->rank].data == NULL && status == UMX_ERR_RANK_FAILED)) {
        umx_comm_close(moe->comm); /* all find by themselves what is wrong */
    } else if (rank >= 0) {
        blame(moe, status, rank);
    } else {
        snprintf(reason, sizeof(reason), "a call of rank %d: %s", moe->rank,
                 umx_status_string(status));
        umx_comm_abort(moe->comm, reason);
    }
}

/* ---- flags ---------------------------------------------------------------
 */

uint64_t
umi_moe_flag_value(const umx_moe *moe, umi_moe_flag flag, int rank)
{
    size_t                  offset = umi_moe_flag_offset(moe->size, flag, rank);
    const _Atomic uint64_t *at     = (const void *)(moe->memory + offset);

    return atomic_load_explicit(at, memory_order_acquire);
}

static void
on_flag_set(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    (void)status; /* a rank that cannot be reached need not know */
    umi_moe_put(arg);
}

/* Set a flag at a rank, which may have ended. */
static void
set_flag(umx_moe *moe, int rank, umi_moe_flag flag, uint64_t value)
{
    umx_op_params params = umx_layer_op_params(on_flag_set, moe);
    umx_rma_item  item   = {.buf = umx_host_buffer(moe->memory, 0)};
    umx_atomic    signal = {
           .op     = UMX_ATOMIC_SWAP,
           .size   = 8,
           .offset = umi_moe_flag_offset(moe->size, flag, moe->rank),
           .value  = value};
    umx_request *req;

    if (moe->state != UMI_MOE_OPEN || moe->peers[rank].rkey == NULL) {
        return;
    }
    umi_moe_hold(moe);
    if (umx_rma_put_signal(moe->peers[rank].rkey, &item, &signal, &params,
                           &req) != UMX_INPROGRESS) {
        umi_moe_put(moe);
    }
}

/* The others wait for nothing of this rank any more. */
static void
tell_end(umx_moe *moe, umx_status status, int rank)
{
    uint64_t why = (rank >= 0 && status != UMX_ERR_CLOSED) ?
                       UMI_MOE_BLAMES + (uint64_t)rank :
                       UMI_MOE_LEAVES;

    for (int i = 0; i < moe->size && !moe->has_left; i++) {
        set_flag(moe, i, UMI_MOE_LEFT, why);
    }
    moe->has_left = true;
}

void
umi_moe_fail(umx_moe *moe, umx_status status, int rank)
{
    if (moe->state == UMI_MOE_ENDED) {
        return;
    }
    umi_moe_hold(moe);
    umx_timer_stop(&moe->timer);
    if (moe->state == UMI_MOE_OPEN) {
        tell_end(moe, status, rank);
    }
    moe->state       = UMI_MOE_ENDED;
    moe->status      = status;
    moe->failed_rank = rank;
    if (moe->meeting != NULL) {
        (void)umx_request_cancel(moe->meeting);
    }
    while (!umi_list_is_empty(&moe->waits)) {
        umi_node *node = umi_list_pop(&moe->waits);

        umi_moe_end_wait(umi_container_of(node, umx_moe_call, node), status);
    }
    if (moe->lookout != NULL) {
        umx_lookout_stop(moe->lookout);
        moe->lookout = NULL;
    }
    stop_watches(moe);
    if (moe->comm != NULL) {
        leave(moe, status, rank);
    }
    umi_moe_put(moe);
}

/* Does a call wait that needs all ranks? Where the rows of a rank begin depends
 * on all. */
static bool
has_unique_wait(const umx_moe *moe)
{
    UMI_LIST_FOREACH(node, &moe->waits) {
        if (umi_moe_is_unique(umi_container_of(node, umx_moe_call, node))) {
            return true;
        }
    }
    return false;
}

/* Calls that wait do so without a rank that is masked. It is told: if it goes
 * on, it reads outputs here that are of later calls. */
static void
mask(umx_moe *moe, int rank)
{
    if (!moe->peers[rank].is_masked) {
        set_flag(moe, rank, UMI_MOE_MASKED, 1);
    }
    moe->peers[rank].is_masked = true;
    UMI_LIST_FOREACH(node, &moe->waits) {
        umx_moe_call *call = umi_container_of(node, umx_moe_call, node);

        call->is_skipped[rank] |= !umi_moe_is_unique(call);
    }
}

void
umi_moe_lose(umx_moe *moe, int rank, umx_status status)
{
    if (moe->state != UMI_MOE_OPEN) {
        return;
    }
    if ((moe->params.flags & UMX_MOE_FLAG_MASK) == 0 || has_unique_wait(moe)) {
        umi_moe_fail(moe, status, rank);
    } else {
        mask(moe, rank);
    }
}

static void
on_destroy(umx_dependent *dependent)
{
    umx_moe *moe = umi_container_of(dependent, umx_moe, dependent);

    umi_moe_hold(moe);
    umi_moe_fail(moe, UMX_ERR_CLOSED, -1);
    moe->worker = NULL;
    umi_moe_put(moe);
}

void
umx_moe_destroy(umx_moe *moe)
{
    UMI_MOE_LOCK(moe);
    umi_moe_fail(moe, UMX_ERR_CLOSED, -1);
    umi_moe_put(moe);
}

/* ---- other ranks ---------------------------------------------------------
 */

/* A rank has left, or the communicator is revoked. What it had told before
 * counts. */
static void
on_watched(umx_request *req, umx_status status, void *arg)
{
    umi_moe_peer    *peer = arg;
    umx_moe         *moe  = peer->moe;
    umx_comm_failure failure;

    (void)req;
    peer->watch = NULL;
    if (moe->state == UMI_MOE_OPEN) {
        (void)umi_moe_look(moe);
    }
    if (moe->state == UMI_MOE_OPEN) {
        if (!umx_comm_get_failure(moe->comm, &failure)) {
            peer->has_left = true;
            (void)umi_moe_look(moe);
        } else if (failure.rank < 0 || failure.rank == moe->rank) {
            umi_moe_fail(moe, status, -1);
        } else {
            umi_moe_lose(moe, failure.rank, UMX_ERR_RANK_FAILED);
            (void)umi_moe_look(moe);
        }
    }
    umi_moe_put(moe);
}

static umx_status
watch(umx_moe *moe, int rank)
{
    umi_moe_peer   *peer = &moe->peers[rank];
    umx_op_params   params;
    umx_buffer      buf;
    umx_comm_status got;
    umx_status      status;

    params = umx_layer_op_params(on_watched, peer);
    buf    = umx_host_buffer(&peer->watched, sizeof(peer->watched));
    umi_moe_hold(moe);
    status = umx_comm_irecv(moe->comm, rank, TAG, UINT64_MAX, &buf, &params,
                            &peer->watch, &got);
    if (status != UMX_INPROGRESS) {
        peer->watch = NULL;
        umi_moe_put(moe);
        return (status == UMX_OK) ? UMX_ERR_PROTOCOL : status;
    }
    return UMX_OK;
}

umx_status
umx_moe_set_mask(umx_moe *moe, int rank, bool is_masked)
{
    UMI_MOE_LOCK(moe);
    if (rank < 0 || rank >= moe->size || rank == moe->rank) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (moe->peers[rank].is_masked && !is_masked) {
        set_flag(moe, rank, UMI_MOE_MASKED, 0);
        moe->peers[rank].is_masked = false;
    }
    if (is_masked) {
        mask(moe, rank);
        (void)umi_moe_look(moe);
    }
    return UMX_OK;
}

bool
umi_moe_has_mask(const umx_moe *moe)
{
    for (int i = 0; i < moe->size; i++) {
        if (moe->peers[i].is_masked) {
            return true;
        }
    }
    return false;
}

bool
umx_moe_is_masked(const umx_moe *moe, int rank)
{
    return rank >= 0 && rank < moe->size && moe->peers[rank].is_masked;
}

int
umx_moe_masked_by(const umx_moe *moe)
{
    for (int i = 0; i < moe->size; i++) {
        if (i != moe->rank && !moe->peers[i].is_masked &&
            umi_moe_flag_value(moe, UMI_MOE_MASKED, i) != 0) {
            return i;
        }
    }
    return -1;
}

void
umx_moe_cancel(umx_moe *moe)
{
    UMI_MOE_LOCK(moe);
    umi_moe_fail(moe, UMX_ERR_CANCELED, -1);
}

/* ---- creation ------------------------------------------------------------
 */

enum {
    NUM_WORDS = 6
};

/* What all ranks have to agree on. */
static void
write_record(const umx_moe *moe, uint64_t *words)
{
    words[0] = 1; /* of the layout of memories */
    words[1] = moe->params.num_experts;
    words[2] = moe->params.max_tokens;
    words[3] = moe->params.max_topk;
    words[4] = moe->params.hidden;
    words[5] = moe->params.dtype;
}

static umx_status
open_peer(umx_moe *moe, int rank)
{
    umi_moe_peer *peer = &moe->peers[rank];
    uint64_t      words[NUM_WORDS];
    size_t        len;
    const void   *record = umx_region_record(moe->region, rank, &len);

    peer->moe = moe;
    if (rank == moe->rank) {
        peer->data = moe->memory;
        return UMX_OK;
    }
    write_record(moe, words);
    if (len != sizeof(words) || memcmp(record, words, len) != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (umx_region_length(moe->region, rank) <
        umx_moe_memory_size(&moe->params, moe->size)) {
        return UMX_ERR_PROTOCOL;
    }
    peer->rkey = umx_region_rkey(moe->region, rank);
    peer->data = umx_region_pointer(moe->region, rank);
    if (umx_comm_get_ep(moe->comm, rank, &peer->ep) != UMX_OK) {
        return UMX_ERR_RANK_FAILED;
    }
    return watch(moe, rank);
}

/* All ranks have come. */
static umx_status
end_creation(umx_moe *moe, umx_status status)
{
    if (moe->state == UMI_MOE_ENDED) {
        return moe->status;
    }
    for (int i = 0; i < moe->size && status == UMX_OK; i++) {
        status = open_peer(moe, i);
    }
    if (status == UMX_OK) {
        moe->state = UMI_MOE_OPEN;
    } else {
        umi_moe_fail(moe, status, -1);
    }
    return status;
}

static void
on_met(umx_request *req, umx_status status, void *arg)
{
    umx_moe     *moe    = arg;
    umx_request *create = moe->create_req;

    (void)req;
    umx_timer_stop(&moe->timer);
    moe->meeting    = NULL;
    moe->create_req = NULL;
    status          = end_creation(moe, status);
    if (create != NULL) {
        umx_request_complete(create, status);
    }
    umi_moe_put(moe);
}

/* Not all ranks have come. */
static void
on_create_time(umx_timer *timer)
{
    umi_moe_fail(umi_container_of(timer, umx_moe, timer), UMX_ERR_TIMED_OUT,
                 -1);
}

static void
cancel_create(umx_request *req)
{
    umi_moe_fail(*(umx_moe **)umx_request_state(req), UMX_ERR_CANCELED, -1);
}

static const umx_request_class create_class = {.name   = "create",
                                               .cancel = cancel_create};

static umx_status
meet(umx_moe *moe, const umx_op_params *op, umx_request **req_p)
{
    umx_op_params params = umx_layer_op_params(on_met, moe);
    uint64_t      words[NUM_WORDS];
    umx_status    status;

    write_record(moe, words);
    umi_moe_hold(moe);
    status = umx_region_create(moe->comm, moe->memh, words, sizeof(words),
                               &params, &moe->region, &moe->meeting);
    if (status != UMX_INPROGRESS) {
        moe->meeting = NULL;
        umi_moe_put(moe);
        return (status == UMX_OK) ? end_creation(moe, status) : status;
    }
    moe->create_req = umx_request_create(moe->worker, &create_class, op);
    if (moe->create_req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    *(umx_moe **)umx_request_state(moe->create_req) = moe;
    *req_p                                          = moe->create_req;
    if (moe->params.timeout_ns != UMX_TIMEOUT_INFINITE) {
        umx_timer_start(moe->worker, &moe->timer, moe->params.timeout_ns);
    }
    return UMX_INPROGRESS;
}

size_t
umx_moe_memory_size(const umx_moe_params *params, int num_ranks)
{
    umi_moe_places places;

    if (num_ranks < 1 || num_ranks > UMX_MOE_RANKS_MAX ||
        params->num_experts == 0 || params->num_experts > UMX_MOE_EXPERTS_MAX ||
        params->num_experts % (uint32_t)num_ranks != 0 ||
        params->max_tokens == 0 || params->max_topk == 0 ||
        params->max_topk > UMX_MOE_TOPK_MAX || params->hidden == 0 ||
        (unsigned)params->dtype > UMX_MOE_FP8 ||
        (params->dtype == UMX_MOE_FP8 && params->hidden % UMX_MOE_BLOCK != 0) ||
        (uint64_t)params->num_experts * params->max_tokens > UINT32_MAX ||
        !umi_moe_find_places(params, num_ranks, &places)) {
        return 0;
    }
    return places.first + UMX_MOE_LIVE_MAX * places.len;
}

static umx_moe *
new_moe(umx_comm *comm, umx_memh *memh, const umx_moe_params *params)
{
    umx_moe *moe = calloc(1, sizeof(*moe));

    if (moe == NULL) {
        return NULL;
    }
    moe->refs        = 1;
    moe->worker      = umx_comm_get_worker(comm);
    moe->rank        = umx_comm_rank(comm);
    moe->size        = umx_comm_size(comm);
    moe->failed_rank = -1;
    moe->params      = *params;
    moe->num_local   = params->num_experts / (uint32_t)moe->size;
    moe->memory      = umx_memh_buffer(memh)->data;
    if ((params->field_mask & UMX_MOE_FIELD_FLAGS) == 0) {
        moe->params.flags = 0;
    }
    if ((params->field_mask & UMX_MOE_FIELD_TIMEOUT) == 0) {
        moe->params.timeout_ns = UMX_TIMEOUT_INFINITE;
    }
    (void)umi_moe_find_places(params, moe->size, &moe->places);
    umi_list_init(&moe->waits);
    umx_timer_init(&moe->timer, on_create_time);
    umi_node_init((umi_node *)(void *)&moe->dependent);
    moe->dependent.on_destroy = on_destroy;
    moe->peers                = calloc((size_t)moe->size, sizeof(*moe->peers));
    if (moe->peers == NULL) {
        free(moe);
        return NULL;
    }
    umx_memh_hold(memh);
    moe->memh = memh;
    return moe;
}

umx_status
umx_moe_create(umx_comm *comm, umx_memh *memh, const umx_moe_params *params,
               const umx_op_params *op, umx_moe **moe_p, umx_request **req_p)
{
    umx_worker       *worker = umx_comm_get_worker(comm);
    const umx_buffer *buf    = umx_memh_buffer(memh);
    size_t            needed;
    umx_moe          *moe;
    umx_status        status;

    if (worker == NULL || umx_comm_rank(comm) < 0) {
        return UMX_ERR_CLOSED;
    }
    needed = umx_moe_memory_size(params, umx_comm_size(comm));
    if (needed == 0 || buf->memtype != UMX_MEMTYPE_HOST) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (buf->len < needed) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    UMX_LAYER_LOCK(worker);
    moe = new_moe(comm, memh, params);
    if (moe == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umx_worker_attach(worker, &moe->dependent);
    status = umx_comm_derive(comm, LABEL, &moe->comm);
    if (status == UMX_OK) {
        status = meet(moe, op, req_p);
    }
    if (status != UMX_OK && status != UMX_INPROGRESS) {
        umi_moe_fail(moe, status, -1);
        umi_moe_put(moe);
        return status;
    }
    *moe_p = moe;
    return status;
}

/* ---- what is known -------------------------------------------------------
 */

umx_comm *
umx_moe_comm(const umx_moe *moe)
{
    return moe->comm;
}

umx_status
umx_moe_state(const umx_moe *moe)
{
    if (moe->state == UMI_MOE_CREATED || moe->worker == NULL) {
        return UMX_ERR_CLOSED;
    }
    return (moe->state == UMI_MOE_ENDED) ? moe->status : UMX_OK;
}

int
umx_moe_failed_rank(const umx_moe *moe)
{
    return moe->failed_rank;
}
