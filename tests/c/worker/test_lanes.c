/* SPDX-License-Identifier: BSD-3-Clause */
/* link: fake_ucp */
/* tests: worker/ep_base */
/* The transports of an endpoint where UCX has no call that tells them. */
#include "worker/ep_base.h"

#include <stdio.h>
#include <string.h>

#include "fake_ucp.h"
#include "unit.h"

/* What UCX 1.13 prints. */
static const char description[] =
    "#\n"
    "# UCP endpoint \n"
    "#\n"
    "#               peer: <no debug data>\n"
    "#                 lane[0]:  3:sysv/memory.0 md[2]           -> "
    "md[2]/sysv/sysdev[255] am am_bw#0\n"
    "#                 lane[1]:  12:tcp/eth0.100.1 md[0]         -> "
    "md[0]/tcp/sysdev[255] rma_bw#0 wireup\n"
    "#                 lane[2]:  15:cma/memory\n"
    "#\n"
    "#                tag_send: 0..<egr/short>..93..<rndv>..(inf)\n"
    "#                 am_send: 0..<egr/short>..93..<rndv>..(inf)\n";

typedef struct lanes {
    char   text[200];
    size_t len;
} lanes;

static void
add(const char *transport, const char *device, void *arg)
{
    lanes *found = arg;

    found->len += (size_t)snprintf(found->text + found->len,
                                   sizeof(found->text) - found->len,
                                   "%s on %s;", transport, device);
}

static void
check(const char *text, const char *expected)
{
    lanes found = {.len = 0};

    fake.description = text;
    assert_int_equal(umi_transport_each(NULL, add, &found), UMX_OK);
    assert_string_equal(found.text, expected);
}

static void
test_they_are_read_from_its_description(void **state)
{
    (void)state;
    fake_reset();
    fake.transport = NULL;
    check(description, "sysv on memory;tcp on eth0.100;cma on memory;");
}

static void
test_a_description_may_have_none(void **state)
{
    (void)state;
    fake_reset();
    fake.transport = NULL;
    check("", "");
    check("#", "");
    check("# lane[0]: 3:sysv", "");
    check("lanes\n\n# lane[0]:  0:self/memory0.0", "self on memory0;");
}

static void
test_names_that_are_too_long_are_cut(void **state)
{
    lanes found = {.len = 0};
    char  text[200];

    (void)state;
    fake_reset();
    fake.transport = NULL;
    snprintf(text, sizeof(text), "# lane[0]: 1:tcp/%0100d.0", 7);
    fake.description = text;
    assert_int_equal(umi_transport_each(NULL, add, &found), UMX_OK);
    assert_int_equal(found.len, strlen("tcp on ;") + 63);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_they_are_read_from_its_description),
        cmocka_unit_test(test_a_description_may_have_none),
        cmocka_unit_test(test_names_that_are_too_long_are_cut),
    };

    return UNIT_RUN(tests);
}
