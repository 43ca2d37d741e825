/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: channel/stream_recv channel/stream_send */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "channel/stream.h"

enum {
    KIB = 1024,
    MIB = 1024 * 1024,
    BIG = 5 * MIB + 3 /* several pieces */
};

static char out[BIG], in[BIG];

static void
op_write(op *o, umx_ep *ep, const void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    op_posted(o, umx_stream_send(ep, &buffer, &params, &o->req));
}

static void
op_read(op *o, umx_ep *ep, void *data, size_t len, unsigned flags)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    op_posted(o,
              umx_stream_recv(ep, &buffer, flags, &params, &o->req, &o->info));
}

/* How many bytes a receive of at most `len` gives. */
static size_t
pair_read(pair *p, umx_ep *ep, void *data, size_t len, unsigned flags)
{
    op o;

    op_read(&o, ep, data, len, flags);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    return o.info.length;
}

/* Receive exactly `len` bytes of `out` from `at` on, in any portions. */
static void
read_out(pair *p, umx_ep *ep, size_t at, size_t len, size_t portion)
{
    while (len != 0) {
        size_t count = pair_read(p, ep, in, portion < len ? portion : len, 0);

        assert_in_range(count, 1, portion);
        assert_memory_equal(in, out + at, count);
        at += count;
        len -= count;
    }
}

static void
check_nothing_there(umx_ep *ep)
{
    op o;

    op_read(&o, ep, in, 1, 0);
    assert_int_equal(o.status, UMX_INPROGRESS);
    op_cancel(o.req);
    while (!op_is_done(&o)) {
        (void)umx_worker_poll(umx_ep_worker(ep));
    }
    assert_int_equal(o.status, UMX_ERR_CANCELED);
}

/* ---- bytes ---------------------------------------------------------------
 */

static void
test_bytes_of_every_size_arrive(void **state)
{
    static const size_t sizes[] = {
        1, 100, 8 * KIB, 64 * KIB - 1, 64 * KIB, 512 * KIB, MIB, MIB + 1, BIG};
    pair *p = *state;

    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        op o;

        op_write(&o, p->client, out, sizes[i]);
        assert_int_equal(
            pair_read(p, p->server, in, sizes[i], UMX_STREAM_WAITALL),
            sizes[i]);
        assert_memory_equal(in, out, sizes[i]);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    check_nothing_there(p->server);
}

static void
test_a_posted_receive_gets_every_size(void **state)
{
    static const size_t sizes[] = {1, 64 * KIB - 1, 64 * KIB, MIB, BIG};
    pair               *p       = *state;

    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        op send, recv;

        op_read(&recv, p->server, in, sizes[i], UMX_STREAM_WAITALL);
        assert_int_equal(recv.status, UMX_INPROGRESS);
        op_write(&send, p->client, out, sizes[i]);
        assert_int_equal(op_wait(p, &recv), UMX_OK);
        assert_int_equal(recv.info.length, sizes[i]);
        assert_memory_equal(in, out, sizes[i]);
        assert_int_equal(op_wait(p, &send), UMX_OK);
    }
}

static void
test_one_send_many_receives(void **state)
{
    static const size_t sizes[] = {1000, 64 * KIB - 1, 64 * KIB, BIG};
    pair               *p       = *state;

    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        op o;

        op_write(&o, p->client, out, sizes[i]);
        read_out(p, p->server, 0, sizes[i], 1 + sizes[i] / 7);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
}

static void
test_many_sends_one_receive(void **state)
{
    enum {
        COUNT = 100,
        SIZE  = 999
    };
    pair *p = *state;
    op    o[COUNT];

    pair_open(p);
    for (int i = 0; i < COUNT; i++) {
        op_write(&o[i], p->client, out + i * SIZE, SIZE);
    }
    assert_int_equal(
        pair_read(p, p->server, in, (size_t)COUNT * SIZE, UMX_STREAM_WAITALL),
        COUNT * SIZE);
    assert_memory_equal(in, out, (size_t)COUNT * SIZE);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(op_wait(p, &o[i]), UMX_OK);
    }
}

static void
test_a_receive_takes_what_is_there(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    op_write(&o, p->client, out, 10);
    op_write(&o, p->client, out + 10, 10);
    pair_settle(p);
    assert_int_equal(pair_read(p, p->server, in, 100, 0), 20);
    assert_memory_equal(in, out, 20);
}

static void
test_nothing_is_sent_for_no_bytes(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    op_write(&o, p->client, NULL, 0);
    assert_int_equal(o.status, UMX_OK);
    assert_int_equal(pair_read(p, p->server, NULL, 0, 0), 0);
    pair_settle(p);
    check_nothing_there(p->server);
}

static void
test_receives_are_served_in_order(void **state)
{
    pair *p = *state;
    op    o[4], send;

    pair_open(p);
    for (size_t i = 0; i < 4; i++) {
        op_read(&o[i], p->server, in + i * 10, 10,
                i % 2 ? UMX_STREAM_WAITALL : 0);
    }
    op_write(&send, p->client, out, 35);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(i == 3 ? o[3].status : op_wait(p, &o[i]),
                         i == 3 ? UMX_INPROGRESS : UMX_OK);
    }
    op_write(&send, p->client, out + 35, 5);
    assert_int_equal(op_wait(p, &o[3]), UMX_OK);
    assert_memory_equal(in, out, 40);
}

static void
test_both_ways_and_channels_beside(void **state)
{
    pair *p = *state;
    op    o[2];

    pair_open(p);
    op_write(&o[0], p->client, out, BIG);
    op_write(&o[1], p->server, out, 100);
    pair_settle(p); /* nobody reads */
    assert_int_equal(pair_read(p, p->client, in, 100, UMX_STREAM_WAITALL), 100);
    read_out(p, p->server, 0, BIG, BIG);
    assert_int_equal(op_wait(p, &o[0]), UMX_OK);
}

static void
test_sends_of_a_connecting_endpoint_wait(void **state)
{
    pair *p = *state;
    op    o;

    pair_listen(p);
    pair_connect(p, 0);
    op_write(&o, p->client, out, BIG);
    assert_int_equal(o.status, UMX_INPROGRESS);
    PAIR_UNTIL(p, p->server != NULL);
    read_out(p, p->server, 0, BIG, BIG);
    assert_int_equal(op_wait(p, &o), UMX_OK);
}

/* ---- flow control --------------------------------------------------------
 */

static void
test_an_unread_stream_stops_its_sender(void **state)
{
    enum {
        COUNT = 300
    };
    pair *p = *state;
    op    o[COUNT];

    p->config.credit_messages = 16;
    p->config.credit_bytes    = 64 * KIB;
    p->config.credit_rndv     = 2;
    pair_open(p);
    for (size_t i = 0; i < COUNT; i++) {
        op_write(&o[i], p->client, out + i * 1000, 1000);
    }
    pair_settle(p);
    assert_int_equal(o[COUNT - 1].status, UMX_INPROGRESS);
    /* Eager ones, announced ones and those of the channel's reserve. */
    assert_in_range(p->server_worker->stats->unexpected_messages, 1,
                    16 + 2 + 2);
    read_out(p, p->server, 0, (size_t)COUNT * 1000, 777);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(op_wait(p, &o[i]), UMX_OK);
    }
}

/* ---- the end -------------------------------------------------------------
 */

static void
test_a_shut_down_stream_ends_behind_its_bytes(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    op_write(&o, p->client, out, 100);
    assert_int_equal(umx_stream_shutdown(p->client), UMX_OK);
    assert_int_equal(umx_stream_shutdown(p->client), UMX_OK);
    assert_int_equal(pair_read(p, p->server, in, 200, UMX_STREAM_WAITALL), 100);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pair_read(p, p->server, in, 200, 0), 0);
    }
    op_write(&o, p->client, out, 1);
    assert_int_equal(o.status, UMX_ERR_CLOSED);
    op_write(&o, p->server, out, 100); /* the other way is open */
    assert_int_equal(pair_read(p, p->client, in, 100, UMX_STREAM_WAITALL), 100);
    pair_settle(p);
}

static void
test_the_end_wakes_receives(void **state)
{
    pair *p = *state;
    op    o[2], send;

    pair_open(p);
    op_read(&o[0], p->server, in, 100, UMX_STREAM_WAITALL);
    op_read(&o[1], p->server, in + 100, 100, 0);
    op_write(&send, p->client, out, 10);
    assert_int_equal(umx_stream_shutdown(p->client), UMX_OK);
    assert_int_equal(op_wait(p, &o[0]), UMX_OK);
    assert_int_equal(o[0].info.length, 10);
    assert_int_equal(op_wait(p, &o[1]), UMX_OK);
    assert_int_equal(o[1].info.length, 0);
}

static void
test_a_graceful_close_is_the_end(void **state)
{
    static const size_t sizes[] = {100, 64 * KIB, BIG};
    pair               *p       = *state;
    op                  o[3], half, close;

    pair_open(p);
    for (size_t i = 0; i < 3; i++) {
        memcpy(in, out, 1);
        op_write(&o[i], p->client, out, sizes[i]);
    }
    op_read(&half, p->client, in, 10, 0);
    op_close(&close, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &close), UMX_OK);
    assert_int_equal(op_wait(p, &half), UMX_ERR_PEER_CLOSED);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(op_wait(p, &o[i]), UMX_OK);
        read_out(p, p->server, 0, sizes[i], 300 * KIB);
    }
    assert_int_equal(pair_read(p, p->server, in, 10, 0), 0);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_CLOSED);
    assert_int_equal(pair_read(p, p->server, in, 10, UMX_STREAM_WAITALL), 0);
    op_read(&half, p->client, in, 10, 0);
    assert_int_equal(half.status, UMX_ERR_CLOSED);
    op_write(&half, p->server, out, 10);
    assert_int_equal(half.status, UMX_ERR_PEER_CLOSED);
    assert_int_equal(umx_stream_shutdown(p->server), UMX_ERR_PEER_CLOSED);
}

static void
test_a_close_ends_what_the_peer_waits_for(void **state)
{
    pair *p = *state;
    op    o[2], send, close;

    pair_open(p);
    op_read(&o[0], p->server, in, BIG, UMX_STREAM_WAITALL);
    op_read(&o[1], p->server, in, 10, 0);
    op_write(&send, p->client, out, 2 * MIB);
    op_close(&close, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &o[0]), UMX_OK);
    assert_int_equal(o[0].info.length, 2 * MIB);
    assert_memory_equal(in, out, 2 * MIB);
    assert_int_equal(op_wait(p, &o[1]), UMX_OK);
    assert_int_equal(o[1].info.length, 0);
    assert_int_equal(op_wait(p, &close), UMX_OK);
    assert_int_equal(op_wait(p, &send), UMX_OK);
}

static void
test_bytes_after_the_end_are_refused(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    assert_int_equal(umx_stream_shutdown(p->client), UMX_OK);
    umi_channel_get(p->client, UMI_STREAM_0)->is_shut = false;
    op_write(&o, p->client, out, 1);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_string_equal(umx_ep_reason(p->server),
                        "bytes after the end of a stream");
}

/* ---- cancelling ----------------------------------------------------------
 */

static void
test_a_cancelled_receive_leaves_no_trace(void **state)
{
    pair *p = *state;
    op    first, second, send;

    pair_open(p);
    op_read(&first, p->server, in, 10, 0);
    op_read(&second, p->server, in + 10, 10, UMX_STREAM_WAITALL);
    op_cancel(first.req);
    op_write(&send, p->client, out, 10);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &second), UMX_OK);
    assert_memory_equal(in + 10, out, 10);
}

/* Sizes that are copied, land, and are pulled. */
static const size_t halves[] = {10, 70 * KIB, 2 * MIB};

static void
test_a_half_filled_receive_gives_its_bytes_back(void **state)
{
    pair *p = *state;

    pair_open(p);
    for (int i = 0; i < 3; i++) {
        size_t half = halves[i];
        op     recv, send;

        op_read(&recv, p->server, in, BIG, UMX_STREAM_WAITALL);
        op_write(&send, p->client, out, half);
        assert_int_equal(op_wait(p, &send), UMX_OK);
        pair_settle(p);
        assert_int_equal(recv.status, UMX_INPROGRESS);
        op_cancel(recv.req);
        assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
        op_write(&send, p->client, out + half, half);
        read_out(p, p->server, 0, 2 * half, 1 + half / 3);
        assert_int_equal(op_wait(p, &send), UMX_OK);
    }
}

static void
test_the_next_receive_gets_what_a_cancelled_one_had(void **state)
{
    pair *p = *state;
    op    first, second, send;

    pair_open(p);
    op_read(&first, p->server, in, 100, UMX_STREAM_WAITALL);
    op_read(&second, p->server, in + 100, 50, UMX_STREAM_WAITALL);
    op_write(&send, p->client, out, 60);
    pair_settle(p);
    op_cancel(first.req);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &second), UMX_OK);
    assert_memory_equal(in + 100, out, 50);
    read_out(p, p->server, 50, 10, 100);
}

/* The announcement has been answered, and the bytes are not in. */
static void
test_a_receive_cancelled_while_bytes_land(void **state)
{
    pair *p       = *state;
    int   landing = 0;

    pair_open(p);
    for (int round = 0; round < 20; round++) {
        op recv, send, next;

        op_read(&recv, p->server, in, BIG, UMX_STREAM_WAITALL);
        op_write(&send, p->client, out, BIG);
        assert_true(send.status >= 0);
        while (recv.req != NULL &&
               umi_stream_of(recv.req)->all.num_landing == 0) {
            (void)umx_worker_poll(p->client_worker);
            (void)umx_worker_poll(p->server_worker);
        }
        if (recv.req != NULL) {
            landing++;
            op_cancel(recv.req);
            op_read(&next, p->server, in, 1, UMX_STREAM_WAITALL);
            assert_int_equal(op_wait(p, &next), UMX_OK);
            assert_int_equal(in[0], out[0]);
            assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
            read_out(p, p->server, 1, BIG - 1, BIG);
        }
        assert_int_equal(op_wait(p, &send), UMX_OK);
    }
    assert_true(landing > 0);
    check_nothing_there(p->server);
}

static void
test_a_receive_cancelled_between_completion_and_report(void **state)
{
    pair *p = *state;
    op    recv, send;

    pair_open(p);
    op_read(&recv, p->server, in, 10, UMX_STREAM_WAITALL);
    op_write(&send, p->client, out, 10);
    assert_non_null(recv.req);
    assert_true(send.status >= 0);
    while (recv.req->status == UMX_INPROGRESS) {
        (void)umi_worker_progress(p->client_worker);
        (void)umi_worker_progress(p->server_worker);
    }
    op_cancel(recv.req);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    read_out(p, p->server, 0, 10, 10);
}

static void
unread(umx_ep *ep, const op *o, const void *data)
{
    umx_buffer buffer = umx_host_buffer(data, o->info.length);

    assert_int_equal(umx_stream_unrecv(ep, &o->info, &buffer), UMX_OK);
}

static void
test_bytes_put_back_return_to_their_place(void **state)
{
    pair *p = *state;
    op    o[3], send;

    pair_open(p);
    op_write(&send, p->client, out, 30);
    for (size_t i = 0; i < 3; i++) {
        op_read(&o[i], p->server, in + i * 10, 10, UMX_STREAM_WAITALL);
        assert_int_equal(op_wait(p, &o[i]), UMX_OK);
    }
    unread(p->server, &o[1], in + 10);
    unread(p->server, &o[2], in + 20);
    unread(p->server, &o[0], in);
    read_out(p, p->server, 0, 30, 7);
}

/* The piece that they come from is still there, read in part. */
static void
test_bytes_put_back_come_before_the_rest_of_their_piece(void **state)
{
    pair *p = *state;
    op    o[2], send;

    pair_open(p);
    op_write(&send, p->client, out, 100);
    for (size_t i = 0; i < 2; i++) {
        op_read(&o[i], p->server, in + i * 30, 30, UMX_STREAM_WAITALL);
        assert_int_equal(op_wait(p, &o[i]), UMX_OK);
    }
    unread(p->server, &o[1], in + 30);
    read_out(p, p->server, 30, 20, 10);
    read_out(p, p->server, 50, 50, 50);
}

/* A receive that has begun with later bytes starts anew. */
static void
test_bytes_put_back_come_before_those_of_a_waiting_receive(void **state)
{
    pair *p = *state;
    op    first, second, send;

    pair_open(p);
    op_write(&send, p->client, out, 10);
    op_read(&first, p->server, in, 10, UMX_STREAM_WAITALL);
    assert_int_equal(op_wait(p, &first), UMX_OK);
    op_read(&second, p->server, in + 10, 30, UMX_STREAM_WAITALL);
    op_write(&send, p->client, out + 10, 10);
    pair_settle(p);
    unread(p->server, &first, in);
    op_write(&send, p->client, out + 20, 10);
    assert_int_equal(op_wait(p, &second), UMX_OK);
    assert_memory_equal(in + 10, out, 30);
}

static void
test_put_back_is_checked(void **state)
{
    pair         *p      = *state;
    umx_recv_info info   = {.length = 11};
    umx_buffer    buffer = umx_host_buffer(in, 10);

    pair_open(p);
    assert_int_equal(umx_stream_unrecv(p->server, &info, &buffer),
                     UMX_ERR_INVALID_PARAM);
    umx_ep_abort(p->server);
    info.length = 10;
    assert_int_equal(umx_stream_unrecv(p->server, &info, &buffer),
                     UMX_ERR_CLOSED);
}

/* ---- cancelled sends -----------------------------------------------------
 */

static void
test_a_send_of_which_nothing_has_left_is_withdrawn(void **state)
{
    enum {
        UNREAD = 2 + 2 + 2 /* eager, announced, and the reserve */
    };
    static const size_t sizes[] = {100, BIG};
    pair               *p       = *state;
    op                  fill[UNREAD], o[2], after;

    p->config.credit_messages = 2;
    p->config.credit_rndv     = 2;
    pair_open(p);
    for (int i = 0; i < UNREAD; i++) {
        op_write(&fill[i], p->client, out, 100);
    }
    for (int i = 0; i < 2; i++) {
        op_write(&o[i], p->client, out, sizes[i]);
        op_cancel(o[i].req);
    }
    op_write(&after, p->client, out + 200, 100);
    assert_int_equal(op_wait(p, &o[0]), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &o[1]), UMX_ERR_CANCELED);
    for (int i = 0; i < UNREAD; i++) {
        read_out(p, p->server, 0, 100, 100);
        assert_int_equal(op_wait(p, &fill[i]), UMX_OK);
    }
    read_out(p, p->server, 200, 100, 100);
    assert_int_equal(op_wait(p, &after), UMX_OK);
}

static void
test_a_cancelled_send_that_has_begun_is_received(void **state)
{
    pair *p = *state;
    op    o;

    p->config.credit_rndv = 2;
    pair_open(p);
    op_write(&o, p->client, out, BIG);
    op_cancel(o.req);
    memset(out, 0xdd, BIG);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    fill_pattern(out, sizeof(out), 1);
    read_out(p, p->server, 0, BIG, BIG);
}

/* ---- failures ------------------------------------------------------------
 */

static void
test_bad_arguments(void **state)
{
    pair      *p      = *state;
    umx_buffer device = {.data = in, .len = 10, .memtype = UMX_MEMTYPE_CUDA};
    op         o;

    pair_open(p);
    op_read(&o, p->server, NULL, 10, 0);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    op_write(&o, p->server, NULL, 10);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    op_write(&o, p->server, NULL, BIG);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    assert_int_equal(
        umx_stream_recv(p->server, &device, 0, NULL, &o.req, &o.info),
        UMX_ERR_UNSUPPORTED);
}

static void
test_what_has_arrived_can_be_read_after_a_failure(void **state)
{
    pair *p = *state;
    op    half, behind, send[3];

    pair_open(p);
    op_write(&send[0], p->client, out, 100);
    op_read(&half, p->server, in, 200, UMX_STREAM_WAITALL);
    op_read(&behind, p->server, in + 500, 40, 0);
    PAIR_UNTIL(p, umi_stream_of(half.req)->filled == 100);
    umx_ep_abort(p->client);
    assert_int_equal(op_wait(p, &half), UMX_ERR_CONNECTION_RESET);
    assert_int_equal(op_wait(p, &behind), UMX_OK);
    assert_int_equal(behind.info.length, 40);
    assert_memory_equal(in + 500, out, 40);
    read_out(p, p->server, 40, 60, 30);
    op_read(&half, p->server, in, 1, 0);
    assert_int_equal(half.status, UMX_ERR_CONNECTION_RESET);
    op_write(&half, p->server, out, 1);
    assert_int_equal(half.status, UMX_ERR_CONNECTION_RESET);
    op_read(&half, p->client, in, 1, 0);
    assert_int_equal(half.status, UMX_ERR_CLOSED);
}

/* Bytes that stay with a dead sender: those behind them must not follow what
 * was before. */
static void
test_nothing_is_read_behind_a_hole(void **state)
{
    pair *p = *state;
    op    send[3], o;

    pair_open(p);
    op_write(&send[0], p->client, out, 100);
    op_write(&send[1], p->client, out + 100, MIB);
    op_write(&send[2], p->client, out, 100);
    pair_settle(p);
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_true(op_wait(p, &send[1]) < 0);
    op_read(&o, p->server, in, 1000, 0);
    assert_int_equal(o.status, UMX_OK);
    assert_int_equal(o.info.length, 100);
    op_read(&o, p->server, in, 1000, 0);
    assert_int_equal(o.status, UMX_ERR_CONNECTION_RESET);
}

static void
test_an_abort_while_bytes_land(void **state)
{
    pair *p = *state;

    pair_open(p);
    for (int side = 0; side < 2; side++) {
        op recv, next, send;

        op_read(&recv, p->server, in, BIG, UMX_STREAM_WAITALL);
        op_read(&next, p->server, in, 10, 0);
        op_write(&send, p->client, out, BIG);
        while (recv.req != NULL &&
               umi_stream_of(recv.req)->all.num_landing == 0) {
            (void)umx_worker_poll(p->client_worker);
            (void)umx_worker_poll(p->server_worker);
        }
        umx_ep_abort(side ? p->server : p->client);
        (void)op_wait(p, &recv);
        assert_true(op_wait(p, &next) < 0);
        (void)op_wait(p, &send);
        umx_ep_destroy(p->client);
        umx_ep_destroy(p->server);
        p->client = p->server = NULL;
        pair_connect(p, 0);
        PAIR_UNTIL(p, p->server != NULL &&
                          umx_ep_get_state(p->client) == UMX_EP_OPEN);
    }
}

static unsigned num_lost;

static void
on_lost(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    (void)arg;
    assert_int_equal(status, UMX_ERR_CONNECTION_RESET);
    num_lost++;
}

static void
lose_all(umx_ep *ep)
{
    UMI_LIST_FOREACH(node, &ep->base.inflight) {
        umi_request_lose(umi_channel_request_at(node),
                         UMX_ERR_CONNECTION_RESET);
    }
}

static void
test_a_part_that_is_lost_is_reported_once(void **state)
{
    pair         *p      = *state;
    umx_buffer    target = umx_host_buffer(in, BIG);
    umx_buffer    source = umx_host_buffer(out, BIG);
    op            recv, send;
    umx_op_params params;

    pair_open(p);
    num_lost       = 0;
    params         = op_params(&recv);
    params.on_lost = on_lost;
    params.field_mask |= UMX_OP_FIELD_ON_LOST;
    op_posted(&recv, umx_stream_recv(p->server, &target, UMX_STREAM_WAITALL,
                                     &params, &recv.req, &recv.info));
    (void)op_params(&send);
    params.arg = &send;
    op_posted(&send, umx_stream_send(p->client, &source, &params, &send.req));
    lose_all(p->client);
    assert_int_equal(num_lost, 1);
    while (recv.req != NULL && umi_stream_of(recv.req)->all.num_landing == 0) {
        (void)umx_worker_poll(p->client_worker);
        (void)umx_worker_poll(p->server_worker);
    }
    if (recv.req != NULL) {
        lose_all(p->server);
        lose_all(p->server);
        assert_int_equal(num_lost, 2);
    }
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    assert_int_equal(op_wait(p, &send), UMX_OK);
}

static void
test_giving_endpoints_back_with_bytes_unread(void **state)
{
    pair *p = *state;
    op    send[2], half;

    pair_open(p);
    op_write(&send[0], p->client, out, 100);
    op_write(&send[1], p->client, out, BIG);
    op_read(&half, p->server, in, 1000, UMX_STREAM_WAITALL);
    pair_settle(p);
    umx_ep_destroy(p->server);
    p->server = NULL;
    (void)op_wait(p, &half);
    (void)op_wait(p, &send[1]);
}

static void
test_destroying_a_worker_with_all_under_way(void **state)
{
    pair *p = *state;
    op    send, recv[2];

    pair_open(p);
    op_read(&recv[0], p->server, in, BIG, UMX_STREAM_WAITALL);
    op_read(&recv[1], p->server, in, 10, 0);
    op_write(&send, p->client, out, BIG);
    for (int i = 0; i < 10; i++) {
        (void)umx_worker_poll(p->client_worker);
        (void)umx_worker_poll(p->server_worker);
    }
    umx_ep_abort(p->server);
    umx_ep_abort(p->client);
    (void)op_wait(p, &recv[0]);
    (void)op_wait(p, &recv[1]);
    (void)op_wait(p, &send);
}

/* ---- random programs -----------------------------------------------------
 */

enum {
    PROGRAM_STEPS = 200,
    MAX_READS     = 4,
    MAX_WRITES    = 6
};

typedef struct reading {
    op     o;
    char  *data;
    size_t len;
} reading;

typedef struct program {
    pair    *p;
    unsigned seed;
    size_t   written; /* bytes of the pattern */
    size_t   read;
    op       writes[MAX_WRITES];
    char    *sent[MAX_WRITES];
    reading  reads[MAX_READS];
    int      first, count; /* of `reads`, a ring */
} program;

static unsigned
draw(program *g, unsigned limit)
{
    g->seed = g->seed * 1103515245u + 12345u;
    return (g->seed >> 8) % limit;
}

static size_t
draw_size(program *g)
{
    static const size_t sizes[] = {
        1,        7,         100, 3000,    64 * KIB - 1,
        64 * KIB, 100 * KIB, MIB, MIB + 9, 3 * MIB};

    return sizes[draw(g, sizeof(sizes) / sizeof(*sizes))];
}

static char
pattern(size_t at)
{
    return (char)(at * 7 + (at >> 9) + (at >> 17));
}

static void
write_some(program *g)
{
    for (int i = 0; i < MAX_WRITES; i++) {
        size_t len = draw_size(g);

        if (!op_is_done(&g->writes[i])) {
            continue;
        }
        free(g->sent[i]);
        g->sent[i] = malloc(len);
        assert_non_null(g->sent[i]);
        for (size_t at = 0; at < len; at++) {
            g->sent[i][at] = pattern(g->written + at);
        }
        g->written += len;
        op_write(&g->writes[i], g->p->client, g->sent[i], len);
        assert_true(g->writes[i].status >= 0);
        return;
    }
}

static void
read_some(program *g)
{
    reading *r = &g->reads[(g->first + g->count) % MAX_READS];

    if (g->count == MAX_READS) {
        return;
    }
    g->count++;
    r->len  = draw_size(g);
    r->data = malloc(r->len);
    assert_non_null(r->data);
    op_read(&r->o, g->p->server, r->data, r->len,
            draw(g, 2) ? UMX_STREAM_WAITALL : 0);
    assert_true(r->o.status >= 0);
}

/* Cancel the last reads, behind which no other read has got bytes: bytes that
 * go back must be read before those that follow in the stream. */
static void
cancel_reads(program *g)
{
    for (int i = g->count; i-- > 0;) {
        reading *r = &g->reads[(g->first + i) % MAX_READS];

        if (op_is_done(&r->o)) {
            return;
        }
        op_cancel(r->o.req);
    }
}

static void
check_reads(program *g)
{
    while (g->count != 0) {
        reading *r = &g->reads[g->first];

        if (!op_is_done(&r->o)) {
            return;
        }
        if (r->o.status == UMX_OK) {
            for (size_t at = 0; at < r->o.info.length; at++) {
                if (r->data[at] != pattern(g->read + at)) {
                    fail_msg("byte %zu is wrong", g->read + at);
                }
            }
            assert_int_equal(r->o.info.tag, g->read);
            g->read += r->o.info.length;
        } else {
            assert_int_equal(r->o.status, UMX_ERR_CANCELED);
        }
        free(r->data);
        g->first = (g->first + 1) % MAX_READS;
        g->count--;
    }
}

static void
poll_some(program *g)
{
    for (unsigned i = draw(g, 20); i != 0; i--) {
        (void)umx_worker_poll(g->p->client_worker);
        (void)umx_worker_poll(g->p->server_worker);
    }
}

static void
read_rest(program *g)
{
    while (g->read != g->written) {
        size_t left = g->written - g->read;
        size_t len  = (left < BIG) ? left : BIG;

        assert_int_equal(
            pair_read(g->p, g->p->server, in, len, UMX_STREAM_WAITALL), len);
        for (size_t at = 0; at < len; at++) {
            assert_int_equal(in[at], pattern(g->read + at));
        }
        g->read += len;
    }
}

static void
run_program(program *g)
{
    pair *p = g->p;

    for (int i = 0; i < PROGRAM_STEPS; i++) {
        switch (draw(g, 8)) {
        case 0:
        case 1:
            write_some(g);
            break;
        case 2:
        case 3:
        case 4:
            read_some(g);
            break;
        case 5:
            cancel_reads(g);
            break;
        default:
            poll_some(g);
            break;
        }
        check_reads(g);
    }
    cancel_reads(g);
    PAIR_UNTIL(p, (check_reads(g), g->count == 0));
    read_rest(g);
    for (int i = 0; i < MAX_WRITES; i++) {
        assert_int_equal(op_wait(p, &g->writes[i]), UMX_OK);
        free(g->sent[i]);
        g->sent[i] = NULL;
    }
    check_nothing_there(p->server);
}

static void
test_random_programs(void **state)
{
    pair   *p = *state;
    program g = {.p = p};

    p->config.credit_messages = 8;
    p->config.credit_bytes    = 256 * KIB;
    p->config.credit_rndv     = 3;
    pair_open(p);
    for (unsigned seed = 1; seed <= 4; seed++) {
        g.seed = seed;
        run_program(&g);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_bytes_of_every_size_arrive),
        PAIR_TEST(test_a_posted_receive_gets_every_size),
        PAIR_TEST(test_one_send_many_receives),
        PAIR_TEST(test_many_sends_one_receive),
        PAIR_TEST(test_a_receive_takes_what_is_there),
        PAIR_TEST_ONCE(test_nothing_is_sent_for_no_bytes),
        PAIR_TEST(test_receives_are_served_in_order),
        PAIR_TEST(test_both_ways_and_channels_beside),
        PAIR_TEST_ONCE(test_sends_of_a_connecting_endpoint_wait),
        PAIR_TEST(test_an_unread_stream_stops_its_sender),
        PAIR_TEST(test_a_shut_down_stream_ends_behind_its_bytes),
        PAIR_TEST(test_the_end_wakes_receives),
        PAIR_TEST(test_a_graceful_close_is_the_end),
        PAIR_TEST(test_a_close_ends_what_the_peer_waits_for),
        PAIR_TEST_ONCE(test_bytes_after_the_end_are_refused),
        PAIR_TEST(test_a_cancelled_receive_leaves_no_trace),
        PAIR_TEST(test_a_half_filled_receive_gives_its_bytes_back),
        PAIR_TEST(test_the_next_receive_gets_what_a_cancelled_one_had),
        PAIR_TEST(test_a_receive_cancelled_while_bytes_land),
        PAIR_TEST(test_a_receive_cancelled_between_completion_and_report),
        PAIR_TEST(test_bytes_put_back_return_to_their_place),
        PAIR_TEST(test_bytes_put_back_come_before_those_of_a_waiting_receive),
        PAIR_TEST(test_bytes_put_back_come_before_the_rest_of_their_piece),
        PAIR_TEST_ONCE(test_put_back_is_checked),
        PAIR_TEST(test_a_send_of_which_nothing_has_left_is_withdrawn),
        PAIR_TEST(test_a_cancelled_send_that_has_begun_is_received),
        PAIR_TEST_ONCE(test_bad_arguments),
        PAIR_TEST(test_what_has_arrived_can_be_read_after_a_failure),
        PAIR_TEST(test_nothing_is_read_behind_a_hole),
        PAIR_TEST(test_an_abort_while_bytes_land),
        PAIR_TEST(test_a_part_that_is_lost_is_reported_once),
        PAIR_TEST(test_giving_endpoints_back_with_bytes_unread),
        PAIR_TEST(test_destroying_a_worker_with_all_under_way),
        PAIR_TEST(test_random_programs),
    };

    fill_pattern(out, sizeof(out), 1);
    return UNIT_RUN(tests);
}
