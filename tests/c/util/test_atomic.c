/* SPDX-License-Identifier: BSD-3-Clause */
/* link: optimised */
#include "util/atomic.h"

#include "unit.h"

#include <pthread.h>

enum {
    THREADS = 4,
    ROUNDS  = 20000
};

static uint64_t
apply(umx_atomic_op op, unsigned size, void *address, uint64_t value,
      uint64_t compare)
{
    umx_atomic atomic = {
        .op = op, .size = size, .value = value, .compare = compare};

    assert_true(umi_atomic_is_valid(&atomic));
    return umi_atomic_apply(&atomic, address);
}

static void
test_64_bits(void **state)
{
    uint64_t number = 10;

    (void)state;
    assert_int_equal(apply(UMX_ATOMIC_ADD, 8, &number, UINT64_MAX, 0), 10);
    assert_int_equal(apply(UMX_ATOMIC_AND, 8, &number, 8, 0), 9);
    assert_int_equal(apply(UMX_ATOMIC_OR, 8, &number, 3, 0), 8);
    assert_int_equal(apply(UMX_ATOMIC_XOR, 8, &number, 1, 0), 11);
    assert_int_equal(apply(UMX_ATOMIC_SWAP, 8, &number, 1ull << 40, 0), 10);
    assert_int_equal(apply(UMX_ATOMIC_CSWAP, 8, &number, 5, 1), 1ull << 40);
    assert_int_equal(apply(UMX_ATOMIC_CSWAP, 8, &number, 5, 1ull << 40),
                     1ull << 40);
    assert_int_equal(number, 5);
}

static void
test_32_bits_leave_their_neighbours_alone(void **state)
{
    uint32_t numbers[] = {7, 10, 7};

    (void)state;
    assert_int_equal(apply(UMX_ATOMIC_ADD, 4, &numbers[1], UINT64_MAX, 0), 10);
    assert_int_equal(apply(UMX_ATOMIC_AND, 4, &numbers[1], 8, 0), 9);
    assert_int_equal(apply(UMX_ATOMIC_OR, 4, &numbers[1], 3, 0), 8);
    assert_int_equal(apply(UMX_ATOMIC_XOR, 4, &numbers[1], 1, 0), 11);
    assert_int_equal(apply(UMX_ATOMIC_SWAP, 4, &numbers[1], 1ull << 40 | 6, 0),
                     10);
    assert_int_equal(apply(UMX_ATOMIC_CSWAP, 4, &numbers[1], 5, 1), 6);
    assert_int_equal(apply(UMX_ATOMIC_CSWAP, 4, &numbers[1], 5, 6), 6);
    assert_int_equal(apply(UMX_ATOMIC_ADD, 4, &numbers[1], UINT32_MAX, 0), 5);
    assert_int_equal(numbers[0], 7);
    assert_int_equal(numbers[1], 4);
    assert_int_equal(numbers[2], 7);
}

static void
test_what_is_no_operation_is_invalid(void **state)
{
    static const umx_atomic wrong[] = {
        {.op = UMX_ATOMIC_CSWAP + 1, .size = 8},
        {.op = (umx_atomic_op)-1, .size = 8},
        {.size = 0},
        {.size = 2},
        {.size = 16},
        {.size = 4, .offset = 2},
        {.size = 8, .offset = 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(umi_atomic_is_valid(&wrong[i]));
    }
}

static void *
add_often(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        (void)apply(UMX_ATOMIC_ADD, 8, arg, 1, 0);
    }
    return NULL;
}

static void
test_no_addition_is_lost_between_threads(void **state)
{
    uint64_t  sum = 0;
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add_often, &sum), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(sum, THREADS * ROUNDS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_64_bits),
        cmocka_unit_test(test_32_bits_leave_their_neighbours_alone),
        cmocka_unit_test(test_what_is_no_operation_is_invalid),
        cmocka_unit_test(test_no_addition_is_lost_between_threads),
    };

    return UNIT_RUN(tests);
}
