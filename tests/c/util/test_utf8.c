/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/utf8.h"

#include <string.h>

#include "unit.h"

static const char text[] = "a\xD0\xB4\xE4\xB8\xAD\xF0\x9F\x98\x80z";

/* How many bytes of each beginning of the text are whole characters. */
static const size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};

static void
test_a_cut_text_ends_with_a_whole_character(void **state)
{
    (void)state;
    assert_int_equal(sizeof(whole) / sizeof(*whole), sizeof(text));
    for (size_t len = 0; len < sizeof(text); len++) {
        char cut[sizeof(text)];

        memcpy(cut, text, len);
        cut[len] = '\0';
        umi_utf8_end(cut);
        assert_int_equal(strlen(cut), whole[len]);
        assert_memory_equal(cut, text, whole[len]);
        assert_true(umi_utf8_is_valid(cut, strlen(cut)));
    }
}

static void
test_what_is_no_text_stays(void **state)
{
    static const char *const others[] = {"\x80\x80\x80\x80\x80", "a\xFF",
                                         "\xB4", "\xF8\x80", ""};

    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        char cut[8];

        strcpy(cut, others[i]);
        umi_utf8_end(cut);
        assert_string_equal(cut, others[i]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cut_text_ends_with_a_whole_character),
        cmocka_unit_test(test_what_is_no_text_stays),
    };

    return UNIT_RUN(tests);
}
