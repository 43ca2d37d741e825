/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/segment.h"

#include "unit.h"

#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>

enum {
    LEN = 10000
};

static umi_segment *
create(int *number_p)
{
    umi_segment *segment;

    assert_int_equal(umi_segment_create(LEN, &segment, number_p), UMX_OK);
    umi_segment_publish(segment, 1, 2, LEN);
    return segment;
}

static void
test_another_mapping_is_the_same_memory(void **state)
{
    int          number;
    umi_segment *mine = create(&number), *other;

    (void)state;
    assert_int_equal(umi_segment_data(mine)[LEN - 1], 0);
    other = umi_segment_map(number, 1, 2, LEN);
    assert_non_null(other);
    assert_ptr_not_equal(mine, other);
    memset(umi_segment_data(other), 'x', LEN);
    assert_int_equal(umi_segment_data(mine)[LEN - 1], 'x');
    umi_segment_unmap(mine);
    umi_segment_unmap(other);
}

static void
test_it_outlives_its_owner_with_those_who_map_it(void **state)
{
    int          number;
    umi_segment *mine  = create(&number);
    umi_segment *other = umi_segment_map(number, 1, 2, LEN);

    (void)state;
    umi_segment_data(mine)[0] = 'x';
    umi_segment_unmap(mine);
    assert_int_equal(umi_segment_data(other)[0], 'x');
    umi_segment_unmap(other);
    assert_null(umi_segment_map(number, 1, 2, LEN));
}

static void
test_another_memory_is_not_mapped(void **state)
{
    int          number;
    umi_segment *mine = create(&number);

    (void)state;
    assert_null(umi_segment_map(number, 3, 2, LEN));
    assert_null(umi_segment_map(number, 1, 3, LEN));
    assert_null(umi_segment_map(number, 1, 2, LEN - 1));
    assert_null(umi_segment_map(number, 1, 2, 1000 * LEN));
    umi_segment_unmap(mine);
}

static void
test_a_closed_memory_is_not_mapped(void **state)
{
    int          number;
    umi_segment *mine  = create(&number);
    umi_segment *other = umi_segment_map(number, 1, 2, LEN);

    (void)state;
    assert_false(umi_segment_is_closed(other));
    umi_segment_close(mine);
    assert_true(umi_segment_is_closed(other));
    assert_null(umi_segment_map(number, 1, 2, LEN));
    umi_segment_unmap(mine);
    umi_segment_unmap(other);
}

/* Numbers are used again: of something smaller than a header. */
static void
test_a_strangers_segment_is_not_mapped(void **state)
{
    int   number  = shmget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    void *address = shmat(number, NULL, 0);

    (void)state;
    assert_int_equal(shmctl(number, IPC_RMID, NULL), 0);
    assert_ptr_not_equal(address, (void *)-1);
    assert_null(umi_segment_map(number, 0, 0, 0));
    assert_int_equal(shmdt(address), 0);
    assert_null(umi_segment_map(number, 0, 0, 0));
}

static void
test_more_memory_than_there_is_fails(void **state)
{
    umi_segment *segment;
    int          number;

    (void)state;
    assert_int_not_equal(umi_segment_create(SIZE_MAX, &segment, &number),
                         UMX_OK);
    assert_int_not_equal(umi_segment_create(SIZE_MAX / 4, &segment, &number),
                         UMX_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_mapping_is_the_same_memory),
        cmocka_unit_test(test_it_outlives_its_owner_with_those_who_map_it),
        cmocka_unit_test(test_another_memory_is_not_mapped),
        cmocka_unit_test(test_a_closed_memory_is_not_mapped),
        cmocka_unit_test(test_a_strangers_segment_is_not_mapped),
        cmocka_unit_test(test_more_memory_than_there_is_fails),
    };

    return UNIT_RUN(tests);
}
