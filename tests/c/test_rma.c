/* link: pair */
#include <umx/rma.h>

#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "wire/am.h"
#include "wire/rma.h"

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

static void
count_call(void *arg)
{
    ++*(int *)arg;
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

/* Memory of the test's own, which the library executes operations on. */
static memory
memory_register(pair *p, void *data, size_t len, uint64_t flags)
{
    umx_buffer      buf    = umx_host_buffer(data, len);
    umx_memh_params params = {.field_mask = UMX_MEMH_FIELD_FLAGS,
                              .flags      = flags};
    memory          m      = {.data = data};

    assert_int_equal(umx_memh_register(p->context, &buf, &params, &m.memh),
                     UMX_OK);
    assert_int_equal(open_key(p->client, m.memh, &m.rkey), UMX_OK);
    assert_null(umx_rkey_pointer(m.rkey));
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

static void
start(op *o, transfer_fn fn, umx_rkey *rkey, umx_rma_item item)
{
    umx_op_params params = op_params(o);

    o->status = fn(rkey, &item, &params, &o->req);
}

static umx_status
transfer(pair *p, transfer_fn fn, umx_rkey *rkey, umx_rma_item item)
{
    op o;

    start(&o, fn, rkey, item);
    return op_wait(p, &o);
}

static void
start_atomic(op *o, umx_rkey *rkey, umx_atomic which, uint64_t *old)
{
    umx_op_params params = op_params(o);

    o->status = umx_rma_atomic(rkey, &which, old, &params, &o->req);
}

static umx_status
atomic(pair *p, umx_rkey *rkey, umx_atomic which, uint64_t *old)
{
    op o;

    start_atomic(&o, rkey, which, old);
    return op_wait(p, &o);
}

/* ---- operations
 * --------------------------------------------------------------
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

/* As a key that lies would have it: the owner looks, too. */
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
start_flush(op *o, umx_worker *worker, umx_ep *ep)
{
    umx_op_params params = op_params(o);

    o->status = (ep != NULL) ? umx_ep_flush(ep, &params, &o->req) :
                               umx_worker_flush(worker, &params, &o->req);
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

/* ---- cancel --------------------------------------------------------------
 */

static void
test_cancelled_operations_end_and_the_next_work(void **state)
{
    static const size_t sizes[] = {8, LEN};

    pair    *p   = *state;
    char    *mem = calloc(1, LEN), *buffer = calloc(1, LEN);
    memory   m;
    op       put, get, add, flush;
    uint64_t old = 77;

    pair_open(p);
    m = memory_register(p, mem, LEN, 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        start(&put, umx_rma_put, m.rkey, item_of(0, buffer, sizes[i]));
        start(&get, umx_rma_get, m.rkey, item_of(0, buffer, sizes[i]));
        start_atomic(&add, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 1, 0},
                     &old);
        start_flush(&flush, p->client_worker, p->client);
        umx_request_cancel(put.req);
        umx_request_cancel(get.req);
        umx_request_cancel(add.req);
        umx_request_cancel(flush.req);
        assert_int_equal(op_wait(p, &get), UMX_ERR_CANCELED);
        assert_int_equal(op_wait(p, &add), UMX_ERR_CANCELED);
        assert_int_equal(op_wait(p, &put), UMX_ERR_CANCELED);
        assert_int_equal(op_wait(p, &flush), UMX_ERR_CANCELED);
        fill_pattern(buffer, LEN, 2);
        assert_int_equal(
            transfer(p, umx_rma_put, m.rkey, item_of(0, buffer, LEN)), UMX_OK);
        check_pattern(mem, LEN, 2);
    }
    assert_int_equal(old, 77);
    memory_free(&m);
    free(mem);
    free(buffer);
}

/* ---- ends ----------------------------------------------------------------
 */

static void
test_a_close_waits_for_operations(void **state)
{
    pair  *p   = *state;
    char  *mem = calloc(1, LEN), *out = malloc(LEN), *in = malloc(LEN);
    memory m;
    op     put, get, add, closing;

    pair_open(p);
    m = memory_register(p, mem, LEN, 0);
    fill_pattern(out, LEN, 4);
    start(&put, umx_rma_put, m.rkey, item_of(0, out, LEN));
    start(&get, umx_rma_get, m.rkey, item_of(0, in, LEN));
    start_atomic(&add, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 0, 0}, NULL);
    op_close(&closing, p->client, 10 * SECOND_NS);
    assert_int_equal(op_wait(p, &closing), UMX_OK);
    assert_int_equal(op_wait(p, &put), UMX_OK);
    assert_int_equal(op_wait(p, &get), UMX_OK);
    assert_int_equal(op_wait(p, &add), UMX_OK);
    check_pattern(mem, LEN, 4);
    memory_free(&m);
    free(mem);
    free(out);
    free(in);
}

static void
check_end(pair *p, void (*end)(pair *), umx_status expected)
{
    char  *mem = calloc(1, LEN), *buffer = calloc(1, LEN);
    memory m = memory_register(p, mem, LEN, 0);
    op     put, get, add, flush;

    start(&put, umx_rma_put, m.rkey, item_of(0, buffer, LEN));
    start(&get, umx_rma_get, m.rkey, item_of(0, buffer, LEN));
    start_atomic(&add, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 0, 0}, NULL);
    start_flush(&flush, p->client_worker, p->client);
    end(p);
    assert_int_equal(op_wait(p, &put), expected);
    assert_int_equal(op_wait(p, &get), expected);
    assert_int_equal(op_wait(p, &add), expected);
    assert_int_not_equal(op_wait(p, &flush), UMX_OK);
    assert_int_equal(
        transfer(p, umx_rma_put, m.rkey, item_of(0, buffer, 1)) >= 0, 0);
    memory_free(&m);
    free(mem);
    free(buffer);
}

static void
abort_client(pair *p)
{
    umx_ep_abort(p->client);
}

static void
abort_server(pair *p)
{
    umx_ep_abort(p->server);
}

static void
close_server(pair *p)
{
    op closing;

    op_close(&closing, p->server, 10 * SECOND_NS);
    assert_int_equal(op_wait(p, &closing), UMX_OK);
}

static void
test_an_abort_cancels_operations(void **state)
{
    pair_open(*state);
    check_end(*state, abort_client, UMX_ERR_CANCELED);
}

static void
test_the_peers_abort_resets_operations(void **state)
{
    pair_open(*state);
    check_end(*state, abort_server, UMX_ERR_CONNECTION_RESET);
}

static void
test_the_peers_close_ends_operations(void **state)
{
    pair_open(*state);
    check_end(*state, close_server, UMX_ERR_PEER_CLOSED);
}

/* A memory that goes while bytes land in it stays until they have. */
static void
test_memory_under_transfer_stays(void **state)
{
    pair           *p   = *state;
    char           *mem = calloc(1, LEN), *out = calloc(1, LEN);
    int             calls  = 0;
    umx_buffer      buf    = umx_host_buffer(mem, LEN);
    umx_memh_params params = {.field_mask = UMX_MEMH_FIELD_ON_FREE,
                              .on_free    = count_call,
                              .arg        = &calls};
    umx_memh       *memh;
    umx_rkey       *rkey;
    op              get;

    pair_open(p);
    assert_int_equal(umx_memh_register(p->context, &buf, &params, &memh),
                     UMX_OK);
    assert_int_equal(open_key(p->client, memh, &rkey), UMX_OK);
    start(&get, umx_rma_get, rkey, item_of(0, out, LEN));
    PAIR_UNTIL(p, p->server->rma != NULL && p->server->rma->num_serving != 0);
    umx_memh_release(memh);
    assert_int_equal(calls, 0);
    assert_int_equal(op_wait(p, &get), UMX_OK);
    PAIR_UNTIL(p, calls == 1);
    umx_rkey_destroy(rkey);
    free(mem);
    free(out);
}

/* ---- a peer that breaks the protocol --------------------------------------
 */

static void
check_malformed(pair *p, uint16_t id, const void *header, size_t len,
                size_t payload_len)
{
    static char payload[64];

    umx_buffer    buf = umx_host_buffer(payload, payload_len);
    op            o;
    umx_op_params params = op_params(&o);

    o.status = umi_am_message_send(p->client, id, header, len, &buf, &params,
                                   &o.req);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
    (void)op_wait(p, &o);
}

static void
test_a_malformed_request_ends_the_connection(void **state)
{
    umi_rma_request request = {.op = UMI_RMA_GET, .atomic = 1};

    pair_open(*state);
    check_malformed(*state, UMI_AM_ID_RMA_REQUEST, &request, sizeof(request),
                    0);
}

static void
test_a_malformed_reply_ends_the_connection(void **state)
{
    umi_rma_reply reply = {.status = 1};

    pair_open(*state);
    check_malformed(*state, UMI_AM_ID_RMA_REPLY, &reply, sizeof(reply), 0);
}

static void
test_a_reply_of_a_wrong_length_ends_the_connection(void **state)
{
    pair         *p     = *state;
    umi_rma_reply reply = {0};
    memory        m;
    char          in[8];
    op            get;

    pair_open(p);
    /* The server asks, the client answers what it was not asked for. */
    assert_int_equal(
        umi_am_set_user(p->client_worker, UMI_AM_ID_RMA_REQUEST, NULL, NULL),
        UMX_OK);
    assert_int_equal(umx_memh_alloc(p->context, 8, &m.memh), UMX_OK);
    assert_int_equal(open_key(p->server, m.memh, &m.rkey), UMX_OK);
    m.rkey->data = NULL; /* not by way of the mapping */
    start(&get, umx_rma_get, m.rkey, item_of(0, in, 8));
    reply.id = 1; /* the first one's */
    check_malformed(p, UMI_AM_ID_RMA_REPLY, &reply, sizeof(reply), 3);
    assert_int_equal(op_wait(p, &get), UMX_ERR_PROTOCOL);
    memory_free(&m);
}

static void
test_a_reply_to_nothing_is_ignored(void **state)
{
    pair         *p     = *state;
    umi_rma_reply reply = {.id = 5};
    umx_buffer    none  = {0};
    op            o;
    umx_op_params params = op_params(&o);

    pair_open(p);
    o.status = umi_am_message_send(p->client, UMI_AM_ID_RMA_REPLY, &reply,
                                   sizeof(reply), &none, &params, &o.req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    pair_settle(p);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
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
        PAIR_TEST(test_the_owner_checks_what_it_is_asked_for),
        PAIR_TEST(test_a_number_that_is_not_aligned_is_refused),
        PAIR_TEST(test_thousands_may_be_under_way),
        PAIR_TEST(test_a_signal_does_not_overtake_a_long_put),
        PAIR_TEST(test_a_fence_keeps_the_order),
        PAIR_TEST(test_a_signal_waits_for_a_put_that_succeeds),
        PAIR_TEST(test_a_flush_covers_puts),
        PAIR_TEST(test_cancelled_operations_end_and_the_next_work),
        PAIR_TEST(test_a_close_waits_for_operations),
        PAIR_TEST(test_an_abort_cancels_operations),
        PAIR_TEST(test_the_peers_abort_resets_operations),
        PAIR_TEST(test_the_peers_close_ends_operations),
        PAIR_TEST(test_memory_under_transfer_stays),
        PAIR_TEST(test_a_malformed_request_ends_the_connection),
        PAIR_TEST(test_a_malformed_reply_ends_the_connection),
        PAIR_TEST(test_a_reply_of_a_wrong_length_ends_the_connection),
        PAIR_TEST(test_a_reply_to_nothing_is_ignored),
    };

    return UNIT_RUN(tests);
}
