/* SPDX-License-Identifier: BSD-3-Clause */
#include "pair.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/strangers.h"
#include "lend/lend.h"
#include "util/clock.h"

const umx_match pair_any      = {.flags = UMX_MATCH_ANY};
const umx_match pair_untagged = {.flags = UMX_MATCH_UNTAGGED};

/* A sleep that nothing ends is a bug: time limits, not tests, depend on it. */
enum {
#ifdef UNIT_NOMEM
    LONGEST_SLEEP_MS = 100 /* a test may wait for what never comes */
#else
    LONGEST_SLEEP_MS = 1000
#endif
};

static bool
is_linger(const umi_list *peers, const umi_timer *timer)
{
    UMI_LIST_FOREACH(node, peers) {
        if (&umi_container_of(node, umi_link, node)->linger == timer) {
            return true;
        }
    }
    return false;
}

static void
check_worker_is_clean(umx_worker *worker)
{
    umx_worker_stats stats;

    umx_worker_query(worker, &stats);
    assert_int_equal(stats.endpoints, 0);
    assert_int_equal(stats.requests_in_use, 0);
    assert_int_equal(stats.unexpected_messages, 0);
    assert_int_equal(stats.unexpected_bytes, 0);
    assert_int_equal(umx_worker_num_closing(worker), 0);
    assert_int_equal(worker->messages.in_use, 0);
    assert_int_equal(worker->frames.in_use, 0);
    assert_int_equal(worker->blocks.in_use, 0);
    assert_int_equal(worker->smalls.in_use, 0);
    assert_int_equal(worker->lend->objects.in_use, 0);
    assert_int_equal(worker->eps_by_id.count, 0);
    assert_int_equal(worker->num_handshakes, 0);
    UMI_LIST_FOREACH(node, &worker->timers) {
        umi_timer *timer = umi_container_of(node, umi_timer, node);

        assert_true(is_linger(&worker->links, timer) ||
                    is_linger(&worker->ending_links, timer) ||
                    timer == &worker->nap || timer == &worker->queue_timer ||
                    timer == &worker->strangers->idle);
    }
}

umx_context *
pair_context(const char *tls, const umx_config *config)
{
    umx_option         option = {"TLS", tls};
    umx_context_params params = {
        .options     = &option,
        .num_options = 1,
        .config      = config,
    };
    umx_context *context;

    if (tls != NULL) {
        params.field_mask |= UMX_CONTEXT_FIELD_OPTIONS;
    }
    if (config != NULL) {
        params.field_mask |= UMX_CONTEXT_FIELD_CONFIG;
    }
    assert_int_equal(umx_context_create(&params, &context, NULL), UMX_OK);
    return context;
}

int
pair_setup(void **state)
{
    pair *p = calloc(1, sizeof(*p));

    if (p == NULL) {
        return -1;
    }
    p->tls = *state;
    umx_config_default(&p->config);
    *state = p;
    return 0;
}

static uint64_t
endpoints_of(umx_worker *worker)
{
    umx_worker_stats stats;

    umx_worker_query(worker, &stats);
    return stats.endpoints;
}

static void
destroy_eps(pair *p)
{
    if (p->client != NULL) {
        umx_ep_destroy(p->client);
        p->client = NULL;
    }
    if (p->server != NULL) {
        umx_ep_destroy(p->server);
        p->server = NULL;
    }
}

/* Look for p->server as well: what a test waits for may come before the
 * listener accepts. */
static bool
are_eps_gone(pair *p)
{
    destroy_eps(p);
    return endpoints_of(p->client_worker) == 0 &&
           endpoints_of(p->server_worker) == 0;
}

int
pair_teardown(void **state)
{
    pair *p = *state;

    if (p->context != NULL) {
        PAIR_UNTIL(p, are_eps_gone(p));
        if (p->listener != NULL) {
            umx_listener_destroy(p->listener);
        }
        check_worker_is_clean(p->client_worker);
        check_worker_is_clean(p->server_worker);
        umx_worker_destroy(p->client_worker);
        umx_worker_destroy(p->server_worker);
        umx_context_release(p->context);
        umx_context_release(p->client_context);
    }
    free(p);
    return 0;
}

int
pair_abort_and_teardown(void **state)
{
    pair *p = *state;

    umx_ep_abort(p->client);
    umx_ep_abort(p->server);
    return pair_teardown(state);
}

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    pair *p = arg;

    (void)listener;
    assert_null(p->server);
    p->server = ep;
}

void
pair_workers(pair *p)
{
    p->context = pair_context(p->tls, &p->config);
    if (p->client_config != NULL) {
        p->client_context = pair_context(p->tls, p->client_config);
    } else {
        p->client_context = p->context;
        umi_context_hold(p->context);
    }
    assert_int_equal(umx_worker_create(p->client_context, &p->client_worker),
                     UMX_OK);
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
}

void
pair_listen(pair *p)
{
    struct sockaddr_in  addr   = {.sin_family = AF_INET};
    umx_listener_params params = {
        .field_mask = UMX_LISTENER_FIELD_WINDOW,
        .addr       = (struct sockaddr *)&addr,
        .addr_len   = sizeof(addr),
        .on_accept  = on_accept,
        .arg        = p,
        .window     = p->window,
    };

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    pair_workers(p);
    assert_int_equal(
        umx_listener_create(p->server_worker, &params, &p->listener), UMX_OK);
}

size_t
pair_address(const pair *p, struct sockaddr_storage *addr)
{
    size_t len = sizeof(*addr);

    assert_int_equal(
        umx_listener_address(p->listener, (struct sockaddr *)addr, &len),
        UMX_OK);
    return len;
}

void
pair_connect(pair *p, uint64_t timeout_ns)
{
    struct sockaddr_storage addr;
    umx_connect_params      params = {.field_mask = UMX_CONNECT_FIELD_WINDOW,
                                      .addr       = (struct sockaddr *)&addr,
                                      .timeout_ns = timeout_ns,
                                      .window     = p->window};

    if (timeout_ns != 0) {
        params.field_mask |= UMX_CONNECT_FIELD_TIMEOUT;
    }
    params.addr_len = pair_address(p, &addr);
    assert_int_equal(umx_ep_connect(p->client_worker, &params, &p->client),
                     UMX_OK);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_CONNECTING);
}

void
pair_open(pair *p)
{
    pair_listen(p);
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL &&
                      umx_ep_get_state(p->client) != UMX_EP_CONNECTING);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
}

void
pair_open_second(pair *p, umx_ep **client, umx_ep **server)
{
    *client   = p->client;
    *server   = p->server;
    p->server = NULL;
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL &&
                      umx_ep_get_state(p->client) != UMX_EP_CONNECTING);
    assert_ptr_equal(p->client->base.link, (*client)->base.link);
    assert_ptr_equal(p->server->base.link, (*server)->base.link);
}

void
pair_hear(umx_ep *ep, const umi_control *control)
{
    uint8_t bytes[UMI_CONTROL_MAX];
    size_t  len = umi_control_encode(control, bytes);

    assert_true(len > 0);
    umi_ep_base_hold(&ep->base);
    ep->socket.ops->on_message(&ep->socket, bytes, len);
    while (ep->handshake != NULL && ep->handshake->is_waiting) {
        (void)!umx_worker_drain(umi_endpoint_worker(ep));
    }
    umi_ep_base_release(&ep->base);
}

void
pair_where(umx_ep *ep, umi_where *where)
{
    const void *address;
    size_t      len;

    assert_int_equal(umi_engine_address(ep->base.engine, true, &address, &len),
                     UMX_OK);
    memcpy(where->worker_id, ep->base.worker->id, UMI_WHERE_ID_SIZE);
    memcpy(where->key, ep->base.worker->key, UMI_KEY_SIZE);
    where->endpoint    = ep->base.wire_id;
    where->address     = address;
    where->address_len = (uint16_t)len;
}

int
bound_socket(struct sockaddr_in *addr)
{
    socklen_t len = sizeof(*addr);
    int       fd  = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    memset(addr, 0, sizeof(*addr));
    addr->sin_family      = AF_INET;
    addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)addr, sizeof(*addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)addr, &len), 0);
    return fd;
}

int
pair_feed_control(umx_ep *ep, const umi_control *control)
{
    uint8_t        bytes[UMI_CONTROL_MAX];
    uint64_t       header[] = {ep->base.wire_id, 0}; /* acknowledges nothing */
    umi_am_arrival arrival  = {.header     = header,
                               .header_len = sizeof(header),
                               .way        = &umi_way_eager,
                               .data       = bytes};

    arrival.len = umi_control_encode(control, bytes);
    assert_true(arrival.len > 0);
    return umi_endpoint_control_on_arrival(ep->base.worker, &arrival);
}

static int
sleep_ms(const pair *p)
{
    uint64_t deadline = umx_worker_deadline(p->client_worker);
    uint64_t other    = umx_worker_deadline(p->server_worker);
    uint64_t now      = umi_clock_ns();

    deadline = (other < deadline) ? other : deadline;
    if (deadline <= now) {
        return 0;
    }
    deadline = (deadline - now + 999999) / 1000000;
    return (deadline < LONGEST_SLEEP_MS) ? (int)deadline : LONGEST_SLEEP_MS;
}

static unsigned
activity(const pair *p)
{
    UMI_GUARD(p->server_worker); /* it may have a progress thread */

    return p->client_worker->activity + p->server_worker->activity;
}

void
pair_step(pair *p)
{
    struct pollfd fds[2] = {
        {.fd = umx_worker_fd(p->client_worker), .events = POLLIN},
        {.fd = umx_worker_fd(p->server_worker), .events = POLLIN},
    };
    unsigned   before = activity(p);
    umx_status client = umx_worker_drain(p->client_worker);
    umx_status server = umx_worker_drain(p->server_worker);

    assert_true(client >= 0);
    assert_true(server >= 0);
    if (client == UMX_OK && server == UMX_OK && before == activity(p)) {
        if (poll(fds, 2, sleep_ms(p)) == 0) {
            UNIT_IDLE();
        }
    }
}

/* No bytes: it is never announced. */
static void
pass(pair *p, umx_ep *from, umx_ep *to)
{
    assert_int_equal(pair_send(p, from, UINT16_MAX, pair_untagged, NULL, 0),
                     UMX_OK);
    assert_int_equal(pair_recv(p, to, UINT16_MAX, pair_any, NULL, 0), UMX_OK);
}

void
pair_settle(pair *p)
{
    pass(p, p->client, p->server);
    pass(p, p->server, p->client);
}

/* ---- operations ----------------------------------------------------------
 */

static void
on_done(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    o->calls++;
    o->status = status;
    o->req    = NULL;
    UNIT_TOLD(status);
    /* Not only receives get here: info and message of others say nothing. */
    o->info    = *umx_request_info(req);
    o->message = NULL;
}

static void
on_message_done(umx_request *req, umx_status status, void *arg)
{
    op *o = arg;

    on_done(req, status, arg);
    if (status == UMX_OK) {
        o->message = umx_request_message(req);
        if (o->message != NULL) { /* NULL: the bytes are in the buffer */
            o->info = *umx_message_info(o->message);
        }
    }
}

umx_op_params
op_params(op *o)
{
    umx_op_params params = {
        .field_mask = UMX_OP_FIELD_ON_DONE,
        .on_done    = on_done,
        .arg        = o,
    };

    memset(o, 0, sizeof(*o));
    return params;
}

void
op_posted(op *o, umx_status status)
{
    o->status = status;
    if (status == UMX_INPROGRESS) {
        assert_non_null(o->req);
    } else {
        assert_null(o->req); /* written on UMX_INPROGRESS only */
    }
}

void
op_send(op *o, umx_ep *ep, uint16_t channel, umx_match match, const void *data,
        size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    op_posted(o,
              umx_channel_send(ep, channel, &match, &buffer, &params, &o->req));
}

void
op_recv(op *o, umx_ep *ep, uint16_t channel, umx_match match, void *data,
        size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    op_posted(o, umx_channel_recv(ep, channel, &match, &buffer, &params,
                                  &o->req, &o->info));
}

void
op_recv_message(op *o, umx_ep *ep, uint16_t channel, umx_match match)
{
    umx_op_params params = op_params(o);

    params.on_done = on_message_done;
    op_posted(o, umx_channel_recv_message(ep, channel, &match, &params, &o->req,
                                          &o->message));
    if (o->status == UMX_OK) {
        o->info = *umx_message_info(o->message);
    }
}

void
op_am_send(op *o, umx_ep *ep, uint16_t id, const void *header,
           size_t header_len, const void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buf    = {.data    = (void *)(uintptr_t)data,
                            .len     = len,
                            .memtype = UMX_MEMTYPE_HOST};

    op_posted(o,
              umx_am_send(ep, id, header, header_len, &buf, &params, &o->req));
}

static void
am_recv(op *o, umx_ep *ep, uint16_t id, const umx_buffer *small)
{
    umx_op_params params = op_params(o);

    params.on_done = on_message_done;
    op_posted(o, umx_am_recv(ep, id, small, &params, &o->req, &o->message));
    if (o->message != NULL) {
        o->info = *umx_message_info(o->message);
    }
}

void
op_am_recv(op *o, umx_ep *ep, uint16_t id)
{
    am_recv(o, ep, id, NULL);
}

void
op_am_recv_small(op *o, umx_ep *ep, uint16_t id, void *data, size_t len)
{
    umx_buffer small = umx_host_buffer(data, len);

    am_recv(o, ep, id, &small);
}

void
op_message_recv(op *o, umx_message *message, void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    assert_non_null(message);
    op_posted(o, umx_message_recv(&message, &buffer, &params, &o->req));
    o->message = message;
}

void
op_close(op *o, umx_ep *ep, uint64_t timeout_ns)
{
    umx_op_params params = op_params(o);

    op_posted(o, umx_ep_close(ep, timeout_ns, &params, &o->req));
}

umx_status
op_wait(pair *p, op *o)
{
    PAIR_UNTIL(p, op_is_done(o));
    assert_true(o->calls <= 1);
    return o->status;
}

umx_status
pair_send(pair *p, umx_ep *ep, uint16_t channel, umx_match match,
          const void *data, size_t len)
{
    op o;

    op_send(&o, ep, channel, match, data, len);
    return op_wait(p, &o);
}

umx_status
pair_recv(pair *p, umx_ep *ep, uint16_t channel, umx_match match, void *data,
          size_t len)
{
    op o;

    op_recv(&o, ep, channel, match, data, len);
    return op_wait(p, &o);
}

void
fill_pattern(void *data, size_t len, unsigned seed)
{
    unsigned char *bytes = data;

    for (size_t i = 0; i < len; i++) {
        bytes[i] = (unsigned char)(i * 7 + (i >> 8) + seed * 31 + 1);
    }
}

void
check_pattern(const void *data, size_t len, unsigned seed)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != (unsigned char)(i * 7 + (i >> 8) + seed * 31 + 1)) {
            fail_msg("byte %zu of %zu is wrong", i, len);
        }
    }
}
