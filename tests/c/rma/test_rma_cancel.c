/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory */
/* What cancelling an operation on memory leaves behind. The caller's buffer is
 * written over in the moment in which it is the caller's again, after no turn
 * of the two workers, after one, two, three, five, ..., until there is nothing
 * left to cancel. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    MIB    = 1024 * 1024,
    LEN    = 8 * MIB,
    BEFORE = 0x11,
    POISON = 0xee
};

static const size_t sizes[] = {8, 256, 3000, 30000, 200000, LEN};

enum {
    NUM_SIZES = sizeof(sizes) / sizeof(*sizes)
};

static void
take_turns(pair *p, unsigned turns)
{
    for (unsigned i = 0; i < turns; i++) {
        (void)umx_worker_poll((i % 2 != 0) ? p->server_worker :
                                             p->client_worker);
    }
}

static bool
is_all(const char *data, size_t len, unsigned char byte)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)data[i] != byte) {
            return false;
        }
    }
    return true;
}

static void
flush(pair *p)
{
    op o;

    start_flush(&o, p->client_worker, p->client);
    if (o.status == UMX_INPROGRESS) {
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
}

typedef struct arena {
    pair    *p;
    char    *mem; /* the owner's, 8 bytes longer */
    char    *mine;
    memory   m;
    size_t   len;
    unsigned turns;
    unsigned num_cancelled;
} arena;

/* Returns false if the operation was over before it was cancelled. */
typedef bool (*round_fn)(arena *a);

static bool
cancel(arena *a, op *o)
{
    take_turns(a->p, a->turns);
    if (op_is_done(o)) {
        assert_int_equal(o->status, UMX_OK);
        return false;
    }
    assert_int_equal(umx_request_cancel(o->req), UMX_OK);
    memset(a->mine, POISON, a->len);
    a->num_cancelled++;
    return true;
}

/* Do `round` after each number of turns, for each size. */
static void
sweep(pair *p, round_fn round)
{
    arena a = {.p = p, .mem = malloc(LEN + 8), .mine = malloc(LEN)};

    assert_non_null(a.mem);
    assert_non_null(a.mine);
    pair_open(p);
    a.m = memory_register(p, a.mem, LEN + 8, 0);
    for (size_t i = 0; i < NUM_SIZES; i++) {
        unsigned next = 1;

        a.len   = sizes[i];
        a.turns = 0;
        while (round(&a)) {
            next += a.turns;
            a.turns = next - a.turns;
        }
    }
    assert_true(a.num_cancelled > NUM_SIZES);
    memory_free(&a.m);
    free(a.mem);
    free(a.mine);
}

/* ---- put -----------------------------------------------------------------
 */

/* The owner has all of the bytes, or none. */
static bool
is_put(const arena *a)
{
    if (is_all(a->mem, a->len, BEFORE)) {
        return false;
    }
    check_pattern(a->mem, a->len, a->turns);
    return true;
}

static void
prepare(arena *a)
{
    uint64_t zero = 0;

    memset(a->mem, BEFORE, a->len);
    memcpy(a->mem + LEN, &zero, sizeof(zero));
    fill_pattern(a->mine, a->len, a->turns);
}

static bool
put_round(arena *a)
{
    op   o;
    bool is_cancelled;

    prepare(a);
    start(&o, umx_rma_put, a->m.rkey, item_of(0, a->mine, a->len));
    is_cancelled = cancel(a, &o);
    flush(a->p);
    if (is_cancelled) {
        (void)is_put(a);
        assert_int_equal(op_wait(a->p, &o), UMX_ERR_CANCELED);
    } else {
        assert_true(is_put(a));
    }
    return is_cancelled;
}

static void
test_a_cancelled_put_is_done_whole_or_not_at_all(void **state)
{
    sweep(*state, put_round);
}

static bool
put_signal_round(arena *a)
{
    umx_atomic signal = {UMX_ATOMIC_ADD, 8, LEN, 7, 0};
    uint64_t   word;
    op         o;
    bool       is_cancelled;

    prepare(a);
    start_signal(&o, a->m.rkey, item_of(0, a->mine, a->len), signal);
    is_cancelled = cancel(a, &o);
    flush(a->p);
    memcpy(&word, a->mem + LEN, sizeof(word));
    if (is_cancelled) {
        assert_true(is_put(a) || word == 0);
        assert_int_equal(op_wait(a->p, &o), UMX_ERR_CANCELED);
    } else {
        assert_true(is_put(a));
        assert_int_equal(word, 7);
    }
    return is_cancelled;
}

enum {
    FILLER      = 4000,
    MAX_FILLERS = 64,
    SHORT_PUT   = 6000
};

static int64_t
credit_left(const pair *p)
{
    const umi_channels *channels = umi_channels_of(p->client);

    return (int64_t)(channels->tx_limit.bytes - channels->tx_sent.bytes);
}

/* The cancelled put is announced for lack of credit, so its bytes are fetched.
 * There is credit for the one behind it, which could overtake it. */
static void
test_what_is_put_later_stays(void **state)
{
    static char       mem[SHORT_PUT], mine[SHORT_PUT], filler[FILLER];
    static const char later[8] = "later";
    pair             *p        = *state;
    op                fillers[MAX_FILLERS], o;
    memory            m;
    unsigned          n = 0;

    p->config.credit_bytes = 64 * 1024;
    pair_open(p);
    m = memory_register(p, mem, sizeof(mem), 0);
    while (credit_left(p) >= SHORT_PUT) {
        assert_true(n < MAX_FILLERS);
        op_send(&fillers[n++], p->client, 1, pair_tag(1), filler, FILLER);
    }
    fill_pattern(mine, SHORT_PUT, 3);
    start(&o, umx_rma_put, m.rkey, item_of(0, mine, SHORT_PUT));
    assert_int_equal(umx_request_cancel(o.req), UMX_OK);
    memset(mine, POISON, SHORT_PUT);
    assert_int_equal(
        transfer(p, umx_rma_put, m.rkey, item_of(0, later, sizeof(later))),
        UMX_OK);
    assert_memory_equal(mem, later, sizeof(later));
    flush(p);
    assert_memory_equal(mem, later, sizeof(later));
    fill_pattern(mem, sizeof(later), 3);
    check_pattern(mem, SHORT_PUT, 3);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    while (n > 0) {
        assert_int_equal(
            pair_recv(p, p->server, 1, pair_tag(1), filler, FILLER), UMX_OK);
        (void)op_wait(p, &fillers[--n]);
    }
    memory_free(&m);
}

/* The owner reads the bytes from the memory of this process. */
static void
test_a_cancelled_put_by_a_loan_too(void **state)
{
    pair *p = *state;

    p->config.cma_min = 1;
    p->config.cma_max = SIZE_MAX;
    sweep(p, put_round);
}

static void
test_a_cancelled_signal_comes_behind_its_put(void **state)
{
    sweep(*state, put_signal_round);
}

/* Behind a fence, and with another put behind a fence behind it, which is done
 * after it. */
static bool
fenced_put_round(arena *a)
{
    op   first, o, last;
    char byte = 1;
    bool is_cancelled;

    prepare(a);
    start(&first, umx_rma_put, a->m.rkey, item_of(LEN, &byte, 1));
    assert_int_equal(umx_ep_fence(a->p->client), UMX_OK);
    start(&o, umx_rma_put, a->m.rkey, item_of(0, a->mine, a->len));
    assert_int_equal(umx_ep_fence(a->p->client), UMX_OK);
    start(&last, umx_rma_put, a->m.rkey, item_of(0, &byte, 1));
    is_cancelled = cancel(a, &o);
    assert_int_equal(op_wait(a->p, &last), UMX_OK);
    assert_int_equal(op_wait(a->p, &first), UMX_OK);
    assert_int_equal(a->mem[0], 1);
    assert_int_equal(a->mem[LEN], 1);
    a->mem[0] = (a->mem[1] == BEFORE) ? BEFORE : (char)(a->turns * 31 + 1);
    (void)is_put(a);
    (void)op_wait(a->p, &o);
    flush(a->p);
    (void)is_put(a);
    return is_cancelled;
}

static void
test_a_cancelled_put_keeps_its_fence(void **state)
{
    sweep(*state, fenced_put_round);
}

/* A put of several pieces, which are sent by themselves. */
static bool
put_many_round(arena *a)
{
    umx_rma_item  items[2];
    op            o;
    umx_op_params params = op_params(&o);
    size_t        half   = a->len / 2;
    bool          is_cancelled;

    prepare(a);
    items[0] = item_of(half, a->mine + half, a->len - half);
    items[1] = item_of(0, a->mine, half);
    o.status = umx_rma_put_many(a->m.rkey, items, 2, &params, &o.req);
    assert_int_equal(o.status, UMX_INPROGRESS);
    is_cancelled = cancel(a, &o);
    flush(a->p);
    for (size_t i = 0; i < a->len; i++) {
        assert_true((unsigned char)a->mem[i] != POISON ||
                    (unsigned char)(i * 7 + (i >> 8) + a->turns * 31 + 1) ==
                        POISON);
    }
    if (is_cancelled) {
        assert_int_equal(op_wait(a->p, &o), UMX_ERR_CANCELED);
    }
    return is_cancelled;
}

static void
test_a_cancelled_put_of_pieces_has_no_other_bytes(void **state)
{
    sweep(*state, put_many_round);
}

/* ---- get -----------------------------------------------------------------
 */

static bool
get_round(arena *a)
{
    op   o;
    bool is_cancelled;

    fill_pattern(a->mem, a->len, a->turns);
    start(&o, umx_rma_get, a->m.rkey, item_of(0, a->mine, a->len));
    is_cancelled = cancel(a, &o);
    flush(a->p);
    pair_settle(a->p);
    if (!is_cancelled) {
        check_pattern(a->mine, a->len, a->turns);
        return false;
    }
    assert_true(is_all(a->mine, a->len, POISON));
    assert_int_equal(op_wait(a->p, &o), UMX_ERR_CANCELED);
    return true;
}

static void
test_a_cancelled_get_writes_nothing(void **state)
{
    sweep(*state, get_round);
}

static void
test_a_cancelled_get_by_a_loan_writes_nothing(void **state)
{
    pair *p = *state;

    p->config.cma_min = 1;
    p->config.cma_max = SIZE_MAX;
    sweep(p, get_round);
}

/* The bytes are in, and nobody has been told. */
static void
test_a_get_that_is_complete_writes_nothing(void **state)
{
    pair    *p   = *state;
    char    *mem = malloc(LEN), *mine = malloc(LEN);
    unsigned next = 0;
    memory   m;
    op       o;

    pair_open(p);
    m = memory_register(p, mem, LEN, 0);
    do {
        start(&o, umx_rma_get, m.rkey, item_of(0, mine, LEN));
        take_turns(p, next++);
        ucp_worker_progress(p->client_worker->ucp);
        if (o.req != NULL) {
            assert_int_equal(umx_request_cancel(o.req), UMX_OK);
            memset(mine, POISON, LEN);
            flush(p);
            pair_settle(p);
            assert_true(is_all(mine, LEN, POISON));
            assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
        }
    } while (next < 40);
    memory_free(&m);
    free(mem);
    free(mine);
}

/* ---- atomic operations ---------------------------------------------------
 */

static void
test_a_cancelled_atomic_writes_no_result(void **state)
{
    pair      *p   = *state;
    uint64_t   mem = 5, old;
    umx_atomic add = {UMX_ATOMIC_ADD, 8, 0, 1, 0};
    memory     m;
    op         o;

    pair_open(p);
    m = memory_register(p, &mem, sizeof(mem), 0);
    for (unsigned turns = 0; turns < 20; turns++) {
        start_atomic(&o, m.rkey, add, &old);
        take_turns(p, turns);
        if (!op_is_done(&o)) {
            assert_int_equal(umx_request_cancel(o.req), UMX_OK);
            old = POISON;
            flush(p);
            pair_settle(p);
            assert_int_equal(old, POISON);
            assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
        }
    }
    memory_free(&m);
}

/* ---- limits and ends -----------------------------------------------------
 */

static void
test_a_copy_beyond_the_limit_is_deferred(void **state)
{
    pair  *p   = *state;
    char  *mem = calloc(1, LEN), *mine = malloc(LEN);
    memory m;
    op     o;

    p->config.cancel_bytes = MIB;
    pair_open(p);
    m = memory_register(p, mem, LEN, 0);
    fill_pattern(mine, LEN, 3);
    start(&o, umx_rma_put, m.rkey, item_of(0, mine, LEN));
    assert_int_equal(umx_request_cancel(o.req), UMX_INPROGRESS);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    memset(mine, POISON, LEN);
    check_pattern(mem, LEN, 3);
    fill_pattern(mine, LEN, 4);
    start(&o, umx_rma_put, m.rkey, item_of(0, mine, LEN));
    assert_int_equal(umx_request_cancel(o.req), UMX_INPROGRESS);
    assert_int_equal(umx_request_abandon(o.req), UMX_OK);
    memset(mine, POISON, LEN);
    flush(p);
    check_pattern(mem, LEN, 4);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    assert_int_equal(p->client_worker->copied_bytes, 0);
    memory_free(&m);
    free(mem);
    free(mine);
}

/* A put and a get that go on, and whose callers have their memory back. */
static memory
leave_both(pair *p, char *mem)
{
    char  *mine = malloc(LEN);
    memory m    = memory_register(p, mem, LEN, 0);
    op     put, get;

    start(&put, umx_rma_put, m.rkey, item_of(0, mine, LEN));
    start(&get, umx_rma_get, m.rkey, item_of(0, mine, LEN));
    take_turns(p, 5);
    assert_int_equal(umx_request_cancel(put.req), UMX_OK);
    assert_int_equal(umx_request_cancel(get.req), UMX_OK);
    free(mine);
    assert_int_equal(op_wait(p, &put), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &get), UMX_ERR_CANCELED);
    return m;
}

static void
test_what_goes_on_ends_with_an_abort(void **state)
{
    pair  *p   = *state;
    char  *mem = calloc(1, LEN);
    memory m;

    pair_open(p);
    m = leave_both(p, mem);
    umx_ep_abort(p->client);
    umx_ep_abort(p->server);
    memory_free(&m);
    umx_ep_destroy(p->client);
    p->client = NULL;
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    umx_ep_destroy(p->server);
    p->server = NULL;
    umx_worker_destroy(p->client_worker);
    umx_worker_destroy(p->server_worker);
    assert_int_equal(umx_worker_create(p->context, &p->client_worker), UMX_OK);
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
    free(mem);
}

static void
test_what_goes_on_ends_with_its_worker(void **state)
{
    pair  *p   = *state;
    char  *mem = calloc(1, LEN);
    memory m;

    pair_open(p);
    m = leave_both(p, mem);
    memory_free(&m);
    umx_worker_destroy(p->client_worker);
    umx_ep_destroy(p->client);
    p->client = NULL;
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    umx_ep_destroy(p->server);
    p->server = NULL;
    umx_worker_destroy(p->server_worker);
    assert_int_equal(umx_worker_create(p->context, &p->client_worker), UMX_OK);
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
    free(mem);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_cancelled_put_is_done_whole_or_not_at_all),
        PAIR_TEST(test_what_is_put_later_stays),
        PAIR_TEST_ONCE(test_a_cancelled_put_by_a_loan_too),
        PAIR_TEST(test_a_cancelled_signal_comes_behind_its_put),
        PAIR_TEST(test_a_cancelled_put_keeps_its_fence),
        PAIR_TEST(test_a_cancelled_put_of_pieces_has_no_other_bytes),
        PAIR_TEST(test_a_cancelled_get_writes_nothing),
        PAIR_TEST_ONCE(test_a_cancelled_get_by_a_loan_writes_nothing),
        PAIR_TEST(test_a_get_that_is_complete_writes_nothing),
        PAIR_TEST(test_a_cancelled_atomic_writes_no_result),
        PAIR_TEST(test_a_copy_beyond_the_limit_is_deferred),
        PAIR_TEST(test_what_goes_on_ends_with_an_abort),
        PAIR_TEST(test_what_goes_on_ends_with_its_worker),
    };

    return UNIT_RUN(tests);
}
