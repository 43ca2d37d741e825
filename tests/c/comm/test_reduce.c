/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* Reductions whose result is another on each rank: scan, exscan and
 * reduce_scatter; test_collective.c has the others. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_COUNT = 30011 /* items; they go in blocks */
};

/* Items of each rank, and room for results. Doubles, whose sum depends on the
 * order. */
typedef struct numbers {
    double *in[MAX_RANKS];
    double *out[MAX_RANKS];
    double *expected[MAX_RANKS]; /* the sum of the ranks up to each */
    size_t  count;
} numbers;

static void
numbers_init(numbers *n, int size, size_t count)
{
    double scale = 1;

    n->count = count;
    for (int r = 0; r < size; r++) {
        n->in[r]       = malloc((count + 1) * sizeof(double));
        n->out[r]      = malloc((count + 1) * sizeof(double));
        n->expected[r] = malloc((count + 1) * sizeof(double));
        for (size_t i = 0; i < count; i++) {
            n->in[r][i]       = ((double)next_random(1000000) - 500000) * scale;
            n->out[r][i]      = -1;
            n->expected[r][i] = (r == 0) ? n->in[0][i] :
                                           n->expected[r - 1][i] + n->in[r][i];
        }
        n->out[r][count] = -2; /* behind the buffer */
        scale *= 10;
    }
}

static void
numbers_fini(numbers *n, int size)
{
    for (int r = 0; r < size; r++) {
        assert_true(n->out[r][n->count] == -2);
        free(n->in[r]);
        free(n->out[r]);
        free(n->expected[r]);
    }
}

static umx_buffer
buffer_of(double *items, size_t count)
{
    return umx_host_buffer(items, count * sizeof(double));
}

static void
run_scan(world *w, size_t count, bool is_exclusive, bool in_place)
{
    static const umx_reduction sum = {UMX_FLOAT64, UMX_SUM};

    numbers n;
    job     jobs[MAX_RANKS];

    numbers_init(&n, w->size, count);
    for (int r = 0; r < w->size; r++) {
        umx_op_params     params = job_params(&jobs[r]);
        umx_request      *req    = NULL;
        umx_buffer        send   = buffer_of(n.in[r], count);
        umx_buffer        recv   = buffer_of(n.out[r], count);
        const umx_buffer *from   = in_place ? UMX_IN_PLACE : &send;

        if (in_place) {
            memcpy(n.out[r], n.in[r], count * sizeof(double));
        }
        job_posted(
            &jobs[r],
            is_exclusive ?
                umx_exscan(w->comms[r], &sum, from, &recv, &params, &req) :
                umx_scan(w->comms[r], &sum, from, &recv, &params, &req),
            &req);
    }
    world_wait(w, jobs, w->size, UMX_OK);
    for (int r = 0; r < w->size; r++) {
        if (!is_exclusive || r > 0) {
            assert_memory_equal(n.out[r], n.expected[r - is_exclusive],
                                count * sizeof(double));
        } else if (in_place) {
            assert_memory_equal(n.out[0], n.in[0], count * sizeof(double));
        } else if (count != 0) {
            assert_true(n.out[0][0] == -1 && n.out[0][count - 1] == -1);
        }
    }
    numbers_fini(&n, w->size);
}

/* `counts` of items, or NULL. */
static void
run_reduce_scatter(world *w, size_t count, const size_t *counts, bool in_place)
{
    static const umx_reduction sum = {UMX_FLOAT64, UMX_SUM};

    size_t  bytes[MAX_RANKS], at = 0;
    numbers n;
    job     jobs[MAX_RANKS];

    numbers_init(&n, w->size, count);
    for (int r = 0; r < w->size; r++) {
        bytes[r] = ((counts != NULL) ? counts[r] : count / (size_t)w->size) *
                   sizeof(double);
    }
    for (int r = 0; r < w->size; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        umx_buffer    send   = buffer_of(n.in[r], count);
        umx_buffer    recv   = umx_host_buffer(n.out[r], bytes[r]);
        umx_buffer    all    = buffer_of(n.out[r], count);

        if (in_place) {
            memcpy(n.out[r], n.in[r], count * sizeof(double));
        }
        job_posted(&jobs[r],
                   umx_reduce_scatter(
                       w->comms[r], &sum, in_place ? UMX_IN_PLACE : &send,
                       in_place ? &all : &recv, (counts != NULL) ? bytes : NULL,
                       &params, &req),
                   &req);
    }
    world_wait(w, jobs, w->size, UMX_OK);
    for (int r = 0; r < w->size; r++) {
        size_t len = bytes[r] / sizeof(double);

        assert_memory_equal(n.out[r], n.expected[w->size - 1] + at, bytes[r]);
        if (len < count && !in_place) {
            assert_true(n.out[r][len] == -1);
        }
        at += len;
    }
    numbers_fini(&n, w->size);
}

/* In place, with pieces of random lengths. */
static void
run_alltoall_in_place(world *w)
{
    size_t         counts[MAX_RANKS][MAX_RANKS]; /* the same both ways */
    unsigned char *data[MAX_RANKS];
    job            jobs[MAX_RANKS];

    for (int a = 0; a < w->size; a++) {
        for (int b = a; b < w->size; b++) {
            counts[a][b] = (next_random(4) == 0) ? 0 : next_random(100000);
            counts[b][a] = counts[a][b];
        }
    }
    for (int r = 0; r < w->size; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        size_t        displs[MAX_RANKS], at = 0;
        umx_pieces    pieces = {counts[r], displs};
        umx_buffer    recv;

        for (int i = w->size - 1; i >= 0; i--) { /* the last rank's first */
            displs[i] = at + 8;
            at += counts[r][i] + 8;
        }
        data[r] = malloc(at + 1);
        memset(data[r], 0xee, at + 1);
        for (int i = 0; i < w->size; i++) {
            for (size_t k = 0; k < counts[r][i]; k++) {
                data[r][displs[i] + k] = byte_of(r, i, k);
            }
        }
        recv = umx_host_buffer(data[r], at);
        job_posted(&jobs[r],
                   umx_alltoallv(w->comms[r], UMX_IN_PLACE, NULL, &recv,
                                 &pieces, &params, &req),
                   &req);
    }
    world_wait(w, jobs, w->size, UMX_OK);
    for (int r = 0; r < w->size; r++) {
        size_t at = 0;

        for (int i = w->size - 1; i >= 0; i--) {
            for (size_t k = 0; k < 8; k++) {
                assert_int_equal(data[r][at++], 0xee);
            }
            for (size_t k = 0; k < counts[r][i]; k++) {
                assert_int_equal(data[r][at++], byte_of(i, r, k));
            }
        }
        free(data[r]);
    }
}

static void
run_all(world *w)
{
    static const size_t totals[] = {0, 10, MAX_COUNT};

    for (size_t i = 0; i < 3; i++) {
        for (int how = 0; how < 4; how++) {
            run_scan(w, totals[i], how % 2 == 0, how / 2 == 0);
        }
        for (int in_place = 0; in_place < 2; in_place++) {
            size_t counts[MAX_RANKS], rest = totals[i];

            run_reduce_scatter(w, totals[i] / (size_t)w->size * (size_t)w->size,
                               NULL, in_place);
            for (int r = 0; r < w->size; r++) {
                counts[r] = (r == w->size - 1)    ? rest :
                            (next_random(3) == 0) ? 0 :
                                                    rest / 2;
                rest -= counts[r];
            }
            run_reduce_scatter(w, totals[i], counts, in_place);
        }
    }
    run_alltoall_in_place(w);
}

static void
test_one_rank(void **state)
{
    random_state = 1;
    world_open(*state, 1);
    run_all(*state);
}

static void
test_two_ranks(void **state)
{
    random_state = 2;
    world_open(*state, 2);
    run_all(*state);
}

static void
test_five_ranks(void **state)
{
    random_state = 5;
    world_open(*state, 5);
    run_all(*state);
}

static void
test_the_average_of_a_scan_is_of_the_ranks_so_far(void **state)
{
    static const umx_reduction avg        = {UMX_FLOAT16, UMX_AVG};
    static const uint16_t      expected[] = {0x3c00, 0x3e00, 0x4000};

    world   *w         = *state;
    uint16_t halves[3] = {0x3c00, 0x4000, 0x4200}; /* 1, 2, 3 */
    job      jobs[3];

    world_open(w, 3);
    for (int r = 0; r < 3; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        umx_buffer    buf    = umx_host_buffer(&halves[r], sizeof(*halves));

        job_posted(
            &jobs[r],
            umx_scan(w->comms[r], &avg, UMX_IN_PLACE, &buf, &params, &req),
            &req);
    }
    world_wait(w, jobs, 3, UMX_OK);
    assert_memory_equal(halves, expected, sizeof(halves));
}

/* ---- what goes wrong -----------------------------------------------------
 */

static void
test_a_scan_is_told_from_an_exscan(void **state)
{
    static const umx_reduction sum = {UMX_FLOAT64, UMX_SUM};

    world     *w        = *state;
    double     words[2] = {1, 2};
    job        jobs[2];
    umx_buffer buf[2];

    world_open(w, 2);
    for (int r = 0; r < 2; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;

        buf[r] = buffer_of(&words[r], 1);
        job_posted(&jobs[r],
                   (r == 0) ? umx_scan(w->comms[r], &sum, UMX_IN_PLACE, &buf[r],
                                       &params, &req) :
                              umx_exscan(w->comms[r], &sum, UMX_IN_PLACE,
                                         &buf[r], &params, &req),
                   &req);
    }
    assert_int_equal(world_wait_one(w, &jobs[1]), UMX_ERR_RANK_FAILED);
    expect_reason(w, 1, "rank 0 has called scan, rank 1 exscan");
    assert_true(words[1] == 2);
}

static void
test_different_counts_are_told(void **state)
{
    static const umx_reduction sum          = {UMX_UINT8, UMX_SUM};
    static const size_t        counts[2][2] = {{4, 4}, {3, 5}};

    world  *w = *state;
    uint8_t data[2][8];
    job     jobs[2];

    memset(data, 0, sizeof(data));
    world_open(w, 2);
    for (int r = 0; r < 2; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;
        umx_buffer    buf    = umx_host_buffer(data[r], 8);

        job_posted(&jobs[r],
                   umx_reduce_scatter(w->comms[r], &sum, UMX_IN_PLACE, &buf,
                                      counts[r], &params, &req),
                   &req);
    }
    world_wait(w, jobs, 2, UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, "bytes, rank");
}

static void
test_wrong_arguments(void **state)
{
    static const umx_reduction sum  = {UMX_FLOAT64, UMX_SUM};
    static const umx_reduction none = {UMX_FLOAT64, UMX_BAND};

    world       *w   = *state;
    umx_request *req = NULL;
    double       data[8];
    umx_buffer   all = buffer_of(data, 8), four = buffer_of(data, 4);
    umx_buffer   back = buffer_of(data + 4, 4), three = buffer_of(data + 4, 3);
    size_t       odd[2] = {20, 44}, less[2] = {32, 24}, more[2] = {64, 8};
    umx_comm    *comm;
    job          jobs[2];

    world_open(w, 2);
    comm = w->comms[0];
    assert_int_equal(umx_scan(comm, &none, &four, &back, NULL, &req),
                     UMX_ERR_UNSUPPORTED);
    assert_int_equal(umx_scan(comm, &sum, &four, &three, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_exscan(comm, &sum, &four, &all, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_exscan(comm, &sum, UMX_IN_PLACE, NULL, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    for (int i = 0; i < 3; i++) {
        const size_t *counts = (i == 0) ? odd : (i == 1) ? less : more;

        assert_int_equal(umx_reduce_scatter(comm, &sum, UMX_IN_PLACE, &all,
                                            counts, NULL, &req),
                         UMX_ERR_INVALID_PARAM);
    }
    assert_int_equal(
        umx_reduce_scatter(comm, &sum, &four, &three, NULL, NULL, &req),
        UMX_ERR_INVALID_PARAM);
    three = buffer_of(data, 3); /* has no two equal parts */
    assert_int_equal(
        umx_reduce_scatter(comm, &sum, UMX_IN_PLACE, &three, NULL, NULL, &req),
        UMX_ERR_INVALID_PARAM);
    assert_int_equal(
        umx_reduce_scatter(comm, &sum, &four, NULL, NULL, NULL, &req),
        UMX_ERR_INVALID_PARAM);
    for (int r = 0; r < 2; r++) { /* nothing of it has begun */
        umx_op_params params = job_params(&jobs[r]);

        job_posted(&jobs[r], umx_barrier(w->comms[r], &params, &req), &req);
    }
    world_wait(w, jobs, 2, UMX_OK);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(test_one_rank),
        WORLD_TEST(test_two_ranks),
        WORLD_TEST(test_five_ranks),
        WORLD_TEST(test_the_average_of_a_scan_is_of_the_ranks_so_far),
        WORLD_TEST(test_a_scan_is_told_from_an_exscan),
        WORLD_TEST(test_different_counts_are_told),
        WORLD_TEST(test_wrong_arguments),
    };

    return UNIT_RUN(tests);
}
