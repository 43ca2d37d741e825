/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* What a cancelled allocation leaves behind. */
#include <string.h>
#include <umx/shmem.h>

#include "world.h"

enum {
    SIZE      = 1 << 16,
    KEPT      = 64,  /* bytes of the first block of a heap, at offset 0 */
    MAX_STEPS = 400, /* more than the calls below take */
    CALLS     = 3
};

/* What each rank calls, one after the other, when two blocks exist. */
typedef enum call {
    FREE, /* the second block, of 64 bytes */
    MALLOC,
    CALLOC
} call;

static const uint64_t sizes[CALLS] = {[MALLOC] = 128, [CALLOC] = 256};

typedef struct heaps {
    world     *w;
    umx_shmem *heaps[MAX_RANKS];
    char      *second[MAX_RANKS];
    job        jobs[MAX_RANKS][CALLS];
    void      *got[MAX_RANKS][CALLS];
} heaps;

static void
wait_for_all(heaps *h, umx_status status)
{
    for (int i = 0; i < h->w->size; i++) {
        assert_int_equal(world_wait_one(h->w, &h->jobs[i][0]), status);
    }
}

static void
allocate(heaps *h, uint64_t size)
{
    for (int i = 0; i < h->w->size; i++) {
        umx_op_params how = job_params(&h->jobs[i][0]);
        umx_request  *req = NULL;

        job_posted(&h->jobs[i][0],
                   umx_shmem_malloc(h->heaps[i], size, 0, false,
                                    (void **)&h->second[i], &how, &req),
                   &req);
    }
    wait_for_all(h, UMX_OK);
}

/* Heaps with two blocks of 64 bytes. */
static void
open_heaps(heaps *h, world *w)
{
    *h = (heaps){.w = w};
    for (int i = 0; i < w->size; i++) {
        umx_op_params how = job_params(&h->jobs[i][0]);
        umx_request  *req = NULL;

        job_posted(
            &h->jobs[i][0],
            umx_shmem_create(w->comms[i], SIZE, &how, &h->heaps[i], &req),
            &req);
    }
    wait_for_all(h, UMX_OK);
    allocate(h, KEPT);
    allocate(h, 64);
}

static void
close_heaps(heaps *h)
{
    for (int i = 0; i < h->w->size; i++) {
        umx_shmem_destroy(h->heaps[i]);
    }
}

static void
post(heaps *h, int rank, call which)
{
    job          *j   = &h->jobs[rank][which];
    umx_op_params how = job_params(j);
    umx_request  *req = NULL;

    job_posted(j,
               (which == FREE) ?
                   umx_shmem_free(h->heaps[rank], h->second[rank], &how, &req) :
                   umx_shmem_malloc(h->heaps[rank], sizes[which], 0,
                                    which == CALLOC, &h->got[rank][which], &how,
                                    &req),
               &req);
}

static void
post_all(heaps *h, int rank)
{
    for (int which = 0; which < CALLS; which++) {
        post(h, rank, (call)which);
    }
}

static void
cancel(heaps *h, int rank, call which)
{
    if (h->jobs[rank][which].req != NULL) {
        (void)umx_request_cancel(h->jobs[rank][which].req);
    }
}

/* Each call of a rank has ended, and its allocator has the blocks that the
 * calls say it has. */
static void
expect_blocks(heaps *h, int rank)
{
    uint64_t taken = KEPT;

    for (int which = 0; which < CALLS; which++) {
        bool is_ok = world_wait_one(h->w, &h->jobs[rank][which]) == UMX_OK;

        if (which == FREE) {
            taken += is_ok ? 0 : 64;
        } else {
            taken += is_ok ? sizes[which] : 0;
        }
    }
    assert_int_equal(umx_shmem_available(h->heaps[rank]), SIZE - taken);
}

/* Rank 0 waits for rank 1, which has called nothing yet, and cancels a call
 * that is behind: only its turn has nothing to take back. */
static void
test_an_allocation_is_cancelled_before_its_turn(void **state)
{
    static heaps h;

    world_open(*state, 2);
    open_heaps(&h, *state);
    post_all(&h, 0);
    cancel(&h, 0, MALLOC);
    assert_int_equal(world_wait_one(h.w, &h.jobs[0][MALLOC]), UMX_ERR_CANCELED);
    post_all(&h, 1);
    for (int i = 0; i < 2; i++) {
        expect_blocks(&h, i);
        assert_int_equal(h.jobs[i][FREE].status, UMX_OK);
    }
    assert_int_equal(h.jobs[1][MALLOC].status, UMX_ERR_RANK_FAILED);
    assert_int_equal(h.jobs[0][CALLOC].status, UMX_ERR_RANK_FAILED);
    assert_int_equal(h.jobs[1][CALLOC].status, UMX_ERR_RANK_FAILED);
    close_heaps(&h);
}

static void
test_a_heap_is_closed_before_the_turn_of_a_cancelled_allocation(void **state)
{
    static heaps h;

    world_open(*state, 2);
    open_heaps(&h, *state);
    post_all(&h, 0);
    cancel(&h, 0, CALLOC);
    umx_shmem_close(h.heaps[0]);
    assert_int_equal(world_wait_one(h.w, &h.jobs[0][MALLOC]), UMX_ERR_CLOSED);
    assert_int_equal(world_wait_one(h.w, &h.jobs[0][CALLOC]), UMX_ERR_CANCELED);
    post_all(&h, 1);
    for (int i = 0; i < 2; i++) {
        for (int which = 0; which < CALLS; which++) {
            assert_true(world_wait_one(h.w, &h.jobs[i][which]) < 0);
        }
    }
    close_heaps(&h);
}

/* The smallest step that a rank makes: what comes by UCX is looked at once. */
static void
step(const world *w, unsigned rank)
{
    if (w->tls == NULL) { /* what ranks of a host send comes by this only */
        (void)!umx_worker_drain(w->workers[rank]);
    } else {
        (void)umi_worker_progress(w->workers[rank]);
        umi_worker_run_events(w->workers[rank]);
    }
}

/* Cancel a call of a rank after so many steps. True: it had ended by then. */
static bool
cancel_after(heaps *h, unsigned steps, int rank, call which)
{
    bool has_ended;

    open_heaps(h, h->w);
    post_all(h, 0);
    for (unsigned i = 0; i < steps; i++) {
        if (i == steps / 2) {
            post_all(h, 1);
        }
        step(h->w, i % 2);
    }
    if (steps == 0) {
        post_all(h, 1);
    }
    has_ended = h->jobs[rank][which].status != UMX_INPROGRESS;
    cancel(h, rank, which);
    expect_blocks(h, 0);
    expect_blocks(h, 1);
    close_heaps(h);
    return has_ended;
}

static void
test_an_allocation_is_cancelled_at_each_step(void **state)
{
    static heaps h;

    h.w = *state;
    world_open(h.w, 2);
    for (int rank = 0; rank < 2; rank++) {
        for (int which = 0; which < CALLS; which++) {
            unsigned steps = 0;

            while (!cancel_after(&h, steps, rank, (call)which)) {
                steps++;
                assert_true(steps < MAX_STEPS);
            }
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_an_allocation_is_cancelled_before_its_turn),
        WORLD_TEST(
            test_a_heap_is_closed_before_the_turn_of_a_cancelled_allocation),
        WORLD_TEST(test_an_allocation_is_cancelled_at_each_step),
    };

    return UNIT_RUN(tests);
}
