/* SPDX-License-Identifier: BSD-3-Clause */
#include "keys/key.h"

#include "unit.h"

#include <string.h>

static const uint8_t rkey[] = {1, 2, 3};

static const umi_key example = {
    .flags    = UMI_KEY_SEGMENT | UMI_KEY_READONLY,
    .context  = 0x0102030405060708,
    .memory   = 0x1112131415161718,
    .address  = 0x2122232425262728,
    .length   = 0x3132333435363738,
    .segment  = 0x41424344,
    .rkey_len = sizeof(rkey),
    .rkey     = rkey,
};

static const uint8_t wire[] = {
    0x55, 0x4d, 0x58, 0x4b, 0x01, 0x00, 0x03, 0x00, /* "UMXK" */
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16,
    0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23,
    0x22, 0x21, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 0x44,
    0x43, 0x42, 0x41, 0x03, 0x00, 0x01, 0x02, 0x03,
};

static void
test_layout_is_frozen(void **state)
{
    uint8_t data[UMI_KEY_MAX];

    (void)state;
    assert_int_equal(umi_key_encode(&example, data), sizeof(wire) + 8);
    assert_memory_equal(data, wire, sizeof(wire));
}

/* The place of a memory in a slab comes last, and only then. */
static void
test_the_place_in_a_slab_follows(void **state)
{
    static const uint8_t place[] = {0x54, 0x53, 0x52, 0x51};

    umi_key in_slab = example;
    uint8_t data[UMI_KEY_MAX];

    (void)state;
    in_slab.flags |= UMI_KEY_SLAB;
    in_slab.place = 0x51525354;
    assert_int_equal(umi_key_encode(&in_slab, data), sizeof(wire) + 4 + 8);
    assert_memory_equal(data + 8, wire + 8, sizeof(wire) - 8);
    assert_memory_equal(data + sizeof(wire), place, sizeof(place));
}

static void
check_round(const umi_key *key)
{
    uint8_t data[UMI_KEY_MAX];
    size_t  len = umi_key_encode(key, data);
    umi_key again;

    assert_true(umi_key_decode(&again, data, len));
    assert_int_equal(again.flags, key->flags);
    assert_int_equal(again.context, key->context);
    assert_int_equal(again.memory, key->memory);
    assert_int_equal(again.address, key->address);
    assert_int_equal(again.length, key->length);
    assert_int_equal(again.segment, key->segment);
    assert_int_equal(again.place, key->place);
    assert_int_equal(again.rkey_len, key->rkey_len);
    if (key->rkey_len != 0) {
        assert_memory_equal(again.rkey, key->rkey, key->rkey_len);
    }
}

static void
test_a_key_survives_the_round(void **state)
{
    static const uint8_t zeros[UMI_RKEY_MAX];

    umi_key bare = {.memory = 1}, longest = example;

    (void)state;
    longest.flags |= UMI_KEY_SLAB;
    longest.place    = UINT32_MAX;
    longest.rkey     = zeros;
    longest.rkey_len = sizeof(zeros);
    check_round(&example);
    check_round(&bare);
    check_round(&longest);
}

static void
test_a_longer_rkey_is_refused(void **state)
{
    static const uint8_t zeros[UMI_RKEY_MAX + 1];

    umi_key key = {.memory = 1, .rkey = zeros, .rkey_len = sizeof(zeros)};
    uint8_t data[UMI_KEY_MAX];

    (void)state;
    assert_int_equal(umi_key_encode(&key, data), 0);
}

static void
test_each_damaged_bit_is_noticed(void **state)
{
    uint8_t data[UMI_KEY_MAX];
    size_t  len = umi_key_encode(&example, data);
    umi_key key;

    (void)state;
    for (size_t i = 0; i < 8 * len; i++) {
        data[i / 8] ^= 1u << i % 8;
        assert_false(umi_key_decode(&key, data, len));
        data[i / 8] ^= 1u << i % 8;
    }
    assert_true(umi_key_decode(&key, data, len));
}

static void
test_other_lengths_are_refused(void **state)
{
    uint8_t data[UMI_KEY_MAX] = {0};
    size_t  len               = umi_key_encode(&example, data);
    umi_key key;

    (void)state;
    for (size_t i = 0; i < len; i++) {
        assert_false(umi_key_decode(&key, data, i));
    }
    assert_false(umi_key_decode(&key, data, len + 1));
}

static void
check_refused(umi_key key)
{
    uint8_t data[UMI_KEY_MAX];
    size_t  len = umi_key_encode(&key, data);

    assert_false(umi_key_decode(&key, data, len));
}

static void
test_what_cannot_be_is_refused(void **state)
{
    umi_key key = {.memory = 1};

    (void)state;
    key.flags = 8;
    check_refused(key);
    key = (umi_key){.memory = 1, .flags = UMI_KEY_SLAB, .place = 1};
    check_refused(key);
    key = (umi_key){.memory = 1, .flags = UMI_KEY_SEGMENT | UMI_KEY_SLAB};
    check_refused(key);
    key = (umi_key){.memory = 0};
    check_refused(key);
    key = (umi_key){.memory = 1, .segment = 1};
    check_refused(key);
    key = (umi_key){.memory = 1, .segment = -1, .flags = UMI_KEY_SEGMENT};
    check_refused(key);
    key = (umi_key){.memory = 1, .address = 2, .length = UINT64_MAX - 1};
    check_refused(key);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_is_frozen),
        cmocka_unit_test(test_the_place_in_a_slab_follows),
        cmocka_unit_test(test_a_key_survives_the_round),
        cmocka_unit_test(test_a_longer_rkey_is_refused),
        cmocka_unit_test(test_each_damaged_bit_is_noticed),
        cmocka_unit_test(test_other_lengths_are_refused),
        cmocka_unit_test(test_what_cannot_be_is_refused),
    };

    return UNIT_RUN(tests);
}
