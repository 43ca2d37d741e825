/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective operations of ranks on this host: the side of libumx of
 * collectives.py.
 *
 * collectives PORT RANKS    start RANKS processes, which meet at
 *                           127.0.0.1:PORT; then for each line "OPERATION BYTES
 *                           memory|user TIMES" of standard input have all do it
 *                           TIMES times, and print seconds of one, on rank 0
 *
 * BYTES: of alltoall and allgather what a rank sends to each other; of the
 * others what each has. Each rank stays on one processor. memory: of
 * umx_memh_alloc(); user: of malloc(). The line "explain" prints which way the
 * messages of rank 0 take.
 */
#define _GNU_SOURCE /* sched_setaffinity() */
#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <umx/umx.h>
#include <unistd.h>

enum {
    MAX_RANKS = 64,
    LINE_SIZE = 128, /* of a command */
    PAGE      = 4096,
    HUGE_MIN  = 4 * 1024 * 1024 /* bytes; as NumPy does */
};

typedef struct side {
    umx_memh  *memh; /* NULL: of malloc() */
    umx_buffer buf;
} side;

static int          num_ranks;
static umx_context *context;
static umx_worker  *worker;
static umx_comm    *comm;

static void
check(umx_status status, const char *what)
{
    if (status != UMX_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, umx_status_string(status),
                (comm != NULL) ? umx_comm_reason(comm) : "");
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

/* What posted; waits for it. */
static void
finish(umx_status status, umx_request **req_p)
{
    if (status == UMX_INPROGRESS) {
        status = umx_request_wait(*req_p, UMX_TIMEOUT_INFINITE);
        umx_request_release(*req_p);
    }
    check(status, "operation");
}

static void
allocate(side *s, size_t len, const char *kind)
{
    s->memh = NULL;
    if (strcmp(kind, "memory") == 0) {
        check(umx_memh_alloc(context, len, &s->memh), "memory");
        s->buf      = *umx_memh_buffer(s->memh);
        s->buf.memh = s->memh;
    } else {
        void *data = aligned_alloc(PAGE, (len + PAGE - 1) / PAGE * PAGE);

        if (data == NULL) {
            check(UMX_ERR_NO_MEMORY, "memory");
        }
        if (len >= HUGE_MIN) {
            (void)madvise(data, len, MADV_HUGEPAGE);
        }
        s->buf = umx_host_buffer(data, len);
    }
    memset(s->buf.data, 0, len);
}

static void
give_back(side *s)
{
    if (s->memh != NULL) {
        umx_memh_release(s->memh);
    } else {
        free(s->buf.data);
    }
}

static void
barrier(void)
{
    umx_request *req;

    finish(umx_barrier(comm, NULL, &req), &req);
}

static void
run(const char *name, const side *send, const side *recv,
    const umx_pieces *pieces)
{
    static const umx_reduction sum = {UMX_FLOAT64, UMX_SUM};

    umx_request *req;
    umx_status   status = UMX_ERR_UNSUPPORTED;

    if (strcmp(name, "barrier") == 0) {
        status = umx_barrier(comm, NULL, &req);
    } else if (strcmp(name, "bcast") == 0) {
        status = umx_bcast(comm, 0, &send->buf, NULL, &req);
    } else if (strcmp(name, "allgather") == 0) {
        status = umx_allgatherv(comm, &send->buf, &recv->buf, pieces, NULL,
                                &req);
    } else if (strcmp(name, "alltoall") == 0) {
        status = umx_alltoallv(comm, &send->buf, pieces, &recv->buf, pieces,
                               NULL, &req);
    } else if (strcmp(name, "allreduce") == 0) {
        status = umx_allreduce(comm, &sum, &send->buf, &recv->buf, NULL, &req);
    }
    finish(status, &req);
}

static double
measure(const char *name, size_t len, const char *kind, int times)
{
    size_t     counts[MAX_RANKS];
    umx_pieces pieces  = {.counts = counts};
    size_t     ranks   = (size_t)num_ranks;
    bool       is_all  = strcmp(name, "alltoall") == 0;
    bool       is_many = is_all || strcmp(name, "allgather") == 0;
    side       send, recv;
    double     start, took;

    for (size_t i = 0; i < ranks; i++) {
        counts[i] = (is_all && i == (size_t)umx_comm_rank(comm)) ? 0 : len;
    }
    allocate(&send, is_all ? len * ranks : len, kind);
    allocate(&recv, is_many ? len * ranks : len, kind);
    run(name, &send, &recv, &pieces);
    run(name, &send, &recv, &pieces);
    barrier();
    start = now();
    for (int i = 0; i < times; i++) {
        run(name, &send, &recv, &pieces);
    }
    took = (now() - start) / times;
    barrier();
    give_back(&send);
    give_back(&recv);
    return took;
}

static void
explain(void)
{
    char text[256];

    for (int rank = 0; rank < num_ranks; rank++) {
        (void)umx_comm_explain(comm, rank, text, sizeof(text));
        printf("rank %d: %s\n", rank, text);
    }
    printf("\n");
}

/* Ranks in turn to the processors: the system moves them together and apart
 * otherwise, in the middle of a round. */
static void
pin(int rank)
{
    cpu_set_t all, one;
    int       skip;

    if (sched_getaffinity(0, sizeof(all), &all) != 0) {
        return;
    }
    skip = rank % CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && skip-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof(one), &one);
            return;
        }
    }
}

static void
serve(int rank, int port, FILE *commands)
{
    struct sockaddr_in addr   = {.sin_family      = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port        = htons((uint16_t)port)};
    umx_comm_params    params = {.rank     = rank,
                                 .size     = num_ranks,
                                 .addr     = (struct sockaddr *)&addr,
                                 .addr_len = sizeof(addr)};
    char               line[LINE_SIZE], name[16], kind[16];
    umx_request       *req;
    size_t             len;
    int                times;

    pin(rank);
    check(umx_context_create(NULL, &context, NULL), "context");
    check(umx_worker_create(context, &worker), "worker");
    finish(umx_comm_create(worker, &params, NULL, &comm, &req), &req);
    barrier();
    barrier();
    while (fgets(line, sizeof(line), commands) != NULL) {
        if (sscanf(line, "%15s %zu %15s %d", name, &len, kind, &times) == 4) {
            double took = measure(name, len, kind, times);

            if (rank == 0) {
                printf("%.9f\n", took);
            }
        } else if (rank == 0) {
            explain();
        }
        fflush(stdout);
    }
    barrier();
    umx_comm_close(comm);
    umx_comm_destroy(comm);
    umx_worker_destroy(worker);
    umx_context_release(context);
}

int
main(int argc, char **argv)
{
    FILE *pipes[MAX_RANKS];
    char  line[LINE_SIZE];
    int   status, failed = 0;

    if (argc != 3 || (num_ranks = atoi(argv[2])) < 1 || num_ranks > MAX_RANKS) {
        fprintf(stderr, "usage: collectives PORT RANKS\n");
        return 2;
    }
    for (int rank = 0; rank < num_ranks; rank++) {
        int fds[2];

        if (pipe(fds) != 0) {
            return 1;
        }
        if (fork() == 0) {
            for (int i = 0; i < rank; i++) {
                fclose(pipes[i]);
            }
            close(fds[1]);
            serve(rank, atoi(argv[1]), fdopen(fds[0], "r"));
            return 0;
        }
        close(fds[0]);
        pipes[rank] = fdopen(fds[1], "w");
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        for (int rank = 0; rank < num_ranks; rank++) {
            fputs(line, pipes[rank]);
            fflush(pipes[rank]);
        }
    }
    for (int rank = 0; rank < num_ranks; rank++) {
        fclose(pipes[rank]);
    }
    while (wait(&status) > 0) {
        failed |= status;
    }
    return failed != 0;
}
