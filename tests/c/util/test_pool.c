/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/pool.h"

#include "unit.h"

#include <string.h>

enum {
    OBJECT_SIZE = 40,
    FIRST_CHUNK = 16,
    MAX_CHUNK   = 256,
    MANY        = 2000
};

/* For test_no_memory_gives_null: ASan's malloc ends the program by default. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);

const char *
__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void *objects[MANY];

static void
get_objects(umi_pool *pool, int count)
{
    for (int i = 0; i < count; i++) {
        objects[i] = umi_pool_get(pool);
        assert_non_null(objects[i]);
    }
}

static unsigned
count_chunks(const umi_pool *pool)
{
    unsigned count = 0;

    for (void *chunk = pool->chunks; chunk != NULL; chunk = *(void **)chunk) {
        count++;
    }
    return count;
}

static void
test_init_allocates_nothing(void **state)
{
    umi_pool pool;

    (void)state;
    umi_pool_init(&pool, OBJECT_SIZE);
    assert_null(pool.chunks);
    assert_int_equal(pool.in_use, 0);
    umi_pool_fini(&pool);
}

static void
test_sizes_are_rounded_up(void **state)
{
    static const size_t sizes[][2] = {{0, 16},  {1, 16},  {16, 16},
                                      {17, 32}, {40, 48}, {4096, 4096}};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        umi_pool pool;

        umi_pool_init(&pool, sizes[i][0]);
        assert_int_equal(pool.object_size, sizes[i][1]);
        umi_pool_fini(&pool);
    }
}

/* Whole objects are written with a pattern of their own: an overlap shows as a
 * wrong pattern, a write outside of a chunk to ASan. */
static void
test_objects_are_aligned_and_apart(void **state)
{
    umi_pool pool;
    uint8_t  pattern[OBJECT_SIZE];

    (void)state;
    umi_pool_init(&pool, OBJECT_SIZE);
    get_objects(&pool, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal((uintptr_t)objects[i] % 16, 0);
        memset(objects[i], i % 251, OBJECT_SIZE);
    }
    for (int i = 0; i < MANY; i++) {
        memset(pattern, i % 251, sizeof(pattern));
        assert_memory_equal(objects[i], pattern, sizeof(pattern));
    }
    umi_pool_fini(&pool);
}

static void
test_is_empty_where_get_may_make_a_chunk(void **state)
{
    umi_pool pool;

    (void)state;
    umi_pool_init(&pool, OBJECT_SIZE);
    for (int i = 0; i < MANY; i++) {
        unsigned before = count_chunks(&pool);
        void    *object;

        assert_true(umi_pool_is_empty(&pool));
        get_objects(&pool, 1);
        assert_in_range(count_chunks(&pool) - before, 0, 1);
        before = count_chunks(&pool);
        umi_pool_put(&pool, objects[0]);
        assert_false(umi_pool_is_empty(&pool));
        object = umi_pool_get(&pool);
        assert_ptr_equal(object, objects[0]);
        assert_int_equal(count_chunks(&pool), before);
    }
    umi_pool_fini(&pool);
}

static void
test_put_objects_come_back_last_first(void **state)
{
    umi_pool pool;
    void    *a;
    void    *b;

    (void)state;
    umi_pool_init(&pool, OBJECT_SIZE);
    a = umi_pool_get(&pool);
    b = umi_pool_get(&pool);
    assert_non_null(a);
    assert_non_null(b);
    umi_pool_put(&pool, a);
    umi_pool_put(&pool, b);
    assert_ptr_equal(umi_pool_get(&pool), b);
    assert_ptr_equal(umi_pool_get(&pool), a);
    umi_pool_fini(&pool);
}

static void
test_chunks_double_up_to_a_limit(void **state)
{
    umi_pool pool;
    int      filled = 0;
    unsigned chunks = 0;

    (void)state;
    umi_pool_init(&pool, OBJECT_SIZE);
    for (int count = FIRST_CHUNK; filled + count <= MANY;) {
        for (int i = 0; i < count; i++) {
            assert_non_null(umi_pool_get(&pool));
            assert_int_equal(count_chunks(&pool), chunks + 1);
        }
        assert_null(pool.free_list);
        filled += count;
        chunks++;
        count = (count < MAX_CHUNK) ? 2 * count : MAX_CHUNK;
    }
    assert_true(filled > 4 * MAX_CHUNK);
    umi_pool_fini(&pool);
}

static void
test_reuse_makes_no_chunk(void **state)
{
    umi_pool pool;
    unsigned chunks;

    (void)state;
    umi_pool_init(&pool, OBJECT_SIZE);
    get_objects(&pool, 100);
    chunks = count_chunks(&pool);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 100; i++) {
            umi_pool_put(&pool, objects[i]);
        }
        get_objects(&pool, 100);
    }
    assert_int_equal(count_chunks(&pool), chunks);
    umi_pool_fini(&pool);
}

static void
test_counts(void **state)
{
    umi_pool pool;

    (void)state;
    umi_pool_init(&pool, OBJECT_SIZE);
    get_objects(&pool, 20);
    assert_int_equal(pool.in_use, 20);
    assert_int_equal(pool.peak, 20);
    for (int i = 0; i < 15; i++) {
        umi_pool_put(&pool, objects[i]);
    }
    get_objects(&pool, 10);
    assert_int_equal(pool.in_use, 15);
    assert_int_equal(pool.peak, 20);
    umi_pool_fini(&pool);
}

static void
test_no_memory_gives_null(void **state)
{
    umi_pool pool;

    (void)state;
    /* More than the address space holds, and no overflow in 16 objects. */
    umi_pool_init(&pool, SIZE_MAX / 64);
    assert_null(umi_pool_get(&pool));
    assert_int_equal(pool.in_use, 0);
    assert_null(pool.chunks);
    umi_pool_fini(&pool);
}

static void
test_a_pool_works_again_after_fini(void **state)
{
    umi_pool pool;

    (void)state;
    umi_pool_init(&pool, OBJECT_SIZE);
    get_objects(&pool, 100);
    umi_pool_fini(&pool);
    assert_int_equal(pool.in_use, 0);
    get_objects(&pool, 1);
    assert_int_equal(pool.peak, 1);
    umi_pool_fini(&pool);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init_allocates_nothing),
        cmocka_unit_test(test_sizes_are_rounded_up),
        cmocka_unit_test(test_objects_are_aligned_and_apart),
        cmocka_unit_test(test_is_empty_where_get_may_make_a_chunk),
        cmocka_unit_test(test_put_objects_come_back_last_first),
        cmocka_unit_test(test_chunks_double_up_to_a_limit),
        cmocka_unit_test(test_reuse_makes_no_chunk),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_no_memory_gives_null),
        cmocka_unit_test(test_a_pool_works_again_after_fini),
    };

    return UNIT_RUN(tests);
}
