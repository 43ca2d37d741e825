/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/list.h"

#include "unit.h"

#ifdef NDEBUG
#error "the C tests have the library check itself"
#endif

typedef struct item {
    int      before; /* keeps the node from offset 0 */
    umi_node node;
} item;

static umi_list list;
static umi_list other;
static item     items[5];

static int
setup(void **state)
{
    (void)state;
    umi_list_init(&list);
    umi_list_init(&other);
    for (int i = 0; i < 5; i++) {
        items[i].before = i;
        umi_node_init(&items[i].node);
    }
    return 0;
}

/* `list` holds exactly `count` items, with these numbers, both ways round. */
static void
assert_list(const umi_list *head, int count, const int *numbers)
{
    const umi_node *node = head;

    for (int i = 0; i < count; i++) {
        assert_ptr_equal(node->next->prev, node);
        node = node->next;
        assert_ptr_not_equal(node, head);
        assert_int_equal(umi_container_of(node, item, node)->before,
                         numbers[i]);
    }
    assert_ptr_equal(node->next, head);
    assert_ptr_equal(head->prev, node);
}

#define ASSERT_LIST(head, count, ...) \
    assert_list(head, count, (const int[]){__VA_ARGS__})

static void
test_empty(void **state)
{
    (void)state;
    assert_true(umi_list_is_empty(&list));
    assert_false(umi_node_is_linked(&items[0].node));
    assert_null(umi_list_pop(&list));
}

static void
test_append_keeps_order(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        umi_list_append(&list, &items[i].node);
        assert_true(umi_node_is_linked(&items[i].node));
    }
    assert_false(umi_list_is_empty(&list));
    ASSERT_LIST(&list, 3, 0, 1, 2);
}

static void
test_prepend_and_insert_before(void **state)
{
    (void)state;
    umi_list_prepend(&list, &items[0].node);
    umi_list_prepend(&list, &items[1].node);
    umi_node_insert_before(&items[0].node, &items[2].node);
    ASSERT_LIST(&list, 3, 1, 2, 0);
}

/* Items are sorted by their tens: 0 to 9 are equal. */
static bool
is_behind(umi_node *node, umi_node *before, const void *arg)
{
    const int *values = arg;

    return values[umi_container_of(node, item, node) - items] / 10 >
           values[umi_container_of(before, item, node) - items] / 10;
}

static void
test_insert_sorted_puts_equals_behind(void **state)
{
    static const int values[] = {21, 11, 20, 12, 31};

    (void)state;
    for (int i = 0; i < 5; i++) {
        umi_list_insert_sorted(&list, &items[i].node, is_behind, values);
    }
    ASSERT_LIST(&list, 5, 1, 3, 0, 2, 4);
}

static void
test_pop_takes_the_first(void **state)
{
    (void)state;
    umi_list_append(&list, &items[0].node);
    umi_list_append(&list, &items[1].node);
    assert_ptr_equal(umi_list_pop(&list), &items[0].node);
    assert_false(umi_node_is_linked(&items[0].node));
    ASSERT_LIST(&list, 1, 1);
    assert_ptr_equal(umi_list_pop(&list), &items[1].node);
    assert_null(umi_list_pop(&list));
}

static void
test_remove_twice_is_harmless(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        umi_list_append(&list, &items[i].node);
    }
    umi_node_remove(&items[1].node);
    umi_node_remove(&items[1].node);
    assert_false(umi_node_is_linked(&items[1].node));
    ASSERT_LIST(&list, 2, 0, 2);
}

static void
test_splice_moves_all_to_the_end(void **state)
{
    (void)state;
    umi_list_append(&list, &items[0].node);
    umi_list_append(&list, &items[1].node);
    umi_list_append(&other, &items[2].node);
    umi_list_append(&other, &items[3].node);
    umi_list_splice(&list, &other);
    ASSERT_LIST(&list, 4, 0, 1, 2, 3);
    assert_true(umi_list_is_empty(&other));
}

static void
test_splice_with_an_empty_side(void **state)
{
    (void)state;
    umi_list_splice(&list, &other);
    assert_true(umi_list_is_empty(&list));

    umi_list_append(&other, &items[0].node);
    umi_list_splice(&list, &other);
    umi_list_splice(&list, &other);
    ASSERT_LIST(&list, 1, 0);
    assert_true(umi_list_is_empty(&other));
}

static void
test_foreach_visits_in_order(void **state)
{
    int seen = 0;

    (void)state;
    UMI_LIST_FOREACH(node, &list) {
        fail();
    }
    for (int i = 0; i < 4; i++) {
        umi_list_append(&list, &items[i].node);
    }
    UMI_LIST_FOREACH(node, &list) {
        assert_int_equal(umi_container_of(node, item, node)->before, seen);
        seen++;
    }
    assert_int_equal(seen, 4);
}

static void
test_foreach_safe_allows_removal(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        umi_list_append(&list, &items[i].node);
    }
    UMI_LIST_FOREACH_SAFE(node, &list) {
        if (umi_container_of(node, item, node)->before % 2 == 1) {
            umi_node_remove(node);
        }
    }
    ASSERT_LIST(&list, 2, 0, 2);
    UMI_LIST_FOREACH_SAFE(node, &list) {
        umi_node_remove(node);
    }
    assert_true(umi_list_is_empty(&list));
}

static unsigned
walks_at(umi_node *which)
{
    UMI_LIST_FOREACH(node, &list) {
        if (node == which) {
            return umi_list_walks;
        }
    }
    return 0;
}

static void
test_a_walk_is_open_until_it_is_left(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        umi_list_append(&list, &items[i].node);
    }
    assert_int_equal(umi_list_walks, 0);
    UMI_LIST_FOREACH(node, &list) {
        if (node == &items[1].node) {
            continue;
        }
        assert_int_equal(umi_list_walks, 1);
        UMI_LIST_FOREACH_SAFE(inner, &list) {
            assert_int_equal(umi_list_walks, 2);
            assert_int_equal(walks_at(node), 3);
            break;
        }
        assert_int_equal(umi_list_walks, 1);
        if (node == &items[2].node) {
            goto left;
        }
    }
left:
    assert_int_equal(umi_list_walks, 0);
}

static void
test_each_has_one_turn(void **state)
{
    size_t    left = 0;
    umi_node *node;

    (void)state;
    assert_null(umi_list_turn(&list, &left));
    left = 1;
    assert_null(umi_list_turn(&list, &left));
    for (int i = 0; i < 4; i++) {
        umi_list_append(&list, &items[i].node);
    }
    left = umi_list_count(&list);
    assert_int_equal(left, 4);
    for (int i = 0; (node = umi_list_turn(&list, &left)) != NULL; i++) {
        assert_ptr_equal(node, &items[i].node);
        assert_int_equal(umi_list_walks, 0);
    }
    ASSERT_LIST(&list, 4, 0, 1, 2, 3);
}

static void
test_a_turn_may_take_any_off(void **state)
{
    size_t    left  = 4;
    unsigned  count = 0;
    umi_node *node;

    (void)state;
    for (int i = 0; i < 4; i++) {
        umi_list_append(&list, &items[i].node);
    }
    while ((node = umi_list_turn(&list, &left)) != NULL) {
        umi_node_remove(&items[0].node);
        umi_node_remove(&items[1].node);
        count++;
    }
    assert_in_range(count, 3, 4);
    assert_int_equal(umi_list_count(&list), 2);
    left = 2;
    while (umi_list_turn(&list, &left) != NULL) {
        umi_list_init(&list);
    }
    assert_int_equal(left, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_empty, setup),
        cmocka_unit_test_setup(test_a_walk_is_open_until_it_is_left, setup),
        cmocka_unit_test_setup(test_each_has_one_turn, setup),
        cmocka_unit_test_setup(test_a_turn_may_take_any_off, setup),
        cmocka_unit_test_setup(test_append_keeps_order, setup),
        cmocka_unit_test_setup(test_prepend_and_insert_before, setup),
        cmocka_unit_test_setup(test_insert_sorted_puts_equals_behind, setup),
        cmocka_unit_test_setup(test_pop_takes_the_first, setup),
        cmocka_unit_test_setup(test_remove_twice_is_harmless, setup),
        cmocka_unit_test_setup(test_splice_moves_all_to_the_end, setup),
        cmocka_unit_test_setup(test_splice_with_an_empty_side, setup),
        cmocka_unit_test_setup(test_foreach_visits_in_order, setup),
        cmocka_unit_test_setup(test_foreach_safe_allows_removal, setup),
    };

    return UNIT_RUN(tests);
}
