/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair standin */
/* tests: bounce/fetch bounce/fill bounce/note bounce/slots */
/* tests: bounce/mapping bounce/direct bounce/hand worker/dma mem/cuda_copy */
/* tests: mem/cuda_memory */
/* Messages of memory of devices within a process: its own copies move them. */
#include "pair.h"
#include "standin/standin.h"

#include <stdlib.h>
#include <string.h>

#include "bounce/bounce.h"
#include "bounce/direct.h"
#include "bounce/movable.h"
#include "mem/cuda.h"
#include "mem/cuda_copy.h"
#include "mem/memtype.h"

enum {
    SHORT = 3000,
    LONG  = 5 * 1024 * 1024 + 3 /* several turns of all slots of a peer */
};

static const size_t lens[] = {1, SHORT, 32768, 32769, 70000, 1 << 20, LONG};

/* Memory of the host that the driver takes for a device's; and plain memory. */
typedef struct arrays {
    char *device, *other, *host;
} arrays;

static void
open_arrays(pair *p, arrays *m)
{
    standin_reset();
    pair_open(p);
    m->device = calloc(1, LONG);
    m->other  = calloc(1, LONG);
    m->host   = calloc(1, LONG);
    assert_non_null(m->device);
    assert_non_null(m->other);
    assert_non_null(m->host);
    standin_add(m->device, LONG, 0, false);
    standin_add(m->other, LONG, 1, false);
}

static void
close_arrays(arrays *m)
{
    free(m->device);
    free(m->other);
    free(m->host);
    assert_int_equal(standin.pushes, standin.pops);
}

static umx_buffer
buffer_of(const arrays *m, char *data, size_t len)
{
    umx_buffer buf = umx_host_buffer(data, len);

    buf.memtype = (data == m->host) ? UMX_MEMTYPE_HOST : UMX_MEMTYPE_CUDA;
    return buf;
}

static void
fill(char *data, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++) {
        data[i] = (char)((i * 2654435761u + seed) >> 8);
    }
}

static void
check(const char *data, size_t len, unsigned seed)
{
    char *expected = malloc(len);

    assert_non_null(expected);
    fill(expected, len, seed);
    assert_memory_equal(data, expected, len);
    free(expected);
}

static void
begin_send(op *o, pair *p, const umx_buffer *buf)
{
    umx_op_params params = op_params(o);
    umx_match     match  = pair_tag(7);

    o->status = umx_channel_send(p->client, 0, &match, buf, &params, &o->req);
    assert_true(o->status >= 0);
}

static void
begin_recv(op *o, pair *p, const umx_buffer *buf)
{
    umx_op_params params = op_params(o);
    umx_match     match  = pair_any;

    o->status = umx_channel_recv(p->server, 0, &match, buf, &params, &o->req,
                                 &o->info);
    assert_true(o->status >= 0);
}

static uint64_t
received(const pair *p, umi_bounce_route route)
{
    return p->server->bounce.received[route];
}

static void
pass_on(pair *p, const arrays *m, char *from, char *to, size_t len,
        unsigned seed)
{
    umx_buffer sent = buffer_of(m, from, len), got = buffer_of(m, to, len);
    op         sending, receiving;

    fill(from, len, seed);
    memset(to, 0, len);
    begin_send(&sending, p, &sent);
    begin_recv(&receiving, p, &got);
    assert_int_equal(op_wait(p, &receiving), UMX_OK);
    assert_int_equal(op_wait(p, &sending), UMX_OK);
    check(to, len, seed);
}

static void
test_each_length_from_each_memory_to_each(void **state)
{
    pair  *p = *state;
    arrays m;

    open_arrays(p, &m);
    for (unsigned i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
        pass_on(p, &m, m.device, m.other, lens[i], i);
        pass_on(p, &m, m.host, m.device, lens[i], i + 10);
        pass_on(p, &m, m.device, m.host, lens[i], i + 20);
    }
    close_arrays(&m);
}

/* A receiver's device reads memory of its own process; memory of the host is
 * written through slots. */
static void
test_how_they_came_is_counted(void **state)
{
    pair   *p = *state;
    arrays  m;
    umx_way ways[UMX_WAYS_MAX];
    size_t  count;

    open_arrays(p, &m);
    pass_on(p, &m, m.device, m.other, LONG, 1);
    assert_int_equal(received(p, UMI_BOUNCE_BY_READ), 1);
    pass_on(p, &m, m.device, m.host, LONG, 2);
    assert_int_equal(received(p, UMI_BOUNCE_BY_HOST), 1);
    count = umx_ep_ways(p->client, ways);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(ways[i].name, "bounce") == 0) {
            assert_int_equal(ways[i].sent, 2);
        } else if (strcmp(ways[i].name, "direct") == 0 ||
                   strcmp(ways[i].name, "host slots") == 0) {
            assert_int_equal(ways[i].sent, 1);
        } else if (strcmp(ways[i].name, "rendezvous") == 0) {
            assert_int_equal(ways[i].sent, 0);
        }
        assert_non_null(ways[i].how);
    }
    close_arrays(&m);
}

/* Cancel a receive at each step: the buffer is the program's at once, whatever
 * copies were under way, and the message is received again. */
static void
cancel_after(pair *p, const arrays *m, char *from, char *to, unsigned steps)
{
    umx_buffer sent = buffer_of(m, from, LONG), got = buffer_of(m, to, LONG);
    op         sending, receiving, again;

    fill(from, LONG, steps);
    begin_send(&sending, p, &sent);
    begin_recv(&receiving, p, &got);
    for (unsigned i = 0; i < steps && !op_is_done(&receiving); i++) {
        pair_step(p);
    }
    if (!op_is_done(&receiving)) {
        op_cancel(receiving.req);
        memset(to, 0x5a, LONG);
        assert_int_equal(op_wait(p, &receiving), UMX_ERR_CANCELED);
        pair_settle(p);
        for (size_t i = 0; i < LONG; i += 4093) {
            assert_int_equal(to[i], 0x5a);
        }
        begin_recv(&again, p, &got);
        assert_int_equal(op_wait(p, &again), UMX_OK);
    }
    assert_int_equal(op_wait(p, &sending), UMX_OK);
    check(to, LONG, steps);
}

static void
test_a_receive_is_cancelled_at_each_step(void **state)
{
    pair  *p = *state;
    arrays m;

    open_arrays(p, &m);
    for (unsigned steps = 0; steps < 12; steps++) {
        cancel_after(p, &m, m.device, m.other, steps);
        cancel_after(p, &m, m.device, m.host, steps);
        cancel_after(p, &m, m.host, m.other, steps);
    }
    close_arrays(&m);
}

/* A send that is cancelled is withdrawn, or has been delivered whole. */
static void
withdraw_after(pair *p, const arrays *m, char *from, char *to, unsigned steps)
{
    umx_buffer sent = buffer_of(m, from, LONG), got = buffer_of(m, to, LONG);
    op         sending, receiving;

    fill(from, LONG, steps);
    begin_send(&sending, p, &sent);
    begin_recv(&receiving, p, &got);
    for (unsigned i = 0; i < steps && !op_is_done(&sending); i++) {
        pair_step(p);
    }
    if (op_is_done(&sending)) {
        assert_int_equal(op_wait(p, &receiving), UMX_OK);
        return;
    }
    op_cancel(sending.req);
    memset(from, 0x33, LONG);
    if (op_wait(p, &sending) == UMX_OK) { /* it had been sent */
        assert_int_equal(op_wait(p, &receiving), UMX_OK);
        check(to, LONG, steps);
        return;
    }
    assert_int_equal(sending.status, UMX_ERR_CANCELED);
    pair_settle(p);
    if (!op_is_done(&receiving)) {
        fill(from, LONG, steps);
        begin_send(&sending, p, &sent);
        assert_int_equal(op_wait(p, &sending), UMX_OK);
    }
    assert_int_equal(op_wait(p, &receiving), UMX_OK);
    check(to, LONG, steps);
}

static void
test_a_send_is_cancelled_at_each_step(void **state)
{
    pair  *p = *state;
    arrays m;

    open_arrays(p, &m);
    for (unsigned steps = 0; steps < 10; steps++) {
        withdraw_after(p, &m, m.device, m.other, steps);
        withdraw_after(p, &m, m.device, m.host, steps);
        withdraw_after(p, &m, m.host, m.other, steps);
    }
    close_arrays(&m);
}

/* A device writes into pinned memory itself, from 32 KiB on. */
static void
test_pinned_memory_is_written_by_a_device(void **state)
{
    pair    *p = *state;
    arrays   m;
    uint64_t count;

    open_arrays(p, &m);
    assert_int_equal(umi_cuda_pin(0, m.host, LONG), UMX_OK);
    for (unsigned i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
        count = received(p, UMI_BOUNCE_BY_READ);
        pass_on(p, &m, m.device, m.host, lens[i], i);
        assert_int_equal(received(p, UMI_BOUNCE_BY_READ) - count,
                         lens[i] > UMI_BOUNCE_SHORT ? 1 : 0);
        pass_on(p, &m, m.host, m.device, lens[i], i + 10);
    }
    for (unsigned steps = 0; steps < 12; steps++) {
        cancel_after(p, &m, m.device, m.host, steps);
        withdraw_after(p, &m, m.device, m.host, steps);
    }
    umi_cuda_unpin(0, m.host);
    close_arrays(&m);
}

/* An error that stays: operations on the device fail at once, messages of the
 * host go on. */
static void
test_a_device_that_has_failed(void **state)
{
    pair      *p = *state;
    arrays     m;
    umx_buffer sent, got;
    umx_match  match = pair_tag(7);
    op         sending, receiving;
    char       bytes[8];

    open_arrays(p, &m);
    sent = buffer_of(&m, m.host, LONG);
    got  = buffer_of(&m, m.device, LONG);
    standin_fail("copy", 700, 1);
    begin_send(&sending, p, &sent);
    begin_recv(&receiving, p, &got);
    assert_int_equal(op_wait(p, &receiving), UMX_ERR_DEVICE_FAILED);
    assert_int_equal(op_wait(p, &sending), UMX_OK);
    assert_true(
        umx_channel_send(p->client, 0, &match, &got, NULL, &sending.req) < 0);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "host", 5),
                     UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, bytes, 8), UMX_OK);
    close_arrays(&m);
}

/* A loan ends for its reader as soon as its lender says so. */
static void
test_loans_within_the_process(void **state)
{
    static char bytes[16];

    umx_buffer        buf    = umx_host_buffer(bytes, sizeof(bytes));
    umi_direct       *direct = umi_direct_lend(&buf);
    uint64_t          id     = umi_direct_id(direct);
    umi_direct       *taken;
    const umx_buffer *locked;

    (void)state;
    assert_true(umi_direct_process() != 0);
    assert_null(umi_direct_take(id, 15));
    taken = umi_direct_take(id, sizeof(bytes));
    assert_ptr_equal(taken, direct);
    assert_null(umi_direct_take(id, sizeof(bytes))); /* it has a reader */
    locked = umi_direct_lock(taken);
    assert_ptr_equal(locked->data, bytes);
    umi_direct_unlock();
    umi_direct_end(direct);
    assert_null(umi_direct_lock(taken));
    umi_direct_put(taken);
    assert_null(umi_direct_take(id, sizeof(bytes)));
}

static void
test_copies_that_nobody_waits_for(void **state)
{
    pair         *p = *state;
    arrays        m;
    umi_cuda_copy copy;
    umx_status    status;

    open_arrays(p, &m);
    fill(m.host, LONG, 3);
    assert_int_equal(umi_cuda_pin(0, m.host, LONG), UMX_OK);
    assert_int_equal(umi_cuda_pin(0, m.host, LONG), UMX_ERR_ALREADY_EXISTS);
    assert_int_equal(
        umi_cuda_copy_begin(0, UMI_CUDA_IN,
                            &(umi_cuda_move){m.device, m.host, LONG}, 1, &copy),
        UMX_OK);
    do {
        status = umi_cuda_copy_test(&copy);
    } while (status == UMX_INPROGRESS);
    assert_int_equal(status, UMX_OK);
    check(m.device, LONG, 3);
    assert_int_equal(umi_cuda_copy_begin(
                         0, UMI_CUDA_ACROSS,
                         &(umi_cuda_move){m.other, m.device, LONG}, 1, &copy),
                     UMX_OK);
    assert_int_equal(umi_cuda_copy_wait(&copy), UMX_OK);
    check(m.other, LONG, 3);
    umi_cuda_unpin(0, m.host);
    assert_true(umi_cuda_is_exportable(m.device) ||
                !umi_cuda_is_exportable(m.host));
    close_arrays(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_each_length_from_each_memory_to_each),
        PAIR_TEST_ONCE(test_how_they_came_is_counted),
        PAIR_TEST(test_a_receive_is_cancelled_at_each_step),
        PAIR_TEST(test_a_send_is_cancelled_at_each_step),
        PAIR_TEST_ONCE(test_pinned_memory_is_written_by_a_device),
        cmocka_unit_test(test_loans_within_the_process),
        PAIR_TEST_ONCE(test_copies_that_nobody_waits_for),
        PAIR_TEST_ONCE(test_a_device_that_has_failed), /* for good */
    };

    return UNIT_RUN(tests);
}
