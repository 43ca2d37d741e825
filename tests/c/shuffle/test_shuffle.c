/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port tsan */
/* tests: shuffle/read_chunks shuffle/insert shuffle/partition shuffle/peer */
/* tests: shuffle/shuffler shuffle/spill */
#include "world.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <umx/heap.h>

enum {
    MAX_CHUNKS = 4096
};

/* A shuffle whose ranks are workers of this process. */
typedef struct shuffle {
    world        *w;
    umx_shuffler *ranks[MAX_RANKS];
    uint32_t      num_partitions;
    umx_memh     *memhs[MAX_CHUNKS];
    job           inserts[MAX_CHUNKS];
    size_t        lens[MAX_CHUNKS];
    uint32_t      partitions[MAX_CHUNKS];
    int           sources[MAX_CHUNKS];
    size_t        count;
} shuffle;

static void
open_shuffle(shuffle *s, world *w, const umx_shuffler_params *params)
{
    memset(s, 0, sizeof(*s));
    s->w              = w;
    s->num_partitions = params->num_partitions;
    for (int r = 0; r < w->size; r++) {
        assert_int_equal(umx_shuffler_create(w->comms[r], params, &s->ranks[r]),
                         UMX_OK);
    }
}

/* The bytes of the chunk `number`. */
static unsigned char
chunk_byte(size_t number, size_t i)
{
    return (unsigned char)(number * 31 + i * 7 + (i >> 8));
}

static umx_status
insert(shuffle *s, int rank, uint32_t partition, size_t len, bool is_private)
{
    size_t        n      = s->count++;
    umx_op_params params = job_params(&s->inserts[n]);
    umx_request  *req    = NULL;
    umx_status    status;
    char         *data;

    assert_true(n < MAX_CHUNKS);
    status = is_private ?
                 umx_memh_alloc_private(s->w->context, len + 64, &s->memhs[n]) :
                 umx_memh_alloc(s->w->context, len + 64, &s->memhs[n]);
    assert_int_equal(status, UMX_OK);
    data = umx_memh_buffer(s->memhs[n])->data;
    for (size_t i = 0; i < len; i++) {
        data[64 + i] = (char)chunk_byte(n, i);
    }
    s->lens[n]       = len;
    s->partitions[n] = partition;
    s->sources[n]    = rank;
    status = umx_shuffler_insert(s->ranks[rank], partition, s->memhs[n], 64,
                                 len, &params, &req);
    job_posted(&s->inserts[n], status, &req);
    return status;
}

static void
finish_all(shuffle *s)
{
    for (int r = 0; r < s->w->size; r++) {
        assert_int_equal(
            umx_shuffler_insert_finished(s->ranks[r], UMX_PARTITION_ALL),
            UMX_OK);
    }
}

/* The chunks of a partition are those that were inserted, in their order. */
static void
check_chunks(shuffle *s, uint32_t partition, umx_shuffle_chunk *const *chunks,
             size_t count)
{
    size_t at = 0;

    for (int r = 0; r < s->w->size; r++) {
        for (size_t n = 0; n < s->count; n++) {
            umx_shuffle_chunk_info info;
            const unsigned char   *data;

            if (s->partitions[n] != partition || s->sources[n] != r) {
                continue;
            }
            assert_true(at < count);
            umx_shuffle_chunk_query(chunks[at++], &info);
            assert_int_equal(info.source, r);
            assert_int_equal(info.len, s->lens[n]);
            data = info.data;
            for (size_t i = 0; i < info.len; i++) {
                assert_int_equal(data[i], chunk_byte(n, i));
            }
        }
    }
    assert_int_equal(at, count);
}

/* Wait for each partition of a rank and take it; the number of partitions. */
static int
take_all(shuffle *s, int rank, bool keeps, umx_shuffle_chunk **kept,
         size_t *num_kept)
{
    int taken = 0;

    for (;;) {
        job                j;
        umx_op_params      params = job_params(&j);
        umx_request       *req    = NULL;
        uint32_t           partition;
        umx_shuffle_chunk *chunks[MAX_CHUNKS];
        size_t             count = 0;
        umx_status         status;

        params.flags = UMX_OP_FLAG_KEEP;
        params.field_mask |= UMX_OP_FIELD_FLAGS;
        status = umx_shuffler_wait(s->ranks[rank], UMX_PARTITION_ALL, &params,
                                   &req, &partition);
        job_posted(&j, status, &req);
        status = world_wait_one(s->w, &j);
        if (req != NULL) {
            partition = umx_shuffler_result(req);
            umx_request_release(req);
        }
        assert_int_equal(status, UMX_OK);
        if (partition == UMX_PARTITION_ALL) {
            return taken;
        }
        status = umx_shuffler_extract(s->ranks[rank], partition, NULL, &count);
        if (status == UMX_ERR_BUFFER_TOO_SMALL) {
            status = umx_shuffler_extract(s->ranks[rank], partition, chunks,
                                          &count);
        }
        assert_int_equal(status, UMX_OK);
        check_chunks(s, partition, chunks, count);
        assert_int_equal(
            umx_shuffler_extract(s->ranks[rank], partition, chunks, &count),
            UMX_ERR_NO_ELEM);
        for (size_t i = 0; i < count; i++) {
            if (keeps) {
                kept[(*num_kept)++] = chunks[i];
            } else {
                umx_shuffle_chunk_release(chunks[i]);
            }
        }
        taken++;
    }
}

static void
close_shuffle(shuffle *s, umx_status status)
{
    job jobs[MAX_RANKS];

    for (int r = 0; r < s->w->size; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;

        job_posted(&jobs[r], umx_shuffler_close(s->ranks[r], &params, &req),
                   &req);
    }
    world_wait(s->w, jobs, s->w->size, status);
    for (int r = 0; r < s->w->size; r++) {
        umx_shuffler_destroy(s->ranks[r]);
    }
}

static void
free_memories(shuffle *s)
{
    for (size_t n = 0; n < s->count; n++) {
        umx_memh_release(s->memhs[n]);
    }
}

static umx_shuffler_params
params_of(uint64_t op_id, uint32_t num_partitions)
{
    return (umx_shuffler_params){.op_id          = op_id,
                                 .num_partitions = num_partitions};
}

/* Inserts of random ranks, partitions and lengths; everything is taken. */
static void
run_random(world *w, const umx_shuffler_params *params, int num_inserts,
           size_t max_len)
{
    shuffle *s     = malloc(sizeof(*s));
    int      taken = 0;

    open_shuffle(s, w, params);
    for (int i = 0; i < num_inserts; i++) {
        umx_status status = insert(
            s, (int)next_random((uint64_t)w->size),
            (uint32_t)next_random(params->num_partitions),
            next_random(4) == 0 ? next_random(2000) : next_random(max_len),
            next_random(3) == 0);

        assert_true(status >= 0);
        if (next_random(5) == 0) {
            world_step(w);
        }
    }
    finish_all(s);
    for (int r = 0; r < w->size; r++) {
        taken += take_all(s, r, false, NULL, NULL);
    }
    assert_int_equal(taken, params->num_partitions);
    world_wait(w, s->inserts, (int)s->count, UMX_OK);
    close_shuffle(s, UMX_OK);
    free_memories(s);
    free(s);
}

static void
test_every_chunk_comes_to_its_owner(void **state)
{
    world *w = *state;

    random_state = 20;
    world_open(w, 4);
    for (uint32_t partitions = 1; partitions <= 64; partitions *= 4) {
        umx_shuffler_params params = params_of(7, partitions);

        run_random(w, &params, 120, 50000);
    }
}

static void
test_one_rank_alone(void **state)
{
    umx_shuffler_params params = params_of(0, 5);
    world              *w      = *state;

    random_state = 3;
    world_open(w, 1);
    run_random(w, &params, 40, 20000);
}

static void
test_a_shuffle_of_nothing(void **state)
{
    umx_shuffler_params params = params_of(1, 10);
    world              *w      = *state;

    world_open(w, 3);
    run_random(w, &params, 0, 1);
}

static void
test_an_op_id_is_used_again_at_once(void **state)
{
    umx_shuffler_params params = params_of(9, 4);
    world              *w      = *state;

    random_state = 5;
    world_open(w, 2);
    for (int i = 0; i < 20; i++) {
        run_random(w, &params, 10, 5000);
    }
}

/* Rank 0 inserts, finishes, and begins again before rank 1 has begun. */
static void
test_a_rank_may_be_ahead(void **state)
{
    umx_shuffler_params params = params_of(9, 2);
    world              *w      = *state;
    shuffle             s[2];
    size_t              sizes[] = {10, 5000, 70000};

    world_open(w, 2);
    for (int i = 0; i < 2; i++) {
        memset(&s[i], 0, sizeof(s[i]));
        s[i].w              = w;
        s[i].num_partitions = 2;
        assert_int_equal(
            umx_shuffler_create(w->comms[0], &params, &s[i].ranks[0]), UMX_OK);
        for (size_t n = 0; n < 3; n++) {
            assert_true(insert(&s[i], 0, 1, sizes[n], false) >= 0);
        }
        assert_int_equal(
            umx_shuffler_insert_finished(s[i].ranks[0], UMX_PARTITION_ALL),
            UMX_OK);
        for (int step = 0; step < 50; step++) {
            world_step(w);
        }
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            umx_shuffler_create(w->comms[1], &params, &s[i].ranks[1]), UMX_OK);
        assert_int_equal(
            umx_shuffler_insert_finished(s[i].ranks[1], UMX_PARTITION_ALL),
            UMX_OK);
        assert_int_equal(take_all(&s[i], 1, false, NULL, NULL), 1);
        assert_int_equal(take_all(&s[i], 0, false, NULL, NULL), 1);
        close_shuffle(&s[i], UMX_OK);
        free_memories(&s[i]);
    }
}

/* Chunks outlive their shuffler, the communicators and the workers. */
static void
test_chunks_may_be_kept(void **state)
{
    umx_shuffler_params params = params_of(2, 6);
    world              *w      = *state;
    shuffle            *s      = malloc(sizeof(*s));
    umx_shuffle_chunk  *kept[MAX_CHUNKS];
    size_t              num_kept = 0;

    random_state = 8;
    world_open(w, 3);
    open_shuffle(s, w, &params);
    for (int i = 0; i < 60; i++) {
        assert_true(insert(s, i % 3, (uint32_t)(i % 6), 1 + next_random(9000),
                           i % 2 == 0) >= 0);
    }
    finish_all(s);
    for (int r = 0; r < 3; r++) {
        (void)take_all(s, r, true, kept, &num_kept);
    }
    assert_int_equal(num_kept, 60);
    close_shuffle(s, UMX_OK);
    free_memories(s);
    for (int r = 0; r < 3; r++) {
        umx_comm_close(w->comms[r]);
        umx_comm_destroy(w->comms[r]);
        w->comms[r] = NULL;
        umx_shuffle_chunk_release(kept[--num_kept]);
    }
    while (num_kept > 30) {
        umx_shuffle_chunk_release(kept[--num_kept]);
    }
    for (int r = 0; r < 3; r++) {
        umx_worker_destroy(w->workers[r]);
        w->workers[r] = NULL;
    }
    while (num_kept > 0) {
        umx_shuffle_chunk_info info;
        unsigned               sum = 0;

        umx_shuffle_chunk_query(kept[--num_kept], &info);
        for (size_t i = 0; i < info.len; i++) {
            sum += ((const unsigned char *)info.data)[i];
        }
        assert_true(sum != 0 || info.len < 5);
        umx_shuffle_chunk_release(kept[num_kept]);
    }
    free(s);
}

enum {
    THREADS = 4
};

typedef struct releaser {
    pthread_t           thread;
    umx_shuffle_chunk **chunks;
    size_t              count;
} releaser;

static void *
release_every(void *arg)
{
    releaser *r = arg;

    for (size_t i = 0; i < r->count; i++) {
        umx_shuffle_chunk_release(r->chunks[i * THREADS]);
    }
    return NULL;
}

/* One worker has been destroyed, the others are being. */
static void
test_chunks_are_released_by_threads(void **state)
{
    umx_shuffler_params params = params_of(2, 6);
    world              *w      = *state;
    shuffle            *s      = malloc(sizeof(*s));
    umx_shuffle_chunk  *kept[MAX_CHUNKS];
    releaser            all[THREADS];
    size_t              num_kept = 0;

    world_open(w, 3);
    open_shuffle(s, w, &params);
    for (int i = 0; i < 60; i++) {
        assert_true(insert(s, i % 3, (uint32_t)(i % 6), 5000, true) >= 0);
    }
    finish_all(s);
    for (int r = 0; r < 3; r++) {
        (void)take_all(s, r, true, kept, &num_kept);
    }
    assert_int_equal(num_kept, 60);
    close_shuffle(s, UMX_OK);
    free_memories(s);
    for (int r = 0; r < 3; r++) {
        umx_comm_close(w->comms[r]);
        umx_comm_destroy(w->comms[r]);
        w->comms[r] = NULL;
    }
    umx_worker_destroy(w->workers[0]);
    w->workers[0] = NULL;
    for (size_t i = 0; i < THREADS; i++) {
        all[i] = (releaser){.chunks = kept + i, .count = 60 / THREADS};
        assert_int_equal(
            pthread_create(&all[i].thread, NULL, release_every, &all[i]), 0);
    }
    for (int r = 1; r < 3; r++) {
        umx_worker_destroy(w->workers[r]);
        w->workers[r] = NULL;
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(all[i].thread, NULL), 0);
    }
    free(s);
}

static void
test_what_the_budget_does_not_hold_is_spilled(void **state)
{
    umx_shuffler_params params = params_of(4, 8);
    world              *w      = *state;

    random_state      = 12;
    params.budget     = 200000;
    params.spill_dir  = "/tmp";
    params.field_mask = UMX_SHUFFLER_FIELD_BUDGET |
                        UMX_SHUFFLER_FIELD_SPILL_DIR;
    world_open(w, 3);
    run_random(w, &params, 100, 60000);
}

/* Small chunks share extents of the file, and what is read at once. */
static void
test_many_small_chunks_are_spilled(void **state)
{
    umx_shuffler_params params = params_of(4, 8);
    world              *w      = *state;

    random_state      = 14;
    params.budget     = 2;
    params.spill_dir  = "/tmp";
    params.field_mask = UMX_SHUFFLER_FIELD_BUDGET |
                        UMX_SHUFFLER_FIELD_SPILL_DIR;
    world_open(w, 3);
    run_random(w, &params, 3000, 3000);
}

/* An extent is used again for what is inserted when its chunks are over. */
static void
test_the_spill_file_is_used_again(void **state)
{
    umx_shuffler_params params = params_of(4, 3);
    umx_shuffler_info   info;
    world              *w = *state;
    shuffle            *s = malloc(sizeof(*s));
    struct rlimit       limit, low;

    params.budget     = 2;
    params.spill_dir  = "/tmp";
    params.field_mask = UMX_SHUFFLER_FIELD_BUDGET |
                        UMX_SHUFFLER_FIELD_SPILL_DIR;
    world_open(w, 1);
    open_shuffle(s, w, &params);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low          = limit;
    low.rlim_cur = 3 << 20; /* the file is at most so long */
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    for (uint32_t p = 0; p < 3; p++) {
        umx_shuffle_chunk *chunks[4];
        size_t             count = 4;

        for (int i = 0; i < 2; i++) {
            assert_int_equal(insert(s, 0, p, 1200000, false), UMX_OK);
        }
        assert_int_equal(umx_shuffler_insert_finished(s->ranks[0], p), UMX_OK);
        assert_int_equal(umx_shuffler_extract(s->ranks[0], p, chunks, &count),
                         UMX_OK);
        check_chunks(s, p, chunks, count);
        umx_shuffle_chunk_release(chunks[0]);
        umx_shuffle_chunk_release(chunks[1]);
        world_step(w); /* frees them */
    }
    umx_shuffler_query(s->ranks[0], &info);
    assert_int_equal(info.spilled_out, 6 * 1200000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    close_shuffle(s, UMX_OK);
    free_memories(s);
    free(s);
}

/* Why the shuffle was revoked: the spill file of rank 0. */
static void
check_reason(const shuffle *s, int rank)
{
    const umx_comm  *comm   = umx_shuffler_comm(s->ranks[rank]);
    const char      *reason = umx_comm_reason(comm);
    umx_comm_failure failure;

    assert_true(umx_comm_get_failure(comm, &failure));
    assert_int_equal(failure.rank, 0);
    assert_non_null(strstr(reason, "rank 0"));
    assert_non_null(strstr(reason,
                           "insert: the spill file cannot grow: [Errno 27] "
                           "File too large: '/tmp'"));
}

/* Files are at most `size` bytes long, as on a full disk. */
static void
limit_files(struct rlimit *limit, rlim_t size)
{
    struct rlimit low;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, limit), 0);
    low          = *limit;
    low.rlim_cur = size;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
}

static void
test_a_full_disk_is_told(void **state)
{
    umx_shuffler_params params = params_of(4, 2);
    world              *w      = *state;
    shuffle            *s      = malloc(sizeof(*s));
    struct rlimit       limit;

    params.budget     = 2;
    params.spill_dir  = "/tmp";
    params.field_mask = UMX_SHUFFLER_FIELD_BUDGET |
                        UMX_SHUFFLER_FIELD_SPILL_DIR;
    world_open(w, 1);
    open_shuffle(s, w, &params);
    assert_int_equal(umx_shuffler_spill_error(s->ranks[0]), 0);
    limit_files(&limit, 100000);
    /* An extent is larger than that, but the chunk alone fits. */
    assert_int_equal(insert(s, 0, 0, 60000, false), UMX_OK);
    assert_int_equal(insert(s, 0, 1, 60000, false), UMX_ERR_IO_ERROR);
    s->count--;
    umx_memh_release(s->memhs[s->count]);
    assert_int_equal(umx_shuffler_spill_error(s->ranks[0]), EFBIG);
    /* What is small stays in memory. */
    assert_int_equal(insert(s, 0, 1, 1000, false), UMX_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    /* There is room again, but a chunk is missing. */
    assert_int_equal(insert(s, 0, 1, 60000, false), UMX_OK);
    assert_int_equal(umx_shuffler_insert_finished(s->ranks[0], 2),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_shuffler_insert_finished(s->ranks[0], 0),
                     UMX_ERR_IO_ERROR);
    assert_int_equal(umx_shuffler_spill_error(s->ranks[0]), EFBIG);
    check_reason(s, 0);
    assert_int_equal(
        umx_shuffler_insert_finished(s->ranks[0], UMX_PARTITION_ALL),
        UMX_ERR_RANK_FAILED);
    close_shuffle(s, UMX_ERR_RANK_FAILED);
    free_memories(s);
    free(s);
}

/* Rank 0 loses a chunk and does not look: it ends its inserts, and all ranks
 * learn it. */
static void
run_lost(world *w, uint64_t op_id, umx_status (*end)(umx_shuffler *sh))
{
    umx_shuffler_params params = params_of(op_id, 3);
    shuffle            *s      = malloc(sizeof(*s));
    job                 waits[3];
    struct rlimit       limit;
    uint32_t            got;

    params.budget     = 2;
    params.spill_dir  = "/tmp";
    params.field_mask = UMX_SHUFFLER_FIELD_BUDGET |
                        UMX_SHUFFLER_FIELD_SPILL_DIR;
    open_shuffle(s, w, &params);
    limit_files(&limit, 1000);
    assert_int_equal(insert(s, 0, 1, 60000, false), UMX_ERR_IO_ERROR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(insert(s, 0, 1, 50000, false), UMX_OK);
    for (int r = 1; r < 3; r++) {
        umx_op_params with = job_params(&waits[r]);
        umx_request  *req  = NULL;

        assert_int_equal(
            umx_shuffler_insert_finished(s->ranks[r], UMX_PARTITION_ALL),
            UMX_OK);
        job_posted(&waits[r],
                   umx_shuffler_wait(s->ranks[r], UMX_PARTITION_ALL, &with,
                                     &req, &got),
                   &req);
    }
    assert_int_equal(end(s->ranks[0]), UMX_ERR_IO_ERROR);
    world_wait(w, waits + 1, 2, UMX_ERR_RANK_FAILED);
    for (int r = 0; r < 3; r++) {
        check_reason(s, r);
    }
    close_shuffle(s, UMX_ERR_RANK_FAILED);
    free_memories(s);
    free(s);
}

static umx_status
finish_every(umx_shuffler *sh)
{
    return umx_shuffler_insert_finished(sh, UMX_PARTITION_ALL);
}

static umx_status
finish_another(umx_shuffler *sh)
{
    return umx_shuffler_insert_finished(sh, 2);
}

static umx_status
close_at_once(umx_shuffler *sh)
{
    umx_op_params params = {.field_mask = 0};
    umx_request  *req    = NULL;

    return umx_shuffler_close(sh, &params, &req);
}

static void
test_a_lost_insert_ends_the_shuffle(void **state)
{
    world *w = *state;

    world_open(w, 3);
    run_lost(w, 4, finish_every);
    run_lost(w, 4, finish_another);
    run_lost(w, 5, close_at_once);
    for (int r = 0; r < 3; r++) { /* the communicator itself is well */
        umx_comm_failure failure;

        assert_false(umx_comm_get_failure(w->comms[r], &failure));
    }
}

static void
test_a_small_credit_is_enough(void **state)
{
    umx_shuffler_params params = params_of(4, 8);
    world              *w      = *state;

    random_state       = 13;
    params.peer_credit = 1;
    params.field_mask  = UMX_SHUFFLER_FIELD_PEER_CREDIT;
    world_open(w, 3);
    run_random(w, &params, 100, 60000);
}

/* What was released before the close is told before the end. */
static void
test_a_chunk_is_released_before_the_close(void **state)
{
    umx_shuffler_params params = params_of(4, 2);
    world              *w      = *state;
    shuffle            *s      = malloc(sizeof(*s));
    umx_op_params       with;
    umx_request        *req = NULL;
    job                 j;

    world_open(w, 2);
    open_shuffle(s, w, &params);
    assert_int_equal(insert(s, 0, 1, 60000, false), UMX_INPROGRESS);
    finish_all(s);
    assert_int_equal(take_all(s, 1, false, NULL, NULL), 1);
    with = job_params(&j);
    job_posted(&j, umx_shuffler_close(s->ranks[1], &with, &req), &req);
    world_wait(w, s->inserts, 1, UMX_OK);
    assert_int_equal(world_wait_one(w, &j), UMX_OK);
    req  = NULL;
    with = job_params(&j);
    job_posted(&j, umx_shuffler_close(s->ranks[0], &with, &req), &req);
    assert_int_equal(world_wait_one(w, &j), UMX_OK);
    for (int r = 0; r < 2; r++) {
        umx_shuffler_destroy(s->ranks[r]);
    }
    free_memories(s);
    free(s);
}

/* Without a spill file chunks wait for room, and a wait says so if there can be
 * none. */
static void
test_a_budget_without_a_file(void **state)
{
    umx_shuffler_params params = params_of(4, 3);
    world              *w      = *state;
    shuffle            *s      = malloc(sizeof(*s));
    umx_shuffle_chunk  *chunks[8];
    size_t              count = 8;
    uint32_t            got;
    job                 j;
    umx_op_params       with;
    umx_request        *req = NULL;

    params.budget     = 200000; /* 100 000 for what comes */
    params.owner      = NULL;
    params.field_mask = UMX_SHUFFLER_FIELD_BUDGET;
    world_open(w, 2);
    open_shuffle(s, w, &params);
    assert_int_equal(insert(s, 0, 1, 60000, true), UMX_INPROGRESS);
    assert_int_equal(insert(s, 0, 1, 60000, true), UMX_INPROGRESS);
    finish_all(s);
    with = job_params(&j);
    job_posted(&j, umx_shuffler_wait(s->ranks[1], 1, &with, &req, &got), &req);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_EXCEEDS_LIMIT);
    assert_int_equal(umx_shuffler_extract(s->ranks[1], 1, chunks, &count),
                     UMX_ERR_BUSY);
    /* the first has been read; its owner may hear of it after the failure */
    world_wait(w, s->inserts, 1, UMX_OK);
    for (int r = 0; r < 2; r++) {
        umx_shuffler_destroy(s->ranks[r]);
    }
    world_wait(w, s->inserts + 1, 1, UMX_ERR_RANK_FAILED);
    free_memories(s);
    free(s);
}

static void
test_bad_parameters_are_refused(void **state)
{
    umx_shuffler_params params = params_of(1, 0);
    world              *w      = *state;
    shuffle            *s      = malloc(sizeof(*s));
    umx_shuffler       *none;
    size_t              count = 0;
    uint32_t            got;
    umx_request        *req;

    world_open(w, 2);
    assert_int_equal(umx_shuffler_create(w->comms[0], &params, &none),
                     UMX_ERR_OUT_OF_RANGE);
    params.num_partitions = UMX_PARTITIONS_MAX + 1;
    assert_int_equal(umx_shuffler_create(w->comms[0], &params, &none),
                     UMX_ERR_OUT_OF_RANGE);
    params.num_partitions = 4;
    params.spill_dir      = "/no/such/directory";
    params.field_mask     = UMX_SHUFFLER_FIELD_SPILL_DIR;
    assert_int_equal(umx_shuffler_create(w->comms[0], &params, &none),
                     UMX_ERR_IO_ERROR);
    assert_int_equal(umx_take_errno(), 2);
    params = params_of(1, 4);
    open_shuffle(s, w, &params);
    assert_int_equal(umx_shuffler_owner(s->ranks[0], 3), 1);
    assert_int_equal(umx_shuffler_owner(s->ranks[0], 4), -1);
    assert_int_equal(insert(s, 0, 4, 100, false), UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(
        umx_shuffler_insert(s->ranks[0], 0, s->memhs[0], 160, 5, NULL, &req),
        UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_shuffler_insert(s->ranks[0], 0, s->memhs[0], SIZE_MAX,
                                         2, NULL, &req),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_shuffler_insert_finished(s->ranks[0], 4),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_shuffler_wait(s->ranks[0], 1, NULL, &req, &got),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_shuffler_extract(s->ranks[0], 1, NULL, &count),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_shuffler_insert_finished(s->ranks[0], 2), UMX_OK);
    assert_int_equal(umx_shuffler_insert_finished(s->ranks[0], 2),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(
        umx_shuffler_insert(s->ranks[0], 2, s->memhs[0], 0, 5, NULL, &req),
        UMX_ERR_INVALID_PARAM);
    finish_all(s);
    assert_int_equal(
        umx_shuffler_insert_finished(s->ranks[0], UMX_PARTITION_ALL),
        UMX_ERR_INVALID_PARAM);
    close_shuffle(s, UMX_OK);
    free_memories(s);
    free(s);
}

/* A rank gives its shuffler back in the middle: all others learn it. */
static void
test_who_gives_up_revokes_the_shuffle(void **state)
{
    umx_shuffler_params params = params_of(4, 6);
    world              *w      = *state;
    shuffle            *s      = malloc(sizeof(*s));
    job                 waits[3];
    uint32_t            got;

    world_open(w, 3);
    open_shuffle(s, w, &params);
    for (int i = 0; i < 12; i++) {
        assert_true(insert(s, i % 3, (uint32_t)i % 6, 20000, i < 6) >= 0);
    }
    for (int r = 1; r < 3; r++) {
        umx_op_params with = job_params(&waits[r]);
        umx_request  *req  = NULL;

        job_posted(&waits[r],
                   umx_shuffler_wait(s->ranks[r], UMX_PARTITION_ALL, &with,
                                     &req, &got),
                   &req);
    }
    umx_shuffler_destroy(s->ranks[0]);
    world_wait(w, waits + 1, 2, UMX_ERR_RANK_FAILED);
    for (int r = 1; r < 3; r++) {
        umx_comm_failure failure;

        assert_true(
            umx_comm_get_failure(umx_shuffler_comm(s->ranks[r]), &failure));
        assert_int_equal(failure.rank, 0);
        assert_non_null(strstr(umx_comm_reason(umx_shuffler_comm(s->ranks[r])),
                               "given back before"));
        assert_int_equal(
            umx_shuffler_insert_finished(s->ranks[r], UMX_PARTITION_ALL),
            UMX_ERR_RANK_FAILED);
        umx_shuffler_destroy(s->ranks[r]);
    }
    for (size_t n = 0; n < s->count; n++) {
        (void)world_wait_one(w, &s->inserts[n]);
    }
    for (int r = 0; r < 3; r++) { /* the communicator itself is well */
        umx_comm_failure failure;

        assert_false(umx_comm_get_failure(w->comms[r], &failure));
    }
    free_memories(s);
    free(s);
}

static void
test_a_communicator_that_ends_ends_its_shuffles(void **state)
{
    umx_shuffler_params params = params_of(4, 6);
    world              *w      = *state;
    shuffle            *s      = malloc(sizeof(*s));
    job                 waits[3];
    uint32_t            got;

    world_open(w, 3);
    open_shuffle(s, w, &params);
    for (int r = 0; r < 3; r++) {
        umx_op_params with = job_params(&waits[r]);
        umx_request  *req  = NULL;

        job_posted(&waits[r],
                   umx_shuffler_wait(s->ranks[r], UMX_PARTITION_ALL, &with,
                                     &req, &got),
                   &req);
    }
    umx_comm_abort(w->comms[2], "enough");
    world_wait(w, waits, 3, UMX_ERR_RANK_FAILED);
    for (int r = 0; r < 3; r++) {
        assert_non_null(
            strstr(umx_comm_reason(umx_shuffler_comm(s->ranks[r])), "enough"));
        umx_shuffler_destroy(s->ranks[r]);
    }
    free(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_every_chunk_comes_to_its_owner),
        WORLD_TEST(test_one_rank_alone),
        WORLD_TEST(test_a_shuffle_of_nothing),
        WORLD_TEST(test_an_op_id_is_used_again_at_once),
        WORLD_TEST(test_a_rank_may_be_ahead),
        WORLD_TEST(test_chunks_may_be_kept),
        WORLD_TEST(test_chunks_are_released_by_threads),
        WORLD_TEST(test_what_the_budget_does_not_hold_is_spilled),
        WORLD_TEST(test_many_small_chunks_are_spilled),
        WORLD_TEST(test_the_spill_file_is_used_again),
        WORLD_TEST(test_a_full_disk_is_told),
        WORLD_TEST(test_a_lost_insert_ends_the_shuffle),
        WORLD_TEST(test_a_small_credit_is_enough),
        WORLD_TEST(test_a_chunk_is_released_before_the_close),
        WORLD_TEST(test_a_budget_without_a_file),
        WORLD_TEST(test_bad_parameters_are_refused),
        WORLD_TEST(test_who_gives_up_revokes_the_shuffle),
        WORLD_TEST(test_a_communicator_that_ends_ends_its_shuffles),
    };

    return UNIT_RUN(tests);
}
