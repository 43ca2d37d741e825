/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=sched_yield optimised */
/* tests: progress/request_wait */
/* Yields of waits that cost a time slice: processes that compute take the core.
 */
#include "pair.h"

#include <umx/layer.h>

#include "progress/yield.h"
#include "util/clock.h"

enum {
    SLICE_NS = 1000000,
    SHARE_NS = 5000,
    WAITS    = 200
};

static unsigned num_yields;
static bool     is_taken;  /* by somebody who computes */
static bool     is_shared; /* with somebody who yields, too */

int __wrap_sched_yield(void);

int
__wrap_sched_yield(void)
{
    uint64_t takes = is_taken ? SLICE_NS : is_shared ? SHARE_NS : 0;
    uint64_t end   = umi_clock_ns() + takes;

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

/* Spin once for nothing. Returns the yields of that. */
static unsigned
spin_once(umx_worker *worker)
{
    static const volatile bool never;

    num_yields = 0;
    assert_false(umx_worker_spin(worker, &never));
    return num_yields;
}

/* Another process may take the core from the test itself, which costs some
 * waits their yields. */
static void
spin_until(umx_worker *worker, unsigned yields)
{
    while (spin_once(worker) != yields) {
    }
}

static void
check_spins(umx_worker *worker)
{
    is_shared = true;
    spin_until(worker, UMI_YIELDS);
    is_shared = false;
    spin_until(worker, 1); /* it finds that nobody wants the core */
    is_taken = true;
    spin_until(worker, 1); /* it has lost a slice, and ... */
    spin_until(worker, 0);
    is_taken = false;
}

static void
test_a_spin_yields_while_others_want_the_core(void **state)
{
    pair       *p = *state;
    umx_worker *worker;

    p->config.drain_ns = 60 * SECOND_NS;
    pair_open(p);
    worker = p->client_worker;
    /* A time to spin even on a machine with one processor. */
    worker->spin.max_ticks = umi_ticks_from_ns(1000000);
    worker->spin.ticks     = worker->spin.max_ticks;
    check_spins(worker);
}

static void
test_without_a_budget_it_yields_as_well(void **state)
{
    pair *p = *state;

    p->config.spin_ns = 0;
    pair_open(p);
    check_spins(p->client_worker);
}

/* The system may pick the same process a few times, though others wait. */
static void
test_a_crowd_yields_though_nobody_seems_to_want_the_core(void **state)
{
    pair       *p = *state;
    umx_worker *worker;

    p->config.spin_ns = 0;
    pair_open(p);
    worker = p->client_worker;
    spin_until(worker, 1);
    umx_worker_crowd(worker, true);
    umx_worker_crowd(worker, true);
    spin_until(worker, UMI_YIELDS);
    umx_worker_crowd(worker, false);
    spin_until(worker, UMI_YIELDS);
    is_taken = true; /* by somebody who computes */
    spin_until(worker, 1);
    spin_until(worker, 0);
    is_taken = false;
    umx_worker_crowd(worker, false);
    spin_until(worker, 1);
}

/* A peer that has the core for a slice may send all the time: each message that
 * is there at once counts as a wait. */
static void
test_what_is_there_counts_as_waits_without(void **state)
{
    pair         *p    = *state;
    volatile bool done = true;
    umi_yields   *yields;

    p->config.spin_ns = 0;
    pair_open(p);
    yields       = &p->client_worker->yields;
    yields->skip = 100;
    for (int i = 0; i < 99; i++) {
        assert_true(umx_worker_spin(p->client_worker, &done));
    }
    assert_int_equal(spin_once(p->client_worker), 0);
    assert_int_not_equal(spin_once(p->client_worker), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_ONCE(test_waits_yield_less_and_less_where_it_costs_time),
        PAIR_TEST_ONCE(test_a_spin_yields_while_others_want_the_core),
        PAIR_TEST_ONCE(test_without_a_budget_it_yields_as_well),
        PAIR_TEST_ONCE(
            test_a_crowd_yields_though_nobody_seems_to_want_the_core),
        PAIR_TEST_ONCE(test_what_is_there_counts_as_waits_without),
    };

    return UNIT_RUN(tests);
}
