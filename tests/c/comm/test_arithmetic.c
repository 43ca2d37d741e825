/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/arithmetic.h"

#include "unit.h"

#include <complex.h>
#include <math.h>
#include <string.h>

enum {
    RANKS = 3
};

/* Combine `count` items of each of `num_ranks` ranks, which lie one rank after
 * the other, into `result`. */
static void
combine(umx_dtype dtype, umx_reduce_op op, const void *items, size_t count,
        int num_ranks, void *result)
{
    _Alignas(16) char   totals[4096];
    umx_reduction       what = {.dtype = dtype, .op = op};
    umi_comm_arithmetic arithmetic;
    const char         *each = items;

    assert_true(umx_reduction_is_possible(&what));
    assert_true(umi_comm_arithmetic_find(&what, &arithmetic));
    assert_int_equal(arithmetic.item, umx_dtype_size(dtype));
    assert_true(count * arithmetic.total <= sizeof(totals));
    umi_comm_arithmetic_load(&arithmetic, totals, each, count);
    for (int rank = 1; rank < num_ranks; rank++) {
        each += count * arithmetic.item;
        arithmetic.combine(totals, each, count);
    }
    umi_comm_arithmetic_store(&arithmetic, result, totals, count, num_ranks);
}

/* ---- integers ------------------------------------------------------------
 */

/* One item of each rank: integers of `width` bytes, whose bytes are given. */
static int
combine_bytes(umx_dtype dtype, umx_reduce_op op, const char *bytes,
              int num_ranks)
{
    size_t   width        = umx_dtype_size(dtype);
    uint64_t items[RANKS] = {0};
    char    *place        = (char *)items;
    uint64_t result       = 0;

    for (int rank = 0; rank < num_ranks; rank++) {
        memset(place + (size_t)rank * width, 0, width);
        place[(size_t)rank * width + width - 1] = bytes[rank];
    }
    combine(dtype, op, items, 1, num_ranks, &result);
    return ((char *)&result)[width - 1] | ((char *)&result)[0];
}

static void
test_logical_results_are_0_or_1(void **state)
{
    (void)state;
    for (int dtype = UMX_INT8; dtype <= UMX_UINT64; dtype++) {
        umx_dtype d = (umx_dtype)dtype;

        assert_int_equal(combine_bytes(d, UMX_LAND, "\4\2\1", 3), 1);
        assert_int_equal(combine_bytes(d, UMX_LAND, "\4\0\1", 3), 0);
        assert_int_equal(combine_bytes(d, UMX_LOR, "\0\4\0", 3), 1);
        assert_int_equal(combine_bytes(d, UMX_LOR, "\0\0\0", 3), 0);
        assert_int_equal(combine_bytes(d, UMX_LXOR, "\4\2\1", 3), 1);
        assert_int_equal(combine_bytes(d, UMX_LXOR, "\4\2\0", 3), 0);
        assert_int_equal(combine_bytes(d, UMX_LAND, "\4", 1), 1);
    }
}

static void
test_bits_are_combined_each(void **state)
{
    (void)state;
    for (int dtype = UMX_INT8; dtype <= UMX_UINT64; dtype++) {
        umx_dtype d = (umx_dtype)dtype;

        assert_int_equal(combine_bytes(d, UMX_BAND, "\7\6\16", 3), 6);
        assert_int_equal(combine_bytes(d, UMX_BOR, "\1\4\20", 3), 21);
        assert_int_equal(combine_bytes(d, UMX_BXOR, "\7\2\4", 3), 1);
    }
}

static void
test_bools_are_combined(void **state)
{
    static const struct {
        umx_reduce_op op;
        uint8_t       expected[4]; /* of 0 0, 0 1, 1 0, 1 1 */
    } cases[] = {
        {UMX_SUM, {0, 1, 1, 1}},  {UMX_PROD, {0, 0, 0, 1}},
        {UMX_MIN, {0, 0, 0, 1}},  {UMX_MAX, {0, 1, 1, 1}},
        {UMX_LAND, {0, 0, 0, 1}}, {UMX_LOR, {0, 1, 1, 1}},
        {UMX_LXOR, {0, 1, 1, 0}}, {UMX_BAND, {0, 0, 0, 1}},
        {UMX_BOR, {0, 1, 1, 1}},  {UMX_BXOR, {0, 1, 1, 0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint8_t items[2][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}};
        uint8_t result[4];

        combine(UMX_BOOL, cases[i].op, items, 4, 2, result);
        assert_memory_equal(result, cases[i].expected, 4);
    }
}

/* ---- floats --------------------------------------------------------------
 */

static void
test_the_average_is_the_sum_divided(void **state)
{
    float          floats[RANKS]  = {1, 2, 5.5f}, mean_float;
    double         doubles[RANKS] = {1, 2, -4}, mean_double;
    float complex  both[2]        = {1 + 2 * I, 4 - 1 * I}, mean_both;
    double complex wide[2]        = {1e300 + 2 * I, 1e300 - 2 * I}, mean_wide;

    (void)state;
    combine(UMX_FLOAT32, UMX_AVG, floats, 1, 3, &mean_float);
    assert_true(mean_float == 8.5f / 3);
    combine(UMX_FLOAT64, UMX_AVG, doubles, 1, 3, &mean_double);
    assert_true(mean_double == -1.0 / 3);
    combine(UMX_COMPLEX64, UMX_AVG, both, 1, 2, &mean_both);
    assert_true(mean_both == 2.5f + 0.5f * I);
    combine(UMX_COMPLEX128, UMX_AVG, wide, 1, 2, &mean_wide);
    assert_true(mean_wide == 1e300);
}

/* The number that 16 bits are. */
static double
half(uint16_t bits)
{
    int    exponent = bits >> 10 & 31;
    double fraction = bits & 0x3ff;
    double value    = (exponent == 31) ? ((fraction == 0) ? INFINITY : NAN) :
                      (exponent == 0)  ? ldexp(fraction, -24) :
                                         ldexp(fraction + 1024, exponent - 25);

    return ((bits & 0x8000) != 0) ? -value : value;
}

static void
test_all_16_bit_floats_stay_what_they_are(void **state)
{
    (void)state;
    for (uint32_t i = 0; i <= 0xffff; i++) {
        uint16_t bits   = (uint16_t)i, result;
        double   number = half(bits);

        combine(UMX_FLOAT16, UMX_SUM, &bits, 1, 1, &result);
        assert_int_equal(result, isnan(number) ? bits | 0x200 : bits);
        combine(UMX_BFLOAT16, UMX_SUM, &bits, 1, 1, &result);
        assert_int_equal(result,
                         ((bits & 0x7fff) > 0x7f80) ? bits | 0x40 : bits);
    }
}

/* The half that is nearest to a number, by trying the ones beside it. */
static bool
is_nearest(uint16_t bits, double exact)
{
    double   error = fabs(half(bits) - exact);
    uint16_t below = (uint16_t)(bits - 1), above = (uint16_t)(bits + 1);
    double   lower = ((bits & 0x7fff) == 0) ? INFINITY :
                                              fabs(half(below) - exact);
    double   upper = ((above & 0x7c00) == 0x7c00) ? INFINITY :
                                                    fabs(half(above) - exact);

    return error < lower && error < upper ?
               true :
               error <= lower && error <= upper && (bits & 1) == 0;
}

static void
test_sums_of_halves_are_rounded_to_the_nearest(void **state)
{
    uint32_t random = 1;

    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint16_t items[2], result;
        double   exact;

        random   = random * 1664525 + 1013904223;
        items[0] = (uint16_t)(random >> 16);
        random   = random * 1664525 + 1013904223;
        items[1] = (uint16_t)(random >> 16);
        exact    = half(items[0]) + half(items[1]); /* so it is in a float */
        if (isnan(exact) || (float)exact != exact) {
            continue;
        }
        combine(UMX_FLOAT16, UMX_SUM, items, 1, 2, &result);
        if (isinf(exact) || fabs(exact) >= 65520) {
            assert_int_equal(result, (exact < 0) ? 0xfc00 : 0x7c00);
        } else {
            assert_true(is_nearest(result, exact));
        }
    }
}

static void
test_16_bit_floats_are_rounded_once(void **state)
{
    uint16_t halves[RANKS]  = {0x6800, 0x3c00, 0x3c00}; /* 2048, 1, 1 */
    uint16_t bfloats[RANKS] = {0x4380, 0x3f80, 0x3f80}; /* 256, 1, 1 */
    uint16_t largest[2]     = {0x7bff, 0x7bff};         /* 65504 */
    uint16_t tiny[2]        = {1, 2};                   /* of 2^-24 */
    uint16_t infinite[2]    = {0x7f7f, 0x7f7f};
    uint16_t result;

    (void)state;
    combine(UMX_FLOAT16, UMX_SUM, halves, 1, 3, &result);
    assert_int_equal(result, 0x6801); /* 2050: one by one it were 2048 */
    combine(UMX_BFLOAT16, UMX_SUM, bfloats, 1, 3, &result);
    assert_int_equal(result, 0x4381); /* 258 */
    combine(UMX_FLOAT16, UMX_SUM, halves, 1, 2, &result);
    assert_int_equal(result, 0x6800); /* 2049 is between 2048 and 2050 */
    combine(UMX_FLOAT16, UMX_SUM, largest, 1, 2, &result);
    assert_int_equal(result, 0x7c00);
    combine(UMX_FLOAT16, UMX_AVG, largest, 1, 2, &result);
    assert_int_equal(result, 0x7bff);
    combine(UMX_FLOAT16, UMX_AVG, tiny, 1, 2, &result);
    assert_int_equal(result, 2); /* 1.5 */
    combine(UMX_FLOAT16, UMX_MAX, halves, 1, 3, &result);
    assert_int_equal(result, 0x6800);
    combine(UMX_BFLOAT16, UMX_MIN, bfloats, 1, 3, &result);
    assert_int_equal(result, 0x3f80);
    combine(UMX_BFLOAT16, UMX_SUM, infinite, 1, 2, &result);
    assert_int_equal(result, 0x7f80);
}

/* ---- pairs ---------------------------------------------------------------
 */

typedef struct double_int {
    double  value;
    int32_t index;
} double_int;

static void
test_of_equal_values_the_smallest_index_is_found(void **state)
{
    double_int items[RANKS] = {{1, 5}, {7, 9}, {7, 3}}, result;
    struct {
        uint8_t value;
        int64_t index;
    } small[2] = {{200, -1}, {200, -2}}, found;

    (void)state;
    combine(UMX_FLOAT64_INT32, UMX_MAXLOC, items, 1, 3, &result);
    assert_true(result.value == 7 && result.index == 3);
    combine(UMX_FLOAT64_INT32, UMX_MINLOC, items, 1, 3, &result);
    assert_true(result.value == 1 && result.index == 5);
    combine(UMX_UINT8_INT64, UMX_MINLOC, small, 1, 2, &found);
    assert_true(found.value == 200 && found.index == -2);
}

static void
test_a_nan_is_found_first(void **state)
{
    double_int items[RANKS] = {{1, 5}, {NAN, 9}, {NAN, 3}}, result;

    (void)state;
    for (umx_reduce_op op = UMX_MAXLOC; op <= UMX_MINLOC; op++) {
        combine(UMX_FLOAT64_INT32, op, items, 1, 3, &result);
        assert_true(isnan(result.value) && result.index == 3);
        combine(UMX_FLOAT64_INT32, op, items, 1, 2, &result);
        assert_true(isnan(result.value) && result.index == 9);
        combine(UMX_FLOAT64_INT32, op, items + 1, 1, 1, &result);
        assert_int_equal(result.index, 9);
    }
}

static void
test_all_pairs_have_both(void **state)
{
    (void)state;
    for (int dtype = UMX_INT8_INT32; dtype <= UMX_FLOAT64_INT64; dtype++) {
        bool   is_wide = dtype >= UMX_INT8_INT64;
        size_t width   = umx_dtype_size(
              (umx_dtype)((dtype - UMX_INT8_INT32) % 10));
        size_t at            = (width > 4 || is_wide) ? 8 : 4; /* the index */
        size_t size          = umx_dtype_size((umx_dtype)dtype);
        char   items[2 * 16] = {0}, result[16];

        assert_int_equal(size, 2 * at);
        items[at] = 1; /* of rank 0; the other has 0 */
        combine((umx_dtype)dtype, UMX_MAXLOC, items, 1, 2, result);
        assert_memory_equal(result, items + size, size);
        items[size + width - 1] = 1; /* more than 0, in any type */
        combine((umx_dtype)dtype, UMX_MAXLOC, items, 1, 2, result);
        assert_memory_equal(result, items + size, size);
        combine((umx_dtype)dtype, UMX_MINLOC, items, 1, 2, result);
        assert_memory_equal(result, items, size);
    }
}

/* ---- what is impossible --------------------------------------------------
 */

static void
test_what_does_not_fit_is_refused(void **state)
{
    static const umx_reduction none[] = {
        {UMX_COMPLEX64, UMX_MIN},      {UMX_COMPLEX128, UMX_MAX},
        {UMX_COMPLEX64, UMX_LAND},     {UMX_FLOAT32, UMX_LOR},
        {UMX_FLOAT64, UMX_BXOR},       {UMX_FLOAT16, UMX_BAND},
        {UMX_INT32, UMX_AVG},          {UMX_BOOL, UMX_AVG},
        {UMX_FLOAT64, UMX_MAXLOC},     {UMX_FLOAT64_INT32, UMX_SUM},
        {UMX_INT32_INT32, UMX_MAX},    {UMX_INT32, (umx_reduce_op)13},
        {(umx_dtype)35, UMX_SUM},      {(umx_dtype)-1, UMX_SUM},
        {UMX_INT32, (umx_reduce_op)-1}};

    (void)state;
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
        assert_false(umx_reduction_is_possible(&none[i]));
    }
    assert_int_equal(umx_dtype_size((umx_dtype)35), 0);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logical_results_are_0_or_1),
        cmocka_unit_test(test_bits_are_combined_each),
        cmocka_unit_test(test_bools_are_combined),
        cmocka_unit_test(test_the_average_is_the_sum_divided),
        cmocka_unit_test(test_all_16_bit_floats_stay_what_they_are),
        cmocka_unit_test(test_sums_of_halves_are_rounded_to_the_nearest),
        cmocka_unit_test(test_16_bit_floats_are_rounded_once),
        cmocka_unit_test(test_of_equal_values_the_smallest_index_is_found),
        cmocka_unit_test(test_a_nan_is_found_first),
        cmocka_unit_test(test_all_pairs_have_both),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };

    return UNIT_RUN(tests);
}
