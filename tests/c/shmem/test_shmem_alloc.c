/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: shmem/alloc */
#include "shmem/alloc.h"

#include "unit.h"

static uint64_t
alloc(umi_shmem_blocks *blocks, uint64_t len, uint64_t align)
{
    uint64_t offset = 7;

    assert_int_equal(umi_shmem_block_alloc(blocks, len, align, &offset),
                     UMX_OK);
    return offset;
}

static void
test_blocks_follow_each_other(void **state)
{
    umi_shmem_blocks blocks;

    (void)state;
    umi_shmem_blocks_init(&blocks, 0, 4096);
    assert_int_equal(alloc(&blocks, 1, 0), 0);
    assert_int_equal(alloc(&blocks, 64, 0), 64);
    assert_int_equal(alloc(&blocks, 65, 0), 128);
    assert_int_equal(alloc(&blocks, 8, 0), 256);
    assert_int_equal(blocks.available, 4096 - 320);
    umi_shmem_blocks_fini(&blocks);
}

static void
test_the_first_gap_that_is_large_enough_is_taken(void **state)
{
    umi_shmem_blocks blocks;

    (void)state;
    umi_shmem_blocks_init(&blocks, 0, 4096);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(alloc(&blocks, 128, 0), 128 * i);
    }
    umi_shmem_block_free(&blocks, 128);
    umi_shmem_block_free(&blocks, 384);
    umi_shmem_block_free(&blocks, 512);
    assert_int_equal(alloc(&blocks, 200, 0), 384);
    assert_int_equal(alloc(&blocks, 100, 0), 128);
    assert_false(umi_shmem_block_exists(&blocks, 512));
    assert_true(umi_shmem_block_exists(&blocks, 384));
    assert_false(umi_shmem_block_exists(&blocks, 4096));
    umi_shmem_blocks_fini(&blocks);
}

static void
test_blocks_are_aligned(void **state)
{
    umi_shmem_blocks blocks;

    (void)state;
    umi_shmem_blocks_init(&blocks, 0, 16384);
    assert_int_equal(alloc(&blocks, 8, 4096), 0);
    assert_int_equal(alloc(&blocks, 8, 4096), 4096);
    assert_int_equal(alloc(&blocks, 8, 16), 64);
    umi_shmem_blocks_fini(&blocks);
}

/* A heap begins anywhere in a page. */
static void
test_addresses_are_aligned_not_offsets(void **state)
{
    enum {
        AT = 2048
    };
    umi_shmem_blocks blocks;

    (void)state;
    umi_shmem_blocks_init(&blocks, AT, 16384);
    assert_int_equal(alloc(&blocks, 8, 0), 0);
    for (uint64_t align = 64; align <= 4096; align *= 2) {
        uint64_t offset = alloc(&blocks, 8, align);

        assert_int_equal((AT + offset) % align, 0);
    }
    umi_shmem_blocks_fini(&blocks);
}

static void
test_what_does_not_fit_is_refused(void **state)
{
    umi_shmem_blocks blocks;
    uint64_t         offset;

    (void)state;
    umi_shmem_blocks_init(&blocks, 0, 4096);
    assert_int_equal(umi_shmem_block_alloc(&blocks, 4097, 0, &offset),
                     UMX_ERR_EXCEEDS_LIMIT);
    assert_int_equal(umi_shmem_block_alloc(&blocks, UINT64_MAX, 0, &offset),
                     UMX_ERR_EXCEEDS_LIMIT);
    assert_int_equal(
        umi_shmem_block_alloc(&blocks, 1, UINT64_C(1) << 63, &offset),
        UMX_ERR_EXCEEDS_LIMIT);
    assert_int_equal(alloc(&blocks, 4096, 0), 0);
    assert_int_equal(blocks.available, 0);
    assert_int_equal(umi_shmem_block_alloc(&blocks, 1, 0, &offset),
                     UMX_ERR_EXCEEDS_LIMIT);
    umi_shmem_block_free(&blocks, 0);
    assert_int_equal(alloc(&blocks, 4096, 0), 0);
    umi_shmem_blocks_fini(&blocks);
}

static void
test_random_blocks_do_not_overlap(void **state)
{
    enum {
        SIZE   = 1 << 16,
        ROUNDS = 3000,
        LIVE   = 100
    };
    umi_shmem_blocks blocks, same;
    uint64_t         offsets[LIVE], lens[LIVE] = {0}, other;
    uint32_t         random = 1;

    (void)state;
    umi_shmem_blocks_init(&blocks, 0, SIZE);
    umi_shmem_blocks_init(&same, 0, SIZE);
    for (int i = 0; i < ROUNDS; i++) {
        unsigned   n   = (random = random * 1664525 + 1013904223) % LIVE;
        uint64_t   len = (random >> 8) % 2000 + 1;
        umx_status status;

        if (lens[n] != 0) {
            umi_shmem_block_free(&blocks, offsets[n]);
            umi_shmem_block_free(&same, offsets[n]);
            lens[n] = 0;
            continue;
        }
        status = umi_shmem_block_alloc(&blocks, len, 0, &offsets[n]);
        assert_int_equal(umi_shmem_block_alloc(&same, len, 0, &other), status);
        if (status != UMX_OK) {
            continue;
        }
        assert_int_equal(other, offsets[n]);
        lens[n] = len;
        for (int k = 0; k < LIVE; k++) {
            assert_true(k == (int)n || lens[k] == 0 ||
                        offsets[k] + lens[k] <= offsets[n] ||
                        offsets[n] + len <= offsets[k]);
        }
    }
    umi_shmem_blocks_fini(&blocks);
    umi_shmem_blocks_fini(&same);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_follow_each_other),
        cmocka_unit_test(test_the_first_gap_that_is_large_enough_is_taken),
        cmocka_unit_test(test_blocks_are_aligned),
        cmocka_unit_test(test_addresses_are_aligned_not_offsets),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
        cmocka_unit_test(test_random_blocks_do_not_overlap),
    };

    return UNIT_RUN(tests);
}
