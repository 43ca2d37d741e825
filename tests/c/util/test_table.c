/* SPDX-License-Identifier: BSD-3-Clause */
/* link: wrap=calloc */
#include "util/table.h"

#include "unit.h"

enum {
    MANY = 5000
};

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

static bool is_starved;

void *
__wrap_calloc(size_t count, size_t size)
{
    return is_starved ? NULL : __real_calloc(count, size);
}

static void
test_numbers_find_their_values_however_many_there_are(void **state)
{
    static int values[MANY];
    umi_table  table;

    (void)state;
    umi_table_init(&table);
    assert_null(umi_table_get(&table, 0));
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(umi_table_add(&table, i << 4, &values[i]));
    }
    assert_int_equal(table.count, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_ptr_equal(umi_table_get(&table, i << 4), &values[i]);
        assert_null(umi_table_get(&table, (i << 4) + 1));
    }
    umi_table_fini(&table);
    assert_null(umi_table_get(&table, 0));
}

static unsigned
walk(const umi_table *table, uint32_t number)
{
    uint32_t mask  = (UINT32_C(1) << table->bits) - 1;
    unsigned steps = 1;

    for (uint32_t i                           = umi_table_home(table, number);
         table->places[i].number != number; i = (i + 1) & mask) {
        steps++;
    }
    return steps;
}

/* Use keys like those of channels: a kind in the upper bits, small numbers
 * below. */
static void
test_neighbours_do_not_get_into_each_others_way(void **state)
{
    umi_table table;
    int       value;

    (void)state;
    umi_table_init(&table);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(umi_table_add(&table, (1 + i % 4) << 16 | i / 4, &value));
    }
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(walk(&table, (1 + i % 4) << 16 | i / 4) <= 8);
    }
    umi_table_fini(&table);
}

static void
test_numbers_of_one_place_are_all_found(void **state)
{
    static int values[64];
    umi_table  table;
    uint32_t   numbers[64], number = 0;

    (void)state;
    umi_table_init(&table);
    table.bits = 7; /* the size at the end */
    for (int i = 0; i < 64; number++) {
        if (umi_table_home(&table, number) == 127) {
            numbers[i++] = number;
        }
    }
    for (int i = 0; i < 64; i++) {
        assert_true(umi_table_add(&table, numbers[i], &values[i]));
    }
    for (int i = 0; i < 64; i++) {
        assert_ptr_equal(umi_table_get(&table, numbers[i]), &values[i]);
    }
    assert_null(umi_table_get(&table, number));
    umi_table_fini(&table);
}

static void
test_without_memory_the_table_stays_as_it_is(void **state)
{
    umi_table table;
    int       value;

    (void)state;
    umi_table_init(&table);
    is_starved = true;
    assert_false(umi_table_add(&table, 1, &value));
    is_starved = false;
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(umi_table_add(&table, i, &value));
    }
    is_starved = true;
    assert_false(umi_table_add(&table, 8, &value));
    assert_int_equal(table.count, 8);
    assert_ptr_equal(umi_table_get(&table, 7), &value);
    assert_null(umi_table_get(&table, 8));
    is_starved = false;
    umi_table_fini(&table);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_find_their_values_however_many_there_are),
        cmocka_unit_test(test_neighbours_do_not_get_into_each_others_way),
        cmocka_unit_test(test_numbers_of_one_place_are_all_found),
        cmocka_unit_test(test_without_memory_the_table_stays_as_it_is),
    };

    return UNIT_RUN(tests);
}
