/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory */
/* Arrays in Fortran order at either end of operations that take a layout. */
#include "memory.h"
#include "pair.h"

#include <string.h>
#include <umx/buffer.h>

enum {
    ROWS    = 300,
    COLUMNS = 7,
    ITEMS   = ROWS * COLUMNS,
    BYTES   = ITEMS * (int)sizeof(double)
};

/* A matrix whose columns lie one after the other. */
typedef struct matrix {
    umx_layout layout;
    umx_buffer buf;
    double     items[ITEMS];
} matrix;

static double plain[ITEMS], got[ITEMS]; /* in C order */

static void
make(matrix *m, bool is_filled)
{
    umx_dim dims[2] = {{ROWS, sizeof(double)},
                       {COLUMNS, ROWS * sizeof(double)}};
    size_t  len;

    assert_int_equal(umx_layout_init(&m->layout, sizeof(double), 2, dims, &len),
                     UMX_OK);
    assert_int_equal(len, BYTES);
    m->buf        = umx_host_buffer(m->items, len);
    m->buf.layout = &m->layout;
    for (int i = 0; i < ITEMS; i++) {
        plain[i]                                   = i + 1;
        m->items[i % COLUMNS * ROWS + i / COLUMNS] = is_filled ? i + 1 : 0;
    }
    memset(got, 0, sizeof(got));
}

static void
expect_filled(matrix *m)
{
    for (int i = 0; i < ITEMS; i++) {
        assert_true(m->items[i % COLUMNS * ROWS + i / COLUMNS] == i + 1);
    }
}

static void
pass_tagged(pair *p, const umx_buffer *out, const umx_buffer *in, bool is_early)
{
    op            send, recv;
    umx_op_params params = op_params(&send);

    send.status = umx_tag_send(p->client, 5, out, &params, &send.req);
    if (is_early) { /* it waits for its receive, as a message of ours */
        pair_settle(p);
    }
    params      = op_params(&recv);
    recv.status = umx_tag_recv(p->server_worker, NULL, 5, UINT64_MAX, in,
                               &params, &recv.req, &recv.info);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    assert_int_equal(op_wait(p, &send), UMX_OK);
}

static void
test_tags(void **state)
{
    static matrix from, to;

    pair      *p   = *state;
    umx_buffer raw = umx_host_buffer(got, BYTES);

    pair_open(p);
    for (int i = 0; i < 2; i++) {
        make(&from, true);
        make(&to, false);
        pass_tagged(p, &from.buf, &raw, i == 1);
        assert_memory_equal(got, plain, BYTES);
        pass_tagged(p, &raw, &to.buf, i == 1);
        expect_filled(&to);
        make(&to, false);
        pass_tagged(p, &from.buf, &to.buf, i == 1);
        expect_filled(&to);
    }
}

static void
test_a_tagged_message_is_put_back(void **state)
{
    static matrix from, to;

    pair         *p    = *state;
    umx_recv_info info = {.length = BYTES, .tag = 5};
    op            recv;
    umx_op_params params = op_params(&recv);

    pair_open(p);
    make(&from, true);
    make(&to, false);
    assert_int_equal(umx_tag_unrecv(p->server_worker, &info, &from.buf),
                     UMX_OK);
    recv.status = umx_tag_recv(p->server_worker, NULL, 5, UINT64_MAX, &to.buf,
                               &params, &recv.req, &recv.info);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    expect_filled(&to);
}

static void
put_and_get(pair *p, memory *m)
{
    static matrix from, to;

    umx_rma_item put = {.buf = from.buf}, get = {0};
    umx_atomic   signal = {
          .op = UMX_ATOMIC_SWAP, .size = 8, .value = 9, .offset = BYTES};
    op o;

    make(&from, true);
    make(&to, false);
    put.buf = from.buf;
    get.buf = to.buf;
    assert_int_equal(transfer(p, umx_rma_put, m->rkey, put), UMX_OK);
    assert_memory_equal(m->data, plain, BYTES);
    assert_int_equal(transfer(p, umx_rma_get, m->rkey, get), UMX_OK);
    expect_filled(&to);
    memset(m->data, 0, BYTES);
    start_signal(&o, m->rkey, put, signal);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_memory_equal(m->data, plain, BYTES);
    assert_int_equal(((uint64_t *)(void *)m->data)[ITEMS], 9);
}

static void
test_put_and_get(void **state)
{
    static double memory_of_ours[ITEMS + 1];

    pair  *p = *state;
    memory m;

    pair_open(p);
    m = memory_alloc(p, BYTES + 8);
    put_and_get(p, &m);
    memory_free(&m);
    m = memory_register(p, memory_of_ours, sizeof(memory_of_ours), 0);
    put_and_get(p, &m);
    memory_free(&m);
}

/* Neighbours in memory are merged only if both are plain. */
static void
test_put_and_get_of_several(void **state)
{
    static matrix from;

    pair         *p = *state;
    memory        m;
    op            o;
    umx_op_params params;
    umx_rma_item  items[2];

    pair_open(p);
    m = memory_alloc(p, 2 * BYTES);
    make(&from, true);
    items[0] = (umx_rma_item){.buf = from.buf};
    items[1] = (umx_rma_item){.offset = BYTES,
                              .buf    = umx_host_buffer(from.items + ITEMS, 0)};
    params   = op_params(&o);
    o.status = umx_rma_put_many(m.rkey, items, 2, &params, &o.req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_memory_equal(m.data, plain, BYTES);
    memory_free(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_tags),
        PAIR_TEST(test_a_tagged_message_is_put_back),
        PAIR_TEST(test_put_and_get),
        PAIR_TEST(test_put_and_get_of_several),
    };

    return UNIT_RUN(tests);
}
