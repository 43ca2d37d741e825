/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/bytes.h"

#include "unit.h"

static const uint8_t number_bytes[15] = {0x01, 0x02, 0x03, 0x04, 0x05,
                                         0x06, 0x07, 0x08, 0x09, 0x0a,
                                         0x0b, 0x0c, 0x0d, 0x0e, 0x0f};

static void
test_read_is_little_endian(void **state)
{
    umi_reader r;

    (void)state;
    umi_reader_init(&r, number_bytes, sizeof(number_bytes));
    assert_int_equal(umi_read_u8(&r), 0x01);
    assert_int_equal(umi_read_u16(&r), 0x0302);
    assert_int_equal(umi_read_u32(&r), 0x07060504);
    assert_int_equal(umi_read_u64(&r), 0x0f0e0d0c0b0a0908u);
    assert_false(r.is_bad);
    assert_ptr_equal(r.pos, r.end);
}

static void
test_write_is_little_endian(void **state)
{
    uint8_t    data[sizeof(number_bytes)];
    umi_writer w;

    (void)state;
    umi_writer_init(&w, data, sizeof(data));
    umi_write_u8(&w, 0x01);
    umi_write_u16(&w, 0x0302);
    umi_write_u32(&w, 0x07060504);
    umi_write_u64(&w, 0x0f0e0d0c0b0a0908u);
    assert_false(w.is_full);
    assert_ptr_equal(w.pos, w.end);
    assert_memory_equal(data, number_bytes, sizeof(data));
}

static void
test_read_bytes_points_into_the_data(void **state)
{
    umi_reader r;

    (void)state;
    umi_reader_init(&r, number_bytes, 4);
    assert_ptr_equal(umi_read_bytes(&r, 3), number_bytes);
    assert_ptr_equal(umi_read_bytes(&r, 0), number_bytes + 3);
    assert_ptr_equal(umi_read_bytes(&r, 1), number_bytes + 3);
    assert_ptr_equal(umi_read_bytes(&r, 0), number_bytes + 4);
    assert_false(r.is_bad);
}

/* Reads after a short one give zero, even if the bytes that are left would
 * suffice. */
static void
test_after_a_short_read_all_is_zero(void **state)
{
    umi_reader r;

    (void)state;
    umi_reader_init(&r, number_bytes, 3);
    assert_int_equal(umi_read_u32(&r), 0);
    assert_true(r.is_bad);
    assert_int_equal(umi_read_u8(&r), 0);
    assert_int_equal(umi_read_u16(&r), 0);
    assert_int_equal(umi_read_u64(&r), 0);
    assert_true(r.is_bad);
}

static void
test_each_number_needs_all_its_bytes(void **state)
{
    umi_reader r;

    (void)state;
    umi_reader_init(&r, number_bytes, 0);
    assert_int_equal(umi_read_u8(&r), 0);
    assert_true(r.is_bad);
    umi_reader_init(&r, number_bytes, 1);
    assert_int_equal(umi_read_u16(&r), 0);
    assert_true(r.is_bad);
    umi_reader_init(&r, number_bytes, 7);
    assert_int_equal(umi_read_u64(&r), 0);
    assert_true(r.is_bad);
}

static void
test_read_of_a_huge_length(void **state)
{
    umi_reader r;

    (void)state;
    umi_reader_init(&r, number_bytes, sizeof(number_bytes));
    umi_read_u8(&r);
    assert_null(umi_read_bytes(&r, SIZE_MAX));
    assert_true(r.is_bad);
}

/* A full writer writes nothing more, even if the bytes that are left would
 * suffice. */
static void
test_a_full_writer_writes_nothing_more(void **state)
{
    uint8_t         data[4] = {0xee, 0xee, 0xee, 0xee};
    volatile size_t huge    = SIZE_MAX; /* volatile: no warning about it */
    umi_writer      w;

    (void)state;
    umi_writer_init(&w, data, 3);
    umi_write_u8(&w, 1);
    umi_write_u32(&w, 0);
    assert_true(w.is_full);
    umi_write_u8(&w, 2);
    umi_write_bytes(&w, number_bytes, huge);
    assert_true(w.is_full);
    assert_ptr_equal(w.pos, data + 1);
    assert_memory_equal(data, ((uint8_t[]){1, 0xee, 0xee, 0xee}), 4);
}

static void
test_write_of_nothing_needs_no_pointer(void **state)
{
    uint8_t    data[1];
    umi_writer w;

    (void)state;
    umi_writer_init(&w, data, 0);
    umi_write_bytes(&w, NULL, 0);
    assert_false(w.is_full);
    umi_write_u8(&w, 1);
    assert_true(w.is_full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_is_little_endian),
        cmocka_unit_test(test_write_is_little_endian),
        cmocka_unit_test(test_read_bytes_points_into_the_data),
        cmocka_unit_test(test_after_a_short_read_all_is_zero),
        cmocka_unit_test(test_each_number_needs_all_its_bytes),
        cmocka_unit_test(test_read_of_a_huge_length),
        cmocka_unit_test(test_a_full_writer_writes_nothing_more),
        cmocka_unit_test(test_write_of_nothing_needs_no_pointer),
    };

    return UNIT_RUN(tests);
}
