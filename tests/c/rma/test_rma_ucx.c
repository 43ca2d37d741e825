/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory */
/* Put and get by UCX, which is asked for: there is no network card in tests. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEN  = 1 << 20,
    LONG = 8 << 20
};

static memory
open_ucx(pair *p, void *data, size_t len)
{
    memory m;

    p->config.rma_ucx = UMX_RMA_UCX_ALWAYS;
    pair_open(p);
    m = memory_register(p, data, len, 0);
    assert_non_null(m.rkey->ucp);
    return m;
}

static void
test_the_bytes_are_where_they_were_put(void **state)
{
    static const size_t sizes[] = {0, 1, 8, 4096, 64 * 1024, LEN - 3};

    pair  *p   = *state;
    char  *mem = calloc(1, LEN), *out = malloc(LEN), *in = malloc(LEN);
    memory m = open_ucx(p, mem, LEN);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        fill_pattern(out, LEN, (unsigned)i);
        assert_int_equal(
            transfer(p, umx_rma_put, m.rkey, item_of(3, out, sizes[i])),
            UMX_OK);
        check_pattern(mem + 3, sizes[i], (unsigned)i);
        assert_int_equal(
            transfer(p, umx_rma_get, m.rkey, item_of(3, in, sizes[i])), UMX_OK);
        check_pattern(in, sizes[i], (unsigned)i);
    }
    memory_free(&m);
    free(mem);
    free(out);
    free(in);
}

static void
test_lists_and_atomic_operations_work(void **state)
{
    static uint64_t mem[8], out[4] = {1, 2, 3, 4};

    pair         *p = *state;
    memory        m = open_ucx(p, mem, sizeof(mem));
    umx_rma_item  items[3];
    op            o;
    umx_op_params params = op_params(&o);
    uint64_t      old;

    items[0] = item_of(0, out, 16);
    items[1] = item_of(16, out + 2, 8);
    items[2] = item_of(40, out + 3, 8);
    o.status = umx_rma_put_many(m.rkey, items, 3, &params, &o.req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(mem[2], 3);
    assert_int_equal(mem[5], 4);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 16, 4, 0}, &old),
        UMX_OK);
    assert_int_equal(old, 3);
    memory_free(&m);
}

/* A signal must not be seen before the last of many bytes. */
static void
check_signal(pair *p, umx_atomic_op op_of_signal)
{
    char              *mem = calloc(1, LONG + 8), *out = malloc(LONG);
    memory             m      = open_ucx(p, mem, LONG + 8);
    volatile uint64_t *seen   = (volatile uint64_t *)(void *)mem;
    umx_atomic         signal = {.op = op_of_signal, .size = 8};
    op                 o;

    for (unsigned i = 1; i <= 10; i++) {
        signal.value = (op_of_signal == UMX_ATOMIC_ADD) ? 1 : i;
        fill_pattern(out, LONG, i);
        start_signal(&o, m.rkey, item_of(8, out, LONG), signal);
        assert_true(o.status >= 0);
        PAIR_UNTIL(p, *seen == i);
        check_pattern(mem + 8, LONG, i);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    memory_free(&m);
    free(mem);
    free(out);
}

static void
test_a_signal_that_is_set_does_not_overtake(void **state)
{
    check_signal(*state, UMX_ATOMIC_SWAP);
}

static void
test_a_signal_that_is_added_does_not_overtake(void **state)
{
    check_signal(*state, UMX_ATOMIC_ADD);
}

/* Atomic operations go another way than the put before the fence. */
static void
test_a_fence_keeps_the_order(void **state)
{
    pair              *p   = *state;
    char              *mem = calloc(1, LONG), *out = malloc(LONG);
    memory             m    = open_ucx(p, mem, LONG);
    memory             flag = memory_alloc(p, 8);
    volatile uint64_t *seen = (volatile uint64_t *)(void *)flag.data;
    uint64_t           late = 7;
    op                 put, add, put_late;

    fill_pattern(out, LONG, 9);
    start(&put, umx_rma_put, m.rkey, item_of(0, out, LONG));
    assert_int_equal(put.status, UMX_INPROGRESS);
    assert_int_equal(umx_ep_fence(p->client), UMX_OK);
    start_atomic(&add, flag.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 1, 0},
                 NULL);
    PAIR_UNTIL(p, *seen == 1);
    check_pattern(mem, LONG, 9);
    assert_int_equal(umx_ep_fence(p->client), UMX_OK);
    start(&put_late, umx_rma_put, flag.rkey, item_of(0, &late, 8));
    assert_int_equal(op_wait(p, &put), UMX_OK);
    assert_int_equal(op_wait(p, &add), UMX_OK);
    assert_int_equal(op_wait(p, &put_late), UMX_OK);
    assert_int_equal(*seen, 7);
    memory_free(&flag);
    memory_free(&m);
    free(mem);
    free(out);
}

static void
test_a_close_waits_for_operations(void **state)
{
    pair  *p   = *state;
    char  *mem = calloc(1, LONG), *out = malloc(LONG), *in = malloc(LONG);
    memory m = open_ucx(p, mem, LONG);
    op     put, get, closing;

    fill_pattern(out, LONG, 4);
    start(&put, umx_rma_put, m.rkey, item_of(0, out, LONG));
    start(&get, umx_rma_get, m.rkey, item_of(0, in, LONG));
    op_close(&closing, p->client, 10 * SECOND_NS);
    assert_int_equal(op_wait(p, &closing), UMX_OK);
    assert_int_equal(op_wait(p, &put), UMX_OK);
    assert_int_equal(op_wait(p, &get), UMX_OK);
    check_pattern(mem, LONG, 4);
    memory_free(&m);
    free(mem);
    free(out);
    free(in);
}

static void
test_an_abort_ends_operations(void **state)
{
    pair  *p   = *state;
    char  *mem = calloc(1, LONG), *out = calloc(1, LONG);
    memory m = open_ucx(p, mem, LONG);
    op     put, get;

    start(&put, umx_rma_put, m.rkey, item_of(0, out, LONG));
    start(&get, umx_rma_get, m.rkey, item_of(0, out, LONG));
    umx_rkey_destroy(m.rkey); /* the operations keep it */
    umx_ep_abort(p->client);
    assert_int_equal(op_wait(p, &put), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &get), UMX_ERR_CANCELED);
    umx_memh_release(m.memh);
    free(mem);
    free(out);
}

static void
test_an_rkey_may_outlive_its_worker(void **state)
{
    pair  *p = *state;
    char   mem[16];
    memory m = open_ucx(p, mem, sizeof(mem));

    umx_worker_destroy(p->client_worker);
    assert_int_equal(umx_worker_create(p->client_context, &p->client_worker),
                     UMX_OK);
    umx_rkey_destroy(m.rkey);
    umx_memh_release(m.memh);
    umx_ep_destroy(p->client);
    p->client = NULL;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_the_bytes_are_where_they_were_put),
        PAIR_TEST(test_lists_and_atomic_operations_work),
        PAIR_TEST(test_a_signal_that_is_set_does_not_overtake),
        PAIR_TEST(test_a_signal_that_is_added_does_not_overtake),
        PAIR_TEST(test_a_fence_keeps_the_order),
        PAIR_TEST(test_a_close_waits_for_operations),
        PAIR_TEST(test_an_abort_ends_operations),
        PAIR_TEST(test_an_rkey_may_outlive_its_worker),
    };

    return UNIT_RUN(tests);
}
