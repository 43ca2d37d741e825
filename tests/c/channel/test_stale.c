/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory wrap=umi_link_look */
/* tests: channel/stream_send channel/frames_send rma/initiator util/list */
/* Cancelling what is sent in several parts, where UCX runs before each of them:
 * each copy takes long, as of memory that is not cached, and the peer goes on
 * meanwhile. Parts complete then, and leave the lists that they were on. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "worker/link.h"

enum {
    NUM_FRAMES = 8,
    FRAME      = 1024 * 1024,
    LEN        = NUM_FRAMES * FRAME,
    POISON     = 0xee
};

/* The operation that is cancelled, and what the peer does all the time. */
typedef struct subject {
    void (*post)(pair *p, op *o, char *data);
    void (*serve)(pair *p);
    void (*check)(pair *p, bool is_cancelled);
} subject;

static const subject *what;
static unsigned       seed; /* of the bytes that are sent */
static pair          *peer; /* NULL: looks are as they are */
static unsigned       num_looks;

static void
poll_server(pair *p)
{
    what->serve(p);
    (void)umx_worker_poll(p->server_worker);
}

void __real_umi_link_look(const umi_ep_base *ep);
void __wrap_umi_link_look(const umi_ep_base *ep);

void
__wrap_umi_link_look(const umi_ep_base *ep)
{
    if (peer != NULL && ep->worker == peer->client_worker) {
        for (int i = 0; i < 8; i++) {
            poll_server(peer);
        }
        ep->worker->looked = umi_ticks() - umi_ticks_from_ns(SECOND_NS);
        num_looks++;
    }
    __real_umi_link_look(ep);
}

/* Cancel `o` after some turns, and write over its memory. False: it was over.
 */
static bool
cancel_after(pair *p, op *o, unsigned turns, char *data)
{
    for (unsigned i = 0; i < turns; i++) {
        (void)umx_worker_poll(p->client_worker);
        poll_server(p);
    }
    if (op_is_done(o)) {
        return false;
    }
    peer = p;
    assert_int_equal(umx_request_cancel(o->req), UMX_OK);
    peer = NULL;
    memset(data, POISON, LEN);
    return true;
}

/* After 0, 1, 2, 3, 5, ... turns, until there is nothing to cancel. */
static void
sweep(pair *p, const subject *s)
{
    char    *data  = malloc(LEN);
    unsigned turns = 0, next = 1;
    bool     is_cancelled = true;

    assert_non_null(data);
    what      = s;
    num_looks = 0;
    while (is_cancelled) {
        op o;

        seed = turns;
        fill_pattern(data, LEN, seed);
        s->post(p, &o, data);
        is_cancelled = cancel_after(p, &o, turns, data);
        s->check(p, is_cancelled);
        assert_int_equal(op_wait(p, &o),
                         is_cancelled ? UMX_ERR_CANCELED : UMX_OK);
        assert_int_equal(o.calls, 1);
        next += turns;
        turns = next - turns;
    }
    assert_true(num_looks >= NUM_FRAMES);
    free(data);
}

/* ---- frames --------------------------------------------------------------
 */

static char     in[LEN + 64];
static op       receiving;
static bool     is_receiving;
static unsigned num_messages; /* since the operation was posted */
static bool     has_end;      /* the message behind it has come */

static umx_status
make_memory(const umx_frames_info *info, umx_buffer *buffers, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < info->count; i++) {
        buffers[i] = umx_host_buffer(in + i * FRAME, info->frames[i].len);
    }
    return UMX_OK;
}

static void
on_received(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    o->req     = NULL;
    o->status  = status;
    o->message = (status == UMX_OK) ? umx_request_message(req) : NULL;
}

static void
note_message(void)
{
    assert_int_equal(receiving.status, UMX_OK);
    has_end = umx_message_frames(receiving.message)->count == 0;
    num_messages += !has_end;
    umx_message_drop(receiving.message);
    if (!has_end) {
        check_pattern(in, LEN, seed);
    }
}

static void
serve_frames(pair *p)
{
    umx_frames_target to = {.alloc = make_memory};
    umx_op_params     params;

    if (is_receiving && !op_is_done(&receiving)) {
        return;
    }
    if (is_receiving) {
        note_message();
    }
    is_receiving   = true;
    params         = op_params(&receiving);
    params.on_done = on_received;
    assert_int_equal(
        umx_frames_recv(p->server, 0, &to, &params, &receiving.req),
        UMX_INPROGRESS);
}

static void
send_frames(pair *p, op *o, const char *data, size_t count)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffers[NUM_FRAMES];

    for (size_t i = 0; i < count; i++) {
        buffers[i] = umx_host_buffer(data + i * FRAME, FRAME);
    }
    o->status = umx_frames_send(p->client, 0, "h", 1, buffers, count, &params,
                                &o->req);
    assert_true(o->status >= 0);
}

static void
post_frames(pair *p, op *o, char *data)
{
    num_messages = 0;
    has_end      = false;
    send_frames(p, o, data, NUM_FRAMES);
    assert_int_equal(o->status, UMX_INPROGRESS);
}

/* A message that has begun comes whole; the next one in any case. */
static void
check_frames(pair *p, bool is_cancelled)
{
    op end;

    send_frames(p, &end, NULL, 0);
    for (serve_frames(p); !has_end; serve_frames(p)) {
        pair_step(p);
    }
    assert_true(num_messages == 1 || (num_messages == 0 && is_cancelled));
    assert_int_equal(op_wait(p, &end), UMX_OK);
}

static const subject frames = {post_frames, serve_frames, check_frames};

static void
test_frames_are_cancelled(void **state)
{
    is_receiving = false;
    pair_open(*state);
    sweep(*state, &frames);
}

/* Announcements that wait for the peer move when its credit comes. */
static void
test_frames_that_wait_are_cancelled(void **state)
{
    pair *p = *state;

    is_receiving          = false;
    p->config.credit_rndv = 2;
    pair_open(p);
    sweep(p, &frames);
}

/* ---- streams -------------------------------------------------------------
 */

static const char the_end[8] = "the end";
static size_t     num_bytes; /* received */

static void
post_stream(pair *p, op *o, char *data)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, LEN);

    num_bytes = 0;
    o->status = umx_stream_send(p->client, &buffer, &params, &o->req);
    assert_int_equal(o->status, UMX_INPROGRESS);
}

/* The bytes that are cancelled have come, or none of them, and the end. */
static bool
is_all(void)
{
    return num_bytes == LEN + sizeof(the_end) ||
           (num_bytes == sizeof(the_end) &&
            memcmp(in, the_end, sizeof(the_end)) == 0);
}

static void
serve_stream(pair *p)
{
    umx_buffer    buffer;
    umx_op_params params;

    if (is_receiving && !op_is_done(&receiving)) {
        return;
    }
    if (is_receiving) {
        assert_int_equal(receiving.status, UMX_OK);
        num_bytes += receiving.info.length;
    }
    is_receiving = !is_all();
    if (is_receiving) {
        buffer           = umx_host_buffer(in + num_bytes,
                                           LEN + sizeof(the_end) - num_bytes);
        params           = op_params(&receiving);
        receiving.status = umx_stream_recv(p->server, &buffer, 0, &params,
                                           &receiving.req, &receiving.info);
    }
}

static void
check_stream(pair *p, bool is_cancelled)
{
    umx_buffer    buffer = umx_host_buffer(the_end, sizeof(the_end));
    op            o;
    umx_op_params params = op_params(&o);

    o.status = umx_stream_send(p->client, &buffer, &params, &o.req);
    assert_true(o.status >= 0);
    for (serve_stream(p); !is_all(); serve_stream(p)) {
        pair_step(p);
    }
    if (num_bytes > sizeof(the_end)) {
        check_pattern(in, LEN, seed);
        assert_memory_equal(in + LEN, the_end, sizeof(the_end));
    }
    assert_true(is_cancelled || num_bytes > sizeof(the_end));
    assert_int_equal(op_wait(p, &o), UMX_OK);
}

static void
test_a_stream_is_cancelled(void **state)
{
    static const subject stream = {post_stream, serve_stream, check_stream};

    is_receiving = false;
    pair_open(*state);
    sweep(*state, &stream);
}

/* ---- puts ----------------------------------------------------------------
 */

static memory target;

static void
post_put(pair *p, op *o, char *data)
{
    umx_op_params params = op_params(o);
    umx_rma_item  items[NUM_FRAMES];

    (void)p;
    memset(target.data, 0, LEN);
    for (size_t i = 0; i < NUM_FRAMES; i++) { /* none is the next one's
                                               * neighbour */
        items[i] = item_of(LEN - (i + 1) * FRAME, data + LEN - (i + 1) * FRAME,
                           FRAME);
    }
    o->status = umx_rma_put_many(target.rkey, items, NUM_FRAMES, &params,
                                 &o->req);
    assert_int_equal(o->status, UMX_INPROGRESS);
}

static void
serve_nothing(pair *p)
{
    (void)p;
}

/* What is put later stays, if it goes eagerly and is done first, too. */
static void
check_put(pair *p, bool is_cancelled)
{
    static const char later[8] = "later";
    op                flush;

    if (!is_cancelled) {
        check_pattern(target.data, LEN, seed);
    }
    assert_int_equal(
        transfer(p, umx_rma_put, target.rkey, item_of(0, later, sizeof(later))),
        UMX_OK);
    assert_memory_equal(target.data, later, sizeof(later));
    start_flush(&flush, p->client_worker, p->client);
    if (flush.status == UMX_INPROGRESS) {
        assert_int_equal(op_wait(p, &flush), UMX_OK);
    }
    assert_memory_equal(target.data, later, sizeof(later));
}

static void
test_a_put_of_many_is_cancelled(void **state)
{
    static const subject put = {post_put, serve_nothing, check_put};
    pair                *p   = *state;
    char                *mem = malloc(LEN);

    assert_non_null(mem);
    pair_open(p);
    target = memory_register(p, mem, LEN, 0);
    sweep(p, &put);
    memory_free(&target);
    free(mem);
}

#define OVER_TCP(f)                                     \
    {                                                   \
#f, f, pair_setup, pair_teardown, (void *)"tcp" \
    }

int
main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_TCP(test_frames_are_cancelled),
        OVER_TCP(test_frames_that_wait_are_cancelled),
        OVER_TCP(test_a_stream_is_cancelled),
        OVER_TCP(test_a_put_of_many_is_cancelled),
    };

    return UNIT_RUN(tests);
}
