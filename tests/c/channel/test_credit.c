/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

enum {
    COUNT = 100
};

/* Eager messages that wait to be read on channel 0 of `ep`, and the bytes that
 * they are charged for. */
static unsigned
eager_held(const umx_ep *ep, size_t *bytes_p)
{
    unsigned count = 0;

    *bytes_p = 0;
    UMI_LIST_FOREACH(node, &umi_channels_of(ep)->channel0.unexpected) {
        const umx_message *message = umi_container_of(node, umx_message, node);

        if (message->charge.kind == UMI_CHARGE_EAGER) {
            count++;
            *bytes_p += message->info.length + UMI_CREDIT_OVERHEAD;
        }
    }
    return count;
}

static unsigned
announced_held(const umx_ep *ep)
{
    return ep->num_announced;
}

/* Of a channel. */
static unsigned
reserve(const pair *p)
{
    return (p->config.credit_rndv < UMI_CREDIT_RESERVE) ?
               p->config.credit_rndv :
               UMI_CREDIT_RESERVE;
}

/* Send COUNT messages to a peer that does not read, look what it holds, then
 * read. */
static void
send_and_read(pair *p, size_t len)
{
    char  *data = malloc(COUNT * (len + 1));
    char  *in   = malloc(len + 1);
    op     sends[COUNT];
    size_t bytes;

    assert_non_null(data);
    assert_non_null(in);
    for (unsigned i = 0; i < COUNT; i++) {
        fill_pattern(data + i * len, len, i);
        op_send(&sends[i], p->client, 0, pair_tag(i), data + i * len, len);
        assert_true(sends[i].status >= 0);
    }
    pair_settle(p);
    assert_true(eager_held(p->server, &bytes) <= p->config.credit_messages);
    assert_true(bytes <= p->config.credit_bytes);
    assert_true(announced_held(p->server) <=
                p->config.credit_rndv + reserve(p));
    assert_int_equal(sends[COUNT - 1].status, UMX_INPROGRESS);
    for (unsigned i = 0; i < COUNT; i++) {
        op o;

        op_recv(&o, p->server, 0, pair_any, in, len);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(o.info.tag, i);
        assert_int_equal(o.info.length, len);
        check_pattern(in, len, i);
        assert_true(eager_held(p->server, &bytes) <= p->config.credit_messages);
        assert_true(bytes <= p->config.credit_bytes);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    free(in);
    free(data);
}

static void
test_messages_are_bounded(void **state)
{
    pair *p = *state;

    p->config.credit_messages = 10;
    p->config.credit_rndv     = 5;
    pair_open(p);
    send_and_read(p, 8);
    send_and_read(p, 8);
}

static void
test_bytes_are_bounded(void **state)
{
    pair *p = *state;

    p->config.credit_bytes = 10 * 1000;
    p->config.credit_rndv  = 5;
    pair_open(p);
    send_and_read(p, 1000);
    send_and_read(p, 3333);
}

/* Nothing to announce: it waits. */
static void
test_empty_messages_wait_for_credit(void **state)
{
    pair *p = *state;

    p->config.credit_messages = 10;
    pair_open(p);
    send_and_read(p, 0);
}

static void
test_the_smallest_credit(void **state)
{
    pair *p = *state;

    p->config.credit_bytes    = 1;
    p->config.credit_messages = 2;
    p->config.credit_rndv     = 2;
    pair_open(p);
    send_and_read(p, 1);
    send_and_read(p, 300);
    send_and_read(p, 0);
}

static void
test_announcements_are_bounded(void **state)
{
    pair *p = *state;

    p->config.rndv_thresh_shm = 1000;
    p->config.rndv_thresh_net = 1000;
    p->config.credit_rndv     = 7;
    pair_open(p);
    send_and_read(p, 1000);
}

static void
test_totals_wrap(void **state)
{
    umi_counts          near        = {UINT32_MAX - 50, UINT32_MAX - 50};
    umi_endpoint_counts near_in_all = {UINT64_MAX - 20000, UINT32_MAX - 50};
    pair               *p           = *state;
    umi_channel        *tx, *rx;

    p->config.credit_bytes    = 5200;
    p->config.credit_messages = 10;
    p->config.credit_rndv     = 5;
    pair_open(p);
    tx                                  = &umi_channels_of(p->client)->channel0;
    rx                                  = &umi_channels_of(p->server)->channel0;
    tx->tx_sent                         = near;
    tx->tx_limits.messages              = near.messages + 10;
    tx->tx_limits.reserve               = near.reserve + 5;
    rx->rx_read                         = near;
    rx->rx_granted                      = near;
    umi_channels_of(p->client)->tx_sent = near_in_all;
    umi_channels_of(p->client)->tx_limit = (umi_endpoint_counts){
        near_in_all.bytes + 5200, near_in_all.rndv + 5};
    umi_channels_of(p->server)->rx_read    = near_in_all;
    umi_channels_of(p->server)->rx_granted = near_in_all;
    send_and_read(p, 8);
    send_and_read(p, 8);
}

/* A full channel does not hold another one up. */
static void
test_each_channel_has_its_own(void **state)
{
    enum {
        SENDS = 8
    };
    pair *p = *state;
    char  byte;
    op    sends[SENDS];

    p->config.credit_messages = 2;
    p->config.credit_rndv     = 2;
    pair_open(p);
    for (int i = 0; i < SENDS; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), "x", 1);
    }
    pair_settle(p);
    assert_int_equal(pair_send(p, p->client, 1, pair_tag(1), "y", 1), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 1, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 'y');
    assert_false(op_is_done(&sends[SENDS - 1]));
    for (int i = 0; i < SENDS; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1),
                         UMX_OK);
    }
    for (int i = 0; i < SENDS; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

/* Bytes are bounded in all: channels that nobody reads use them up, and then
 * every message is announced, which holds none of the others up. */
static void
test_channels_share_the_bytes(void **state)
{
    enum {
        CHANNELS = 20,
        LEN      = 1000
    };
    pair    *p = *state;
    char     data[LEN], in[LEN];
    op       sends[CHANNELS];
    unsigned done = 0;

    p->config.credit_bytes = 4 * (LEN + UMI_CREDIT_OVERHEAD);
    pair_open(p);
    fill_pattern(data, LEN, 7);
    for (uint16_t i = 0; i < CHANNELS; i++) {
        op_send(&sends[i], p->client, i, pair_tag(1), data, LEN);
        assert_true(sends[i].status >= 0);
    }
    pair_settle(p);
    for (int i = 0; i < CHANNELS; i++) {
        done += op_is_done(&sends[i]);
    }
    assert_int_equal(done, 4);
    assert_int_equal(umi_channels_of(p->server)->rx_kept.bytes,
                     p->config.credit_bytes);
    assert_int_equal(p->server->num_announced, CHANNELS - 4);
    for (uint16_t i = CHANNELS; i-- > 0;) {
        memset(in, 0, LEN);
        assert_int_equal(pair_recv(p, p->server, i, pair_any, in, LEN), UMX_OK);
        check_pattern(in, LEN, 7);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    assert_int_equal(umi_channels_of(p->server)->rx_kept.bytes, 0);
    pair_settle(p); /* the credit comes */
    op_send(&sends[0], p->client, 0, pair_tag(1), data, LEN); /* eager again */
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
}

/* A cancelled send that waits for credit was never sent, so it leaves no
 * hole. */
static void
test_a_waiting_send_can_be_cancelled(void **state)
{
    enum {
        SENDS = 8
    };
    pair *p = *state;
    char  byte;
    op    sends[SENDS];

    p->config.credit_messages = 2;
    p->config.credit_rndv     = 2;
    pair_open(p);
    for (int i = 0; i < SENDS; i++) {
        op_send(&sends[i], p->client, 0, pair_tag((uint64_t)i), "x", 1);
    }
    op_cancel(sends[6].req);
    assert_int_equal(sends[6].calls, 0);
    assert_int_equal(op_wait(p, &sends[6]), UMX_ERR_CANCELED);
    for (int i = 0; i < SENDS; i++) {
        op o;

        if (i == 6) {
            continue;
        }
        op_recv(&o, p->server, 0, pair_any, &byte, 1);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(o.info.tag, i);
    }
    for (int i = 0; i < SENDS; i++) {
        assert_int_equal(op_wait(p, &sends[i]),
                         i == 6 ? UMX_ERR_CANCELED : UMX_OK);
    }
}

/* Sends that wait when their endpoint is closed still go. */
static void
test_waiting_sends_go_before_the_goodbye(void **state)
{
    enum {
        SENDS = 20
    };
    pair *p = *state;
    char  byte;
    op    sends[SENDS], o;

    p->config.credit_messages = 2;
    p->config.credit_rndv     = 2;
    pair_open(p);
    for (int i = 0; i < SENDS; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), "x", 1);
    }
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    for (int i = 0; i < SENDS; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1),
                         UMX_OK);
    }
    assert_int_equal(op_wait(p, &o), UMX_OK);
    for (int i = 0; i < SENDS; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

/* ---- flushes --------------------------------------------------------------
 */

enum {
    SHORTS = 20
};

static const char shorts[SHORTS] = "0123456789abcdefghi";

static void
op_flush(op *o, umx_ep *ep)
{
    umx_op_params params = op_params(o);

    o->status = umx_ep_flush(ep, &params, &o->req);
    if (o->status != UMX_INPROGRESS) {
        o->req = NULL;
    }
}

/* Send short messages of which some are announced, as little as there is
 * credit. */
static void
send_shorts(pair *p, op *sends)
{
    p->config.credit_messages = 4;
    pair_open(p);
    for (unsigned i = 0; i < SHORTS; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(i), &shorts[i], 1);
    }
    pair_settle(p);
}

static void
read_short(pair *p, uint64_t tag)
{
    char byte = 0;

    assert_int_equal(pair_recv(p, p->server, 0, pair_tag(tag), &byte, 1),
                     UMX_OK);
    assert_int_equal(byte, shorts[tag]);
}

/* The program does not know which of its short messages lack credit. */
static void
check_flush(pair *p, op *sends)
{
    op flush;

    op_flush(&flush, p->client);
    for (unsigned i = 0; i < SHORTS; i++) {
        pair_settle(p);
        assert_int_equal(flush.status, UMX_INPROGRESS);
        read_short(p, i);
    }
    assert_int_equal(op_wait(p, &flush), UMX_OK);
    for (unsigned i = 0; i < SHORTS; i++) {
        assert_int_equal(sends[i].status, UMX_OK);
    }
}

static void
test_a_flush_waits_for_short_messages_that_are_announced(void **state)
{
    pair *p = *state;
    op    sends[SHORTS];

    send_shorts(p, sends);
    assert_true(
        umi_list_is_empty(&umi_channels_of(p->client)->channel0.waiting));
    check_flush(p, sends);
}

/* Most are held back first, and announced when earlier ones have been read. */
static void
test_a_flush_waits_for_short_messages_that_are_announced_later(void **state)
{
    pair *p = *state;
    op    sends[SHORTS];

    p->config.credit_rndv = 2;
    send_shorts(p, sends);
    assert_false(
        umi_list_is_empty(&umi_channels_of(p->client)->channel0.waiting));
    check_flush(p, sends);
}

/* Nor does it wait for what was sent after it, nor for what is cancelled. */
static void
test_a_flush_waits_for_no_other_short_messages(void **state)
{
    pair *p = *state;
    op    sends[SHORTS], flushes[2], later;

    send_shorts(p, sends);
    op_flush(&flushes[0], p->client);
    op_send(&later, p->client, 0, pair_tag(SHORTS), "x", 1);
    op_flush(&flushes[1], p->client);
    for (unsigned i = SHORTS; i-- > 6;) { /* in whatever order */
        read_short(p, i);
    }
    pair_settle(p);
    assert_int_equal(flushes[0].status, UMX_INPROGRESS);
    op_cancel(sends[4].req);
    op_cancel(sends[5].req);
    assert_int_equal(op_wait(p, &flushes[0]), UMX_OK);
    pair_settle(p);
    assert_int_equal(flushes[1].status, UMX_INPROGRESS);
    assert_int_equal(later.status, UMX_INPROGRESS);
    assert_int_equal(
        pair_recv(p, p->server, 0, pair_tag(SHORTS), (char[1]){0}, 1), UMX_OK);
    assert_int_equal(op_wait(p, &flushes[1]), UMX_OK);
    for (unsigned i = 0; i < SHORTS; i++) {
        (void)op_wait(p, &sends[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
        read_short(p, i);
    }
}

/* A long message waits for its receive whatever credit there is, and the
 * program that receives it may wait for the flush. */
static void
test_a_flush_does_not_wait_for_long_messages(void **state)
{
    enum {
        LEN = 4 << 20
    };
    pair *p   = *state;
    char *out = malloc(LEN), *in = malloc(LEN);
    op    sends[2], flush;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, LEN, 1);
    op_send(&sends[0], p->client, 0, pair_tag(1), out, LEN);
    op_send(&sends[1], p->client, 1, pair_tag(1), "x", 1);
    op_flush(&flush, p->client);
    assert_int_equal(op_wait(p, &flush), UMX_OK);
    assert_int_equal(sends[0].status, UMX_INPROGRESS);
    assert_int_equal(sends[1].status, UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, LEN), UMX_OK);
    check_pattern(in, LEN, 1);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    free(in);
    free(out);
}

/* Nobody ever receives them: the flush ends with the connection. */
static void
test_a_flush_ends_with_the_peer(void **state)
{
    pair *p = *state;
    op    sends[SHORTS], flush, close_op;

    send_shorts(p, sends);
    op_flush(&flush, p->client);
    op_close(&close_op, p->server, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &flush), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    for (unsigned i = 0; i < SHORTS; i++) {
        (void)op_wait(p, &sends[i]);
    }
}

static void
test_a_flush_ends_with_its_endpoint(void **state)
{
    pair *p = *state;
    op    sends[SHORTS], flush;

    send_shorts(p, sends);
    op_flush(&flush, p->client);
    umx_ep_abort(p->client);
    assert_int_equal(op_wait(p, &flush), UMX_ERR_CLOSED);
    for (unsigned i = 0; i < SHORTS; i++) {
        (void)op_wait(p, &sends[i]);
    }
}

/* ---- what is read --------------------------------------------------------
 */

/* A message that is too long for a receive keeps its credit until it is read.
 */
static void
test_messages_that_were_too_long_give_credit_back_once(void **state)
{
    pair *p = *state;
    char  in[3];
    op    o;

    p->config.credit_messages = 4;
    p->config.credit_rndv     = 2;
    pair_open(p);
    for (int i = 0; i < COUNT; i++) {
        op_send(&o, p->client, 0, pair_tag(1), "abc", 3);
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, NULL, 0),
                         UMX_ERR_MESSAGE_TRUNCATED);
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, sizeof(in)),
                         UMX_OK);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
}

/* A peer that has closed wants no credit. It may be gone before we know: then
 * there is nobody to send to, and that must not look like a failure. */
static void
test_a_closed_peer_gets_no_credit(void **state)
{
    pair *p = *state;
    char  byte;
    op    o;

    p->config.credit_messages = 4;
    pair_open(p);
    for (int i = 0; i < 4; i++) {
        op_send(&o, p->client, 0, pair_tag(1), "x", 1);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    while (!op_is_done(&o)) {
        umx_worker_poll(p->server_worker);
        umx_worker_poll(p->client_worker); /* the last to act */
    }
    for (int i = 0; i < 4; i++) {
        op_recv(&o, p->server, 0, pair_any, &byte, 1);
        assert_int_equal(o.status, UMX_OK);
    }
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_CLOSED);
}

/* ---- windows that grow ---------------------------------------------------
 */

enum {
    LEN    = 1000,
    CHARGE = LEN + UMI_CREDIT_OVERHEAD
};

/* Let the windows of the server be for four messages, and grow fourfold at
 * most; `trip_ns` as if its peer were so far away. */
static void
open_far(pair *p, uint64_t trip_ns)
{
    p->config.credit_messages     = 4;
    p->config.credit_messages_max = 16;
    p->config.credit_bytes        = 4 * CHARGE;
    p->config.credit_bytes_max    = 16 * CHARGE;
    pair_open(p);
    assert_int_equal(umi_channels_of(p->server)->trip_ns, 0);
    umi_channels_of(p->server)->trip_ns = trip_ns;
}

static void
send_and_read_each(pair *p, unsigned count)
{
    char data[LEN], in[LEN];

    for (unsigned i = 0; i < count; i++) {
        op o;

        fill_pattern(data, LEN, i);
        op_send(&o, p->client, 0, pair_tag(1), data, LEN);
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, LEN), UMX_OK);
        check_pattern(in, LEN, i);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    pair_settle(p);
}

static void
check_windows(const pair *p, unsigned count)
{
    const umi_channels *channels = umi_channels_of(p->server);

    assert_int_equal(channels->channel0.rx_window, count);
    assert_int_equal(channels->rx_window, count * CHARGE);
}

/* Send one message more than a window holds to a peer that does not read. It
 * may have read up to two messages of which it has not told yet. */
static void
check_bound(pair *p, unsigned count)
{
    char     data[LEN], in[LEN];
    op       sends[20];
    size_t   bytes;
    unsigned held;

    assert_true(count < 20);
    memset(data, 1, LEN);
    for (unsigned i = 0; i <= count; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), data, LEN);
    }
    pair_settle(p);
    held = eager_held(p->server, &bytes);
    assert_in_range(held, count - 2, count);
    assert_int_equal(announced_held(p->server), count + 1 - held);
    check_windows(p, count);
    for (unsigned i = 0; i <= count; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, LEN), UMX_OK);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

/* What is read in such a round trip is more than any window. */
static void
test_windows_of_a_far_peer_grow_to_their_bounds(void **state)
{
    open_far(*state, 1000 * SECOND_NS);
    check_windows(*state, 4);
    send_and_read_each(*state, 40);
    check_windows(*state, 16);
    check_bound(*state, 16);
}

static void
test_windows_of_a_near_peer_stay(void **state)
{
    open_far(*state, 0);
    send_and_read_each(*state, 40);
    check_bound(*state, 4);
}

/* A nanosecond is too short for anything to be read in it. */
static void
test_windows_stay_where_reading_is_slow(void **state)
{
    open_far(*state, 1);
    send_and_read_each(*state, 40);
    check_bound(*state, 4);
}

static void
test_windows_do_not_grow_beyond_lower_bounds(void **state)
{
    pair *p = *state;

    p->config.credit_messages     = 4;
    p->config.credit_messages_max = 0;
    p->config.credit_bytes        = 4 * CHARGE;
    p->config.credit_bytes_max    = 0;
    pair_open(p);
    umi_channels_of(p->server)->trip_ns = 1000 * SECOND_NS;
    send_and_read_each(p, 40);
    check_bound(p, 4);
}

/* Messages that are longer than the window are announced. */
static void
test_windows_stay_where_nothing_is_received(void **state)
{
    enum {
        SENDS = 6,
        LONG  = 8 * LEN
    };
    pair *p = *state;
    char  data[LONG], in[LONG];
    op    sends[SENDS];

    open_far(p, 1);
    memset(data, 1, LONG);
    for (int i = 0; i < SENDS; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), data, LONG);
        pair_settle(p);
    }
    assert_int_equal(announced_held(p->server), SENDS);
    check_windows(p, 4);
    for (int i = 0; i < SENDS; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, LONG),
                         UMX_OK);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

/* A program that receives all that there is now and then: long ago, each time,
 * as far as windows know. */
static void
test_windows_stay_where_bursts_are_read_after_pauses(void **state)
{
    pair         *p = *state;
    umi_channels *channels;
    char          data[LEN], in[LEN];
    op            sends[2];

    open_far(p, SECOND_NS);
    channels = umi_channels_of(p->server);
    memset(data, 1, LEN);
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 2; k++) {
            op_send(&sends[k], p->client, 0, pair_tag(1), data, LEN);
        }
        pair_settle(p);
        channels->told_ns                = 0;
        channels->pace.begun_ns          = 0;
        channels->channel0.pace.begun_ns = 0;
        for (int k = 0; k < 2; k++) {
            assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, LEN),
                             UMX_OK);
            assert_int_equal(op_wait(p, &sends[k]), UMX_OK);
        }
    }
    check_windows(p, 4);
}

/* They are not announced, and go when the peer has read others of the channel;
 * those of another channel go meanwhile. */
static void
test_short_messages_to_a_far_peer_wait_for_their_channel(void **state)
{
    pair  *p = *state;
    char   in[LEN];
    op     sends[6], other;
    size_t bytes;

    open_far(p, 1);
    umi_channels_of(p->client)->trip_ns = 1;
    for (int i = 0; i < 6; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), "abc", 3);
    }
    op_send(&other, p->client, 1, pair_tag(1), "abc", 3);
    pair_settle(p);
    assert_int_equal(eager_held(p->server, &bytes), 4);
    assert_int_equal(announced_held(p->server), 0);
    assert_int_equal(sends[4].status, UMX_INPROGRESS);
    assert_int_equal(pair_recv(p, p->server, 1, pair_any, in, LEN), UMX_OK);
    assert_int_equal(op_wait(p, &other), UMX_OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, LEN), UMX_OK);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

/* Of six messages at once two are announced for lack of credit, though receives
 * wait for all. */
static void
test_windows_grow_if_a_message_that_is_waited_for_is_announced(void **state)
{
    pair *p = *state;
    char  data[LEN], in[6][LEN];
    op    sends[6], recvs[6];

    open_far(p, 1);
    for (int i = 0; i < 6; i++) {
        op_recv(&recvs[i], p->server, 0, pair_any, in[i], LEN);
    }
    memset(data, 1, LEN);
    for (int i = 0; i < 6; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), data, LEN);
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(op_wait(p, &recvs[i]), UMX_OK);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    assert_true(umi_channels_of(p->server)->rx_window > 4 * CHARGE);
    assert_true(umi_channels_of(p->server)->channel0.rx_window > 4);
}

/* ---- the overhead of messages --------------------------------------------
 */

static bool
is_waiting(umx_ep *ep, uint16_t channel)
{
    uint32_t id = umi_header_channel_id(UMI_KIND_MESSAGE, channel);

    return !umi_list_is_empty(&umi_channel_find(ep, id)->waiting);
}

/* Send messages without bytes on `channel`, `count` or until one has to wait,
 * which `o` is then; how many went. */
static unsigned
send_empty(pair *p, op *o, uint16_t channel, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        op_send(o, p->client, channel, pair_tag(1), "", 0);
        while (!op_is_done(o)) {
            if (is_waiting(p->client, channel)) {
                return i;
            }
            pair_step(p);
        }
        assert_int_equal(o->status, UMX_OK);
    }
    return count;
}

/* Messages without bytes are kept within credit_bytes, whatever the number of
 * channels. */
static void
test_empty_messages_of_many_channels_are_bounded(void **state)
{
    enum {
        CHANNELS = 50
    };
    pair            *p = *state;
    umx_worker_stats stats;
    uint64_t         most;
    op               waiting[CHANNELS];

    p->config.credit_bytes = 1 << 20;
    pair_open(p);
    for (uint16_t i = 0; i < CHANNELS; i++) {
        (void)send_empty(p, &waiting[i], i + 1, p->config.credit_messages);
    }
    pair_settle(p);
    umx_worker_query(p->server_worker, &stats);
    most = p->config.credit_bytes / UMI_CREDIT_OVERHEAD +
           CHANNELS * UMI_CREDIT_RESERVE;
    assert_true(stats.unexpected_messages > CHANNELS * UMI_CREDIT_RESERVE);
    assert_true(stats.unexpected_messages <= most);
    assert_true(umi_channels_of(p->server)->rx_kept.bytes <=
                p->config.credit_bytes);
    umx_ep_abort(p->client);
    for (int i = 0; i < CHANNELS; i++) {
        (void)op_wait(p, &waiting[i]);
    }
}

/* One channel has used up what all share: the others go on, over their reserve,
 * as long as they are read. */
static void
test_a_channel_goes_on_over_its_reserve(void **state)
{
    enum {
        ROUNDS = 10 * UMI_CREDIT_RESERVE
    };
    pair *p = *state;
    char  in;
    op    flood[100], waiting;

    p->config.credit_bytes = 8 * UMI_CREDIT_OVERHEAD;
    p->config.credit_rndv  = UMI_CREDIT_RESERVE;
    pair_open(p);
    for (int i = 0; i < 100; i++) {
        op_send(&flood[i], p->client, 1, pair_tag(1), "xy", 2);
    }
    pair_settle(p);
    assert_int_equal(umi_channels_of(p->server)->rx_kept.rndv,
                     p->config.credit_rndv);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned len = i % 2;
        op       o;

        op_send(&o, p->client, 2, pair_tag(i), "z", len);
        assert_int_equal(pair_recv(p, p->server, 2, pair_tag(i), &in, len),
                         UMX_OK);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    assert_int_equal(send_empty(p, &waiting, 3, 100), UMI_CREDIT_RESERVE);
    umx_ep_abort(p->client);
    assert_int_equal(op_wait(p, &waiting), UMX_ERR_CANCELED);
    for (int i = 0; i < 100; i++) {
        (void)op_wait(p, &flood[i]);
    }
}

/* An active message brings a header, which is kept, too. */
static void
test_headers_count(void **state)
{
    static const char header[UMX_AM_HEADER_MAX];

    pair *p = *state;
    op    o;

    pair_open(p);
    op_am_send(&o, p->client, UMX_AM_ID_MIN, header, 1000, "abc", 3);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    pair_settle(p);
    assert_int_equal(umi_channels_of(p->server)->rx_kept.bytes,
                     1003 + UMI_CREDIT_OVERHEAD);
    assert_int_equal(umi_channels_of(p->client)->tx_sent.bytes -
                         umi_channels_of(p->server)->rx_read.bytes,
                     umi_channels_of(p->server)->rx_kept.bytes);
    op_am_recv(&o, p->server, UMX_AM_ID_MIN);
    umx_message_drop(o.message);
    assert_int_equal(umi_channels_of(p->server)->rx_kept.bytes, 0);
    assert_int_equal(umi_channels_of(p->client)->tx_sent.bytes,
                     umi_channels_of(p->server)->rx_read.bytes);
}

/* ---- peers that do not keep to their credit ------------------------------
 */

/* Handle the message `seq` of `len` bytes as if UCX had delivered it to
 * `ep`. */
static int
feed_flags(umx_ep *ep, uint32_t seq, size_t len, bool is_rndv, uint8_t flags)
{
    static uint8_t bytes[256];

    umi_header     header  = {.kind     = UMI_KIND_MESSAGE,
                              .flags    = flags,
                              .seq      = seq,
                              .endpoint = ep->base.wire_id};
    umi_am_arrival arrival = {.header     = &header,
                              .header_len = sizeof(header),
                              .data       = bytes,
                              .len        = len,
                              .way = is_rndv ? &umi_way_rndv : &umi_way_eager};

    return umi_channel_on_arrival(ep->base.worker, &arrival);
}

static int
feed(umx_ep *ep, uint32_t seq, size_t len, bool is_rndv)
{
    return feed_flags(ep, seq, len, is_rndv, 0);
}

static void
check_dropped_for_credit(pair *p)
{
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
    assert_string_equal(umx_ep_reason(p->server),
                        "a message beyond its credit");
}

/* `first` is the number of the first message: those that come early count,
 * too. */
static void
flood(pair *p, uint32_t first, size_t len, uint32_t allowed)
{
    p->config.credit_messages = 10;
    p->config.credit_bytes    = 10 * UMI_CREDIT_OVERHEAD;
    pair_open(p);
    for (uint32_t i = 0; i < allowed; i++) {
        assert_int_equal(feed(p->server, first + i, len, false),
                         UMI_AM_CONSUMED);
    }
    assert_int_equal(feed(p->server, first + allowed, len, false),
                     UMI_AM_REFUSED);
    check_dropped_for_credit(p);
}

static void
test_a_peer_that_sends_more_messages_than_its_credit_is_dropped(void **state)
{
    flood(*state, 0, 0, 10);
}

static void
test_a_peer_that_sends_more_bytes_than_its_credit_is_dropped(void **state)
{
    flood(*state, 0, 128, 8);
}

static void
test_a_peer_whose_messages_never_come_in_order_is_dropped(void **state)
{
    flood(*state, 1, 128, 8);
}

static void
test_a_peer_that_announces_more_than_its_credit_is_dropped(void **state)
{
    pair *p = *state;

    pair_open(p);
    umi_channels_of(p->server)->rx_kept.rndv = p->config.credit_rndv;
    assert_int_equal(feed(p->server, 0, 128, true), UMI_AM_REFUSED);
    check_dropped_for_credit(p);
}

static void
test_a_peer_that_exceeds_a_reserve_is_dropped(void **state)
{
    pair *p = *state;

    pair_open(p);
    for (uint32_t i = 0; i < UMI_CREDIT_RESERVE; i++) {
        assert_int_equal(feed_flags(p->server, i, 0, false, UMI_FLAG_RESERVE),
                         UMI_AM_CONSUMED);
    }
    assert_int_equal(
        feed_flags(p->server, UMI_CREDIT_RESERVE, 0, false, UMI_FLAG_RESERVE),
        UMI_AM_REFUSED);
    check_dropped_for_credit(p);
}

/* Only a message without bytes, or an announcement, is of a reserve. */
static void
test_bytes_of_a_reserve_are_refused(void **state)
{
    pair *p = *state;

    pair_open(p);
    assert_int_equal(feed_flags(p->server, 0, 1, false, UMI_FLAG_RESERVE),
                     UMI_AM_REFUSED);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
}

/* ---- windows of one endpoint ---------------------------------------------
 */

/* Messages that wait to be read on channel 0 of `ep`. */
static unsigned
held(const umx_ep *ep)
{
    umx_ep_stats stats;

    umx_ep_query(ep, &stats);
    return (unsigned)stats.unexpected_messages;
}

static void
check_window(pair *p, size_t len)
{
    static char data[1 << 20], in[1 << 20];
    op          sends[COUNT];
    umx_ep     *ends[2] = {p->client, p->server};

    for (unsigned side = 0; side < 2; side++) {
        for (unsigned i = 0; i < COUNT; i++) {
            op_send(&sends[i], ends[side], 0, pair_tag(i), data, len);
            assert_true(sends[i].status >= 0);
        }
        PAIR_UNTIL(p, held(ends[!side]) == p->window.messages);
        pair_settle(p);
        for (unsigned i = 0; i < COUNT; i++) {
            op o;

            assert_true(held(ends[!side]) <= p->window.messages);
            op_recv(&o, ends[!side], 0, pair_any, in, len);
            assert_int_equal(op_wait(p, &o), UMX_OK);
            assert_int_equal(o.info.tag, i);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
        }
    }
}

static void
test_windows_of_an_endpoint_bound_all_messages(void **state)
{
    static const size_t lens[] = {0, 1, 5000, 1 << 20};
    pair               *p      = *state;

    p->window.messages = 3;
    pair_open(p);
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        check_window(p, lens[i]);
    }
}

static void
test_a_peer_that_exceeds_a_window_is_dropped(void **state)
{
    pair *p = *state;

    p->window.messages = 2;
    pair_open(p);
    assert_int_equal(feed(p->server, 0, 0, false), UMI_AM_CONSUMED);
    assert_int_equal(feed(p->server, 1, 1, false), UMI_AM_CONSUMED);
    assert_int_equal(feed(p->server, 2, 128, true), UMI_AM_REFUSED);
    check_dropped_for_credit(p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_messages_are_bounded),
        PAIR_TEST(test_channels_share_the_bytes),
        PAIR_TEST(test_bytes_are_bounded),
        PAIR_TEST(test_empty_messages_wait_for_credit),
        PAIR_TEST(test_the_smallest_credit),
        PAIR_TEST(test_announcements_are_bounded),
        PAIR_TEST_ONCE(test_totals_wrap),
        PAIR_TEST_ONCE(test_each_channel_has_its_own),
        PAIR_TEST_ONCE(test_a_waiting_send_can_be_cancelled),
        PAIR_TEST(test_waiting_sends_go_before_the_goodbye),
        PAIR_TEST(test_a_flush_waits_for_short_messages_that_are_announced),
        PAIR_TEST(
            test_a_flush_waits_for_short_messages_that_are_announced_later),
        PAIR_TEST(test_a_flush_waits_for_no_other_short_messages),
        PAIR_TEST(test_a_flush_does_not_wait_for_long_messages),
        PAIR_TEST(test_a_flush_ends_with_the_peer),
        PAIR_TEST(test_a_flush_ends_with_its_endpoint),
        PAIR_TEST(test_messages_that_were_too_long_give_credit_back_once),
        PAIR_TEST(test_a_closed_peer_gets_no_credit),
        PAIR_TEST(test_windows_of_a_far_peer_grow_to_their_bounds),
        PAIR_TEST(test_windows_of_a_near_peer_stay),
        PAIR_TEST(test_windows_stay_where_reading_is_slow),
        PAIR_TEST_ONCE(test_windows_do_not_grow_beyond_lower_bounds),
        PAIR_TEST(test_windows_stay_where_nothing_is_received),
        PAIR_TEST_ONCE(test_windows_stay_where_bursts_are_read_after_pauses),
        PAIR_TEST(test_short_messages_to_a_far_peer_wait_for_their_channel),
        PAIR_TEST(
            test_windows_grow_if_a_message_that_is_waited_for_is_announced),
        PAIR_TEST(test_empty_messages_of_many_channels_are_bounded),
        PAIR_TEST(test_a_channel_goes_on_over_its_reserve),
        PAIR_TEST_ONCE(test_headers_count),
        PAIR_TEST_ONCE(test_a_peer_that_exceeds_a_reserve_is_dropped),
        PAIR_TEST_ONCE(test_bytes_of_a_reserve_are_refused),
        PAIR_TEST_ONCE(
            test_a_peer_that_sends_more_messages_than_its_credit_is_dropped),
        PAIR_TEST_ONCE(
            test_a_peer_that_sends_more_bytes_than_its_credit_is_dropped),
        PAIR_TEST_ONCE(
            test_a_peer_whose_messages_never_come_in_order_is_dropped),
        PAIR_TEST_ONCE(
            test_a_peer_that_announces_more_than_its_credit_is_dropped),
        PAIR_TEST(test_windows_of_an_endpoint_bound_all_messages),
        PAIR_TEST_ONCE(test_a_peer_that_exceeds_a_window_is_dropped),
    };

    return UNIT_RUN(tests);
}
