/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: worker/engine worker/ep_base */
/* Connections between two workers share UCX's endpoint, and agree on it. */
#include "pair.h"
#include "prove.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <umx/version.h>
#include <unistd.h>

#include "util/log.h"

static umi_link *
link_of(umx_worker *worker)
{
    assert_false(umi_list_is_empty(&worker->links));
    return umi_container_of(worker->links.next, umi_link, node);
}

static unsigned
count_links(umx_worker *worker)
{
    unsigned count = 0;

    UMI_LIST_FOREACH(node, &worker->links) {
        (void)node;
        count++;
    }
    return count;
}

/* Connect once more, in p->client and p->server. */
static void
connect_again(pair *p)
{
    p->server = NULL;
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL &&
                      umx_ep_get_state(p->client) != UMX_EP_CONNECTING);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
}

static void
close_both(pair *p)
{
    op o;

    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_CLOSED);
    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    p->client = NULL;
    p->server = NULL;
}

static void
check_byte(pair *p, umx_ep *from, umx_ep *to, char byte)
{
    char in = 0;

    assert_int_equal(pair_send(p, from, 0, pair_tag(1), &byte, 1), UMX_OK);
    assert_int_equal(pair_recv(p, to, 0, pair_any, &in, 1), UMX_OK);
    assert_int_equal(in, byte);
}

static void
test_connections_share_ucxs_endpoint(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;

    pair_open(p);
    client = p->client;
    server = p->server;
    connect_again(p);
    assert_ptr_equal(umx_ep_handle(client), umx_ep_handle(p->client));
    assert_ptr_equal(umx_ep_handle(server), umx_ep_handle(p->server));
    check_byte(p, client, server, 'a');
    check_byte(p, p->client, p->server, 'b');
    check_byte(p, server, client, 'c');
    close_both(p);
    check_byte(p, client, server, 'd'); /* the other connection lives on */
    p->client = client;
    p->server = server;
}

/* The end of one by force harms no other. */
static void
test_an_abort_is_of_one_connection(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;

    pair_open(p);
    client = p->client;
    server = p->server;
    connect_again(p);
    umx_ep_abort(client);
    PAIR_UNTIL(p, umx_ep_get_state(server) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(server), UMX_ERR_CONNECTION_RESET);
    umx_ep_destroy(client);
    umx_ep_destroy(server);
    pair_settle(p);
}

static void
test_ucxs_endpoint_waits_for_the_next_connection(void **state)
{
    pair    *p = *state;
    uint64_t client_id, server_id;

    pair_open(p);
    client_id = link_of(p->client_worker)->id;
    server_id = link_of(p->server_worker)->id;
    for (int i = 0; i < 3; i++) {
        close_both(p);
        connect_again(p);
        pair_settle(p);
    }
    assert_int_equal(link_of(p->client_worker)->id, client_id);
    assert_int_equal(link_of(p->server_worker)->id, server_id);
    close_both(p);
    umi_timer_start(p->client_worker, &link_of(p->client_worker)->linger, 0);
    PAIR_UNTIL(p, count_links(p->client_worker) == 0); /* lingering ends */
}

static void
test_after_an_abort_ucxs_endpoint_goes(void **state)
{
    pair *p = *state;

    pair_open(p);
    umx_ep_abort(p->client);
    assert_int_equal(count_links(p->client_worker), 0);
    PAIR_UNTIL(p, count_links(p->server_worker) == 0);
}

/* Check that both sides replace UCX's endpoint when one of them has dropped its
 * own. */
static void
check_stale(pair *p, bool is_client)
{
    pair_open(p);
    pair_settle(p);
    for (int i = 0; i < 3; i++) {
        close_both(p);
        umi_link_close(
            link_of(is_client ? p->client_worker : p->server_worker));
        connect_again(p);
        pair_settle(p);
        assert_int_equal(count_links(p->client_worker), 1);
        assert_int_equal(count_links(p->server_worker), 1);
        assert_int_equal(link_of(p->server_worker)->id,
                         link_of(p->client_worker)->id);
    }
}

static void
test_the_connecting_side_drops_its_endpoint(void **state)
{
    check_stale(*state, true);
}

static void
test_the_listening_side_drops_its_endpoint(void **state)
{
    check_stale(*state, false);
}

/* Messages that announce, both ways: UCX drops the announcements of endpoints
 * that do not belong together. */
static void
check_announced(pair *p, umx_ep *from, umx_ep *to)
{
    enum {
        LEN = 300000
    };
    char *out = malloc(LEN), *in = malloc(LEN);

    fill_pattern(out, LEN, 1);
    for (int i = 0; i < 2; i++) {
        op sending, receiving;

        memset(in, 0, LEN);
        op_send(&sending, i == 0 ? from : to, 0, pair_tag(1), out, LEN);
        op_recv(&receiving, i == 0 ? to : from, 0, pair_any, in, LEN);
        assert_int_equal(op_wait(p, &receiving), UMX_OK);
        assert_int_equal(op_wait(p, &sending), UMX_OK);
        check_pattern(in, LEN, 1);
    }
    free(out);
    free(in);
}

/* Open another connection, of which the client has not seen WELCOME yet. */
static void
connect_up_to_welcome(pair *p)
{
    const umi_link *link = link_of(p->server_worker);

    p->server = NULL;
    pair_connect(p, 0);
    while (link->eps.next == link->eps.prev) {
        umx_worker_poll(p->client_worker);
        umx_worker_poll(p->server_worker);
    }
}

/* The first message of the client's new endpoint overtakes OPEN, and UCX makes
 * an endpoint for it at the server. The server uses that endpoint. */
static void
test_what_overtakes_the_renewal_of_an_endpoint_is_kept(void **state)
{
    enum {
        LEN   = 300000,
        POLLS = 1000
    };
    pair   *p = *state;
    umx_ep *client, *server;
    char   *out = malloc(LEN), *in = malloc(LEN);
    op      sending, receiving;

    pair_open(p);
    pair_settle(p);
    client = p->client;
    server = p->server;
    connect_up_to_welcome(p);
    umi_link_close(link_of(p->client_worker));
    while (umx_ep_get_state(p->client) == UMX_EP_CONNECTING) {
        umx_worker_poll(p->client_worker);
    }
    fill_pattern(out, LEN, 1);
    op_send(&sending, p->client, 0, pair_tag(1), out, LEN);
    for (int i = 0; i < POLLS; i++) {
        umx_worker_poll(p->client_worker);
        (void)umi_worker_progress(p->server_worker); /* UCX alone */
    }
    PAIR_UNTIL(p, p->server != NULL);
    op_recv(&receiving, p->server, 0, pair_any, in, LEN);
    assert_int_equal(op_wait(p, &receiving), UMX_OK);
    assert_int_equal(op_wait(p, &sending), UMX_OK);
    check_pattern(in, LEN, 1);
    check_byte(p, p->server, p->client, 'b');
    assert_int_equal(count_links(p->server_worker), 1);
    umx_ep_destroy(client);
    umx_ep_destroy(server);
    free(out);
    free(in);
}

/* Without connections and endpoints of UCX's; the counts are equal. */
static umi_peer_claim
forget_each_other(pair *p, umx_worker *worker)
{
    const umi_link *link  = link_of(worker);
    umi_peer_claim  claim = {.uuid = link->uuid};

    memcpy(claim.worker_id, link->worker_id, sizeof(claim.worker_id));
    memcpy(claim.key, link->key, sizeof(claim.key));
    memcpy(claim.shared, link->shared, sizeof(claim.shared));
    close_both(p);
    umi_link_close(link_of(p->client_worker));
    umi_link_close(link_of(p->server_worker));
    return claim;
}

/* `worker` makes endpoints that the other one knows nothing of. */
static void
get_ahead(pair *p, umx_worker *worker, int num)
{
    umi_peer_claim claim = forget_each_other(p, worker);
    umi_ep_base    ep    = {.worker = worker, .engine = worker->engine};
    umx_worker    *other = (worker == p->client_worker) ? p->server_worker :
                                                          p->client_worker;
    umi_link      *link;

    assert_int_equal(umi_engine_address(other->engine, true, &claim.address,
                                        &claim.address_len),
                     UMX_OK);
    for (int i = 0; i < num; i++) {
        uint64_t id = umi_engine_counted(worker->engine, claim.uuid) + 1;

        assert_int_equal(umi_link_get(&ep, &claim, id, &link), UMX_OK);
        umi_link_close(link);
    }
}

static void
test_who_has_made_fewer_endpoints_catches_up(void **state)
{
    pair *p = *state;

    pair_open(p);
    for (int i = 0; i < 4; i++) {
        get_ahead(p, (i % 2 == 0) ? p->client_worker : p->server_worker, i);
        connect_again(p);
        assert_int_equal(link_of(p->server_worker)->id,
                         link_of(p->client_worker)->id);
        check_announced(p, p->client, p->server);
    }
}

/* Check a connection of workers whose numbers are far apart. The one that
 * connects does so in another engine. */
static void
check_anew(pair *p)
{
    umi_engine *engine = p->client_worker->engine;

    connect_again(p);
    assert_ptr_not_equal(p->client->base.engine, engine);
    assert_ptr_equal(p->client_worker->engine, engine);
    assert_int_equal(p->client->base.link->id, 1);
    check_announced(p, p->client, p->server);
    check_byte(p, p->server, p->client, 'x');
}

static void
test_who_is_far_ahead_begins_anew(void **state)
{
    pair *p = *state;

    pair_open(p);
    pair_settle(p);
    get_ahead(p, p->client_worker, 2 * UMI_LINK_SKIPS_MAX + 2);
    check_anew(p);
    /* The numbers are about as they were. */
    close_both(p);
    check_anew(p);
}

static void
test_who_is_far_behind_begins_anew(void **state)
{
    pair *p = *state;

    pair_open(p);
    pair_settle(p);
    get_ahead(p, p->server_worker, UMI_LINK_SKIPS_MAX + 2);
    check_anew(p);
}

static void
test_by_a_worker_address_too(void **state)
{
    umx_connect_params params = {0};
    pair              *p      = *state;
    const void        *address;
    size_t             len;

    pair_open(p);
    pair_settle(p);
    get_ahead(p, p->server_worker, UMI_LINK_SKIPS_MAX + 2);
    assert_int_equal(umx_worker_get_address(p->server_worker, &address, &len),
                     UMX_OK);
    assert_int_equal(umx_ep_connect_address(p->client_worker, address, len,
                                            &params, &p->client),
                     UMX_OK);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) != UMX_EP_CONNECTING);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
    assert_ptr_not_equal(p->client->base.engine, p->client_worker->engine);
    PAIR_UNTIL(p, (p->server = umx_worker_take_addressed(p->server_worker)) !=
                      NULL);
    check_byte(p, p->client, p->server, 'x');
}

/* A listener that is far ahead whatever its peer does. */
static void
test_beginning_anew_ends(void **state)
{
    pair *p = *state;

    pair_listen(p);
    pair_connect(p, 0);
    for (int i = 0; i < 2; i++) {
        umi_control welcome = {.kind = UMI_WELCOME};
        unsigned    attempt = p->client->attempt;

        welcome.u.welcome.major    = UMX_WIRE_VERSION;
        welcome.u.welcome.channels = 1;
        welcome.u.welcome.limits   = (umi_limits){100, 100, 100};
        welcome.u.welcome.made     = (i == 0) ? UINT64_MAX : UINT64_C(1) << 55;
        stranger(9, &welcome.u.welcome.where);
        {
            const void *address;
            size_t      len;

            assert_int_equal(umi_engine_address(p->server_worker->engine, true,
                                                &address, &len),
                             UMX_OK);
            welcome.u.welcome.where.address     = address;
            welcome.u.welcome.where.address_len = (uint16_t)len;
        }
        PAIR_UNTIL(p, umi_socket_is_connected(&p->client->socket));
        prove(p->client, &welcome);
        pair_hear(p->client, &welcome);
        if (i == 0) {
            assert_int_equal(umx_ep_get_state(p->client), UMX_EP_CONNECTING);
            (void)!umx_worker_drain(p->client_worker);
            assert_int_equal(p->client->attempt, attempt + 1);
        }
    }
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->client), UMX_ERR_CONNECTION_RESET);
    assert_string_equal(umx_ep_reason(p->client),
                        "the two sides count UCX's endpoints differently");
    assert_int_equal(count_links(p->client_worker), 0);
    PAIR_UNTIL(p, p->listener->num_handshakes == 0);
}

/* After a long message UCX's tcp answers each flush of one side with something
 * that the other side has to flush. */
static void
test_links_end_after_long_messages(void **state)
{
    enum {
        LENGTH = 1 << 18
    };
    pair *p    = *state;
    char *sent = malloc(LENGTH), *got = malloc(LENGTH);

    assert_non_null(sent);
    assert_non_null(got);
    fill_pattern(sent, LENGTH, 1);
    pair_open(p);
    for (int i = 0; i < 10; i++) {
        op o;

        op_recv(&o, (i % 2 == 0) ? p->client : p->server, 0, pair_any, got,
                LENGTH);
        assert_int_equal(pair_send(p, (i % 2 == 0) ? p->server : p->client, 0,
                                   pair_tag(1), sent, LENGTH),
                         UMX_OK);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        check_pattern(got, LENGTH, 1);
        umx_ep_abort(p->client);
        PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
        umx_ep_destroy(p->client);
        umx_ep_destroy(p->server);
        PAIR_UNTIL(p, umi_list_is_empty(&p->client_worker->ending_links) &&
                          umi_list_is_empty(&p->server_worker->ending_links));
        connect_again(p);
    }
    free(sent);
    free(got);
}

/* With connections that do not know it yet. */
static void
test_connections_on_a_dropped_endpoint_fail(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;

    pair_open(p);
    pair_settle(p);
    client = p->client;
    server = p->server;
    umi_link_close(link_of(p->client_worker));
    connect_again(p);
    pair_settle(p);
    assert_int_equal(umx_ep_get_state(client), UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(client), UMX_ERR_CONNECTION_RESET);
    PAIR_UNTIL(p, umx_ep_get_state(server) == UMX_EP_FAILED);
    umx_ep_destroy(client);
    umx_ep_destroy(server);
    pair_settle(p);
}

static void
take_ep(umx_listener *listener, umx_ep *ep, void *arg)
{
    (void)listener;
    *(umx_ep **)arg = ep;
}

/* Listen at the client's worker, for a connection in the other direction. */
static umx_listener *
listen_back(pair *p, struct sockaddr_in *addr, umx_ep **there_p)
{
    size_t              len    = sizeof(*addr);
    umx_listener_params params = {.addr      = (void *)addr,
                                  .addr_len  = sizeof(*addr),
                                  .on_accept = take_ep,
                                  .arg       = there_p};
    umx_listener       *listener;

    *addr = (struct sockaddr_in){.sin_family      = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(umx_listener_create(p->client_worker, &params, &listener),
                     UMX_OK);
    assert_int_equal(umx_listener_address(listener, (void *)addr, &len),
                     UMX_OK);
    return listener;
}

static umx_ep *
connect_back(pair *p, struct sockaddr_in *addr)
{
    umx_connect_params params = {.addr     = (void *)addr,
                                 .addr_len = sizeof(*addr)};
    umx_ep            *back;

    assert_int_equal(umx_ep_connect(p->server_worker, &params, &back), UMX_OK);
    return back;
}

static void
test_two_workers_connect_to_each_other_at_once(void **state)
{
    pair              *p     = *state;
    umx_ep            *there = NULL, *back;
    struct sockaddr_in addr;
    umx_listener      *listener;

    pair_listen(p);
    listener = listen_back(p, &addr, &there);
    pair_connect(p, 0);
    back = connect_back(p, &addr);
    PAIR_UNTIL(p, p->server != NULL && there != NULL);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_OPEN &&
                      umx_ep_get_state(back) == UMX_EP_OPEN);
    assert_int_equal(count_links(p->client_worker), 1);
    assert_int_equal(count_links(p->server_worker), 1);
    check_byte(p, p->client, p->server, 'a');
    check_byte(p, back, there, 'b');
    check_byte(p, there, back, 'c');
    umx_ep_destroy(back);
    umx_ep_destroy(there);
    umx_listener_destroy(listener);
}

/* Both sides have a new endpoint, and neither takes the other's for one that it
 * has missed. */
static void
test_a_renewal_is_not_answered_by_another(void **state)
{
    pair              *p     = *state;
    umx_ep            *there = NULL, *back, *client, *server;
    struct sockaddr_in addr;
    umx_listener      *listener;

    pair_open(p);
    pair_settle(p);
    client   = p->client;
    server   = p->server;
    listener = listen_back(p, &addr, &there);
    umi_link_close(link_of(p->client_worker));
    connect_again(p);
    pair_settle(p);
    back = connect_back(p, &addr);
    PAIR_UNTIL(p, there != NULL && umx_ep_get_state(back) == UMX_EP_OPEN);
    check_announced(p, p->client, p->server);
    check_announced(p, back, there);
    assert_int_equal(link_of(p->server_worker)->id,
                     link_of(p->client_worker)->id);
    umx_ep_destroy(client);
    umx_ep_destroy(server);
    umx_ep_destroy(back);
    umx_ep_destroy(there);
    umx_listener_destroy(listener);
}

static void
test_a_worker_connects_to_itself(void **state)
{
    pair                   *p = *state;
    struct sockaddr_storage addr;
    umx_connect_params      params = {.addr = (void *)&addr};
    umx_ep                 *ep;

    pair_listen(p);
    params.addr_len = pair_address(p, &addr);
    for (int i = 0; i < 2; i++) {
        p->server = NULL;
        assert_int_equal(umx_ep_connect(p->server_worker, &params, &ep),
                         UMX_OK);
        PAIR_UNTIL(p, p->server != NULL);
        check_byte(p, ep, p->server, 'a');
        check_byte(p, p->server, ep, 'b');
        assert_int_equal(count_links(p->server_worker), 1);
        umx_ep_destroy(ep);
        umx_ep_destroy(p->server);
    }
    p->server = NULL;
}

/* ---- peers that say they are another -------------------------------------
 */

/* A connection by the test itself; the listening side's half of it. */
static umx_ep *
connect_raw(pair *p, int *fd_p)
{
    struct sockaddr_storage addr;
    socklen_t               len      = (socklen_t)pair_address(p, &addr);
    unsigned                in_hands = p->listener->num_handshakes;

    *fd_p = socket(addr.ss_family, SOCK_STREAM, 0);
    assert_int_equal(connect(*fd_p, (void *)&addr, len), 0);
    PAIR_UNTIL(p, p->listener->num_handshakes == in_hands + 1);
    return umi_endpoint_of(
        umi_container_of(p->server_worker->eps.prev, umi_ep_base, node));
}

static void
claim(umx_ep *ep, const umi_where *where)
{
    umi_control hello = {.kind = UMI_HELLO};

    hello.u.hello.major    = UMX_WIRE_VERSION;
    hello.u.hello.channels = 1;
    hello.u.hello.limits   = (umi_limits){100, 100, 100};
    hello.u.hello.where    = *where;
    pair_hear(ep, &hello);
}

/* Handle an OPEN from a peer without the key: the mac is made up. */
static void
open_unproven(umx_ep *ep)
{
    umi_control open = {.kind = UMI_OPEN, .u.open.peer = 1000};

    pair_hear(ep, &open);
}

/* An open connection with `in` posted, and what its worker says of itself. */
static void
open_victim(pair *p, op *o, char *in, umi_where *where)
{
    pair_open(p);
    pair_settle(p);
    op_recv(o, p->server, 0, pair_any, in, 1);
    memset(where, 0, sizeof(*where));
    pair_where(p->client, where);
}

static void
check_victim(pair *p, op *o, const char *in)
{
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "v", 1), UMX_OK);
    assert_int_equal(op_wait(p, o), UMX_OK);
    assert_int_equal(*in, 'v');
    check_byte(p, p->server, p->client, 'w');
    assert_int_equal(count_links(p->server_worker), 1);
}

static void
check_dropped(pair *p, int fd)
{
    umx_worker_stats stats;

    PAIR_UNTIL(p, p->listener->num_handshakes == 0);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.protocol_errors, 1);
    close(fd);
}

static void
test_the_id_of_another_worker_alone_is_refused(void **state)
{
    pair     *p = *state;
    umi_where victim, liars;
    umx_ep   *liar;
    op        o;
    char      in = 0;
    int       fd;

    open_victim(p, &o, &in, &victim);
    stranger(9, &liars);
    memcpy(liars.worker_id, victim.worker_id, UMI_WHERE_ID_SIZE);
    liar = connect_raw(p, &fd);
    claim(liar, &liars);
    check_dropped(p, fd);
    check_victim(p, &o, &in);
}

/* All that other peers of the victim know: also its key and its address. */
static void
test_who_repeats_what_another_said_gets_nothing_of_it(void **state)
{
    pair     *p = *state;
    umi_where victim;
    umx_ep   *liar;
    op        o;
    char      in = 0;
    int       fd;

    open_victim(p, &o, &in, &victim);
    liar = connect_raw(p, &fd);
    claim(liar, &victim);
    assert_true(liar->handshake->is_welcomed);
    open_unproven(liar);
    check_dropped(p, fd);
    check_victim(p, &o, &in);
}

/* The liar came first: the true one gets an endpoint to where it really is. */
static void
test_a_claim_does_not_decide_where_another_is(void **state)
{
    pair       *p       = *state;
    umi_where   claimed = {.endpoint = 77};
    umx_worker *elsewhere;
    umx_ep     *liar;
    char        in = 0;
    op          o;
    int         fd;

    pair_listen(p);
    liar = connect_raw(p, &fd);
    {
        const void *address;
        size_t      len;

        assert_int_equal(
            umx_worker_create(p->client_worker->context, &elsewhere), UMX_OK);
        assert_int_equal(
            umi_engine_address(elsewhere->engine, true, &address, &len),
            UMX_OK);
        memcpy(claimed.worker_id, p->client_worker->id, UMI_WHERE_ID_SIZE);
        memcpy(claimed.key, p->client_worker->key, UMI_KEY_SIZE);
        claimed.address     = address;
        claimed.address_len = (uint16_t)len;
        claim(liar, &claimed);
    }
    assert_int_equal(count_links(p->server_worker), 1);
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL);
    assert_int_equal(count_links(p->server_worker), 2);
    op_recv(&o, p->server, 0, pair_any, &in, 1);
    pair_settle(p);
    open_unproven(liar);
    check_dropped(p, fd);
    check_victim(p, &o, &in);
    umx_worker_destroy(elsewhere);
}

/* Of a peer without connections, too. */
static void
test_a_claim_does_not_end_a_peer_that_waits(void **state)
{
    pair     *p = *state;
    umi_where victim;
    umx_ep   *liar;
    umi_link *link;
    op        o;
    char      in = 0;
    int       fd;

    open_victim(p, &o, &in, &victim);
    close_both(p);
    assert_int_equal(o.status, UMX_ERR_PEER_CLOSED);
    link = link_of(p->server_worker);
    liar = connect_raw(p, &fd);
    claim(liar, &victim);
    open_unproven(liar);
    check_dropped(p, fd);
    assert_ptr_equal(link_of(p->server_worker), link);
    connect_again(p);
    assert_ptr_equal(p->server->base.link, link);
}

/* A listener, too, can say that it is another. */
static void
test_a_listener_that_says_it_is_another_is_refused(void **state)
{
    pair              *p = *state;
    struct sockaddr_in addr;
    umx_connect_params params  = {.addr     = (void *)&addr,
                                  .addr_len = sizeof(addr)};
    umi_control        welcome = {.kind = UMI_WELCOME};
    umx_ep            *ep;
    int                fd = bound_socket(&addr);

    assert_int_equal(listen(fd, 1), 0);
    pair_open(p);
    assert_int_equal(umx_ep_connect(p->client_worker, &params, &ep), UMX_OK);
    welcome.u.welcome.major    = UMX_WIRE_VERSION;
    welcome.u.welcome.channels = 1;
    welcome.u.welcome.limits   = (umi_limits){100, 100, 100};
    welcome.u.welcome.peer     = 1000;
    pair_where(p->server, &welcome.u.welcome.where);
    pair_hear(ep, &welcome);
    assert_int_equal(umx_ep_get_state(ep), UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(ep), UMX_ERR_AUTH);
    assert_string_equal(umx_ep_reason(ep),
                        "the listener is not the worker that it says it is");
    umx_ep_destroy(ep);
    pair_settle(p);
    assert_int_equal(count_links(p->client_worker), 1);
    close(fd);
}

/* Under a name of its own: UCX would take one's end for the other's. */
static void
test_ucxs_address_of_another_worker_is_refused(void **state)
{
    pair     *p = *state;
    umi_where victim, liars;
    umx_ep   *liar;
    op        o;
    char      in = 0;
    int       fd;

    open_victim(p, &o, &in, &victim);
    stranger(9, &liars);
    liars.address     = victim.address;
    liars.address_len = victim.address_len;
    liar              = connect_raw(p, &fd);
    claim(liar, &liars);
    assert_true(liar->handshake->is_rejected);
    close(fd);
    PAIR_UNTIL(p, p->listener->num_handshakes == 0);
    check_victim(p, &o, &in);
}

static void
test_our_own_address_is_refused(void **state)
{
    pair     *p = *state;
    umi_where liars, ours = {.pid = 1};
    umx_ep   *liar;
    int       fd;

    pair_listen(p);
    liar = connect_raw(p, &fd);
    pair_where(liar, &ours);
    stranger(9, &liars);
    liars.address     = ours.address;
    liars.address_len = ours.address_len;
    claim(liar, &liars);
    check_dropped(p, fd);
}

/* A peer on another host names segments that must not be mapped. */
static void
test_shared_memory_of_another_host_is_refused(void **state)
{
    pair     *p     = *state;
    umi_where where = {.pid = 1};
    umx_ep   *liar;
    int       fd;

    pair_open(p);
    pair_where(p->client, &where);
    liar                  = connect_raw(p, &fd);
    liar->socket.is_local = false;
    claim(liar, &where);
    if (p->tls != NULL && strcmp(p->tls, "tcp") == 0) { /* names no segment */
        close(fd);
    } else {
        check_dropped(p, fd);
    }
    pair_settle(p);
}

/* A peer proves its identity, but gives the number of another connection that
 * it has. */
static void
test_a_number_that_a_connection_has_is_refused(void **state)
{
    pair       *p = *state;
    umi_where   where;
    umi_control open = {.kind = UMI_OPEN};
    umx_ep     *twin;
    op          o;
    char        in = 0;
    int         fd;

    open_victim(p, &o, &in, &where);
    twin = connect_raw(p, &fd);
    claim(twin, &where);
    open.u.open.peer = link_of(p->client_worker)->id;
    prove(twin, &open);
    pair_hear(twin, &open);
    check_dropped(p, fd);
    check_victim(p, &o, &in);
}

/* A proof from one handshake proves nothing in the next. */
static void
test_a_proof_is_good_for_one_handshake(void **state)
{
    pair       *p = *state;
    umi_where   where;
    umi_control open = {.kind = UMI_OPEN, .u.open.peer = 1000};
    umx_ep     *first, *second;
    int         fds[2];
    op          o;
    char        in = 0;

    open_victim(p, &o, &in, &where);
    first = connect_raw(p, &fds[0]);
    claim(first, &where);
    prove(first, &open);
    second = connect_raw(p, &fds[1]);
    claim(second, &where);
    pair_hear(second, &open);
    PAIR_UNTIL(p, p->listener->num_handshakes == 1);
    close(fds[0]);
    PAIR_UNTIL(p, p->listener->num_handshakes == 0);
    close(fds[1]);
    check_victim(p, &o, &in);
}

/* A peer proves its identity, and wants more endpoints made than a side makes.
 * None is made. */
static void
test_a_number_far_ahead_is_refused(void **state)
{
    static const uint64_t numbers[] = {UMI_LINK_SKIPS_MAX + 2, 17, 2000,
                                       UINT64_C(1) << 55, UINT64_MAX};

    pair       *p = *state;
    umi_where   where;
    umx_ep     *ep;
    uint64_t    counted;
    umi_control open = {.kind = UMI_OPEN};
    op          o;
    char        in = 0;
    int         fd;

    open_victim(p, &o, &in, &where);
    counted = umi_engine_counted(p->server_worker->engine,
                                 p->server->base.link->uuid);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        ep = connect_raw(p, &fd);
        claim(ep, &where);
        open.u.open.peer = (numbers[i] == UINT64_MAX) ? UINT64_MAX :
                                                        counted + numbers[i];
        prove(ep, &open);
        pair_hear(ep, &open);
        PAIR_UNTIL(p, p->listener->num_handshakes == 0);
        close(fd);
        assert_int_equal(umi_engine_counted(p->server_worker->engine,
                                            p->server->base.link->uuid),
                         counted);
    }
    check_victim(p, &o, &in);
}

/* ---- claims that come first ----------------------------------------------
 */

static umx_ep *
claim_raw(pair *p, const umi_where *where, int *fd_p)
{
    umx_ep *liar = connect_raw(p, fd_p);

    claim(liar, where);
    assert_true(liar->handshake->is_welcomed);
    return liar;
}

/* Where the client is, which has not connected yet, as all its peers know. */
static void
listen_for(pair *p, umi_where *victim)
{
    const void *address;
    size_t      len;

    pair_listen(p);
    assert_int_equal(
        umi_engine_address(p->client_worker->engine, true, &address, &len),
        UMX_OK);
    memset(victim, 0, sizeof(*victim));
    memcpy(victim->worker_id, p->client_worker->id, UMI_WHERE_ID_SIZE);
    memcpy(victim->key, p->client_worker->key, UMI_KEY_SIZE);
    victim->endpoint    = 77;
    victim->address     = address;
    victim->address_len = (uint16_t)len;
}

/* The true one connects while the claim stands, and outlives it. */
static void
check_outlives(pair *p, const umi_where *claimed)
{
    op   o;
    char in = 0;
    int  fd;

    (void)claim_raw(p, claimed, &fd);
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL);
    pair_settle(p);
    op_recv(&o, p->server, 0, pair_any, &in, 1);
    close(fd);
    PAIR_UNTIL(p, p->listener->num_handshakes == 0);
    for (int i = 0; i < 100; i++) {
        pair_settle(p);
    }
    check_victim(p, &o, &in);
}

static void
test_who_repeats_a_claim_first_takes_nothing(void **state)
{
    umi_where victim;

    listen_for(*state, &victim);
    check_outlives(*state, &victim);
}

/* Under a key of its own. */
static void
test_an_address_that_was_claimed_first_is_still_its_owners(void **state)
{
    umi_where victim, liars;

    listen_for(*state, &victim);
    stranger(9, &liars);
    liars.address     = victim.address;
    liars.address_len = victim.address_len;
    check_outlives(*state, &liars);
}

static unsigned
count_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) != -1;
    }
    return count;
}

/* Each with a key of its own, so that UCX gets an endpoint for each. */
static void
test_claims_leave_nothing_behind(void **state)
{
    enum {
        ROUNDS = 20,
        CLAIMS = 50
    };
    pair     *p = *state;
    umi_where victim, liars;
    int       fds[CLAIMS];
    unsigned  open_first = 0;
    op        o;
    char      in = 0;

    /* The connection at the end has UCX make an endpoint for each claim. */
    p->config.connect_timeout_ns = 600 * SECOND_NS;
    listen_for(p, &victim);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CLAIMS; i++) {
            stranger((uint8_t)(i + 1), &liars);
            liars.address     = victim.address;
            liars.address_len = victim.address_len;
            (void)claim_raw(p, &liars, &fds[i]);
        }
        assert_int_equal(count_links(p->server_worker), CLAIMS);
        for (int i = 0; i < CLAIMS; i++) {
            close(fds[i]);
        }
        PAIR_UNTIL(p, p->listener->num_handshakes == 0 &&
                          p->server_worker->closes_in_ucx == 0);
        assert_int_equal(count_links(p->server_worker), 0);
        if (round == 0) {
            pair_step(p);
            open_first = count_descriptors();
        }
    }
    PAIR_UNTIL(p, count_descriptors() <= open_first);
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL);
    op_recv(&o, p->server, 0, pair_any, &in, 1);
    pair_settle(p);
    check_victim(p, &o, &in);
}

/* ---- out of descriptors --------------------------------------------------
 */

static unsigned num_lines; /* that name the limit */

static void
count_lines(int level, const char *text, void *arg)
{
    (void)level;
    (void)arg;
    num_lines += (strstr(text, "ulimit -n") != NULL);
}

/* Connect as a process with descriptors does; the first bytes that come. */
static void
hear_refusal(pair *p, int fd, char *text, size_t size)
{
    struct sockaddr_storage addr;
    socklen_t               len = (socklen_t)pair_address(p, &addr);
    ssize_t                 got;

    assert_int_equal(connect(fd, (void *)&addr, len), 0);
    do {
        pair_step(p);
        got = recv(fd, text, size - 1, MSG_DONTWAIT);
    } while (got < 0);
    text[got] = '\0';
    for (ssize_t i = 0; i < got; i++) { /* words between numbers */
        text[i] = (text[i] == '\0') ? ' ' : text[i];
    }
}

/* Peers are refused at once; the log names the limit once. */
static void
test_peers_hear_that_descriptors_are_used_up(void **state)
{
    enum {
        PEERS = 5
    };
    pair         *p = *state;
    struct rlimit limit, none;
    char          text[512];
    int           fds[PEERS], next;

    if (getenv("TEST_WRAPPER") != NULL) {
        skip(); /* valgrind accepts and closes where the system says EMFILE */
    }
    pair_listen(p);
    for (int i = 0; i < PEERS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
    }
    next = dup(fds[0]); /* the lowest that is free */
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none      = limit;
    num_lines = 0;
    umi_log_set_sink(count_lines, NULL);
    for (int i = 0; i < PEERS; i++) { /* none, then some: too few for UCX */
        none.rlim_cur = (rlim_t)(next + i);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        hear_refusal(p, fds[i], text, sizeof(text));
        assert_non_null(strstr(text, "busy: the listener has too few file"));
    }
    assert_int_equal(p->listener->num_handshakes, 0);
    assert_int_equal(num_lines, 1);
    umi_log_set_sink(NULL, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < PEERS; i++) {
        close(fds[i]);
    }
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_connections_share_ucxs_endpoint),
        PAIR_TEST(test_an_abort_is_of_one_connection),
        PAIR_TEST(test_ucxs_endpoint_waits_for_the_next_connection),
        PAIR_TEST(test_after_an_abort_ucxs_endpoint_goes),
        PAIR_TEST(test_the_connecting_side_drops_its_endpoint),
        PAIR_TEST(test_the_listening_side_drops_its_endpoint),
        PAIR_TEST(test_what_overtakes_the_renewal_of_an_endpoint_is_kept),
        PAIR_TEST(test_who_has_made_fewer_endpoints_catches_up),
        PAIR_TEST(test_who_is_far_ahead_begins_anew),
        PAIR_TEST(test_who_is_far_behind_begins_anew),
        PAIR_TEST(test_by_a_worker_address_too),
        PAIR_TEST(test_beginning_anew_ends),
        PAIR_TEST(test_a_number_far_ahead_is_refused),
        PAIR_TEST(test_links_end_after_long_messages),
        PAIR_TEST(test_a_renewal_is_not_answered_by_another),
        PAIR_TEST(test_connections_on_a_dropped_endpoint_fail),
        PAIR_TEST(test_two_workers_connect_to_each_other_at_once),
        PAIR_TEST(test_a_worker_connects_to_itself),
        PAIR_TEST(test_the_id_of_another_worker_alone_is_refused),
        PAIR_TEST(test_who_repeats_what_another_said_gets_nothing_of_it),
        PAIR_TEST(test_a_claim_does_not_decide_where_another_is),
        PAIR_TEST(test_a_claim_does_not_end_a_peer_that_waits),
        PAIR_TEST(test_a_listener_that_says_it_is_another_is_refused),
        PAIR_TEST(test_ucxs_address_of_another_worker_is_refused),
        PAIR_TEST(test_our_own_address_is_refused),
        PAIR_TEST(test_shared_memory_of_another_host_is_refused),
        PAIR_TEST(test_a_number_that_a_connection_has_is_refused),
        PAIR_TEST(test_a_proof_is_good_for_one_handshake),
        PAIR_TEST(test_who_repeats_a_claim_first_takes_nothing),
        PAIR_TEST(test_an_address_that_was_claimed_first_is_still_its_owners),
        PAIR_TEST(test_claims_leave_nothing_behind),
        PAIR_TEST_ONCE(test_peers_hear_that_descriptors_are_used_up),
    };

    return UNIT_RUN(tests);
}
