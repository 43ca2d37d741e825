/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair fake_ucp fake_system wrap=malloc wrap=calloc wrap=strndup */
/* One long life of a worker, again and again, each time with another call that
 * fails: of UCX (tests/c/fake_ucp.c), of the system (tests/c/fake_system.c), or
 * for memory. Whatever fails, nothing may leak, nothing may complete twice or
 * never, nothing may crash. */
#include "fake_ucp.h"
#include "pair.h"
#include "prove.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <umx/version.h>

enum {
    MAX_OPS = 128,
    LARGE   = 4000,
    BUFFERS = 16
};

typedef struct life {
    umx_context  *context;
    umx_worker   *worker;
    umx_listener *listener;
    umx_ep       *client;
    umx_ep       *server;
    int           fds[3]; /* of the peers: the test's own sockets */
    int           num_fds;
    op            ops[MAX_OPS];
    bool          is_posted[MAX_OPS];
    int           num_ops;
    char          buffers[BUFFERS][LARGE];
    uint32_t      seq;
} life;

static const uint8_t token[] = "token";

/* The next object of a pool is a call that may fail. */
static umx_worker *starved;

static void
starve(void)
{
    if (starved != NULL) {
        starved->requests.free_list  = NULL;
        starved->requests.num_fresh  = 0;
        starved->requests.next_count = 1;
        starved->messages.free_list  = NULL;
        starved->messages.num_fresh  = 0;
        starved->messages.next_count = 1;
    }
}

/* The next record; note whether the operation before is in progress. */
static op *
next_op(life *l)
{
    assert_true(l->num_ops < MAX_OPS);
    starve();
    return &l->ops[l->num_ops++];
}

static void
posted(life *l)
{
    op *o = &l->ops[l->num_ops - 1];

    l->is_posted[l->num_ops - 1] = (o->status == UMX_INPROGRESS);
}

static void
run(life *l)
{
    starve();
    for (int i = 0; i < 3; i++) {
        (void)umx_worker_poll(l->worker);
    }
    (void)!umx_worker_drain(l->worker);
}

/* ---- the peer's part -----------------------------------------------------
 */

static void
say(umx_ep *ep, const umi_control *control)
{
    uint8_t bytes[UMI_CONTROL_MAX];
    size_t  len = umi_control_encode(control, bytes);

    if (ep != NULL) {
        uint64_t front[] = {ep->base.wire_id, 0};

        fake_arrive(umx_ep_handle(ep), UMI_AM_CONTROL, front, sizeof(front),
                    bytes, len, false);
    }
}

static void
send_to(umx_ep *ep, uint32_t seq, uint64_t tag, size_t len, bool is_rndv)
{
    static const char bytes[LARGE];
    umi_header        header = {.kind     = UMI_KIND_MESSAGE,
                                .seq      = seq,
                                .tag      = tag,
                                .endpoint = ep->base.wire_id};

    fake_arrive(umx_ep_handle(ep), UMI_AM_DATA, &header, sizeof(header), bytes,
                len, is_rndv);
}

static const umi_limits limits = {1 << 20, 100, 100};

/* The accepted endpoint, open or not; NULL when it has been dropped. */
static umx_ep *
find_server(life *l)
{
    UMI_LIST_FOREACH(node, &l->worker->eps) {
        umx_ep *ep = umi_endpoint_of(umi_container_of(node, umi_ep_base, node));

        if (ep->is_server) {
            return ep;
        }
    }
    return NULL;
}

static int
keep_fd(life *l, int fd)
{
    assert_true(fd >= 0);
    l->fds[l->num_fds++] = fd;
    return fd;
}

/* ---- our part ------------------------------------------------------------
 */

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    life *l = arg;

    (void)listener;
    l->server = ep;
}

static bool
open_worker(life *l, bool has_token)
{
    struct sockaddr_in  addr   = {.sin_family = AF_INET};
    umx_option          option = {"TLS", "tcp"};
    umx_config          config;
    umx_context_params  params = {.field_mask = UMX_CONTEXT_FIELD_OPTIONS |
                                                UMX_CONTEXT_FIELD_CONFIG,
                                  .options     = &option,
                                  .num_options = 1,
                                  .config      = &config};
    umx_listener_params listener_params = {.addr      = (void *)&addr,
                                           .addr_len  = sizeof(addr),
                                           .on_accept = on_accept,
                                           .arg       = l};
    size_t              len             = sizeof(addr);

    umx_config_default(&config);
    config.rndv_thresh_net = 3000;
    config.credit_messages = 10;
    config.credit_rndv     = 4;
    if (has_token) {
        config.token     = token;
        config.token_len = sizeof(token);
    }
    if (umx_context_create(&params, &l->context, NULL) != UMX_OK ||
        umx_worker_create(l->context, &l->worker) != UMX_OK) {
        return false;
    }
    starved = (fake.on_step != NULL) ? l->worker : NULL;
    if (umx_listener_create(l->worker, &listener_params, &l->listener) !=
        UMX_OK) {
        l->listener = NULL;
    } else {
        (void)!umx_listener_address(l->listener, (void *)&addr, &len);
    }
    return true;
}

static void
open_client(life *l, bool has_token)
{
    struct sockaddr_in addr, local = {.sin_family = AF_INET};
    umx_connect_params params    = {.field_mask = UMX_CONNECT_FIELD_LOCAL,
                                    .addr       = (void *)&addr,
                                    .addr_len   = sizeof(addr),
                                    .local      = (void *)&local,
                                    .local_len  = sizeof(local)};
    umi_control        challenge = {.kind = UMI_CHALLENGE};
    umi_control        welcome   = {.kind = UMI_WELCOME};

    fake.is_paused = true;
    assert_int_equal(listen(keep_fd(l, bound_socket(&addr)), 1), 0);
    fake.is_paused             = false;
    welcome.u.welcome.major    = UMX_WIRE_VERSION;
    welcome.u.welcome.channels = 1;
    welcome.u.welcome.limits   = limits;
    stranger(1, &welcome.u.welcome.where);
    welcome.u.welcome.peer = 1;
    if (umx_ep_connect(l->worker, &params, &l->client) != UMX_OK) {
        l->client = NULL;
        return;
    }
    op_send(next_op(l), l->client, 0, pair_tag(1), l->buffers[0], 10);
    posted(l);
    run(l);
    if (has_token) {
        pair_hear(l->client, &challenge);
        run(l);
    }
    if (!has_token && l->client->handshake != NULL) {
        prove(l->client, &welcome);
    }
    pair_hear(l->client, &welcome); /* with a token: does not prove it */
    run(l);
}

static void
connect_to_listener(life *l)
{
    struct sockaddr_in addr;
    size_t             len = sizeof(addr);
    struct pollfd ready    = {.fd = umx_worker_fd(l->worker), .events = POLLIN};
    int           fd;

    fake.is_paused = true;
    fd             = keep_fd(l, socket(AF_INET, SOCK_STREAM, 0));
    assert_int_equal(umx_listener_address(l->listener, (void *)&addr, &len),
                     UMX_OK);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (void *)&addr, (socklen_t)len), 0);
    assert_int_equal(poll(&ready, 1, -1), 1);
    fake.is_paused = false;
    umi_worker_run_watches(l->worker); /* taken, or refused */
}

static void
open_server(life *l, bool has_token)
{
    umi_control hello = {.kind = UMI_HELLO}, auth = {.kind = UMI_AUTH};
    umi_control open = {.kind = UMI_OPEN};

    if (l->listener == NULL) {
        return;
    }
    connect_to_listener(l);
    hello.u.hello.major    = UMX_WIRE_VERSION;
    hello.u.hello.channels = 1;
    hello.u.hello.limits   = limits;
    stranger(2, &hello.u.hello.where);
    open.u.open.peer = 1;
    if (find_server(l) != NULL) {
        pair_hear(find_server(l), &hello);
        run(l);
    }
    if (has_token && find_server(l) != NULL) {
        pair_hear(find_server(l), &auth); /* a wrong one */
        run(l);
    }
    if (find_server(l) != NULL) {
        prove(find_server(l), &open);
        pair_hear(find_server(l), &open);
        run(l);
    }
}

static void
send_all_kinds(life *l, umx_ep *ep)
{
    static const size_t sizes[] = {0, 8, 200, LARGE, LARGE};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        op_send(next_op(l), ep, (uint16_t)(i % 2), pair_tag(i), l->buffers[0],
                sizes[i]);
        posted(l);
    }
    {
        op           *o      = next_op(l);
        umx_op_params params = op_params(o);
        umx_buffer    buffer = umx_host_buffer(l->buffers[0], 10);

        o->status = umx_tag_send(ep, 1, &buffer, &params, &o->req);
        posted(l);
        o         = next_op(l);
        params    = op_params(o);
        o->status = umx_ep_flush(ep, &params, &o->req);
        posted(l);
        o         = next_op(l);
        params    = op_params(o);
        o->status = umx_worker_flush(l->worker, &params, &o->req);
        posted(l);
    }
}

static void
recv_tags(life *l, umx_ep *ep)
{
    umx_ep *names[] = {ep, NULL, NULL};

    for (int i = 0; i < 3; i++) {
        op           *o      = next_op(l);
        umx_op_params params = op_params(o);
        umx_buffer    buffer = umx_host_buffer(l->buffers[1], 10);

        o->status = umx_tag_recv(l->worker, names[i], 1, 1, &buffer, &params,
                                 &o->req, &o->info);
        posted(l);
        if (i == 2 && o->status == UMX_INPROGRESS) {
            op_cancel(o->req);
        }
    }
}

/* A message taken by handle: read, or put back. */
static void
settle_taken(life *l, umx_message *message, bool is_read)
{
    if (message == NULL) {
        return;
    }
    if (is_read) {
        op *o = next_op(l);

        op_message_recv(o, message, l->buffers[2], LARGE);
        posted(l);
        message = o->message;
    }
    if (message != NULL) {
        umx_message_return(message);
    }
}

static void
recv_all_kinds(life *l, umx_ep *ep)
{
    static const umx_match exact = {.flags = UMX_MATCH_ANY | UMX_MATCH_EXACT};

    umx_recv_info info;
    umx_buffer    buffer = umx_host_buffer(l->buffers[9], LARGE);
    op           *taken[2], *landing, *o;

    /* Expected: eager, announced, too long, by handle. */
    op_recv(next_op(l), ep, 0, exact, l->buffers[3], LARGE);
    posted(l);
    op_recv(next_op(l), ep, 0, pair_any, l->buffers[4], LARGE);
    posted(l);
    op_recv(next_op(l), ep, 0, pair_any, l->buffers[5], 5);
    posted(l);
    taken[0] = next_op(l);
    op_recv_message(taken[0], ep, 0, pair_any);
    posted(l);
    send_to(ep, 0, 0, 100, false);
    send_to(ep, 1, 1, LARGE, true);
    send_to(ep, 2, 2, LARGE, true);
    send_to(ep, 3, 3, 1000, false);
    run(l);
    settle_taken(l, taken[0]->message, false);

    /* Unexpected, and early. */
    send_to(ep, 5, 5, 300, false);
    send_to(ep, 4, 4, LARGE, true);
    send_to(ep, 6, 6, LARGE, true);
    send_to(ep, 7, 7, 10, false);
    send_to(ep, 9, 9, LARGE, true);
    send_to(ep, 10, 10, LARGE, true); /* the last two messages stay parked */
    run(l);
    taken[1] = next_op(l);
    op_recv_message(taken[1], ep, 0, pair_tag(4));
    posted(l);
    settle_taken(l, taken[1]->message, true);

    /* Cancelled while landing, claimed by the next. */
    landing = next_op(l);
    op_recv(landing, ep, 0, pair_tag(6), l->buffers[6], LARGE);
    posted(l);
    if (landing->status == UMX_INPROGRESS) {
        op_cancel(landing->req);
    }
    op_recv(next_op(l), ep, 0, pair_tag(6), l->buffers[7], LARGE);
    posted(l);
    run(l);
    o = next_op(l);
    op_recv(o, ep, 0, pair_tag(5), l->buffers[9], LARGE);
    posted(l);
    if (o->status == UMX_OK) {
        info = o->info;
        (void)!umx_channel_unrecv(ep, 0, &info, &buffer);
    }
    (void)!umx_channel_probe(ep, 9, &pair_any, &info);
    op_recv(next_op(l), ep, 2, pair_any, l->buffers[8], LARGE); /* for ever */
    posted(l);
}

static void
close_client(life *l)
{
    const umi_control ack = {.kind = UMI_GOODBYE_ACK};

    op_close(next_op(l), l->client, SECOND_NS);
    posted(l);
    run(l);
    say(l->client, &ack);
    run(l);
}

/* The peer says goodbye, with announced data unread, and goes. */
static void
peer_closes(life *l)
{
    umi_control goodbye;

    memset(&goodbye, 0, sizeof(goodbye));
    goodbye.kind                          = UMI_GOODBYE;
    goodbye.u.goodbye.is_last             = true;
    goodbye.u.goodbye.count               = 2;
    goodbye.u.goodbye.entries[0].channel  = UMI_CHANNEL_0;
    goodbye.u.goodbye.entries[0].next_seq = 11;
    goodbye.u.goodbye.entries[1].channel  = UMI_CHANNEL_0 + 77;
    say(l->server, &goodbye); /* before what it counts */
    run(l);
    send_to(l->server, 8, 8, LARGE, true);
    run(l);
    fake_break(umx_ep_handle(l->server), UCS_ERR_CONNECTION_RESET);
    run(l);
}

static void
exchange_control(life *l, umx_ep *ep)
{
    const umi_control ping   = {.kind = UMI_PING};
    const umi_control ask    = {.kind = UMI_INFO_REQUEST};
    umi_control       credit = {.kind = UMI_CREDIT};

    credit.u.credit.channel = UMI_CHANNEL_0 + 21;
    credit.u.credit.limits  = limits;
    say(ep, &ping);
    say(ep, &ask);
    say(ep, &credit);
    run(l);
}

static void
end_life(life *l)
{
    if (l->client != NULL) {
        umx_ep_destroy(l->client);
    }
    if (l->server != NULL) {
        umx_ep_destroy(l->server);
    }
    if (l->worker != NULL) {
        run(l);
        starved = NULL;
        umx_worker_destroy(l->worker);
    }
    if (l->listener != NULL) { /* stopped with the worker */
        umx_listener_destroy(l->listener);
    }
    if (l->context != NULL) {
        umx_context_release(l->context);
    }
    for (int i = 0; i < l->num_fds; i++) {
        close(l->fds[i]);
    }
}

/* Everything above; a step is left out when the one it needs failed. */
static void
live(life *l, bool has_token)
{
    if (open_worker(l, has_token)) {
        char *text;

        if (umx_worker_info(l->worker, &text) == UMX_OK) {
            free(text);
        }
        open_client(l, has_token);
        open_server(l, has_token);
        if (l->client != NULL) {
            send_all_kinds(l, l->client);
            recv_tags(l, l->client);
            exchange_control(l, l->client);
            run(l);
        }
        if (l->server != NULL) {
            recv_all_kinds(l, l->server);
            send_all_kinds(l, l->server);
            recv_tags(l, l->server);
            run(l);
            peer_closes(l);
        }
        if (l->client != NULL) {
            close_client(l);
        }
    }
    end_life(l);
}

static void
check_life(const life *l)
{
    for (int i = 0; i < l->num_ops; i++) {
        if (l->ops[i].calls != (l->is_posted[i] ? 1 : 0)) {
            fail_msg("operation %d completed %d times; call %u (%s) failed", i,
                     l->ops[i].calls, fake.fail_at,
                     fake.failed != NULL ? fake.failed : "none");
        }
    }
    if (fake.live != 0) {
        fail_msg("%u objects left; call %u (%s) failed", fake.live,
                 fake.fail_at, fake.failed != NULL ? fake.failed : "none");
    }
}

typedef struct mode {
    bool         is_pending;
    bool         has_token;
    bool         is_starved; /* pools have nothing left */
    const char  *transport;
    ucs_status_t status;
    int          error; /* 0: EIO */
} mode;

static life *
new_life(const mode *m)
{
    life *l;

    fake_reset();
    l                = calloc(1, sizeof(*l));
    fake.calls       = 0;
    fake.is_pending  = m->is_pending;
    fake.transport   = m->transport;
    fake.fail_status = m->status;
    fake.error       = m->error != 0 ? m->error : EIO;
    fake.on_step     = m->is_starved ? starve : NULL;
    assert_non_null(l);
    return l;
}

/* Once without a failure, then with each call failing in turn. */
static void
sweep_calls(const mode *m)
{
    unsigned count;
    life    *l = new_life(m);

    live(l, m->has_token);
    check_life(l);
    free(l);
    count = fake.calls;
    assert_true(count > 20);
    for (unsigned i = 1; i <= count; i++) {
        l            = new_life(m);
        fake.fail_at = i;
        live(l, m->has_token);
        check_life(l);
        free(l);
    }
}

static void
sweep_completions(const mode *m)
{
    unsigned count;
    life    *l = new_life(m);

    live(l, m->has_token);
    free(l);
    count = fake.completions;
    assert_true(count > 5);
    for (unsigned i = 1; i <= count; i++) {
        l                       = new_life(m);
        fake.fail_completion_at = i;
        live(l, m->has_token);
        check_life(l);
        free(l);
    }
}

static void
quiet(int level, const char *text, void *arg)
{
    (void)level;
    (void)text;
    (void)arg;
}

static int
setup(void **state)
{
    (void)state;
    umx_log_set(quiet, NULL);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    umx_log_set(NULL, NULL);
    return 0;
}

static void
test_each_call_fails_once(void **state)
{
    const mode m = {.transport = "tcp", .status = UCS_ERR_IO_ERROR};

    (void)state;
    sweep_calls(&m);
}

/* UCX before 1.14 leaves the question for transports unanswered. */
static void
test_a_ucx_that_does_not_tell_its_transports(void **state)
{
    const mode m = {.status = UCS_ERR_IO_ERROR};
    life      *l = new_life(&m);

    (void)state;
    live(l, false);
    check_life(l);
    free(l);
}

static void
test_each_call_fails_once_for_memory(void **state)
{
    const mode m = {
        .transport = "posix", .status = UCS_ERR_NO_MEMORY, .error = ENOMEM};

    (void)state;
    sweep_calls(&m);
}

static void
test_each_call_fails_once_while_others_are_pending(void **state)
{
    const mode m = {.is_pending = true,
                    .transport  = "tcp",
                    .status     = UCS_ERR_CONNECTION_RESET,
                    .error      = EINTR};

    (void)state;
    sweep_calls(&m);
}

static void
test_each_call_fails_once_with_a_token(void **state)
{
    const mode m = {.has_token = true,
                    .transport = "tcp",
                    .status    = UCS_ERR_IO_ERROR,
                    .error     = EAGAIN};

    (void)state;
    sweep_calls(&m);
}

static void
test_each_allocation_fails_once(void **state)
{
    const mode m = {
        .is_starved = true, .transport = "tcp", .status = UCS_ERR_NO_MEMORY};

    (void)state;
    sweep_calls(&m);
}

static void
test_each_allocation_fails_once_while_others_are_pending(void **state)
{
    const mode m = {.is_starved = true,
                    .is_pending = true,
                    .transport  = "tcp",
                    .status     = UCS_ERR_NO_MEMORY};

    (void)state;
    sweep_calls(&m);
}

static void
test_each_operation_fails_later(void **state)
{
    const mode m = {.is_pending = true,
                    .transport  = "sysv",
                    .status     = UCS_ERR_ENDPOINT_TIMEOUT};

    (void)state;
    sweep_completions(&m);
}

static void
test_each_operation_is_cancelled_later(void **state)
{
    const mode m = {
        .is_pending = true, .transport = "sysv", .status = UCS_ERR_CANCELED};

    (void)state;
    sweep_completions(&m);
}

/* ---- configuration -------------------------------------------------------
 */

static void
create_with_option(const char *key, const char *value, umx_status expected)
{
    umx_option         option  = {key, value};
    umx_context_params params  = {.field_mask  = UMX_CONTEXT_FIELD_OPTIONS,
                                  .options     = &option,
                                  .num_options = 1};
    umx_context       *context = NULL;

    fake_reset();
    assert_int_equal(umx_context_create(&params, &context, NULL), expected);
    if (context != NULL) {
        umx_context_release(context);
    }
    assert_int_equal(fake.live, 0);
}

static void
test_buffers_follow_the_length_of_the_users_queue(void **state)
{
    (void)state;
    unsetenv("UCX_MM_FIFO_SIZE"); /* run.sh sets them */
    unsetenv("UCX_MM_RX_BUFS_GROW");
    create_with_option("TLS", "all", UMX_OK);
    assert_string_equal(fake_configured("POSIX_FIFO_SIZE"), "64");
    assert_true(fake_was_configured("POSIX_RX_BUFS_GROW"));
    assert_true(fake_was_configured("SYSV_RX_BUFS_GROW"));
    create_with_option("POSIX_FIFO_SIZE", "1024", UMX_OK);
    assert_string_equal(fake_configured("POSIX_FIFO_SIZE"), "1024");
    assert_false(fake_was_configured("POSIX_RX_BUFS_GROW"));
    assert_true(fake_was_configured("SYSV_RX_BUFS_GROW"));
    create_with_option("MM_FIFO_SIZE", "1024", UMX_OK);
    assert_string_equal(fake_configured("POSIX_FIFO_SIZE"), "1024");
    assert_string_equal(fake_configured("SYSV_FIFO_SIZE"), "1024");
    assert_false(fake_was_configured("POSIX_RX_BUFS_GROW"));
    assert_false(fake_was_configured("SYSV_RX_BUFS_GROW"));
    setenv("UCX_MM_RX_BUFS_GROW", "512", 1);
    create_with_option("TLS", "all", UMX_OK);
    unsetenv("UCX_MM_RX_BUFS_GROW");
    assert_string_equal(fake_configured("POSIX_FIFO_SIZE"), "64");
    assert_false(fake_was_configured("POSIX_RX_BUFS_GROW"));
    assert_false(fake_was_configured("SYSV_RX_BUFS_GROW"));
}

static void
test_special_settings_follow_the_users_general_one(void **state)
{
    (void)state;
    create_with_option("TLS", "all", UMX_OK);
    assert_true(fake_was_configured("POSIX_ERROR_HANDLING"));
    assert_true(fake_was_configured("SYSV_ERROR_HANDLING"));
    assert_true(fake_was_configured("TCP_TX_SEG_SIZE"));
    setenv("UCX_TCP_TX_SEG_SIZE", "16k", 1);
    create_with_option("TLS", "all", UMX_OK);
    assert_false(fake_was_configured("TCP_TX_SEG_SIZE"));
    unsetenv("UCX_TCP_TX_SEG_SIZE");
    create_with_option("POSIX_ERROR_HANDLING", "n", UMX_OK);
    assert_true(fake_was_configured("SYSV_ERROR_HANDLING"));
    create_with_option("MM_ERROR_HANDLING", "n", UMX_OK);
    assert_true(fake_was_configured("MM_ERROR_HANDLING")); /* the user's */
    assert_false(fake_was_configured("POSIX_ERROR_HANDLING"));
    assert_false(fake_was_configured("SYSV_ERROR_HANDLING"));
    setenv("UCX_MM_ERROR_HANDLING", "n", 1);
    create_with_option("TLS", "all", UMX_OK);
    unsetenv("UCX_MM_ERROR_HANDLING");
    assert_false(fake_was_configured("MM_ERROR_HANDLING"));
    assert_false(fake_was_configured("POSIX_ERROR_HANDLING"));
}

static void
test_refused_options(void **state)
{
    (void)state;
    create_with_option("UNKNOWN", "1", UMX_ERR_UNKNOWN_OPTION);
    create_with_option("TLS", "bad", UMX_ERR_INVALID_PARAM);
}

typedef struct walk {
    int  count;
    bool has_equals;
} walk;

static void
count_option(const char *key, const char *value, void *arg)
{
    walk *w = arg;

    w->count++;
    if (strcmp(key, "NET_DEVICES") == 0) {
        w->has_equals = strcmp(value, "a=b") == 0;
    }
}

static void
test_options_are_parsed(void **state)
{
    walk w = {0};

    (void)state;
    fake_reset();
    assert_int_equal(umx_context_options(NULL, count_option, &w, NULL), UMX_OK);
    assert_int_equal(w.count, 2);
    assert_true(w.has_equals);
    assert_int_equal(fake.live, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call_fails_once),
        cmocka_unit_test(test_a_ucx_that_does_not_tell_its_transports),
        cmocka_unit_test(test_each_call_fails_once_for_memory),
        cmocka_unit_test(test_each_call_fails_once_while_others_are_pending),
        cmocka_unit_test(test_each_call_fails_once_with_a_token),
        cmocka_unit_test(test_each_allocation_fails_once),
        cmocka_unit_test(
            test_each_allocation_fails_once_while_others_are_pending),
        cmocka_unit_test(test_each_operation_fails_later),
        cmocka_unit_test(test_each_operation_is_cancelled_later),
        cmocka_unit_test(test_buffers_follow_the_length_of_the_users_queue),
        cmocka_unit_test(test_special_settings_follow_the_users_general_one),
        cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_options_are_parsed),
    };

    return UNIT_RUN_ONCE(tests, setup, teardown);
}
