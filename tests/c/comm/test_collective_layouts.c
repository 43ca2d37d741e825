/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* tests: comm/alltoall comm/alltoall_buffers comm/collective_calls */
/* tests: comm/collective_move comm/collective_rounds comm/reduce */
/* Collective operations on buffers with layouts. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum {
    RANKS = 3,
    COUNT = 9000, /* numbers of a rank's part: more than go whole */
    ROOT  = 1
};

/* Numbers with a gap behind each, which has GAP in it. */
typedef struct sparse {
    double    *data;
    size_t     count;
    umx_layout layout;
    umx_buffer buf;
} sparse;

#define GAP (-5.0)

static void
sparse_init(sparse *s, size_t count, double fill)
{
    umx_dim dim = {.count = count, .stride = 2 * sizeof(double)};
    size_t  len;

    s->count = count;
    s->data  = malloc(2 * count * sizeof(double));
    for (size_t i = 0; i < count; i++) {
        s->data[2 * i]     = fill;
        s->data[2 * i + 1] = GAP;
    }
    assert_int_equal(umx_layout_init(&s->layout, sizeof(double), 1, &dim, &len),
                     UMX_OK);
    assert_int_equal(len, count * sizeof(double));
    s->buf        = umx_host_buffer(s->data, len);
    s->buf.layout = &s->layout;
}

/* Check `count` numbers from `first` on, and the gaps behind them. */
static void
sparse_check(const sparse *s, size_t first, size_t count, double expected)
{
    assert_true(first + count <= s->count);
    for (size_t i = first; i < first + count; i++) {
        assert_true(s->data[2 * i] == expected);
        assert_true(s->data[2 * i + 1] == GAP);
    }
}

/* What each rank sends and receives: `part` numbers for each rank, or `all`. */
typedef struct sides {
    sparse        send[RANKS];
    sparse        recv[RANKS];
    size_t        counts[RANKS];
    umx_pieces    pieces;
    job           jobs[RANKS];
    umx_op_params params;
    umx_request  *req;
} sides;

static void
sides_init(sides *s, size_t num_sent, size_t num_received)
{
    for (int r = 0; r < RANKS; r++) {
        sparse_init(&s->send[r], num_sent, r + 1);
        sparse_init(&s->recv[r], num_received, 0);
        s->counts[r] = COUNT * sizeof(double);
    }
    s->pieces = (umx_pieces){.counts = s->counts};
}

static void
sides_fini(sides *s)
{
    for (int r = 0; r < RANKS; r++) {
        free(s->send[r].data);
        free(s->recv[r].data);
    }
}

/* What an operation is called with on one rank. */
static void
begin(sides *s, int rank)
{
    s->params = job_params(&s->jobs[rank]);
    s->req    = NULL;
}

static void
posted(sides *s, int rank, umx_status status)
{
    job_posted(&s->jobs[rank], status, &s->req);
}

static void
test_bcast(void **state)
{
    world *w = *state;
    sides  s;

    world_open(w, RANKS);
    sides_init(&s, COUNT, COUNT);
    for (int r = 0; r < RANKS; r++) {
        begin(&s, r);
        posted(&s, r,
               umx_bcast(w->comms[r], ROOT,
                         (r == ROOT) ? &s.send[r].buf : &s.recv[r].buf,
                         &s.params, &s.req));
    }
    world_wait(w, s.jobs, RANKS, UMX_OK);
    for (int r = 0; r < RANKS; r++) {
        sparse_check(&s.recv[r], 0, COUNT, (r == ROOT) ? 0 : ROOT + 1);
    }
    sides_fini(&s);
}

/* `to_all`: allgatherv. The root has its own piece in place. */
static void
run_gather(world *w, bool to_all)
{
    sides s;

    sides_init(&s, COUNT, RANKS * COUNT);
    for (int i = 0; i < COUNT; i++) {
        s.recv[ROOT].data[2 * (ROOT * COUNT + i)] = ROOT + 1;
    }
    for (int r = 0; r < RANKS; r++) {
        const umx_buffer *send = (r == ROOT) ? UMX_IN_PLACE : &s.send[r].buf;

        begin(&s, r);
        posted(&s, r,
               to_all ? umx_allgatherv(w->comms[r], send, &s.recv[r].buf,
                                       &s.pieces, &s.params, &s.req) :
                        umx_gatherv(w->comms[r], ROOT, send,
                                    (r == ROOT) ? &s.recv[r].buf : NULL,
                                    &s.pieces, &s.params, &s.req));
    }
    world_wait(w, s.jobs, RANKS, UMX_OK);
    for (int r = 0; r < RANKS; r++) {
        bool gets = to_all || r == ROOT;

        for (int from = 0; from < RANKS; from++) {
            sparse_check(&s.recv[r], (size_t)from * COUNT, COUNT,
                         gets ? from + 1 : 0);
        }
    }
    sides_fini(&s);
}

static void
test_gather(void **state)
{
    world *w = *state;

    world_open(w, RANKS);
    run_gather(w, false);
    run_gather(w, true);
}

static void
test_scatter(void **state)
{
    world *w = *state;
    sides  s;

    world_open(w, RANKS);
    sides_init(&s, RANKS * COUNT, COUNT);
    for (int r = 0; r < RANKS; r++) {
        begin(&s, r);
        posted(&s, r,
               umx_scatterv(w->comms[r], ROOT,
                            (r == ROOT) ? &s.send[r].buf : NULL, &s.pieces,
                            &s.recv[r].buf, &s.params, &s.req));
    }
    world_wait(w, s.jobs, RANKS, UMX_OK);
    for (int r = 0; r < RANKS; r++) {
        sparse_check(&s.recv[r], 0, COUNT, ROOT + 1);
    }
    sides_fini(&s);
}

static void
run_alltoall(world *w, bool in_place)
{
    sides s;

    sides_init(&s, RANKS * COUNT, RANKS * COUNT);
    for (int r = 0; r < RANKS; r++) {
        sparse *recv = in_place ? &s.send[r] : &s.recv[r];

        begin(&s, r);
        posted(&s, r,
               umx_alltoallv(w->comms[r],
                             in_place ? UMX_IN_PLACE : &s.send[r].buf,
                             in_place ? NULL : &s.pieces, &recv->buf, &s.pieces,
                             &s.params, &s.req));
    }
    world_wait(w, s.jobs, RANKS, UMX_OK);
    for (int r = 0; r < RANKS; r++) {
        for (int from = 0; from < RANKS; from++) {
            sparse_check(in_place ? &s.send[r] : &s.recv[r],
                         (size_t)from * COUNT, COUNT, from + 1);
        }
    }
    sides_fini(&s);
}

static void
test_alltoall(void **state)
{
    world *w = *state;

    world_open(w, RANKS);
    run_alltoall(w, false);
    run_alltoall(w, true);
}

static void
test_alltoall_buffers(void **state)
{
    world     *w = *state;
    umx_buffer sends[RANKS][RANKS], recvs[RANKS][RANKS];
    sides      s;

    world_open(w, RANKS);
    sides_init(&s, COUNT, 1);
    for (int r = 0; r < RANKS; r++) {
        for (int to = 0; to < RANKS; to++) {
            sends[r][to] = s.send[r].buf;
        }
        begin(&s, r);
        posted(&s, r,
               umx_alltoall_buffers(w->comms[r], sends[r], recvs[r], NULL, NULL,
                                    &s.params, &s.req));
    }
    world_wait(w, s.jobs, RANKS, UMX_OK);
    for (int r = 0; r < RANKS; r++) {
        for (int from = 0; from < RANKS; from++) {
            const double *got = recvs[r][from].data;

            assert_int_equal(recvs[r][from].len, COUNT * sizeof(double));
            for (int i = 0; i < COUNT; i++) {
                assert_true(got[i] == from + 1);
            }
            free(recvs[r][from].data);
        }
    }
    sides_fini(&s);
}

/* ---- reductions ----------------------------------------------------------
 */

enum {
    REDUCE,
    ALLREDUCE,
    SCAN,
    EXSCAN,
    REDUCE_SCATTER,
    NUM_REDUCTIONS
};

static umx_status
post_reduction(world *w, sides *s, int r, int kind, const umx_buffer *send,
               const umx_buffer *recv)
{
    static const umx_reduction sum = {UMX_FLOAT64, UMX_SUM};

    switch (kind) {
    case REDUCE:
        return umx_reduce(w->comms[r], ROOT, &sum, send, recv, &s->params,
                          &s->req);
    case ALLREDUCE:
        return umx_allreduce(w->comms[r], &sum, send, recv, &s->params,
                             &s->req);
    case SCAN:
        return umx_scan(w->comms[r], &sum, send, recv, &s->params, &s->req);
    case EXSCAN:
        return umx_exscan(w->comms[r], &sum, send, recv, &s->params, &s->req);
    default:
        return umx_reduce_scatter(w->comms[r], &sum, send, recv, NULL,
                                  &s->params, &s->req);
    }
}

/* What a rank gets. */
static double
expected_of(int kind, int rank, double before)
{
    switch (kind) {
    case REDUCE:
        return (rank == ROOT) ? 1 + 2 + 3 : before;
    case SCAN:
        return (rank + 1) * (rank + 2) / 2;
    case EXSCAN:
        return (rank == 0) ? before : rank * (rank + 1) / 2;
    default:
        return 1 + 2 + 3;
    }
}

static void
run_reduction(world *w, int kind, bool in_place)
{
    size_t total = (kind == REDUCE_SCATTER) ? RANKS * COUNT : COUNT;
    sides  s;

    sides_init(&s, total, COUNT);
    for (int r = 0; r < RANKS; r++) {
        bool is_here = in_place && (kind != REDUCE || r == ROOT);

        begin(&s, r);
        posted(&s, r,
               post_reduction(w, &s, r, kind,
                              is_here ? UMX_IN_PLACE : &s.send[r].buf,
                              is_here ? &s.send[r].buf : &s.recv[r].buf));
    }
    world_wait(w, s.jobs, RANKS, UMX_OK);
    for (int r = 0; r < RANKS; r++) {
        sparse_check(in_place ? &s.send[r] : &s.recv[r], 0, COUNT,
                     expected_of(kind, r, in_place ? r + 1 : 0));
        if (in_place) {
            sparse_check(&s.send[r], COUNT, total - COUNT, r + 1);
        }
    }
    sides_fini(&s);
}

static void
test_reductions(void **state)
{
    world *w = *state;

    world_open(w, RANKS);
    for (int kind = 0; kind < NUM_REDUCTIONS; kind++) {
        run_reduction(w, kind, false);
        run_reduction(w, kind, true);
    }
}

/* ---- what goes wrong -----------------------------------------------------
 */

static void
test_nothing_is_written_if_it_fails(void **state)
{
    world *w = *state;
    sides  s;

    world_open(w, RANKS);
    sides_init(&s, COUNT, RANKS * COUNT);
    for (int r = 0; r < RANKS - 1; r++) { /* the last one does not come */
        begin(&s, r);
        posted(&s, r,
               umx_allgatherv(w->comms[r], &s.send[r].buf, &s.recv[r].buf,
                              &s.pieces, &s.params, &s.req));
    }
    for (int i = 0; i < 20; i++) {
        world_step(w);
    }
    umx_comm_abort(w->comms[RANKS - 1], "no");
    world_wait(w, s.jobs, RANKS - 1, UMX_ERR_RANK_FAILED);
    for (int r = 0; r < RANKS - 1; r++) {
        sparse_check(&s.recv[r], 0, RANKS * COUNT, 0);
    }
    sides_fini(&s);
}

static void
test_memory_of_a_device_has_no_layout(void **state)
{
    world       *w   = *state;
    umx_request *req = NULL;
    sparse       s;

    world_open(w, 1);
    sparse_init(&s, 4, 0);
    s.buf.memtype = UMX_MEMTYPE_CUDA;
    assert_int_equal(umx_bcast(w->comms[0], 0, &s.buf, NULL, &req),
                     UMX_ERR_UNSUPPORTED);
    free(s.data);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(test_bcast),
        WORLD_TEST(test_gather),
        WORLD_TEST(test_scatter),
        WORLD_TEST(test_alltoall),
        WORLD_TEST(test_alltoall_buffers),
        WORLD_TEST(test_reductions),
        WORLD_TEST(test_nothing_is_written_if_it_fails),
        WORLD_TEST(test_memory_of_a_device_has_no_layout),
    };

    return UNIT_RUN(tests);
}
