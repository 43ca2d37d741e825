/* SPDX-License-Identifier: BSD-3-Clause */
/* numbers.h: numbers of 8 and 16 bits as floats, and back. A compiler makes
 * vectors of loops over these functions: they have no branches.
 *
 * FP8 is E4M3 without infinities: sign, exponent with bias 7, mantissa of three
 * bits; 0x7f is no number, 0x7e is 448. */
#ifndef UMI_MOE_NUMBERS_H
#define UMI_MOE_NUMBERS_H

#include <stdint.h>
#include <string.h>

enum {
    UMI_MOE_FP8_BIAS = 120, /* of a float's exponent, beyond that of FP8 */
    UMI_MOE_MANTISSA = 20   /* bits that a float's mantissa has more */
};

static inline int32_t
umi_moe_bits(float value)
{
    int32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float
umi_moe_float(int32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float
umi_moe_of_bf16(uint16_t number)
{
    return umi_moe_float((int32_t)((uint32_t)number << 16));
}

/* The nearest number, and the even one of two. */
static inline uint16_t
umi_moe_to_bf16(float value)
{
    uint32_t bits = (uint32_t)umi_moe_bits(value);
    uint32_t near = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t nan  = (bits >> 16) | 0x40;

    return (uint16_t)(((bits & 0x7fffffff) > 0x7f800000) ? nan : near);
}

/* The nearest number, and the even one of two; 448 for what is greater, and no
 * number for infinities. Numbers below 2^-6 are multiples of 2^-9, which is
 * what a float near 2^14 is, too. */
static inline uint8_t
umi_moe_to_fp8(float value)
{
    const int32_t most = 0x43e00000, least_normal = 0x3c800000;
    const float   magic = 16384;
    int32_t       bits = umi_moe_bits(value), abs = bits & 0x7fffffff;
    int32_t       top    = (abs < most) ? abs : most;
    int32_t       even   = (top >> UMI_MOE_MANTISSA) & 1;
    int32_t       normal = ((top + 0x7ffff + even) >> UMI_MOE_MANTISSA) -
                     UMI_MOE_FP8_BIAS * 8;
    int32_t small = umi_moe_bits(umi_moe_float(top) + magic) -
                    umi_moe_bits(magic);
    int32_t code = (top < least_normal) ? small : normal;

    code = (abs >= 0x7f800000) ? 0x7f : code;
    return (uint8_t)(code | ((bits >> 24) & 0x80));
}

static inline float
umi_moe_of_fp8(uint8_t number)
{
    int32_t code  = number & 0x7f;
    int32_t bits  = (code << UMI_MOE_MANTISSA) + UMI_MOE_FP8_BIAS * (1 << 23);
    float   value = (code < 8) ? (float)code * 0x1p-9f : umi_moe_float(bits);

    value = (code == 0x7f) ? umi_moe_float(0x7fc00000) : value;
    return umi_moe_float(umi_moe_bits(value) |
                         (int32_t)((uint32_t)(number & 0x80) << 24));
}

#endif
