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

/* Every place of the destination near that of the source in its page. */
static void
test_what_the_processor_copies_slowly(void **state)
{
    enum {
        LEN = 5 * UMI_COPY_SHORT + 77
    };

    unsigned char *from = malloc(LEN);
    unsigned char *to   = malloc(LEN + 3 * UMI_COPY_PAGE);
    unsigned char *page;

    (void)state;
    for (size_t i = 0; i < LEN; i++) {
        from[i] = (unsigned char)(i * 7 + i / 251);
    }
    page = to + UMI_COPY_PAGE +
           ((uintptr_t)from - (uintptr_t)to) % UMI_COPY_PAGE;
    for (int shift = -2; shift < UMI_COPY_LINE + 2; shift++) {
        unsigned char *at = page + shift;

        assert_int_equal(umi_copy_is_slow(at, from),
                         shift > 0 && shift < UMI_COPY_LINE);
        memset(to, 0xee, LEN + 3 * UMI_COPY_PAGE);
        umi_copy(at, from, LEN);
        assert_memory_equal(at, from, LEN);
        assert_int_equal(at[-1], 0xee);
        assert_int_equal(at[LEN], 0xee);
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
        cmocka_unit_test(test_what_the_processor_copies_slowly),
        cmocka_unit_test(test_nothing),
    };

    return UNIT_RUN(tests);
}
