/* SPDX-License-Identifier: BSD-3-Clause */
/* moe.c: the life of a group of experts on one rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/moe.h"

#define LABEL UINT64_C(0x6d6f65206d6f6520) /* of the derived communicator */

/* ---- references ----------------------------------------------------------
 */

static void
free_moe(umx_joint *joint)
{
    umx_moe *moe = umi_container_of(joint, umx_moe, joint);

    if (moe->memh != NULL) {
        umx_memh_put(moe->memh);
    }
    free(moe->peers);
    free(moe);
}

/* ---- the end -------------------------------------------------------------
 */

static void
stop_watches(umx_moe *moe)
{
    for (int i = 0; i < moe->joint.size; i++) {
        if (moe->peers[i].watch != NULL) {
            (void)umx_request_cancel(moe->peers[i].watch);
        }
    }
}

/* Tell the others that this rank cannot go on, and whose fault that is. */
static void
abort_for(umx_moe *moe, umx_status status, int rank)
{
    umx_comm_failure failure = {.rank = rank, .op = "", .cause = status};
    char             reason[128];

    if (status == UMX_ERR_TIMED_OUT) {
        snprintf(reason, sizeof(reason),
                 "rank %d has not come within the time limit of rank %d", rank,
                 moe->joint.rank);
    } else if (status == UMX_ERR_RANK_FAILED) {
        snprintf(reason, sizeof(reason),
                 "rank %d has closed its buffer, or has ended", rank);
    } else {
        snprintf(reason, sizeof(reason), "memory of rank %d: %s", rank,
                 umx_status_string(status));
    }
    failure.member = umx_comm_member(moe->joint.comm, rank, &failure.group);
    umx_comm_abort_for(moe->joint.comm, &failure, reason);
}

/* Tell the others why this rank cannot go on, unless it has been told to end.
 */
static void
tell_why(umx_moe *moe, umx_status status, int rank)
{
    char reason[128];

    if (status == UMX_ERR_CLOSED) {
        return;
    }
    if (rank >= 0) {
        abort_for(moe, status, rank);
    } else {
        snprintf(reason, sizeof(reason), "a call of rank %d: %s",
                 moe->joint.rank, umx_status_string(status));
        umx_comm_abort(moe->joint.comm, reason);
    }
}

/* ---- flags ---------------------------------------------------------------
 */

uint64_t
umi_moe_flag_value(const umx_moe *moe, umi_moe_flag flag, int rank)
{
    size_t offset = umi_moe_flag_offset(moe->joint.size, flag, rank);
    const _Atomic uint64_t *at = (const void *)(moe->memory + offset);

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
           .offset = umi_moe_flag_offset(moe->joint.size, flag, moe->joint.rank),
           .value  = value};
    umx_request *req;

    if (moe->peers[rank].rkey == NULL) {
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
                       UMI_MOE_RANK_FAILED + (uint64_t)rank :
                       UMI_MOE_LEAVES;

    for (int i = 0; i < moe->joint.size && !moe->has_left; i++) {
        set_flag(moe, i, UMI_MOE_LEFT, why);
    }
    moe->has_left = true;
}

static void
on_end(umx_joint *joint, umx_status status, bool was_open)
{
    umx_moe *moe = umi_container_of(joint, umx_moe, joint);

    if (was_open) {
        tell_end(moe, status, moe->failed_rank);
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
    if (was_open) {
        tell_why(moe, status, moe->failed_rank);
    }
}

void
umi_moe_fail(umx_moe *moe, umx_status status, int rank)
{
    if (moe->joint.state != UMI_JOINT_ENDED) {
        moe->failed_rank = rank;
        umi_joint_end(&moe->joint, status);
    }
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
    if (!moe->peers[rank].is_masked && moe->joint.state == UMI_JOINT_OPEN) {
        set_flag(moe, rank, UMI_MOE_MASKED, 1);
        /* The flag is seen before anything that is written to outputs here from
         * now on: in mapped memory it may be a store without a fence. */
        atomic_thread_fence(memory_order_seq_cst);
    }
    moe->peers[rank].is_masked = true;
    UMI_LIST_FOREACH(node, &moe->waits) {
        umx_moe_call *call = umi_container_of(node, umx_moe_call, node);

        call->is_skipped[rank] |= !umi_moe_is_unique(call);
    }
}

void
umi_moe_mask_or_fail(umx_moe *moe, int rank, umx_status status)
{
    if (moe->joint.state != UMI_JOINT_OPEN) {
        return;
    }
    if ((moe->params.flags & UMX_MOE_FLAG_MASK) == 0 || has_unique_wait(moe)) {
        umi_moe_fail(moe, status, rank);
    } else {
        mask(moe, rank);
    }
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
    if (moe->joint.state == UMI_JOINT_OPEN) {
        (void)umi_moe_look(moe);
    }
    if (moe->joint.state == UMI_JOINT_OPEN) {
        if (!umx_comm_get_failure(moe->joint.comm, &failure)) {
            peer->has_left = true;
            (void)umi_moe_look(moe);
        } else if (failure.rank < 0 || failure.rank == moe->joint.rank) {
            umi_moe_fail(moe, status, -1);
        } else {
            umi_moe_mask_or_fail(moe, failure.rank, UMX_ERR_RANK_FAILED);
            (void)umi_moe_look(moe);
        }
    }
    umi_moe_put(moe);
}

static umx_status
watch(umx_moe *moe, int rank)
{
    umi_moe_peer *peer   = &moe->peers[rank];
    umx_op_params params = umx_layer_op_params(on_watched, peer);
    umx_status    status;

    umi_moe_hold(moe);
    status = umx_comm_watch(moe->joint.comm, rank, &params, &peer->watch);
    if (status != UMX_INPROGRESS) {
        peer->watch = NULL;
        umi_moe_put(moe);
        return status;
    }
    return UMX_OK;
}

umx_status
umx_moe_set_mask(umx_moe *moe, int rank, bool is_masked)
{
    UMI_MOE_LOCK(moe);
    if (rank < 0 || rank >= moe->joint.size || rank == moe->joint.rank) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (moe->peers[rank].is_masked && !is_masked) {
        if (moe->joint.state == UMI_JOINT_OPEN) {
            set_flag(moe, rank, UMI_MOE_MASKED, 0);
        }
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
    for (int i = 0; i < moe->joint.size; i++) {
        if (moe->peers[i].is_masked) {
            return true;
        }
    }
    return false;
}

bool
umx_moe_is_masked(const umx_moe *moe, int rank)
{
    return rank >= 0 && rank < moe->joint.size && moe->peers[rank].is_masked;
}

int
umx_moe_masked_by(const umx_moe *moe)
{
    for (int i = 0; i < moe->joint.size; i++) {
        if (i != moe->joint.rank && !moe->peers[i].is_masked &&
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
    const void   *record = umx_region_record(moe->joint.region, rank, &len);

    peer->moe = moe;
    if (rank == moe->joint.rank) {
        peer->data = moe->memory;
        return UMX_OK;
    }
    write_record(moe, words);
    if (len != sizeof(words) || memcmp(record, words, len) != 0) {
        return umi_joint_refuse(&moe->joint, UMX_ERR_INVALID_PARAM,
                                "the ranks give different numbers");
    }
    if (umx_region_length(moe->joint.region, rank) <
        umx_moe_memory_size(&moe->params, moe->joint.size)) {
        return UMX_ERR_PROTOCOL;
    }
    peer->rkey = umx_region_rkey(moe->joint.region, rank);
    peer->data = umx_region_pointer(moe->joint.region, rank);
    /* A rank that has left since it made the buffer has none. */
    peer->has_left = umx_comm_get_ep(moe->joint.comm, rank, &peer->ep) !=
                     UMX_OK;
    return watch(moe, rank);
}

/* All ranks have come. */
static umx_status
on_met(umx_joint *joint)
{
    umx_moe   *moe    = umi_container_of(joint, umx_moe, joint);
    umx_status status = UMX_OK;

    for (int i = 0; i < joint->size && status == UMX_OK; i++) {
        status = open_peer(moe, i);
    }
    return status;
}

static const umi_joint_class moe_class = {.name   = "buffer",
                                          .label  = LABEL,
                                          .on_met = on_met,
                                          .on_end = on_end,
                                          .free   = free_moe};

static umx_status
meet(umx_moe *moe, const umx_op_params *op, umx_request **req_p)
{
    uint64_t        words[NUM_WORDS];
    umi_joint_offer offer = {
        .memh        = moe->memh,
        .record      = words,
        .len         = sizeof(words),
        .has_timeout = (moe->params.field_mask & UMX_MOE_FIELD_TIMEOUT) != 0,
        .timeout_ns  = moe->params.timeout_ns};

    write_record(moe, words);
    return umi_joint_meet(&moe->joint, &offer, op, req_p);
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
new_moe(int size, umx_memh *memh, const umx_moe_params *params)
{
    umx_moe *moe = calloc(1, sizeof(*moe));

    if (moe == NULL) {
        return NULL;
    }
    moe->failed_rank = -1;
    moe->params      = *params;
    moe->num_local   = params->num_experts / (uint32_t)size;
    moe->memory      = umx_memh_buffer(memh)->data;
    if ((params->field_mask & UMX_MOE_FIELD_FLAGS) == 0) {
        moe->params.flags = 0;
    }
    if ((params->field_mask & UMX_MOE_FIELD_TIMEOUT) == 0) {
        moe->params.timeout_ns = UMX_TIMEOUT_INFINITE;
    }
    (void)umi_moe_find_places(params, size, &moe->places);
    umi_list_init(&moe->waits);
    moe->peers = calloc((size_t)size, sizeof(*moe->peers));
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
    moe = new_moe(umx_comm_size(comm), memh, params);
    if (moe == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_joint_init(&moe->joint, &moe_class, comm);
    if (status != UMX_OK) {
        umi_moe_put(moe);
        return status;
    }
    status = meet(moe, op, req_p);
    if (status == UMX_OK || status == UMX_INPROGRESS) {
        *moe_p = moe;
    }
    return status;
}

/* ---- what is known -------------------------------------------------------
 */

umx_joint *
umx_moe_joint(umx_moe *moe)
{
    return &moe->joint;
}

int
umx_moe_num_ranks(const umx_moe *moe)
{
    return moe->joint.size;
}

umx_status
umx_moe_state(const umx_moe *moe)
{
    umx_status status = umx_joint_status(&moe->joint);

    return (status == UMX_INPROGRESS || moe->joint.worker == NULL) ?
               UMX_ERR_CLOSED :
               status;
}

int
umx_moe_failed_rank(const umx_moe *moe)
{
    return moe->failed_rank;
}
