/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: channel/relieve channel/land channel/withdraw */
/* A buffer is its owner's when umx_request_cancel() has returned UMX_OK: each
 * test overwrites it in that moment, and the peer gets the message whole, or
 * never sees it. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "worker/request.h"

enum {
    MIB  = 1024 * 1024,
    SIZE = 8 * MIB,
    FEW  = 200 /* bytes that UCX sends from its caller's memory */
};

static char *out, *in;

static int
setup(void **state)
{
    out = malloc(SIZE);
    in  = malloc(SIZE);
    return (out == NULL || in == NULL) ? -1 : pair_setup(state);
}

static int
teardown(void **state)
{
    int failed = pair_teardown(state);

    free(in);
    free(out);
    return failed;
}

/* Cancel, and use the buffer for something else. The worker does not look first
 * at what has come, as it does after a while: the peer may have asked for the
 * bytes. */
static void
cancel(op *o, void *data, size_t len)
{
    assert_non_null(o->req);
    o->req->worker->looked = umi_ticks();
    assert_int_equal(umx_request_cancel(o->req), UMX_OK);
    memset(data, '!', len);
}

static void
check_poison(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(data[i], '!');
    }
}

/* An announced send of `len` bytes, of which the peer has asked for none. */
static void
announce(pair *p, op *o, uint64_t tag, size_t len)
{
    fill_pattern(out, len, (unsigned)tag);
    op_send(o, p->client, 0, pair_tag(tag), out, len);
    assert_int_equal(o->status, UMX_INPROGRESS);
    pair_settle(p);
}

static size_t
copied(const pair *p)
{
    return p->client_worker->copied_bytes + p->server_worker->copied_bytes;
}

/* ---- sends ---------------------------------------------------------------
 */

static void
test_an_announced_send_is_withdrawn(void **state)
{
    pair         *p = *state;
    umx_recv_info info;
    umx_match     any = pair_any;
    op            o, behind;

    pair_open(p);
    announce(p, &o, 1, SIZE);
    assert_int_equal(umx_channel_probe(p->server, 0, &any, &info), UMX_OK);
    cancel(&o, out, SIZE);
    assert_int_equal(copied(p), 0);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, umx_channel_probe(p->server, 0, &any, &info) ==
                      UMX_ERR_NO_MESSAGE);
    assert_int_equal(p->server->num_announced, 0);
    op_recv(&behind, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(behind.status, UMX_INPROGRESS);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(2), "b", 1), UMX_OK);
    assert_int_equal(op_wait(p, &behind), UMX_OK);
    assert_int_equal(behind.info.tag, 2);
    PAIR_UNTIL(p, umi_list_is_empty(&p->client->base.inflight));
}

/* A thousand times: what is withdrawn uses up no credit. */
static void
test_withdrawn_sends_cost_nothing(void **state)
{
    pair *p = *state;
    op    o;

    p->config.credit_rndv = 16;
    pair_open(p);
    for (int i = 0; i < 100; i++) {
        fill_pattern(out, MIB, 1);
        op_send(&o, p->client, 0, pair_tag(1), out, MIB);
        cancel(&o, out, MIB);
        assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    }
    pair_settle(p);
    assert_int_equal(umi_channels_of(p->server)->rx_kept.rndv, 0);
    announce(p, &o, 2, MIB);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, MIB), UMX_OK);
    check_pattern(in, MIB, 2);
    assert_int_equal(op_wait(p, &o), UMX_OK);
}

/* The request for the bytes and the WITHDRAW cross: the receive waits again,
 * in front of one that was posted later. */
static void
test_a_receive_whose_message_is_withdrawn_waits_again(void **state)
{
    pair *p = *state;
    op    o, first, second;
    char  bytes[2];

    pair_open(p);
    announce(p, &o, 1, MIB);
    memset(in, '!', MIB);
    op_recv(&first, p->server, 0, pair_any, in, MIB); /* asks for them */
    assert_int_equal(first.status, UMX_INPROGRESS);
    assert_int_equal(p->server->num_landing, 1);
    op_recv(&second, p->server, 0, pair_any, &bytes[1], 1);
    cancel(&o, out, MIB);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, p->server->num_landing == 0);
    assert_int_equal(first.calls, 0);
    assert_int_equal(umx_ep_recv_count(p->server), 0);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(2), "a", 1), UMX_OK);
    assert_int_equal(op_wait(p, &first), UMX_OK);
    assert_int_equal(first.info.tag, 2);
    assert_int_equal(in[0], 'a');
    check_poison(&in[1], MIB - 1);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(3), "b", 1), UMX_OK);
    assert_int_equal(op_wait(p, &second), UMX_OK);
    assert_int_equal(bytes[1], 'b');
}

/* The message behind the withdrawn one does not fit the receive that waits
 * again. */
static void
test_a_receive_that_waits_again_meets_a_message_that_does_not_fit(void **state)
{
    const umx_match exact = {.flags = UMX_MATCH_ANY | UMX_MATCH_EXACT};
    pair           *p     = *state;
    op              o, first;
    char            byte = 0;

    pair_open(p);
    announce(p, &o, 1, MIB);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(2), "a", 1), UMX_OK);
    pair_settle(p);
    memset(in, '!', MIB);
    op_recv(&first, p->server, 0, exact, in, MIB); /* asks for the bytes */
    assert_int_equal(p->server->num_landing, 1);
    cancel(&o, out, MIB);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &first), UMX_ERR_LENGTH_MISMATCH);
    assert_int_equal(first.info.length, 1);
    check_poison(in, MIB);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 'a');
}

static void
test_a_message_in_hand_is_withdrawn(void **state)
{
    pair *p = *state;
    op    o, taken, recv_op;

    pair_open(p);
    announce(p, &o, 1, MIB);
    op_recv_message(&taken, p->server, 0, pair_any);
    assert_int_equal(op_wait(p, &taken), UMX_OK);
    cancel(&o, out, MIB);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, umx_message_is_withdrawn(taken.message));
    assert_null(umx_message_data(taken.message));
    op_message_recv(&recv_op, taken.message, in, MIB);
    assert_int_equal(recv_op.status, UMX_ERR_WITHDRAWN);
    assert_null(recv_op.message);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
}

static void
test_a_message_that_lands_from_hand_is_withdrawn(void **state)
{
    pair *p = *state;
    op    o, taken, recv_op;

    pair_open(p);
    announce(p, &o, 1, MIB);
    op_recv_message(&taken, p->server, 0, pair_any);
    assert_int_equal(op_wait(p, &taken), UMX_OK);
    op_message_recv(&recv_op, taken.message, in, MIB);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    cancel(&o, out, MIB);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_WITHDRAWN);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
}

static void
test_a_withdrawn_message_that_is_returned_is_gone(void **state)
{
    pair         *p = *state;
    umx_recv_info info;
    umx_match     any = pair_any;
    op            o, taken;

    pair_open(p);
    announce(p, &o, 1, MIB);
    op_recv_message(&taken, p->server, 0, pair_any);
    assert_int_equal(op_wait(p, &taken), UMX_OK);
    cancel(&o, out, MIB);
    PAIR_UNTIL(p, umx_message_is_withdrawn(taken.message));
    umx_message_return(taken.message);
    assert_int_equal(umx_channel_probe(p->server, 0, &any, &info),
                     UMX_ERR_NO_MESSAGE);
}

/* The bytes have begun to go. */
static void
test_a_send_that_has_begun_arrives_whole(void **state)
{
    pair *p = *state;
    op    o, recv_op;

    pair_open(p);
    announce(p, &o, 1, SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    PAIR_UNTIL(p, o.req == NULL || o.req->moved != 0);
    if (o.req != NULL) {
        cancel(&o, out, SIZE);
        assert_int_equal(copied(p), SIZE);
    }
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, SIZE, 1);
    (void)op_wait(p, &o);
    PAIR_UNTIL(p, copied(p) == 0);
}

/* Short sends that wait in UCX, as its queue is full. */
static void
test_sends_that_ucx_has_queued_arrive_whole(void **state)
{
    enum {
        MAX = 2000
    };
    static char bytes[MAX][FEW];
    static op   ops[MAX];
    pair       *p          = *state;
    int         num_queued = 0, num = 0;

    pair_open(p);
    pair_settle(p);
    for (; num < MAX && num_queued < 64; num++) {
        fill_pattern(bytes[num], FEW, (unsigned)num);
        op_send(&ops[num], p->client, 0, pair_tag((uint64_t)num), bytes[num],
                (size_t)(num % FEW) + 1);
        num_queued += (ops[num].status == UMX_INPROGRESS);
    }
    for (int i = 0; i < num; i++) {
        if (ops[i].req != NULL) {
            cancel(&ops[i], bytes[i], FEW);
        }
    }
    for (int i = 0; i < num; i++) {
        size_t len = (size_t)(i % FEW) + 1;

        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, len), UMX_OK);
        check_pattern(in, len, (unsigned)i);
        (void)op_wait(p, &ops[i]);
    }
}

static void
test_a_copy_beyond_the_limit_is_deferred(void **state)
{
    pair *p = *state;
    op    o, recv_op;

    p->config.cancel_bytes = MIB;
    pair_open(p);
    announce(p, &o, 1, SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    PAIR_UNTIL(p, o.req == NULL || o.req->moved != 0);
    if (o.req != NULL) {
        assert_int_equal(umx_request_cancel(o.req), UMX_INPROGRESS);
        assert_int_equal(umx_request_cancel(o.req), UMX_INPROGRESS);
        assert_int_equal(copied(p), 0);
    }
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, SIZE, 1);
    assert_int_equal(op_wait(p, &o), UMX_OK);
}

/* Who cannot wait gets the copy, whatever the limit is. */
static void
test_an_abandoned_send_is_never_deferred(void **state)
{
    pair *p = *state;
    op    o, recv_op;

    p->config.cancel_bytes = 0;
    pair_open(p);
    announce(p, &o, 1, SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    PAIR_UNTIL(p, o.req == NULL || o.req->moved != 0);
    if (o.req != NULL) {
        assert_int_equal(umx_request_cancel(o.req), UMX_INPROGRESS);
        assert_int_equal(umx_request_abandon(o.req), UMX_OK);
        memset(out, '!', SIZE);
    }
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, SIZE, 1);
    (void)op_wait(p, &o);
}

static void
test_a_kept_request_is_released_before_its_operation_ends(void **state)
{
    pair         *p      = *state;
    umx_match     match  = pair_tag(1);
    umx_buffer    buffer = umx_host_buffer(out, MIB);
    umx_op_params params = {.field_mask = UMX_OP_FIELD_FLAGS,
                            .flags      = UMX_OP_FLAG_KEEP};
    umx_request  *req;

    pair_open(p);
    fill_pattern(out, MIB, 1);
    assert_int_equal(
        umx_channel_send(p->client, 0, &match, &buffer, &params, &req),
        UMX_INPROGRESS);
    assert_int_equal(umx_request_cancel(req), UMX_OK);
    assert_int_equal(umx_request_wait(req, SECOND_NS), UMX_ERR_CANCELED);
    assert_int_equal(umx_request_status(req), UMX_ERR_CANCELED);
    umx_request_release(req);
    PAIR_UNTIL(p, umi_list_is_empty(&p->client->base.inflight));
}

/* ---- receives ------------------------------------------------------------
 */

static void
test_a_landing_receive_gives_its_message_back(void **state)
{
    pair *p     = *state;
    char *again = malloc(SIZE);
    op    o, first, second;

    assert_non_null(again);
    pair_open(p);
    announce(p, &o, 1, SIZE);
    op_recv(&first, p->server, 0, pair_any, in, SIZE);
    PAIR_UNTIL(p, first.req == NULL || first.req->moved != 0);
    if (first.req != NULL) {
        cancel(&first, in, SIZE);
        op_recv(&second, p->server, 0, pair_any, again, SIZE);
        assert_int_equal(op_wait(p, &second), UMX_OK);
        check_pattern(again, SIZE, 1);
        assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
        check_poison(in, SIZE);
    }
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(copied(p), 0);
    free(again);
}

/* Complete, and not reported yet. */
static void
test_a_landed_receive_gives_its_message_back(void **state)
{
    pair *p = *state;
    op    o, first;

    pair_open(p);
    announce(p, &o, 1, MIB);
    op_recv(&first, p->server, 0, pair_any, in, MIB);
    while (first.req->status == UMX_INPROGRESS) {
        (void)umi_worker_progress(p->server_worker);
        (void)umx_worker_poll(p->client_worker);
    }
    cancel(&first, in, MIB);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    check_poison(in, MIB);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, MIB), UMX_OK);
    check_pattern(in, MIB, 1);
    (void)op_wait(p, &o);
}

static void
test_both_sides_cancel(void **state)
{
    pair         *p = *state;
    umx_recv_info info;
    umx_match     any = pair_any;
    op            o, first;

    pair_open(p);
    announce(p, &o, 1, SIZE); /* more than the sockets take */
    op_recv(&first, p->server, 0, pair_any, in, SIZE);
    cancel(&o, out, SIZE);
    cancel(&first, in, SIZE);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, p->server->num_landing == 0);
    pair_settle(p);
    check_poison(in, SIZE);
    assert_int_equal(umx_channel_probe(p->server, 0, &any, &info),
                     UMX_ERR_NO_MESSAGE);
    assert_int_equal(copied(p), 0);
}

/* ---- ends ----------------------------------------------------------------
 */

static void
test_a_close_waits_for_what_is_sent_from_a_copy(void **state)
{
    pair *p = *state;
    op    o, recv_op, close_op;

    pair_open(p);
    announce(p, &o, 1, SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    PAIR_UNTIL(p, o.req == NULL || o.req->moved != 0);
    if (o.req != NULL) {
        cancel(&o, out, SIZE);
    }
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, SIZE, 1);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
}

static void
test_workers_may_end_while_copies_are_sent_and_land(void **state)
{
    pair *p = *state;
    op    o, recv_op;

    pair_open(p);
    announce(p, &o, 1, SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    PAIR_UNTIL(p, o.req == NULL || o.req->moved != 0);
    if (o.req != NULL && recv_op.req != NULL) {
        cancel(&o, out, SIZE);
        cancel(&recv_op, in, SIZE);
    }
    umx_listener_destroy(p->listener);
    umx_worker_destroy(p->client_worker);
    umx_worker_destroy(p->server_worker);
    assert_true(o.req == NULL && recv_op.req == NULL);
    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    umx_context_release(p->context);
    umx_context_release(p->client_context);
    p->client  = NULL;
    p->server  = NULL;
    p->context = NULL;
}

static void
test_an_abort_ends_what_is_sent_from_a_copy(void **state)
{
    pair *p = *state;
    op    o, recv_op;

    pair_open(p);
    announce(p, &o, 1, SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    PAIR_UNTIL(p, o.req == NULL || o.req->moved != 0);
    if (o.req != NULL && recv_op.req != NULL) {
        cancel(&o, out, SIZE);
        cancel(&recv_op, in, SIZE);
    }
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    (void)op_wait(p, &o);
    (void)op_wait(p, &recv_op);
}

/* ---- peers that lie ------------------------------------------------------
 */

static void
withdraw(pair *p, uint32_t channel, uint32_t seq)
{
    umi_control control = {
        .kind       = UMI_WITHDRAW,
        .u.withdraw = {.channel = channel, .seq = seq},
    };

    (void)pair_feed_control(p->server, &control);
    (void)umx_worker_poll(p->server_worker);
}

static void
test_what_was_read_or_is_here_is_not_withdrawn(void **state)
{
    pair *p = *state;
    char  byte;

    pair_open(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(2), "b", 1), UMX_OK);
    pair_settle(p);
    withdraw(p, UMI_CHANNEL_0, 0);
    withdraw(p, UMI_CHANNEL_0, 1);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 'b');
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
}

/* The WITHDRAW has overtaken its message. */
static void
test_a_message_is_withdrawn_before_it_comes(void **state)
{
    pair         *p = *state;
    umx_recv_info info;
    umx_match     any = pair_any;
    op            o;

    pair_open(p);
    withdraw(p, UMI_CHANNEL_0, 0);
    fill_pattern(out, MIB, 1);
    op_send(&o, p->client, 0, pair_tag(1), out, MIB);
    assert_int_equal(op_wait(p, &o), UMX_OK); /* dropped */
    assert_int_equal(umx_channel_probe(p->server, 0, &any, &info),
                     UMX_ERR_NO_MESSAGE);
    assert_int_equal(umi_channels_of(p->server)->num_withdrawn, 0);
}

static void
test_more_than_was_announced_cannot_be_withdrawn(void **state)
{
    pair    *p = *state;
    uint32_t i = 0;

    p->config.credit_rndv = 16;
    pair_open(p);
    while (umx_ep_get_state(p->server) == UMX_EP_OPEN && i < 1000) {
        withdraw(p, UMI_CHANNEL_0, 100 + i++);
    }
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
    assert_string_equal(umx_ep_reason(p->server),
                        "messages withdrawn that are none");
    assert_in_range(i, 16, 100);
}

static void
test_a_streams_bytes_are_not_withdrawn(void **state)
{
    pair *p = *state;

    pair_open(p);
    withdraw(p, UMI_STREAM_0, 0);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
}

int
main(void)
{
#undef PAIR_TEST
#define PAIR_TEST(f)                                      \
    {#f, f, setup, teardown, NULL},                       \
    {                                                     \
#f " over tcp", f, setup, teardown, (void *)"tcp" \
    }
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_an_announced_send_is_withdrawn),
        PAIR_TEST(test_withdrawn_sends_cost_nothing),
        PAIR_TEST(test_a_receive_whose_message_is_withdrawn_waits_again),
        PAIR_TEST(
            test_a_receive_that_waits_again_meets_a_message_that_does_not_fit),
        PAIR_TEST(test_a_message_in_hand_is_withdrawn),
        PAIR_TEST(test_a_message_that_lands_from_hand_is_withdrawn),
        PAIR_TEST(test_a_withdrawn_message_that_is_returned_is_gone),
        PAIR_TEST(test_a_send_that_has_begun_arrives_whole),
        PAIR_TEST(test_sends_that_ucx_has_queued_arrive_whole),
        PAIR_TEST(test_a_copy_beyond_the_limit_is_deferred),
        PAIR_TEST(test_an_abandoned_send_is_never_deferred),
        PAIR_TEST(test_a_kept_request_is_released_before_its_operation_ends),
        PAIR_TEST(test_a_landing_receive_gives_its_message_back),
        PAIR_TEST(test_a_landed_receive_gives_its_message_back),
        PAIR_TEST(test_both_sides_cancel),
        PAIR_TEST(test_a_close_waits_for_what_is_sent_from_a_copy),
        PAIR_TEST(test_workers_may_end_while_copies_are_sent_and_land),
        PAIR_TEST(test_an_abort_ends_what_is_sent_from_a_copy),
        PAIR_TEST(test_what_was_read_or_is_here_is_not_withdrawn),
        PAIR_TEST(test_a_message_is_withdrawn_before_it_comes),
        {"test_more_than_was_announced_cannot_be_withdrawn",
         test_more_than_was_announced_cannot_be_withdrawn, setup, teardown,
         NULL},
        {"test_a_streams_bytes_are_not_withdrawn",
         test_a_streams_bytes_are_not_withdrawn, setup, teardown, NULL},
    };

    return UNIT_RUN(tests);
}
