/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory tsan */
/* tests: worker/guard progress/thread */
/* A worker with a progress thread serves its peers while its owner does not
 * call: here the server's owner, which progresses the client's worker only. */
#include "memory.h"

#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>

enum {
    LARGE = 4 << 20,
    COUNT = 100
};

/* The owner of the server's worker is away from here on. */
#define CLIENT_UNTIL(p, condition)                     \
    do {                                               \
        while (!(condition)) {                         \
            (void)umx_worker_poll((p)->client_worker); \
            sched_yield();                             \
        }                                              \
    } while (0)

static void
start_thread(pair *p)
{
    assert_int_equal(umx_progress_start(p->server_worker), UMX_OK);
    assert_true(umx_progress_is_running(p->server_worker));
}

static void
stop_thread(pair *p)
{
    umx_progress_stop(p->server_worker);
    assert_false(umx_progress_is_running(p->server_worker));
}

static bool
is_told(const pair *p, int timeout_ms)
{
    struct pollfd fd = {.fd     = umx_progress_fd(p->server_worker),
                        .events = POLLIN};

    return poll(&fd, 1, timeout_ms) == 1;
}

/* ---- life ----------------------------------------------------------------
 */

static void
test_it_starts_and_stops(void **state)
{
    pair *p = *state;
    char  byte;

    pair_open(p);
    assert_int_equal(umx_progress_fd(p->server_worker), -1);
    stop_thread(p); /* there is none */
    for (int i = 0; i < 1000; i++) {
        start_thread(p);
        if (i % 100 == 0) {
            assert_int_equal(umx_progress_start(p->server_worker),
                             UMX_ERR_BUSY);
            assert_true(umx_progress_fd(p->server_worker) >= 0);
            assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "x", 1),
                             UMX_OK);
            assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1),
                             UMX_OK);
        }
        stop_thread(p);
    }
}

static void *
start_as_stranger(void *arg)
{
    pair *p = arg;

    return (umx_progress_start(p->server_worker) == UMX_ERR_WRONG_THREAD) ?
               p :
               NULL;
}

static void
test_the_owner_starts_it(void **state)
{
    pair     *p = *state;
    pthread_t thread;
    void     *result;

    pair_open(p);
    assert_int_equal(pthread_create(&thread, NULL, start_as_stranger, p), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    start_thread(p);
    assert_int_equal(pthread_create(&thread, NULL, start_as_stranger, p), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    stop_thread(p);
}

/* ---- serving -------------------------------------------------------------
 */

static void
test_gets_are_served(void **state)
{
    pair  *p = *state;
    memory m;
    char  *in = malloc(LARGE), *data = malloc(LARGE);
    op     o;

    pair_open(p);
    m = memory_register(p, data, LARGE, 0);
    fill_pattern(m.data, LARGE, 1);
    start_thread(p);
    for (int i = 0; i < 20; i++) {
        umx_rma_item  item   = item_of(0, in, (i % 2) ? LARGE : 8);
        umx_op_params params = op_params(&o);

        memset(in, 0, LARGE);
        if (umx_rma_get(m.rkey, &item, &params, &o.req) == UMX_INPROGRESS) {
            CLIENT_UNTIL(p, op_is_done(&o));
            assert_int_equal(o.status, UMX_OK);
        }
        check_pattern(in, (i % 2) ? LARGE : 8, 1);
    }
    stop_thread(p);
    memory_free(&m);
    free(in);
    free(data);
}

static void
test_pings_are_answered(void **state)
{
    pair *p = *state;

    pair_open(p);
    start_thread(p);
    for (int i = 0; i < 20; i++) {
        op            o;
        umx_op_params params = op_params(&o);

        assert_int_equal(umx_ep_ping(p->client, &params, &o.req),
                         UMX_INPROGRESS);
        CLIENT_UNTIL(p, op_is_done(&o));
        assert_int_equal(o.status, UMX_OK);
    }
    stop_thread(p);
}

/* Callbacks wait for the owner, and run in their order. */
static void
test_messages_arrive_and_callbacks_wait(void **state)
{
    pair *p  = *state;
    char *in = malloc(LARGE), *out = malloc(LARGE), bytes[COUNT];
    op    small[COUNT], large, sent;

    pair_open(p);
    start_thread(p);
    fill_pattern(out, LARGE, 2);
    for (int i = 0; i < COUNT; i++) {
        op_recv(&small[i], p->server, 0, pair_tag(1), &bytes[i], 1);
    }
    op_recv(&large, p->server, 0, pair_tag(2), in, LARGE);
    for (int i = 0; i < COUNT; i++) {
        char byte = (char)i;

        op_send(&sent, p->client, 0, pair_tag(1), &byte, 1);
        CLIENT_UNTIL(p, op_is_done(&sent));
    }
    op_send(&sent, p->client, 0, pair_tag(2), out, LARGE);
    CLIENT_UNTIL(p, op_is_done(&sent)); /* a rendezvous */
    assert_int_equal(sent.status, UMX_OK);
    assert_true(is_told(p, 1000));
    assert_int_equal(large.calls + small[0].calls, 0);
    assert_int_equal(umx_request_status(small[0].req), UMX_INPROGRESS);
    while (!op_is_done(&large)) {
        (void)umx_worker_poll(p->server_worker);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(small[i].calls, 1);
        assert_int_equal(small[i].status, UMX_OK);
        assert_int_equal(bytes[i], (char)i);
    }
    assert_int_equal(large.status, UMX_OK);
    check_pattern(in, LARGE, 2);
    stop_thread(p);
    free(in);
    free(out);
}

static void
append_number(umx_request *req, umx_status status, void *arg)
{
    uint64_t **next = arg;

    assert_int_equal(status, UMX_OK);
    *(*next)++ = umx_request_info(req)->tag;
}

static void
test_callbacks_run_in_the_order_of_completion(void **state)
{
    pair         *p = *state;
    uint64_t      numbers[COUNT], *next = numbers;
    char          bytes[COUNT];
    umx_op_params params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                            .on_done    = append_number,
                            .arg        = &next};

    pair_open(p);
    start_thread(p);
    for (int i = 0; i < COUNT; i++) {
        umx_buffer    buffer = umx_host_buffer(&bytes[i], 1);
        umx_recv_info info;
        umx_request  *req;

        assert_int_equal(umx_channel_recv(p->server, 0, &pair_any, &buffer,
                                          &params, &req, &info),
                         UMX_INPROGRESS);
    }
    for (int i = 0; i < COUNT; i++) {
        op o;

        op_send(&o, p->client, 0, pair_tag((uint64_t)i), "x", 1);
        CLIENT_UNTIL(p, op_is_done(&o));
    }
    while (next != numbers + COUNT) {
        (void)umx_worker_poll(p->server_worker);
        (void)umx_worker_poll(p->client_worker);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(numbers[i], i);
    }
    stop_thread(p);
}

/* An operation without a callback is done where the thread has done it, and
 * that ends the owner's wait. */
static void *
send_later(void *arg)
{
    pair *p = arg;
    op    o;

    umx_worker_adopt(p->client_worker);
    usleep(20000);
    op_send(&o, p->client, 0, pair_tag(1), "x", 1);
    CLIENT_UNTIL(p, op_is_done(&o));
    return NULL;
}

static void
test_an_owner_that_waits_is_woken(void **state)
{
    pair *p = *state;

    pair_open(p);
    start_thread(p);
    for (int i = 0; i < 20; i++) {
        char          byte   = 0;
        umx_buffer    buffer = umx_host_buffer(&byte, 1);
        umx_recv_info info;
        umx_request  *req;
        pthread_t     thread;

        assert_int_equal(umx_channel_recv(p->server, 0, &pair_any, &buffer,
                                          NULL, &req, &info),
                         UMX_INPROGRESS);
        assert_int_equal(pthread_create(&thread, NULL, send_later, p), 0);
        if (i % 2) {
            usleep(40000); /* the thread is there first */
        }
        assert_int_equal(umx_request_wait(req, 10 * SECOND_NS), UMX_OK);
        assert_int_equal(byte, 'x');
        umx_request_release(req);
        pthread_join(thread, NULL);
        umx_worker_adopt(p->client_worker);
    }
    stop_thread(p);
}

static void
test_endpoints_are_accepted_and_told_of_later(void **state)
{
    pair *p = *state;

    pair_listen(p);
    start_thread(p);
    pair_connect(p, 0);
    CLIENT_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_OPEN);
    assert_null(p->server);
    while (p->server == NULL) {
        (void)umx_worker_poll(p->server_worker);
    }
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "x", 1), UMX_OK);
    stop_thread(p);
    {
        char byte;

        assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1),
                         UMX_OK);
    }
}

static void
count_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    (void)ep;
    (void)state;
    (void)status;
    ++*(int *)arg;
}

static void
test_states_are_told_of_later(void **state)
{
    pair *p     = *state;
    int   count = 0;

    pair_open(p);
    start_thread(p);
    umx_ep_set_on_state(p->server, count_state, &count);
    umx_ep_abort(p->client);
    CLIENT_UNTIL(p, is_told(p, 0));
    assert_int_equal(count, 0);
    assert_int_not_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
    while (count == 0) {
        (void)umx_worker_poll(p->server_worker);
    }
    stop_thread(p);
}

static void
note_call(umx_worker *worker, umx_status status, void *arg)
{
    (void)worker;
    assert_int_equal(status, UMX_OK);
    *(pthread_t *)arg = pthread_self();
}

static void
test_submitted_calls_are_the_owners(void **state)
{
    pair     *p      = *state;
    pthread_t caller = {0};

    pair_open(p);
    start_thread(p);
    assert_int_equal(umx_worker_submit(p->server_worker, note_call, &caller),
                     UMX_OK);
    assert_true(is_told(p, 10000));
    (void)umx_worker_poll(p->server_worker);
    assert_true(pthread_equal(caller, pthread_self()));
    assert_false(is_told(p, 0));
    stop_thread(p);
}

/* ---- races ---------------------------------------------------------------
 */

/* Each receive ends once, and no message is lost. */
static void
test_cancelling_while_messages_arrive(void **state)
{
    pair    *p        = *state;
    unsigned received = 0, random = 1;

    pair_open(p);
    start_thread(p);
    for (int i = 0; i < 300; i++) {
        static char in[LARGE], out[LARGE];
        size_t      len = (i % 3 == 0) ? 1 << 20 : 64;
        op          receiving, sending;

        op_recv(&receiving, p->server, 0, pair_any, in, len);
        out[0] = (char)i;
        op_send(&sending, p->client, 0, pair_tag(1), out, len);
        random = random * 1103515245 + 12345;
        for (unsigned n = (random >> 16) % 3000; n > 0; n--) {
            (void)umx_worker_poll(p->client_worker);
        }
        if (!op_is_done(&receiving)) {
            op_cancel(receiving.req);
        }
        PAIR_UNTIL(p, op_is_done(&receiving));
        assert_int_equal(receiving.calls, 1);
        if (receiving.status == UMX_OK) {
            received++;
        } else {
            assert_int_equal(receiving.status, UMX_ERR_CANCELED);
            assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, len),
                             UMX_OK);
        }
        assert_int_equal(in[0], (char)i);
        PAIR_UNTIL(p, op_is_done(&sending));
    }
    (void)received; /* as it happens */
    stop_thread(p);
}

static void
test_destroying_under_load(void **state)
{
    pair *p = *state;

    for (int i = 0; i < 10; i++) {
        static char in[COUNT][4096], out[4096];
        op          receives[COUNT], sends[COUNT];

        pair_open(p);
        start_thread(p);
        for (int j = 0; j < COUNT; j++) {
            op_recv(&receives[j], p->server, 0, pair_any, in[j], 4096);
            op_send(&sends[j], p->client, 0, pair_tag(1), out, 4096);
        }
        for (int j = 0; j < i * 100; j++) {
            (void)umx_worker_poll(p->client_worker);
        }
        umx_worker_destroy(p->server_worker);
        for (int j = 0; j < COUNT; j++) {
            assert_true(op_is_done(&receives[j]));
            assert_true(receives[j].calls <= 1);
        }
        umx_ep_destroy(p->server);
        umx_listener_destroy(p->listener);
        umx_worker_destroy(p->client_worker);
        umx_ep_destroy(p->client);
        umx_context_release(p->context);
        umx_context_release(p->client_context);
        *p = (pair){.tls = p->tls, .config = p->config};
    }
}

static void
destroy_worker(umx_worker *worker, umx_status status, void *arg)
{
    (void)status;
    ++*(int *)arg;
    umx_worker_destroy(worker);
}

static void
test_a_callback_destroys_the_worker(void **state)
{
    pair *p     = *state;
    int   calls = 0;

    pair_open(p);
    start_thread(p);
    assert_int_equal(
        umx_worker_submit(p->server_worker, destroy_worker, &calls), UMX_OK);
    assert_true(is_told(p, 10000));
    assert_int_equal(umx_worker_drain(p->server_worker), UMX_ERR_CLOSED);
    assert_int_equal(calls, 1);
    umx_ep_destroy(p->server);
    umx_listener_destroy(p->listener);
    umx_ep_destroy(p->client);
    umx_worker_destroy(p->client_worker);
    umx_context_release(p->context);
    umx_context_release(p->client_context);
    *p = (pair){0};
}

static void
stop_worker(umx_worker *worker, umx_status status, void *arg)
{
    (void)status;
    ++*(int *)arg;
    umx_progress_stop(worker);
}

static void
test_a_callback_stops_it(void **state)
{
    pair *p     = *state;
    int   calls = 0;

    pair_open(p);
    start_thread(p);
    assert_int_equal(umx_worker_submit(p->server_worker, stop_worker, &calls),
                     UMX_OK);
    while (calls == 0) {
        assert_true(umx_worker_drain(p->server_worker) >= 0);
    }
    assert_false(umx_progress_is_running(p->server_worker));
    pair_settle(p);
}

static void
test_a_child_has_no_thread(void **state)
{
    pair *p = *state;
    pid_t pid;
    int   status;

    pair_open(p);
    start_thread(p);
    for (int i = 0; i < 20; i++) {
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(10);
            umx_worker_poll(p->server_worker);
            umx_progress_stop(p->server_worker);
            umx_worker_destroy(p->server_worker);
            _exit(umx_progress_is_running(p->server_worker) ||
                  umx_worker_is_owner(p->server_worker));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    pair_settle(p);
    stop_thread(p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_it_starts_and_stops),
        PAIR_TEST_ONCE(test_the_owner_starts_it),
        PAIR_TEST(test_gets_are_served),
        PAIR_TEST(test_pings_are_answered),
        PAIR_TEST(test_messages_arrive_and_callbacks_wait),
        PAIR_TEST(test_callbacks_run_in_the_order_of_completion),
        PAIR_TEST(test_an_owner_that_waits_is_woken),
        PAIR_TEST(test_endpoints_are_accepted_and_told_of_later),
        PAIR_TEST(test_states_are_told_of_later),
        PAIR_TEST_ONCE(test_submitted_calls_are_the_owners),
        PAIR_TEST(test_cancelling_while_messages_arrive),
        PAIR_TEST(test_destroying_under_load),
        PAIR_TEST_ONCE(test_a_callback_destroys_the_worker),
        PAIR_TEST_ONCE(test_a_callback_stops_it),
        PAIR_TEST_ONCE(test_a_child_has_no_thread),
    };

    return UNIT_RUN(tests);
}
