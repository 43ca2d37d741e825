/* SPDX-License-Identifier: BSD-3-Clause */
/* link: child port */
/* Collective operations between processes of this host, which are killed and
 * stopped in the middle. */
#include "child.h"
#include "port.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <umx/umx.h>

enum {
    RANKS     = 3,
    WARM_UP   = 8,       /* operations before a rank says that it runs */
    MAX_PIECE = 1200000, /* more than half of a ring: it is lent */
    ROUNDS    = 4,
    PAUSES    = 20,
    PAUSE_MS  = 20,
    BEAT_NS   = 1000000000
};

static umx_context *context;
static umx_worker  *worker;
static umx_comm    *comm;

/* ---- a rank --------------------------------------------------------------
 */

/* In a child there is no test that could fail. */
static void
must(bool is_true, const char *what)
{
    if (!is_true) {
        (void)fprintf(stderr, "%s: %s\n", what,
                      (comm != NULL) ? umx_comm_reason(comm) : "");
        abort();
    }
}

#define MUST(condition) must(condition, #condition)

static umx_status
finish(umx_status status, umx_request **req_p)
{
    if (status == UMX_INPROGRESS) {
        status = umx_request_wait(*req_p, UMX_TIMEOUT_INFINITE);
        umx_request_release(*req_p);
    }
    return status;
}

static void
join(int rank, uint16_t port, uint64_t heartbeat_ns)
{
    struct sockaddr_in addr   = {.sin_family      = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port        = htons(port)};
    umx_comm_params    params = {.field_mask   = UMX_COMM_FIELD_HEARTBEAT,
                                 .rank         = rank,
                                 .size         = RANKS,
                                 .addr         = (struct sockaddr *)&addr,
                                 .addr_len     = sizeof(addr),
                                 .heartbeat_ns = heartbeat_ns};
    umx_request       *req;

    MUST(umx_context_create(NULL, &context, NULL) == UMX_OK);
    MUST(umx_worker_create(context, &worker) == UMX_OK);
    MUST(finish(umx_comm_create(worker, &params, NULL, &comm, &req), &req) ==
         UMX_OK);
}

static unsigned char
byte_of(int from, int to, unsigned round)
{
    return (unsigned char)(from * 37 + to * 11 + (int)round);
}

/* In a Memory, or not. */
static umx_memh *
make_buffer(umx_buffer *buf, size_t len, bool is_memory)
{
    umx_memh *memh = NULL;

    if (is_memory) {
        MUST(umx_memh_alloc(context, len, &memh) == UMX_OK);
        *buf      = *umx_memh_buffer(memh);
        buf->memh = memh;
    } else {
        *buf = umx_host_buffer(malloc(len), len);
        MUST(buf->data != NULL);
    }
    return memh;
}

static void
end_buffer(const umx_buffer *buf, umx_memh *memh)
{
    if (memh != NULL) {
        umx_memh_release(memh);
    } else {
        free(buf->data);
    }
}

/* Every rank sends every other as many bytes: through the inbox, by loans and
 * from Memory by turns. */
static umx_status
exchange(int rank, unsigned round)
{
    static const size_t sizes[] = {300, 20000, 100000, MAX_PIECE};

    size_t       len = sizes[round / 2 % 4];
    size_t       counts[RANKS];
    umx_pieces   pieces = {.counts = counts};
    umx_buffer   send, recv;
    umx_memh    *out       = make_buffer(&send, RANKS * len, round % 2 == 0);
    umx_memh    *in        = make_buffer(&recv, RANKS * len, round % 3 == 0);
    size_t       num_wrong = 0;
    umx_request *req;
    umx_status   status;

    for (int i = 0; i < RANKS; i++) {
        counts[i] = len;
        memset((char *)send.data + (size_t)i * len, byte_of(rank, i, round),
               len);
    }
    status = finish(
        umx_alltoallv(comm, &send, &pieces, &recv, &pieces, NULL, &req), &req);
    for (size_t i = 0; i < RANKS * len && status == UMX_OK; i++) {
        num_wrong += ((unsigned char *)recv.data)[i] !=
                     byte_of((int)(i / len), rank, round);
    }
    MUST(num_wrong == 0);
    end_buffer(&send, out);
    end_buffer(&recv, in);
    return status;
}

static void
leave(void)
{
    umx_comm_close(comm);
    umx_comm_destroy(comm);
    umx_worker_destroy(worker);
    umx_context_release(context);
}

/* Exchange until that fails, and say whose fault it was. */
static int
be_rank(const char *arg)
{
    umx_comm_failure failure = {.rank = -2};
    umx_status       status  = UMX_OK;
    int              rank;
    unsigned         port;
    char             ready = 1;

    MUST(sscanf(arg, "%d %u", &rank, &port) == 2);
    join(rank, (uint16_t)port, BEAT_NS);
    for (unsigned round = 0; status == UMX_OK; round++) {
        status = exchange(rank, round);
        if (round == WARM_UP) {
            child_write(CHILD_OUT, &ready, sizeof(ready));
        }
    }
    MUST(status == UMX_ERR_RANK_FAILED);
    MUST(umx_comm_get_failure(comm, &failure));
    child_write(CHILD_OUT, &failure.rank, sizeof(failure.rank));
    leave();
    return 0;
}

/* The loans of the rank that has lent least. */
static uint64_t
least_loans(void)
{
    umx_worker_stats stats;
    umx_reduction    what = {UMX_UINT64, UMX_MIN};
    umx_buffer       buf;
    umx_request     *req;

    umx_worker_query(worker, &stats);
    buf = umx_host_buffer(&stats.loans, sizeof(stats.loans));
    MUST(finish(umx_allreduce(comm, &what, UMX_IN_PLACE, &buf, NULL, &req),
                &req) == UMX_OK);
    return stats.loans;
}

/* Exchange many times, until every rank has lent, and leave. Loans are agreed
 * on over sockets, which a rank looks at now and then. */
static int
be_well(const char *arg)
{
    int          rank;
    unsigned     port, round = 0;
    umx_request *req;

    MUST(sscanf(arg, "%d %u", &rank, &port) == 2);
    join(rank, (uint16_t)port, BEAT_NS);
    do {
        for (int i = 0; i < 200; i++) {
            MUST(exchange(rank, round++) == UMX_OK);
        }
    } while (least_loans() == 0);
    MUST(finish(umx_barrier(comm, NULL, &req), &req) == UMX_OK);
    leave();
    return 0;
}

/* Rank 0 sleeps until the others come, each time: write how long it took in
 * all, and how much of that the processor worked. */
static int
be_late(const char *arg)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};

    int             rank;
    unsigned        port;
    double          took[2] = {0};
    umx_request    *req;
    struct timespec start, cpu_start, end, cpu_end;

    MUST(sscanf(arg, "%d %u", &rank, &port) == 2);
    join(rank, (uint16_t)port, 0);
    for (unsigned round = 0; round < WARM_UP; round++) {
        MUST(exchange(rank, round) == UMX_OK);
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_start);
    for (int i = 0; i < PAUSES; i++) {
        if (rank != 0) {
            (void)nanosleep(&pause, NULL);
        }
        MUST(finish(umx_barrier(comm, NULL, &req), &req) == UMX_OK);
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_end);
    took[0] = (double)(end.tv_sec - start.tv_sec) +
              1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    took[1] = (double)(cpu_end.tv_sec - cpu_start.tv_sec) +
              1e-9 * (double)(cpu_end.tv_nsec - cpu_start.tv_nsec);
    child_write(CHILD_OUT, took, sizeof(took));
    leave();
    return 0;
}

/* ---- the test ------------------------------------------------------------
 */

static void
start(child *children, const char *role)
{
    unsigned port = port_choose();
    char     arg[32];

    for (int rank = 0; rank < RANKS; rank++) {
        (void)snprintf(arg, sizeof(arg), "%d %u", rank, port);
        children[rank] = child_start(role, arg);
    }
}

static void
wait_until_all_run(child *children)
{
    char ready;

    for (int rank = 0; rank < RANKS; rank++) {
        child_read(children[rank].in, &ready, sizeof(ready));
    }
}

static void
expect_culprit(child *c, int culprit)
{
    int rank;

    child_read(c->in, &rank, sizeof(rank));
    assert_int_equal(rank, culprit);
    assert_int_equal(child_end(c, 0), 0);
}

static void
test_all_ways(void **state)
{
    child children[RANKS];

    (void)state;
    start(children, "well");
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(child_end(&children[rank], 0), 0);
    }
}

/* A rank that is not woken looks twice a second, to say what it waits in. */
static void
test_a_sleeping_rank_is_woken(void **state)
{
    child  children[RANKS];
    double took[RANKS][2];

    (void)state;
    start(children, "late");
    for (int rank = 0; rank < RANKS; rank++) {
        child_read(children[rank].in, took[rank], sizeof(took[rank]));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(child_end(&children[rank], 0), 0);
    }
    assert_true(took[0][0] < 0.25 * PAUSES);
    assert_true(took[0][1] < took[0][0] / 2);
}

static void
test_a_rank_is_killed(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        for (int victim = 0; victim < RANKS; victim++) {
            child children[RANKS];

            start(children, "rank");
            wait_until_all_run(children);
            (void)child_end(&children[victim], SIGKILL);
            for (int rank = 0; rank < RANKS; rank++) {
                if (rank != victim) {
                    expect_culprit(&children[rank], victim);
                }
            }
        }
    }
}

/* One that goes on finds itself revoked. */
static void
test_a_rank_is_stopped(void **state)
{
    (void)state;
    for (int victim = 0; victim < RANKS; victim++) {
        child children[RANKS];

        start(children, "rank");
        wait_until_all_run(children);
        assert_int_equal(kill(children[victim].pid, SIGSTOP), 0);
        for (int rank = 0; rank < RANKS; rank++) {
            if (rank != victim) {
                expect_culprit(&children[rank], victim);
            }
        }
        assert_int_equal(kill(children[victim].pid, SIGCONT), 0);
        assert_int_equal(child_end(&children[victim], 0), 0);
    }
}

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {
        {"rank", be_rank}, {"well", be_well}, {"late", be_late}};
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ways),
        cmocka_unit_test(test_a_sleeping_rank_is_woken),
        cmocka_unit_test(test_a_rank_is_killed),
        cmocka_unit_test(test_a_rank_is_stopped),
    };

    child_role(argc, argv, entries, 3);
    return UNIT_RUN(tests);
}
