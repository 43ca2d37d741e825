/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: endpoint/silence */
#include "pair.h"

#include <string.h>

/* A pair whose client asks for signs of life. */
static void
open_with_heartbeat(pair *p, umx_config *config)
{
    *config              = p->config;
    config->heartbeat_ns = SECOND_NS / 50;
    p->client_config     = config;
    pair_open(p);
}

static void
test_a_silent_peer_is_given_up(void **state)
{
    pair      *p = *state;
    umx_config config;
    char       byte;
    op         o;

    open_with_heartbeat(p, &config);
    op_recv(&o, p->client, 0, pair_any, &byte, 1);
    while (!op_is_done(&o)) { /* the server is not progressed */
        assert_true(umx_worker_wait(p->client_worker, SECOND_NS) !=
                    UMX_ERR_IO_ERROR);
    }
    assert_int_equal(o.status, UMX_ERR_ENDPOINT_TIMEOUT);
    assert_int_equal(umx_ep_error(p->client), UMX_ERR_ENDPOINT_TIMEOUT);
    assert_string_equal(umx_ep_reason(p->client), "the peer is silent");
}

static void
test_a_peer_that_answers_is_kept(void **state)
{
    pair      *p = *state;
    umx_config config;
    unsigned   start;

    open_with_heartbeat(p, &config);
    start = p->client->socket.num_heard;
    PAIR_UNTIL(p, p->client->socket.num_heard - start >= 10);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
    pair_settle(p);
}

/* Messages over UCX are signs of life, too: the peer is not asked. */
static void
test_a_peer_that_sends_is_not_asked(void **state)
{
    pair      *p = *state;
    umx_config config;

    open_with_heartbeat(p, &config);
    for (int i = 0; i < 10; i++) {
        umi_timer *timer = &p->client->heartbeat.timer;

        pair_settle(p);
        umi_timer_stop(timer);
        timer->fn(timer); /* a quarter is over */
        assert_int_equal(p->client->heartbeat.num_silent, 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_silent_peer_is_given_up),
        PAIR_TEST(test_a_peer_that_answers_is_kept),
        PAIR_TEST(test_a_peer_that_sends_is_not_asked),
    };

    return UNIT_RUN(tests);
}
