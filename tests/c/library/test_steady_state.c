/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair child wrap=malloc wrap=calloc wrap=realloc wrap=ucp_mem_map */
/* A ping-pong of short messages, once it runs, allocates nothing; nor do large
 * ones from registered memory, which register nothing either. The linker wraps
 * the calls of libumx (and of this program), not those inside UCX's libraries:
 * this is about our code only. */
#include "child.h"
#include "pair.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <umx/rma.h>

enum {
    WARM_UP      = 1000,
    ROUNDS       = 10000,
    LARGE        = 1 << 20,
    LARGE_ROUNDS = 200
};

static unsigned long calls; /* of malloc, calloc and realloc */
static unsigned long maps;  /* of ucp_mem_map */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *ptr, size_t size);

void *
__wrap_malloc(size_t size)
{
    calls++;
    return __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
    calls++;
    return __real_calloc(count, size);
}

void *
__wrap_realloc(void *ptr, size_t size)
{
    calls++;
    return __real_realloc(ptr, size);
}

ucs_status_t __real_ucp_mem_map(ucp_context_h               context,
                                const ucp_mem_map_params_t *params,
                                ucp_mem_h                  *memh_p);
ucs_status_t __wrap_ucp_mem_map(ucp_context_h               context,
                                const ucp_mem_map_params_t *params,
                                ucp_mem_h                  *memh_p);

ucs_status_t
__wrap_ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                   ucp_mem_h *memh_p)
{
    maps++;
    return __real_ucp_mem_map(context, params, memh_p);
}

typedef struct side {
    umx_context *context;
    umx_worker  *worker;
    umx_ep      *ep;
} side;

static void
count_done(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    *(umx_status *)arg = status;
}

/* The first sends may wait for UCX's lanes to be connected. */
static umx_status
send_bytes(side *s, const umx_buffer *buffer)
{
    umx_request *req;
    umx_status status = umx_channel_send(s->ep, 0, &pair_untagged, buffer, NULL,
                                         &req);

    if (status == UMX_INPROGRESS) {
        status = umx_request_wait(req, UMX_TIMEOUT_INFINITE);
        umx_request_release(req);
    }
    return status;
}

/* Send `bytes` if first, receive, send them back if not. */
static umx_status
exchange(side *s, uint64_t *bytes, bool is_first)
{
    umx_status    done   = UMX_INPROGRESS;
    umx_op_params params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                            .on_done    = count_done,
                            .arg        = &done};
    umx_buffer    buffer = umx_host_buffer(bytes, sizeof(*bytes));
    umx_request  *req;
    umx_recv_info info;
    umx_status    status;

    if (is_first) {
        status = send_bytes(s, &buffer);
        if (status != UMX_OK) {
            return status;
        }
    }
    status = umx_channel_recv(s->ep, 0, &pair_untagged, &buffer, &params, &req,
                              &info);
    while (status == UMX_INPROGRESS && done == UMX_INPROGRESS) {
        status = umx_worker_wait(s->worker, UMX_TIMEOUT_INFINITE);
        status = (status == UMX_OK) ? UMX_INPROGRESS : status;
    }
    status = (status == UMX_INPROGRESS) ? done : status;
    if (status == UMX_OK && !is_first) {
        status = send_bytes(s, &buffer);
    }
    return status;
}

static void
take_ep(umx_listener *listener, umx_ep *ep, void *arg)
{
    side *s = arg;

    (void)listener;
    s->ep = ep;
}

static umx_status
close_side(side *s)
{
    umx_request *req;
    umx_status   status = umx_ep_close(s->ep, UMX_TIMEOUT_INFINITE, NULL, &req);

    if (status == UMX_INPROGRESS) {
        status = umx_request_wait(req, UMX_TIMEOUT_INFINITE);
        umx_request_release(req);
    }
    umx_ep_destroy(s->ep);
    umx_worker_destroy(s->worker);
    umx_context_release(s->context);
    return status;
}

/* Send sixteen frames of a cache line each, which are copied together. */
enum {
    NUM_FRAMES = 16,
    FRAME      = 64
};

static umx_status
send_frames(side *s, const umx_buffer *buffers)
{
    umx_request *req;
    umx_status   status = umx_frames_send(s->ep, 0, "header", 6, buffers,
                                          NUM_FRAMES, NULL, &req);

    if (status == UMX_INPROGRESS) {
        status = umx_request_wait(req, UMX_TIMEOUT_INFINITE);
        umx_request_release(req);
    }
    return status;
}

static umx_status
exchange_frames(side *s, char *bytes, bool is_first)
{
    umx_buffer   buffers[NUM_FRAMES];
    umx_message *message;
    umx_request *req;
    umx_status   status = UMX_OK;

    for (unsigned i = 0; i < NUM_FRAMES; i++) {
        buffers[i] = umx_host_buffer(bytes + i * FRAME, FRAME);
    }
    if (is_first) {
        status = send_frames(s, buffers);
    }
    if (status == UMX_OK) {
        status = umx_frames_recv_message(s->ep, 0, NULL, &req, &message);
    }
    if (status == UMX_INPROGRESS) {
        status  = umx_request_wait(req, UMX_TIMEOUT_INFINITE);
        message = umx_request_message(req);
        umx_request_release(req);
    }
    if (status != UMX_OK) {
        return status;
    }
    status = umx_message_recv_frames(&message, buffers, NUM_FRAMES, NULL, &req);
    umx_message_drop(message);
    if (status == UMX_OK && !is_first) {
        status = send_frames(s, buffers);
    }
    return status;
}

/* Play one round of the benchmark. */
static umx_status
play(side *s, bool is_first, bool of_frames, uint64_t *bytes)
{
    static char frames[NUM_FRAMES * FRAME];
    umx_status  status;

    if (!of_frames) {
        return exchange(s, bytes, is_first);
    }
    memcpy(frames, bytes, sizeof(*bytes));
    status = exchange_frames(s, frames, is_first);
    memcpy(bytes, frames, sizeof(*bytes));
    return status;
}

/* Listen, echo, report the number of calls. */
static int
echo_either(const char *tls, bool of_frames)
{
    struct sockaddr_in  addr   = {.sin_family = AF_INET};
    size_t              len    = sizeof(addr);
    side                s      = {.context = pair_context(tls, NULL)};
    umx_listener_params params = {.addr      = (void *)&addr,
                                  .addr_len  = sizeof(addr),
                                  .on_accept = take_ep,
                                  .arg       = &s};
    umx_listener       *listener;
    unsigned long       before = 0;
    uint64_t            bytes;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (umx_worker_create(s.context, &s.worker) != UMX_OK ||
        umx_listener_create(s.worker, &params, &listener) != UMX_OK ||
        umx_listener_address(listener, (void *)&addr, &len) != UMX_OK) {
        return 1;
    }
    child_write(CHILD_OUT, &addr.sin_port, sizeof(addr.sin_port));
    while (s.ep == NULL) {
        if (umx_worker_wait(s.worker, UMX_TIMEOUT_INFINITE) != UMX_OK) {
            return 2;
        }
    }
    for (int i = 0; i < WARM_UP + ROUNDS; i++) {
        before = (i == WARM_UP) ? calls : before;
        if (play(&s, false, of_frames, &bytes) != UMX_OK) {
            return 3;
        }
    }
    before = calls - before;
    child_write(CHILD_OUT, &before, sizeof(before));
    umx_listener_destroy(listener);
    return close_side(&s) == UMX_OK ? 0 : 4;
}

static int
echo(const char *tls)
{
    return echo_either(tls, false);
}

static int
echo_frames(const char *tls)
{
    return echo_either(tls, true);
}

static void
check_ping_pong(const char *tls, bool of_frames)
{
    struct sockaddr_in addr   = {.sin_family = AF_INET};
    umx_connect_params params = {.addr     = (void *)&addr,
                                 .addr_len = sizeof(addr)};
    child         peer   = child_start(of_frames ? "echo_frames" : "echo", tls);
    side          s      = {.context = pair_context(tls, NULL)};
    unsigned long before = 0, theirs;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    child_read(peer.in, &addr.sin_port, sizeof(addr.sin_port));
    assert_int_equal(umx_worker_create(s.context, &s.worker), UMX_OK);
    assert_int_equal(umx_ep_connect(s.worker, &params, &s.ep), UMX_OK);
    while (umx_ep_get_state(s.ep) == UMX_EP_CONNECTING) {
        assert_int_equal(umx_worker_wait(s.worker, UMX_TIMEOUT_INFINITE),
                         UMX_OK);
    }
    assert_int_equal(umx_ep_get_state(s.ep), UMX_EP_OPEN);
    for (uint64_t i = 0; i < WARM_UP + ROUNDS; i++) {
        uint64_t bytes = i;

        before = (i == WARM_UP) ? calls : before;
        if (play(&s, true, of_frames, &bytes) != UMX_OK || bytes != i) {
            fail_msg("round %d", (int)i);
        }
    }
    assert_true(before > 0); /* calls are counted at all */
    assert_int_equal(calls - before, 0);
    child_read(peer.in, &theirs, sizeof(theirs));
    assert_int_equal(theirs, 0);
    (void)close_side(&s);
    assert_int_equal(child_end(&peer, 0), 0);
}

static void
test_ping_pong_allocates_nothing(void **state)
{
    (void)state;
    check_ping_pong(NULL, false);
}

static void
test_ping_pong_over_tcp_allocates_nothing(void **state)
{
    (void)state;
    check_ping_pong("tcp", false);
}

static void
test_frames_allocate_nothing(void **state)
{
    (void)state;
    check_ping_pong(NULL, true);
}

static void
test_frames_over_tcp_allocate_nothing(void **state)
{
    (void)state;
    check_ping_pong("tcp", true);
}

/* Exchange registered memory between both ends of `p`, in turn. */
static void
exchange_large(pair *p, const umx_buffer *ours, const umx_buffer *theirs)
{
    op            send, recv;
    umx_op_params send_params = op_params(&send),
                  recv_params = op_params(&recv);

    recv.status = umx_channel_recv(p->server, 0, &pair_untagged, theirs,
                                   &recv_params, &recv.req, &recv.info);
    send.status = umx_channel_send(p->client, 0, &pair_untagged, ours,
                                   &send_params, &send.req);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    assert_int_equal(op_wait(p, &send), UMX_OK);
}

static void
test_registered_memory_is_registered_once(void **state)
{
    pair         *p      = *state;
    unsigned long before = 0;
    umx_memh     *memh;
    umx_buffer    halves[2];

    pair_open(p);
    maps = 0;
    assert_int_equal(umx_memh_alloc(p->context, 2 * LARGE, &memh), UMX_OK);
    for (int i = 0; i < 2; i++) {
        halves[i]      = *umx_memh_buffer(memh);
        halves[i].data = (char *)halves[i].data + i * LARGE;
        halves[i].len  = LARGE;
        halves[i].memh = memh;
    }
    for (int i = 0; i < 2 * LARGE_ROUNDS; i++) {
        before = (i == LARGE_ROUNDS) ? calls : before;
        fill_pattern(halves[0].data, 100, (unsigned)i);
        exchange_large(p, &halves[0], &halves[1]);
        check_pattern(halves[1].data, 100, (unsigned)i);
    }
    assert_int_equal(calls - before, 0);
    assert_int_equal(maps, 1);
    umx_memh_release(memh);
}

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {{"echo", echo},
                                          {"echo_frames", echo_frames}};
    const struct CMUnitTest  tests[]   = {
           cmocka_unit_test(test_ping_pong_allocates_nothing),
           cmocka_unit_test(test_ping_pong_over_tcp_allocates_nothing),
           cmocka_unit_test(test_frames_allocate_nothing),
           cmocka_unit_test(test_frames_over_tcp_allocate_nothing),
           PAIR_TEST(test_registered_memory_is_registered_once),
    };

    child_role(argc, argv, entries, 2);
    return UNIT_RUN(tests);
}
