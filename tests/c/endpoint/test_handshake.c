/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=umi_host_process_namespace */
/* tests: endpoint/connect endpoint/control_io endpoint/endpoint */
/* tests: endpoint/proof endpoint/where endpoint/wireup */
#include "pair.h"
#include "prove.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <umx/layer.h>
#include <umx/version.h>

static const uint8_t token[]       = "a shared secret";
static const uint8_t other_token[] = "another secret.";

static void
set_token(umx_config *config, const uint8_t *bytes)
{
    config->token     = bytes;
    config->token_len = sizeof(token) - 1;
}

static void
run_until_decided(pair *p)
{
    PAIR_UNTIL(p, umx_ep_get_state(p->client) != UMX_EP_CONNECTING);
}

/* p->client fails with `status`, and says why. */
static void
check_failed(pair *p, umx_status status)
{
    run_until_decided(p);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->client), status);
}

/* Nothing of a dropped handshake is left on the listening side. */
static void
check_server_forgets(pair *p)
{
    PAIR_UNTIL(p, umi_list_is_empty(&p->server_worker->eps));
    assert_null(p->server);
    assert_int_equal(p->listener->num_handshakes, 0);
}

static void
drop_client(pair *p)
{
    umx_ep_destroy(p->client);
    p->client = NULL;
}

/* ---- process numbers -----------------------------------------------------
 */

static bool numbers_differ; /* whoever asks is in a namespace of its own */

uint32_t __real_umi_host_process_namespace(void);
uint32_t __wrap_umi_host_process_namespace(void);

uint32_t
__wrap_umi_host_process_namespace(void)
{
    static uint32_t asked;

    return numbers_differ ? ++asked : __real_umi_host_process_namespace();
}

static void
test_shared_memory_is_for_shared_process_numbers(void **state)
{
    pair   *p = *state;
    umx_ep *eps[2];

    numbers_differ = true;
    pair_open(p);
    numbers_differ = false;
    eps[0]         = p->client;
    eps[1]         = p->server;
    for (int i = 0; i < 2; i++) {
        assert_false(eps[i]->base.link->has_shm);
        assert_true(eps[i]->base.link->has_tcp);
        assert_int_equal(umx_ep_peer_process(eps[i]), UMX_PROCESS_UNKNOWN);
    }
    pair_settle(p);
}

/* ---- tokens --------------------------------------------------------------
 */

static void
test_a_shared_token_opens(void **state)
{
    pair *p = *state;

    set_token(&p->config, token);
    pair_open(p);
    pair_settle(p);
}

static void
check_tokens(pair *p, const uint8_t *server, const uint8_t *client)
{
    umx_config client_config = p->config;

    if (server != NULL) {
        set_token(&p->config, server);
    }
    if (client != NULL) {
        set_token(&client_config, client);
    }
    p->client_config = &client_config;
    pair_listen(p);
    pair_connect(p, 0);
    check_failed(p, UMX_ERR_AUTH);
    assert_true(strlen(umx_ep_reason(p->client)) > 0);
    drop_client(p);
}

static void
test_a_wrong_token_is_rejected(void **state)
{
    check_tokens(*state, token, other_token);
    check_server_forgets(*state);
}

static void
test_a_client_without_the_token_is_rejected(void **state)
{
    check_tokens(*state, token, NULL);
    check_server_forgets(*state);
}

/* The client does not talk to whom it cannot trust. The listener asks for no
 * token: to it, the client has gone before the end of the handshake. */
static void
test_a_server_without_the_token_is_refused(void **state)
{
    pair *p = *state;

    check_tokens(p, NULL, token);
    check_server_forgets(p);
}

/* ---- messages made by hand -----------------------------------------------
 */

/* The listening side's half-open endpoint. */
static umx_ep *
half_open(pair *p)
{
    PAIR_UNTIL(p, !umi_list_is_empty(&p->server_worker->eps));
    return umi_endpoint_of(
        umi_container_of(p->server_worker->eps.next, umi_ep_base, node));
}

/* A peer that has connected and says nothing of its own accord. */
static void
connect_mute(pair *p)
{
    struct sockaddr_storage addr;
    size_t                  len = pair_address(p, &addr);

    assert_int_equal(
        umi_endpoint_new(p->client_worker, &(umx_window){0}, &p->client),
        UMX_OK);
    assert_int_equal(umi_socket_connect(&p->client->socket,
                                        (struct sockaddr *)&addr, len, NULL, 0),
                     UMX_OK);
}

static void
say(umx_ep *ep, const umi_control *control)
{
    uint8_t bytes[UMI_CONTROL_MAX];
    size_t  len = umi_control_encode(control, bytes);

    assert_true(len > 0);
    assert_int_equal(umi_socket_send(&ep->socket, bytes, len), UMX_OK);
}

static void
test_another_wire_version_is_rejected(void **state)
{
    pair       *p     = *state;
    umi_control hello = {.kind = UMI_HELLO};

    pair_listen(p);
    connect_mute(p);
    hello.u.hello.major = UMX_WIRE_VERSION + 1;
    pair_where(p->client, &hello.u.hello.where);
    say(p->client, &hello);
    check_failed(p, UMX_ERR_VERSION);
    assert_string_equal(umx_ep_reason(p->client), "wire version 4 is needed");
    drop_client(p);
    check_server_forgets(p);
}

static void
test_a_listener_of_another_wire_version_is_refused(void **state)
{
    pair       *p       = *state;
    umi_control welcome = {.kind = UMI_WELCOME};

    pair_listen(p);
    pair_connect(p, 0);
    welcome.u.welcome.major = UMX_WIRE_VERSION + 1;
    pair_where(p->client, &welcome.u.welcome.where);
    pair_hear(p->client, &welcome);
    check_failed(p, UMX_ERR_VERSION);
}

/* `control` is out of turn on the listening side. */
static void
check_server_drops(pair *p, const umi_control *controls, int count)
{
    umx_worker_stats before, after;

    connect_mute(p);
    umx_worker_query(p->server_worker, &before);
    for (int i = 0; i < count; i++) {
        pair_hear(half_open(p), &controls[i]);
    }
    check_server_forgets(p);
    umx_worker_query(p->server_worker, &after);
    assert_true(after.protocol_errors > before.protocol_errors);
    run_until_decided(p);
    drop_client(p);
}

static void
test_messages_out_of_turn_drop_the_peer(void **state)
{
    pair             *p    = *state;
    const umi_control auth = {.kind = UMI_AUTH}, ping = {.kind = UMI_PING};
    const umi_control goodbye = {.kind = UMI_GOODBYE};
    const umi_control open    = {.kind = UMI_OPEN};
    umi_control       welcome = {.kind = UMI_WELCOME};
    umi_control       hellos[2];
    uint8_t           nowhere = 0;

    set_token(&p->config, token);
    pair_listen(p);
    welcome.u.welcome.major    = UMX_WIRE_VERSION;
    welcome.u.welcome.channels = 1;
    welcome.u.welcome.where    = (umi_where){{0}, {0}, 1, 0, 0, 0, 1, &nowhere};
    check_server_drops(p, &auth, 1);
    check_server_drops(p, &ping, 1);
    check_server_drops(p, &goodbye, 1);
    check_server_drops(p, &welcome, 1);
    check_server_drops(p, &open, 1);
    memset(hellos, 0, sizeof(hellos));
    hellos[0].kind             = UMI_HELLO;
    hellos[0].u.hello.major    = UMX_WIRE_VERSION;
    hellos[0].u.hello.channels = 1;
    hellos[0].u.hello.where    = welcome.u.welcome.where;
    hellos[1]                  = hellos[0];
    check_server_drops(p, hellos, 2);
}

static void
test_a_second_challenge_drops_the_listener(void **state)
{
    pair             *p         = *state;
    const umi_control challenge = {.kind = UMI_CHALLENGE};

    set_token(&p->config, token);
    pair_listen(p);
    pair_connect(p, 0);
    pair_hear(p->client, &challenge);
    pair_hear(p->client, &challenge);
    check_failed(p, UMX_ERR_PROTOCOL);
}

static void
test_a_handshake_message_drops_an_open_peer(void **state)
{
    pair             *p     = *state;
    const umi_control hello = {.kind = UMI_AUTH};

    pair_open(p);
    (void)pair_feed_control(p->server, &hello);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
}

static void
test_the_listeners_reasons_reach_the_client(void **state)
{
    pair       *p      = *state;
    umi_control reject = {.kind = UMI_REJECT};

    reject.u.reject.reason   = UMX_ERR_BUSY; /* not one that is passed on */
    reject.u.reject.text     = "no, thank you";
    reject.u.reject.text_len = 2;
    pair_listen(p);
    pair_connect(p, 0);
    pair_hear(p->client, &reject);
    check_failed(p, UMX_ERR_REJECTED);
    assert_string_equal(umx_ep_reason(p->client), "no");
}

static void
check_dropped(pair *p)
{
    check_server_forgets(p);
    run_until_decided(p);
    drop_client(p);
}

/* A message that is none; a length that is none; the end in the middle. */
static void
test_garbage_in_the_handshake_drops_the_peer(void **state)
{
    static const uint8_t bytes[20];

    pair            *p = *state;
    umx_worker_stats stats;

    pair_listen(p);
    connect_mute(p);
    assert_int_equal(umi_socket_send(&p->client->socket, bytes, sizeof(bytes)),
                     UMX_OK);
    check_dropped(p);
    connect_mute(p);
    (void)half_open(p);
    assert_int_equal(write(p->client->socket.watch.fd, "GET / HTTP", 10), 10);
    check_dropped(p);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.protocol_errors, 2);
    connect_mute(p);
    (void)half_open(p);
    assert_int_equal(write(p->client->socket.watch.fd, "\x40\0\0\0x", 5), 5);
    umx_ep_abort(p->client);
    check_dropped(p);
}

/* Bytes that are no control message; one too long; too many. */
static void
test_garbage_drops_an_open_peer(void **state)
{
    static uint8_t bytes[UMI_CONTROL_MAX + 1];

    pair             *p        = *state;
    const umi_control ping     = {.kind = UMI_PING};
    uint64_t          front[2] = {0};
    umi_am_arrival arrival = {.way = &umi_way_eager, .data = bytes, .len = 20};

    pair_listen(p);
    for (int i = 0; i < 3; i++) {
        pair_connect(p, 0);
        PAIR_UNTIL(p, p->server != NULL);
        run_until_decided(p);
        front[0]           = p->server->base.wire_id;
        arrival.header     = front;
        arrival.header_len = sizeof(front);
        arrival.len        = (i == 1) ? sizeof(bytes) : 20;
        if (i == 2) {
            for (int j = 0; j < 65; j++) {
                (void)pair_feed_control(p->server, &ping);
            }
        } else {
            (void)umi_endpoint_control_on_arrival(p->server_worker, &arrival);
        }
        PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
        assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
        umx_ep_destroy(p->server);
        p->server = NULL;
        drop_client(p);
    }
    arrival.header_len = 3;
    assert_int_equal(
        umi_endpoint_control_on_arrival(p->server_worker, &arrival),
        UMI_AM_REFUSED);
}

/* Messages that UCX delivers before OPEN has been read from the socket wait. */
static void
test_messages_that_overtake_the_handshake_wait(void **state)
{
    pair          *p       = *state;
    umi_control    goodbye = {.kind = UMI_GOODBYE, .u.goodbye.is_last = true};
    umi_control    hello   = {.kind = UMI_HELLO};
    umi_control    open    = {.kind = UMI_OPEN};
    umi_header     header  = {.kind = UMI_KIND_MESSAGE};
    char           byte    = 'x';
    umi_am_arrival arrival = {.header     = &header,
                              .header_len = sizeof(header),
                              .way        = &umi_way_eager,
                              .data       = &byte,
                              .len        = 1};

    pair_listen(p);
    connect_mute(p);
    header.endpoint        = half_open(p)->base.wire_id;
    hello.u.hello.major    = UMX_WIRE_VERSION;
    hello.u.hello.limits   = (umi_limits){100, 100, 100};
    hello.u.hello.channels = 1;
    pair_where(p->client, &hello.u.hello.where);
    pair_hear(half_open(p), &hello);
    assert_int_equal(umi_channel_on_arrival(p->server_worker, &arrival),
                     UMI_AM_CONSUMED);
    goodbye.u.goodbye.count               = 1;
    goodbye.u.goodbye.entries[0].channel  = UMI_CHANNEL_0;
    goodbye.u.goodbye.entries[0].next_seq = 1;
    (void)pair_feed_control(half_open(p), &goodbye);
    (void)umx_worker_poll(p->server_worker);
    assert_null(p->server);
    open.u.open.peer = 1;
    prove(half_open(p), &open);
    pair_hear(half_open(p), &open);
    (void)umx_worker_poll(p->server_worker);
    assert_non_null(p->server);
    assert_true(umx_ep_is_peer_closed(p->server));
    byte = 0;
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 'x');
    umx_ep_abort(p->client);
}

/* ---- peers that are mute, or not there -----------------------------------
 */

static int
raw_socket(pair *p)
{
    struct sockaddr_storage addr;
    size_t                  len = pair_address(p, &addr);
    int                     fd  = socket(addr.ss_family, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, (socklen_t)len), 0);
    return fd;
}

static void
test_others_connect_past_mute_and_noisy_sockets(void **state)
{
    static const char noise[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

    pair *p = *state;
    int   mute, noisy;

    pair_listen(p);
    mute  = raw_socket(p);
    noisy = raw_socket(p);
    assert_int_equal(write(noisy, noise, sizeof(noise)), sizeof(noise));
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL);
    run_until_decided(p);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
    pair_settle(p);
    close(mute);
    close(noisy);
}

/* A listener of its own, whose limits the test chooses. */
static void
listen_with(pair *p, int backlog, uint64_t timeout_ns)
{
    struct sockaddr_storage addr;
    umx_listener_params     params = {
            .field_mask = UMX_LISTENER_FIELD_BACKLOG | UMX_LISTENER_FIELD_TIMEOUT,
            .backlog    = backlog,
            .timeout_ns = timeout_ns,
            .addr       = (struct sockaddr *)&addr,
    };

    pair_listen(p);
    params.addr_len  = pair_address(p, &addr);
    params.on_accept = p->listener->on_accept;
    params.arg       = p;
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    assert_int_equal(
        umx_listener_create(p->server_worker, &params, &p->listener), UMX_OK);
}

static void
test_a_mute_peer_is_dropped_at_its_deadline(void **state)
{
    pair *p = *state;

    listen_with(p, 10, SECOND_NS / 20);
    connect_mute(p);
    (void)half_open(p);
    check_server_forgets(p);
    run_until_decided(p);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_FAILED);
}

static void
test_the_backlog_bounds_handshakes(void **state)
{
    pair            *p = *state;
    umx_worker_stats stats;
    umx_ep          *mute;

    listen_with(p, 1, 60 * SECOND_NS);
    connect_mute(p);
    (void)half_open(p);
    mute = p->client;
    pair_connect(p, 0);
    check_failed(p, UMX_ERR_REJECTED);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.refused_connections, 1);
    umx_worker_query(p->client_worker, &stats);
    assert_int_equal(stats.failed_connections, 1);
    drop_client(p);
    umx_ep_abort(mute);
    umx_ep_destroy(mute);
    check_server_forgets(p);
    pair_connect(p, 0); /* the listener has room again */
    PAIR_UNTIL(p, p->server != NULL);
    run_until_decided(p);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
}

static void
connect_addr(pair *p, const struct sockaddr_in *addr, uint64_t timeout_ns)
{
    umx_connect_params params = {.field_mask = UMX_CONNECT_FIELD_TIMEOUT,
                                 .addr       = (const struct sockaddr *)addr,
                                 .addr_len   = sizeof(*addr),
                                 .timeout_ns = timeout_ns};

    assert_int_equal(umx_ep_connect(p->client_worker, &params, &p->client),
                     UMX_OK);
}

static void
test_a_port_where_nobody_listens(void **state)
{
    enum {
        TRIES = 20
    };
    pair              *p = *state;
    struct sockaddr_in addr;
    int                fd = bound_socket(&addr);

    pair_listen(p);
    for (int i = 0; i < TRIES; i++) {
        connect_addr(p, &addr, 60 * SECOND_NS);
        check_failed(p, UMX_ERR_NOT_CONNECTED);
        drop_client(p);
    }
    close(fd);
}

static void
test_a_mute_listener_times_out(void **state)
{
    pair              *p = *state;
    struct sockaddr_in addr;
    int                fd = bound_socket(&addr);

    assert_int_equal(listen(fd, 10), 0);
    pair_listen(p);
    connect_addr(p, &addr, SECOND_NS / 20);
    check_failed(p, UMX_ERR_TIMED_OUT);
    close(fd);
}

static void
test_operations_wait_for_the_handshake(void **state)
{
    pair *p      = *state;
    char  out[4] = "abc", in[4];
    op    send_op, recv_op;

    pair_listen(p);
    pair_connect(p, 0);
    op_send(&send_op, p->client, 0, pair_tag(1), out, 4);
    op_recv(&recv_op, p->client, 0, pair_any, in, 4);
    assert_int_equal(send_op.status, UMX_INPROGRESS);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    PAIR_UNTIL(p, p->server != NULL);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, 4), UMX_OK);
    assert_string_equal(in, "abc");
    assert_int_equal(pair_send(p, p->server, 0, pair_tag(1), out, 4), UMX_OK);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
}

static void
test_operations_fail_with_the_handshake(void **state)
{
    pair              *p = *state;
    struct sockaddr_in addr;
    int                fd = bound_socket(&addr);
    char               byte;
    op                 send_op, recv_op, message_op, close_op, late;

    pair_listen(p);
    connect_addr(p, &addr, 60 * SECOND_NS);
    op_send(&send_op, p->client, 0, pair_tag(1), &byte, 1);
    op_recv(&recv_op, p->client, 0, pair_any, &byte, 1);
    op_recv_message(&message_op, p->client, 5, pair_any);
    check_failed(p, UMX_ERR_NOT_CONNECTED);
    assert_int_equal(op_wait(p, &send_op), UMX_ERR_NOT_CONNECTED);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_NOT_CONNECTED);
    assert_int_equal(op_wait(p, &message_op), UMX_ERR_NOT_CONNECTED);
    op_send(&late, p->client, 0, pair_tag(1), &byte, 1);
    assert_int_equal(late.status, UMX_ERR_NOT_CONNECTED);
    op_recv(&late, p->client, 0, pair_any, &byte, 1);
    assert_int_equal(late.status, UMX_ERR_NOT_CONNECTED);
    op_close(&close_op, p->client, SECOND_NS);
    assert_int_equal(close_op.status, UMX_OK);
    close(fd);
}

typedef struct changes {
    int          count;
    umx_ep_state last;
    umx_status   status;
} changes;

static void
count_change(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    changes *c = arg;

    assert_int_equal(umx_ep_get_state(ep), state);
    c->count++;
    c->last   = state;
    c->status = status;
}

static void
test_each_change_of_state_is_told(void **state)
{
    pair                   *p = *state;
    struct sockaddr_storage addr;
    changes                 client = {0}, server = {0};
    umx_connect_params      params = {.field_mask = UMX_CONNECT_FIELD_ON_STATE,
                                      .addr       = (struct sockaddr *)&addr,
                                      .on_state   = count_change,
                                      .arg        = &client};
    op                      close_op;

    pair_listen(p);
    params.addr_len = pair_address(p, &addr);
    assert_int_equal(umx_ep_connect(p->client_worker, &params, &p->client),
                     UMX_OK);
    assert_int_equal(client.count, 0); /* never from inside a call */
    PAIR_UNTIL(p, p->server != NULL && client.count == 1);
    assert_int_equal(client.last, UMX_EP_OPEN);
    assert_int_equal(client.status, UMX_OK);
    umx_ep_set_on_state(p->server, count_change, &server);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    PAIR_UNTIL(p, server.last == UMX_EP_CLOSED);
    assert_int_equal(server.count, 2); /* GOODBYE, then the end */
    assert_int_equal(server.status, UMX_ERR_PEER_CLOSED);
    assert_int_equal(client.count, 2);
    assert_int_equal(client.last, UMX_EP_CLOSED);
    assert_int_equal(client.status, UMX_OK);
}

/* Closing, aborting, giving back an endpoint that still connects. */
static void
test_a_connecting_endpoint_can_be_given_up(void **state)
{
    pair *p = *state;
    op    o;

    pair_listen(p);
    pair_connect(p, 0);
    op_close(&o, p->client, SECOND_NS);
    assert_int_equal(o.status, UMX_OK);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_CLOSED);
    drop_client(p);
    pair_connect(p, 0);
    umx_ep_abort(p->client);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_CLOSED);
    assert_int_equal(umx_ep_error(p->client), UMX_ERR_CANCELED);
    drop_client(p);
    pair_connect(p, 0);
    drop_client(p);
    if (p->server != NULL) { /* the server was quicker */
        umx_ep_destroy(p->server);
        p->server = NULL;
    }
}

static void
test_a_listener_destroyed_during_a_handshake_accepts_nothing(void **state)
{
    pair *p = *state;

    pair_listen(p);
    connect_mute(p);
    (void)half_open(p);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    {
        umi_control hello = {.kind = UMI_HELLO};
        umi_control open  = {.kind = UMI_OPEN};

        hello.u.hello.major    = UMX_WIRE_VERSION;
        hello.u.hello.channels = 1;
        pair_where(p->client, &hello.u.hello.where);
        say(p->client, &hello);
        open.u.open.peer = 1;
        say(p->client, &open);
    }
    PAIR_UNTIL(p, umi_list_is_empty(&p->server_worker->eps));
    assert_null(p->server);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_FAILED ||
                      umx_ep_get_state(p->client) == UMX_EP_CLOSED);
}

static void
test_bad_addresses_are_refused(void **state)
{
    pair              *p      = *state;
    struct sockaddr_in addr   = {.sin_family = AF_INET};
    umx_connect_params params = {.addr = (struct sockaddr *)&addr};

    pair_listen(p);
    assert_int_equal(umx_ep_connect(p->client_worker, &params, &p->client),
                     UMX_ERR_INVALID_PARAM);
    params.addr     = NULL;
    params.addr_len = sizeof(addr);
    assert_int_equal(umx_ep_connect(p->client_worker, &params, &p->client),
                     UMX_ERR_INVALID_PARAM);
    params.addr       = (struct sockaddr *)&addr;
    params.field_mask = UMX_CONNECT_FIELD_LOCAL;
    assert_int_equal(umx_ep_connect(p->client_worker, &params, &p->client),
                     UMX_ERR_INVALID_PARAM);
    addr.sin_family   = AF_UNIX;
    params.field_mask = 0;
    assert_true(umx_ep_connect(p->client_worker, &params, &p->client) < 0);
    assert_null(p->client);
}

static void
test_a_source_address_can_be_chosen(void **state)
{
    pair                   *p     = *state;
    struct sockaddr_in      local = {.sin_family = AF_INET}, seen;
    struct sockaddr_storage addr;
    size_t                  len    = sizeof(seen);
    umx_connect_params      params = {.field_mask = UMX_CONNECT_FIELD_LOCAL,
                                      .addr       = (struct sockaddr *)&addr,
                                      .local      = (struct sockaddr *)&local,
                                      .local_len  = sizeof(local)};

    local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    pair_listen(p);
    params.addr_len = pair_address(p, &addr);
    assert_int_equal(umx_ep_connect(p->client_worker, &params, &p->client),
                     UMX_OK);
    PAIR_UNTIL(p, p->server != NULL);
    assert_int_equal(
        umx_ep_peer_address(p->server, (struct sockaddr *)&seen, &len), UMX_OK);
    assert_int_equal(seen.sin_addr.s_addr, local.sin_addr.s_addr);
}

static int
option_of(const umx_ep *ep, int level, int option)
{
    int       value;
    socklen_t len = sizeof(value);

    assert_int_equal(
        getsockopt(ep->socket.watch.fd, level, option, &value, &len), 0);
    return value;
}

static void
check_keepalive(const umx_ep *ep, int seconds)
{
    assert_int_equal(option_of(ep, SOL_SOCKET, SO_KEEPALIVE), seconds > 0);
    assert_int_equal(option_of(ep, IPPROTO_TCP, TCP_USER_TIMEOUT),
                     seconds * 1250);
}

static void
test_the_kernel_looks_after_the_peer_where_it_is_asked_to(void **state)
{
    pair      *p      = *state;
    umx_config config = p->config;

    config.keepalive_ns = 28 * SECOND_NS + 1;
    p->client_config    = &config;
    pair_open(p);
    check_keepalive(p->client, 29);
    check_keepalive(p->server, 30);
    assert_int_equal(option_of(p->client, IPPROTO_TCP, TCP_KEEPIDLE), 8);
    assert_int_equal(option_of(p->client, IPPROTO_TCP, TCP_KEEPINTVL), 4);
    umx_ep_set_keepalive(p->server, 0);
    check_keepalive(p->server, 0);
    umx_ep_set_keepalive(p->server, SECOND_NS / 5);
    check_keepalive(p->server, UMI_KEEPALIVE_MIN);
    assert_int_equal(option_of(p->server, IPPROTO_TCP, TCP_KEEPIDLE), 1);
    assert_int_equal(option_of(p->server, IPPROTO_TCP, TCP_KEEPINTVL), 1);
    umx_ep_set_keepalive(p->server, UINT64_MAX);
    check_keepalive(p->server, 32767);
}

/* What is said of a connection before it is open holds when it is. */
static void
test_the_kernel_does_not_look_where_the_network_may_be_silent(void **state)
{
    pair *p = *state;

    pair_listen(p);
    pair_connect(p, 0);
    umx_ep_set_keepalive(p->client, 0);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_OPEN);
    check_keepalive(p->client, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_shared_memory_is_for_shared_process_numbers),
        PAIR_TEST(test_a_shared_token_opens),
        PAIR_TEST(test_a_wrong_token_is_rejected),
        PAIR_TEST(test_a_client_without_the_token_is_rejected),
        PAIR_TEST(test_a_server_without_the_token_is_refused),
        PAIR_TEST(test_another_wire_version_is_rejected),
        PAIR_TEST_ONCE(test_a_listener_of_another_wire_version_is_refused),
        PAIR_TEST_ONCE(test_messages_out_of_turn_drop_the_peer),
        PAIR_TEST_ONCE(
            test_the_kernel_looks_after_the_peer_where_it_is_asked_to),
        PAIR_TEST_ONCE(
            test_the_kernel_does_not_look_where_the_network_may_be_silent),
        PAIR_TEST_ONCE(test_a_second_challenge_drops_the_listener),
        PAIR_TEST_ONCE(test_a_handshake_message_drops_an_open_peer),
        PAIR_TEST_ONCE(test_the_listeners_reasons_reach_the_client),
        PAIR_TEST_ONCE(test_garbage_in_the_handshake_drops_the_peer),
        PAIR_TEST_ONCE(test_garbage_drops_an_open_peer),
        PAIR_TEST_ONCE(test_messages_that_overtake_the_handshake_wait),
        PAIR_TEST_ONCE(test_others_connect_past_mute_and_noisy_sockets),
        PAIR_TEST_ONCE(test_a_mute_peer_is_dropped_at_its_deadline),
        PAIR_TEST_ONCE(test_the_backlog_bounds_handshakes),
        PAIR_TEST(test_a_port_where_nobody_listens),
        PAIR_TEST_ONCE(test_a_mute_listener_times_out),
        PAIR_TEST(test_operations_wait_for_the_handshake),
        PAIR_TEST(test_operations_fail_with_the_handshake),
        PAIR_TEST(test_each_change_of_state_is_told),
        PAIR_TEST(test_a_connecting_endpoint_can_be_given_up),
        PAIR_TEST_ONCE(
            test_a_listener_destroyed_during_a_handshake_accepts_nothing),
        PAIR_TEST_ONCE(test_bad_addresses_are_refused),
        PAIR_TEST_ONCE(test_a_source_address_can_be_chosen),
    };

    return UNIT_RUN(tests);
}
