/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: host/watch */
#include "pair.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "host/watch.h"

static umx_request *
post_recv(pair *p, const umx_op_params *params, char *byte)
{
    umx_buffer    buffer = umx_host_buffer(byte, 1);
    umx_request  *req    = NULL;
    umx_recv_info info;

    assert_int_equal(
        umx_channel_recv(p->server, 0, &pair_any, &buffer, params, &req, &info),
        UMX_INPROGRESS);
    return req;
}

static void
test_waiting_for_a_request_without_callback(void **state)
{
    pair        *p    = *state;
    char         byte = 0;
    umx_request *req;

    pair_open(p);
    req = post_recv(p, NULL, &byte);
    assert_int_equal(umx_request_status(req), UMX_INPROGRESS);
    assert_int_equal(umx_request_wait(req, 0), UMX_ERR_TIMED_OUT);
    assert_int_equal(umx_request_wait(req, 1000000), UMX_ERR_TIMED_OUT);
    assert_int_equal(umx_request_status(req), UMX_INPROGRESS);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(4), "w", 1), UMX_OK);
    assert_int_equal(umx_request_wait(req, UMX_TIMEOUT_INFINITE), UMX_OK);
    assert_int_equal(umx_request_wait(req, 0), UMX_OK);
    assert_int_equal(umx_request_status(req), UMX_OK);
    assert_int_equal(umx_request_info(req)->tag, 4);
    assert_int_equal(umx_request_info(req)->length, 1);
    assert_int_equal(byte, 'w');
    umx_request_cancel(req); /* too late, and harmless */
    assert_int_equal(umx_request_status(req), UMX_OK);
    umx_request_release(req);
}

/* What a program has in hand after a post that was done at once, or failed. */
static void
test_no_request_is_an_error_and_no_crash(void **state)
{
    umx_request *req = NULL;

    (void)state;
    assert_int_equal(umx_request_wait(req, 0), UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_request_wait(req, UMX_TIMEOUT_INFINITE),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_request_status(req), UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_request_cancel(req), UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_request_abandon(req), UMX_ERR_INVALID_PARAM);
    assert_null(umx_request_info(req));
    assert_null(umx_request_message(req));
    assert_null(umx_request_tag_message(req));
    assert_int_equal(umx_request_time_ns(req), 0);
    umx_request_release(req);
}

static void
test_a_post_that_does_not_stay_posted_leaves_the_pointer(void **state)
{
    pair           *p      = *state;
    umx_buffer      buffer = umx_host_buffer("x", 1);
    umx_request    *req    = NULL;
    const umx_match match  = pair_tag(1);

    pair_open(p);
    /* Until the first message has arrived UCX may queue others behind it. */
    assert_int_equal(pair_send(p, p->client, 0, match, "x", 1), UMX_OK);
    pair_settle(p);
    assert_int_equal(
        umx_channel_send(p->client, 0, &match, &buffer, NULL, &req), UMX_OK);
    assert_null(req);
    umx_ep_abort(p->client);
    assert_int_equal(
        umx_channel_send(p->client, 0, &match, &buffer, NULL, &req),
        UMX_ERR_CLOSED);
    assert_null(req);
    assert_int_equal(umx_request_wait(req, 0), UMX_ERR_INVALID_PARAM);
}

static void
leave_it(umi_watch *watch, uint32_t events)
{
    (void)watch;
    (void)events;
}

/* The worker has always something to do, and it is not the request's. */
static void
test_a_wait_ends_in_time_where_there_is_always_something(void **state)
{
    pair        *p     = *state;
    umi_watch    watch = {.fd = -1};
    int          fd    = eventfd(1, 0);
    char         byte  = 0;
    umx_request *req;

    assert_true(fd >= 0);
    pair_open(p);
    assert_int_equal(umi_watch_start(&p->server_worker->watches, &watch, fd,
                                     EPOLLIN, leave_it),
                     UMX_OK);
    req = post_recv(p, NULL, &byte);
    assert_int_equal(umx_request_wait(req, 0), UMX_ERR_TIMED_OUT);
    assert_int_equal(umx_request_wait(req, 1000000), UMX_ERR_TIMED_OUT);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(4), "w", 1), UMX_OK);
    assert_int_equal(umx_request_wait(req, UMX_TIMEOUT_INFINITE), UMX_OK);
    umx_request_release(req);
    umi_watch_stop(&p->server_worker->watches, &watch);
    close(fd);
}

static void
count_call(umx_request *req, umx_status status, void *arg)
{
    int *calls = arg;

    assert_int_equal(umx_request_status(req), status);
    ++*calls;
}

static void
test_a_kept_request_lives_until_it_is_released(void **state)
{
    pair            *p      = *state;
    int              calls  = 0;
    char             byte   = 0;
    umx_op_params    params = {.field_mask = UMX_OP_FIELD_ON_DONE |
                                             UMX_OP_FIELD_FLAGS,
                               .on_done = count_call,
                               .arg     = &calls,
                               .flags   = UMX_OP_FLAG_KEEP};
    umx_worker_stats stats;
    umx_request     *req;

    pair_open(p);
    req = post_recv(p, &params, &byte);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(4), "w", 1), UMX_OK);
    assert_int_equal(umx_request_wait(req, UMX_TIMEOUT_INFINITE), UMX_OK);
    assert_int_equal(calls, 1);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.requests_in_use, 1);
    umx_request_release(req);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.requests_in_use, 0);
}

/* A released request, and so its endpoint, may outlive the endpoint's owner. */
static void
test_a_kept_request_holds_its_endpoint(void **state)
{
    pair        *p    = *state;
    char         byte = 0;
    umx_request *req;

    pair_open(p);
    req = post_recv(p, NULL, &byte);
    umx_ep_abort(p->server);
    umx_ep_destroy(p->server);
    p->server = NULL;
    assert_int_equal(umx_request_wait(req, UMX_TIMEOUT_INFINITE),
                     UMX_ERR_CANCELED);
    umx_request_release(req);
}

static void
test_flags_without_their_bit_do_not_count(void **state)
{
    pair            *p      = *state;
    int              calls  = 0;
    char             byte   = 0;
    umx_op_params    params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                               .on_done    = count_call,
                               .arg        = &calls,
                               .flags      = UMX_OP_FLAG_KEEP};
    umx_worker_stats stats;

    pair_open(p);
    (void)post_recv(p, &params, &byte);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(4), "w", 1), UMX_OK);
    PAIR_UNTIL(p, calls == 1);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.requests_in_use, 0);
}

/* A callback may post: the next receive, an answer. */
typedef struct echo {
    umx_ep *ep;
    int     left;
    char    byte;
    /* UMX_OK, or how the first of the calls ended that did not go well */
    umx_status status;
} echo;

static void post_echo(echo *e);

static void
on_echo(umx_request *req, umx_status status, void *arg)
{
    echo        *e      = arg;
    umx_buffer   buffer = umx_host_buffer(&e->byte, 1);
    umx_request *send;

    (void)req;
    if (status == UMX_OK) {
        status = umx_channel_send(e->ep, 0, &pair_untagged, &buffer, NULL,
                                  &send);
    }
    if (status != UMX_OK) {
        e->status = status;
    } else if (--e->left > 0) {
        post_echo(e);
    }
}

static void
post_echo(echo *e)
{
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = on_echo, .arg = e};
    umx_buffer    buffer = umx_host_buffer(&e->byte, 1);
    umx_request  *req;
    umx_recv_info info;
    umx_status status = umx_channel_recv(e->ep, 0, &pair_any, &buffer, &params,
                                         &req, &info);

    e->status = (status == UMX_INPROGRESS) ? UMX_OK : status;
}

static void
test_callbacks_may_post(void **state)
{
    pair *p = *state;
    echo  e = {.left = 50};

    pair_open(p);
    e.ep = p->server;
    post_echo(&e);
    for (char i = 0; i < 50; i++) {
        char back = 0;

        assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), &i, 1),
                         UMX_OK);
        assert_int_equal(pair_recv(p, p->client, 0, pair_any, &back, 1),
                         UMX_OK);
        assert_int_equal(back, i);
        assert_int_equal(e.status, UMX_OK);
    }
    assert_int_equal(e.left, 0);
}

static umx_status destroyed_on;

static void
destroy_in_callback(umx_request *req, umx_status status, void *arg)
{
    pair *p = arg;

    (void)req;
    destroyed_on = status;
    if (status != UMX_OK) {
        return; /* the endpoint is being ended by the one who destroys it */
    }
    umx_ep_abort(p->server);
    umx_ep_destroy(p->server);
    p->server = NULL;
}

static void
test_callbacks_may_destroy_their_endpoint(void **state)
{
    pair         *p = *state;
    char          bytes[2];
    umx_op_params params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                            .on_done    = destroy_in_callback,
                            .arg        = p};
    op            other;

    pair_open(p);
    (void)post_recv(p, &params, &bytes[0]);
    op_recv(&other, p->server, 0, pair_any, &bytes[1], 1);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(4), "w", 1), UMX_OK);
    assert_int_equal(op_wait(p, &other), UMX_ERR_CANCELED);
    assert_null(p->server);
    assert_int_equal(destroyed_on, UMX_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_waiting_for_a_request_without_callback),
        cmocka_unit_test(test_no_request_is_an_error_and_no_crash),
        PAIR_TEST_ONCE(
            test_a_post_that_does_not_stay_posted_leaves_the_pointer),
        PAIR_TEST_ONCE(
            test_a_wait_ends_in_time_where_there_is_always_something),
        PAIR_TEST_ONCE(test_a_kept_request_lives_until_it_is_released),
        PAIR_TEST_ONCE(test_a_kept_request_holds_its_endpoint),
        PAIR_TEST_ONCE(test_flags_without_their_bit_do_not_count),
        PAIR_TEST(test_callbacks_may_post),
        PAIR_TEST_ONCE(test_callbacks_may_destroy_their_endpoint),
    };

    return UNIT_RUN(tests);
}
