/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* tests: comm/collective_agree comm/communicator */
#include "world.h"

#include "comm/communicator.h"

#include <string.h>

enum {
    WORDS = 2 * MAX_RANKS
};

/* What a rank may call. */
typedef enum call {
    BARRIER,
    BCAST,
    BCAST_FROM_1,
    BCAST_LONGER,
    GATHER,
    GATHER_TO_1,
    SCATTER,
    SCATTER_FROM_1,
    ALLGATHER,
    ALLTOALL,
    REDUCE,
    REDUCE_TO_1,
    ALLREDUCE,
    ALLREDUCE_MAX,
    ALLREDUCE_LONGER,
    NUM_CALLS
} call;

static uint64_t ins[MAX_RANKS][WORDS], outs[MAX_RANKS][WORDS];

/* Post a call of one rank. */
static void
post(umx_comm *comm, int r, call what, job *j)
{
    size_t        size      = (size_t)umx_comm_size(comm);
    bool          is_longer = what == BCAST_LONGER || what == ALLREDUCE_LONGER;
    size_t        len       = is_longer ? 16 : 8;
    umx_buffer    own       = umx_host_buffer(ins[r], len);
    umx_buffer    all       = umx_host_buffer(ins[r], 8 * size);
    umx_buffer    out       = umx_host_buffer(outs[r], len);
    umx_buffer    out_all   = umx_host_buffer(outs[r], 8 * size);
    umx_reduction sum = {UMX_INT64, UMX_SUM}, max = {UMX_INT64, UMX_MAX};
    umx_op_params params = job_params(j);
    umx_request  *req    = NULL;
    size_t        counts[MAX_RANKS];
    umx_pieces    pieces = {counts, NULL};
    umx_status    status = UMX_ERR_INVALID_PARAM;

    for (int i = 0; i < MAX_RANKS; i++) {
        counts[i] = 8;
    }
    switch (what) {
    case BARRIER:
        status = umx_barrier(comm, &params, &req);
        break;
    case BCAST:
    case BCAST_FROM_1:
    case BCAST_LONGER:
        status = umx_bcast(comm, what == BCAST_FROM_1, &own, &params, &req);
        break;
    case GATHER:
    case GATHER_TO_1:
        status = umx_gatherv(comm, what == GATHER_TO_1, &own, &out_all, &pieces,
                             &params, &req);
        break;
    case SCATTER:
    case SCATTER_FROM_1:
        status = umx_scatterv(comm, what == SCATTER_FROM_1, &all, &pieces, &out,
                              &params, &req);
        break;
    case ALLGATHER:
        status = umx_allgatherv(comm, &own, &out_all, &pieces, &params, &req);
        break;
    case ALLTOALL:
        status = umx_alltoallv(comm, &all, &pieces, &out_all, &pieces, &params,
                               &req);
        break;
    case REDUCE:
    case REDUCE_TO_1:
        status = umx_reduce(comm, what == REDUCE_TO_1, &sum, &own, &out,
                            &params, &req);
        break;
    case ALLREDUCE:
    case ALLREDUCE_MAX:
    case ALLREDUCE_LONGER:
        status = umx_allreduce(comm, (what == ALLREDUCE_MAX) ? &max : &sum,
                               &own, &out, &params, &req);
        break;
    case NUM_CALLS:
        break;
    }
    job_posted(j, status, &req);
}

/* ---- a communicator for each case ----------------------------------------
 */

typedef struct group {
    umx_comm *comms[MAX_RANKS];
    job       jobs[MAX_RANKS];
    int       odd; /* the rank that calls something else */
} group;

static void
split(world *w, group *g)
{
    for (int r = 0; r < w->size; r++) {
        umx_op_params params = job_params(&g->jobs[r]);
        umx_request  *req    = NULL;

        job_posted(
            &g->jobs[r],
            umx_comm_split(w->comms[r], 0, 0, &params, &g->comms[r], &req),
            &req);
    }
    world_wait(w, g->jobs, w->size, UMX_OK);
}

static bool
has_failed(const group *g, int r)
{
    umx_comm_failure failure;

    return umx_comm_get_failure(g->comms[r], &failure);
}

/* Let the odd rank call `one`, the others `other`. */
static void
post_all(const world *w, group *g, call one, call other)
{
    for (int r = 0; r < w->size; r++) {
        if (has_failed(g, r)) {
            g->jobs[r] = (job){.status = UMX_ERR_RANK_FAILED};
        } else {
            post(g->comms[r], r, (r == g->odd) ? one : other, &g->jobs[r]);
        }
    }
}

static void
wait_all(world *w, group *g)
{
    for (int r = 0; r < w->size; r++) {
        umx_status status = world_wait_one(w, &g->jobs[r]);

        assert_true(status == UMX_OK || status == UMX_ERR_RANK_FAILED);
    }
}

/* Every rank knows that, and why, they have called different operations. */
static void
expect_failure(world *w, const group *g, call one, call other)
{
    for (int r = 0; r < w->size; r++) {
        umx_comm_failure failure = {.rank = -1};

        for (int i = 0; i < 1000 && !has_failed(g, r); i++) {
            world_step(w);
        }
        if (!umx_comm_get_failure(g->comms[r], &failure) ||
            failure.cause != UMX_ERR_INVALID_PARAM || failure.rank < 0) {
            fail_msg("rank %d has called %d, the others %d; rank %d of %d: %s",
                     g->odd, (int)one, (int)other, r, w->size,
                     umx_comm_reason(g->comms[r]));
        }
    }
}

static void
end(const world *w, const group *g)
{
    for (int r = 0; r < w->size; r++) {
        umx_comm_destroy(g->comms[r]);
    }
}

/* ---- each pair of operations ---------------------------------------------
 */

/* Let one rank call `one`, and the others any other operation, each with a
 * communicator of its own: an error ends it on each rank, at the latest in the
 * second barrier after it. */
static void
run(world *w, call one)
{
    group groups[NUM_CALLS];

    for (int i = 0; i < NUM_CALLS; i++) {
        split(w, &groups[i]);
        groups[i].odd = ((int)one + i) % w->size;
    }
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < NUM_CALLS; i++) {
            bool is_odd = step == 1;

            post_all(w, &groups[i], is_odd ? one : BARRIER,
                     is_odd ? (call)i : BARRIER);
        }
        for (int i = 0; i < NUM_CALLS; i++) {
            wait_all(w, &groups[i]);
        }
    }
    for (int i = 0; i < NUM_CALLS; i++) {
        if (i != (int)one) {
            expect_failure(w, &groups[i], one, (call)i);
        } else {
            assert_false(has_failed(&groups[i], 0));
        }
        end(w, &groups[i]);
    }
}

static void
run_all(void **state, int size)
{
    world *w = *state;

    world_open(w, size);
    for (int one = 0; one < NUM_CALLS; one++) {
        run(w, (call)one);
    }
    for (int r = 0; r < size; r++) { /* what is split off ends by itself */
        umx_comm_failure failure;

        assert_false(umx_comm_get_failure(w->comms[r], &failure));
    }
}

static void
test_any_two_operations_of_two_ranks(void **state)
{
    run_all(state, 2);
}

static void
test_any_two_operations_of_four_ranks(void **state)
{
    run_all(state, 4);
}

/* ---- the last operation --------------------------------------------------
 */

/* A rank that has left tells what it called last: those that have not ended
 * find out, whether they have called it already or do so later. */
static void
test_the_last_operation_is_compared_by_the_goodbye(void **state)
{
    world *w = *state;
    group  g = {.odd = 2};
    job    j;

    world_open(w, 3);
    for (int is_later = 0; is_later < 2; is_later++) {
        split(w, &g);
        /* neither waits for the other, nor sends it anything */
        post(g.comms[2], 2, GATHER_TO_1, &j);
        assert_int_equal(world_wait_one(w, &j), UMX_OK);
        if (is_later) {
            umx_comm_close(g.comms[2]);
            for (int i = 0; i < 20; i++) {
                world_step(w);
            }
        }
        post(g.comms[0], 0, SCATTER_FROM_1, &j);
        if (!is_later) {
            umx_comm_close(g.comms[2]);
        }
        assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
        assert_non_null(strstr(umx_comm_reason(g.comms[0]),
                               "rank 2 has called gather, rank 0 scatter"));
        end(w, &g);
    }
}

/* An operation that is under way is compared, however many came after it. */
static void
test_many_under_way_are_compared(void **state)
{
    enum {
        COUNT = UMI_COMM_CALLS + 8
    };

    world *w = *state;
    group  g;
    job    jobs[COUNT], j;

    world_open(w, 2);
    split(w, &g);
    for (int i = 0; i < COUNT; i++) {
        post(g.comms[0], 0, BARRIER, &jobs[i]);
    }
    post(g.comms[1], 1, BCAST_FROM_1, &j);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(world_wait_one(w, &jobs[i]), UMX_ERR_RANK_FAILED);
    }
    assert_non_null(strstr(umx_comm_reason(g.comms[0]),
                           "rank 1 has called bcast, rank 0 barrier"));
    (void)world_wait_one(w, &j);
    end(w, &g);
}

static void
expect_reduction(world *w, umx_reduction first, umx_reduction second,
                 const char *text)
{
    group         g;
    umx_reduction both[] = {first, second};

    split(w, &g);
    for (int r = 0; r < 2; r++) {
        umx_buffer    own    = umx_host_buffer(ins[r], 16);
        umx_op_params params = job_params(&g.jobs[r]);
        umx_request  *req    = NULL;

        job_posted(&g.jobs[r],
                   umx_allreduce(g.comms[r], &both[r], UMX_IN_PLACE, &own,
                                 &params, &req),
                   &req);
    }
    assert_int_equal(world_wait_one(w, &g.jobs[1]), UMX_ERR_RANK_FAILED);
    assert_non_null(strstr(umx_comm_reason(g.comms[1]), text));
    end(w, &g);
}

static void
test_reductions_are_named(void **state)
{
    world *w = *state;

    world_open(w, 2);
    expect_reduction(
        w, (umx_reduction){UMX_FLOAT64, UMX_SUM},
        (umx_reduction){UMX_INT64, UMX_SUM},
        "allreduce (operation 1): rank 0 combines float64 by sum, rank 1 int64 "
        "by sum");
    expect_reduction(w, (umx_reduction){UMX_FLOAT64_INT64, UMX_MINLOC},
                     (umx_reduction){UMX_BFLOAT16, UMX_AVG},
                     "rank 0 combines float64 by minloc, rank 1 bfloat16 by "
                     "avg");
}

/* Two ranks that have called different operations long ago find out when they
 * exchange the next message. */
static void
test_what_was_long_ago_is_named_as_before(void **state)
{
    world *w = *state;
    group  g = {.odd = 2};
    job    jobs[3];

    world_open(w, 3);
    split(w, &g);
    post(g.comms[2], 2, GATHER_TO_1, &jobs[2]);
    post(g.comms[0], 0, REDUCE_TO_1, &jobs[0]);
    w->is_stopped[1] = true; /* the only one that has got both */
    for (int i = 0; i < 2; i++) {
        int r = 2 * i;

        assert_int_equal(world_wait_one(w, &jobs[r]), UMX_OK);
        post(g.comms[r], r, BCAST, &jobs[r]);
    }
    assert_int_equal(world_wait_one(w, &jobs[2]), UMX_ERR_RANK_FAILED);
    assert_non_null(strstr(umx_comm_reason(g.comms[2]),
                           "called different operations before it"));
    w->is_stopped[1] = false;
    end(w, &g);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(test_any_two_operations_of_two_ranks),
        WORLD_TEST(test_any_two_operations_of_four_ranks),
        WORLD_TEST(test_the_last_operation_is_compared_by_the_goodbye),
        WORLD_TEST(test_many_under_way_are_compared),
        WORLD_TEST(test_reductions_are_named),
        WORLD_TEST(test_what_was_long_ago_is_named_as_before),
    };

    return UNIT_RUN(tests);
}
