/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=umi_transfer_tell wrap=shmget */
/* tests: near/agree codec/near */
/* Rings of short messages between two workers: near/near.h. */
#include "pair.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/shm.h>

#include "codec/near.h"
#include "near/near.h"
#include "ops/am.h"
#include "ops/transfer.h"

static struct {
    bool is_mute;      /* notes of rings cannot be sent */
    bool has_no_rings; /* shmget() fails for segments as long as a ring */
} sys;

umx_status __real_umi_transfer_tell(const umi_ep_base *ep, unsigned id,
                                    const void *bytes, size_t len);
umx_status __wrap_umi_transfer_tell(const umi_ep_base *ep, unsigned id,
                                    const void *bytes, size_t len);

umx_status
__wrap_umi_transfer_tell(const umi_ep_base *ep, unsigned id, const void *bytes,
                         size_t len)
{
    return (sys.is_mute && id == UMI_AM_NEAR) ?
               UMX_ERR_NO_MEMORY :
               __real_umi_transfer_tell(ep, id, bytes, len);
}

int __real_shmget(key_t key, size_t size, int flags);
int __wrap_shmget(key_t key, size_t size, int flags);

int
__wrap_shmget(key_t key, size_t size, int flags)
{
    if (sys.has_no_rings && size == sizeof(umi_near_ring)) {
        errno = ENOSPC;
        return -1;
    }
    return __real_shmget(key, size, flags);
}

static void
pass(pair *p, size_t len, unsigned seed)
{
    char out[2048], in[2048];
    op   send_op, recv_op;

    fill_pattern(out, len, seed);
    op_recv(&recv_op, p->server, 0, pair_any, in, sizeof(in));
    op_send(&send_op, p->client, 0, pair_tag(seed), out, len);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(recv_op.info.length, len);
    assert_int_equal(recv_op.info.tag, seed);
    check_pattern(in, len, seed);
}

static umi_near_link *
client_near(const pair *p)
{
    return p->client->base.link->near;
}

static umi_near_link *
server_near(const pair *p)
{
    return p->server->base.link->near;
}

static void
open_pair(pair *p)
{
    memset(&sys, 0, sizeof(sys));
    p->config.near_max = UMX_NEAR_MAX;
    pair_open(p);
}

static void
open_rings(pair *p)
{
    open_pair(p);
    if (client_near(p) == NULL) {
        skip(); /* UCX has no shared memory */
    }
    for (unsigned i = 0; i < 1000 && !client_near(p)->is_open; i++) {
        pass(p, 8, i);
    }
    assert_true(client_near(p)->is_open);
    assert_non_null(server_near(p)->in);
    assert_int_equal(p->client_worker->stats->near_rings, 1);
    assert_int_equal(p->server_worker->stats->near_rings, 1);
}

static void
test_many_short_messages_open_a_ring(void **state)
{
    pair    *p = *state;
    uint64_t before;

    open_rings(p);
    before = p->client_worker->stats->near_messages;
    for (size_t len = 0; len <= UMX_NEAR_MAX; len += 31) {
        pass(p, len, (unsigned)len);
    }
    assert_int_equal(p->client_worker->stats->near_messages, before + 34);
    for (unsigned i = 0; i < 200; i++) { /* those behind a long one by UCX */
        pass(p, (i % 2 == 0) ? 512 : 2048, i);
    }
    assert_true(p->client_worker->stats->near_messages <= before + 36);
}

static void
test_over_tcp_there_is_none(void **state)
{
    pair *p = *state;

    p->tls = "tcp";
    open_pair(p);
    assert_null(client_near(p));
    for (unsigned i = 0; i < 300; i++) {
        pass(p, 8, i);
    }
    assert_int_equal(p->client_worker->stats->near_messages, 0);
}

static void
test_what_does_not_fit_goes_by_ucx_in_order(void **state)
{
    enum {
        MANY = 700
    };
    static char in[MANY][1024];
    static char out[MANY][1024];
    static op   sends[MANY], recvs[MANY];

    pair *p = *state;

    open_rings(p);
    for (unsigned i = 0; i < MANY; i++) {
        size_t len = (i % 3 == 0) ? 1024 : 40;

        fill_pattern(out[i], len, i);
        op_send(&sends[i], p->client, 0, pair_tag(i), out[i], len);
    }
    for (unsigned i = 0; i < MANY; i++) {
        op_recv(&recvs[i], p->server, 0, pair_any, in[i], sizeof(in[i]));
    }
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(op_wait(p, &recvs[i]), UMX_OK);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
        assert_int_equal(recvs[i].info.tag, i);
        check_pattern(in[i], recvs[i].info.length, i);
    }
}

/* Receive the messages of 8 bytes whose tags are 0, 1, ... */
static void
expect_messages(pair *p, unsigned count)
{
    char in[8];
    op   recv_op;

    for (unsigned i = 0; i < count; i++) {
        op_recv(&recv_op, p->server, 0, pair_any, in, sizeof(in));
        assert_int_equal(op_wait(p, &recv_op), UMX_OK);
        assert_int_equal(recv_op.info.tag, i);
    }
}

static void
test_all_arrives_that_was_sent_before_a_close(void **state)
{
    pair    *p = *state;
    op       send_op, close_op;
    uint64_t before;

    open_rings(p);
    before = p->client_worker->stats->near_messages;
    for (unsigned i = 0; i < 100; i++) {
        op_send(&send_op, p->client, 0, pair_tag(i), "12345678", 8);
        assert_true(op_is_done(&send_op));
    }
    assert_int_equal(p->client_worker->stats->near_messages, before + 100);
    op_close(&close_op, p->client, SECOND_NS);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    expect_messages(p, 100);
}

static void
test_an_abort_is_heard_after_what_was_sent(void **state)
{
    pair *p = *state;
    op    send_op;

    open_rings(p);
    for (unsigned i = 0; i < 100; i++) {
        op_send(&send_op, p->client, 0, pair_tag(i), "12345678", 8);
    }
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    expect_messages(p, 100);
}

static void
test_an_idle_ring_is_closed_and_opens_again(void **state)
{
    pair *p = *state;

    open_rings(p);
    client_near(p)->seen_sent = client_near(p)->out->sent;
    umi_timer_start(p->client_worker, &client_near(p)->timer, 0);
    PAIR_UNTIL(p, server_near(p)->in == NULL);
    assert_null(client_near(p)->out);
    assert_int_equal(p->client_worker->stats->near_rings, 0);
    assert_int_equal(p->server_worker->stats->near_rings, 0);
    assert_false(p->server_worker->has_rings);
    for (unsigned i = 0; i < 1000 && !client_near(p)->is_open; i++) {
        pass(p, 8, i);
    }
    assert_true(client_near(p)->is_open);
}

/* Of 200 messages each, with no ring, each time later. */
static void
check_refused_twice(pair *p)
{
    uint64_t first, second;

    for (unsigned i = 0; i < 1000 && client_near(p)->retry_ns == 0; i++) {
        pass(p, 8, i);
    }
    first = client_near(p)->retry_ns;
    assert_int_not_equal(first, 0);
    assert_false(client_near(p)->is_open);
    client_near(p)->retry_ns = 0;
    for (unsigned i = 0; i < 1000 && client_near(p)->retry_ns == 0; i++) {
        pass(p, 8, i);
    }
    second = client_near(p)->retry_ns;
    assert_true(second > first + SECOND_NS / 2);
    assert_int_equal(client_near(p)->backoff_ns, 4 * SECOND_NS);
}

static void
check_opens_in_the_end(pair *p)
{
    client_near(p)->retry_ns = 0;
    for (unsigned i = 0; i < 1000 && !client_near(p)->is_open; i++) {
        pass(p, 8, i);
    }
    assert_true(client_near(p)->is_open);
}

static void
test_a_worker_that_reads_too_many_refuses(void **state)
{
    pair *p = *state;

    open_pair(p);
    if (client_near(p) == NULL) {
        skip();
    }
    p->server_worker->near->num_ins = UMI_NEAR_RINGS;
    check_refused_twice(p);
    p->server_worker->near->num_ins = 0;
    check_opens_in_the_end(p);
}

static void
test_without_a_segment_messages_go_by_ucx(void **state)
{
    pair *p = *state;

    open_pair(p);
    if (client_near(p) == NULL) {
        skip();
    }
    sys.has_no_rings = true;
    check_refused_twice(p);
    sys.has_no_rings = false;
    check_opens_in_the_end(p);
}

static void
test_a_segment_of_another_process_is_refused(void **state)
{
    pair         *p    = *state;
    umi_near_note note = {.kind = UMI_NEAR_OPEN, .ring = 7, .max = 8};

    open_pair(p);
    if (client_near(p) == NULL) {
        skip();
    }
    note.segment = shmget(IPC_PRIVATE, sizeof(umi_near_ring), IPC_CREAT | 0600);
    assert_true(note.segment >= 0);
    umi_near_on_note(&p->server->base, &note); /* no introduction is in it */
    assert_null(server_near(p)->in);
    p->server->base.near_pid = 1;
    umi_near_on_note(&p->server->base, &note);
    assert_null(server_near(p)->in);
    assert_int_equal(shmctl(note.segment, IPC_RMID, NULL), 0);
    note.segment = 0x7ffffff;
    umi_near_on_note(&p->server->base, &note);
    assert_null(server_near(p)->in);
}

/* ---- what a hostile writer may write -------------------------------------
 */

typedef struct damage {
    const char *name;
    size_t      at; /* of the cell */
    uint64_t    value;
    size_t      size;
} damage;

enum {
    ROOM = offsetof(umi_near_cell, room)
};

static const damage damages[] = {
    {"length", offsetof(umi_near_cell, len), UMX_NEAR_MAX + 1, 2},
    {"longest", offsetof(umi_near_cell, len), UINT16_MAX, 2},
    {"no header", offsetof(umi_near_cell, header_len), 0, 1},
    {"short header", offsetof(umi_near_cell, header_len), 15, 1},
    {"long header", offsetof(umi_near_cell, header_len), 255, 1},
    {"zero", offsetof(umi_near_cell, zero), 1, 1},
    {"kind", ROOM + offsetof(umi_header, kind), 9, 1},
    {"flags", ROOM + offsetof(umi_header, flags), 0x80, 1},
    {"tag is missing", ROOM + offsetof(umi_header, flags), 1, 1},
    {"seq", ROOM + offsetof(umi_header, seq), UINT32_MAX, 4},
};

static void
test_a_bad_cell_ends_the_connection(void **state)
{
    const damage *d = NULL;
    char          name[64];

    for (size_t i = 0; i < sizeof(damages) / sizeof(*damages); i++) {
        pair          *p;
        umi_near_cell *cell;
        op             send_op;
        uint64_t       errors;

        d = &damages[i];
        (void)snprintf(name, sizeof(name), "%s", d->name);
        if (i != 0) {
            assert_int_equal(pair_abort_and_teardown(state), 0);
            *state = NULL;
            assert_int_equal(pair_setup(state), 0);
        }
        p = *state;
        open_rings(p);
        errors = p->server_worker->stats->protocol_errors;
        op_send(&send_op, p->client, 0, pair_tag(1), "12345678", 8);
        cell =
            &client_near(p)->out->ring->cells[(client_near(p)->out->sent - 1) %
                                              UMI_NEAR_CELLS];
        memcpy((char *)cell + d->at, &d->value, d->size);
        PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
        assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
        assert_true(p->server_worker->stats->protocol_errors > errors);
    }
}

/* ---- sleeping ------------------------------------------------------------
 */

static void
sleep_server(pair *p)
{
    while (umx_worker_drain(p->server_worker) != UMX_OK) {
    }
    assert_true(p->server_worker->near->is_announced);
}

static bool
is_woken(const pair *p, int ms)
{
    struct pollfd fd = {.fd     = umx_worker_fd(p->server_worker),
                        .events = POLLIN};

    return poll(&fd, 1, ms) == 1;
}

static void
test_who_sleeps_is_woken(void **state)
{
    pair *p = *state;
    op    send_op;

    open_rings(p);
    for (int i = 0; i < 50; i++) {
        uint64_t before = p->client_worker->stats->near_messages;

        sleep_server(p);
        assert_false(is_woken(p, 0));
        op_send(&send_op, p->client, 0, pair_tag(1), "12345678", 8);
        assert_int_equal(p->client_worker->stats->near_messages, before + 1);
        assert_true(is_woken(p, 200));
    }
}

static void
test_a_wake_that_cannot_be_sent_is_sent_later(void **state)
{
    pair *p = *state;
    op    send_op;

    open_rings(p);
    sleep_server(p);
    sys.is_mute = true;
    op_send(&send_op, p->client, 0, pair_tag(1), "12345678", 8);
    assert_false(is_woken(p, 0));
    assert_true(umi_node_is_linked(&client_near(p)->wake_timer.node));
    sys.is_mute = false;
    while (umi_node_is_linked(&client_near(p)->wake_timer.node)) {
        (void)!umx_worker_drain(p->client_worker);
    }
    assert_true(is_woken(p, 200));
}

static void
test_notes_that_are_wrong_are_refused(void **state)
{
    static const umi_near_note good[] = {
        {.kind = UMI_NEAR_OPEN, .ring = 1, .segment = 3, .max = 1},
        {.kind = UMI_NEAR_ACCEPT, .ring = 1, .flags = UMI_NEAR_IS_ORDERED},
        {.kind = UMI_NEAR_REFUSE, .ring = 1},
        {.kind = UMI_NEAR_CLOSE, .ring = 1},
        {.kind = UMI_NEAR_WAKE},
    };
    static const umi_near_note bad[] = {
        {.kind = 0, .ring = 1},
        {.kind = UMI_NEAR_WAKE + 1, .ring = 1},
        {.kind = UMI_NEAR_OPEN, .ring = 1, .segment = -1, .max = 1},
        {.kind = UMI_NEAR_OPEN, .ring = 1, .max = 0},
        {.kind = UMI_NEAR_OPEN, .ring = 1, .max = UMX_NEAR_MAX + 1},
        {.kind = UMI_NEAR_OPEN, .ring = 0, .max = 1},
        {.kind = UMI_NEAR_ACCEPT, .ring = 1, .flags = 2},
        {.kind = UMI_NEAR_REFUSE, .ring = 1, .flags = 1},
        {.kind = UMI_NEAR_CLOSE, .ring = 1, .segment = 1},
        {.kind = UMI_NEAR_WAKE, .ring = 1},
    };
    umi_near_note note;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_true(umi_codec_near_decode(&note, &good[i], sizeof(note)));
        assert_memory_equal(&note, &good[i], sizeof(note));
        assert_false(umi_codec_near_decode(&note, &good[i], sizeof(note) - 1));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_false(umi_codec_near_decode(&note, &bad[i], sizeof(note)));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_ONCE(test_many_short_messages_open_a_ring),
        PAIR_TEST_ONCE(test_over_tcp_there_is_none),
        PAIR_TEST_ONCE(test_what_does_not_fit_goes_by_ucx_in_order),
        PAIR_TEST_ONCE(test_all_arrives_that_was_sent_before_a_close),
        PAIR_TEST_FAKE(test_an_abort_is_heard_after_what_was_sent),
        PAIR_TEST_ONCE(test_an_idle_ring_is_closed_and_opens_again),
        PAIR_TEST_ONCE(test_a_worker_that_reads_too_many_refuses),
        PAIR_TEST_ONCE(test_without_a_segment_messages_go_by_ucx),
        PAIR_TEST_ONCE(test_a_segment_of_another_process_is_refused),
        PAIR_TEST_FAKE(test_a_bad_cell_ends_the_connection),
        PAIR_TEST_ONCE(test_who_sleeps_is_woken),
        PAIR_TEST_ONCE(test_a_wake_that_cannot_be_sent_is_sent_later),
        cmocka_unit_test(test_notes_that_are_wrong_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
