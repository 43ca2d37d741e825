/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.c: which rows go where, and where the parts of a memory are. */
#include <string.h>

#include "moe/moe.h"

enum {
    PAGE = 4096
};

/* ---- where the parts are -------------------------------------------------
 */

typedef struct cursor {
    size_t at;
    bool   is_over;
} cursor;

/* The offset of `count` items of `size` bytes. */
static size_t
take(cursor *c, size_t count, size_t size)
{
    size_t at = c->at, len;

    if (__builtin_mul_overflow(count, size, &len) ||
        len > (size_t)PTRDIFF_MAX / 4 - PAGE - at) {
        c->is_over = true;
        return at;
    }
    c->at = (at + len + PAGE - 1) & ~(size_t)(PAGE - 1);
    return at;
}

bool
umi_moe_find_places(const umx_moe_params *params, int num_ranks,
                    umi_moe_places *places)
{
    size_t n          = (size_t)num_ranks;
    size_t local      = params->num_experts / n;
    size_t size       = umx_moe_dtype_size(params->dtype);
    bool   has_scales = params->hidden % UMX_MOE_BLOCK == 0;
    cursor c          = {.at = 0};

    places->num_rows      = params->num_experts * (size_t)params->max_tokens;
    places->counts_len    = ((local > n) ? local : n) + 1;
    places->row_len       = params->hidden * size;
    places->scales_len    = has_scales ?
                                params->hidden / UMX_MOE_BLOCK * sizeof(float) :
                                0;
    places->counts        = take(&c, n * places->counts_len, sizeof(uint32_t));
    places->rows          = take(&c, places->num_rows, places->row_len);
    places->scales        = take(&c, places->num_rows, places->scales_len);
    places->topk          = take(&c, n * params->max_tokens,
                                 params->max_topk * 2 * sizeof(int32_t));
    places->outputs       = take(&c, places->num_rows, places->row_len);
    places->output_scales = take(
        &c, (params->dtype == UMX_MOE_FP8) ? places->num_rows : 0,
        places->scales_len);
    places->len = c.at;
    c.at        = 0;
    (void)take(&c, UMI_MOE_NUM_FLAGS * n, 64);
    places->first = c.at;
    return !c.is_over;
}

/* ---- which rows go where -------------------------------------------------
 */

umx_status
umi_moe_check_routing(const umx_moe_routing *routing)
{
    for (size_t t = 0; t < routing->num_tokens; t++) {
        const int64_t *experts = routing->topk_idx + t * routing->num_topk;

        for (size_t k = 0; k < routing->num_topk; k++) {
            if (experts[k] < -1 ||
                experts[k] >= (int64_t)routing->num_experts) {
                return UMX_ERR_OUT_OF_RANGE;
            }
            for (size_t i = 0; i < k; i++) {
                if (experts[i] == experts[k] && experts[k] != -1) {
                    return UMX_ERR_INVALID_PARAM;
                }
            }
        }
    }
    return UMX_OK;
}

void
umi_moe_plan_experts(const umx_moe_routing *routing, int rank,
                     uint32_t max_tokens, umi_moe_entry *entries,
                     uint32_t *counts)
{
    uint32_t num_local = routing->num_experts / (uint32_t)routing->num_ranks;
    size_t   count     = routing->num_tokens * routing->num_topk;

    memset(counts, 0, routing->num_experts * sizeof(*counts));
    for (size_t i = 0; i < count; i++) {
        uint32_t expert = (uint32_t)routing->topk_idx[i];
        uint32_t cell;

        if (routing->topk_idx[i] == -1) {
            entries[i].rank = -1;
            continue;
        }
        cell = expert % num_local * (uint32_t)routing->num_ranks +
               (uint32_t)rank;
        entries[i].rank = (int32_t)(expert / num_local);
        entries[i].row  = cell * max_tokens + counts[expert]++;
    }
}

void
umi_moe_plan_ranks(const umx_moe_routing *routing, umi_moe_entry *entries,
                   uint32_t *counts)
{
    uint32_t num_local = routing->num_experts / (uint32_t)routing->num_ranks;
    size_t   n         = (size_t)routing->num_ranks;

    memset(counts, 0, n * sizeof(*counts));
    for (size_t t = 0; t < routing->num_tokens; t++) {
        const int64_t *experts = routing->topk_idx + t * routing->num_topk;
        umi_moe_entry *entry   = entries + t * n;

        for (size_t r = 0; r < n; r++) {
            entry[r].rank = -1;
        }
        for (size_t k = 0; k < routing->num_topk; k++) {
            uint32_t rank = (uint32_t)experts[k] / num_local;

            if (experts[k] != -1 && entry[rank].rank == -1) {
                entry[rank].rank = (int32_t)rank;
                entry[rank].row  = counts[rank]++;
            }
        }
    }
}

umx_status
umx_moe_layout(const umx_moe_routing *routing, uint32_t *per_rank,
               uint32_t *per_expert, uint8_t *is_in_rank)
{
    size_t     n = (size_t)routing->num_ranks;
    uint32_t   num_local;
    umx_status status;

    if (routing->num_ranks < 1 || routing->num_experts == 0 ||
        routing->num_experts % n != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    status    = umi_moe_check_routing(routing);
    num_local = routing->num_experts / (uint32_t)n;
    if (status != UMX_OK) {
        return status;
    }
    memset(per_rank, 0, n * sizeof(*per_rank));
    memset(per_expert, 0, routing->num_experts * sizeof(*per_expert));
    if (is_in_rank != NULL) {
        memset(is_in_rank, 0, routing->num_tokens * n);
    }
    for (size_t t = 0; t < routing->num_tokens; t++) {
        const int64_t *experts = routing->topk_idx + t * routing->num_topk;

        for (size_t k = 0; k < routing->num_topk; k++) {
            bool   is_new = experts[k] != -1;
            size_t rank   = is_new ? (size_t)experts[k] / num_local : 0;

            per_expert[is_new ? experts[k] : 0] += is_new;
            for (size_t i = 0; i < k && is_new; i++) {
                is_new = experts[i] == -1 ||
                         (size_t)experts[i] / num_local != rank;
            }
            per_rank[rank] += is_new;
            if (is_in_rank != NULL && is_new) {
                is_in_rank[t * n + rank] = 1;
            }
        }
    }
    return UMX_OK;
}
