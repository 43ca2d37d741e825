/* SPDX-License-Identifier: BSD-3-Clause */
/* arithmetic.c: the operations on every type: see arithmetic.h. */
#include "comm/arithmetic.h"

#include <complex.h>
#include <string.h>

typedef void (*convert_fn)(void *to, const void *from, size_t count);
typedef void (*combine_fn)(void *to, const void *from, size_t count);
typedef void (*divide_fn)(void *to, size_t count, int num_ranks);

/* `to` has items of `to_type`, `from` those of `from_type`. */
#define DEFINE_COMBINE_OF(name, to_type, from_type, value, expression) \
    static void name(void *to, const void *from, size_t count)         \
    {                                                                  \
        to_type         *a = to;                                       \
        const from_type *b = from;                                     \
                                                                       \
        for (size_t i = 0; i < count; i++) {                           \
            to_type x = a[i], y = value(b[i]);                         \
                                                                       \
            a[i] = (to_type)(expression);                              \
        }                                                              \
    }

#define SELF(x) (x)

#define DEFINE_COMBINE(name, type, expression) \
    DEFINE_COMBINE_OF(name, type, type, SELF, expression)

#define DEFINE_CONVERT(name, to_type, from_type, value)        \
    static void name(void *to, const void *from, size_t count) \
    {                                                          \
        to_type         *a = to;                               \
        const from_type *b = from;                             \
                                                               \
        for (size_t i = 0; i < count; i++) {                   \
            a[i] = value(b[i]);                                \
        }                                                      \
    }

/* ---- floats of 16 bits ---------------------------------------------------
 * IEEE 754 binary16, and bfloat16, which is the upper half of a float. A float
 * has every number of either; what a float has more is rounded to the nearest
 * number, and to the even one of two. */

static uint32_t
bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float
float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

enum {
    HALF_EXPONENT = 0x7c00, /* bits of the exponent: of infinity and NaN */
    HALF_FRACTION = 0x03ff,
    HALF_SHIFT    = 13, /* bits that the fraction of a float has more */
    HALF_BIAS     = (127 - 15) << 10
};

static float
float_of_half(uint16_t half)
{
    uint32_t sign     = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half & HALF_EXPONENT;
    uint32_t fraction = half & HALF_FRACTION;

    if (exponent == 0) { /* 0, or a number without an implicit 1 */
        return float_of(sign | bits_of((float)fraction * 0x1p-24f));
    }
    exponent = (exponent == HALF_EXPONENT) ? UINT32_C(0xff) << 10 :
                                             exponent + HALF_BIAS;
    return float_of(sign | (exponent | fraction) << HALF_SHIFT);
}

static uint16_t
half_of_float(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000;

    bits &= UINT32_C(0x7fffffff);
    if (bits > UINT32_C(0x7f800000)) { /* a NaN, which becomes a quiet one */
        return (uint16_t)(sign | HALF_EXPONENT | 0x200 |
                          (bits >> HALF_SHIFT & HALF_FRACTION));
    }
    if (bits >= bits_of(65520)) { /* half way to the number after the largest */
        return (uint16_t)(sign | HALF_EXPONENT);
    }
    if (bits < bits_of(0x1p-14f)) { /* of the sum the last bit is 2^-24 */
        return (uint16_t)(sign |
                          (bits_of(float_of(bits) + 0.5f) - bits_of(0.5f)));
    }
    bits += 0xfff + (bits >> HALF_SHIFT & 1);
    return (uint16_t)(sign | ((bits >> HALF_SHIFT) - HALF_BIAS));
}

static float
float_of_bfloat(uint16_t bfloat)
{
    return float_of((uint32_t)bfloat << 16);
}

static uint16_t
bfloat_of_float(float value)
{
    uint32_t bits = bits_of(value);

    if (value != value) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- integers ------------------------------------------------------------
 */

#define IS_TRUE(x) ((x) != 0)

/* Integers wrap: they are computed without a sign. */
#define DEFINE_INTEGER(name, type, unsigned_type)                         \
    DEFINE_COMBINE(sum_##name, type, (unsigned_type)x + (unsigned_type)y) \
    DEFINE_COMBINE(prod_##name, type,                                     \
                   (uint64_t)(unsigned_type)x *(unsigned_type)y)          \
    DEFINE_COMBINE(min_##name, type, (y < x) ? y : x)                     \
    DEFINE_COMBINE(max_##name, type, (y > x) ? y : x)

/* What has nothing to do with a sign. */
#define DEFINE_BITS(name, type)                       \
    DEFINE_CONVERT(truth_##name, type, type, IS_TRUE) \
    DEFINE_COMBINE(land_##name, type, x &(y != 0))    \
    DEFINE_COMBINE(lor_##name, type, x | (y != 0))    \
    DEFINE_COMBINE(lxor_##name, type, x ^ (y != 0))   \
    DEFINE_COMBINE(band_##name, type, x &y)           \
    DEFINE_COMBINE(bor_##name, type, x | y)           \
    DEFINE_COMBINE(bxor_##name, type, x ^ y)

DEFINE_INTEGER(i8, int8_t, uint8_t)
DEFINE_INTEGER(i16, int16_t, uint16_t)
DEFINE_INTEGER(i32, int32_t, uint32_t)
DEFINE_INTEGER(i64, int64_t, uint64_t)
DEFINE_INTEGER(u8, uint8_t, uint8_t)
DEFINE_INTEGER(u16, uint16_t, uint16_t)
DEFINE_INTEGER(u32, uint32_t, uint32_t)
DEFINE_INTEGER(u64, uint64_t, uint64_t)
DEFINE_BITS(u8, uint8_t)
DEFINE_BITS(u16, uint16_t)
DEFINE_BITS(u32, uint32_t)
DEFINE_BITS(u64, uint64_t)
DEFINE_COMBINE(any_bool, uint8_t, x != 0 || y != 0)
DEFINE_COMBINE(all_bool, uint8_t, x != 0 && y != 0)

/* ---- floats and complex numbers ------------------------------------------
 */

#define DEFINE_FLOAT_OF(name, total, type, value)            \
    DEFINE_COMBINE_OF(sum_##name, total, type, value, x + y) \
    DEFINE_COMBINE_OF(prod_##name, total, type, value, x *y) \
    DEFINE_COMBINE_OF(min_##name, total, type, value,        \
                      (x != x || x < y) ? x : y)             \
    DEFINE_COMBINE_OF(max_##name, total, type, value, (x != x || x > y) ? x : y)

#define DEFINE_DIVIDE(name, type, real)                     \
    static void name(void *to, size_t count, int num_ranks) \
    {                                                       \
        type *a = to;                                       \
                                                            \
        for (size_t i = 0; i < count; i++) {                \
            a[i] /= (real)num_ranks;                        \
        }                                                   \
    }

DEFINE_FLOAT_OF(f32, float, float, SELF)
DEFINE_FLOAT_OF(f64, double, double, SELF)
DEFINE_FLOAT_OF(f16, float, uint16_t, float_of_half)
DEFINE_FLOAT_OF(bf16, float, uint16_t, float_of_bfloat)
DEFINE_CONVERT(load_f16, float, uint16_t, float_of_half)
DEFINE_CONVERT(load_bf16, float, uint16_t, float_of_bfloat)
DEFINE_CONVERT(store_f16, uint16_t, float, half_of_float)
DEFINE_CONVERT(store_bf16, uint16_t, float, bfloat_of_float)
DEFINE_COMBINE(sum_c64, float complex, x + y)
DEFINE_COMBINE(prod_c64, float complex, x *y)
DEFINE_COMBINE(sum_c128, double complex, x + y)
DEFINE_COMBINE(prod_c128, double complex, x *y)
DEFINE_DIVIDE(divide_f32, float, float)
DEFINE_DIVIDE(divide_f64, double, double)
DEFINE_DIVIDE(divide_c64, float complex, float)
DEFINE_DIVIDE(divide_c128, double complex, double)

/* ---- pairs ---------------------------------------------------------------
 */

#define LESS(x, y) ((x) < (y))
#define GREATER(x, y) ((x) > (y))
/* A NaN comes before every number. Of two NaNs none comes before the other. */
#define LESS_FLOAT(x, y) ((x) < (y) || ((x) != (x) && (y) == (y)))
#define GREATER_FLOAT(x, y) ((x) > (y) || ((x) != (x) && (y) == (y)))

/* Take the pair whose value comes before the other's, and of two that are the
 * same the one with the smaller index. */
#define DEFINE_LOC(name, pair, comes_before)                   \
    static void name(void *to, const void *from, size_t count) \
    {                                                          \
        pair       *a = to;                                    \
        const pair *b = from;                                  \
                                                               \
        for (size_t i = 0; i < count; i++) {                   \
            if (comes_before(b[i].value, a[i].value) ||        \
                (!comes_before(a[i].value, b[i].value) &&      \
                 b[i].index < a[i].index)) {                   \
                a[i] = b[i];                                   \
            }                                                  \
        }                                                      \
    }

#define DEFINE_PAIR(name, value_type, index_type, less, greater) \
    typedef struct name {                                        \
        value_type value;                                        \
        index_type index;                                        \
    } name;                                                      \
    DEFINE_LOC(minloc_##name, name, less)                        \
    DEFINE_LOC(maxloc_##name, name, greater)

#define DEFINE_PAIRS(name, type, less, greater)           \
    DEFINE_PAIR(name##_i32, type, int32_t, less, greater) \
    DEFINE_PAIR(name##_i64, type, int64_t, less, greater)

DEFINE_PAIRS(i8, int8_t, LESS, GREATER)
DEFINE_PAIRS(i16, int16_t, LESS, GREATER)
DEFINE_PAIRS(i32, int32_t, LESS, GREATER)
DEFINE_PAIRS(i64, int64_t, LESS, GREATER)
DEFINE_PAIRS(u8, uint8_t, LESS, GREATER)
DEFINE_PAIRS(u16, uint16_t, LESS, GREATER)
DEFINE_PAIRS(u32, uint32_t, LESS, GREATER)
DEFINE_PAIRS(u64, uint64_t, LESS, GREATER)
DEFINE_PAIRS(f32, float, LESS_FLOAT, GREATER_FLOAT)
DEFINE_PAIRS(f64, double, LESS_FLOAT, GREATER_FLOAT)

/* ---- the table -----------------------------------------------------------
 */

typedef struct dtype_info {
    size_t     size;
    size_t     total;       /* bytes of an item of the accumulator */
    convert_fn load, store; /* of 16-bit floats */
    convert_fn truth;       /* 1 and 0, for the logical operations */
    divide_fn  divide;
    combine_fn fns[UMX_MINLOC + 1];
} dtype_info;

#define ARITHMETIC(name)                                                      \
    [UMX_SUM] = sum_##name, [UMX_PROD] = prod_##name, [UMX_MIN] = min_##name, \
    [UMX_MAX] = max_##name

#define BITS(name)                                      \
    [UMX_LAND] = land_##name, [UMX_LOR] = lor_##name,   \
    [UMX_LXOR] = lxor_##name, [UMX_BAND] = band_##name, \
    [UMX_BOR] = bor_##name, [UMX_BXOR] = bxor_##name

#define INTEGER(name, bits, width)                                     \
    {                                                                  \
        .size = width, .total = width, .truth = truth_##bits, .fns = { \
            ARITHMETIC(name),                                          \
            BITS(bits)                                                 \
        }                                                              \
    }

#define FLOAT(name, width)                                               \
    {                                                                    \
        .size = width, .total = width, .divide = divide_##name, .fns = { \
            ARITHMETIC(name),                                            \
            [UMX_AVG] = sum_##name                                       \
        }                                                                \
    }

#define SHORT_FLOAT(name)                                       \
    {                                                           \
        .size = 2, .total = sizeof(float), .load = load_##name, \
        .store = store_##name, .divide = divide_f32, .fns = {   \
            ARITHMETIC(name),                                   \
            [UMX_AVG] = sum_##name                              \
        }                                                       \
    }

#define COMPLEX(name, width)                                             \
    {                                                                    \
        .size = width, .total = width, .divide = divide_##name, .fns = { \
            [UMX_SUM]  = sum_##name,                                     \
            [UMX_PROD] = prod_##name,                                    \
            [UMX_AVG]  = sum_##name                                      \
        }                                                                \
    }

#define PAIR(name)                                            \
    {                                                         \
        .size = sizeof(name), .total = sizeof(name), .fns = { \
            [UMX_MINLOC] = minloc_##name,                     \
            [UMX_MAXLOC] = maxloc_##name                      \
        }                                                     \
    }

static const dtype_info dtypes[] = {
    [UMX_INT8]       = INTEGER(i8, u8, 1),
    [UMX_INT16]      = INTEGER(i16, u16, 2),
    [UMX_INT32]      = INTEGER(i32, u32, 4),
    [UMX_INT64]      = INTEGER(i64, u64, 8),
    [UMX_UINT8]      = INTEGER(u8, u8, 1),
    [UMX_UINT16]     = INTEGER(u16, u16, 2),
    [UMX_UINT32]     = INTEGER(u32, u32, 4),
    [UMX_UINT64]     = INTEGER(u64, u64, 8),
    [UMX_FLOAT32]    = FLOAT(f32, 4),
    [UMX_FLOAT64]    = FLOAT(f64, 8),
    [UMX_COMPLEX64]  = COMPLEX(c64, 8),
    [UMX_COMPLEX128] = COMPLEX(c128, 16),
    [UMX_BOOL]       = {.size  = 1,
                        .total = 1,
                        .truth = truth_u8,
                        .fns   = {[UMX_SUM]  = any_bool,
                                  [UMX_PROD] = all_bool,
                                  [UMX_MIN]  = all_bool,
                                  [UMX_MAX]  = any_bool,
                                  BITS(u8)}},
    [UMX_FLOAT16]    = SHORT_FLOAT(f16),
    [UMX_BFLOAT16]   = SHORT_FLOAT(bf16),

    [UMX_INT8_INT32]    = PAIR(i8_i32),
    [UMX_INT16_INT32]   = PAIR(i16_i32),
    [UMX_INT32_INT32]   = PAIR(i32_i32),
    [UMX_INT64_INT32]   = PAIR(i64_i32),
    [UMX_UINT8_INT32]   = PAIR(u8_i32),
    [UMX_UINT16_INT32]  = PAIR(u16_i32),
    [UMX_UINT32_INT32]  = PAIR(u32_i32),
    [UMX_UINT64_INT32]  = PAIR(u64_i32),
    [UMX_FLOAT32_INT32] = PAIR(f32_i32),
    [UMX_FLOAT64_INT32] = PAIR(f64_i32),
    [UMX_INT8_INT64]    = PAIR(i8_i64),
    [UMX_INT16_INT64]   = PAIR(i16_i64),
    [UMX_INT32_INT64]   = PAIR(i32_i64),
    [UMX_INT64_INT64]   = PAIR(i64_i64),
    [UMX_UINT8_INT64]   = PAIR(u8_i64),
    [UMX_UINT16_INT64]  = PAIR(u16_i64),
    [UMX_UINT32_INT64]  = PAIR(u32_i64),
    [UMX_UINT64_INT64]  = PAIR(u64_i64),
    [UMX_FLOAT32_INT64] = PAIR(f32_i64),
    [UMX_FLOAT64_INT64] = PAIR(f64_i64),
};

size_t
umx_dtype_size(umx_dtype dtype)
{
    return ((size_t)dtype < sizeof(dtypes) / sizeof(*dtypes)) ?
               dtypes[dtype].size :
               0;
}

bool
umi_comm_arithmetic_find(const umx_reduction *what,
                         umi_comm_arithmetic *arithmetic)
{
    const dtype_info *info;

    if (umx_dtype_size(what->dtype) == 0 || (unsigned)what->op > UMX_MINLOC) {
        return false;
    }
    info        = &dtypes[what->dtype];
    *arithmetic = (umi_comm_arithmetic){
        .item  = info->size,
        .total = info->total,
        .load  = (what->op >= UMX_LAND && what->op <= UMX_LXOR) ? info->truth :
                                                                  info->load,
        .combine = info->fns[what->op],
        .divide  = (what->op == UMX_AVG) ? info->divide : NULL,
        .store   = info->store,
    };
    return arithmetic->combine != NULL;
}

bool
umx_reduction_is_possible(const umx_reduction *what)
{
    umi_comm_arithmetic arithmetic;

    return umi_comm_arithmetic_find(what, &arithmetic);
}

void
umi_comm_arithmetic_load(const umi_comm_arithmetic *arithmetic, void *totals,
                         const void *items, size_t count)
{
    if (arithmetic->load != NULL) {
        arithmetic->load(totals, items, count);
    } else {
        memcpy(totals, items, count * arithmetic->item);
    }
}

void
umi_comm_arithmetic_store(const umi_comm_arithmetic *arithmetic, void *items,
                          void *totals, size_t count, int num_ranks)
{
    if (arithmetic->divide != NULL) {
        arithmetic->divide(totals, count, num_ranks);
    }
    if (arithmetic->store != NULL) {
        arithmetic->store(items, totals, count);
    } else {
        memcpy(items, totals, count * arithmetic->item);
    }
}
