/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: channel/channels channel/lane channel/queue channel/send */
/* tests: channel/misfit channel/tagged channel/tagged_recv */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

enum {
    KIB = 1024,
    MIB = 1024 * 1024
};

/* ---- order and matching --------------------------------------------------
 */

static void
test_messages_arrive_in_order(void **state)
{
    enum {
        COUNT = 100
    };
    pair    *p = *state;
    uint32_t in;
    op       recvs[COUNT];
    uint32_t got[COUNT];

    pair_open(p);
    for (uint32_t i = 0; i < COUNT; i++) { /* half expected, half not */
        if (i < COUNT / 2) {
            op_recv(&recvs[i], p->server, 0, pair_any, &got[i], sizeof(in));
            assert_int_equal(recvs[i].status, UMX_INPROGRESS);
        }
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(
            pair_send(p, p->client, 0, pair_tag(i % 3), &i, sizeof(i)), UMX_OK);
    }
    for (uint32_t i = 0; i < COUNT / 2; i++) {
        assert_int_equal(op_wait(p, &recvs[i]), UMX_OK);
        assert_int_equal(recvs[i].calls, 1);
        assert_int_equal(recvs[i].info.seq, i);
        assert_int_equal(recvs[i].info.tag, i % 3);
        assert_int_equal(got[i], i);
    }
    for (uint32_t i = COUNT / 2; i < COUNT; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, &in, sizeof(in)),
                         UMX_OK);
        assert_int_equal(in, i);
    }
    assert_int_equal(umx_ep_recv_count(p->server), COUNT);
    assert_int_equal(umx_ep_recv_count(p->client), 0);
}

static void
send_byte(pair *p, umx_match match, char byte)
{
    assert_int_equal(pair_send(p, p->client, 0, match, &byte, 1), UMX_OK);
}

static char
recv_byte(pair *p, umx_match match)
{
    char byte = 0;

    assert_int_equal(pair_recv(p, p->server, 0, match, &byte, 1), UMX_OK);
    return byte;
}

static void
test_tags_choose_among_what_has_arrived(void **state)
{
    pair     *p    = *state;
    umx_match odd  = {.tag = 1, .mask = 1};
    umx_match none = {.tag = 99, .mask = 0};

    pair_open(p);
    send_byte(p, pair_tag(2), 'a');
    send_byte(p, pair_tag(3), 'b');
    send_byte(p, pair_untagged, 'c');
    send_byte(p, pair_tag(2), 'd');
    send_byte(p, pair_tag(4), 'e');
    pair_settle(p);

    assert_int_equal(recv_byte(p, odd), 'b');
    assert_int_equal(recv_byte(p, pair_untagged), 'c');
    assert_int_equal(recv_byte(p, pair_tag(4)), 'e');
    assert_int_equal(recv_byte(p, none), 'a'); /* a mask of 0 takes all tags */
    assert_int_equal(recv_byte(p, pair_any), 'd');
}

static void
test_tags_choose_among_posted_receives(void **state)
{
    pair *p        = *state;
    char  bytes[4] = {0};
    op    ops[4];

    pair_open(p);
    op_recv(&ops[0], p->server, 0, pair_tag(5), &bytes[0], 1);
    op_recv(&ops[1], p->server, 0, pair_untagged, &bytes[1], 1);
    op_recv(&ops[2], p->server, 0, pair_tag(5), &bytes[2], 1);
    op_recv(&ops[3], p->server, 0, pair_any, &bytes[3], 1);
    send_byte(p, pair_tag(6), 'x'); /* only ANY */
    send_byte(p, pair_tag(5), 'y'); /* the first of the two */
    send_byte(p, pair_tag(5), 'z');
    send_byte(p, pair_untagged, 'u');
    for (int i = 0; i < 4; i++) {
        assert_int_equal(op_wait(p, &ops[i]), UMX_OK);
    }
    assert_memory_equal(bytes, "yuzx", 4);
    assert_true(ops[1].info.is_untagged);
    assert_int_equal(ops[3].info.tag, 6);
}

static void
test_channels_are_independent(void **state)
{
    pair *p = *state;
    char  byte;

    pair_open(p);
    for (int i = 0; i < 3; i++) {
        byte = (char)('a' + i);
        assert_int_equal(pair_send(p, p->client, (uint16_t)(i * 30000),
                                   pair_tag(1), &byte, 1),
                         UMX_OK);
    }
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(
            pair_recv(p, p->server, (uint16_t)(i * 30000), pair_any, &byte, 1),
            UMX_OK);
        assert_int_equal(byte, 'a' + i);
    }
    assert_int_equal(umx_ep_recv_count(p->server), 1); /* channel 0 only */
}

/* Finding one does not mean walking over the others: each is in the table, and
 * none is made twice. */
static void
test_each_of_many_channels_is_found(void **state)
{
    enum {
        CHANNELS = 1000
    };
    pair        *p = *state;
    umi_channel *channels[CHANNELS];

    pair_open(p);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        uint32_t id = umi_header_channel_id(UMI_KIND_MESSAGE + i % 4,
                                            (uint16_t)(i + 1));

        assert_null(umi_channel_find(p->client, id));
        channels[i] = umi_channel_get(p->client, id);
        assert_non_null(channels[i]);
        assert_int_equal(channels[i]->id, id);
    }
    assert_int_equal(umi_channels_of(p->client)->by_id.count, CHANNELS);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        assert_ptr_equal(umi_channel_get(p->client, channels[i]->id),
                         channels[i]);
    }
    assert_int_equal(umi_channels_of(p->client)->by_id.count, CHANNELS);
    assert_ptr_equal(umi_channel_get(p->client, UMI_CHANNEL_0),
                     &umi_channels_of(p->client)->channel0);
}

static void
test_both_directions_at_once(void **state)
{
    pair *p      = *state;
    char  in[2]  = {0};
    char  out[2] = {'c', 's'};
    op    ops[2];

    pair_open(p);
    op_recv(&ops[0], p->client, 0, pair_any, &in[0], 1);
    op_recv(&ops[1], p->server, 0, pair_any, &in[1], 1);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), &out[0], 1),
                     UMX_OK);
    assert_int_equal(pair_send(p, p->server, 0, pair_tag(1), &out[1], 1),
                     UMX_OK);
    assert_int_equal(op_wait(p, &ops[0]), UMX_OK);
    assert_int_equal(op_wait(p, &ops[1]), UMX_OK);
    assert_memory_equal(in, "sc", 2);
}

/* ---- lengths -------------------------------------------------------------
 */

static const size_t lengths[] = {
    0,
    1,
    7,
    8,
    127,
    128,
    129,
    4 * KIB,
    32 * KIB - 1,
    32 * KIB,
    32 * KIB + 1,
    64 * KIB,
    256 * KIB - 1,
    256 * KIB,
    256 * KIB + 1,
    512 * KIB - 1,
    512 * KIB,
    512 * KIB + 1,
    MIB + 3,
    4 * MIB,
};

static void
send_lengths(pair *p, bool is_expected)
{
    char *out = malloc(4 * MIB);
    char *in  = malloc(4 * MIB);

    assert_non_null(out);
    assert_non_null(in);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        size_t len = lengths[i];
        op     send_op, recv_op;

        fill_pattern(out, len, (unsigned)i);
        memset(in, 0xee, 4 * MIB);
        if (is_expected) {
            op_recv(&recv_op, p->server, 0, pair_any, in, 4 * MIB);
        }
        op_send(&send_op, p->client, 0, pair_tag(i), out, len);
        if (!is_expected) {
            pair_settle(p);
            op_recv(&recv_op, p->server, 0, pair_any, in, 4 * MIB);
        }
        assert_int_equal(op_wait(p, &recv_op), UMX_OK);
        assert_int_equal(op_wait(p, &send_op), UMX_OK);
        assert_int_equal(recv_op.info.length, len);
        assert_int_equal(recv_op.info.tag, i);
        check_pattern(in, len, (unsigned)i);
        if (len < 4 * MIB) {
            assert_int_equal((unsigned char)in[len], 0xee);
        }
    }
    free(in);
    free(out);
}

static void
test_lengths_expected(void **state)
{
    pair_open(*state);
    send_lengths(*state, true);
}

static void
test_lengths_unexpected(void **state)
{
    pair_open(*state);
    send_lengths(*state, false);
}

/* Everything announced, everything eager. */
static void
test_lengths_by_rendezvous_only(void **state)
{
    pair *p = *state;

    p->config.rndv_thresh_shm = 1;
    p->config.rndv_thresh_net = 1;
    pair_open(p);
    send_lengths(p, true);
    send_lengths(p, false);
}

static void
test_lengths_eager_only(void **state)
{
    pair *p = *state;

    p->config.rndv_thresh_shm = SIZE_MAX;
    p->config.rndv_thresh_net = SIZE_MAX;
    p->config.credit_bytes    = 64 * MIB;
    pair_open(p);
    send_lengths(p, true);
    send_lengths(p, false);
}

static void
check_whole(pair *p, op *o, const char *in, size_t len)
{
    assert_int_equal(op_wait(p, o), UMX_OK);
    assert_int_equal(o->info.length, len);
    check_pattern(in, len, 3);
}

/* `len` bytes to a receive of `capacity`; expected and unexpected. */
static void
check_truncated(pair *p, size_t len, size_t capacity)
{
    char *out   = malloc(len);
    char *in    = calloc(1, capacity + 1);
    char *again = calloc(1, len);
    op    send_op, recv_op, next_op;

    assert_non_null(out);
    assert_non_null(in);
    assert_non_null(again);
    fill_pattern(out, len, 3);
    op_recv(&recv_op, p->server, 0, pair_any, in, capacity);
    op_recv(&next_op, p->server, 0, pair_any, again, len);
    op_send(&send_op, p->client, 0, pair_tag(3), out, len);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(recv_op.info.length, len);
    check_whole(p, &next_op, again, len);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);

    op_send(&send_op, p->client, 0, pair_tag(4), out, len);
    pair_settle(p);
    op_recv(&recv_op, p->server, 0, pair_any, in, capacity);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(recv_op.info.length, len);
    op_recv(&next_op, p->server, 0, pair_any, again, len);
    check_whole(p, &next_op, again, len);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);

    for (size_t i = 0; i <= capacity; i++) {
        assert_int_equal(in[i], 0);
    }
    free(again);
    free(in);
    free(out);
}

static void
test_longer_messages_are_not_written_and_not_lost(void **state)
{
    pair *p = *state;

    pair_open(p);
    check_truncated(p, 2, 1);
    check_truncated(p, 1, 0);
    check_truncated(p, 200, 100);
    check_truncated(p, 40 * KIB, 40 * KIB - 1);
    check_truncated(p, MIB, MIB - 1);
    check_truncated(p, MIB, 0);
    send_byte(p, pair_tag(1), 'a'); /* the next message is whole */
    assert_int_equal(recv_byte(p, pair_any), 'a');
}

/* ---- messages that fit no receive ----------------------------------------
 */

static void
recv_truncated(pair *p, umx_match match, size_t len)
{
    char byte = 0;
    op   o;

    op_recv(&o, p->server, 0, match, &byte, 1);
    assert_int_equal(op_wait(p, &o), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(o.info.length, len);
    assert_int_equal(byte, 0);
}

/* Nothing is left of a message that was dropped. */
static void
check_dropped(pair *p, op *send_op)
{
    assert_int_equal(op_wait(p, send_op), UMX_OK);
    PAIR_UNTIL(p, p->server->num_landing == 0);
    assert_int_equal(p->server->num_announced, 0);
    assert_true(
        umi_list_is_empty(&umi_channels_of(p->server)->channel0.unexpected));
    assert_int_equal(p->server_worker->stats->unexpected_bytes, 0);
}

/* A receive that is landing, its announcement taken by hand out of the queue:
 * deterministic where a race with the network is not. */
static void
start_landing(pair *p, op *send_op, op *recv_op, char *out, char *in,
              size_t len)
{
    fill_pattern(out, len, 5);
    op_send(send_op, p->client, 0, pair_tag(1), out, len);
    pair_settle(p);
    op_recv(recv_op, p->server, 0, pair_any, in, len);
    assert_int_equal(recv_op->status, UMX_INPROGRESS);
    assert_int_equal(p->server->num_landing, 1);
}

/* A message of `len` bytes meets receives of one byte, before or after they
 * were posted: the first ends, the second has the message behind it. */
static void
check_misfit(pair *p, size_t len, bool is_expected)
{
    uint64_t count = umx_ep_recv_count(p->server);
    char    *out   = calloc(1, len);
    char     in[2] = "";
    op       send_op, behind, recvs[2];

    assert_non_null(out);
    if (is_expected) {
        op_recv(&recvs[0], p->server, 0, pair_any, &in[0], 1);
        op_recv(&recvs[1], p->server, 0, pair_any, &in[1], 1);
    }
    op_send(&send_op, p->client, 0, pair_tag(1), out, len);
    op_send(&behind, p->client, 0, pair_tag(2), "b", 1);
    pair_settle(p);
    if (!is_expected) {
        op_recv(&recvs[0], p->server, 0, pair_any, &in[0], 1);
        op_recv(&recvs[1], p->server, 0, pair_any, &in[1], 1);
    }
    assert_int_equal(op_wait(p, &recvs[0]), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(recvs[0].info.length, len);
    assert_int_equal(op_wait(p, &recvs[1]), UMX_OK);
    assert_int_equal(in[1], 'b');
    assert_int_equal(in[0], 0);
    assert_int_equal(umx_ep_recv_count(p->server), count + 1);
    assert_int_equal(op_wait(p, &behind), UMX_OK);
    check_dropped(p, &send_op);
    free(out);
}

static void
check_misfits(pair *p)
{
    static const size_t lens[] = {2, 200, 40 * KIB, MIB};

    pair_open(p);
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        check_misfit(p, lens[i], true);
        check_misfit(p, lens[i], false);
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

/* What is dropped costs nothing: the sender goes on with as little credit. */
static void
test_dropped_messages_give_credit_back(void **state)
{
    pair *p      = *state;
    char  out[3] = "";
    op    sends[20], last, o;

    p->config.credit_messages = 4;
    p->config.credit_rndv     = 2;
    pair_open(p);
    for (int i = 0; i < 20; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), out, sizeof(out));
    }
    for (int i = 0; i < 20; i++) {
        recv_truncated(p, pair_any, sizeof(out));
    }
    op_send(&last, p->client, 0, pair_tag(2), "l", 1);
    op_recv(&o, p->server, 0, pair_any, out, 1);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(out[0], 'l');
    assert_int_equal(op_wait(p, &last), UMX_OK);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

/* A message that is refused is the next one for probes, and for receives that
 * take whatever comes. */
static void
test_a_refused_message_can_be_taken(void **state)
{
    pair         *p   = *state;
    char         *out = malloc(MIB), *in = malloc(MIB);
    umx_recv_info info;
    op            send_op, o;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, MIB, 3);
    op_send(&send_op, p->client, 0, pair_tag(1), out, MIB);
    pair_settle(p);
    recv_truncated(p, pair_any, MIB);
    assert_int_equal(umx_channel_probe(p->server, 0, &pair_any, &info), UMX_OK);
    assert_int_equal(info.length, MIB);
    op_recv_message(&o, p->server, 0, pair_any);
    assert_int_equal(o.status, UMX_OK);
    umx_message_return(o.message); /* which makes it a new one */
    recv_truncated(p, pair_any, MIB);
    op_recv_message(&o, p->server, 0, pair_any);
    assert_int_equal(o.status, UMX_OK);
    op_message_recv(&o, o.message, in, MIB);
    check_whole(p, &o, in, MIB);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    free(in);
    free(out);
}

/* Receives of other tags have nothing to do with it. */
static void
test_a_receive_of_another_tag_does_not_count(void **state)
{
    pair *p = *state;
    char  byte;
    op    send_op, o;

    pair_open(p);
    op_send(&send_op, p->client, 0, pair_tag(1), "abc", 3);
    send_byte(p, pair_tag(2), 'b');
    pair_settle(p);
    recv_truncated(p, pair_tag(1), 3);
    assert_int_equal(recv_byte(p, pair_tag(2)), 'b');
    op_recv(&o, p->server, 0, pair_tag(1), &byte, 1);
    assert_int_equal(o.status, UMX_INPROGRESS); /* waits for the next one */
    check_dropped(p, &send_op);
    send_byte(p, pair_tag(1), 'c');
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(byte, 'c');
}

/* A receive that waits when it is cancelled has met no message. One that fits
 * and is cancelled makes the message a new one, of which the next receive is
 * told; so does one whose end nobody has heard of. */
static void
test_cancelled_receives_do_not_count(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = malloc(MIB);
    char  byte;
    op    send_op, o;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    op_recv(&o, p->server, 0, pair_any, &byte, 1);
    op_cancel(o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    fill_pattern(out, MIB, 5);
    op_send(&send_op, p->client, 0, pair_tag(1), out, MIB);
    pair_settle(p);
    recv_truncated(p, pair_any, MIB);
    op_recv(&o, p->server, 0, pair_any, in, MIB);
    assert_int_equal(o.status, UMX_INPROGRESS);
    op_cancel(o.req);
    recv_truncated(p, pair_any, MIB);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    op_recv(&o, p->server, 0, pair_any, in, MIB);
    check_pattern(out, MIB, 5);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    check_pattern(in, MIB, 5);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    free(in);
    free(out);
}

static void
test_a_cancelled_refusal_does_not_count(void **state)
{
    pair *p = *state;
    char  byte, in[3];
    op    send_op, o;

    pair_open(p);
    op_recv(&o, p->server, 0, pair_any, &byte, 1);
    op_send(&send_op, p->client, 0, pair_tag(1), "abc", 3);
    while (o.req->status == UMX_INPROGRESS) { /* no callback runs */
        (void)umi_worker_progress(p->client_worker);
        (void)umi_worker_progress(p->server_worker);
    }
    assert_int_equal(o.req->status, UMX_ERR_MESSAGE_TRUNCATED);
    op_cancel(o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    recv_truncated(p, pair_any, 3);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, 3), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
}

/* A message lands in the buffer of a cancelled receive when it is dropped. */
static void
test_a_landing_message_that_fits_no_receive_is_dropped(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = malloc(MIB);
    op    send_op, first, o;
    char  byte = 0;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    start_landing(p, &send_op, &first, out, in, MIB);
    op_cancel(first.req);
    recv_truncated(p, pair_any, MIB);
    op_recv(&o, p->server, 0, pair_any, &byte, 1);
    assert_int_equal(o.status, UMX_INPROGRESS);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    check_dropped(p, &send_op);
    send_byte(p, pair_tag(2), 'z');
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(byte, 'z');
    free(in);
    free(out);
}

/* A short message does not go into an exact receive, which names it. */
static void
check_exact(pair *p, size_t len)
{
    umx_match exact = {.flags = UMX_MATCH_ANY | UMX_MATCH_EXACT};
    char     *out   = malloc(len);
    char     *in    = calloc(1, len + 1);
    op        send_op, recv_op, next_op;

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, len, 3);
    op_recv(&recv_op, p->server, 0, exact, in, len + 1);
    op_send(&send_op, p->client, 0, pair_tag(3), out, len);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_LENGTH_MISMATCH);
    assert_int_equal(recv_op.info.length, len);
    for (size_t i = 0; i <= len; i++) {
        assert_int_equal(in[i], 0);
    }
    op_recv(&next_op, p->server, 0, pair_any, in, len + 1);
    check_whole(p, &next_op, in, len);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);

    op_recv(&recv_op, p->server, 0, exact, in, len);
    op_send(&send_op, p->client, 0, pair_tag(5), out, len);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    free(in);
    free(out);
}

static void
test_exact_receives_name_short_messages(void **state)
{
    pair *p = *state;

    pair_open(p);
    check_exact(p, 0);
    check_exact(p, 5);
    check_exact(p, 40 * KIB);
    check_exact(p, MIB);
}

static void
test_null_data_is_refused_unless_empty(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    op_send(&o, p->client, 0, pair_tag(1), NULL, 1);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    op_recv(&o, p->server, 0, pair_any, NULL, 1);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), NULL, 0), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, NULL, 0), UMX_OK);
}

/* ---- probe, messages, unrecv ---------------------------------------------
 */

static void
test_probe_looks_and_takes_nothing(void **state)
{
    pair         *p     = *state;
    umx_match     seven = pair_tag(7), eight = pair_tag(8);
    umx_recv_info info;

    pair_open(p);
    assert_int_equal(umx_channel_probe(p->server, 0, &pair_any, &info),
                     UMX_ERR_NO_MESSAGE);
    send_byte(p, seven, 'a');
    send_byte(p, seven, 'b');
    pair_settle(p);
    assert_int_equal(umx_channel_probe(p->server, 0, &eight, &info),
                     UMX_ERR_NO_MESSAGE);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(umx_channel_probe(p->server, 0, &seven, &info),
                         UMX_OK);
        assert_int_equal(info.length, 1);
        assert_int_equal(info.seq, 0);
        assert_int_equal(info.tag, 7);
    }
    assert_int_equal(recv_byte(p, pair_any), 'a');
    assert_int_equal(recv_byte(p, pair_any), 'b');
    assert_int_equal(umx_channel_probe(p->server, 0, &pair_any, &info),
                     UMX_ERR_NO_MESSAGE);
}

/* Take the handle, learn the length, read. */
static void
check_message(pair *p, size_t len, bool is_expected)
{
    char *out = malloc(len + 1);
    char *in  = malloc(len + 1);
    op    send_op, message_op, recv_op;

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, len, 3);
    memset(in, 0, len + 1);
    if (is_expected) {
        op_recv_message(&message_op, p->server, 0, pair_any);
        assert_int_equal(message_op.status, UMX_INPROGRESS);
    }
    op_send(&send_op, p->client, 0, pair_tag(11), out, len);
    if (!is_expected) {
        pair_settle(p);
        op_recv_message(&message_op, p->server, 0, pair_any);
        assert_int_equal(message_op.status, UMX_OK);
    }
    assert_int_equal(op_wait(p, &message_op), UMX_OK);
    assert_int_equal(message_op.info.length, len);
    assert_int_equal(message_op.info.tag, 11);
    if (len > 0) {
        op_message_recv(&recv_op, message_op.message, in, len - 1);
        assert_int_equal(recv_op.status, UMX_ERR_BUFFER_TOO_SMALL);
    }
    op_message_recv(&recv_op, message_op.message, in, len + 1);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, len, 3);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    free(in);
    free(out);
}

static void
test_a_message_is_taken_before_its_bytes(void **state)
{
    static const size_t sizes[] = {0, 1, 128, 129, 40 * KIB, MIB};
    pair               *p       = *state;

    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        check_message(p, sizes[i], true);
        check_message(p, sizes[i], false);
    }
    assert_int_equal(umx_ep_recv_count(p->server), 12);
}

static void
test_a_returned_message_is_where_it_was(void **state)
{
    static const size_t sizes[] = {1, 300, 40 * KIB, MIB};
    pair               *p       = *state;
    char               *data    = malloc(MIB);

    assert_non_null(data);
    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        op sends[3], first, second;

        fill_pattern(data, sizes[i], 1);
        for (uint64_t j = 0; j < 3; j++) {
            op_send(&sends[j], p->client, 0, pair_tag(j), data, sizes[i]);
        }
        pair_settle(p);
        op_recv_message(&first, p->server, 0, pair_any);
        op_recv_message(&second, p->server, 0, pair_any);
        assert_int_equal(second.info.tag, 1);
        umx_message_return(second.message);
        umx_message_return(first.message);
        for (uint64_t j = 0; j < 3; j++) {
            op o;

            op_recv(&o, p->server, 0, pair_any, data, MIB);
            assert_int_equal(op_wait(p, &o), UMX_OK);
            assert_int_equal(o.info.tag, j);
            assert_int_equal(o.info.length, sizes[i]);
            check_pattern(data, sizes[i], 1);
        }
        for (uint64_t j = 0; j < 3; j++) {
            assert_int_equal(op_wait(p, &sends[j]), UMX_OK);
        }
    }
    assert_int_equal(umx_ep_recv_count(p->server), 12);
    free(data);
}

/* A returned message goes to a receive that waits for such a message. */
static void
test_a_returned_message_meets_a_posted_receive(void **state)
{
    pair *p    = *state;
    char  byte = 0;
    op    taken, posted;

    pair_open(p);
    send_byte(p, pair_tag(1), 'q');
    pair_settle(p);
    op_recv_message(&taken, p->server, 0, pair_any);
    op_recv(&posted, p->server, 0, pair_any, &byte, 1);
    assert_int_equal(posted.status, UMX_INPROGRESS);
    umx_message_return(taken.message);
    assert_int_equal(op_wait(p, &posted), UMX_OK);
    assert_int_equal(byte, 'q');
}

static void
test_unrecv_puts_back_in_order(void **state)
{
    pair      *p      = *state;
    char       byte   = 0;
    umx_buffer buffer = umx_host_buffer(&byte, 1);
    op         ops[3];
    char       bytes[3];

    pair_open(p);
    for (char c = 'a'; c <= 'd'; c++) {
        send_byte(p, pair_tag((uint64_t)c), c);
    }
    pair_settle(p);
    for (int i = 0; i < 3; i++) {
        op_recv(&ops[i], p->server, 0, pair_any, &bytes[i], 1);
        assert_int_equal(ops[i].status, UMX_OK);
    }
    assert_int_equal(umx_ep_recv_count(p->server), 3);
    for (int i = 1; i < 4; i++) { /* b, c, a */
        byte = bytes[i % 3];
        assert_int_equal(
            umx_channel_unrecv(p->server, 0, &ops[i % 3].info, &buffer),
            UMX_OK);
    }
    assert_int_equal(umx_ep_recv_count(p->server), 0);
    for (char c = 'a'; c <= 'd'; c++) {
        op o;

        op_recv(&o, p->server, 0, pair_any, &byte, 1);
        assert_int_equal(o.status, UMX_OK);
        assert_int_equal(byte, c);
        assert_int_equal(o.info.tag, c);
    }
    buffer.memtype = UMX_MEMTYPE_CUDA;
    assert_int_equal(umx_channel_unrecv(p->server, 0, &ops[0].info, &buffer),
                     UMX_ERR_UNSUPPORTED);
    buffer.len = 0; /* shorter than the message */
    assert_int_equal(umx_channel_unrecv(p->server, 0, &ops[0].info, &buffer),
                     UMX_ERR_INVALID_PARAM);
}

/* ---- cancelling ----------------------------------------------------------
 */

static void
test_a_cancelled_receive_takes_nothing(void **state)
{
    pair *p    = *state;
    char  byte = 0, other = 0;
    op    cancelled, kept;

    pair_open(p);
    op_recv(&cancelled, p->server, 0, pair_any, &byte, 1);
    op_recv(&kept, p->server, 0, pair_any, &other, 1);
    op_cancel(cancelled.req);
    op_cancel(cancelled.req); /* idempotent */
    assert_int_equal(cancelled.calls, 0);
    send_byte(p, pair_tag(1), 'k');
    assert_int_equal(op_wait(p, &cancelled), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &kept), UMX_OK);
    assert_int_equal(byte, 0);
    assert_int_equal(other, 'k');
    assert_int_equal(cancelled.calls, 1);
}

static void
test_a_cancelled_recv_message_takes_nothing(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    op_recv_message(&o, p->server, 0, pair_any);
    op_cancel(o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    send_byte(p, pair_tag(1), 'k');
    assert_int_equal(recv_byte(p, pair_any), 'k');
}

typedef struct chain {
    umx_request *victim;
} chain;

static void
cancel_other(umx_request *req, umx_status status, void *arg)
{
    chain *c = arg;

    (void)req;
    assert_int_equal(status, UMX_OK);
    umx_request_cancel(c->victim);
}

/* Two receives are complete when the callback of the first one cancels the
 * second, whose message goes back to the queue. */
static void
test_cancel_between_completion_and_report(void **state)
{
    pair         *p        = *state;
    char          bytes[2] = {0};
    chain         c;
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = cancel_other, .arg = &c};
    umx_buffer    buffer = umx_host_buffer(&bytes[0], 1);
    umx_match     match  = pair_tag(1);
    umx_request  *first;
    umx_recv_info info;
    op            o;

    pair_open(p);
    pair_settle(p); /* lanes are connected: sends finish at once */
    assert_int_equal(
        umx_channel_recv(p->server, 0, &match, &buffer, &params, &first, &info),
        UMX_INPROGRESS);
    op_recv(&o, p->server, 0, pair_tag(2), &bytes[1], 1);
    c.victim = o.req;
    /* Messages that are sent one after the other arrive in one burst. */
    for (uint64_t tag = 1; tag <= 2; tag++) {
        char byte = (char)tag;
        op   send_op;

        op_send(&send_op, p->client, 0, pair_tag(tag), &byte, 1);
        assert_int_equal(send_op.status, UMX_OK);
    }
    PAIR_UNTIL(p, umi_channels_of(p->server)->channel0.rx_seq == 2);
    (void)op_wait(p, &o);
    if (o.status == UMX_ERR_CANCELED) {
        assert_int_equal(recv_byte(p, pair_tag(2)), 2);
    } else {
        assert_int_equal(o.status, UMX_OK); /* came in two bursts */
    }
    assert_int_equal(umx_ep_recv_count(p->server), 2);
}

/* The cancelled receive is longer than its message. */
static void
test_cancel_between_completion_and_report_of_a_short_message(void **state)
{
    pair         *p        = *state;
    char          byte     = 0;
    char          bytes[2] = {0};
    chain         c;
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = cancel_other, .arg = &c};
    umx_buffer    buffer = umx_host_buffer(&byte, 1);
    umx_match     first  = pair_tag(1);
    umx_match     second = pair_tag(2);
    umx_request  *req;
    umx_recv_info info;
    op            o, sent;

    pair_open(p);
    pair_settle(p); /* lanes are connected: sends finish at once */
    second.flags = UMX_MATCH_EXACT;
    assert_int_equal(
        umx_channel_recv(p->server, 0, &first, &buffer, &params, &req, &info),
        UMX_INPROGRESS);
    op_recv(&o, p->server, 0, second, bytes, 2);
    c.victim = o.req;
    for (uint64_t tag = 1; tag <= 2; tag++) {
        op_send(&sent, p->client, 0, pair_tag(tag), "s", 1);
        assert_int_equal(sent.status, UMX_OK);
    }
    (void)op_wait(p, &o);
    if (o.status != UMX_ERR_CANCELED) {
        assert_int_equal(o.status, UMX_ERR_LENGTH_MISMATCH); /* two bursts */
    }
    assert_int_equal(recv_byte(p, pair_tag(2)), 's');
    assert_int_equal(umx_ep_recv_count(p->server), 2);
}

static void
test_cancel_of_a_landing_receive_keeps_the_message(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = malloc(MIB), *again = calloc(1, MIB);
    op    send_op, first, second;

    assert_non_null(out);
    assert_non_null(in);
    assert_non_null(again);
    pair_open(p);
    start_landing(p, &send_op, &first, out, in, MIB);
    assert_int_equal(umx_ep_recv_count(p->server), 1);
    op_cancel(first.req);
    assert_int_equal(umx_ep_recv_count(p->server), 0);
    send_byte(p, pair_tag(2), 'z');
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    memset(in, 0, MIB); /* ours again */

    op_recv(&second, p->server, 0, pair_any, again, MIB);
    assert_int_equal(op_wait(p, &second), UMX_OK);
    assert_int_equal(second.info.tag, 1);
    check_pattern(again, MIB, 5);
    assert_int_equal(recv_byte(p, pair_any), 'z');
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    free(again);
    free(in);
    free(out);
}

/* The next receive claims the message while it still lands. */
static void
test_a_landing_message_can_be_claimed(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = malloc(MIB), *again = calloc(1, MIB);
    op    send_op, first, claimant, behind;
    char  byte = 0;

    assert_non_null(out);
    assert_non_null(in);
    assert_non_null(again);
    pair_open(p);
    start_landing(p, &send_op, &first, out, in, MIB);
    op_cancel(first.req);
    op_recv(&claimant, p->server, 0, pair_any, again, MIB);
    assert_int_equal(claimant.status, UMX_INPROGRESS);
    op_recv(&behind, p->server, 0, pair_any, &byte, 1);
    send_byte(p, pair_tag(2), 'z');
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &claimant), UMX_OK);
    assert_int_equal(claimant.info.tag, 1);
    check_pattern(again, MIB, 5);
    assert_int_equal(op_wait(p, &behind), UMX_OK);
    assert_int_equal(byte, 'z');
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    free(again);
    free(in);
    free(out);
}

/* ... and so can a claimant be cancelled: the message goes to the next. */
static void
test_a_cancelled_claimant_passes_the_message_on(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = malloc(MIB), *again = calloc(1, MIB);
    op    send_op, first, claimant, next, last;

    assert_non_null(out);
    assert_non_null(in);
    assert_non_null(again);
    pair_open(p);
    start_landing(p, &send_op, &first, out, in, MIB);
    op_cancel(first.req);
    op_recv(&claimant, p->server, 0, pair_any, again, MIB);
    op_recv_message(&next, p->server, 0, pair_any);
    op_cancel(claimant.req);
    assert_int_equal(op_wait(p, &claimant), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &next), UMX_OK);
    assert_int_equal(next.info.length, MIB);
    op_message_recv(&last, next.message, again, MIB);
    assert_int_equal(op_wait(p, &last), UMX_OK);
    check_pattern(again, MIB, 5);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(umx_ep_recv_count(p->server), 1);
    free(again);
    free(in);
    free(out);
}

/* A receive that is too small for a message which lands elsewhere is told at
 * once; the message is for the next one. */
static void
test_a_claimant_can_be_too_small(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = malloc(MIB);
    op    send_op, first, claimant;
    char  byte = 0;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    start_landing(p, &send_op, &first, out, in, MIB);
    op_cancel(first.req);
    op_recv(&claimant, p->server, 0, pair_any, &byte, 1);
    assert_int_equal(op_wait(p, &claimant), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(claimant.info.length, MIB);
    op_recv(&claimant, p->server, 0, pair_any, in, MIB);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &claimant), UMX_OK);
    check_pattern(in, MIB, 5);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    free(in);
    free(out);
}

/* message_recv() of an announced message, cancelled while landing. */
static void
test_cancel_of_a_landing_message_recv(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = calloc(1, MIB);
    op    send_op, taken, landing, again;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, MIB, 5);
    op_send(&send_op, p->client, 0, pair_tag(1), out, MIB);
    pair_settle(p);
    op_recv_message(&taken, p->server, 0, pair_any);
    op_message_recv(&landing, taken.message, in, MIB);
    assert_int_equal(landing.status, UMX_INPROGRESS);
    op_cancel(landing.req);
    assert_int_equal(op_wait(p, &landing), UMX_ERR_CANCELED);
    memset(in, 0, MIB);
    op_recv(&again, p->server, 0, pair_any, in, MIB);
    assert_int_equal(op_wait(p, &again), UMX_OK);
    check_pattern(in, MIB, 5);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    free(in);
    free(out);
}

/* ---- sequence numbers ----------------------------------------------------
 */

static void
test_sequence_numbers_wrap(void **state)
{
    enum {
        COUNT = 8
    };
    pair *p = *state;

    pair_open(p);
    umi_channels_of(p->client)->channel0.tx_seq = UINT32_MAX - 2;
    umi_channels_of(p->server)->channel0.rx_seq = UINT32_MAX - 2;
    for (char i = 0; i < COUNT; i++) {
        send_byte(p, pair_tag(1), i);
    }
    pair_settle(p);
    for (char i = 0; i < COUNT; i++) {
        op   o;
        char byte;

        op_recv(&o, p->server, 0, pair_any, &byte, 1);
        assert_int_equal(o.status, UMX_OK);
        assert_int_equal(byte, i);
        assert_int_equal(o.info.seq, (uint32_t)(UINT32_MAX - 2 + (uint32_t)i));
    }
}

/* A message as UCX would hand it over. */
static int
feed(umx_ep *ep, uint32_t seq, uint64_t tag, void *data, size_t len)
{
    umi_header     header  = {.kind     = UMI_KIND_MESSAGE,
                              .seq      = seq,
                              .tag      = tag,
                              .endpoint = ep->base.wire_id};
    umi_am_arrival arrival = {
        .header     = &header,
        .header_len = sizeof(header),
        .way        = &umi_way_eager,
        .data       = data,
        .len        = len,
    };

    return umi_channel_on_arrival(ep->base.worker, &arrival);
}

static void
test_early_messages_wait_for_their_turn(void **state)
{
    static const uint32_t orders[][4] = {
        {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 0, 3, 1}, {0, 2, 3, 1}};
    pair *p = *state;

    pair_open(p);
    umi_channels_of(p->server)->channel0.rx_seq = UINT32_MAX -
                                                  5; /* the numbers wrap */
    for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
        uint32_t base = umi_channels_of(p->server)->channel0.rx_seq;
        char     posted[2];
        op       ops[2];

        op_recv(&ops[0], p->server, 0, pair_tag(1), &posted[0], 1);
        op_recv(&ops[1], p->server, 0, pair_any, &posted[1], 1);
        for (int j = 0; j < 4; j++) {
            char byte = (char)('a' + orders[i][j]);

            assert_int_equal(
                feed(p->server, base + orders[i][j], orders[i][j], &byte, 1),
                UMI_AM_CONSUMED);
        }
        assert_int_equal(op_wait(p, &ops[0]), UMX_OK);
        assert_int_equal(op_wait(p, &ops[1]), UMX_OK);
        assert_int_equal(posted[0], 'b'); /* by tag */
        assert_int_equal(posted[1], 'a'); /* in order */
        assert_int_equal(recv_byte(p, pair_any), 'c');
        assert_int_equal(recv_byte(p, pair_any), 'd');
        assert_true(
            umi_list_is_empty(&umi_channels_of(p->server)->channel0.parked));
    }
}

static void
check_protocol_failure(pair *p)
{
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
    assert_true(strlen(umx_ep_reason(p->server)) > 0);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) != UMX_EP_OPEN);
}

static void
test_a_message_that_comes_twice_breaks_the_connection(void **state)
{
    pair *p    = *state;
    char  byte = 'a';

    pair_open(p);
    assert_int_equal(feed(p->server, 0, 0, &byte, 1), UMI_AM_CONSUMED);
    assert_int_equal(feed(p->server, 0, 0, &byte, 1), UMI_AM_REFUSED);
    check_protocol_failure(p);
    assert_int_equal(recv_byte(p, pair_any), 'a'); /* the first one is good */
}

static void
test_an_early_message_that_comes_twice_breaks_the_connection(void **state)
{
    pair *p    = *state;
    char  byte = 'a';

    pair_open(p);
    (void)feed(p->server, 1, 0, &byte, 1);
    (void)feed(p->server, 1, 0, &byte, 1);
    (void)feed(p->server, 0, 0, &byte, 1);
    check_protocol_failure(p);
}

static void
test_a_malformed_header_is_refused_and_counted(void **state)
{
    pair          *p       = *state;
    umi_header     header  = {.kind = 77};
    umi_am_arrival arrival = {
        .header = &header, .header_len = sizeof(header), .way = &umi_way_eager};
    umx_worker_stats stats;

    pair_open(p);
    header.endpoint = p->server->base.wire_id;
    assert_int_equal(umi_channel_on_arrival(p->server_worker, &arrival),
                     UMI_AM_REFUSED);
    header.kind        = UMI_KIND_MESSAGE;
    arrival.header_len = sizeof(header) - 1;
    assert_int_equal(umi_channel_on_arrival(p->server_worker, &arrival),
                     UMI_AM_REFUSED);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.protocol_errors, 2);
    pair_settle(p); /* no connection is to blame */
}

static void
count_line(int level, const char *text, void *arg)
{
    (void)level;
    (void)text;
    ++*(unsigned *)arg;
}

/* A peer cannot use an endpoint whose number it was not told; each attempt is
 * counted, and the log says so. */
static void
test_guessed_endpoint_numbers_are_refused_and_counted(void **state)
{
    pair          *p       = *state;
    umi_header     header  = {.kind = UMI_KIND_MESSAGE};
    umi_am_arrival arrival = {
        .header = &header, .header_len = sizeof(header), .way = &umi_way_eager};
    unsigned         lines = 0;
    umx_worker_stats stats;

    pair_open(p);
    umx_log_set(count_line, &lines);
    for (unsigned bit = 0; bit < 64; bit++) {
        header.endpoint = p->server->base.wire_id ^ UINT64_C(1) << bit;
        assert_int_equal(umi_channel_on_arrival(p->server_worker, &arrival),
                         UMI_AM_REFUSED);
        arrival.header_len = sizeof(header.endpoint);
        arrival.header     = &header.endpoint;
        assert_int_equal(
            umi_endpoint_control_on_arrival(p->server_worker, &arrival),
            UMI_AM_REFUSED);
        arrival.header_len = sizeof(header);
        arrival.header     = &header;
    }
    umx_log_set(NULL, NULL);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.stray_messages, 2 * 64);
    assert_int_equal(lines, 1);
    pair_settle(p);
}

/* Data that comes late is not counted as an attack. */
static void
test_data_of_an_endpoint_that_is_gone_is_refused(void **state)
{
    pair          *p       = *state;
    umi_header     header  = {.kind = UMI_KIND_MESSAGE};
    umi_am_arrival arrival = {
        .header = &header, .header_len = sizeof(header), .way = &umi_way_eager};
    umx_worker_stats stats;

    pair_open(p);
    header.endpoint = p->server->base.wire_id;
    umx_ep_destroy(p->server);
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, umi_list_is_empty(&p->server_worker->eps));
    p->server = NULL;
    assert_int_equal(umi_channel_on_arrival(p->server_worker, &arrival),
                     UMI_AM_REFUSED);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.stray_messages, 0);
}

/* ---- the end, in the middle of something ---------------------------------
 */

/* The peer's last message is being pulled in when its reader gives up. */
static void
test_abort_while_the_last_message_is_pulled_in(void **state)
{
    enum {
        LEN = 16 * MIB
    };
    pair *p   = *state;
    char *out = calloc(1, LEN);
    op    sent, closed;

    assert_non_null(out);
    pair_open(p);
    op_send(&sent, p->client, 0, pair_tag(1), out, LEN);
    op_close(&closed, p->client, UMX_TIMEOUT_INFINITE);
    PAIR_UNTIL(p, p->server->num_landing != 0 || op_is_done(&closed));
    umx_ep_abort(p->server);
    (void)op_wait(p, &sent);
    (void)op_wait(p, &closed);
    assert_int_equal(sent.calls, 1);
    assert_int_equal(closed.calls, 1);
    free(out);
}

/* ---- the limit of channels -----------------------------------------------
 */

enum {
    CHANNELS_MAX = 5
};

static void
check_protocol_error(pair *p, const char *reason)
{
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
    assert_string_equal(umx_ep_reason(p->server), reason);
}

/* All kinds count, and what is sent on the channels that are in use goes. */
static void
test_channels_beyond_the_limit_fail_at_their_sender(void **state)
{
    pair *p = *state;
    char  byte;
    op    o;

    p->config.channels_max = CHANNELS_MAX;
    pair_open(p);
    assert_int_equal(umx_ep_channels_max(p->client), CHANNELS_MAX);
    for (uint16_t i = 0; i < CHANNELS_MAX; i++) {
        if (i % 2 == 0) {
            op_send(&o, p->client, 100 + i, pair_tag(1), "x", 1);
        } else {
            op_am_send(&o, p->client, 100 + i, "h", 1, "x", 1);
        }
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    op_send(&o, p->client, 1, pair_tag(1), "x", 1);
    assert_int_equal(o.status, UMX_ERR_CHANNEL_LIMIT);
    op_am_send(&o, p->client, 200, "h", 1, "x", 1);
    assert_int_equal(o.status, UMX_ERR_CHANNEL_LIMIT);
    op_send(&o, p->client, 0, pair_tag(1), "y", 1);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 'y');
    op_send(&o, p->client, 100, pair_tag(1), "z", 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pair_recv(p, p->server, 100, pair_any, &byte, 1),
                         UMX_OK);
    }
    assert_int_equal(byte, 'z');
    assert_int_equal(pair_send(p, p->server, 300, pair_any, "w", 1), UMX_OK);
}

/* The number comes with WELCOME: what was sent too much before ends then. */
static void
test_channels_used_while_connecting_are_limited_later(void **state)
{
    pair *p = *state;
    char  byte;
    op    sends[CHANNELS_MAX + 2];

    p->config.channels_max = CHANNELS_MAX;
    pair_listen(p);
    pair_connect(p, 0);
    for (uint16_t i = 0; i < CHANNELS_MAX + 2; i++) {
        op_send(&sends[i], p->client, i + 1, pair_tag(1), "x", 1);
        assert_int_equal(sends[i].status, UMX_INPROGRESS);
    }
    PAIR_UNTIL(p, p->server != NULL);
    for (uint16_t i = 0; i < CHANNELS_MAX + 2; i++) {
        assert_int_equal(op_wait(p, &sends[i]),
                         i < CHANNELS_MAX ? UMX_OK : UMX_ERR_CHANNEL_LIMIT);
    }
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
    assert_int_equal(pair_recv(p, p->server, CHANNELS_MAX, pair_any, &byte, 1),
                     UMX_OK);
}

/* Handle a message on channel `number` as if UCX had delivered it. */
static int
feed_on_channel(umx_ep *ep, uint16_t number)
{
    umi_header     header  = {.kind     = UMI_KIND_MESSAGE,
                              .channel  = number,
                              .endpoint = ep->base.wire_id};
    umi_am_arrival arrival = {.header     = &header,
                              .header_len = sizeof(header),
                              .way        = &umi_way_eager,
                              .data       = "x",
                              .len        = 1};

    return umi_channel_on_arrival(ep->base.worker, &arrival);
}

/* The limit holds within one burst, before the connection can be dropped. */
static void
test_a_peer_that_uses_more_channels_is_dropped(void **state)
{
    pair *p = *state;

    p->config.channels_max = CHANNELS_MAX;
    pair_open(p);
    assert_non_null(
        umi_channel_get(p->server, umi_header_channel_id(UMI_KIND_MESSAGE, 1)));
    for (uint16_t i = 0; i < CHANNELS_MAX; i++) {
        assert_int_equal(feed_on_channel(p->server, i + 1), UMI_AM_CONSUMED);
    }
    for (uint16_t i = CHANNELS_MAX; i < 1000; i++) {
        assert_int_equal(feed_on_channel(p->server, i + 1), UMI_AM_REFUSED);
    }
    assert_int_equal(umi_channels_of(p->server)->by_id.count, CHANNELS_MAX);
    check_protocol_error(p, "more channels than are accepted");
}

static void
test_a_goodbye_that_names_more_channels_is_refused(void **state)
{
    pair       *p       = *state;
    umi_control goodbye = {.kind = UMI_GOODBYE};

    p->config.channels_max = CHANNELS_MAX;
    pair_open(p);
    goodbye.u.goodbye.count = CHANNELS_MAX + 1;
    for (uint16_t i = 0; i <= CHANNELS_MAX; i++) {
        goodbye.u.goodbye.entries[i].channel = umi_header_channel_id(
            UMI_KIND_STREAM, i);
    }
    (void)pair_feed_control(p->server, &goodbye);
    check_protocol_error(p, "more channels than are accepted");
}

static void
test_credit_for_an_unused_channel_is_refused(void **state)
{
    pair       *p      = *state;
    umi_control credit = {.kind = UMI_CREDIT};

    pair_open(p);
    credit.u.credit.channel = umi_header_channel_id(UMI_KIND_MESSAGE, 7);
    (void)pair_feed_control(p->server, &credit);
    check_protocol_error(p, "credit for a channel that is not in use");
    assert_int_equal(umi_channels_of(p->server)->by_id.count, 0);
}

static void
test_the_hash_of_tags_does_not_change(void **state)
{
    (void)state;
    /* Peers of another version, in another process, must get the same. */
    assert_true(umx_tag_hash("abc", 3) == umi_siphash("abc", 3));
    assert_true(umx_tag_hash("abc", 3) != umx_tag_hash("abd", 3));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_messages_arrive_in_order),
        PAIR_TEST(test_tags_choose_among_what_has_arrived),
        PAIR_TEST(test_tags_choose_among_posted_receives),
        PAIR_TEST(test_channels_are_independent),
        PAIR_TEST_ONCE(test_each_of_many_channels_is_found),
        PAIR_TEST(test_both_directions_at_once),
        PAIR_TEST(test_lengths_expected),
        PAIR_TEST(test_lengths_unexpected),
        PAIR_TEST(test_lengths_by_rendezvous_only),
        PAIR_TEST(test_lengths_eager_only),
        PAIR_TEST(test_longer_messages_are_not_written_and_not_lost),
        PAIR_TEST(test_a_message_that_fits_no_receive_is_dropped),
        PAIR_TEST(test_an_announced_message_that_fits_no_receive_is_dropped),
        PAIR_TEST(test_dropped_messages_give_credit_back),
        PAIR_TEST(test_a_refused_message_can_be_taken),
        PAIR_TEST(test_a_receive_of_another_tag_does_not_count),
        PAIR_TEST(test_cancelled_receives_do_not_count),
        PAIR_TEST(test_a_cancelled_refusal_does_not_count),
        PAIR_TEST(test_a_landing_message_that_fits_no_receive_is_dropped),
        PAIR_TEST(test_exact_receives_name_short_messages),
        PAIR_TEST_ONCE(test_null_data_is_refused_unless_empty),
        PAIR_TEST_ONCE(test_probe_looks_and_takes_nothing),
        PAIR_TEST(test_a_message_is_taken_before_its_bytes),
        PAIR_TEST(test_a_returned_message_is_where_it_was),
        PAIR_TEST_ONCE(test_a_returned_message_meets_a_posted_receive),
        PAIR_TEST_ONCE(test_unrecv_puts_back_in_order),
        PAIR_TEST(test_a_cancelled_receive_takes_nothing),
        PAIR_TEST_ONCE(test_a_cancelled_recv_message_takes_nothing),
        PAIR_TEST(test_cancel_between_completion_and_report),
        PAIR_TEST(test_cancel_between_completion_and_report_of_a_short_message),
        PAIR_TEST(test_cancel_of_a_landing_receive_keeps_the_message),
        PAIR_TEST(test_a_landing_message_can_be_claimed),
        PAIR_TEST(test_a_cancelled_claimant_passes_the_message_on),
        PAIR_TEST(test_a_claimant_can_be_too_small),
        PAIR_TEST(test_cancel_of_a_landing_message_recv),
        PAIR_TEST(test_sequence_numbers_wrap),
        PAIR_TEST(test_early_messages_wait_for_their_turn),
        PAIR_TEST_ONCE(test_a_message_that_comes_twice_breaks_the_connection),
        PAIR_TEST_ONCE(
            test_an_early_message_that_comes_twice_breaks_the_connection),
        PAIR_TEST_ONCE(test_a_malformed_header_is_refused_and_counted),
        PAIR_TEST_ONCE(test_guessed_endpoint_numbers_are_refused_and_counted),
        PAIR_TEST_ONCE(test_data_of_an_endpoint_that_is_gone_is_refused),
        PAIR_TEST(test_abort_while_the_last_message_is_pulled_in),
        PAIR_TEST(test_channels_beyond_the_limit_fail_at_their_sender),
        PAIR_TEST(test_channels_used_while_connecting_are_limited_later),
        PAIR_TEST_ONCE(test_a_peer_that_uses_more_channels_is_dropped),
        PAIR_TEST_ONCE(test_a_goodbye_that_names_more_channels_is_refused),
        PAIR_TEST_ONCE(test_credit_for_an_unused_channel_is_refused),
        cmocka_unit_test(test_the_hash_of_tags_does_not_change),
    };

    return UNIT_RUN(tests);
}
