/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: endpoint/silence */
#include "pair.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <umx/layer.h>

/* A pair whose client asks for signs of life. */
static void
open_with_heartbeat(pair *p, umx_config *config)
{
    *config              = p->config;
    config->heartbeat_ns = SECOND_NS / 50;
    p->client_config     = config;
    pair_open(p);
}

static int silent_fd = -1; /* the client's socket, if a read of it fails ... */
static int silent_error;   /* ... with this */

#pragma GCC visibility push(default)

/* Fail as where nothing has come from the peer's system for too long. */
ssize_t
recv(int fd, void *data, size_t len, int flags)
{
    if (fd == silent_fd) {
        errno = silent_error;
        return -1;
    }
    return syscall(SYS_recvfrom, fd, data, len, flags, NULL, NULL);
}

#pragma GCC visibility pop

/* Compare, but for the digits of the seconds. */
static void
expect_text(const umx_ep *ep, const char *expected)
{
    const char *text = umx_ep_reason(ep);

    assert_int_equal(strlen(text), strlen(expected));
    for (size_t i = 0; text[i] != '\0'; i++) {
        assert_true(text[i] == expected[i] ||
                    (expected[i] == '0' && isdigit((unsigned char)text[i])));
    }
}

static void
test_a_silent_peer_is_given_up(void **state)
{
    pair            *p = *state;
    umx_config       config;
    umx_worker_stats stats;
    char             byte;
    op               o;

    open_with_heartbeat(p, &config);
    op_recv(&o, p->client, 0, pair_any, &byte, 1);
    while (!op_is_done(&o)) { /* the server is not progressed */
        assert_true(umx_worker_wait(p->client_worker, SECOND_NS) !=
                    UMX_ERR_IO_ERROR);
    }
    assert_int_equal(o.status, UMX_ERR_ENDPOINT_TIMEOUT);
    assert_int_equal(umx_ep_error(p->client), UMX_ERR_ENDPOINT_TIMEOUT);
    expect_text(p->client, "the peer has been silent for 0.0 s: "
                           "Connection timed out (errno 110)");
    assert_int_equal(umx_ep_errno(p->client), ETIMEDOUT);
    umx_worker_query(p->client_worker, &stats);
    assert_int_equal(stats.missed_heartbeats, 4);
    assert_int_equal(stats.timed_out_operations, 1);
    assert_int_equal(stats.failed_connections, 1);
}

/* What is sent once arrives, if anything does: a peer that does not read is not
 * sent more and more. */
static void
test_a_peer_that_has_not_answered_is_not_asked_again(void **state)
{
    pair *p = *state;
    int   bytes;

    pair_open(p);
    for (int i = 0; i < 3; i++) {
        umx_ep_ask(p->client);
    }
    do {
        assert_int_equal(ioctl(p->server->socket.watch.fd, FIONREAD, &bytes),
                         0);
    } while (bytes == 0);
    assert_int_equal(bytes, 1);
    for (unsigned i = 1; i <= 2; i++) {
        PAIR_UNTIL(p, umx_ep_count_signs(p->client) >= i);
        assert_false(p->client->socket.is_asked);
        umx_ep_ask(p->client);
        assert_true(p->client->socket.is_asked);
    }
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

/* The kernel ends the connection, and says what it has found. */
static void
lose_host(pair *p, int error)
{
    umx_ep_ask(p->server); /* there is something to read */
    silent_fd    = p->client->socket.watch.fd;
    silent_error = error;
    while (umx_ep_get_state(p->client) != UMX_EP_FAILED) {
        assert_true(umx_worker_wait(p->client_worker, SECOND_NS) !=
                    UMX_ERR_IO_ERROR);
    }
    silent_fd = -1;
    assert_int_equal(umx_ep_error(p->client), UMX_ERR_ENDPOINT_TIMEOUT);
    assert_int_equal(umx_ep_errno(p->client), error);
}

static void
test_a_silent_host_is_given_up(void **state)
{
    pair *p = *state;
    char  byte;
    op    o;

    pair_open(p);
    op_recv(&o, p->client, 0, pair_any, &byte, 1);
    lose_host(p, EHOSTUNREACH);
    assert_true(op_is_done(&o));
    assert_int_equal(o.status, UMX_ERR_ENDPOINT_TIMEOUT);
    expect_text(p->client, "the host of the peer has been silent for 00.0 s: "
                           "No route to host (errno 113)");
}

static void
test_a_close_does_not_wait_for_a_silent_host(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    pair_settle(p);
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    lose_host(p, ETIMEDOUT);
    assert_true(op_is_done(&o));
    assert_int_equal(o.status, UMX_ERR_ENDPOINT_TIMEOUT);
    expect_text(p->client, "the host of the peer has been silent for 00.0 s: "
                           "Connection timed out (errno 110)");
}

/* Another end is none of silence. */
static void
test_a_reset_is_no_silence(void **state)
{
    pair *p = *state;

    pair_open(p);
    umx_ep_abort(p->server);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->client), UMX_ERR_CONNECTION_RESET);
    assert_string_equal(umx_ep_reason(p->client), "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_silent_peer_is_given_up),
        PAIR_TEST(test_a_peer_that_has_not_answered_is_not_asked_again),
        PAIR_TEST(test_a_peer_that_answers_is_kept),
        PAIR_TEST(test_a_peer_that_sends_is_not_asked),
        PAIR_TEST(test_a_silent_host_is_given_up),
        PAIR_TEST(test_a_close_does_not_wait_for_a_silent_host),
        PAIR_TEST_ONCE(test_a_reset_is_no_silence),
    };

    return UNIT_RUN(tests);
}
