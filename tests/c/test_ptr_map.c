#include "util/ptr_map.h"

#include "unit.h"

enum {
    MANY = 5000
};

static char keys[MANY];

static void
test_an_empty_map(void **state)
{
    umi_ptr_map map;

    (void)state;
    umi_ptr_map_init(&map);
    assert_null(umi_ptr_map_get(&map, &keys[0]));
    umi_ptr_map_remove(&map, &keys[0]);
    assert_null(map.slots);
    umi_ptr_map_fini(&map);
}

static void
test_put_get_replace_remove(void **state)
{
    umi_ptr_map map;

    (void)state;
    umi_ptr_map_init(&map);
    assert_true(umi_ptr_map_put(&map, &keys[0], &keys[1]));
    assert_ptr_equal(umi_ptr_map_get(&map, &keys[0]), &keys[1]);
    assert_true(umi_ptr_map_put(&map, &keys[0], &keys[2]));
    assert_ptr_equal(umi_ptr_map_get(&map, &keys[0]), &keys[2]);
    assert_int_equal(map.count, 1);
    assert_null(umi_ptr_map_get(&map, &keys[3]));
    assert_null(umi_ptr_map_get(&map, NULL));
    umi_ptr_map_remove(&map, &keys[3]);
    umi_ptr_map_remove(&map, &keys[0]);
    assert_null(umi_ptr_map_get(&map, &keys[0]));
    assert_int_equal(map.count, 0);
    umi_ptr_map_fini(&map);
}

/* Against the plain truth, through growth, collisions and holes. */
static void
test_many_keys_in_any_order(void **state)
{
    static bool is_in[MANY];
    umi_ptr_map map;
    uint32_t    random = 1;
    size_t      count  = 0;

    (void)state;
    umi_ptr_map_init(&map);
    for (int i = 0; i < 20 * MANY; i++) {
        unsigned k;

        random = random * 1664525u + 1013904223u;
        k      = (random >> 8) % MANY;
        if ((random >> 30) != 0 && !is_in[k]) {
            assert_true(umi_ptr_map_put(&map, &keys[k], &keys[k]));
            is_in[k] = true;
            count++;
        } else if (is_in[k]) {
            umi_ptr_map_remove(&map, &keys[k]);
            is_in[k] = false;
            count--;
        }
        assert_int_equal(map.count, count);
        if (i % 1000 == 0) {
            for (int j = 0; j < MANY; j++) {
                assert_ptr_equal(umi_ptr_map_get(&map, &keys[j]),
                                 is_in[j] ? &keys[j] : NULL);
            }
        }
    }
    for (int j = 0; j < MANY; j++) {
        umi_ptr_map_remove(&map, &keys[j]);
        assert_null(umi_ptr_map_get(&map, &keys[j]));
    }
    assert_int_equal(map.count, 0);
    umi_ptr_map_fini(&map);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_map),
        cmocka_unit_test(test_put_get_replace_remove),
        cmocka_unit_test(test_many_keys_in_any_order),
    };

    return UNIT_RUN(tests);
}
