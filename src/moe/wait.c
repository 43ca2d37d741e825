/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.c: the steps of a call that tell other ranks something, and wait for
 * what they tell. Flags are in this rank's own memory, in which a lookout looks
 * while any step waits. */
#include <stdlib.h>
#include <string.h>

#include "moe/moe.h"
#include "util/clock.h"

enum {
    TICK_NS = 100000000 /* between looks at processes, with masks */
};

/* ---- flags ---------------------------------------------------------------
 */

/* The flag by which the other ranks let the waiting step of the call go on. */
static umi_moe_flag
awaited_flag(const umx_moe_call *call)
{
    switch (call->step) {
    case UMI_MOE_COUNTING:
        return UMI_MOE_COUNTED;
    case UMI_MOE_SENDING:
        return UMI_MOE_SENT;
    case UMI_MOE_LEAVING:
        return UMI_MOE_LEFT;
    default:
        return UMI_MOE_READY;
    }
}

/* True if the rank has set the flag that the step of the call waits for. */
static bool
has_set_flag(const umx_moe_call *call, int rank)
{
    return umi_moe_flag_value(call->moe, awaited_flag(call), rank) >=
           call->number;
}

static bool
is_waited_for(const umx_moe_call *call, int rank)
{
    return rank != call->moe->joint.rank && !call->is_skipped[rank] &&
           !has_set_flag(call, rank);
}

/* ---- parts: operations on memory of others ---------------------------------
 */

/* An operation under way. */
typedef struct part {
    umx_moe_call *call;
    int           rank;
} part;

/* A rank has failed that a call needs, which may be one that does not wait yet.
 */
static void
mask_or_fail(umx_moe_call *call, int rank)
{
    umx_moe *moe = call->moe;

    if (umi_moe_is_unique(call)) {
        umi_moe_fail(moe, UMX_ERR_RANK_FAILED, rank);
    } else {
        umi_moe_mask_or_fail(moe, rank, UMX_ERR_RANK_FAILED);
        call->is_skipped[rank] |= moe->peers[rank].is_masked;
    }
}

/* An operation has failed: its rank has ended, or another fault has. */
static void
end_badly(umx_moe_call *call, int rank, umx_status status)
{
    umx_moe *moe = call->moe;

    if (moe->joint.state != UMI_JOINT_OPEN || call->is_skipped[rank]) {
        return;
    }
    if (status == UMX_ERR_NO_MEMORY) {
        umi_moe_fail(moe, status, -1); /* here: the rank is well */
    } else if ((moe->params.flags & UMX_MOE_FLAG_MASK) != 0) {
        mask_or_fail(call, rank);
    } else {
        call->has_failed = true;
        if (!umx_comm_doubt(moe->joint.comm, rank, status,
                            "its memory is lost")) {
            umi_moe_fail(moe, status, rank);
        }
    }
}

static void
end_part(umx_moe_call *call, int rank, umx_status status)
{
    umx_moe *moe = call->moe;

    umi_moe_hold(moe);
    call->num_pending[rank]--;
    if (status != UMX_OK) {
        end_badly(call, rank, status);
    }
    umi_moe_call_put(call);
    (void)umi_moe_look(moe);
    umi_moe_put(moe);
}

static void
on_part(umx_request *req, umx_status status, void *arg)
{
    part          p    = *(part *)arg;
    umx_moe_call *call = p.call;

    (void)req;
    free(arg);
    end_part(call, p.rank, status);
}

/* Begin a part: parameters for an operation, or false: out of memory. */
static bool
begin_part(umx_moe_call *call, int rank, umx_op_params *params)
{
    part *p = malloc(sizeof(*p));

    if (p == NULL) {
        return false;
    }
    *p      = (part){.call = call, .rank = rank};
    *params = umx_layer_op_params(on_part, p);
    umi_refs_get(&call->refs);
    call->num_pending[rank]++;
    return true;
}

/* Note what an operation has returned. */
static umx_status
note_part(umx_moe_call *call, umx_op_params *params, umx_status status)
{
    if (status != UMX_INPROGRESS) {
        call->num_pending[((part *)params->arg)->rank]--;
        free(params->arg);
        (void)umi_refs_put(&call->refs);
    }
    return (status == UMX_INPROGRESS) ? UMX_OK : status;
}

/* Put `buf` to `offset` of a rank's memory, then set a flag. */
static umx_status
tell(umx_moe_call *call, int rank, umi_moe_flag flag, const umx_rma_item *item)
{
    umx_moe   *moe    = call->moe;
    umx_atomic signal = {
        .op     = UMX_ATOMIC_SWAP,
        .size   = 8,
        .offset = umi_moe_flag_offset(moe->joint.size, flag, moe->joint.rank),
        .value  = call->number};
    umx_request  *req;
    umx_op_params params;

    if (!begin_part(call, rank, &params)) {
        return UMX_ERR_NO_MEMORY;
    }
    return note_part(call, &params,
                     umx_rma_put_signal(moe->peers[rank].rkey, item, &signal,
                                        &params, &req));
}

/* Put the rows of a rank whose memory is not mapped. What comes later is
 * executed after them. */
static umx_status
put_rows(umx_moe_call *call, int rank)
{
    const umi_moe_peer   *peer = &call->moe->peers[rank];
    const umi_moe_parcel *parcel;
    umx_request          *req;
    umx_op_params         params;
    umx_status            status;

    if (call->parcels == NULL || call->parcels[rank].num_items == 0) {
        return UMX_OK;
    }
    parcel = &call->parcels[rank];
    if (!begin_part(call, rank, &params)) {
        return UMX_ERR_NO_MEMORY;
    }
    status = note_part(call, &params,
                       umx_rma_put_many(peer->rkey, parcel->items,
                                        parcel->num_items, &params, &req));
    return (status == UMX_OK && peer->ep != NULL) ? umx_ep_fence(peer->ep) :
                                                    status;
}

/* Get the outputs of a rank whose memory is not mapped. */
static umx_status
get_outputs(umx_moe_call *call, int rank)
{
    umx_moe              *moe    = call->moe;
    const umi_moe_places *places = &moe->places;
    size_t                len = umi_moe_output_len(moe), index = 0, count = 0;
    umx_rma_item         *items;
    umx_request          *req;
    umx_op_params         params;

    if (!umi_moe_make_fetched(call)) {
        return UMX_ERR_NO_MEMORY;
    }
    items = call->fetched.items; /* only read by the posting call */
    for (size_t i = 0; i < call->num_tokens * call->width; i++) {
        const umi_moe_entry *entry = &call->entries[i];
        char                *data;

        if (entry->rank < 0 || moe->peers[entry->rank].data != NULL) {
            continue;
        }
        data = call->fetched.data + index++ * len;
        if (entry->rank != rank) {
            continue;
        }
        items[count++] = (umx_rma_item){
            .offset = call->area + places->outputs +
                      entry->row * places->row_len,
            .buf = umx_host_buffer(data, places->row_len)};
        if (moe->params.dtype == UMX_MOE_FP8) {
            items[count++] = (umx_rma_item){
                .offset = call->area + places->output_scales +
                          entry->row * places->scales_len,
                .buf = umx_host_buffer(data + places->row_len,
                                       places->scales_len)};
        }
    }
    if (count == 0) {
        return UMX_OK;
    }
    if (!begin_part(call, rank, &params)) {
        return UMX_ERR_NO_MEMORY;
    }
    return note_part(
        call, &params,
        umx_rma_get_many(moe->peers[rank].rkey, items, count, &params, &req));
}

/* ---- the end of a step ---------------------------------------------------
 */

/* The ranks have told how many rows each sends to each: so every rank knows
 * where its rows begin at each other one. */
static umx_status
end_count(umx_moe_call *call)
{
    umx_moe *moe = call->moe;
    size_t   n   = (size_t)moe->joint.size;

    for (size_t s = 0; s < n; s++) {
        const char *from = moe->memory + call->area + moe->places.counts +
                           s * moe->places.counts_len * sizeof(uint32_t);
        uint32_t *to = call->matrix + s * n;

        uint32_t num_topk;

        if ((int)s == moe->joint.rank) {
            from = (const char *)call->sent;
        }
        memcpy(to, from, n * sizeof(uint32_t));
        memcpy(&num_topk, from + n * sizeof(uint32_t), sizeof(num_topk));
        if (num_topk > moe->params.max_topk) {
            return UMX_ERR_PROTOCOL;
        }
        if (num_topk > call->most_topk) {
            call->most_topk = num_topk;
        }
        for (size_t r = 0; r < n; r++) {
            if (to[r] > moe->params.max_tokens) {
                return UMX_ERR_PROTOCOL;
            }
        }
    }
    for (size_t i = 0; i < call->num_tokens * call->width; i++) {
        umi_moe_entry *entry = &call->entries[i];

        for (size_t s = 0; entry->rank >= 0 && s < (size_t)moe->joint.rank;
             s++) {
            entry->row += call->matrix[s * n + (size_t)entry->rank];
        }
    }
    call->step = UMI_MOE_COUNTED_ALL;
    return UMX_OK;
}

/* All rows have come. */
static umx_status
end_dispatch(umx_moe_call *call)
{
    umx_moe *moe = call->moe;
    size_t   n = (size_t)moe->joint.size, local = moe->num_local;

    call->step = UMI_MOE_RECEIVED;
    for (size_t s = 0; s < n; s++) {
        const uint32_t *counts = (const void *)(moe->memory + call->area +
                                                moe->places.counts);
        bool            is_own = (int)s == moe->joint.rank;

        if (umi_moe_is_unique(call)) {
            call->received[s] = call->matrix[s * n + (size_t)moe->joint.rank];
            continue;
        }
        counts = is_own ? call->sent + s * local :
                          counts + s * moe->places.counts_len;
        for (size_t e = 0; e < local; e++) {
            uint32_t count = call->is_skipped[s] ? 0 : counts[e];

            if (count > moe->params.max_tokens) {
                return UMX_ERR_PROTOCOL;
            }
            call->received[e * n + s] = count;
        }
    }
    return UMX_OK;
}

static umx_status
end_step(umx_moe_call *call)
{
    switch (call->step) {
    case UMI_MOE_COUNTING:
        return end_count(call);
    case UMI_MOE_SENDING:
        return end_dispatch(call);
    case UMI_MOE_LEAVING:
        return UMX_OK;
    default:
        call->step = UMI_MOE_READY_ALL;
        return UMX_OK;
    }
}

void
umi_moe_end_wait(umx_moe_call *call, umx_status status)
{
    umx_request *req = call->req;

    umx_timer_stop(&call->timer);
    if (umi_node_is_linked(&call->node)) {
        umi_node_remove(&call->node);
    }
    call->req = NULL;
    if (req != NULL) {
        umx_request_complete(req, status);
        umi_moe_call_put(call);
    }
}

/* Is the step not over for a rank: has it not told, or is an operation under
 * way? */
static bool
is_missing(const umx_moe_call *call, int rank)
{
    return is_waited_for(call, rank) ||
           (!call->is_skipped[rank] && call->num_pending[rank] != 0);
}

/* A rank is waited for that takes part in nothing more. `why` is its flag, or
 * nothing if it has ended otherwise. */
static void
handle_leaver(umx_moe_call *call, int rank, uint64_t why)
{
    const umx_moe *moe    = call->moe;
    bool           may_go = (moe->params.flags & UMX_MOE_FLAG_MASK) != 0 &&
                  !umi_moe_is_unique(call);
    uint64_t failed = why - UMI_MOE_RANK_FAILED;

    if (may_go || why < UMI_MOE_RANK_FAILED ||
        failed >= (uint64_t)moe->joint.size ||
        failed == (uint64_t)moe->joint.rank) {
        mask_or_fail(call, rank);
    } else {
        mask_or_fail(call, (int)failed);
    }
}

/* Begin to fetch the outputs of a rank, if they can be read and are not mapped.
 */
static void
fetch(umx_moe_call *call, int rank)
{
    const umx_moe *moe = call->moe;
    umx_status     status;

    if (call->step != UMI_MOE_COMBINING || rank == moe->joint.rank ||
        moe->peers[rank].data != NULL || call->is_skipped[rank] ||
        call->is_fetched[rank]) {
        return;
    }
    call->is_fetched[rank] = true;
    status                 = get_outputs(call, rank);
    if (status != UMX_OK) {
        end_badly(call, rank, status);
    }
}

/* Is the step over? What can go on meanwhile is begun. */
static bool
is_over(umx_moe_call *call)
{
    umx_moe *moe     = call->moe;
    bool     is_over = true;

    for (int i = 0; i < moe->joint.size && moe->joint.state == UMI_JOINT_OPEN;
         i++) {
        /* A rank tells what it has to tell before it leaves. */
        uint64_t why = umi_moe_flag_value(moe, UMI_MOE_LEFT, i);

        if (call->is_skipped[i] || i == moe->joint.rank) {
            continue;
        }
        if (umi_moe_flag_value(moe, UMI_MOE_MASKED, i) != 0) {
            umi_moe_fail(moe, UMX_ERR_RANK_FAILED, -1);
        } else if (!is_waited_for(call, i)) {
            fetch(call, i);
        } else if (why != UMI_MOE_STAYS || moe->peers[i].has_left) {
            handle_leaver(call, i, why);
        }
        is_over = is_over && !is_missing(call, i);
    }
    return is_over && moe->joint.state == UMI_JOINT_OPEN && !call->has_failed;
}

static bool
look(void *arg)
{
    return umi_moe_look(arg);
}

bool
umi_moe_look(umx_moe *moe)
{
    size_t    left   = umi_list_count(&moe->waits);
    bool      is_new = false, is_end;
    umi_node *node;

    umi_moe_hold(moe);
    while (moe->joint.state == UMI_JOINT_OPEN &&
           (node = umi_list_turn(&moe->waits, &left)) != NULL) {
        umx_moe_call *call = umi_container_of(node, umx_moe_call, node);
        umx_status    status;

        if (!is_over(call)) {
            continue;
        }
        is_new = true;
        status = end_step(call);
        if (status != UMX_OK) {
            umi_moe_fail(moe, status, -1);
            break;
        }
        is_end = call->step == UMI_MOE_LEAVING;
        umi_moe_end_wait(call, UMX_OK);
        if (is_end) {
            umi_moe_fail(moe, UMX_ERR_CLOSED, -1);
        }
    }
    is_new |= moe->joint.state != UMI_JOINT_OPEN;
    umi_moe_put(moe);
    return is_new;
}

/* ---- time ----------------------------------------------------------------
 */

static void
start_timer(umx_moe_call *call, uint64_t now)
{
    umx_moe *moe  = call->moe;
    uint64_t left = (call->deadline_ns > now) ? call->deadline_ns - now : 0;

    if ((moe->params.flags & UMX_MOE_FLAG_MASK) != 0 && left > TICK_NS) {
        left = TICK_NS;
    }
    if (call->deadline_ns != UINT64_MAX || left == TICK_NS) {
        umx_timer_start(moe->joint.worker, &call->timer, left);
    }
}

/* Has the process of a rank ended? Where ranks are masked the communicator
 * tells of the first one only. */
static bool
has_ended(const umi_moe_peer *peer)
{
    return peer->ep == NULL || umx_ep_get_state(peer->ep) != UMX_EP_OPEN ||
           umx_ep_peer_process(peer->ep) == UMX_PROCESS_ENDED;
}

static void
on_time(umx_timer *timer)
{
    umx_moe_call *call    = umi_container_of(timer, umx_moe_call, timer);
    umx_moe      *moe     = call->moe;
    uint64_t      now     = umi_clock_ns();
    bool          is_late = now >= call->deadline_ns;

    umi_moe_hold(moe);
    umi_refs_get(&call->refs);
    (void)umi_moe_look(moe);
    for (int i = 0; i < moe->joint.size && call->req != NULL; i++) {
        if (!is_missing(call, i)) {
            continue;
        }
        if (is_late) {
            umi_moe_mask_or_fail(moe, i, UMX_ERR_TIMED_OUT);
        } else if ((moe->params.flags & UMX_MOE_FLAG_MASK) != 0 &&
                   has_ended(&moe->peers[i])) {
            umi_moe_mask_or_fail(moe, i, UMX_ERR_RANK_FAILED);
        }
    }
    (void)umi_moe_look(moe);
    if (call->req != NULL) {
        if (is_late) { /* only operations of this rank are under way */
            call->deadline_ns = UINT64_MAX;
        }
        start_timer(call, now);
    }
    umi_moe_call_put(call);
    umi_moe_put(moe);
}

/* ---- the steps -----------------------------------------------------------
 */

static void
cancel(umx_request *req)
{
    umx_moe_call *call = UMX_REQUEST_OF(req, umx_moe_call);

    umi_moe_fail(call->moe, UMX_ERR_CANCELED, -1);
}

/* The caller does not know that it has ended. */
static umx_status
cancel_complete(umx_request *req, umx_status status)
{
    umx_moe_call *call = UMX_REQUEST_OF(req, umx_moe_call);

    (void)status;
    umi_moe_fail(call->moe, UMX_ERR_CANCELED, -1);
    return UMX_ERR_CANCELED;
}

static const umx_request_class step_class = {
    .name = "moe", .cancel = cancel, .cancel_complete = cancel_complete};

static umx_status
wait_for_all(umx_moe_call *call, const umx_op_params *op, umx_request **req_p)
{
    umx_moe   *moe = call->moe;
    uint64_t   now = umi_clock_ns(), timeout = moe->params.timeout_ns;
    umx_status status;

    if (is_over(call)) {
        status = end_step(call);
        if (status != UMX_OK) {
            umi_moe_fail(moe, status, -1);
        }
        return status;
    }
    if (moe->joint.state != UMI_JOINT_OPEN) {
        return moe->joint.status;
    }
    if (moe->lookout == NULL) {
        status = umx_lookout_start(moe->joint.worker, moe->memh, look, moe,
                                   &moe->lookout);
        if (status != UMX_OK) {
            umi_moe_fail(moe, status, -1);
            return status;
        }
    }
    call->req = umx_request_create(moe->joint.worker, &step_class, op);
    if (call->req == NULL) {
        umi_moe_fail(moe, UMX_ERR_NO_MEMORY, -1);
        return UMX_ERR_NO_MEMORY;
    }
    umi_refs_get(&call->refs);
    call->deadline_ns = (timeout < UINT64_MAX - now) ? now + timeout :
                                                       UINT64_MAX;
    UMX_REQUEST_OF(call->req, umx_moe_call) = call;
    *req_p                                  = call->req;
    umi_list_append(&moe->waits, &call->node);
    umx_timer_init(&call->timer, on_time);
    start_timer(call, now);
    return UMX_INPROGRESS;
}

/* Can this step begin? */
static umx_status
check_step(const umx_moe_call *call, umi_moe_step step, uint64_t before)
{
    umx_status status = umx_moe_state(call->moe);

    if (status != UMX_OK) {
        return status;
    }
    if (call->step != step || before + 1 != call->number) {
        return UMX_ERR_INVALID_PARAM;
    }
    return (umi_moe_is_unique(call) && umi_moe_has_mask(call->moe)) ?
               UMX_ERR_UNSUPPORTED :
               UMX_OK;
}

/* Tell all others something: `item` is what is written before the flag. */
static void
tell_all(umx_moe_call *call, umi_moe_flag flag)
{
    umx_moe *moe = call->moe;
    size_t   n   = (size_t)moe->joint.size;

    for (int i = 0; i < moe->joint.size && moe->joint.state == UMI_JOINT_OPEN;
         i++) {
        umx_rma_item item   = {.offset = 0,
                               .buf    = umx_host_buffer(call->sent, 0)};
        umx_status   status = UMX_OK;

        if (i == moe->joint.rank || call->is_skipped[i]) {
            continue;
        }
        item.offset = call->area + moe->places.counts +
                      (size_t)moe->joint.rank * moe->places.counts_len *
                          sizeof(uint32_t);
        if (flag == UMI_MOE_COUNTED) {
            item.buf = umx_host_buffer(call->sent, (n + 1) * sizeof(uint32_t));
        } else if (flag == UMI_MOE_SENT) {
            status = put_rows(call, i);
            if (!umi_moe_is_unique(call)) {
                item.buf = umx_host_buffer(call->sent +
                                               (size_t)i * moe->num_local,
                                           moe->num_local * sizeof(uint32_t));
            }
        }
        if (status == UMX_OK) {
            status = tell(call, i, flag, &item);
        }
        if (status != UMX_OK) {
            end_badly(call, i, status);
        }
    }
}

umx_status
umx_moe_count(umx_moe_call *call, const umx_op_params *op, umx_request **req_p)
{
    umx_moe *moe = call->moe;
    UMI_MOE_LOCK(moe);
    umx_status status = check_step(call, UMI_MOE_BEGUN, moe->num_sent);

    if (status != UMX_OK) {
        return status;
    }
    call->step        = UMI_MOE_COUNTING;
    call->has_counted = true;
    tell_all(call, UMI_MOE_COUNTED);
    return wait_for_all(call, op, req_p);
}

umx_status
umx_moe_dispatch(umx_moe_call *call, const umx_op_params *op,
                 umx_request **req_p)
{
    umx_moe *moe = call->moe;
    UMI_MOE_LOCK(moe);
    umx_status status = check_step(call, UMI_MOE_PACKED, moe->num_sent);

    if (status != UMX_OK) {
        return status;
    }
    call->step    = UMI_MOE_SENDING;
    moe->num_sent = call->number;
    tell_all(call, UMI_MOE_SENT);
    return wait_for_all(call, op, req_p);
}

umx_status
umx_moe_combine(umx_moe_call *call, const umx_op_params *op,
                umx_request **req_p)
{
    umx_moe *moe = call->moe;
    UMI_MOE_LOCK(moe);
    umx_status status = check_step(call, UMI_MOE_RECEIVED, moe->num_combined);

    if (status != UMX_OK) {
        return status;
    }
    call->step        = UMI_MOE_COMBINING;
    moe->num_combined = call->number;
    for (int i = 0; i < moe->joint.size; i++) {
        call->is_skipped[i] |= moe->peers[i].is_masked;
    }
    tell_all(call, UMI_MOE_READY);
    return wait_for_all(call, op, req_p);
}

umx_status
umx_moe_leave(umx_moe *moe, const umx_op_params *op, umx_request **req_p)
{
    UMI_MOE_LOCK(moe);
    umx_status    status = umx_moe_state(moe);
    umx_moe_call *call;

    if (status != UMX_OK) {
        return status;
    }
    call = umi_moe_new_call(moe, 0, 0, 0);
    if (call == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    call->number = 1;
    call->area   = moe->places.first;
    call->step   = UMI_MOE_LEAVING;
    for (int i = 0; i < moe->joint.size; i++) {
        call->is_skipped[i] = moe->peers[i].is_masked;
    }
    tell_all(call, UMI_MOE_LEFT);
    moe->has_left = true;
    status        = wait_for_all(call, op, req_p);
    umi_moe_call_put(call);
    if (status == UMX_OK) {
        umi_moe_fail(moe, UMX_ERR_CLOSED, -1);
    }
    return status;
}
