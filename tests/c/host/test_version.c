/* SPDX-License-Identifier: BSD-3-Clause */
#include <umx/version.h>

#include "unit.h"

#include <stdio.h>
#include <string.h>

static void
test_the_version_is_that_of_the_header(void **state)
{
    char text[64];

    (void)state;
    snprintf(text, sizeof(text), "%d.%d.%d", UMX_VERSION_MAJOR,
             UMX_VERSION_MINOR, UMX_VERSION_PATCH);
    assert_string_equal(umx_version_string(), text);
}

static void
test_the_build_says_which_headers_it_was_made_with(void **state)
{
    const char *id = umx_headers_id();

    (void)state;
    assert_int_equal(strlen(id), 16);
    assert_int_equal(strspn(id, "0123456789abcdef"), 16);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_version_is_that_of_the_header),
        cmocka_unit_test(test_the_build_says_which_headers_it_was_made_with),
    };

    return UNIT_RUN(tests);
}
