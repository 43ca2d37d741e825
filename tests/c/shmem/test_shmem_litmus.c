/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port wrap=shmget optimised */
/* tests: shmem/quiet shmem/put_get */
/* Litmus tests of the order of stores.
 *
 *   store buffering   two PEs put 1 to each other, and read what the other one
 *                     has put: with quiet() in between one of them sees it
 *   message passing   a PE puts bytes, and a number after them: with fence() in
 *                     between, or by put_signal(), who sees the number sees the
 *                     bytes
 *
 * Each is run without what orders the stores, too, where it must go wrong, or
 * it would show nothing. SHMEM_LITMUS=1000000 is the long form: so many rounds
 * of store buffering, 10000 messages of 64 KiB and 1000 of 1 MiB. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <umx/shmem_direct.h>
#include <unistd.h>

#include "util/clock.h"
#include "world.h"

enum {
    SIZE          = 4 << 20,
    ROUNDS        = 20000,   /* of store buffering */
    CONTROL_MAX   = 3000000, /* rounds without order, until one goes wrong */
    SECONDS       = 15,      /* of fewer rounds, where others have the cores */
    MESSAGE       = 65536,
    MESSAGE_LARGE = 1 << 20
};

/* Without segments of the system nobody maps a memory: its owner executes the
 * operations. */
static bool has_segments = true;

int __real_shmget(key_t key, size_t size, int flags);
int __wrap_shmget(key_t key, size_t size, int flags);

int
__wrap_shmget(key_t key, size_t size, int flags)
{
    if (!has_segments) {
        errno = ENOSYS;
        return -1;
    }
    return __real_shmget(key, size, flags);
}

static long
rounds(void)
{
    const char *text = getenv("SHMEM_LITMUS");

    return (text == NULL) ? ROUNDS : atol(text);
}

typedef struct heaps {
    world     *w;
    umx_shmem *heaps[2];
} heaps;

static void
open_heaps(heaps *h, world *w)
{
    job jobs[2];

    *h = (heaps){.w = w};
    world_open(w, 2);
    for (int i = 0; i < 2; i++) {
        umx_op_params how = job_params(&jobs[i]);
        umx_request  *req = NULL;

        job_posted(
            &jobs[i],
            umx_shmem_create(w->comms[i], SIZE, &how, &h->heaps[i], &req),
            &req);
    }
    world_wait(w, jobs, 2, UMX_OK);
}

static void
give_back(heaps *h)
{
    umx_shmem_destroy(h->heaps[0]);
    umx_shmem_destroy(h->heaps[1]);
}

/* ---- store buffering -----------------------------------------------------
 */

/* What the two threads share. */
typedef struct game {
    heaps           *h;
    bool             has_quiet;
    long             count;
    uint64_t         end;        /* of the clock: no more rounds */
    _Atomic long     arrived[2]; /* rounds that a thread has begun */
    _Atomic long     ended[2];
    _Atomic long     settled[2];
    _Atomic long     wrong; /* rounds in which nobody saw the other */
    _Atomic uint64_t seen[2];
    _Atomic bool     is_over;
} game;

typedef struct player {
    game *game;
    int   rank;
} player;

/* Wait until the other one has come as far. */
static void
meet(_Atomic long *counts, int rank, long round)
{
    int looks = 0;

    atomic_store_explicit(&counts[rank], round, memory_order_release);
    while (atomic_load_explicit(&counts[1 - rank], memory_order_acquire) <
           round) {
        if (++looks % 200 == 0) {
            sched_yield();
        }
    }
}

static void *
play(void *arg)
{
    const player    *self   = arg;
    game            *g      = self->game;
    int              rank   = self->rank;
    umx_shmem       *shmem  = g->h->heaps[rank];
    umx_shmem_direct direct = umx_shmem_direct_of(shmem);
    uint64_t        *number = umx_shmem_base(shmem);
    cpu_set_t        cpus;

    CPU_ZERO(&cpus);
    CPU_SET(rank, &cpus);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
    for (long round = 1; round <= g->count && !g->is_over; round++) {
        uint64_t *mine = number + 64 * (size_t)(round % 64);
        uint64_t  got;

        meet(g->arrived, rank, round);
        if (umx_shmem_direct_p64(&direct, mine, (uint64_t)round, 1 - rank) !=
                UMX_OK ||
            (g->has_quiet && umx_shmem_quiet(shmem, NULL, NULL) != UMX_OK)) {
            abort();
        }
        got = __atomic_load_n(mine, __ATOMIC_RELAXED);
        atomic_store_explicit(&g->seen[rank], got == (uint64_t)round,
                              memory_order_relaxed);
        meet(g->ended, rank, round);
        if (rank == 0 && g->seen[0] == 0 && g->seen[1] == 0) {
            g->wrong++;
            g->is_over = !g->has_quiet; /* one is enough */
        }
        if (rank == 0 && umi_clock_ns() > g->end) {
            g->is_over = true;
        }
        meet(g->settled, rank, round); /* `is_over` has been written */
    }
    return NULL;
}

/* Play; returns how many rounds went wrong. -1: there was no time for all. */
static long
buffer_stores(heaps *h, bool has_quiet, long count)
{
    game      g          = {.h = h, .has_quiet = has_quiet, .count = count};
    player    players[2] = {{&g, 0}, {&g, 1}};
    pthread_t threads[2];

    g.end = (getenv("SHMEM_LITMUS") != NULL) ?
                UINT64_MAX :
                umi_clock_ns() + SECONDS * UINT64_C(1000000000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, play, &players[i]),
                         0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    memset(umx_shmem_base(h->heaps[0]), 0, 64 * 64 * 8);
    memset(umx_shmem_base(h->heaps[1]), 0, 64 * 64 * 8);
    return (g.wrong == 0 && umi_clock_ns() > g.end) ? -1 : g.wrong;
}

static void
test_stores_are_seen_after_a_quiet(void **state)
{
    heaps h;

    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        skip();
    }
    open_heaps(&h, *state);
    if (umx_shmem_pointer(h.heaps[0], umx_shmem_base(h.heaps[0]), 1) == NULL) {
        give_back(&h);
        return;
    }
    assert_true(buffer_stores(&h, true, rounds()) <= 0);
    if (umx_shmem_get_pes(h.heaps[0], UMX_SHMEM_LAYOUT)[1].is_ordered) {
        assert_int_not_equal(buffer_stores(&h, false, CONTROL_MAX), 0);
    }
    give_back(&h);
}

/* ---- message passing -----------------------------------------------------
 */

typedef enum order {
    NONE,
    FENCE,
    SIGNAL
} order;

/* Put the bytes of a round, and its number after them. */
static void
send_round(heaps *h, const unsigned char *bytes, size_t len,
           const uint64_t *round, order how)
{
    char *base = umx_shmem_base(h->heaps[0]);

    if (how == SIGNAL) {
        assert_int_equal(umx_shmem_put_signal_nbi(h->heaps[0], base + 4096,
                                                  bytes, len,
                                                  (uint64_t *)(void *)base,
                                                  *round, UMX_ATOMIC_SWAP, 1),
                         UMX_OK);
        return;
    }
    assert_int_equal(umx_shmem_put_nbi(h->heaps[0], base + 4096, bytes, len, 1),
                     UMX_OK);
    if (how == FENCE) {
        assert_int_equal(umx_shmem_fence(h->heaps[0]), UMX_OK);
    }
    assert_int_equal(
        umx_shmem_put_nbi(h->heaps[0], base, round, sizeof(*round), 1), UMX_OK);
}

static void
quiet(heaps *h)
{
    job           j;
    umx_op_params how = job_params(&j);
    umx_request  *req = NULL;

    job_posted(&j, umx_shmem_quiet(h->heaps[0], &how, &req), &req);
    assert_int_equal(world_wait_one(h->w, &j), UMX_OK);
}

/* Send messages; returns how many numbers were seen before the bytes. */
static long
pass_messages(heaps *h, size_t len, order how, long count)
{
    unsigned char       *bytes  = malloc(len);
    const unsigned char *there  = umx_shmem_base(h->heaps[1]);
    uint64_t            *number = umx_shmem_base(h->heaps[1]);
    long                 wrong  = 0;

    *number = 0;
    for (uint64_t round = 1; round <= (uint64_t)count; round++) {
        memset(bytes, (int)(round % 251), len);
        send_round(h, bytes, len, &round, how);
        for (int i = 1; __atomic_load_n(number, __ATOMIC_ACQUIRE) != round;
             i++) { /* in small steps: what comes first is to be seen first */
            (void)umx_worker_poll(h->w->workers[i % 2]);
            if (i % 10000 == 0) {
                world_step(h->w);
            }
        }
        wrong += there[4096 + len - 1] != round % 251;
        quiet(h);
    }
    free(bytes);
    return wrong;
}

/* With what orders them no number comes first. */
static void
pass_ordered(heaps *h)
{
    for (order how = FENCE; how <= SIGNAL; how++) {
        assert_int_equal(pass_messages(h, MESSAGE, how, rounds() / 100), 0);
        assert_int_equal(pass_messages(h, MESSAGE_LARGE, how, rounds() / 1000),
                         0);
    }
}

static void
test_numbers_come_after_their_bytes(void **state)
{
    heaps h;

    open_heaps(&h, *state);
    pass_ordered(&h);
    give_back(&h);
}

static void
test_numbers_come_after_bytes_that_the_owner_writes(void **state)
{
    heaps h;
    long  small, large;

    has_segments = false;
    open_heaps(&h, *state);
    has_segments = true;
    assert_null(umx_shmem_pointer(h.heaps[0], umx_shmem_base(h.heaps[0]), 1));
    pass_ordered(&h);
    small = pass_messages(&h, MESSAGE, NONE, 20);
    large = pass_messages(&h, MESSAGE_LARGE, NONE, 10);
    give_back(&h);
    assert_true(small > 10); /* they go different ways */
    assert_true(large > 5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stores_are_seen_after_a_quiet,
                                        world_setup, world_teardown),
        WORLD_TEST(test_numbers_come_after_their_bytes),
        cmocka_unit_test_setup_teardown(
            test_numbers_come_after_bytes_that_the_owner_writes, world_setup,
            world_teardown),
    };

    return UNIT_RUN(tests);
}
