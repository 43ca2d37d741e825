/* SPDX-License-Identifier: BSD-3-Clause */
/* pack.c: rows are written to the memory of ranks, and outputs read from there
 * and summed. Thread: any, while nobody else uses the call. */
#include <stdlib.h>
#include <string.h>

#include "moe/moe.h"
#include "moe/rows.h"

enum {
    ITEMS = 3 /* of a row at most: itself, its scales, its experts */
};

/* ---- parcels -------------------------------------------------------------
 */

static void
free_parcel(umi_moe_parcel *parcel)
{
    free(parcel->data);
    free(parcel->items);
}

void
umi_moe_free_parcels(umx_moe_call *call)
{
    for (int i = 0; call->parcels != NULL && i < call->moe->joint.size; i++) {
        free_parcel(&call->parcels[i]);
    }
    free(call->parcels);
    free_parcel(&call->fetched);
}

static bool
make_parcel(umi_moe_parcel *parcel, size_t num_rows, size_t len)
{
    parcel->data  = malloc(num_rows * len + 1);
    parcel->items = calloc(num_rows * ITEMS + 1, sizeof(*parcel->items));
    return parcel->data != NULL && parcel->items != NULL;
}

/* Rows that go to a rank. */
static size_t
count_rows(const umx_moe_call *call, int rank)
{
    size_t count = 0;

    for (size_t i = 0; i < call->num_tokens * call->width; i++) {
        count += call->entries[i].rank == rank;
    }
    return count;
}

static bool
is_far(const umx_moe *moe, int rank)
{
    return moe->peers[rank].data == NULL;
}

/* Bytes of the experts and weights of a row. */
static size_t
topk_len(const umx_moe *moe)
{
    return moe->params.max_topk * (sizeof(int32_t) + sizeof(float));
}

static bool
make_parcels(umx_moe_call *call)
{
    umx_moe *moe = call->moe;
    size_t   len = call->row_len + moe->places.scales_len + topk_len(moe);

    for (int i = 0; i < moe->joint.size; i++) {
        if (!is_far(moe, i) || call->is_skipped[i]) {
            continue;
        }
        if (call->parcels == NULL) {
            call->parcels = calloc((size_t)moe->joint.size,
                                   sizeof(*call->parcels));
        }
        if (call->parcels == NULL ||
            (call->parcels[i].data == NULL &&
             !make_parcel(&call->parcels[i], count_rows(call, i), len))) {
            return false;
        }
        call->parcels[i].num_items = 0;
    }
    return true;
}

bool
umi_moe_make_fetched(umx_moe_call *call)
{
    size_t count = 0;

    if (call->fetched.data != NULL) {
        return true;
    }
    for (int i = 0; i < call->moe->joint.size; i++) {
        count += is_far(call->moe, i) ? count_rows(call, i) : 0;
    }
    return make_parcel(&call->fetched, count, umi_moe_output_len(call->moe));
}

/* ---- rows ----------------------------------------------------------------
 */

/* A row, as it goes to each of its ranks. */
typedef struct packed_row {
    const void  *data;
    const float *scales;
    size_t       scales_len; /* 0: none */
    const void  *topk;
    size_t       topk_len; /* 0: none */
} packed_row;

/* Write `len` bytes to `offset` of a rank's memory, or to its parcel. */
static char *
write_piece(umx_moe_call *call, int rank, size_t offset, const void *data,
            size_t len, char *end)
{
    const umi_moe_peer *peer = &call->moe->peers[rank];
    umi_moe_parcel     *parcel;

    if (len == 0) {
        return end;
    }
    if (peer->data != NULL) {
        memcpy(peer->data + offset, data, len);
        return end;
    }
    parcel = &call->parcels[rank];
    memcpy(end, data, len);
    parcel->items[parcel->num_items++] = (umx_rma_item){
        .offset = offset, .buf = umx_host_buffer(end, len)};
    return end + len;
}

/* Where the next row of a parcel begins. */
static char *
parcel_end(const umx_moe_call *call, int rank)
{
    const umi_moe_parcel *parcel;
    const umx_rma_item   *last;

    if (!is_far(call->moe, rank)) {
        return NULL;
    }
    parcel = &call->parcels[rank];
    if (parcel->num_items == 0) {
        return parcel->data;
    }
    last = &parcel->items[parcel->num_items - 1];
    return (char *)last->buf.data + last->buf.len;
}

static void
write_row(umx_moe_call *call, const umi_moe_entry *entry, const packed_row *row)
{
    const umi_moe_places *places = &call->moe->places;
    size_t                n      = entry->row;
    int                   rank   = entry->rank;
    char                 *end    = parcel_end(call, rank);

    end = write_piece(call, rank, call->area + places->rows + n * call->row_len,
                      row->data, call->row_len, end);
    end = write_piece(call, rank,
                      call->area + places->scales + n * places->scales_len,
                      row->scales, row->scales_len, end);
    (void)write_piece(call, rank,
                      call->area + places->topk + n * topk_len(call->moe),
                      row->topk, row->topk_len, end);
}

/* Write the experts that a token has at a rank, and their weights. */
static void
write_topk(const umx_moe_call *call, size_t token, int rank,
           const float *weights, void *topk)
{
    const umx_moe *moe     = call->moe;
    int32_t       *idx     = topk;
    float         *floats  = (float *)(idx + moe->params.max_topk);
    const int64_t *experts = call->topk_idx + token * call->num_topk;

    for (size_t k = 0; k < moe->params.max_topk; k++) {
        bool is_here = k < call->num_topk && experts[k] >= 0 &&
                       experts[k] / moe->num_local == rank;

        idx[k]    = is_here ? (int32_t)(experts[k] % moe->num_local) : -1;
        floats[k] = 0;
        if (is_here) {
            floats[k] = (weights == NULL) ? 1 :
                                            weights[token * call->num_topk + k];
        }
    }
}

static void
pack_token(umx_moe_call *call, size_t token, packed_row *row, void *topk,
           const float *weights)
{
    for (size_t i = 0; i < call->width; i++) {
        const umi_moe_entry *entry = &call->entries[token * call->width + i];

        if (!umi_moe_is_wanted(call, entry)) {
            continue;
        }
        if (row->topk_len != 0) {
            write_topk(call, token, entry->rank, weights, topk);
        }
        write_row(call, entry, row);
    }
}

umx_status
umx_moe_pack(umx_moe_call *call, const umx_moe_rows *rows)
{
    const umx_moe *moe    = call->moe;
    size_t         hidden = moe->params.hidden, blocks = hidden / UMX_MOE_BLOCK;
    packed_row     row = {.topk_len = 0};
    float         *scales;
    char          *topk, *cast;

    if (call->step != UMI_MOE_COUNTED_ALL) {
        return UMX_ERR_INVALID_PARAM;
    }
    scales = malloc((blocks + 1) * sizeof(*scales) + topk_len(moe) + hidden);
    if (scales == NULL || !make_parcels(call)) {
        free(scales);
        return UMX_ERR_NO_MEMORY;
    }
    topk         = (char *)(scales + blocks + 1);
    cast         = topk + topk_len(moe);
    row.topk     = topk;
    row.topk_len = (umi_moe_is_unique(call) && !call->is_like) ? topk_len(moe) :
                                                                 0;
    row.scales_len = (call->dtype == UMX_MOE_FP8) ? blocks * sizeof(float) : 0;
    for (size_t t = 0; t < call->num_tokens; t++) {
        row.data   = (const char *)rows->data + t * moe->places.row_len;
        row.scales = (rows->scales == NULL) ? NULL : rows->scales + t * blocks;
        if ((call->flags & UMX_MOE_CAST_FP8) != 0) {
            umx_moe_to_fp8((uint8_t *)cast, scales, row.data, moe->params.dtype,
                           1, hidden);
            row.data   = cast;
            row.scales = scales;
        }
        pack_token(call, t, &row, topk, rows->weights);
    }
    free(scales);
    call->step = UMI_MOE_PACKED;
    return UMX_OK;
}

/* ---- outputs -------------------------------------------------------------
 */

/* Copy bytes of rows from one place to the same place elsewhere. */
static void
copy_rows(char *to, const void *from, size_t first, size_t count, size_t len)
{
    if (from != to && len != 0) {
        memcpy(to + first * len, (const char *)from + first * len, count * len);
    }
}

static void
copy_outputs(const umx_moe_call *call, size_t first, size_t count,
             const void *data, const float *scales)
{
    const umi_moe_places *places = &call->moe->places;
    char                 *area   = call->moe->memory + call->area;

    copy_rows(area + places->outputs, data, first, count, places->row_len);
    if (call->moe->params.dtype == UMX_MOE_FP8) {
        copy_rows(area + places->output_scales, scales, first, count,
                  places->scales_len);
    }
}

umx_status
umx_moe_unpack(umx_moe_call *call, const void *data, const float *scales)
{
    const umx_moe *moe   = call->moe;
    size_t         n     = (size_t)moe->joint.size;
    size_t         first = 0;

    if (call->step != UMI_MOE_RECEIVED) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (umi_moe_is_unique(call)) {
        for (size_t i = 0; i < n; i++) {
            first += call->received[i];
        }
        copy_outputs(call, 0, first, data, scales);
        return UMX_OK;
    }
    for (size_t i = 0; i < moe->num_local * n; i++) {
        copy_outputs(call, i * moe->params.max_tokens, call->received[i], data,
                     scales);
    }
    return UMX_OK;
}

/* Find the output of an entry; `*index_p` counts the fetched ones. */
static void
find_output(const umx_moe_call *call, const umi_moe_entry *entry,
            size_t *index_p, umi_moe_row *row)
{
    const umx_moe        *moe    = call->moe;
    const umi_moe_places *places = &moe->places;
    const char           *data;

    row->data   = NULL;
    row->scales = NULL;
    if (entry->rank < 0) {
        return;
    }
    data = moe->peers[entry->rank].data;
    if (data == NULL) {
        data      = call->fetched.data + (*index_p)++ * umi_moe_output_len(moe);
        row->data = data;
        row->scales = (const float *)(const void *)(data + places->row_len);
    } else {
        data += call->area;
        row->data = data + places->outputs + entry->row * places->row_len;
        row->scales =
            (const float *)(const void *)(data + places->output_scales +
                                          entry->row * places->scales_len);
    }
    if (call->is_skipped[entry->rank]) {
        row->data = NULL;
    }
}

/* Has a rank masked this one, whose outputs have been read? It masks before it
 * writes others there. */
static bool
is_masked(const umx_moe_call *call)
{
    const umx_moe *moe = call->moe;

    atomic_thread_fence(memory_order_acquire);
    for (int i = 0; i < moe->joint.size; i++) {
        if (!call->is_skipped[i] &&
            umi_moe_flag_value(moe, UMI_MOE_MASKED, i) != 0) {
            return true;
        }
    }
    return false;
}

umx_status
umx_moe_sum(umx_moe_call *call, const float *weights, umx_moe_dtype dtype,
            void *out)
{
    const umx_moe *moe   = call->moe;
    size_t         len   = moe->params.hidden * umx_moe_dtype_size(dtype);
    size_t         index = 0;
    umi_moe_row   *rows;

    if (call->step != UMI_MOE_READY_ALL || dtype == UMX_MOE_FP8) {
        return UMX_ERR_INVALID_PARAM;
    }
    rows = calloc(call->width + 1, sizeof(*rows));
    if (rows == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    for (size_t t = 0; t < call->num_tokens; t++) {
        for (size_t i = 0; i < call->width; i++) {
            size_t n = t * call->width + i;

            find_output(call, &call->entries[n], &index, &rows[i]);
            rows[i].weight = (weights == NULL) ? 1 : weights[n];
        }
        umi_moe_add_rows((char *)out + t * len, dtype, rows, call->width,
                         moe->params.dtype, moe->params.hidden);
    }
    free(rows);
    call->step = UMI_MOE_SUMMED;
    return is_masked(call) ? UMX_ERR_RANK_FAILED : UMX_OK;
}
