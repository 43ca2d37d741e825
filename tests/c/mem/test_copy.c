/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "mem/copy.h"

enum {
    GUARD = 64
};

/* Every offset of either end within a line. */
static void
test_all_bytes_and_no_others(void **state)
{
    size_t         len  = UMI_STREAM_MIN + 200;
    unsigned char *from = malloc(len + 2 * GUARD);
    unsigned char *to   = malloc(len + 2 * GUARD);

    (void)state;
    for (size_t i = 0; i < len + 2 * GUARD; i++) {
        from[i] = (unsigned char)(i * 7 + i / 251);
    }
    for (size_t shift = 0; shift < GUARD; shift += 7) {
        size_t count = len - 3 * shift;

        memset(to, 0xee, len + 2 * GUARD);
        umi_copy(to + shift + 1, from + GUARD - shift, count);
        assert_memory_equal(to + shift + 1, from + GUARD - shift, count);
        assert_int_equal(to[shift], 0xee);
        assert_int_equal(to[shift + 1 + count], 0xee);
    }
    free(from);
    free(to);
}

static void
test_nothing(void **state)
{
    (void)state;
    umi_copy(NULL, NULL, 0);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_bytes_and_no_others),
        cmocka_unit_test(test_nothing),
    };

    return UNIT_RUN(tests);
}
