/* SPDX-License-Identifier: BSD-3-Clause */
/* python -m ucp run -n 4 ./alltoall
 * UCP_ROOT=127.0.0.1:18515 mpirun -n 4 ./alltoall
 *
 * Each rank has rank + r + 1 numbers for each rank r, and gets as many from it:
 * an all-to-all exchange whose counts differ. The ranks check what has come,
 * and rank 0 prints how many numbers were exchanged, and how long the fastest
 * exchange took. If a rank fails, the others name it and end.
 *
 * Rank and size come from UCP_RANK and UCP_SIZE, or from what torchrun, Open
 * MPI or MPICH set; UCP_ROOT is the numeric address and the port where rank 0
 * listens. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime() */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <umx/umx.h>

#define TIMEOUT_NS (UINT64_C(60) * 1000000000)
#define EXCHANGES 1000

/* Report a failure; the caller ends. */
static umx_status
failed(const char *what, umx_status status)
{
    fprintf(stderr, "alltoall: %s: %s\n", what, umx_status_string(status));
    return status;
}

/* The status of an operation that was just posted without `on_done`: wait for
 * it if it is in progress. */
static umx_status
finish(umx_status status, umx_request *req)
{
    if (status != UMX_INPROGRESS) {
        return status;
    }
    status = umx_request_wait(req, UMX_TIMEOUT_INFINITE);
    if (umx_request_status(req) != UMX_INPROGRESS) {
        umx_request_release(req);
    }
    return status;
}

/* ---- the environment -----------------------------------------------------
 */

static bool
read_number(const char *name, int *number_p)
{
    const char *text = getenv(name);
    char       *end;
    long        number;

    if (text == NULL) {
        return false;
    }
    number    = strtol(text, &end, 10);
    *number_p = (int)number;
    return end != text && *end == '\0' && number >= 0 && number <= INT32_MAX;
}

static bool
read_ranks(int *rank_p, int *size_p)
{
    static const char *const names[][2] = {
        {"UCP_RANK", "UCP_SIZE"},
        {"RANK", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (getenv(names[i][0]) != NULL) {
            return read_number(names[i][0], rank_p) &&
                   read_number(names[i][1], size_p);
        }
    }
    return false;
}

/* UCP_ROOT, as "127.0.0.1:18515". */
static bool
read_root(struct sockaddr_in *addr)
{
    const char *text  = getenv("UCP_ROOT");
    const char *colon = (text != NULL) ? strrchr(text, ':') : NULL;
    char        host[INET_ADDRSTRLEN];
    char       *end;
    long        port;

    if (colon == NULL || (size_t)(colon - text) >= sizeof(host)) {
        return false;
    }
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    port               = strtol(colon + 1, &end, 10);
    memset(addr, 0, sizeof(*addr));
    addr->sin_family = AF_INET;
    addr->sin_port   = htons((uint16_t)port);
    return *end == '\0' && port > 0 && port <= UINT16_MAX &&
           inet_pton(AF_INET, host, &addr->sin_addr) == 1;
}

/* ---- the exchange --------------------------------------------------------
 */

/* Number i of those that rank `from` has for rank `to`. */
static int64_t
value(int from, int to, size_t i)
{
    return ((int64_t)from << 40) + ((int64_t)to << 20) + (int64_t)i;
}

static size_t
count(int rank, int other)
{
    return (size_t)rank + (size_t)other + 1;
}

static void
fill(int64_t *numbers, int rank, int size)
{
    for (int to = 0; to < size; to++) {
        for (size_t i = 0; i < count(rank, to); i++) {
            *numbers++ = value(rank, to, i);
        }
    }
}

static bool
is_right(const int64_t *numbers, int rank, int size)
{
    for (int from = 0; from < size; from++) {
        for (size_t i = 0; i < count(from, rank); i++) {
            if (*numbers++ != value(from, rank, i)) {
                return false;
            }
        }
    }
    return true;
}

static double
now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* Exchange `total` numbers, many times; `counts` are the bytes of each piece,
 * and the fastest exchange has taken `*best_us`. */
static umx_status
exchange(umx_comm *comm, int64_t *ours, int64_t *theirs, size_t total,
         const size_t *counts, double *best_us)
{
    umx_pieces   pieces = {.counts = counts};
    umx_buffer   send   = umx_host_buffer(ours, total * sizeof(*ours));
    umx_buffer   recv   = umx_host_buffer(theirs, total * sizeof(*theirs));
    umx_request *req    = NULL;
    umx_status   status = UMX_OK;

    fill(ours, umx_comm_rank(comm), umx_comm_size(comm));
    for (int i = 0; status == UMX_OK && i < EXCHANGES; i++) {
        double begun = now_us(), us;

        status   = umx_alltoallv(comm, &send, &pieces, &recv, &pieces, NULL,
                                 &req);
        status   = finish(status, req);
        us       = now_us() - begun;
        *best_us = (i == 0 || us < *best_us) ? us : *best_us;
    }
    if (status == UMX_OK &&
        !is_right(theirs, umx_comm_rank(comm), umx_comm_size(comm))) {
        umx_comm_abort(comm, "what has come is wrong");
        status = UMX_ERR_RANK_FAILED;
    }
    return status;
}

/* The sum over all ranks. */
static umx_status
add_up(umx_comm *comm, int64_t *number)
{
    umx_reduction what = {UMX_INT64, UMX_SUM};
    umx_buffer    buf  = umx_host_buffer(number, sizeof(*number));
    umx_request  *req  = NULL;
    umx_status    status;

    status = umx_allreduce(comm, &what, UMX_IN_PLACE, &buf, NULL, &req);
    return finish(status, req);
}

static umx_status
run(umx_comm *comm)
{
    int        rank   = umx_comm_rank(comm);
    int        size   = umx_comm_size(comm);
    size_t     total  = 0;
    size_t    *counts = malloc((size_t)size * sizeof(*counts));
    int64_t   *ours = NULL, *theirs = NULL;
    int64_t    sum;
    double     best_us = 0;
    umx_status status  = UMX_ERR_NO_MEMORY;

    for (int r = 0; counts != NULL && r < size; r++) {
        counts[r] = count(rank, r) * sizeof(*ours);
        total += count(rank, r);
    }
    ours   = malloc(total * sizeof(*ours));
    theirs = malloc(total * sizeof(*theirs));
    sum    = (int64_t)total;
    if (counts != NULL && ours != NULL && theirs != NULL) {
        status = exchange(comm, ours, theirs, total, counts, &best_us);
    }
    if (status == UMX_OK) {
        status = add_up(comm, &sum);
    }
    if (status == UMX_OK && rank == 0) {
        printf("%d ranks have exchanged %lld numbers\n", size, (long long)sum);
        printf("an exchange takes %.1f us\n", best_us);
    } else if (status == UMX_ERR_RANK_FAILED) {
        fprintf(stderr, "alltoall: rank %d: %s\n", rank, umx_comm_reason(comm));
    } else if (status != UMX_OK) {
        failed("exchange", status);
    }
    free(counts);
    free(ours);
    free(theirs);
    return status;
}

/* ---- program -------------------------------------------------------------
 */

static umx_status
meet(umx_worker *worker, int rank, int size, const struct sockaddr_in *addr)
{
    umx_comm_params params = {
        .field_mask = UMX_COMM_FIELD_TIMEOUT,
        .rank       = rank,
        .size       = size,
        .addr       = (const struct sockaddr *)addr,
        .addr_len   = sizeof(*addr),
        .timeout_ns = TIMEOUT_NS,
    };
    umx_comm    *comm = NULL;
    umx_request *req  = NULL;
    umx_status   status;

    status = umx_comm_create(worker, &params, NULL, &comm, &req);
    status = finish(status, req);
    if (status == UMX_OK) {
        status = run(comm);
    } else {
        fprintf(stderr, "alltoall: rank %d: %s: %s\n", rank,
                umx_status_string(status),
                (comm != NULL) ? umx_comm_reason(comm) : "");
    }
    if (comm != NULL) {
        if (status == UMX_OK) {
            umx_comm_close(comm);
        }
        umx_comm_destroy(comm);
    }
    /* What is on its way to other ranks leaves before the process ends. */
    while (umx_worker_num_closing(worker) != 0 &&
           umx_worker_wait(worker, TIMEOUT_NS) == UMX_OK) {
    }
    return status;
}

int
main(void)
{
    struct sockaddr_in root;
    umx_context       *context;
    umx_worker        *worker;
    umx_status         status;
    int                rank, size;

    if (!read_ranks(&rank, &size) || !read_root(&root)) {
        fprintf(stderr,
                "alltoall: no rank, size or root in the environment: start it "
                "by python -m ucp run -n 4, or set UCP_RANK, UCP_SIZE and "
                "UCP_ROOT\n");
        return 2;
    }
    status = umx_context_create(NULL, &context, NULL);
    if (status != UMX_OK) {
        failed("context", status);
        return 1;
    }
    status = umx_worker_create(context, &worker);
    if (status == UMX_OK) {
        status = meet(worker, rank, size, &root);
        umx_worker_destroy(worker);
    } else {
        failed("worker", status);
    }
    umx_context_release(context);
    return (status == UMX_OK) ? 0 : 1;
}
