/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* The message by which a worker asks whether its queue in shared memory moves
 * can be sent by peers as well. */
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

/* Probes of a peer keep arriving behind the worker's own probes. */
static void
test_probes_of_peers_do_not_end_connections(void **state)
{
    pair            *p = *state;
    umx_worker_stats stats;
    char             in = 0;

    pair_open(p);
    umi_queue_doubt(p->server_worker->engine);
    do {
        pair_step(p);
        feed_probe(p->server_worker, 1000);
        umx_worker_query(p->server_worker, &stats);
    } while (umi_node_is_linked(&p->server_worker->queue_timer.node) &&
             stats.renewals == 0);
    assert_int_equal(stats.renewals, 0);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &in, 1), UMX_OK);
    assert_int_equal(in, 'a');
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_probes_of_peers_do_not_end_connections),
    };

    return UNIT_RUN(tests);
}
