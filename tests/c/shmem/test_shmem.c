/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* tests: shmem/put_get shmem/allocate shmem/quiet shmem/wait */
#include <string.h>
#include <umx/shmem.h>
#include <umx/shmem_direct.h>

#include "world.h"

enum {
    SIZE = 1 << 18
};

typedef struct heaps {
    world     *w;
    umx_shmem *heaps[MAX_RANKS];
    job        jobs[MAX_RANKS];
} heaps;

static void
create(heaps *h, int rank, uint64_t size)
{
    umx_op_params how = job_params(&h->jobs[rank]);
    umx_request  *req = NULL;

    job_posted(
        &h->jobs[rank],
        umx_shmem_create(h->w->comms[rank], size, &how, &h->heaps[rank], &req),
        &req);
}

static void
open_heaps(heaps *h, world *w, int size)
{
    *h = (heaps){.w = w};
    world_open(w, size);
    for (int i = 0; i < size; i++) {
        create(h, i, SIZE);
    }
    world_wait(w, h->jobs, size, UMX_OK);
}

static void
give_back(heaps *h)
{
    for (int i = 0; i < h->w->size; i++) {
        if (h->heaps[i] != NULL) {
            umx_shmem_destroy(h->heaps[i]);
        }
    }
}

/* How the operation of RUN() is called. */
static umx_op_params run_op;
static umx_request  *run_req;

#define OP &run_op
#define REQ &run_req

/* Post an operation, the expression `call`, for a job. */
#define POST(j, call)                  \
    do {                               \
        run_op = job_params(j);        \
        job_posted(j, call, &run_req); \
    } while (0)

/* Post it for every rank, `i`. */
#define RUN_ALL(h, call)                         \
    do {                                         \
        for (int i = 0; i < (h)->w->size; i++) { \
            POST(&(h)->jobs[i], call);           \
        }                                        \
    } while (0)

/* Post it, and wait for its end; the status. */
#define RUN(h, call)                   \
    (__extension__({                   \
        static job job_;               \
        POST(&job_, call);             \
        world_wait_one((h)->w, &job_); \
    }))

/* Allocate on all ranks; the offset. */
static uint64_t
allocate(heaps *h, uint64_t size, uint64_t align, bool is_zeroed)
{
    void    *at[MAX_RANKS];
    uint64_t offset;

    RUN_ALL(h, umx_shmem_malloc(h->heaps[i], size, align, is_zeroed, &at[i], OP,
                                REQ));
    world_wait(h->w, h->jobs, h->w->size, UMX_OK);
    offset = (uint64_t)((char *)at[0] - (char *)umx_shmem_base(h->heaps[0]));
    for (int i = 0; i < h->w->size; i++) {
        assert_ptr_equal(at[i], (char *)umx_shmem_base(h->heaps[i]) + offset);
    }
    return offset;
}

static void *
at(const heaps *h, int rank, uint64_t offset)
{
    return (char *)umx_shmem_base(h->heaps[rank]) + offset;
}

/* ---- life ----------------------------------------------------------------
 */

static void
test_a_heap_has_zeros(void **state)
{
    heaps h;

    open_heaps(&h, *state, 2);
    for (int i = 0; i < 2; i++) {
        const char *base = umx_shmem_base(h.heaps[i]);

        assert_int_equal(umx_shmem_my_pe(h.heaps[i]), i);
        assert_int_equal(umx_shmem_num_pes(h.heaps[i]), 2);
        assert_int_equal(umx_shmem_size(h.heaps[i]), SIZE);
        assert_int_equal(umx_shmem_available(h.heaps[i]), SIZE);
        assert_ptr_equal(umx_memh_buffer(umx_shmem_memh(h.heaps[i]))->data,
                         base);
        assert_true(base[0] == 0 && memcmp(base, base + 1, SIZE - 1) == 0);
        assert_true(umx_shmem_pe_accessible(h.heaps[i], 1));
        assert_false(umx_shmem_pe_accessible(h.heaps[i], 2));
        assert_true(umx_shmem_addr_accessible(h.heaps[i], base, 0));
        assert_false(umx_shmem_addr_accessible(h.heaps[i], base, -1));
        assert_false(umx_shmem_addr_accessible(h.heaps[i], base + SIZE, 0));
        assert_string_equal(umx_shmem_reason(h.heaps[i]), "");
    }
    give_back(&h);
}

static void
test_heaps_of_different_sizes_fail_on_every_rank(void **state)
{
    heaps h = {.w = *state};

    world_open(h.w, 3);
    for (int i = 0; i < 3; i++) {
        create(&h, i, (i == 2) ? 128 : 256);
    }
    world_wait(h.w, h.jobs, 3, UMX_ERR_INVALID_PARAM);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(umx_shmem_reason(h.heaps[i]),
                            "rank 0 gives 256 bytes, and rank 2 128");
    }
    give_back(&h);
}

static void
test_a_size_that_makes_no_sense_is_refused(void **state)
{
    heaps        h = {.w = *state};
    umx_request *req;

    world_open(h.w, 1);
    assert_int_equal(
        umx_shmem_create(h.w->comms[0], 0, NULL, &h.heaps[0], &req),
        UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_shmem_create(h.w->comms[0], UMX_SHMEM_SIZE_MAX + 1,
                                      NULL, &h.heaps[0], &req),
                     UMX_ERR_OUT_OF_RANGE);
}

static void
test_a_rank_without_room_fails_the_heap_of_all(void **state)
{
    heaps h = {.w = *state};

    world_open(h.w, 2);
    for (int i = 0; i < 2; i++) {
        create(&h, i, UMX_SHMEM_SIZE_MAX);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(world_wait_one(h.w, &h.jobs[i]) < 0);
        assert_non_null(
            strstr(umx_shmem_reason(h.heaps[i]), "rank 0 cannot allocate"));
    }
    give_back(&h);
}

static void
test_a_heap_is_closed(void **state)
{
    heaps         h;
    uint64_t      value = 1;
    umx_condition until = {.cmp = UMX_CMP_EQ, .size = 8};

    open_heaps(&h, *state, 2);
    umx_shmem_close(h.heaps[0]);
    assert_int_equal(
        RUN(&h, umx_shmem_put(h.heaps[0], at(&h, 0, 0), &value, 8, 1, OP, REQ)),
        UMX_ERR_CLOSED);
    assert_int_equal(RUN(&h, umx_shmem_quiet(h.heaps[0], OP, REQ)),
                     UMX_ERR_CLOSED);
    assert_int_equal(RUN(&h, umx_shmem_barrier(h.heaps[0], OP, REQ)),
                     UMX_ERR_CLOSED);
    assert_int_equal(RUN(&h, umx_shmem_sync(h.heaps[0], OP, REQ)),
                     UMX_ERR_CLOSED);
    assert_int_equal(RUN(&h, umx_shmem_wait_until(h.heaps[0], &until, OP, REQ)),
                     UMX_ERR_CLOSED);
    assert_int_equal(RUN(&h, umx_shmem_free(h.heaps[0], NULL, OP, REQ)),
                     UMX_ERR_CLOSED);
    assert_int_equal(umx_shmem_fence(h.heaps[0]), UMX_ERR_CLOSED);
    assert_int_equal(umx_shmem_notify(h.heaps[0], 1), UMX_ERR_CLOSED);
    give_back(&h);
}

static void
test_a_worker_ends_before_its_heap(void **state)
{
    heaps h;
    job   j;

    open_heaps(&h, *state, 2);
    umx_op_params how   = job_params(&j);
    umx_condition until = {.cmp = UMX_CMP_GE, .size = 8, .value = 1};
    umx_request  *req;

    job_posted(&j, umx_shmem_wait_until(h.heaps[0], &until, &how, &req), &req);
    for (int i = 0; i < 2; i++) {
        umx_comm_close(h.w->comms[i]);
        umx_comm_destroy(h.w->comms[i]);
        h.w->comms[i] = NULL;
        umx_worker_destroy(h.w->workers[i]);
        h.w->workers[i] = NULL;
    }
    assert_true(j.status < 0);
    assert_int_equal(RUN(&h, umx_shmem_quiet(h.heaps[0], OP, REQ)),
                     UMX_ERR_CLOSED);
    give_back(&h);
}

/* ---- allocation ----------------------------------------------------------
 */

static void
test_all_ranks_allocate_alike(void **state)
{
    heaps    h;
    uint64_t first, second;

    open_heaps(&h, *state, 3);
    first  = allocate(&h, 1000, 0, false);
    second = allocate(&h, 8, 4096, false);
    for (int i = 0; i < 3; i++) {
        assert_int_equal((uintptr_t)at(&h, i, second) % 4096, 0);
    }
    RUN_ALL(&h, umx_shmem_free(h.heaps[i], at(&h, i, first), OP, REQ));
    world_wait(h.w, h.jobs, 3, UMX_OK);
    memset(at(&h, 1, first), 1, 1000);
    assert_int_equal(allocate(&h, 1000, 0, true), first);
    assert_int_equal(*(char *)at(&h, 1, first + 999), 0);
    assert_int_equal(umx_shmem_available(h.heaps[2]), SIZE - 1024 - 64);
    give_back(&h);
}

static void
test_different_arguments_fail_alike_and_change_nothing(void **state)
{
    heaps h;
    void *got[3];

    open_heaps(&h, *state, 3);
    (void)allocate(&h, 64, 0, false);
    RUN_ALL(&h, umx_shmem_malloc(h.heaps[i], (i == 1) ? 200 : 100, 0, false,
                                 &got[i], OP, REQ));
    world_wait(h.w, h.jobs, 3, UMX_ERR_INVALID_PARAM);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(
            umx_shmem_reason(h.heaps[i]),
            "rank 0 calls malloc() of 100 bytes aligned to 0, and rank 1 "
            "malloc() of 200 bytes aligned to 0");
    }
    RUN_ALL(&h, (i == 0) ? umx_shmem_free(h.heaps[i], at(&h, i, 0), OP, REQ) :
                           umx_shmem_malloc(h.heaps[i], 64, 0, false, &got[i],
                                            OP, REQ));
    world_wait(h.w, h.jobs, 3, UMX_ERR_INVALID_PARAM);
    assert_int_equal(allocate(&h, 64, 0, false), 64);
    give_back(&h);
}

static void
test_allocations_that_cannot_be_made_fail_alike(void **state)
{
    heaps h;
    void *got[2] = {&h, &h};

    open_heaps(&h, *state, 2);
    RUN_ALL(&h,
            umx_shmem_malloc(h.heaps[i], SIZE + 1, 0, false, &got[i], OP, REQ));
    world_wait(h.w, h.jobs, 2, UMX_ERR_EXCEEDS_LIMIT);
    assert_ptr_equal(got[0], &h);
    RUN_ALL(&h, umx_shmem_malloc(h.heaps[i], 8, 24, false, &got[i], OP, REQ));
    world_wait(h.w, h.jobs, 2, UMX_ERR_INVALID_PARAM);
    RUN_ALL(&h, umx_shmem_malloc(h.heaps[i], 8, 2 * UMX_SHMEM_ALIGN_MAX, false,
                                 &got[i], OP, REQ));
    world_wait(h.w, h.jobs, 2, UMX_ERR_INVALID_PARAM);
    assert_string_equal(
        umx_shmem_reason(h.heaps[0]),
        "malloc() of 8 bytes aligned to 131072: that is no power "
        "of two up to 65536");
    RUN_ALL(&h, umx_shmem_free(h.heaps[i], at(&h, i, 64), OP, REQ));
    world_wait(h.w, h.jobs, 2, UMX_ERR_INVALID_PARAM);
    assert_string_equal(umx_shmem_reason(h.heaps[1]),
                        "free() at offset 64: nothing is allocated there");
    RUN_ALL(&h, umx_shmem_malloc(h.heaps[i], 0, 0, false, &got[i], OP, REQ));
    world_wait(h.w, h.jobs, 2, UMX_OK);
    assert_null(got[0]);
    RUN_ALL(&h, umx_shmem_free(h.heaps[i], NULL, OP, REQ));
    world_wait(h.w, h.jobs, 2, UMX_OK);
    give_back(&h);
}

/* The second call of a rank is carried out when the first has ended on all: it
 * gets the same place, however far the others are. The first of these fails. */
static void
test_allocations_are_carried_out_in_order(void **state)
{
    heaps h;
    job   jobs[4];
    void *got[4];

    open_heaps(&h, *state, 2);
    for (uint64_t i = 0; i < 2; i++) {
        POST(&jobs[i], umx_shmem_malloc(h.heaps[i], 64 * (i + 1), 0, false,
                                        &got[i], OP, REQ));
        POST(&jobs[2 + i],
             umx_shmem_malloc(h.heaps[i], 64, 0, false, &got[2 + i], OP, REQ));
    }
    world_wait(h.w, &jobs[0], 2, UMX_ERR_INVALID_PARAM);
    world_wait(h.w, &jobs[2], 2, UMX_OK);
    assert_ptr_equal(got[2], at(&h, 0, 0));
    assert_ptr_equal(got[3], at(&h, 1, 0));
    give_back(&h);
}

static void
test_a_heap_is_destroyed_during_an_allocation(void **state)
{
    heaps         h;
    void         *got = NULL;
    umx_request  *req = NULL;
    umx_op_params how;

    open_heaps(&h, *state, 2);
    how = job_params(&h.jobs[0]);
    job_posted(&h.jobs[0],
               umx_shmem_malloc(h.heaps[0], 64, 0, false, &got, &how, &req),
               &req);
    umx_shmem_destroy(h.heaps[0]);
    h.heaps[0] = NULL;
    assert_int_equal(world_wait_one(h.w, &h.jobs[0]), UMX_ERR_CLOSED);
    assert_null(got);
    give_back(&h);
}

/* ---- put and get ---------------------------------------------------------
 */

static void
test_put_and_get_reach_every_pe(void **state)
{
    heaps    h;
    uint64_t x;

    open_heaps(&h, *state, 3);
    x = allocate(&h, 4096, 0, true);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            uint64_t value = 10 * (uint64_t)i + (uint64_t)k, got = 99;

            assert_int_equal(
                RUN(&h, umx_shmem_put(h.heaps[i], at(&h, i, x + 8 * i), &value,
                                      8, k, OP, REQ)),
                UMX_OK);
            assert_int_equal(((uint64_t *)at(&h, k, x))[i], value);
            assert_int_equal(
                RUN(&h, umx_shmem_get(h.heaps[i], &got, at(&h, i, x + 8 * i), 8,
                                      k, OP, REQ)),
                UMX_OK);
            assert_int_equal(got, value);
        }
    }
    give_back(&h);
}

static void
test_what_is_no_symmetric_address_is_refused(void **state)
{
    heaps            h;
    char             bytes[16];
    umx_shmem_stride stride = {.size = 8, .count = 2, .dest = 0, .source = 1};
    umx_atomic       atomic = {.op = UMX_ATOMIC_ADD, .size = 8};

    open_heaps(&h, *state, 2);
#define PUT(address, len, pe) \
    RUN(&h, umx_shmem_put(h.heaps[0], address, bytes, len, pe, OP, REQ))
    assert_int_equal(PUT(bytes, 16, 1), UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(PUT(at(&h, 0, SIZE - 8), 16, 1), UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(PUT(at(&h, 0, SIZE - 8), 16, 0), UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(PUT(at(&h, 0, 0), 16, 2), UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(PUT(at(&h, 0, 0), 16, -1), UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(
        RUN(&h, umx_shmem_get(h.heaps[0], bytes, bytes, 8, 1, OP, REQ)),
        UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(RUN(&h, umx_shmem_iput(h.heaps[0], at(&h, 0, 0), bytes,
                                            &stride, 1, OP, REQ)),
                     UMX_ERR_INVALID_PARAM);
    stride.dest = INT64_MAX;
    assert_int_equal(RUN(&h, umx_shmem_iput(h.heaps[0], at(&h, 0, 0), bytes,
                                            &stride, 1, OP, REQ)),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(RUN(&h, umx_shmem_atomic(h.heaps[0], at(&h, 0, 4), &atomic,
                                              NULL, 1, OP, REQ)),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(RUN(&h, umx_shmem_put_signal(h.heaps[0], at(&h, 0, 0),
                                                  bytes, 8, at(&h, 0, 64), 1,
                                                  UMX_ATOMIC_AND, 1, OP, REQ)),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_shmem_notify(h.heaps[0], 2), UMX_ERR_OUT_OF_RANGE);
    assert_null(umx_shmem_pointer(h.heaps[0], bytes, 0));
    assert_null(umx_shmem_pointer(h.heaps[0], at(&h, 0, 0), 5));
    give_back(&h);
}

static void
test_items_at_distances(void **state)
{
    heaps            h;
    uint64_t         x, values[8] = {0, 1, 2, 3, 4, 5, 6, 7}, got[8];
    umx_shmem_stride put = {.size = 8, .count = 4, .dest = 3, .source = 2};
    umx_shmem_stride get = {.size = 8, .count = 4, .dest = 2, .source = 3};

    open_heaps(&h, *state, 2);
    x = allocate(&h, 256, 0, true);
    for (int pe = 0; pe < 2; pe++) {
        const uint64_t *there = at(&h, pe, x);

        assert_int_equal(RUN(&h, umx_shmem_iput(h.heaps[0], at(&h, 0, x),
                                                values, &put, pe, OP, REQ)),
                         UMX_OK);
        for (int i = 0; i < 12; i++) {
            assert_int_equal(there[i], (i % 3 == 0) ? 2 * (i / 3) : 0);
        }
        memset(got, 0, sizeof(got));
        assert_int_equal(RUN(&h, umx_shmem_iget(h.heaps[0], got, at(&h, 0, x),
                                                &get, pe, OP, REQ)),
                         UMX_OK);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(got[i], (i % 2 == 0) ? i : 0);
        }
    }
    put.count = 0;
    assert_int_equal(RUN(&h, umx_shmem_iput(h.heaps[0], at(&h, 0, x), values,
                                            &put, 1, OP, REQ)),
                     UMX_OK);
    give_back(&h);
}

static void
test_quiet_ends_what_has_no_request(void **state)
{
    heaps    h;
    uint64_t x, values[100], got[100] = {0};

    open_heaps(&h, *state, 2);
    x = allocate(&h, sizeof(values), 0, true);
    for (size_t i = 0; i < 100; i++) {
        values[i] = i * i;
        assert_int_equal(umx_shmem_put_nbi(h.heaps[0], at(&h, 0, x + 8 * i),
                                           &values[i], 8, 1),
                         UMX_OK);
    }
    assert_int_equal(RUN(&h, umx_shmem_quiet(h.heaps[0], OP, REQ)), UMX_OK);
    assert_memory_equal(at(&h, 1, x), values, sizeof(values));
    assert_int_equal(
        umx_shmem_get_nbi(h.heaps[0], got, at(&h, 0, x), sizeof(got), 1),
        UMX_OK);
    assert_int_equal(RUN(&h, umx_shmem_quiet(h.heaps[0], OP, REQ)), UMX_OK);
    assert_memory_equal(got, values, sizeof(values));
    assert_int_equal(
        umx_shmem_put_nbi(h.heaps[0], at(&h, 0, SIZE - 4), values, 8, 1),
        UMX_ERR_OUT_OF_RANGE);
    give_back(&h);
}

static void
test_quiet_is_cancelled(void **state)
{
    heaps         h;
    uint64_t      value = 5;
    job           j;
    umx_request  *req;
    umx_op_params how;

    open_heaps(&h, *state, 2);
    assert_int_equal(umx_shmem_put_nbi(h.heaps[0], at(&h, 0, 0), &value, 8, 1),
                     UMX_OK);
    how = job_params(&j);
    job_posted(&j, umx_shmem_quiet(h.heaps[0], &how, &req), &req);
    if (j.status == UMX_INPROGRESS) {
        (void)umx_request_cancel(j.req);
        assert_int_equal(world_wait_one(h.w, &j), UMX_ERR_CANCELED);
    }
    assert_int_equal(RUN(&h, umx_shmem_quiet(h.heaps[0], OP, REQ)), UMX_OK);
    assert_int_equal(*(uint64_t *)at(&h, 1, 0), 5);
    give_back(&h);
}

static void
test_a_barrier_begins_with_a_quiet(void **state)
{
    heaps    h;
    uint64_t values[3] = {1, 2, 3};

    open_heaps(&h, *state, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(umx_shmem_put_nbi(h.heaps[i], at(&h, i, 8 * i),
                                           &values[i], 8, (i + 1) % 3),
                         UMX_OK);
    }
    RUN_ALL(&h, umx_shmem_barrier(h.heaps[i], OP, REQ));
    world_wait(h.w, h.jobs, 3, UMX_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(((uint64_t *)at(&h, (i + 1) % 3, 0))[i], i + 1);
    }
    RUN_ALL(&h, umx_shmem_sync(h.heaps[i], OP, REQ));
    world_wait(h.w, h.jobs, 3, UMX_OK);
    assert_int_equal(umx_shmem_fence(h.heaps[0]), UMX_OK);
    give_back(&h);
}

/* ---- signals, atomic operations, waits -----------------------------------
 */

static void
test_a_signal_comes_behind_its_bytes(void **state)
{
    enum {
        LEN = 100000
    };
    heaps         h;
    uint64_t      x, signal;
    static char   bytes[LEN];
    umx_condition until = {.cmp = UMX_CMP_GE, .size = 8};
    job           j;
    umx_request  *req;
    umx_op_params how;

    open_heaps(&h, *state, 2);
    x      = allocate(&h, LEN, 0, true);
    signal = allocate(&h, 8, 0, true);
    memset(bytes, 7, LEN);
    until.offset = signal;
    for (uint64_t round = 1; round <= 2; round++) {
        for (int pe = 0; pe < 2; pe++) {
            until.value = round;
            how         = job_params(&j);
            job_posted(&j,
                       umx_shmem_wait_until(h.heaps[pe], &until, &how, &req),
                       &req);
            assert_int_equal(j.status, UMX_INPROGRESS);
            assert_int_equal(
                RUN(&h, umx_shmem_put_signal(h.heaps[0], at(&h, 0, x), bytes,
                                             LEN, at(&h, 0, signal), 1,
                                             (round == 1) ? UMX_ATOMIC_SWAP :
                                                            UMX_ATOMIC_ADD,
                                             pe, OP, REQ)),
                UMX_OK);
            assert_int_equal(world_wait_one(h.w, &j), UMX_OK);
            assert_int_equal(umx_shmem_signal_fetch(at(&h, pe, signal)), round);
            assert_memory_equal(at(&h, pe, x), bytes, LEN);
            assert_int_equal(umx_shmem_test(h.heaps[pe], &until), UMX_OK);
        }
    }
    assert_int_equal(umx_shmem_put_signal_nbi(h.heaps[0], at(&h, 0, x), bytes,
                                              8, at(&h, 0, signal), 9,
                                              UMX_ATOMIC_SWAP, 1),
                     UMX_OK);
    assert_int_equal(RUN(&h, umx_shmem_quiet(h.heaps[0], OP, REQ)), UMX_OK);
    assert_int_equal(umx_shmem_signal_fetch(at(&h, 1, signal)), 9);
    give_back(&h);
}

static void
test_numbers_are_changed_in_one_step(void **state)
{
    heaps    h;
    uint64_t old = 0;

    open_heaps(&h, *state, 2);
    for (int pe = 0; pe < 2; pe++) {
        umx_atomic add   = {.op = UMX_ATOMIC_ADD, .size = 8, .value = 5};
        umx_atomic cswap = {
            .op = UMX_ATOMIC_CSWAP, .size = 4, .value = 9, .compare = 5};

        assert_int_equal(RUN(&h, umx_shmem_atomic(h.heaps[0], at(&h, 0, 128),
                                                  &add, NULL, pe, OP, REQ)),
                         UMX_OK);
        assert_int_equal(RUN(&h, umx_shmem_atomic(h.heaps[0], at(&h, 0, 128),
                                                  &cswap, &old, pe, OP, REQ)),
                         UMX_OK);
        assert_int_equal(old, 5);
        assert_int_equal(*(uint64_t *)at(&h, pe, 128), 9);
    }
    give_back(&h);
}

static void
test_some_of_many_numbers_are_waited_for(void **state)
{
    heaps          h;
    uint64_t       one      = 1;
    uint8_t        seen[4]  = {0, 1, 0, 0};
    umx_condition  until[4] = {{0}};
    umx_conditions all      = {.until = until, .count = 4, .seen = seen};
    job            j;
    umx_request   *req;
    umx_op_params  how;

    open_heaps(&h, *state, 2);
    for (size_t i = 0; i < 4; i++) {
        until[i] = (umx_condition){
            .cmp = UMX_CMP_EQ, .size = 8, .offset = 8 * i, .value = 1};
    }
    all.at_least = 2;
    how          = job_params(&j);
    job_posted(&j, umx_shmem_wait_until_many(h.heaps[1], &all, &how, &req),
               &req);
    for (int i = 3; i >= 2; i--) {
        assert_int_equal(j.status, UMX_INPROGRESS);
        assert_int_equal(RUN(&h, umx_shmem_put(h.heaps[0], at(&h, 0, 8 * i),
                                               &one, 8, 1, OP, REQ)),
                         UMX_OK);
    }
    assert_int_equal(world_wait_one(h.w, &j), UMX_OK);
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[2] + seen[3], 2);
    give_back(&h);
}

static void
test_waits_end_when_the_communicator_fails(void **state)
{
    heaps            h;
    umx_condition    until   = {.cmp = UMX_CMP_GE, .size = 8, .value = 1};
    umx_condition    is_zero = {.cmp = UMX_CMP_EQ, .size = 8};
    umx_comm_failure failure;
    const char      *why;

    open_heaps(&h, *state, 3);
    assert_false(umx_shmem_get_failure(h.heaps[0], &failure, &why));
    assert_int_equal(umx_shmem_doubt(h.heaps[0], 2, UMX_ERR_CANCELED),
                     UMX_ERR_CANCELED);
    RUN_ALL(&h, umx_shmem_wait_until(h.heaps[i], &until, OP, REQ));
    umx_comm_abort(h.w->comms[2], "enough");
    world_wait(h.w, h.jobs, 3, UMX_ERR_RANK_FAILED);
    assert_int_equal(RUN(&h, umx_shmem_wait_until(h.heaps[0], &until, OP, REQ)),
                     UMX_ERR_RANK_FAILED);
    assert_int_equal(
        RUN(&h, umx_shmem_wait_until(h.heaps[0], &is_zero, OP, REQ)), UMX_OK);
    assert_int_equal(RUN(&h, umx_shmem_barrier(h.heaps[0], OP, REQ)),
                     UMX_ERR_RANK_FAILED);
    assert_int_equal(umx_shmem_notify(h.heaps[0], 2), UMX_ERR_RANK_FAILED);
    /* What was under way with the rank ends so when its endpoint is closed. */
    assert_int_equal(umx_shmem_doubt(h.heaps[0], 2, UMX_ERR_CANCELED),
                     UMX_ERR_RANK_FAILED);
    assert_true(*umx_shmem_lost(h.heaps[0]));
    assert_true(umx_shmem_get_failure(h.heaps[0], &failure, &why));
    assert_int_equal(failure.rank, 2);
    assert_non_null(strstr(why, "enough"));
    give_back(&h);
}

static void
test_a_wait_is_cancelled(void **state)
{
    heaps         h;
    umx_condition until = {.cmp = UMX_CMP_GE, .size = 8, .value = 1};
    job           j;
    umx_request  *req;
    umx_op_params how;

    open_heaps(&h, *state, 2);
    how = job_params(&j);
    job_posted(&j, umx_shmem_wait_until(h.heaps[0], &until, &how, &req), &req);
    (void)umx_request_cancel(j.req);
    assert_int_equal(world_wait_one(h.w, &j), UMX_ERR_CANCELED);
    how = job_params(&j);
    job_posted(&j, umx_shmem_wait_until(h.heaps[0], &until, &how, &req), &req);
    umx_shmem_close(h.heaps[0]);
    assert_int_equal(world_wait_one(h.w, &j), UMX_ERR_CLOSED);
    give_back(&h);
}

/* ---- in line -------------------------------------------------------------
 */

static void
test_calls_in_line_do_what_calls_do(void **state)
{
    heaps            h;
    umx_shmem_direct direct;
    uint64_t         x, signal, value = 77, got = 0;

    open_heaps(&h, *state, 2);
    x      = allocate(&h, 64, 0, true);
    signal = allocate(&h, 8, 0, true);
    direct = umx_shmem_direct_of(h.heaps[0]);
    assert_non_null(direct.pes);
    assert_null(umx_shmem_get_pes(h.heaps[0], UMX_SHMEM_LAYOUT + 1));
    for (int pe = (h.w->tls == NULL) ? 0 : 2; pe < 2; pe++) {
        uint64_t *there = at(&h, pe, x), *sig = at(&h, pe, signal);

        assert_int_equal(
            umx_shmem_direct_put(&direct, at(&h, 0, x), &value, 8, pe), UMX_OK);
        assert_int_equal(there[0], 77);
        assert_int_equal(
            umx_shmem_direct_p64(&direct, at(&h, 0, x + 8), 78, pe), UMX_OK);
        assert_int_equal(there[1], 78);
        assert_int_equal(
            umx_shmem_direct_get(&direct, &got, at(&h, 0, x + 8), 8, pe),
            UMX_OK);
        assert_int_equal(got, 78);
        assert_int_equal(umx_shmem_direct_put_signal(
                             &direct, at(&h, 0, x + 16), &value, 8,
                             at(&h, 0, signal), 3, UMX_ATOMIC_SWAP, pe),
                         UMX_OK);
        assert_int_equal(umx_shmem_direct_put_signal(
                             &direct, at(&h, 0, x + 16), &value, 8,
                             at(&h, 0, signal), 2, UMX_ATOMIC_ADD, pe),
                         UMX_OK);
        assert_int_equal(
            umx_shmem_direct_add64(&direct, at(&h, 0, signal), 1, pe), UMX_OK);
        assert_int_equal(sig[0], 6);
        assert_int_equal(there[2], 77);
    }
    if (h.w->tls == NULL) {
        assert_int_equal(
            umx_shmem_direct_wait_ge(&direct, at(&h, 0, signal), 6), UMX_OK);
    }
    give_back(&h);
}

static void
test_stores_in_line_wake_who_waits(void **state)
{
    heaps            h;
    umx_shmem_direct direct;
    umx_condition    until = {.cmp = UMX_CMP_GE, .size = 8, .value = 1};
    job              j;
    umx_request     *req;
    umx_op_params    how;

    open_heaps(&h, *state, 2);
    if (h.w->tls != NULL) {
        give_back(&h);
        return;
    }
    direct = umx_shmem_direct_of(h.heaps[0]);
    for (int pe = 0; pe < 2; pe++) {
        how = job_params(&j);
        job_posted(&j, umx_shmem_wait_until(h.heaps[pe], &until, &how, &req),
                   &req);
        for (int i = 0; i < 200; i++) { /* until its worker is armed */
            world_step(h.w);
        }
        assert_int_equal(umx_shmem_direct_p64(&direct, at(&h, 0, 0), 1, pe),
                         UMX_OK);
        assert_int_equal(world_wait_one(h.w, &j), UMX_OK);
    }
    give_back(&h);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_a_heap_has_zeros),
        WORLD_TEST(test_heaps_of_different_sizes_fail_on_every_rank),
        WORLD_TEST(test_a_size_that_makes_no_sense_is_refused),
        WORLD_TEST(test_a_rank_without_room_fails_the_heap_of_all),
        WORLD_TEST(test_a_heap_is_closed),
        WORLD_TEST(test_a_worker_ends_before_its_heap),
        WORLD_TEST(test_all_ranks_allocate_alike),
        WORLD_TEST(test_different_arguments_fail_alike_and_change_nothing),
        WORLD_TEST(test_allocations_that_cannot_be_made_fail_alike),
        WORLD_TEST(test_allocations_are_carried_out_in_order),
        WORLD_TEST(test_a_heap_is_destroyed_during_an_allocation),
        WORLD_TEST(test_put_and_get_reach_every_pe),
        WORLD_TEST(test_what_is_no_symmetric_address_is_refused),
        WORLD_TEST(test_items_at_distances),
        WORLD_TEST(test_quiet_ends_what_has_no_request),
        WORLD_TEST(test_quiet_is_cancelled),
        WORLD_TEST(test_a_barrier_begins_with_a_quiet),
        WORLD_TEST(test_a_signal_comes_behind_its_bytes),
        WORLD_TEST(test_numbers_are_changed_in_one_step),
        WORLD_TEST(test_some_of_many_numbers_are_waited_for),
        WORLD_TEST(test_waits_end_when_the_communicator_fails),
        WORLD_TEST(test_a_wait_is_cancelled),
        WORLD_TEST(test_calls_in_line_do_what_calls_do),
        WORLD_TEST(test_stores_in_line_wake_who_waits),
    };

    return UNIT_RUN(tests);
}
