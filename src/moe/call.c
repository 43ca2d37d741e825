/* SPDX-License-Identifier: BSD-3-Clause */
/* call.c: the life of a call. */
#include <stdlib.h>
#include <string.h>

#include "moe/moe.h"
#include "util/count.h"

static void
free_call(umx_moe_call *call)
{
    umx_moe *moe = call->moe;

    umi_moe_free_parcels(call);
    free(call->topk_idx);
    free(call->entries);
    free(call->sent);
    free(call->received);
    free(call->matrix);
    free(call->is_skipped);
    free(call->is_fetched);
    free(call->num_pending);
    free(call);
    umi_moe_put(moe);
}

void
umi_moe_call_put(umx_moe_call *call)
{
    if (umi_refs_put(&call->refs)) {
        free_call(call);
    }
}

/* ---- the begin -----------------------------------------------------------
 */

umx_moe_call *
umi_moe_new_call(umx_moe *moe, unsigned flags, size_t num_tokens,
                 size_t num_topk)
{
    umx_moe_call *call = calloc(1, sizeof(*call));
    size_t        n    = (size_t)moe->joint.size;

    if (call == NULL) {
        return NULL;
    }
    umi_moe_hold(moe);
    umi_node_init(&call->node);
    call->moe = moe;
    umi_refs_init(&call->refs);
    call->flags      = flags;
    call->num_tokens = num_tokens;
    call->num_topk   = num_topk;
    call->width      = umi_moe_is_unique(call) ? n : num_topk;
    call->dtype      = ((flags & UMX_MOE_CAST_FP8) != 0) ? UMX_MOE_FP8 :
                                                           moe->params.dtype;
    call->row_len    = moe->params.hidden * umx_moe_dtype_size(call->dtype);
    /* One more, so that none is of length 0. */
    call->topk_idx = calloc(num_tokens * num_topk + 1, sizeof(int64_t));
    call->entries = calloc(num_tokens * call->width + 1, sizeof(umi_moe_entry));
    call->sent    = calloc(umi_moe_is_unique(call) ? n + 1 :
                                                     moe->params.num_experts,
                        sizeof(uint32_t));
    call->received = calloc(umi_moe_is_unique(call) ? n : moe->num_local * n,
                            sizeof(uint32_t));
    call->matrix = calloc(umi_moe_is_unique(call) ? n * n : 1,
                          sizeof(uint32_t));
    call->is_skipped  = calloc(n, sizeof(bool));
    call->is_fetched  = calloc(n, sizeof(bool));
    call->num_pending = calloc(n, sizeof(uint32_t));
    if (call->topk_idx == NULL || call->entries == NULL || call->sent == NULL ||
        call->received == NULL || call->matrix == NULL ||
        call->is_skipped == NULL || call->is_fetched == NULL ||
        call->num_pending == NULL) {
        free_call(call);
        return NULL;
    }
    return call;
}

/* Give a call its number and its area. */
static void
enter(umx_moe_call *call)
{
    umx_moe *moe   = call->moe;
    size_t   index = moe->num_calls % UMX_MOE_LIVE_MAX;

    call->number     = ++moe->num_calls;
    call->area       = moe->places.first + index * moe->places.len;
    moe->live[index] = call;
    for (int i = 0; i < moe->joint.size; i++) {
        call->is_skipped[i] = moe->peers[i].is_masked;
    }
}

/* Can a call begin? */
static umx_status
check_begin(const umx_moe *moe, unsigned flags)
{
    size_t              index  = moe->num_calls % UMX_MOE_LIVE_MAX;
    const umx_moe_call *before = moe->live[index];
    umx_status          status = umx_moe_state(moe);

    if (status != UMX_OK) {
        return status;
    }
    if ((flags & UMX_MOE_CAST_FP8) != 0 &&
        (moe->places.scales_len == 0 || moe->params.dtype == UMX_MOE_FP8)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if ((flags & UMX_MOE_UNIQUE) != 0 && umi_moe_has_mask(moe)) {
        return UMX_ERR_UNSUPPORTED;
    }
    return (moe->is_abandoned[index] ||
            (before != NULL && before->step != UMI_MOE_SUMMED)) ?
               UMX_ERR_BUSY :
               UMX_OK;
}

umx_status
umx_moe_begin(umx_moe *moe, const umx_moe_routing *routing, unsigned flags,
              umx_moe_call **call_p)
{
    UMI_MOE_LOCK(moe);
    size_t        count  = routing->num_tokens * routing->num_topk;
    umx_status    status = check_begin(moe, flags);
    umx_moe_call *call;

    if (status != UMX_OK) {
        return status;
    }
    if (routing->num_tokens > moe->params.max_tokens ||
        routing->num_topk > moe->params.max_topk) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (routing->num_experts != moe->params.num_experts ||
        routing->num_ranks != moe->joint.size) {
        return UMX_ERR_INVALID_PARAM;
    }
    status = umi_moe_check_routing(routing);
    if (status != UMX_OK) {
        return status;
    }
    call = umi_moe_new_call(moe, flags, routing->num_tokens, routing->num_topk);
    if (call == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (count != 0) {
        memcpy(call->topk_idx, routing->topk_idx, count * sizeof(int64_t));
    }
    if (umi_moe_is_unique(call)) {
        umi_moe_plan_ranks(routing, call->entries, call->sent);
        call->sent[moe->joint.size] = (uint32_t)routing->num_topk;
    } else {
        umi_moe_plan_experts(routing, moe->joint.rank, moe->params.max_tokens,
                             call->entries, call->sent);
    }
    enter(call);
    call->step = umi_moe_is_unique(call) ? UMI_MOE_BEGUN : UMI_MOE_COUNTED_ALL;
    *call_p    = call;
    return UMX_OK;
}

umx_status
umx_moe_begin_like(umx_moe_call *like, unsigned flags, umx_moe_call **call_p)
{
    umx_moe *moe = like->moe;
    UMI_MOE_LOCK(moe);
    size_t        n      = (size_t)moe->joint.size;
    umx_status    status = check_begin(moe, flags | UMX_MOE_UNIQUE);
    umx_moe_call *call;

    if (status != UMX_OK) {
        return status;
    }
    if (!umi_moe_is_unique(like) || like->step < UMI_MOE_COUNTED_ALL) {
        return UMX_ERR_INVALID_PARAM;
    }
    call = umi_moe_new_call(moe, flags | UMX_MOE_UNIQUE, like->num_tokens,
                            like->num_topk);
    if (call == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    memcpy(call->topk_idx, like->topk_idx,
           like->num_tokens * like->num_topk * sizeof(int64_t));
    memcpy(call->entries, like->entries,
           like->num_tokens * n * sizeof(umi_moe_entry));
    memcpy(call->sent, like->sent, n * sizeof(uint32_t));
    memcpy(call->matrix, like->matrix, n * n * sizeof(uint32_t));
    call->most_topk = like->most_topk;
    enter(call);
    call->is_like = true;
    call->step    = UMI_MOE_COUNTED_ALL;
    *call_p       = call;
    return UMX_OK;
}

/* ---- the end -------------------------------------------------------------
 */

void
umx_moe_call_destroy(umx_moe_call *call)
{
    umx_moe *moe = call->moe;
    UMI_MOE_LOCK(moe);
    size_t index = (size_t)(call->number - 1) % UMX_MOE_LIVE_MAX;

    umi_moe_hold(moe);
    if (moe->live[index] == call) {
        moe->live[index] = NULL;
        if (call->step < UMI_MOE_SENDING && call->number == moe->num_calls &&
            !call->has_counted) {
            UMI_DECREMENT(moe->num_calls); /* nobody has heard of it */
        } else if (call->step < UMI_MOE_SENDING) {
            umi_moe_fail(moe, UMX_ERR_CANCELED, -1);
        } else if (call->step < UMI_MOE_READY_ALL) {
            moe->is_abandoned[index] = true;
        }
    }
    umi_moe_call_put(call);
    umi_moe_put(moe);
}

/* ---- what is known -------------------------------------------------------
 */

void
umx_moe_call_info(const umx_moe_call *call, umx_moe_info *info)
{
    const umi_moe_places *places = &call->moe->places;

    *info = (umx_moe_info){
        .dtype         = call->dtype,
        .rows          = call->area + places->rows,
        .scales        = call->area + places->scales,
        .outputs       = call->area + places->outputs,
        .output_scales = call->area + places->output_scales,
        .topk_idx      = call->area + places->topk,
        .topk_weights  = call->area + places->topk +
                        call->moe->params.max_topk * sizeof(int32_t),
        .counts   = call->received,
        .num_topk = (uint32_t)call->most_topk,
        .has_topk = umi_moe_is_unique(call) && !call->is_like,
    };
}
