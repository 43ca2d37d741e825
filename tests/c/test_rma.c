/* link: pair */
#include <umx/rma.h>

#include "pair.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEN = 1 << 20,
    MIB = 1 << 20
};

/* The server's memory as the client sees it. */
typedef struct memory {
    umx_memh *memh;
    umx_rkey *rkey;
    char     *data;
} memory;

static umx_rma_item
item_of(uint64_t offset, const void *data, size_t len)
{
    umx_rma_item item = {.offset = offset, .buf = umx_host_buffer(data, len)};

    return item;
}

static umx_status
open_key(umx_ep *ep, const umx_memh *memh, umx_rkey **rkey_p)
{
    size_t      len;
    const void *key = umx_memh_key(memh, &len);

    return umx_rkey_open(ep, key, len, rkey_p);
}

static memory
memory_alloc(pair *p, size_t len)
{
    memory m;

    assert_int_equal(umx_memh_alloc(p->context, len, &m.memh), UMX_OK);
    assert_int_equal(open_key(p->client, m.memh, &m.rkey), UMX_OK);
    m.data = umx_memh_buffer(m.memh)->data;
    assert_int_equal(umx_rkey_length(m.rkey), len);
    assert_int_equal(umx_rkey_pointer(m.rkey) != NULL, p->tls == NULL);
    return m;
}

static void
memory_free(memory *m)
{
    umx_rkey_destroy(m->rkey);
    umx_memh_release(m->memh);
}

typedef umx_status (*transfer_fn)(umx_rkey *, const umx_rma_item *,
                                  const umx_op_params *, umx_request **);

static umx_status
transfer(pair *p, transfer_fn fn, umx_rkey *rkey, umx_rma_item item)
{
    op            o;
    umx_op_params params = op_params(&o);

    o.status = fn(rkey, &item, &params, &o.req);
    return op_wait(p, &o);
}

static umx_status
atomic(pair *p, umx_rkey *rkey, umx_atomic which, uint64_t *old)
{
    op            o;
    umx_op_params params = op_params(&o);

    o.status = umx_rma_atomic(rkey, &which, old, &params, &o.req);
    return op_wait(p, &o);
}

/* ---- mapped --------------------------------------------------------------
 */

static void
test_the_bytes_are_where_they_were_put(void **state)
{
    static const size_t sizes[] = {0, 1, 8, 4096, LEN - 3};

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
    items[2] = item_of(132, out + 48, 16); /* there only */
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
    char          out[100];
    umx_rma_item  item   = item_of(8, out, sizeof(out));
    umx_atomic    signal = {.op = UMX_ATOMIC_ADD, .size = 8, .value = 2};
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
        assert_int_equal(open_key(p->client, memh, &rkey), UMX_ERR_INVALID_KEY);
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
    assert_int_equal(open_key(p->client, m.memh, &other), UMX_OK);
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
    refs = p->client->base.refs;
    umx_rkey_retire(m.rkey);
    umx_memh_release(m.memh);
    PAIR_UNTIL(p, p->client->base.refs == refs - 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_ONCE(test_the_bytes_are_where_they_were_put),
        PAIR_TEST_ONCE(test_atomic_operations_tell_what_was_there),
        PAIR_TEST_ONCE(test_lists_move_neighbours_and_strangers),
        PAIR_TEST_ONCE(test_a_signal_follows_its_bytes),
        PAIR_TEST_ONCE(test_out_of_range_is_refused),
        PAIR_TEST_ONCE(test_one_item_out_of_range_stops_the_list),
        PAIR_TEST_ONCE(test_damaged_and_foreign_keys_are_refused),
        PAIR_TEST_ONCE(test_a_closed_memory_is_stale),
        PAIR_TEST_ONCE(test_a_closed_rkey_and_endpoint_are_refused),
        PAIR_TEST_ONCE(test_the_mapping_outlives_owner_and_connection),
        PAIR_TEST_ONCE(test_an_rkey_may_be_retired),
    };

    return UNIT_RUN(tests);
}
