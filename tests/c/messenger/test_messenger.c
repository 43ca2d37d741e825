/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: messenger/batch messenger/pack_entry messenger/receiver */
/* tests: messenger/send_op messenger/sender */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "messenger/sender.h"

enum {
    KIB        = 1024,
    MAX_OUT    = 4096,
    MAX_BUFFER = 8
};

/* ---- the receiving side --------------------------------------------------
 */

/* Messages handed out by a listener, and how the listener behaves. */
typedef struct sink {
    umx_message_listener *listener;
    int64_t               numbers[MAX_OUT]; /* in the order of the end */
    size_t                count;
    size_t                num_routed;
    size_t                num_failed;
    umx_status            failure;
    umx_status            end;
    unsigned              ends;
    unsigned              readies;
    /* the message that is being received */
    int64_t    number;
    umx_buffer buffers[MAX_BUFFER];
    /* how the listener behaves */
    int64_t unwanted; /* number that nobody wants */
    int64_t refused;  /* number there is no memory for */
    int64_t cramped;  /* number with too little of it */
    int64_t last;     /* stop at this number */
    bool    destroys; /* destroy at `last` instead of stopping */
} sink;

static int64_t
number_of(const umx_metadata *metadata)
{
    umx_metadata_item item;

    assert_true(umx_metadata_find(metadata, "n", 1, &item));
    assert_int_equal(item.type, UMX_METADATA_INT);
    return item.number;
}

static umx_status
sink_alloc(const umx_frames_info *info, umx_buffer *buffers, void *arg)
{
    sink        *s        = arg;
    umx_metadata metadata = {info->header, info->header_len};
    size_t       short_by = (s->number == s->cramped);

    assert_true(number_of(&metadata) == s->number);
    if (s->number == s->refused) {
        return UMX_ERR_NO_RESOURCE;
    }
    assert_true(info->count <= MAX_BUFFER);
    for (size_t i = 0; i < info->count; i++) {
        size_t len    = info->frames[i].len;
        buffers[i]    = umx_host_buffer(malloc(len + 1), len - short_by);
        s->buffers[i] = buffers[i];
    }
    return UMX_OK;
}

static void
sink_finish(const umx_buffer *buffers, size_t count, umx_status status,
            void *arg)
{
    sink *s = arg;

    for (size_t i = 0; i < count; i++) {
        if (status == UMX_OK) {
            check_pattern(buffers[i].data, buffers[i].len,
                          (unsigned)(s->number * 10) + (unsigned)i);
        }
        free(buffers[i].data);
    }
    if (status != UMX_OK) {
        s->num_failed++;
        s->failure = status;
        return;
    }
    assert_true(s->count < MAX_OUT);
    s->numbers[s->count++] = s->number;
    if (s->number == s->last && s->destroys) {
        umx_message_listener_destroy(s->listener);
        s->listener = NULL;
    } else if (s->number == s->last) {
        umx_message_listener_stop(s->listener);
    }
}

static bool
sink_route(const umx_metadata *metadata, umx_message_receiver *receiver,
           void *arg)
{
    sink *s = arg;

    s->num_routed++;
    s->number = number_of(metadata);
    *receiver = (umx_message_receiver){sink_alloc, sink_finish, s};
    return s->number != s->unwanted;
}

static void
sink_on_end(umx_message_listener *listener, umx_status status, void *arg)
{
    sink *s = arg;

    (void)listener;
    s->ends++;
    s->end = status;
}

static void
sink_on_ready(umx_message_listener *listener, void *arg)
{
    sink *s = arg;

    (void)listener;
    s->readies++;
}

static void
sink_init(sink *s)
{
    memset(s, 0, sizeof(*s));
    s->unwanted = s->refused = s->cramped = s->last = -1;
}

static void
sink_open_as(sink *s, umx_ep *ep, bool is_pulled)
{
    umx_message_listener_params params = {
        .field_mask = UMX_MESSAGE_LISTENER_FIELD_ON_END,
        .route      = sink_route,
        .arg        = s,
        .on_end     = sink_on_end,
        .on_ready   = sink_on_ready};

    if (is_pulled) {
        params.field_mask |= UMX_MESSAGE_LISTENER_FIELD_ON_READY;
    }
    assert_int_equal(umx_message_listener_create(ep, &params, &s->listener),
                     UMX_OK);
}

static void
sink_open(sink *s, umx_ep *ep)
{
    sink_init(s);
    sink_open_as(s, ep, false);
}

static void
sink_close(sink *s)
{
    if (s->listener != NULL) {
        umx_message_listener_destroy(s->listener);
        s->listener = NULL;
    }
}

static void
sink_expect(pair *p, sink *s, int64_t first, size_t count)
{
    PAIR_UNTIL(p, s->count + s->num_failed >= count);
    assert_int_equal(s->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(s->numbers[i], first + (int64_t)i);
    }
}

/* ---- the send_op side ----------------------------------------------------
 */

/* A message of our own. */
typedef struct out {
    op         o;
    umx_buffer buffers[MAX_BUFFER];
    size_t     count;
    umx_status statuses[3];
} out;

static umx_message_sender *
open_sender(pair *p, uint64_t max_bytes)
{
    umx_message_sender_params params = {
        .field_mask = UMX_MESSAGE_SENDER_FIELD_MAX_BYTES,
        .max_bytes  = max_bytes};
    umx_message_sender *sender;

    assert_int_equal(umx_message_sender_create(
                         p->client_worker, max_bytes ? &params : NULL, &sender),
                     UMX_OK);
    return sender;
}

static void
out_make(out *m, int64_t number, const size_t *lens, size_t count)
{
    memset(m, 0, sizeof(*m));
    m->count = count;
    for (size_t i = 0; i < count; i++) {
        m->buffers[i] = umx_host_buffer(malloc(lens[i] + 1), lens[i]);
        fill_pattern(m->buffers[i].data, lens[i],
                     (unsigned)(number * 10) + (unsigned)i);
    }
}

static umx_status
out_post(out *m, umx_message_sender *sender, int64_t number, umx_ep *const *eps,
         size_t num_eps)
{
    umx_metadata_builder b;
    umx_op_params        params = op_params(&m->o);
    umx_message_out      what   = {.endpoints     = eps,
                                   .num_endpoints = num_eps,
                                   .buffers       = m->buffers,
                                   .num_buffers   = m->count,
                                   .statuses      = m->statuses};

    umx_metadata_init(&b);
    assert_int_equal(umx_metadata_add_int(&b, "n", number), UMX_OK);
    what.metadata = b.metadata;
    m->o.status   = umx_message_send(sender, &what, &params, &m->o.req);
    umx_metadata_fini(&b);
    return m->o.status;
}

static umx_status
out_send(out *m, umx_message_sender *sender, int64_t number, umx_ep *ep,
         size_t len)
{
    out_make(m, number, &len, 1);
    return out_post(m, sender, number, &ep, 1);
}

static void
out_free(out *m)
{
    for (size_t i = 0; i < m->count; i++) {
        free(m->buffers[i].data);
    }
    m->count = 0;
}

static void
out_end(pair *p, out *m, umx_status status)
{
    assert_int_equal(op_wait(p, &m->o), status);
    out_free(m);
}

/* A small message that needs no memory after the call. */
static void
send_small(umx_message_sender *sender, int64_t number, umx_ep *ep, size_t len)
{
    out m;

    assert_int_equal(out_send(&m, sender, number, ep, len), UMX_OK);
    out_free(&m);
}

static umx_message_sender_stats
stats_of(const umx_message_sender *sender)
{
    umx_message_sender_stats stats;

    umx_message_sender_query(sender, &stats);
    return stats;
}

/* ---- arriving ------------------------------------------------------------
 */

static void
test_sizes_and_counts_arrive_in_order(void **state)
{
    static const size_t lens[] = {0,        1, 4000,       4096,    5,
                                  64 * KIB, 7, 1024 * KIB, 60 * KIB};
    pair               *p      = *state;
    umx_message_sender *sender;
    out                 outs[40];
    sink                s;

    pair_open(p);
    sender = open_sender(p, 0);
    sink_open(&s, p->server);
    for (int i = 0; i < 40; i++) {
        out_make(&outs[i], i, lens + i % 6, (size_t)i % 4);
        assert_true(out_post(&outs[i], sender, i, &p->client, 1) >= 0);
    }
    sink_expect(p, &s, 0, 40);
    for (int i = 0; i < 40; i++) {
        out_end(p, &outs[i], UMX_OK);
    }
    assert_int_equal(stats_of(sender).bytes_pending, 0);
    umx_message_sender_destroy(sender);
    sink_close(&s);
}

static void
test_small_messages_travel_together(void **state)
{
    pair               *p = *state;
    umx_message_sender *sender;
    sink                s;

    pair_open(p);
    sender = open_sender(p, 0);
    sink_open(&s, p->server);
    for (int i = 0; i < 1000; i++) {
        send_small(sender, i, p->client, 64);
    }
    sink_expect(p, &s, 0, 1000);
    assert_int_equal(stats_of(sender).num_packed, 1000);
    assert_true(stats_of(sender).num_packs <= 1000 * 90 / UMI_PACK_MAX + 1);
    umx_message_sender_destroy(sender);
    sink_close(&s);
}

/* Nothing but what is tested may hand the pack over. */
static void
check_is_handed_over(pair *p, void (*hand_over)(pair *, umx_message_sender *))
{
    umx_message_sender *sender = open_sender(p, 0);

    send_small(sender, 0, p->client, 8);
    assert_int_equal(stats_of(sender).num_packs, 0);
    hand_over(p, sender);
    assert_int_equal(stats_of(sender).num_packs, 1);
    umx_message_sender_destroy(sender);
}

static void
by_flush(pair *p, umx_message_sender *sender)
{
    (void)p;
    umx_message_sender_flush(sender);
}

static void
by_progress(pair *p, umx_message_sender *sender)
{
    (void)sender;
    (void)umx_worker_poll(p->client_worker);
}

/* Check that the message has gone in one pack, with the operation `o`. */
static void
check_has_gone(pair *p, umx_message_sender *sender, op *o)
{
    assert_int_equal(stats_of(sender).num_packs, 1);
    assert_int_equal(op_wait(p, o), UMX_OK);
}

static void
by_drain(pair *p, umx_message_sender *sender)
{
    op            o;
    umx_op_params params = op_params(&o);

    o.status = umx_ep_drain(p->client, 0, &params, &o.req);
    check_has_gone(p, sender, &o);
}

static void
by_ep_flush(pair *p, umx_message_sender *sender)
{
    op            o;
    umx_op_params params = op_params(&o);

    o.status = umx_ep_flush(p->client, &params, &o.req);
    check_has_gone(p, sender, &o);
}

static void
by_worker_flush(pair *p, umx_message_sender *sender)
{
    op            o;
    umx_op_params params = op_params(&o);

    o.status = umx_worker_flush(p->client_worker, &params, &o.req);
    check_has_gone(p, sender, &o);
}

static void
by_close(pair *p, umx_message_sender *sender)
{
    (void)sender;
    umx_ep_destroy(p->client);
    p->client = NULL;
}

static void
test_small_messages_are_handed_over(void **state)
{
    static void (*const ways[])(pair *, umx_message_sender *) = {
        by_flush,    by_progress,     by_drain,
        by_ep_flush, by_worker_flush, by_close};
    pair *p = *state;
    sink  s;

    pair_open(p);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        sink_open(&s, p->server);
        check_is_handed_over(p, ways[i]);
        sink_expect(p, &s, 0, 1);
        sink_close(&s);
    }
}

/* ---- several endpoints ---------------------------------------------------
 */

typedef struct trio {
    umx_ep *clients[3];
    umx_ep *servers[3];
    sink    sinks[3];
} trio;

static void
trio_open(pair *p, trio *t)
{
    pair_open(p);
    for (int i = 0; i < 3; i++) {
        if (i != 0) {
            p->server = NULL;
            pair_connect(p, 0);
            PAIR_UNTIL(p, p->server != NULL &&
                              umx_ep_get_state(p->client) == UMX_EP_OPEN);
        }
        t->clients[i] = p->client;
        t->servers[i] = p->server;
        sink_open(&t->sinks[i], p->server);
    }
}

static void
trio_close(trio *t)
{
    for (int i = 0; i < 3; i++) {
        sink_close(&t->sinks[i]);
        if (i != 2) { /* the last is the pair's */
            umx_ep_destroy(t->clients[i]);
            umx_ep_destroy(t->servers[i]);
        }
    }
}

static void
test_one_buffer_goes_to_three_endpoints(void **state)
{
    pair               *p      = *state;
    trio               *t      = calloc(1, sizeof(*t));
    const size_t        lens[] = {1024 * KIB, 3}, small[] = {10};
    out                 big, little, again;
    umx_message_sender *sender;

    trio_open(p, t);
    sender = open_sender(p, 0);
    out_make(&little, 0, small, 1);
    assert_int_equal(out_post(&little, sender, 0, t->clients, 3), UMX_OK);
    out_make(&big, 1, lens, 2);
    assert_int_equal(out_post(&big, sender, 1, t->clients, 3), UMX_INPROGRESS);
    out_make(&again, 2, small, 1);
    assert_int_equal(out_post(&again, sender, 2, t->clients, 3), UMX_OK);
    for (int i = 0; i < 3; i++) {
        sink_expect(p, &t->sinks[i], 0, 3);
        assert_int_equal(little.statuses[i], UMX_OK);
    }
    out_end(p, &little, UMX_OK);
    out_end(p, &big, UMX_OK);
    out_end(p, &again, UMX_OK);
    umx_message_sender_destroy(sender);
    trio_close(t);
    free(t);
}

/* The second endpoint fails, the others do not care. */
static void
check_one_of_three_fails(pair *p, size_t len)
{
    trio               *t = calloc(1, sizeof(*t));
    out                 m;
    umx_message_sender *sender;

    trio_open(p, t);
    sender = open_sender(p, 0);
    umx_ep_abort(t->servers[1]);
    PAIR_UNTIL(p, umx_ep_get_state(t->clients[1]) == UMX_EP_FAILED);
    out_make(&m, 0, &len, 1);
    (void)out_post(&m, sender, 0, t->clients, 3);
    sink_expect(p, &t->sinks[0], 0, 1);
    sink_expect(p, &t->sinks[2], 0, 1);
    out_end(p, &m, UMX_ERR_CONNECTION_RESET);
    assert_int_equal(m.statuses[0], UMX_OK);
    assert_int_equal(m.statuses[1], UMX_ERR_CONNECTION_RESET);
    assert_int_equal(m.statuses[2], UMX_OK);
    assert_int_equal(stats_of(sender).bytes_pending, 0);
    umx_message_sender_destroy(sender);
    trio_close(t);
    free(t);
}

static void
test_small_message_to_a_failed_endpoint(void **state)
{
    check_one_of_three_fails(*state, 10);
}

static void
test_long_message_to_a_failed_endpoint(void **state)
{
    check_one_of_three_fails(*state, 1024 * KIB);
}

static void
test_endpoint_dies_under_a_message(void **state)
{
    pair               *p   = *state;
    trio               *t   = calloc(1, sizeof(*t));
    const size_t        len = 1024 * KIB;
    out                 m;
    umx_message_sender *sender;

    trio_open(p, t);
    sender = open_sender(p, 0);
    sink_close(&t->sinks[1]); /* sink 1 does not read */
    pair_settle(p);
    out_make(&m, 0, &len, 1);
    assert_int_equal(out_post(&m, sender, 0, t->clients, 3), UMX_INPROGRESS);
    sink_expect(p, &t->sinks[0], 0, 1);
    sink_expect(p, &t->sinks[2], 0, 1);
    assert_int_equal(m.o.calls, 0);
    umx_ep_abort(t->servers[1]);
    (void)op_wait(p, &m.o); /* UCX may say that it has been taken */
    assert_int_equal(m.o.status, m.statuses[1]);
    assert_int_equal(m.statuses[0], UMX_OK);
    assert_int_equal(m.statuses[2], UMX_OK);
    out_free(&m);
    umx_message_sender_destroy(sender);
    trio_close(t);
    free(t);
}

/* A message that UCX keeps for good is not waited for once the others are
 * over. */
static void
test_a_lost_message_holds_nothing_up(void **state)
{
    pair               *p      = *state;
    trio               *t      = calloc(1, sizeof(*t));
    const size_t        len    = 1024 * KIB;
    op                  drain  = {.status = UMX_INPROGRESS};
    umx_op_params       params = op_params(&drain);
    out                 m;
    umx_message_sender *sender;
    const umi_send_op  *send_op;

    trio_open(p, t);
    sender = open_sender(p, 0);
    sink_close(&t->sinks[0]);
    sink_close(&t->sinks[1]);
    pair_settle(p);
    out_make(&m, 0, &len, 1);
    assert_int_equal(out_post(&m, sender, 0, t->clients, 3), UMX_INPROGRESS);
    sink_expect(p, &t->sinks[2], 0, 1);
    send_op = umi_message_op_of(m.o.req)->send_op;
    umi_request_lose(send_op->destinations[1].op, UMX_ERR_CONNECTION_RESET);
    assert_false(m.o.req->is_lost);
    assert_int_equal(umx_message_sender_drain(sender, &params, &drain.req),
                     UMX_INPROGRESS);
    sink_open(&t->sinks[0], t->servers[0]);
    sink_expect(p, &t->sinks[0], 0, 1);
    assert_int_equal(op_wait(p, &drain), UMX_OK);
    assert_true(m.o.req->is_lost);
    umx_ep_abort(t->servers[1]);
    (void)op_wait(p, &m.o);
    out_free(&m);
    umx_message_sender_destroy(sender);
    trio_close(t);
    free(t);
}

/* ---- the bound -----------------------------------------------------------
 */

enum {
    NUM_BOUND = 40,
    BOUND     = 500 * KIB
};

/* Of different sizes, so that small ones wait too. */
static size_t
bound_len(int i)
{
    return (i % 4 == 3) ? 100 : 100 * KIB + (size_t)i;
}

/* Little goes out that nobody reads. */
static umx_message_sender *
open_bound(pair *p)
{
    p->config.credit_bytes = 128 * KIB;
    pair_open(p);
    return open_sender(p, BOUND);
}

static void
post_many(out *outs, umx_message_sender *sender, umx_ep *ep)
{
    for (int i = 0; i < NUM_BOUND; i++) {
        assert_true(out_send(&outs[i], sender, i, ep, bound_len(i)) >= 0);
    }
}

static void
test_bound_is_kept_and_nothing_is_lost(void **state)
{
    pair               *p    = *state;
    out                *outs = calloc(NUM_BOUND, sizeof(*outs));
    umx_message_sender *sender;
    sink                s;

    sender = open_bound(p);
    post_many(outs, sender, p->client);
    pair_settle(p);
    assert_true(stats_of(sender).num_waiting > NUM_BOUND / 2);
    assert_int_equal(outs[NUM_BOUND - 1].o.calls, 0);
    sink_open(&s, p->server);
    sink_expect(p, &s, 0, NUM_BOUND);
    for (int i = 0; i < NUM_BOUND; i++) {
        out_end(p, &outs[i], UMX_OK);
    }
    assert_true(stats_of(sender).bytes_peak <= BOUND);
    assert_int_equal(stats_of(sender).bytes_pending, 0);
    assert_int_equal(stats_of(sender).num_waiting, 0);
    umx_message_sender_destroy(sender);
    sink_close(&s);
    free(outs);
}

static void
test_longer_than_the_bound_goes_alone(void **state)
{
    pair               *p = *state;
    out                 m[3];
    umx_message_sender *sender;
    sink                s;

    pair_open(p);
    sender = open_sender(p, 1000);
    send_small(sender, 0, p->client, 100);
    assert_int_equal(out_send(&m[0], sender, 1, p->client, 300 * KIB),
                     UMX_INPROGRESS);
    assert_int_equal(out_send(&m[1], sender, 2, p->client, 300 * KIB),
                     UMX_INPROGRESS);
    assert_int_equal(out_send(&m[2], sender, 3, p->client, 10), UMX_INPROGRESS);
    sink_open(&s, p->server);
    sink_expect(p, &s, 0, 4);
    for (int i = 0; i < 3; i++) {
        out_end(p, &m[i], UMX_OK);
    }
    assert_true(stats_of(sender).bytes_peak < 301 * KIB);
    umx_message_sender_destroy(sender);
    sink_close(&s);
}

static void
count_call(void *arg)
{
    ++*(int *)arg;
}

/* What waits has its registrations, which the program may let go. */
static void
test_registrations_last_until_the_message_is_sent(void **state)
{
    static int calls;

    pair               *p       = *state;
    size_t              lens[2] = {20 * KIB, 30 * KIB};
    umx_memh_params     params  = {.field_mask = UMX_MEMH_FIELD_ON_FREE,
                                   .on_free    = count_call,
                                   .arg        = &calls};
    out                 m[2];
    umx_memh           *memhs[2];
    umx_message_sender *sender;
    sink                s;

    calls = 0;
    pair_open(p);
    sender = open_sender(p, 1000);
    assert_int_equal(out_send(&m[0], sender, 0, p->client, 300 * KIB),
                     UMX_INPROGRESS);
    out_make(&m[1], 1, lens, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            umx_memh_register(umx_worker_get_context(p->client_worker),
                              &m[1].buffers[i], &params, &memhs[i]),
            UMX_OK);
        m[1].buffers[i].memh = memhs[i];
    }
    assert_int_equal(out_post(&m[1], sender, 1, &p->client, 1), UMX_INPROGRESS);
    for (int i = 0; i < 2; i++) {
        umx_memh_release(memhs[i]);
    }
    assert_int_equal(calls, 0);
    sink_open(&s, p->server);
    sink_expect(p, &s, 0, 2);
    for (int i = 0; i < 2; i++) {
        out_end(p, &m[i], UMX_OK);
    }
    pair_settle(p);
    assert_int_equal(calls, 2);
    umx_message_sender_destroy(sender);
    sink_close(&s);
}

static void
test_cancelling_withdraws_what_waits(void **state)
{
    pair               *p    = *state;
    out                *outs = calloc(NUM_BOUND, sizeof(*outs));
    umx_message_sender *sender;
    sink                s;

    sender = open_bound(p);
    post_many(outs, sender, p->client);
    for (int i = NUM_BOUND / 2; i < NUM_BOUND; i++) {
        op_cancel(outs[i].o.req);
    }
    sink_open(&s, p->server);
    sink_expect(p, &s, 0, NUM_BOUND / 2);
    for (int i = 0; i < NUM_BOUND; i++) {
        out_end(p, &outs[i], i < NUM_BOUND / 2 ? UMX_OK : UMX_ERR_CANCELED);
    }
    assert_int_equal(stats_of(sender).num_waiting, 0);
    umx_message_sender_destroy(sender);
    sink_close(&s);
    free(outs);
}

/* While it connects everything posted can be withdrawn still. */
static void
test_cancelling_withdraws_what_is_posted(void **state)
{
    pair               *p = *state;
    out                 m[2];
    umx_message_sender *sender;
    sink                s;

    pair_listen(p);
    pair_connect(p, 0);
    sender = open_sender(p, 300 * KIB);
    assert_int_equal(out_send(&m[0], sender, 7, p->client, 300 * KIB),
                     UMX_INPROGRESS);
    assert_int_equal(out_send(&m[1], sender, 0, p->client, 300 * KIB),
                     UMX_INPROGRESS);
    assert_int_equal(stats_of(sender).num_waiting, 1);
    op_cancel(m[0].o.req);
    PAIR_UNTIL(p, p->server != NULL);
    sink_open(&s, p->server);
    sink_expect(p, &s, 0, 1);
    out_end(p, &m[0], UMX_ERR_CANCELED);
    out_end(p, &m[1], UMX_OK);
    umx_message_sender_destroy(sender);
    sink_close(&s);
}

/* A message to three endpoints is cancelled, and its buffers are used for
 * something else: each of the receivers gets it whole, or never. */
static void
cancel_message_to_all(pair *p, trio *t, unsigned steps)
{
    static const size_t lens[] = {300 * KIB, 20 * KIB, 1024 * KIB};

    umx_message_sender *sender = open_sender(p, 0);
    out                 m, after;

    for (int i = 0; i < 3; i++) {
        sink_init(&t->sinks[i]);
        sink_open_as(&t->sinks[i], t->servers[i], false);
    }
    out_make(&m, 0, lens, 3);
    assert_int_equal(out_post(&m, sender, 0, t->clients, 3), UMX_INPROGRESS);
    for (unsigned i = 0; i < steps; i++) {
        (void)umx_worker_poll(i % 2 ? p->client_worker : p->server_worker);
    }
    if (!op_is_done(&m.o)) {
        assert_int_equal(umx_request_cancel(m.o.req), UMX_OK);
        for (size_t i = 0; i < m.count; i++) {
            memset(m.buffers[i].data, 0xdd, lens[i]);
        }
    }
    out_make(&after, 1, lens, 1);
    assert_int_equal(out_post(&after, sender, 1, t->clients, 3),
                     UMX_INPROGRESS);
    (void)op_wait(p, &m.o);
    out_free(&m);
    out_end(p, &after, UMX_OK);
    for (int i = 0; i < 3; i++) {
        sink *s = &t->sinks[i];

        PAIR_UNTIL(p, s->count != 0 && s->numbers[s->count - 1] == 1);
        sink_close(s);
    }
    assert_int_equal(stats_of(sender).bytes_pending, 0);
    umx_message_sender_destroy(sender);
}

static void
test_cancelled_message_to_several_endpoints(void **state)
{
    pair *p = *state;
    trio *t = calloc(1, sizeof(*t));

    assert_non_null(t);
    trio_open(p, t);
    for (int i = 0; i < 3; i++) {
        sink_close(&t->sinks[i]);
    }
    for (unsigned steps = 0; steps < 100; steps += 1 + steps / 4) {
        cancel_message_to_all(p, t, steps);
    }
    trio_close(t);
    free(t);
}

static void
test_cancelling_tells_the_statuses_in_the_call(void **state)
{
    static const size_t len = 1024 * KIB;

    pair               *p = *state;
    umx_message_sender *sender;
    sink                s;
    out                 m;

    pair_open(p);
    sender = open_sender(p, 0);
    out_make(&m, 0, &len, 1);
    assert_int_equal(out_post(&m, sender, 0, &p->client, 1), UMX_INPROGRESS);
    assert_int_equal(umx_request_cancel(m.o.req), UMX_OK);
    assert_int_equal(m.statuses[0], UMX_ERR_CANCELED);
    m.statuses[0] = UMX_OK; /* it is the program's again */
    memset(m.buffers[0].data, 0xdd, len);
    assert_int_equal(op_wait(p, &m.o), UMX_ERR_CANCELED);
    sink_open(&s, p->server);
    sink_expect(p, &s, 0, 1);
    assert_int_equal(m.statuses[0], UMX_OK);
    out_free(&m);
    umx_message_sender_destroy(sender);
    sink_close(&s);
}

/* ---- ends ----------------------------------------------------------------
 */

static void
test_destroyed_sender_sends_what_it_has(void **state)
{
    pair               *p    = *state;
    out                *outs = calloc(NUM_BOUND, sizeof(*outs));
    umx_message_sender *sender;
    sink                s;

    sender = open_bound(p);
    post_many(outs, sender, p->client);
    umx_message_sender_destroy(sender);
    sink_open(&s, p->server);
    sink_expect(p, &s, 0, NUM_BOUND);
    for (int i = 0; i < NUM_BOUND; i++) {
        out_end(p, &outs[i], UMX_OK);
    }
    sink_close(&s);
    free(outs);
}

/* Closing hands over all messages that wait, whatever the bound. */
static void
test_closing_endpoint_hands_over_what_waits(void **state)
{
    pair               *p    = *state;
    out                *outs = calloc(NUM_BOUND, sizeof(*outs));
    umx_message_sender *sender;
    sink                s;

    sender = open_bound(p);
    post_many(outs, sender, p->client);
    umx_ep_destroy(p->client);
    p->client = NULL;
    assert_int_equal(stats_of(sender).num_waiting, 0);
    sink_open(&s, p->server);
    sink_expect(p, &s, 0, NUM_BOUND);
    for (int i = 0; i < NUM_BOUND; i++) {
        out_end(p, &outs[i], UMX_OK);
    }
    umx_message_sender_destroy(sender);
    PAIR_UNTIL(p, s.ends == 1);
    assert_int_equal(s.end, UMX_ERR_PEER_CLOSED);
    sink_close(&s);
    free(outs);
}

static void
test_failing_endpoint_ends_what_waits(void **state)
{
    pair               *p    = *state;
    out                *outs = calloc(NUM_BOUND, sizeof(*outs));
    umx_message_sender *sender;

    sender = open_bound(p);
    post_many(outs, sender, p->client);
    umx_ep_abort(p->client);
    for (int i = 0; i < NUM_BOUND; i++) {
        (void)op_wait(p, &outs[i].o);
        out_free(&outs[i]);
    }
    assert_true(outs[NUM_BOUND - 1].o.status < 0);
    assert_int_equal(stats_of(sender).bytes_pending, 0);
    umx_message_sender_destroy(sender);
    free(outs);
}

static void
test_worker_ends_all_requests(void **state)
{
    pair               *p    = *state;
    out                *outs = calloc(NUM_BOUND, sizeof(*outs));
    umx_message_sender *sender;
    op                  o;
    umx_op_params       params = op_params(&o);

    sender = open_bound(p);
    post_many(outs, sender, p->client);
    o.status = umx_message_sender_drain(sender, &params, &o.req);
    assert_int_equal(o.status, UMX_INPROGRESS);
    umx_worker_destroy(p->client_worker);
    for (int i = 0; i < NUM_BOUND; i++) {
        assert_true(op_is_done(&outs[i].o));
        out_free(&outs[i]);
    }
    assert_int_equal(outs[NUM_BOUND - 1].o.status, UMX_ERR_CANCELED);
    assert_int_equal(o.status, UMX_ERR_CANCELED);
    assert_int_equal(out_send(&outs[0], sender, 0, p->client, 1),
                     UMX_ERR_CLOSED);
    out_free(&outs[0]);
    assert_int_equal(umx_message_sender_drain(sender, &params, &o.req),
                     UMX_ERR_CLOSED);
    umx_message_sender_flush(sender);
    umx_message_sender_destroy(sender);
    umx_ep_destroy(p->client);
    p->client = NULL;
    assert_int_equal(umx_worker_create(p->context, &p->client_worker), UMX_OK);
    free(outs);
}

static void
test_packs_die_with_the_worker(void **state)
{
    pair               *p = *state;
    umx_message_sender *sender;

    pair_open(p);
    sender = open_sender(p, 0);
    send_small(sender, 0, p->client, 10);
    umx_worker_destroy(p->client_worker);
    assert_int_equal(stats_of(sender).bytes_pending, 0);
    umx_message_sender_destroy(sender);
    umx_ep_destroy(p->client);
    p->client = NULL;
    assert_int_equal(umx_worker_create(p->context, &p->client_worker), UMX_OK);
}

/* ---- draining ------------------------------------------------------------
 */

static void
start_drain(op *o, umx_message_sender *sender)
{
    umx_op_params params = op_params(o);

    o->status = umx_message_sender_drain(sender, &params, &o->req);
}

static void
test_drain_waits_for_what_was_sent_before(void **state)
{
    pair               *p = *state;
    trio               *t = calloc(1, sizeof(*t));
    out                 before, after;
    umx_message_sender *sender;
    op                  o;

    trio_open(p, t);
    sender = open_sender(p, 0);
    start_drain(&o, sender);
    assert_int_equal(o.status, UMX_OK);
    sink_close(&t->sinks[1]); /* sink 1 does not read */
    pair_settle(p);
    (void)out_send(&before, sender, 0, t->clients[0], 1024 * KIB);
    start_drain(&o, sender);
    assert_int_equal(o.status, UMX_INPROGRESS);
    (void)out_send(&after, sender, 0, t->clients[1], 1024 * KIB);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(before.o.status, UMX_OK);
    assert_int_equal(after.o.status, UMX_INPROGRESS);
    start_drain(&o, sender);
    op_cancel(o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    sink_open(&t->sinks[1], t->servers[1]);
    sink_expect(p, &t->sinks[1], 0, 1);
    out_end(p, &before, UMX_OK);
    out_end(p, &after, UMX_OK);
    umx_message_sender_destroy(sender);
    trio_close(t);
    free(t);
}

static void
test_drain_waits_for_what_waits(void **state)
{
    pair               *p    = *state;
    out                *outs = calloc(NUM_BOUND, sizeof(*outs));
    umx_message_sender *sender;
    sink                s;
    op                  o;

    sender = open_bound(p);
    post_many(outs, sender, p->client);
    start_drain(&o, sender);
    sink_open(&s, p->server);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(stats_of(sender).bytes_pending, 0);
    sink_expect(p, &s, 0, NUM_BOUND);
    for (int i = 0; i < NUM_BOUND; i++) {
        out_end(p, &outs[i], UMX_OK);
    }
    umx_message_sender_destroy(sender);
    sink_close(&s);
    free(outs);
}

/* ---- refusals ------------------------------------------------------------
 */

static void
test_what_is_no_message_is_not_sent(void **state)
{
    pair               *p       = *state;
    umx_buffer          bad     = {.data = NULL, .len = 5};
    umx_message_out     message = {.num_endpoints = 1};
    umx_message_sender *sender;
    umx_request        *req;

    pair_open(p);
    sender = open_sender(p, 0);
    assert_int_equal(umx_message_send(sender, &message, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    message.endpoints     = &p->client;
    message.num_endpoints = 0;
    assert_int_equal(umx_message_send(sender, &message, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    message.num_endpoints = 1;
    message.metadata      = (umx_metadata){"\x01", 1};
    assert_int_equal(umx_message_send(sender, &message, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    message.metadata    = (umx_metadata){NULL, 0};
    message.num_buffers = 1;
    assert_int_equal(umx_message_send(sender, &message, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    message.buffers = &bad;
    assert_int_equal(umx_message_send(sender, &message, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    message.num_buffers = 0;
    message.endpoints   = &p->server; /* of another worker */
    assert_int_equal(umx_message_send(sender, &message, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    umx_message_sender_destroy(sender);
}

static void
test_message_that_nobody_wants_is_dropped(void **state)
{
    pair               *p = *state;
    out                 m[6];
    umx_message_sender *sender;
    sink                s;

    pair_open(p);
    sender = open_sender(p, 0);
    sink_open(&s, p->server);
    for (int round = 0; round < 2; round++) {
        size_t len = (round == 0) ? 10 : 1024 * KIB;

        s.unwanted = 0;
        s.refused  = 1;
        s.cramped  = 2;
        s.count = s.num_failed = s.num_routed = 0;
        for (int i = 0; i < 4; i++) {
            (void)out_send(&m[i], sender, i, p->client, len);
        }
        PAIR_UNTIL(p, s.count == 1);
        assert_int_equal(s.num_routed, 4);
        assert_int_equal(s.numbers[0], 3);
        assert_int_equal(s.num_failed, 2);
        assert_int_equal(s.failure, UMX_ERR_BUFFER_TOO_SMALL);
        for (int i = 0; i < 4; i++) {
            out_end(p, &m[i], UMX_OK);
        }
    }
    umx_message_sender_destroy(sender);
    sink_close(&s);
}

/* ---- the listener --------------------------------------------------------
 */

static void
send_raw(pair *p, const void *header, size_t len, size_t num_frames)
{
    umx_buffer buffers[2] = {umx_host_buffer("x", 1), umx_host_buffer("y", 1)};
    op         o;
    umx_op_params params = op_params(&o);

    o.status = umx_frames_send(p->client, UMX_MESSAGE_CHANNEL, header, len,
                               buffers, num_frames, &params, &o.req);
    (void)op_wait(p, &o);
}

#define RAW(text, frames)              \
    {                                  \
        text, sizeof(text) - 1, frames \
    }

static void
test_malformed_message_ends_the_endpoint(void **state)
{
    static const struct {
        const char *header;
        size_t      len;
        size_t      num_frames;
    } bad[] = {
        RAW("", 1),                      /* no kind */
        RAW("\x03", 1),                  /* no such kind */
        RAW("\x01\x01", 1),              /* no metadata */
        RAW("\x02", 0),                  /* nothing in it */
        RAW("\x02\0\0\0\0", 1),          /* frames of a pack */
        RAW("\x02\0", 0),                /* cut */
        RAW("\x02\0\0\x01\0", 0),        /* no length */
        RAW("\x02\0\0\x01\0\x02\0z", 0), /* bytes cut */
        RAW("\x02\x01\0\x05\0\0", 0),    /* no metadata */
    };
    pair *p = *state;
    sink  s;

    pair_open(p);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (i != 0) {
            umx_ep_destroy(p->client);
            umx_ep_destroy(p->server);
            p->server = NULL;
            pair_connect(p, 0);
            PAIR_UNTIL(p, p->server != NULL &&
                              umx_ep_get_state(p->client) == UMX_EP_OPEN);
        }
        sink_open(&s, p->server);
        send_raw(p, bad[i].header, bad[i].len, bad[i].num_frames);
        PAIR_UNTIL(p, s.ends == 1);
        assert_int_equal(s.end, UMX_ERR_PROTOCOL);
        assert_non_null(umx_message_listener_reason(s.listener));
        assert_int_equal(s.num_routed, 0);
        assert_int_equal(umx_ep_get_state(p->server), UMX_EP_CLOSED);
        sink_close(&s);
        PAIR_UNTIL(p, umx_ep_get_state(p->client) != UMX_EP_OPEN);
    }
}

static void
test_listener_ends_when_the_peer_has_closed(void **state)
{
    pair               *p = *state;
    umx_message_sender *sender;
    sink                s;

    pair_open(p);
    sender = open_sender(p, 0);
    for (int i = 0; i < 10; i++) {
        send_small(sender, i, p->client, 100);
    }
    umx_ep_destroy(p->client);
    p->client = NULL;
    sink_open(&s, p->server);
    PAIR_UNTIL(p, s.ends == 1);
    assert_int_equal(s.end, UMX_ERR_PEER_CLOSED);
    sink_expect(p, &s, 0, 10);
    sink_close(&s);
    umx_message_sender_destroy(sender);
}

static void
test_listener_on_a_closed_endpoint_ends(void **state)
{
    pair *p = *state;
    sink  s;

    pair_open(p);
    umx_ep_abort(p->server);
    sink_open(&s, p->server);
    assert_int_equal(s.ends, 0);
    PAIR_UNTIL(p, s.ends == 1);
    assert_true(s.end < 0);
    sink_close(&s);
}

/* The next one goes on behind what was handed out. */
static void
check_stops(pair *p, size_t len, bool destroys)
{
    out                 m[4];
    umx_message_sender *sender;
    sink                s, next;

    pair_open(p);
    sender = open_sender(p, 0);
    sink_open(&s, p->server);
    s.last     = 1;
    s.destroys = destroys;
    for (int i = 0; i < 4; i++) {
        (void)out_send(&m[i], sender, i, p->client, len);
        umx_message_sender_flush(sender);
    }
    sink_expect(p, &s, 0, 2);
    PAIR_UNTIL(p, destroys || s.ends == 1);
    assert_int_equal(s.end, destroys ? UMX_OK : UMX_ERR_CANCELED);
    sink_open(&next, p->server);
    sink_expect(p, &next, 2, 2);
    assert_int_equal(s.count, 2);
    for (int i = 0; i < 4; i++) {
        out_end(p, &m[i], UMX_OK);
    }
    sink_close(&s);
    sink_close(&next);
    umx_message_sender_destroy(sender);
}

static void
test_listener_stops_between_packs(void **state)
{
    check_stops(*state, 10, false);
}

static void
test_listener_stops_between_long_messages(void **state)
{
    check_stops(*state, 1024 * KIB, false);
}

static void
test_listener_is_destroyed_by_its_callback(void **state)
{
    check_stops(*state, 10, true);
}

static void
test_listener_is_destroyed_while_bytes_come(void **state)
{
    pair               *p = *state;
    out                 m;
    umx_message_sender *sender;
    sink                s, next;

    pair_open(p);
    sender = open_sender(p, 0);
    sink_open(&s, p->server);
    (void)out_send(&m, sender, 0, p->client, 64 * 1024 * KIB);
    while (s.num_routed == 0) {
        (void)umx_worker_poll(p->client_worker);
        (void)umx_worker_poll(p->server_worker);
    }
    sink_close(&s);
    sink_open(&next, p->server);
    PAIR_UNTIL(p, s.count + s.num_failed == 1);
    if (s.num_failed != 0) { /* the message returned to the queue */
        assert_int_equal(s.failure, UMX_ERR_CANCELED);
        sink_expect(p, &next, 0, 1);
    }
    assert_int_equal(s.ends, 0);
    out_end(p, &m, UMX_OK);
    sink_close(&next);
    umx_message_sender_destroy(sender);
}

static void
test_listener_ends_with_the_worker(void **state)
{
    pair *p = *state;
    sink  s;

    pair_open(p);
    sink_open(&s, p->server);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    umx_worker_destroy(p->server_worker);
    assert_int_equal(s.ends, 1);
    sink_close(&s);
    umx_ep_destroy(p->server);
    p->server = NULL;
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
}

static void
test_messages_are_pulled_by_the_program(void **state)
{
    pair               *p = *state;
    out                 m;
    umx_message_sender *sender;
    sink                s;

    pair_open(p);
    sender = open_sender(p, 0);
    sink_init(&s);
    sink_open_as(&s, p->server, true);
    for (int i = 0; i < 100; i++) {
        send_small(sender, i, p->client, 10);
    }
    (void)out_send(&m, sender, 100, p->client, 1024 * KIB);
    PAIR_UNTIL(p, s.readies == 1);
    assert_int_equal(s.num_routed, 0);
    assert_int_equal(umx_message_listener_run(s.listener, 30), UMX_INPROGRESS);
    assert_int_equal(s.count, 30);
    assert_int_equal(umx_message_listener_run(s.listener, UINT32_MAX), UMX_OK);
    while (s.count != 101) {
        unsigned readies = s.readies;

        PAIR_UNTIL(p, s.readies != readies);
        assert_int_equal(umx_message_listener_run(s.listener, UINT32_MAX),
                         UMX_OK);
    }
    sink_expect(p, &s, 0, 101);
    out_end(p, &m, UMX_OK);
    umx_message_listener_stop(s.listener);
    while (s.ends == 0) {
        pair_step(p);
        (void)umx_message_listener_run(s.listener, 1);
    }
    assert_int_equal(s.end, UMX_ERR_CANCELED);
    sink_close(&s);
    umx_message_sender_destroy(sender);
}

static void
test_stopping_does_not_hide_a_failure(void **state)
{
    pair *p = *state;
    sink  s;

    pair_open(p);
    sink_init(&s);
    sink_open_as(&s, p->server, true);
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, s.readies != 0);
    umx_message_listener_stop(s.listener);
    assert_int_equal(umx_message_listener_run(s.listener, 1), UMX_OK);
    assert_int_equal(s.ends, 1);
    assert_int_equal(s.end, UMX_ERR_CONNECTION_RESET);
    sink_close(&s);
}

static void
test_listener_without_route_is_refused(void **state)
{
    umx_message_listener_params params = {0};
    umx_message_listener       *listener;
    pair                       *p = *state;

    pair_open(p);
    assert_int_equal(umx_message_listener_create(p->server, &params, &listener),
                     UMX_ERR_INVALID_PARAM);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_sizes_and_counts_arrive_in_order),
        PAIR_TEST(test_small_messages_travel_together),
        PAIR_TEST(test_small_messages_are_handed_over),
        PAIR_TEST(test_one_buffer_goes_to_three_endpoints),
        PAIR_TEST(test_small_message_to_a_failed_endpoint),
        PAIR_TEST(test_long_message_to_a_failed_endpoint),
        PAIR_TEST(test_endpoint_dies_under_a_message),
        PAIR_TEST(test_a_lost_message_holds_nothing_up),
        PAIR_TEST(test_bound_is_kept_and_nothing_is_lost),
        PAIR_TEST(test_longer_than_the_bound_goes_alone),
        PAIR_TEST(test_registrations_last_until_the_message_is_sent),
        PAIR_TEST(test_cancelling_withdraws_what_waits),
        PAIR_TEST(test_cancelling_withdraws_what_is_posted),
        PAIR_TEST(test_cancelled_message_to_several_endpoints),
        PAIR_TEST(test_cancelling_tells_the_statuses_in_the_call),
        PAIR_TEST(test_destroyed_sender_sends_what_it_has),
        PAIR_TEST(test_closing_endpoint_hands_over_what_waits),
        PAIR_TEST(test_failing_endpoint_ends_what_waits),
        PAIR_TEST(test_worker_ends_all_requests),
        PAIR_TEST(test_packs_die_with_the_worker),
        PAIR_TEST(test_drain_waits_for_what_was_sent_before),
        PAIR_TEST(test_drain_waits_for_what_waits),
        PAIR_TEST_ONCE(test_what_is_no_message_is_not_sent),
        PAIR_TEST(test_message_that_nobody_wants_is_dropped),
        PAIR_TEST(test_malformed_message_ends_the_endpoint),
        PAIR_TEST(test_listener_ends_when_the_peer_has_closed),
        PAIR_TEST_ONCE(test_listener_on_a_closed_endpoint_ends),
        PAIR_TEST(test_listener_stops_between_packs),
        PAIR_TEST(test_listener_stops_between_long_messages),
        PAIR_TEST(test_listener_is_destroyed_by_its_callback),
        PAIR_TEST(test_listener_is_destroyed_while_bytes_come),
        PAIR_TEST(test_listener_ends_with_the_worker),
        PAIR_TEST(test_messages_are_pulled_by_the_program),
        PAIR_TEST(test_stopping_does_not_hide_a_failure),
        PAIR_TEST_ONCE(test_listener_without_route_is_refused),
    };

    return UNIT_RUN(tests);
}
