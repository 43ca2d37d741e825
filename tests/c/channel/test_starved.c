/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory wrap=malloc */
/* Memory runs out in the middle of a connection: it breaks, and says so; what
 * was lent comes back. */
#include "memory.h"
#include "pair.h"

#include <stdlib.h>
#include <string.h>
#include <umx/messenger.h>

enum {
    MIB = 1024 * 1024
};

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

static bool is_starved;

void *
__wrap_malloc(size_t size)
{
    return is_starved ? NULL : __real_malloc(size);
}

/* From now on the pools have to ask. */
static void
starve(umx_worker *worker)
{
    worker->messages.free_list  = NULL;
    worker->messages.num_fresh  = 0;
    worker->messages.next_count = 1;
    is_starved                  = true;
}

/* Starve the pool of requests, which has `num_left` requests left. */
static void
starve_requests(umx_worker *worker, unsigned num_left)
{
    umi_pool *pool = &worker->requests;
    void     *list = NULL;

    for (unsigned i = 0; i < num_left; i++) {
        void *object = umi_pool_get(pool);

        assert_non_null(object);
        *(void **)object = list;
        list             = object;
        pool->in_use--;
    }
    pool->free_list  = list;
    pool->num_fresh  = 0;
    pool->next_count = 1;
    is_starved       = true;
}

/* `ep` has broken, and the other side has seen it. */
static void
check_broken(pair *p, umx_ep *ep, umx_ep *peer)
{
    PAIR_UNTIL(p, umx_ep_get_state(ep) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_get_state(ep), UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(ep), UMX_ERR_PROTOCOL);
    PAIR_UNTIL(p, umx_ep_get_state(peer) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_get_state(peer), UMX_EP_FAILED);
}

static void
test_no_memory_for_the_channel_of_a_message(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    op_send(&o, p->client, 7, pair_tag(1), "x", 1);
    is_starved = true;
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    is_starved = false;
    check_broken(p, p->server, p->client);
}

static void
test_no_memory_for_a_message_that_lands_in_a_cancelled_receive(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = malloc(MIB);
    op    send_op, recv_op;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, MIB, 1);
    op_send(&send_op, p->client, 0, pair_tag(1), out, MIB);
    pair_settle(p);
    op_recv(&recv_op, p->server, 0, pair_any, in, MIB);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    starve(p->server_worker);
    op_cancel(recv_op.req);
    is_starved = false;
    memset(in, 'x', MIB);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_CANCELED);
    assert_int_equal(recv_op.calls, 1);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_string_equal(umx_ep_reason(p->server),
                        "out of memory for a cancelled operation");
    (void)op_wait(p, &send_op);
    for (int i = 0; i < MIB; i++) {
        assert_int_equal(in[i], 'x');
    }
    free(in);
    free(out);
}

typedef struct cancelling {
    umx_worker  *worker;
    umx_request *req; /* to be cancelled without memory */
} cancelling;

static void
on_first(umx_request *req, umx_status status, void *arg)
{
    cancelling *c = arg;

    (void)req;
    assert_int_equal(status, UMX_OK);
    starve(c->worker);
    umx_request_cancel(c->req);
}

/* Two receives complete in one burst; the completion of the first cancels the
 * second. */
static void
test_no_memory_for_a_completed_receive_that_is_cancelled(void **state)
{
    pair         *p = *state;
    char          bytes[2];
    umx_buffer    buf = umx_host_buffer(&bytes[0], 1);
    cancelling    c;
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = on_first, .arg = &c};
    op           second, o;
    umx_request *first;

    pair_open(p);
    pair_settle(p);
    c.worker = p->server_worker;
    assert_int_equal(umx_channel_recv(p->server, 0, &pair_any, &buf, &params,
                                      &first, &o.info),
                     UMX_INPROGRESS);
    op_recv(&second, p->server, 0, pair_any, &bytes[1], 1);
    c.req = second.req;
    for (int i = 0; i < 3; i++) {
        op_send(&o, p->client, 0, pair_tag(1), &"abc"[i], 1);
        assert_int_equal(o.status, UMX_OK);
    }
    while (second.req->status == UMX_INPROGRESS) {
        (void)umi_worker_progress(p->server_worker);
    }
    (void)!umx_worker_drain(p->server_worker);
    is_starved = false;
    bytes[1]   = 'x';
    assert_int_equal(op_wait(p, &second), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_string_equal(umx_ep_reason(p->server),
                        "out of memory for a message");
    assert_memory_equal(bytes, "ax", 2);
}

/* A message that was read and has to go back. */
static void
test_no_memory_for_a_message_that_goes_back(void **state)
{
    pair      *p      = *state;
    char       byte   = 0;
    umx_buffer buffer = umx_host_buffer(&byte, 1);
    op         o;

    pair_open(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "x", 1), UMX_OK);
    op_recv(&o, p->server, 0, pair_any, &byte, 1);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    starve(p->server_worker);
    assert_int_equal(umx_channel_unrecv(p->server, 0, &o.info, &buffer),
                     UMX_ERR_NO_MEMORY);
    is_starved = false;
    assert_int_equal(umx_channel_unrecv(p->server, 0, &o.info, &buffer),
                     UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 'x');
}

/* ---- who owns a message --------------------------------------------------
 */

static void
test_a_message_without_memory_stays_the_callers(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = malloc(MIB);
    op    send_op, take_op, recv_op;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, MIB, 1);
    op_send(&send_op, p->client, 0, pair_tag(1), out, MIB);
    op_recv_message(&take_op, p->server, 0, pair_any);
    assert_int_equal(op_wait(p, &take_op), UMX_OK);
    starve_requests(p->server_worker, 0);
    op_message_recv(&recv_op, take_op.message, in, MIB);
    is_starved = false;
    assert_int_equal(recv_op.status, UMX_ERR_NO_MEMORY);
    assert_ptr_equal(recv_op.message, take_op.message);
    op_message_recv(&recv_op, take_op.message, in, MIB);
    assert_null(recv_op.message);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, MIB, 1);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    free(in);
    free(out);
}

static void
test_a_tag_message_without_memory_stays_the_callers(void **state)
{
    pair            *p       = *state;
    char             byte    = 'x';
    umx_buffer       buf     = umx_host_buffer(&byte, 1);
    umx_tag_message *message = NULL, *taken;
    op               sent, o;
    umx_op_params    params = op_params(&sent);

    pair_open(p);
    sent.status = umx_tag_send(p->client, 1, &buf, &params, &sent.req);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    pair_settle(p);
    params = op_params(&o);
    assert_int_equal(umx_tag_recv_message(p->server_worker, 1, UINT64_MAX,
                                          &params, &o.req, &message),
                     UMX_OK);
    byte  = 0;
    taken = message;
    starve_requests(p->server_worker, 0);
    assert_int_equal(umx_tag_message_recv(&message, &buf, &params, &o.req),
                     UMX_ERR_NO_MEMORY);
    is_starved = false;
    assert_ptr_equal(message, taken);
    o.status = umx_tag_message_recv(&message, &buf, &params, &o.req);
    assert_null(message);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(byte, 'x');
}

typedef struct frames {
    char      *out[2];
    char      *in[2];
    umx_buffer to[2];
    op         send;
} frames;

/* A message of two frames, each announced. */
static void
frames_send(pair *p, frames *f)
{
    umx_op_params params = op_params(&f->send);
    umx_buffer    from[2];

    for (unsigned i = 0; i < 2; i++) {
        f->out[i] = malloc(MIB);
        f->in[i]  = malloc(MIB);
        assert_non_null(f->out[i]);
        assert_non_null(f->in[i]);
        fill_pattern(f->out[i], MIB, i);
        from[i]  = umx_host_buffer(f->out[i], MIB);
        f->to[i] = umx_host_buffer(f->in[i], MIB);
    }
    assert_int_equal(
        umx_frames_send(p->client, 0, NULL, 0, from, 2, &params, &f->send.req),
        UMX_INPROGRESS);
    pair_settle(p);
}

static void
frames_check(pair *p, frames *f)
{
    assert_int_equal(op_wait(p, &f->send), UMX_OK);
    for (unsigned i = 0; i < 2; i++) {
        check_pattern(f->in[i], MIB, i);
        free(f->out[i]);
        free(f->in[i]);
    }
}

static void
on_frames(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    o->req     = NULL;
    o->status  = status;
    o->message = umx_request_message(req);
}

/* With memory for the receive and for the landing of `num_left` - 1 frames. */
static void
receive_taken_frames(pair *p, unsigned num_left)
{
    frames        f;
    op            o;
    umx_op_params params = op_params(&o);
    umx_message  *message, *taken;

    params.on_done = on_frames;
    frames_send(p, &f);
    assert_int_equal(
        umx_frames_recv_message(p->server, 0, &params, &o.req, &message),
        UMX_OK);
    taken = message;
    starve_requests(p->server_worker, num_left);
    o.status   = umx_message_recv_frames(&message, f.to, 2, &params, &o.req);
    is_starved = false;
    if (num_left < 3) {
        assert_int_equal(o.status, UMX_ERR_NO_MEMORY);
        assert_ptr_equal(message, taken);
        o.status = umx_message_recv_frames(&message, f.to, 2, &params, &o.req);
    }
    assert_int_equal(o.status, UMX_INPROGRESS);
    assert_null(message);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_ptr_equal(o.message, taken);
    umx_message_drop(o.message);
    frames_check(p, &f);
}

static void
test_frames_without_memory_stay_the_callers(void **state)
{
    pair *p = *state;

    pair_open(p);
    for (unsigned num_left = 0; num_left <= 3; num_left++) {
        receive_taken_frames(p, num_left);
    }
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
}

static void
test_frames_without_memory_return_to_their_queue(void **state)
{
    pair             *p = *state;
    frames            f;
    op                o;
    umx_op_params     params = op_params(&o);
    umx_frames_target target = {.buffers = f.to, .count = 2};

    params.on_done = on_frames;
    pair_open(p);
    receive_taken_frames(p, 3); /* the pools have grown then */
    frames_send(p, &f);
    starve_requests(p->server_worker, 2);
    assert_int_equal(umx_frames_recv(p->server, 0, &target, &params, &o.req),
                     UMX_INPROGRESS);
    (void)!umx_worker_drain(p->server_worker);
    is_starved = false;
    assert_int_equal(o.status, UMX_ERR_NO_MEMORY);
    assert_null(o.message);
    assert_int_equal(umx_frames_recv(p->server, 0, &target, &params, &o.req),
                     UMX_INPROGRESS);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    umx_message_drop(o.message);
    frames_check(p, &f);
}

/* ---- nobody waits for ever -----------------------------------------------
 */

static void
test_no_memory_for_the_reply_about_memory(void **state)
{
    pair  *p       = *state;
    char   data[1] = "";
    memory m;
    op     o;

    pair_open(p);
    m = memory_register(p, data, 1, 0);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, "x", 1)),
                     UMX_OK);
    start(&o, umx_rma_put, m.rkey, item_of(0, "y", 1));
    while (data[0] != 'y') {
        assert_int_equal(o.status, UMX_INPROGRESS);
        starve_requests(p->server_worker, 0);
        (void)!umx_worker_drain(p->server_worker);
        is_starved = false;
        (void)!umx_worker_drain(p->client_worker);
    }
    assert_true(op_wait(p, &o) < 0);
    check_broken(p, p->server, p->client);
    memory_free(&m);
}

typedef struct sink {
    umx_status status;
    unsigned   num_finished;
} sink;

static umx_status
sink_alloc(const umx_frames_info *info, umx_buffer *buffers, void *arg)
{
    (void)info;
    (void)buffers;
    (void)arg;
    fail_msg("there is no memory");
    return UMX_OK;
}

static void
sink_finish(const umx_buffer *buffers, size_t count, umx_status status,
            void *arg)
{
    sink *s = arg;

    assert_null(buffers);
    assert_int_equal(count, 0);
    s->status = status;
    s->num_finished++;
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
sink_on_ready(umx_message_listener *listener, void *arg)
{
    (void)listener;
    (void)arg;
}

/* In a pack, of more buffers than a listener has at first. */
static void
test_no_memory_for_a_small_message_is_told(void **state)
{
    pair                       *p      = *state;
    sink                        s      = {.status = UMX_OK};
    umx_message_listener_params params = {
        .field_mask = UMX_MESSAGE_LISTENER_FIELD_ON_READY,
        .route      = sink_route,
        .arg        = &s,
        .on_ready   = sink_on_ready};
    umx_message_listener *listener;
    umx_message_sender   *sender;
    umx_buffer            buffers[40];
    umx_message_out       out = {.endpoints     = &p->client,
                                 .num_endpoints = 1,
                                 .buffers       = buffers,
                                 .num_buffers   = 40};
    op                    o;
    umx_op_params         op_params_of = op_params(&o);

    pair_open(p);
    for (int i = 0; i < 40; i++) {
        buffers[i] = umx_host_buffer("x", 1);
    }
    assert_int_equal(umx_message_sender_create(p->client_worker, NULL, &sender),
                     UMX_OK);
    assert_int_equal(umx_message_listener_create(p->server, &params, &listener),
                     UMX_OK);
    assert_int_equal(umx_message_send(sender, &out, &op_params_of, &o.req),
                     UMX_OK);
    umx_message_sender_flush(sender);
    pair_settle(p);
    is_starved = true;
    (void)umx_message_listener_run(listener, 2);
    is_starved = false;
    assert_int_equal(s.num_finished, 1);
    assert_int_equal(s.status, UMX_ERR_NO_MEMORY);
    umx_message_listener_destroy(listener);
    umx_message_sender_destroy(sender);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_no_memory_for_the_channel_of_a_message),
        PAIR_TEST(
            test_no_memory_for_a_message_that_lands_in_a_cancelled_receive),
        PAIR_TEST(test_no_memory_for_a_completed_receive_that_is_cancelled),
        PAIR_TEST_ONCE(test_no_memory_for_a_message_that_goes_back),
        PAIR_TEST(test_a_message_without_memory_stays_the_callers),
        PAIR_TEST(test_a_tag_message_without_memory_stays_the_callers),
        PAIR_TEST(test_frames_without_memory_stay_the_callers),
        PAIR_TEST(test_frames_without_memory_return_to_their_queue),
        PAIR_TEST(test_no_memory_for_the_reply_about_memory),
        PAIR_TEST_ONCE(test_no_memory_for_a_small_message_is_told),
    };

    return UNIT_RUN(tests);
}
