/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: channel/frames_queue channel/frames_read channel/frames_recv */
/* tests: channel/frames_send */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "channel/frames.h"

enum {
    MAX_FRAMES = 160,
    KIB        = 1024
};

/* ---- messages ------------------------------------------------------------
 */

/* Lengths of frames; the last is END. */
#define END ((size_t)-1)

typedef struct shape {
    size_t lens[MAX_FRAMES + 1];
} shape;

static size_t
shape_count(const shape *s)
{
    size_t count = 0;

    while (s->lens[count] != END) {
        count++;
    }
    return count;
}

static shape
shape_of(size_t count, size_t len)
{
    shape s;

    for (size_t i = 0; i < count; i++) {
        s.lens[i] = len;
    }
    s.lens[count] = END;
    return s;
}

/* In the head, with and without UCX gathering it; in parts of several; alone;
 * and mixtures. */
static const shape shapes[] = {
    {{END}},
    {{0, END}},
    {{1, END}},
    {{64, 0, 64, 7, 300, END}},
    {{4000, 4000, END}},
    {{9000, 1, 9000, 0, 9000, END}},
    {{64 * KIB - 1, 64 * KIB, 64 * KIB + 1, END}},
    {{1 << 20, 5, 1 << 20, 0, 300, 70000, END}},
    {{40000, 0, 40000, 100000, 40000, 40000, 300000, 40000, END}},
};

/* One side of a message: buffers whose bytes depend on `seed`. */
typedef struct memory {
    umx_buffer buffers[MAX_FRAMES];
    size_t     count;
    umx_status refusal; /* status that make_memory() returns */
    unsigned   calls;
} memory;

static void
memory_make(memory *m, const shape *s)
{
    m->count = shape_count(s);
    for (size_t i = 0; i < m->count; i++) {
        m->buffers[i] = umx_host_buffer(calloc(1, s->lens[i] + 1), s->lens[i]);
        assert_non_null(m->buffers[i].data);
    }
}

static void
memory_fill(memory *m, unsigned seed)
{
    for (size_t i = 0; i < m->count; i++) {
        fill_pattern(m->buffers[i].data, m->buffers[i].len,
                     seed * 1000 + (unsigned)i);
    }
}

static void
memory_check(const memory *m, const shape *s, unsigned seed)
{
    assert_int_equal(m->count, shape_count(s));
    for (size_t i = 0; i < m->count; i++) {
        assert_int_equal(m->buffers[i].len, s->lens[i]);
        check_pattern(m->buffers[i].data, s->lens[i],
                      seed * 1000 + (unsigned)i);
    }
}

static void
memory_free(memory *m)
{
    for (size_t i = 0; i < m->count; i++) {
        free(m->buffers[i].data);
    }
    m->count = 0;
}

/* A umx_frames_alloc_fn. */
static umx_status
make_memory(const umx_frames_info *info, umx_buffer *buffers, void *arg)
{
    memory *m = arg;

    m->calls++;
    if (m->refusal != UMX_OK) {
        return m->refusal;
    }
    m->count = info->count;
    for (size_t i = 0; i < info->count; i++) {
        buffers[i]    = umx_host_buffer(calloc(1, info->frames[i].len + 1),
                                        info->frames[i].len);
        m->buffers[i] = buffers[i];
    }
    return UMX_OK;
}

/* ---- operations ----------------------------------------------------------
 */

static void
frames_send(op *o, umx_ep *ep, uint16_t channel, const char *header,
            const memory *m)
{
    umx_op_params params = op_params(o);

    o->status = umx_frames_send(ep, channel, header, strlen(header), m->buffers,
                                m->count, &params, &o->req);
    if (o->status != UMX_INPROGRESS) {
        o->req = NULL;
    }
}

static void
on_received(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    o->calls++;
    o->req     = NULL;
    o->status  = status;
    o->message = (status == UMX_OK) ? umx_request_message(req) : NULL;
}

static void
recv_into(op *o, umx_ep *ep, uint16_t channel, const umx_frames_target *target)
{
    umx_op_params params = op_params(o);

    params.on_done = on_received;
    o->status      = umx_frames_recv(ep, channel, target, &params, &o->req);
    if (o->status != UMX_INPROGRESS) {
        o->req = NULL;
    }
}

/* Into memory that is made when the message has come. */
static void
frames_recv(op *o, umx_ep *ep, uint16_t channel, memory *m)
{
    umx_frames_target target = {.alloc = make_memory, .arg = m};

    memset(m, 0, sizeof(*m));
    recv_into(o, ep, channel, &target);
}

static void
check_header(const umx_message *message, const char *header)
{
    const umx_frames_info *info = umx_message_frames(message);

    assert_int_equal(info->header_len, strlen(header));
    assert_memory_equal(info->header, header, strlen(header));
}

/* `o` gets this message. */
static void
expect(pair *p, op *o, memory *got, const shape *s, const char *header,
       unsigned seed)
{
    assert_int_equal(op_wait(p, o), UMX_OK);
    assert_int_equal(o->calls, 1);
    check_header(o->message, header);
    umx_message_drop(o->message);
    memory_check(got, s, seed);
    memory_free(got);
}

static void
send_message(pair *p, op *o, memory *m, uint16_t channel, const shape *s,
             const char *header, unsigned seed)
{
    memory_make(m, s);
    memory_fill(m, seed);
    frames_send(o, p->client, channel, header, m);
    assert_true(o->status >= 0);
}

static void
end_send(pair *p, op *o, memory *m)
{
    assert_int_equal(op_wait(p, o), UMX_OK);
    memory_free(m);
}

/* ---- receiving -----------------------------------------------------------
 */

static void
exchange(pair *p, const shape *s, bool is_late)
{
    memory sent, got;
    op     send, recv;

    if (!is_late) {
        frames_recv(&recv, p->server, 3, &got);
    }
    send_message(p, &send, &sent, 3, s, "a header", 1);
    if (is_late) {
        pair_settle(p);
        frames_recv(&recv, p->server, 3, &got);
    }
    expect(p, &recv, &got, s, "a header", 1);
    end_send(p, &send, &sent);
}

static void
check_shapes(pair *p)
{
    shape many = shape_of(100, 10 * KIB), small = shape_of(MAX_FRAMES, 64);

    pair_open(p);
    for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        exchange(p, &shapes[i], false);
        exchange(p, &shapes[i], true);
    }
    exchange(p, &many, false);
    exchange(p, &many, true);
    exchange(p, &small, false);
    exchange(p, &small, true);
}

static void
test_frames_arrive(void **state)
{
    check_shapes(*state);
}

/* Every message, heads too, is announced. */
static void
test_frames_arrive_by_rendezvous(void **state)
{
    pair *p = *state;

    p->config.rndv_thresh_shm = p->config.rndv_thresh_net = 1;
    check_shapes(p);
}

/* A head or a part waits for credit in every place. */
static void
test_frames_arrive_with_little_credit(void **state)
{
    pair *p = *state;

    p->config.credit_messages = 2;
    p->config.credit_bytes    = 1000;
    p->config.credit_rndv     = 2;
    check_shapes(p);
}

static void
test_given_buffers_may_be_longer_and_more(void **state)
{
    pair             *p     = *state;
    shape             s     = {{100, 0, 90000, END}};
    shape             given = {{101, 5, 100000, 7, END}};
    memory            sent, got;
    umx_frames_target target;
    op                send, recv;

    pair_open(p);
    memory_make(&got, &given);
    target = (umx_frames_target){.buffers = got.buffers, .count = got.count};
    recv_into(&recv, p->server, 0, &target);
    send_message(p, &send, &sent, 0, &s, "", 1);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    assert_int_equal(umx_message_frames(recv.message)->count, 3);
    assert_int_equal(umx_message_frames(recv.message)->len, 90100);
    assert_int_equal(umx_message_frames(recv.message)->frames[2].len, 90000);
    umx_message_drop(recv.message);
    check_pattern(got.buffers[0].data, 100, 1000);
    check_pattern(got.buffers[2].data, 90000, 1002);
    end_send(p, &send, &sent);
    memory_free(&got);
}

/* The message stays, parts and all: the next receive gets it. */
static void
check_truncated(pair *p, const shape *given)
{
    shape             s = {{100, 90000, 40000, 90000, END}};
    memory            sent[2], into, got;
    umx_frames_target target;
    op                sends[2], recv;

    memory_make(&into, given);
    target = (umx_frames_target){.buffers = into.buffers, .count = into.count};
    send_message(p, &sends[0], &sent[0], 0, &s, "", 1);
    send_message(p, &sends[1], &sent[1], 0, &s, "", 2);
    recv_into(&recv, p->server, 0, &target);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_MESSAGE_TRUNCATED);
    assert_null(recv.message);
    for (unsigned i = 1; i <= 2; i++) {
        frames_recv(&recv, p->server, 0, &got);
        expect(p, &recv, &got, &s, "", i);
    }
    end_send(p, &sends[0], &sent[0]);
    end_send(p, &sends[1], &sent[1]);
    memory_free(&into);
}

static void
test_buffers_that_are_too_short_or_too_few(void **state)
{
    static const shape short_first = {{99, 90000, 40000, 90000, END}};
    static const shape short_last  = {{100, 90000, 40000, 89999, END}};
    static const shape few         = {{100, 90000, 40000, END}};
    static const shape none        = {{END}};
    pair              *p           = *state;

    pair_open(p);
    check_truncated(p, &short_first);
    check_truncated(p, &short_last);
    check_truncated(p, &few);
    check_truncated(p, &none);
}

static void
recv_one_byte(pair *p, op *o, char *byte, umx_buffer *buffer)
{
    umx_frames_target target = {.buffers = buffer, .count = 1};

    *buffer = umx_host_buffer(byte, 1);
    recv_into(o, p->server, 0, &target);
    assert_int_equal(o->status, UMX_INPROGRESS);
}

/* Receives of one byte, posted before or after, meet a message that they are
 * too short for, and behind it one that fits. */
static void
check_misfit(pair *p, const shape *s, bool is_late)
{
    static const shape one = {{1, END}};
    memory             sent[2];
    umx_buffer         buffers[2];
    char               bytes[2] = "";
    op                 sends[2], recvs[2];

    if (!is_late) {
        recv_one_byte(p, &recvs[0], &bytes[0], &buffers[0]);
        recv_one_byte(p, &recvs[1], &bytes[1], &buffers[1]);
    }
    send_message(p, &sends[0], &sent[0], 0, s, "", 1);
    send_message(p, &sends[1], &sent[1], 0, &one, "b", 2);
    if (is_late) {
        pair_settle(p);
        recv_one_byte(p, &recvs[0], &bytes[0], &buffers[0]);
        recv_one_byte(p, &recvs[1], &bytes[1], &buffers[1]);
    }
    assert_int_equal(op_wait(p, &recvs[0]), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(bytes[0], 0);
    assert_int_equal(op_wait(p, &recvs[1]), UMX_OK);
    check_header(recvs[1].message, "b");
    umx_message_drop(recvs[1].message);
    check_pattern(&bytes[1], 1, 2000);
    end_send(p, &sends[0], &sent[0]);
    end_send(p, &sends[1], &sent[1]);
    assert_int_equal(p->server->num_announced, 0);
}

static void
check_misfits(pair *p)
{
    pair_open(p);
    for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (shape_count(&shapes[i]) > 1) {
            check_misfit(p, &shapes[i], false);
            check_misfit(p, &shapes[i], true);
        }
    }
}

static void
test_a_message_that_fits_no_receive_is_dropped(void **state)
{
    check_misfits(*state);
}

static void
test_an_announced_message_that_fits_no_receive_is_dropped(void **state)
{
    pair *p = *state;

    p->config.rndv_thresh_shm = p->config.rndv_thresh_net = 1;
    check_misfits(p);
}

/* The first receive is told; the second one, which was posted with it, has that
 * message and not the one behind it. */
static void
test_a_message_that_does_not_fit_keeps_its_place(void **state)
{
    pair      *p = *state;
    shape      s = {{100, 90000, END}}, one = {{1, END}};
    memory     sent[2], got;
    umx_buffer buffer;
    char       byte = 0;
    op         sends[2], recvs[2];

    pair_open(p);
    recv_one_byte(p, &recvs[0], &byte, &buffer);
    frames_recv(&recvs[1], p->server, 0, &got);
    send_message(p, &sends[0], &sent[0], 0, &s, "", 1);
    send_message(p, &sends[1], &sent[1], 0, &one, "", 2);
    assert_int_equal(op_wait(p, &recvs[0]), UMX_ERR_MESSAGE_TRUNCATED);
    expect(p, &recvs[1], &got, &s, "", 1);
    frames_recv(&recvs[1], p->server, 0, &got);
    expect(p, &recvs[1], &got, &one, "", 2);
    end_send(p, &sends[0], &sent[0]);
    end_send(p, &sends[1], &sent[1]);
}

static void
on_fitting(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    o->info = *umx_request_info(req);
    on_received(req, status, arg);
}

/* umx_frames_recv_fitting() with one buffer of `len` bytes. */
static void
recv_fitting(pair *p, op *o, umx_buffer *buffer, size_t len)
{
    static char   memory_of_it[200];
    umx_op_params params = op_params(o);

    *buffer        = umx_host_buffer(memory_of_it, len);
    params.on_done = on_fitting;
    o->message     = NULL;
    o->status      = umx_frames_recv_fitting(p->server, 0, buffer, 1, &params,
                                             &o->req, &o->message);
    if (o->status != UMX_INPROGRESS) {
        o->req = NULL;
    }
}

/* Messages are taken without their bytes as far as they fit. */
static void
test_fitting_messages_are_taken(void **state)
{
    pair      *p = *state;
    shape      s = {{100, END}}, one = {{1, END}};
    memory     sent[2];
    umx_buffer buffer;
    op         sends[2], o;

    pair_open(p);
    send_message(p, &sends[0], &sent[0], 0, &s, "s", 1);
    send_message(p, &sends[1], &sent[1], 0, &one, "one", 2);
    pair_settle(p);
    recv_fitting(p, &o, &buffer, 100);
    assert_int_equal(o.status, UMX_OK);
    check_header(o.message, "s");
    umx_message_return(o.message);
    for (int i = 0; i < 2; i++) {
        recv_fitting(p, &o, &buffer, 99);
        if (i == 0) {
            assert_int_equal(op_wait(p, &o), UMX_ERR_MESSAGE_TRUNCATED);
            assert_int_equal(o.info.length, 100);
            assert_null(o.message);
        }
    }
    assert_int_equal(op_wait(p, &o), UMX_OK);
    check_header(o.message, "one");
    umx_message_drop(o.message);
    end_send(p, &sends[0], &sent[0]);
    end_send(p, &sends[1], &sent[1]);
}

/* Nobody has heard of the first end: the next receive is told. */
static void
test_a_cancelled_refusal_does_not_count(void **state)
{
    pair      *p = *state;
    shape      s = {{100, END}};
    memory     sent;
    umx_buffer buffer;
    char       byte = 0;
    op         send, o;

    pair_open(p);
    send_message(p, &send, &sent, 0, &s, "", 1);
    pair_settle(p);
    recv_one_byte(p, &o, &byte, &buffer);
    assert_int_equal(o.req->status, UMX_ERR_MESSAGE_TRUNCATED);
    op_cancel(o.req);
    (void)op_wait(p, &o);
    recv_one_byte(p, &o, &byte, &buffer);
    assert_int_equal(op_wait(p, &o), UMX_ERR_MESSAGE_TRUNCATED);
    recv_fitting(p, &o, &buffer, 100);
    assert_int_equal(o.status, UMX_OK);
    umx_message_drop(o.message);
    end_send(p, &send, &sent);
}

/* The message is not lost if there is no memory for it. */
static void
test_an_allocator_that_fails(void **state)
{
    pair  *p = *state;
    shape  s = {{100, 90000, END}};
    memory sent, got;
    op     send, recv;

    pair_open(p);
    frames_recv(&recv, p->server, 0, &got);
    got.refusal = UMX_ERR_NO_MEMORY;
    send_message(p, &send, &sent, 0, &s, "h", 1);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_NO_MEMORY);
    frames_recv(&recv, p->server, 0, &got);
    expect(p, &recv, &got, &s, "h", 1);
    end_send(p, &send, &sent);
}

static void
test_receives_are_served_in_order(void **state)
{
    pair  *p = *state;
    memory sent[6], got[6];
    op     sends[6], recvs[6];

    pair_open(p);
    for (unsigned i = 0; i < 3; i++) {
        frames_recv(&recvs[i], p->server, 0, &got[i]);
    }
    for (unsigned i = 0; i < 6; i++) {
        send_message(p, &sends[i], &sent[i], 0, &shapes[8 - i], "", i);
    }
    for (unsigned i = 3; i < 6; i++) {
        frames_recv(&recvs[i], p->server, 0, &got[i]);
    }
    for (unsigned i = 0; i < 6; i++) {
        expect(p, &recvs[i], &got[i], &shapes[8 - i], "", i);
        end_send(p, &sends[i], &sent[i]);
    }
}

/* Frames have channels of their own. */
static void
test_messages_and_frames_do_not_meet(void **state)
{
    pair  *p = *state;
    memory sent, got;
    char   byte = 'x', in = 0;
    op     send, recv;

    pair_open(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_untagged, &byte, 1),
                     UMX_OK);
    send_message(p, &send, &sent, 0, &shapes[3], "", 1);
    frames_recv(&recv, p->server, 0, &got);
    expect(p, &recv, &got, &shapes[3], "", 1);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &in, 1), UMX_OK);
    assert_int_equal(in, 'x');
    end_send(p, &send, &sent);
}

/* ---- limits --------------------------------------------------------------
 */

static void
test_limits_of_sends(void **state)
{
    pair         *p = *state;
    char          header[UMX_FRAMES_HEADER_MAX + 1];
    umx_buffer    buffers[3] = {{0}};
    op            o;
    umx_op_params params = op_params(&o);

    p->config.frames_max       = 2;
    p->config.frames_bytes_max = 100;
    pair_open(p);
    assert_int_equal(
        umx_frames_send(p->client, 0, NULL, 0, buffers, 3, &params, &o.req),
        UMX_ERR_EXCEEDS_LIMIT);
    buffers[0] = umx_host_buffer(header, 50);
    buffers[1] = umx_host_buffer(header, 51);
    assert_int_equal(
        umx_frames_send(p->client, 0, NULL, 0, buffers, 2, &params, &o.req),
        UMX_ERR_EXCEEDS_LIMIT);
    assert_int_equal(umx_frames_send(p->client, 0, header, sizeof(header), NULL,
                                     0, &params, &o.req),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(
        umx_frames_send(p->client, 0, NULL, 1, NULL, 0, &params, &o.req),
        UMX_ERR_INVALID_PARAM);
    buffers[0].data = NULL;
    assert_int_equal(
        umx_frames_send(p->client, 0, NULL, 0, buffers, 1, &params, &o.req),
        UMX_ERR_INVALID_PARAM);
}

static void
test_the_longest_header(void **state)
{
    pair         *p      = *state;
    char         *header = malloc(UMX_FRAMES_HEADER_MAX);
    op            send, recv;
    umx_op_params params = op_params(&send);
    memory        got;

    assert_non_null(header);
    pair_open(p);
    fill_pattern(header, UMX_FRAMES_HEADER_MAX, 5);
    send.status = umx_frames_send(p->client, 0, header, UMX_FRAMES_HEADER_MAX,
                                  NULL, 0, &params, &send.req);
    memset(header, 0, UMX_FRAMES_HEADER_MAX);
    if (send.status != UMX_INPROGRESS) {
        send.req = NULL;
    }
    frames_recv(&recv, p->server, 0, &got);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    assert_int_equal(umx_message_frames(recv.message)->header_len,
                     UMX_FRAMES_HEADER_MAX);
    check_pattern(umx_message_frames(recv.message)->header,
                  UMX_FRAMES_HEADER_MAX, 5);
    umx_message_drop(recv.message);
    assert_int_equal(op_wait(p, &send), UMX_OK);
    free(header);
}

/* ---- messages in the user's hands ----------------------------------------
 */

static void
take(pair *p, op *o)
{
    umx_op_params params = op_params(o);
    umx_message  *message;

    params.on_done = on_received;
    o->status      = umx_frames_recv_message(p->server, 0, &params, &o->req,
                                             &message);
    if (o->status == UMX_OK) {
        o->req     = NULL;
        o->message = message;
    } else if (o->status != UMX_INPROGRESS) {
        o->req = NULL;
    }
}

/* The bytes of the message that `o` has taken. */
static void
read_taken(op *o, const memory *m)
{
    umx_message  *message = o->message;
    umx_op_params params  = op_params(o);

    params.on_done = on_received;
    o->status = umx_message_recv_frames(&message, m->buffers, m->count, &params,
                                        &o->req);
    o->message = message;
    if (o->status != UMX_INPROGRESS) {
        o->req = NULL;
    }
}

static void
test_take_and_receive(void **state)
{
    pair  *p = *state;
    memory sent, got;
    op     send, recv;

    pair_open(p);
    for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        send_message(p, &send, &sent, 0, &shapes[i], "h", i);
        take(p, &recv);
        assert_int_equal(op_wait(p, &recv), UMX_OK);
        check_header(recv.message, "h");
        assert_int_equal(umx_message_frames(recv.message)->count, sent.count);
        memory_make(&got, &shapes[i]);
        read_taken(&recv, &got);
        assert_int_equal(op_wait(p, &recv), UMX_OK);
        umx_message_drop(recv.message);
        memory_check(&got, &shapes[i], i);
        memory_free(&got);
        end_send(p, &send, &sent);
    }
}

static void
test_take_and_return_or_drop(void **state)
{
    pair  *p = *state;
    memory sent[2], got;
    op     sends[2], recv;

    pair_open(p);
    for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        send_message(p, &sends[0], &sent[0], 0, &shapes[i], "h", i);
        send_message(p, &sends[1], &sent[1], 0, &shapes[8 - i], "", i + 1);
        take(p, &recv);
        assert_int_equal(op_wait(p, &recv), UMX_OK);
        umx_message_return(recv.message);
        take(p, &recv);
        assert_int_equal(op_wait(p, &recv), UMX_OK);
        check_header(recv.message, "h");
        umx_message_drop(recv.message);
        frames_recv(&recv, p->server, 0, &got);
        expect(p, &recv, &got, &shapes[8 - i], "", i + 1);
        end_send(p, &sends[0], &sent[0]);
        end_send(p, &sends[1], &sent[1]);
    }
}

static void
test_bytes_at_hand_are_copied(void **state)
{
    pair  *p = *state;
    memory sent, got;
    op     send, recv;

    pair_open(p);
    for (unsigned i = 0; i < 6; i++) {
        send_message(p, &send, &sent, 0, &shapes[i], "h", i);
        take(p, &recv);
        assert_int_equal(op_wait(p, &recv), UMX_OK);
        assert_true(umx_message_has_frames(recv.message));
        memory_make(&got, &shapes[i]);
        assert_int_equal(
            umx_message_copy_frames(recv.message, got.buffers, got.count),
            UMX_OK);
        expect(p, &recv, &got, &shapes[i], "h", i);
        end_send(p, &send, &sent);
    }
}

/* ---- cancelling ----------------------------------------------------------
 */

/* A receive that is cancelled after `steps` turns; the next one has it all. */
static bool
cancel_after(pair *p, const shape *s, unsigned steps)
{
    memory sent[2], got[2];
    op     sends[2], recvs[2];
    bool   was_pending;

    frames_recv(&recvs[0], p->server, 0, &got[0]);
    send_message(p, &sends[0], &sent[0], 0, s, "first", 1);
    send_message(p, &sends[1], &sent[1], 0, s, "second", 2);
    for (unsigned i = 0; i < steps; i++) {
        pair_step(p);
    }
    was_pending = !op_is_done(&recvs[0]);
    if (was_pending) {
        op_cancel(recvs[0].req);
        frames_recv(&recvs[1], p->server, 0, &got[1]);
        assert_int_equal(op_wait(p, &recvs[0]), UMX_ERR_CANCELED);
        memory_free(&got[0]);
        expect(p, &recvs[1], &got[1], s, "first", 1);
    } else {
        assert_int_equal(recvs[0].status, UMX_OK);
        umx_message_unrecv_frames(recvs[0].message, got[0].buffers);
        memory_free(&got[0]);
        frames_recv(&recvs[1], p->server, 0, &got[1]);
        expect(p, &recvs[1], &got[1], s, "first", 1);
    }
    frames_recv(&recvs[0], p->server, 0, &got[0]);
    expect(p, &recvs[0], &got[0], s, "second", 2);
    end_send(p, &sends[0], &sent[0]);
    end_send(p, &sends[1], &sent[1]);
    return was_pending;
}

static void
check_cancel(pair *p)
{
    pair_open(p);
    for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (unsigned steps = 0; cancel_after(p, &shapes[i], steps); steps++) {
            assert_true(steps < 100000);
        }
    }
}

static void
test_cancelled_receives_lose_nothing(void **state)
{
    check_cancel(*state);
}

static void
test_cancelled_receives_lose_nothing_by_rendezvous(void **state)
{
    pair *p = *state;

    p->config.rndv_thresh_shm = p->config.rndv_thresh_net = 1;
    p->config.credit_rndv                                 = 2;
    check_cancel(p);
}

/* One message is landing, the next is being received, when the first goes
 * back. */
static void
test_a_message_goes_back_while_another_is_open(void **state)
{
    pair  *p = *state;
    shape  s = {{100, 1 << 20, 1 << 20, 1 << 20, 1 << 20, END}};
    memory sent[3], got[3];
    op     sends[3], recvs[3];
    bool   is_over = false;

    p->config.credit_rndv = 2;
    pair_open(p);
    for (unsigned steps = 0; !is_over; steps++) {
        for (unsigned i = 0; i < 3; i++) {
            send_message(p, &sends[i], &sent[i], 0, &s, "", i);
        }
        for (unsigned i = 0; i < 2; i++) {
            frames_recv(&recvs[i], p->server, 0, &got[i]);
        }
        for (unsigned i = 0; i < steps && !op_is_done(&recvs[1]); i++) {
            pair_step(p);
        }
        is_over = op_is_done(&recvs[1]);
        if (op_is_done(&recvs[0])) {
            assert_int_equal(recvs[0].status, UMX_OK);
            umx_message_unrecv_frames(recvs[0].message, got[0].buffers);
        } else {
            op_cancel(recvs[0].req);
            PAIR_UNTIL(p, op_is_done(&recvs[0]));
        }
        memory_free(&got[0]);
        frames_recv(&recvs[2], p->server, 0, &got[2]);
        PAIR_UNTIL(p, op_is_done(&recvs[1]) && op_is_done(&recvs[2]));
        frames_recv(&recvs[0], p->server, 0, &got[0]);
        PAIR_UNTIL(p, op_is_done(&recvs[0]));
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(recvs[i].status, UMX_OK);
        }
        /* The cancelled one's message is the next receive's, whoever's. */
        for (unsigned seed = 0; seed < 3; seed++) {
            unsigned found = 0;

            for (unsigned i = 0; i < 3; i++) {
                unsigned char first, want;

                fill_pattern(&want, 1, seed * 1000);
                memcpy(&first, got[i].buffers[0].data, 1);
                if (first == want) {
                    memory_check(&got[i], &s, seed);
                    found++;
                }
            }
            assert_int_equal(found, 1);
        }
        for (unsigned i = 0; i < 3; i++) {
            umx_message_drop(recvs[i].message);
            memory_free(&got[i]);
            end_send(p, &sends[i], &sent[i]);
        }
    }
}

static void
test_a_cancelled_send_that_has_begun_is_received(void **state)
{
    pair  *p = *state;
    shape  s = {{100, 1 << 20, 1 << 20, END}};
    memory sent[3], got;
    op     sends[3], recv;

    p->config.credit_rndv = 2;
    pair_open(p);
    for (unsigned i = 0; i < 3; i++) {
        send_message(p, &sends[i], &sent[i], 0, &s, "", i);
    }
    /* The message's head has been posted: the message is whole. */
    assert_int_equal(umx_request_cancel(sends[1].req), UMX_OK);
    memory_fill(&sent[1], 9);
    assert_int_equal(op_wait(p, &sends[1]), UMX_ERR_CANCELED);
    frames_recv(&recv, p->server, 0, &got);
    expect(p, &recv, &got, &s, "", 0);
    frames_recv(&recv, p->server, 0, &got);
    expect(p, &recv, &got, &s, "", 1);
    frames_recv(&recv, p->server, 0, &got);
    expect(p, &recv, &got, &s, "", 2);
    end_send(p, &sends[0], &sent[0]);
    end_send(p, &sends[2], &sent[2]);
    memory_free(&sent[1]);
}

/* ---- the end -------------------------------------------------------------
 */

static void
test_what_was_sent_can_be_read_after_close(void **state)
{
    pair  *p = *state;
    memory sent[9], got;
    op     sends[9], close, recv;

    pair_open(p);
    for (unsigned i = 0; i < 9; i++) {
        send_message(p, &sends[i], &sent[i], 0, &shapes[i], "h", i);
    }
    op_close(&close, p->client, 10 * SECOND_NS);
    assert_int_equal(op_wait(p, &close), UMX_OK);
    for (unsigned i = 0; i < 9; i++) {
        end_send(p, &sends[i], &sent[i]);
    }
    for (unsigned i = 0; i < 9; i++) {
        frames_recv(&recv, p->server, 0, &got);
        expect(p, &recv, &got, &shapes[i], "h", i);
    }
    frames_recv(&recv, p->server, 0, &got);
    assert_int_equal(recv.status, UMX_ERR_PEER_CLOSED);
}

static void
test_receives_end_when_the_peer_closes(void **state)
{
    pair  *p = *state;
    memory sent, got[3];
    op     send, close, recvs[3];

    pair_open(p);
    for (unsigned i = 0; i < 3; i++) {
        frames_recv(&recvs[i], p->server, 0, &got[i]);
    }
    send_message(p, &send, &sent, 0, &shapes[7], "", 1);
    op_close(&close, p->client, 10 * SECOND_NS);
    expect(p, &recvs[0], &got[0], &shapes[7], "", 1);
    assert_int_equal(op_wait(p, &recvs[1]), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &recvs[2]), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &close), UMX_OK);
    end_send(p, &send, &sent);
}

/* The peer goes after `steps` turns, in the middle of a message. */
static void
abort_after(pair *p, const shape *s, unsigned steps)
{
    memory sent, got[2];
    op     send, recvs[2];

    pair_open(p);
    for (unsigned i = 0; i < 2; i++) {
        frames_recv(&recvs[i], p->server, 0, &got[i]);
    }
    send_message(p, &send, &sent, 0, s, "", 1);
    for (unsigned i = 0; i < steps; i++) {
        pair_step(p);
    }
    umx_ep_abort(p->client);
    for (unsigned i = 0; i < 2; i++) {
        PAIR_UNTIL(p, op_is_done(&recvs[i]));
        if (recvs[i].status == UMX_OK) {
            memory_check(&got[i], s, 1);
            umx_message_drop(recvs[i].message);
        } else {
            assert_int_equal(recvs[i].status, umx_ep_error(p->server));
        }
        memory_free(&got[i]);
    }
    PAIR_UNTIL(p, op_is_done(&send));
    memory_free(&sent);
}

static void
test_receives_fail_with_the_peer(void **state)
{
    pair *p = *state;

    p->config.credit_rndv = 2; /* parts wait at their sender */
    abort_after(p, &shapes[8], 0);
}

static void
test_receives_fail_with_the_peer_in_the_middle(void **state)
{
    pair *p = *state;

    p->config.credit_rndv = 2;
    abort_after(p, &shapes[8], 5);
}

static void
test_a_message_taken_before_the_peer_went(void **state)
{
    pair  *p = *state;
    memory sent, got;
    op     send, recv;
    shape  s = {{100, 1 << 20, 1 << 20, 1 << 20, END}};

    p->config.credit_rndv = 2;
    pair_open(p);
    send_message(p, &send, &sent, 0, &s, "h", 1);
    take(p, &recv);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    memory_make(&got, &s);
    read_taken(&recv, &got);
    assert_int_equal(recv.status, umx_ep_error(p->server));
    PAIR_UNTIL(p, op_is_done(&send));
    memory_free(&got);
    memory_free(&sent);
}

/* Whole messages stay readable, those that are cut are gone. */
static void
test_whole_messages_survive_the_peer(void **state)
{
    pair  *p = *state;
    memory sent[3], got;
    op     sends[3], recv;
    shape  s = {{100, 1 << 20, END}};

    pair_open(p);
    send_message(p, &sends[0], &sent[0], 0, &shapes[3], "h", 0);
    send_message(p, &sends[1], &sent[1], 0, &shapes[4], "", 1);
    send_message(p, &sends[2], &sent[2], 0, &s, "", 2);
    pair_settle(p);
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    frames_recv(&recv, p->server, 0, &got);
    expect(p, &recv, &got, &shapes[3], "h", 0);
    frames_recv(&recv, p->server, 0, &got);
    expect(p, &recv, &got, &shapes[4], "", 1);
    frames_recv(&recv, p->server, 0, &got);
    assert_int_equal(recv.status, umx_ep_error(p->server));
    for (unsigned i = 0; i < 3; i++) {
        PAIR_UNTIL(p, op_is_done(&sends[i]));
        memory_free(&sent[i]);
    }
}

static void
test_receives_end_with_our_close(void **state)
{
    pair  *p = *state;
    memory got;
    op     recv, close;

    pair_open(p);
    frames_recv(&recv, p->server, 0, &got);
    op_close(&close, p->server, 10 * SECOND_NS);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &close), UMX_OK);
    frames_recv(&recv, p->server, 0, &got);
    assert_int_equal(recv.status, UMX_ERR_CLOSED);
}

static void
test_a_worker_goes_with_a_message_in_hand(void **state)
{
    pair  *p = *state;
    memory sent, got;
    op     send, recv;
    shape  s = {{100, 20000, 1 << 20, END}};

    pair_open(p);
    send_message(p, &send, &sent, 0, &s, "h", 1);
    take(p, &recv);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    pair_settle(p);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    umx_worker_destroy(p->server_worker);
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
    check_header(recv.message, "h");
    memory_make(&got, &s);
    read_taken(&recv, &got);
    assert_int_equal(recv.status, UMX_ERR_CLOSED);
    memory_free(&got);
    umx_ep_destroy(p->server);
    p->server = NULL;
    umx_ep_abort(p->client);
    while (!op_is_done(&send)) {
        (void)umx_worker_poll(p->client_worker);
    }
    memory_free(&sent);
}

/* ---- peers that lie ------------------------------------------------------
 */

/* A message of the channel as if umx_frames_send() had made it. */
static void
send_raw(pair *p, op *o, const void *data, size_t len)
{
    umi_outgoing  what = {.channel = umi_header_channel_id(UMI_KIND_FRAMES, 0),
                          .flags   = UMI_FLAG_UNTAGGED};
    umx_buffer    buf  = umx_host_buffer(data, len);
    umx_op_params params = op_params(o);

    o->status = umi_channel_send(p->client, &what, &buf, &params, &o->req);
    if (o->status != UMX_INPROGRESS) {
        o->req = NULL;
    }
}

static void
expect_dropped(pair *p, const char *reason)
{
    memory got;
    op     recv;

    frames_recv(&recv, p->server, 0, &got);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_PROTOCOL);
    assert_string_equal(umx_ep_reason(p->server), reason);
    memory_free(&got);
}

static void
test_a_head_that_is_cut(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    send_raw(p, &o, "\x05\x00\x08", 3);
    expect_dropped(p, "a head of frames that is cut");
}

static void
test_a_part_of_another_length(void **state)
{
    static const uint8_t head[] = {1, 0, (3 << 3) | (1 << 1)};
    pair                *p      = *state;
    op                   o[2];

    pair_open(p);
    send_raw(p, &o[0], head, sizeof(head));
    send_raw(p, &o[1], "four", 4);
    expect_dropped(p, "frames whose sizes lie");
}

static void
test_a_head_announced_too_long(void **state)
{
    pair  *p    = *state;
    size_t len  = 32 << 20;
    char  *data = calloc(1, len);
    op     o;

    assert_non_null(data);
    pair_open(p);
    send_raw(p, &o, data, len);
    expect_dropped(p, "a head of frames too long");
    PAIR_UNTIL(p, op_is_done(&o));
    free(data);
}

static void
test_more_frames_than_the_receiver_takes(void **state)
{
    pair      *p      = *state;
    umx_config theirs = p->config;
    memory     sent;
    shape      s = shape_of(3, 10);
    op         o;

    p->client_config     = &theirs;
    p->config.frames_max = 2;
    pair_open(p);
    send_message(p, &o, &sent, 0, &s, "", 1);
    expect_dropped(p, "more frames than the limit");
    memory_free(&sent);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_frames_arrive),
        PAIR_TEST(test_frames_arrive_by_rendezvous),
        PAIR_TEST(test_frames_arrive_with_little_credit),
        PAIR_TEST(test_given_buffers_may_be_longer_and_more),
        PAIR_TEST(test_buffers_that_are_too_short_or_too_few),
        PAIR_TEST(test_a_message_that_fits_no_receive_is_dropped),
        PAIR_TEST(test_an_announced_message_that_fits_no_receive_is_dropped),
        PAIR_TEST(test_a_message_that_does_not_fit_keeps_its_place),
        PAIR_TEST(test_fitting_messages_are_taken),
        PAIR_TEST(test_a_cancelled_refusal_does_not_count),
        PAIR_TEST(test_an_allocator_that_fails),
        PAIR_TEST(test_receives_are_served_in_order),
        PAIR_TEST(test_messages_and_frames_do_not_meet),
        PAIR_TEST_ONCE(test_limits_of_sends),
        PAIR_TEST(test_the_longest_header),
        PAIR_TEST(test_take_and_receive),
        PAIR_TEST(test_take_and_return_or_drop),
        PAIR_TEST(test_bytes_at_hand_are_copied),
        PAIR_TEST(test_cancelled_receives_lose_nothing),
        PAIR_TEST(test_cancelled_receives_lose_nothing_by_rendezvous),
        PAIR_TEST(test_a_message_goes_back_while_another_is_open),
        PAIR_TEST(test_a_cancelled_send_that_has_begun_is_received),
        PAIR_TEST(test_what_was_sent_can_be_read_after_close),
        PAIR_TEST(test_receives_end_when_the_peer_closes),
        PAIR_TEST(test_receives_fail_with_the_peer),
        PAIR_TEST(test_receives_fail_with_the_peer_in_the_middle),
        PAIR_TEST(test_a_message_taken_before_the_peer_went),
        PAIR_TEST(test_whole_messages_survive_the_peer),
        PAIR_TEST(test_receives_end_with_our_close),
        PAIR_TEST(test_a_worker_goes_with_a_message_in_hand),
        PAIR_TEST(test_a_head_that_is_cut),
        PAIR_TEST(test_a_part_of_another_length),
        PAIR_TEST(test_a_head_announced_too_long),
        PAIR_TEST_ONCE(test_more_frames_than_the_receiver_takes),
    };

    return UNIT_RUN(tests);
}
