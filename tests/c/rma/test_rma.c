/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory */
/* tests: worker/rkey rma/initiator rma/state rma/target */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEN = 1 << 20,
    MIB = 1 << 20
};

/* ---- operations ----------------------------------------------------------
 */

static void
test_the_bytes_are_where_they_were_put(void **state)
{
    /* both sides of the switches of the protocols */
    static const size_t sizes[] = {
        0, 1, 8, 4096, 64 * 1024 - 1, 64 * 1024, 256 * 1024, LEN - 3};

    pair  *p = *state;
    memory m;
    char  *out = malloc(LEN), *in = malloc(LEN);

    pair_open(p);
    m = memory_alloc(p, LEN);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        fill_pattern(out, sizes[i], (unsigned)i);
        assert_int_equal(
            transfer(p, umx_rma_put, m.rkey, item_of(3, out, sizes[i])),
            UMX_OK);
        check_pattern(m.data + 3, sizes[i], (unsigned)i);
        assert_int_equal(
            transfer(p, umx_rma_get, m.rkey, item_of(3, in, sizes[i])), UMX_OK);
        check_pattern(in, sizes[i], (unsigned)i);
    }
    memory_free(&m);
    free(in);
    free(out);
}

static void
test_atomic_operations_tell_what_was_there(void **state)
{
    pair    *p = *state;
    memory   m;
    uint64_t old = 0;

    pair_open(p);
    m = memory_alloc(p, 64);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 8, 5, 0}, NULL),
        UMX_OK);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_CSWAP, 8, 8, 6, 5}, &old),
        UMX_OK);
    assert_int_equal(old, 5);
    assert_int_equal(((uint64_t *)(void *)m.data)[1], 6);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_SWAP, 4, 12, 7, 0}, &old),
        UMX_OK);
    assert_int_equal(old, 0);
    assert_int_equal(((uint32_t *)(void *)m.data)[3], 7);
    memory_free(&m);
}

static void
test_lists_move_neighbours_and_strangers(void **state)
{
    pair         *p = *state;
    memory        m;
    char          out[64], in[64];
    umx_rma_item  items[4];
    op            o;
    umx_op_params params = op_params(&o);

    pair_open(p);
    m = memory_alloc(p, LEN);
    fill_pattern(out, sizeof(out), 1);
    items[0] = item_of(100, out, 16);
    items[1] = item_of(116, out + 16, 16); /* goes on here and there */
    items[2] = item_of(132, out + 48, 16); /* adjacent at the peer only */
    items[3] = item_of(200, out + 32, 16);
    o.status = umx_rma_put_many(m.rkey, items, 4, &params, &o.req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_memory_equal(m.data + 100, out, 32);
    assert_memory_equal(m.data + 132, out + 48, 16);
    assert_memory_equal(m.data + 200, out + 32, 16);
    for (int i = 0; i < 4; i++) {
        items[i].buf.data = in + ((char *)items[i].buf.data - out);
    }
    params   = op_params(&o);
    o.status = umx_rma_get_many(m.rkey, items, 4, &params, &o.req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    check_pattern(in, sizeof(in), 1);
    params   = op_params(&o);
    o.status = umx_rma_get_many(m.rkey, NULL, 0, &params, &o.req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    memory_free(&m);
}

static void
test_a_signal_follows_its_bytes(void **state)
{
    pair         *p = *state;
    memory        m;
    char          out[100] = {0};
    umx_rma_item  item     = item_of(8, out, sizeof(out));
    umx_atomic    signal   = {.op = UMX_ATOMIC_ADD, .size = 8, .value = 2};
    op            o;
    umx_op_params params = op_params(&o);

    pair_open(p);
    m = memory_alloc(p, 200);
    fill_pattern(out, sizeof(out), 3);
    o.status = umx_rma_put_signal(m.rkey, &item, &signal, &params, &o.req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    check_pattern(m.data + 8, sizeof(out), 3);
    assert_int_equal(*(uint64_t *)(void *)m.data, 2);
    memory_free(&m);
}

/* ---- what is refused -----------------------------------------------------
 */

static void
test_out_of_range_is_refused(void **state)
{
    pair  *p = *state;
    memory m;
    char   buffer[16] = {0};

    pair_open(p);
    m = memory_alloc(p, 16);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(1, buffer, 16)),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(transfer(p, umx_rma_get, m.rkey, item_of(17, buffer, 0)),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(
        transfer(p, umx_rma_get, m.rkey, item_of(UINT64_MAX - 3, buffer, 16)),
        UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 16, 0, 0}, NULL),
        UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 4, 0, 0}, NULL),
        UMX_ERR_INVALID_PARAM);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, NULL, 1)),
                     UMX_ERR_INVALID_PARAM);
    memory_free(&m);
}

static void
test_one_item_out_of_range_stops_the_list(void **state)
{
    pair         *p = *state;
    memory        m;
    char          out[4] = "abc";
    umx_rma_item  items[2];
    op            o;
    umx_op_params params = op_params(&o);

    pair_open(p);
    m        = memory_alloc(p, 16);
    items[0] = item_of(0, out, 4);
    items[1] = item_of(13, out, 4);
    o.status = umx_rma_put_many(m.rkey, items, 2, &params, &o.req);
    assert_int_equal(o.status, UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(m.data[0], 0);
    memory_free(&m);
}

static void
test_damaged_and_foreign_keys_are_refused(void **state)
{
    pair       *p = *state;
    umx_memh   *memh;
    umx_rkey   *rkey;
    char        damaged[128];
    size_t      len;
    const void *key;

    pair_open(p);
    assert_int_equal(umx_memh_alloc(p->context, 16, &memh), UMX_OK);
    key = umx_memh_key(memh, &len);
    memcpy(damaged, key, len);
    damaged[len / 2] ^= 1;
    assert_int_equal(umx_rkey_open(p->client, damaged, len, &rkey),
                     UMX_ERR_INVALID_KEY);
    assert_int_equal(umx_rkey_open(p->client, key, len - 1, &rkey),
                     UMX_ERR_INVALID_KEY);
    assert_int_equal(umx_rkey_open(p->client, NULL, 0, &rkey),
                     UMX_ERR_INVALID_KEY);
    umx_memh_release(memh);

    {
        umx_context *stranger = pair_context(p->tls, NULL);

        assert_int_equal(umx_memh_alloc(stranger, 16, &memh), UMX_OK);
        assert_int_equal(memory_open(p->client, memh, &rkey),
                         UMX_ERR_INVALID_KEY);
        umx_memh_release(memh);
        umx_context_release(stranger);
    }
}

static void
test_a_closed_memory_is_stale(void **state)
{
    pair  *p = *state;
    memory m;
    char   buffer[8] = {0};

    pair_open(p);
    m = memory_alloc(p, 16);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, buffer, 8)),
                     UMX_OK);
    umx_memh_close(m.memh);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, buffer, 8)),
                     UMX_ERR_STALE_KEY);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 0, 0}, NULL),
        UMX_ERR_STALE_KEY);
    memory_free(&m);
}

static void
test_a_closed_rkey_and_endpoint_are_refused(void **state)
{
    pair     *p = *state;
    memory    m;
    umx_rkey *other;
    char      buffer[8] = {0};

    pair_open(p);
    m = memory_alloc(p, 16);
    assert_int_equal(memory_open(p->client, m.memh, &other), UMX_OK);
    umx_rkey_close(m.rkey);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, buffer, 8)),
                     UMX_ERR_CLOSED);
    assert_int_equal(transfer(p, umx_rma_put, other, item_of(0, buffer, 8)),
                     UMX_OK);
    umx_ep_abort(p->client);
    assert_int_equal(transfer(p, umx_rma_put, other, item_of(0, buffer, 8)),
                     UMX_ERR_CLOSED);
    umx_rkey_destroy(other);
    memory_free(&m);
}

/* ---- lives ---------------------------------------------------------------
 */

static void
test_the_mapping_outlives_owner_and_connection(void **state)
{
    pair  *p = *state;
    memory m;
    char  *view;

    pair_open(p);
    m    = memory_alloc(p, LEN);
    view = umx_rkey_pointer(m.rkey);
    memset(m.data, 'x', LEN);
    umx_memh_release(m.memh);
    umx_ep_abort(p->client);
    assert_int_equal(view[LEN - 1], 'x');
    umx_rkey_destroy(m.rkey);
}

static void
test_an_rkey_may_be_retired(void **state)
{
    pair    *p = *state;
    memory   m;
    unsigned refs;

    pair_open(p);
    m    = memory_alloc(p, LEN);
    refs = p->client->base.refs.count;
    umx_rkey_retire(m.rkey);
    umx_memh_release(m.memh);
    PAIR_UNTIL(p, p->client->base.refs.count == refs - 1);
}

/* ---- executed by the owner ------------------------------------------------
 */

static void
test_registered_memory_is_reached_too(void **state)
{
    pair    *p   = *state;
    char    *mem = calloc(1, LEN), *out = malloc(LEN), *in = malloc(LEN);
    memory   m;
    uint64_t old;

    pair_open(p);
    m = memory_register(p, mem, LEN, 0);
    fill_pattern(out, LEN, 5);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, out, LEN)),
                     UMX_OK);
    check_pattern(mem, LEN, 5);
    assert_int_equal(transfer(p, umx_rma_get, m.rkey, item_of(0, in, LEN)),
                     UMX_OK);
    check_pattern(in, LEN, 5);
    memset(mem, 0, 8);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_OR, 8, 0, 6, 0}, &old),
        UMX_OK);
    assert_int_equal(old, 0);
    assert_int_equal(mem[0], 6);
    memory_free(&m);
    free(mem);
    free(out);
    free(in);
}

static void
test_readonly_memory_is_not_written(void **state)
{
    static char data[] = "only to be read", in[sizeof(data)];

    pair  *p = *state;
    memory m;

    pair_open(p);
    m = memory_register(p, data, sizeof(data), UMX_MEMH_FLAG_READONLY);
    assert_true(umx_rkey_is_readonly(m.rkey));
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, in, 1)),
                     UMX_ERR_READONLY);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 0, 0}, NULL),
        UMX_ERR_READONLY);
    assert_int_equal(
        transfer(p, umx_rma_get, m.rkey, item_of(0, in, sizeof(data))), UMX_OK);
    assert_string_equal(in, data);
    memory_free(&m);
}

static void
test_allocated_memory_may_be_readonly(void **state)
{
    pair  *p = *state;
    memory m;
    char   in[8], *mapped;

    pair_open(p);
    assert_int_equal(umx_memh_alloc_readonly(p->context, LEN, &m.memh), UMX_OK);
    assert_false(umx_memh_is_mapped_elsewhere(m.memh));
    assert_int_equal(memory_open(p->client, m.memh, &m.rkey), UMX_OK);
    assert_true(umx_rkey_is_readonly(m.rkey));
    mapped = umx_rkey_pointer(m.rkey);
    assert_int_equal(mapped != NULL, p->tls == NULL);
    assert_int_equal(umx_memh_is_mapped_elsewhere(m.memh), mapped != NULL);
    memcpy(umx_memh_buffer(m.memh)->data, "written", sizeof(in));
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, in, 1)),
                     UMX_ERR_READONLY);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 0, 0}, NULL),
        UMX_ERR_READONLY);
    assert_int_equal(
        transfer(p, umx_rma_get, m.rkey, item_of(0, in, sizeof(in))), UMX_OK);
    assert_string_equal(in, "written");
    umx_rkey_destroy(m.rkey);
    assert_false(umx_memh_is_mapped_elsewhere(m.memh));
    umx_memh_release(m.memh);
}

/* The owner checks a request against its memory, even if the peer's key
 * lies. */
static void
test_the_owner_checks_what_it_is_asked_for(void **state)
{
    static char data[16], buffer[64];

    pair   *p = *state;
    memory  m;
    umi_key truth;

    pair_open(p);
    m     = memory_register(p, data, sizeof(data), UMX_MEMH_FLAG_READONLY);
    truth = m.rkey->key;

    m.rkey->key.length = 1 << 20;
    assert_int_equal(transfer(p, umx_rma_get, m.rkey, item_of(9, buffer, 8)),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(transfer(p, umx_rma_get, m.rkey, item_of(17, buffer, 0)),
                     UMX_ERR_OUT_OF_RANGE);
    m.rkey->key       = truth;
    m.rkey->key.flags = 0;
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, buffer, 8)),
                     UMX_ERR_READONLY);
    m.rkey->key        = truth;
    m.rkey->key.memory = truth.memory + 1;
    assert_int_equal(transfer(p, umx_rma_get, m.rkey, item_of(0, buffer, 8)),
                     UMX_ERR_STALE_KEY);
    m.rkey->key         = truth;
    m.rkey->key.context = truth.context + 1;
    assert_int_equal(transfer(p, umx_rma_get, m.rkey, item_of(0, buffer, 8)),
                     UMX_ERR_INVALID_KEY);
    m.rkey->key = truth;
    assert_int_equal(transfer(p, umx_rma_get, m.rkey, item_of(0, buffer, 8)),
                     UMX_OK);
    memory_free(&m);
}

static void
test_a_number_that_is_not_aligned_is_refused(void **state)
{
    static _Alignas(8) char data[24];

    pair  *p = *state;
    memory m;

    pair_open(p);
    m = memory_register(p, data + 1, 20, 0);
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 8, 1, 0}, NULL),
        UMX_ERR_INVALID_PARAM);
    m.rkey->key.address--; /* a lie: the owner looks, too */
    assert_int_equal(
        atomic(p, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 8, 1, 0}, NULL),
        UMX_ERR_INVALID_PARAM);
    memory_free(&m);
}

/* More than credit lets go at once. */
static void
test_thousands_may_be_under_way(void **state)
{
    enum {
        COUNT = 6000
    };

    pair         *p   = *state;
    uint64_t     *mem = calloc(COUNT, 8), *out = malloc(COUNT * 8);
    umx_rma_item *items  = calloc(COUNT, sizeof(*items));
    op           *ops    = calloc(COUNT, sizeof(*ops)), o;
    umx_op_params params = op_params(&o);
    memory        m;

    pair_open(p);
    m = memory_register(p, mem, COUNT * 8, 0);
    for (int i = 0; i < COUNT; i++) { /* backwards: no neighbours */
        out[i]   = (uint64_t)i;
        items[i] = item_of((uint64_t)(COUNT - 1 - i) * 8, &out[i], 8);
    }
    o.status = umx_rma_put_many(m.rkey, items, COUNT, &params, &o.req);
    for (int i = 0; i < COUNT; i++) {
        start_atomic(&ops[i], m.rkey,
                     (umx_atomic){UMX_ATOMIC_ADD, 8, (uint64_t)i * 8, 1, 0},
                     NULL);
    }
    assert_int_equal(op_wait(p, &o), UMX_OK);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(op_wait(p, &ops[i]), UMX_OK);
        assert_in_range(mem[i], (uint64_t)(COUNT - 1 - i),
                        (uint64_t)(COUNT - i));
    }
    memory_free(&m);
    free(mem);
    free(out);
    free(items);
    free(ops);
}

/* ---- order ---------------------------------------------------------------
 */

/* A signal must not be seen before the last of many bytes. */
static void
test_a_signal_does_not_overtake_a_long_put(void **state)
{
    enum {
        LONG   = 8 * MIB,
        ROUNDS = 10
    };

    pair              *p   = *state;
    char              *mem = calloc(1, LONG + 8), *out = malloc(LONG);
    volatile uint64_t *seen = (volatile uint64_t *)(void *)mem;
    memory             m;

    pair_open(p);
    m = memory_register(p, mem, LONG + 8, 0);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        umx_rma_item item   = item_of(8, out, LONG);
        umx_atomic   signal = {
              .op = UMX_ATOMIC_SWAP, .size = 8, .offset = 0, .value = i};
        op            o;
        umx_op_params params = op_params(&o);

        fill_pattern(out, LONG, i);
        o.status = umx_rma_put_signal(m.rkey, &item, &signal, &params, &o.req);
        PAIR_UNTIL(p, *seen == i);
        check_pattern(mem + 8, LONG, i);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    memory_free(&m);
    free(mem);
    free(out);
}

static void
test_a_fence_keeps_the_order(void **state)
{
    enum {
        LONG = 8 * MIB
    };

    pair              *p   = *state;
    char              *mem = calloc(1, LONG), *out = malloc(LONG);
    memory             m, flag;
    volatile uint64_t *seen;
    op                 put, add;

    pair_open(p);
    m    = memory_register(p, mem, LONG, 0);
    flag = memory_alloc(p, 8); /* mapped, where there is shared memory */
    seen = (volatile uint64_t *)(void *)flag.data;
    fill_pattern(out, LONG, 9);
    start(&put, umx_rma_put, m.rkey, item_of(0, out, LONG));
    assert_int_equal(umx_ep_fence(p->client), UMX_OK);
    start_atomic(&add, flag.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 1, 0},
                 NULL);
    assert_int_equal(*seen, 0);
    PAIR_UNTIL(p, *seen == 1);
    check_pattern(mem, LONG, 9);
    assert_int_equal(op_wait(p, &put), UMX_OK);
    assert_int_equal(op_wait(p, &add), UMX_OK);

    assert_int_equal(umx_worker_fence(p->client_worker), UMX_OK);
    start_atomic(&add, flag.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 1, 0},
                 NULL);
    assert_int_equal(add.status, p->tls == NULL ? UMX_OK : UMX_INPROGRESS);
    assert_int_equal(op_wait(p, &add), UMX_OK);
    memory_free(&m);
    memory_free(&flag);
    free(mem);
    free(out);
}

static void
test_a_signal_waits_for_a_put_that_succeeds(void **state)
{
    static uint64_t mem[4], out[2];

    pair         *p = *state;
    memory        m;
    umx_rma_item  item   = item_of(24, out, 16);
    umx_atomic    signal = {.op = UMX_ATOMIC_ADD, .size = 8, .value = 1};
    op            o;
    umx_op_params params = op_params(&o);

    pair_open(p);
    m                  = memory_register(p, mem, sizeof(mem), 0);
    m.rkey->key.length = 1000;
    o.status = umx_rma_put_signal(m.rkey, &item, &signal, &params, &o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(mem[0], 0);
    memory_free(&m);
}

static void
check_flush(pair *p, bool is_worker)
{
    char  *mem = calloc(1, MIB), *out = malloc(MIB);
    memory m = memory_register(p, mem, MIB, 0);
    op     put, flush;

    fill_pattern(out, MIB, 9);
    start(&put, umx_rma_put, m.rkey, item_of(0, out, MIB));
    start_flush(&flush, p->client_worker, is_worker ? NULL : p->client);
    assert_int_equal(flush.status, UMX_INPROGRESS);
    while (!op_is_done(&flush)) {
        pair_step(p);
    }
    assert_int_equal(flush.status, UMX_OK);
    check_pattern(mem, MIB, 9);
    assert_int_equal(op_wait(p, &put), UMX_OK);
    memory_free(&m);
    free(mem);
    free(out);
}

static void
test_a_flush_covers_puts(void **state)
{
    pair *p = *state;
    op    flush;

    pair_open(p);
    check_flush(p, false);
    check_flush(p, true);
    start_flush(&flush, p->client_worker, p->client);
    assert_int_equal(op_wait(p, &flush), UMX_OK);
}

/* Nothing but the question follows the handshake. */
static void
test_a_key_opened_before_the_handshake_is_mapped_after_it(void **state)
{
    pair  *p = *state;
    memory m;

    pair_listen(p);
    assert_int_equal(umx_memh_alloc(p->context, 4096, &m.memh), UMX_OK);
    pair_connect(p, 0);
    assert_int_equal(memory_open(p->client, m.memh, &m.rkey), UMX_OK);
    assert_null(umx_rkey_pointer(m.rkey));
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_OPEN);
    assert_int_equal(umx_rkey_pointer(m.rkey) != NULL, p->tls == NULL);
    memory_free(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_key_opened_before_the_handshake_is_mapped_after_it),
        PAIR_TEST(test_the_bytes_are_where_they_were_put),
        PAIR_TEST(test_atomic_operations_tell_what_was_there),
        PAIR_TEST(test_lists_move_neighbours_and_strangers),
        PAIR_TEST(test_a_signal_follows_its_bytes),
        PAIR_TEST(test_out_of_range_is_refused),
        PAIR_TEST(test_one_item_out_of_range_stops_the_list),
        PAIR_TEST(test_damaged_and_foreign_keys_are_refused),
        PAIR_TEST(test_a_closed_memory_is_stale),
        PAIR_TEST(test_a_closed_rkey_and_endpoint_are_refused),
        PAIR_TEST_ONCE(test_the_mapping_outlives_owner_and_connection),
        PAIR_TEST(test_an_rkey_may_be_retired),
        PAIR_TEST(test_registered_memory_is_reached_too),
        PAIR_TEST(test_readonly_memory_is_not_written),
        PAIR_TEST(test_allocated_memory_may_be_readonly),
        PAIR_TEST(test_the_owner_checks_what_it_is_asked_for),
        PAIR_TEST(test_a_number_that_is_not_aligned_is_refused),
        PAIR_TEST(test_thousands_may_be_under_way),
        PAIR_TEST(test_a_signal_does_not_overtake_a_long_put),
        PAIR_TEST(test_a_fence_keeps_the_order),
        PAIR_TEST(test_a_signal_waits_for_a_put_that_succeeds),
        PAIR_TEST(test_a_flush_covers_puts),
    };

    return UNIT_RUN(tests);
}
