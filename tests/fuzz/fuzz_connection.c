/* SPDX-License-Identifier: BSD-3-Clause */
/* link: fake_ucp wrap=socket wrap=connect wrap=umi_random_bytes */
/* fuzz_connection.c: a listener and a connecting side whose peers say anything:
 * over the sockets of the handshake, then in active messages.
 *
 *   setup u8   bit 0: a token is set; bit 1: UCX's operations take a while
 *   step:      connection u8 | what u8 | len u16 | len bytes
 *
 * Connections 0 and 1 are accepted, 2 and 3 made. UCX is fake_ucp.c. In the end
 * nothing may be left, of UCX or of descriptors. */
#include "fake_ucp.h"
#include "prove.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <umx/umx.h>
#include <unistd.h>

#include "util/bytes.h"
#include "channel/channel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum {
    MAX_CONNECTIONS = 4,
    NUM_ACCEPTED    = 2,
    MAX_STEPS       = 64, /* fake_ucp.c has so many descriptors */
    SETUP_TOKEN     = 1,
    SETUP_PENDING   = 2,
    FAKE_HEADER_MAX = 64
};

enum what {
    SAY,      /* bytes of the socket */
    END,      /* of the socket */
    CONTROL,  /* an active message: bytes of a control message */
    MESSAGE,  /* a header of 24 bytes, whose endpoint is put right; with the
                 user's the length of that u8; data */
    ANNOUNCE, /* a MESSAGE whose bytes come by rendezvous */
    BREAK,    /* of UCX's endpoint */
    RECEIVE,  /* our side: each of the bytes is a length; odd: untagged */
    SEND,     /* likewise */
    TAKE,     /* a message, and give it back */
    CANCEL,   /* the last operation */
    CLOSE,
    PROVE,  /* a control message of the handshake: said with what proves it */
    FOLLOW, /* a length u64 and a MESSAGE's header: the bytes follow */
    NUM_WHAT
};

static umx_context  *contexts[2]; /* [has a token] */
static umx_worker   *worker;
static umx_listener *listener;
static umx_ep       *eps[MAX_CONNECTIONS];
static int           fds[MAX_CONNECTIONS]; /* the peers' ends */
static int           our_fds[MAX_CONNECTIONS];
static int           pending_fd = -1; /* of a connect; ours */
static umx_request  *last;            /* operation; NULL: is done */

/* ---- what the system would do --------------------------------------------
 */

static uint64_t num_random; /* bytes so far: each input gets the same ones */

int  __real_socket(int domain, int type, int protocol);
int  __wrap_socket(int domain, int type, int protocol);
int  __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len);
bool __wrap_umi_random_bytes(void *data, size_t len);

int
__wrap_socket(int domain, int type, int protocol)
{
    int fd = pending_fd;

    if (fd < 0) {
        return __real_socket(domain, type, protocol);
    }
    pending_fd = -1;
    return fd;
}

int
__wrap_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    (void)fd;
    (void)addr;
    (void)len;
    return 0;
}

bool
__wrap_umi_random_bytes(void *data, size_t len)
{
    uint8_t *bytes = data;

    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)(umi_siphash(&num_random, sizeof(num_random)));
        num_random++;
    }
    return true;
}

static void
ignore_log(int level, const char *text, void *arg)
{
    (void)level;
    (void)text;
    (void)arg;
}

/* ---- connections ---------------------------------------------------------
 */

static void
check(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void
on_accept(umx_listener *source, umx_ep *ep, void *arg)
{
    (void)source;
    (void)arg;
    for (int i = 0; i < NUM_ACCEPTED; i++) {
        if (eps[i] == NULL) {
            eps[i] = ep;
            return;
        }
    }
    abort();
}

/* The peer's end of connection `i`, which is made if there is none. */
static int
socket_of(int i)
{
    struct sockaddr_in addr   = {.sin_family = AF_INET};
    umx_connect_params params = {.addr     = (struct sockaddr *)&addr,
                                 .addr_len = sizeof(addr)};
    int                pair[2];

    if (fds[i] >= 0) {
        return fds[i];
    }
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    fds[i]     = pair[0];
    our_fds[i] = pair[1];
    if (i < NUM_ACCEPTED) {
        umi_handshake_on_connection(listener, pair[1]);
    } else {
        pending_fd = pair[1];
        check(umx_ep_connect(worker, &params, &eps[i]) == UMX_OK);
    }
    return fds[i];
}

static void
open_worker(umx_context *context)
{
    struct sockaddr_in  addr   = {.sin_family = AF_INET};
    umx_listener_params params = {.addr      = (struct sockaddr *)&addr,
                                  .addr_len  = sizeof(addr),
                                  .on_accept = on_accept};

    check(umx_worker_create(context, &worker) == UMX_OK);
    check(umx_listener_create(worker, &params, &listener) == UMX_OK);
    memset(eps, 0, sizeof(eps));
    memset(fds, -1, sizeof(fds));
}

static void
close_worker(void)
{
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        if (eps[i] != NULL) {
            umx_ep_abort(eps[i]);
            umx_ep_destroy(eps[i]);
        }
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    umx_listener_destroy(listener);
    umx_worker_destroy(worker);
}

/* ---- steps ---------------------------------------------------------------
 */

static void
arrive(umx_ep *ep, enum what what, const uint8_t *data, size_t len)
{
    _Alignas(umi_header) uint8_t bytes[FAKE_HEADER_MAX] = {0};
    umi_header                  *header                 = (umi_header *)bytes;
    uint64_t front[] = {ep->base.wire_id, 0}; /* acknowledges nothing */
    size_t   size    = (len > 1) ? umi_header_size(data[1]) : sizeof(*header);

    size = (len < size) ? len : size;

    if (what == CONTROL) {
        fake_arrive(umx_ep_handle(ep), UMI_AM_CONTROL, front, sizeof(front),
                    data, len, false);
        return;
    }
    if (len > sizeof(*header) && data[0] == UMI_KIND_AM) {
        size += data[size] % (sizeof(bytes) - sizeof(*header));
        size = (len < size) ? len : size;
    }
    if (size != 0) {
        memcpy(bytes, data, size);
    }
    header->endpoint = ep->base.wire_id;
    fake_arrive(umx_ep_handle(ep), UMI_AM_DATA, bytes, size, data + size,
                len - size, what == ANNOUNCE);
}

/* A header whose bytes follow. */
static void
arrive_followed(umx_ep *ep, const uint8_t *data, size_t len)
{
    uint8_t  bytes[FAKE_HEADER_MAX] = {0};
    uint64_t id                     = ep->base.wire_id;
    size_t   place = sizeof(uint64_t) + offsetof(umi_header, endpoint);

    len = (len < sizeof(bytes)) ? len : sizeof(bytes);
    memcpy(bytes, data, len);
    if (len >= place + sizeof(id)) {
        memcpy(bytes + place, &id, sizeof(id));
    }
    fake_arrive(umx_ep_handle(ep), UMI_AM_FOLLOWED, bytes, len, NULL, 0, false);
}

/* The half of connection `i` that is here, while its handshake goes on. */
static umx_ep *
handshake_of(int i)
{
    UMI_LIST_FOREACH(node, &worker->eps) {
        umx_ep *ep = umi_endpoint_of(umi_container_of(node, umi_ep_base, node));

        if (ep->handshake != NULL && ep->socket.watch.fd == our_fds[i]) {
            return ep;
        }
    }
    return NULL;
}

/* The id that belongs to the key. */
static void
put_id_right(umi_where *where)
{
    uint64_t context_id;

    memcpy(&context_id, where->worker_id, sizeof(context_id));
    umi_worker_id_of(context_id, where->key, where->worker_id);
}

static void
say_proven(int i, const uint8_t *data, size_t len)
{
    umx_ep     *ep = handshake_of(i);
    umi_control control;
    const char *why;
    uint8_t     bytes[4 + UMI_CONTROL_MAX];
    uint32_t    size;

    if (ep == NULL || !umi_control_decode(&control, data, len, &why)) {
        return;
    }
    if (control.kind == UMI_HELLO) {
        put_id_right(&control.u.hello.where);
    } else if (control.kind == UMI_WELCOME) {
        put_id_right(&control.u.welcome.where);
    }
    prove(ep, &control);
    size = (uint32_t)umi_control_encode(&control, bytes + 4);
    memcpy(bytes, &size, 4);
    (void)!send(fds[i], bytes, 4 + size, MSG_NOSIGNAL);
}

static void
on_done(umx_request *req, umx_status status, void *arg)
{
    (void)status;
    (void)arg;
    if (req == last) {
        last = NULL;
    }
}

static void
on_taken(umx_request *req, umx_status status, void *arg)
{
    on_done(req, status, arg);
    if (status == UMX_OK) {
        umx_message_return(umx_request_message(req));
    }
}

/* Our side does one thing. */
static void
operate(umx_ep *ep, enum what what, size_t len)
{
    static uint8_t buffer[UINT8_MAX];

    umx_op_params params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                            .on_done    = (what == TAKE) ? on_taken : on_done};
    umx_match     match  = {.flags = (len % 2 != 0) ? UMX_MATCH_UNTAGGED :
                                                      UMX_MATCH_ANY};
    umx_buffer buf = {.data = buffer, .len = len, .memtype = UMX_MEMTYPE_HOST};
    umx_request  *req = NULL;
    umx_message  *message;
    umx_recv_info info;

    if (what == RECEIVE) {
        (void)!umx_channel_recv(ep, 0, &match, &buf, &params, &req, &info);
    } else if (what == SEND) {
        (void)!umx_channel_send(ep, 0, &match, &buf, &params, &req);
    } else if (what == CLOSE) {
        (void)!umx_ep_close(ep, UMX_TIMEOUT_INFINITE, &params, &req);
    } else if (umx_channel_recv_message(ep, 0, &match, &params, &req,
                                        &message) == UMX_OK) {
        umx_message_return(message);
    }
    last = (req != NULL) ? req : last;
}

static void
step(int i, enum what what, const uint8_t *data, size_t len)
{
    int fd = socket_of(i);

    if (what == SAY) {
        (void)!send(fd, data, len, MSG_NOSIGNAL);
    } else if (what == PROVE) {
        say_proven(i, data, len);
    } else if (what == END) {
        (void)shutdown(fd, SHUT_WR);
    } else if (eps[i] == NULL) {
        return; /* not accepted */
    } else if (what == BREAK) {
        fake_break(umx_ep_handle(eps[i]), UCS_ERR_CONNECTION_RESET);
    } else if (what == FOLLOW) {
        arrive_followed(eps[i], data, len);
    } else if (what == CANCEL) {
        if (last != NULL) {
            umx_request_cancel(last);
        }
    } else if (what <= ANNOUNCE) {
        arrive(eps[i], what, data, len);
    } else {
        for (size_t j = 0; j < len && j < 8; j++) {
            operate(eps[i], what, data[j]);
        }
    }
}

static void
run_steps(umi_reader *r)
{
    for (int i = 0; i < MAX_STEPS && r->pos != r->end; i++) {
        unsigned       connection = umi_read_u8(r);
        unsigned       what       = umi_read_u8(r);
        size_t         len        = umi_read_u16(r);
        size_t         left       = (size_t)(r->end - r->pos);
        const uint8_t *data;

        len  = (len < left) ? len : left;
        data = umi_read_bytes(r, len);
        step((int)(connection % MAX_CONNECTIONS), (enum what)(what % NUM_WHAT),
             data, len);
        for (int j = 0; j < 3; j++) {
            check(umx_worker_drain(worker) >= 0);
        }
    }
}

static int
lowest_free_fd(void)
{
    int fd = fcntl(0, F_DUPFD, 0);

    close(fd);
    return fd;
}

static void
make_contexts(void)
{
    umx_context_params params = {.field_mask = UMX_CONTEXT_FIELD_CONFIG};
    umx_config         config;

    umx_log_set(ignore_log, NULL);
    fake_reset();
    umx_config_default(&config);
    config.credit_messages = 8;
    config.credit_rndv     = 8;
    params.config          = &config;
    check(umx_context_create(&params, &contexts[0], NULL) == UMX_OK);
    config.token     = (const uint8_t *)"token";
    config.token_len = 5;
    check(umx_context_create(&params, &contexts[1], NULL) == UMX_OK);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    umi_reader r;
    unsigned   setup, live;
    int        fd;

    if (contexts[0] == NULL) {
        make_contexts();
    }
    fd         = lowest_free_fd();
    live       = fake.live;
    num_random = 1000;
    umi_reader_init(&r, data, len);
    setup = umi_read_u8(&r);
    open_worker(contexts[setup & SETUP_TOKEN]);
    fake.is_pending = (setup & SETUP_PENDING) != 0;
    run_steps(&r);
    close_worker();
    check(last == NULL);
    check(fake.live == live);
    check(lowest_free_fd() == fd);
    return 0;
}
