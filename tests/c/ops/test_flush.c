/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
#include "pair.h"

#include <stdlib.h>

#include "util/clock.h"

enum {
    LEN = 100 * 1024,
    MIB = 1024 * 1024
};

static void
post_flush(op *o, pair *p, bool is_worker)
{
    umx_op_params params = op_params(o);

    o->status = is_worker ?
                    umx_worker_flush(p->client_worker, &params, &o->req) :
                    umx_ep_flush(p->client, &params, &o->req);
    if (o->status != UMX_INPROGRESS) {
        o->req = NULL;
    }
}

static void
check_flush(pair *p, bool is_worker)
{
    char *out = malloc(LEN), *in = malloc(LEN);
    op    sends[10], flush_op;

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, LEN, 1);
    post_flush(&flush_op, p, is_worker); /* nothing to flush */
    assert_int_equal(op_wait(p, &flush_op), UMX_OK);
    for (int i = 0; i < 10; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), out, LEN);
    }
    post_flush(&flush_op, p, is_worker);
    assert_int_equal(op_wait(p, &flush_op), UMX_OK);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, LEN), UMX_OK);
        check_pattern(in, LEN, 1);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    free(in);
    free(out);
}

static void
test_flushing_an_endpoint(void **state)
{
    pair_open(*state);
    check_flush(*state, false);
}

static void
test_flushing_a_worker(void **state)
{
    pair_open(*state);
    check_flush(*state, true);
}

static void
test_flushing_what_is_closed(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    umx_ep_abort(p->client);
    post_flush(&o, p, false);
    assert_int_equal(o.status, UMX_ERR_CLOSED);
}

/* ---- messages without credit ---------------------------------------------
 */

enum {
    WAITING = 60 /* more than go by credit, announcements and the reserve */
};

/* Send more than the server allows before it reads. */
static void
send_beyond_credit(pair *p, op *sends)
{
    p->config.credit_messages = 8;
    p->config.credit_rndv     = 2;
    pair_open(p);
    for (int i = 0; i < WAITING; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), "abc", 3);
        assert_true(sends[i].status >= 0);
    }
    pair_settle(p);
    assert_false(op_is_done(&sends[WAITING - 1]));
}

static void
read_messages(pair *p, int n)
{
    char in[3];

    for (int i = 0; i < n; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, 3), UMX_OK);
    }
}

static void
check_without_credit(pair *p, bool is_worker)
{
    op sends[WAITING], later[WAITING], flush_op;

    send_beyond_credit(p, sends);
    post_flush(&flush_op, p, is_worker);
    assert_int_equal(flush_op.status, UMX_INPROGRESS);
    for (int i = 0; i < WAITING; i++) { /* not covered */
        op_send(&later[i], p->client, 0, pair_tag(1), "abc", 3);
    }
    pair_settle(p);
    assert_false(op_is_done(&flush_op));
    read_messages(p, WAITING);
    assert_int_equal(op_wait(p, &flush_op), UMX_OK);
    assert_false(op_is_done(&later[WAITING - 1]));
    read_messages(p, WAITING);
    for (int i = 0; i < WAITING; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
        assert_int_equal(op_wait(p, &later[i]), UMX_OK);
    }
}

static void
test_flushing_an_endpoint_without_credit(void **state)
{
    check_without_credit(*state, false);
}

static void
test_flushing_a_worker_without_credit(void **state)
{
    check_without_credit(*state, true);
}

/* Those that wait in front of it are cancelled. */
static void
test_a_flush_does_not_wait_for_what_is_cancelled(void **state)
{
    pair *p = *state;
    op    sends[WAITING], flush_op;

    send_beyond_credit(p, sends);
    post_flush(&flush_op, p, false);
    for (int i = 0; i < WAITING; i++) {
        if (!op_is_done(&sends[i])) {
            op_cancel(sends[i].req);
        }
    }
    assert_int_equal(op_wait(p, &flush_op), UMX_OK);
    for (int i = 0; i < WAITING; i++) {
        umx_status status = op_wait(p, &sends[i]);

        assert_true(status == UMX_OK || status == UMX_ERR_CANCELED);
    }
}

static void
test_a_flush_of_what_never_goes_ends_with_the_endpoint(void **state)
{
    pair *p = *state;
    op    sends[WAITING], flush_op, worker_op;

    send_beyond_credit(p, sends);
    post_flush(&flush_op, p, false);
    post_flush(&worker_op, p, true);
    umx_ep_abort(p->client);
    assert_true(op_wait(p, &flush_op) < 0);
    assert_int_equal(op_wait(p, &worker_op), UMX_OK);
    for (int i = 0; i < WAITING; i++) {
        (void)op_wait(p, &sends[i]);
    }
}

static void
test_a_flush_may_be_cancelled_while_messages_wait(void **state)
{
    pair *p = *state;
    op    sends[WAITING], flush_op;

    send_beyond_credit(p, sends);
    post_flush(&flush_op, p, false);
    op_cancel(flush_op.req);
    assert_int_equal(op_wait(p, &flush_op), UMX_ERR_CANCELED);
    read_messages(p, WAITING);
    for (int i = 0; i < WAITING; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

/* A flush of operations on memory has nothing to do with messages. */
static void
test_a_flush_of_memory_does_not_wait_for_messages(void **state)
{
    pair         *p = *state;
    op            sends[WAITING], flush_op;
    umx_op_params params = op_params(&flush_op);

    send_beyond_credit(p, sends);
    params.field_mask |= UMX_OP_FIELD_FLAGS;
    params.flags    = UMX_OP_FLAG_MEMORY;
    flush_op.status = umx_ep_flush(p->client, &params, &flush_op.req);
    assert_true(flush_op.status >= 0);
    if (flush_op.status == UMX_INPROGRESS) {
        assert_int_equal(op_wait(p, &flush_op), UMX_OK);
    }
    assert_false(op_is_done(&sends[WAITING - 1]));
    read_messages(p, WAITING);
    for (int i = 0; i < WAITING; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

/* A second endpoint to the same worker, which UCX's endpoint is shared with. */
static void
open_another(pair *p, umx_ep **client_p, umx_ep **server_p)
{
    *client_p = p->client;
    *server_p = p->server;
    p->server = NULL;
    pair_connect(p, 0);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
    assert_ptr_equal(umx_ep_handle(p->client), umx_ep_handle(*client_p));
}

/* Nobody takes anything meanwhile. */
static void
progress_alone(umx_worker *worker, uint64_t time_ns)
{
    uint64_t now, end = umi_clock_ns() + time_ns;

    while ((now = umi_clock_ns()) < end) {
        (void)!umx_worker_wait(worker, end - now);
    }
}

static void
check_shared(pair *p, bool is_first)
{
    umx_ep *client, *server;
    char   *out = malloc(MIB), *in = malloc(MIB);
    op      send, flush_op;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    open_another(p, &client, &server);
    fill_pattern(out, MIB, 1);
    op_send(&send, is_first ? p->client : client, 0, pair_tag(1), out, MIB);
    post_flush(&flush_op, p, true);
    assert_int_equal(flush_op.status, UMX_INPROGRESS);
    umx_ep_abort(is_first ? client : p->client);
    progress_alone(p->client_worker, 3 * SECOND_NS / 2);
    assert_false(op_is_done(&flush_op));
    assert_int_equal(
        pair_recv(p, is_first ? p->server : server, 0, pair_any, in, MIB),
        UMX_OK);
    check_pattern(in, MIB, 1);
    assert_int_equal(op_wait(p, &flush_op), UMX_OK);
    assert_int_equal(op_wait(p, &send), UMX_OK);
    umx_ep_destroy(client);
    umx_ep_destroy(server);
    free(in);
    free(out);
}

static void
test_a_flush_outlives_the_first_endpoint_to_a_peer(void **state)
{
    check_shared(*state, true);
}

static void
test_a_flush_outlives_the_second_endpoint_to_a_peer(void **state)
{
    check_shared(*state, false);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_flushing_an_endpoint),
        PAIR_TEST(test_flushing_a_worker),
        PAIR_TEST_ONCE(test_flushing_what_is_closed),
        PAIR_TEST(test_flushing_an_endpoint_without_credit),
        PAIR_TEST(test_flushing_a_worker_without_credit),
        PAIR_TEST_ONCE(test_a_flush_does_not_wait_for_what_is_cancelled),
        PAIR_TEST_ONCE(test_a_flush_of_what_never_goes_ends_with_the_endpoint),
        PAIR_TEST_ONCE(test_a_flush_may_be_cancelled_while_messages_wait),
        PAIR_TEST(test_a_flush_of_memory_does_not_wait_for_messages),
        PAIR_TEST(test_a_flush_outlives_the_first_endpoint_to_a_peer),
        PAIR_TEST(test_a_flush_outlives_the_second_endpoint_to_a_peer),
    };

    return UNIT_RUN(tests);
}
