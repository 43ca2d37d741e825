/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=ucp_worker_progress optimised */
#include "pair.h"

#include <umx/layer.h>

#include "util/clock.h"

static bool is_busy; /* messages come all the time */

unsigned __real_ucp_worker_progress(ucp_worker_h worker);
unsigned __wrap_ucp_worker_progress(ucp_worker_h worker);

unsigned
__wrap_ucp_worker_progress(ucp_worker_h worker)
{
    return __real_ucp_worker_progress(worker) + is_busy;
}

/* Record one spin that finds nothing. */
static void
fail_spin(umx_worker *worker)
{
    static const volatile bool never;

    assert_false(umx_worker_spin(worker, &never));
}

static void
test_what_is_there_already_costs_no_spin(void **state)
{
    pair            *p    = *state;
    volatile bool    done = true;
    umx_worker_stats stats;

    pair_listen(p);
    assert_true(umx_worker_spin(p->client_worker, &done));
    umx_worker_query(p->client_worker, &stats);
    assert_int_equal(stats.spins, 0);
}

static void
test_without_a_budget_nothing_spins(void **state)
{
    pair            *p = *state;
    umx_worker_stats stats;

    p->config.spin_ns = 0;
    pair_listen(p);
    for (int i = 0; i < 100; i++) {
        fail_spin(p->client_worker);
    }
    umx_worker_query(p->client_worker, &stats);
    assert_int_equal(stats.spins, 0);
}

static void
test_the_budget_halves_then_backs_off_then_recovers(void **state)
{
    pair          *p = *state;
    umi_spin      *spin;
    int            halvings   = 0;
    const unsigned backoffs[] = {8, 16, 32, 64};

    p->config.spin_ns  = 1000;
    p->config.drain_ns = 60 * SECOND_NS;
    pair_listen(p);
    spin = &p->client_worker->spin;
    /* Set a time to spin even on a machine with one processor. */
    spin->max_ticks = umi_ticks_from_ns(1000);
    spin->ticks     = spin->max_ticks;
    while (spin->ticks != 0) {
        uint64_t before = spin->ticks;

        fail_spin(p->client_worker);
        assert_true(spin->ticks <= before / 2);
        halvings++;
    }
    assert_int_equal(halvings, 6); /* 1/64 is less than 1/32 */
    for (int i = 0; i < 4; i++) {
        umx_worker_stats before, after;

        assert_int_equal(spin->backoff, backoffs[i]);
        umx_worker_query(p->client_worker, &before);
        for (unsigned j = 0; j < backoffs[i]; j++) {
            fail_spin(p->client_worker); /* skipped */
        }
        umx_worker_query(p->client_worker, &after);
        assert_int_equal(after.spins, before.spins);
        fail_spin(p->client_worker); /* the probe */
        umx_worker_query(p->client_worker, &after);
        assert_int_equal(after.spins, before.spins + 1);
        assert_int_equal(spin->ticks, 0);
    }
    while (spin->backoff < 4096) {
        fail_spin(p->client_worker);
    }
    spin->skip = 0;
    fail_spin(p->client_worker);
    assert_int_equal(spin->backoff, 4096); /* no longer than that */
}

/* Somebody else had the core: most of all then others need it. */
static void
test_a_spin_that_nothing_came_to_fails_however_long_it_took(void **state)
{
    pair     *p = *state;
    umi_spin *spin;

    p->config.drain_ns = 1;
    pair_listen(p);
    spin            = &p->client_worker->spin;
    spin->max_ticks = umi_ticks_from_ns(SECOND_NS);
    spin->ticks     = spin->max_ticks;
    fail_spin(p->client_worker);
    assert_true(spin->ticks == spin->max_ticks / 2);
}

static uint64_t
spins_of(umx_worker *worker)
{
    umx_worker_stats stats;

    umx_worker_query(worker, &stats);
    return stats.spins;
}

/* A peer copies: to wait for that as long as it takes is no failure, and is
 * done once for each copy. */
static void
test_a_wait_for_a_copy_does_not_count(void **state)
{
    pair       *p = *state;
    umx_worker *worker;
    umi_spin   *spin;
    uint64_t    start, took;

    p->config.spin_ns  = 1000;
    p->config.drain_ns = 1000;
    pair_listen(p);
    worker          = p->client_worker;
    spin            = &worker->spin;
    spin->max_ticks = umi_ticks_from_ns(1000);
    spin->ticks     = spin->max_ticks;
    umi_worker_expect_copy(worker, 4);
    start = umi_ticks();
    fail_spin(worker);
    took = umi_ticks() - start;
    assert_true(took >= umi_ticks_from_ns(10000)); /* it did not end before */
    assert_int_equal(spins_of(worker), 1);
    assert_true(spin->ticks == spin->max_ticks);
    fail_spin(worker); /* one of its own */
    assert_true(spin->ticks == spin->max_ticks / 2);
    while (spin->ticks != 0) {
        fail_spin(worker);
    }
    start = spins_of(worker);
    fail_spin(worker); /* skipped */
    assert_int_equal(spins_of(worker), start);
    umi_worker_expect_copy(worker, 4);
    fail_spin(worker); /* not skipped */
    assert_int_equal(spins_of(worker), start + 1);
    umx_worker_crowd(worker, true); /* the peer may need this processor */
    umi_worker_expect_copy(worker, 4);
    fail_spin(worker);
    assert_int_equal(spins_of(worker), start + 1);
    assert_int_equal(spin->expected, 0);
    umx_worker_crowd(worker, false);
}

/* What else comes meanwhile does not make it longer. */
static void
test_a_wait_for_a_copy_ends_though_messages_come(void **state)
{
    pair     *p = *state;
    umi_spin *spin;

    p->config.spin_ns = 1000;
    pair_listen(p);
    spin            = &p->client_worker->spin;
    spin->max_ticks = umi_ticks_from_ns(1000);
    spin->ticks     = spin->max_ticks;
    umi_worker_expect_copy(p->client_worker, 4);
    is_busy = true;
    fail_spin(p->client_worker); /* returns */
    is_busy = false;
    assert_int_equal(spins_of(p->client_worker), 1);
}

static void
test_without_a_budget_no_copy_is_waited_for(void **state)
{
    pair *p = *state;

    p->config.spin_ns = 0;
    pair_listen(p);
    umi_worker_expect_copy(p->client_worker, 1000);
    fail_spin(p->client_worker);
    assert_int_equal(spins_of(p->client_worker), 0);
}

typedef struct landing {
    volatile bool is_done;
    umx_status    status;
} landing;

static void
set_done(umx_request *req, umx_status status, void *arg)
{
    landing *l = arg;

    (void)req;
    l->status  = status;
    l->is_done = true;
}

static void
test_a_spin_that_pays_restores_the_budget(void **state)
{
    pair         *p = *state;
    landing       l = {false, UMX_OK};
    umi_spin     *spin;
    char          byte;
    umx_buffer    buffer = umx_host_buffer(&byte, 1);
    umx_request  *req;
    umx_recv_info info;
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = set_done, .arg = &l};
    umx_worker_stats stats;

    p->config.drain_ns = 60 * SECOND_NS;
    pair_open(p);
    spin            = &p->server_worker->spin;
    spin->max_ticks = umi_ticks_from_ns(60 * SECOND_NS);
    spin->ticks     = 0; /* backed off, and the next spin is a probe */
    spin->skip      = 0;
    spin->backoff   = 64;
    assert_int_equal(umx_channel_recv(p->server, 0, &pair_any, &buffer, &params,
                                      &req, &info),
                     UMX_INPROGRESS);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    /* The message may need more polls than one; `umx_worker_spin()` may also
     * find it with the first. */
    assert_true(umx_worker_spin(p->server_worker, &l.is_done));
    assert_int_equal(l.status, UMX_OK);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.spin_hits, stats.spins);
    if (stats.spin_hits != 0) {
        assert_true(spin->ticks == spin->max_ticks);
        assert_int_equal(spin->backoff, 8);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_ONCE(test_what_is_there_already_costs_no_spin),
        PAIR_TEST_ONCE(test_without_a_budget_nothing_spins),
        PAIR_TEST_ONCE(test_the_budget_halves_then_backs_off_then_recovers),
        PAIR_TEST_ONCE(
            test_a_spin_that_nothing_came_to_fails_however_long_it_took),
        PAIR_TEST_ONCE(test_a_wait_for_a_copy_does_not_count),
        PAIR_TEST_ONCE(test_a_wait_for_a_copy_ends_though_messages_come),
        PAIR_TEST_ONCE(test_without_a_budget_no_copy_is_waited_for),
        PAIR_TEST(test_a_spin_that_pays_restores_the_budget),
    };

    return UNIT_RUN(tests);
}
