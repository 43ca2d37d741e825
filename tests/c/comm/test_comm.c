/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* tests: comm/bootstrap comm/bootstrap_join comm/bootstrap_root comm/derive */
/* tests: comm/labels */
/* tests: comm/communicator comm/dispatch comm/member comm/message */
/* tests: comm/recv comm/send comm/send_recv library/layer */
#include "world.h"

#include "comm/communicator.h"
#include "comm/member.h"
#include "util/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LARGE = 300000
};

/* ---- messages ------------------------------------------------------------
 */

static void
test_messages_of_every_rank_to_every_rank(void **state)
{
    static const size_t sizes[] = {0, 1, 1000, LARGE};

    world *w = *state;

    world_open(w, 3);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        char   *out = malloc(sizes[s] + 1), *in = malloc(sizes[s] + 1);
        job     sent;
        receipt r;

        for (int from = 0; from < 3; from++) {
            for (int to = 0; to < 3; to++) {
                memset(out, 'a' + 3 * from + to, sizes[s]);
                memset(in, 0, sizes[s]);
                send_to(w, from, to, 7, out, sizes[s], &sent);
                recv_from(w, to, from, 7, UINT64_MAX, in, sizes[s], &r);
                assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
                assert_int_equal(world_wait_one(w, &sent), UMX_OK);
                assert_memory_equal(in, out, sizes[s]);
                assert_int_equal(r.got.source, from);
                assert_int_equal(r.got.tag, 7);
                assert_int_equal(r.got.length, sizes[s]);
            }
        }
        free(out);
        free(in);
    }
}

static void
test_any_source_takes_them_in_their_order(void **state)
{
    world  *w = *state;
    job     sent[30];
    int     next[3] = {0};
    int     values[30];
    receipt r;

    world_open(w, 3);
    for (int i = 0; i < 30; i++) {
        values[i] = i / 3;
        send_to(w, i % 3, 2, (uint64_t)i, &values[i], sizeof(int), &sent[i]);
    }
    for (int i = 0; i < 30; i++) {
        int value = -1;

        recv_from(w, 2, UMX_ANY_SOURCE, 0, 0, &value, sizeof(value), &r);
        assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
        assert_int_equal(value, next[r.got.source]++);
    }
    world_wait(w, sent, 30, UMX_OK);
}

static void
test_tags_choose(void **state)
{
    world  *w = *state;
    job     sent[2];
    receipt r;
    char    byte = 0;

    world_open(w, 2);
    send_to(w, 0, 1, 1, "x", 1, &sent[0]);
    send_to(w, 0, 1, 2, "y", 1, &sent[1]);
    recv_from(w, 1, 0, 2, UINT64_MAX, &byte, 1, &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_int_equal(byte, 'y');
    recv_from(w, 1, 0, 1, UINT64_MAX, &byte, 1, &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_int_equal(byte, 'x');
    world_wait(w, sent, 2, UMX_OK);
}

/* What is not wanted yet never keeps back what is waited for. */
static void
test_a_flood_of_other_tags(void **state)
{
    enum {
        COUNT = 3000,
        SIZE  = 4000
    };

    world  *w    = *state;
    job    *sent = calloc(COUNT + 1, sizeof(*sent));
    char   *data = malloc((size_t)COUNT * SIZE);
    char    in[SIZE];
    receipt r;

    world_open(w, 2);
    for (int i = 0; i < COUNT; i++) {
        memset(data + i * SIZE, i % 251, SIZE);
        send_to(w, 0, 1, 1, data + i * SIZE, SIZE, &sent[i]);
    }
    send_to(w, 0, 1, 2, "last", 4, &sent[COUNT]);
    recv_from(w, 1, 0, 2, UINT64_MAX, in, 4, &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_memory_equal(in, "last", 4);
    for (int i = 0; i < COUNT; i++) {
        recv_from(w, 1, 0, 1, UINT64_MAX, in, SIZE, &r);
        assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
        assert_int_equal((unsigned char)in[SIZE - 1], i % 251);
    }
    for (int i = 0; i <= COUNT; i++) {
        assert_int_equal(world_wait_one(w, &sent[i]), UMX_OK);
    }
    free(data);
    free(sent);
}

static void
test_a_longer_message_is_truncated(void **state)
{
    world  *w = *state;
    job     sent;
    receipt r;
    char    small[4];

    world_open(w, 2);
    send_to(w, 0, 1, 1, "too long", 8, &sent);
    recv_from(w, 1, 0, 1, UINT64_MAX, small, sizeof(small), &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(r.got.length, 8);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
}

static void
test_a_cancelled_receive_takes_nothing(void **state)
{
    world  *w = *state;
    job     sent;
    receipt r;
    char    in[8] = "";

    world_open(w, 2);
    recv_from(w, 1, UMX_ANY_SOURCE, 0, 0, in, sizeof(in), &r);
    op_cancel(r.j.req);
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_CANCELED);
    send_to(w, 0, 1, 1, "message", 8, &sent);
    recv_from(w, 1, 0, 1, UINT64_MAX, in, sizeof(in), &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_string_equal(in, "message");
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
}

static void
test_a_receive_cancelled_while_bytes_come(void **state)
{
    world  *w   = *state;
    char   *out = malloc(LARGE), *in = malloc(LARGE);
    job     sent;
    receipt r;

    memset(out, 'x', LARGE);
    world_open(w, 2);
    send_to(w, 0, 1, 1, out, LARGE, &sent);
    for (int i = 0; i < 50; i++) {
        world_step(w);
    }
    recv_from(w, 1, 0, 1, UINT64_MAX, in, LARGE, &r);
    if (r.j.req != NULL) {
        op_cancel(r.j.req);
    }
    if (world_wait_one(w, &r.j) == UMX_ERR_CANCELED) {
        memset(in, 0, LARGE);
        recv_from(w, 1, 0, 1, UINT64_MAX, in, LARGE, &r);
        assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    }
    assert_memory_equal(in, out, LARGE);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
    free(in);
    free(out);
}

static void
test_a_receive_cancelled_when_complete(void **state)
{
    world     *w = *state;
    job        sent[3];
    receipt    r;
    char       in[8];
    umx_buffer buf = umx_host_buffer(in, sizeof(in));

    world_open(w, 2);
    send_to(w, 0, 1, 1, "first", 6, &sent[0]);
    send_to(w, 0, 1, 2, "second", 7, &sent[1]);
    send_to(w, 0, 1, 2, "third", 6, &sent[2]);
    recv_from(w, 1, 0, 2, UINT64_MAX, in, sizeof(in), &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_string_equal(in, "second");
    assert_int_equal(umx_comm_unrecv(w->comms[1], &r.got, &buf), UMX_OK);
    for (int i = 0; i < 3; i++) {
        static const char *const texts[] = {"first", "second", "third"};

        recv_from(w, 1, UMX_ANY_SOURCE, 0, 0, in, sizeof(in), &r);
        assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
        assert_string_equal(in, texts[i]);
        assert_int_equal(world_wait_one(w, &sent[i]), UMX_OK);
    }
    umx_comm_close(w->comms[1]);
    assert_int_equal(umx_comm_unrecv(w->comms[1], &r.got, &buf), UMX_OK);
}

/* ---- buffers of cancelled operations --------------------------------------
 */

enum {
    MOMENTS = 12, /* steps after which an operation is cancelled, at most */
    POISON  = 0xee
};

static const size_t sizes[] = {10, 20000, LARGE};

static bool
is_filled(const char *data, size_t len, int value)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)data[i] != value) {
            return false;
        }
    }
    return true;
}

/* Cancel an operation, and write over its buffer in the same moment. */
static void
cancel_and_poison(job *j, char *data, size_t len)
{
    if (j->req != NULL) {
        assert_int_equal(umx_request_cancel(j->req), UMX_OK);
    }
    memset(data, POISON, len);
}

static void
some_steps(world *w, int count)
{
    for (int i = 0; i < count; i++) {
        world_step(w);
    }
}

/* Send what is cancelled after `moment` steps, and something behind it. */
static void
send_cancelled(world *w, int moment, size_t len, bool is_posted)
{
    char   *out = malloc(len), *in = malloc(len), *other = malloc(len);
    job     sent[2];
    receipt r[2];

    memset(out, 'x', len);
    memset(other, 'y', len);
    if (is_posted) {
        recv_from(w, 1, 0, 0, 0, in, len, &r[0]);
    }
    send_to(w, 0, 1, 1, out, len, &sent[0]);
    some_steps(w, moment);
    cancel_and_poison(&sent[0], out, len);
    send_to(w, 0, 1, 2, other, len, &sent[1]);
    if (!is_posted) {
        recv_from(w, 1, 0, 0, 0, in, len, &r[0]);
    }
    assert_int_equal(world_wait_one(w, &r[0].j), UMX_OK);
    assert_true(is_filled(in, len, (r[0].got.tag == 1) ? 'x' : 'y'));
    if (r[0].got.tag == 1) {
        recv_from(w, 1, 0, 2, UINT64_MAX, in, len, &r[1]);
        assert_int_equal(world_wait_one(w, &r[1].j), UMX_OK);
        assert_true(is_filled(in, len, 'y'));
    }
    (void)world_wait_one(w, &sent[0]);
    assert_int_equal(world_wait_one(w, &sent[1]), UMX_OK);
    assert_true(is_filled(out, len, POISON));
    free(out);
    free(in);
    free(other);
}

static void
test_a_cancelled_send_is_received_whole_or_never(void **state)
{
    world *w = *state;

    world_open(w, 2);
    for (int moment = 0; moment < MOMENTS; moment++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            send_cancelled(w, moment, sizes[i], true);
            send_cancelled(w, moment, sizes[i], false);
        }
    }
}

/* Receive what is cancelled after `moment` steps, and receive it again. */
static void
recv_cancelled(world *w, int moment, size_t len)
{
    char   *out = malloc(len), *in = malloc(len), *other = malloc(len);
    job     sent;
    receipt r[2];

    memset(out, 'x', len);
    send_to(w, 0, 1, 1, out, len, &sent);
    some_steps(w, moment / 2);
    recv_from(w, 1, 0, 1, UINT64_MAX, in, len, &r[0]);
    some_steps(w, moment % 4);
    if (r[0].j.req != NULL) {
        cancel_and_poison(&r[0].j, in, len);
        recv_from(w, 1, 0, 1, UINT64_MAX, other, len, &r[1]);
        assert_int_equal(world_wait_one(w, &r[1].j), UMX_OK);
        assert_true(is_filled(other, len, 'x'));
        assert_int_equal(world_wait_one(w, &r[0].j), UMX_ERR_CANCELED);
        assert_true(is_filled(in, len, POISON));
    } else {
        assert_true(is_filled(in, len, 'x'));
    }
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
    free(out);
    free(in);
    free(other);
}

static void
test_the_buffer_of_a_cancelled_receive_is_free(void **state)
{
    world *w = *state;

    world_open(w, 2);
    for (int moment = 0; moment < 2 * MOMENTS; moment++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            recv_cancelled(w, moment, sizes[i]);
        }
    }
}

/* A receive has its message, and its end has not been reported. */
static void
test_a_receive_cancelled_before_it_is_reported(void **state)
{
    world  *w     = *state;
    char    in[8] = "", again[8] = "";
    job     sent;
    receipt r;

    world_open(w, 1);
    recv_from(w, 0, 0, 1, UINT64_MAX, in, sizeof(in), &r);
    send_to(w, 0, 0, 1, "message", 8, &sent);
    assert_string_equal(in, "message");
    assert_int_equal(r.j.calls, 0);
    cancel_and_poison(&r.j, in, sizeof(in));
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_CANCELED);
    recv_from(w, 0, 0, 1, UINT64_MAX, again, sizeof(again), &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_string_equal(again, "message");
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
    assert_true(is_filled(in, sizeof(in), POISON));
}

/* Step until a message with that tag can be seen, or cannot. */
static void
until_seen(world *w, uint64_t tag, umx_status status)
{
    umx_comm_status found;

    for (int i = 0; i < 10000 && umx_comm_iprobe(w->comms[1], 0, tag,
                                                 UINT64_MAX, &found) != status;
         i++) {
        world_step(w);
    }
    assert_int_equal(umx_comm_iprobe(w->comms[1], 0, tag, UINT64_MAX, &found),
                     status);
}

static void
test_what_has_seen_a_withdrawn_message_finds_it_gone(void **state)
{
    world            *w   = *state;
    char             *out = calloc(1, LARGE), *in = malloc(LARGE);
    umx_buffer        buf = umx_host_buffer(in, LARGE);
    umx_comm_message *message;
    umx_comm_status   found;
    umx_request      *req = NULL;
    job               sent[2];

    world_open(w, 2);
    send_to(w, 0, 1, 1, out, LARGE, &sent[0]);
    send_to(w, 0, 1, 2, out, LARGE, &sent[1]);
    until_seen(w, 1, UMX_OK);
    until_seen(w, 2, UMX_OK);
    assert_int_equal(
        umx_comm_improbe(w->comms[1], 0, 2, UINT64_MAX, &message, &found),
        UMX_OK);
    op_cancel(sent[0].req);
    op_cancel(sent[1].req);
    until_seen(w, 1, UMX_ERR_NO_MESSAGE);
    assert_int_equal(umx_comm_mrecv(&message, &buf, NULL, &req),
                     UMX_ERR_WITHDRAWN);
    assert_null(message);
    (void)world_wait_one(w, &sent[0]);
    (void)world_wait_one(w, &sent[1]);
    free(out);
    free(in);
}

/* A message that is withdrawn, and was in hand, is nobody's when it is
 * returned. */
static void
test_a_withdrawn_message_is_not_returned(void **state)
{
    world            *w   = *state;
    char             *out = calloc(1, LARGE);
    umx_comm_message *message;
    umx_comm_status   found;
    job               sent[2];
    receipt           r;
    char              byte;

    world_open(w, 2);
    send_to(w, 0, 1, 1, out, LARGE, &sent[0]);
    until_seen(w, 1, UMX_OK);
    assert_int_equal(
        umx_comm_improbe(w->comms[1], 0, 1, UINT64_MAX, &message, &found),
        UMX_OK);
    op_cancel(sent[0].req);
    send_to(w, 0, 1, 2, "y", 1, &sent[1]);
    until_seen(w, 2, UMX_OK);
    umx_comm_message_return(message);
    recv_from(w, 1, UMX_ANY_SOURCE, 0, 0, &byte, 1, &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_int_equal(r.got.tag, 2);
    (void)world_wait_one(w, &sent[0]);
    assert_int_equal(world_wait_one(w, &sent[1]), UMX_OK);
    free(out);
}

/* More than are left with their sender, one after the other: none is brought
 * here. */
static void
test_many_withdrawn_messages_are_forgotten(void **state)
{
    world  *w   = *state;
    char   *out = calloc(1, LARGE);
    job     sent;
    receipt r;

    world_open(w, 2);
    for (int i = 0; i < 100; i++) {
        send_to(w, 0, 1, 1, out, LARGE, &sent);
        some_steps(w, 3);
        op_cancel(sent.req);
        (void)world_wait_one(w, &sent);
    }
    until_seen(w, 1, UMX_ERR_NO_MESSAGE);
    recv_from(w, 1, 0, 1, UINT64_MAX, out, LARGE, &r);
    send_to(w, 0, 1, 1, "z", 1, &sent);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_int_equal(r.got.length, 1);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
    free(out);
}

/* A rank leaves at once after sends that it has cancelled, at each moment: the
 * other knows how many come. */
static void
leave_after_cancelled_sends(world *w, int moment)
{
    char   *out = calloc(1, LARGE), *in = malloc(LARGE);
    job     sent[3];
    receipt r[2];

    recv_from(w, 1, 0, 3, UINT64_MAX, in, LARGE, &r[1]);
    recv_from(w, 1, 0, 1, UINT64_MAX, in, LARGE, &r[0]);
    for (int i = 0; i < 3; i++) {
        send_to(w, 0, 1, (uint64_t)i, out, sizes[i], &sent[i]);
    }
    some_steps(w, moment);
    for (int i = 0; i < 3; i++) {
        if (sent[i].req != NULL) {
            op_cancel(sent[i].req);
        }
    }
    umx_comm_close(w->comms[0]);
    (void)world_wait_one(w, &r[0].j);
    assert_int_equal(world_wait_one(w, &r[1].j), UMX_ERR_RANK_FAILED);
    for (int i = 0; i < 3; i++) {
        (void)world_wait_one(w, &sent[i]);
    }
    free(out);
    free(in);
}

static void
test_a_rank_leaves_after_cancelled_sends(void **state)
{
    world *w = *state;

    world_open(w, 2);
    for (int moment = 0; moment < 6; moment++) {
        umx_comm *parents[2];

        for (int i = 0; i < 2; i++) {
            parents[i] = w->comms[i];
            assert_int_equal(umx_comm_derive(parents[i], 7, &w->comms[i]),
                             UMX_OK);
        }
        leave_after_cancelled_sends(w, moment);
        for (int i = 0; i < 2; i++) {
            umx_comm_destroy(w->comms[i]);
            w->comms[i] = parents[i];
        }
    }
}

/* Copies have a limit; beyond it an operation is deferred. Who cannot wait is
 * given a copy all the same. */
static void
test_a_receive_beyond_the_limit_is_deferred(void **state)
{
    world  *w   = *state;
    char   *out = malloc(LARGE), *in = malloc(LARGE);
    job     sent;
    receipt r;

    memset(out, 'x', LARGE);
    w->config.cancel_bytes = LARGE - 1;
    world_open(w, 2);
    for (int is_abandoned = 0; is_abandoned < 2; is_abandoned++) {
        send_to(w, 0, 1, 1, out, LARGE, &sent);
        until_seen(w, 1, UMX_OK);
        recv_from(w, 1, 0, 1, UINT64_MAX, in, LARGE, &r);
        assert_non_null(r.j.req);
        assert_int_equal(umx_request_cancel(r.j.req), UMX_INPROGRESS);
        if (is_abandoned) {
            assert_int_equal(umx_request_abandon(r.j.req), UMX_OK);
            memset(in, POISON, LARGE);
        }
        assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_CANCELED);
        memset(in, POISON, LARGE);
        recv_from(w, 1, 0, 1, UINT64_MAX, in, LARGE, &r);
        assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
        assert_true(is_filled(in, LARGE, 'x'));
        assert_int_equal(world_wait_one(w, &sent), UMX_OK);
    }
    free(out);
    free(in);
}

static void
test_a_message_that_cannot_be_put_back(void **state)
{
    world     *w = *state;
    job        sent;
    receipt    r;
    char       in[8];
    umx_buffer buf = umx_host_buffer(in, sizeof(in));

    world_open(w, 2);
    send_to(w, 0, 1, 1, "first", 6, &sent);
    recv_from(w, 1, 0, 1, UINT64_MAX, in, sizeof(in), &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
    buf.memtype = UMX_MEMTYPE_CUDA;
    assert_int_equal(umx_comm_unrecv(w->comms[1], &r.got, &buf),
                     UMX_ERR_UNSUPPORTED);
    expect_reason(w, 1, "rank 1 has lost a message");
}

/* A message whose receive is cancelled while its bytes come is still the next
 * one. */
static void
test_a_cancelled_receive_does_not_let_others_overtake(void **state)
{
    world  *w   = *state;
    char   *out = malloc(LARGE), *in = malloc(LARGE);
    char    small[8];
    job     sent[2];
    receipt first, r;

    memset(out, 'x', LARGE);
    world_open(w, 2);
    send_to(w, 0, 1, 1, out, LARGE, &sent[0]);
    send_to(w, 0, 1, 2, "later", 6, &sent[1]);
    for (int i = 0; i < 50; i++) {
        world_step(w);
    }
    recv_from(w, 1, 0, 1, UINT64_MAX, in, LARGE, &first);
    if (first.j.req != NULL) {
        umx_comm_status found;

        op_cancel(first.j.req);
        assert_int_equal(
            umx_comm_iprobe(w->comms[1], UMX_ANY_SOURCE, 0, 0, &found), UMX_OK);
        assert_int_equal(found.tag, 1);
        recv_from(w, 1, UMX_ANY_SOURCE, 0, 0, in, LARGE, &r);
        assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
        assert_int_equal(r.got.tag, 1);
        assert_int_equal(world_wait_one(w, &first.j), UMX_ERR_CANCELED);
    }
    assert_memory_equal(in, out, LARGE);
    recv_from(w, 1, UMX_ANY_SOURCE, 0, 0, small, sizeof(small), &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_string_equal(small, "later");
    assert_int_equal(world_wait_one(w, &sent[0]), UMX_OK);
    assert_int_equal(world_wait_one(w, &sent[1]), UMX_OK);
    free(in);
    free(out);
}

static void
test_probes(void **state)
{
    world            *w = *state;
    umx_comm_status   found;
    umx_comm_message *message;
    umx_op_params     params;
    umx_request      *req = NULL;
    umx_buffer        buf;
    receipt           r;
    job               sent, j;
    char              in[5] = "";

    world_open(w, 2);
    assert_int_equal(umx_comm_iprobe(w->comms[1], UMX_ANY_SOURCE, 0, 0, &found),
                     UMX_ERR_NO_MESSAGE);
    params = receipt_params(&r);
    job_posted(&r.j,
               umx_comm_wait_message(w->comms[1], UMX_ANY_SOURCE, 0, 0, &params,
                                     &req, &r.got),
               &req);
    send_to(w, 0, 1, 3, "hello", 5, &sent);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_int_equal(r.got.length, 5);
    assert_int_equal(
        umx_comm_improbe(w->comms[1], 0, 3, UINT64_MAX, &message, &found),
        UMX_OK);
    assert_int_equal(umx_comm_iprobe(w->comms[1], UMX_ANY_SOURCE, 0, 0, &found),
                     UMX_ERR_NO_MESSAGE);
    umx_comm_message_return(message);
    assert_int_equal(
        umx_comm_improbe(w->comms[1], 0, 3, UINT64_MAX, &message, &found),
        UMX_OK);
    buf = umx_host_buffer(in, 4);
    assert_int_equal(umx_comm_mrecv(&message, &buf, NULL, &req),
                     UMX_ERR_BUFFER_TOO_SMALL);
    buf    = umx_host_buffer(in, 5);
    params = job_params(&j);
    job_posted(&j, umx_comm_mrecv(&message, &buf, &params, &req), &req);
    assert_int_equal(world_wait_one(w, &j), UMX_OK);
    assert_null(message);
    assert_memory_equal(in, "hello", 5);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
}

/* ---- the end -------------------------------------------------------------
 */

static void
test_a_rank_that_leaves_is_named(void **state)
{
    world  *w = *state;
    receipt waiting, later;
    job     sent;
    char    byte = 0;

    world_open(w, 3);
    send_to(w, 2, 1, 5, "z", 1, &sent);
    recv_from(w, 1, 2, 6, UINT64_MAX, &byte, 1, &waiting);
    umx_comm_close(w->comms[2]);
    assert_int_equal(world_wait_one(w, &waiting.j), UMX_ERR_RANK_FAILED);
    recv_from(w, 1, 2, 5, UINT64_MAX, &byte, 1, &later);
    assert_int_equal(world_wait_one(w, &later.j), UMX_OK);
    assert_int_equal(byte, 'z');
    send_to(w, 0, 1, 5, "y", 1, &sent); /* the others go on */
    recv_from(w, 1, 0, 5, UINT64_MAX, &byte, 1, &later);
    assert_int_equal(world_wait_one(w, &later.j), UMX_OK);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
}

static void
test_a_receive_of_any_rank_ends_with_the_last(void **state)
{
    world          *w = *state;
    receipt         waiting, probing, later;
    umx_op_params   params;
    umx_request    *req = NULL;
    umx_comm_status found;
    job             sent;
    char            byte = 0;

    world_open(w, 3);
    send_to(w, 1, 0, 5, "z", 1, &sent);
    recv_from(w, 0, UMX_ANY_SOURCE, 6, UINT64_MAX, &byte, 1, &waiting);
    params = receipt_params(&probing);
    job_posted(&probing.j,
               umx_comm_wait_message(w->comms[0], UMX_ANY_SOURCE, 6, UINT64_MAX,
                                     &params, &req, &probing.got),
               &req);
    umx_comm_close(w->comms[1]);
    recv_from(w, 0, 1, 6, UINT64_MAX, &byte, 1, &later);
    assert_int_equal(world_wait_one(w, &later.j), UMX_ERR_RANK_FAILED);
    assert_int_equal(waiting.j.status, UMX_INPROGRESS);
    umx_comm_close(w->comms[2]);
    assert_int_equal(world_wait_one(w, &waiting.j), UMX_ERR_RANK_FAILED);
    assert_int_equal(world_wait_one(w, &probing.j), UMX_ERR_RANK_FAILED);
    recv_from(w, 0, UMX_ANY_SOURCE, 0, 0, &byte, 1, &later); /* is there */
    assert_int_equal(world_wait_one(w, &later.j), UMX_OK);
    assert_int_equal(byte, 'z');
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
    recv_from(w, 0, UMX_ANY_SOURCE, 0, 0, &byte, 1, &later);
    assert_int_equal(later.j.status, UMX_ERR_RANK_FAILED);
    assert_int_equal(umx_comm_wait_message(w->comms[0], UMX_ANY_SOURCE, 0, 0,
                                           NULL, &req, &found),
                     UMX_ERR_RANK_FAILED);
    assert_int_equal(umx_comm_iprobe(w->comms[0], UMX_ANY_SOURCE, 0, 0, &found),
                     UMX_ERR_NO_MESSAGE);
    send_to(w, 0, 0, 7, "y", 1, &sent);
    recv_from(w, 0, UMX_ANY_SOURCE, 0, 0, &byte, 1, &later);
    assert_int_equal(world_wait_one(w, &later.j), UMX_OK);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
}

/* Watch a rank, or all, of the communicator of rank 0. */
static void
watch(world *w, int source, job *j)
{
    umx_op_params params = job_params(j);
    umx_request  *req    = NULL;

    job_posted(j, umx_comm_watch(w->comms[0], source, &params, &req), &req);
}

static void
test_a_watch_ends_with_the_rank_and_takes_no_message(void **state)
{
    world  *w = *state;
    job     one, all, later, sent;
    receipt r;
    char    byte = 0;

    world_open(w, 3);
    watch(w, 1, &one);
    watch(w, UMX_ANY_SOURCE, &all);
    send_to(w, 1, 0, 5, "z", 1, &sent);
    umx_comm_close(w->comms[1]);
    while (umx_comm_iprobe(w->comms[0], 1, 5, UINT64_MAX, &r.got) != UMX_OK) {
        world_step(w);
    }
    assert_int_equal(world_wait_one(w, &one), UMX_ERR_RANK_FAILED);
    assert_int_equal(all.status, UMX_INPROGRESS);
    recv_from(w, 0, 1, 5, UINT64_MAX, &byte, 1, &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
    umx_comm_close(w->comms[2]);
    assert_int_equal(world_wait_one(w, &all), UMX_ERR_RANK_FAILED);
    watch(w, UMX_ANY_SOURCE, &later);
    assert_int_equal(later.status, UMX_INPROGRESS);
    assert_int_equal(world_wait_one(w, &later), UMX_ERR_RANK_FAILED);
}

static void
test_a_watch_ends_with_the_communicator(void **state)
{
    world *w = *state;
    job    one, all, cancelled, wrong;

    world_open(w, 2);
    watch(w, 2, &wrong);
    assert_int_equal(wrong.status, UMX_ERR_OUT_OF_RANGE);
    watch(w, 1, &one);
    watch(w, UMX_ANY_SOURCE, &all);
    watch(w, 1, &cancelled);
    (void)umx_request_cancel(cancelled.req);
    assert_int_equal(world_wait_one(w, &cancelled), UMX_ERR_CANCELED);
    umx_comm_abort(w->comms[1], "enough");
    assert_int_equal(world_wait_one(w, &one), UMX_ERR_RANK_FAILED);
    assert_int_equal(world_wait_one(w, &all), UMX_ERR_RANK_FAILED);
}

static void
test_the_time_limit_is_kept(void **state)
{
    world    *w = *state;
    umx_comm *made;

    w->timeout_ns = 7 * SECOND_NS;
    world_open(w, 2);
    assert_int_equal(umx_comm_derive(w->comms[0], 1, &made), UMX_OK);
    assert_int_equal(umx_comm_get_timeout(made), 7 * SECOND_NS);
    umx_comm_destroy(made);
}

static void
expect_failure(world *w, int rank, int failed)
{
    umx_comm_failure failure;

    assert_true(umx_comm_get_failure(w->comms[rank], &failure));
    if (failure.rank != failed) {
        print_message("rank %d: %s\n", rank, umx_comm_reason(w->comms[rank]));
    }
    assert_int_equal(failure.rank, failed);
}

/* Both receives of `rank` wait for what `source` has sent. */
static void
expect_lost_message(world *w, int rank, int source)
{
    receipt from_it, from_any;
    char    bytes[2];

    recv_from(w, rank, source, 6, UINT64_MAX, &bytes[0], 1, &from_it);
    recv_from(w, rank, UMX_ANY_SOURCE, 7, UINT64_MAX, &bytes[1], 1, &from_any);
    assert_int_equal(world_wait_one(w, &from_it.j), UMX_ERR_RANK_FAILED);
    assert_int_equal(world_wait_one(w, &from_any.j), UMX_ERR_RANK_FAILED);
    expect_failure(w, rank, source);
}

static void
test_a_message_that_is_lost_while_its_sender_leaves(void **state)
{
    world *w = *state;
    job    sent;

    world_open(w, 3);
    umx_worker_withdraw_address(w->workers[1]); /* nobody can connect */
    send_to(w, 2, 1, 5, "z", 1, &sent);
    umx_comm_close(w->comms[2]);
    expect_lost_message(w, 1, 2);
    expect_reason(w, 1, "has failed while it left");
}

static void
test_a_rank_that_dies_while_it_leaves(void **state)
{
    world *w = *state;
    job    sent;

    world_open(w, 3);
    w->is_stopped[1] = true; /* the connection to it stays half open */
    send_to(w, 2, 1, 5, "z", 1, &sent);
    umx_comm_close(w->comms[2]);
    while (!w->comms[0]->ranks[2].is_gone) {
        world_step(w);
    }
    for (int i = 0; i < 100; i++) {
        world_step(w);
    }
    umx_worker_destroy(w->workers[2]);
    w->workers[2]    = NULL;
    w->is_stopped[1] = false;
    expect_lost_message(w, 1, 2);
}

static void
test_a_rank_that_dies_ends_it_for_all(void **state)
{
    world  *w = *state;
    receipt waiting[3];
    char    bytes[3];

    for (int dead = 0; dead < 3; dead++) {
        world_open(w, 3);
        for (int i = 0; i < 3; i++) {
            recv_from(w, i, (i + 1) % 3, 1, UINT64_MAX, &bytes[i], 1,
                      &waiting[i]);
        }
        umx_worker_destroy(w->workers[dead]);
        w->workers[dead] = NULL;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(world_wait_one(w, &waiting[i].j),
                             UMX_ERR_RANK_FAILED);
            if (i != dead) {
                expect_failure(w, i, dead);
            }
        }
        for (int i = 0; i < 3; i++) {
            umx_comm_destroy(w->comms[i]);
            w->comms[i] = NULL;
            if (w->workers[i] != NULL) {
                umx_worker_destroy(w->workers[i]);
                w->workers[i] = NULL;
            }
        }
        if (dead < 2) {
            umx_context_release(w->context);
            w->port = 0;
        }
    }
}

static void
test_abort_says_why(void **state)
{
    world  *w = *state;
    receipt r;
    char    byte;

    world_open(w, 3);
    recv_from(w, 2, 0, 1, UINT64_MAX, &byte, 1, &r);
    umx_comm_abort(w->comms[1], "no more");
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_RANK_FAILED);
    expect_failure(w, 2, 1);
    assert_non_null(strstr(umx_comm_reason(w->comms[2]), "no more"));
}

static void
test_abort_names_whose_fault_it_is(void **state)
{
    world           *w       = *state;
    umx_comm_failure failure = {
        .op = "", .cause = UMX_ERR_CONNECTION_RESET, .member = 2};
    receipt r;
    char    byte;

    world_open(w, 3);
    failure.group = w->comms[0]->group->id;
    recv_from(w, 1, 0, 1, UINT64_MAX, &byte, 1, &r);
    umx_comm_abort_for(w->comms[0], &failure, "the child has failed");
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_RANK_FAILED);
    expect_failure(w, 1, 2);
    assert_non_null(strstr(umx_comm_reason(w->comms[1]), "the child"));
    assert_true(umx_comm_get_failure(w->comms[1], &failure));
    assert_int_equal(failure.cause, UMX_ERR_CONNECTION_RESET);
    assert_int_equal(failure.group, w->comms[1]->group->id);
    assert_int_equal(failure.member, 2);
}

static void
test_abort_names_itself_for_what_is_of_others(void **state)
{
    world           *w       = *state;
    umx_comm_failure failure = {.op = "", .member = 2};
    receipt          r;
    char             byte;

    world_open(w, 3);
    failure.group = w->comms[0]->group->id + 1;
    recv_from(w, 1, 0, 1, UINT64_MAX, &byte, 1, &r);
    umx_comm_abort_for(w->comms[0], &failure, NULL);
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_RANK_FAILED);
    expect_failure(w, 1, 0);
}

/* The root, which tells everybody, is late: who hears of it from another rank
 * tells those that it has endpoints with. */
static void
test_what_is_heard_is_told(void **state)
{
    world  *w = *state;
    receipt r[4];
    job     j[4];
    char    byte[4] = {0};

    world_open(w, 4);
    for (int i = 1; i <= 3; i += 2) { /* ranks 1 and 3 have no endpoint */
        recv_from(w, i, 2, 1, UINT64_MAX, &byte[i], 1, &r[i]);
        send_to(w, 2, i, 1, "x", 1, &j[i]);
        assert_int_equal(world_wait_one(w, &r[i].j), UMX_OK);
        assert_int_equal(world_wait_one(w, &j[i]), UMX_OK);
    }
    w->is_stopped[0] = true;
    recv_from(w, 1, 2, 1, UINT64_MAX, &byte[1], 1, &r[1]);
    umx_comm_abort(w->comms[3], "no more");
    assert_int_equal(world_wait_one(w, &r[1].j), UMX_ERR_RANK_FAILED);
    expect_failure(w, 1, 3);
    w->is_stopped[0] = false;
}

/* Ranks 1 and 2 have lost each other, while the root, which would say why,
 * makes no progress. */
static void
lose_each_other(world *w, receipt *r, job *j, char *byte)
{
    world_open(w, 4);
    for (int i = 2; i <= 3; i++) { /* rank 1 has endpoints to 2 and 3 */
        recv_from(w, 1, i, 1, UINT64_MAX, byte, 1, r);
        send_to(w, i, 1, 1, "x", 1, j);
        assert_int_equal(world_wait_one(w, &r->j), UMX_OK);
        assert_int_equal(world_wait_one(w, j), UMX_OK);
    }
    w->is_stopped[0] = true;
    recv_from(w, 1, 2, 1, UINT64_MAX, byte, 1, r);
    umx_ep_abort(w->comms[2]->group->members[1].out);
    while (umi_comm_member_is_up(&w->comms[1]->group->members[2])) {
        world_step(w);
    }
    send_to(w, 1, 2, 1, "x", 1, j);
    assert_int_equal(r->j.status, UMX_INPROGRESS);
    assert_int_equal(j->status, UMX_INPROGRESS);
}

static void
test_who_is_lost_may_not_be_the_cause(void **state)
{
    world  *w = *state;
    receipt r;
    job     j;
    char    byte;

    lose_each_other(w, &r, &j, &byte);
    umx_comm_abort(w->comms[3], "no more");
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_RANK_FAILED);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
    expect_failure(w, 1, 3);
    w->is_stopped[0] = false;
}

static void
test_who_is_lost_is_the_cause_if_nobody_says_another(void **state)
{
    world  *w = *state;
    receipt r;
    job     j;
    char    byte;

    lose_each_other(w, &r, &j, &byte);
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_RANK_FAILED);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
    expect_failure(w, 1, 2);
    w->is_stopped[0] = false;
}

/* ---- the states of a member ----------------------------------------------
 */

static void
test_a_member_that_closes_has_left(void **state)
{
    world                 *w = *state;
    const umi_comm_member *member;

    world_open(w, 3);
    member = &w->comms[0]->group->members[1];
    assert_int_equal(member->state, UMI_COMM_MEMBER_ALIVE);
    umx_comm_close(w->comms[1]);
    while (member->state == UMI_COMM_MEMBER_ALIVE) {
        world_step(w);
    }
    assert_int_equal(member->state, UMI_COMM_MEMBER_LEFT);
    assert_true(umi_comm_member_is_up(member));
}

static void
test_a_member_that_is_lost_is_suspected_before_it_is_dead(void **state)
{
    world                 *w = *state;
    const umi_comm_member *member;
    receipt                r;
    job                    j;
    char                   byte;

    lose_each_other(w, &r, &j, &byte);
    member = &w->comms[1]->group->members[2];
    assert_int_equal(member->state, UMI_COMM_MEMBER_SUSPECT);
    while (member->state == UMI_COMM_MEMBER_SUSPECT) {
        world_step(w);
    }
    assert_int_equal(member->state, UMI_COMM_MEMBER_DEAD);
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_RANK_FAILED);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
    w->is_stopped[0] = false;
}

/* Who is the cause for rank 1, which has suspected rank 2 and loses the root?
 */
static void
check_cause(world *w, umx_status of_suspect, umx_status of_root, int rank)
{
    umi_comm_group *group;

    world_open(w, 3);
    group = w->comms[1]->group;
    umi_comm_member_suspect(&group->members[2], of_suspect, "it is suspected");
    umi_comm_member_fail(&group->members[0], of_root, "it is lost");
    assert_int_equal(group->members[2].state, UMI_COMM_MEMBER_DEAD);
    expect_failure(w, 1, rank);
}

static void
test_who_was_lost_before_the_root_is_the_cause(void **state)
{
    check_cause(*state, UMX_ERR_CONNECTION_RESET, UMX_ERR_CONNECTION_RESET, 2);
}

static void
test_who_has_closed_before_the_root_was_lost_is_not_the_cause(void **state)
{
    check_cause(*state, UMX_ERR_PEER_CLOSED, UMX_ERR_CONNECTION_RESET, 0);
}

static void
test_who_has_closed_before_the_root_has_is_not_the_cause(void **state)
{
    check_cause(*state, UMX_ERR_PEER_CLOSED, UMX_ERR_PEER_CLOSED, 0);
}

/* Does changing the state of a member so end the process? */
static bool
is_refused(umi_comm_member_state from, umi_comm_member_state to)
{
    umi_comm_member member = {.state = from};
    int             status = 0;
    pid_t           child  = fork();

    if (child == 0) {
        (void)close(STDERR_FILENO); /* assert() writes there */
        umi_comm_member_set_state(&member, to);
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void
test_states_change_by_the_edges_that_are_drawn(void **state)
{
    static const char *const drawn[] = {
        [UMI_COMM_MEMBER_ALIVE]   = "-sdl",
        [UMI_COMM_MEMBER_SUSPECT] = "--d-",
        [UMI_COMM_MEMBER_DEAD]    = "----",
        [UMI_COMM_MEMBER_LEFT]    = "asd-",
    };

    (void)state;
    for (int from = UMI_COMM_MEMBER_ALIVE; from <= UMI_COMM_MEMBER_LEFT;
         from++) {
        for (int to = UMI_COMM_MEMBER_ALIVE; to <= UMI_COMM_MEMBER_LEFT; to++) {
            assert_int_equal(is_refused((umi_comm_member_state)from,
                                        (umi_comm_member_state)to),
                             drawn[from][to] == '-');
        }
    }
}

static void
test_asking_for_an_endpoint_does_not_take_it(void **state)
{
    world           *w = *state;
    umi_comm_member *member;
    umx_ep          *ep;

    world_open(w, 3);
    member = &w->comms[1]->group->members[2];
    assert_int_equal(umx_comm_get_ep(w->comms[2], 1, &ep), UMX_OK);
    while ((ep = umx_worker_find_addressed(w->workers[1], member->worker_id,
                                           NULL)) == NULL ||
           umx_ep_get_state(ep) != UMX_EP_OPEN) {
        world_step(w);
    }
    assert_false(umi_comm_member_has_ep(member, ep));
    assert_ptr_equal(
        umx_worker_find_addressed(w->workers[1], member->worker_id, NULL), ep);
    assert_false(umi_comm_member_claim_ep(&w->comms[1]->group->members[0], ep));
    assert_true(umi_comm_member_claim_ep(member, ep));
    assert_true(umi_comm_member_has_ep(member, ep));
    assert_null(
        umx_worker_find_addressed(w->workers[1], member->worker_id, NULL));
}

static void
test_a_send_to_one_that_is_lost_is_cancelled(void **state)
{
    world  *w = *state;
    receipt r;
    job     j;
    char    byte;

    lose_each_other(w, &r, &j, &byte);
    op_cancel(j.req);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_CANCELED);
    umx_comm_close(w->comms[1]);
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_CANCELED);
    w->is_stopped[0] = false;
}

enum {
    BEAT_NS = 200000000
};

/* A world whose ranks exchange heartbeats. */
static void
open_with_heartbeat(world *w, int size)
{
    job jobs[MAX_RANKS];

    world_workers(w, size);
    for (int i = 0; i < size; i++) {
        umx_comm_params params = world_params(w, i);
        umx_op_params   how    = job_params(&jobs[i]);
        umx_request    *req    = NULL;

        params.field_mask |= UMX_COMM_FIELD_HEARTBEAT;
        params.heartbeat_ns = BEAT_NS;
        job_posted(
            &jobs[i],
            umx_comm_create(w->workers[i], &params, &how, &w->comms[i], &req),
            &req);
    }
    world_wait(w, jobs, size, UMX_OK);
}

static void
run_barriers(world *w, int count)
{
    job jobs[MAX_RANKS];

    for (int i = 0; i < count; i++) {
        for (int r = 0; r < w->size; r++) {
            umx_op_params params = job_params(&jobs[r]);
            umx_request  *req    = NULL;

            job_posted(&jobs[r], umx_barrier(w->comms[r], &params, &req), &req);
        }
        world_wait(w, jobs, w->size, UMX_OK);
        world_step(w);
    }
}

static void
step_for(world *w, uint64_t ns)
{
    uint64_t end = umi_clock_ns() + ns;

    while (umi_clock_ns() < end) {
        world_step(w);
    }
}

static void
test_a_silent_rank_of_another_host_is_missed(void **state)
{
    world  *w = *state;
    receipt r;
    char    byte;

    open_with_heartbeat(w, 3);
    world_move_away(w, 2);
    recv_from(w, 1, 0, 1, UINT64_MAX, &byte, 1, &r);
    w->is_stopped[2] = true;
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_RANK_FAILED);
    expect_failure(w, 1, 2);
    expect_reason(w, 1, "makes no progress, counts as ended");
    w->is_stopped[2] = false;
}

static void
count_line(int level, const char *text, void *arg)
{
    (void)level;
    if (strstr(text, "process 2 has given no sign of life") != NULL) {
        ++*(unsigned *)arg;
    }
}

/* A process that runs is waited for, however long it computes; a line tells so
 * for each heartbeat. */
static void
test_a_silent_rank_of_this_host_is_waited_for(void **state)
{
    world   *w     = *state;
    unsigned lines = 0;

    open_with_heartbeat(w, 3);
    run_barriers(w, 1);
    umx_log_set(count_line, &lines);
    w->is_stopped[2] = true;
    step_for(w, 6 * (uint64_t)BEAT_NS);
    assert_in_range(lines, 2, 6);
    w->is_stopped[2] = false;
    run_barriers(w, 2);
    step_for(w, 3 * (uint64_t)BEAT_NS);
    umx_log_set(NULL, NULL);
}

/* The root has left: the lowest of the other ranks watches. */
static void
test_a_silent_rank_is_missed_without_the_root(void **state)
{
    world    *w = *state;
    umx_comm *parents[4];
    job       jobs[4];
    receipt   r[4];
    char      bytes[4];

    open_with_heartbeat(w, 4);
    for (int i = 0; i < 4; i++) {
        umx_op_params params = job_params(&jobs[i]);
        umx_request  *req    = NULL;

        parents[i] = w->comms[i];
        job_posted(&jobs[i],
                   umx_comm_split(parents[i], (i == 0) ? -1 : 1, 0, &params,
                                  &w->comms[i], &req),
                   &req);
    }
    world_wait(w, jobs, 4, UMX_OK);
    umx_comm_close(parents[0]);
    for (int i = 1; i < 4; i++) {
        umx_op_params params = job_params(&jobs[i]);
        umx_request  *req    = NULL;

        job_posted(&jobs[i], umx_barrier(w->comms[i], &params, &req), &req);
    }
    world_wait(w, jobs + 1, 3, UMX_OK);
    step_for(w, 3 * (uint64_t)BEAT_NS);
    w->comms[0] = parents[0];
    world_move_away(w, 2);
    for (int i = 1; i < 4; i += 2) { /* from each other */
        recv_from(w, i, (i == 1) ? 2 : 0, 1, UINT64_MAX, &bytes[i], 1, &r[i]);
    }
    w->is_stopped[2] = true;
    for (int i = 1; i < 4; i += 2) {
        assert_int_equal(world_wait_one(w, &r[i].j), UMX_ERR_RANK_FAILED);
        expect_failure(w, i, 1);
    }
    w->is_stopped[2] = false;
    for (int i = 1; i < 4; i++) {
        umx_comm_destroy(w->comms[i]);
        w->comms[i] = parents[i];
    }
}

/* A rank that the others have given up hears of it in its next operation, also
 * in one that only sends. */
static void
expect_given_up(world *w, bool is_message)
{
    uint64_t      word = 0;
    umx_buffer    buf  = umx_host_buffer(&word, sizeof(word));
    umx_op_params params;
    umx_request  *req = NULL;
    umx_status    status;
    job           j;

    open_with_heartbeat(w, 2);
    run_barriers(w, 5);
    world_move_away(w, 1);
    w->is_stopped[1] = true;
    while (!w->comms[0]->is_revoked) {
        world_step(w);
    }
    w->is_stopped[1] = false;
    params           = job_params(&j);
    if (is_message) {
        status = umx_comm_isend(w->comms[1], 0, 1, &buf, &params, &req);
    } else {
        status = umx_bcast(w->comms[1], 1, &buf, &params, &req);
    }
    job_posted(&j, status, &req);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
    expect_reason(w, 1, "rank 1 has made no progress for");
}

static void
test_a_rank_that_was_given_up_fails(void **state)
{
    expect_given_up(*state, false);
}

static void
test_a_rank_that_was_given_up_sends_nothing(void **state)
{
    expect_given_up(*state, true);
}

/* ---- what is derived -----------------------------------------------------
 */

/* A rank that leaves without having derived what another has will never take
 * part in it: nothing there waits for it. */
static void
test_a_rank_that_has_not_derived_leaves(void **state)
{
    world        *w   = *state;
    char         *out = calloc(1, LARGE);
    umx_comm     *made, *later, *parent;
    umx_buffer    buf = umx_host_buffer(out, LARGE);
    umx_op_params params;
    umx_request  *req = NULL;
    job           sent, entered;
    receipt       r;
    char          byte;

    world_open(w, 2);
    parent = w->comms[0];
    assert_int_equal(umx_comm_derive(parent, 7, &made), UMX_OK);
    w->comms[0] = made;
    recv_from(w, 0, 1, 1, UINT64_MAX, &byte, 1, &r);
    params = job_params(&sent);
    job_posted(&sent, umx_comm_isend(made, 1, 1, &buf, &params, &req), &req);
    for (int i = 0; i < 20; i++) {
        world_step(w);
    }
    assert_int_equal(sent.status, UMX_INPROGRESS);
    umx_comm_close(w->comms[1]);
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_RANK_FAILED);
    assert_int_equal(world_wait_one(w, &sent), UMX_ERR_RANK_FAILED);
    params = job_params(&entered);
    job_posted(&entered, umx_barrier(made, &params, &req), &req);
    assert_int_equal(world_wait_one(w, &entered), UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, "rank 1 has left");
    umx_comm_destroy(made);
    w->comms[0] = parent;
    assert_int_equal(umx_comm_derive(parent, 7, &later), UMX_OK);
    params = job_params(&entered);
    job_posted(&entered, umx_barrier(later, &params, &req), &req);
    assert_int_equal(world_wait_one(w, &entered), UMX_ERR_RANK_FAILED);
    umx_comm_destroy(later);
    free(out);
}

/* One that has derived it goes on there after it has left the parent. */
static void
test_a_rank_that_has_derived_goes_on(void **state)
{
    world    *w = *state;
    umx_comm *parents[2];

    world_open(w, 2);
    for (int i = 0; i < 2; i++) {
        parents[i] = w->comms[i];
        for (int k = 0; k <= i; k++) { /* the second of rank 1 is not used */
            umx_comm *made;

            assert_int_equal(umx_comm_derive(parents[i], 7, &made), UMX_OK);
            if (k == 0) {
                w->comms[i] = made;
            } else {
                umx_comm_close(made);
                umx_comm_destroy(made);
            }
        }
    }
    umx_comm_close(parents[1]);
    run_barriers(w, 3);
    for (int i = 0; i < 2; i++) {
        umx_comm_destroy(w->comms[i]);
        w->comms[i] = parents[i];
    }
}

/* Two receives are cancelled in their order: the message of the first one does
 * not go to the second, which is too short for it. */
static void
test_a_message_given_back_is_not_cut_short(void **state)
{
    world  *w   = *state;
    char   *out = malloc(LARGE), *in = malloc(LARGE), small[8];
    job     sent[2];
    receipt r[2];

    world_open(w, 2);
    memset(out, 'a', LARGE);
    recv_from(w, 1, 0, 3, UINT64_MAX, in, LARGE, &r[0]);
    recv_from(w, 1, 0, 3, UINT64_MAX, small, sizeof(small), &r[1]);
    send_to(w, 0, 1, 3, out, LARGE, &sent[0]);
    w->is_stopped[0] = true;
    for (int i = 0; i < 20 && r[0].got.length == 0; i++) {
        world_step(w);
    }
    for (int i = 0; i < 2; i++) {
        if (r[i].j.req != NULL) {
            (void)umx_request_cancel(r[i].j.req);
        }
    }
    w->is_stopped[0] = false;
    for (int i = 0; i < 2; i++) {
        (void)world_wait_one(w, &r[i].j);
    }
    if (r[0].j.status != UMX_OK) {
        recv_from(w, 1, 0, 3, UINT64_MAX, in, LARGE, &r[0]);
        assert_int_equal(world_wait_one(w, &r[0].j), UMX_OK);
    }
    assert_int_equal(r[0].got.length, LARGE);
    assert_int_equal(in[LARGE - 1], 'a');
    assert_int_equal(world_wait_one(w, &sent[0]), UMX_OK);
    free(out);
    free(in);
}

/* ---- the beginning -------------------------------------------------------
 */

static umx_status
create(world *w, int rank, const umx_comm_params *params, job *j)
{
    umx_op_params how = job_params(j);
    umx_request  *req = NULL;
    umx_status    status;

    status = umx_comm_create(w->workers[rank], params, &how, &w->comms[rank],
                             &req);
    job_posted(j, status, &req);
    return status;
}

static void
test_the_root_assigns_ranks(void **state)
{
    world *w = *state;
    job    jobs[4];
    bool   is_taken[4] = {false};

    world_workers(w, 4);
    for (int i = 3; i >= 0; i--) { /* the root comes last */
        umx_comm_params params = world_params(w, i);

        params.rank = (i == 0 || i == 2) ? i : UMX_RANK_ANY;
        create(w, i, &params, &jobs[i]);
    }
    world_wait(w, jobs, 4, UMX_OK);
    for (int i = 0; i < 4; i++) {
        int rank = umx_comm_rank(w->comms[i]);

        assert_in_range(rank, 0, 3);
        assert_false(is_taken[rank]);
        is_taken[rank] = true;
    }
    assert_int_equal(umx_comm_rank(w->comms[2]), 2);
}

/* Communicators of two names meet at one address at the same time; a third of
 * a name that is being made is refused. */
static void
test_two_names_at_one_address(void **state)
{
    world          *w = *state;
    umx_comm       *others[3];
    umx_comm_params params;
    umx_op_params   how;
    umx_request    *req = NULL;
    umx_comm       *third;
    job             jobs[6], j;

    world_workers(w, 3);
    for (int i = 0; i < 3; i++) { /* the first is late for one of them */
        params = world_params(w, i);
        params.field_mask |= UMX_COMM_FIELD_NAME;
        params.name = "one";
        assert_int_equal(create(w, i, &params, &jobs[i]), UMX_INPROGRESS);
        others[i]   = w->comms[i];
        params.name = "other";
        assert_int_equal(create(w, i, &params, &jobs[3 + i]), UMX_INPROGRESS);
        if (i == 0) {
            how = job_params(&j);
            assert_int_equal(
                umx_comm_create(w->workers[0], &params, &how, &third, &req),
                UMX_ERR_BUSY);
        }
    }
    world_wait(w, jobs, 6, UMX_OK);
    run_barriers(w, 2);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(umx_comm_name(others[i]), "one");
        assert_string_equal(umx_comm_name(w->comms[i]), "other");
        assert_int_equal(umx_comm_rank(others[i]), i);
        umx_comm_close(others[i]);
    }
    for (int i = 0; i < 3; i++) {
        umx_comm_destroy(others[i]);
    }
}

static void
test_worker_addresses(void **state)
{
    world      *w = *state;
    job         jobs[3];
    const void *address;
    size_t      len;

    world_workers(w, 3);
    assert_int_equal(umx_worker_get_address(w->workers[0], &address, &len),
                     UMX_OK);
    for (int i = 2; i >= 0; i--) {
        umx_comm_params params = {
            .rank = i, .size = 3, .root = address, .root_len = len};

        create(w, i, &params, &jobs[i]);
        for (int k = 0; k < 20; k++) {
            world_step(w);
        }
    }
    world_wait(w, jobs, 3, UMX_OK);
}

static void
test_two_with_one_rank(void **state)
{
    world *w = *state;
    job    jobs[3];

    world_workers(w, 3);
    for (int i = 0; i < 3; i++) {
        umx_comm_params params = world_params(w, (i == 2) ? 1 : i);

        create(w, i, &params, &jobs[i]);
    }
    world_wait(w, jobs, 3, UMX_ERR_REJECTED);
    for (int i = 0; i < 3; i++) {
        expect_reason(w, i, "two processes say that they are rank 1");
    }
}

static void
test_another_size(void **state)
{
    world *w = *state;
    job    jobs[2];

    world_workers(w, 2);
    for (int i = 0; i < 2; i++) {
        umx_comm_params params = world_params(w, i);

        params.size = 2 + i;
        create(w, i, &params, &jobs[i]);
    }
    world_wait(w, jobs, 2, UMX_ERR_REJECTED);
    expect_reason(w, 0, "rank 1 says that there are 3 ranks, the root 2");
    expect_reason(w, 1, "rank 1 says that there are 3 ranks, the root 2");
}

static void
test_a_rank_that_never_comes_is_named(void **state)
{
    world *w = *state;
    job    jobs[3];

    world_workers(w, 4);
    for (int i = 0; i < 3; i++) {
        umx_comm_params params = world_params(w, i);

        params.timeout_ns = 2 * SECOND_NS; /* for the three to come */
        create(w, i, &params, &jobs[i]);
    }
    world_wait(w, jobs, 3, UMX_ERR_TIMED_OUT);
    for (int i = 0; i < 3; i++) {
        expect_reason(w, i, "not: 3");
    }
}

static void
test_a_root_that_never_comes(void **state)
{
    world          *w = *state;
    job             j;
    umx_comm_params params;

    world_workers(w, 2);
    params            = world_params(w, 1);
    params.timeout_ns = SECOND_NS / 2;
    create(w, 1, &params, &j);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_TIMED_OUT);
    expect_reason(w, 1, "the root, rank 0, has not answered");
}

static void
test_a_root_that_dies_while_they_gather(void **state)
{
    world *w = *state;
    job    jobs[2];

    world_workers(w, 3);
    for (int i = 0; i < 2; i++) {
        umx_comm_params params = world_params(w, i);

        create(w, i, &params, &jobs[i]);
    }
    assert_non_null(w->comms[0]);
    assert_non_null(w->comms[1]);
    for (int i = 0; i < 10000 && umx_comm_num_arrived(w->comms[0]) < 2; i++) {
        world_step(w);
    }
    assert_int_equal(umx_comm_num_arrived(w->comms[0]), 2);
    umx_worker_destroy(w->workers[0]);
    w->workers[0] = NULL;
    assert_int_equal(world_wait_one(w, &jobs[0]), UMX_ERR_CANCELED);
    assert_true(world_wait_one(w, &jobs[1]) < 0);
    expect_reason(w, 1, "rank 0");
}

static void
test_wrong_parameters(void **state)
{
    world          *w    = *state;
    umx_request    *req  = NULL;
    umx_comm       *comm = NULL;
    umx_comm_params params;

    world_workers(w, 1);
    params      = world_params(w, 0);
    params.size = 0;
    assert_int_equal(umx_comm_create(w->workers[0], &params, NULL, &comm, &req),
                     UMX_ERR_OUT_OF_RANGE);
    params.size = 2;
    params.rank = 2;
    assert_int_equal(umx_comm_create(w->workers[0], &params, NULL, &comm, &req),
                     UMX_ERR_OUT_OF_RANGE);
    params.rank = 1;
    params.addr = NULL;
    assert_int_equal(umx_comm_create(w->workers[0], &params, NULL, &comm, &req),
                     UMX_ERR_INVALID_PARAM);
    params.root     = "nonsense";
    params.root_len = 8;
    assert_int_equal(umx_comm_create(w->workers[0], &params, NULL, &comm, &req),
                     UMX_ERR_INVALID_ADDR);
    assert_null(comm);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(test_messages_of_every_rank_to_every_rank),
        WORLD_TEST(test_any_source_takes_them_in_their_order),
        WORLD_TEST(test_tags_choose),
        WORLD_TEST(test_a_flood_of_other_tags),
        WORLD_TEST(test_a_longer_message_is_truncated),
        WORLD_TEST(test_a_cancelled_receive_takes_nothing),
        WORLD_TEST(test_a_receive_cancelled_while_bytes_come),
        WORLD_TEST(test_a_receive_cancelled_when_complete),
        WORLD_TEST(test_a_cancelled_send_is_received_whole_or_never),
        WORLD_TEST(test_the_buffer_of_a_cancelled_receive_is_free),
        WORLD_TEST(test_a_receive_cancelled_before_it_is_reported),
        WORLD_TEST(test_what_has_seen_a_withdrawn_message_finds_it_gone),
        WORLD_TEST(test_a_withdrawn_message_is_not_returned),
        WORLD_TEST(test_many_withdrawn_messages_are_forgotten),
        WORLD_TEST(test_a_rank_leaves_after_cancelled_sends),
        WORLD_TEST(test_a_receive_beyond_the_limit_is_deferred),
        WORLD_TEST(test_a_message_that_cannot_be_put_back),
        WORLD_TEST(test_a_cancelled_receive_does_not_let_others_overtake),
        WORLD_TEST(test_probes),
        WORLD_TEST(test_a_rank_that_leaves_is_named),
        WORLD_TEST(test_a_message_that_is_lost_while_its_sender_leaves),
        WORLD_TEST(test_a_rank_that_dies_while_it_leaves),
        WORLD_TEST(test_a_receive_of_any_rank_ends_with_the_last),
        WORLD_TEST(test_a_watch_ends_with_the_rank_and_takes_no_message),
        WORLD_TEST(test_a_watch_ends_with_the_communicator),
        WORLD_TEST(test_the_time_limit_is_kept),
        WORLD_TEST(test_a_rank_that_dies_ends_it_for_all),
        WORLD_TEST(test_abort_says_why),
        WORLD_TEST(test_abort_names_whose_fault_it_is),
        WORLD_TEST(test_abort_names_itself_for_what_is_of_others),
        WORLD_TEST(test_what_is_heard_is_told),
        WORLD_TEST(test_who_is_lost_may_not_be_the_cause),
        WORLD_TEST(test_who_is_lost_is_the_cause_if_nobody_says_another),
        WORLD_TEST(test_a_member_that_closes_has_left),
        WORLD_TEST(test_a_member_that_is_lost_is_suspected_before_it_is_dead),
        WORLD_TEST(test_who_was_lost_before_the_root_is_the_cause),
        WORLD_TEST(
            test_who_has_closed_before_the_root_was_lost_is_not_the_cause),
        WORLD_TEST(test_who_has_closed_before_the_root_has_is_not_the_cause),
        cmocka_unit_test(test_states_change_by_the_edges_that_are_drawn),
        WORLD_TEST(test_asking_for_an_endpoint_does_not_take_it),
        WORLD_TEST(test_a_send_to_one_that_is_lost_is_cancelled),
        WORLD_TEST(test_a_silent_rank_of_another_host_is_missed),
        WORLD_TEST(test_a_silent_rank_of_this_host_is_waited_for),
        WORLD_TEST(test_a_silent_rank_is_missed_without_the_root),
        WORLD_TEST(test_a_rank_that_was_given_up_fails),
        WORLD_TEST(test_a_rank_that_was_given_up_sends_nothing),
        WORLD_TEST(test_a_rank_that_has_not_derived_leaves),
        WORLD_TEST(test_a_rank_that_has_derived_goes_on),
        WORLD_TEST(test_a_message_given_back_is_not_cut_short),
        WORLD_TEST(test_the_root_assigns_ranks),
        WORLD_TEST(test_two_names_at_one_address),
        WORLD_TEST(test_worker_addresses),
        WORLD_TEST(test_two_with_one_rank),
        WORLD_TEST(test_another_size),
        WORLD_TEST(test_a_rank_that_never_comes_is_named),
        WORLD_TEST(test_a_root_that_never_comes),
        WORLD_TEST(test_a_root_that_dies_while_they_gather),
        WORLD_TEST(test_wrong_parameters),
    };

    return UNIT_RUN(tests);
}
