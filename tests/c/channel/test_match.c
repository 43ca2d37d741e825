/* SPDX-License-Identifier: BSD-3-Clause */
#include "channel/match.h"

#include "unit.h"

static void
test_tags_and_masks(void **state)
{
    umx_recv_info info = {.tag = 0xab};

    (void)state;
    assert_true(umi_match(0xab, UINT64_MAX, 0, &info));
    assert_false(umi_match(0xaa, UINT64_MAX, 0, &info));
    assert_true(umi_match(0xa0, 0xf0, 0, &info));
    assert_true(umi_match(0x55, 0, 0, &info));
    info.tag = UINT64_MAX;
    assert_true(umi_match(UINT64_MAX, UINT64_MAX, 0, &info));
    assert_false(umi_match(UINT64_MAX >> 1, UINT64_MAX, 0, &info));
}

static void
test_untagged_matches_untagged_only(void **state)
{
    umx_recv_info tagged = {.tag = 0}, untagged = {.is_untagged = true};

    (void)state;
    assert_false(umi_match(0, UINT64_MAX, 0, &untagged));
    assert_false(umi_match(0, 0, 0, &untagged));
    assert_true(umi_match(0, 0, UMX_MATCH_UNTAGGED, &untagged));
    assert_false(umi_match(0, 0, UMX_MATCH_UNTAGGED, &tagged));
}

static void
test_any_matches_all(void **state)
{
    umx_recv_info tagged = {.tag = 5}, untagged = {.is_untagged = true};

    (void)state;
    assert_true(umi_match(9, UINT64_MAX, UMX_MATCH_ANY, &tagged));
    assert_true(umi_match(9, UINT64_MAX, UMX_MATCH_ANY, &untagged));
    assert_true(umi_match(0, 0, UMX_MATCH_ANY | UMX_MATCH_UNTAGGED, &tagged));
    assert_true(umi_match(0, 0, UMX_MATCH_ANY | UMX_MATCH_EXACT, &untagged));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags_and_masks),
        cmocka_unit_test(test_untagged_matches_untagged_only),
        cmocka_unit_test(test_any_matches_all),
    };

    return UNIT_RUN(tests);
}
