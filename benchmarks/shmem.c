/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A symmetric heap of two ranks on this host: the side of libumx in C of
 * shmem.py. Prints a line "NAME SECONDS" for each row, the best of ROUNDS.
 *
 * shmem PORT ROUNDS
 *
 * Each rank stays on a processor of its own. Rank 1 looks at its memory, or
 * waits in a barrier, while rank 0 puts. fenced: as if rank 1 had not promised
 * to begin its waits with a membarrier.
 */
#define _GNU_SOURCE /* sched_setaffinity() */
#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <umx/shmem_direct.h>
#include <umx/umx.h>
#include <unistd.h>

enum {
    SIZE  = 64 << 20,
    CALLS = 1000000,
    TRIPS = 20000,
    LARGE = 16 << 20
};

static int              rank;
static umx_context     *context;
static umx_worker      *worker;
static umx_comm        *comm;
static umx_shmem       *shmem;
static umx_shmem_direct direct;
static umx_shmem_direct fenced;
static umx_shmem_pe     fenced_pes[2];
static char            *base;
static uint64_t         trips; /* of all rounds */

static void
check(umx_status status, const char *what)
{
    if (status != UMX_OK) {
        (void)fprintf(stderr, "%s: %s: %s\n", what, umx_status_string(status),
                      (comm != NULL) ? umx_comm_reason(comm) : "");
        exit(1);
    }
}

static double
now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void
barrier(void)
{
    umx_request *req    = NULL;
    umx_status   status = umx_shmem_barrier(shmem, NULL, &req);

    check(umx_shmem_finish(status, req), "barrier");
}

static void
meet(uint16_t port)
{
    struct sockaddr_in addr   = {.sin_family      = AF_INET,
                                 .sin_port        = htons(port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    umx_comm_params    params = {.rank     = rank,
                                 .size     = 2,
                                 .addr     = (struct sockaddr *)&addr,
                                 .addr_len = sizeof(addr)};
    umx_request       *req    = NULL;
    umx_status         status;

    check(umx_context_create(NULL, &context, NULL), "context");
    check(umx_worker_create(context, &worker), "worker");
    status = umx_comm_create(worker, &params, NULL, &comm, &req);
    check(umx_shmem_finish(status, req), "communicator");
    status = umx_shmem_create(comm, SIZE, NULL, &shmem, &req);
    check(umx_shmem_finish(status, req), "heap");
    direct = fenced = umx_shmem_direct_of(shmem);
    if (direct.pes == NULL || direct.pes[1 - rank].base == NULL) {
        (void)fprintf(stderr, "the memory is not mapped\n");
        exit(1);
    }
    memcpy(fenced_pes, direct.pes, sizeof(fenced_pes));
    fenced_pes[0].is_ordered = fenced_pes[1].is_ordered = false;
    fenced.pes                                          = fenced_pes;
    base                                                = direct.base;
}

/* ---- rows: seconds of one, on rank 0 -------------------------------------
 */

/* Define a row that makes `call` again and again; `i` counts. */
#define DEFINE_ROW(name, call)                 \
    static double name(void)                   \
    {                                          \
        uint64_t     value = 1;                \
        umx_request *req   = NULL;             \
        double       start = now();            \
                                               \
        (void)req;                             \
        for (uint64_t i = 0; i < CALLS; i++) { \
            value = i;                         \
            check(call, #name);                \
        }                                      \
        return (now() - start) / CALLS;        \
    }

#define X ((uint64_t *)(void *)(base + 4096))
#define SIGNAL ((uint64_t *)(void *)(base + 8192))

DEFINE_ROW(put_fenced, umx_shmem_direct_put(&fenced, X, &value, 8, 1))
DEFINE_ROW(put_ordered, umx_shmem_direct_put(&direct, X, &value, 8, 1))
DEFINE_ROW(put_call, umx_shmem_put(shmem, X, &value, 8, 1, NULL, &req))
DEFINE_ROW(signal_fenced,
           umx_shmem_direct_put_signal(&fenced, X, &value, 8, SIGNAL, i,
                                       UMX_ATOMIC_SWAP, 1))
DEFINE_ROW(signal_ordered,
           umx_shmem_direct_put_signal(&direct, X, &value, 8, SIGNAL, i,
                                       UMX_ATOMIC_SWAP, 1))
DEFINE_ROW(signal_call, umx_shmem_put_signal(shmem, X, &value, 8, SIGNAL, i,
                                             UMX_ATOMIC_SWAP, 1, NULL, &req))
DEFINE_ROW(add_ordered, umx_shmem_direct_add64(&direct, X, value, 1))

static double
get_large(void)
{
    static char *buffer;
    double       best = 1e9;

    if (buffer == NULL) {
        buffer = aligned_alloc(4096, LARGE);
        memset(buffer, 1, LARGE);
    }
    for (int i = 0; i < 5; i++) {
        umx_request *req   = NULL;
        double       start = now(), end;
        umx_status   status;

        status = umx_shmem_get(shmem, buffer, base, LARGE, 1, NULL, &req);
        check(umx_shmem_finish(status, req), "get");
        end  = now() - start;
        best = (end < best) ? end : best;
    }
    return best;
}

/* Half of a round trip of put_signal and wait; of both ranks. */
static double
half_trip(void)
{
    uint64_t *number = (uint64_t *)(void *)(base + 65536);
    double    start  = now();

    for (int i = 0; i < TRIPS; i++) {
        uint64_t value = ++trips;

        if (rank == 1) {
            check(umx_shmem_direct_wait_ge(&direct, number, value), "wait");
        }
        check(umx_shmem_direct_put_signal(&direct, X, &value, 8, number, value,
                                          UMX_ATOMIC_SWAP, 1 - rank),
              "put_signal");
        if (rank == 0) {
            check(umx_shmem_direct_wait_ge(&direct, number, value), "wait");
        }
    }
    return (now() - start) / TRIPS / 2;
}

typedef struct row {
    const char *name;
    double (*run)(void);
    bool   is_of_both;
    double best;
} row;

static row rows[] = {
    {"put_fenced", put_fenced, false, 1e9},
    {"put_ordered", put_ordered, false, 1e9},
    {"put_call", put_call, false, 1e9},
    {"signal_fenced", signal_fenced, false, 1e9},
    {"signal_ordered", signal_ordered, false, 1e9},
    {"signal_call", signal_call, false, 1e9},
    {"add", add_ordered, false, 1e9},
    {"half_trip", half_trip, true, 1e9},
    {"get_16_MiB", get_large, false, 1e9},
};

static void
leave(void)
{
    barrier();
    umx_shmem_destroy(shmem);
    umx_comm_close(comm);
    umx_comm_destroy(comm);
    umx_worker_destroy(worker);
    umx_context_release(context);
}

int
main(int argc, char **argv)
{
    int       rounds = (argc > 2) ? atoi(argv[2]) : 5;
    pid_t     child  = fork();
    cpu_set_t cpus;

    rank = (child == 0) ? 1 : 0;
    CPU_ZERO(&cpus);
    CPU_SET(rank, &cpus);
    (void)sched_setaffinity(0, sizeof(cpus), &cpus);
    meet((uint16_t)atoi(argv[1]));
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            double seconds = 1e9;

            barrier();
            if (rank == 0 || rows[i].is_of_both) {
                seconds = rows[i].run();
            }
            rows[i].best = (seconds < rows[i].best) ? seconds : rows[i].best;
        }
    }
    leave();
    if (rank == 1) {
        return 0;
    }
    (void)waitpid(child, NULL, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)printf("%s %.3e\n", rows[i].name, rows[i].best);
    }
    return 0;
}
