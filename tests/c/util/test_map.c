/* SPDX-License-Identifier: BSD-3-Clause */
/* link: wrap=calloc */
#include "util/map.h"

#include <stdbool.h>

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

static umi_map_node nodes[MANY];

/* Keys that are neighbours, also in their upper bits. */
static uint64_t
key_of(int i)
{
    return ((uint64_t)i << 32) + (uint64_t)(i % 3);
}

static void
fill_and_empty(void)
{
    umi_map map;

    umi_map_init(&map);
    assert_null(umi_map_find(&map, 0));
    for (int i = 0; i < MANY; i++) {
        umi_map_add(&map, &nodes[i], key_of(i));
    }
    assert_int_equal(map.count, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_ptr_equal(umi_map_find(&map, key_of(i)), &nodes[i]);
        assert_null(umi_map_find(&map, key_of(i) + 3));
    }
    for (int i = 0; i < MANY; i += 2) {
        umi_map_remove(&map, &nodes[i]);
    }
    assert_int_equal(map.count, MANY / 2);
    for (int i = 0; i < MANY; i++) {
        assert_ptr_equal(umi_map_find(&map, key_of(i)),
                         (i % 2 == 0) ? NULL : &nodes[i]);
    }
    umi_map_fini(&map);
    assert_null(umi_map_find(&map, key_of(1)));
}

static void
test_keys_find_their_nodes_however_many_there_are(void **state)
{
    (void)state;
    fill_and_empty();
}

static void
test_a_map_without_memory_is_right(void **state)
{
    (void)state;
    is_starved = true;
    fill_and_empty();
    is_starved = false;
}

static void
test_few_nodes_have_the_same_place(void **state)
{
    unsigned longest = 0;
    umi_map  map;

    (void)state;
    umi_map_init(&map);
    for (int i = 0; i < MANY; i++) {
        umi_map_add(&map, &nodes[i], key_of(i));
    }
    for (size_t i = 0; i < (size_t)1 << map.bits; i++) {
        unsigned length = 0;

        for (umi_map_node *node = map.places[i]; node != NULL;
             node               = node->next) {
            length++;
        }
        longest = (length > longest) ? length : longest;
    }
    assert_in_range(longest, 1, 8);
    umi_map_fini(&map);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_find_their_nodes_however_many_there_are),
        cmocka_unit_test(test_a_map_without_memory_is_right),
        cmocka_unit_test(test_few_nodes_have_the_same_place),
    };

    return UNIT_RUN(tests);
}
