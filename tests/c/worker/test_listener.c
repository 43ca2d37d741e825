/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=socket wrap=bind */
/* tests: endpoint/accept */
#include "pair.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int __real_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol);
int __real_bind(int fd, const struct sockaddr *addr, socklen_t len);
int __wrap_bind(int fd, const struct sockaddr *addr, socklen_t len);

/* Simulate a system without IPv6, or one without IPv6 addresses. */
static bool lacks_sockets, lacks_addresses;

int
__wrap_socket(int family, int type, int protocol)
{
    if (lacks_sockets && family == AF_INET6) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    return __real_socket(family, type, protocol);
}

int
__wrap_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    if (lacks_addresses && addr->sa_family == AF_INET6) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    return __real_bind(fd, addr, len);
}

static void
take_ep(umx_listener *listener, umx_ep *ep, void *arg)
{
    pair *p = arg;

    (void)listener;
    p->server = ep;
}

static umx_status
listen_at(pair *p, const void *addr, size_t len, umx_listener **listener_p)
{
    umx_listener_params params = {
        .addr = addr, .addr_len = len, .on_accept = take_ep, .arg = p};

    return umx_listener_create(p->server_worker, &params, listener_p);
}

static void
connect_and_talk(pair *p, const void *addr, size_t len)
{
    umx_connect_params params = {.addr = addr, .addr_len = len};
    char               byte   = 0;

    assert_int_equal(umx_ep_connect(p->client_worker, &params, &p->client),
                     UMX_OK);
    PAIR_UNTIL(p, p->server != NULL);
    assert_true(pair_send(p, p->client, 0, pair_tag(1), "h", 1) >= 0);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 'h');
}

static void
test_ipv4_and_a_port_of_the_systems_choice(void **state)
{
    pair              *p     = *state;
    struct sockaddr_in bound = {0}, small;
    size_t             len   = sizeof(bound);

    pair_listen(p);
    assert_int_equal(umx_listener_address(p->listener, (void *)&bound, &len),
                     UMX_OK);
    assert_int_equal(len, sizeof(bound));
    assert_int_equal(bound.sin_family, AF_INET);
    assert_int_equal(bound.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_true(bound.sin_port != 0);
    len = sizeof(small) - 1;
    assert_int_equal(umx_listener_address(p->listener, (void *)&small, &len),
                     UMX_ERR_BUFFER_TOO_SMALL);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    assert_int_equal(listen_at(p, &bound, sizeof(bound), &p->listener),
                     UMX_OK); /* the same port, at once */
    connect_and_talk(p, &bound, sizeof(bound));
}

static bool
has_ipv6(void)
{
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6,
                                .sin6_addr   = IN6ADDR_LOOPBACK_INIT};
    int                 fd   = socket(AF_INET6, SOCK_STREAM, 0);
    bool is_ok = fd >= 0 && bind(fd, (void *)&addr, sizeof(addr)) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return is_ok;
}

static void
test_ipv6(void **state)
{
    pair               *p    = *state;
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6,
                                .sin6_addr   = IN6ADDR_LOOPBACK_INIT};
    size_t              len  = sizeof(addr);
    umx_listener       *listener;

    if (!has_ipv6()) {
        skip();
    }
    pair_workers(p);
    assert_int_equal(listen_at(p, &addr, sizeof(addr), &listener), UMX_OK);
    assert_int_equal(umx_listener_address(listener, (void *)&addr, &len),
                     UMX_OK);
    assert_int_equal(len, sizeof(addr));
    assert_int_equal(addr.sin6_family, AF_INET6);
    assert_true(addr.sin6_port != 0);
    connect_and_talk(p, &addr, sizeof(addr));
    umx_listener_destroy(listener);
}

/* ---- both families -------------------------------------------------------
 */

/* Without an address; its port, in the network's byte order. */
static in_port_t
listen_anywhere(pair *p, uint16_t port, umx_listener **listener_p)
{
    umx_listener_params params = {.field_mask = UMX_LISTENER_FIELD_PORT,
                                  .on_accept  = take_ep,
                                  .arg        = p,
                                  .port       = port};
    struct sockaddr_in  bound;
    size_t              len = sizeof(bound);

    assert_int_equal(umx_listener_create(p->server_worker, &params, listener_p),
                     UMX_OK);
    assert_int_equal(umx_listener_address(*listener_p, (void *)&bound, &len),
                     UMX_OK);
    assert_int_equal(len, sizeof(bound));
    assert_int_equal(bound.sin_family, AF_INET);
    assert_int_equal(bound.sin_addr.s_addr, htonl(INADDR_ANY));
    assert_true(bound.sin_port != 0);
    return bound.sin_port;
}

static void
connect_by_ipv4(pair *p, in_port_t port)
{
    struct sockaddr_in to = {.sin_family      = AF_INET,
                             .sin_port        = port,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in peer, own;
    size_t             len = sizeof(peer);

    connect_and_talk(p, &to, sizeof(to));
    /* Not as an IPv6 address with the IPv4 one in it. */
    assert_int_equal(umx_ep_peer_address(p->server, (void *)&peer, &len),
                     UMX_OK);
    assert_int_equal(peer.sin_family, AF_INET);
    assert_int_equal(peer.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    len = sizeof(own);
    assert_int_equal(umx_ep_local_address(p->server, (void *)&own, &len),
                     UMX_OK);
    assert_int_equal(own.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_int_equal(own.sin_port, port);
    assert_true(p->server->socket.is_local);
    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    p->client = p->server = NULL;
}

static void
test_without_an_address_both_families_have_one_port(void **state)
{
    pair               *p  = *state;
    struct sockaddr_in6 to = {.sin6_family = AF_INET6,
                              .sin6_addr   = IN6ADDR_LOOPBACK_INIT};
    umx_listener       *listener;

    if (!has_ipv6()) {
        skip();
    }
    pair_workers(p);
    to.sin6_port = listen_anywhere(p, 0, &listener);
    assert_true(umx_listener_is_dual(listener));
    connect_by_ipv4(p, to.sin6_port);
    connect_and_talk(p, &to, sizeof(to));
    umx_listener_destroy(listener);
}

static void
test_without_ipv6_there_is_ipv4(void **state)
{
    pair         *p = *state;
    umx_listener *listener;

    pair_workers(p);
    for (int i = 0; i < 2; i++) {
        in_port_t port;

        lacks_sockets   = i == 0;
        lacks_addresses = i == 1;
        port            = listen_anywhere(p, 0, &listener);
        lacks_sockets = lacks_addresses = false;
        assert_false(umx_listener_is_dual(listener));
        connect_by_ipv4(p, port);
        umx_listener_destroy(listener);
    }
}

/* Bound to a port that is free in both families, and keeps it so: nobody else
 * is given it, and sockets that reuse addresses may still listen at it. */
static int
reserve_port(struct sockaddr_in6 *addr)
{
    socklen_t len = sizeof(*addr);
    int       fd = socket(AF_INET6, SOCK_STREAM, 0), on = 1, off = 0;

    *addr = (struct sockaddr_in6){.sin6_family = AF_INET6};
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    assert_int_equal(bind(fd, (struct sockaddr *)addr, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)addr, &len), 0);
    return fd;
}

static int
listen_in_family(int family, in_port_t port)
{
    struct sockaddr_in6 addr = {.sin6_family = (sa_family_t)family,
                                .sin6_port = port}; /* where sin_port is, too */
    int                 fd = socket(family, SOCK_STREAM, 0), on = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

/* A given port that one of the families has no more is busy. */
static void
test_a_port_taken_in_one_family_is_busy(void **state)
{
    static const int families[] = {AF_INET, AF_INET6};

    pair               *p = *state;
    struct sockaddr_in6 addr;
    int                 reserved;

    if (!has_ipv6()) {
        skip();
    }
    pair_workers(p);
    reserved = reserve_port(&addr);
    for (int i = 0; i < 2; i++) {
        umx_listener_params params = {.field_mask = UMX_LISTENER_FIELD_PORT,
                                      .on_accept  = take_ep,
                                      .port       = ntohs(addr.sin6_port)};
        umx_listener       *listener;
        int                 fd = listen_in_family(families[i], addr.sin6_port);

        assert_int_equal(
            umx_listener_create(p->server_worker, &params, &listener),
            UMX_ERR_BUSY);
        close(fd);
        (void)listen_anywhere(p, params.port, &listener);
        umx_listener_destroy(listener);
    }
    close(reserved);
}

static void
test_an_address_in_use(void **state)
{
    pair                   *p = *state;
    struct sockaddr_storage addr;
    size_t                  len;
    umx_listener           *listener = NULL;

    pair_listen(p);
    len = pair_address(p, &addr);
    assert_int_equal(listen_at(p, &addr, len, &listener), UMX_ERR_BUSY);
    assert_null(listener);
}

static void
test_an_address_of_another_host(void **state)
{
    pair              *p    = *state;
    struct sockaddr_in addr = {.sin_family = AF_INET};
    umx_listener      *listener;

    pair_listen(p);
    addr.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1: nobody's */
    assert_int_equal(listen_at(p, &addr, sizeof(addr), &listener),
                     UMX_ERR_INVALID_ADDR);
}

static void
test_bad_parameters(void **state)
{
    pair               *p      = *state;
    struct sockaddr_in  addr   = {.sin_family = AF_INET};
    struct sockaddr_in6 six    = {.sin6_family = AF_INET6};
    struct sockaddr_un  path   = {.sun_family = AF_UNIX};
    umx_listener_params params = {
        .addr = (void *)&addr, .addr_len = sizeof(addr), .on_accept = NULL};
    umx_listener *listener;

    pair_listen(p);
    assert_int_equal(listen_at(p, &addr, 1, &listener), UMX_ERR_INVALID_PARAM);
    assert_int_equal(listen_at(p, &addr, sizeof(addr) - 1, &listener),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(listen_at(p, &six, sizeof(addr), &listener),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(listen_at(p, &path, sizeof(path), &listener),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_listener_create(p->server_worker, &params, &listener),
                     UMX_ERR_INVALID_PARAM);
    params.on_accept  = take_ep;
    params.field_mask = UMX_LISTENER_FIELD_BACKLOG;
    assert_int_equal(umx_listener_create(p->server_worker, &params, &listener),
                     UMX_ERR_INVALID_PARAM);
}

static void
test_endpoints_outlive_their_listener(void **state)
{
    pair *p = *state;

    pair_open(p);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    pair_settle(p);
}

enum {
    PEERS = 8
};

typedef struct crowd {
    umx_ep *eps[PEERS];
    int     count;
} crowd;

static void
take_one(umx_listener *listener, umx_ep *ep, void *arg)
{
    crowd *c = arg;

    (void)listener;
    assert_true(c->count < PEERS);
    c->eps[c->count++] = ep;
}

static void
test_many_peers_at_once(void **state)
{
    pair                   *p       = *state;
    crowd                   servers = {.count = 0};
    umx_ep                 *clients[PEERS];
    struct sockaddr_storage addr;
    umx_connect_params      params = {.addr = (void *)&addr};

    pair_listen(p);
    umx_listener_set_on_accept(p->listener, take_one, &servers);
    params.addr_len = pair_address(p, &addr);
    for (int i = 0; i < PEERS; i++) {
        assert_int_equal(umx_ep_connect(p->client_worker, &params, &clients[i]),
                         UMX_OK);
    }
    for (uint64_t i = 0; i < PEERS; i++) {
        PAIR_UNTIL(p, umx_ep_get_state(clients[i]) == UMX_EP_OPEN);
        assert_int_equal(
            pair_send(p, clients[i], 0, pair_tag(i), &i, sizeof(i)), UMX_OK);
    }
    PAIR_UNTIL(p, servers.count == PEERS);
    for (int i = 0; i < PEERS; i++) { /* each sender's message, once */
        uint64_t number = PEERS;
        op       o;

        op_recv(&o, servers.eps[i], 0, pair_any, &number, sizeof(number));
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(o.info.tag, number);
        assert_true(number < PEERS);
        umx_ep_destroy(servers.eps[i]);
        assert_int_equal(o.info.seq, 0);
    }
    for (int i = 0; i < PEERS; i++) {
        umx_ep_destroy(clients[i]);
    }
}

/* ---- endpoints that wait to be taken ---------------------------------------
 */

static void
count_ready(umx_listener *listener, void *arg)
{
    unsigned *count = arg;

    (void)listener;
    (*count)++;
}

static void
listen_for_taking(pair *p, unsigned *num_ready)
{
    struct sockaddr_in  addr   = {.sin_family = AF_INET,
                                  .sin_addr   = {htonl(INADDR_LOOPBACK)}};
    umx_listener_params params = {.field_mask = UMX_LISTENER_FIELD_ON_READY,
                                  .addr       = (void *)&addr,
                                  .addr_len   = sizeof(addr),
                                  .on_ready   = count_ready,
                                  .arg        = num_ready};

    pair_workers(p);
    assert_int_equal(
        umx_listener_create(p->server_worker, &params, &p->listener), UMX_OK);
    pair_connect(p, 0);
}

static void
test_an_accepted_endpoint_waits_to_be_taken(void **state)
{
    pair    *p         = *state;
    unsigned num_ready = 0;
    char     byte      = 0;

    listen_for_taking(p, &num_ready);
    assert_null(umx_listener_take(p->listener));
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_OPEN && num_ready != 0);
    assert_int_equal(num_ready, 1);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "h", 1), UMX_OK);
    p->server = umx_listener_take(p->listener);
    assert_non_null(p->server);
    assert_null(umx_listener_take(p->listener));
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 'h');
}

static void
test_what_is_not_taken_is_closed_with_the_listener(void **state)
{
    pair    *p         = *state;
    unsigned num_ready = 0;

    listen_for_taking(p, &num_ready);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_OPEN && num_ready != 0);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    PAIR_UNTIL(p, umx_ep_is_peer_closed(p->client));
}

static void
test_what_is_not_taken_is_closed_with_the_worker(void **state)
{
    pair    *p         = *state;
    unsigned num_ready = 0;

    listen_for_taking(p, &num_ready);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_OPEN && num_ready != 0);
    umx_worker_destroy(p->server_worker);
    assert_null(umx_listener_take(p->listener));
    umx_listener_destroy(p->listener);
    umx_ep_destroy(p->client);
    umx_worker_destroy(p->client_worker);
    umx_context_release(p->context);
    umx_context_release(p->client_context);
    p->client  = NULL;
    p->context = NULL;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_ipv4_and_a_port_of_the_systems_choice),
        PAIR_TEST(test_ipv6),
        PAIR_TEST(test_without_an_address_both_families_have_one_port),
        PAIR_TEST_ONCE(test_without_ipv6_there_is_ipv4),
        PAIR_TEST_ONCE(test_a_port_taken_in_one_family_is_busy),
        PAIR_TEST_ONCE(test_an_address_in_use),
        PAIR_TEST_ONCE(test_an_address_of_another_host),
        PAIR_TEST_ONCE(test_bad_parameters),
        PAIR_TEST(test_endpoints_outlive_their_listener),
        PAIR_TEST(test_many_peers_at_once),
        PAIR_TEST(test_an_accepted_endpoint_waits_to_be_taken),
        PAIR_TEST(test_what_is_not_taken_is_closed_with_the_listener),
        PAIR_TEST(test_what_is_not_taken_is_closed_with_the_worker),
    };

    return UNIT_RUN(tests);
}
