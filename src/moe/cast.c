/* SPDX-License-Identifier: BSD-3-Clause */
/* cast.c: rows of floats become FP8 with scales, and back. */
#include <umx/moe.h>

#include "moe/numbers.h"

/* The largest finite magnitude of a block: as integers, whose order is the
 * same, and for which a compiler makes a vector of the loop. */
static float
magnitude(const float *block)
{
    int32_t most = umi_moe_bits(1e-30f);

    for (int i = 0; i < UMX_MOE_BLOCK; i++) {
        int32_t bits = umi_moe_bits(block[i]) & 0x7fffffff;

        bits = (bits >= 0x7f800000) ? 0 : bits;
        most = (bits > most) ? bits : most;
    }
    return umi_moe_float(most);
}

static void
load_block(float *block, const void *from, umx_moe_dtype dtype)
{
    if (dtype == UMX_MOE_BF16) {
        const uint16_t *numbers = from;

        for (int i = 0; i < UMX_MOE_BLOCK; i++) {
            block[i] = umi_moe_of_bf16(numbers[i]);
        }
    } else {
        memcpy(block, from, UMX_MOE_BLOCK * sizeof(*block));
    }
}

size_t
umx_moe_dtype_size(umx_moe_dtype dtype)
{
    static const size_t sizes[] = {
        [UMX_MOE_F32] = 4, [UMX_MOE_BF16] = 2, [UMX_MOE_FP8] = 1};

    return sizes[dtype];
}

void
umx_moe_to_fp8(uint8_t *to, float *scales, const void *from,
               umx_moe_dtype dtype, size_t num_rows, size_t hidden)
{
    size_t num_blocks = num_rows * (hidden / UMX_MOE_BLOCK);
    size_t len        = UMX_MOE_BLOCK * umx_moe_dtype_size(dtype);
    float  block[UMX_MOE_BLOCK];

    for (size_t i = 0; i < num_blocks; i++) {
        float most, factor;

        load_block(block, (const char *)from + i * len, dtype);
        most      = magnitude(block);
        factor    = 448 / most;
        scales[i] = most / 448;
        for (int j = 0; j < UMX_MOE_BLOCK; j++) {
            to[i * UMX_MOE_BLOCK + j] = umi_moe_to_fp8(block[j] * factor);
        }
    }
}

void
umx_moe_from_fp8(void *to, umx_moe_dtype dtype, const uint8_t *from,
                 const float *scales, size_t num_rows, size_t hidden)
{
    size_t num_blocks = num_rows * (hidden / UMX_MOE_BLOCK);

    for (size_t i = 0; i < num_blocks; i++) {
        const uint8_t *numbers = from + i * UMX_MOE_BLOCK;
        float         *floats  = (float *)to + i * UMX_MOE_BLOCK;
        uint16_t      *halves  = (uint16_t *)to + i * UMX_MOE_BLOCK;

        if (dtype == UMX_MOE_BF16) {
            for (int j = 0; j < UMX_MOE_BLOCK; j++) {
                halves[j] = umi_moe_to_bf16(umi_moe_of_fp8(numbers[j]) *
                                            scales[i]);
            }
        } else {
            for (int j = 0; j < UMX_MOE_BLOCK; j++) {
                floats[j] = umi_moe_of_fp8(numbers[j]) * scales[i];
            }
        }
    }
}
