/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: host/trip */
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "host/socket.h"
#include "host/trip.h"

static void
test_what_the_system_says_as_a_status(void **state)
{
    static const struct {
        int        error;
        umx_status status;
    } cases[] = {
        {ECONNREFUSED, UMX_ERR_NOT_CONNECTED},
        {ENETUNREACH, UMX_ERR_UNREACHABLE},
        {EHOSTUNREACH, UMX_ERR_UNREACHABLE},
        {EAFNOSUPPORT, UMX_ERR_UNREACHABLE},
        {ETIMEDOUT, UMX_ERR_TIMED_OUT},
        {ECONNRESET, UMX_ERR_CONNECTION_RESET},
        {EPIPE, UMX_ERR_CONNECTION_RESET},
        {EADDRINUSE, UMX_ERR_BUSY},
        {EADDRNOTAVAIL, UMX_ERR_INVALID_ADDR},
        {ENOBUFS, UMX_ERR_NO_MEMORY},
        {EBADF, UMX_ERR_IO_ERROR},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(umi_status_from_errno(cases[i].error),
                         cases[i].status);
    }
}

static void
test_the_kernel_has_measured_a_round_trip(void **state)
{
    pair      *p    = *state;
    umi_socket none = {.watch.fd = -1};

    pair_open(p);
    assert_true(umi_socket_trip_ns(&p->client->socket) > 0);
    assert_true(umi_socket_trip_ns(&p->server->socket) > 0);
    assert_int_equal(umi_socket_trip_ns(&none), 0);
}

static void
check_peer(const umi_socket *sock)
{
    char text[UMI_SOCKADDR_TEXT];

    assert_true(umi_socket_peer_host(sock, text));
    assert_string_equal(text, "127.0.0.1");
    assert_true(umi_socket_peer_text(sock, text));
    assert_memory_equal(text, "127.0.0.1:", 10);
}

/* Also while it connects, and after the handshake. */
static void
test_a_peer_is_named_with_its_port_and_without(void **state)
{
    pair      *p    = *state;
    umi_socket none = {.watch.fd = -1};
    char       text[UMI_SOCKADDR_TEXT];

    pair_listen(p);
    pair_connect(p, 0);
    check_peer(&p->client->socket);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
    pair_settle(p);
    check_peer(&p->client->socket);
    check_peer(&p->server->socket);
    assert_false(umi_socket_peer_host(&none, text));
    assert_false(umi_socket_peer_text(&none, text));
    assert_string_equal(text, "an unknown address");
}

static void
test_an_address_of_ipv6_has_brackets(void **state)
{
    struct sockaddr_in6 addr = {
        .sin6_family = AF_INET6, .sin6_port = htons(80), .sin6_addr = {{{0}}}};
    char text[UMI_SOCKADDR_TEXT];

    (void)state;
    umi_sockaddr_text((struct sockaddr *)&addr, text);
    assert_string_equal(text, "[::]:80");
}

static void
test_other_bytes_than_signs_of_life_end_a_connection(void **state)
{
    pair *p = *state;

    pair_open(p);
    pair_settle(p);
    assert_int_equal(send(p->client->socket.watch.fd, "x", 1, 0), 1);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
}

/* The question comes with the last words of the handshake: the server has not
 * read these. */
static void
test_a_question_right_after_the_handshake_is_answered(void **state)
{
    pair *p = *state;

    pair_listen(p);
    pair_connect(p, 0);
    while (umx_ep_get_state(p->client) != UMX_EP_OPEN) {
        assert_true(umx_worker_drain(p->server_worker) >= 0);
        assert_true(umx_worker_drain(p->client_worker) >= 0);
    }
    assert_null(p->server);
    umx_ep_ask(p->client);
    assert_true(p->client->socket.is_asked);
    PAIR_UNTIL(p, !p->client->socket.is_asked);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
    PAIR_UNTIL(p, p->server != NULL);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
}

static void
test_a_socket_takes_what_it_has_room_for(void **state)
{
    static const char bytes[UMI_SOCKET_MESSAGE_MAX + 1];

    pair *p = *state;

    pair_listen(p);
    pair_connect(p, 0);
    assert_int_equal(umi_socket_send(&p->client->socket, bytes, sizeof(bytes)),
                     UMX_ERR_OUT_OF_RANGE);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
    pair_settle(p);
    assert_int_equal(umi_socket_send(&p->client->socket, bytes, 1),
                     UMX_ERR_CLOSED); /* the handshake is over */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_system_says_as_a_status),
        PAIR_TEST_ONCE(test_the_kernel_has_measured_a_round_trip),
        PAIR_TEST_ONCE(test_a_peer_is_named_with_its_port_and_without),
        cmocka_unit_test(test_an_address_of_ipv6_has_brackets),
        PAIR_TEST(test_other_bytes_than_signs_of_life_end_a_connection),
        PAIR_TEST(test_a_question_right_after_the_handshake_is_answered),
        PAIR_TEST_ONCE(test_a_socket_takes_what_it_has_room_for),
    };

    return UNIT_RUN(tests);
}
