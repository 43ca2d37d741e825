/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory */
/* Waits for several numbers, and stores that need no fence. */
#include "memory.h"

#include <poll.h>
#include <string.h>

#include "util/membarrier.h"
#include "worker/wait.h"

enum {
    LEN   = 4096,
    COUNT = 4
};

/* ---- helpers -------------------------------------------------------------
 */

typedef struct many {
    umx_condition until[COUNT];
    uint8_t       seen[COUNT];
    op            op;
} many;

/* Wait until the numbers at 0, 8, 16 and 24 are 1 or more. */
static void
start_many(many *w, const pair *p, const memory *m, size_t at_least)
{
    umx_op_params params = op_params(&w->op);

    for (size_t i = 0; i < COUNT; i++) {
        w->until[i] = (umx_condition){UMX_CMP_GE, 8, 8 * i, 1};
    }
    w->op.status = umx_memh_wait_until_many(
        p->server_worker, m->memh,
        &(umx_conditions){w->until, COUNT, at_least, w->seen}, &params,
        &w->op.req);
    UNIT_TOLD(w->op.status);
    /* The conditions are not lent. */
    memset(w->until, 0xff, sizeof(w->until));
}

static void
set(const memory *m, size_t i, uint64_t value)
{
    ((uint64_t *)(void *)m->data)[i] = value;
    umx_memh_notify(m->memh);
}

static void
expect(const many *w, const char *seen)
{
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(w->seen[i], seen[i] - '0');
    }
}

/* ---- several numbers -----------------------------------------------------
 */

static void
test_all_are_waited_for(void **state)
{
    pair  *p = *state;
    memory m;
    many   w = {.seen = {0}};

    pair_open(p);
    m = memory_alloc(p, LEN);
    set(&m, 1, 5);
    start_many(&w, p, &m, SIZE_MAX);
    assert_int_equal(w.op.status, UMX_INPROGRESS);
    for (size_t i = 0; i < COUNT; i++) {
        assert_false(op_is_done(&w.op));
        set(&m, i, 1);
        (void)umx_worker_poll(p->server_worker);
        set(&m, i, 0); /* it has been seen */
    }
    PAIR_UNTIL(p, op_is_done(&w.op));
    assert_int_equal(w.op.status, UMX_OK);
    expect(&w, "1111");
    memory_free(&m);
}

static void
test_some_are_enough(void **state)
{
    pair  *p = *state;
    memory m;
    many   w = {.seen = {0}};

    pair_open(p);
    m = memory_alloc(p, LEN);
    start_many(&w, p, &m, 2);
    assert_int_equal(w.op.status, UMX_INPROGRESS);
    set(&m, 3, 1);
    (void)umx_worker_poll(p->server_worker);
    assert_false(op_is_done(&w.op));
    set(&m, 0, 1);
    PAIR_UNTIL(p, op_is_done(&w.op));
    assert_int_equal(w.op.status, UMX_OK);
    expect(&w, "1001");

    w = (many){.seen = {0}}; /* what is true at once is all seen */
    set(&m, 2, 1);
    start_many(&w, p, &m, 1);
    assert_int_equal(w.op.status, UMX_OK);
    expect(&w, "1011");
    memory_free(&m);
}

static void
test_what_is_masked_does_not_count(void **state)
{
    pair  *p = *state;
    memory m;
    many   w = {.seen = {7, 0, 7, 0}};

    pair_open(p);
    m = memory_alloc(p, LEN);
    set(&m, 0, 1);
    start_many(&w, p, &m, 3); /* two are left */
    assert_int_equal(w.op.status, UMX_INPROGRESS);
    set(&m, 1, 1);
    set(&m, 3, 1);
    PAIR_UNTIL(p, op_is_done(&w.op));
    expect(&w, "7171");

    start_many(&w, p, &m, 1); /* none is left */
    assert_int_equal(w.op.status, UMX_OK);
    expect(&w, "7171");
    w = (many){.seen = {0}};
    start_many(&w, p, &m, 0);
    assert_int_equal(w.op.status, UMX_OK);
    memory_free(&m);
}

static void
test_a_cancelled_wait_writes_nothing_more(void **state)
{
    pair  *p = *state;
    memory m;
    many   w = {.seen = {0}};

    pair_open(p);
    m = memory_alloc(p, LEN);
    start_many(&w, p, &m, COUNT);
    op_cancel(w.op.req);
    set(&m, 0, 1);
    PAIR_UNTIL(p, op_is_done(&w.op));
    assert_int_equal(w.op.status, UMX_ERR_CANCELED);
    expect(&w, "0000");
    memory_free(&m);
}

static void
test_closing_the_memory_ends_it(void **state)
{
    pair  *p = *state;
    memory m;
    many   w = {.seen = {0}};

    pair_open(p);
    m = memory_alloc(p, LEN);
    start_many(&w, p, &m, COUNT);
    umx_memh_close(m.memh);
    PAIR_UNTIL(p, op_is_done(&w.op));
    assert_int_equal(w.op.status, UMX_ERR_STALE_KEY);
    start_many(&w, p, &m, COUNT);
    assert_int_equal(w.op.status, UMX_ERR_STALE_KEY);
    memory_free(&m);
}

static void
test_one_bad_condition_refuses_all(void **state)
{
    pair          *p = *state;
    memory         m;
    uint8_t        seen[2]  = {0};
    umx_condition  until[2] = {{UMX_CMP_GE, 8, 0, 0}, {UMX_CMP_GE, 8, LEN, 0}};
    umx_conditions all      = {until, 2, 1, seen};
    umx_request   *req;

    pair_open(p);
    m = memory_alloc(p, LEN);
    assert_int_equal(
        umx_memh_wait_until_many(p->server_worker, m.memh, &all, NULL, &req),
        UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(seen[0], 0);
    until[1].offset = 4;
    assert_int_equal(
        umx_memh_wait_until_many(p->server_worker, m.memh, &all, NULL, &req),
        UMX_ERR_INVALID_PARAM);
    all.count = 0;
    assert_int_equal(
        umx_memh_wait_until_many(p->server_worker, m.memh, &all, NULL, &req),
        UMX_OK);
    memory_free(&m);
}

/* ---- stores that need no fence -------------------------------------------
 */

static void
test_stores_are_ordered_if_both_sides_take_part(void **state)
{
    pair           *p = *state;
    memory          m;
    const uint64_t *waiters;
    bool            is_ordered = true;
    umx_rkey       *late;

    if (!umi_membarrier_is_possible()) {
        skip();
    }
    pair_open(p);
    m       = memory_alloc(p, LEN);
    waiters = umx_rkey_waiters(m.rkey, &is_ordered);
    assert_non_null(waiters);
    assert_false(is_ordered);
    assert_int_equal(umx_memh_order_stores(m.memh), UMX_OK);
    assert_int_equal(memory_open(p->client, m.memh, &late), UMX_OK);
    waiters = umx_rkey_waiters(late, &is_ordered);
    assert_non_null(waiters);
    assert_true(is_ordered);
    assert_int_equal(*waiters & UMX_WAITERS_MASK, 0);
    umx_rkey_destroy(late);
    memory_free(&m);
}

static void
test_memory_that_nobody_maps_has_no_waiters(void **state)
{
    pair  *p = *state;
    char   data[64];
    memory m;
    bool   is_ordered;

    pair_open(p);
    m = memory_register(p, data, sizeof(data), 0);
    assert_null(umx_rkey_waiters(m.rkey, &is_ordered));
    assert_int_equal(umx_memh_order_stores(m.memh), UMX_OK);
    memory_free(&m);
}

/* The steps that rma.h gives to programs. */
static void
test_a_store_in_line_wakes_who_sleeps(void **state)
{
    pair           *p = *state;
    memory          m;
    many            w = {.seen = {0}};
    umx_rkey       *late;
    const uint64_t *waiters;
    uint64_t       *view;
    struct pollfd   pollfd;
    bool            is_ordered;

    if (!umi_membarrier_is_possible()) {
        skip();
    }
    pair_open(p);
    m = memory_alloc(p, LEN);
    assert_int_equal(umx_memh_order_stores(m.memh), UMX_OK);
    assert_int_equal(memory_open(p->client, m.memh, &late), UMX_OK);
    waiters = umx_rkey_waiters(late, &is_ordered);
    view    = umx_rkey_pointer(late);
    pair_settle(p);
    start_many(&w, p, &m, 1);
    while (umx_worker_drain(p->server_worker) != UMX_OK) {
    }
    pollfd = (struct pollfd){umx_worker_fd(p->server_worker), POLLIN, 0};
    __atomic_store_n(&view[2], 1, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    assert_int_not_equal(*waiters & UMX_WAITERS_MASK, 0);
    assert_int_equal(poll(&pollfd, 1, 0), 0);
    assert_int_equal(umx_rkey_notify(late), UMX_OK);
    PAIR_UNTIL(p, op_is_done(&w.op));
    expect(&w, "0010");
    assert_int_equal(*waiters & UMX_WAITERS_MASK, 0);
    umx_rkey_destroy(late);
    memory_free(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_all_are_waited_for),
        PAIR_TEST_ONCE(test_some_are_enough),
        PAIR_TEST_ONCE(test_what_is_masked_does_not_count),
        PAIR_TEST(test_a_cancelled_wait_writes_nothing_more),
        PAIR_TEST_ONCE(test_closing_the_memory_ends_it),
        PAIR_TEST_ONCE(test_one_bad_condition_refuses_all),
        PAIR_TEST_ONCE(test_stores_are_ordered_if_both_sides_take_part),
        PAIR_TEST_ONCE(test_memory_that_nobody_maps_has_no_waiters),
        PAIR_TEST_ONCE(test_a_store_in_line_wakes_who_sleeps),
    };

    return UNIT_RUN(tests);
}
