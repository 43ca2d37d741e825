/* SPDX-License-Identifier: BSD-3-Clause */
/* storm.c: HELLOs and WELCOMEs with UCX addresses that somebody has changed,
 * and right checksums and proofs, against UCX itself. Must a process die of
 * one?
 *
 *   storm COUNT [SEED]
 *
 * Children take a share each, so that a death is counted and named by its seed,
 * which repeats it. Prints how many addresses were refused here, how many UCX
 * was given, and how many children died; fails if one did. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <umx/umx.h>
#include <unistd.h>

#include "prove.h"
#include "codec/ucx_address.h"

enum {
    SHARE         = 5000, /* of a child: UCX does not give all memory back */
    NUM_ADDRESSES = 6,
    POLLS         = 4,
    SECONDS       = 600 /* time limit of a child */
};

typedef struct counts {
    atomic_ulong said;
    atomic_ulong given; /* to UCX */
    atomic_ulong opened;
} counts;

static counts  *total; /* of all children */
static uint64_t state;

static uint8_t addresses[NUM_ADDRESSES][UMI_ADDRESS_MAX];
static size_t  address_lens[NUM_ADDRESSES];

static umx_worker   *worker;
static umx_listener *listener;

/* ---- random numbers ------------------------------------------------------
 */

/* xorshift64*: below `limit`, which is not 0. */
static uint64_t
pick(uint64_t limit)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545f4914f6cdd1du >> 11) % limit;
}

static void
check(bool is_true, const char *what)
{
    if (!is_true) {
        fprintf(stderr, "storm: %s\n", what);
        exit(1);
    }
}

static void
ignore_log(int level, const char *text, void *arg)
{
    (void)level;
    (void)text;
    (void)arg;
}

static void
on_accept(umx_listener *source, umx_ep *ep, void *arg)
{
    (void)source;
    (void)arg;
    atomic_fetch_add(&total->opened, 1);
    umx_ep_abort(ep);
    umx_ep_destroy(ep);
}

/* ---- workers -------------------------------------------------------------
 */

static umx_worker *
make_worker(const umx_option *options, size_t count)
{
    umx_context_params params = {.field_mask  = UMX_CONTEXT_FIELD_OPTIONS,
                                 .options     = options,
                                 .num_options = count};
    umx_context       *context;
    umx_worker        *made;

    check(umx_context_create(&params, &context, NULL) == UMX_OK, "no context");
    check(umx_worker_create(context, &made) == UMX_OK, "no worker");
    umx_context_release(context);
    return made;
}

/* Addresses to begin with: of each form, of workers that are there. */
static void
make_addresses(void)
{
    static const umx_option options[] = {{"ADDRESS_VERSION", "v2"},
                                         {"TLS", "tcp,sm,self"}};

    for (int i = 0; i < NUM_ADDRESSES; i++) {
        umx_worker *other = make_worker(options + (i < 2 ? 0 : 1), 1);
        const void *data;

        check(umi_engine_address(other->engine, i % 2 == 0, &data,
                                 &address_lens[i]) == UMX_OK,
              "no address");
        memcpy(addresses[i], data, address_lens[i]);
    }
}

static void
open_worker(void)
{
    struct sockaddr_storage addr   = {.ss_family = AF_INET};
    umx_listener_params     params = {.addr      = (struct sockaddr *)&addr,
                                      .addr_len  = sizeof(addr),
                                      .on_accept = on_accept};

    worker = make_worker(NULL, 0);
    check(umx_listener_create(worker, &params, &listener) == UMX_OK,
          "no listener");
}

/* ---- what is said --------------------------------------------------------
 */

static size_t
change_address(uint8_t *address)
{
    static const uint8_t bytes[] = {0, 1, 0x3f, 0x40, 0x7f, 0x80, 0xc0, 0xff};

    int    which = (int)pick(NUM_ADDRESSES);
    size_t len   = address_lens[which];

    memcpy(address, addresses[which], len);
    for (uint64_t n = pick(5); n > 0; n--) {
        size_t at = pick(len);

        switch (pick(4)) {
        case 0:
            address[at] ^= (uint8_t)(1u << pick(8));
            break;
        case 1:
            address[at] = (uint8_t)pick(256);
            break;
        case 2:
            address[at] = bytes[pick(sizeof(bytes))];
            break;
        case 3: { /* a piece of another place */
            size_t from = pick(len), size = pick(24);

            size = (from + size > len) ? len - from : size;
            size = (at + size > len) ? len - at : size;
            memmove(address + at, address + from, size);
            break;
        }
        }
    }
    return (pick(16) == 0) ? 1 + pick(len) : len;
}

static void
fill_where(umi_where *where, uint8_t *address)
{
    uint8_t secret[UMI_KEY_SIZE];

    stranger((uint8_t)(1 + pick(255)), where);
    for (size_t i = 0; i < sizeof(secret); i++) {
        secret[i] = (uint8_t)pick(256);
    }
    umi_x25519_public(secret, where->key);
    umi_worker_id_of(pick(UINT64_MAX), where->key, where->worker_id);
    where->endpoint    = 1 + pick(1000);
    where->address     = address;
    where->address_len = (uint16_t)change_address(address);
}

static void
hear(umx_ep *ep, const umi_control *control)
{
    uint8_t bytes[UMI_CONTROL_MAX];
    size_t  len = umi_control_encode(control, bytes);

    check(len != 0, "a message that is too long");
    ep->socket.ops->on_message(&ep->socket, bytes, len);
}

static void
poll_worker(void)
{
    for (int i = 0; i < POLLS; i++) {
        (void)umx_worker_poll(worker);
    }
}

/* Somebody connects. */
static void
say_hello(int fd)
{
    uint8_t     address[UMI_ADDRESS_MAX];
    umi_control hello = {.kind = UMI_HELLO}, open = {.kind = UMI_OPEN};
    umx_ep     *ep;

    umi_handshake_on_connection(listener, fd);
    ep = umi_endpoint_of(umi_container_of(worker->eps.prev, umi_ep_base, node));
    umi_ep_base_hold(&ep->base);
    ep->socket.is_local    = pick(4) != 0;
    hello.u.hello.major    = UMX_WIRE_VERSION;
    hello.u.hello.channels = 1;
    hello.u.hello.limits   = (umi_limits){1 << 20, 100, 100};
    fill_where(&hello.u.hello.where, address);
    hear(ep, &hello);
    if (ep->base.link != NULL) {
        atomic_fetch_add(&total->given, 1);
    }
    if (ep->handshake != NULL && ep->handshake->is_welcomed && pick(2) == 0) {
        open.u.open.peer = 1;
        prove(ep, &open);
        hear(ep, &open);
    }
    poll_worker();
    umx_ep_abort(ep);
    umi_ep_base_release(&ep->base);
}

/* Somebody is connected to. */
static void
say_welcome(int fd)
{
    uint8_t     address[UMI_ADDRESS_MAX];
    umi_control welcome = {.kind = UMI_WELCOME};
    umx_ep     *ep;

    check(umi_endpoint_new(worker, &(umx_window){0}, &ep) == UMX_OK,
          "no endpoint");
    umi_ep_base_hold(&ep->base);
    check(umi_socket_take(&ep->socket, fd) == UMX_OK, "no socket");
    ep->socket.is_local        = pick(4) != 0;
    welcome.u.welcome.major    = UMX_WIRE_VERSION;
    welcome.u.welcome.channels = 1;
    welcome.u.welcome.limits   = (umi_limits){1 << 20, 100, 100};
    welcome.u.welcome.peer     = 1;
    umi_handshake_start(ep);
    fill_where(&welcome.u.welcome.where, address);
    prove(ep, &welcome);
    hear(ep, &welcome);
    if (ep->base.link != NULL) {
        atomic_fetch_add(&total->given, 1);
    }
    poll_worker();
    umx_ep_abort(ep);
    umx_ep_destroy(ep);
    umi_ep_base_release(&ep->base);
}

static void
say_one(void)
{
    int pair[2];

    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0,
          "no sockets");
    if (pick(2) == 0) {
        say_hello(pair[1]);
    } else {
        say_welcome(pair[1]);
    }
    atomic_fetch_add(&total->said, 1);
    close(pair[0]);
    poll_worker();
}

/* ---- children ------------------------------------------------------------
 */

static int
run_share(uint64_t seed, uint64_t count)
{
    pid_t pid = fork();
    int   status;

    check(pid >= 0, "no child");
    if (pid == 0) {
        alarm(SECONDS);
        state = seed * 0x9e3779b97f4a7c15u + 1;
        umx_log_set(ignore_log, NULL);
        make_addresses();
        open_worker();
        for (uint64_t i = 0; i < count; i++) {
            say_one();
        }
        _exit(0);
    }
    check(waitpid(pid, &status, 0) == pid, "no end of a child");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    fprintf(stderr, "storm: seed %llu: %s %d\n", (unsigned long long)seed,
            WIFSIGNALED(status) ? "signal" : "exit",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 1;
}

int
main(int argc, char **argv)
{
    uint64_t count, seed, deaths = 0;

    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: storm COUNT [SEED]\n");
        return 2;
    }
    count = strtoull(argv[1], NULL, 10);
    seed  = (argc == 3) ? strtoull(argv[2], NULL, 10) : 1;
    total = mmap(NULL, sizeof(*total), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(total != MAP_FAILED, "no memory");
    for (uint64_t left = count; left > 0; seed++) {
        uint64_t share = (left < SHARE) ? left : SHARE;

        deaths += (uint64_t)run_share(seed, share);
        left -= share;
    }
    printf("storm: %lu said, %lu given to UCX, %lu opened, %llu deaths\n",
           total->said, total->given, total->opened,
           (unsigned long long)deaths);
    return deaths != 0;
}
