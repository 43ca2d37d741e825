/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory optimised */
/* tests: keys/waiters */
#include "memory.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#include "util/clock.h"
#include "worker/wait.h"

enum {
    LEN     = 4096,
    MANY    = 1000,
    LONG_MS = 10000,
    IDLE_MS = 50
};

/* ---- helpers -------------------------------------------------------------
 */

static umx_condition
at_least(uint64_t offset, uint64_t value)
{
    return (umx_condition){
        .cmp = UMX_CMP_GE, .size = 8, .offset = offset, .value = value};
}

static void
start_wait(op *o, umx_worker *worker, const memory *m, umx_condition until)
{
    umx_op_params params = op_params(o);

    o->status = umx_memh_wait_until(worker, m->memh, &until, &params, &o->req);
    UNIT_TOLD(o->status);
}

static umx_status
refusal(const pair *p, const memory *m, umx_condition until)
{
    op o;

    start_wait(&o, p->server_worker, m, until);
    return o.status;
}

static bool
is_awaited(const memory *m)
{
    return umi_waiters_are_announced(*m->memh->waiters);
}

static uint64_t *
word(const memory *m, size_t offset)
{
    return (uint64_t *)(void *)(m->data + offset);
}

static void
fall_asleep(umx_worker *worker)
{
    while (umx_worker_drain(worker) != UMX_OK) {
    }
    assert_true(umx_worker_is_armed(worker));
}

/* Does its fd tell of something, within `timeout_ms`? */
static bool
is_woken(const umx_worker *worker, int timeout_ms)
{
    struct pollfd pollfd = {.fd = umx_worker_fd(worker), .events = POLLIN};

    return poll(&pollfd, 1, timeout_ms) == 1;
}

/* The client makes progress, the server as its fd tells. */
static void
until_woken(pair *p, op *o)
{
    for (int i = 0; i < LONG_MS && !op_is_done(o); i++) {
        (void)umx_worker_poll(p->client_worker);
        if (is_woken(p->server_worker, 1)) {
            (void)!umx_worker_drain(p->server_worker);
        } else if (i % IDLE_MS == IDLE_MS - 1) {
            UNIT_IDLE();
        }
    }
    assert_true(op_is_done(o));
}

/* A server that sleeps until the number at 8 is 1 or more. */
static void
sleep_until_one(pair *p, op *o, const memory *m)
{
    pair_settle(p);
    start_wait(o, p->server_worker, m, at_least(8, 1));
    assert_int_equal(o->status, UMX_INPROGRESS);
    fall_asleep(p->server_worker);
    assert_true(is_awaited(m));
}

/* Who polls has withdrawn its announcement, and must not sleep as it is. */
static void
test_a_poll_ends_the_announcement_and_the_arming(void **state)
{
    pair  *p = *state;
    memory m;
    op     o;

    pair_open(p);
    m = memory_alloc(p, 128);
    sleep_until_one(p, &o, &m);
    assert_true(umx_worker_is_armed(p->server_worker));
    (void)umx_worker_poll(p->server_worker);
    assert_false(is_awaited(&m));
    assert_false(umx_worker_is_armed(p->server_worker));
    op_cancel(o.req);
    PAIR_UNTIL(p, op_is_done(&o));
    memory_free(&m);
}

typedef umx_status (*change_fn)(memory *m, op *o);

static umx_status
by_put(memory *m, op *o)
{
    static const uint64_t one    = 1;
    umx_rma_item          item   = item_of(8, &one, sizeof(one));
    umx_op_params         params = op_params(o);

    return umx_rma_put(m->rkey, &item, &params, &o->req);
}

static umx_status
by_put_many(memory *m, op *o)
{
    static const uint64_t one      = 1;
    umx_rma_item          items[2] = {item_of(8, &one, sizeof(one)),
                                      item_of(64, &one, sizeof(one))};
    umx_op_params         params   = op_params(o);

    return umx_rma_put_many(m->rkey, items, 2, &params, &o->req);
}

static umx_status
by_put_signal(memory *m, op *o)
{
    umx_rma_item  item   = item_of(64, "data", 4);
    umx_atomic    signal = {UMX_ATOMIC_ADD, 8, 8, 1, 0};
    umx_op_params params = op_params(o);

    return umx_rma_put_signal(m->rkey, &item, &signal, &params, &o->req);
}

static umx_status
by_atomic(memory *m, op *o)
{
    umx_atomic    one    = {UMX_ATOMIC_SWAP, 8, 8, 1, 0};
    umx_op_params params = op_params(o);

    return umx_rma_atomic(m->rkey, &one, NULL, &params, &o->req);
}

static umx_status
by_the_owner(memory *m, op *o)
{
    (void)o;
    *word(m, 8) = 1;
    umx_memh_notify(m->memh);
    return UMX_OK;
}

/* Each of them wakes a sleeper. */
static void
check_that_changes_wake(pair *p, memory *m)
{
    static const change_fn changes[] = {by_put, by_put_many, by_put_signal,
                                        by_atomic, by_the_owner};

    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        op wait, change = {.req = NULL};

        *word(m, 8) = 0;
        sleep_until_one(p, &wait, m);
        change.status = changes[i](m, &change);
        UNIT_TOLD(change.status);
        until_woken(p, &wait);
        assert_int_equal(wait.status, UMX_OK);
        assert_int_equal(op_wait(p, &change), UMX_OK);
        assert_int_equal(*word(m, 8), 1);
        assert_false(is_awaited(m));
    }
}

/* ---- waking --------------------------------------------------------------
 */

static void
test_what_is_true_is_not_waited_for(void **state)
{
    pair  *p = *state;
    memory m;
    op     o;

    pair_open(p);
    m = memory_alloc(p, LEN);
    start_wait(&o, p->server_worker, &m, at_least(0, 0));
    assert_int_equal(o.status, UMX_OK);
    assert_null(o.req);
    assert_false(is_awaited(&m));
    memory_free(&m);
}

static void
test_a_peer_wakes_who_sleeps(void **state)
{
    pair  *p = *state;
    memory m;

    pair_open(p);
    m = memory_alloc(p, LEN);
    check_that_changes_wake(p, &m);
    memory_free(&m);
}

static void
test_so_it_does_where_the_owner_executes(void **state)
{
    static uint64_t data[LEN / 8];

    pair  *p = *state;
    memory m;

    pair_open(p);
    m = memory_register(p, data, sizeof(data), 0);
    check_that_changes_wake(p, &m);
    memory_free(&m);
}

static void
test_so_it_does_where_ucx_writes(void **state)
{
    static uint64_t data[LEN / 8];

    pair  *p = *state;
    memory m;

    p->config.rma_ucx = UMX_RMA_UCX_ALWAYS;
    pair_open(p);
    m = memory_register(p, data, sizeof(data), 0);
    assert_non_null(m.rkey->ucp);
    check_that_changes_wake(p, &m);
    memory_free(&m);
}

static void
test_stores_of_a_peer_are_told_of(void **state)
{
    pair     *p = *state;
    memory    m;
    op        o;
    uint64_t *view;

    pair_open(p);
    m    = memory_alloc(p, LEN);
    view = umx_rkey_pointer(m.rkey);
    sleep_until_one(p, &o, &m);
    __atomic_store_n(&view[1], 1, __ATOMIC_RELEASE);
    assert_false(is_woken(p->server_worker, 0));
    assert_int_equal(umx_rkey_notify(m.rkey), UMX_OK);
    until_woken(p, &o);
    assert_int_equal(o.status, UMX_OK);
    memory_free(&m);
}

static void
test_who_polls_needs_nobody(void **state)
{
    pair  *p = *state;
    memory m;
    op     o;

    pair_open(p);
    m = memory_alloc(p, LEN);
    pair_settle(p);
    start_wait(&o, p->server_worker, &m, at_least(8, 1));
    umx_worker_poll(p->server_worker);
    assert_false(is_awaited(&m));
    *word(&m, 8) = 1;
    umx_worker_poll(p->server_worker);
    assert_true(op_is_done(&o));
    assert_int_equal(o.status, UMX_OK);
    memory_free(&m);
}

static void
test_who_blocks_is_woken(void **state)
{
    pair         *p = *state;
    memory        m;
    umx_condition until = at_least(8, 1);
    umx_request  *req;
    op            o;

    pair_open(p);
    m = memory_alloc(p, LEN);
    pair_settle(p);
    assert_int_equal(
        umx_memh_wait_until(p->server_worker, m.memh, &until, NULL, &req),
        UMX_INPROGRESS);
    assert_int_equal(umx_request_wait(req, 1000000), UMX_ERR_TIMED_OUT);
    o        = (op){.req = NULL};
    o.status = by_put_signal(&m, &o);
    if (o.status == UMX_INPROGRESS) {
        (void)umx_worker_poll(p->client_worker);
    }
    assert_int_equal(umx_request_wait(req, 10 * SECOND_NS), UMX_OK);
    umx_request_release(req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    memory_free(&m);
}

/* However many stores there are while somebody wakes, one message. */
static void
test_an_announcement_is_rung_for_once(void **state)
{
    pair    *p = *state;
    memory   m;
    op       o, change = {.req = NULL};
    unsigned before;

    pair_open(p);
    m = memory_alloc(p, LEN);
    pair_settle(p);
    start_wait(&o, p->server_worker, &m, at_least(8, 2 * MANY));
    for (unsigned round = 1; round <= 2; round++) {
        fall_asleep(p->server_worker);
        before = p->server->num_arrivals;
        for (int i = 0; i < MANY; i++) {
            assert_int_equal(by_put_signal(&m, &change), UMX_OK);
        }
        PAIR_UNTIL(p, p->server->num_arrivals != before);
        assert_int_equal(p->server->num_arrivals, before + 1);
        assert_int_equal(op_is_done(&o), round == 2);
    }
    memory_free(&m);
}

/* Of no memory, of one that nobody waits for, of all: a peer can say anything.
 */
static void
test_any_notification_is_heard(void **state)
{
    pair       *p      = *state;
    umi_control notify = {.kind = UMI_NOTIFY};
    memory      m;
    op          o;

    pair_open(p);
    m = memory_alloc(p, LEN);
    sleep_until_one(p, &o, &m);
    for (int i = 0; i < MANY; i++) {
        notify.u.notify.memory = (i % 3 == 0) ? 0 :
                                 (i % 3 == 1) ? m.memh->number :
                                                (uint64_t)i << 32;
        (void)pair_feed_control(p->server, &notify);
    }
    pair_settle(p);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
    assert_false(op_is_done(&o));
    op_cancel(o.req);
    PAIR_UNTIL(p, op_is_done(&o));
    memory_free(&m);
}

/* Nobody sleeps: nothing is sent. */
static void
test_nobody_is_not_rung_for(void **state)
{
    pair    *p = *state;
    memory   m;
    op       change = {.req = NULL};
    unsigned before;

    pair_open(p);
    m = memory_alloc(p, LEN);
    pair_settle(p);
    before = p->server->num_arrivals;
    assert_int_equal(by_put_signal(&m, &change), UMX_OK);
    pair_settle(p);
    assert_int_equal(p->server->num_arrivals, before + 1); /* settle's own */
    memory_free(&m);
}

/* ---- comparisons ---------------------------------------------------------
 */

static void
test_numbers_are_compared(void **state)
{
    static const struct {
        umx_cmp cmp;
        bool    is_less_enough, is_equal_enough, is_greater_enough;
    } rows[] = {
        {UMX_CMP_EQ, false, true, false}, {UMX_CMP_NE, true, false, true},
        {UMX_CMP_GT, false, false, true}, {UMX_CMP_GE, false, true, true},
        {UMX_CMP_LT, true, false, false}, {UMX_CMP_LE, true, true, false}};
    static const uint64_t low[]    = {0, 5, UINT32_MAX - 1},
                          middle[] = {1, 6, UINT32_MAX},
                          wide     = UINT64_C(1) << 63;

    pair  *p = *state;
    memory m;

    pair_open(p);
    m = memory_alloc(p, LEN);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        for (unsigned size = 4; size <= 8; size += 4) {
            for (int j = 0; j < 3; j++) {
                umx_condition until = {rows[i].cmp, size, 16, middle[j]};
                op            o;
                bool          is_enough;

                for (uint64_t number = low[j]; number <= low[j] + 2; number++) {
                    /* beyond 4 bytes nothing counts */
                    *word(&m, 16) = number | (size == 4 ? wide : 0);
                    if (size == 4 && number > UINT32_MAX) {
                        continue;
                    }
                    is_enough = (number < middle[j]) ?
                                    rows[i].is_less_enough :
                                (number == middle[j]) ?
                                    rows[i].is_equal_enough :
                                    rows[i].is_greater_enough;
                    start_wait(&o, p->server_worker, &m, until);
                    assert_int_equal(o.status,
                                     is_enough ? UMX_OK : UMX_INPROGRESS);
                    if (!is_enough) {
                        op_cancel(o.req);
                        PAIR_UNTIL(p, op_is_done(&o));
                    }
                }
            }
        }
    }
    memory_free(&m);
}

static void
test_bad_conditions_are_refused(void **state)
{
    static uint64_t data[4];

    pair         *p = *state;
    memory        m, odd;
    umx_context  *other;
    umx_condition until = at_least(0, 1);
    umx_worker   *stranger;
    op            o;

    pair_open(p);
    m   = memory_alloc(p, 64);
    odd = memory_register(p, (char *)data + 1, 24, 0);
    assert_int_equal(refusal(p, &m, at_least(64, 1)), UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(refusal(p, &m, at_least(UINT64_MAX - 7, 1)),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(refusal(p, &m, at_least(4, 1)), UMX_ERR_INVALID_PARAM);
    assert_int_equal(refusal(p, &odd, at_least(8, 1)), UMX_ERR_INVALID_PARAM);
    until.size = 2;
    assert_int_equal(refusal(p, &m, until), UMX_ERR_INVALID_PARAM);
    until     = at_least(0, 1);
    until.cmp = (umx_cmp)6;
    assert_int_equal(refusal(p, &m, until), UMX_ERR_INVALID_PARAM);

    other = pair_context(p->tls, NULL);
    assert_int_equal(umx_worker_create(other, &stranger), UMX_OK);
    start_wait(&o, stranger, &m, at_least(0, 1));
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    umx_worker_destroy(stranger);
    umx_context_release(other);

    umx_memh_close(m.memh);
    assert_int_equal(refusal(p, &m, at_least(0, 0)), UMX_ERR_STALE_KEY);
    assert_false(is_awaited(&m));
    memory_free(&odd);
    memory_free(&m);
}

/* ---- ends ----------------------------------------------------------------
 */

static void
test_a_wait_is_cancelled(void **state)
{
    pair  *p = *state;
    memory m;
    op     o;

    pair_open(p);
    m = memory_alloc(p, LEN);
    sleep_until_one(p, &o, &m);
    op_cancel(o.req);
    assert_false(is_awaited(&m));
    PAIR_UNTIL(p, op_is_done(&o));
    assert_int_equal(o.status, UMX_ERR_CANCELED);
    memory_free(&m);
}

static void
test_closing_the_memory_ends_its_waits(void **state)
{
    pair  *p = *state;
    memory m, other;
    op     o, others;

    pair_open(p);
    m     = memory_alloc(p, LEN);
    other = memory_alloc(p, LEN);
    start_wait(&others, p->server_worker, &other, at_least(0, 1));
    sleep_until_one(p, &o, &m);
    umx_rkey_destroy(m.rkey);
    umx_memh_release(m.memh); /* the wait keeps its memory */
    until_woken(p, &o);
    assert_int_equal(o.status, UMX_ERR_STALE_KEY);
    assert_false(op_is_done(&others));
    op_cancel(others.req);
    PAIR_UNTIL(p, op_is_done(&others));
    memory_free(&other);
}

static void *
close_memory(void *arg)
{
    umx_memh_close(arg);
    return NULL;
}

static void
test_another_thread_may_close_it(void **state)
{
    pair     *p = *state;
    memory    m;
    op        o;
    pthread_t thread;

    pair_open(p);
    m = memory_alloc(p, LEN);
    sleep_until_one(p, &o, &m);
    assert_int_equal(pthread_create(&thread, NULL, close_memory, m.memh), 0);
    assert_true(is_woken(p->server_worker, LONG_MS));
    pthread_join(thread, NULL);
    until_woken(p, &o);
    assert_int_equal(o.status, UMX_ERR_STALE_KEY);
    memory_free(&m);
}

static void
count_end(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    assert_int_equal(status, UMX_ERR_CANCELED);
    ++*(int *)arg;
}

static void
test_the_worker_takes_its_waits_along(void **state)
{
    pair         *p      = *state;
    int           ended  = 0;
    umx_condition until  = at_least(8, 1);
    umx_op_params params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                            .on_done    = count_end,
                            .arg        = &ended};
    umx_worker   *worker;
    umx_request  *req;
    memory        m;

    pair_open(p);
    m = memory_alloc(p, LEN);
    assert_int_equal(umx_worker_create(p->context, &worker), UMX_OK);
    assert_int_equal(umx_memh_wait_until(worker, m.memh, &until, &params, &req),
                     UMX_INPROGRESS);
    fall_asleep(worker);
    umx_worker_destroy(worker);
    assert_int_equal(ended, 1);
    assert_false(is_awaited(&m));
    umx_memh_notify(m.memh); /* nobody is there */
    memory_free(&m);
}

/* The peer ended after its store, before it could ring. */
static void
test_a_peer_that_ends_is_as_good_as_a_ring(void **state)
{
    pair  *p = *state;
    memory m;
    op     o;

    pair_open(p);
    m = memory_alloc(p, LEN);
    sleep_until_one(p, &o, &m);
    *word(&m, 8) = 1;
    umx_ep_abort(p->client);
    until_woken(p, &o);
    assert_int_equal(o.status, UMX_OK);
    memory_free(&m);
}

static void
test_a_child_waits_for_nothing(void **state)
{
    pair         *p = *state;
    memory        m;
    umx_condition until = at_least(8, 1);
    umx_request  *req;
    int           status;
    pid_t         pid;

    pair_open(p);
    m   = memory_alloc(p, LEN);
    pid = fork();
    if (pid == 0) {
        umx_memh_notify(m.memh);
        _exit(umx_memh_wait_until(p->server_worker, m.memh, &until, NULL,
                                  &req) == UMX_ERR_FORKED ?
                  0 :
                  1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    memory_free(&m);
}

/* ---- several -------------------------------------------------------------
 */

static void
test_waits_of_one_memory_end_one_by_one(void **state)
{
    pair  *p = *state;
    memory m;
    op     o[3];

    pair_open(p);
    m = memory_alloc(p, LEN);
    pair_settle(p);
    for (int i = 0; i < 3; i++) {
        start_wait(&o[i], p->server_worker, &m, at_least(8, (uint64_t)i + 1));
    }
    for (int i = 0; i < 3; i++) {
        op change = {.req = NULL};

        fall_asleep(p->server_worker);
        change.status = by_put_signal(&m, &change);
        until_woken(p, &o[i]);
        assert_int_equal(o[i].status, UMX_OK);
        assert_true(i == 2 || !op_is_done(&o[i + 1]));
        assert_int_equal(op_wait(p, &change), UMX_OK);
    }
    assert_false(is_awaited(&m));
    memory_free(&m);
}

/* A wait whose callback posts another one. */
typedef struct chain {
    umx_worker *worker;
    umx_memh   *memh;
    op          second;
} chain;

static void
wait_again(umx_request *req, umx_status status, void *arg)
{
    chain        *c      = arg;
    umx_condition until  = at_least(8, 2);
    umx_op_params params = op_params(&c->second);

    (void)req;
    assert_int_equal(status, UMX_OK);
    c->second.status = umx_memh_wait_until(c->worker, c->memh, &until, &params,
                                           &c->second.req);
}

static void
test_a_callback_may_wait_again(void **state)
{
    pair         *p      = *state;
    umx_condition until  = at_least(8, 1);
    chain         c      = {.second.status = UMX_ERR_NO_ELEM};
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = wait_again, .arg = &c};
    umx_request *req;
    memory       m;

    pair_open(p);
    m        = memory_alloc(p, LEN);
    c.worker = p->server_worker;
    c.memh   = m.memh;
    assert_int_equal(
        umx_memh_wait_until(p->server_worker, m.memh, &until, &params, &req),
        UMX_INPROGRESS);
    *word(&m, 8) = 1;
    umx_worker_poll(p->server_worker);
    assert_int_equal(c.second.status, UMX_INPROGRESS);
    *word(&m, 8) = 2;
    umx_worker_poll(p->server_worker);
    assert_true(op_is_done(&c.second));
    assert_int_equal(c.second.status, UMX_OK);
    memory_free(&m);
}

/* The connection leads to a worker, and another of the context waits. */
static void
check_that_another_worker_is_woken(pair *p, memory *m)
{
    umx_worker *worker;
    op          o, change = {.req = NULL};

    assert_int_equal(umx_worker_create(p->context, &worker), UMX_OK);
    pair_settle(p);
    start_wait(&o, worker, m, at_least(8, 1));
    fall_asleep(worker);
    change.status = by_put_signal(m, &change);
    UNIT_TOLD(change.status);
    for (int i = 0; i < LONG_MS && !is_woken(worker, 1); i++) {
        if (i % IDLE_MS == IDLE_MS - 1) {
            UNIT_IDLE();
        }
        (void)umx_worker_poll(p->client_worker);
        (void)!umx_worker_drain(p->server_worker);
    }
    (void)!umx_worker_drain(worker);
    assert_true(op_is_done(&o));
    assert_int_equal(o.status, UMX_OK);
    assert_int_equal(op_wait(p, &change), UMX_OK);
    umx_worker_destroy(worker);
}

static void
test_another_worker_is_woken(void **state)
{
    static uint64_t data[LEN / 8];

    pair  *p = *state;
    memory m;

    pair_open(p);
    m = memory_alloc(p, LEN);
    check_that_another_worker_is_woken(p, &m);
    memory_free(&m);
    m = memory_register(p, data, sizeof(data), 0);
    check_that_another_worker_is_woken(p, &m);
    memory_free(&m);
}

/* ---- a signal elsewhere --------------------------------------------------
 */

static umx_status
signal_to(pair *p, memory *m, memory *signals)
{
    umx_rma_item  item   = item_of(64, "data", 4);
    umx_atomic    signal = {UMX_ATOMIC_ADD, 8, 8, 1, 0};
    op            o;
    umx_op_params params = op_params(&o);

    o.status = umx_rma_put_signal_to(m->rkey, &item, signals->rkey, &signal,
                                     &params, &o.req);
    return op_wait(p, &o);
}

static void
test_a_signal_may_be_in_another_memory(void **state)
{
    static uint64_t data[LEN / 8];

    pair  *p = *state;
    memory memories[2];

    pair_open(p);
    memories[0] = memory_alloc(p, LEN);
    memories[1] = memory_register(p, data, sizeof(data), 0);
    for (int i = 0; i < 4; i++) {
        memory *m = &memories[i & 1], *signals = &memories[i >> 1];
        op      wait;

        memset(m->data, 0, LEN);
        *word(signals, 8) = 0;
        sleep_until_one(p, &wait, signals);
        assert_int_equal(signal_to(p, m, signals), UMX_OK);
        until_woken(p, &wait);
        assert_int_equal(wait.status, UMX_OK);
        assert_memory_equal(m->data + 64, "data", 4);
    }
    memory_free(&memories[1]);
    memory_free(&memories[0]);
}

static void
test_both_keys_are_of_one_endpoint(void **state)
{
    static uint64_t data[8];

    pair  *p = *state;
    memory m, other = {.data = NULL}, readonly;

    pair_open(p);
    m        = memory_alloc(p, LEN);
    readonly = memory_register(p, data, sizeof(data), UMX_MEMH_FLAG_READONLY);
    assert_int_equal(signal_to(p, &m, &readonly), UMX_ERR_READONLY);
    assert_int_equal(m.data[64], 0);
    /* Both workers are of one context: each is an owner to the other. */
    assert_int_equal(umx_memh_alloc(p->context, LEN, &other.memh), UMX_OK);
    assert_int_equal(memory_open(p->server, other.memh, &other.rkey), UMX_OK);
    assert_int_equal(signal_to(p, &m, &other), UMX_ERR_INVALID_PARAM);
    assert_int_equal(m.data[64], 0);
    memory_free(&other);
    memory_free(&readonly);
    memory_free(&m);
}

/* Somebody who takes his time, and signals meanwhile. */
typedef struct slow_look {
    umx_worker *worker;
    int         signals; /* left */
} slow_look;

static bool
look_slowly(void *arg)
{
    slow_look *slow = arg;
    uint64_t   end  = umi_clock_ns() + 2000000;

    if (slow->signals > 0) {
        slow->signals--;
        while (umi_clock_ns() < end) {
        }
        umx_worker_signal(slow->worker);
    }
    return false;
}

/* A worker that is signalled while it falls asleep looks again. It does not
 * take that for UCX's refusal to be armed, and sleep by the clock. */
static void
test_signals_are_no_reason_to_sleep_by_the_clock(void **state)
{
    pair        *p    = *state;
    slow_look    slow = {.signals = 20};
    memory       m;
    umx_lookout *lookout;

    pair_open(p);
    m           = memory_alloc(p, LEN);
    slow.worker = p->server_worker;
    pair_settle(p);
    assert_int_equal(umx_lookout_start(p->server_worker, m.memh, look_slowly,
                                       &slow, &lookout),
                     UMX_OK);
    do {
        fall_asleep(p->server_worker);
        assert_false(p->server_worker->engine->is_deaf);
    } while (slow.signals > 0);
    umx_lookout_stop(lookout);
    memory_free(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_ONCE(test_what_is_true_is_not_waited_for),
        PAIR_TEST(test_a_peer_wakes_who_sleeps),
        PAIR_TEST(test_so_it_does_where_the_owner_executes),
        PAIR_TEST(test_so_it_does_where_ucx_writes),
        PAIR_TEST_ONCE(test_stores_of_a_peer_are_told_of),
        PAIR_TEST(test_who_polls_needs_nobody),
        PAIR_TEST_ONCE(test_who_blocks_is_woken),
        PAIR_TEST_ONCE(test_an_announcement_is_rung_for_once),
        PAIR_TEST_ONCE(test_any_notification_is_heard),
        PAIR_TEST_ONCE(test_nobody_is_not_rung_for),
        PAIR_TEST_ONCE(test_numbers_are_compared),
        PAIR_TEST_ONCE(test_bad_conditions_are_refused),
        PAIR_TEST(test_a_wait_is_cancelled),
        PAIR_TEST(test_closing_the_memory_ends_its_waits),
        PAIR_TEST_ONCE(test_another_thread_may_close_it),
        PAIR_TEST_ONCE(test_the_worker_takes_its_waits_along),
        PAIR_TEST(test_a_peer_that_ends_is_as_good_as_a_ring),
        PAIR_TEST_ONCE(test_a_child_waits_for_nothing),
        PAIR_TEST(test_waits_of_one_memory_end_one_by_one),
        PAIR_TEST_ONCE(test_a_callback_may_wait_again),
        PAIR_TEST(test_another_worker_is_woken),
        PAIR_TEST(test_a_poll_ends_the_announcement_and_the_arming),
        PAIR_TEST(test_a_signal_may_be_in_another_memory),
        PAIR_TEST_ONCE(test_both_keys_are_of_one_endpoint),
        PAIR_TEST_ONCE(test_signals_are_no_reason_to_sleep_by_the_clock),
    };

    return UNIT_RUN(tests);
}
