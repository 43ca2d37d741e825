/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings and proxies of two ranks on this host: the side of libumx of rings.py.
 *
 * rings PORT ROUNDS    start two processes, which meet at 127.0.0.1:PORT; print
 *                      lines "NAME NUMBER", the best of ROUNDS
 *
 * The producer has the first processor of rank 0, and its proxy the second.
 */
#define _GNU_SOURCE /* sched_setaffinity() */
#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <umx/umx.h>
#include <unistd.h>

enum {
    CAPACITY  = 1024,
    COMMANDS  = 1000000,
    LATENCIES = 2000,
    MEMORY    = 8 << 20
};

static umx_context *context;
static umx_worker  *worker;
static umx_comm    *comm;
static umx_proxy   *proxy;
static umx_region  *region;
static umx_memh    *memh;
static int          rank;

static void
check(umx_status status, const char *what)
{
    if (status != UMX_OK) {
        fprintf(stderr, "%s: %s\n", what, umx_status_string(status));
        exit(1);
    }
}

static double
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void
finish(umx_status status, umx_request *req, const char *what)
{
    if (status == UMX_INPROGRESS) {
        status = umx_request_wait(req, UMX_TIMEOUT_INFINITE);
        umx_request_release(req);
    }
    check(status, what);
}

static void
pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static void
barrier(void)
{
    umx_request *req = NULL;
    umx_status   s   = umx_barrier(comm, NULL, &req);

    finish(s, req, "barrier");
}

static void
setup(int port)
{
    struct sockaddr_in addr   = {.sin_family      = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port        = htons((uint16_t)port)};
    umx_comm_params    params = {.rank     = rank,
                                 .size     = 2,
                                 .addr     = (struct sockaddr *)&addr,
                                 .addr_len = sizeof(addr)};
    umx_proxy_params   how    = {.field_mask = UMX_PROXY_FIELD_CPU, .cpu = 1};
    umx_request       *req    = NULL;
    unsigned           number;
    umx_status         s;

    check(umx_context_create(NULL, &context, NULL), "context");
    check(umx_worker_create(context, &worker), "worker");
    s = umx_comm_create(worker, &params, NULL, &comm, &req);
    finish(s, req, "communicator");
    s = umx_proxy_create(comm, &how, NULL, &proxy, &req);
    finish(s, req, "proxy");
    check(umx_memh_alloc(context, MEMORY, &memh), "memory");
    memset(umx_memh_buffer(memh)->data, rank + 1, MEMORY);
    s = umx_proxy_add_region(proxy, memh, NULL, NULL, &number, &req);
    finish(s, req, "region of the proxy");
    s = umx_region_create(comm, memh, NULL, 0, NULL, &region, &req);
    finish(s, req, "region");
    pin(0);
    barrier();
}

/* ---- rates ---------------------------------------------------------------
 */

static umx_proxy_ring *
make_ring(umx_ring_u32 kind)
{
    umx_proxy_ring_params params = {.field_mask = UMX_PROXY_RING_FIELD_KIND,
                                    .capacity   = CAPACITY,
                                    .kind       = kind};
    umx_proxy_ring       *ring;

    check(umx_proxy_ring_create(proxy, &params, &ring), "ring");
    return ring;
}

/* Nanoseconds of a command, each written alone. */
static double
rate(umx_ring_producer *producer, umx_ring_command command)
{
    double begin = now();

    for (int i = 0; i < COMMANDS; i++) {
        if (umx_ring_push(producer, &command, 1) != 0) {
            exit(1);
        }
    }
    if (umx_ring_wait(&producer->ring, producer->head - 1) != 0) {
        exit(1);
    }
    return (now() - begin) / COMMANDS * 1e9;
}

/* ---- latency -------------------------------------------------------------
 */

static int
compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

static double
median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[count / 2];
}

/* Seconds until a command is seen to be retired. */
static double
until_retired(umx_ring_producer *producer, umx_ring_command command, int count)
{
    static double all[LATENCIES];

    for (int i = 0; i < count; i++) {
        double begin = now();

        if (umx_ring_push(producer, &command, 1) != 0 ||
            umx_ring_wait(&producer->ring, producer->head - 1) != 0) {
            exit(1);
        }
        all[i] = now() - begin;
    }
    return median(all, count);
}

/* Seconds of a put without a proxy. */
static double
direct(size_t bytes, int count)
{
    static double all[LATENCIES];
    umx_rma_item  item = {
         .buf = umx_host_buffer(umx_memh_buffer(memh)->data, bytes)};

    for (int i = 0; i < count; i++) {
        umx_request *req   = NULL;
        double       begin = now();
        umx_status   s = umx_rma_put(umx_region_rkey(region, 1), &item, NULL,
                                     &req);

        finish(s, req, "put");
        all[i] = now() - begin;
    }
    return median(all, count);
}

static void
keep_best(double *best, double value)
{
    if (*best == 0 || value < *best) {
        *best = value;
    }
}

static void
measure_latency(umx_ring_producer *producer, int rounds)
{
    static const unsigned sizes[] = {8, 7168, 65536, 262144, 1 << 20};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        int    count = (sizes[i] > 65536) ? LATENCIES / 10 : LATENCIES;
        double put = 0, alone = 0, nop = 0;

        for (int round = 0; round < rounds; round++) {
            keep_best(&alone, direct(sizes[i], count));
            keep_best(&put,
                      until_retired(producer,
                                    umx_ring_put(1, 0, sizes[i], 0, 0), count));
            keep_best(&nop, until_retired(producer, umx_ring_nop(), count));
        }
        printf("direct_%u %.1f\n", sizes[i], alone * 1e9);
        printf("retired_%u %.1f\n", sizes[i], put * 1e9);
        printf("nop_%u %.1f\n", sizes[i], nop * 1e9);
    }
}

/* ---- idleness ------------------------------------------------------------
 */

/* The share of a processor that this process uses while nothing comes. */
static double
idle_share(void)
{
    struct rusage before, after;

    usleep(1000000);
    (void)getrusage(RUSAGE_SELF, &before);
    usleep(1000000);
    (void)getrusage(RUSAGE_SELF, &after);
    return (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                    after.ru_stime.tv_usec - before.ru_stime.tv_usec) /
               1e6 +
           (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec +
                    after.ru_stime.tv_sec - before.ru_stime.tv_sec);
}

static void
measure(int rounds)
{
    umx_proxy_ring *one = make_ring(0), *several = make_ring(UMX_RING_SEVERAL);
    umx_ring_producer alone, among;
    double            nop = 0, reserved = 0, put = 0, signalled = 0;

    umx_ring_producer_init(&alone, umx_proxy_ring_get(one));
    umx_ring_producer_init(&among, umx_proxy_ring_get(several));
    for (int round = 0; round < rounds; round++) {
        keep_best(&nop, rate(&alone, umx_ring_nop()));
        keep_best(&reserved, rate(&among, umx_ring_nop()));
        keep_best(&put, rate(&alone, umx_ring_put(1, 0, 8, 0, 0)));
        keep_best(&signalled, rate(&alone, umx_ring_signal(1, 0, 0, 1, 0)));
    }
    printf("one_producer %.2f\nreserved %.2f\n", nop, reserved);
    printf("put_8 %.2f\nsignal %.2f\n", put, signalled);
    measure_latency(&alone, rounds);
    printf("idle_share %.4f\n", idle_share());
    (void)fflush(stdout);
    umx_proxy_ring_destroy(one);
    umx_proxy_ring_destroy(several);
}

int
main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: rings PORT ROUNDS\n");
        return 1;
    }
    rank = (fork() == 0) ? 1 : 0;
    setup(atoi(argv[1]));
    if (rank == 0) {
        measure(atoi(argv[2]));
    }
    barrier();
    umx_proxy_destroy(proxy);
    umx_region_destroy(region);
    umx_memh_release(memh);
    umx_comm_close(comm);
    umx_comm_destroy(comm);
    umx_worker_destroy(worker);
    umx_context_release(context);
    return 0;
}
