/* SPDX-License-Identifier: BSD-3-Clause */
#include "keys/segment.h"

#include "unit.h"

#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

enum {
    LEN = 10000
};

static char *
data_of(umi_segment *segment)
{
    return (char *)segment + UMI_SEGMENT_HEADER;
}

static umi_segment *
create(int *number_p)
{
    umi_segment *segment;

    assert_int_equal(umi_segment_create(LEN, &segment, number_p), UMX_OK);
    umi_segment_publish(segment, 1, 2, UMI_SEGMENT_HEADER, LEN);
    return segment;
}

static umi_segment *
map(int number, uint64_t context, uint64_t memory, size_t len)
{
    umi_key key  = {.flags   = UMI_KEY_SEGMENT,
                    .context = context,
                    .memory  = memory,
                    .length  = len,
                    .segment = number};
    char   *data = NULL;

    umi_segment *segment = umi_segment_map(&key, &data);

    if (segment != NULL) {
        assert_ptr_equal(data, data_of(segment));
    }
    return segment;
}

static void
test_another_mapping_is_the_same_memory(void **state)
{
    int          number;
    umi_segment *mine = create(&number), *other;

    (void)state;
    assert_int_equal(data_of(mine)[LEN - 1], 0);
    other = map(number, 1, 2, LEN);
    assert_non_null(other);
    assert_ptr_not_equal(mine, other);
    memset(data_of(other), 'x', LEN);
    assert_int_equal(data_of(mine)[LEN - 1], 'x');
    umi_segment_unmap(mine, 0);
    umi_segment_unmap(other, 0);
}

static void
test_a_protected_one_is_mapped_for_reading(void **state)
{
    umi_key         key  = {.flags   = UMI_KEY_SEGMENT | UMI_KEY_READONLY,
                            .context = 1,
                            .memory  = 2,
                            .length  = LEN};
    umi_segment    *mine = create(&key.segment), *other;
    struct shmid_ds info;
    char           *data;

    (void)state;
    assert_int_equal(umi_segment_protect(key.segment), UMX_OK);
    data_of(mine)[0] = 'x';
    assert_int_equal(shmctl(key.segment, IPC_STAT, &info), 0);
    assert_int_equal(info.shm_perm.mode & 0777, 0400);
    other = umi_segment_map(&key, &data);
    assert_non_null(other);
    assert_int_equal(data[0], 'x');
    assert_int_equal(
        madvise(data - UMI_SEGMENT_HEADER, LEN, MADV_POPULATE_WRITE),
        -1); /* it is no memory to be written */
    umi_segment_unmap(other, 0);
    umi_segment_unmap(mine, 0);
    assert_int_not_equal(umi_segment_protect(key.segment), UMX_OK);
}

static void
test_it_outlives_its_owner_with_those_who_map_it(void **state)
{
    int          number;
    umi_segment *mine  = create(&number);
    umi_segment *other = map(number, 1, 2, LEN);

    (void)state;
    data_of(mine)[0] = 'x';
    umi_segment_unmap(mine, 0);
    assert_int_equal(data_of(other)[0], 'x');
    umi_segment_unmap(other, 0);
    assert_null(map(number, 1, 2, LEN));
}

static void
test_another_memory_is_not_mapped(void **state)
{
    int          number;
    umi_segment *mine = create(&number);

    (void)state;
    assert_null(map(number, 3, 2, LEN));
    assert_null(map(number, 1, 3, LEN));
    assert_null(map(number, 1, 2, LEN - 1));
    assert_null(map(number, 1, 2, 1000 * LEN));
    umi_segment_unmap(mine, 0);
}

static void
test_a_closed_memory_is_not_mapped(void **state)
{
    int          number;
    umi_segment *mine  = create(&number);
    umi_segment *other = map(number, 1, 2, LEN);

    (void)state;
    assert_false(umi_segment_is_closed(other));
    umi_segment_close(mine);
    assert_true(umi_segment_is_closed(other));
    assert_null(map(number, 1, 2, LEN));
    umi_segment_unmap(mine, 0);
    umi_segment_unmap(other, 0);
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
    assert_null(map(number, 0, 0, 0));
    assert_int_equal(shmdt(address), 0);
    assert_null(map(number, 0, 0, 0));
}

/* ---- memories of a slab ----------------------------------------------------
 */

enum {
    SLAB_SIZE = 1 << 20,
    PLACE     = 5,
    OFFSET    = UMI_SLAB_TABLE + 4096
};

typedef struct slab {
    void        *address;
    umi_segment *header; /* at PLACE */
    umi_key      key;    /* of the memory there */
} slab;

static slab
make_slab(void)
{
    slab s = {.key = {.flags   = UMI_KEY_SEGMENT | UMI_KEY_SLAB,
                      .context = 1,
                      .memory  = 2,
                      .length  = LEN,
                      .place   = PLACE}};

    assert_int_equal(
        umi_segment_create_slab(SLAB_SIZE, 1, &s.address, &s.key.segment),
        UMX_OK);
    s.header = umi_slab_cell(s.address, PLACE);
    umi_segment_publish(s.header, 1, 2, OFFSET, LEN);
    return s;
}

static bool
can_map(umi_key key)
{
    char        *data;
    umi_segment *header = umi_segment_map(&key, &data);

    if (header != NULL) {
        umi_segment_unmap(header, key.place);
    }
    return header != NULL;
}

static void
test_a_memory_of_a_slab_is_where_its_header_says(void **state)
{
    slab         s = make_slab();
    char        *data;
    umi_segment *header = umi_segment_map(&s.key, &data);

    (void)state;
    assert_non_null(header);
    assert_ptr_not_equal(header, s.header);
    data[LEN - 1] = 'x';
    assert_int_equal(((char *)s.address)[OFFSET + LEN - 1], 'x');
    umi_segment_close(s.header);
    assert_true(umi_segment_is_closed(header));
    assert_false(can_map(s.key));
    assert_true(umi_segment_is_shared(s.key.segment));
    umi_segment_unmap(header, s.key.place);
    assert_false(umi_segment_is_shared(s.key.segment));
    umi_segment_unmap(s.address, 0);
    assert_true(umi_segment_is_shared(s.key.segment)); /* nobody knows */
}

static void
test_the_key_of_what_was_there_before_is_stale(void **state)
{
    slab    s   = make_slab();
    umi_key old = s.key;

    (void)state;
    umi_segment_close(s.header);
    umi_segment_publish(s.header, 1, 3, OFFSET + 64, LEN);
    s.key.memory = 3;
    assert_true(can_map(s.key));
    assert_false(can_map(old));
    umi_segment_unmap(s.address, 0);
}

/* Of what a key says: other places have no header, or none of that name. */
static void
test_wrong_keys_of_a_slab_are_not_followed(void **state)
{
    static const uint32_t places[] = {1,
                                      PLACE + 1,
                                      UMI_SLAB_CELLS - 1,
                                      UMI_SLAB_CELLS,
                                      SLAB_SIZE / 64,
                                      UINT32_MAX};

    slab    s = make_slab();
    umi_key key;

    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        key       = s.key;
        key.place = places[i];
        assert_false(can_map(key));
    }
    for (int i = 0; i < 4; i++) {
        key = s.key;
        key.context ^= (i == 0);
        key.memory ^= (i == 1);
        key.length ^= (i == 2);
        key.place = (i == 3) ? 0 : PLACE; /* the slab's own header */
        assert_false(can_map(key));
    }
    assert_true(can_map(s.key));
    umi_segment_unmap(s.address, 0);
}

/* Bytes that look like a header, in the data of a memory: whoever may have them
 * put there must not choose what others take for a memory. */
static void
test_no_header_is_found_in_data(void **state)
{
    slab    s    = make_slab();
    umi_key fake = s.key;

    (void)state;
    fake.memory = 9;
    fake.place  = OFFSET / UMI_SLAB_CELL;
    umi_segment_publish(umi_slab_cell(s.address, fake.place), 1, 9,
                        UMI_SLAB_TABLE, LEN);
    assert_false(can_map(fake));
    umi_segment_unmap(s.address, 0);
}

/* A peer that shares the slab has written to the header. */
static void
test_a_header_does_not_lead_out_of_the_data(void **state)
{
    static const uint64_t offsets[] = {
        0,          UMI_SLAB_TABLE - 64, SLAB_SIZE - LEN + 1, SLAB_SIZE + 1,
        UINT64_MAX, UINT64_MAX - LEN + 1};

    slab s = make_slab();

    (void)state;
    for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
        s.header->offset = offsets[i];
        assert_false(can_map(s.key));
    }
    s.header->offset = SLAB_SIZE - LEN;
    assert_true(can_map(s.key));
    s.header->length = s.key.length = SLAB_SIZE;
    assert_false(can_map(s.key));
    umi_segment_unmap(s.address, 0);
}

static void
test_another_segment_is_no_slab(void **state)
{
    slab         s = make_slab();
    umi_key      key;
    int          number;
    umi_segment *memory = create(&number);

    (void)state;
    key         = s.key;
    key.segment = number;
    assert_false(can_map(key));
    *(uint64_t *)s.address = 0;
    assert_false(can_map(s.key));
    umi_segment_unmap(memory, 0);
    umi_segment_unmap(s.address, 0);
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
        cmocka_unit_test(test_a_protected_one_is_mapped_for_reading),
        cmocka_unit_test(test_it_outlives_its_owner_with_those_who_map_it),
        cmocka_unit_test(test_another_memory_is_not_mapped),
        cmocka_unit_test(test_a_closed_memory_is_not_mapped),
        cmocka_unit_test(test_a_strangers_segment_is_not_mapped),
        cmocka_unit_test(test_a_memory_of_a_slab_is_where_its_header_says),
        cmocka_unit_test(test_the_key_of_what_was_there_before_is_stale),
        cmocka_unit_test(test_wrong_keys_of_a_slab_are_not_followed),
        cmocka_unit_test(test_no_header_is_found_in_data),
        cmocka_unit_test(test_a_header_does_not_lead_out_of_the_data),
        cmocka_unit_test(test_another_segment_is_no_slab),
        cmocka_unit_test(test_more_memory_than_there_is_fails),
    };

    return UNIT_RUN(tests);
}
