/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: ops/transfer_send ops/transfer_recv ops/turns */
/* link: pair */
/* Messages whose bytes go in pieces: they arrive whole and in order, short ones
 * do not wait for them, and endpoints take turns. Whoever cancels one has its
 * buffer back at once. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "ops/turns.h"
#include "ops/turns.h"
#include "worker/request.h"

enum {
    SIZE  = 200000,          /* goes unasked */
    LARGE = 4 * 1024 * 1024, /* is announced */
    COUNT = 4
};

static char out[COUNT][LARGE], in[COUNT][LARGE];
static op   sends[COUNT];

#define TRANSFER_TEST(f)                                \
    {                                                   \
#f, f, pair_setup, pair_teardown, (void *)"tcp" \
    }

/* Over loopback nothing goes in pieces by itself. */
static void
use_pieces(umx_ep *ep)
{
    umi_lengths lengths = {.min = UMI_TRANSFER_MIN, .max = SIZE_MAX};

    assert_true(umi_channels_of(ep)->lengths[UMI_OFFER_PIECES].min == SIZE_MAX);
    umi_offer_limit(ep, UMI_OFFER_PIECES, lengths);
}

static void
open_pair(pair *p)
{
    pair_open(p);
    use_pieces(p->client);
    use_pieces(p->server);
}

static void
send_one(pair *p, int i, size_t len)
{
    fill_pattern(out[i], len, (unsigned)i);
    op_send(&sends[i], p->client, 0, pair_tag((uint64_t)i), out[i], len);
    assert_true(sends[i].status >= 0);
}

static void
receive(pair *p, int i, size_t len)
{
    memset(in[i], 0, len);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in[i], LARGE),
                     UMX_OK);
    check_pattern(in[i], len, (unsigned)i);
}

static void
cancel(op *o, char *data, size_t len)
{
    assert_non_null(o->req);
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

/* Nothing is left of any transfer. */
static void
check_over(const umx_ep *ep)
{
    const umi_transfer_ep *transfers = ep->base.transfers;

    assert_true(umi_list_is_empty(&transfers->announced));
    assert_true(umi_list_is_empty(&transfers->sending));
    assert_true(umi_list_is_empty(&transfers->offered));
    assert_true(umi_list_is_empty(&transfers->receiving));
    assert_int_equal(transfers->num_unasked, 0);
    assert_int_equal(transfers->num_got, 0);
    assert_int_equal(ep->num_landing, 0);
}

/* Let the client send the first pieces of its message `i`, which the server has
 * asked for if need be. */
static void
begin(pair *p, int i, size_t len)
{
    send_one(p, i, len);
    while (sends[i].req->moved == 0) {
        (void)umi_worker_progress(p->client_worker);
        (void)umi_worker_progress(p->server_worker);
        umi_worker_run_events(p->server_worker);
    }
    assert_true(sends[i].req->moved < len);
}

/* Likewise, and take what comes into the receive `o` of `data`. */
static void
begin_landing(pair *p, op *o, char *data, size_t len)
{
    op_recv(o, p->server, 0, pair_any, data, LARGE);
    begin(p, 0, len);
    while (o->req->moved == 0) {
        (void)ucp_worker_progress(p->client_worker->ucp); /* no piece more */
        (void)umx_worker_poll(p->server_worker);
    }
    assert_true(o->req->moved < len);
}

/* ---- messages ------------------------------------------------------------
 */

static void
test_bytes_land_in_the_receive(void **state)
{
    static const size_t lengths[] = {UMI_TRANSFER_MIN - 1,
                                     UMI_TRANSFER_MIN,
                                     UMI_TRANSFER_MIN + 1,
                                     UMI_WHOLE_BYTES,
                                     SIZE,
                                     LARGE};
    pair               *p         = *state;
    op                  o;

    open_pair(p);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        size_t len = lengths[i];

        memset(in[0], '!', LARGE);
        op_recv(&o, p->server, 0, pair_any, in[0], LARGE);
        fill_pattern(out[0], len, (unsigned)i);
        assert_int_equal(pair_send(p, p->client, 0, pair_tag(i), out[0], len),
                         UMX_OK);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(o.info.length, len);
        assert_int_equal(o.info.tag, i);
        check_pattern(in[0], len, (unsigned)i);
        check_poison(in[0] + len, LARGE - len);
    }
    assert_int_equal(p->client->base.transfers->last_sent, 3);
    check_over(p->client);
    check_over(p->server);
}

/* A second connection that sends pieces, too. */
static void
open_second(pair *p, umx_ep **client, umx_ep **server)
{
    pair_open_second(p, client, server);
    use_pieces(p->client);
    use_pieces(p->server);
}

enum {
    WHOLE = 6 * 1024 /* goes whole, also over a slow link */
};

/* A short message that is sent behind it, and is there first, waits for it. */
static void
test_a_message_goes_whole_in_its_turn(void **state)
{
    pair *p    = *state;
    char  byte = 1;
    op    first, second;

    open_pair(p);
    op_recv(&first, p->server, 0, pair_any, in[0], LARGE);
    op_recv(&second, p->server, 0, pair_any, in[1], LARGE);
    fill_pattern(out[0], WHOLE, 3);
    op_send(&sends[0], p->client, 0, pair_tag(1), out[0], WHOLE);
    assert_non_null(sends[0].req);
    assert_false(umi_list_is_empty(&p->client->base.transfers->sending));
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(2), &byte, 1), UMX_OK);
    assert_int_equal(op_wait(p, &first), UMX_OK);
    assert_int_equal(op_wait(p, &second), UMX_OK);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    assert_int_equal(first.info.length, WHOLE);
    assert_int_equal(first.info.tag, 1);
    assert_int_equal(second.info.tag, 2);
    check_pattern(in[0], WHOLE, 3);
    assert_int_equal(p->client->base.transfers->last_sent, 0);
    check_over(p->client);
    check_over(p->server);
}

/* The messages before did not have to wait. */
static void
test_a_message_of_64_kib_goes_whole_over_a_fast_link(void **state)
{
    enum {
        LEN = 64 * 1024
    };

    pair *p = *state;
    op    o;

    open_pair(p);
    p->client->base.link->turns->max_len = UMI_WHOLE_BYTES;
    op_recv(&o, p->server, 0, pair_any, in[0], LARGE);
    fill_pattern(out[0], LEN, 5);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), out[0], LEN),
                     UMX_OK);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(o.info.length, LEN);
    check_pattern(in[0], LEN, 5);
    assert_int_equal(p->client->base.transfers->last_sent, 0);
    check_over(p->client);
    check_over(p->server);
}

/* It counts as sent: the receiver gets it as it was. */
static void
test_one_that_is_cancelled_before_its_turn(void **state)
{
    pair *p    = *state;
    char  byte = 7;
    op    o;

    open_pair(p);
    for (unsigned i = 0; i < 3; i++) {
        fill_pattern(out[0], WHOLE, i);
        op_send(&sends[0], p->client, 0, pair_any, out[0], WHOLE);
        cancel(&sends[0], out[0], WHOLE);
        assert_int_equal(op_wait(p, &sends[0]), UMX_ERR_CANCELED);
        assert_int_equal(pair_send(p, p->client, 0, pair_tag(i), &byte, 1),
                         UMX_OK);
        op_recv(&o, p->server, 0, pair_any, in[0], LARGE);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(o.info.length, WHOLE);
        check_pattern(in[0], WHOLE, i);
        op_recv(&o, p->server, 0, pair_any, in[0], LARGE);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(o.info.length, 1);
        assert_int_equal(o.info.tag, i);
    }
    assert_int_equal(p->client->base.transfers->last_sent, 0);
    check_over(p->client);
    check_over(p->server);
}

/* Messages of two endpoints, as many as turns of several need. */
static void
test_many_messages_go_whole(void **state)
{
    enum {
        MESSAGES = 64
    };
    static op sent[2][MESSAGES], got[2][MESSAGES];
    pair     *p = *state;
    umx_ep   *clients[2], *servers[2];

    open_pair(p);
    open_second(p, &clients[0], &servers[0]);
    clients[1] = p->client;
    servers[1] = p->server;
    for (int i = 0; i < MESSAGES; i++) {
        for (int n = 0; n < 2; n++) {
            size_t len = UMI_TRANSFER_MIN + (size_t)(i * 700);

            fill_pattern(out[n] + i * 50000, len, (unsigned)(2 * i + n));
            op_recv(&got[n][i], servers[n], 0, pair_any, in[n] + i * 50000,
                    50000);
            op_send(&sent[n][i], clients[n], 0, pair_tag((uint64_t)i),
                    out[n] + i * 50000, len);
        }
    }
    for (int i = 0; i < MESSAGES; i++) {
        for (int n = 0; n < 2; n++) {
            size_t len = UMI_TRANSFER_MIN + (size_t)(i * 700);

            assert_int_equal(op_wait(p, &sent[n][i]), UMX_OK);
            assert_int_equal(op_wait(p, &got[n][i]), UMX_OK);
            assert_int_equal(got[n][i].info.tag, i);
            assert_int_equal(got[n][i].info.length, len);
            check_pattern(in[n] + i * 50000, len, (unsigned)(2 * i + n));
        }
    }
    umx_ep_destroy(clients[0]);
    umx_ep_destroy(servers[0]);
}

static void
test_messages_wait_for_their_receives(void **state)
{
    pair *p = *state;

    open_pair(p);
    send_one(p, 0, SIZE);
    send_one(p, 1, LARGE);
    pair_settle(p);
    PAIR_UNTIL(p, sends[0].req == NULL);
    assert_int_equal(p->server->num_announced, 1);
    assert_int_equal(sends[1].req->moved, 0);
    receive(p, 0, SIZE);
    receive(p, 1, LARGE);
    assert_int_equal(op_wait(p, &sends[1]), UMX_OK);
    check_over(p->client);
    check_over(p->server);
}

static void
test_a_receive_that_is_too_short(void **state)
{
    pair *p = *state;
    op    o;

    open_pair(p);
    op_recv(&o, p->server, 0, pair_any, in[0], UMI_TRANSFER_MIN);
    send_one(p, 0, SIZE);
    assert_int_equal(op_wait(p, &o), UMX_ERR_MESSAGE_TRUNCATED);
    receive(p, 0, SIZE); /* it is the next one's */
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    check_over(p->server);
}

static void
test_short_messages_do_not_wait(void **state)
{
    pair *p = *state;
    op    o;
    char  byte = 1;

    open_pair(p);
    op_recv(&o, p->server, 0, pair_any, in[0], LARGE);
    begin(p, 0, LARGE);
    assert_int_equal(pair_send(p, p->client, 1, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 1, pair_any, &byte, 1), UMX_OK);
    assert_non_null(o.req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    check_pattern(in[0], LARGE, 0);
}

static void
test_endpoints_take_turns(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;
    op      ops[2];

    open_pair(p);
    open_second(p, &client, &server);
    op_recv(&ops[0], server, 0, pair_any, in[0], LARGE);
    op_recv(&ops[1], p->server, 0, pair_any, in[1], LARGE);
    op_send(&sends[0], client, 0, pair_any, out[0], LARGE);
    op_send(&sends[1], p->client, 0, pair_any, out[1], LARGE);
    while (sends[0].req != NULL && sends[1].req != NULL) {
        size_t first = sends[0].req->moved, second = sends[1].req->moved;
        size_t more = (first > second) ? first - second : second - first;

        assert_true(more <= 2 * UMI_PIECE_BYTES || first == 0 || second == 0);
        pair_step(p);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
        assert_int_equal(op_wait(p, &ops[i]), UMX_OK);
    }
    umx_ep_destroy(client);
    umx_ep_destroy(server);
}

static void
test_a_flush_waits_for_the_bytes(void **state)
{
    pair         *p = *state;
    op            o, flush;
    umx_op_params params = op_params(&flush);

    open_pair(p);
    op_recv(&o, p->server, 0, pair_any, in[0], LARGE);
    begin(p, 0, LARGE);
    flush.status = umx_ep_flush(p->client, &params, &flush.req);
    assert_int_equal(flush.status, UMX_INPROGRESS);
    assert_int_equal(op_wait(p, &flush), UMX_OK);
    assert_null(sends[0].req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    check_pattern(in[0], LARGE, 0);
}

/* Of an announced one nothing is on its way. */
static void
test_a_flush_does_not_wait_for_an_announced_message(void **state)
{
    pair         *p = *state;
    op            flush;
    umx_op_params params = op_params(&flush);

    open_pair(p);
    send_one(p, 0, LARGE);
    flush.status = umx_ep_flush(p->client, &params, &flush.req);
    if (flush.status == UMX_INPROGRESS) {
        assert_int_equal(op_wait(p, &flush), UMX_OK);
    }
    assert_int_equal(sends[0].status, UMX_INPROGRESS);
    receive(p, 0, LARGE);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
}

static void
test_a_close_waits_for_what_lands(void **state)
{
    pair *p = *state;
    op    close_op, o;

    open_pair(p);
    begin_landing(p, &o, in[0], LARGE);
    send_one(p, 1, LARGE); /* for which there is no receive */
    op_close(&close_op, p->server, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    check_pattern(in[0], LARGE, 0);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    assert_int_equal(op_wait(p, &sends[1]), UMX_ERR_PEER_CLOSED);
}

/* A peer that sends no more is waited for as long as the close may take. */
static void
test_a_close_that_waits_in_vain_says_for_what(void **state)
{
    pair *p = *state;
    op    close_op, o;

    open_pair(p);
    begin_landing(p, &o, in[0], LARGE);
    op_close(&close_op, p->server, 1);
    while (!op_is_done(&close_op)) {
        assert_true(umx_worker_drain(p->server_worker) >= UMX_OK);
    }
    assert_int_equal(close_op.status, UMX_ERR_TIMED_OUT);
    assert_string_equal(umx_ep_reason(p->server),
                        "the peer has not sent all bytes of a message that is "
                        "being received");
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    (void)op_wait(p, &sends[0]);
}

static void
test_a_message_that_fits_no_receive_is_dropped(void **state)
{
    pair *p = *state;

    open_pair(p);
    for (int i = 0; i < 2; i++) {
        size_t len = (i == 0) ? SIZE : LARGE;
        op     o;

        send_one(p, 0, len);
        send_one(p, 1, 1);
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in[0], SIZE - 1),
                         UMX_ERR_MESSAGE_TRUNCATED);
        op_recv(&o, p->server, 0, pair_any, in[1], SIZE - 1);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(o.info.length, 1);
        check_pattern(in[1], 1, 1);
        assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
        PAIR_UNTIL(p, p->server->base.transfers->num_got == 0);
        check_over(p->client);
        check_over(p->server);
    }
}

static void
test_a_close_delivers_first(void **state)
{
    pair *p = *state;
    op    close_op, o;

    open_pair(p);
    send_one(p, 0, SIZE);
    send_one(p, 1, LARGE);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    for (int i = 0; i < 2; i++) {
        op_recv(&o, p->server, 0, pair_any, in[i], LARGE);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        check_pattern(in[i], (i == 0) ? SIZE : LARGE, (unsigned)i);
    }
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
}

/* ---- cancelling ----------------------------------------------------------
 */

static void
test_a_cancelled_send_arrives_whole(void **state)
{
    pair *p = *state;

    open_pair(p);
    send_one(p, 0, SIZE);
    cancel(&sends[0], out[0], SIZE);
    assert_int_equal(p->client_worker->copied_bytes, SIZE);
    receive(p, 0, SIZE);
    assert_int_equal(op_wait(p, &sends[0]), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, p->client_worker->copied_bytes == 0);
    check_over(p->client);
}

/* An announced one copies nothing, wherever it is, and the receive gets the
 * next message. */
static void
test_a_cancelled_announcement_ends(void **state)
{
    pair *p = *state;
    op    o;

    open_pair(p);
    for (int i = 0; i < 3; i++) {
        if (i == 0) { /* not asked for */
            send_one(p, 0, LARGE);
            pair_settle(p);
            assert_int_equal(p->server->num_announced, 1);
        } else if (i == 1) { /* asked for, which the client has not heard */
            send_one(p, 0, LARGE);
            op_recv(&o, p->server, 0, pair_any, in[1], LARGE);
            while (umi_list_is_empty(&p->server->base.transfers->receiving)) {
                (void)umx_worker_poll(p->server_worker);
            }
        } else {
            begin_landing(p, &o, in[1], LARGE);
        }
        cancel(&sends[0], out[0], LARGE);
        assert_int_equal(p->client_worker->copied_bytes, 0);
        if (i == 0) {
            op_recv(&o, p->server, 0, pair_any, in[1], LARGE);
        }
        send_one(p, 1, SIZE);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(o.info.length, SIZE);
        check_pattern(in[1], SIZE, 1);
        assert_int_equal(op_wait(p, &sends[0]), UMX_ERR_CANCELED);
        assert_int_equal(op_wait(p, &sends[1]), UMX_OK);
        check_over(p->client);
        check_over(p->server);
    }
}

static void
test_a_cancelled_receive_gives_back(void **state)
{
    static const size_t lengths[] = {SIZE, LARGE};
    pair               *p         = *state;
    op                  o;

    open_pair(p);
    for (int i = 0; i < 2; i++) {
        begin_landing(p, &o, in[1], lengths[i]);
        cancel(&o, in[1], LARGE);
        receive(p, 0, lengths[i]);
        assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
        check_poison(in[1], LARGE);
        assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
        assert_int_equal(p->server_worker->copied_bytes, 0);
    }
    check_over(p->server);
}

static void
test_both_sides_cancel(void **state)
{
    pair *p = *state;
    op    o;

    open_pair(p);
    begin_landing(p, &o, in[1], LARGE);
    cancel(&o, in[1], LARGE);
    cancel(&sends[0], out[0], LARGE);
    send_one(p, 2, SIZE);
    receive(p, 2, SIZE);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &sends[0]), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &sends[2]), UMX_OK);
    check_poison(in[1], LARGE);
    PAIR_UNTIL(p, p->server_worker->copied_bytes == 0);
    check_over(p->server);
}

/* ---- ends ----------------------------------------------------------------
 */

static void
test_a_sender_that_ends(void **state)
{
    static const size_t lengths[] = {SIZE, LARGE};
    pair               *p         = *state;
    umx_ep             *client, *server;
    op                  o;

    open_pair(p);
    for (int i = 0; i < 2; i++) {
        open_second(p, &client, &server);
        begin_landing(p, &o, in[1], lengths[i]);
        umx_ep_abort(p->client);
        assert_true(op_wait(p, &o) < 0);
        memset(in[1], '!', LARGE);
        assert_true(op_wait(p, &sends[0]) < 0);
        PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
        check_poison(in[1], LARGE);
        umx_ep_destroy(p->client);
        umx_ep_destroy(p->server);
        p->client = client;
        p->server = server;
        send_one(p, 0, SIZE); /* the other connection goes on */
        receive(p, 0, SIZE);
        assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    }
}

static void
test_a_receiver_that_ends(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;
    op      o;

    open_pair(p);
    open_second(p, &client, &server);
    begin_landing(p, &o, in[1], LARGE);
    umx_ep_abort(p->server);
    assert_true(op_wait(p, &o) < 0);
    memset(in[1], '!', LARGE);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_FAILED);
    (void)op_wait(p, &sends[0]); /* the bytes may all have gone before */
    check_poison(in[1], LARGE);
    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    p->client = client;
    p->server = server;
    send_one(p, 0, LARGE);
    receive(p, 0, LARGE);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
}

static void
test_a_worker_that_ends(void **state)
{
    pair *p = *state;
    op    o;

    open_pair(p);
    begin_landing(p, &o, in[1], LARGE);
    umx_ep_destroy(p->client);
    p->client = NULL;
    umx_worker_destroy(p->client_worker);
    assert_null(sends[0].req);
    while (o.req != NULL) {
        (void)!umx_worker_wait(p->server_worker, SECOND_NS);
    }
    assert_true(o.status < 0);
    assert_int_equal(umx_worker_create(p->client_context, &p->client_worker),
                     UMX_OK);
}

/* ---- peers that lie ------------------------------------------------------
 */

static void
say(pair *p, unsigned id, const void *header, size_t header_len,
    const void *data, size_t len)
{
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags        = UCP_AM_SEND_FLAG_EAGER};
    ucs_status_ptr_t    result = ucp_am_send_nbx(
           p->client->base.handle, id, header, header_len, data, len, &params);

    assert_false(UCS_PTR_IS_ERR(result));
    if (result != NULL) {
        PAIR_UNTIL(p, ucp_request_check_status(result) != UCS_INPROGRESS);
        ucp_request_free(result);
    }
}

typedef struct start {
    umi_transfer_header transfer;
    umi_header          header;
} start;

typedef struct piece {
    umi_piece_header header;
    char             bytes[1000];
} piece;

static void
say_start(pair *p, const start *it)
{
    say(p, UMI_AM_TRANSFER, it, sizeof(*it), NULL, 0);
}

static void
say_piece(pair *p, uint64_t id, size_t len)
{
    piece it = {.header = {.endpoint = p->server->base.wire_id, .id = id}};

    say(p, UMI_AM_PIECE, NULL, 0, &it, sizeof(it.header) + len);
}

static start
truth(const pair *p)
{
    return (start){.transfer = {.id = 1, .len = 1500},
                   .header   = {.kind     = UMI_KIND_MESSAGE,
                                .endpoint = p->server->base.wire_id,
                                .tag      = 7}};
}

static void
test_the_truth(void **state)
{
    pair *p = *state;
    start it;

    open_pair(p);
    it = truth(p);
    say_start(p, &it);
    say_piece(p, 1, 1000);
    say_piece(p, 1, 500);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in[0], LARGE),
                     UMX_OK);
    check_over(p->server);
}

/* Tell one lie. */
static void
lie(pair *p, int i)
{
    umi_transfer_note note = {.endpoint = p->server->base.wire_id, .id = 1};
    start             it   = truth(p);

    switch (i) {
    case 0: /* pieces of nothing */
        say_piece(p, 1, 1000);
        return;
    case 1: /* more bytes than there are */
        say_start(p, &it);
        say_piece(p, 1, 1000);
        say_piece(p, 1, 501);
        return;
    case 2: /* bytes after the end */
        say_start(p, &it);
        say_piece(p, 1, 1000);
        say_piece(p, 1, 500);
        say_piece(p, 1, 1);
        return;
    case 3: /* bytes that nobody has asked for */
        it.transfer.is_announced = 1;
        say_start(p, &it);
        say_piece(p, 1, 1000);
        return;
    case 4: /* a number that is not the next */
        it.transfer.id = 2;
        break;
    case 5:
        it.transfer.len = 0;
        break;
    case 6:
        it.transfer.len = UINT64_MAX;
        break;
    case 7:
        it.transfer.is_announced = 2;
        break;
    case 8:
        it.header.flags = UMI_FLAG_RESERVE;
        break;
    case 9: /* beyond the credit */
        it.transfer.len = 2 * SIZE;
        it.header.seq   = 1;
        break;
    default: /* an answer that nobody has asked for */
        say(p, UMI_AM_ASK, &note, sizeof(note), NULL, 0);
        return;
    }
    say_start(p, &it);
}

/* The first of two connections is told a lie, and ends; the other goes on. */
static void
test_lies(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;

    p->config.credit_bytes = 2 * SIZE;
    open_pair(p);
    for (int i = 0; i <= 10; i++) {
        open_second(p, &client, &server);
        lie(p, i);
        PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
        assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
        PAIR_UNTIL(p, umx_ep_get_state(p->client) != UMX_EP_OPEN);
        umx_ep_destroy(p->client);
        umx_ep_destroy(p->server);
        p->client = client;
        p->server = server;
        send_one(p, 1, SIZE);
        receive(p, 1, SIZE);
        assert_int_equal(op_wait(p, &sends[1]), UMX_OK);
    }
}

/* Nobody is meant: nobody has to end. */
static void
test_messages_to_nobody(void **state)
{
    pair            *p = *state;
    start            it;
    piece            bytes = {.header = {.endpoint = 12345, .id = 1}};
    umx_worker_stats stats;

    open_pair(p);
    it                 = truth(p);
    it.header.endpoint = 12345;
    say_start(p, &it);
    say(p, UMI_AM_PIECE, NULL, 0, &bytes, sizeof(bytes));
    say(p, UMI_AM_ASK, &bytes.header, sizeof(bytes.header), NULL, 0);
    say(p, UMI_AM_PIECE, NULL, 0, &bytes, sizeof(bytes.header));
    say(p, UMI_AM_TRANSFER, &it, sizeof(it.transfer) + 3, NULL, 0);
    send_one(p, 1, SIZE);
    receive(p, 1, SIZE);
    assert_int_equal(op_wait(p, &sends[1]), UMX_OK);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.protocol_errors, 3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TRANSFER_TEST(test_bytes_land_in_the_receive),
        TRANSFER_TEST(test_a_message_goes_whole_in_its_turn),
        TRANSFER_TEST(test_a_message_of_64_kib_goes_whole_over_a_fast_link),
        TRANSFER_TEST(test_one_that_is_cancelled_before_its_turn),
        TRANSFER_TEST(test_many_messages_go_whole),
        TRANSFER_TEST(test_messages_wait_for_their_receives),
        TRANSFER_TEST(test_a_receive_that_is_too_short),
        TRANSFER_TEST(test_short_messages_do_not_wait),
        TRANSFER_TEST(test_endpoints_take_turns),
        TRANSFER_TEST(test_a_flush_waits_for_the_bytes),
        TRANSFER_TEST(test_a_flush_does_not_wait_for_an_announced_message),
        TRANSFER_TEST(test_a_close_waits_for_what_lands),
        TRANSFER_TEST(test_a_close_that_waits_in_vain_says_for_what),
        TRANSFER_TEST(test_a_message_that_fits_no_receive_is_dropped),
        TRANSFER_TEST(test_a_close_delivers_first),
        TRANSFER_TEST(test_a_cancelled_send_arrives_whole),
        TRANSFER_TEST(test_a_cancelled_announcement_ends),
        TRANSFER_TEST(test_a_cancelled_receive_gives_back),
        TRANSFER_TEST(test_both_sides_cancel),
        TRANSFER_TEST(test_a_sender_that_ends),
        TRANSFER_TEST(test_a_receiver_that_ends),
        TRANSFER_TEST(test_a_worker_that_ends),
        TRANSFER_TEST(test_the_truth),
        TRANSFER_TEST(test_lies),
        TRANSFER_TEST(test_messages_to_nobody),
    };

    return UNIT_RUN(tests);
}
