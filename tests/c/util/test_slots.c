/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/slots.h"

#include "unit.h"

static void
test_numbers_find_what_they_were_given_for(void **state)
{
    umi_slots slots;
    int       values[100];
    uint64_t  ids[100];

    (void)state;
    umi_slots_init(&slots);
    for (int i = 0; i < 100; i++) {
        ids[i] = umi_slots_add(&slots, &values[i], 77);
        assert_true(ids[i] != 0);
    }
    assert_int_equal(slots.count, 100);
    for (int i = 0; i < 100; i++) {
        assert_ptr_equal(umi_slots_get(&slots, ids[i]), &values[i]);
    }
    umi_slots_fini(&slots);
    assert_int_equal(slots.count, 0);
}

static void
test_numbers_given_back_or_made_up_find_nothing(void **state)
{
    umi_slots slots;
    int       a, b;
    uint64_t  id, next;

    (void)state;
    umi_slots_init(&slots);
    assert_null(umi_slots_get(&slots, 0));
    assert_null(umi_slots_get(&slots, 1));
    id = umi_slots_add(&slots, &a, 5);
    assert_null(umi_slots_get(&slots, id + 1));
    assert_null(umi_slots_get(&slots, id ^ (UINT64_C(1) << 40)));
    assert_null(umi_slots_get(&slots, (uint32_t)id));
    umi_slots_remove(&slots, id + 1);
    umi_slots_remove(&slots, id);
    umi_slots_remove(&slots, id);
    assert_int_equal(slots.count, 0);
    assert_null(umi_slots_get(&slots, id));
    next = umi_slots_add(&slots, &b, 6); /* the same place, another number */
    assert_int_equal((uint32_t)next, (uint32_t)id);
    assert_null(umi_slots_get(&slots, id));
    assert_ptr_equal(umi_slots_get(&slots, next), &b);
    umi_slots_fini(&slots);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_find_what_they_were_given_for),
        cmocka_unit_test(test_numbers_given_back_or_made_up_find_nothing),
    };

    return UNIT_RUN(tests);
}
