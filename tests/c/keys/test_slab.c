/* SPDX-License-Identifier: BSD-3-Clause */
/* link: child tsan */
#include "keys/slab.h"

#include "child.h"
#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/wait.h>

enum {
    SLAB_SIZE = 1 << 20,
    PAGE      = 4096,
    LARGEST   = SLAB_SIZE / 16
};

static umi_slab_set *
make_set(void)
{
    umi_slab_set *set = umi_slab_set_create(7, SLAB_SIZE);

    assert_non_null(set);
    return set;
}

static umi_block *
take(umi_slab_set *set, size_t len)
{
    umi_block *block;

    assert_int_equal(umi_block_take(set, len, &block), UMX_OK);
    return block;
}

/* Map a block's segment as a peer does, without asking for a key. */
static void *
map(const umi_block *block)
{
    void *address = shmat(block->slab->number, NULL, 0);

    assert_ptr_not_equal(address, (void *)-1);
    return address;
}

/* ---- blocks --------------------------------------------------------------
 */

static void
test_blocks_of_a_slab_are_apart(void **state)
{
    umi_slab_set *set = make_set();
    umi_block    *a = take(set, 1), *b = take(set, 0), *c = take(set, 65);

    (void)state;
    assert_ptr_equal(a->slab, b->slab);
    assert_int_equal(set->num_slabs, 1);
    assert_int_equal(a->offset, UMI_SLAB_TABLE);
    assert_int_equal(b->offset, a->offset + 64);
    assert_int_equal(c->offset, b->offset + 64);
    assert_int_equal(c->len, 128);
    assert_int_not_equal(a->place, b->place);
    assert_int_not_equal(a->place, 0);
    umi_block_put(a);
    umi_block_put(b);
    umi_block_put(c);
    umi_slab_set_destroy(set);
}

static void
test_blocks_of_pages_begin_in_the_middle_of_one(void **state)
{
    umi_slab_set *set   = make_set();
    umi_block    *small = take(set, 100), *page = take(set, PAGE);
    umi_block    *next = take(set, PAGE), *between = take(set, 200);

    (void)state;
    assert_int_equal(page->offset % PAGE, UMI_SEGMENT_HEADER);
    assert_int_equal(next->offset, page->offset + PAGE);
    assert_int_equal(between->offset, small->offset + small->len);
    umi_block_put(small);
    umi_block_put(page);
    umi_block_put(next);
    umi_block_put(between);
    umi_slab_set_destroy(set);
}

/* Blocks that are lent never overlap, and all come back, in any order. */
static void
test_random_blocks_never_overlap(void **state)
{
#ifdef UNIT_NOMEM /* the test runs once for each allocation */
    enum {
        NUM    = 30,
        ROUNDS = 60
    };
#else
    enum {
        NUM    = 200,
        ROUNDS = 20000
    };
#endif

    umi_slab_set *set         = make_set();
    umi_block    *blocks[NUM] = {0};
    size_t        lens[NUM];
    unsigned      seed = 1;

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        int n = rand_r(&seed) % NUM;

        if (blocks[n] == NULL) {
            lens[n] = (size_t)rand_r(&seed) %
                      ((rand_r(&seed) & 1) ? 300 : 20000);
            blocks[n] = take(set, lens[n]);
            memset(umi_block_data(blocks[n]), n, lens[n]);
            continue;
        }
        for (size_t k = 0; k < lens[n]; k++) {
            if (((uint8_t *)umi_block_data(blocks[n]))[k] != (uint8_t)n) {
                fail_msg("byte %zu of %zu was changed", k, lens[n]);
            }
        }
        umi_block_put(blocks[n]);
        blocks[n] = NULL;
    }
    assert_true(set->num_slabs <= 4);
    for (int n = 0; n < NUM; n++) {
        if (blocks[n] != NULL) {
            umi_block_put(blocks[n]);
        }
    }
    assert_int_equal(set->num_used, 0);
    assert_int_equal(set->num_slabs, 1);
    umi_slab_set_destroy(set);
}

static void
test_a_slab_has_as_many_blocks_as_headers(void **state)
{
    umi_slab_set *set   = make_set();
    umi_block    *first = take(set, 8), *last, *next;

    (void)state;
    assert_int_equal(first->slab->num_places, UMI_SLAB_CELLS - 2);
    first->slab->num_places = 1;
    last                    = take(set, 8);
    assert_ptr_equal(last->slab, first->slab);
    next = take(set, 8);
    assert_ptr_not_equal(next->slab, first->slab);
    umi_block_put(first);
    umi_block_put(last);
    umi_block_put(next);
    assert_int_equal(set->num_slabs, 1);
    umi_slab_set_destroy(set);
}

static void
test_the_set_goes_with_its_last_block(void **state)
{
    umi_slab_set *set   = make_set();
    umi_block    *block = take(set, 8);

    (void)state;
    umi_slab_set_destroy(set);
    memset(umi_block_data(block), 1, 8);
    umi_block_put(block);
}

/* ---- when space is used again --------------------------------------------
 */

/* Take all of the first slab: the number of blocks. */
static int
fill(umi_slab_set *set, umi_block **blocks)
{
    int num = 0;

    do {
        blocks[num++] = take(set, LARGEST);
    } while (set->num_slabs == 1);
    umi_block_put(blocks[--num]); /* the second slab stays, empty */
    return num;
}

/* Is the space of the first of all blocks used again for the next ones? */
static bool
is_used_again(umi_slab_set *set, umi_block **blocks, int num)
{
    umi_slab *slab   = blocks[0]->slab;
    size_t    offset = blocks[0]->offset;
    bool      is_it  = false;

    umi_block_put(blocks[0]);
    for (int i = num; i < num + 16; i++) { /* the second slab, and one more */
        blocks[i] = take(set, LARGEST);
        is_it     = is_it ||
                (blocks[i]->slab == slab && blocks[i]->offset == offset);
    }
    for (int i = 1; i < num + 16; i++) {
        umi_block_put(blocks[i]);
    }
    return is_it;
}

static void
test_space_is_used_again(void **state)
{
    umi_slab_set *set = make_set();
    umi_block    *blocks[64];
    int           num = fill(set, blocks);

    (void)state;
    assert_true(is_used_again(set, blocks, num));
    umi_slab_set_destroy(set);
}

static void
test_space_is_not_used_while_a_peer_has_it_mapped(void **state)
{
    umi_slab_set *set = make_set();
    umi_block    *blocks[64];
    int           num     = fill(set, blocks);
    void         *address = map(blocks[3]);

    (void)state;
    assert_false(is_used_again(set, blocks, num));
    assert_int_equal(shmdt(address), 0);
    umi_slab_set_destroy(set);
}

static void
test_space_is_used_again_when_the_peer_has_let_go(void **state)
{
    umi_slab_set *set = make_set();
    umi_block    *blocks[64];
    int           num     = fill(set, blocks);
    void         *address = map(blocks[3]);

    (void)state;
    assert_int_equal(shmdt(address), 0);
    assert_true(is_used_again(set, blocks, num));
    umi_slab_set_destroy(set);
}

/* The role of a peer: map the segment of that number, say so, and wait. */
static int
run_peer(const char *arg)
{
    char  told   = 'm';
    void *shared = shmat(atoi(arg), NULL, 0);

    if (shared == (void *)-1) {
        return 1;
    }
    child_write(CHILD_OUT, &told, 1);
    pause();
    return 0;
}

static child
start_peer(const umi_block *block)
{
    char  number[16], told;
    child peer;

    snprintf(number, sizeof(number), "%d", block->slab->number);
    peer = child_start("peer", number);
    child_read(peer.in, &told, 1);
    return peer;
}

static void
test_space_is_not_used_while_another_process_has_it_mapped(void **state)
{
    umi_slab_set *set = make_set();
    umi_block    *blocks[64];
    int           num  = fill(set, blocks);
    child         peer = start_peer(blocks[3]);

    (void)state;
    kill(peer.pid, SIGSTOP); /* the peer is still alive */
    assert_false(is_used_again(set, blocks, num));
    (void)child_end(&peer, SIGKILL);
    umi_slab_set_destroy(set);
}

static void
test_space_is_used_again_when_the_peer_was_killed(void **state)
{
    umi_slab_set *set = make_set();
    umi_block    *blocks[64];
    int           num  = fill(set, blocks);
    child         peer = start_peer(blocks[3]);

    (void)state;
    (void)child_end(&peer, SIGKILL);
    assert_true(is_used_again(set, blocks, num));
    umi_slab_set_destroy(set);
}

/* A peer that keeps what is closed keeps one slab, and slabs are not made for
 * one block each. */
static void
test_an_empty_slab_that_is_mapped_is_left_to_its_peers(void **state)
{
    umi_slab_set *set    = make_set();
    umi_block    *block  = take(set, LARGEST);
    char         *kept   = map(block);
    size_t        at     = block->offset;
    int           number = block->slab->number, num_made = 0;

    (void)state;
    memset(umi_block_data(block), 'k', LARGEST);
    umi_block_put(block);
    for (int i = 0; i < 50; i++) {
        block = take(set, LARGEST);
        num_made += (block->slab->number != number);
        number = block->slab->number;
        memset(umi_block_data(block), 'x', LARGEST);
        umi_block_put(block);
        assert_true(set->num_slabs <= 2);
    }
    assert_int_equal(set->num_slabs, 1);
    assert_int_equal(num_made, 1);
    assert_int_equal(kept[at], 'k');
    assert_int_equal(kept[at + LARGEST - 1], 'k');
    assert_int_equal(shmdt(kept), 0);
    umi_slab_set_destroy(set);
}

/* ---- processes and threads -----------------------------------------------
 */

/* A child must not wait for a lock that a thread of its parent had. */
static void
test_a_forked_child_leaves_the_set_alone(void **state)
{
    umi_slab_set *set   = make_set();
    umi_block    *block = take(set, 8);
    int           status;
    pid_t         pid;

    (void)state;
    pthread_mutex_lock(&set->lock);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(5);
        set->generation--; /* fork.c sees to that only under a context */
        umi_block_put(block);
        umi_slab_set_destroy(set);
        _exit(0);
    }
    pthread_mutex_unlock(&set->lock);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    umi_block_put(block);
    umi_slab_set_destroy(set);
}

static void *
take_and_put(void *arg)
{
    for (int i = 0; i < 2000; i++) {
        umi_block *block = NULL;

        if (umi_block_take(arg, (size_t)i % 5000, &block) == UMX_OK) {
            memset(umi_block_data(block), i, (size_t)i % 5000);
            umi_block_put(block);
        }
    }
    return NULL;
}

static void
test_threads_share_a_set(void **state)
{
    umi_slab_set *set = make_set();
    pthread_t     threads[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_put, set),
                         0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(set->num_used, 0);
    umi_slab_set_destroy(set);
}

int
main(int argc, char **argv)
{
    static const child_entry roles[] = {{"peer", run_peer}};

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_of_a_slab_are_apart),
        cmocka_unit_test(test_blocks_of_pages_begin_in_the_middle_of_one),
        cmocka_unit_test(test_random_blocks_never_overlap),
        cmocka_unit_test(test_a_slab_has_as_many_blocks_as_headers),
        cmocka_unit_test(test_the_set_goes_with_its_last_block),
        cmocka_unit_test(test_space_is_used_again),
        cmocka_unit_test(test_space_is_not_used_while_a_peer_has_it_mapped),
        cmocka_unit_test(test_space_is_used_again_when_the_peer_has_let_go),
        cmocka_unit_test(
            test_space_is_not_used_while_another_process_has_it_mapped),
        cmocka_unit_test(test_space_is_used_again_when_the_peer_was_killed),
        cmocka_unit_test(
            test_an_empty_slab_that_is_mapped_is_left_to_its_peers),
        cmocka_unit_test(test_a_forked_child_leaves_the_set_alone),
        cmocka_unit_test(test_threads_share_a_set),
    };

    child_role(argc, argv, roles, 1);
    return UNIT_RUN(tests);
}
