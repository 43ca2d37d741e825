/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* Messages whose bytes follow behind their header, in UCX's stream: they land
 * in the receive, or in memory of the full length. Whoever cancels one has its
 * buffer back at once; and whatever becomes of a message, the next one gets its
 * own bytes. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "ops/follow.h"
#include "worker/request.h"

enum {
    SIZE  = 60000,
    COUNT = 64 /* more than UCX's queue holds */
};

static char out[COUNT][SIZE], in[COUNT][SIZE];
static op   sends[COUNT];

static void
cancel(op *o, char *data)
{
    assert_non_null(o->req);
    assert_int_equal(umx_request_cancel(o->req), UMX_OK);
    memset(data, '!', SIZE);
}

static void
check_poison(const char *data)
{
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(data[i], '!');
    }
}

static size_t
copied(const pair *p)
{
    return p->client_worker->copied_bytes + p->server_worker->copied_bytes;
}

static void
open_pair(pair *p)
{
    p->config.rndv_thresh_shm = 1024 * 1024;
    p->config.rndv_thresh_net = 1024 * 1024;
    pair_open(p);
}

/* Post the send of message `i`, whose tag that is. */
static void
send_one(pair *p, int i)
{
    fill_pattern(out[i], SIZE, (unsigned)i);
    op_send(&sends[i], p->client, 0, pair_tag((uint64_t)i), out[i], SIZE);
    assert_true(sends[i].status >= 0);
}

/* Receive message `i`, whole. */
static void
receive(pair *p, int i)
{
    umx_match match = pair_any;

    memset(in[i], 0, SIZE);
    assert_int_equal(pair_recv(p, p->server, 0, match, in[i], SIZE), UMX_OK);
    check_pattern(in[i], SIZE, (unsigned)i);
}

/* Fill UCX's queue: the bytes of the last message are in part on their way.
 * Returns its number. */
static int
fill_queue(pair *p)
{
    send_one(p, 0);
    receive(p, 0);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    pair_settle(p);
    for (int i = 0; i < COUNT; i++) {
        send_one(p, i);
        if (sends[i].req != NULL) {
            assert_true(umi_request_is_posted(sends[i].req));
            return i;
        }
    }
    fail();
    return 0;
}

/* Fill the queue, and receive all but the last message, of which some bytes
 * come, and not all: the client does not move. They land in the receive `o` of
 * `data`, or in memory of the library's if `o` is NULL. Returns the last
 * message's number. */
static int
land_in_part(pair *p, op *o, char *data)
{
    static op ops[COUNT];
    int       last = fill_queue(p);

    for (int i = 0; i < last; i++) {
        op_recv(&ops[i], p->server, 0, pair_any, in[i], SIZE);
    }
    if (o != NULL) {
        op_recv(o, p->server, 0, pair_any, data, SIZE);
    }
    for (int i = 0; i < last; i++) {
        while (ops[i].req != NULL) {
            (void)umx_worker_poll(p->server_worker);
        }
        assert_int_equal(ops[i].status, UMX_OK);
        check_pattern(in[i], SIZE, (unsigned)i);
    }
    while (umx_worker_poll(p->server_worker) != 0) {
    }
    assert_int_equal(p->server->num_landing, 1);
    if (o != NULL) {
        assert_non_null(o->req);
        assert_true(o->req->moved > 0 && o->req->moved < SIZE);
    }
    return last;
}

/* End the sends of messages up to `last`. */
static void
end_sends(pair *p, int last)
{
    for (int i = 0; i <= last; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

/* ---- messages ------------------------------------------------------------
 */

static void
test_bytes_land_in_the_receive(void **state)
{
    static const size_t lengths[] = {UMI_FOLLOW_MIN - 1, UMI_FOLLOW_MIN,
                                     UMI_FOLLOW_MIN + 1, 20000, SIZE};
    pair               *p         = *state;
    op                  o;

    open_pair(p);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        size_t len = lengths[i];

        memset(in[0], '!', SIZE);
        op_recv(&o, p->server, 0, pair_any, in[0], SIZE);
        fill_pattern(out[0], len, (unsigned)i);
        assert_int_equal(pair_send(p, p->client, 0, pair_tag(i), out[0], len),
                         UMX_OK);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(o.info.length, len);
        assert_int_equal(o.info.tag, i);
        check_pattern(in[0], len, (unsigned)i);
        for (size_t j = len; j < SIZE; j++) {
            assert_int_equal(in[0][j], '!');
        }
    }
    assert_int_equal(p->server->num_landing, 0);
}

static void
test_a_message_waits_for_its_receive(void **state)
{
    pair         *p     = *state;
    umx_match     match = pair_any;
    umx_recv_info info;

    open_pair(p);
    send_one(p, 0);
    pair_settle(p);
    assert_int_equal(umx_channel_probe(p->server, 0, &match, &info), UMX_OK);
    assert_int_equal(info.length, SIZE);
    assert_int_equal(p->server->num_landing, 0);
    assert_int_equal(umi_channels_of(p->server)->rx_kept.bytes,
                     SIZE + UMI_CREDIT_OVERHEAD);
    receive(p, 0);
    assert_int_equal(umi_channels_of(p->server)->rx_kept.bytes, 0);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
}

/* Both ways at once, in many sizes: what comes is in order, and whole. */
static void
test_messages_of_all_kinds_stay_in_order(void **state)
{
    static const size_t lengths[] = {8, 60000, 0, 17000, 300, 65536, 16384};
    enum {
        NUM = sizeof(lengths) / sizeof(*lengths)
    };
    static char bytes[2][NUM][65536];
    pair       *p = *state;
    umx_ep     *ends[2];
    op          ops[2][NUM], o;
    static char got[65536];

    pair_open(p);
    ends[0] = p->client;
    ends[1] = p->server;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 2 * NUM; i++) {
            size_t len = lengths[i % NUM];

            fill_pattern(bytes[i / NUM][i % NUM], len, (unsigned)i);
            op_send(&ops[i / NUM][i % NUM], ends[i / NUM], 0,
                    pair_tag((uint64_t)i), bytes[i / NUM][i % NUM], len);
        }
        for (int i = 0; i < 2 * NUM; i++) {
            op_recv(&o, ends[1 - i / NUM], 0, pair_any, got, sizeof(got));
            assert_int_equal(op_wait(p, &o), UMX_OK);
            assert_int_equal(o.info.tag, i);
            assert_int_equal(o.info.length, lengths[i % NUM]);
            check_pattern(got, lengths[i % NUM], (unsigned)i);
        }
        for (int i = 0; i < 2 * NUM; i++) {
            assert_int_equal(op_wait(p, &ops[i / NUM][i % NUM]), UMX_OK);
        }
    }
}

/* The bytes of a message that is too long go nowhere. */
static void
test_a_receive_that_is_too_short(void **state)
{
    pair *p = *state;
    op    o;

    open_pair(p);
    op_recv(&o, p->server, 0, pair_any, in[0], UMI_FOLLOW_MIN);
    send_one(p, 0);
    send_one(p, 1);
    assert_int_equal(op_wait(p, &o), UMX_ERR_MESSAGE_TRUNCATED);
    receive(p, 0); /* it is the next one's */
    receive(p, 1);
    assert_int_equal(op_wait(p, &sends[0]), UMX_OK);
    assert_int_equal(op_wait(p, &sends[1]), UMX_OK);
}

/* A sender without credit announces, and waits for no one. */
static void
test_credit_bounds_what_is_kept(void **state)
{
    pair *p = *state;

    p->config.credit_bytes = 2 * SIZE + 2 * UMI_CREDIT_OVERHEAD;
    open_pair(p);
    for (int i = 0; i < 4; i++) {
        send_one(p, i);
    }
    pair_settle(p);
    assert_true(umi_channels_of(p->server)->rx_kept.bytes <=
                p->config.credit_bytes);
    assert_int_equal(p->server->num_announced, 2);
    for (int i = 0; i < 4; i++) {
        receive(p, i);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

/* ---- cancelling ----------------------------------------------------------
 */

static void
test_sends_that_are_cancelled_in_the_middle_arrive_whole(void **state)
{
    pair *p = *state;
    int   last, i;

    open_pair(p);
    last = fill_queue(p);
    send_one(p, last + 1); /* its header waits, too */
    assert_true(sends[last].req->moved < SIZE);
    assert_int_equal(sends[last + 1].req->moved, 0);
    cancel(&sends[last], out[last]);
    cancel(&sends[last + 1], out[last + 1]);
    assert_int_equal(copied(p), 2 * SIZE);
    for (i = 0; i <= last + 1; i++) {
        receive(p, i);
    }
    for (i = 0; i < last; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    assert_int_equal(op_wait(p, &sends[last]), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &sends[last + 1]), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, copied(p) == 0);
}

static void
test_a_send_whose_copy_is_beyond_the_limit_is_deferred(void **state)
{
    pair *p = *state;
    int   last;

    p->config.cancel_bytes = SIZE - 1;
    open_pair(p);
    last = fill_queue(p);
    assert_int_equal(umx_request_cancel(sends[last].req), UMX_INPROGRESS);
    for (int i = 0; i <= last; i++) {
        receive(p, i);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
}

static void
test_a_receive_that_is_cancelled_in_the_middle_gives_back(void **state)
{
    pair         *p     = *state;
    umx_match     match = pair_any;
    umx_recv_info info;
    op            first;
    int           last;

    open_pair(p);
    last = land_in_part(p, &first, in[COUNT - 1]);
    cancel(&first, in[COUNT - 1]);
    assert_int_equal(copied(p), SIZE);
    assert_int_equal(umx_channel_probe(p->server, 0, &match, &info), UMX_OK);
    assert_int_equal(info.tag, last);
    assert_int_equal(info.length, SIZE);
    send_one(p, last + 1);
    receive(p, last);
    receive(p, last + 1);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    check_poison(in[COUNT - 1]);
    assert_int_equal(copied(p), 0);
    end_sends(p, last + 1);
}

/* Complete, and not reported yet. */
static void
test_a_receive_that_is_cancelled_at_its_end_gives_back(void **state)
{
    pair *p = *state;
    op    first;

    open_pair(p);
    op_recv(&first, p->server, 0, pair_any, in[1], SIZE);
    assert_non_null(first.req);
    send_one(p, 0);
    while (first.req->status == UMX_INPROGRESS) {
        (void)umi_worker_progress(p->server_worker);
        (void)umx_worker_poll(p->client_worker);
    }
    cancel(&first, in[1]);
    receive(p, 0);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    check_poison(in[1]);
    end_sends(p, 0);
}

/* Receives that meet a message which lands in memory of the library's. */
static void
test_a_receive_that_comes_in_the_middle(void **state)
{
    pair *p = *state;
    op    first, second;
    int   last;

    open_pair(p);
    last = land_in_part(p, NULL, NULL);
    op_recv(&first, p->server, 0, pair_any, in[COUNT - 1], SIZE);
    assert_int_equal(first.status, UMX_INPROGRESS);
    cancel(&first, in[COUNT - 1]);
    op_recv(&second, p->server, 0, pair_any, in[last], SIZE);
    assert_int_equal(op_wait(p, &second), UMX_OK);
    check_pattern(in[last], SIZE, (unsigned)last);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    check_poison(in[COUNT - 1]);
    end_sends(p, last);
}

static void
test_both_sides_cancel_in_the_middle(void **state)
{
    pair *p = *state;
    op    first;
    int   last;

    open_pair(p);
    last = land_in_part(p, &first, in[COUNT - 1]);
    cancel(&sends[last], out[last]);
    cancel(&first, in[COUNT - 1]);
    receive(p, last);
    assert_int_equal(op_wait(p, &first), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &sends[last]), UMX_ERR_CANCELED);
    check_poison(in[COUNT - 1]);
    end_sends(p, last - 1);
    PAIR_UNTIL(p, copied(p) == 0);
}

/* ---- ends ----------------------------------------------------------------
 */

static void
test_a_sender_that_ends_in_the_middle(void **state)
{
    pair *p = *state;
    op    first;
    int   last;

    open_pair(p);
    last = land_in_part(p, &first, in[COUNT - 1]);
    umx_ep_abort(p->client);
    assert_true(op_wait(p, &first) < 0);
    memset(in[COUNT - 1], '!', SIZE);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_true(op_wait(p, &sends[last]) < 0);
    memset(out[last], '!', SIZE);
    pair_step(p);
    check_poison(in[COUNT - 1]);
}

static void
test_a_sender_whose_worker_ends_in_the_middle(void **state)
{
    pair *p = *state;
    op    first;
    int   last;

    open_pair(p);
    last = land_in_part(p, &first, in[COUNT - 1]);
    umx_ep_destroy(p->client);
    p->client = NULL;
    umx_worker_destroy(p->client_worker);
    assert_null(sends[last].req);
    while (first.req != NULL) {
        (void)!umx_worker_wait(p->server_worker, SECOND_NS);
    }
    assert_true(first.status < 0);
    assert_int_equal(umx_worker_create(p->client_context, &p->client_worker),
                     UMX_OK);
}

static void
test_a_message_that_has_not_come_whole_is_lost(void **state)
{
    pair *p = *state;
    op    first;

    open_pair(p);
    (void)land_in_part(p, NULL, NULL);
    op_recv(&first, p->server, 0, pair_any, in[COUNT - 1], SIZE);
    umx_ep_abort(p->client);
    assert_true(op_wait(p, &first) < 0);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(umi_channels_of(p->server)->num_descs, 0);
}

static void
swap(pair *p, umx_ep **client, umx_ep **server)
{
    umx_ep *c = p->client, *s = p->server;

    p->client = *client;
    p->server = *server;
    *client   = c;
    *server   = s;
}

/* Bytes of connections that have ended go nowhere, and the others get their
 * own. */
static void
test_another_connection_of_the_workers_goes_on(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;
    op      first;
    int     last;

    open_pair(p);
    pair_open_second(p, &client, &server);
    swap(p, &client, &server);
    last = land_in_part(p, &first, in[COUNT - 1]);
    send_one(p, last + 1);
    umx_ep_abort(p->server);
    memset(in[COUNT - 1], '!', SIZE);
    umx_ep_destroy(p->server);
    swap(p, &client, &server);
    server = NULL;
    send_one(p, last + 2);
    receive(p, last + 2);
    PAIR_UNTIL(p, umx_ep_get_state(client) == UMX_EP_FAILED);
    for (int i = 0; i <= last + 2; i++) {
        (void)op_wait(p, &sends[i]);
    }
    umx_ep_destroy(client);
    send_one(p, 0);
    receive(p, 0);
    end_sends(p, 0);
}

static void
test_a_close_delivers_first(void **state)
{
    pair *p = *state;
    op    close_op, o;

    open_pair(p);
    send_one(p, 0);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    op_recv(&o, p->server, 0, pair_any, in[0], SIZE);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    check_pattern(in[0], SIZE, 0);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
}

/* ---- peers that lie ------------------------------------------------------
 */

/* Wait for what UCX has sent. */
static void
ucx_wait(pair *p, ucs_status_ptr_t result)
{
    assert_false(UCS_PTR_IS_ERR(result));
    if (result != NULL) {
        PAIR_UNTIL(p, ucp_request_check_status(result) != UCS_INPROGRESS);
        ucp_request_free(result);
    }
}

/* The client's UCX endpoint says `header`, and sends `len` bytes behind it. */
static void
say(pair *p, const void *header, size_t header_len, size_t len)
{
    ucp_ep_h            handle = p->client->base.handle;
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags        = UCP_AM_SEND_FLAG_REPLY};

    ucx_wait(p, ucp_am_send_nbx(handle, UMI_AM_FOLLOWED, header, header_len,
                                NULL, 0, &params));
    params.op_attr_mask = 0;
    if (len != 0) {
        ucx_wait(p, ucp_stream_send_nbx(handle, out[0], len, &params));
    }
}

typedef struct lie {
    uint64_t   len;
    umi_header header;
} lie;

static lie
truth(const pair *p)
{
    return (lie){.len    = SIZE,
                 .header = {.kind     = UMI_KIND_MESSAGE,
                            .endpoint = p->server->base.wire_id,
                            .tag      = 7}};
}

/* The first of two connections is told a lie, and ends; the other goes on. */
static void
check_lie(pair *p, const lie *it)
{
    umx_ep *client, *server;

    pair_open_second(p, &client, &server);
    say(p, it, sizeof(*it), SIZE);
    PAIR_UNTIL(p, umx_ep_get_state(server) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_error(server), UMX_ERR_PROTOCOL);
    send_one(p, 1);
    receive(p, 1);
    assert_int_equal(op_wait(p, &sends[1]), UMX_OK);
    PAIR_UNTIL(p, umx_ep_get_state(client) != UMX_EP_OPEN);
    umx_ep_destroy(client);
    umx_ep_destroy(server);
}

static void
test_the_truth(void **state)
{
    pair *p = *state;
    lie   it;

    open_pair(p);
    fill_pattern(out[0], SIZE, 0);
    it = truth(p);
    say(p, &it, sizeof(it), SIZE);
    receive(p, 0);
}

static void
test_lies(void **state)
{
    pair *p = *state;
    lie   it;

    p->config.credit_bytes = 2 * SIZE;
    open_pair(p);
    fill_pattern(out[0], SIZE, 0);
    for (int i = 0; i < 6; i++) {
        it = truth(p);
        switch (i) {
        case 0:
            it.header.kind = UMI_KIND_STREAM;
            break;
        case 1:
            it.header.kind = UMI_KIND_FRAMES;
            break;
        case 2:
            it.header.kind = UMI_KIND_AM;
            break;
        case 3:
            it.header.flags = UMI_FLAG_RESERVE;
            break;
        case 4:
            it.header.seq = UINT32_MAX; /* it has come before */
            break;
        case 5:
            it.header.seq = 1; /* early; then the credit is used up */
            say(p, &it, sizeof(it), SIZE);
            it.header.seq = 2;
            break;
        }
        check_lie(p, &it);
    }
}

/* Nobody is meant: nobody has to end. */
static void
test_messages_to_nobody(void **state)
{
    pair            *p = *state;
    lie              it;
    umx_worker_stats stats;

    open_pair(p);
    it                 = truth(p);
    it.header.endpoint = 12345;
    say(p, &it, sizeof(it), SIZE);
    it             = truth(p);
    it.header.kind = 0;
    say(p, &it, sizeof(it), SIZE);
    say(p, &it, sizeof(it.len) + 3, SIZE);
    send_one(p, 1);
    receive(p, 1);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.protocol_errors, 2);
    assert_int_equal(op_wait(p, &sends[1]), UMX_OK);
}

/* Nobody knows how many bytes follow. */
static void
test_lengths_that_mean_nothing(void **state)
{
    static const uint64_t lengths[] = {0, UINT64_MAX, (uint64_t)1 << 63};
    pair                 *p         = *state;

    pair_listen(p);
    for (int i = 0; i < 4; i++) {
        lie    it;
        size_t len = sizeof(it);

        pair_connect(p, 0);
        PAIR_UNTIL(p, p->server != NULL &&
                          umx_ep_get_state(p->client) != UMX_EP_CONNECTING);
        it = truth(p);
        if (i < 3) {
            it.len = lengths[i];
        } else {
            len = 7;
        }
        say(p, &it, len, 0);
        PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
        assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
        umx_ep_destroy(p->server);
        p->server = NULL;
        PAIR_UNTIL(p, umx_ep_get_state(p->client) != UMX_EP_OPEN);
        umx_ep_destroy(p->client);
        p->client = NULL;
    }
}

/* A message that names a connection which has another UCX endpoint. */
static void
test_another_ones_connection(void **state)
{
    pair          *p = *state;
    lie            it;
    umi_am_arrival arrival = {.header = &it, .header_len = sizeof(it)};

    open_pair(p);
    it = truth(p);
    (void)p->server_worker->am_handlers[UMI_AM_FOLLOWED].fn(p->server_worker,
                                                            &arrival);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
    assert_int_equal(p->server->num_landing, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_bytes_land_in_the_receive),
        PAIR_TEST_ONCE(test_a_message_waits_for_its_receive),
        PAIR_TEST(test_messages_of_all_kinds_stay_in_order),
        PAIR_TEST(test_a_receive_that_is_too_short),
        PAIR_TEST(test_credit_bounds_what_is_kept),
        PAIR_TEST_ONCE(
            test_sends_that_are_cancelled_in_the_middle_arrive_whole),
        PAIR_TEST_ONCE(test_a_send_whose_copy_is_beyond_the_limit_is_deferred),
        PAIR_TEST_ONCE(
            test_a_receive_that_is_cancelled_in_the_middle_gives_back),
        PAIR_TEST_ONCE(test_a_receive_that_is_cancelled_at_its_end_gives_back),
        PAIR_TEST_ONCE(test_a_receive_that_comes_in_the_middle),
        PAIR_TEST_ONCE(test_both_sides_cancel_in_the_middle),
        PAIR_TEST_ONCE(test_a_sender_that_ends_in_the_middle),
        PAIR_TEST_ONCE(test_a_sender_whose_worker_ends_in_the_middle),
        PAIR_TEST_ONCE(test_a_message_that_has_not_come_whole_is_lost),
        PAIR_TEST_ONCE(test_another_connection_of_the_workers_goes_on),
        PAIR_TEST(test_a_close_delivers_first),
        PAIR_TEST_ONCE(test_the_truth),
        PAIR_TEST_ONCE(test_lies),
        PAIR_TEST_ONCE(test_messages_to_nobody),
        PAIR_TEST_ONCE(test_lengths_that_mean_nothing),
        PAIR_TEST_ONCE(test_another_ones_connection),
    };

    return UNIT_RUN(tests);
}
