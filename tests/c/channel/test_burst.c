/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair fake_ucp */
/* Events within one progress call, in an order that a network does not produce
 * on request: tests/c/fake_ucp.c does. */
#include "fake_ucp.h"
#include "pair.h"
#include "prove.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <umx/tag.h>
#include <umx/version.h>

#include "util/clock.h"
#include "worker/parked.h"
#include "channel/frames.h"

enum {
    LARGE = 4000
};

typedef struct burst {
    umx_context  *context;
    umx_worker   *worker;
    umx_listener *listener;
    int           peer; /* a socket that listens, and says nothing */
    umx_ep       *ep;   /* the connecting side; the test is its peer */
    umx_ep       *accepted;
    umx_request  *victim;
    umx_ep_state  state;
} burst;

static const char bytes[LARGE];

static void
say(burst *b, const umi_control *control)
{
    uint64_t front[] = {b->ep->base.wire_id, 0};
    uint8_t  data[UMI_CONTROL_MAX];
    size_t   len = umi_control_encode(control, data);

    fake_arrive(umx_ep_handle(b->ep), UMI_AM_CONTROL, front, sizeof(front),
                data, len, false);
}

static void
connect_to_mute(burst *b, umi_limits limits)
{
    struct sockaddr_in addr;
    umx_connect_params connect = {.addr     = (void *)&addr,
                                  .addr_len = sizeof(addr)};
    umi_control        welcome = {.kind = UMI_WELCOME};

    b->peer = bound_socket(&addr);
    assert_int_equal(listen(b->peer, 1), 0);
    assert_int_equal(umx_ep_connect(b->worker, &connect, &b->ep), UMX_OK);
    welcome.u.welcome.major    = UMX_WIRE_VERSION;
    welcome.u.welcome.channels = 1;
    welcome.u.welcome.limits   = limits;
    welcome.u.welcome.peer     = 1;
    stranger(1, &welcome.u.welcome.where);
    prove(b->ep, &welcome);
    pair_hear(b->ep, &welcome);
}

static void
give(burst *b, uint32_t seq, size_t len, bool is_rndv)
{
    umi_header header = {.kind     = UMI_KIND_MESSAGE,
                         .seq      = seq,
                         .tag      = seq,
                         .endpoint = b->ep->base.wire_id};

    fake_arrive(umx_ep_handle(b->ep), UMI_AM_DATA, &header, sizeof(header),
                bytes, len, is_rndv);
}

static void
run(burst *b)
{
    for (int i = 0; i < 3; i++) {
        (void)umx_worker_poll(b->worker);
    }
}

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    burst *b = arg;

    (void)listener;
    b->accepted = ep;
}

static int
setup(void **state)
{
    struct sockaddr_in  addr   = {.sin_family = AF_INET};
    burst              *b      = calloc(1, sizeof(*b));
    umx_listener_params params = {.addr      = (void *)&addr,
                                  .addr_len  = sizeof(addr),
                                  .on_accept = on_accept,
                                  .arg       = b};

    fake_reset();
    assert_non_null(b);
    assert_int_equal(umx_context_create(NULL, &b->context, NULL), UMX_OK);
    assert_int_equal(umx_worker_create(b->context, &b->worker), UMX_OK);
    assert_int_equal(umx_listener_create(b->worker, &params, &b->listener),
                     UMX_OK);
    connect_to_mute(b, (umi_limits){1 << 20, 100, 100});
    run(b);
    assert_int_equal(umx_ep_get_state(b->ep), UMX_EP_OPEN);
    *state = b;
    return 0;
}

static int
teardown(void **state)
{
    burst *b = *state;

    if (b->ep != NULL) {
        umx_ep_abort(b->ep);
        umx_ep_destroy(b->ep);
    }
    close(b->peer);
    if (b->accepted != NULL) {
        umx_ep_destroy(b->accepted);
    }
    if (b->listener != NULL) {
        umx_listener_destroy(b->listener);
    }
    if (b->worker != NULL) {
        umx_worker_destroy(b->worker);
    }
    umx_context_release(b->context);
    free(b);
    assert_int_equal(fake.live, 0);
    return 0;
}

static void
goodbye_after(burst *b, uint32_t next_seq)
{
    umi_control goodbye;

    memset(&goodbye, 0, sizeof(goodbye));
    goodbye.kind                          = UMI_GOODBYE;
    goodbye.u.goodbye.is_last             = true;
    goodbye.u.goodbye.count               = 1;
    goodbye.u.goodbye.entries[0].channel  = UMI_CHANNEL_0;
    goodbye.u.goodbye.entries[0].next_seq = next_seq;
    say(b, &goodbye);
}

/* ---- cancelling in a callback --------------------------------------------
 */

static void
cancel_victim(umx_request *req, umx_status status, void *arg)
{
    burst *b = arg;

    (void)req;
    assert_int_equal(status, UMX_OK);
    umx_request_cancel(b->victim);
}

/* A receive whose callback cancels b->victim. */
static void
post_canceller(burst *b, char *byte)
{
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = cancel_victim, .arg = b};
    umx_buffer    buffer = umx_host_buffer(byte, 1);
    umx_request  *req;
    umx_recv_info info;

    assert_int_equal(
        umx_channel_recv(b->ep, 0, &pair_any, &buffer, &params, &req, &info),
        UMX_INPROGRESS);
}

static void
test_a_receive_cancelled_before_its_report_gives_back(void **state)
{
    burst *b = *state;
    char   byte, in[10];
    op     o, again;

    post_canceller(b, &byte);
    op_recv(&o, b->ep, 0, pair_any, in, 10);
    b->victim = o.req;
    give(b, 0, 1, false);
    give(b, 1, 7, false);
    run(b);
    assert_int_equal(o.calls, 1);
    assert_int_equal(o.status, UMX_ERR_CANCELED);
    assert_int_equal(umx_ep_recv_count(b->ep), 1);
    op_recv(&again, b->ep, 0, pair_any, in, 10);
    assert_int_equal(again.status, UMX_OK);
    assert_int_equal(again.info.length, 7);
    assert_int_equal(again.info.tag, 1);
}

static void
test_a_taken_message_cancelled_before_its_report_goes_back(void **state)
{
    burst *b = *state;
    char   byte, in[10];
    op     o, again;

    post_canceller(b, &byte);
    op_recv_message(&o, b->ep, 0, pair_any);
    b->victim = o.req;
    give(b, 0, 1, false);
    give(b, 1, 7, false);
    run(b);
    assert_int_equal(o.calls, 1);
    assert_int_equal(o.status, UMX_ERR_CANCELED);
    assert_null(o.message);
    op_recv(&again, b->ep, 0, pair_any, in, 10);
    assert_int_equal(again.status, UMX_OK);
    assert_int_equal(again.info.length, 7);
}

/* Landed, but not yet reported. */
static void
test_a_landed_receive_cancelled_before_its_report_gives_back(void **state)
{
    burst *b = *state;
    char   byte;
    char  *in = calloc(1, LARGE);
    op     o, again;

    assert_non_null(in);
    op_recv(&o, b->ep, 0, pair_tag(1), in, LARGE);
    assert_int_equal(o.status, UMX_INPROGRESS);
    post_canceller(b, &byte);
    b->victim       = o.req;
    fake.is_pending = true;
    give(b, 0, 1, false);
    give(b, 1, LARGE, true);
    (void)umx_worker_poll(b->worker); /* arrives, cancelled while landing */
    run(b);
    assert_int_equal(o.status, UMX_ERR_CANCELED);
    op_recv(&again, b->ep, 0, pair_any, in, LARGE);
    assert_int_equal(again.status, UMX_OK);
    assert_int_equal(again.info.length, LARGE);
    fake.is_pending = false;
    free(in);
}

/* The endpoint of a landing receive closes: the message that the receive holds
 * belongs to nobody any more. */
static void
test_a_landing_receive_cancelled_while_closing(void **state)
{
    const umi_control ack = {.kind = UMI_GOODBYE_ACK};
    burst            *b   = *state;
    char             *in  = calloc(1, LARGE);
    op                o, close_op;

    assert_non_null(in);
    fake.is_pending = true;
    op_recv(&o, b->ep, 0, pair_any, in, LARGE);
    give(b, 0, LARGE, true);
    (void)umx_worker_poll(b->worker);
    assert_int_equal(b->ep->num_landing, 1);
    op_close(&close_op, b->ep, SECOND_NS);
    op_cancel(o.req);
    run(b);
    assert_int_equal(o.calls, 1);
    assert_int_equal(o.status, UMX_ERR_CANCELED);
    say(b, &ack);
    run(b);
    assert_int_equal(close_op.status, UMX_OK);
    fake.is_pending = false;
    free(in);
}

/* ---- GOODBYE and data in any order ---------------------------------------
 */

static void
test_goodbye_overtakes_data(void **state)
{
    burst *b = *state;
    char   in[10];
    op     first, second;

    op_recv(&first, b->ep, 0, pair_any, in, 10);
    op_recv(&second, b->ep, 0, pair_any, in, 10);
    goodbye_after(b, 1);
    run(b);
    assert_false(umx_ep_is_peer_closed(b->ep));
    assert_false(op_is_done(&first));
    give(b, 0, 5, false);
    run(b);
    assert_true(umx_ep_is_peer_closed(b->ep));
    assert_int_equal(first.status, UMX_OK);
    assert_int_equal(second.status, UMX_ERR_PEER_CLOSED);
}

/* The connection breaks before all of it has come: not a graceful end. */
static void
test_goodbye_without_its_data(void **state)
{
    burst *b = *state;
    char   in[10];
    op     o;

    op_recv(&o, b->ep, 0, pair_any, in, 10);
    goodbye_after(b, 1);
    fake_break(umx_ep_handle(b->ep), UCS_ERR_CONNECTION_RESET);
    run(b);
    assert_int_equal(umx_ep_get_state(b->ep), UMX_EP_FAILED);
    assert_int_equal(o.status, UMX_ERR_CONNECTION_RESET);
}

static void
test_goodbye_and_the_end_in_one_burst(void **state)
{
    burst *b = *state;
    char   in[10];
    op     o;

    op_recv(&o, b->ep, 0, pair_any, in, 10);
    give(b, 0, 5, false);
    goodbye_after(b, 1);
    fake_break(umx_ep_handle(b->ep), UCS_ERR_CONNECTION_RESET);
    run(b);
    assert_int_equal(o.status, UMX_OK);
    assert_int_equal(umx_ep_get_state(b->ep), UMX_EP_CLOSED);
    assert_int_equal(umx_ep_error(b->ep), UMX_ERR_PEER_CLOSED);
}

/* Data that arrives while the endpoint closes is dropped, in order or not. */
static void
test_data_for_a_closing_endpoint_is_dropped(void **state)
{
    const umi_control ack = {.kind = UMI_GOODBYE_ACK};
    burst            *b   = *state;
    op                o;

    op_close(&o, b->ep, SECOND_NS);
    give(b, 1, 5, false);
    give(b, 2, LARGE, true);
    give(b, 0, 5, false);
    run(b);
    assert_int_equal(umi_channels_of(b->ep)->channel0.rx_seq, 3);
    assert_true(
        umi_list_is_empty(&umi_channels_of(b->ep)->channel0.unexpected));
    assert_true(umi_list_is_empty(&umi_channels_of(b->ep)->channel0.parked));
    assert_int_equal(b->ep->num_announced, 0);
    say(b, &ack);
    run(b);
    assert_int_equal(o.status, UMX_OK);
}

/* An unread announcement beyond the limit holds the acknowledgement up, also
 * after a receive that is too short for it; who drops it lets the peer go. */
static void
test_a_dropped_announcement_lets_the_peer_go(void **state)
{
    burst   *b = *state;
    unsigned before;
    char     in[10];
    op       o;

    b->context->config.goodbye_bytes = 0;
    give(b, 0, LARGE, true);
    goodbye_after(b, 1);
    run(b);
    assert_true(umx_ep_is_peer_closed(b->ep));
    before = fake_sent(UMI_AM_CONTROL);
    op_recv(&o, b->ep, 0, pair_any, in, 10);
    assert_int_equal(o.status, UMX_ERR_MESSAGE_TRUNCATED);
    run(b);
    assert_int_equal(fake_sent(UMI_AM_CONTROL), before);
    op_recv_message(&o, b->ep, 0, pair_any);
    assert_int_equal(o.status, UMX_OK);
    umx_message_drop(o.message);
    run(b);
    assert_int_equal(fake_sent(UMI_AM_CONTROL), before + 1);
}

/* ---- listeners -----------------------------------------------------------
 */

static void
destroy_listener(umx_ep *ep, umx_ep_state ep_state, umx_status status,
                 void *arg)
{
    burst *b = arg;

    (void)ep;
    (void)ep_state;
    (void)status;
    umx_listener_destroy(b->listener);
    b->listener = NULL;
}

static int
connect_raw(burst *b)
{
    struct sockaddr_in addr;
    size_t             len = sizeof(addr);
    int                fd  = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(umx_listener_address(b->listener, (void *)&addr, &len),
                     UMX_OK);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (void *)&addr, (socklen_t)len), 0);
    return fd;
}

/* An endpoint is open, and in the same burst its listener goes. */
static void
test_a_listener_destroyed_between_open_and_accept(void **state)
{
    burst      *b     = *state;
    umi_control hello = {.kind = UMI_HELLO}, open = {.kind = UMI_OPEN};
    umx_ep     *server;
    int         fd = connect_raw(b);
    char        byte;

    while (b->listener->num_handshakes == 0) {
        /* It has not been refused. */
        assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
        assert_true(umx_worker_drain(b->worker) >= 0);
    }
    server = umi_endpoint_of(
        umi_container_of(b->worker->eps.prev, umi_ep_base, node));
    hello.u.hello.major    = UMX_WIRE_VERSION;
    hello.u.hello.channels = 1;
    hello.u.hello.limits   = (umi_limits){100, 100, 100};
    stranger(2, &hello.u.hello.where);
    open.u.open.peer = 1;
    umx_ep_set_on_state(b->ep, destroy_listener, b);
    fake_break(umx_ep_handle(b->ep), UCS_ERR_CONNECTION_RESET);
    (void)umi_worker_progress(b->worker); /* the first event of the burst */
    pair_hear(server, &hello);
    assert_non_null(server->handshake);
    prove(server, &open);
    pair_hear(server, &open);
    run(b);
    assert_null(b->listener);
    assert_null(b->accepted); /* opened for nobody, and closed */
    close(fd);
}

/* ---- spinning ------------------------------------------------------------
 */

static void
set_flag(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    (void)status;
    *(volatile bool *)arg = true;
}

static void
test_a_spin_that_pays_restores_the_budget(void **state)
{
    burst           *b    = *state;
    umi_spin        *spin = &b->worker->spin;
    char             byte;
    umx_buffer       buffer  = umx_host_buffer(&byte, 1);
    volatile bool    is_done = false;
    umx_op_params    params  = {.field_mask = UMX_OP_FIELD_ON_DONE,
                                .on_done    = set_flag,
                                .arg        = (void *)(uintptr_t)&is_done};
    umx_request     *req;
    umx_recv_info    info;
    umx_worker_stats stats;

    assert_int_equal(
        umx_channel_recv(b->ep, 0, &pair_any, &buffer, &params, &req, &info),
        UMX_INPROGRESS);
    b->worker->turn_ticks = umi_ticks_from_ns(60 * SECOND_NS);
    spin->max_ticks = umi_ticks_from_ns(60 * SECOND_NS); /* not a limit here */
    spin->ticks     = 0; /* backed off; the next spin is a probe */
    spin->skip      = 0;
    spin->backoff   = 64;
    give(b, 0, 1, false);
    fake.idle_polls = 20;
    assert_true(umx_worker_spin(b->worker, &is_done));
    umx_worker_query(b->worker, &stats);
    assert_int_equal(stats.spins, 1);
    assert_int_equal(stats.spin_hits, 1);
    assert_true(spin->ticks == spin->max_ticks);
    assert_int_equal(spin->backoff, 8);
}

/* ---- arming --------------------------------------------------------------
 */

/* Something came between the last progress and the arming: once more. */
static void
test_arming_is_tried_again_when_busy(void **state)
{
    burst *b  = *state;
    char   in = 1;
    op     o;

    op_recv(&o, b->ep, 0, pair_any, &in, 1);
    give(b, 0, 1, false);
    fake.idle_polls = 1;
    assert_int_equal(umx_worker_drain(b->worker), UMX_OK);
    assert_true(op_is_done(&o));
    assert_true(umx_worker_is_armed(b->worker));
}

static void
test_arming_fails(void **state)
{
    burst *b = *state;

    fake.fail_at = fake.calls + 1;
    assert_int_equal(umx_worker_drain(b->worker), UMX_ERR_IO_ERROR);
    assert_false(umx_worker_is_armed(b->worker));
    fake.fail_at = fake.calls + 1;
    assert_int_equal(umx_worker_wait(b->worker, SECOND_NS), UMX_ERR_IO_ERROR);
    assert_int_equal(umx_worker_drain(b->worker), UMX_OK);
}

/* An operation that UCX did not finish at once: the event fd does not cover
 * it. */
static void
test_a_pending_operation_disarms(void **state)
{
    burst *b = *state;
    op     o;

    assert_int_equal(umx_worker_drain(b->worker), UMX_OK);
    op_send(&o, b->ep, 0, pair_tag(1), bytes, 10);
    assert_int_equal(o.status, UMX_OK);
    assert_true(umx_worker_is_armed(b->worker));
    fake.is_pending = true;
    op_send(&o, b->ep, 0, pair_tag(1), bytes, 10);
    assert_int_equal(o.status, UMX_INPROGRESS);
    assert_false(umx_worker_is_armed(b->worker));
    run(b);
    assert_int_equal(o.status, UMX_OK);
    fake.is_pending = false;
}

/* Something came, and the fd does not say so. */
static void
test_who_was_not_woken_overslept(void **state)
{
    burst *b = *state;
    char   in;
    op     o;

    op_recv(&o, b->ep, 0, pair_any, &in, 1);
    assert_int_equal(umx_worker_drain(b->worker), UMX_OK);
    assert_false(umx_worker_overslept(b->worker)); /* asleep since now */
    assert_false(umx_worker_overslept(b->worker)); /* nothing to do */
    give(b, 0, 1, false);
    assert_true(umx_worker_overslept(b->worker));
    assert_true(op_is_done(&o));
    assert_false(umx_worker_overslept(b->worker)); /* awake */
    assert_int_equal(umx_worker_drain(b->worker), UMX_OK);
    assert_false(umx_worker_overslept(b->worker));
}

/* UCX finishes a close in later progress, for which no event comes. */
static void
test_a_close_during_a_drain_is_progressed_by_it(void **state)
{
    burst *b    = *state;
    int    peer = accept(b->peer, NULL, NULL);

    assert_true(peer >= 0);
    b->worker->turn_ticks = umi_ticks_from_ns(60 *
                                              SECOND_NS); /* one is enough */
    assert_int_equal(umx_worker_drain(b->worker), UMX_OK);
    fake.is_pending = true;
    close(peer);
    assert_int_equal(umx_worker_drain(b->worker), UMX_OK);
    assert_int_equal(umx_ep_get_state(b->ep), UMX_EP_FAILED);
    assert_int_equal(b->worker->closes_in_ucx, 0);
    fake.is_pending = false;
}

static void
on_lost(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    assert_ptr_equal(req, o->req);
    assert_int_equal(o->calls, 0);
    o->status = status;
}

/* UCX does not finish a close towards a peer that died with a full queue. */
static void
test_what_ucx_keeps_of_a_dead_peer_is_lost_and_burns_no_core(void **state)
{
    burst        *b    = *state;
    int           peer = accept(b->peer, NULL, NULL);
    umx_buffer    buf  = umx_host_buffer((void *)bytes, LARGE);
    op            o;
    umx_op_params params = op_params(&o);

    umx_worker_stats stats;

    assert_true(peer >= 0);
    params.field_mask |= UMX_OP_FIELD_ON_LOST;
    params.on_lost  = on_lost;
    fake.is_pending = true;
    o.status = umx_channel_send(b->ep, 0, &pair_any, &buf, &params, &o.req);
    assert_int_equal(o.status, UMX_INPROGRESS);
    fake.is_wedged = true;
    close(peer);
    while (o.status == UMX_INPROGRESS) {
        assert_true(umx_worker_wait(b->worker, SECOND_NS) == UMX_OK);
    }
    assert_int_equal(o.status, UMX_ERR_CONNECTION_RESET);
    assert_int_equal(umx_ep_get_state(b->ep), UMX_EP_FAILED);
    assert_int_equal(umx_worker_drain(b->worker), UMX_OK);
    assert_true(b->worker->engine->is_deaf);
    umx_worker_query(b->worker, &stats);
    assert_int_equal(stats.requests_lost, 1);
    assert_true(umx_worker_deadline(b->worker) < UINT64_MAX);
    fake.is_wedged = false;
    while (o.calls == 0) {
        assert_true(umx_worker_wait(b->worker, SECOND_NS) == UMX_OK);
    }
    assert_int_equal(o.status, UMX_ERR_CONNECTION_RESET);
    assert_int_equal(umx_worker_drain(b->worker), UMX_OK);
    assert_false(b->worker->engine->is_deaf);
    umx_worker_query(b->worker, &stats);
    assert_int_equal(stats.requests_lost, 0);
    fake.is_pending = false;
}

typedef umx_status (*recv_fn)(burst *b, op *o, void *data);

static umx_status
recv_stream(burst *b, op *o, void *data)
{
    umx_buffer    buf    = umx_host_buffer(data, LARGE);
    umx_op_params params = op_params(o);

    return umx_stream_recv(b->ep, &buf, 0, &params, &o->req, &o->info);
}

static void
on_frames(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    o->calls++;
    o->req    = NULL;
    o->status = status;
    if (status == UMX_OK) {
        umx_message_drop(umx_request_message(req));
    }
}

static umx_status
recv_frames(burst *b, op *o, void *data)
{
    static umx_buffer buf; /* until the frames are there */

    umx_op_params     params = op_params(o);
    umx_frames_target target = {.buffers = &buf, .count = 1};

    params.on_done = on_frames;
    buf            = umx_host_buffer(data, LARGE);
    return umx_frames_recv(b->ep, 0, &target, &params, &o->req);
}

static void
give_kind(burst *b, unsigned kind, uint32_t seq, const void *data, size_t len,
          bool is_rndv)
{
    umi_header header = {.kind     = (uint8_t)kind,
                         .flags    = UMI_FLAG_UNTAGGED,
                         .seq      = seq,
                         .endpoint = b->ep->base.wire_id};

    fake_arrive(umx_ep_handle(b->ep), UMI_AM_DATA, &header, UMI_HEADER_MIN,
                data, len, is_rndv);
    run(b);
}

/* UCX keeps the bytes as long as it is wedged. */
static void
cancel_while_landing(burst *b, recv_fn recv, unsigned kind, uint32_t seq, op *o,
                     char *data)
{
    o->status = recv(b, o, data);
    assert_int_equal(o->status, UMX_INPROGRESS);
    fake.is_pending = true;
    fake.is_wedged  = true;
    give_kind(b, kind, seq, bytes, LARGE, true);
    assert_false(op_is_done(o));
    assert_int_equal(umx_request_cancel(o->req), UMX_OK);
    fill_pattern(data, LARGE, 7);
}

static bool
has_requests(const burst *b)
{
    return b->worker->requests.in_use != 0;
}

/* A receive was cancelled while bytes landed, and UCX keeps them when the peer
 * has ended: the next one does not wait for them. */
static void
check_lost_after_cancel(burst *b, recv_fn recv, unsigned kind, uint32_t seq)
{
    static char data[2][LARGE];

    int peer = accept(b->peer, NULL, NULL);
    op  first, next;

    assert_true(peer >= 0);
    cancel_while_landing(b, recv, kind, seq, &first, data[0]);
    run(b);
    assert_true(op_is_done(&first));
    assert_int_equal(first.status, UMX_ERR_CANCELED);
    close(peer);
    while (umx_ep_get_state(b->ep) == UMX_EP_OPEN) {
        assert_true(umx_worker_wait(b->worker, SECOND_NS) == UMX_OK);
    }
    next.req    = NULL;
    next.status = recv(b, &next, data[1]);
    while (next.status == UMX_INPROGRESS) {
        assert_true(umx_worker_wait(b->worker, 2 * SECOND_NS) == UMX_OK);
    }
    assert_int_equal(next.status, UMX_ERR_CONNECTION_RESET);
    fake.is_wedged = false;
    while (has_requests(b)) {
        assert_true(umx_worker_wait(b->worker, SECOND_NS) == UMX_OK);
    }
    check_pattern(data[0], LARGE, 7);
    assert_int_equal(recv(b, &next, data[1]), UMX_ERR_CONNECTION_RESET);
    fake.is_pending = false;
}

/* A message of one frame, which comes in a part. */
static void
give_head(burst *b, uint32_t seq)
{
    uint8_t  head[16] = {1, 0}; /* a frame; no header */
    uint8_t *end      = umi_varint_write(
             head + 2, umi_frame_entry(LARGE, UMI_FRAME_BEGINS, false));

    give_kind(b, UMI_KIND_FRAMES, seq, head, (size_t)(end - head), false);
}

static void
test_a_stream_does_not_wait_for_what_ucx_keeps(void **state)
{
    check_lost_after_cancel(*state, recv_stream, UMI_KIND_STREAM, 0);
}

static void
test_frames_do_not_wait_for_what_ucx_keeps(void **state)
{
    burst *b = *state;

    give_head(b, 0);
    check_lost_after_cancel(b, recv_frames, UMI_KIND_FRAMES, 1);
}

/* The bytes of a message land when the peer ends; the message behind it has
 * arrived in full. */
static void
test_frames_behind_what_lands_at_the_end_are_not_handed_out(void **state)
{
    static const uint8_t empty[] = {0, 0}; /* no frames, no header */
    static char          data[2][LARGE];

    burst *b    = *state;
    int    peer = accept(b->peer, NULL, NULL);
    op     first, next;

    assert_true(peer >= 0);
    give_head(b, 0);
    give_kind(b, UMI_KIND_FRAMES, 1, bytes, LARGE, true);
    fake.is_pending = true;
    fake.is_wedged  = true;
    first.status    = recv_frames(b, &first, data[0]);
    assert_int_equal(first.status, UMX_INPROGRESS);
    run(b);
    give_kind(b, UMI_KIND_FRAMES, 2, empty, sizeof(empty), false);
    close(peer);
    while (umx_ep_get_state(b->ep) == UMX_EP_OPEN) {
        assert_true(umx_worker_wait(b->worker, SECOND_NS) == UMX_OK);
    }
    assert_false(op_is_done(&first));
    assert_int_equal(recv_frames(b, &next, data[1]), UMX_ERR_CONNECTION_RESET);
    fake.is_wedged = false;
    while (!op_is_done(&first)) {
        assert_true(umx_worker_wait(b->worker, SECOND_NS) == UMX_OK);
    }
    fake.is_pending = false;
}

/* A ping comes, with what is there to arrive, and the answer finds that the
 * connection is broken. */
static void
break_by_answer(burst *b)
{
    umi_control control = {.kind = UMI_PING};

    say(b, &control);
    fake.fail_status = UCS_ERR_CONNECTION_RESET;
    fake.fail_at     = fake.calls + 1;
    run(b);
    assert_string_equal(fake.failed, "ucp_am_send_nbx");
    assert_int_equal(umx_ep_get_state(b->ep), UMX_EP_FAILED);
}

static void
check_had_before_the_end(burst *b, recv_fn recv, unsigned kind,
                         const void *message, size_t len, int num_left)
{
    static char data[2][LARGE];

    const umi_header header = {.kind     = (uint8_t)kind,
                               .flags    = UMI_FLAG_UNTAGGED,
                               .endpoint = b->ep->base.wire_id};

    int num_more = 0;
    op  first, next;

    first.status = recv(b, &first, data[0]);
    assert_int_equal(first.status, UMX_INPROGRESS);
    fake_arrive(umx_ep_handle(b->ep), UMI_AM_DATA, &header, UMI_HEADER_MIN,
                message, len, false);
    break_by_answer(b);
    assert_int_equal(first.calls, 1);
    assert_int_equal(first.status, UMX_OK);
    while ((next.status = recv(b, &next, data[1])) == UMX_OK) {
        num_more++;
    }
    assert_int_equal(next.status, UMX_ERR_CONNECTION_RESET);
    assert_int_equal(num_more, num_left);
}

static void
test_frames_that_have_come_are_had_before_the_end(void **state)
{
    static const uint8_t message[] = {0, 0}; /* no frames, no header */

    check_had_before_the_end(*state, recv_frames, UMI_KIND_FRAMES, message,
                             sizeof(message), 0);
}

/* More than the receive has room for, which is read in two parts. */
static void
test_a_stream_that_has_come_is_had_before_the_end(void **state)
{
    static const char message[LARGE + 1];

    check_had_before_the_end(*state, recv_stream, UMI_KIND_STREAM, message,
                             sizeof(message), 1);
}

/* The bytes of a cancelled receive are in as the endpoint ends: its message is
 * for the receive behind it. */
static void
check_returned_at_the_end(burst *b, recv_fn recv, unsigned kind, uint32_t seq)
{
    static char data[3][LARGE];

    op first, second, next;

    cancel_while_landing(b, recv, kind, seq, &first, data[0]);
    second.status = recv(b, &second, data[1]);
    assert_int_equal(second.status, UMX_INPROGRESS);
    fake.is_wedged = false;
    break_by_answer(b);
    assert_int_equal(first.status, UMX_ERR_CANCELED);
    assert_int_equal(second.status, UMX_OK);
    assert_memory_equal(data[1], bytes, LARGE);
    check_pattern(data[0], LARGE, 7);
    assert_int_equal(recv(b, &next, data[2]), UMX_ERR_CONNECTION_RESET);
    fake.is_pending = false;
}

static void
test_frames_that_are_returned_at_the_end(void **state)
{
    burst *b = *state;

    give_head(b, 0);
    check_returned_at_the_end(b, recv_frames, UMI_KIND_FRAMES, 1);
}

static void
test_bytes_of_a_stream_that_are_returned_at_the_end(void **state)
{
    check_returned_at_the_end(*state, recv_stream, UMI_KIND_STREAM, 0);
}

/* ---- destroying ----------------------------------------------------------
 */

/* A send that UCX does not give back. */
static void
send_for_ever(burst *b, op *o, umx_done_fn on_done, void *arg)
{
    umx_buffer    buf    = umx_host_buffer((void *)bytes, LARGE);
    umx_op_params params = op_params(o);

    params.on_done  = on_done;
    params.arg      = arg;
    fake.is_pending = true;
    fake.is_wedged  = true;
    o->status = umx_channel_send(b->ep, 0, &pair_any, &buf, &params, &o->req);
    assert_int_equal(o->status, UMX_INPROGRESS);
}

static void
destroy_worker(burst *b)
{
    umx_listener_destroy(b->listener);
    umx_worker_destroy(b->worker);
    b->listener = NULL;
    b->worker   = NULL;
}

static void
retire_ep(umx_request *req, umx_status status, void *arg)
{
    burst *b = arg;

    (void)req;
    assert_int_equal(status, UMX_ERR_CANCELED);
    assert_null(b->worker->ucp); /* nothing can wake UCX's worker any more */
    umx_ep_retire(b->ep);
    b->ep = NULL;
}

static void
test_an_endpoint_is_retired_at_the_end_of_a_worker(void **state)
{
    burst *b = *state;
    op     o;

    send_for_ever(b, &o, retire_ep, b);
    destroy_worker(b);
    assert_null(b->ep);
}

static void
count_cancelled(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    assert_int_equal(status, UMX_ERR_CANCELED);
    ++*(int *)arg;
}

/* UCX's worker stays for the message, and with it the send. */
static void
test_a_message_outlives_a_worker_with_a_stuck_send(void **state)
{
    burst *b        = *state;
    int    num_done = 0;
    op     o, take;

    give(b, 0, LARGE, false);
    run(b);
    op_recv_message(&take, b->ep, 0, pair_any);
    assert_int_equal(take.status, UMX_OK);
    assert_non_null(umx_message_data(take.message));
    send_for_ever(b, &o, count_cancelled, &num_done);
    fake.calls_at_end = true;
    destroy_worker(b);
    assert_int_equal(num_done, 1);
    umx_ep_destroy(b->ep);
    b->ep = NULL;
    assert_memory_equal(umx_message_data(take.message), bytes, LARGE);
    umx_message_drop(take.message);
    assert_int_equal(num_done, 1);
}

/* ---- parking -------------------------------------------------------------
 */

/* A receive that UCX does not give back. */
static void
recv_for_ever(umx_worker *worker, op *o)
{
    umx_op_params params = op_params(o);
    umx_buffer    buf    = umx_host_buffer(NULL, 0);

    fake.is_pending = true;
    fake.is_wedged  = true;
    assert_int_equal(
        umx_tag_recv(worker, NULL, 1, 1, &buf, &params, &o->req, &o->info),
        UMX_INPROGRESS);
}

static void
test_a_worker_that_ucx_needs_is_kept(void **state)
{
    burst       *b       = *state;
    umx_context *context = b->context;
    unsigned     live;
    op           o;

    recv_for_ever(b->worker, &o);
    umx_ep_abort(b->ep);
    umx_ep_destroy(b->ep);
    b->ep = NULL;
    destroy_worker(b);
    assert_int_equal(o.calls, 1);
    assert_int_equal(o.status, UMX_ERR_CANCELED);
    assert_false(umi_list_is_empty(&context->parked));
    live = fake.live;
    umi_parked_progress(context);
    assert_int_equal(fake.live, live);
    fake.is_wedged = false;
    umi_parked_progress(context);
    assert_true(umi_list_is_empty(&context->parked));
    assert_true(fake.live < live);
}

/* The last one goes with its context; of several none can be the first. */
static void
test_workers_that_ucx_needs_at_the_end(void **state)
{
    burst       *b       = *state;
    umx_context *context = b->context;
    umx_worker  *others[2];
    op           ops[2];
    unsigned     live;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(umx_worker_create(b->context, &others[i]), UMX_OK);
        recv_for_ever(others[i], &ops[i]);
    }
    for (int i = 0; i < 2; i++) {
        umx_worker_destroy(others[i]);
        assert_int_equal(ops[i].status, UMX_ERR_CANCELED);
    }
    live = fake.live;
    assert_false(umi_parked_end(context));
    assert_int_equal(fake.live, live);
    fake.is_wedged = false;
    umi_parked_progress(context);
    assert_true(fake.live < live);
}

/* A peer that closes refuses a message, and only then says that it closes. */
static void
test_a_drain_does_not_take_a_refused_message_for_a_sent_one(void **state)
{
    burst        *b    = *state;
    int           peer = accept(b->peer, NULL, NULL);
    op            send, draining;
    umx_op_params params = op_params(&draining);

    assert_true(peer >= 0);
    fake.is_pending = true;
    op_send(&send, b->ep, 0, pair_tag(1), bytes, LARGE);
    draining.status = umx_ep_drain(b->ep, 0, &params, &draining.req);
    assert_int_equal(draining.status, UMX_INPROGRESS);
    fake.fail_status        = UCS_ERR_CANCELED;
    fake.fail_completion_at = fake.completions + 1;
    run(b);
    fake.is_pending = false;
    assert_int_equal(send.status, UMX_ERR_PEER_CLOSED);
    assert_int_equal(umx_ep_get_state(b->ep), UMX_EP_OPEN);
    assert_false(op_is_done(&draining));
    close(peer);
    while (!op_is_done(&draining)) {
        assert_true(umx_worker_wait(b->worker, SECOND_NS) == UMX_OK);
    }
    assert_int_equal(draining.status, UMX_ERR_CONNECTION_RESET);
}

/* UCX keeps what it has begun to send as long as it is wedged. */
static void
abort_while_sending(burst *b)
{
    fake.is_pending = true;
    fake.is_wedged  = true;
    umx_ep_abort(b->ep);
    umx_ep_destroy(b->ep);
    b->ep = NULL;
    run(b);
    assert_false(umi_list_is_empty(&b->worker->ending_links));
}

static void
wait_for_close(burst *b)
{
    while (!umi_list_is_empty(&b->worker->ending_links)) {
        assert_true(umx_worker_wait(b->worker, SECOND_NS) == UMX_OK);
    }
}

static void
test_what_has_begun_over_tcp_goes_out_before_the_close(void **state)
{
    burst    *b = *state;
    umi_link *link;

    abort_while_sending(b);
    link = umi_container_of(b->worker->ending_links.next, umi_link, node);
    assert_false(link->is_closed);
    fake.is_wedged = false; /* more is sent behind what has gone out */
    while (fake.flushes < 3) {
        assert_true(umx_worker_wait(b->worker, SECOND_NS) == UMX_OK);
        assert_false(link->is_closed);
    }
    fake.is_pending = false;
    wait_for_close(b);
}

static void
test_a_peer_that_takes_nothing_is_waited_for_until_it_goes(void **state)
{
    burst    *b = *state;
    umi_link *link;

    abort_while_sending(b);
    link = umi_container_of(b->worker->ending_links.next, umi_link, node);
    fake_break(link->handle, UCS_ERR_CONNECTION_RESET);
    while (!link->is_closed) {
        assert_true(umx_worker_wait(b->worker, SECOND_NS) == UMX_OK);
    }
    fake.is_wedged = false;
    wait_for_close(b);
}

static void
test_a_worker_ends_while_tcp_sends(void **state)
{
    burst *b = *state;

    abort_while_sending(b);
    fake.is_wedged = false;
    destroy_worker(b);
}

#define BURST_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        BURST_TEST(test_a_receive_cancelled_before_its_report_gives_back),
        BURST_TEST(test_a_taken_message_cancelled_before_its_report_goes_back),
        BURST_TEST(
            test_a_landed_receive_cancelled_before_its_report_gives_back),
        BURST_TEST(test_a_landing_receive_cancelled_while_closing),
        BURST_TEST(test_goodbye_overtakes_data),
        BURST_TEST(test_goodbye_without_its_data),
        BURST_TEST(test_goodbye_and_the_end_in_one_burst),
        BURST_TEST(test_data_for_a_closing_endpoint_is_dropped),
        BURST_TEST(test_a_dropped_announcement_lets_the_peer_go),
        BURST_TEST(test_a_listener_destroyed_between_open_and_accept),
        BURST_TEST(test_a_spin_that_pays_restores_the_budget),
        BURST_TEST(test_arming_is_tried_again_when_busy),
        BURST_TEST(test_arming_fails),
        BURST_TEST(test_a_pending_operation_disarms),
        BURST_TEST(test_who_was_not_woken_overslept),
        BURST_TEST(test_a_close_during_a_drain_is_progressed_by_it),
        BURST_TEST(
            test_what_ucx_keeps_of_a_dead_peer_is_lost_and_burns_no_core),
        BURST_TEST(test_a_stream_does_not_wait_for_what_ucx_keeps),
        BURST_TEST(test_frames_do_not_wait_for_what_ucx_keeps),
        BURST_TEST(test_frames_behind_what_lands_at_the_end_are_not_handed_out),
        BURST_TEST(test_frames_that_have_come_are_had_before_the_end),
        BURST_TEST(test_a_stream_that_has_come_is_had_before_the_end),
        BURST_TEST(test_frames_that_are_returned_at_the_end),
        BURST_TEST(test_bytes_of_a_stream_that_are_returned_at_the_end),
        BURST_TEST(test_an_endpoint_is_retired_at_the_end_of_a_worker),
        BURST_TEST(test_a_message_outlives_a_worker_with_a_stuck_send),
        BURST_TEST(test_a_worker_that_ucx_needs_is_kept),
        BURST_TEST(test_workers_that_ucx_needs_at_the_end),
        BURST_TEST(test_a_drain_does_not_take_a_refused_message_for_a_sent_one),
        BURST_TEST(test_what_has_begun_over_tcp_goes_out_before_the_close),
        BURST_TEST(test_a_peer_that_takes_nothing_is_waited_for_until_it_goes),
        BURST_TEST(test_a_worker_ends_while_tcp_sends),
    };

    return UNIT_RUN(tests);
}
