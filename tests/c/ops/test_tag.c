/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: ops/post ops/tag_message */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

enum {
    MIB = 1024 * 1024
};

/* One call of umx_tag_recv_message(). */
typedef struct taken {
    op               o;
    umx_tag_message *message;
} taken;

static void
tag_send(op *o, umx_ep *ep, uint64_t tag, const void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    o->status = umx_tag_send(ep, tag, &buffer, &params, &o->req);
}

static void
tag_recv(op *o, umx_worker *worker, umx_ep *ep, uint64_t tag, uint64_t mask,
         void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    o->status = umx_tag_recv(worker, ep, tag, mask, &buffer, &params, &o->req,
                             &o->info);
}

static void
tag_send_sync(op *o, umx_ep *ep, uint64_t tag, const void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    o->status = umx_tag_send_sync(ep, tag, &buffer, &params, &o->req);
}

static void
on_taken(umx_request *req, umx_status status, void *arg)
{
    taken *t = arg;

    t->o.calls++;
    t->o.status = status;
    t->o.req    = NULL;
    t->o.info   = *umx_request_info(req);
    t->message  = (status == UMX_OK) ? umx_request_tag_message(req) : NULL;
}

static void
tag_take(taken *t, umx_worker *worker, uint64_t tag, uint64_t mask)
{
    umx_op_params params = op_params(&t->o);

    params.on_done = on_taken;
    params.arg     = t;
    t->message     = NULL;
    t->o.status    = umx_tag_recv_message(worker, tag, mask, &params, &t->o.req,
                                          &t->message);
}

static void
tag_wait(op *o, umx_worker *worker, uint64_t tag, uint64_t mask)
{
    umx_op_params params = op_params(o);

    o->status = umx_tag_wait(worker, tag, mask, &params, &o->req, &o->info);
}

static void
message_recv(op *o, umx_tag_message *message, void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    o->status = umx_tag_message_recv(&message, &buffer, &params, &o->req);
    assert_true(message == NULL || o->status < 0);
}

/* A byte that has come with `tag`, or comes. */
static char
recv_byte(pair *p, uint64_t tag, uint64_t mask)
{
    char byte = 0;
    op   o;

    tag_recv(&o, p->server_worker, NULL, tag, mask, &byte, 1);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(o.info.length, 1);
    return byte;
}

/* Bytes with tags 1, 2, 3 have come. */
static void
send_three(pair *p)
{
    op ops[3];

    for (uint64_t i = 0; i < 3; i++) {
        tag_send(&ops[i], p->client, i + 1, &"abc"[i], 1);
        assert_int_equal(op_wait(p, &ops[i]), UMX_OK);
    }
    pair_settle(p);
}

static void
check_round(pair *p, size_t len, bool is_expected)
{
    char *out = malloc(len + 1), *in = calloc(1, len + 1);
    op    send_op, recv_op;

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, len, 6);
    if (is_expected) {
        tag_recv(&recv_op, p->server_worker, NULL, 0x10, 0xf0, in, len + 1);
    }
    tag_send(&send_op, p->client, 0x1234567800000012, out, len);
    if (!is_expected) {
        pair_settle(p);
        tag_recv(&recv_op, p->server_worker, NULL, 0x10, 0xf0, in, len + 1);
    }
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(recv_op.info.length, len);
    assert_int_equal(recv_op.info.tag, 0x1234567800000012);
    check_pattern(in, len, 6);
    free(in);
    free(out);
}

static void
test_tagged_messages_arrive(void **state)
{
    static const size_t sizes[] = {0, 1, 128, 8192, 100 * 1024, MIB};
    pair               *p       = *state;

    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        check_round(p, sizes[i], true);
        check_round(p, sizes[i], false);
    }
}

/* The sizes of test_tagged_messages_arrive. */
static void
test_a_synchronous_send_is_done_when_it_is_received(void **state)
{
    static const size_t sizes[] = {0, 8, 8192, 100 * 1024, MIB};
    pair               *p       = *state;
    char               *out = malloc(MIB), *in = calloc(1, MIB);
    op                  send_op, recv_op;

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, MIB, 9);
    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        tag_send_sync(&send_op, p->client, i, out, sizes[i]);
        assert_int_equal(send_op.status, UMX_INPROGRESS);
        pair_settle(p);
        assert_false(op_is_done(&send_op));
        tag_recv(&recv_op, p->server_worker, NULL, i, UINT64_MAX, in, MIB);
        assert_int_equal(op_wait(p, &recv_op), UMX_OK);
        assert_int_equal(op_wait(p, &send_op), UMX_OK);
        assert_int_equal(recv_op.info.length, sizes[i]);
        check_pattern(in, sizes[i], 9);
    }
    free(in);
    free(out);
}

static void
test_operations_wait_for_the_handshake(void **state)
{
    pair         *p = *state;
    umx_op_params params;
    char          in[4] = "", back = 0;
    op            send_op, withdrawn, recv_op, reply, flush_op;

    pair_listen(p);
    pair_connect(p, 0);
    tag_send(&withdrawn, p->client, 1, "no", 2);
    tag_send(&send_op, p->client, 1, "abc", 3);
    tag_recv(&recv_op, p->client_worker, p->client, 2, UINT64_MAX, &back, 1);
    params          = op_params(&flush_op);
    flush_op.status = umx_ep_flush(p->client, &params, &flush_op.req);
    assert_int_equal(withdrawn.status, UMX_INPROGRESS);
    assert_int_equal(send_op.status, UMX_INPROGRESS);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    assert_int_equal(flush_op.status, UMX_INPROGRESS);
    op_cancel(withdrawn.req);
    assert_int_equal(op_wait(p, &withdrawn), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &flush_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    tag_recv(&reply, p->server_worker, NULL, 1, UINT64_MAX, in, 4);
    assert_int_equal(op_wait(p, &reply), UMX_OK);
    assert_memory_equal(in, "abc", 4);
    PAIR_UNTIL(p, p->server != NULL);
    tag_send(&send_op, p->server, 2, "x", 1);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(back, 'x');
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
}

static void
test_operations_fail_with_the_handshake(void **state)
{
    pair *p = *state;
    char  byte;
    op    send_op, recv_op;

    pair_listen(p);
    pair_connect(p, 0);
    tag_send(&send_op, p->client, 1, "abc", 3);
    tag_recv(&recv_op, p->client_worker, p->client, 1, UINT64_MAX, &byte, 1);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    assert_int_equal(op_wait(p, &send_op), UMX_ERR_NOT_CONNECTED);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_NOT_CONNECTED);
    tag_send(&send_op, p->client, 1, "abc", 3);
    assert_int_equal(send_op.status, UMX_ERR_NOT_CONNECTED);
    tag_recv(&recv_op, p->client_worker, p->client, 1, UINT64_MAX, &byte, 1);
    assert_int_equal(recv_op.status, UMX_ERR_NOT_CONNECTED);
}

static void
test_probing_takes_nothing(void **state)
{
    pair         *p = *state;
    umx_recv_info info;

    pair_open(p);
    assert_int_equal(umx_tag_probe(p->server_worker, 1, UINT64_MAX, &info),
                     UMX_ERR_NO_MESSAGE);
    send_three(p);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(umx_tag_probe(p->server_worker, 2, UINT64_MAX, &info),
                         UMX_OK);
        assert_int_equal(info.tag, 2);
        assert_int_equal(info.length, 1);
    }
    assert_int_equal(umx_tag_probe(p->server_worker, 0, 0, &info), UMX_OK);
    assert_int_equal(info.tag, 1);
    assert_int_equal(recv_byte(p, 2, UINT64_MAX), 'b');
    assert_int_equal(recv_byte(p, 0, 0), 'a');
    assert_int_equal(recv_byte(p, 0, 0), 'c');
}

/* Nothing of libumx is told of a message that no receive is posted for. */
static void
test_a_sleep_ends_for_a_message_that_is_probed(void **state)
{
    pair         *p = *state;
    umx_recv_info info;

    pair_open(p);
    for (int i = 0; i < 20; i++) {
        op send_op;

        pair_settle(p);
        tag_send(&send_op, p->client, 3, "c", 1);
        while (umx_tag_probe(p->server_worker, 3, UINT64_MAX, &info) !=
               UMX_OK) {
            assert_int_equal(umx_worker_wait(p->server_worker, SECOND_NS),
                             UMX_OK);
        }
        assert_int_equal(recv_byte(p, 3, UINT64_MAX), 'c');
        assert_int_equal(op_wait(p, &send_op), UMX_OK);
    }
}

static void
test_waiting_for_a_message(void **state)
{
    pair *p = *state;
    op    waits[3], given_up;

    pair_open(p);
    tag_wait(&waits[0], p->server_worker, 2, UINT64_MAX);
    tag_wait(&waits[1], p->server_worker, 0, 0);
    tag_wait(&given_up, p->server_worker, 0, 0);
    assert_int_equal(waits[0].status, UMX_INPROGRESS);
    op_cancel(given_up.req);
    assert_int_equal(op_wait(p, &given_up), UMX_ERR_CANCELED);
    send_three(p);
    assert_int_equal(op_wait(p, &waits[0]), UMX_OK);
    assert_int_equal(op_wait(p, &waits[1]), UMX_OK);
    assert_int_equal(waits[0].info.tag, 2);
    assert_int_equal(waits[1].info.tag, 1);
    tag_wait(&waits[2], p->server_worker, 3, UINT64_MAX);
    assert_int_equal(waits[2].status, UMX_OK);
    assert_int_equal(waits[2].info.tag, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(recv_byte(p, 0, 0), "abc"[i]);
    }
}

static void
check_message(pair *p, const char *out, char *in, size_t len, bool is_expected)
{
    taken t;
    op    send_op, recv_op;

    memset(in, 0, len + 1);
    if (is_expected) {
        tag_take(&t, p->server_worker, 4, 0xf);
        assert_int_equal(t.o.status, UMX_INPROGRESS);
    }
    tag_send(&send_op, p->client, 0x14, out, len);
    if (!is_expected) {
        pair_settle(p);
        tag_take(&t, p->server_worker, 4, 0xf);
        assert_int_equal(t.o.status, UMX_OK);
    }
    assert_int_equal(op_wait(p, &t.o), UMX_OK);
    assert_int_equal(umx_tag_message_info(t.message)->length, len);
    assert_int_equal(umx_tag_message_info(t.message)->tag, 0x14);
    if (len != 0) {
        message_recv(&recv_op, t.message, in, len - 1);
        assert_int_equal(recv_op.status, UMX_ERR_BUFFER_TOO_SMALL);
    }
    message_recv(&recv_op, t.message, in, len + 1);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    check_pattern(in, len, 3);
}

static void
test_taking_a_message_before_its_bytes(void **state)
{
    static const size_t sizes[] = {0, 1, 128, 8192, 100 * 1024, MIB};
    pair               *p       = *state;
    char               *out = malloc(MIB), *in = malloc(MIB + 1);

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, MIB, 3);
    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        check_message(p, out, in, sizes[i], false);
        check_message(p, out, in, sizes[i], true);
    }
    free(in);
    free(out);
}

static void
test_messages_put_back_keep_their_order(void **state)
{
    pair         *p = *state;
    taken         t[3];
    umx_recv_info info;

    pair_open(p);
    send_three(p);
    for (int i = 0; i < 2; i++) {
        tag_take(&t[i], p->server_worker, 0, 0);
        assert_int_equal(t[i].o.status, UMX_OK);
    }
    umx_tag_message_return(t[1].message);
    umx_tag_message_return(t[0].message);
    assert_int_equal(umx_tag_probe(p->server_worker, 0, 0, &info), UMX_OK);
    assert_int_equal(info.tag, 1);
    tag_take(&t[2], p->server_worker, 2, UINT64_MAX);
    assert_int_equal(t[2].o.status, UMX_OK);
    umx_tag_message_return(t[2].message);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(recv_byte(p, 0, 0), "abc"[i]);
    }
}

/* Posted receives and waiting requests, each in their order. */
static void
test_a_message_put_back_goes_to_who_waits_for_it(void **state)
{
    pair *p = *state;
    taken t, second;
    char  other = 0, byte = 0;
    op    others, recv_op, send_op;

    pair_open(p);
    send_three(p);
    tag_take(&t, p->server_worker, 2, UINT64_MAX);
    assert_int_equal(t.o.status, UMX_OK);
    tag_recv(&others, p->server_worker, NULL, 9, UINT64_MAX, &other, 1);
    tag_recv(&recv_op, p->server_worker, NULL, 2, UINT64_MAX, &byte, 1);
    umx_tag_message_return(t.message);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(byte, 'b');
    assert_int_equal(recv_op.info.tag, 2);
    tag_take(&t, p->server_worker, 1, UINT64_MAX);
    tag_take(&second, p->server_worker, 1, UINT64_MAX);
    assert_int_equal(second.o.status, UMX_INPROGRESS);
    umx_tag_message_return(t.message);
    assert_int_equal(op_wait(p, &second.o), UMX_OK);
    message_recv(&recv_op, second.message, &byte, 1);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(byte, 'a');
    tag_send(&send_op, p->client, 9, "z", 1);
    assert_int_equal(op_wait(p, &others), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(other, 'z');
    assert_int_equal(recv_byte(p, 3, UINT64_MAX), 'c');
}

static void
test_a_received_message_can_be_put_back(void **state)
{
    pair      *p    = *state;
    char       byte = 0;
    umx_buffer buffer;
    op         o;

    pair_open(p);
    send_three(p);
    tag_recv(&o, p->server_worker, NULL, 0, 0, &byte, 1);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    buffer = umx_host_buffer(&byte, 0);
    assert_int_equal(umx_tag_unrecv(p->server_worker, &o.info, &buffer),
                     UMX_ERR_INVALID_PARAM);
    buffer.len = 1;
    assert_int_equal(umx_tag_unrecv(p->server_worker, &o.info, &buffer),
                     UMX_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(recv_byte(p, 0, 0), "abc"[i]);
    }
}

/* Cancelled after UCX has matched it, in each state a message can be in. */
static void
test_a_receive_cancelled_late_loses_nothing(void **state)
{
    static const size_t sizes[] = {1, 100 * 1024, 4 * MIB};
    pair               *p       = *state;
    char               *out = malloc(4 * MIB), *in = calloc(1, 4 * MIB);
    op                  send_op, recv_op, again;

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, 4 * MIB, 5);
    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        tag_send(&send_op, p->client, 7, out, sizes[i]);
        pair_settle(p);
        tag_recv(&recv_op, p->server_worker, NULL, 7, UINT64_MAX, in, 4 * MIB);
        op_cancel(recv_op.req);
        assert_int_equal(op_wait(p, &recv_op), UMX_ERR_CANCELED);
        memset(in, 0, sizes[i]);
        tag_recv(&again, p->server_worker, NULL, 7, UINT64_MAX, in, 4 * MIB);
        assert_int_equal(op_wait(p, &again), UMX_OK);
        assert_int_equal(again.info.length, sizes[i]);
        check_pattern(in, sizes[i], 5);
        assert_int_equal(op_wait(p, &send_op), UMX_OK);
    }
    free(in);
    free(out);
}

static void
test_a_message_put_back_can_be_too_long(void **state)
{
    pair *p    = *state;
    char  byte = 'x', in[3];
    taken t;
    op    send_op, recv_op;

    pair_open(p);
    tag_send(&send_op, p->client, 1, "abc", 3);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    tag_recv(&recv_op, p->server_worker, NULL, 1, UINT64_MAX, in, 3);
    op_cancel(recv_op.req);
    (void)op_wait(p, &recv_op);
    tag_take(&t, p->server_worker, 1, UINT64_MAX);
    assert_int_equal(op_wait(p, &t.o), UMX_OK);
    umx_tag_message_return(t.message);
    tag_recv(&recv_op, p->server_worker, NULL, 1, UINT64_MAX, &byte, 1);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(recv_op.info.length, 3);
    assert_int_equal(byte, 'x');
}

/* Taken, put back, waited for: the worker goes with all of it. */
static void
test_a_worker_ends_with_messages_taken(void **state)
{
    pair         *p = *state;
    taken         kept, returned, waiting;
    umx_recv_info info;
    op            recv_op, sends[2];
    char         *out = calloc(1, MIB);

    assert_non_null(out);
    pair_open(p);
    for (int i = 0; i < 2; i++) { /* announced */
        tag_send(&sends[i], p->client, 4, out, MIB);
    }
    pair_settle(p);
    tag_take(&returned, p->server_worker, 4, UINT64_MAX);
    assert_int_equal(returned.o.status, UMX_OK);
    tag_take(&kept, p->server_worker, 4, UINT64_MAX);
    assert_int_equal(kept.o.status, UMX_OK);
    umx_tag_message_return(returned.message);
    tag_take(&waiting, p->server_worker, 9, UINT64_MAX);
    assert_int_equal(umx_tag_probe(p->server_worker, 4, UINT64_MAX, &info),
                     UMX_OK);
    umx_ep_destroy(p->server);
    p->server = NULL;
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    umx_worker_destroy(p->server_worker);
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
    assert_int_equal(waiting.o.status, UMX_ERR_CANCELED);
    message_recv(&recv_op, kept.message, out, MIB);
    assert_int_equal(recv_op.status, UMX_ERR_CLOSED);
    for (int i = 0; i < 2; i++) {
        (void)op_wait(p, &sends[i]); /* dropped, or reset */
    }
    free(out);
}

/* Rendezvous: on its way until the receiver takes it. */
static void
test_a_close_waits_for_a_send_in_flight(void **state)
{
    pair  *p   = *state;
    size_t len = 4 * MIB;
    char  *out = malloc(len), *in = calloc(1, len);
    op     send_op, recv_op, close_op;

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, len, 7);
    pair_open(p);
    tag_send(&send_op, p->client, 5, out, len);
    assert_int_equal(send_op.status, UMX_INPROGRESS);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(close_op.status, UMX_INPROGRESS);
    tag_recv(&recv_op, p->server_worker, NULL, 5, UINT64_MAX, in, len);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    check_pattern(in, len, 7);
    free(in);
    free(out);
}

static void
test_a_longer_message_is_truncated(void **state)
{
    pair *p = *state;
    char  in[2];
    op    send_op, recv_op;

    pair_open(p);
    tag_recv(&recv_op, p->server_worker, NULL, 1, UINT64_MAX, in, 2);
    tag_send(&send_op, p->client, 1, "abc", 3);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
}

static void
test_a_receive_can_be_cancelled(void **state)
{
    pair *p = *state;
    char  byte;
    op    o;

    pair_open(p);
    tag_recv(&o, p->server_worker, NULL, 1, UINT64_MAX, &byte, 1);
    assert_int_equal(o.status, UMX_INPROGRESS);
    op_cancel(o.req);
    op_cancel(o.req);
    assert_int_equal(o.calls, 0);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    tag_recv(&o, p->server_worker, p->server, 1, UINT64_MAX, &byte, 1);
    op_cancel(o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
}

static void
test_bad_arguments(void **state)
{
    pair *p = *state;
    char  byte;
    op    o;

    pair_open(p);
    tag_send(&o, p->client, 1, NULL, 1);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    tag_recv(&o, p->server_worker, NULL, 1, 1, NULL, 1);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    umx_ep_abort(p->client);
    tag_send(&o, p->client, 1, &byte, 1);
    assert_int_equal(o.status, UMX_ERR_CLOSED);
    tag_recv(&o, p->client_worker, p->client, 1, 1, &byte, 1);
    assert_int_equal(o.status, UMX_ERR_CLOSED);
}

/* A receive that names an endpoint ends with it, in each way it can end; one
 * that does not waits on. */
static void
test_a_receive_ends_with_its_endpoint(void **state)
{
    pair *p = *state;
    char  byte;
    op    closed, reset, any, close_op;

    pair_open(p);
    tag_recv(&any, p->server_worker, NULL, 1, UINT64_MAX, &byte, 1);
    tag_recv(&reset, p->server_worker, p->server, 2, UINT64_MAX, &byte, 1);
    tag_recv(&closed, p->client_worker, p->client, 2, UINT64_MAX, &byte, 1);
    umx_ep_abort(p->client);
    assert_int_equal(op_wait(p, &closed), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &reset), UMX_ERR_CONNECTION_RESET);
    assert_false(op_is_done(&any));

    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    p->client = NULL;
    p->server = NULL;
    pair_connect(p, 0);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
    tag_recv(&reset, p->server_worker, p->server, 2, UINT64_MAX, &byte, 1);
    tag_recv(&closed, p->client_worker, p->client, 2, UINT64_MAX, &byte, 1);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &closed), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &reset), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    assert_false(op_is_done(&any));
    op_cancel(any.req);
    assert_int_equal(op_wait(p, &any), UMX_ERR_CANCELED);
}

/* Raw messages are the worker's: those that have come before the end of the
 * endpoint are received by naming it, too, and only those. */
static void
test_what_has_come_is_received_after_its_end(void **state)
{
    pair         *p    = *state;
    const uint8_t one  = 7;
    uint8_t       byte = 0;
    umx_recv_info info;
    op            sent, received, close_op;

    pair_open(p);
    tag_send(&sent, p->client, 1, &one, 1);
    PAIR_UNTIL(p,
               umx_tag_probe(p->server_worker, 1, UINT64_MAX, &info) == UMX_OK);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_CLOSED);
    tag_recv(&received, p->server_worker, p->server, 2, UINT64_MAX, &byte, 1);
    assert_int_equal(received.status, UMX_ERR_PEER_CLOSED);
    tag_recv(&received, p->server_worker, p->server, 1, UINT64_MAX, &byte, 1);
    assert_int_equal(op_wait(p, &received), UMX_OK);
    assert_int_equal(byte, one);
    tag_recv(&received, p->server_worker, p->server, 1, UINT64_MAX, &byte, 1);
    assert_int_equal(received.status, UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_tagged_messages_arrive),
        PAIR_TEST(test_a_synchronous_send_is_done_when_it_is_received),
        PAIR_TEST(test_operations_wait_for_the_handshake),
        PAIR_TEST_ONCE(test_operations_fail_with_the_handshake),
        PAIR_TEST(test_probing_takes_nothing),
        PAIR_TEST(test_a_sleep_ends_for_a_message_that_is_probed),
        PAIR_TEST(test_waiting_for_a_message),
        PAIR_TEST(test_taking_a_message_before_its_bytes),
        PAIR_TEST(test_messages_put_back_keep_their_order),
        PAIR_TEST(test_a_message_put_back_goes_to_who_waits_for_it),
        PAIR_TEST(test_a_received_message_can_be_put_back),
        PAIR_TEST(test_a_receive_cancelled_late_loses_nothing),
        PAIR_TEST_ONCE(test_a_message_put_back_can_be_too_long),
        PAIR_TEST(test_a_worker_ends_with_messages_taken),
        PAIR_TEST(test_a_close_waits_for_a_send_in_flight),
        PAIR_TEST_ONCE(test_a_longer_message_is_truncated),
        PAIR_TEST_ONCE(test_a_receive_can_be_cancelled),
        PAIR_TEST_ONCE(test_bad_arguments),
        PAIR_TEST(test_a_receive_ends_with_its_endpoint),
        PAIR_TEST(test_what_has_come_is_received_after_its_end),
    };

    return UNIT_RUN(tests);
}
