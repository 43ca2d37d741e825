/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=umi_process_is_self wrap=malloc wrap=calloc */
/* test_give_back.c: the buffers of a cancelled operation of frames, or of a
 * stream, are the program's when umx_request_cancel() returns. Each test fills
 * them with a pattern of its own in that moment. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "channel/frames.h"
#include "channel/stream.h"
#include "lend/agree.h"
#include "util/process.h"

enum {
    KIB        = 1024,
    MIB        = 1024 * 1024,
    MAX_FRAMES = 100,
    POISON     = 99,          /* a seed */
    LONG       = MIB + 70000, /* bytes of a stream: several pieces */
    MAX_STEPS  = 1000
};

/* ---- loans in one process ------------------------------------------------
 */

static bool is_lending;

bool __real_umi_process_is_self(pid_t pid);
bool __wrap_umi_process_is_self(pid_t pid);

bool
__wrap_umi_process_is_self(pid_t pid)
{
    return !is_lending && __real_umi_process_is_self(pid);
}

/* ---- memory that there is not --------------------------------------------
 */

static bool has_no_memory;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *
__wrap_malloc(size_t size)
{
    return has_no_memory ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
    return has_no_memory ? NULL : __real_calloc(count, size);
}

/* ---- messages ------------------------------------------------------------
 */

typedef struct shape {
    size_t count;
    size_t lens[MAX_FRAMES];
} shape;

/* In the head, gathered and not; in parts of several frames; alone; mixed. */
static const shape shapes[] = {
    {3, {64, 0, 300}},
    {3, {9000, 1, 9000}},
    {1, {150 * KIB}},
    {4, {200000, 5, 100000, 70000}},
    {8, {40000, 0, 40000, 70000, 9000, 9000, 80000, 40000}},
};

typedef struct memory {
    size_t     count;
    umx_buffer buffers[MAX_FRAMES];
} memory;

static void
memory_fill(memory *m, unsigned seed)
{
    for (size_t i = 0; i < m->count; i++) {
        fill_pattern(m->buffers[i].data, m->buffers[i].len,
                     seed * 1000 + (unsigned)i);
    }
}

static void
memory_make(memory *m, const shape *s, unsigned seed)
{
    m->count = s->count;
    for (size_t i = 0; i < m->count; i++) {
        m->buffers[i] = umx_host_buffer(malloc(s->lens[i] + 1), s->lens[i]);
        assert_non_null(m->buffers[i].data);
    }
    memory_fill(m, seed);
}

static void
memory_check(const memory *m, unsigned seed)
{
    for (size_t i = 0; i < m->count; i++) {
        check_pattern(m->buffers[i].data, m->buffers[i].len,
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

/* The bytes are those of `seed`. */
static void
memory_end(memory *m, unsigned seed)
{
    memory_check(m, seed);
    memory_free(m);
}

/* ---- operations ----------------------------------------------------------
 */

/* The messages' headers are "1", "2", ... */
static void
send_frames(op *o, umx_ep *ep, const memory *m, unsigned number)
{
    umx_op_params params = op_params(o);
    char          header = (char)('0' + number);

    o->status = umx_frames_send(ep, 0, &header, 1, m->buffers, m->count,
                                &params, &o->req);
    assert_true(o->status >= 0);
    if (o->status == UMX_OK) {
        o->req = NULL;
    }
}

static void
send_message(pair *p, op *o, memory *m, const shape *s, unsigned number)
{
    memory_make(m, s, number);
    send_frames(o, p->client, m, number);
}

static void
on_frames(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    o->calls++;
    o->req     = NULL;
    o->status  = status;
    o->message = (status == UMX_OK) ? umx_request_message(req) : NULL;
}

static void
recv_message(op *o, umx_ep *ep, memory *m, const shape *s)
{
    umx_op_params     params = op_params(o);
    umx_frames_target target;

    memory_make(m, s, 0);
    target = (umx_frames_target){.buffers = m->buffers, .count = m->count};
    params.on_done = on_frames;
    assert_int_equal(umx_frames_recv(ep, 0, &target, &params, &o->req),
                     UMX_INPROGRESS);
}

/* Wait for a receive; which message it got. */
static unsigned
expect_some(pair *p, op *o, memory *m)
{
    unsigned number;

    assert_int_equal(op_wait(p, o), UMX_OK);
    number = (unsigned)(*(const char *)umx_message_frames(o->message)->header -
                        '0');
    umx_message_drop(o->message);
    memory_end(m, number);
    return number;
}

static void
expect(pair *p, op *o, memory *m, unsigned number)
{
    assert_int_equal(expect_some(p, o, m), number);
}

static void
end_send(pair *p, op *o, memory *m)
{
    assert_int_equal(op_wait(p, o), UMX_OK);
    memory_free(m);
}

/* Cancel, and use the buffers for something else. */
static void
cancel_and_poison(op *o, memory *m)
{
    assert_int_equal(umx_request_cancel(o->req), UMX_OK);
    memory_fill(m, POISON);
}

/* ---- turns ---------------------------------------------------------------
 */

/* Let one side work, then UCX of `worker`, then its reports: one of them. */
static void
part_of_turn(umx_worker *other, umx_worker *worker, unsigned n)
{
    if (n % 3 == 0) {
        (void)umx_worker_poll(other);
    } else if (n % 3 == 1) {
        (void)umi_worker_progress(worker);
    } else {
        (void)umx_worker_poll(worker);
    }
}

/* Take every number of steps at first, then larger ones. */
static unsigned
more(unsigned steps)
{
    return steps + 1 + steps / 8;
}

/* What is varied. */
typedef struct variant {
    bool is_rndv; /* every message is announced */
    bool is_lent;
    bool is_short; /* credit is */
} variant;

static const variant variants[] = {
    {false, false, false},
    {true, false, false},
    {false, false, true},
    {true, true, false},
};

enum {
    NUM_SHAPES   = sizeof(shapes) / sizeof(shapes[0]),
    NUM_VARIANTS = sizeof(variants) / sizeof(variants[0])
};

/* Open the pair; false: nothing is lent over that transport. */
static bool
open_variant(pair *p, const variant *v)
{
    umx_config_default(&p->config);
    if (v->is_rndv) {
        p->config.rndv_thresh_shm = p->config.rndv_thresh_net = 1;
    }
    if (v->is_short) {
        p->config.credit_messages = p->config.credit_rndv = 2;
        p->config.credit_bytes                            = 1000;
    }
    is_lending = v->is_lent;
    if (v->is_lent) {
        if (p->tls != NULL) {
            return false;
        }
        p->config.cma_min = 0;
        p->config.cma_max = 64 * MIB;
    }
    pair_open(p);
    if (v->is_lent) {
        pair_settle(p);
    }
    return true;
}

/* Close it, for the next variant. */
static void
close_pair(pair *p)
{
    op o;

    op_close(&o, p->client, 10 * SECOND_NS);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    p->client = p->server = NULL;
    umx_listener_destroy(p->listener);
    umx_worker_destroy(p->client_worker);
    umx_worker_destroy(p->server_worker);
    umx_context_release(p->context);
    umx_context_release(p->client_context);
    p->context  = NULL;
    p->listener = NULL;
}

/* ---- receives of frames --------------------------------------------------
 */

/* Where a receive was when it was cancelled. */
typedef enum place {
    QUEUED,
    TAKEN,
    READING, /* parts are missing, none lands */
    LANDING,
    COMPLETE,
    NUM_PLACES
} place;

static place
place_of(const umx_request *req)
{
    const umi_frames_op *recv = umi_frames_op_of(req);

    switch ((enum umi_frames_phase)recv->all.phase) {
    case UMI_FRAMES_QUEUED:
        return QUEUED;
    case UMI_FRAMES_TAKEN:
        return TAKEN;
    case UMI_FRAMES_READING:
        return (recv->all.num_landing != 0) ? LANDING : READING;
    case UMI_FRAMES_COMPLETE:
        break;
    }
    return COMPLETE;
}

/* Run until bytes land in a receive of frames. */
static void
run_until_landing(pair *p, const op *o)
{
    for (unsigned i = 0; place_of(o->req) != LANDING; i++) {
        part_of_turn(p->client_worker, p->server_worker, i);
        assert_false(op_is_done(o));
    }
}

/* A receive is cancelled after some steps. The next one gets the message.
 * False: it was over by then. */
static bool
cancel_recv(pair *p, const shape *s, unsigned steps, unsigned *places)
{
    memory sent[2], got[3];
    op     sends[2], recvs[3];
    bool   was_pending;

    recv_message(&recvs[0], p->server, &got[0], s);
    send_message(p, &sends[0], &sent[0], s, 1);
    send_message(p, &sends[1], &sent[1], s, 2);
    for (unsigned i = 0; i < steps; i++) {
        part_of_turn(p->client_worker, p->server_worker, i);
    }
    was_pending = !op_is_done(&recvs[0]);
    if (was_pending) {
        places[place_of(recvs[0].req)]++;
        cancel_and_poison(&recvs[0], &got[0]);
        recv_message(&recvs[1], p->server, &got[1], s);
        assert_int_equal(op_wait(p, &recvs[0]), UMX_ERR_CANCELED);
        expect(p, &recvs[1], &got[1], 1);
    } else {
        expect(p, &recvs[0], &got[0], 1);
    }
    recv_message(&recvs[2], p->server, &got[2], s);
    expect(p, &recvs[2], &got[2], 2);
    end_send(p, &sends[0], &sent[0]);
    end_send(p, &sends[1], &sent[1]);
    if (was_pending) {
        memory_end(&got[0], POISON);
    }
    return was_pending;
}

static void
test_a_cancelled_receive_of_frames(void **state)
{
    pair    *p                  = *state;
    unsigned places[NUM_PLACES] = {0};

    for (int v = 0; v < NUM_VARIANTS; v++) {
        if (!open_variant(p, &variants[v])) {
            continue;
        }
        for (int i = 0; i < NUM_SHAPES; i++) {
            unsigned steps = 0;

            while (cancel_recv(p, &shapes[i], steps, places)) {
                steps = more(steps);
            }
        }
        close_pair(p);
    }
    assert_true(places[QUEUED] != 0 && places[READING] != 0);
    assert_true(places[LANDING] != 0);
}

static void
test_a_receive_cancelled_before_it_has_looked(void **state)
{
    pair  *p = *state;
    memory sent, got[2];
    op     send, recvs[2];

    pair_open(p);
    for (int i = 0; i < NUM_SHAPES; i++) {
        send_message(p, &send, &sent, &shapes[i], 1);
        pair_settle(p);
        recv_message(&recvs[0], p->server, &got[0], &shapes[i]);
        assert_int_equal(place_of(recvs[0].req), TAKEN);
        cancel_and_poison(&recvs[0], &got[0]);
        recv_message(&recvs[1], p->server, &got[1], &shapes[i]);
        assert_int_equal(op_wait(p, &recvs[0]), UMX_ERR_CANCELED);
        expect(p, &recvs[1], &got[1], 1);
        memory_end(&got[0], POISON);
        end_send(p, &send, &sent);
    }
}

/* A receive that is cancelled by the callback of another one. */
typedef struct victim {
    op     *recv;
    memory *got;
    place   place;
    bool    is_over; /* the callback has run */
} victim;

static void
on_done_cancel(umx_request *req, umx_status status, void *arg)
{
    victim *v = arg;

    (void)req;
    (void)status;
    v->is_over = true;
    if (!op_is_done(v->recv)) {
        v->place = place_of(v->recv->req);
        cancel_and_poison(v->recv, v->got);
    }
}

/* Progress without reports until so many operations are complete. */
static void
progress_until_done(pair *p, unsigned count)
{
    unsigned found = 0;

    while (found != count) {
        (void)umx_worker_poll(p->client_worker);
        (void)umi_worker_progress(p->server_worker);
        found = 0;
        UMI_LIST_FOREACH(node, &p->server_worker->done) {
            found++;
        }
    }
}

/* The bytes of a message land, and behind them comes one whose receive cancels
 * the receive of the first, in the same turn. */
static place
cancel_by_callback(pair *p, const shape *s)
{
    static char byte;

    memory        sent, got[2];
    op            send, tagged, recv, next;
    victim        v      = {.recv = &recv, .got = &got[0], .place = NUM_PLACES};
    umx_op_params params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                            .on_done    = on_done_cancel,
                            .arg        = &v};
    umx_buffer    buf    = umx_host_buffer(&byte, 1);
    umx_request  *ignored;

    recv_message(&recv, p->server, &got[0], s);
    assert_int_equal(umx_channel_recv(p->server, 1, &pair_any, &buf, &params,
                                      &ignored, &next.info),
                     UMX_INPROGRESS);
    send_message(p, &send, &sent, s, 1);
    run_until_landing(p, &recv);
    progress_until_done(p, 1);
    op_send(&tagged, p->client, 1, pair_untagged, "x", 1);
    progress_until_done(p, 2);
    PAIR_UNTIL(p, v.is_over);
    if (v.place != NUM_PLACES) {
        assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
        recv_message(&next, p->server, &got[1], s);
        expect(p, &next, &got[1], 1);
        memory_end(&got[0], POISON);
    } else {
        expect(p, &recv, &got[0], 1);
    }
    assert_int_equal(op_wait(p, &tagged), UMX_OK);
    end_send(p, &send, &sent);
    return v.place;
}

static void
test_a_receive_cancelled_between_completion_and_report(void **state)
{
    static const shape s = {1, {MIB}};
    pair              *p = *state;

    pair_open(p);
    assert_int_equal(cancel_by_callback(p, &s), COMPLETE);
}

/* ---- sends of frames -----------------------------------------------------
 */

/* Wait for a send that was cancelled. True: it was complete by then. */
static bool
end_cancelled(pair *p, op *o)
{
    umx_status status = op_wait(p, o);

    assert_true(status == UMX_OK || status == UMX_ERR_CANCELED);
    return status == UMX_OK;
}

/* A send is cancelled after some steps. The peer gets the message whole, or
 * never. */
static bool
cancel_send(pair *p, const shape *s, unsigned steps, bool is_late,
            unsigned *num_received)
{
    memory   sent[2], got[2];
    op       sends[2], recvs[2];
    bool     was_pending, is_sent = false;
    unsigned number;

    if (!is_late) {
        recv_message(&recvs[0], p->server, &got[0], s);
    }
    send_message(p, &sends[0], &sent[0], s, 1);
    for (unsigned i = 0; i < steps; i++) {
        part_of_turn(p->server_worker, p->client_worker, i);
    }
    was_pending = !op_is_done(&sends[0]);
    if (was_pending) {
        cancel_and_poison(&sends[0], &sent[0]);
    }
    send_message(p, &sends[1], &sent[1], s, 2);
    if (was_pending) {
        is_sent = end_cancelled(p, &sends[0]);
        memory_end(&sent[0], POISON);
    } else {
        memory_free(&sent[0]);
    }
    if (is_late) {
        recv_message(&recvs[0], p->server, &got[0], s);
    }
    number = expect_some(p, &recvs[0], &got[0]);
    if (number == 1) {
        *num_received += was_pending;
        recv_message(&recvs[1], p->server, &got[1], s);
        expect(p, &recvs[1], &got[1], 2);
    } else {
        assert_true(was_pending && !is_sent);
    }
    end_send(p, &sends[1], &sent[1]);
    return was_pending;
}

static void
test_a_cancelled_send_of_frames(void **state)
{
    pair    *p            = *state;
    unsigned num_received = 0;

    for (int v = 0; v < NUM_VARIANTS; v++) {
        if (!open_variant(p, &variants[v])) {
            continue;
        }
        for (int i = 0; i < NUM_SHAPES; i++) {
            unsigned steps = 0;

            while (cancel_send(p, &shapes[i], steps, false, &num_received)) {
                steps = more(steps);
            }
            for (steps = 0; steps < 12; steps++) {
                (void)cancel_send(p, &shapes[i], steps, true, &num_received);
            }
        }
        close_pair(p);
    }
    assert_true(num_received != 0);
}

/* ---- limits --------------------------------------------------------------
 */

static const shape limited = {2, {MIB, MIB}};

/* More than the sockets take: it cannot all have come when it begins to land.
 */
static const shape long_one = {2, {MIB, 16 * MIB}};

static void
test_a_copy_above_the_limit_is_deferred(void **state)
{
    pair  *p = *state;
    memory sent, got;
    op     send, recv;

    p->config.cancel_bytes = MIB;
    pair_open(p);
    send_message(p, &send, &sent, &limited, 1);
    assert_int_equal(umx_request_cancel(send.req), UMX_INPROGRESS);
    pair_settle(p);
    assert_false(op_is_done(&send));
    recv_message(&recv, p->server, &got, &limited);
    expect(p, &recv, &got, 1);
    assert_int_equal(op_wait(p, &send), UMX_ERR_CANCELED);
    memory_free(&sent);
}

static void
test_a_deferred_receive_ends_when_its_bytes_are_in(void **state)
{
    pair  *p = *state;
    memory sent, got[2];
    op     send, recvs[2];

    p->config.cancel_bytes = MIB;
    pair_open(p);
    recv_message(&recvs[0], p->server, &got[0], &long_one);
    send_message(p, &send, &sent, &long_one, 1);
    run_until_landing(p, &recvs[0]);
    assert_int_equal(umx_request_cancel(recvs[0].req), UMX_INPROGRESS);
    assert_int_equal(umx_request_cancel(recvs[0].req), UMX_INPROGRESS);
    recv_message(&recvs[1], p->server, &got[1], &long_one);
    assert_int_equal(op_wait(p, &recvs[0]), UMX_ERR_CANCELED);
    expect(p, &recvs[1], &got[1], 1);
    memory_free(&got[0]);
    end_send(p, &send, &sent);
}

static void
test_who_abandons_does_not_wait(void **state)
{
    pair  *p = *state;
    memory sent, got[2];
    op     send, recvs[2];

    p->config.cancel_bytes = 0;
    pair_open(p);
    recv_message(&recvs[0], p->server, &got[0], &long_one);
    send_message(p, &send, &sent, &long_one, 1);
    run_until_landing(p, &recvs[0]);
    assert_int_equal(umx_request_cancel(recvs[0].req), UMX_INPROGRESS);
    assert_int_equal(umx_request_abandon(recvs[0].req), UMX_OK);
    memory_fill(&got[0], POISON);
    if (!op_is_done(&send)) {
        assert_int_equal(umx_request_cancel(send.req), UMX_INPROGRESS);
        assert_int_equal(umx_request_abandon(send.req), UMX_OK);
        memory_fill(&sent, POISON);
        assert_int_equal(op_wait(p, &send), UMX_ERR_CANCELED);
    }
    recv_message(&recvs[1], p->server, &got[1], &long_one);
    assert_int_equal(op_wait(p, &recvs[0]), UMX_ERR_CANCELED);
    expect(p, &recvs[1], &got[1], 1);
    memory_end(&got[0], POISON);
    memory_free(&sent);
}

static void
test_copies_are_counted_while_they_last(void **state)
{
    pair  *p = *state;
    memory sent, got;
    op     send, recv;

    pair_open(p);
    send_message(p, &send, &sent, &limited, 1);
    cancel_and_poison(&send, &sent);
    assert_int_equal(p->client_worker->copied_bytes, 2 * MIB);
    recv_message(&recv, p->server, &got, &limited);
    run_until_landing(p, &recv);
    cancel_and_poison(&recv, &got);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    memory_end(&got, POISON);
    recv_message(&recv, p->server, &got, &limited);
    expect(p, &recv, &got, 1);
    assert_int_equal(op_wait(p, &send), UMX_ERR_CANCELED);
    memory_end(&sent, POISON);
    PAIR_UNTIL(p, p->client_worker->copied_bytes == 0);
    assert_int_equal(p->server_worker->copied_bytes, 0);
}

/* True if UCX has operations. */
static bool
has_requests(const pair *p)
{
    return p->client_worker->requests.in_use != 0 ||
           p->server_worker->requests.in_use != 0;
}

/* Cancel without memory for a copy: the buffers are free all the same. */
static void
cancel_without_memory(op *o)
{
    has_no_memory = true;
    assert_int_equal(umx_request_cancel(o->req), UMX_OK);
    has_no_memory = false;
}

static void
test_a_receive_without_memory_for_a_copy_ends_the_endpoint(void **state)
{
    pair  *p = *state;
    memory sent, got;
    op     send, recv;

    pair_open(p);
    recv_message(&recv, p->server, &got, &limited);
    send_message(p, &send, &sent, &limited, 1);
    run_until_landing(p, &recv);
    cancel_without_memory(&recv);
    memory_fill(&got, POISON);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    (void)op_wait(p, &send);
    PAIR_UNTIL(p, !has_requests(p));
    memory_end(&got, POISON);
    memory_free(&sent);
}

static void
test_a_send_without_memory_for_a_copy_ends_the_endpoint(void **state)
{
    pair  *p = *state;
    memory sent;
    op     send;

    pair_open(p);
    send_message(p, &send, &sent, &limited, 1);
    cancel_without_memory(&send);
    memory_fill(&sent, POISON);
    assert_int_equal(op_wait(p, &send), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_FAILED);
    memory_end(&sent, POISON);
}

/* ---- ends ----------------------------------------------------------------
 */

/* Both sides of a message are cancelled while it lands. */
static void
cancel_both(pair *p, op *send, memory *sent, op *recv, memory *got)
{
    const shape *s = &limited;

    recv_message(recv, p->server, got, s);
    send_message(p, send, sent, s, 1);
    run_until_landing(p, recv);
    cancel_and_poison(recv, got);
    if (!op_is_done(send)) {
        cancel_and_poison(send, sent);
    }
}

static void
check_both(op *send, memory *sent, op *recv, memory *got)
{
    assert_true(op_is_done(recv));
    assert_int_equal(recv->status, UMX_ERR_CANCELED);
    assert_true(op_is_done(send));
    memory_end(got, POISON);
    if (send->status == UMX_ERR_CANCELED) {
        memory_check(sent, POISON);
    }
    memory_free(sent);
}

static void
test_an_abort_while_cancelled_operations_go_on(void **state)
{
    pair *p = *state;

    pair_open(p);
    for (int side = 0; side < 2; side++) {
        memory sent, got;
        op     send, recv;

        cancel_both(p, &send, &sent, &recv, &got);
        umx_ep_abort(side ? p->server : p->client);
        (void)op_wait(p, &recv);
        (void)op_wait(p, &send);
        PAIR_UNTIL(p, umx_ep_get_state(p->client) != UMX_EP_OPEN &&
                          umx_ep_get_state(p->server) != UMX_EP_OPEN);
        PAIR_UNTIL(p, !has_requests(p));
        check_both(&send, &sent, &recv, &got);
        umx_ep_destroy(p->client);
        umx_ep_destroy(p->server);
        p->client = p->server = NULL;
        umx_listener_destroy(p->listener);
        umx_worker_destroy(p->client_worker);
        umx_worker_destroy(p->server_worker);
        umx_context_release(p->context);
        umx_context_release(p->client_context);
        pair_open(p);
    }
}

static void
test_a_worker_goes_while_cancelled_operations_go_on(void **state)
{
    pair  *p = *state;
    memory sent, got;
    op     send, recv;

    pair_open(p);
    cancel_both(p, &send, &sent, &recv, &got);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    umx_worker_destroy(p->server_worker);
    umx_worker_destroy(p->client_worker);
    check_both(&send, &sent, &recv, &got);
    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    p->client = p->server = NULL;
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
    assert_int_equal(umx_worker_create(p->client_context, &p->client_worker),
                     UMX_OK);
}

/* ---- streams -------------------------------------------------------------
 */

static char bytes[LONG], sent_bytes[LONG], got_bytes[LONG];

static void
stream_send(op *o, umx_ep *ep, const void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buf    = umx_host_buffer(data, len);

    o->status = umx_stream_send(ep, &buf, &params, &o->req);
    assert_true(o->status >= 0);
    if (o->status == UMX_OK) {
        o->req = NULL;
    }
}

static void
stream_recv(op *o, umx_ep *ep, void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buf    = umx_host_buffer(data, len);

    o->status = umx_stream_recv(ep, &buf, UMX_STREAM_WAITALL, &params, &o->req,
                                &o->info);
    assert_true(o->status >= 0);
    if (o->status == UMX_OK) {
        o->req = NULL;
    }
}

/* Receive `len` bytes of the stream, which are `bytes` from `at` on. */
static void
expect_bytes(pair *p, size_t at, size_t len)
{
    char *data = malloc(len);
    op    o;

    assert_non_null(data);
    stream_recv(&o, p->server, data, len);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_memory_equal(data, bytes + at, len);
    free(data);
}

static bool
cancel_stream_recv(pair *p, size_t len, unsigned steps, unsigned *num_landing)
{
    op   send, recv;
    bool was_pending;

    stream_recv(&recv, p->server, got_bytes, len);
    stream_send(&send, p->client, bytes, len);
    for (unsigned i = 0; i < steps; i++) {
        part_of_turn(p->client_worker, p->server_worker, i);
    }
    was_pending = !op_is_done(&recv);
    if (was_pending) {
        *num_landing += umi_stream_of(recv.req)->all.num_landing != 0;
        assert_int_equal(umx_request_cancel(recv.req), UMX_OK);
        fill_pattern(got_bytes, len, POISON);
        expect_bytes(p, 0, len / 2);
        expect_bytes(p, len / 2, len - len / 2);
        assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
        check_pattern(got_bytes, len, POISON);
    } else {
        assert_memory_equal(got_bytes, bytes, len);
    }
    assert_int_equal(op_wait(p, &send), UMX_OK);
    return was_pending;
}

static const size_t lengths[] = {100, 60 * KIB, 200 * KIB, LONG};

static void
test_a_cancelled_receive_of_a_stream(void **state)
{
    pair    *p           = *state;
    unsigned num_landing = 0;

    for (int v = 0; v < NUM_VARIANTS; v++) {
        if (!open_variant(p, &variants[v])) {
            continue;
        }
        for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
            unsigned steps = 0;

            while (cancel_stream_recv(p, lengths[i], steps, &num_landing)) {
                steps = more(steps);
            }
        }
        close_pair(p);
    }
    assert_true(num_landing != 0);
}

/* The bytes of a cancelled send come whole, or none of them. */
static bool
cancel_stream_send(pair *p, size_t len, unsigned steps)
{
    op   send, next, recv;
    char first;
    bool was_pending, is_sent;

    memcpy(sent_bytes, bytes, len);
    stream_send(&send, p->client, sent_bytes, len);
    stream_recv(&recv, p->server, &first, 1);
    for (unsigned i = 0; i < steps; i++) {
        part_of_turn(p->server_worker, p->client_worker, i);
    }
    was_pending = !op_is_done(&send);
    if (was_pending) {
        assert_int_equal(umx_request_cancel(send.req), UMX_OK);
        fill_pattern(sent_bytes, len, POISON);
    }
    stream_send(&next, p->client, "\xff", 1);
    is_sent = end_cancelled(p, &send);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    if (first == '\xff') {
        assert_true(was_pending && !is_sent);
    } else {
        char last;

        assert_int_equal(first, bytes[0]);
        expect_bytes(p, 1, len - 1);
        stream_recv(&recv, p->server, &last, 1);
        assert_int_equal(op_wait(p, &recv), UMX_OK);
        assert_int_equal(last, '\xff');
    }
    assert_int_equal(op_wait(p, &next), UMX_OK);
    return was_pending;
}

static void
test_a_cancelled_send_of_a_stream(void **state)
{
    pair *p = *state;

    for (int v = 0; v < NUM_VARIANTS; v++) {
        if (!open_variant(p, &variants[v])) {
            continue;
        }
        for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
            unsigned steps = 0;

            while (cancel_stream_send(p, lengths[i], steps) &&
                   steps < MAX_STEPS) {
                steps = more(steps);
            }
        }
        close_pair(p);
    }
}

/* Run until bytes land in a receive of a stream. */
static void
land_stream(pair *p, op *send, op *recv)
{
    stream_recv(recv, p->server, got_bytes, LONG);
    stream_send(send, p->client, bytes, LONG);
    for (unsigned i = 0; umi_stream_of(recv->req)->all.num_landing == 0; i++) {
        part_of_turn(p->client_worker, p->server_worker, i);
        assert_false(op_is_done(recv));
    }
}

static void
test_a_deferred_receive_of_a_stream(void **state)
{
    pair *p = *state;
    op    send, recv;

    p->config.cancel_bytes = KIB;
    pair_open(p);
    for (int is_abandoned = 0; is_abandoned < 2; is_abandoned++) {
        land_stream(p, &send, &recv);
        assert_int_equal(umx_request_cancel(recv.req), UMX_INPROGRESS);
        if (is_abandoned) {
            assert_int_equal(umx_request_abandon(recv.req), UMX_OK);
            fill_pattern(got_bytes, LONG, POISON);
        }
        expect_bytes(p, 0, LONG);
        assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
        assert_int_equal(op_wait(p, &send), UMX_OK);
        if (is_abandoned) {
            check_pattern(got_bytes, LONG, POISON);
        }
    }
}

static void
test_a_stream_without_memory_for_a_copy_ends_the_endpoint(void **state)
{
    pair *p = *state;
    op    send, recv;

    pair_open(p);
    land_stream(p, &send, &recv);
    cancel_without_memory(&recv);
    fill_pattern(got_bytes, LONG, POISON);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    (void)op_wait(p, &send);
    PAIR_UNTIL(p, !has_requests(p));
    check_pattern(got_bytes, LONG, POISON);
}

static void
test_a_worker_goes_while_a_cancelled_receive_of_a_stream_goes_on(void **state)
{
    pair *p = *state;
    op    send, recv;

    pair_open(p);
    land_stream(p, &send, &recv);
    assert_int_equal(umx_request_cancel(recv.req), UMX_OK);
    fill_pattern(got_bytes, LONG, POISON);
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, !has_requests(p));
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    (void)op_wait(p, &send);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    umx_worker_destroy(p->server_worker);
    check_pattern(got_bytes, LONG, POISON);
    umx_ep_destroy(p->server);
    p->server = NULL;
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_cancelled_receive_of_frames),
        PAIR_TEST(test_a_receive_cancelled_before_it_has_looked),
        PAIR_TEST(test_a_receive_cancelled_between_completion_and_report),
        PAIR_TEST(test_a_cancelled_send_of_frames),
        PAIR_TEST(test_a_copy_above_the_limit_is_deferred),
        PAIR_TEST(test_a_deferred_receive_ends_when_its_bytes_are_in),
        PAIR_TEST(test_who_abandons_does_not_wait),
        PAIR_TEST(test_copies_are_counted_while_they_last),
        PAIR_TEST(test_a_receive_without_memory_for_a_copy_ends_the_endpoint),
        PAIR_TEST(test_a_send_without_memory_for_a_copy_ends_the_endpoint),
        PAIR_TEST(test_an_abort_while_cancelled_operations_go_on),
        PAIR_TEST(test_a_worker_goes_while_cancelled_operations_go_on),
        PAIR_TEST(test_a_cancelled_receive_of_a_stream),
        PAIR_TEST(test_a_cancelled_send_of_a_stream),
        PAIR_TEST(test_a_deferred_receive_of_a_stream),
        PAIR_TEST(test_a_stream_without_memory_for_a_copy_ends_the_endpoint),
        PAIR_TEST(
            test_a_worker_goes_while_a_cancelled_receive_of_a_stream_goes_on),
    };

    fill_pattern(bytes, LONG, 1);
    return UNIT_RUN(tests);
}
