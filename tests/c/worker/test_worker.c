/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair optimised */
/* tests: library/worker progress/event_fd worker/timer */
#include "pair.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    MIB = 1024 * 1024
};

static bool
is_readable(const umx_worker *worker, int timeout_ms)
{
    struct pollfd fd = {.fd = umx_worker_fd(worker), .events = POLLIN};

    return poll(&fd, 1, timeout_ms) == 1;
}

static void
drain_until_idle(umx_worker *worker)
{
    umx_status status;

    do {
        status = umx_worker_drain(worker);
    } while (status == UMX_INPROGRESS);
    assert_int_equal(status, UMX_OK);
}

static uint64_t
endpoints_of(umx_worker *worker)
{
    umx_worker_stats stats;

    umx_worker_query(worker, &stats);
    return stats.endpoints;
}

/* ---- progress ------------------------------------------------------------
 */

static void
test_an_idle_worker_is_armed(void **state)
{
    pair *p = *state;

    pair_open(p);
    pair_settle(p);
    drain_until_idle(p->client_worker);
    drain_until_idle(p->server_worker);
    assert_true(umx_worker_is_armed(p->server_worker));
    assert_false(is_readable(p->server_worker, 0));
    assert_true(umx_worker_fd(p->server_worker) >= 0);
    assert_non_null(umx_worker_handle(p->server_worker));

    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    /* op_wait() did not have to drain the server */
    assert_true(is_readable(p->server_worker, -1));
    while (umx_worker_poll(p->server_worker) == 0) {
    }
    assert_false(umx_worker_is_armed(p->server_worker));
}

static void
test_wait_times_out(void **state)
{
    pair *p = *state;

    pair_listen(p);
    drain_until_idle(p->client_worker);
    assert_int_equal(umx_worker_wait(p->client_worker, 0), UMX_ERR_TIMED_OUT);
    assert_int_equal(umx_worker_wait(p->client_worker, 1000000),
                     UMX_ERR_TIMED_OUT);
}

static void *
signal_worker(void *arg)
{
    umx_worker_signal(arg);
    return NULL;
}

static void
test_another_thread_wakes_the_owner(void **state)
{
    pair     *p = *state;
    pthread_t thread;

    pair_listen(p);
    drain_until_idle(p->client_worker);
    assert_int_equal(
        pthread_create(&thread, NULL, signal_worker, p->client_worker), 0);
    assert_int_equal(umx_worker_wait(p->client_worker, UMX_TIMEOUT_INFINITE),
                     UMX_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void
test_the_next_timer(void **state)
{
    pair    *p = *state;
    uint64_t first;

    pair_listen(p);
    assert_true(umx_worker_deadline(p->client_worker) == UINT64_MAX);
    pair_connect(p, 600 * SECOND_NS);
    first = umx_worker_deadline(p->client_worker);
    assert_true(first != UINT64_MAX);
    {
        umx_ep *later = p->client;

        pair_connect(p, 60 * SECOND_NS); /* earlier */
        assert_true(umx_worker_deadline(p->client_worker) < first);
        umx_ep_destroy(p->client);
        assert_int_equal(umx_worker_deadline(p->client_worker), first);
        umx_ep_destroy(later);
        p->client = NULL;
    }
    assert_true(umx_worker_deadline(p->client_worker) == UINT64_MAX);
    pair_connect(p, UMX_TIMEOUT_INFINITE);
    assert_true(umx_worker_deadline(p->client_worker) == UINT64_MAX);
    umx_ep_destroy(p->client);
    p->client = NULL;
    drain_until_idle(p->client_worker);
    if (p->server != NULL) {
        umx_ep_destroy(p->server);
        p->server = NULL;
    }
}

/* A callback's calls; what it sees is checked when it has ended. */
typedef struct draining {
    umx_ep    *ep;
    umx_status status;
    umx_status drained;
    unsigned   num_done;
} draining;

static void
drain_inside(umx_request *req, umx_status status, void *arg)
{
    draining   *d      = arg;
    umx_worker *worker = umx_ep_worker(d->ep);

    (void)req;
    d->status   = status;
    d->drained  = umx_worker_drain(worker);
    d->num_done = umx_worker_poll(worker);
}

static void
test_draining_in_a_callback_is_put_off(void **state)
{
    pair         *p      = *state;
    char          byte   = 0;
    umx_buffer    buffer = umx_host_buffer(&byte, 1);
    umx_request  *req;
    umx_recv_info info;
    draining      d      = {.num_done = 1};
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = drain_inside, .arg = &d};

    pair_open(p);
    d.ep = p->server;
    assert_int_equal(umx_channel_recv(p->server, 0, &pair_any, &buffer, &params,
                                      &req, &info),
                     UMX_INPROGRESS);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    PAIR_UNTIL(p, byte != 0);
    assert_int_equal(d.status, UMX_OK);
    assert_int_equal(d.drained, UMX_INPROGRESS);
    assert_int_equal(d.num_done, 0);
}

/* A stream that never ends: drain comes back anyway. */
static void
test_drain_has_a_budget(void **state)
{
    pair *p = *state;

    p->config.drain_ns = 0;
    pair_open(p);
    pair_settle(p);
    drain_until_idle(p->client_worker);
}

/* A turn that is over lasts for one poll each: nothing is left undone. */
static void
test_drains_of_a_turn_share_its_budget(void **state)
{
    pair *p = *state;

    p->config.drain_ns = 60 * SECOND_NS;
    pair_open(p);
    umx_worker_begin_turn(p->client_worker);
    assert_false(umx_worker_turn_is_over(p->client_worker));
    p->client_worker->turn_ticks = 0;
    umx_worker_begin_turn(p->client_worker);
    while (!umx_worker_turn_is_over(p->client_worker)) {
    }
    pair_settle(p);
    drain_until_idle(p->client_worker);
}

/* ---- threads and processes -----------------------------------------------
 */

static void *
retire_ep(void *arg)
{
    umx_ep_retire(arg);
    return NULL;
}

static void *
retire_listener(void *arg)
{
    umx_listener_retire(arg);
    return NULL;
}

static void
test_other_threads_give_back_by_retiring(void **state)
{
    pair            *p = *state;
    pthread_t        threads[2];
    umx_worker_stats stats;

    pair_open(p);
    assert_int_equal(pthread_create(&threads[0], NULL, retire_ep, p->server),
                     0);
    assert_int_equal(
        pthread_create(&threads[1], NULL, retire_listener, p->listener), 0);
    p->server   = NULL;
    p->listener = NULL;
    PAIR_UNTIL(p, endpoints_of(p->server_worker) == 0);
    assert_int_equal(pthread_join(threads[0], NULL), 0);
    assert_int_equal(pthread_join(threads[1], NULL), 0);
    PAIR_UNTIL(p, umi_list_is_empty(&p->server_worker->listeners));
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.listeners, 0);
}

typedef struct caller {
    umx_worker *worker;
    pthread_t   thread;
    unsigned    count; /* to submit */
    unsigned    seen;
    bool        is_in_order;
} caller;

typedef struct submission {
    caller  *caller;
    unsigned number;
} submission;

static void
on_call(umx_worker *worker, umx_status status, void *arg)
{
    submission *self = arg;
    caller     *from = self->caller;

    from->is_in_order = from->is_in_order && status == UMX_OK &&
                        worker == from->worker && umx_worker_is_owner(worker) &&
                        self->number == from->seen;
    from->seen++;
    free(self);
}

static void *
submit_many(void *arg)
{
    caller *self = arg;

    for (unsigned i = 0; i < self->count; i++) {
        submission *call = malloc(sizeof(*call));

        *call = (submission){.caller = self, .number = i};
        while (umx_worker_submit(self->worker, on_call, call) != UMX_OK) {
            /* out of memory: nothing has been kept */
        }
    }
    return NULL;
}

static void
test_calls_from_other_threads_run_in_the_owner(void **state)
{
    pair    *p = *state;
    caller   callers[4];
    unsigned left = 0;

    pair_listen(p);
    drain_until_idle(p->client_worker);
    for (size_t i = 0; i < 4; i++) {
        callers[i] = (caller){
            .worker = p->client_worker, .count = 500, .is_in_order = true};
        assert_int_equal(
            pthread_create(&callers[i].thread, NULL, submit_many, &callers[i]),
            0);
    }
    do { /* asleep in between: each must be woken for */
        assert_int_equal(
            umx_worker_wait(p->client_worker, UMX_TIMEOUT_INFINITE), UMX_OK);
        left = 0;
        for (size_t i = 0; i < 4; i++) {
            left += callers[i].count - callers[i].seen;
        }
    } while (left > 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
        assert_true(callers[i].is_in_order);
    }
}

static void
note_status(umx_worker *worker, umx_status status, void *arg)
{
    (void)worker;
    *(umx_status *)arg = status;
}

static void *
create_worker(void *arg)
{
    umx_worker *worker;

    return (umx_worker_create(arg, &worker) == UMX_OK) ? worker : NULL;
}

static void
test_a_worker_is_adopted_from_a_thread_that_ended(void **state)
{
    pair      *p = *state;
    pthread_t  thread;
    void      *result;
    umx_status status = UMX_ERR_BUSY;

    pair_listen(p);
    assert_int_equal(pthread_create(&thread, NULL, create_worker, p->context),
                     0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    umx_worker_adopt(result);
    assert_true(umx_worker_is_owner(result));
    assert_int_equal(umx_worker_submit(result, note_status, &status), UMX_OK);
    drain_until_idle(result);
    assert_int_equal(status, UMX_OK);
    umx_worker_destroy(result);
}

static void *
destroy_worker(void *worker)
{
    bool is_owner = umx_worker_is_owner(worker);

    drain_until_idle(worker);
    umx_worker_destroy(worker);
    return is_owner ? worker : NULL;
}

static void
test_every_thread_owns_a_shared_worker(void **state)
{
    pair       *p = *state;
    umx_worker *worker;
    pthread_t   thread;
    void       *result;

    pair_listen(p);
    assert_int_equal(umx_worker_create(p->context, &worker), UMX_OK);
    umx_worker_share(worker);
    assert_true(umx_worker_is_owner(worker));
    drain_until_idle(worker);
    assert_int_equal(pthread_create(&thread, NULL, destroy_worker, worker), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, worker);
}

static void
test_destroying_cancels_submitted_calls(void **state)
{
    pair       *p = *state;
    umx_worker *worker;
    umx_status  status = UMX_OK;

    pair_listen(p);
    assert_int_equal(umx_worker_create(p->context, &worker), UMX_OK);
    assert_int_equal(umx_worker_submit(worker, note_status, &status), UMX_OK);
    umx_worker_destroy(worker);
    assert_int_equal(status, UMX_ERR_CANCELED);
}

/* A receiver that always posts the next receive. */
typedef struct receiver {
    umx_worker *worker;
    char        byte;
    int         num_posted, num_done;
    umx_status  last, flush, connect, listen;
} receiver;

static void receive_next(receiver *r);

static void
on_received(umx_request *req, umx_status status, void *arg)
{
    receiver *r = arg;

    (void)req;
    assert_int_equal(status, UMX_ERR_CANCELED);
    r->num_done++;
    receive_next(r);
}

static void
receive_next(receiver *r)
{
    umx_buffer    buf    = umx_host_buffer(&r->byte, 1);
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = on_received, .arg = r};
    umx_request  *req;
    umx_recv_info info;

    r->last = umx_tag_recv(r->worker, NULL, 7, UINT64_MAX, &buf, &params, &req,
                           &info);
    r->num_posted += (r->last == UMX_INPROGRESS);
}

static void
on_first_received(umx_request *req, umx_status status, void *arg)
{
    struct sockaddr_in  addr            = {.sin_family      = AF_INET,
                                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    umx_listener_params listener_params = {.addr     = (void *)&addr,
                                           .addr_len = sizeof(addr)};
    umx_connect_params  connect_params  = {.addr     = (void *)&addr,
                                           .addr_len = sizeof(addr)};
    receiver           *r               = arg;
    umx_listener       *listener;
    umx_ep             *ep;

    r->flush   = umx_worker_flush(r->worker, NULL, &req);
    r->connect = umx_ep_connect(r->worker, &connect_params, &ep);
    r->listen  = umx_listener_create(r->worker, &listener_params, &listener);
    on_received(req, status, arg);
}

/* What would begin then would never end. */
static void
test_nothing_begins_while_a_worker_is_destroyed(void **state)
{
    pair         *p = *state;
    receiver      r = {0}, first = {0};
    umx_buffer    buf    = umx_host_buffer(&first.byte, 1);
    umx_op_params params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                            .on_done    = on_first_received,
                            .arg        = &first};
    umx_request  *req;
    umx_recv_info info;

    pair_listen(p);
    assert_int_equal(umx_worker_create(p->context, &r.worker), UMX_OK);
    first.worker = r.worker;
    receive_next(&r);
    assert_int_equal(umx_tag_recv(first.worker, NULL, 8, UINT64_MAX, &buf,
                                  &params, &req, &info),
                     UMX_INPROGRESS);
    umx_worker_destroy(r.worker);
    assert_int_equal(r.num_posted, 1);
    assert_int_equal(r.num_done, 1);
    assert_int_equal(r.last, UMX_ERR_CLOSED);
    assert_int_equal(first.last, UMX_ERR_CLOSED);
    assert_int_equal(first.flush, UMX_ERR_CLOSED);
    assert_int_equal(first.connect, UMX_ERR_CLOSED);
    assert_int_equal(first.listen, UMX_ERR_CLOSED);
}

/* Return whether every call of the owner answers `expected` to another
 * thread. */
static bool
all_refuse(pair *p, umx_status expected)
{
    struct sockaddr_in  addr            = {.sin_family = AF_INET};
    umx_listener_params listener_params = {.addr      = (void *)&addr,
                                           .addr_len  = sizeof(addr),
                                           .on_accept = p->listener->on_accept};
    umx_connect_params  connect_params  = {.addr     = (void *)&addr,
                                           .addr_len = sizeof(addr)};
    umx_buffer          buffer          = {0};
    umx_message        *message;
    umx_listener       *listener;
    umx_request        *req;
    umx_recv_info       info;
    umx_ep             *ep;

    return !umx_worker_is_owner(p->client_worker) &&
           umx_worker_drain(p->client_worker) == expected &&
           umx_worker_wait(p->client_worker, 0) == expected &&
           umx_worker_flush(p->client_worker, NULL, &req) == expected &&
           umx_ep_flush(p->client, NULL, &req) == expected &&
           umx_ep_close(p->client, 0, NULL, &req) == expected &&
           umx_ep_connect(p->client_worker, &connect_params, &ep) == expected &&
           umx_listener_create(p->client_worker, &listener_params, &listener) ==
               expected &&
           umx_channel_send(p->client, 0, &pair_untagged, &buffer, NULL,
                            &req) == expected &&
           umx_channel_recv(p->client, 0, &pair_any, &buffer, NULL, &req,
                            &info) == expected &&
           umx_channel_recv_message(p->client, 0, &pair_any, NULL, &req,
                                    &message) == expected &&
           umx_channel_probe(p->client, 0, &pair_any, &info) == expected &&
           umx_tag_send(p->client, 0, &buffer, NULL, &req) == expected &&
           umx_tag_recv(p->client_worker, NULL, 0, 0, &buffer, NULL, &req,
                        &info) == expected;
}

static void *
try_as_stranger(void *arg)
{
    return all_refuse(arg, UMX_ERR_WRONG_THREAD) ? arg : NULL;
}

static void
test_other_threads_are_refused(void **state)
{
    pair     *p = *state;
    pthread_t thread;
    void     *result;

    pair_open(p);
    assert_true(umx_worker_is_owner(p->client_worker));
    assert_int_equal(pthread_create(&thread, NULL, try_as_stranger, p), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
}

static void
test_a_woken_worker_has_not_overslept(void **state)
{
    pair *p = *state;

    pair_open(p);
    pair_settle(p);
    drain_until_idle(p->client_worker);
    drain_until_idle(p->server_worker);
    assert_false(umx_worker_overslept(p->server_worker));
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    assert_true(is_readable(p->server_worker, -1));
    assert_false(umx_worker_overslept(p->server_worker));
}

static void
test_a_forked_child_is_refused(void **state)
{
    pair *p = *state;
    pid_t pid;
    int   status;

    pair_open(p);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        umx_worker *worker;
        umx_status  called;
        bool        is_ok = all_refuse(p, UMX_ERR_FORKED) &&
                     umx_worker_create(p->context, &worker) == UMX_ERR_FORKED &&
                     umx_worker_submit(p->client_worker, note_status,
                                       &called) == UMX_ERR_FORKED;

        umx_ep_destroy(p->client);
        umx_listener_destroy(p->listener);
        umx_worker_destroy(p->client_worker);
        umx_worker_destroy(p->server_worker);
        umx_context_release(p->client_context);
        _exit(is_ok ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    pair_settle(p); /* the parent goes on */
}

/* ---- destroying ----------------------------------------------------------
 */

/* The teardown's part of a pair whose workers are gone. */
static void
forget(pair *p)
{
    umx_context_release(p->context);
    umx_context_release(p->client_context);
    p->context = NULL;
    p->client  = NULL;
    p->server  = NULL;
}

static void
test_destroying_with_everything_open(void **state)
{
    pair         *p   = *state;
    char         *out = calloc(1, MIB), *in = calloc(1, MIB);
    char          byte;
    op            recvs[4], sends[4], flush_op, close_op, tag_op;
    umx_op_params params;
    umx_buffer    buffer = umx_host_buffer(&byte, 1);
    umx_recv_info info;
    umx_ep       *half;

    assert_non_null(out);
    assert_non_null(in);
    p->config.credit_rndv = 2;
    pair_open(p);
    for (int i = 0; i < 4; i++) { /* in UCX, and waiting */
        op_send(&sends[i], p->client, 0, pair_tag(1), out, MIB);
    }
    assert_int_equal(pair_send(p, p->client, 5, pair_tag(1), out, 4000),
                     UMX_OK);
    pair_settle(p);
    op_recv(&recvs[0], p->server, 0, pair_any, in, MIB); /* landing */
    op_cancel(recvs[0].req);
    op_recv(&recvs[1], p->server, 0, pair_any, in, MIB);  /* claiming */
    op_recv(&recvs[2], p->server, 1, pair_any, &byte, 1); /* queued */
    op_recv_message(&recvs[3], p->server, 1, pair_any);
    params        = op_params(&tag_op);
    tag_op.status = umx_tag_recv(p->server_worker, NULL, 1, 1, &buffer, &params,
                                 &tag_op.req, &info);
    assert_int_equal(tag_op.status, UMX_INPROGRESS);
    params          = op_params(&flush_op);
    flush_op.status = umx_worker_flush(p->client_worker, &params,
                                       &flush_op.req);
    half            = p->client;
    pair_connect(p, 0); /* the endpoint is still connecting */
    umx_ep_destroy(p->client);
    pair_connect(p, 0);
    op_close(&close_op, half, UMX_TIMEOUT_INFINITE);

    umx_worker_destroy(p->server_worker);
    umx_worker_destroy(p->client_worker);
    for (int i = 0; i < 4; i++) {
        assert_true(op_is_done(&recvs[i]));
        assert_int_equal(recvs[i].calls, 1);
        assert_true(recvs[i].status < 0);
        assert_true(op_is_done(&sends[i]));
        assert_true(sends[i].status < 0);
    }
    assert_int_equal(recvs[2].status, UMX_ERR_CANCELED);
    assert_int_equal(tag_op.status, UMX_ERR_CANCELED);
    assert_true(op_is_done(&flush_op));
    assert_int_equal(close_op.status, UMX_ERR_CANCELED);

    /* The handles are still good for being refused and given back. */
    op_send(&sends[0], half, 0, pair_tag(1), out, 1);
    assert_int_equal(sends[0].status, UMX_ERR_CLOSED);
    op_recv(&recvs[0], p->server, 0, pair_any, in, 1);
    assert_int_equal(recvs[0].status, UMX_ERR_CLOSED);
    op_close(&close_op, half, 0);
    assert_int_equal(close_op.status, UMX_OK);
    umx_ep_abort(half);
    assert_null(umx_ep_worker(half));
    umx_ep_destroy(half);
    umx_ep_retire(p->client);
    umx_ep_destroy(p->server);
    {
        size_t len = 0;

        assert_int_equal(umx_listener_address(p->listener, NULL, &len),
                         UMX_ERR_CLOSED);
    }
    umx_listener_retire(p->listener);
    forget(p);
    free(in);
    free(out);
}

static void
test_messages_outlive_the_worker(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, MIB);
    op    taken[3], send_op, o;

    assert_non_null(data);
    pair_open(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    op_send(&send_op, p->client, 0, pair_tag(1), data, MIB);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    pair_settle(p);
    for (int i = 0; i < 3; i++) {
        op_recv_message(&taken[i], p->server, 0, pair_any);
        assert_int_equal(taken[i].status, UMX_OK);
    }
    umx_worker_destroy(p->client_worker);
    umx_worker_destroy(p->server_worker);
    assert_true(op_is_done(&send_op));
    assert_int_equal(umx_message_info(taken[1].message)->length, MIB);
    umx_message_return(taken[0].message);
    umx_message_return(taken[1].message);
    op_message_recv(&o, taken[2].message, data, MIB);
    assert_int_equal(o.status, UMX_ERR_CLOSED);
    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    umx_listener_destroy(p->listener);
    forget(p);
    free(data);
}

static void
give_back(umx_request *req, umx_status status, void *arg)
{
    pair *p = arg;

    (void)req;
    assert_true(status < 0);
    umx_ep_destroy(p->client);
    umx_listener_destroy(p->listener);
    p->client   = NULL;
    p->listener = NULL;
}

/* A callback that runs inside umx_worker_destroy() gives handles back. */
static void
test_giving_back_while_destroying(void **state)
{
    pair         *p = *state;
    char          byte;
    umx_buffer    buffer = umx_host_buffer(&byte, 1);
    umx_request  *req;
    umx_recv_info info;
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = give_back, .arg = p};

    pair_open(p);
    assert_int_equal(umx_channel_recv(p->client, 0, &pair_any, &buffer, &params,
                                      &req, &info),
                     UMX_INPROGRESS);
    umx_worker_destroy(p->client_worker);
    assert_null(p->client);
    umx_worker_destroy(p->server_worker);
    umx_ep_destroy(p->server);
    forget(p);
}

/* ---- destroyed by a callback ------------------------------------------------
 */

/* Where `umx` was destroyed. */
typedef struct suicide {
    umx_worker *umx;
    int         calls;
} suicide;

static void
destroy_it(suicide *s)
{
    umx_worker_stats stats;

    s->calls++;
    umx_worker_destroy(s->umx);
    umx_worker_destroy(s->umx);       /* once is enough */
    umx_worker_query(s->umx, &stats); /* exists until the call ends */
    assert_int_equal(umx_worker_drain(s->umx), UMX_INPROGRESS);
}

static void
destroy_on_done(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    (void)status;
    destroy_it(arg);
}

static void
destroy_on_call(umx_worker *worker, umx_status status, void *arg)
{
    (void)worker;
    assert_int_equal(status, UMX_OK);
    destroy_it(arg);
}

static void
destroy_on_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    (void)status;
    if (state != UMX_EP_OPEN) {
        umx_ep_set_on_state(ep, NULL, NULL);
        destroy_it(arg);
    }
}

/* The client's worker, in a callback of each (P) call. */
static void
test_a_callback_may_destroy_its_worker(void **state)
{
    for (int how = 0; how < 4; how++) {
        pair         *p       = *state;
        suicide       s       = {0};
        volatile bool is_done = false;

        pair_open(p);
        s.umx = p->client_worker;
        assert_int_equal(
            umx_worker_submit(p->client_worker, destroy_on_call, &s), UMX_OK);
        switch (how) {
        case 0:
            assert_int_equal(umx_worker_poll(p->client_worker), 0);
            break;
        case 1:
            assert_int_equal(umx_worker_drain(p->client_worker),
                             UMX_ERR_CLOSED);
            break;
        case 2:
            assert_int_equal(
                umx_worker_wait(p->client_worker, UMX_TIMEOUT_INFINITE),
                UMX_ERR_CLOSED);
            break;
        default:
            assert_false(umx_worker_spin(p->client_worker, &is_done));
        }
        assert_int_equal(s.calls, 1);
        assert_null(umx_ep_worker(p->client));
        umx_worker_destroy(p->server_worker);
        umx_ep_destroy(p->client);
        umx_ep_destroy(p->server);
        umx_listener_destroy(p->listener);
        p->listener = NULL;
        forget(p);
    }
}

static void
test_a_completion_may_destroy_its_worker(void **state)
{
    pair         *p      = *state;
    suicide       s      = {0};
    char          byte   = 0;
    umx_buffer    buffer = umx_host_buffer(&byte, 1);
    umx_request  *req;
    umx_recv_info info;
    umx_op_params params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                            .on_done    = destroy_on_done,
                            .arg        = &s};
    op            other, sent;

    pair_open(p);
    s.umx = p->server_worker;
    assert_int_equal(umx_channel_recv(p->server, 0, &pair_any, &buffer, &params,
                                      &req, &info),
                     UMX_INPROGRESS);
    op_recv(&other, p->server, 1, pair_any, &byte, 1);
    op_send(&sent, p->client, 0, pair_tag(1), "a", 1);
    assert_true(sent.status >= 0);
    while (s.calls == 0) {
        (void)umx_worker_poll(p->client_worker);
        (void)umx_worker_poll(p->server_worker);
    }
    assert_int_equal(s.calls, 1);
    assert_true(op_is_done(&other)); /* destroyed: it has ended, too */
    assert_int_equal(other.status, UMX_ERR_CANCELED);
    umx_worker_destroy(p->client_worker);
    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    forget(p);
}

static void
test_a_state_callback_may_destroy_its_worker(void **state)
{
    pair      *p = *state;
    suicide    s = {0};
    umx_status status;

    pair_open(p);
    s.umx = p->server_worker;
    umx_ep_set_on_state(p->server, destroy_on_state, &s);
    umx_ep_abort(p->server);
    status = umx_worker_drain(p->server_worker);
    assert_int_equal(status, UMX_ERR_CLOSED);
    assert_int_equal(s.calls, 1);
    umx_worker_destroy(p->client_worker);
    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    forget(p);
}

/* ---- knowing -------------------------------------------------------------
 */

static void
test_descriptions(void **state)
{
    pair *p = *state;
    char *text;

    pair_open(p);
    assert_int_equal(umx_worker_info(p->client_worker, &text), UMX_OK);
    assert_true(strlen(text) > 0);
    free(text);
    assert_int_equal(umx_ep_info(p->client, &text), UMX_OK);
    assert_true(strlen(text) > 0);
    free(text);
    assert_non_null(umx_ep_handle(p->client));
    assert_true(umx_ep_worker(p->client) == p->client_worker);
    umx_ep_abort(p->client);
    assert_int_equal(umx_ep_info(p->client, &text), UMX_ERR_CLOSED);
    assert_null(umx_ep_handle(p->client));
}

static void
count_lane(const char *transport, const char *device, void *arg)
{
    int *count = arg;

    assert_true(strlen(transport) > 0);
    assert_non_null(device);
    ++*count;
}

static void
test_transports_and_addresses(void **state)
{
    pair              *p = *state;
    struct sockaddr_in client, server;
    size_t             len   = sizeof(client);
    int                lanes = 0;
    umx_status         status;

    pair_open(p);
    status = umx_ep_transports(p->client, count_lane, &lanes);
    assert_true(status == UMX_ERR_UNSUPPORTED ||
                (status == UMX_OK && lanes > 0));
    status = umx_ep_local_address(p->client, (void *)&client, &len);
    if (status == UMX_ERR_UNSUPPORTED) {
        return;
    }
    assert_int_equal(status, UMX_OK);
    assert_int_equal(len, sizeof(client));
    assert_int_equal(umx_ep_peer_address(p->server, (void *)&server, &len),
                     UMX_OK);
    assert_int_equal(client.sin_port, server.sin_port);
    len = 1;
    assert_int_equal(umx_ep_peer_address(p->server, (void *)&server, &len),
                     UMX_ERR_BUFFER_TOO_SMALL);
    umx_ep_abort(p->client);
    len = sizeof(client);
    assert_int_equal(umx_ep_peer_address(p->client, (void *)&client, &len),
                     UMX_ERR_CLOSED);
    status = umx_ep_transports(p->client, count_lane, &lanes);
    assert_true(status == UMX_ERR_UNSUPPORTED || status == UMX_ERR_CLOSED);
}

static void
test_each_endpoint_has_a_number_of_its_own(void **state)
{
    pair *p = *state;

    pair_open(p);
    assert_true(umx_ep_id(p->client) != umx_ep_id(p->server));
}

static void
test_statistics(void **state)
{
    pair            *p = *state;
    umx_worker_stats stats;
    char             byte;
    op               o;

    pair_open(p);
    op_recv(&o, p->server, 0, pair_tag(9), &byte, 1);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "abc", 3), UMX_OK);
    pair_settle(p);
    umx_worker_query(p->server_worker, &stats);
    assert_int_equal(stats.requests_in_use, 1);
    assert_true(stats.requests_peak >= 1);
    assert_int_equal(stats.endpoints, 1);
    assert_int_equal(stats.listeners, 1);
    assert_int_equal(stats.unexpected_messages, 1);
    assert_int_equal(stats.unexpected_bytes, 3);
    assert_int_equal(stats.protocol_errors, 0);
    assert_true(stats.wakeups > 0);
    op_cancel(o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_an_idle_worker_is_armed),
        PAIR_TEST_ONCE(test_wait_times_out),
        PAIR_TEST_ONCE(test_another_thread_wakes_the_owner),
        PAIR_TEST_ONCE(test_the_next_timer),
        PAIR_TEST_ONCE(test_draining_in_a_callback_is_put_off),
        PAIR_TEST_ONCE(test_drain_has_a_budget),
        PAIR_TEST(test_drains_of_a_turn_share_its_budget),
        PAIR_TEST_ONCE(test_other_threads_give_back_by_retiring),
        PAIR_TEST_ONCE(test_calls_from_other_threads_run_in_the_owner),
        PAIR_TEST_ONCE(test_a_worker_is_adopted_from_a_thread_that_ended),
        PAIR_TEST_ONCE(test_every_thread_owns_a_shared_worker),
        PAIR_TEST_ONCE(test_destroying_cancels_submitted_calls),
        PAIR_TEST_ONCE(test_nothing_begins_while_a_worker_is_destroyed),
        PAIR_TEST_ONCE(test_other_threads_are_refused),
        PAIR_TEST(test_a_woken_worker_has_not_overslept),
        PAIR_TEST_ONCE(test_a_forked_child_is_refused),
        PAIR_TEST(test_destroying_with_everything_open),
        PAIR_TEST(test_messages_outlive_the_worker),
        PAIR_TEST_ONCE(test_giving_back_while_destroying),
        PAIR_TEST(test_a_callback_may_destroy_its_worker),
        PAIR_TEST(test_a_completion_may_destroy_its_worker),
        PAIR_TEST(test_a_state_callback_may_destroy_its_worker),
        PAIR_TEST_ONCE(test_descriptions),
        PAIR_TEST(test_transports_and_addresses),
        PAIR_TEST_ONCE(test_each_endpoint_has_a_number_of_its_own),
        PAIR_TEST_ONCE(test_statistics),
    };

    return UNIT_RUN(tests);
}
