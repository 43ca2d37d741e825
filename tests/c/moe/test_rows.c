/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: moe/cast moe/numbers */
#include "moe/rows.h"

#include <math.h>
#include <string.h>

#include "moe/numbers.h"
#include "unit.h"

/* What the bits of a number mean, by the definition of E4M3. */
static double
meaning_of(int code)
{
    int    exponent = (code >> 3) & 15, mantissa = code & 7;
    double magnitude = (exponent == 0) ? ldexp(mantissa, -9) :
                                         ldexp(8 + mantissa, exponent - 10);

    return ((code & 0x80) != 0) ? -magnitude : magnitude;
}

static bool
is_nan(int code)
{
    return (code & 0x7f) == 0x7f;
}

static void
test_every_fp8_number_is_its_meaning(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        float value = umi_moe_of_fp8((uint8_t)code);

        if (is_nan(code)) {
            assert_true(isnan(value));
        } else {
            assert_true((double)value == meaning_of(code));
            assert_int_equal(umi_moe_to_fp8(value), code);
        }
    }
    assert_true(is_nan(umi_moe_to_fp8(NAN)));
    assert_true(is_nan(umi_moe_to_fp8(INFINITY)));
    assert_int_equal(umi_moe_to_fp8(3e38f), 0x7e);
    assert_int_equal(umi_moe_to_fp8(-1e9f), 0xfe);
}

static void
test_floats_become_the_nearest_fp8_number(void **state)
{
    uint32_t seed = 1;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        double best = INFINITY;
        float  value;
        int    got;

        seed  = seed * 1664525 + 1013904223;
        value = ldexpf((float)(seed >> 8), (int)(seed & 31) - 44);
        got   = umi_moe_to_fp8(value);
        for (int code = 0; code < 0x7f; code++) {
            double distance = fabs(meaning_of(code) - (double)value);

            best = (distance < best) ? distance : best;
        }
        assert_true(fabs(meaning_of(got) - (double)value) == best);
    }
    for (int code = 0; code < 0x7e; code++) { /* between two: the even one */
        float middle = (float)((meaning_of(code) + meaning_of(code + 1)) / 2);

        assert_int_equal(umi_moe_to_fp8(middle), code + (code & 1));
    }
}

static void
test_bf16_is_the_nearest_upper_half(void **state)
{
    (void)state;
    assert_int_equal(umi_moe_to_bf16(1.0f), 0x3f80);
    assert_int_equal(umi_moe_to_bf16(umi_moe_float(0x3f808000)), 0x3f80);
    assert_int_equal(umi_moe_to_bf16(umi_moe_float(0x3f818000)), 0x3f82);
    assert_int_equal(umi_moe_to_bf16(umi_moe_float(0x3f808001)), 0x3f81);
    assert_int_equal(umi_moe_to_bf16(-INFINITY), 0xff80);
    assert_true(isnan(umi_moe_of_bf16(umi_moe_to_bf16(NAN))));
    assert_true(
        isnan(umi_moe_of_bf16(umi_moe_to_bf16(umi_moe_float(0x7f800001)))));
}

static void
test_each_block_has_its_scale(void **state)
{
    static float    x[3 * 2 * UMX_MOE_BLOCK], back[3 * 2 * UMX_MOE_BLOCK];
    static uint8_t  fp8[3 * 2 * UMX_MOE_BLOCK];
    static uint16_t halves[2 * UMX_MOE_BLOCK];
    float           scales[3 * 2];

    (void)state;
    for (size_t i = 0; i < 3 * 2 * UMX_MOE_BLOCK; i++) {
        x[i] = ldexpf((float)((int)(i * 37 % 101) - 50),
                      (int)(i / UMX_MOE_BLOCK) * 20 - 60);
    }
    memset(x, 0, UMX_MOE_BLOCK * sizeof(*x));
    umx_moe_to_fp8(fp8, scales, x, UMX_MOE_F32, 3, 2 * UMX_MOE_BLOCK);
    umx_moe_from_fp8(back, UMX_MOE_F32, fp8, scales, 3, 2 * UMX_MOE_BLOCK);
    for (size_t i = 0; i < 3 * 2 * UMX_MOE_BLOCK; i++) {
        float most = 448 * scales[i / UMX_MOE_BLOCK];

        assert_true(fabsf(back[i] - x[i]) <= fabsf(x[i]) / 16 + most / 229376);
    }
    umx_moe_from_fp8(halves, UMX_MOE_BF16, fp8, scales, 1, 2 * UMX_MOE_BLOCK);
    for (size_t i = 0; i < 2 * UMX_MOE_BLOCK; i++) {
        assert_int_equal(halves[i], umi_moe_to_bf16(back[i]));
    }
}

static void
test_sums_are_made_in_the_order_of_rows(void **state)
{
    enum {
        LEN = 700
    };
    static float rows[3][LEN], out[LEN];
    umi_moe_row  list[4] = {{.data = rows[0], .weight = 0.1f},
                            {.data = NULL, .weight = 5},
                            {.data = rows[1], .weight = -3.7f},
                            {.data = rows[2], .weight = 1e-3f}};

    (void)state;
    for (int i = 0; i < LEN; i++) {
        rows[0][i] = (float)i * 1.7f;
        rows[1][i] = 1e5f / (float)(i + 1);
        rows[2][i] = -1e7f + (float)i;
    }
    umi_moe_add_rows(out, UMX_MOE_F32, list, 4, UMX_MOE_F32, LEN);
    for (int i = 0; i < LEN; i++) {
        volatile float sum = 0.1f * rows[0][i], product;

        product = -3.7f * rows[1][i];
        sum     = sum + product;
        product = 1e-3f * rows[2][i];
        sum     = sum + product;
        assert_true(out[i] == sum);
    }
    umi_moe_add_rows(out, UMX_MOE_F32, list, 0, UMX_MOE_F32, LEN);
    assert_true(out[LEN - 1] == 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fp8_number_is_its_meaning),
        cmocka_unit_test(test_floats_become_the_nearest_fp8_number),
        cmocka_unit_test(test_bf16_is_the_nearest_upper_half),
        cmocka_unit_test(test_each_block_has_its_scale),
        cmocka_unit_test(test_sums_are_made_in_the_order_of_rows),
    };

    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
