/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* What cancelling a message with UCX's tags leaves behind: the buffer is
 * written over in the moment in which it is the caller's again. Each test is a
 * sweep: it cancels after no turn of the two workers, after one, two, three,
 * five, ..., until there is nothing left to cancel. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "ops/tag.h"

enum {
    MIB    = 1024 * 1024,
    SHORT  = 100,
    POISON = 0xee
};

static const size_t sizes[] = {8, 256, 3000, 30000, 200000, 2 * MIB};

/* The turns before a cancel: 0, 1, 2, 3, 5, ... */
typedef struct sweep {
    unsigned turns, next;
    unsigned num_cancelled;
    bool     is_over;
} sweep;

#define SWEEP(s)                              \
    for (sweep s = {.next = 1}; !(s).is_over; \
         (s).next += (s).turns, (s).turns = (s).next - (s).turns)

static void
tag_send(op *o, umx_ep *ep, uint64_t tag, const void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    o->status = umx_tag_send(ep, tag, &buffer, &params, &o->req);
}

static void
tag_send_sync(op *o, umx_ep *ep, uint64_t tag, const void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    o->status = umx_tag_send_sync(ep, tag, &buffer, &params, &o->req);
}

static void
tag_recv(op *o, pair *p, uint64_t tag, uint64_t mask, void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    o->status = umx_tag_recv(p->server_worker, NULL, tag, mask, &buffer,
                             &params, &o->req, &o->info);
}

static void
take_turns(pair *p, unsigned turns)
{
    for (unsigned i = 0; i < turns; i++) {
        (void)umx_worker_poll((i % 2 != 0) ? p->server_worker :
                                             p->client_worker);
    }
}

/* Cancel `o`, which may be done, and write over its buffer. */
static void
cancel_and_poison(sweep *s, op *o, void *data, size_t len)
{
    if (op_is_done(o)) {
        s->is_over = true;
    } else {
        assert_int_equal(umx_request_cancel(o->req), UMX_OK);
        s->num_cancelled++;
        memset(data, POISON, len);
    }
}

static void
check_poison(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)data[i] != POISON) {
            fail_msg("byte %zu of %zu was written", i, len);
        }
    }
}

/* Receive a message of `len` bytes with the tag 1, made by `seed`. */
static void
check_next(pair *p, char *in, size_t len, unsigned seed)
{
    op o;

    memset(in, 0, len);
    tag_recv(&o, p, 1, UINT64_MAX, in, len);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(o.info.length, len);
    assert_int_equal(o.info.tag, 1);
    check_pattern(in, len, seed);
}

typedef struct memories {
    char *out, *in, *next, *last;
} memories;

static memories
make_memories(size_t len)
{
    memories m = {malloc(len), malloc(len), malloc(len), malloc(len)};

    assert_non_null(m.out);
    assert_non_null(m.in);
    assert_non_null(m.next);
    assert_non_null(m.last);
    return m;
}

static void
free_memories(memories *m)
{
    free(m->out);
    free(m->in);
    free(m->next);
    free(m->last);
}

/* ---- sends ---------------------------------------------------------------
 */

typedef void (*send_fn)(op *, umx_ep *, uint64_t, const void *, size_t);

static unsigned
sweep_send(pair *p, send_fn send, size_t len, bool is_expected)
{
    memories m = make_memories(len);
    unsigned n = 0;

    SWEEP(s)
    {
        op send_op, recv_op;

        fill_pattern(m.out, len, s.turns);
        memset(m.in, 0, len);
        if (is_expected) {
            tag_recv(&recv_op, p, 1, UINT64_MAX, m.in, len);
        }
        send(&send_op, p->client, 1, m.out, len);
        take_turns(p, s.turns);
        s.is_over = s.turns > 5 && !is_expected; /* it goes no further */
        cancel_and_poison(&s, &send_op, m.out, len);
        if (!is_expected) {
            tag_recv(&recv_op, p, 1, UINT64_MAX, m.in, len);
        }
        assert_int_equal(op_wait(p, &recv_op), UMX_OK);
        check_pattern(m.in, len, s.turns);
        (void)op_wait(p, &send_op);
        n = s.num_cancelled;
    }
    free_memories(&m);
    return n;
}

static void
test_a_cancelled_send_is_received_as_it_was(void **state)
{
    pair    *p     = *state;
    unsigned count = 0;

    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (int is_expected = 0; is_expected < 2; is_expected++) {
            count += sweep_send(p, tag_send, sizes[i], is_expected);
            count += sweep_send(p, tag_send_sync, sizes[i], is_expected);
        }
    }
    assert_true(count > 20);
}

static void
test_a_send_that_waits_for_the_connection_is_not_sent(void **state)
{
    pair *p = *state;
    char  out[SHORT], in[SHORT];
    op    first, second;

    pair_listen(p);
    pair_connect(p, 0);
    fill_pattern(out, SHORT, 1);
    tag_send(&first, p->client, 1, out, SHORT);
    assert_int_equal(umx_request_cancel(first.req), UMX_OK);
    fill_pattern(out, SHORT, 2);
    tag_send(&second, p->client, 1, out, SHORT);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &second), UMX_OK);
    check_next(p, in, SHORT, 2);
}

/* ---- receives ------------------------------------------------------------
 */

/* `m->next` has got a message: the first one; or the second, if UCX had given
 * it that before. Receive the other. */
static void
check_both(pair *p, memories *m, size_t got, size_t len, unsigned seed)
{
    if (got == len) {
        check_pattern(m->next, len, seed);
        check_next(p, m->last, SHORT, seed + 1);
    } else {
        check_pattern(m->next, SHORT, seed + 1);
        check_next(p, m->last, len, seed);
    }
}

/* `is_posted`: the next receive is there before the first one is cancelled. */
static unsigned
sweep_recv(pair *p, size_t len, uint64_t mask, bool is_posted)
{
    memories m = make_memories(len);
    char     other[SHORT];
    unsigned n = 0;

    SWEEP(s)
    {
        op sends[2], recv, next;

        fill_pattern(m.out, len, s.turns);
        fill_pattern(other, SHORT, s.turns + 1);
        tag_recv(&recv, p, 1, mask, m.in, len);
        if (is_posted) {
            tag_recv(&next, p, 1, UINT64_MAX, m.next, len);
        }
        tag_send(&sends[0], p->client, 1, m.out, len);
        tag_send(&sends[1], p->client, 1, other, SHORT);
        take_turns(p, s.turns);
        cancel_and_poison(&s, &recv, m.in, len);
        if (s.is_over) {
            assert_int_equal(recv.status, UMX_OK);
            check_pattern(m.in, len, s.turns);
            if (!is_posted) {
                check_next(p, m.last, SHORT, s.turns + 1);
            }
        } else {
            if (!is_posted) {
                tag_recv(&next, p, 1, UINT64_MAX, m.next, len);
            }
            assert_int_equal(op_wait(p, &next), UMX_OK);
            check_both(p, &m, next.info.length, len, s.turns);
            check_poison(m.in, len);
            assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
        }
        (void)op_wait(p, &sends[0]);
        (void)op_wait(p, &sends[1]);
        if (s.is_over && is_posted) {
            assert_int_equal(op_wait(p, &next), UMX_OK);
            assert_int_equal(next.info.length, SHORT);
        }
        n = s.num_cancelled;
    }
    free_memories(&m);
    return n;
}

static void
test_the_next_receive_gets_the_message_whole(void **state)
{
    pair    *p     = *state;
    unsigned count = 0;

    pair_open(p);
    for (size_t i = 2; i < sizeof(sizes) / sizeof(*sizes); i++) {
        count += sweep_recv(p, sizes[i], UINT64_MAX, false);
        count += sweep_recv(p, sizes[i], UINT64_MAX, true);
        count += sweep_recv(p, sizes[i], 0, false);
        count += sweep_recv(p, sizes[i], 0, true);
    }
    assert_true(count > 20);
}

/* UCX has completed the receive, nobody has been told. */
static void
test_a_receive_that_is_complete_gives_its_message_back(void **state)
{
    pair *p = *state;

    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t   len = sizes[i];
        memories m   = make_memories(len);
        op       send, recv;

        fill_pattern(m.out, len, 4);
        tag_recv(&recv, p, 1, UINT64_MAX, m.in, len);
        tag_send(&send, p->client, 1, m.out, len);
        while (recv.req->status == UMX_INPROGRESS) {
            ucp_worker_progress(p->server_worker->ucp);
            (void)umx_worker_poll(p->client_worker);
        }
        assert_int_equal(umx_request_cancel(recv.req), UMX_OK);
        memset(m.in, POISON, len);
        check_next(p, m.next, len, 4);
        check_poison(m.in, len);
        assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
        assert_int_equal(op_wait(p, &send), UMX_OK);
        free_memories(&m);
    }
}

/* UCX has completed the cancelled receive in a call that tells nobody, as
 * before something is sent: its message is no longer UCX's, and not given back
 * yet. */
static void
test_a_message_that_has_landed_is_not_overtaken(void **state)
{
    pair    *p = *state;
    memories m = make_memories(8 * MIB);
    char     other[SHORT];
    op       sends[2], recv;

    pair_open(p);
    fill_pattern(m.out, 8 * MIB, 5);
    fill_pattern(other, SHORT, 6);
    tag_recv(&recv, p, 1, UINT64_MAX, m.in, 8 * MIB);
    tag_send(&sends[0], p->client, 1, m.out, 8 * MIB);
    tag_send(&sends[1], p->client, 1, other, SHORT);
    PAIR_UNTIL(p, recv.req->moved != 0);
    assert_int_equal(umx_request_cancel(recv.req), UMX_OK);
    while (umi_list_is_empty(&p->server_worker->done)) {
        (void)umi_worker_progress(p->server_worker);
        (void)umx_worker_poll(p->client_worker);
    }
    check_next(p, m.next, 8 * MIB, 5);
    check_next(p, m.last, SHORT, 6);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    (void)op_wait(p, &sends[0]);
    (void)op_wait(p, &sends[1]);
    free_memories(&m);
}

/* ---- messages that were probed -------------------------------------------
 */

static void
take(pair *p, umx_tag_message **message_p)
{
    umx_op_params params = {0};
    umx_request  *req;
    umx_status    status = UMX_ERR_NO_MESSAGE;
    umx_recv_info info;

    PAIR_UNTIL(p,
               umx_tag_probe(p->server_worker, 1, UINT64_MAX, &info) == UMX_OK);
    status = umx_tag_recv_message(p->server_worker, 1, UINT64_MAX, &params,
                                  &req, message_p);
    assert_int_equal(status, UMX_OK);
}

static void
sweep_taken(pair *p, size_t len)
{
    memories m = make_memories(len);

    SWEEP(s)
    {
        op               send, recv;
        umx_op_params    params = op_params(&recv);
        umx_buffer       buffer = umx_host_buffer(m.in, len);
        umx_tag_message *message;

        fill_pattern(m.out, len, s.turns);
        tag_send(&send, p->client, 1, m.out, len);
        take(p, &message);
        recv.status = umx_tag_message_recv(&message, &buffer, &params,
                                           &recv.req);
        take_turns(p, s.turns);
        cancel_and_poison(&s, &recv, m.in, len);
        if (s.is_over) {
            check_pattern(m.in, len, s.turns);
        } else {
            check_next(p, m.next, len, s.turns);
            check_poison(m.in, len);
            assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
        }
        (void)op_wait(p, &send);
    }
    free_memories(&m);
}

static void
test_a_taken_message_is_given_back_whole(void **state)
{
    pair *p = *state;

    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        sweep_taken(p, sizes[i]);
    }
}

/* A probe does not see the message behind the one that lands. */
static void
test_a_probe_waits_for_what_lands(void **state)
{
    pair         *p = *state;
    memories      m = make_memories(8 * MIB);
    op            sends[2], recv;
    umx_recv_info info;

    pair_open(p);
    fill_pattern(m.out, 8 * MIB, 3);
    fill_pattern(m.last, SHORT, 5);
    tag_recv(&recv, p, 1, UINT64_MAX, m.in, 8 * MIB);
    tag_send(&sends[0], p->client, 1, m.out, 8 * MIB);
    tag_send(&sends[1], p->client, 1, m.last, SHORT);
    PAIR_UNTIL(p, recv.req->moved != 0);
    assert_int_equal(umx_request_cancel(recv.req), UMX_OK);
    memset(m.in, POISON, 8 * MIB);
    assert_int_equal(umx_tag_probe(p->server_worker, 1, UINT64_MAX, &info),
                     UMX_ERR_NO_MESSAGE);
    PAIR_UNTIL(p,
               umx_tag_probe(p->server_worker, 1, UINT64_MAX, &info) == UMX_OK);
    assert_int_equal(info.length, 8 * MIB);
    check_next(p, m.next, 8 * MIB, 3);
    check_poison(m.in, 8 * MIB);
    check_next(p, m.next, SHORT, 5);
    free_memories(&m);
}

/* ---- limits and ends -----------------------------------------------------
 */

static void
test_a_copy_beyond_the_limit_is_deferred(void **state)
{
    pair    *p = *state;
    memories m = make_memories(8 * MIB);
    op       send, recv;

    p->config.cancel_bytes = MIB;
    pair_open(p);
    fill_pattern(m.out, 8 * MIB, 3);
    tag_recv(&recv, p, 1, UINT64_MAX, m.in, 8 * MIB);
    tag_send(&send, p->client, 1, m.out, 8 * MIB);
    PAIR_UNTIL(p, recv.req->moved != 0);
    assert_int_equal(umx_request_cancel(send.req), UMX_INPROGRESS);
    assert_int_equal(umx_request_cancel(recv.req), UMX_INPROGRESS);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    memset(m.in, POISON, 8 * MIB);
    assert_int_equal(op_wait(p, &send), UMX_OK);
    check_next(p, m.next, 8 * MIB, 3);
    free_memories(&m);
}

static void
test_who_cannot_wait_gets_a_copy_all_the_same(void **state)
{
    pair    *p = *state;
    memories m = make_memories(8 * MIB);
    op       send, recv;

    p->config.cancel_bytes = MIB;
    pair_open(p);
    fill_pattern(m.out, 8 * MIB, 3);
    tag_recv(&recv, p, 1, UINT64_MAX, m.in, 8 * MIB);
    tag_send(&send, p->client, 1, m.out, 8 * MIB);
    PAIR_UNTIL(p, recv.req->moved != 0);
    assert_int_equal(umx_request_cancel(send.req), UMX_INPROGRESS);
    assert_int_equal(umx_request_abandon(send.req), UMX_OK);
    assert_int_equal(umx_request_abandon(recv.req), UMX_OK);
    memset(m.in, POISON, 8 * MIB);
    memset(m.out, POISON, 8 * MIB);
    check_next(p, m.next, 8 * MIB, 3);
    check_poison(m.in, 8 * MIB);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &send), UMX_ERR_CANCELED);
    assert_int_equal(p->client_worker->copied_bytes, 0);
    assert_int_equal(p->server_worker->copied_bytes, 0);
    free_memories(&m);
}

/* Start a message, and cancel both ends of it in the middle. */
static void
cancel_halfway(pair *p, memories *m, op *send, op *recv)
{
    tag_recv(recv, p, 1, UINT64_MAX, m->in, 8 * MIB);
    tag_send(send, p->client, 1, m->out, 8 * MIB);
    PAIR_UNTIL(p, recv->req->moved != 0);
    assert_int_equal(umx_request_cancel(recv->req), UMX_OK);
    assert_int_equal(umx_request_cancel(send->req), UMX_OK);
    free_memories(m);
}

/* Destroy the server's worker. */
static void
replace_server(pair *p)
{
    umx_ep_destroy(p->server);
    p->server = NULL;
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    umx_worker_destroy(p->server_worker);
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
}

static void
test_what_goes_on_alone_ends_with_its_worker(void **state)
{
    pair    *p = *state;
    memories m = make_memories(8 * MIB);
    op       send, recv;

    pair_open(p);
    cancel_halfway(p, &m, &send, &recv);
    replace_server(p);
    assert_int_equal(recv.status, UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &send), UMX_ERR_CANCELED);
}

static void
test_receives_wait_for_nothing_behind_an_abort(void **state)
{
    pair    *p = *state;
    memories m = make_memories(8 * MIB), n = make_memories(SHORT);
    op       send, recv, next;

    pair_open(p);
    tag_recv(&next, p, 2, UINT64_MAX, n.in, SHORT);
    cancel_halfway(p, &m, &send, &recv);
    op_cancel(next.req);
    assert_int_equal(op_wait(p, &next), UMX_ERR_CANCELED);
    tag_recv(&next, p, 1, UINT64_MAX, n.in, SHORT);
    umx_ep_abort(p->client);
    umx_ep_abort(p->server);
    PAIR_UNTIL(p, p->server_worker->tags->num_behind == 0);
    if (!op_is_done(&next)) { /* else all had come before */
        op_cancel(next.req);
        (void)op_wait(p, &next);
    }
    assert_int_equal(op_wait(p, &send), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    replace_server(p); /* UCX may never be done with what landed */
    free_memories(&n);
}

/* What was left behind by a cancelled receive of an endpoint goes on when that
 * ends. */
static void
test_a_receive_that_is_cancelled_ends_once(void **state)
{
    pair         *p = *state;
    memories      m = make_memories(8 * MIB);
    op            send, recv;
    umx_op_params params = op_params(&recv);
    umx_buffer    buffer = umx_host_buffer(m.in, 8 * MIB);

    pair_open(p);
    recv.status = umx_tag_recv(p->server_worker, p->server, 1, UINT64_MAX,
                               &buffer, &params, &recv.req, &recv.info);
    tag_send(&send, p->client, 1, m.out, 8 * MIB);
    PAIR_UNTIL(p, recv.req->moved != 0);
    assert_int_equal(umx_request_cancel(recv.req), UMX_OK);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    umx_ep_abort(p->client);
    umx_ep_abort(p->server);
    replace_server(p);
    assert_int_equal(recv.calls, 1);
    (void)op_wait(p, &send); /* it may have gone before it was cancelled */
    free_memories(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_cancelled_send_is_received_as_it_was),
        PAIR_TEST(test_a_send_that_waits_for_the_connection_is_not_sent),
        PAIR_TEST(test_the_next_receive_gets_the_message_whole),
        PAIR_TEST(test_a_receive_that_is_complete_gives_its_message_back),
        PAIR_TEST(test_a_message_that_has_landed_is_not_overtaken),
        PAIR_TEST(test_a_taken_message_is_given_back_whole),
        PAIR_TEST(test_a_probe_waits_for_what_lands),
        PAIR_TEST(test_a_copy_beyond_the_limit_is_deferred),
        PAIR_TEST(test_who_cannot_wait_gets_a_copy_all_the_same),
        PAIR_TEST(test_what_goes_on_alone_ends_with_its_worker),
        PAIR_TEST(test_receives_wait_for_nothing_behind_an_abort),
        PAIR_TEST(test_a_receive_that_is_cancelled_ends_once),
    };

    return UNIT_RUN(tests);
}
