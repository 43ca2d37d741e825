/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

#include <stdlib.h>

#include "host/transports.h"

static void
check(const char *list, const char *expected)
{
    char *others = umi_transports_without_sysv(list);

    if (expected == NULL) {
        assert_null(others);
    } else {
        assert_non_null(others);
        assert_string_equal(others, expected);
    }
    free(others);
}

static void
test_sysv_is_left_out_of_lists(void **state)
{
    (void)state;
    check("all", "^sysv");
    check("self,all", "^sysv");
    check("sysv,tcp,self", "tcp,self");
    check("tcp,sysv", "tcp");
    check("tcp,\\sysv,self", "tcp,self");
    check("sm,self", "posix,cma,self");
    check("self,shm", "self,posix,cma");
    check("mm", "posix");
    check("mm,sysv,sm", "posix,posix,cma");
    check("^tcp", "^tcp,sysv");
    check("^rc,ud", "^rc,ud,sysv");
}

static void
test_lists_without_sysv_stay(void **state)
{
    (void)state;
    check("", NULL);
    check("tcp,self", NULL);
    check("posix,self,tcp", NULL);
    check("sysvx,xsysv", NULL);
    check("^sysv", NULL);
    check("^tcp,sm", NULL);
    check("^mm", NULL);
}

static void
test_nothing_else_is_no_list(void **state)
{
    (void)state;
    check("sysv", NULL);
    check("sysv,\\sysv", NULL);
}

static void
test_tcp_is_found(void **state)
{
    (void)state;
    assert_true(umi_transports_have_tcp(NULL));
    assert_true(umi_transports_have_tcp("all"));
    assert_true(umi_transports_have_tcp("self,tcp"));
    assert_true(umi_transports_have_tcp("^shm"));
    assert_false(umi_transports_have_tcp("^tcp"));
    assert_false(umi_transports_have_tcp("sm,self"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sysv_is_left_out_of_lists),
        cmocka_unit_test(test_lists_without_sysv_stay),
        cmocka_unit_test(test_nothing_else_is_no_list),
        cmocka_unit_test(test_tcp_is_found),
    };

    return UNIT_RUN(tests);
}
