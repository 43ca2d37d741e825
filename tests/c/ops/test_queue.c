/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* The message by which a worker asks whether its queue in shared memory moves:
 * connections that begin wait for it, and peers can send such messages, too. */
#include "pair.h"

#include "ops/am.h"
#include "ops/queue.h"

static void
feed_probe(umx_worker *worker, uint64_t number)
{
    umi_am_arrival arrival = {
        .header = &number, .header_len = sizeof(number), .way = &umi_way_eager};

    (void)worker->am_handlers[UMI_AM_PROBE].fn(worker, &arrival);
}

static void
check_message(pair *p)
{
    char in = 0;

    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &in, 1), UMX_OK);
    assert_int_equal(in, 'a');
}

/* Probes of a peer keep arriving behind the worker's own probes. */
static void
test_probes_of_peers_do_not_end_connections(void **state)
{
    pair            *p = *state;
    umx_worker_stats stats;

    pair_open(p);
    umi_queue_doubt(p->server_worker->engine);
    do {
        pair_step(p);
        feed_probe(p->server_worker, 1000);
        umx_worker_query(p->server_worker, &stats);
    } while (umi_node_is_linked(&p->server_worker->queue_timer.node) &&
             stats.renewals == 0);
    assert_int_equal(stats.renewals, 0);
    check_message(p);
}

static void
test_a_connection_waits_until_the_message_has_come(void **state)
{
    pair            *p = *state;
    umi_engine      *engine;
    umx_worker_stats stats;

    pair_listen(p);
    engine = p->client_worker->engine;
    umi_queue_doubt(engine);
    pair_connect(p, 0);
    assert_int_equal(umi_queue_is_in_doubt(engine), p->tls == NULL);
    assert_int_equal(p->client->handshake->is_waiting, p->tls == NULL);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
    assert_false(umi_queue_is_in_doubt(engine));
    check_message(p);
    umx_worker_query(p->client_worker, &stats);
    assert_int_equal(stats.renewals, 0);
}

static void
test_so_does_one_that_is_accepted(void **state)
{
    pair            *p = *state;
    umi_engine      *engine;
    umx_worker_stats stats;

    pair_listen(p);
    engine = p->server_worker->engine;
    umi_queue_doubt(engine);
    pair_connect(p, 0);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
    assert_false(umi_queue_is_in_doubt(engine));
    check_message(p);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.renewals, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_probes_of_peers_do_not_end_connections),
        PAIR_TEST(test_a_connection_waits_until_the_message_has_come),
        PAIR_TEST(test_so_does_one_that_is_accepted),
    };

    return UNIT_RUN(tests);
}
