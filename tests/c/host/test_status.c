/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/status.h"

#include "unit.h"

#include <errno.h>
#include <string.h>
#include <ucp/api/ucp.h>

typedef struct row {
    umx_status  status;
    const char *text;
} row;

static const row rows[] = {
#define ROW(name, value, text) {name, text},
    UMX_STATUS_TABLE(ROW)
#undef ROW
};

enum {
    ROWS = sizeof(rows) / sizeof(*rows)
};

static void
test_each_status_has_a_text_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        assert_string_equal(umx_status_string(rows[i].status), rows[i].text);
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(rows[i].text, rows[j].text);
            assert_int_not_equal(rows[i].status, rows[j].status);
        }
    }
}

static void
test_a_value_that_is_no_status(void **state)
{
    (void)state;
    assert_string_equal(umx_status_string((umx_status)-150), "unknown status");
    assert_string_equal(umx_status_string((umx_status)7), "unknown status");
}

/* UCX's statuses are cast: ours are outside its range. */
static void
test_our_own_are_beyond_ucx(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].status <= UMX_ERR_CLOSED) {
            assert_true((int)rows[i].status < (int)UCS_ERR_LAST);
        } else {
            assert_true((int)rows[i].status > (int)UCS_ERR_LAST);
        }
    }
}

static void
test_the_systems_number_is_told_once(void **state)
{
    (void)state;
    assert_int_equal(umi_status_from_errno(EMFILE), UMX_ERR_IO_ERROR);
    assert_int_equal(umi_status_from_errno(EADDRINUSE), UMX_ERR_BUSY);
    assert_int_equal(umx_take_errno(), EADDRINUSE);
    assert_int_equal(umx_take_errno(), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_status_has_a_text_of_its_own),
        cmocka_unit_test(test_a_value_that_is_no_status),
        cmocka_unit_test(test_our_own_are_beyond_ucx),
        cmocka_unit_test(test_the_systems_number_is_told_once),
    };

    return UNIT_RUN(tests);
}
