/* SPDX-License-Identifier: BSD-3-Clause */
/* link: optimised */
#include "util/clock.h"

#include "unit.h"

#include <pthread.h>

enum {
    THREADS = 8
};

static void
test_clock_does_not_go_back(void **state)
{
    uint64_t last = umi_clock_ns();

    (void)state;
    assert_true(last > 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = umi_clock_ns();

        assert_true(now >= last);
        last = now;
    }
}

static void
test_zero_ns_is_zero_ticks(void **state)
{
    (void)state;
    assert_int_equal(umi_ticks_from_ns(0), 0);
}

static void
test_ticks_grow_with_ns(void **state)
{
    uint64_t second = umi_ticks_from_ns(1000000000u);

    (void)state;
    assert_true(second > 0);
    /* Equal but for rounding down. */
    assert_in_range(second - 1000 * umi_ticks_from_ns(1000000u), 0, 999);
    assert_int_equal(umi_ticks_from_ns(3000000000u), 3 * second);
}

/* The longest time does not wrap to a short one at any frequency. */
static void
test_the_longest_time_does_not_wrap(void **state)
{
    uint64_t longest = umi_ticks_from_ns(UINT64_MAX);

    (void)state;
    assert_true(longest >= umi_ticks_from_ns(UINT64_MAX / 2));
    assert_true(longest >= umi_ticks_from_ns(UINT64_MAX - 1));
}

/* Readings of the clock on both sides of the counter's bound the interval,
 * however long the thread is held up between them. The factor 2 is for the
 * calibration. */
static void
test_ticks_agree_with_the_clock(void **state)
{
    uint64_t before_start = umi_clock_ns();
    uint64_t start        = umi_ticks();
    uint64_t after_start  = umi_clock_ns();
    uint64_t before_end;
    uint64_t ticks;
    uint64_t after_end;

    (void)state;
    do {
        before_end = umi_clock_ns();
    } while (before_end - after_start < 5000000u);
    ticks     = umi_ticks() - start;
    after_end = umi_clock_ns();

    assert_true(2 * ticks >= umi_ticks_from_ns(before_end - after_start));
    assert_true(ticks <= 2 * umi_ticks_from_ns(after_end - before_start));
}

static void *
convert_one_second(void *arg)
{
    *(uint64_t *)arg = umi_ticks_from_ns(1000000000u);
    return NULL;
}

/* Runs first: the threads race for the calibration. */
static void
test_threads_calibrate_once(void **state)
{
    pthread_t threads[THREADS];
    uint64_t  results[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, convert_one_second, &results[i]),
            0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (int i = 1; i < THREADS; i++) {
        assert_int_equal(results[i], results[0]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_calibrate_once),
        cmocka_unit_test(test_clock_does_not_go_back),
        cmocka_unit_test(test_zero_ns_is_zero_ticks),
        cmocka_unit_test(test_ticks_grow_with_ns),
        cmocka_unit_test(test_the_longest_time_does_not_wrap),
        cmocka_unit_test(test_ticks_agree_with_the_clock),
    };

    return UNIT_RUN(tests);
}
