/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/refcnt.h"

#include "unit.h"

static void
test_the_last_reference_is_told(void **state)
{
    umi_refs refs;

    (void)state;
    umi_refs_init(&refs);
    assert_true(umi_refs_is_last(&refs));
    umi_refs_get(&refs);
    assert_false(umi_refs_is_last(&refs));
    assert_false(umi_refs_put(&refs));
    assert_true(umi_refs_is_last(&refs));
    assert_true(umi_refs_put(&refs));
}

static void
test_and_where_threads_share_them(void **state)
{
    umi_shared_refs refs;

    (void)state;
    umi_shared_refs_init(&refs);
    umi_shared_refs_get(&refs);
    assert_false(umi_shared_refs_put(&refs));
    assert_true(umi_shared_refs_put(&refs));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_reference_is_told),
        cmocka_unit_test(test_and_where_threads_share_them),
    };

    return UNIT_RUN(tests);
}
