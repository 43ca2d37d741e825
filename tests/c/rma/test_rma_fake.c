/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory fake_ucp wrap=malloc wrap=calloc wrap=strndup */
/* tests: ops/rma rma/ucx */
/* Put and get by UCX: what is posted when, and what comes of failures. The
 * sockets of the handshake are real, UCX is not. */
#include "fake_ucp.h"
#include "memory.h"

#include <string.h>

static uint64_t mem[8], local[4];

static memory
open_memory(pair *p)
{
    memory m;

    fake_reset();
    p->config.rma_ucx = UMX_RMA_UCX_ALWAYS;
    pair_open(p);
    memset(mem, 0, sizeof(mem));
    m = memory_register(p, mem, sizeof(mem), 0);
    assert_non_null(m.rkey->ucp);
    fake.is_pending = true;
    fake.puts       = 0;
    fake.flushes    = 0;
    return m;
}

static void
close_memory(memory *m)
{
    fake.is_pending = false;
    memory_free(m);
}

/* Only the flush keeps a signal behind the bytes that it announces. */
static void
test_a_signal_is_put_after_the_flush(void **state)
{
    static const unsigned puts[]    = {1, 1, 2, 2};
    static const unsigned flushes[] = {0, 1, 1, 2};

    pair      *p      = *state;
    memory     m      = open_memory(p);
    umx_atomic signal = {.op = UMX_ATOMIC_SWAP, .size = 8, .value = 7};
    op         o;

    start_signal(&o, m.rkey, item_of(8, local, 16), signal);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fake.puts, puts[i]);
        assert_int_equal(fake.flushes, flushes[i]);
        assert_int_equal(mem[0], puts[i] == 2 ? 7 : 0);
        assert_false(op_is_done(&o));
        (void)umx_worker_poll(p->client_worker);
    }
    assert_true(op_is_done(&o));
    assert_int_equal(o.status, UMX_OK);
    close_memory(&m);
}

static void
test_a_put_is_flushed_and_a_get_is_not(void **state)
{
    pair  *p = *state;
    memory m = open_memory(p);
    op     o;

    start(&o, umx_rma_put, m.rkey, item_of(0, local, 8));
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(fake.flushes, 1);
    start(&o, umx_rma_get, m.rkey, item_of(0, local, 8));
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(fake.flushes, 1);
    close_memory(&m);
}

static void
test_what_is_done_at_once_needs_no_request(void **state)
{
    pair      *p      = *state;
    memory     m      = open_memory(p);
    umx_atomic signal = {.op = UMX_ATOMIC_SWAP, .size = 4, .value = 7};
    op         o;

    fake.is_pending = false;
    start(&o, umx_rma_put, m.rkey, item_of(0, local, 8));
    assert_int_equal(o.status, UMX_OK);
    start(&o, umx_rma_get, m.rkey, item_of(0, local, 8));
    assert_int_equal(o.status, UMX_OK);
    start_signal(&o, m.rkey, item_of(8, local, 16), signal);
    assert_int_equal(o.status, UMX_OK);
    assert_int_equal(mem[0], 7);
    close_memory(&m);
}

/* Each call of UCX, each completion, and memory, one after the other. */
static void
test_each_failure_ends_the_operation(void **state)
{
    pair      *p      = *state;
    memory     m      = open_memory(p);
    umx_atomic signal = {.op = UMX_ATOMIC_SWAP, .size = 8, .value = 7};
    op         o;

    assert_non_null(umi_rma_get_state(p->client));
    for (unsigned i = 1; i <= 4; i++) {
        for (int is_completion = 0; is_completion < 2; is_completion++) {
            fake.failed             = NULL;
            fake.calls              = 0;
            fake.completions        = 0;
            fake.fail_at            = is_completion ? 0 : i;
            fake.fail_completion_at = is_completion ? i : 0;
            fake.fail_status        = UCS_ERR_IO_ERROR;
            start_signal(&o, m.rkey, item_of(8, local, 16), signal);
            while (!op_is_done(&o)) {
                (void)umx_worker_poll(p->client_worker);
            }
            assert_non_null(fake.failed);
            assert_true(o.status < 0);
            assert_int_equal(p->client->rma->num_ucx, 0);
            assert_int_equal(m.rkey->refs.count, 1);
        }
    }
    fake.fail_at            = 0;
    fake.fail_completion_at = 0;
    close_memory(&m);
}

static void
test_an_rkey_that_ucx_refuses_leaves_it_to_the_owner(void **state)
{
    pair     *p = *state;
    memory    m = open_memory(p);
    umx_rkey *rkey;

    fake.calls   = 0;
    fake.fail_at = 2; /* the object, then unpacking */
    assert_int_equal(memory_open(p->client, m.memh, &rkey), UMX_OK);
    assert_string_equal(fake.failed, "ucp_ep_rkey_unpack");
    fake.fail_at = 0;
    assert_null(rkey->ucp);
    umx_rkey_destroy(rkey);
    close_memory(&m);
}

static void
test_ucx_is_used_where_there_is_rdma(void **state)
{
    pair  *p = *state;
    memory m;

    fake_reset();
    fake.transport = "rc_mlx5";
    pair_open(p);
    assert_true(p->client->base.link->has_rdma);
    p->client_context->has_rma = true; /* as if the host had a card */
    m                          = memory_register(p, mem, sizeof(mem), 0);
    assert_non_null(m.rkey->ucp);
    memory_free(&m);

    p->client->base.link->has_rdma = false;
    m                              = memory_register(p, mem, sizeof(mem), 0);
    assert_null(m.rkey->ucp);
    memory_free(&m);
}

static void
count_lost(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    assert_ptr_equal(req, o->req);
    o->status = status;
}

static umx_op_params
lost_params(op *o)
{
    umx_op_params params = op_params(o);

    params.field_mask |= UMX_OP_FIELD_ON_LOST;
    params.on_lost = count_lost;
    return params;
}

/* The message to the owner stays in UCX's hands when the endpoint has ended.
 * The flush is one without `on_done`. */
static void
test_what_ucx_keeps_of_an_operation_is_lost(void **state)
{
    pair         *p = *state;
    memory        m;
    umx_rma_item  item = item_of(0, local, sizeof(local));
    op            put, flush;
    umx_op_params params;

    fake_reset();
    p->config.rma_ucx = UMX_RMA_UCX_NEVER;
    pair_open(p);
    m               = memory_register(p, mem, sizeof(mem), 0);
    fake.is_pending = true;
    fake.is_wedged  = true;
    params          = lost_params(&put);
    assert_int_equal(umx_rma_put(m.rkey, &item, &params, &put.req),
                     UMX_INPROGRESS);
    params = lost_params(&flush);
    params.field_mask &= ~(uint64_t)UMX_OP_FIELD_ON_DONE;
    assert_int_equal(umx_ep_flush(p->client, &params, &flush.req),
                     UMX_INPROGRESS);
    put.status   = UMX_INPROGRESS;
    flush.status = UMX_INPROGRESS;
    umx_ep_abort(p->client);
    while (put.status == UMX_INPROGRESS || flush.status == UMX_INPROGRESS) {
        assert_true(umx_worker_wait(p->client_worker, SECOND_NS) == UMX_OK);
    }
    assert_int_equal(put.calls, 0); /* the buffer is lent still */
    fake.is_wedged = false;
    while (put.calls == 0 || umx_request_status(flush.req) == UMX_INPROGRESS) {
        assert_true(umx_worker_wait(p->client_worker, SECOND_NS) == UMX_OK);
    }
    umx_request_release(flush.req);
    close_memory(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_FAKE(test_a_signal_is_put_after_the_flush),
        PAIR_TEST_FAKE(test_a_put_is_flushed_and_a_get_is_not),
        PAIR_TEST_FAKE(test_what_is_done_at_once_needs_no_request),
        PAIR_TEST_FAKE(test_each_failure_ends_the_operation),
        PAIR_TEST_FAKE(test_an_rkey_that_ucx_refuses_leaves_it_to_the_owner),
        PAIR_TEST_FAKE(test_ucx_is_used_where_there_is_rdma),
        PAIR_TEST_FAKE(test_what_ucx_keeps_of_an_operation_is_lost),
    };

    return UNIT_RUN(tests);
}
