/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair child */
/* tests: endpoint/connect_hosts util/host */
/* Endpoints made from worker addresses. */
#include "pair.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "child.h"
#include "endpoint/addressed.h"
#include "endpoint/connect_hosts.h"

static void
copy_address(umx_worker *worker, uint8_t *bytes, size_t *len_p)
{
    const void *address, *again;
    size_t      len;

    assert_int_equal(umx_worker_get_address(worker, &address, len_p), UMX_OK);
    assert_int_equal(umx_worker_get_address(worker, &again, &len), UMX_OK);
    assert_ptr_equal(address, again);
    memcpy(bytes, address, *len_p);
}

static umx_ep *
connect_bytes(umx_worker *worker, const void *bytes, size_t len)
{
    umx_connect_params params = {0};
    umx_ep            *ep;

    assert_int_equal(umx_ep_connect_address(worker, bytes, len, &params, &ep),
                     UMX_OK);
    return ep;
}

static umx_ep *
connect_to(umx_worker *worker, umx_worker *target)
{
    uint8_t bytes[UMX_ADDRESS_MAX];
    size_t  len;

    copy_address(target, bytes, &len);
    return connect_bytes(worker, bytes, len);
}

static void
open_addressed(pair *p)
{
    pair_workers(p);
    p->client = connect_to(p->client_worker, p->server_worker);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_CONNECTING);
    PAIR_UNTIL(p, (p->server = umx_worker_take_addressed(p->server_worker)) !=
                      NULL);
}

static void
check_messages(pair *p, umx_ep *from, umx_ep *to)
{
    char in[4] = "";
    op   send_op;

    op_send(&send_op, from, 0, pair_tag(1), "abc", 4);
    assert_int_equal(pair_recv(p, to, 0, pair_tag(1), in, 4), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_string_equal(in, "abc");
}

static void
test_both_sides_get_an_endpoint(void **state)
{
    pair *p = *state;

    open_addressed(p);
    check_messages(p, p->client, p->server);
    check_messages(p, p->server, p->client);
    assert_null(umx_worker_take_addressed(p->server_worker));
    assert_null(umx_worker_take_addressed(p->client_worker));
}

static void
count_call(umx_worker *worker, void *arg)
{
    (void)worker;
    ++*(int *)arg;
}

static void
test_the_callback_tells_of_each(void **state)
{
    pair   *p = *state;
    umx_ep *clients[3], *ep;
    int     calls = 0;

    pair_workers(p);
    assert_int_equal(
        umx_worker_set_on_addressed(p->server_worker, count_call, &calls),
        UMX_OK);
    for (int i = 0; i < 3; i++) {
        clients[i] = connect_to(p->client_worker, p->server_worker);
    }
    PAIR_UNTIL(p, calls == 3);
    for (int i = 0; i < 3; i++) {
        ep = umx_worker_take_addressed(p->server_worker);
        assert_non_null(ep);
        umx_ep_destroy(ep);
        umx_ep_destroy(clients[i]);
    }
    assert_null(umx_worker_take_addressed(p->server_worker));
}

/* Raw tags work without the passive side's endpoint, of which some programs
 * know nothing. */
static void
test_raw_tags_reach_a_worker_that_takes_nothing(void **state)
{
    pair         *p = *state;
    umx_op_params params;
    umx_buffer    buffer;
    char          in[3];
    op            recv_op, send_op;

    pair_workers(p);
    p->client      = connect_to(p->client_worker, p->server_worker);
    buffer         = umx_host_buffer("abc", 3);
    params         = op_params(&send_op);
    send_op.status = umx_tag_send(p->client, 5, &buffer, &params, &send_op.req);
    assert_int_equal(send_op.status, UMX_INPROGRESS);
    buffer         = umx_host_buffer(in, 3);
    params         = op_params(&recv_op);
    recv_op.status = umx_tag_recv(p->server_worker, NULL, 5, UINT64_MAX,
                                  &buffer, &params, &recv_op.req,
                                  &recv_op.info);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_memory_equal(in, "abc", 3);
}

static void
test_both_sides_connect_at_once(void **state)
{
    pair   *p = *state;
    umx_ep *other, *taken;

    pair_workers(p);
    p->client = connect_to(p->client_worker, p->server_worker);
    p->server = connect_to(p->server_worker, p->client_worker);
    PAIR_UNTIL(p,
               (taken = umx_worker_take_addressed(p->server_worker)) != NULL);
    PAIR_UNTIL(p,
               (other = umx_worker_take_addressed(p->client_worker)) != NULL);
    check_messages(p, p->client, taken);
    check_messages(p, taken, p->client);
    check_messages(p, p->server, other);
    check_messages(p, other, p->server);
    umx_ep_destroy(taken);
    umx_ep_destroy(other);
}

static void
test_a_worker_connects_to_itself(void **state)
{
    pair *p = *state;

    pair_workers(p);
    p->client = connect_to(p->client_worker, p->client_worker);
    PAIR_UNTIL(p, (p->server = umx_worker_take_addressed(p->client_worker)) !=
                      NULL);
    check_messages(p, p->client, p->server);
    check_messages(p, p->server, p->client);
}

/* ---- endpoints that nobody takes -----------------------------------------
 */

static unsigned
num_untaken(umx_worker *worker)
{
    unsigned count = 0;

    UMI_LIST_FOREACH(node, &worker->addressed->waiting) {
        count++;
    }
    return count;
}

static void
test_what_nobody_takes_goes_with_its_peer(void **state)
{
    pair *p = *state;
    op    close_op;

    for (int is_abort = 0; is_abort < 2; is_abort++) {
        if (!is_abort) {
            pair_workers(p);
        }
        p->client = connect_to(p->client_worker, p->server_worker);
        PAIR_UNTIL(p, num_untaken(p->server_worker) == 1 &&
                          umx_ep_get_state(p->client) == UMX_EP_OPEN);
        if (is_abort) {
            umx_ep_abort(p->client);
        } else {
            op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
            assert_int_equal(op_wait(p, &close_op), UMX_OK);
        }
        PAIR_UNTIL(p, num_untaken(p->server_worker) == 0);
        assert_null(umx_worker_take_addressed(p->server_worker));
        umx_ep_destroy(p->client);
        p->client = NULL;
    }
}

static void
test_messages_of_a_closed_peer_are_kept_for_who_takes_it(void **state)
{
    pair *p = *state;
    char  in[3];
    op    send_op, close_op;

    pair_workers(p);
    p->client = connect_to(p->client_worker, p->server_worker);
    op_send(&send_op, p->client, 3, pair_tag(1), "abc", 3);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    PAIR_UNTIL(p, p->server_worker->addressed->num_ended == 1);
    p->server = umx_worker_take_addressed(p->server_worker);
    assert_non_null(p->server);
    assert_int_equal(p->server_worker->addressed->num_ended, 0);
    assert_int_equal(pair_recv(p, p->server, 3, pair_any, in, 3), UMX_OK);
    assert_memory_equal(in, "abc", 3);
}

static void
test_few_are_kept_that_have_ended(void **state)
{
    pair *p = *state;
    char  number;
    op    send_op, close_op;

    pair_workers(p);
    for (int i = 0; i < 70; i++) {
        number    = (char)i;
        p->client = connect_to(p->client_worker, p->server_worker);
        op_send(&send_op, p->client, 0, pair_tag(1), &number, 1);
        op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
        assert_int_equal(op_wait(p, &close_op), UMX_OK);
        umx_ep_destroy(p->client);
        p->client = NULL;
    }
    PAIR_UNTIL(p, num_untaken(p->server_worker) == 64 &&
                      p->server_worker->addressed->num_ended == 64);
    p->server = umx_worker_take_addressed(p->server_worker);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &number, 1), UMX_OK);
    assert_int_equal(number, 6); /* the oldest have gone */
    umx_worker_withdraw_address(p->server_worker);
}

static void
test_a_withdrawn_address_leads_nowhere(void **state)
{
    pair       *p = *state;
    uint8_t     bytes[UMX_ADDRESS_MAX];
    const void *address;
    size_t      len;
    umx_ep     *late;

    pair_workers(p);
    copy_address(p->server_worker, bytes, &len);
    p->client = connect_bytes(p->client_worker, bytes, len);
    PAIR_UNTIL(p, num_untaken(p->server_worker) == 1);
    umx_worker_withdraw_address(p->server_worker);
    umx_worker_withdraw_address(p->server_worker);
    PAIR_UNTIL(p, umx_ep_is_peer_closed(p->client)); /* in good order */
    assert_int_equal(umx_worker_get_address(p->server_worker, &address, &len),
                     UMX_ERR_CLOSED);
    late = connect_bytes(p->client_worker, bytes, len);
    PAIR_UNTIL(p, umx_ep_get_state(late) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(late), UMX_ERR_WORKER_GONE);
    umx_ep_destroy(late);
}

/* ---- nobody there --------------------------------------------------------
 */

static void
wait_for_failure(pair *p, umx_status expected)
{
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->client), expected);
}

static void
test_the_address_of_a_dead_worker(void **state)
{
    pair   *p = *state;
    uint8_t bytes[UMX_ADDRESS_MAX];
    size_t  len;
    op      send_op, recv_op, close_op;
    char    byte;

    pair_workers(p);
    copy_address(p->server_worker, bytes, &len);
    umx_worker_destroy(p->server_worker);
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
    p->client = connect_bytes(p->client_worker, bytes, len);
    op_send(&send_op, p->client, 0, pair_tag(1), "abc", 3);
    op_recv(&recv_op, p->client, 0, pair_tag(1), &byte, 1);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    wait_for_failure(p, UMX_ERR_WORKER_GONE);
    assert_int_equal(op_wait(p, &send_op), UMX_ERR_WORKER_GONE);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &close_op), UMX_ERR_WORKER_GONE);
    op_send(&send_op, p->client, 0, pair_tag(1), "abc", 3);
    assert_int_equal(send_op.status, UMX_ERR_WORKER_GONE);
}

/* Change an encoded address by `fn`. */
static size_t
change(umx_worker *worker, uint8_t *bytes, void (*fn)(umi_address *address))
{
    umi_address address;
    size_t      len;
    const char *why;

    copy_address(worker, bytes, &len);
    assert_true(umi_address_decode(&address, bytes, len, &len, &why));
    fn(&address);
    return umi_address_encode(&address, bytes);
}

static void
set_other_worker(umi_address *address)
{
    address->worker_id[0] ^= 1;
}

static void
test_another_worker_at_the_port(void **state)
{
    pair   *p = *state;
    uint8_t bytes[UMX_ADDRESS_MAX];
    size_t  len;

    pair_workers(p);
    len       = change(p->server_worker, bytes, set_other_worker);
    p->client = connect_bytes(p->client_worker, bytes, len);
    wait_for_failure(p, UMX_ERR_WORKER_GONE);
    assert_null(umx_worker_take_addressed(p->server_worker));
}

/* Several hosts; where is the worker? */
static uint8_t first_of_hosts;

static void
set_hosts(umi_address *address)
{
    address->network_id = 0; /* each is tried */
    memset(address->hosts, 0, sizeof(address->hosts));
    address->count             = 3;
    address->hosts[0].bytes[0] = first_of_hosts;
    address->hosts[0].bytes[3] = 1;
    address->hosts[1].is_ipv6  = true; /* ::ffff:255.255.255.255 */
    memset(address->hosts[1].bytes + 10, 0xff, 6);
    memcpy(address->hosts[2].bytes, "\x7f\0\0\1", 4);
}

static void
test_each_host_is_tried(void **state)
{
    pair   *p = *state;
    uint8_t bytes[UMX_ADDRESS_MAX];
    size_t  len;

    first_of_hosts = 255; /* 255.0.0.1: the system refuses it */
    pair_workers(p);
    len       = change(p->server_worker, bytes, set_hosts);
    p->client = connect_bytes(p->client_worker, bytes, len);
    PAIR_UNTIL(p, (p->server = umx_worker_take_addressed(p->server_worker)) !=
                      NULL);
    check_messages(p, p->client, p->server);
}

/* The port of a server that speaks something else, or nothing. */
static uint16_t foreign_port;

static void
set_foreign_port(umi_address *address)
{
    address->port = foreign_port;
}

static void
check_foreign_server(pair *p, const char *words, umx_status expected)
{
    struct sockaddr_in addr;
    int                server = bound_socket(&addr), fd;
    uint8_t            bytes[UMX_ADDRESS_MAX];
    umx_connect_params params = {.field_mask = UMX_CONNECT_FIELD_TIMEOUT,
                                 .timeout_ns = SECOND_NS / 20};
    size_t             len;

    assert_int_equal(listen(server, 1), 0);
    foreign_port = ntohs(addr.sin_port);
    len          = change(p->server_worker, bytes, set_foreign_port);
    if (expected != UMX_ERR_TIMED_OUT) {
        params.timeout_ns = UMX_TIMEOUT_INFINITE;
    }
    assert_int_equal(umx_ep_connect_address(p->client_worker, bytes, len,
                                            &params, &p->client),
                     UMX_OK);
    fd = accept(server, NULL, NULL);
    assert_true(fd >= 0);
    if (words != NULL) {
        assert_int_equal(send(fd, words, strlen(words), 0), strlen(words));
        (void)shutdown(fd, SHUT_WR);
    }
    wait_for_failure(p, expected);
    close(fd);
    close(server);
    umx_ep_destroy(p->client);
    p->client = NULL;
}

static void
test_foreign_servers_at_the_port(void **state)
{
    pair *p = *state;

    pair_workers(p);
    check_foreign_server(p, "HTTP/1.1 400 Bad Request\r\n\r\n",
                         UMX_ERR_WORKER_GONE);
    check_foreign_server(p, "", UMX_ERR_WORKER_GONE);
    check_foreign_server(p, NULL, UMX_ERR_TIMED_OUT);
}

static void
set_no_hosts(umi_address *address)
{
    address->count = 0;
}

static void
test_an_address_without_hosts(void **state)
{
    pair   *p = *state;
    uint8_t bytes[UMX_ADDRESS_MAX];
    size_t  len;

    pair_workers(p);
    len       = change(p->server_worker, bytes, set_no_hosts);
    p->client = connect_bytes(p->client_worker, bytes, len);
    wait_for_failure(p, UMX_ERR_UNREACHABLE);
}

static void
test_bytes_that_are_no_address_are_refused(void **state)
{
    pair              *p      = *state;
    umx_connect_params params = {0};
    umx_ep            *ep;

    pair_workers(p);
    assert_int_equal(
        umx_ep_connect_address(p->client_worker, "abc", 3, &params, &ep),
        UMX_ERR_INVALID_ADDR);
    assert_int_equal(
        umx_ep_connect_address(p->client_worker, NULL, 0, &params, &ep),
        UMX_ERR_INVALID_ADDR);
}

static void
test_a_worker_of_another_token_refuses(void **state)
{
    static const uint8_t token[] = "secret";
    pair                *p       = *state;
    umx_config           config;

    umx_config_default(&config);
    p->client_config    = &config;
    p->config.token     = token;
    p->config.token_len = sizeof(token);
    pair_workers(p);
    p->client = connect_to(p->client_worker, p->server_worker);
    wait_for_failure(p, UMX_ERR_AUTH);
}

/* ---- the end of a worker -------------------------------------------------
 */

static void
test_a_worker_ends_with_endpoints_that_nobody_took(void **state)
{
    pair *p = *state;

    pair_workers(p);
    p->client = connect_to(p->client_worker, p->server_worker);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_OPEN &&
                      num_untaken(p->server_worker) == 1);
    umx_worker_destroy(p->server_worker);
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
    wait_for_failure(p, UMX_ERR_CONNECTION_RESET);
}

/* Connect to the address that is told, say so, and stay until killed. */
static int
connect_until_killed(const char *tls)
{
    umx_context       *context = pair_context(tls, NULL);
    umx_connect_params params  = {0};
    uint8_t            bytes[UMX_ADDRESS_MAX];
    size_t             len;
    umx_worker        *worker;
    umx_ep            *ep;

    child_read(CHILD_IN, &len, sizeof(len));
    child_read(CHILD_IN, bytes, len);
    if (umx_worker_create(context, &worker) != UMX_OK ||
        umx_ep_connect_address(worker, bytes, len, &params, &ep) != UMX_OK) {
        return 1;
    }
    for (;;) {
        if (umx_worker_wait(worker, UMX_TIMEOUT_INFINITE) < 0) {
            return 1;
        }
    }
}

static void
test_an_untaken_endpoint_goes_with_a_killed_peer(void **state)
{
    pair   *p    = *state;
    child   peer = child_start("connect", p->tls);
    uint8_t bytes[UMX_ADDRESS_MAX];
    size_t  len;

    pair_workers(p);
    copy_address(p->server_worker, bytes, &len);
    child_write(peer.out, &len, sizeof(len));
    child_write(peer.out, bytes, len);
    PAIR_UNTIL(p, num_untaken(p->server_worker) == 1);
    (void)child_end(&peer, SIGKILL);
    PAIR_UNTIL(p, num_untaken(p->server_worker) == 0);
}

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {{"connect", connect_until_killed}};
    const struct CMUnitTest  tests[]   = {
           PAIR_TEST(test_both_sides_get_an_endpoint),
           PAIR_TEST_ONCE(test_the_callback_tells_of_each),
           PAIR_TEST(test_raw_tags_reach_a_worker_that_takes_nothing),
           PAIR_TEST(test_both_sides_connect_at_once),
           PAIR_TEST(test_a_worker_connects_to_itself),
           PAIR_TEST(test_what_nobody_takes_goes_with_its_peer),
           PAIR_TEST_ONCE(
               test_messages_of_a_closed_peer_are_kept_for_who_takes_it),
           PAIR_TEST_ONCE(test_few_are_kept_that_have_ended),
           PAIR_TEST_ONCE(test_a_withdrawn_address_leads_nowhere),
           PAIR_TEST(test_the_address_of_a_dead_worker),
           PAIR_TEST_ONCE(test_another_worker_at_the_port),
           PAIR_TEST_ONCE(test_each_host_is_tried),
           PAIR_TEST_ONCE(test_foreign_servers_at_the_port),
           PAIR_TEST_ONCE(test_an_address_without_hosts),
           PAIR_TEST_ONCE(test_bytes_that_are_no_address_are_refused),
           PAIR_TEST_ONCE(test_a_worker_of_another_token_refuses),
           PAIR_TEST(test_a_worker_ends_with_endpoints_that_nobody_took),
           PAIR_TEST(test_an_untaken_endpoint_goes_with_a_killed_peer),
    };

    child_role(argc, argv, entries, 1);
    return UNIT_RUN(tests);
}
