/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory standin */
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"
#include "memory.h"
#include "pair.h"

/* Device memory where UCX cannot reach any. */

enum {
    MIB = 1024 * 1024
};

static const size_t sizes[] = {1, 24, 129, 5000, 40000, 300000, MIB};

typedef struct arrays {
    char *sent, *got, *back;
} arrays;

static void
open_pair(pair *p, arrays *m)
{
    standin_reset();
    pair_open(p);
    p->context->moves_cuda = false;
    m->sent                = calloc(1, MIB);
    m->got                 = calloc(1, MIB);
    m->back                = calloc(1, MIB);
    assert_non_null(m->sent);
    assert_non_null(m->got);
    assert_non_null(m->back);
    standin_add(m->sent, MIB, 0, false);
    standin_add(m->got, MIB, 1, false);
}

static void
free_arrays(arrays *m)
{
    free(m->sent);
    free(m->got);
    free(m->back);
    assert_int_equal(standin.pushes, standin.pops);
}

static umx_buffer
device_buffer(char *data, size_t len)
{
    umx_buffer buf = umx_host_buffer(data, len);

    buf.memtype = UMX_MEMTYPE_CUDA;
    return buf;
}

static void
send_device(op *o, pair *p, char *data, size_t len)
{
    umx_op_params   params = op_params(o);
    const umx_match match  = pair_tag(7);
    umx_buffer      buf    = device_buffer(data, len);

    o->status = umx_channel_send(p->client, 0, &match, &buf, &params, &o->req);
}

static void
recv_device(op *o, pair *p, char *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buf    = device_buffer(data, len);

    o->status = umx_channel_recv(p->server, 0, &pair_any, &buf, &params,
                                 &o->req, &o->info);
    assert_true(o->status >= 0);
}

static void
test_messages_go_from_device_to_device(void **state)
{
    pair    *p = *state;
    arrays   m;
    unsigned copies;
    op       sending, receiving;

    open_pair(p, &m);
    for (unsigned i = 0; i < 2 * sizeof(sizes) / sizeof(*sizes); i++) {
        size_t len = sizes[i / 2];

        fill_pattern(m.sent, len, i);
        memset(m.got, 0, len);
        copies = standin.copies;
        if (i % 2 == 0) {
            recv_device(&receiving, p, m.got, len);
        }
        send_device(&sending, p, m.sent, len);
        if (i % 2 != 0) {
            pair_settle(p);
            recv_device(&receiving, p, m.got, len);
        }
        assert_int_equal(op_wait(p, &receiving), UMX_OK);
        assert_true(receiving.info.is_device);
        assert_int_equal(op_wait(p, &sending), UMX_OK);
        check_pattern(m.got, len, i);
        assert_true(standin.copies > copies);
    }
    free_arrays(&m);
}

static void
test_a_message_is_taken_into_device_memory(void **state)
{
    pair         *p = *state;
    arrays        m;
    umx_op_params params;
    op            sending, taking, receiving;

    open_pair(p, &m);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        umx_buffer buf = device_buffer(m.got, sizes[i]);

        fill_pattern(m.sent, sizes[i], i);
        send_device(&sending, p, m.sent, sizes[i]);
        op_recv_message(&taking, p->server, 0, pair_any);
        assert_int_equal(op_wait(p, &taking), UMX_OK);
        params           = op_params(&receiving);
        receiving.status = umx_message_recv(&taking.message, &buf, &params,
                                            &receiving.req);
        assert_int_equal(op_wait(p, &receiving), UMX_OK);
        check_pattern(m.got, sizes[i], i);
        assert_int_equal(op_wait(p, &sending), UMX_OK);
    }
    free_arrays(&m);
}

static void
test_a_cancelled_receive_loses_nothing(void **state)
{
    pair  *p = *state;
    arrays m;
    op     sending, receiving, again;

    open_pair(p, &m);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t     len = sizes[i];
        umx_buffer to  = device_buffer(m.got, len);

        fill_pattern(m.sent, len, i);
        send_device(&sending, p, m.sent, len);
        recv_device(&receiving, p, m.got, len);
        pair_step(p); /* the bytes may be here, landing or on their way */
        if (receiving.req != NULL) {
            op_cancel(receiving.req);
            assert_int_equal(op_wait(p, &receiving), UMX_ERR_CANCELED);
        } else {
            assert_int_equal(
                umx_channel_unrecv(p->server, 0, &receiving.info, &to), UMX_OK);
        }
        op_recv(&again, p->server, 0, pair_any, m.back, len);
        assert_int_equal(op_wait(p, &again), UMX_OK);
        check_pattern(m.back, len, i);
        assert_int_equal(op_wait(p, &sending), UMX_OK);
    }
    free_arrays(&m);
}

/* The driver fails: the operation does, the endpoint does not. */
static void
test_a_copy_that_fails_fails_the_operation(void **state)
{
    static const size_t lens[] = {8, MIB};

    pair  *p = *state;
    arrays m;
    op     sending, receiving;

    open_pair(p, &m);
    for (int i = 0; i < 2; i++) {
        fill_pattern(m.sent, lens[i], 5);
        standin_fail("cuMemcpyDtoHAsync_v2", 304, 1);
        op_recv(&receiving, p->server, 0, pair_any, m.back, lens[i]);
        send_device(&sending, p, m.sent, lens[i]);
        assert_int_equal(op_wait(p, &sending), UMX_ERR_IO_ERROR);
        assert_false(op_is_done(&receiving)); /* it waits for the next */
        send_device(&sending, p, m.sent, lens[i]);
        assert_int_equal(op_wait(p, &receiving), UMX_OK);
        assert_int_equal(op_wait(p, &sending), UMX_OK);
        check_pattern(m.back, lens[i], 5);
        /* A receiver of the same process copies from device to device. */
        standin_fail("cuMemcpyHtoDAsync_v2", 304, 1);
        standin_fail("cuMemcpyAsync", 304, 1);
        recv_device(&receiving, p, m.got, lens[i]);
        send_device(&sending, p, m.sent, lens[i]);
        assert_int_equal(op_wait(p, &receiving), UMX_ERR_IO_ERROR);
        assert_int_equal(op_wait(p, &sending), UMX_OK);
        standin_fail(NULL, 0, 0);
        recv_device(&receiving, p, m.got, lens[i]);
        send_device(&sending, p, m.sent, lens[i]);
        assert_int_equal(op_wait(p, &receiving), UMX_OK);
        assert_int_equal(op_wait(p, &sending), UMX_OK);
    }
    free_arrays(&m);
}

static void
test_wild_pointers_are_refused(void **state)
{
    pair        *p = *state;
    arrays       m;
    umx_match    match = pair_tag(7);
    umx_buffer   buf   = device_buffer((char *)(uintptr_t)4096, 8);
    umx_request *req;

    open_pair(p, &m);
    assert_int_equal(umx_channel_send(p->client, 0, &match, &buf, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    buf = device_buffer(m.sent + 1, MIB); /* a byte too many */
    assert_int_equal(umx_channel_send(p->client, 0, &match, &buf, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    free_arrays(&m);
}

static void
test_ucx_s_own_tags_need_ucx_s_help(void **state)
{
    pair         *p = *state;
    arrays        m;
    umx_buffer    buf;
    umx_recv_info info;
    umx_request  *req;

    open_pair(p, &m);
    buf = device_buffer(m.sent, 8);
    assert_int_equal(umx_tag_send(p->client, 1, &buf, NULL, &req),
                     UMX_ERR_UNSUPPORTED);
    assert_int_equal(
        umx_tag_recv(p->server_worker, NULL, 1, 1, &buf, NULL, &req, &info),
        UMX_ERR_UNSUPPORTED);
    free_arrays(&m);
}

/* ---- memory of peers -----------------------------------------------------
 */

static memory
open_peer_memory(pair *p, umx_memtype memtype)
{
    memory m;

    assert_int_equal(umx_memh_alloc_cuda(p->context, memtype, 2, MIB, &m.memh),
                     UMX_OK);
    assert_int_equal(memory_open(p->client, m.memh, &m.rkey), UMX_OK);
    m.data = umx_memh_buffer(m.memh)->data;
    return m;
}

static void
test_device_memory_is_put_to_and_got_from(void **state)
{
    static const umx_memtype memtypes[] = {
        UMX_MEMTYPE_CUDA, UMX_MEMTYPE_CUDA_MANAGED, UMX_MEMTYPE_HOST};

    pair  *p = *state;
    arrays m;

    open_pair(p, &m);
    for (int i = 0; i < 3; i++) {
        memory there = open_peer_memory(p, memtypes[i]);

        for (unsigned j = 0; j < sizeof(sizes) / sizeof(*sizes); j++) {
            size_t       len  = sizes[j] - 1;
            umx_rma_item item = {.offset = 1,
                                 .buf    = device_buffer(m.sent, len)};

            fill_pattern(m.sent, len, j);
            assert_int_equal(transfer(p, umx_rma_put, there.rkey, item),
                             UMX_OK);
            assert_int_equal(
                umx_buffer_read(umx_memh_buffer(there.memh), m.back, len + 1),
                UMX_OK);
            check_pattern(m.back + 1, len, j);
            memset(m.back, 0, len);
            assert_int_equal(
                transfer(p, umx_rma_get, there.rkey, item_of(1, m.back, len)),
                UMX_OK);
            check_pattern(m.back, len, j);
            item.buf = device_buffer(m.got, len);
            assert_int_equal(transfer(p, umx_rma_get, there.rkey, item),
                             UMX_OK);
            check_pattern(m.got, len, j);
        }
        memory_free(&there);
        assert_int_equal(standin.allocations, 0);
    }
    free_arrays(&m);
}

/* The CPU cannot. */
static void
test_device_memory_has_no_atomic_operations(void **state)
{
    static const umx_memtype memtypes[] = {UMX_MEMTYPE_CUDA,
                                           UMX_MEMTYPE_CUDA_MANAGED};
    static const umx_status  expected[] = {UMX_ERR_UNSUPPORTED, UMX_OK};

    pair      *p   = *state;
    umx_atomic add = {UMX_ATOMIC_ADD, 8, 8, 5, 0};
    uint64_t   old = 1;
    arrays     m;

    open_pair(p, &m);
    for (int i = 0; i < 2; i++) {
        memory there = open_peer_memory(p, memtypes[i]);

        assert_int_equal(atomic(p, there.rkey, add, &old), expected[i]);
        memory_free(&there);
    }
    assert_int_equal(old, 0);
    free_arrays(&m);
}

static void
test_a_peer_s_driver_that_fails_fails_the_operation(void **state)
{
    static const size_t lens[] = {8, MIB};

    pair  *p = *state;
    arrays m;
    memory there;

    open_pair(p, &m);
    there = open_peer_memory(p, UMX_MEMTYPE_CUDA);
    for (int i = 0; i < 2; i++) {
        standin_fail("cuMemcpyDtoHAsync_v2", 304, 1);
        assert_int_equal(
            transfer(p, umx_rma_get, there.rkey, item_of(0, m.back, lens[i])),
            UMX_ERR_IO_ERROR);
        standin_fail("cuMemcpyHtoDAsync_v2", 304, 1);
        assert_int_equal(
            transfer(p, umx_rma_put, there.rkey, item_of(0, m.back, lens[i])),
            UMX_ERR_IO_ERROR);
        assert_int_equal(
            transfer(p, umx_rma_put, there.rkey, item_of(0, m.back, lens[i])),
            UMX_OK);
    }
    memory_free(&there);
    free_arrays(&m);
}

static void
test_device_memory_of_the_caller_s_is_registered(void **state)
{
    pair      *p = *state;
    umx_buffer buf;
    arrays     m;
    memory     there = {0};

    open_pair(p, &m);
    buf = device_buffer(m.got, MIB);
    assert_int_equal(umx_memh_register(p->context, &buf, NULL, &there.memh),
                     UMX_OK);
    assert_int_equal(memory_open(p->client, there.memh, &there.rkey), UMX_OK);
    fill_pattern(m.back, MIB, 3);
    assert_int_equal(
        transfer(p, umx_rma_put, there.rkey, item_of(0, m.back, MIB)), UMX_OK);
    check_pattern(m.got, MIB, 3);
    memory_free(&there);
    buf.len++;
    assert_int_equal(umx_memh_register(p->context, &buf, NULL, &there.memh),
                     UMX_ERR_INVALID_PARAM);
    free_arrays(&m);
}

static void
test_memory_that_cannot_be_allocated(void **state)
{
    pair     *p = *state;
    umx_memh *memh;
    arrays    m;

    open_pair(p, &m);
    assert_int_equal(
        umx_memh_alloc_cuda(p->context, UMX_MEMTYPE_UNKNOWN, 0, 8, &memh),
        UMX_ERR_INVALID_PARAM);
    assert_int_equal(
        umx_memh_alloc_cuda(p->context, UMX_MEMTYPE_CUDA, 99, 8, &memh),
        UMX_ERR_OUT_OF_RANGE);
    standin_fail("cuMemAlloc_v2", 2, 1);
    assert_int_equal(
        umx_memh_alloc_cuda(p->context, UMX_MEMTYPE_CUDA, 0, 8, &memh),
        UMX_ERR_NO_MEMORY);
    free_arrays(&m);
}

/* Of frames in the head, in a part of several, and alone, from and into either
 * kind of memory. */
enum {
    NUM_FRAMES = 7
};

static void
lay_out(umx_buffer *buffers, char *data, unsigned devices)
{
    static const size_t lens[NUM_FRAMES] = {100,    40000, 24,   40000,
                                            300000, 0,     40000};

    for (unsigned i = 0; i < NUM_FRAMES; i++) {
        buffers[i] = umx_host_buffer(data, lens[i]);
        if (devices & (1u << i)) {
            buffers[i].memtype = UMX_MEMTYPE_CUDA;
        }
        data += lens[i];
    }
}

static void
on_frames(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    o->req    = NULL;
    o->status = status;
    if (status == UMX_OK) {
        o->message = umx_request_message(req);
    }
}

static void
move_frames(pair *p, arrays *m, unsigned from, unsigned into, bool is_late)
{
    umx_buffer        sent[NUM_FRAMES], got[NUM_FRAMES];
    umx_frames_target target = {.buffers = got, .count = NUM_FRAMES};
    op                sending, receiving;
    umx_op_params     send_params = op_params(&sending);
    umx_op_params     recv_params = op_params(&receiving);

    lay_out(sent, m->sent, from);
    lay_out(got, m->got, into);
    memset(m->got, 0, MIB);
    recv_params.on_done = on_frames;
    sending.status = umx_frames_send(p->client, 0, "h", 1, sent, NUM_FRAMES,
                                     &send_params, &sending.req);
    assert_true(sending.status >= 0);
    if (is_late) {
        pair_settle(p);
    }
    receiving.status = umx_frames_recv(p->server, 0, &target, &recv_params,
                                       &receiving.req);
    assert_int_equal(op_wait(p, &receiving), UMX_OK);
    assert_int_equal(op_wait(p, &sending), UMX_OK);
    for (unsigned i = 0; i < NUM_FRAMES; i++) {
        assert_int_equal(
            umx_message_frames(receiving.message)->frames[i].is_device,
            (from >> i) & 1);
    }
    umx_message_drop(receiving.message);
    assert_memory_equal(m->got, m->sent, 420124);
}

static void
test_frames_of_device_and_host(void **state)
{
    static const unsigned kinds[] = {0, 0x7f, 0x2a, 0x55, 0x10};
    pair                 *p       = *state;
    arrays                m;

    open_pair(p, &m);
    fill_pattern(m.sent, MIB, 3);
    for (unsigned i = 0; i < 5; i++) {
        for (unsigned j = 0; j < 5; j++) {
            move_frames(p, &m, kinds[i], kinds[j], (i + j) % 2 != 0);
        }
    }
    free_arrays(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_frames_of_device_and_host),
        PAIR_TEST(test_messages_go_from_device_to_device),
        PAIR_TEST(test_a_message_is_taken_into_device_memory),
        PAIR_TEST(test_a_cancelled_receive_loses_nothing),
        PAIR_TEST(test_a_copy_that_fails_fails_the_operation),
        PAIR_TEST(test_device_memory_is_put_to_and_got_from),
        PAIR_TEST(test_device_memory_has_no_atomic_operations),
        PAIR_TEST(test_a_peer_s_driver_that_fails_fails_the_operation),
        PAIR_TEST_ONCE(test_device_memory_of_the_caller_s_is_registered),
        PAIR_TEST_ONCE(test_memory_that_cannot_be_allocated),
        PAIR_TEST_ONCE(test_wild_pointers_are_refused),
        PAIR_TEST_ONCE(test_ucx_s_own_tags_need_ucx_s_help),
    };

    return UNIT_RUN(tests);
}
