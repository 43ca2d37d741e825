/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory steps */
/* tests: ops/post worker/request worker/ep_base */
/* Every kind of operation, cancelled, failing or delayed at each step. What
 * must hold: it ends; its memory is the caller's then; what has not failed can
 * still be used, and what has failed says so on both sides. */
#include "memory.h"

#include <stdio.h>
#include <string.h>
#include <umx/frames.h>
#include <umx/stream.h>

#include "steps.h"

enum {
    MAX_LEN   = 70000,
    MAX_STEPS = 400, /* more than the longest has */
    TAKEN     = 0x5a /* written over memory that is the caller's again */
};

typedef struct scene {
    pair         *p;
    memory        m; /* for remote memory */
    size_t        len;
    op            send, recv;
    unsigned char out[MAX_LEN], in[MAX_LEN], far[MAX_LEN];
} scene;

typedef struct operation {
    const char *name;
    void (*post)(scene *s);
    bool has_memory;
} operation;

static void
post_channel(scene *s)
{
    op_recv(&s->recv, s->p->server, 3, pair_tag(7), s->in, s->len);
    op_send(&s->send, s->p->client, 3, pair_tag(7), s->out, s->len);
}

/* The message comes first. */
static void
post_late(scene *s)
{
    op_send(&s->send, s->p->client, 3, pair_tag(7), s->out, s->len);
    for (int i = 0; i < 3; i++) {
        assert_true(umx_worker_drain(s->p->client_worker) >= 0);
        assert_true(umx_worker_drain(s->p->server_worker) >= 0);
    }
    op_recv(&s->recv, s->p->server, 3, pair_tag(7), s->in, s->len);
}

static void
post_stream(scene *s)
{
    umx_op_params sent = op_params(&s->send), got = op_params(&s->recv);
    umx_buffer    out = umx_host_buffer(s->out, s->len);
    umx_buffer    in  = umx_host_buffer(s->in, s->len);

    op_posted(&s->recv, umx_stream_recv(s->p->server, &in, UMX_STREAM_WAITALL,
                                        &got, &s->recv.req, &s->recv.info));
    op_posted(&s->send,
              umx_stream_send(s->p->client, &out, &sent, &s->send.req));
}

/* The message, which is without bytes, is the caller's. */
static void
on_frames(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    if (status == UMX_OK) {
        umx_message_drop(umx_request_message(req));
    }
    o->req    = NULL;
    o->status = status;
}

static void
post_frames(scene *s)
{
    umx_op_params    sent = op_params(&s->send), got = op_params(&s->recv);
    size_t           half   = s->len / 2;
    const umx_buffer out[2] = {umx_host_buffer(s->out, half),
                               umx_host_buffer(s->out + half, s->len - half)};
    /* They are lent like the memory. */
    static umx_buffer in[2];
    umx_frames_target target = {.buffers = in, .count = 2};

    got.on_done = on_frames;
    in[0]       = umx_host_buffer(s->in, half);
    in[1]       = umx_host_buffer(s->in + half, s->len - half);
    op_posted(&s->recv,
              umx_frames_recv(s->p->server, 3, &target, &got, &s->recv.req));
    op_posted(&s->send, umx_frames_send(s->p->client, 3, "h", 1, out, 2, &sent,
                                        &s->send.req));
}

static void
post_put(scene *s)
{
    start(&s->send, umx_rma_put, s->m.rkey, item_of(0, s->out, s->len));
}

static void
post_get(scene *s)
{
    start(&s->recv, umx_rma_get, s->m.rkey, item_of(0, s->in, s->len));
}

static const operation kinds[] = {
    {"channel", post_channel, false}, {"late", post_late, false},
    {"stream", post_stream, false},   {"frames", post_frames, false},
    {"put", post_put, true},          {"get", post_get, true},
};

/* ---- one run -------------------------------------------------------------
 */

enum {
    FAIL,
    DELAY,
    CANCEL_SEND,
    CANCEL_RECV
};

static const char *const faults[] = {
    "a failure", "a delay", "a cancel of the send", "a cancel of the receive"};

static void
open_scene(scene *s, const operation *kind)
{
    pair *p = s->p;

    pair_connect(p, 0);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
    if (kind->has_memory) {
        s->m = memory_register(p, s->far, MAX_LEN, 0);
    }
    pair_settle(p);
}

static bool
is_unused(umx_worker *worker)
{
    umx_worker_stats stats;

    umx_worker_query(worker, &stats);
    return stats.endpoints == 0 && stats.requests_in_use == 0;
}

static void
close_scene(scene *s, const operation *kind)
{
    pair *p = s->p;

    if (kind->has_memory) {
        memory_free(&s->m);
    }
    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    p->client = p->server = NULL;
    PAIR_UNTIL(p, is_unused(p->client_worker) && is_unused(p->server_worker));
}

static void
cancel(op *o)
{
    if (!op_is_done(o)) {
        umx_request_cancel(o->req);
    }
}

/* Progress until both have ended. If one fails or is cancelled, so is the
 * other, for which nothing may come. */
static void
finish(scene *s, int fault)
{
    bool is_cancelled = false;

    while (!op_is_done(&s->send) || !op_is_done(&s->recv)) {
        if (steps_reached() && !is_cancelled && fault >= CANCEL_SEND) {
            is_cancelled = true;
            cancel((fault == CANCEL_SEND) ? &s->send : &s->recv);
        }
        if ((op_is_done(&s->send) && s->send.status != UMX_OK) ||
            (op_is_done(&s->recv) && s->recv.status != UMX_OK)) {
            cancel(&s->send);
            cancel(&s->recv);
        }
        pair_step(s->p);
    }
}

static bool
is_open(const umx_ep *ep)
{
    return umx_ep_get_state(ep) == UMX_EP_OPEN;
}

/* Both sides can be used, or both know that they cannot. */
static void
check_endpoints(scene *s)
{
    pair *p        = s->p;
    char  text[16] = "";

    if (is_open(p->client) && is_open(p->server)) {
        op sent, got;

        op_send(&sent, p->client, 9, pair_tag(1), "as before", 10);
        op_recv(&got, p->server, 9, pair_tag(1), text, sizeof(text));
        PAIR_UNTIL(p, (op_is_done(&sent) && op_is_done(&got)) ||
                          !is_open(p->client) || !is_open(p->server));
        if (is_open(p->client) && is_open(p->server)) {
            assert_string_equal(text, "as before");
            return;
        }
    }
    PAIR_UNTIL(p, !is_open(p->client) && !is_open(p->server));
}

static bool
is_taken(const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != TAKEN) {
            return false;
        }
    }
    return true;
}

/* True if step k was reached. */
static bool
run(scene *s, const operation *kind, int fault, unsigned k)
{
    static const int does[] = {STEPS_FAIL, STEPS_DELAY, STEPS_COUNT,
                               STEPS_COUNT};
    bool             has_reached;

    memset(&s->send, 0, sizeof(s->send));
    memset(&s->recv, 0, sizeof(s->recv));
    open_scene(s, kind);
    fill_pattern(s->out, s->len, k);
    memset(s->in, 0, s->len);
    fill_pattern(s->far, s->len, k);
    steps_begin(k, does[fault]);
    kind->post(s);
    finish(s, fault);
    has_reached = steps_reached();
    if (s->recv.status == UMX_OK && s->send.status == UMX_OK &&
        kind->post != post_put) {
        check_pattern(s->in, s->len, k);
    }
    if (fault == DELAY) {
        assert_int_equal(s->send.status, UMX_OK);
        assert_int_equal(s->recv.status, UMX_OK);
    }
    memset(s->in, TAKEN, s->len);
    memset(s->out, TAKEN, s->len);
    steps_end();
    check_endpoints(s);
    assert_true(is_taken(s->in, s->len));
    close_scene(s, kind);
    return has_reached;
}

static void
run_all(void **state, int fault)
{
    static const size_t sizes[] = {100, MAX_LEN};

    pair  *p = *state;
    scene *s = calloc(1, sizeof(*s));

    pair_listen(p);
    s->p = p;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        for (size_t j = 0; j < sizeof(sizes) / sizeof(*sizes); j++) {
            unsigned k = 0;

            s->len = sizes[j];
            while (run(s, &kinds[i], fault, ++k)) {
                assert_true(k < MAX_STEPS);
            }
            print_message("%s of %zu bytes: %u steps, %s at each\n",
                          kinds[i].name, s->len, k - 1, faults[fault]);
        }
    }
    free(s);
}

static void
test_each_step_fails(void **state)
{
    run_all(state, FAIL);
}

static void
test_each_step_is_delayed(void **state)
{
    run_all(state, DELAY);
}

static void
test_a_send_is_cancelled_at_each_step(void **state)
{
    run_all(state, CANCEL_SEND);
}

static void
test_a_receive_is_cancelled_at_each_step(void **state)
{
    run_all(state, CANCEL_RECV);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_each_step_fails),
        PAIR_TEST(test_each_step_is_delayed),
        PAIR_TEST(test_a_send_is_cancelled_at_each_step),
        PAIR_TEST(test_a_receive_is_cancelled_at_each_step),
    };

    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
