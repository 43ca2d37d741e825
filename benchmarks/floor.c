/* SPDX-License-Identifier: BSD-3-Clause */
/* floor.c: half a round trip of a short message between two processes of this
 * host, layer by layer: a ring in shared memory, tags of libumx, its channels.
 *
 *     floor SIZE ROUNDS CPU CPU       (CPUs -1: not pinned)
 *
 * The layers take turns within a round, so that all see the same states of the
 * machine. It prints, for each, the best and the median of the rounds in
 * nanoseconds. */
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <umx/umx.h>

enum {
    CELLS      = 64,
    LEN_MAX    = 1024, /* bytes of a message */
    MAX_ROUNDS = 1000,
    MESSAGES   = 2000 /* there and back in a round */
};

typedef struct cell {
    _Alignas(64) atomic_uint seq; /* of its message, once that is there */
    char bytes[LEN_MAX];
} cell;

/* What the two processes share. */
typedef struct shared {
    cell       rings[2][CELLS]; /* one that each writes */
    atomic_int port;
} shared;

typedef struct side {
    bool        is_first; /* it sends first, and measures */
    size_t      size;
    shared     *shared;
    unsigned    sent; /* in its ring */
    unsigned    read; /* of the other's */
    umx_worker *worker;
    umx_ep     *ep;
    char        out[LEN_MAX];
    char        in[LEN_MAX];
} side;

static double
now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void
check(umx_status status, const char *what)
{
    if (status != UMX_OK) {
        fprintf(stderr, "%s: %s\n", what, umx_status_string(status));
        exit(1);
    }
}

/* ---- a ring --------------------------------------------------------------
 */

static void
ring_send(side *self)
{
    cell *to = &self->shared->rings[self->is_first][self->sent % CELLS];

    memcpy(to->bytes, self->out, self->size);
    atomic_store_explicit(&to->seq, ++self->sent, memory_order_release);
}

static void
ring_recv(side *self)
{
    cell *from = &self->shared->rings[!self->is_first][self->read % CELLS];

    while (atomic_load_explicit(&from->seq, memory_order_acquire) !=
           self->read + 1) {
    }
    self->read++;
    memcpy(self->in, from->bytes, self->size);
}

/* ---- libumx --------------------------------------------------------------
 */

static void
on_done(umx_request *req, umx_status status, void *arg)
{
    bool *is_done_p = arg;

    (void)req;
    check(status, "an operation");
    *is_done_p = true;
}

static umx_op_params
params_of(bool *is_done_p)
{
    return (umx_op_params){.field_mask = UMX_OP_FIELD_ON_DONE,
                           .on_done    = on_done,
                           .arg        = is_done_p};
}

static void
wait_for(side *self, umx_status status, const bool *is_done_p)
{
    if (status != UMX_INPROGRESS) {
        check(status, "a call");
        return;
    }
    while (!*is_done_p) {
        (void)umx_worker_poll(self->worker);
    }
}

static void
channel_send(side *self)
{
    bool          is_done = false;
    umx_match     match   = {.flags = UMX_MATCH_UNTAGGED};
    umx_buffer    buf     = umx_host_buffer(self->out, self->size);
    umx_op_params params  = params_of(&is_done);
    umx_request  *req     = NULL;

    wait_for(self, umx_channel_send(self->ep, 0, &match, &buf, &params, &req),
             &is_done);
}

static void
channel_recv(side *self)
{
    bool          is_done = false;
    umx_match     match   = {.flags = UMX_MATCH_ANY};
    umx_buffer    buf     = umx_host_buffer(self->in, self->size);
    umx_op_params params  = params_of(&is_done);
    umx_request  *req     = NULL;
    umx_recv_info info;

    wait_for(self,
             umx_channel_recv(self->ep, 0, &match, &buf, &params, &req, &info),
             &is_done);
}

static void
tag_send(side *self)
{
    bool          is_done = false;
    umx_buffer    buf     = umx_host_buffer(self->out, self->size);
    umx_op_params params  = params_of(&is_done);
    umx_request  *req     = NULL;

    wait_for(self, umx_tag_send(self->ep, 7, &buf, &params, &req), &is_done);
}

static void
tag_recv(side *self)
{
    bool          is_done = false;
    umx_buffer    buf     = umx_host_buffer(self->in, self->size);
    umx_op_params params  = params_of(&is_done);
    umx_request  *req     = NULL;
    umx_recv_info info;

    wait_for(self,
             umx_tag_recv(self->worker, NULL, 7, UINT64_MAX, &buf, &params,
                          &req, &info),
             &is_done);
}

/* ---- the connection ------------------------------------------------------
 */

static umx_ep *accepted;

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    (void)listener;
    (void)arg;
    accepted = ep;
}

static void
listen_for_other(side *self, struct sockaddr_in *addr)
{
    size_t              len    = sizeof(*addr);
    umx_listener_params params = {.addr      = (void *)addr,
                                  .addr_len  = sizeof(*addr),
                                  .on_accept = on_accept};
    umx_listener       *listener;

    check(umx_listener_create(self->worker, &params, &listener), "listen");
    check(umx_listener_address(listener, (void *)addr, &len), "address");
    atomic_store(&self->shared->port, ntohs(addr->sin_port));
    while (accepted == NULL) {
        (void)umx_worker_poll(self->worker);
    }
    self->ep = accepted;
}

static void
connect_to_other(side *self, struct sockaddr_in *addr)
{
    umx_connect_params params = {.addr     = (void *)addr,
                                 .addr_len = sizeof(*addr)};
    int                port;

    while ((port = atomic_load(&self->shared->port)) == 0) {
        usleep(1000);
    }
    addr->sin_port = htons((uint16_t)port);
    check(umx_ep_connect(self->worker, &params, &self->ep), "connect");
    while (umx_ep_get_state(self->ep) == UMX_EP_CONNECTING) {
        (void)umx_worker_poll(self->worker);
    }
    if (umx_ep_get_state(self->ep) != UMX_EP_OPEN) {
        fprintf(stderr, "connect: %s\n", umx_ep_reason(self->ep));
        exit(1);
    }
}

static void
meet(side *self)
{
    struct sockaddr_in addr = {.sin_family      = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    umx_context       *context;

    check(umx_context_create(NULL, &context, NULL), "context");
    check(umx_worker_create(context, &self->worker), "worker");
    if (self->is_first) {
        listen_for_other(self, &addr);
    } else {
        connect_to_other(self, &addr);
    }
}

/* ---- measuring -----------------------------------------------------------
 */

typedef struct layer {
    const char *name;
    void (*send)(side *self);
    void (*recv)(side *self);
    double ns[MAX_ROUNDS];
} layer;

static layer layers[] = {
    {.name = "ring", .send = ring_send, .recv = ring_recv},
    {.name = "umx_tag", .send = tag_send, .recv = tag_recv},
    {.name = "umx_channel", .send = channel_send, .recv = channel_recv},
};

enum {
    LAYERS = sizeof(layers) / sizeof(layers[0])
};

static double
round_trips(side *self, const layer *what)
{
    double begun;

    channel_send(self); /* both are here */
    channel_recv(self);
    begun = now_ns();
    for (int i = 0; i < MESSAGES; i++) {
        if (self->is_first) {
            what->send(self);
            what->recv(self);
        } else {
            what->recv(self);
            what->send(self);
        }
    }
    return (now_ns() - begun) / MESSAGES / 2;
}

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void
pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (cpu >= 0) {
        CPU_SET((size_t)cpu, &set);
        if (sched_setaffinity(0, sizeof(set), &set) != 0) {
            perror("sched_setaffinity");
            exit(1);
        }
    }
}

static void
run(side *self, int rounds)
{
    meet(self);
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < LAYERS; k++) {
            layers[k].ns[i] = round_trips(self, &layers[k]);
        }
    }
    for (int k = 0; k < LAYERS && self->is_first; k++) {
        qsort(layers[k].ns, (size_t)rounds, sizeof(double), compare);
        printf("%s %.1f %.1f\n", layers[k].name, layers[k].ns[0],
               layers[k].ns[rounds / 2]);
    }
}

int
main(int argc, char **argv)
{
    side  self   = {0};
    int   rounds = (argc == 5) ? atoi(argv[2]) : 0;
    int   status = 0;
    pid_t child;

    self.size = (argc == 5) ? (size_t)atol(argv[1]) : 0;
    if (self.size < 1 || self.size > LEN_MAX || rounds < 1 ||
        rounds > MAX_ROUNDS) {
        fprintf(stderr,
                "usage: floor SIZE (1 to %d) ROUNDS (1 to %d) CPU CPU\n",
                LEN_MAX, MAX_ROUNDS);
        return 2;
    }
    self.shared = mmap(NULL, sizeof(*self.shared), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (self.shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    child = fork();
    if (child < 0) {
        perror("fork");
        return 1;
    }
    self.is_first = child != 0;
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    pin(atoi(argv[self.is_first ? 3 : 4]));
    run(&self, rounds);
    if (fflush(stdout) != 0) {
        return 1;
    }
    if (child == 0) {
        channel_send(&self); /* the other one may end now */
        _exit(0);
    }
    channel_recv(&self);
    return (waitpid(child, &status, 0) == child && status == 0) ? 0 : 1;
}
