/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port wrap=malloc wrap=calloc wrap=realloc */
/* Layers with regions are made, and heaps allocated in, again and again, each
 * time with another allocation of libumx that fails. Every call ends, nothing
 * is freed twice, and nothing crashes. */
#include <string.h>
#include <umx/moe.h>
#include <umx/outputs.h>
#include <umx/proxy.h>
#include <umx/shmem.h>

#include "world.h"

enum {
    RANKS      = 2,
    IDLE_STEPS = 20, /* in which nothing comes: nobody is told any more */
    MAX_CALLS  = 2000
};

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

/* ---- allocations ---------------------------------------------------------
 */

/* A proxy's thread allocates, too. */
static _Atomic int num_calls;
static _Atomic int fail_at; /* 0: none */

static bool
fails(void)
{
    return fail_at != 0 && ++num_calls == fail_at;
}

void *
__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *
__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

/* ---- layers --------------------------------------------------------------
 */

typedef struct ranks {
    world          *w;
    job             jobs[RANKS];
    umx_memh       *memhs[RANKS];
    umx_shmem      *heaps[RANKS];
    umx_proxy      *proxies[RANKS];
    umx_moe        *moes[RANKS];
    umx_outputs    *outputs[RANKS];
    umx_proxy_ring *rings[RANKS];
    void           *blocks[RANKS];
} ranks;

/* Begin the `step`th call of a rank. False: there is no such call. */
typedef bool (*begin_fn)(ranks *r, int rank, int step);

/* How the call of a rank is made, and its request. */
static umx_op_params how;
static umx_request  *req;

#define BEGIN(r, rank, call)                      \
    do {                                          \
        how = job_params(&(r)->jobs[rank]);       \
        req = NULL;                               \
        job_posted(&(r)->jobs[rank], call, &req); \
    } while (0)

static bool
begin_heap(ranks *r, int rank, int step)
{
    umx_shmem *heap = r->heaps[rank];

    switch (step) {
    case 0:
        BEGIN(r, rank,
              umx_shmem_create(r->w->comms[rank], 1 << 16, &how,
                               &r->heaps[rank], &req));
        return true;
    case 1:
        BEGIN(
            r, rank,
            umx_shmem_malloc(heap, 128, 0, true, &r->blocks[rank], &how, &req));
        return true;
    case 2:
        BEGIN(r, rank, umx_shmem_free(heap, r->blocks[rank], &how, &req));
        return true;
    case 3:
        BEGIN(
            r, rank,
            umx_shmem_malloc(heap, 64, 0, false, &r->blocks[rank], &how, &req));
        return true;
    default:
        return false;
    }
}

static bool
begin_proxy(ranks *r, int rank, int step)
{
    umx_proxy_ring_params ring = {.capacity = 64};
    unsigned              number;

    switch (step) {
    case 0:
        BEGIN(r, rank,
              umx_proxy_create(r->w->comms[rank], NULL, &how, &r->proxies[rank],
                               &req));
        return true;
    case 1:
        BEGIN(r, rank,
              umx_proxy_ring_create(r->proxies[rank], &ring, &r->rings[rank]));
        return true;
    case 2:
        BEGIN(r, rank,
              umx_proxy_add_region(r->proxies[rank], r->memhs[rank], NULL, &how,
                                   &number, &req));
        return true;
    default:
        return false;
    }
}

static bool
begin_experts(ranks *r, int rank, int step)
{
    umx_moe_params params = {
        .num_experts = 4, .max_tokens = 2, .max_topk = 2, .hidden = 256};

    if (step != 0) {
        return false;
    }
    assert_true(umx_moe_memory_size(&params, RANKS) <=
                umx_memh_buffer(r->memhs[rank])->len);
    BEGIN(r, rank,
          umx_moe_create(r->w->comms[rank], r->memhs[rank], &params, &how,
                         &r->moes[rank], &req));
    return true;
}

static bool
begin_outputs(ranks *r, int rank, int step)
{
    umx_outputs_params params = {.num_maps = 4, .num_partitions = 3};

    if (step != 0) {
        return false;
    }
    BEGIN(r, rank,
          umx_outputs_create(r->w->comms[rank], &params, &how,
                             &r->outputs[rank], &req));
    return true;
}

static void
give_back(ranks *r)
{
    for (int i = 0; i < RANKS; i++) {
        if (r->heaps[i] != NULL) {
            umx_shmem_destroy(r->heaps[i]);
        }
        if (r->rings[i] != NULL) {
            umx_proxy_ring_destroy(r->rings[i]);
        }
        if (r->proxies[i] != NULL) {
            umx_proxy_destroy(r->proxies[i]);
        }
        if (r->moes[i] != NULL) {
            umx_moe_destroy(r->moes[i]);
        }
        if (r->outputs[i] != NULL) {
            umx_outputs_destroy(r->outputs[i]);
        }
    }
}

/* ---- one life, again and again -------------------------------------------
 */

static bool
is_under_way(const ranks *r)
{
    return r->jobs[0].status == UMX_INPROGRESS ||
           r->jobs[1].status == UMX_INPROGRESS;
}

/* Let both ranks make a call, and wait for the ends. A rank whose call has
 * failed at once has told nobody: then the other one waits for ever, and gives
 * up. */
static bool
call_all(ranks *r, begin_fn begin, int step)
{
    for (int i = 0; i < RANKS; i++) {
        if (!begin(r, i, step)) {
            return false;
        }
    }
    r->w->num_idle = 0;
    while (is_under_way(r) &&
           (num_calls < fail_at || r->w->num_idle < IDLE_STEPS)) {
        world_step(r->w);
    }
    for (int i = 0; i < RANKS; i++) {
        if (r->jobs[i].req != NULL) {
            (void)umx_request_cancel(r->jobs[i].req);
        }
    }
    for (int i = 0; i < RANKS; i++) {
        (void)world_wait_one(r->w, &r->jobs[i]);
    }
    return r->jobs[0].status == UMX_OK && r->jobs[1].status == UMX_OK;
}

static bool
is_well(const world *w)
{
    umx_comm_failure failure;

    for (int i = 0; i < RANKS; i++) {
        if (w->comms[i] == NULL ||
            umx_comm_get_failure(w->comms[i], &failure)) {
            return false;
        }
    }
    return true;
}

/* One life with the `nth` allocation failing. True: it has failed. */
static bool
live(ranks *r, begin_fn begin, int nth)
{
    int step = 0;

    num_calls = 0;
    fail_at   = nth;
    while (call_all(r, begin, step)) {
        step++;
    }
    give_back(r);
    fail_at = 0;
    return num_calls >= nth;
}

static void
open_ranks(ranks *r, void **state)
{
    *r = (ranks){.w = *state};
    world_open(r->w, RANKS);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(umx_memh_alloc(r->w->context, 1 << 20, &r->memhs[i]),
                         UMX_OK);
    }
}

static void
fail_each(void **state, begin_fn begin)
{
    static ranks r;
    int          nth = 1;

    open_ranks(&r, state);
    while (live(&r, begin, nth)) {
        const char *tls = r.w->tls;

        assert_true(nth < MAX_CALLS);
        nth++;
        if (is_well(r.w)) {
            r = (ranks){.w = r.w, .memhs = {r.memhs[0], r.memhs[1]}};
            continue;
        }
        for (int i = 0; i < RANKS; i++) {
            umx_memh_release(r.memhs[i]);
        }
        (void)world_teardown(state);
        *state = (void *)(uintptr_t)tls;
        (void)world_setup(state);
        open_ranks(&r, state);
    }
    assert_true(nth > 1);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(r.jobs[i].status, UMX_OK); /* none has failed */
        umx_memh_release(r.memhs[i]);
    }
}

static void
test_a_heap(void **state)
{
    fail_each(state, begin_heap);
}

static void
test_a_proxy(void **state)
{
    fail_each(state, begin_proxy);
}

static void
test_a_group_of_experts(void **state)
{
    fail_each(state, begin_experts);
}

static void
test_outputs(void **state)
{
    fail_each(state, begin_outputs);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_heap, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_a_proxy, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_a_group_of_experts, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_outputs, world_setup,
                                        world_teardown),
    };

    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
