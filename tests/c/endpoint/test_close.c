/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair child */
#include "child.h"
#include "pair.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    KIB = 1024,
    MIB = 1024 * 1024
};

static const size_t sizes[] = {3, 500, 40 * KIB, MIB, 2 * MIB, 0};
enum {
    COUNT = sizeof(sizes) / sizeof(*sizes)
};

typedef struct burst {
    op    ops[COUNT];
    char *data[COUNT];
} burst;

/* Send one message of each size; none of them is read. */
static void
send_burst(burst *b, umx_ep *ep)
{
    for (int i = 0; i < COUNT; i++) {
        b->data[i] = malloc(sizes[i] + 1);
        assert_non_null(b->data[i]);
        fill_pattern(b->data[i], sizes[i], (unsigned)i);
        op_send(&b->ops[i], ep, (uint16_t)(i % 2), pair_tag((uint64_t)i),
                b->data[i], sizes[i]);
        assert_true(b->ops[i].status >= 0);
    }
}

static void
check_sent(pair *p, burst *b)
{
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(op_wait(p, &b->ops[i]), UMX_OK);
        free(b->data[i]);
    }
}

/* All of it, and then the end. */
static void
read_burst(pair *p, umx_ep *ep)
{
    char *in = malloc(2 * MIB);
    op    o;

    assert_non_null(in);
    for (int i = 0; i < COUNT; i++) {
        op_recv(&o, ep, (uint16_t)(i % 2), pair_any, in, 2 * MIB);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(o.info.tag, i);
        assert_int_equal(o.info.length, sizes[i]);
        check_pattern(in, sizes[i], (unsigned)i);
    }
    free(in);
}

static void
check_end(umx_ep *ep, umx_status status)
{
    char byte;
    op   o;

    op_recv(&o, ep, 0, pair_any, &byte, 1);
    assert_int_equal(o.status, status);
    op_recv_message(&o, ep, 1, pair_any);
    assert_int_equal(o.status, status);
    op_send(&o, ep, 0, pair_tag(1), &byte, 1);
    assert_int_equal(o.status, status);
}

/* ---- graceful ------------------------------------------------------------
 */

static void
test_all_that_was_sent_can_be_read_after_the_close(void **state)
{
    pair *p = *state;
    burst b;
    op    o;

    pair_open(p);
    send_burst(&b, p->client);
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(o.status, UMX_INPROGRESS);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_DRAINING);
    assert_int_equal(umx_worker_num_closing(p->client_worker), 1);
    check_end(p->client, UMX_ERR_CLOSED);
    assert_int_equal(op_wait(p, &o), UMX_OK); /* nobody has read */
    assert_int_equal(umx_worker_num_closing(p->client_worker), 0);
    check_sent(p, &b);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_CLOSED);
    assert_int_equal(umx_ep_error(p->client), UMX_OK);
    assert_int_equal(umx_ep_unsent_bytes(p->client), 0);
    assert_null(umx_ep_handle(p->client));
    assert_true(umx_ep_is_peer_closed(p->server));
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_CLOSED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PEER_CLOSED);
    read_burst(p, p->server);
    check_end(p->server, UMX_ERR_PEER_CLOSED);
    check_end(p->client, UMX_ERR_CLOSED);
    op_close(&o, p->client, 0);
    assert_int_equal(o.status, UMX_OK);
    op_close(&o, p->server, 0);
    assert_int_equal(o.status, UMX_OK);
}

static void
test_giving_an_endpoint_back_right_after_a_send(void **state)
{
    pair *p = *state;
    burst b;

    pair_open(p);
    send_burst(&b, p->client);
    umx_ep_destroy(p->client);
    p->client = NULL;
    PAIR_UNTIL(p, umx_worker_num_closing(p->client_worker) == 0);
    check_sent(p, &b);
    read_burst(p, p->server);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_CLOSED);
    check_end(p->server, UMX_ERR_PEER_CLOSED);
}

static void
test_pending_receives_fail_on_both_sides(void **state)
{
    pair *p = *state;
    char  byte;
    op    client[2], server[2], o;

    pair_open(p);
    op_recv(&client[0], p->client, 0, pair_any, &byte, 1);
    op_recv_message(&client[1], p->client, 9, pair_any);
    op_recv(&server[0], p->server, 0, pair_any, &byte, 1);
    op_recv_message(&server[1], p->server, 9, pair_any);
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(op_wait(p, &client[i]), UMX_ERR_PEER_CLOSED);
        assert_int_equal(op_wait(p, &server[i]), UMX_ERR_PEER_CLOSED);
    }
    assert_int_equal(op_wait(p, &o), UMX_OK);
}

static void
test_both_sides_close_at_once(void **state)
{
    pair *p = *state;
    burst b, c;
    op    client, server;

    pair_open(p);
    send_burst(&b, p->client);
    send_burst(&c, p->server);
    op_close(&client, p->client, UMX_TIMEOUT_INFINITE);
    op_close(&server, p->server, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &client), UMX_OK);
    assert_int_equal(op_wait(p, &server), UMX_OK);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_CLOSED);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_CLOSED);
    for (int i = 0; i < COUNT; i++) { /* nobody reads: how they end may vary */
        (void)op_wait(p, &b.ops[i]);
        (void)op_wait(p, &c.ops[i]);
        free(b.data[i]);
        free(c.data[i]);
    }
}

/* Each has sent more than the other's credit allows, and neither reads: what is
 * kept, in the user's hands or refused gives its credit back. */
static void
close_both_with_waiting_sends(pair *p, size_t len, bool has_arrived)
{
    enum {
        SENDS = 24
    };
    char *data = calloc(1, len + 1);
    op    sends[2][SENDS], closes[2], taken;

    p->config.credit_messages = 8;
    p->config.credit_rndv     = 2;
    pair_open(p);
    for (int i = 0; i < SENDS; i++) {
        op_send(&sends[0][i], p->client, 0, pair_tag(1), data, len);
        op_send(&sends[1][i], p->server, 0, pair_tag(1), data, len);
    }
    if (has_arrived) {
        op_recv_message(&taken, p->server, 0, pair_tag(1));
        assert_int_equal(op_wait(p, &taken), UMX_OK);
        pair_settle(p);
    }
    op_close(&closes[0], p->client, UMX_TIMEOUT_INFINITE);
    op_close(&closes[1], p->server, UMX_TIMEOUT_INFINITE);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(op_wait(p, &closes[i]), UMX_OK);
    }
    if (has_arrived) {
        umx_message_drop(taken.message);
    }
    for (int i = 0; i < SENDS; i++) { /* how they end may vary */
        (void)op_wait(p, &sends[0][i]);
        (void)op_wait(p, &sends[1][i]);
    }
    free(data);
}

static void
test_both_close_with_sends_beyond_their_credit(void **state)
{
    close_both_with_waiting_sends(*state, 8, false);
}

static void
test_both_close_with_what_nobody_reads(void **state)
{
    close_both_with_waiting_sends(*state, 8, true);
}

static void
test_both_close_with_announcements_that_nobody_reads(void **state)
{
    close_both_with_waiting_sends(*state, 1 << 20, true);
}

static void
test_a_second_close_waits_for_the_first(void **state)
{
    pair *p = *state;
    op    first, second, cancelled;

    pair_open(p);
    op_close(&first, p->client, UMX_TIMEOUT_INFINITE);
    op_close(&second, p->client, 0);
    op_close(&cancelled, p->client, 0);
    assert_int_equal(second.status, UMX_INPROGRESS);
    op_cancel(cancelled.req);
    assert_int_equal(op_wait(p, &cancelled), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &first), UMX_OK);
    assert_int_equal(op_wait(p, &second), UMX_OK);
}

static void
test_giving_an_endpoint_back_while_it_closes(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    umx_ep_destroy(p->client);
    p->client = NULL;
    assert_int_equal(op_wait(p, &o), UMX_OK);
}

static void
test_closing_after_the_peer_has_closed(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, MIB);
    op    o, close_op, send_op;

    assert_non_null(data);
    pair_open(p);
    op_send(&send_op, p->client, 0, pair_tag(1), data, MIB);
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    PAIR_UNTIL(p, umx_ep_is_peer_closed(p->server));
    op_close(&close_op, p->server, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    (void)op_wait(p, &send_op);
    free(data);
}

/* Sends to a peer that closes end with PEER_CLOSED, not CANCELED. */
static void
test_sends_to_a_peer_that_closes(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, MIB);
    op    posted, waiting[3], o;

    assert_non_null(data);
    p->config.credit_rndv = 2;
    pair_open(p);
    op_send(&posted, p->server, 0, pair_tag(1), data, MIB);
    for (int i = 0; i < 3; i++) {
        op_send(&waiting[i], p->server, 0, pair_tag(1), data, MIB);
    }
    pair_settle(p);
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &posted), UMX_ERR_PEER_CLOSED);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(op_wait(p, &waiting[i]), UMX_ERR_PEER_CLOSED);
    }
    assert_int_equal(op_wait(p, &o), UMX_OK);
    free(data);
}

/* More than one GOODBYE can say. */
static void
test_many_channels(void **state)
{
    enum {
        CHANNELS = 2 * UMI_GOODBYE_MAX + 10
    };
    pair *p = *state;
    op    o;

    pair_open(p);
    for (uint16_t i = 0; i < CHANNELS; i++) {
        assert_int_equal(pair_send(p, p->client, i, pair_tag(i), &i, sizeof(i)),
                         UMX_OK);
    }
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    for (uint16_t i = 0; i < CHANNELS; i++) {
        uint16_t in = 0;

        assert_int_equal(pair_recv(p, p->server, i, pair_any, &in, sizeof(in)),
                         UMX_OK);
        assert_int_equal(in, i);
    }
}

/* A receive that is landing when its side closes is completed. */
static void
test_closing_waits_for_what_is_landing(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = calloc(1, MIB);
    op    send_op, recv_op, o;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, MIB, 1);
    op_send(&send_op, p->client, 0, pair_tag(1), out, MIB);
    pair_settle(p);
    op_recv(&recv_op, p->server, 0, pair_any, in, MIB);
    assert_int_equal(p->server->num_landing, 1);
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    check_pattern(in, MIB, 1);
    free(in);
    free(out);
}

/* ---- a receiver that closes -----------------------------------------------
 */

/* The bytes come, and their sender hears that they have. What nobody receives
 * fails for its sender. */
static void
test_closing_waits_for_its_own_receives(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = calloc(1, MIB);
    op    sends[2], recv_op, o;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, MIB, 1);
    op_send(&sends[0], p->client, 0, pair_tag(1), out, MIB);
    op_send(&sends[1], p->client, 0, pair_tag(2), out, MIB);
    pair_settle(p);
    op_recv(&recv_op, p->server, 0, pair_any, in, MIB);
    assert_int_equal(p->server->num_landing, 1);
    op_close(&o, p->server, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, MIB, 1);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(op_wait(p, &sends[1]), UMX_ERR_PEER_CLOSED);
    free(in);
    free(out);
}

/* Both sides are receiving, and close. */
static void
test_both_sides_close_while_they_receive(void **state)
{
    pair   *p      = *state;
    umx_ep *eps[2] = {NULL};
    char   *out = malloc(MIB), *in[2] = {calloc(1, MIB), calloc(1, MIB)};
    op      sends[2], recvs[2], closes[2];

    assert_non_null(out);
    pair_open(p);
    eps[0] = p->client;
    eps[1] = p->server;
    fill_pattern(out, MIB, 1);
    for (int i = 0; i < 2; i++) {
        op_send(&sends[i], eps[i], 0, pair_tag(1), out, MIB);
    }
    pair_settle(p);
    for (int i = 0; i < 2; i++) {
        op_recv(&recvs[i], eps[i], 0, pair_any, in[i], MIB);
        op_close(&closes[i], eps[i], UMX_TIMEOUT_INFINITE);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(op_wait(p, &recvs[i]), UMX_OK);
        check_pattern(in[i], MIB, 1);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
        assert_int_equal(op_wait(p, &closes[i]), UMX_OK);
        free(in[i]);
    }
    free(out);
}

/* A receive waits for what lands in the buffer of another, which is cancelled.
 */
static void
test_closing_waits_for_a_claimed_message(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in[2] = {calloc(1, MIB), calloc(1, MIB)};
    op    send_op, recvs[2], o;

    assert_non_null(out);
    pair_open(p);
    fill_pattern(out, MIB, 1);
    op_send(&send_op, p->client, 0, pair_tag(1), out, MIB);
    pair_settle(p);
    op_recv(&recvs[0], p->server, 0, pair_any, in[0], MIB);
    op_cancel(recvs[0].req);
    op_recv(&recvs[1], p->server, 0, pair_any, in[1], MIB);
    op_close(&o, p->server, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &recvs[0]), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &recvs[1]), UMX_OK);
    check_pattern(in[1], MIB, 1);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    free(in[0]);
    free(in[1]);
    free(out);
}

/* The bytes of a message that was taken can be asked for until the peer has
 * been told. Then they stay there, and their sender hears that they are not
 * read. */
static void
close_with_taken(pair *p, bool is_late)
{
    char *out = calloc(1, MIB), *in = calloc(1, MIB);
    op    send_op, taken, o;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    op_send(&send_op, p->client, 0, pair_tag(1), out, MIB);
    pair_settle(p);
    op_recv_message(&taken, p->server, 0, pair_any);
    assert_int_equal(taken.status, UMX_OK);
    op_close(&o, p->server, UMX_TIMEOUT_INFINITE);
    while (is_late && !p->server->is_goodbye_sent) {
        assert_true(umx_worker_drain(p->server_worker) >= UMX_OK);
    }
    op_message_recv(&taken, taken.message, in, MIB);
    assert_int_equal(op_wait(p, &taken), is_late ? UMX_ERR_CLOSED : UMX_OK);
    assert_int_equal(op_wait(p, &send_op),
                     is_late ? UMX_ERR_PEER_CLOSED : UMX_OK);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    free(in);
    free(out);
}

static void
test_closing_waits_for_a_taken_message(void **state)
{
    close_with_taken(*state, false);
}

static void
test_a_taken_message_has_no_bytes_after_a_close(void **state)
{
    close_with_taken(*state, true);
}

/* A receive of a stream that has all its bytes on their way. */
static void
test_closing_waits_for_a_stream(void **state)
{
    pair         *p   = *state;
    char         *out = malloc(MIB), *in = calloc(1, MIB);
    umx_buffer    bufs[2];
    op            send_op, recv_op, o;
    umx_op_params params[2] = {op_params(&send_op), op_params(&recv_op)};

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, MIB, 1);
    bufs[0]        = umx_host_buffer(out, MIB);
    bufs[1]        = umx_host_buffer(in, MIB);
    send_op.status = umx_stream_send(p->client, &bufs[0], &params[0],
                                     &send_op.req);
    assert_int_equal(send_op.status, UMX_INPROGRESS);
    pair_settle(p);
    recv_op.status = umx_stream_recv(p->server, &bufs[1], UMX_STREAM_WAITALL,
                                     &params[1], &recv_op.req, &recv_op.info);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    assert_true(p->server->num_landing != 0);
    op_close(&o, p->server, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, MIB, 1);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    free(in);
    free(out);
}

/* Take the message, which needs no more than to be given back. */
static void
on_frames(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    o->req    = NULL;
    o->status = status;
    if (status == UMX_OK) {
        umx_message_drop(umx_request_message(req));
    }
}

/* Parts of frames come one after the other, as the peer gets credit. The first
 * frame is in when this side closes. */
static void
check_closing_frames(pair *p)
{
    enum {
        PARTS = 12
    };
    char             *out = malloc(PARTS * MIB), *in = calloc(1, PARTS * MIB);
    umx_buffer        from[PARTS], to[PARTS];
    umx_frames_target target = {.buffers = to, .count = PARTS};
    op                send_op, recv_op, behind, o;
    umx_op_params     params[2] = {op_params(&send_op), op_params(&recv_op)};

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, PARTS * MIB, 1);
    for (int i = 0; i < PARTS; i++) {
        from[i] = umx_host_buffer(out + i * MIB, MIB);
        to[i]   = umx_host_buffer(in + i * MIB, MIB);
    }
    send_op.status = umx_frames_send(p->client, 0, NULL, 0, from, PARTS,
                                     &params[0], &send_op.req);
    assert_int_equal(send_op.status, UMX_INPROGRESS);
    op_send(&behind, p->client, 0, pair_tag(1), out, MIB);
    params[1].on_done = on_frames;
    recv_op.status    = umx_frames_recv(p->server, 0, &target, &params[1],
                                        &recv_op.req);
    PAIR_UNTIL(p, p->server->num_landing != 0);
    op_close(&o, p->server, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, PARTS * MIB, 1);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(op_wait(p, &behind), UMX_ERR_PEER_CLOSED);
    free(in);
    free(out);
}

static void
test_closing_waits_for_frames(void **state)
{
    check_closing_frames(*state);
}

static void
test_closing_waits_for_frames_with_little_credit(void **state)
{
    pair *p = *state;

    p->config.credit_rndv = 2;
    check_closing_frames(p);
}

/* ---- what the peer has not read ------------------------------------------
 */

/* Unread rendezvous data is pulled in up to a limit; the rest holds the close
 * up until it is read. */
static void
test_a_close_waits_for_data_beyond_the_limit(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = malloc(MIB);
    op    sends[3], o;

    assert_non_null(out);
    assert_non_null(in);
    p->config.goodbye_bytes = MIB + MIB / 2;
    pair_open(p);
    fill_pattern(out, MIB, 4);
    for (int i = 0; i < 3; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), out, MIB);
    }
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    assert_false(op_is_done(&o));
    for (int i = 0; i < 3; i++) {
        memset(in, 0, MIB);
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, MIB), UMX_OK);
        check_pattern(in, MIB, 4);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    assert_int_equal(op_wait(p, &o), UMX_OK);
    free(in);
    free(out);
}

/* A message that was taken before the peer's close: received or returned
 * after it. */
static void
test_a_taken_message_outlives_the_peers_close(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = calloc(1, MIB);
    op    sends[2], taken[2], landed, o;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, MIB, 4);
    op_send(&sends[0], p->client, 0, pair_tag(1), out, MIB);
    op_send(&sends[1], p->client, 0, pair_tag(2), out, MIB);
    pair_settle(p);
    op_recv_message(&taken[0], p->server, 0, pair_any);
    op_recv_message(&taken[1], p->server, 0, pair_any);
    assert_int_equal(taken[0].status, UMX_OK);
    assert_int_equal(taken[1].status, UMX_OK);
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    PAIR_UNTIL(p, umx_ep_is_peer_closed(p->server));
    op_message_recv(&landed, taken[0].message, in, MIB);
    assert_int_equal(op_wait(p, &landed), UMX_OK);
    check_pattern(in, MIB, 4);
    assert_false(op_is_done(&o));
    umx_message_return(taken[1].message); /* fetches its bytes */
    assert_int_equal(op_wait(p, &o), UMX_OK);
    memset(in, 0, MIB);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, MIB), UMX_OK);
    check_pattern(in, MIB, 4);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    assert_int_equal(op_wait(p, &sends[1]), UMX_OK);
    free(in);
    free(out);
}

static void
test_a_taken_message_outlives_the_endpoint(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, MIB);
    op    send_op, taken[2], o;

    assert_non_null(data);
    pair_open(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), data, 2000),
                     UMX_OK);
    op_send(&send_op, p->client, 0, pair_tag(1), data, MIB);
    pair_settle(p);
    op_recv_message(&taken[0], p->server, 0, pair_any);
    op_recv_message(&taken[1], p->server, 0, pair_any);
    umx_ep_abort(p->server);
    umx_ep_destroy(p->server);
    p->server = NULL;
    op_message_recv(&o, taken[0].message, data, MIB);
    assert_int_equal(op_wait(p, &o), UMX_OK); /* the bytes had come */
    op_message_recv(&o, taken[1].message, data, MIB);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CLOSED);
    (void)op_wait(p, &send_op);
    free(data);
}

/* ---- by force ------------------------------------------------------------
 */

static void
test_a_peer_that_does_not_progress(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, MIB);
    op    sends[4], close_op;

    assert_non_null(data);
    p->config.credit_rndv = 2;
    pair_open(p);
    for (int i = 0; i < 4; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), data, MIB);
    }
    op_close(&close_op, p->client, SECOND_NS / 20);
    while (!op_is_done(&close_op)) { /* the client alone */
        assert_true(umx_worker_wait(p->client_worker, SECOND_NS) >=
                    UMX_ERR_TIMED_OUT);
    }
    assert_int_equal(close_op.status, UMX_ERR_TIMED_OUT);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_CLOSED);
    assert_int_equal(umx_ep_unsent_bytes(p->client), 4 * MIB);
    for (int i = 0; i < 4; i++) {
        assert_true(op_wait(p, &sends[i]) < 0);
    }
    /* Over tcp the goodbye may still have got through. */
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    free(data);
}

/* What was sent lies in its queue, and needs the client no more. */
static void
test_a_peer_that_does_not_progress_and_has_all(void **state)
{
    pair *p = *state;
    char  in[3];
    op    o, sends[10];

    pair_open(p);
    pair_settle(p);
    for (int i = 0; i < 10; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), "abc", 3);
    }
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    while (!op_is_done(&o)) { /* the client alone */
        assert_true(umx_worker_wait(p->client_worker, SECOND_NS) >=
                    UMX_ERR_TIMED_OUT);
    }
    assert_int_equal(o.status, UMX_OK);
    assert_int_equal(umx_ep_unsent_bytes(p->client), 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, 3), UMX_OK);
        assert_memory_equal(in, "abc", 3);
    }
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    assert_true(umx_ep_is_peer_closed(p->server));
    check_end(p->server, UMX_ERR_PEER_CLOSED);
}

static void
test_abort_cancels_everything(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, MIB);
    char *in   = calloc(1, MIB);
    char  byte;
    op    sends[4], recv_op, message_op, landing, unread;

    assert_non_null(data);
    assert_non_null(in);
    p->config.credit_rndv = 2;
    pair_open(p);
    for (int i = 0; i < 4; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), data, MIB);
    }
    op_send(&unread, p->server, 0, pair_tag(7), data, MIB);
    pair_settle(p);
    op_recv(&landing, p->client, 0, pair_any, in, MIB);
    op_recv(&recv_op, p->client, 0, pair_any, &byte, 1);
    op_recv_message(&message_op, p->client, 3, pair_any);
    umx_ep_abort(p->client);
    umx_ep_abort(p->client);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_CLOSED);
    assert_int_equal(umx_ep_error(p->client), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &message_op), UMX_ERR_CANCELED);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_ERR_CANCELED);
    }
    (void)op_wait(p, &landing);
    check_end(p->client, UMX_ERR_CLOSED);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_CONNECTION_RESET);
    (void)op_wait(p, &unread);
    free(in);
    free(data);
}

/* Eager messages stay readable when the connection breaks. */
static void
test_what_had_arrived_before_a_break_can_be_read(void **state)
{
    pair *p = *state;
    char  in[100];
    char *data = calloc(1, MIB);
    op    o, send_op;

    assert_non_null(data);
    pair_open(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "abc", 4), UMX_OK);
    op_send(&send_op, p->client, 0, pair_tag(2), data, MIB);
    pair_settle(p);
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, 100), UMX_OK);
    assert_string_equal(in, "abc");
    op_recv(&o, p->server, 0, pair_any, in, 100);
    assert_int_equal(o.status, UMX_ERR_CONNECTION_RESET);
    (void)op_wait(p, &send_op);
    free(data);
}

/* Aborting while a cancelled receive's message is landing, claimed by another
 * receive. */
static void
test_abort_under_a_claimed_message(void **state)
{
    pair *p   = *state;
    char *out = calloc(1, MIB), *in = calloc(1, MIB), *other = calloc(1, MIB);
    op    send_op, first, claimant;

    assert_non_null(out);
    assert_non_null(in);
    assert_non_null(other);
    pair_open(p);
    op_send(&send_op, p->client, 0, pair_tag(1), out, MIB);
    pair_settle(p);
    op_recv(&first, p->server, 0, pair_any, in, MIB);
    op_cancel(first.req);
    op_recv(&claimant, p->server, 0, pair_any, other, MIB);
    umx_ep_abort(p->server);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &claimant), UMX_ERR_CANCELED);
    (void)op_wait(p, &send_op);
    free(other);
    free(in);
    free(out);
}

/* ---- counted close -------------------------------------------------------
 */

static void
test_close_after_a_number_of_messages(void **state)
{
    pair *p = *state;
    char  byte;
    op    late;

    pair_open(p);
    for (int i = 0; i < 4; i++) {
        byte = (char)i;
        assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), &byte, 1),
                         UMX_OK);
    }
    pair_settle(p);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(umx_ep_close_after_recv(p->server, 0),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_ep_close_after_recv(p->server, 3), UMX_OK);
    assert_int_equal(umx_ep_close_after_recv(p->server, 4), UMX_ERR_BUSY);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 2);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_CLOSED &&
                      umx_ep_get_state(p->client) == UMX_EP_CLOSED);
    assert_int_equal(umx_ep_recv_count(p->server), 3);
    op_recv(&late, p->client, 0, pair_any, &byte, 1);
    assert_int_equal(late.status, UMX_ERR_PEER_CLOSED);
}

/* Active messages count, and one whose bytes are with the sender still is not
 * received before they are here. */
static void
test_close_after_waits_for_the_bytes_of_what_was_taken(void **state)
{
    enum {
        LEN = 1 << 20
    };
    pair *p    = *state;
    char *data = test_malloc(LEN), *in = test_malloc(LEN);
    op    send, take, fetch;

    fill_pattern(data, LEN, 1);
    pair_open(p);
    assert_int_equal(umx_ep_close_after_recv(p->server, 1), UMX_OK);
    op_am_send(&send, p->client, UMX_AM_ID_PLAIN, NULL, 0, data, LEN);
    op_am_recv(&take, p->server, UMX_AM_ID_PLAIN);
    assert_int_equal(op_wait(p, &take), UMX_OK);
    assert_null(umx_message_data(take.message));
    pair_settle(p);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
    op_message_recv(&fetch, take.message, in, LEN);
    assert_int_equal(op_wait(p, &fetch), UMX_OK);
    check_pattern(in, LEN, 1);
    assert_int_equal(op_wait(p, &send), UMX_OK);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_CLOSED);
    test_free(data);
    test_free(in);
}

/* Put back it does not count. */
static void
test_close_after_is_not_for_what_was_put_back(void **state)
{
    enum {
        LEN = 1 << 20
    };
    pair *p  = *state;
    char *in = test_malloc(LEN);
    op    send, take;

    fill_pattern(in, LEN, 1);
    pair_open(p);
    assert_int_equal(umx_ep_close_after_recv(p->server, 1), UMX_OK);
    op_send(&send, p->client, 0, pair_untagged, in, LEN);
    op_recv_message(&take, p->server, 0, pair_any);
    assert_int_equal(op_wait(p, &take), UMX_OK);
    umx_message_return(take.message);
    pair_settle(p);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
    op_recv_message(&take, p->server, 0, pair_any);
    assert_int_equal(op_wait(p, &take), UMX_OK);
    umx_message_drop(take.message);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_CLOSED);
    PAIR_UNTIL(p, op_is_done(&send));
    test_free(in);
}

static void
test_close_after_as_many_as_there_were(void **state)
{
    pair *p    = *state;
    char  byte = 1;

    pair_open(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), &byte, 1), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(umx_ep_close_after_recv(p->server, 1), UMX_OK);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_CLOSED);
}

static void
test_the_peer_can_ask_for_a_counted_close(void **state)
{
    pair       *p       = *state;
    umi_control control = {.kind = UMI_CLOSE_AFTER_N};
    char        byte    = 1;

    pair_open(p);
    control.u.close_after_n.n = 1;
    umi_endpoint_send_control(p->client, &control);
    umi_endpoint_send_control(p->client, &control); /* once is enough */
    pair_settle(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), &byte, 1), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_CLOSED);
}

/* ---- other control messages ----------------------------------------------
 */

static void
check_protocol_failure(pair *p, const umi_control *first,
                       const umi_control *second)
{
    pair_open(p);
    (void)pair_feed_control(p->server, first);
    if (second != NULL) {
        (void)pair_feed_control(p->server, second);
    }
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
}

static void
test_an_ack_that_nobody_waits_for(void **state)
{
    const umi_control ack = {.kind = UMI_GOODBYE_ACK};

    check_protocol_failure(*state, &ack, NULL);
}

static void
test_a_second_goodbye(void **state)
{
    umi_control goodbye;

    memset(&goodbye, 0, sizeof(goodbye));
    goodbye.kind                          = UMI_GOODBYE;
    goodbye.u.goodbye.is_last             = true;
    goodbye.u.goodbye.count               = 1;
    goodbye.u.goodbye.entries[0].channel  = UMI_CHANNEL_0;
    goodbye.u.goodbye.entries[0].next_seq = 99; /* a message that never comes */
    check_protocol_failure(*state, &goodbye, &goodbye);
}

/* ---- a peer that dies ----------------------------------------------------
 */

static void
take_ep(umx_listener *listener, umx_ep *ep, void *arg)
{
    umx_ep **ep_p = arg;

    (void)listener;
    *ep_p = ep;
}

/* Listen, say where, take one peer, and progress until killed. */
static int
listen_until_killed(const char *tls)
{
    struct sockaddr_in  addr    = {.sin_family = AF_INET};
    size_t              len     = sizeof(addr);
    umx_ep             *ep      = NULL;
    umx_context        *context = pair_context(tls, NULL);
    umx_worker         *worker;
    umx_listener       *listener;
    umx_listener_params params = {.addr      = (struct sockaddr *)&addr,
                                  .addr_len  = sizeof(addr),
                                  .on_accept = take_ep,
                                  .arg       = &ep};

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (umx_worker_create(context, &worker) != UMX_OK ||
        umx_listener_create(worker, &params, &listener) != UMX_OK ||
        umx_listener_address(listener, (struct sockaddr *)&addr, &len) !=
            UMX_OK) {
        return 1;
    }
    child_write(CHILD_OUT, &addr.sin_port, sizeof(addr.sin_port));
    for (;;) {
        if (umx_worker_wait(worker, UMX_TIMEOUT_INFINITE) < 0) {
            return 1;
        }
    }
}

static void
test_a_killed_peer_fails_everything(void **state)
{
    pair              *p      = *state;
    struct sockaddr_in addr   = {.sin_family = AF_INET};
    umx_connect_params params = {.addr     = (struct sockaddr *)&addr,
                                 .addr_len = sizeof(addr)};
    child              peer   = child_start("listen", p->tls);
    char              *data   = calloc(1, MIB);
    char               byte;
    op                 send_op, recv_op, message_op, late;

    assert_non_null(data);
    pair_listen(p); /* for its workers */
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    child_read(peer.in, &addr.sin_port, sizeof(addr.sin_port));
    assert_int_equal(umx_ep_connect(p->client_worker, &params, &p->client),
                     UMX_OK);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) != UMX_EP_CONNECTING);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
    op_send(&send_op, p->client, 0, pair_tag(1), data, MIB);
    op_recv(&recv_op, p->client, 0, pair_any, &byte, 1);
    op_recv_message(&message_op, p->client, 0, pair_any);
    (void)child_end(&peer, SIGKILL);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_CONNECTION_RESET);
    assert_int_equal(op_wait(p, &message_op), UMX_ERR_CONNECTION_RESET);
    assert_int_equal(op_wait(p, &send_op), UMX_ERR_CONNECTION_RESET);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_FAILED);
    op_send(&late, p->client, 0, pair_tag(1), &byte, 1);
    assert_int_equal(late.status, UMX_ERR_CONNECTION_RESET);
    free(data);
}

/* Closing does not wait for the dead. */
static void
test_closing_towards_a_killed_peer(void **state)
{
    pair              *p      = *state;
    struct sockaddr_in addr   = {.sin_family = AF_INET};
    umx_connect_params params = {.addr     = (struct sockaddr *)&addr,
                                 .addr_len = sizeof(addr)};
    child              peer   = child_start("listen", p->tls);
    op                 o;

    pair_listen(p);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    child_read(peer.in, &addr.sin_port, sizeof(addr.sin_port));
    assert_int_equal(umx_ep_connect(p->client_worker, &params, &p->client),
                     UMX_OK);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_OPEN);
    kill(peer.pid, SIGSTOP);
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    (void)child_end(&peer, SIGKILL);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CONNECTION_RESET);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_FAILED);
}

/* ---- while connecting ----------------------------------------------------
 */

static void
test_a_close_while_connecting_delivers_what_waits(void **state)
{
    pair         *p = *state;
    char          in[4];
    umx_buffer    buffer = umx_host_buffer("raw", 3);
    umx_recv_info info;
    umx_request  *raw;
    op            send_op, close_op, second, refused;

    pair_listen(p);
    pair_connect(p, 0);
    op_send(&send_op, p->client, 0, pair_tag(1), "abc", 3);
    assert_int_equal(umx_tag_send(p->client, 2, &buffer, NULL, &raw),
                     UMX_INPROGRESS);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    op_close(&second, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(close_op.status, UMX_INPROGRESS);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_DRAINING);
    op_send(&refused, p->client, 0, pair_tag(1), "abc", 3);
    assert_int_equal(refused.status, UMX_ERR_CLOSED);
    assert_int_equal(umx_tag_send(p->client, 2, &buffer, NULL, &raw),
                     UMX_ERR_CLOSED);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    assert_int_equal(op_wait(p, &second), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(umx_request_status(raw), UMX_OK);
    umx_request_release(raw);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, 4), UMX_OK);
    assert_memory_equal(in, "abc", 3);
    buffer = umx_host_buffer(in, 4);
    assert_int_equal(umx_tag_recv(p->server_worker, NULL, 2, UINT64_MAX,
                                  &buffer, NULL, &raw, &info),
                     UMX_INPROGRESS);
    assert_int_equal(umx_request_wait(raw, SECOND_NS), UMX_OK);
    assert_memory_equal(in, "raw", 3);
    umx_request_release(raw);
}

static void
test_an_endpoint_dropped_while_connecting_delivers_what_waits(void **state)
{
    pair *p = *state;
    char  in[3];
    op    send_op;

    pair_listen(p);
    pair_connect(p, 0);
    op_send(&send_op, p->client, 0, pair_tag(1), "abc", 3);
    umx_ep_destroy(p->client);
    p->client = NULL;
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    PAIR_UNTIL(p, p->server != NULL);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, 3), UMX_OK);
}

/* The listening side never moves. */
static void
test_a_close_while_connecting_ends_at_its_deadline(void **state)
{
    pair *p = *state;
    op    send_op, close_op;

    pair_listen(p);
    pair_connect(p, UMX_TIMEOUT_INFINITE);
    op_send(&send_op, p->client, 0, pair_tag(1), "abc", 3);
    op_close(&close_op, p->client, 0);
    while (!op_is_done(&close_op)) {
        (void)!umx_worker_wait(p->client_worker, SECOND_NS);
    }
    assert_int_equal(close_op.status, UMX_ERR_TIMED_OUT);
    assert_int_equal(send_op.status, UMX_ERR_TIMED_OUT);
    assert_int_equal(umx_ep_unsent_bytes(p->client), 3);
}

static void
test_a_close_while_connecting_with_nothing_to_deliver_is_an_abort(void **state)
{
    pair *p = *state;
    op    close_op;

    pair_listen(p);
    pair_connect(p, 0);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(close_op.status, UMX_OK);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_CLOSED);
}

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {{"listen", listen_until_killed}};
    const struct CMUnitTest  tests[]   = {
           PAIR_TEST(test_all_that_was_sent_can_be_read_after_the_close),
           PAIR_TEST(test_giving_an_endpoint_back_right_after_a_send),
           PAIR_TEST(test_pending_receives_fail_on_both_sides),
           PAIR_TEST(test_both_sides_close_at_once),
           PAIR_TEST(test_both_close_with_sends_beyond_their_credit),
           PAIR_TEST(test_both_close_with_what_nobody_reads),
           PAIR_TEST(test_both_close_with_announcements_that_nobody_reads),
           PAIR_TEST(test_both_close_with_sends_beyond_their_credit),
           PAIR_TEST(test_both_close_with_what_nobody_reads),
           PAIR_TEST(test_both_close_with_announcements_that_nobody_reads),
           PAIR_TEST(test_a_second_close_waits_for_the_first),
           PAIR_TEST_ONCE(test_giving_an_endpoint_back_while_it_closes),
           PAIR_TEST(test_closing_after_the_peer_has_closed),
           PAIR_TEST(test_sends_to_a_peer_that_closes),
           PAIR_TEST_ONCE(test_many_channels),
           PAIR_TEST(test_closing_waits_for_what_is_landing),
           PAIR_TEST(test_closing_waits_for_its_own_receives),
           PAIR_TEST(test_both_sides_close_while_they_receive),
           PAIR_TEST(test_closing_waits_for_a_claimed_message),
           PAIR_TEST(test_closing_waits_for_a_taken_message),
           PAIR_TEST(test_a_taken_message_has_no_bytes_after_a_close),
           PAIR_TEST(test_closing_waits_for_a_stream),
           PAIR_TEST(test_closing_waits_for_frames),
           PAIR_TEST(test_closing_waits_for_frames_with_little_credit),
           PAIR_TEST(test_a_close_waits_for_data_beyond_the_limit),
           PAIR_TEST(test_a_taken_message_outlives_the_peers_close),
           PAIR_TEST(test_a_taken_message_outlives_the_endpoint),
           PAIR_TEST(test_a_peer_that_does_not_progress),
           PAIR_TEST(test_a_peer_that_does_not_progress_and_has_all),
           PAIR_TEST(test_abort_cancels_everything),
           PAIR_TEST(test_what_had_arrived_before_a_break_can_be_read),
           PAIR_TEST(test_abort_under_a_claimed_message),
           PAIR_TEST(test_close_after_a_number_of_messages),
           PAIR_TEST(test_close_after_waits_for_the_bytes_of_what_was_taken),
           PAIR_TEST(test_close_after_is_not_for_what_was_put_back),
           PAIR_TEST_ONCE(test_close_after_as_many_as_there_were),
           PAIR_TEST_ONCE(test_the_peer_can_ask_for_a_counted_close),
           PAIR_TEST_ONCE(test_an_ack_that_nobody_waits_for),
           PAIR_TEST_ONCE(test_a_second_goodbye),
           PAIR_TEST(test_a_killed_peer_fails_everything),
           PAIR_TEST(test_closing_towards_a_killed_peer),
           PAIR_TEST(test_a_close_while_connecting_delivers_what_waits),
           PAIR_TEST_ONCE(
               test_an_endpoint_dropped_while_connecting_delivers_what_waits),
           PAIR_TEST_ONCE(test_a_close_while_connecting_ends_at_its_deadline),
           PAIR_TEST_ONCE(
               test_a_close_while_connecting_with_nothing_to_deliver_is_an_abort),
    };

    child_role(argc, argv, entries, 1);
    return UNIT_RUN(tests);
}
