/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port tsan */
/* Communicators whose workers have progress threads: what is posted goes on
 * while no owner calls, and callbacks run in the owners' calls. */
#include "world.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RANKS  = 3,
    ITEMS  = 2000,
    ROUNDS = 60
};

static void
open_with_threads(world *w, int size)
{
    world_open(w, size);
    for (int i = 0; i < size; i++) {
        assert_int_equal(umx_progress_start(w->workers[i]), UMX_OK);
    }
}

static void
expect_told(const world *w, int rank)
{
    struct pollfd fd = {.fd     = umx_progress_fd(w->workers[rank]),
                        .events = POLLIN};

    assert_int_equal(poll(&fd, 1, 10000), 1);
}

/* ---- a round of operations -----------------------------------------------
 */

typedef struct rank_ops {
    job        barrier, sum, exchange, sent;
    receipt    got;
    double     in[ITEMS], out[ITEMS];
    char       bytes[64 + RANKS], message;
    umx_buffer sends[RANKS], recvs[RANKS];
    pthread_t  owner;
} rank_ops;

static umx_status
get_memory(int source, umx_buffer *buf, void *arg)
{
    const rank_ops *ops = arg;

    (void)source;
    assert_true(pthread_equal(ops->owner, pthread_self()));
    buf->data = malloc(buf->len);
    return UMX_OK;
}

static void
post(world *w, int rank, rank_ops *ops, int round)
{
    umx_reduction what   = {.dtype = UMX_FLOAT64, .op = UMX_SUM};
    umx_buffer    in     = umx_host_buffer(ops->in, sizeof(ops->in));
    umx_buffer    out    = umx_host_buffer(ops->out, sizeof(ops->out));
    umx_comm     *comm   = w->comms[rank];
    umx_op_params params = job_params(&ops->sum);
    umx_request  *req    = NULL;
    int           next   = (rank + 1) % w->size;

    for (int i = 0; i < ITEMS; i++) {
        ops->in[i] = rank + round + i;
    }
    job_posted(&ops->sum, umx_allreduce(comm, &what, &in, &out, &params, &req),
               &req);
    memset(ops->bytes, 'a' + rank, sizeof(ops->bytes));
    for (int i = 0; i < w->size; i++) {
        ops->sends[i] = umx_host_buffer(ops->bytes, (size_t)(rank + i) * 16);
    }
    ops->owner = pthread_self();
    params     = job_params(&ops->exchange);
    job_posted(&ops->exchange,
               umx_alltoall_buffers(comm, ops->sends, ops->recvs, get_memory,
                                    ops, &params, &req),
               &req);
    params = job_params(&ops->barrier);
    job_posted(&ops->barrier, umx_barrier(comm, &params, &req), &req);
    recv_from(w, rank, UMX_ANY_SOURCE, (uint64_t)round, UINT64_MAX,
              &ops->message, 1, &ops->got);
    send_to(w, rank, next, (uint64_t)round, &"abc"[rank], 1, &ops -> sent);
}

static void
check(world *w, int rank, rank_ops *ops, int round)
{
    int before = (rank + w->size - 1) % w->size;

    for (int i = 0; i < ITEMS; i++) {
        assert_true(ops->out[i] == RANKS * (round + i) + 3.0);
    }
    assert_int_equal(ops->message, "abc"[before]);
    assert_int_equal(ops->got.got.source, before);
    for (int i = 0; i < w->size; i++) {
        assert_int_equal(ops->recvs[i].len, (rank + i) * 16);
        for (size_t j = 0; j < ops->recvs[i].len; j++) {
            assert_int_equal(((char *)ops->recvs[i].data)[j], 'a' + i);
        }
        free(ops->recvs[i].data);
    }
}

static void
finish(world *w, rank_ops *ops, int round)
{
    for (int i = 0; i < w->size; i++) {
        assert_int_equal(world_wait_one(w, &ops[i].sum), UMX_OK);
        assert_int_equal(world_wait_one(w, &ops[i].exchange), UMX_OK);
        assert_int_equal(world_wait_one(w, &ops[i].barrier), UMX_OK);
        assert_int_equal(world_wait_one(w, &ops[i].sent), UMX_OK);
        assert_int_equal(world_wait_one(w, &ops[i].got.j), UMX_OK);
    }
    for (int i = 0; i < w->size; i++) {
        check(w, i, &ops[i], round);
    }
}

/* ---- tests ---------------------------------------------------------------
 */

static void
test_operations_end_while_the_owners_are_away(void **state)
{
    world    *w    = *state;
    rank_ops *ops  = calloc(RANKS, sizeof(*ops));
    bool      some = false;

    open_with_threads(w, RANKS);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < RANKS; i++) {
            post(w, i, &ops[i], round);
        }
        for (int i = 0; i < RANKS; i++) {
            some |= ops[i].barrier.status == UMX_INPROGRESS;
        }
        usleep(20000);
        for (int i = 0; i < RANKS; i++) {
            assert_true(ops[i].sum.calls == 0);
        }
        w->is_stopped[1] = w->is_stopped[2] = true; /* they stay away */
        assert_int_equal(world_wait_one(w, &ops[0].sum), UMX_OK);
        w->is_stopped[1] = w->is_stopped[2] = false;
        finish(w, ops, round);
    }
    assert_true(some);
    free(ops);
}

static void
test_owners_come_and_go(void **state)
{
    world    *w   = *state;
    rank_ops *ops = calloc(RANKS, sizeof(*ops));

    random_state = 7;
    open_with_threads(w, RANKS);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < RANKS; i++) {
            post(w, i, &ops[i], round);
            for (uint64_t n = next_random(50); n > 0; n--) {
                (void)umx_worker_poll(w->workers[next_random(RANKS)]);
            }
        }
        usleep((useconds_t)next_random(3000));
        finish(w, ops, round);
    }
    free(ops);
}

/* A barrier that a rank has entered does not wait for its owner. */
static void
test_a_barrier_goes_through_a_rank_that_is_away(void **state)
{
    world *w = *state;
    job    jobs[RANKS];

    open_with_threads(w, RANKS);
    for (int round = 0; round < 20; round++) {
        for (int i = RANKS - 1; i >= 0; i--) {
            umx_op_params params = job_params(&jobs[i]);
            umx_request  *req    = NULL;

            job_posted(&jobs[i], umx_barrier(w->comms[i], &params, &req), &req);
        }
        w->is_stopped[RANKS - 1] = true;
        for (int i = 0; i < RANKS - 1; i++) {
            assert_int_equal(world_wait_one(w, &jobs[i]), UMX_OK);
        }
        w->is_stopped[RANKS - 1] = false;
        assert_int_equal(world_wait_one(w, &jobs[RANKS - 1]), UMX_OK);
    }
}

static void
test_a_rank_that_ends_is_seen_while_the_owners_are_away(void **state)
{
    world *w = *state;
    job    jobs[RANKS];

    open_with_threads(w, RANKS);
    for (int i = 0; i < RANKS - 1; i++) {
        umx_op_params params = job_params(&jobs[i]);
        umx_request  *req    = NULL;

        job_posted(&jobs[i], umx_barrier(w->comms[i], &params, &req), &req);
        assert_int_equal(jobs[i].status, UMX_INPROGRESS);
    }
    umx_worker_destroy(w->workers[RANKS - 1]);
    w->workers[RANKS - 1] = NULL;
    for (int i = 0; i < RANKS - 1; i++) {
        umx_comm_failure failure;

        expect_told(w, i);
        assert_true(umx_comm_get_failure(w->comms[i], &failure));
        assert_int_equal(failure.rank, RANKS - 1);
        assert_int_equal(jobs[i].calls, 0);
    }
    for (int i = 0; i < RANKS - 1; i++) {
        assert_int_equal(world_wait_one(w, &jobs[i]), UMX_ERR_RANK_FAILED);
    }
}

/* With everything under way, the owners give it all back. */
static void
test_the_end_with_operations_under_way(void **state)
{
    world    *w   = *state;
    rank_ops *ops = calloc(RANKS, sizeof(*ops));

    open_with_threads(w, RANKS);
    for (int i = 0; i < RANKS; i++) {
        post(w, i, &ops[i], 1);
    }
    for (int i = 0; i < RANKS; i++) {
        umx_comm_destroy(w->comms[i]);
        umx_worker_destroy(w->workers[i]);
        w->comms[i]   = NULL;
        w->workers[i] = NULL;
        assert_int_not_equal(ops[i].sum.status, UMX_INPROGRESS);
        assert_int_not_equal(ops[i].exchange.status, UMX_INPROGRESS);
        assert_int_not_equal(ops[i].barrier.status, UMX_INPROGRESS);
        assert_int_not_equal(ops[i].got.j.status, UMX_INPROGRESS);
        for (int j = 0; j < RANKS; j++) {
            free(ops[i].recvs[j].data);
        }
    }
    free(ops);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_operations_end_while_the_owners_are_away),
        WORLD_TEST(test_owners_come_and_go),
        WORLD_TEST(test_a_barrier_goes_through_a_rank_that_is_away),
        WORLD_TEST(test_a_rank_that_ends_is_seen_while_the_owners_are_away),
        WORLD_TEST(test_the_end_with_operations_under_way),
    };

    return UNIT_RUN(tests);
}
