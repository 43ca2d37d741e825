/* SPDX-License-Identifier: BSD-3-Clause */
#include "bell.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <umx/umx.h>

#include "util/clock.h"

enum {
    LEN     = 64,
    KEY_MAX = 8192,
    BALL    = 0, /* offset of the number that is waited for */
    DONE    = 8  /* offset of the last number the waiting side saw; its own */
};

const bell_shape bell_shapes[BELL_SHAPES] = {
    {"mapped", NULL, false, false, false},
    {"executed", NULL, true, false, false},
    {"tcp", "tcp", false, false, false},
    {"mapped, two workers", NULL, false, true, false},
    {"executed, two workers", NULL, true, true, false},
    {"tcp, two workers", "tcp", false, true, false},
    {"in line", NULL, false, false, true},
    {"in line, two workers", NULL, false, true, true},
};

/* ---- one side ------------------------------------------------------------
 */

typedef struct side {
    umx_context *context;
    umx_worker  *worker; /* of the connection */
    umx_memh    *memh;
    uint64_t     numbers[LEN / 8]; /* if it is registered */
    umx_ep      *ep;
    umx_rkey    *rkey; /* the memory of the other side */
} side;

static void
check(umx_status status, const char *what)
{
    if (status != UMX_OK) {
        fprintf(stderr, "%s: %s\n", what, umx_status_string(status));
        abort();
    }
}

static void
side_init(side *s, const bell_shape *shape)
{
    umx_option         tls    = {"TLS", shape->tls};
    umx_context_params params = {0};
    umx_buffer         buf    = umx_host_buffer(s->numbers, LEN);

    if (shape->tls != NULL) {
        params.field_mask  = UMX_CONTEXT_FIELD_OPTIONS;
        params.options     = &tls;
        params.num_options = 1;
    }
    check(umx_context_create(&params, &s->context, NULL), "context");
    check(umx_worker_create(s->context, &s->worker), "worker");
    check(shape->is_registered ?
              umx_memh_register(s->context, &buf, NULL, &s->memh) :
              umx_memh_alloc(s->context, LEN, &s->memh),
          "memory");
    if (shape->is_in_line &&
        umx_memh_order_stores(s->memh) == UMX_ERR_UNSUPPORTED) {
        fprintf(stderr, "no membarriers here: stores are fenced\n");
    }
}

static void
side_fini(side *s)
{
    if (s->rkey != NULL) {
        umx_rkey_destroy(s->rkey);
    }
    umx_ep_destroy(s->ep);
    umx_worker_destroy(s->worker);
    umx_memh_release(s->memh);
    umx_context_release(s->context);
}

static uint64_t *
number_at(const side *s, size_t offset)
{
    return (uint64_t *)(void *)((char *)umx_memh_buffer(s->memh)->data +
                                offset);
}

static void
tell_key(const side *s, int fd)
{
    uint64_t    wire_len;
    size_t      len;
    const void *key = umx_memh_key(s->memh, &len);

    wire_len = len;
    child_write(fd, &wire_len, sizeof(wire_len));
    child_write(fd, key, len);
}

static void
hear_key(side *s, int fd)
{
    char     key[KEY_MAX];
    uint64_t len;

    child_read(fd, &len, sizeof(len));
    child_read(fd, key, len);
    check(umx_rkey_open(s->ep, key, len, &s->rkey), "key");
}

/* Check a put. The peer ends as soon as this side has ended, so a failure on a
 * connection that is over is not an error. */
static void
on_thrown(umx_request *req, umx_status status, void *arg)
{
    side *s = arg;

    (void)req;
    if (umx_ep_get_state(s->ep) == UMX_EP_OPEN) {
        check(status, "operation");
    }
}

/* Store a number, by the steps of umx_rkey_waiters(). */
static void
store_in_line(side *s, uint64_t number)
{
    uint64_t       *ball = umx_rkey_pointer(s->rkey);
    bool            is_ordered;
    const uint64_t *waiters = umx_rkey_waiters(s->rkey, &is_ordered);

    __atomic_store_n(&ball[BALL / 8], number, __ATOMIC_RELEASE);
    if (is_ordered) {
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    } else {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    if ((__atomic_load_n(waiters, __ATOMIC_RELAXED) & UMX_WAITERS_MASK) != 0) {
        umx_status status = umx_rkey_notify(s->rkey);

        if (umx_ep_get_state(s->ep) == UMX_EP_OPEN) {
            check(status, "notify");
        }
    }
}

/* Put a number. The put is not waited for: the other side sees the number. */
static void
throw_ball(side *s, uint64_t number)
{
    static const char bytes[8];

    umx_rma_item  item   = {.offset = 16, .buf = umx_host_buffer(bytes, 8)};
    umx_atomic    signal = {UMX_ATOMIC_SWAP, 8, BALL, number, 0};
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = on_thrown, .arg = s};
    umx_request *req;
    umx_status   status;

    status = (number % 2 == 0) ?
                 umx_rma_put_signal(s->rkey, &item, &signal, &params, &req) :
                 umx_rma_atomic(s->rkey, &signal, NULL, &params, &req);
    if (status != UMX_INPROGRESS && umx_ep_get_state(s->ep) == UMX_EP_OPEN) {
        check(status, "signal");
    }
}

static umx_status
start_catch(const side *s, umx_worker *worker, uint64_t number,
            umx_request **req_p)
{
    umx_condition until = {UMX_CMP_GE, 8, BALL, number};

    return umx_memh_wait_until(worker, s->memh, &until, NULL, req_p);
}

/* ---- the writer, a process of its own ------------------------------------
 */

static uint64_t
next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Wait for a random time, so that the number is stored before, while or after
 * the other side falls asleep. */
static void
dawdle(side *s, uint64_t *random)
{
    static const uint64_t scales_ns[] = {1, 1000, 3000, 10000, 30000};

    uint64_t scale = scales_ns[next_random(random) % 5];
    uint64_t end   = umi_clock_ns() + next_random(random) % scale;

    (void)umx_worker_poll(s->worker);
    while (umi_clock_ns() < end) {
    }
}

/* False: the connection has ended. */
static bool
catch_ball(side *s, uint64_t number, bool is_polling)
{
    umx_request *req;
    umx_status   status = start_catch(s, s->worker, number, &req);

    if (status == UMX_OK) {
        return true;
    }
    check(status == UMX_INPROGRESS ? UMX_OK : status, "wait");
    while (umx_request_status(req) == UMX_INPROGRESS &&
           umx_ep_get_state(s->ep) == UMX_EP_OPEN) {
        if (is_polling) {
            (void)umx_worker_poll(s->worker);
        } else {
            (void)!umx_worker_wait(s->worker, UINT64_C(100000000));
        }
    }
    if (umx_request_status(req) == UMX_INPROGRESS) {
        umx_request_cancel(req);
        (void)!umx_request_wait(req, UMX_TIMEOUT_INFINITE);
    }
    status = umx_request_status(req);
    umx_request_release(req);
    return status == UMX_OK;
}

/* By a get, which wakes nobody. False: the connection has ended. */
static bool
see_done(side *s, uint64_t number)
{
    uint64_t seen = 0;

    while (seen < number) {
        umx_rma_item item = {.offset = DONE, .buf = umx_host_buffer(&seen, 8)};
        umx_request *req;
        umx_status   status = umx_rma_get(s->rkey, &item, NULL, &req);

        if (status == UMX_INPROGRESS) {
            status = umx_request_wait(req, UMX_TIMEOUT_INFINITE);
            umx_request_release(req);
        } else {
            (void)umx_worker_poll(s->worker);
        }
        if (status != UMX_OK || umx_ep_get_state(s->ep) != UMX_EP_OPEN) {
            return false;
        }
    }
    return true;
}

int
bell_writer(const char *arg)
{
    const bell_shape  *shape  = &bell_shapes[atoi(arg)];
    uint64_t           random = UINT64_C(88172645463325252);
    struct sockaddr_in addr   = {.sin_family = AF_INET};
    umx_connect_params params = {.addr     = (struct sockaddr *)&addr,
                                 .addr_len = sizeof(addr)};
    side               s      = {0};
    bool               is_on  = true;

    alarm(0); /* the test has the limit */
    side_init(&s, shape);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    child_read(CHILD_IN, &addr.sin_port, sizeof(addr.sin_port));
    check(umx_ep_connect(s.worker, &params, &s.ep), "connect");
    while (umx_ep_get_state(s.ep) == UMX_EP_CONNECTING) {
        (void)!umx_worker_wait(s.worker, UMX_TIMEOUT_INFINITE);
    }
    tell_key(&s, CHILD_OUT);
    hear_key(&s, CHILD_IN);
    for (uint64_t i = 1; is_on; i++) {
        is_on = shape->has_two_workers ?
                    see_done(&s, i - 1) :
                    catch_ball(&s, i, next_random(&random) % 4 != 0);
        if (is_on) {
            dawdle(&s, &random);
            (shape->is_in_line ? store_in_line : throw_ball)(&s, i);
        }
    }
    side_fini(&s);
    return 0;
}

/* ---- the waiting side ----------------------------------------------------
 */

typedef struct progress_thread {
    umx_worker *worker;
    atomic_bool is_over;
} progress_thread;

static void *
make_progress(void *arg)
{
    progress_thread *thread = arg;

    umx_worker_adopt(thread->worker);
    while (!atomic_load(&thread->is_over)) {
        (void)!umx_worker_wait(thread->worker, UMX_TIMEOUT_INFINITE);
    }
    return NULL;
}

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    (void)listener;
    *(umx_ep **)arg = ep;
}

static umx_listener *
listen_for(side *s, uint16_t *port_p)
{
    struct sockaddr_in      addr = {.sin_family = AF_INET};
    struct sockaddr_storage bound;
    size_t                  len    = sizeof(bound);
    umx_listener_params     params = {.addr      = (struct sockaddr *)&addr,
                                      .addr_len  = sizeof(addr),
                                      .on_accept = on_accept,
                                      .arg       = &s->ep};
    umx_listener           *listener;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(umx_listener_create(s->worker, &params, &listener), "listen");
    check(umx_listener_address(listener, (struct sockaddr *)&bound, &len),
          "address");
    *port_p = ((struct sockaddr_in *)(void *)&bound)->sin_port;
    return listener;
}

/* Sleep on the worker's fd. False: nobody woke it. */
static bool
is_woken(const umx_worker *worker, uint64_t timeout_ns)
{
    struct pollfd pollfd = {.fd = umx_worker_fd(worker), .events = POLLIN};

    return poll(&pollfd, 1, (int)(timeout_ns / 1000000)) != 0;
}

/* Sleep until the number is there. False: the sleep went on although the number
 * was there. */
static bool
is_caught(const side *s, umx_worker *worker, uint64_t number,
          uint64_t timeout_ns)
{
    umx_request *req;
    umx_status   status  = start_catch(s, worker, number, &req);
    bool         is_lost = false;

    if (status == UMX_OK) {
        return true;
    }
    check(status == UMX_INPROGRESS ? UMX_OK : status, "wait");
    while (umx_request_status(req) == UMX_INPROGRESS && !is_lost) {
        status  = umx_worker_drain(worker);
        is_lost = status == UMX_OK &&
                  umx_request_status(req) == UMX_INPROGRESS &&
                  !is_woken(worker, timeout_ns) &&
                  __atomic_load_n(number_at(s, BALL), __ATOMIC_SEQ_CST) >=
                      number &&
                  !is_woken(worker, timeout_ns); /* no late wake-up either */
    }
    if (is_lost) {
        umx_request_cancel(req);
        (void)!umx_request_wait(req, UMX_TIMEOUT_INFINITE);
    }
    umx_request_release(req);
    return !is_lost;
}

static uint64_t
run_rounds(side *s, const bell_shape *shape, umx_worker *worker, uint64_t count,
           uint64_t timeout_ns)
{
    uint64_t done = 0;

    while (done < count) {
        if (!shape->has_two_workers) {
            throw_ball(s, done + 1);
        }
        if (!is_caught(s, worker, done + 1, timeout_ns)) {
            break;
        }
        done++;
        __atomic_store_n(number_at(s, DONE), done, __ATOMIC_RELEASE);
    }
    return done;
}

static uint64_t
run_beside(side *s, const bell_shape *shape, uint64_t count,
           uint64_t timeout_ns)
{
    progress_thread thread = {.worker = s->worker};
    umx_worker     *worker;
    pthread_t       id;
    uint64_t        done;

    check(umx_worker_create(s->context, &worker), "worker");
    assert_int_equal(pthread_create(&id, NULL, make_progress, &thread), 0);
    done = run_rounds(s, shape, worker, count, timeout_ns);
    atomic_store(&thread.is_over, true);
    umx_worker_signal(s->worker);
    pthread_join(id, NULL);
    umx_worker_adopt(s->worker);
    umx_worker_destroy(worker);
    return done;
}

uint64_t
bell_rounds(const bell_shape *shape, uint64_t count, uint64_t timeout_ns)
{
    side          s = {0};
    umx_listener *listener;
    uint16_t      port;
    uint64_t      done;
    child         c;
    char          index[16];

    snprintf(index, sizeof(index), "%d", (int)(shape - bell_shapes));
    side_init(&s, shape);
    listener = listen_for(&s, &port);
    c        = child_start("writer", index);
    child_write(c.out, &port, sizeof(port));
    while (s.ep == NULL || umx_ep_get_state(s.ep) == UMX_EP_CONNECTING) {
        check(umx_worker_wait(s.worker, UMX_TIMEOUT_INFINITE), "accept");
    }
    tell_key(&s, c.out);
    hear_key(&s, c.in);
    done = shape->has_two_workers ?
               run_beside(&s, shape, count, timeout_ns) :
               run_rounds(&s, shape, s.worker, count, timeout_ns);
    umx_ep_abort(s.ep);
    umx_listener_destroy(listener);
    side_fini(&s);
    assert_int_equal(child_end(&c, 0), 0);
    return done;
}
