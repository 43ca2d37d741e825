/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/gather.h"

#include "unit.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_PIECES = 5,
    MAX_BYTES  = 64
};

typedef struct pieces {
    char        memory[MAX_PIECES][MAX_BYTES];
    umi_gather *gather;
} pieces;

/* "abc...", cut into pieces of `lens`. */
static void
make(pieces *p, const size_t *lens, size_t count)
{
    char next = 'a';

    p->gather = malloc(umi_gather_size(count));
    assert_non_null(p->gather);
    umi_gather_init(p->gather);
    for (size_t i = 0; i < count; i++) {
        umx_buffer buf = umx_host_buffer(p->memory[i], lens[i]);

        memset(p->memory[i], '.', MAX_BYTES);
        for (size_t j = 0; j < lens[i]; j++) {
            p->memory[i][j] = next++;
        }
        umi_gather_add(p->gather, &buf);
    }
}

static void
test_any_range_is_read(void **state)
{
    static const size_t lens[] = {3, 0, 1, 4, 2};
    pieces              p;
    char                out[11];

    (void)state;
    make(&p, lens, 5);
    assert_int_equal(p.gather->len, 10);
    for (size_t start = 0; start <= 10; start++) {
        for (size_t end = start; end <= 10; end++) {
            assert_int_equal(umi_gather_read(p.gather, start, out, end - start),
                             UMX_OK);
            assert_memory_equal(out, &"abcdefghij"[start], end - start);
        }
    }
    for (size_t start = 10; start-- > 0;) { /* backwards, too */
        assert_int_equal(umi_gather_read(p.gather, start, out, 1), UMX_OK);
        assert_int_equal(out[0], 'a' + (int)start);
    }
    free(p.gather);
}

static void
test_any_range_is_written(void **state)
{
    static const size_t lens[] = {0, 3, 5, 0, 2};
    pieces              p;
    char                out[10];

    (void)state;
    for (size_t start = 0; start <= 10; start++) {
        for (size_t end = start; end <= 10; end++) {
            make(&p, lens, 5);
            assert_int_equal(
                umi_gather_write(p.gather, start, "0123456789", end - start),
                UMX_OK);
            assert_int_equal(umi_gather_read(p.gather, 0, out, 10), UMX_OK);
            assert_memory_equal(out, "abcdefghij", start);
            assert_memory_equal(out + start, "0123456789", end - start);
            assert_memory_equal(out + end, &"abcdefghij"[end], 10 - end);
            assert_int_equal(p.memory[1][3], '.');
            free(p.gather);
        }
    }
}

static void
test_pieces_with_gaps(void **state)
{
    static const umx_dim dims[] = {{4, 3}};
    umx_layout           layout;
    char                 memory[12] = "a..b..c..d.", out[6];
    umi_gather          *gather     = malloc(umi_gather_size(2));
    umx_buffer           gaps, tail = umx_host_buffer("ef", 2);

    (void)state;
    assert_non_null(gather);
    gaps = umx_host_buffer(memory, 0);
    assert_int_equal(umx_layout_init(&layout, 1, 1, dims, &gaps.len), UMX_OK);
    gaps.layout = &layout;
    umi_gather_init(gather);
    umi_gather_add(gather, &gaps);
    umi_gather_add(gather, &tail);
    assert_int_equal(umi_gather_read(gather, 0, out, 6), UMX_OK);
    assert_memory_equal(out, "abcdef", 6);
    assert_int_equal(umi_gather_write(gather, 1, "BCD", 3), UMX_OK);
    assert_memory_equal(memory, "a..B..C..D.", 11);
    free(gather);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_range_is_read),
        cmocka_unit_test(test_any_range_is_written),
        cmocka_unit_test(test_pieces_with_gaps),
    };

    return UNIT_RUN(tests);
}
