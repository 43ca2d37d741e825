/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/histogram.h"

#include "unit.h"

static umx_histogram histogram, other;

static void
test_each_duration_is_below_the_limit_of_its_bucket(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < UMX_HISTOGRAM_MAX_BITS; bits++) {
        for (int off = -2; off <= 2; off++) {
            uint64_t ns = (UINT64_C(1) << bits) + (uint64_t)off;
            size_t   i  = umi_histogram_index(ns);

            if ((int64_t)ns < 0 || ns >> UMX_HISTOGRAM_MAX_BITS != 0) {
                continue;
            }
            assert_in_range(i, 0, UMX_HISTOGRAM_BUCKETS - 1);
            assert_true(ns < umx_histogram_limit(i));
            assert_true(i == 0 || ns >= umx_histogram_limit(i - 1));
        }
    }
    assert_int_equal(umi_histogram_index(UINT64_MAX),
                     UMX_HISTOGRAM_BUCKETS - 1);
}

static void
test_limits_grow_by_less_than_4_percent(void **state)
{
    (void)state;
    for (size_t i = 1; i < UMX_HISTOGRAM_BUCKETS; i++) {
        uint64_t before = umx_histogram_limit(i - 1);
        uint64_t width  = umx_histogram_limit(i) - before;

        assert_true(width >= 1);
        assert_true(width == 1 || width * 25 < before);
    }
}

static void
test_percentiles_are_near_the_exact_ones(void **state)
{
    (void)state;
    umx_histogram_init(&histogram);
    assert_int_equal(umx_histogram_percentile(&histogram, 99), 0);
    for (uint64_t ns = 1; ns <= 10000; ns++) {
        umx_histogram_record(&histogram, ns);
    }
    assert_int_equal(histogram.count, 10000);
    assert_int_equal(histogram.sum_ns, 10000u * 10001 / 2);
    assert_int_equal(histogram.min_ns, 1);
    assert_int_equal(histogram.max_ns, 10000);
    assert_in_range(umx_histogram_percentile(&histogram, 50), 5000, 5200);
    assert_in_range(umx_histogram_percentile(&histogram, 99), 9900, 10000);
    assert_int_equal(umx_histogram_percentile(&histogram, 100), 10000);
    assert_int_equal(umx_histogram_percentile(&histogram, 0), 1);
}

static void
test_two_histograms_make_one(void **state)
{
    (void)state;
    umx_histogram_init(&histogram);
    umx_histogram_init(&other);
    umx_histogram_record(&histogram, 10);
    umx_histogram_record(&other, 1000000);
    umx_histogram_record(&other, 3);
    umx_histogram_merge(&histogram, &other);
    assert_int_equal(histogram.count, 3);
    assert_int_equal(histogram.min_ns, 3);
    assert_int_equal(histogram.max_ns, 1000000);
    assert_int_equal(umx_histogram_percentile(&histogram, 50), 10);
    assert_int_equal(umx_histogram_percentile(&histogram, 100), 1000000);
}

static void
test_beyond_the_last_limit_is_the_longest(void **state)
{
    const uint64_t two_hours = UINT64_C(7200000000000);

    (void)state;
    umx_histogram_init(&histogram);
    umx_histogram_record(&histogram, 1);
    umx_histogram_record(&histogram, two_hours);
    assert_int_equal(umx_histogram_percentile(&histogram, 50), 1);
    assert_int_equal(umx_histogram_percentile(&histogram, 100), two_hours);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_duration_is_below_the_limit_of_its_bucket),
        cmocka_unit_test(test_limits_grow_by_less_than_4_percent),
        cmocka_unit_test(test_percentiles_are_near_the_exact_ones),
        cmocka_unit_test(test_two_histograms_make_one),
        cmocka_unit_test(test_beyond_the_last_limit_is_the_longest),
    };

    return UNIT_RUN(tests);
}
