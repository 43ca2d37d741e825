/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory fake_ucp standin */
/* Calls of UCX about device memory are made in the context of its device: those
 * of its own tags, and of puts. Messages keep their memory from UCX. */
#include "standin/standin.h"
#include "fake_ucp.h"
#include "memory.h"

#include <umx/buffer.h>

enum {
    DEVICE = 3
};

static char     device_memory[64], host_memory[64];
static int      context; /* in the first call */
static unsigned num_posts;

static void
on_post(void)
{
    if (num_posts++ == 0) {
        context = standin_current();
    }
}

static memory
open_memory(pair *p)
{
    memory m;

    fake_reset();
    standin_reset();
    standin_add(device_memory, sizeof(device_memory), DEVICE, false);
    fake.moves_cuda   = true;
    p->config.rma_ucx = UMX_RMA_UCX_ALWAYS;
    pair_open(p);
    m            = memory_register(p, host_memory, sizeof(host_memory), 0);
    fake.on_post = on_post;
    num_posts    = 0;
    context      = -2;
    return m;
}

static void
close_memory(memory *m)
{
    fake.on_post = NULL;
    memory_free(m);
    assert_int_equal(standin.pushes, standin.pops);
    assert_int_equal(standin_current(), -1);
}

/* Run one operation on `buf`, which is done at once. */
typedef umx_status (*run_fn)(pair *p, memory *m, const umx_buffer *buf);

static umx_status
run_tag_send(pair *p, memory *m, const umx_buffer *buf)
{
    umx_request *req;

    (void)m;
    return umx_tag_send(p->client, 1, buf, NULL, &req);
}

static umx_status
run_put(pair *p, memory *m, const umx_buffer *buf)
{
    umx_rma_item item = {.buf = *buf};
    umx_request *req;

    (void)p;
    return umx_rma_put(m->rkey, &item, NULL, &req);
}

static const run_fn operations[] = {run_tag_send, run_put};

enum {
    NUM_OPERATIONS = sizeof(operations) / sizeof(*operations)
};

static void
test_the_context_is_that_of_the_memory(void **state)
{
    umx_buffer device = {.data    = device_memory,
                         .len     = sizeof(device_memory),
                         .memtype = UMX_MEMTYPE_CUDA};
    umx_buffer host   = umx_host_buffer(host_memory, sizeof(host_memory));
    pair      *p      = *state;
    memory     m      = open_memory(p);

    for (int i = 0; i < NUM_OPERATIONS; i++) {
        num_posts = 0;
        assert_int_equal(operations[i](p, &m, &device), UMX_OK);
        assert_int_equal(context, DEVICE);
        num_posts = 0;
        assert_int_equal(operations[i](p, &m, &host), UMX_OK);
        assert_int_equal(context, -1);
    }
    close_memory(&m);
}

/* The operation fails, the endpoint does not. */
static void
test_a_context_that_cannot_be_had_fails_the_operation(void **state)
{
    umx_buffer device = {.data    = device_memory,
                         .len     = sizeof(device_memory),
                         .memtype = UMX_MEMTYPE_CUDA};
    pair      *p      = *state;
    memory     m      = open_memory(p);

    for (int i = 0; i < NUM_OPERATIONS; i++) {
        num_posts = 0;
        standin_fail("cuCtxPushCurrent_v2", 304, 1);
        assert_int_equal(operations[i](p, &m, &device), UMX_ERR_IO_ERROR);
        assert_int_equal(num_posts, 0);
        assert_int_equal(operations[i](p, &m, &device), UMX_OK);
    }
    close_memory(&m);
}

static void
test_wild_pointers_do_not_reach_ucx(void **state)
{
    umx_buffer wild = {.data    = host_memory,
                       .len     = sizeof(host_memory),
                       .memtype = UMX_MEMTYPE_CUDA};
    pair      *p    = *state;
    memory     m    = open_memory(p);

    for (int i = 0; i < NUM_OPERATIONS; i++) {
        assert_int_equal(operations[i](p, &m, &wild), UMX_ERR_INVALID_PARAM);
    }
    assert_int_equal(num_posts, 0);
    close_memory(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_FAKE(test_the_context_is_that_of_the_memory),
        PAIR_TEST_FAKE(test_a_context_that_cannot_be_had_fails_the_operation),
        PAIR_TEST_FAKE(test_wild_pointers_do_not_reach_ucx),
    };

    return UNIT_RUN(tests);
}
