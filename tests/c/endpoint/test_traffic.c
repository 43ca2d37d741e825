/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
#include <stdio.h>
#include <string.h>

#include "endpoint/endpoint.h"
#include "pair.h"
#include "unit.h"
#include "worker/worker.h"

static umi_page_host *
host_of(umx_worker *worker, const char *name)
{
    umi_page_host *host = umi_page_host_of(worker->slot, name);

    assert_non_null(host);
    return host;
}

static void
check(const umi_traffic *traffic, umi_traffic expected)
{
    assert_memory_equal(traffic, &expected, sizeof(expected));
}

static void
test_messages_are_counted_for_the_host_of_the_peer(void **state)
{
    pair          *p = *state;
    umi_page_host *host;
    char           data[4];

    pair_open(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(7), "four", 4),
                     UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_tag(7), data, 4), UMX_OK);
    host = host_of(p->client_worker, "localhost");
    check(&host->traffic, (umi_traffic){1, 4, 0, 0});
    assert_true(strlen(host->transports) > 0);
    host = host_of(p->server_worker, "localhost");
    check(&host->traffic, (umi_traffic){0, 0, 1, 4});
}

static void
test_endpoints_share_the_row_of_a_host(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;

    pair_open(p);
    pair_open_second(p, &client, &server);
    assert_ptr_equal(client->traffic, p->client->traffic);
    umx_ep_destroy(client);
    umx_ep_destroy(server);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(7), "four", 4),
                     UMX_OK);
    check(&host_of(p->client_worker, "localhost")->traffic,
          (umi_traffic){1, 4, 0, 0});
}

/* What comes before the connection is open counts once it is. */
static void
test_early_messages_are_counted_for_the_host(void **state)
{
    pair *p = *state;

    pair_open(p);
    p->client->traffic         = &p->client->early;
    p->client->early           = (umi_traffic){1, 2, 3, 4};
    p->client->socket.is_local = false;
    umi_endpoint_begin_traffic(p->client);
    check(&host_of(p->client_worker, "127.0.0.1")->traffic,
          (umi_traffic){1, 2, 3, 4});
    umi_endpoint_end_traffic(p->client);
    check(&p->client_worker->slot->others, (umi_traffic){0});
    p->client->socket.is_local = true;
}

static void
test_early_messages_are_counted_if_it_is_never_open(void **state)
{
    pair            *p = *state;
    umx_worker_stats stats;

    pair_open(p);
    p->client->traffic = &p->client->early;
    p->client->early   = (umi_traffic){1, 2, 3, 4};
    umi_endpoint_end_traffic(p->client);
    umi_endpoint_end_traffic(p->client);
    check(&p->client_worker->slot->others, (umi_traffic){1, 2, 3, 4});
    umx_worker_query(p->client_worker, &stats);
    assert_int_equal(stats.received_bytes, 4);
}

/* With too many hosts the slot has the rest. */
static void
test_a_host_without_a_row_is_counted_with_others(void **state)
{
    pair *p = *state;
    char  name[16];

    pair_listen(p);
    for (int i = 0; i < UMI_PAGE_HOSTS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "10.0.0.%d", i);
        (void)host_of(p->client_worker, name);
    }
    pair_connect(p, 0);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
    assert_ptr_equal(p->client->traffic, &p->client_worker->slot->others);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(7), "four", 4),
                     UMX_OK);
    check(&p->client_worker->slot->others, (umi_traffic){1, 4, 0, 0});
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_messages_are_counted_for_the_host_of_the_peer),
        PAIR_TEST_ONCE(test_endpoints_share_the_row_of_a_host),
        PAIR_TEST_ONCE(test_early_messages_are_counted_for_the_host),
        PAIR_TEST_ONCE(test_early_messages_are_counted_if_it_is_never_open),
        PAIR_TEST_ONCE(test_a_host_without_a_row_is_counted_with_others),
    };

    return UNIT_RUN(tests);
}
