/* SPDX-License-Identifier: BSD-3-Clause */
/* link: bell blind_wait child */
/* Show what test_bell.c would see if a part of the protocol were missing. */
#include "bell.h"

enum {
    ENOUGH = 1000000
};

static void
test_without_the_second_look_a_wake_up_is_lost(void **state)
{
    (void)state;
    assert_in_range(bell_rounds(&bell_shapes[0], ENOUGH, 200000000), 0,
                    ENOUGH - 1);
}

int
main(int argc, char **argv)
{
    static const child_entry roles[] = {BELL_ROLE};

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_the_second_look_a_wake_up_is_lost),
    };

    child_role(argc, argv, roles, 1);
    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
