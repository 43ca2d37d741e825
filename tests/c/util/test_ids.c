/* SPDX-License-Identifier: BSD-3-Clause */
/* link: wrap=umi_random_bytes wrap=calloc */
#include "util/ids.h"

#include "unit.h"

#include <stdlib.h>

#include "util/hash.h"

enum {
    MANY = 1000
};

static bool has_random = true, has_memory = true;

bool  __real_umi_random_bytes(void *data, size_t len);
bool  __wrap_umi_random_bytes(void *data, size_t len);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

bool
__wrap_umi_random_bytes(void *data, size_t len)
{
    return has_random && __real_umi_random_bytes(data, len);
}

void *
__wrap_calloc(size_t count, size_t size)
{
    return has_memory ? __real_calloc(count, size) : NULL;
}

static void
test_numbers_find_what_they_were_given_for(void **state)
{
    static int values[MANY];

    umi_ids  ids;
    uint64_t given[MANY];

    (void)state;
    umi_ids_init(&ids);
    for (int i = 0; i < MANY; i++) {
        given[i] = umi_ids_add(&ids, &values[i]);
        assert_true(given[i] != 0);
        assert_int_equal(ids.count, i + 1);
    }
    for (int i = 0; i < MANY; i++) {
        assert_ptr_equal(umi_ids_get(&ids, given[i]), &values[i]);
    }
    for (int i = 0; i < MANY; i += 2) {
        umi_ids_remove(&ids, given[i]);
        umi_ids_remove(&ids, given[i]);
    }
    assert_int_equal(ids.count, MANY / 2);
    for (int i = 0; i < MANY; i++) {
        assert_ptr_equal(umi_ids_get(&ids, given[i]),
                         (i % 2 == 0) ? NULL : &values[i]);
    }
    umi_ids_fini(&ids);
    assert_null(umi_ids_get(&ids, given[1]));
}

static void
test_nothing_is_found_by_numbers_that_are_none(void **state)
{
    umi_ids  ids;
    int      value;
    uint64_t id;

    (void)state;
    umi_ids_init(&ids);
    assert_null(umi_ids_get(&ids, 0));
    assert_null(umi_ids_get(&ids, 1));
    umi_ids_remove(&ids, 0);
    umi_ids_remove(&ids, 1);
    id = umi_ids_add(&ids, &value);
    assert_null(umi_ids_get(&ids, 0));
    for (int bit = 0; bit < 64; bit++) {
        assert_null(umi_ids_get(&ids, id ^ UINT64_C(1) << bit));
    }
    assert_int_equal(ids.count, 1);
    umi_ids_fini(&ids);
}

/* A number that was given is known even after it was given back; of invented
 * numbers one in 2^24 would pass. */
static void
test_a_number_tells_whether_it_was_ever_given(void **state)
{
    umi_ids  ids, others;
    int      value;
    unsigned passed = 0;

    (void)state;
    umi_ids_init(&ids);
    umi_ids_init(&others);
    assert_false(umi_ids_was_given(&ids, 0));
    for (int i = 0; i < MANY; i++) {
        uint64_t id = umi_ids_add(&ids, &value);

        umi_ids_remove(&ids, id);
        assert_true(umi_ids_was_given(&ids, id));
        passed += umi_ids_was_given(&ids, id ^ 1);
        passed += umi_ids_was_given(&ids, id ^ UINT64_C(1) << 40);
        passed += umi_ids_was_given(&ids, umi_ids_add(&others, &value));
    }
    assert_in_range(passed, 0, 2);
    umi_ids_fini(&ids);
    umi_ids_fini(&others);
}

static void
test_no_number_without_memory_or_random_bytes(void **state)
{
    umi_ids ids;
    int     value;

    (void)state;
    umi_ids_init(&ids);
    has_random = false;
    assert_int_equal(umi_ids_add(&ids, &value), 0);
    has_random = true;
    has_memory = false;
    assert_int_equal(umi_ids_add(&ids, &value), 0);
    has_memory = true;
    assert_true(umi_ids_add(&ids, &value) != 0);
    has_random = false;
    assert_int_equal(umi_ids_add(&ids, &value), 0);
    has_random = true;
    assert_int_equal(ids.count, 1);
    umi_ids_fini(&ids);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_find_what_they_were_given_for),
        cmocka_unit_test(test_nothing_is_found_by_numbers_that_are_none),
        cmocka_unit_test(test_a_number_tells_whether_it_was_ever_given),
        cmocka_unit_test(test_no_number_without_memory_or_random_bytes),
    };

    return UNIT_RUN(tests);
}
