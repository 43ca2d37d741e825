/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.c: weighted sums of rows, in a fixed order, so that they are the same
 * bytes in every run and on every processor: a product and an addition must not
 * become one instruction, which rounds once. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else /* before the functions that are to become part of the loops */
#pragma GCC optimize("fp-contract=off")
#endif

#include "moe/rows.h"

#include "moe/numbers.h"

enum {
    PART = 4 *
           UMX_MOE_BLOCK /* numbers that are summed at a time: in the cache */
};

static void
add_f32(float *sum, const float *row, float weight, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        sum[i] += weight * row[i];
    }
}

static void
add_bf16(float *sum, const uint16_t *row, float weight, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        sum[i] += weight * umi_moe_of_bf16(row[i]);
    }
}

static void
add_fp8(float *sum, const uint8_t *row, const float *scales, float weight,
        size_t len)
{
    for (size_t i = 0; i < len; i += UMX_MOE_BLOCK) {
        float scale = scales[i / UMX_MOE_BLOCK];

        for (size_t j = i; j < i + UMX_MOE_BLOCK; j++) {
            float number = umi_moe_of_fp8(row[j]) * scale;

            sum[j] += weight * number;
        }
    }
}

static void
add_row(float *sum, const umi_moe_row *row, umx_moe_dtype dtype, size_t first,
        size_t len)
{
    switch (dtype) {
    case UMX_MOE_F32:
        add_f32(sum, (const float *)row->data + first, row->weight, len);
        break;
    case UMX_MOE_BF16:
        add_bf16(sum, (const uint16_t *)row->data + first, row->weight, len);
        break;
    case UMX_MOE_FP8:
        add_fp8(sum, (const uint8_t *)row->data + first,
                row->scales + first / UMX_MOE_BLOCK, row->weight, len);
        break;
    }
}

static void
store(void *out, umx_moe_dtype dtype, const float *sum, size_t first,
      size_t len)
{
    if (dtype == UMX_MOE_F32) {
        memcpy((float *)out + first, sum, len * sizeof(*sum));
    } else {
        uint16_t *numbers = (uint16_t *)out + first;

        for (size_t i = 0; i < len; i++) {
            numbers[i] = umi_moe_to_bf16(sum[i]);
        }
    }
}

void
umi_moe_add_rows(void *out, umx_moe_dtype out_dtype, const umi_moe_row *rows,
                 size_t count, umx_moe_dtype dtype, size_t hidden)
{
    float sum[PART];

    for (size_t first = 0; first < hidden; first += PART) {
        size_t len = (hidden - first < PART) ? hidden - first : PART;

        memset(sum, 0, sizeof(sum));
        for (size_t k = 0; k < count; k++) {
            if (rows[k].data != NULL) {
                add_row(sum, &rows[k], dtype, first, len);
            }
        }
        store(out, out_dtype, sum, first, len);
    }
}
