/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* Who had not come to an operation that is cancelled. late.c is part of this
 * file, which looks into what ranks know. */
#include "comm/late.c"

#include "world.h"

#include "util/clock.h"

enum {
    RANKS = 4,
    LAST  = RANKS - 1, /* does not come */
    PIECE = 8
};

typedef umx_status post_fn(umx_comm *comm, char *data,
                           const umx_op_params *params, umx_request **req_p);

static umx_status
post_barrier(umx_comm *comm, char *data, const umx_op_params *params,
             umx_request **req_p)
{
    (void)data;
    return umx_barrier(comm, params, req_p);
}

static umx_status
post_bcast(umx_comm *comm, char *data, const umx_op_params *params,
           umx_request **req_p)
{
    umx_buffer buf = umx_host_buffer(data, PIECE);

    return umx_bcast(comm, LAST, &buf, params, req_p);
}

static umx_status
post_allreduce(umx_comm *comm, char *data, const umx_op_params *params,
               umx_request **req_p)
{
    umx_reduction what = {UMX_UINT8, UMX_SUM};
    umx_buffer    buf  = umx_host_buffer(data, PIECE);

    return umx_allreduce(comm, &what, UMX_IN_PLACE, &buf, params, req_p);
}

static umx_status
post_alltoall(umx_comm *comm, char *data, const umx_op_params *params,
              umx_request **req_p)
{
    static const size_t counts[RANKS] = {PIECE, PIECE, PIECE, PIECE};

    umx_pieces pieces = {.counts = counts};
    umx_buffer buf    = umx_host_buffer(data, (size_t)RANKS * PIECE);

    return umx_alltoallv(comm, UMX_IN_PLACE, &pieces, &buf, &pieces, params,
                         req_p);
}

static umx_status
post_allgather(umx_comm *comm, char *data, const umx_op_params *params,
               umx_request **req_p)
{
    static const size_t counts[RANKS] = {PIECE, PIECE, PIECE, PIECE};

    umx_pieces pieces = {.counts = counts};
    umx_buffer buf    = umx_host_buffer(data, (size_t)RANKS * PIECE);

    return umx_allgatherv(comm, UMX_IN_PLACE, &buf, &pieces, params, req_p);
}

static post_fn *const kinds[] = {post_barrier, post_bcast, post_allreduce,
                                 post_alltoall, post_allgather};

/* All but the last rank call an operation. */
static void
post_all(world *w, post_fn *post, char (*data)[RANKS * PIECE], job *jobs)
{
    for (int r = 0; r < LAST; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;

        job_posted(&jobs[r], post(w->comms[r], data[r], &params, &req), &req);
        assert_non_null(jobs[r].req);
    }
}

static bool
knows(const umx_comm *comm)
{
    const umi_comm_coll *coll = umi_container_of(comm->colls.next,
                                                 umi_comm_coll, node);
    list                 late = {0};

    find(coll, &late);
    return late.count == 1 && late.ranks[0] == LAST;
}

static void
await_knowledge(world *w)
{
    bool is_known = false;

    for (int i = 0; i < 30000 && !is_known; i++) {
        world_step(w);
        is_known = true;
        for (int r = 0; r < LAST; r++) {
            is_known = is_known && knows(w->comms[r]);
        }
    }
    assert_true(is_known);
}

static void
expect_last_is_late(world *w, int by)
{
    for (int r = 0; r < RANKS; r++) {
        umx_comm_failure failure;
        char             text[64];

        for (int i = 0; i < 30000 && w->comms[r]->is_revoked == false; i++) {
            world_step(w);
        }
        assert_true(umx_comm_get_failure(w->comms[r], &failure));
        assert_int_equal(failure.rank, by);
        assert_int_equal(failure.num_late, 1);
        assert_int_equal(failure.late[0], LAST);
        (void)snprintf(text, sizeof(text),
                       "cancelled by rank %d; rank %d had not come to it", by,
                       LAST);
        expect_reason(w, r, text);
    }
}

static void
run(world *w, post_fn *post, bool is_known)
{
    char data[RANKS][RANKS * PIECE] = {{0}};
    job  jobs[RANKS];

    post_all(w, post, data, jobs);
    if (is_known) {
        await_knowledge(w);
    }
    op_cancel(jobs[1].req);
    world_wait(w, jobs, LAST, UMX_ERR_RANK_FAILED);
}

/* Start again with other ranks. */
static void
reopen(world *w)
{
    for (int r = 0; r < w->size; r++) {
        umx_comm_destroy(w->comms[r]);
        umx_worker_destroy(w->workers[r]);
        w->comms[r]   = NULL;
        w->workers[r] = NULL;
    }
    umx_context_release(w->context);
    w->port = 0;
}

static void
test_who_had_not_come_is_named_on_all_ranks(void **state)
{
    world *w = *state;

    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        world_open(w, RANKS);
        run(w, kinds[k], true);
        expect_last_is_late(w, 1);
        if (k + 1 < sizeof(kinds) / sizeof(*kinds)) {
            reopen(w);
        }
    }
}

/* Cancelled before the ranks have told each other anything: a rank that has
 * come takes its own name off, and those that know more add it. */
static void
test_who_has_come_is_not_named_by_itself(void **state)
{
    world           *w = *state;
    umx_comm_failure failure;

    world_open(w, RANKS);
    run(w, post_barrier, false);
    for (int r = 0; r < LAST; r++) {
        assert_true(umx_comm_get_failure(w->comms[r], &failure));
        for (int i = 0; i < failure.num_late; i++) {
            assert_int_not_equal(failure.late[i], r);
        }
    }
}

static void
test_a_derived_communicator_names_them_too(void **state)
{
    world           *w = *state;
    umx_comm        *made;
    umx_comm_failure failure;

    world_open(w, RANKS);
    assert_int_equal(umx_comm_derive(w->comms[0], 7, &made), UMX_OK);
    run(w, post_barrier, true);
    assert_true(umx_comm_get_failure(made, &failure));
    assert_int_equal(failure.num_late, 1);
    assert_int_equal(failure.late[0], LAST);
    assert_non_null(strstr(umx_comm_reason(made), "rank 3 had not come to it"));
    umx_comm_destroy(made);
}

static void
test_other_failures_name_nobody(void **state)
{
    world           *w = *state;
    umx_comm_failure failure;

    world_open(w, 2);
    umx_comm_abort(w->comms[0], "enough");
    assert_true(umx_comm_get_failure(w->comms[0], &failure));
    assert_int_equal(failure.num_late, 0);
    assert_null(strstr(umx_comm_reason(w->comms[0]), "had not come"));
}

/* A rank may say anything. */
static void
test_ranks_that_there_are_not_are_not_kept(void **state)
{
    world           *w       = *state;
    uint8_t          ranks[] = {3, 0, 0, 0, 9, 0, 0, 0, 255, 255, 255, 255};
    umi_comm_numbers late    = {.data = ranks, .count = 3};
    umi_comm_failed  failed  = {.rank = 1, .cause = UMX_ERR_CANCELED};

    world_open(w, RANKS);
    keep_report(w->comms[0], 1, 5, &late);
    assert_int_equal(w->comms[0]->ranks[1].report->count, 1);
    assert_int_equal(w->comms[0]->ranks[1].report->ranks[0], 3);
    failed.number = 5;
    failed.late   = late;
    umi_comm_late_merge(w->comms[0], &failed);
    assert_int_equal(w->comms[0]->failure.num_late, 1);
    assert_int_equal(w->comms[0]->failure.late[0], 3);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(test_who_had_not_come_is_named_on_all_ranks),
        WORLD_TEST(test_who_has_come_is_not_named_by_itself),
        WORLD_TEST(test_a_derived_communicator_names_them_too),
        WORLD_TEST(test_other_failures_name_nobody),
        WORLD_TEST(test_ranks_that_there_are_not_are_not_kept),
    };

    return UNIT_RUN(tests);
}
