/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: outputs/wire */
#include <string.h>
#include <umx/outputs.h>

#include "unit.h"

#include "outputs/slot.h"
#include "outputs/wire.h"

static umi_outputs_where
some_where(void)
{
    return (umi_outputs_where){.epoch    = UINT64_C(5) << 16 | 3,
                               .len      = 1234567890123,
                               .rank     = 3,
                               .kind     = UMX_OUTPUTS_FILE,
                               .flags    = UMX_OUTPUTS_FLAG_CHECKSUMS,
                               .key_len  = 5,
                               .path_len = 7,
                               .device   = 11,
                               .inode    = 12,
                               .mtime_ns = 13,
                               .key      = (const uint8_t *)"abcde",
                               .path     = "/tmp/xy"};
}

static void
test_a_slot_is_read_as_it_was_written(void **state)
{
    umi_outputs_where where                    = some_where(), got;
    uint8_t           place[UMI_OUTPUTS_PLACE] = {0};

    (void)state;
    assert_int_equal(umi_outputs_slot_encode(&where, place),
                     UMI_OUTPUTS_FIXED + 12);
    assert_true(umi_outputs_slot_decode(&got, place));
    assert_int_equal(got.epoch, where.epoch);
    assert_int_equal(got.len, where.len);
    assert_int_equal(got.rank, 3);
    assert_int_equal(got.kind, UMX_OUTPUTS_FILE);
    assert_int_equal(got.flags, UMX_OUTPUTS_FLAG_CHECKSUMS);
    assert_int_equal(got.inode, 12);
    assert_int_equal(got.mtime_ns, 13);
    assert_memory_equal(got.key, "abcde", 5);
    assert_memory_equal(got.path, "/tmp/xy", 7);
}

/* Whatever byte has not been written yet. */
static void
test_half_a_slot_is_none(void **state)
{
    umi_outputs_where where                     = some_where(), got;
    uint8_t           before[UMI_OUTPUTS_PLACE] = {0};
    uint8_t           after[UMI_OUTPUTS_PLACE]  = {0};
    uint8_t           place[UMI_OUTPUTS_PLACE];
    size_t            len;

    (void)state;
    assert_false(umi_outputs_slot_decode(&got, before)); /* zeros */
    (void)umi_outputs_slot_encode(&where, before);
    where.epoch += UINT64_C(2) << 16;
    where.key = (const uint8_t *)"ABCDE";
    where.len = 99;
    len       = umi_outputs_slot_encode(&where, after);
    for (size_t i = 1; i < len; i++) {
        memcpy(place, before, sizeof(place));
        memcpy(place, after, i);
        if (memcmp(place, after, len) != 0) {
            assert_false(umi_outputs_slot_decode(&got, place));
        }
        memcpy(place, after, sizeof(place));
        memcpy(place, before, i);
        if (memcmp(place, before, len) != 0) {
            assert_false(umi_outputs_slot_decode(&got, place));
        }
    }
}

static void
test_slots_of_impossible_numbers_are_none(void **state)
{
    umi_outputs_where where                    = some_where(), got;
    uint8_t           place[UMI_OUTPUTS_PLACE] = {0};

    (void)state;
    where.rank = 4; /* the epoch is rank 3's */
    (void)umi_outputs_slot_encode(&where, place);
    assert_false(umi_outputs_slot_decode(&got, place));
    where      = some_where();
    where.kind = 3;
    (void)umi_outputs_slot_encode(&where, place);
    assert_false(umi_outputs_slot_decode(&got, place));
    where       = some_where();
    where.epoch = 3;
    (void)umi_outputs_slot_encode(&where, place);
    assert_false(umi_outputs_slot_decode(&got, place));
    (void)umi_outputs_slot_encode(
        &(umi_outputs_where){.epoch = 1 << 16, .kind = 1}, place);
    assert_true(umi_outputs_slot_decode(&got, place));
    memset(place + 30, 0xff, 4); /* lengths of key and path */
    assert_false(umi_outputs_slot_decode(&got, place));
}

static void
test_an_overflow_is_read_as_it_was_written(void **state)
{
    static uint8_t    data[UMI_OUTPUTS_OVERFLOW_MAX + 1];
    umi_outputs_where where = some_where(), got = {0};
    size_t            len;

    (void)state;
    len = umi_outputs_overflow_size(&where);
    umi_outputs_overflow_encode(&where, data);
    assert_true(umi_outputs_overflow_decode(&got, data, len));
    assert_memory_equal(got.key, "abcde", 5);
    assert_memory_equal(got.path, "/tmp/xy", 7);
    for (size_t i = 0; i < len; i++) {
        data[i] ^= 1;
        assert_false(umi_outputs_overflow_decode(&got, data, len));
        data[i] ^= 1;
        assert_false(umi_outputs_overflow_decode(&got, data, i));
    }
    assert_false(umi_outputs_overflow_decode(&got, data, sizeof(data)));
}

static void
test_messages(void **state)
{
    uint8_t data[UMI_OUTPUTS_MESSAGE_MAX + 1];

    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        umi_outputs_message message = {.kind   = (uint8_t)kind,
                                       .map    = 1,
                                       .status = -5,
                                       .to     = 2,
                                       .from   = 3,
                                       .seq    = 4,
                                       .epoch  = 5,
                                       .window = 6,
                                       .offset = 7,
                                       .len    = 8};
        umi_outputs_message got;
        size_t              len = umi_outputs_message_encode(&message, data);
        bool is_one = kind >= UMI_OUTPUTS_ASK && kind <= UMI_OUTPUTS_RETURN;

        assert_int_equal(umi_outputs_message_decode(&got, data, len), is_one);
        for (size_t i = 0; i < len; i++) {
            assert_false(umi_outputs_message_decode(&got, data, i));
        }
        assert_false(umi_outputs_message_decode(&got, data, len + 1));
        if (!is_one) {
            continue;
        }
        assert_true(umi_outputs_message_decode(&got, data, len));
        assert_int_equal(got.to, 2);
        if (kind == UMI_OUTPUTS_ASK) {
            assert_int_equal(got.from, 3);
            assert_int_equal(got.epoch, 5);
            assert_int_equal(got.map, 1);
            assert_int_equal(got.offset, 7);
        } else if (kind == UMI_OUTPUTS_ANSWER) {
            assert_int_equal(got.seq, 4);
            assert_int_equal(got.len, 8);
            assert_int_equal(got.status, -5);
        } else {
            assert_int_equal(got.window, 6);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slot_is_read_as_it_was_written),
        cmocka_unit_test(test_half_a_slot_is_none),
        cmocka_unit_test(test_slots_of_impossible_numbers_are_none),
        cmocka_unit_test(test_an_overflow_is_read_as_it_was_written),
        cmocka_unit_test(test_messages),
    };

    return UNIT_RUN(tests);
}
