/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* tests: channel/elsewhere comm/alltoall comm/alltoall_buffers */
/* tests: comm/collective_calls comm/collective_messages comm/collective_move */
/* tests: comm/collective_rounds */
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_PIECE = 100000
};

static void
fill(unsigned char *data, size_t len, int from, int to)
{
    for (size_t i = 0; i < len; i++) {
        data[i] = byte_of(from, to, i);
    }
}

static void
check(const unsigned char *data, size_t len, int from, int to)
{
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(data[i], byte_of(from, to, i));
    }
}

/* ---- each operation, all sizes -------------------------------------------
 */

static void
run_barrier(world *w)
{
    job jobs[MAX_RANKS];

    for (int r = w->size - 1; r >= 0; r--) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;

        job_posted(&jobs[r], umx_barrier(w->comms[r], &params, &req), &req);
        if (r > 0) {
            for (int i = 0; i < 5; i++) {
                world_step(w);
            }
            for (int other = r; other < w->size; other++) {
                assert_int_equal(jobs[other].status, UMX_INPROGRESS);
            }
        }
    }
    world_wait(w, jobs, w->size, UMX_OK);
}

static void
run_bcast(world *w, int root, size_t len)
{
    unsigned char *data[MAX_RANKS];
    job            jobs[MAX_RANKS];

    for (int r = 0; r < w->size; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        umx_buffer    buf;

        data[r] = calloc(1, len + 1);
        if (r == root) {
            fill(data[r], len, root, 0);
        }
        buf = umx_host_buffer(data[r], len);
        job_posted(&jobs[r], umx_bcast(w->comms[r], root, &buf, &params, &req),
                   &req);
    }
    world_wait(w, jobs, w->size, UMX_OK);
    for (int r = 0; r < w->size; r++) {
        check(data[r], len, root, 0);
        free(data[r]);
    }
}

/* Pieces of random lengths, with gaps; their bytes together. */
static size_t
random_pieces(size_t *counts, size_t *displs, int size)
{
    size_t at = 0;

    for (int i = 0; i < size; i++) {
        at += next_random(3) * 8;
        counts[i] = next_random(3) == 0 ? 0 : next_random(MAX_PIECE);
        displs[i] = at;
        at += counts[i];
    }
    return at;
}

static void
run_gather(world *w, int root, bool is_in_place)
{
    size_t         counts[MAX_RANKS], displs[MAX_RANKS];
    size_t         len    = random_pieces(counts, displs, w->size);
    unsigned char *all    = calloc(1, len + 1);
    umx_buffer     recv   = umx_host_buffer(all, len);
    umx_pieces     pieces = {counts, displs};
    unsigned char *own[MAX_RANKS];
    job            jobs[MAX_RANKS];

    for (int r = 0; r < w->size; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        umx_buffer    send;
        bool          is_here = is_in_place && r == root;

        own[r] = malloc(counts[r] + 1);
        fill(own[r], counts[r], r, root);
        if (is_here) {
            fill(all + displs[r], counts[r], r, root);
        }
        send = umx_host_buffer(own[r], counts[r]);
        job_posted(
            &jobs[r],
            umx_gatherv(w->comms[r], root, is_here ? UMX_IN_PLACE : &send,
                        (r == root) ? &recv : NULL, &pieces, &params, &req),
            &req);
    }
    world_wait(w, jobs, w->size, UMX_OK);
    for (int r = 0; r < w->size; r++) {
        check(all + displs[r], counts[r], r, root);
        free(own[r]);
    }
    free(all);
}

static void
run_scatter(world *w, int root)
{
    size_t         counts[MAX_RANKS], displs[MAX_RANKS];
    size_t         len    = random_pieces(counts, displs, w->size);
    unsigned char *all    = calloc(1, len + 1);
    umx_buffer     send   = umx_host_buffer(all, len);
    umx_pieces     pieces = {counts, displs};
    unsigned char *own[MAX_RANKS];
    job            jobs[MAX_RANKS];

    for (int r = 0; r < w->size; r++) {
        fill(all + displs[r], counts[r], root, r);
    }
    for (int r = 0; r < w->size; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        umx_buffer    recv;

        own[r] = calloc(1, counts[r] + 1);
        recv   = umx_host_buffer(own[r], counts[r]);
        job_posted(&jobs[r],
                   umx_scatterv(w->comms[r], root, (r == root) ? &send : NULL,
                                &pieces, &recv, &params, &req),
                   &req);
    }
    world_wait(w, jobs, w->size, UMX_OK);
    for (int r = 0; r < w->size; r++) {
        check(own[r], counts[r], root, r);
        free(own[r]);
    }
    free(all);
}

static void
run_allgather(world *w, bool is_in_place)
{
    size_t         counts[MAX_RANKS], displs[MAX_RANKS];
    size_t         len    = random_pieces(counts, displs, w->size);
    umx_pieces     pieces = {counts, displs};
    unsigned char *own[MAX_RANKS], *all[MAX_RANKS];
    job            jobs[MAX_RANKS];

    for (int r = 0; r < w->size; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        umx_buffer    send, recv;

        own[r] = malloc(counts[r] + 1);
        all[r] = calloc(1, len + 1);
        fill(own[r], counts[r], r, 0);
        if (is_in_place) {
            fill(all[r] + displs[r], counts[r], r, 0);
        }
        send = umx_host_buffer(own[r], counts[r]);
        recv = umx_host_buffer(all[r], len);
        job_posted(&jobs[r],
                   umx_allgatherv(w->comms[r],
                                  is_in_place ? UMX_IN_PLACE : &send, &recv,
                                  &pieces, &params, &req),
                   &req);
    }
    world_wait(w, jobs, w->size, UMX_OK);
    for (int r = 0; r < w->size; r++) {
        for (int from = 0; from < w->size; from++) {
            check(all[r] + displs[from], counts[from], from, 0);
        }
        free(own[r]);
        free(all[r]);
    }
}

static void
run_alltoall(world *w)
{
    size_t         counts[MAX_RANKS][MAX_RANKS]; /* from, to */
    unsigned char *in[MAX_RANKS], *out[MAX_RANKS];
    size_t         in_counts[MAX_RANKS][MAX_RANKS];
    job            jobs[MAX_RANKS];

    for (int from = 0; from < w->size; from++) {
        for (int to = 0; to < w->size; to++) {
            counts[from][to] = next_random(4) == 0 ? 0 : next_random(MAX_PIECE);
            in_counts[to][from] = counts[from][to];
        }
    }
    for (int r = 0; r < w->size; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        size_t        in_len = 0, out_len = 0;
        umx_pieces    to = {counts[r], NULL}, from = {in_counts[r], NULL};
        umx_buffer    send, recv;

        for (int i = 0; i < w->size; i++) {
            out_len += counts[r][i];
            in_len += in_counts[r][i];
        }
        out[r]  = malloc(out_len + 1);
        in[r]   = calloc(1, in_len + 1);
        out_len = 0;
        for (int i = 0; i < w->size; i++) {
            fill(out[r] + out_len, counts[r][i], r, i);
            out_len += counts[r][i];
        }
        send = umx_host_buffer(out[r], out_len);
        recv = umx_host_buffer(in[r], in_len);
        job_posted(
            &jobs[r],
            umx_alltoallv(w->comms[r], &send, &to, &recv, &from, &params, &req),
            &req);
    }
    world_wait(w, jobs, w->size, UMX_OK);
    for (int r = 0; r < w->size; r++) {
        size_t at = 0;

        for (int i = 0; i < w->size; i++) {
            check(in[r] + at, in_counts[r][i], i, r);
            at += in_counts[r][i];
        }
        free(in[r]);
        free(out[r]);
    }
}

/* What a rank gives for another: often nothing, and more than a fragment. */
static size_t
buffer_len(int from, int to)
{
    return ((from + to) % 3 == 0) ? 0 : (size_t)(from * 7001 + to * 911);
}

typedef struct memory_of {
    unsigned num_calls;
    int      refused; /* a source, or -1 */
} memory_of;

static umx_status
alloc_slot(int source, umx_buffer *buf, void *arg)
{
    memory_of *memory = arg;

    memory->num_calls++;
    if (source == memory->refused) {
        return UMX_ERR_NO_RESOURCE;
    }
    *buf = umx_host_buffer(malloc(buf->len), buf->len);
    return UMX_OK;
}

/* `memories` NULL: malloc(). */
static void
run_alltoall_buffers(world *w, memory_of *memories, umx_status expected)
{
    unsigned char *out[MAX_RANKS][MAX_RANKS];
    umx_buffer     sends[MAX_RANKS][MAX_RANKS], recvs[MAX_RANKS][MAX_RANKS];
    job            jobs[MAX_RANKS];

    for (int r = 0; r < w->size; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;

        for (int i = 0; i < w->size; i++) {
            out[r][i] = malloc(buffer_len(r, i) + 1);
            fill(out[r][i], buffer_len(r, i), r, i);
            sends[r][i] = umx_host_buffer(out[r][i], buffer_len(r, i));
        }
        job_posted(&jobs[r],
                   umx_alltoall_buffers(
                       w->comms[r], sends[r], recvs[r],
                       (memories != NULL) ? alloc_slot : NULL,
                       (memories != NULL) ? &memories[r] : NULL, &params, &req),
                   &req);
        memset(sends[r], 0, sizeof(sends[r])); /* they are read in the call */
    }
    world_wait(w, jobs, w->size, expected);
    for (int r = 0; r < w->size; r++) {
        for (int i = 0; i < w->size; i++) {
            if (expected == UMX_OK) {
                assert_int_equal(recvs[r][i].len, buffer_len(i, r));
                check(recvs[r][i].data, recvs[r][i].len, i, r);
            }
            free(recvs[r][i].data);
            free(out[r][i]);
        }
    }
}

/* Doubles, whose sum depends on the order; the ranks' order is expected. */
static void
run_reduce(world *w, int root, size_t count, umx_reduce_op how, bool in_place)
{
    umx_reduction what = {UMX_FLOAT64, how};
    double       *in[MAX_RANKS], *out[MAX_RANKS];
    double       *expected = malloc((count + 1) * sizeof(double));
    double        scale    = 1;
    job           jobs[MAX_RANKS];

    for (int r = 0; r < w->size; r++) {
        in[r]  = malloc((count + 1) * sizeof(double));
        out[r] = malloc((count + 1) * sizeof(double));
        for (size_t i = 0; i < count; i++) {
            in[r][i] = ((double)next_random(1000000) - 500000) * scale;
        }
        scale *= 10;
    }
    for (size_t i = 0; i < count; i++) {
        expected[i] = in[0][i];
        for (int r = 1; r < w->size; r++) {
            double x = expected[i], y = in[r][i];

            expected[i] = (how == UMX_SUM)  ? x + y :
                          (how == UMX_PROD) ? x * y :
                          (how == UMX_MIN)  ? ((x < y) ? x : y) :
                                              ((x > y) ? x : y);
        }
    }
    for (int r = 0; r < w->size; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        umx_buffer    send   = umx_host_buffer(in[r], count * sizeof(double));
        umx_buffer    recv   = umx_host_buffer(in_place ? in[r] : out[r],
                                          count * sizeof(double));
        bool is_here = in_place && (root < 0 || root == r);

        job_posted(&jobs[r],
                   (root < 0) ?
                       umx_allreduce(w->comms[r], &what,
                                     is_here ? UMX_IN_PLACE : &send, &recv,
                                     &params, &req) :
                       umx_reduce(w->comms[r], root, &what,
                                  is_here ? UMX_IN_PLACE : &send,
                                  (r == root) ? &recv : NULL, &params, &req),
                   &req);
    }
    world_wait(w, jobs, w->size, UMX_OK);
    for (int r = 0; r < w->size; r++) {
        if (root < 0 || r == root) {
            assert_memory_equal(in_place ? in[r] : out[r], expected,
                                count * sizeof(double));
        }
        free(in[r]);
        free(out[r]);
    }
    free(expected);
}

static void
run_all(world *w)
{
    static const size_t lengths[] = {0, 1, 1000, 70000, 1000000};

    run_barrier(w);
    for (int root = 0; root < w->size; root++) {
        for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
            run_bcast(w, root, lengths[i]);
        }
        run_gather(w, root, false);
        run_gather(w, root, true);
        run_scatter(w, root);
        run_reduce(w, root, 10, UMX_SUM, root % 2 == 0);
        run_reduce(w, root, 20011, UMX_SUM, root % 2 == 0);
    }
    run_allgather(w, false);
    run_allgather(w, true);
    run_alltoall(w);
    run_alltoall_buffers(w, NULL, UMX_OK);
    for (int how = 0; how < 4; how++) {
        run_reduce(w, -1, 0, (umx_reduce_op)how, false);
        run_reduce(w, -1, 3, (umx_reduce_op)how, false);
        run_reduce(w, -1, 30011, (umx_reduce_op)how, how % 2 == 0);
    }
}

static void
test_buffers_of_the_users_memory(void **state)
{
    world           *w        = *state;
    memory_of       *memories = calloc(3, sizeof(*memories));
    umx_comm_failure failure;

    world_open(w, 3);
    for (int r = 0; r < 3; r++) {
        memories[r].refused = -1;
    }
    run_alltoall_buffers(w, memories, UMX_OK);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(memories[r].num_calls, 2); /* of 3: one is empty */
    }
    memories[0].refused = 1; /* all need something of rank 0 */
    run_alltoall_buffers(w, memories, UMX_ERR_RANK_FAILED);
    for (int r = 0; r < 3; r++) {
        assert_true(umx_comm_get_failure(w->comms[r], &failure));
        assert_int_equal(failure.rank, 0);
        assert_int_equal(failure.cause, UMX_ERR_NO_RESOURCE);
        assert_string_equal(failure.op, "alltoall_buffers");
        expect_reason(w, r, "rank 0 gets no memory for the ");
        expect_reason(w, r, " bytes of rank 1: ");
    }
    free(memories);
}

static void
test_one_rank(void **state)
{
    world *w = *state;

    random_state = 1;
    world_open(w, 1);
    run_all(w);
}

static void
test_two_ranks(void **state)
{
    world *w = *state;

    random_state = 2;
    world_open(w, 2);
    run_all(w);
}

static void
test_three_ranks(void **state)
{
    world *w = *state;

    random_state = 3;
    world_open(w, 3);
    run_all(w);
}

static void
test_seven_ranks(void **state)
{
    world *w = *state;

    random_state = 7;
    world_open(w, 7);
    run_all(w);
}

/* ---- several under way ---------------------------------------------------
 */

static void
test_several_are_under_way(void **state)
{
    enum {
        COUNT = 20
    };

    world   *w = *state;
    job      jobs[3][COUNT];
    uint64_t values[3][COUNT][1000];

    world_open(w, 3);
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < COUNT; i++) {
            umx_op_params params = job_params(&jobs[r][i]);
            umx_request  *req    = NULL;
            umx_buffer    buf    = umx_host_buffer(values[r][i],
                                                   sizeof(values[r][i]));

            memset(values[r][i], 0, sizeof(values[r][i]));
            if (r == i % 3) {
                values[r][i][999] = (uint64_t)i + 1;
            }
            job_posted(&jobs[r][i],
                       umx_bcast(w->comms[r], i % 3, &buf, &params, &req),
                       &req);
        }
    }
    for (int r = 0; r < 3; r++) {
        world_wait(w, jobs[r], COUNT, UMX_OK);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(values[r][i][999], i + 1);
        }
    }
}

/* ---- split ---------------------------------------------------------------
 */

/* The same process has these ranks in two communicators, and no other has. */
static void
expect_process(const umx_comm *one, int rank, const umx_comm *other, int also)
{
    uint64_t group, same;
    int      place = umx_comm_member(one, rank, &group);

    assert_int_equal(place, rank); /* they have connected together */
    for (int i = 0; i < umx_comm_size(other); i++) {
        bool is_same = umx_comm_member(other, i, &same) == place;

        assert_int_equal(same, group);
        assert_int_equal(is_same, i == also);
    }
}

static void
test_split(void **state)
{
    static const int colors[] = {1, 0, 1, 0, -1};
    static const int ranks[]  = {1, 0, 0, 1, -1}; /* keys fall */

    world    *w = *state;
    umx_comm *made[5], *old[5];
    job       jobs[5];

    world_open(w, 5);
    for (int r = 0; r < 5; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        int           key    = (colors[r] == 1) ? -r : 0;

        job_posted(&jobs[r],
                   umx_comm_split(w->comms[r], colors[r], key, &params,
                                  &made[r], &req),
                   &req);
    }
    world_wait(w, jobs, 5, UMX_OK);
    assert_null(made[4]);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(umx_comm_size(made[r]), 2);
        assert_int_equal(umx_comm_rank(made[r]), ranks[r]);
        expect_process(w->comms[r], r, made[r], ranks[r]);
        old[r]      = w->comms[r];
        w->comms[r] = made[r];
    }
    for (int r = 0; r < 4; r++) {
        uint64_t     *value  = malloc(sizeof(*value));
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        umx_buffer    buf    = umx_host_buffer(value, sizeof(*value));
        umx_reduction what   = {UMX_UINT64, UMX_SUM};

        *value  = (uint64_t)r;
        made[r] = (umx_comm *)(void *)value;
        job_posted(&jobs[r],
                   umx_allreduce(w->comms[r], &what, UMX_IN_PLACE, &buf,
                                 &params, &req),
                   &req);
    }
    world_wait(w, jobs, 4, UMX_OK);
    for (int r = 0; r < 4; r++) {
        uint64_t *value = (uint64_t *)(void *)made[r];

        assert_int_equal(*value, (r % 2 == 0) ? 2 : 4);
        free(value);
        umx_comm_close(w->comms[r]);
        umx_comm_destroy(w->comms[r]);
        w->comms[r] = old[r];
    }
    run_barrier(w);
}

/* ---- what goes wrong -----------------------------------------------------
 */

static void
test_different_operations_are_told_apart(void **state)
{
    world        *w = *state;
    job           jobs[2];
    umx_op_params params;
    umx_request  *req  = NULL;
    uint64_t      word = 0;
    umx_buffer    buf  = umx_host_buffer(&word, sizeof(word));

    world_open(w, 2);
    params = job_params(&jobs[0]);
    job_posted(&jobs[0], umx_barrier(w->comms[0], &params, &req), &req);
    params = job_params(&jobs[1]);
    job_posted(&jobs[1], umx_bcast(w->comms[1], 1, &buf, &params, &req), &req);
    assert_int_equal(world_wait_one(w, &jobs[0]), UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, "rank 1 has called bcast, rank 0 barrier");
}

static void
test_different_roots_are_told_apart(void **state)
{
    world        *w = *state;
    job           jobs[2];
    umx_op_params params;
    umx_request  *req  = NULL;
    uint64_t      word = 0;
    umx_buffer    buf  = umx_host_buffer(&word, sizeof(word));

    world_open(w, 2);
    for (int r = 0; r < 2; r++) { /* each waits for the other, and says so */
        params = job_params(&jobs[r]);
        job_posted(&jobs[r], umx_bcast(w->comms[r], 1 - r, &buf, &params, &req),
                   &req);
    }
    world_wait(w, jobs, 2, UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, "the root is");
}

static void
test_different_lengths_are_told_apart(void **state)
{
    world        *w = *state;
    job           jobs[2];
    umx_op_params params;
    umx_request  *req      = NULL;
    uint64_t      words[2] = {0};

    world_open(w, 2);
    for (int r = 0; r < 2; r++) {
        umx_buffer buf = umx_host_buffer(words, 8 + 8 * (size_t)r);

        params = job_params(&jobs[r]);
        job_posted(&jobs[r], umx_bcast(w->comms[r], 0, &buf, &params, &req),
                   &req);
    }
    assert_int_equal(world_wait_one(w, &jobs[1]), UMX_ERR_RANK_FAILED);
    expect_reason(w, 1, "rank 0 gives 8 bytes, rank 1 16");
}

static void
test_cancelling_one_revokes(void **state)
{
    world        *w = *state;
    job           jobs[2];
    umx_op_params params;
    umx_request  *req = NULL;

    world_open(w, 3);
    for (int r = 0; r < 2; r++) {
        params = job_params(&jobs[r]);
        job_posted(&jobs[r], umx_barrier(w->comms[r], &params, &req), &req);
    }
    assert_non_null(jobs[0].req);
    op_cancel(jobs[0].req);
    world_wait(w, jobs, 2, UMX_ERR_RANK_FAILED);
    expect_reason(w, 1, "cancelled by rank 0");
    for (int i = 0; i < 10; i++) {
        world_step(w);
    }
    params = job_params(&jobs[0]);
    assert_int_equal(umx_barrier(w->comms[2], &params, &req),
                     UMX_ERR_RANK_FAILED);
}

enum {
    CANCELLED_RANKS = 3,
    POISON          = 0xee
};

/* An allgather of one rank into memory that others can map, or cannot. */
typedef struct gathering {
    job       j;
    umx_memh *memh;
    char     *own; /* what it sends */
    char     *all;
} gathering;

static void
begin_gathering(world *w, int rank, size_t len, gathering *g)
{
    static size_t counts[CANCELLED_RANKS];

    umx_op_params params = job_params(&g->j);
    umx_pieces    pieces = {.counts = counts};
    umx_request  *req    = NULL;
    umx_buffer    send, recv;

    for (int i = 0; i < CANCELLED_RANKS; i++) {
        counts[i] = len;
    }
    assert_int_equal(umx_memh_alloc(w->context, len, &g->memh), UMX_OK);
    send     = *umx_memh_buffer(g->memh);
    send.len = len;
    g->own   = send.data;
    g->all   = malloc(CANCELLED_RANKS * len);
    recv     = umx_host_buffer(g->all, CANCELLED_RANKS * len);
    memset(g->own, 'a' + rank, len);
    job_posted(
        &g->j,
        umx_allgatherv(w->comms[rank], &send, &recv, &pieces, &params, &req),
        &req);
}

static void
end_gathering(world *w, size_t len, gathering *g)
{
    umx_status status = world_wait_one(w, &g->j);

    assert_true(status == UMX_OK || status == UMX_ERR_RANK_FAILED);
    for (int i = 0; status == UMX_OK && i < CANCELLED_RANKS; i++) {
        assert_int_equal(g->all[(size_t)i * len], 'a' + i);
        assert_int_equal(g->all[(size_t)(i + 1) * len - 1], 'a' + i);
    }
    memset(g->own, POISON, len);
    memset(g->all, POISON, CANCELLED_RANKS * len);
}

static void
expect_poison(const gathering *g, size_t len)
{
    for (size_t i = 0; i < CANCELLED_RANKS * len; i++) {
        assert_int_equal((unsigned char)g->all[i], POISON);
    }
    free(g->all);
    umx_memh_release(g->memh);
}

/* Cancel an allgather at rank 1 after `moment` steps. */
static void
cancel_gathering(world *w, int moment, size_t len)
{
    gathering g[CANCELLED_RANKS];

    for (int i = 0; i < CANCELLED_RANKS; i++) {
        begin_gathering(w, i, len, &g[i]);
    }
    for (int i = 0; i < moment; i++) {
        world_step(w);
    }
    if (g[1].j.req != NULL) {
        assert_int_equal(umx_request_cancel(g[1].j.req), UMX_OK);
        memset(g[1].own, POISON, len);
        memset(g[1].all, POISON, CANCELLED_RANKS * len);
        assert_int_equal(world_wait_one(w, &g[1].j), UMX_ERR_RANK_FAILED);
    }
    for (int i = 0; i < CANCELLED_RANKS; i++) {
        end_gathering(w, len, &g[i]);
    }
    for (int i = 0; i < 20; i++) {
        world_step(w);
    }
    for (int i = 0; i < CANCELLED_RANKS; i++) {
        expect_poison(&g[i], len);
    }
}

/* The buffers of an operation that has failed are free, wherever the bytes
 * are, and nobody takes what was written there after it. */
static void
test_buffers_of_a_cancelled_operation_are_free(void **state)
{
    static const size_t sizes[] = {1000, 20000, 300000};

    world *w = *state;

    world_open(w, CANCELLED_RANKS);
    for (int moment = 0; moment < 30; moment++) {
        umx_comm *parents[CANCELLED_RANKS];

        for (int i = 0; i < CANCELLED_RANKS; i++) {
            parents[i] = w->comms[i];
            assert_int_equal(umx_comm_derive(parents[i], 7, &w->comms[i]),
                             UMX_OK);
        }
        if (moment % 2 != 0) { /* the inboxes are there */
            for (int i = 0; i < 3; i++) {
                run_barrier(w);
            }
        }
        cancel_gathering(w, moment / 6, sizes[moment % 3]);
        for (int i = 0; i < CANCELLED_RANKS; i++) {
            umx_comm_destroy(w->comms[i]);
            w->comms[i] = parents[i];
        }
    }
}

static void
test_a_rank_has_left(void **state)
{
    world        *w = *state;
    job           jobs[2];
    umx_op_params params;
    umx_request  *req = NULL;

    world_open(w, 3);
    run_barrier(w);
    umx_comm_close(w->comms[2]);
    for (int r = 0; r < 2; r++) {
        params = job_params(&jobs[r]);
        job_posted(&jobs[r], umx_barrier(w->comms[r], &params, &req), &req);
    }
    world_wait(w, jobs, 2, UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, "rank 2 has left");
    expect_reason(w, 1, "rank 2 has left");
}

/* Post barriers on rank 0 and 1, which fail, as `text` says. */
static void
expect_barriers_fail(world *w, const char *text)
{
    job jobs[2];

    for (int r = 0; r < 2; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;

        job_posted(&jobs[r], umx_barrier(w->comms[r], &params, &req), &req);
    }
    world_wait(w, jobs, 2, UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, text);
    expect_reason(w, 1, text);
}

static void
test_a_rank_that_is_given_back_has_left(void **state)
{
    world *w = *state;

    world_open(w, 3);
    run_barrier(w);
    umx_comm_destroy(w->comms[2]);
    w->comms[2] = NULL;
    expect_barriers_fail(w, "rank 2 has left the communicator");
}

static void
test_all_of_a_worker_are_closed(void **state)
{
    world    *w = *state;
    umx_comm *derived[3];

    world_open(w, 3);
    run_barrier(w);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(umx_comm_derive(w->comms[r], 1, &derived[r]), UMX_OK);
    }
    umx_comm_close_all(w->workers[2], NULL, NULL);
    expect_barriers_fail(w, "rank 2 has left the communicator");
    for (int r = 0; r < 3; r++) {
        assert_false(r == 2 &&
                     umx_comm_get_failure(derived[r], &(umx_comm_failure){0}));
        umx_comm_destroy(derived[r]);
    }
}

static void
test_all_of_a_worker_are_aborted(void **state)
{
    world                 *w    = *state;
    const umx_comm_failure none = {.member = -1};

    world_open(w, 3);
    run_barrier(w);
    umx_comm_close_all(w->workers[2], &none, "ValueError: boom");
    expect_barriers_fail(w, "rank 2 has aborted the communicator: ValueError: "
                            "boom");
}

static void
test_a_worker_without_communicators_closes_none(void **state)
{
    world *w = *state;

    world_workers(w, 1);
    umx_comm_close_all(w->workers[0], NULL, NULL);
}

static void
test_a_rank_dies_in_each(void **state)
{
    world *w = *state;

    for (int dead = 0; dead < 3; dead++) {
        char      *data = calloc(3, MAX_PIECE);
        job        jobs[3];
        umx_buffer buf[3];

        world_open(w, 3);
        for (int r = 0; r < 3; r++) {
            umx_op_params params = job_params(&jobs[r]);
            umx_request  *req    = NULL;
            umx_reduction what   = {UMX_UINT8, UMX_SUM};

            buf[r] = umx_host_buffer(data + r * MAX_PIECE, MAX_PIECE);
            if (r == dead) {
                continue;
            }
            job_posted(&jobs[r],
                       umx_allreduce(w->comms[r], &what, UMX_IN_PLACE, &buf[r],
                                     &params, &req),
                       &req);
        }
        for (int i = 0; i < dead * 3; i++) {
            world_step(w);
        }
        umx_worker_destroy(w->workers[dead]);
        w->workers[dead] = NULL;
        for (int r = 0; r < 3; r++) {
            umx_comm_failure failure;

            if (r != dead) {
                assert_int_equal(world_wait_one(w, &jobs[r]),
                                 UMX_ERR_RANK_FAILED);
                assert_true(umx_comm_get_failure(w->comms[r], &failure));
                assert_int_equal(failure.rank, dead);
                assert_string_equal(failure.op, "allreduce");
            }
        }
        for (int r = 0; r < 3; r++) {
            umx_comm_destroy(w->comms[r]);
            w->comms[r] = NULL;
            if (w->workers[r] != NULL) {
                umx_worker_destroy(w->workers[r]);
                w->workers[r] = NULL;
            }
        }
        free(data);
        if (dead < 2) {
            umx_context_release(w->context);
            w->port = 0;
        }
    }
}

static void
test_wrong_arguments(void **state)
{
    world        *w   = *state;
    umx_request  *req = NULL;
    char          data[16];
    umx_buffer    buf         = umx_host_buffer(data, 16);
    umx_buffer    half        = umx_host_buffer(data + 4, 8);
    size_t        counts[]    = {8, 9};
    umx_pieces    pieces      = {counts, NULL};
    umx_reduction complex_max = {UMX_COMPLEX64, UMX_MAX};
    umx_reduction sum         = {UMX_INT32, UMX_SUM};
    umx_comm     *comm;

    world_open(w, 2);
    comm = w->comms[0];
    assert_int_equal(umx_bcast(comm, 2, &buf, NULL, &req),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_bcast(comm, -1, &buf, NULL, &req),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(
        umx_allgatherv(comm, UMX_IN_PLACE, &buf, &pieces, NULL, &req),
        UMX_ERR_OUT_OF_RANGE);
    counts[1] = 8;
    assert_int_equal(umx_allgatherv(comm, &half, &buf, &pieces, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(
        umx_alltoallv(comm, &buf, &pieces, &buf, &pieces, NULL, &req),
        UMX_ERR_INVALID_PARAM);
    assert_int_equal(
        umx_allreduce(comm, &complex_max, UMX_IN_PLACE, &buf, NULL, &req),
        UMX_ERR_UNSUPPORTED);
    assert_int_equal(umx_allreduce(comm, &sum, &half, &buf, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(
        umx_gatherv(w->comms[1], 0, UMX_IN_PLACE, NULL, NULL, NULL, &req),
        UMX_ERR_INVALID_PARAM);
    run_barrier(w); /* nothing of it has begun */
}

/* ---- types ---------------------------------------------------------------
 */

static void
test_types(void **state)
{
    world        *w   = *state;
    umx_request  *req = NULL;
    job           jobs[2];
    int8_t        small[2][2]  = {{100, -100}, {100, -100}};
    float         nan          = __builtin_nanf("");
    float         floats[2][2] = {{nan, 1}, {1, nan}};
    umx_reduction sum = {UMX_INT8, UMX_SUM}, min = {UMX_FLOAT32, UMX_MIN};

    world_open(w, 2);
    for (int r = 0; r < 2; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_buffer    buf    = umx_host_buffer(small[r], 2);

        job_posted(
            &jobs[r],
            umx_allreduce(w->comms[r], &sum, UMX_IN_PLACE, &buf, &params, &req),
            &req);
    }
    world_wait(w, jobs, 2, UMX_OK);
    assert_int_equal(small[0][0], -56);
    assert_int_equal(small[1][1], 56);
    for (int r = 0; r < 2; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_buffer    buf    = umx_host_buffer(floats[r], 8);

        job_posted(
            &jobs[r],
            umx_allreduce(w->comms[r], &min, UMX_IN_PLACE, &buf, &params, &req),
            &req);
    }
    world_wait(w, jobs, 2, UMX_OK);
    for (int i = 0; i < 4; i++) {
        assert_true(floats[i / 2][i % 2] != floats[i / 2][i % 2]);
    }
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(test_one_rank),
        WORLD_TEST(test_buffers_of_the_users_memory),
        WORLD_TEST(test_two_ranks),
        WORLD_TEST(test_three_ranks),
        WORLD_TEST(test_seven_ranks),
        WORLD_TEST(test_several_are_under_way),
        WORLD_TEST(test_split),
        WORLD_TEST(test_different_operations_are_told_apart),
        WORLD_TEST(test_different_roots_are_told_apart),
        WORLD_TEST(test_different_lengths_are_told_apart),
        WORLD_TEST(test_cancelling_one_revokes),
        WORLD_TEST(test_buffers_of_a_cancelled_operation_are_free),
        WORLD_TEST(test_a_rank_has_left),
        WORLD_TEST(test_a_rank_that_is_given_back_has_left),
        WORLD_TEST(test_all_of_a_worker_are_closed),
        WORLD_TEST(test_all_of_a_worker_are_aborted),
        WORLD_TEST(test_a_worker_without_communicators_closes_none),
        WORLD_TEST(test_a_rank_dies_in_each),
        WORLD_TEST(test_wrong_arguments),
        WORLD_TEST(test_types),
    };

    return UNIT_RUN(tests);
}
