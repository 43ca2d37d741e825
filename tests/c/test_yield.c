/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=sched_yield */
/* Yields of waits that cost a time slice: processes that compute take the core.
 */
#include "pair.h"

#include "util/clock.h"

enum {
    SLICE_NS = 1000000,
    WAITS    = 200
};

static unsigned num_yields;
static bool     is_taken; /* by somebody who computes */

int __wrap_sched_yield(void);

int
__wrap_sched_yield(void)
{
    uint64_t end = umi_clock_ns() + (is_taken ? SLICE_NS : 0);

    num_yields++;
    while (umi_clock_ns() < end) {
    }
    return 0;
}

/* Wait for `o`, which is not done, `n` times. Returns the yields of that. */
static unsigned
wait_for(const op *o, int n)
{
    num_yields = 0;
    for (int i = 0; i < n; i++) {
        assert_int_equal(umx_request_wait(o->req, 0), UMX_ERR_TIMED_OUT);
    }
    return num_yields;
}

/* Another process may take the core from the test itself. */
static void
wait_until_it_yields(const op *o)
{
    while (wait_for(o, 1) <= 1) {
    }
}

/* The same, each time after a wait that is over before it yields. */
static unsigned
wait_with_others(pair *p, const op *o, int n)
{
    unsigned num = 0;
    op       other;

    for (int i = 0; i < n; i++) {
        op_recv(&other, p->client, 1, pair_any, NULL, 0);
        assert_int_equal(pair_send(p, p->server, 1, pair_untagged, NULL, 0),
                         UMX_OK);
        assert_int_equal(op_wait(p, &other), UMX_OK);
        num += wait_for(o, 1);
    }
    return num;
}

static void
test_waits_yield_less_and_less_where_it_costs_time(void **state)
{
    pair *p = *state;
    char  byte;
    op    o;

    pair_open(p);
    op_recv(&o, p->server, 0, pair_any, &byte, 1);
    wait_until_it_yields(&o);
    is_taken = true;
    while (wait_for(&o, 1) == 0) { /* the next ones do without */
    }
    assert_true(wait_with_others(p, &o, WAITS) < 10);
    is_taken = false;
    wait_until_it_yields(&o);
    op_cancel(o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_ONCE(test_waits_yield_less_and_less_where_it_costs_time),
    };

    return UNIT_RUN(tests);
}
