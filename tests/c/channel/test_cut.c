/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: channel/connection */
/* A connection ends while the bytes of a long message are still with its
 * sender: what was sent before it can be read, it cannot, and nothing behind it
 * is handed out, whatever it is sent by, and however the connection ends. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>
#include <umx/messenger.h>

enum {
    SMALL    = 8,
    MIB      = 1024 * 1024,
    MESSAGES = 3, /* a short one, a long one, a short one */
    AM_ID    = 20
};

static const size_t lens[MESSAGES] = {SMALL, MIB, SMALL};

/* ---- the kinds -----------------------------------------------------------
 */

static void
message_send(pair *p, op *o, const char *data, size_t len)
{
    op_send(o, p->client, 0, pair_tag(1), data, len);
}

static umx_status
message_recv(pair *p, char *data)
{
    return pair_recv(p, p->server, 0, pair_any, data, MIB);
}

/* First the message, then its bytes. */
static umx_status
receive_bytes(pair *p, op *taking, char *data)
{
    op o;

    if (op_wait(p, taking) != UMX_OK) {
        return taking->status;
    }
    op_message_recv(&o, taking->message, data, MIB);
    assert_null(o.message);
    return op_wait(p, &o);
}

static void
taken_send(pair *p, op *o, const char *data, size_t len)
{
    op_send(o, p->client, 1, pair_tag(1), data, len);
}

static umx_status
taken_recv(pair *p, char *data)
{
    op o;

    op_recv_message(&o, p->server, 1, pair_any);
    return receive_bytes(p, &o, data);
}

static void
am_send(pair *p, op *o, const char *data, size_t len)
{
    op_am_send(o, p->client, AM_ID, "h", 1, data, len);
}

static umx_status
am_recv(pair *p, char *data)
{
    op o;

    op_am_recv(&o, p->server, AM_ID);
    return receive_bytes(p, &o, data);
}

static void
stream_send(pair *p, op *o, const char *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buf    = umx_host_buffer(data, len);

    o->status = umx_stream_send(p->client, &buf, &params, &o->req);
}

static umx_status
stream_recv(pair *p, char *data)
{
    op            o;
    umx_op_params params = op_params(&o);
    umx_buffer    buf    = umx_host_buffer(data, SMALL);

    o.status = umx_stream_recv(p->server, &buf, 0, &params, &o.req, &o.info);
    if (op_wait(p, &o) == UMX_OK) {
        assert_int_equal(o.info.length, SMALL); /* no end of the stream */
    }
    return o.status;
}

static void
frames_send(pair *p, op *o, const char *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buf    = umx_host_buffer(data, len);

    o->status = umx_frames_send(p->client, 0, NULL, 0, &buf, 1, &params,
                                &o->req);
}

static void
on_frames(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    o->req     = NULL;
    o->status  = status;
    o->message = umx_request_message(req);
    if (o->message != NULL) {
        umx_message_drop(o->message);
    }
}

static umx_status
frames_recv(pair *p, char *data)
{
    op                o;
    umx_op_params     params = op_params(&o);
    umx_buffer        buf    = umx_host_buffer(data, MIB);
    umx_frames_target target = {.buffers = &buf, .count = 1};

    params.on_done = on_frames;
    o.status       = umx_frames_recv(p->server, 0, &target, &params, &o.req);
    return op_wait(p, &o);
}

typedef struct kind {
    void (*send)(pair *p, op *o, const char *data, size_t len);
    umx_status (*recv)(pair *p, char *data);
} kind;

static const kind kinds[] = {
    {message_send, message_recv}, {taken_send, taken_recv},
    {am_send, am_recv},           {stream_send, stream_recv},
    {frames_send, frames_recv},
};

enum {
    NUM_KINDS = sizeof(kinds) / sizeof(*kinds)
};

/* ---- a listener for messages ---------------------------------------------
 */

typedef struct sink {
    umx_message_listener *listener;
    char                 *data;
    unsigned              num_got;
    unsigned              num_failed;
    unsigned              num_ends;
    umx_status            end;
} sink;

static umx_status
sink_alloc(const umx_frames_info *info, umx_buffer *buffers, void *arg)
{
    sink *s = arg;

    buffers[0] = umx_host_buffer(s->data, info->len);
    return UMX_OK;
}

static void
sink_finish(const umx_buffer *buffers, size_t count, umx_status status,
            void *arg)
{
    sink *s = arg;

    (void)count;
    if (status != UMX_OK) {
        s->num_failed++;
        return;
    }
    assert_int_equal(s->num_failed, 0);
    check_pattern(buffers[0].data, lens[s->num_got], s->num_got);
    s->num_got++;
}

static bool
sink_route(const umx_metadata *metadata, umx_message_receiver *receiver,
           void *arg)
{
    (void)metadata;
    *receiver = (umx_message_receiver){sink_alloc, sink_finish, arg};
    return true;
}

static void
sink_on_end(umx_message_listener *listener, umx_status status, void *arg)
{
    sink *s = arg;

    (void)listener;
    s->num_ends++;
    s->end = status;
}

static void
sink_open(sink *s, pair *p, char *data)
{
    umx_message_listener_params params = {
        .field_mask = UMX_MESSAGE_LISTENER_FIELD_ON_END,
        .route      = sink_route,
        .arg        = s,
        .on_end     = sink_on_end};

    *s = (sink){.data = data};
    assert_int_equal(
        umx_message_listener_create(p->server, &params, &s->listener), UMX_OK);
}

/* ---- all of them ---------------------------------------------------------
 */

typedef struct traffic {
    char               *out[MESSAGES];
    char               *in;
    op                  sends[NUM_KINDS + 1][MESSAGES];
    umx_message_sender *sender;
} traffic;

static void
send_to_listener(pair *p, traffic *t, unsigned i)
{
    op             *o      = &t->sends[NUM_KINDS][i];
    umx_op_params   params = op_params(o);
    umx_buffer      buf    = umx_host_buffer(t->out[i], lens[i]);
    umx_message_out what   = {.endpoints     = &p->client,
                              .num_endpoints = 1,
                              .buffers       = &buf,
                              .num_buffers   = 1};

    o->status = umx_message_send(t->sender, &what, &params, &o->req);
    umx_message_sender_flush(t->sender);
}

/* Three messages of each kind are here, but for the bytes of the long ones. */
static void
send_all(pair *p, traffic *t)
{
    t->in = malloc(MIB);
    assert_non_null(t->in);
    assert_int_equal(
        umx_message_sender_create(p->client_worker, NULL, &t->sender), UMX_OK);
    for (unsigned i = 0; i < MESSAGES; i++) {
        t->out[i] = malloc(lens[i]);
        assert_non_null(t->out[i]);
        fill_pattern(t->out[i], lens[i], i);
        for (unsigned k = 0; k < NUM_KINDS; k++) {
            kinds[k].send(p, &t->sends[k][i], t->out[i], lens[i]);
        }
        send_to_listener(p, t, i);
    }
    pair_settle(p);
}

static void
free_all(pair *p, traffic *t)
{
    umx_message_sender_destroy(t->sender);
    for (unsigned i = 0; i < MESSAGES; i++) {
        for (unsigned k = 0; k <= NUM_KINDS; k++) {
            (void)op_wait(p, &t->sends[k][i]);
        }
        free(t->out[i]);
    }
    free(t->in);
}

static bool
has_ended(const umx_ep *ep)
{
    return umx_ep_get_state(ep) == UMX_EP_FAILED ||
           umx_ep_get_state(ep) == UMX_EP_CLOSED;
}

/* Check what can be read of each kind; receives fail with `status`
 * afterwards. */
static void
check_all(pair *p, traffic *t, umx_status status)
{
    sink s;

    PAIR_UNTIL(p, has_ended(p->server));
    for (unsigned k = 0; k < NUM_KINDS; k++) {
        memset(t->in, 0, SMALL);
        assert_int_equal(kinds[k].recv(p, t->in), UMX_OK);
        check_pattern(t->in, SMALL, 0);
        assert_int_equal(kinds[k].recv(p, t->in), status);
        assert_int_equal(kinds[k].recv(p, t->in), status);
    }
    sink_open(&s, p, t->in);
    PAIR_UNTIL(p, s.num_ends != 0);
    assert_int_equal(s.num_got, 1);
    assert_int_equal(s.end, status);
    umx_message_listener_destroy(s.listener);
}

/* ---- the ends ------------------------------------------------------------
 */

static void
test_no_hole_when_the_sender_aborts(void **state)
{
    pair   *p = *state;
    traffic t;

    pair_open(p);
    send_all(p, &t);
    umx_ep_abort(p->client);
    check_all(p, &t, UMX_ERR_CONNECTION_RESET);
    free_all(p, &t);
}

static void
test_no_hole_when_ucx_reports_the_end(void **state)
{
    pair   *p = *state;
    traffic t;

    pair_open(p);
    send_all(p, &t);
    umi_link_close(p->server->base.link);
    check_all(p, &t, UMX_ERR_CONNECTION_RESET);
    free_all(p, &t);
}

static void
test_no_hole_when_the_peer_breaks_the_protocol(void **state)
{
    umi_control ack = {.kind = UMI_GOODBYE_ACK}; /* of no GOODBYE */
    pair       *p   = *state;
    traffic     t;

    pair_open(p);
    send_all(p, &t);
    pair_feed_control(p->server, &ack);
    check_all(p, &t, UMX_ERR_PROTOCOL);
    free_all(p, &t);
}

/* The sender closes, and does not wait until all has been read. */
static void
test_no_hole_when_the_close_of_the_sender_times_out(void **state)
{
    pair   *p = *state;
    traffic t;
    op      close_op;

    p->config.goodbye_bytes = 0;
    pair_open(p);
    send_all(p, &t);
    op_close(&close_op, p->client, SECOND_NS / 100);
    assert_int_equal(op_wait(p, &close_op), UMX_ERR_TIMED_OUT);
    check_all(p, &t, UMX_ERR_PEER_CLOSED);
    free_all(p, &t);
}

/* A receive is cancelled after the connection has ended under its message: that
 * one is not offered to the next receive, which would wait for it. */
static void
test_a_lost_message_returns_from_no_cancelled_receive(void **state)
{
    enum {
        LEN = 3000000
    };
    pair *p   = *state;
    char *out = calloc(1, LEN), *in = malloc(LEN);
    op    sending, first, second;

    pair_open(p);
    op_send(&sending, p->client, 0, pair_tag(1), out, LEN);
    PAIR_UNTIL(p, p->server->num_announced == 1);
    op_recv(&first, p->server, 0, pair_any, in, LEN);
    assert_false(op_is_done(&first));
    umi_link_close(p->server->base.link);
    umi_worker_run_events(p->server_worker);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_FAILED);
    if (!op_is_done(&first)) {
        op_cancel(first.req);
    }
    op_recv(&second, p->server, 0, pair_any, in, LEN);
    assert_int_equal(op_wait(p, &second), UMX_ERR_CONNECTION_RESET);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    (void)op_wait(p, &sending);
    free(out);
    free(in);
}

/* ---- what is in hand -----------------------------------------------------
 */

/* The long messages have been taken when the connection ends. */
static void
test_nothing_behind_a_taken_message(void **state)
{
    pair         *p = *state;
    traffic       t;
    op            taking[2], o;
    umx_op_params params = op_params(&o);
    umx_message  *frames[2];

    pair_open(p);
    send_all(p, &t);
    for (int i = 0; i < 2; i++) {
        op_recv_message(&taking[i], p->server, 1, pair_any);
        assert_int_equal(taking[i].status, UMX_OK);
        assert_int_equal(
            umx_frames_recv_message(p->server, 0, &params, &o.req, &frames[i]),
            UMX_OK);
    }
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, has_ended(p->server));
    assert_int_equal(taken_recv(p, t.in), UMX_ERR_CONNECTION_RESET);
    assert_int_equal(frames_recv(p, t.in), UMX_ERR_CONNECTION_RESET);
    /* Given back, the first ones can be received again, the others not. */
    for (int i = 1; i >= 0; i--) {
        umx_message_return(taking[i].message);
        umx_message_return(frames[i]);
    }
    assert_int_equal(taken_recv(p, t.in), UMX_OK);
    assert_int_equal(taken_recv(p, t.in), UMX_ERR_CONNECTION_RESET);
    assert_int_equal(frames_recv(p, t.in), UMX_OK);
    assert_int_equal(frames_recv(p, t.in), UMX_ERR_CONNECTION_RESET);
    free_all(p, &t);
}

/* A message behind the lost one was read before that was lost: it does not go
 * back. */
static void
test_nothing_returns_behind_a_lost_message(void **state)
{
    pair      *p = *state;
    traffic    t;
    op         first, last;
    char       bytes[SMALL];
    umx_buffer buf = umx_host_buffer(bytes, SMALL);

    pair_open(p);
    send_all(p, &t);
    op_recv(&first, p->server, 0, pair_any, t.in, MIB);
    assert_int_equal(first.status, UMX_OK);
    op_recv_message(&first, p->server, 0, pair_any); /* the long one */
    op_recv(&last, p->server, 0, pair_any, bytes, SMALL);
    assert_int_equal(last.status, UMX_OK);
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, has_ended(p->server));
    assert_int_equal(umx_channel_unrecv(p->server, 0, &last.info, &buf),
                     UMX_ERR_CLOSED);
    assert_int_equal(message_recv(p, t.in), UMX_ERR_CONNECTION_RESET);
    umx_message_drop(first.message);
    free_all(p, &t);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_no_hole_when_the_sender_aborts),
        PAIR_TEST(test_no_hole_when_ucx_reports_the_end),
        PAIR_TEST(test_no_hole_when_the_peer_breaks_the_protocol),
        PAIR_TEST(test_no_hole_when_the_close_of_the_sender_times_out),
        PAIR_TEST(test_a_lost_message_returns_from_no_cancelled_receive),
        PAIR_TEST(test_nothing_behind_a_taken_message),
        PAIR_TEST(test_nothing_returns_behind_a_lost_message),
    };

    return UNIT_RUN(tests);
}
