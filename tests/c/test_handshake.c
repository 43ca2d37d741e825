/* link: pair */
#include "pair.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
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
 * token: it learns of it as of a crash. */
static void
test_a_server_without_the_token_is_refused(void **state)
{
    pair *p = *state;

    check_tokens(p, NULL, token);
    PAIR_UNTIL(p, p->server != NULL &&
                      umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_CONNECTION_RESET);
}

/* ---- messages made by hand -----------------------------------------------
 */

/* The listening side's half-open endpoint. */
static umx_ep *
half_open(pair *p)
{
    PAIR_UNTIL(p, !umi_list_is_empty(&p->server_worker->eps));
    return umi_conn_of(
        umi_container_of(p->server_worker->eps.next, umi_ep, link));
}

/* A peer that has connected in UCX's eyes and says nothing. */
static void
connect_mute(pair *p)
{
    struct sockaddr_storage addr;
    size_t                  len = pair_address(p, &addr);

    p->client = umi_conn_new(p->client_worker);
    assert_non_null(p->client);
    assert_int_equal(
        umi_ep_open(&p->client->base, (struct sockaddr *)&addr, len, NULL, 0),
        UMX_OK);
}

static void
test_another_wire_version_is_rejected(void **state)
{
    pair       *p     = *state;
    umi_control hello = {.kind = UMI_HELLO};

    pair_listen(p);
    connect_mute(p);
    hello.u.hello.major = UMX_WIRE_VERSION + 1;
    umi_conn_send_control(p->client, &hello);
    check_failed(p, UMX_ERR_VERSION);
    assert_string_equal(umx_ep_reason(p->client), "wire version 1 is needed");
    drop_client(p);
    check_server_forgets(p);
}

/* `control` is out of turn on the listening side. */
static void
check_server_drops(pair *p, const umi_control *controls, int count)
{
    umx_worker_stats before, after;

    connect_mute(p);
    umx_worker_query(p->server_worker, &before);
    for (int i = 0; i < count; i++) {
        (void)pair_feed_control(half_open(p), &controls[i]);
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
    const umi_control welcome = {.kind = UMI_WELCOME};
    umi_control       hellos[2];

    set_token(&p->config, token);
    pair_listen(p);
    check_server_drops(p, &auth, 1);
    check_server_drops(p, &ping, 1);
    check_server_drops(p, &goodbye, 1);
    check_server_drops(p, &welcome, 1);
    memset(hellos, 0, sizeof(hellos));
    hellos[0].kind          = UMI_HELLO;
    hellos[0].u.hello.major = UMX_WIRE_VERSION;
    hellos[1]               = hellos[0];
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
    (void)pair_feed_control(p->client, &challenge);
    (void)pair_feed_control(p->client, &challenge);
    check_failed(p, UMX_ERR_PROTOCOL);
}

static void
test_a_handshake_message_drops_an_open_peer(void **state)
{
    pair             *p     = *state;
    const umi_control hello = {.kind = UMI_HELLO};

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
    (void)pair_feed_control(p->client, &reject);
    check_failed(p, UMX_ERR_REJECTED);
    assert_string_equal(umx_ep_reason(p->client), "no");
}

/* Bytes that are no control message; one too long; too many. */
static void
test_garbage_drops_the_peer(void **state)
{
    static uint8_t bytes[UMI_CONTROL_MAX + 1];

    pair             *p       = *state;
    const umi_control ping    = {.kind = UMI_PING};
    umi_am_arrival    arrival = {.data = bytes, .len = 20};

    pair_listen(p);
    for (int i = 0; i < 3; i++) {
        umx_ep *ep;

        connect_mute(p);
        ep             = half_open(p);
        arrival.handle = ep->base.handle;
        if (i == 1) {
            arrival.len = sizeof(bytes);
        }
        if (i == 2) {
            for (int j = 0; j < 65; j++) {
                (void)pair_feed_control(ep, &ping);
            }
        } else {
            (void)umi_control_on_arrival(p->server_worker, &arrival);
        }
        check_server_forgets(p);
        run_until_decided(p);
        drop_client(p);
    }
    arrival.handle = NULL;
    assert_int_equal(umi_control_on_arrival(p->server_worker, &arrival),
                     UMI_AM_REFUSED);
}

static void
test_data_before_the_handshake_is_bounded(void **state)
{
    static uint8_t bytes[1000];

    pair          *p       = *state;
    umi_header     header  = {.kind = UMI_KIND_MESSAGE};
    umi_am_arrival arrival = {.header     = &header,
                              .header_len = sizeof(header),
                              .data       = bytes,
                              .len        = sizeof(bytes)};
    int            kept    = 0;

    p->config.early_bytes = 10 * 1000;
    pair_listen(p);
    connect_mute(p);
    arrival.handle = half_open(p)->base.handle;
    while (umi_channel_on_arrival(p->server_worker, &arrival) ==
           UMI_AM_CONSUMED) {
        header.seq++;
        kept++;
    }
    assert_int_equal(kept, 9);
    check_server_forgets(p);
    run_until_decided(p);
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
    drop_client(p);
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL);
    run_until_decided(p);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
}

static void
test_the_backlog_bounds_handshakes(void **state)
{
    pair   *p = *state;
    umx_ep *mute;

    listen_with(p, 1, 60 * SECOND_NS);
    connect_mute(p);
    (void)half_open(p);
    mute = p->client;
    pair_connect(p, 0);
    check_failed(p, UMX_ERR_REJECTED);
    drop_client(p);
    umx_ep_abort(mute);
    umx_ep_destroy(mute);
    check_server_forgets(p);
    pair_connect(p, 0); /* there is room again */
    PAIR_UNTIL(p, p->server != NULL);
    run_until_decided(p);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
}

/* A TCP socket on a port of its own. */
static int
bound_socket(struct sockaddr_in *addr)
{
    socklen_t len = sizeof(*addr);
    int       fd  = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    memset(addr, 0, sizeof(*addr));
    addr->sin_family      = AF_INET;
    addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)addr, sizeof(*addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)addr, &len), 0);
    return fd;
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
    for (int i = 0; i < TRIES; i++) { /* UCX finds out in two ways */
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
    if (p->server != NULL) { /* it was quicker */
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

        hello.u.hello.major = UMX_WIRE_VERSION;
        umi_conn_send_control(p->client, &hello);
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_shared_token_opens),
        PAIR_TEST(test_a_wrong_token_is_rejected),
        PAIR_TEST(test_a_client_without_the_token_is_rejected),
        PAIR_TEST(test_a_server_without_the_token_is_refused),
        PAIR_TEST(test_another_wire_version_is_rejected),
        PAIR_TEST_ONCE(test_messages_out_of_turn_drop_the_peer),
        PAIR_TEST_ONCE(test_a_second_challenge_drops_the_listener),
        PAIR_TEST_ONCE(test_a_handshake_message_drops_an_open_peer),
        PAIR_TEST_ONCE(test_the_listeners_reasons_reach_the_client),
        PAIR_TEST_ONCE(test_garbage_drops_the_peer),
        PAIR_TEST_ONCE(test_data_before_the_handshake_is_bounded),
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
