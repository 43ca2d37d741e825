/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: ops/am */
#include "codec/header.h"
#include "ops/am.h"

#include "unit.h"

/* The bytes on the wire, not the struct, are what is frozen. */
static const uint8_t wire[UMI_HEADER_MAX] = {
    UMI_KIND_MESSAGE,
    UMI_FLAG_DEVICE,
    0x34,
    0x12,
    0x04,
    0x03,
    0x02,
    0x01,
    0x28,
    0x27,
    0x26,
    0x25,
    0x24,
    0x23,
    0x22,
    0x21,
    0x18,
    0x17,
    0x16,
    0x15,
    0x14,
    0x13,
    0x12,
    0x11,
};

static const umi_header decoded = {
    .kind     = UMI_KIND_MESSAGE,
    .flags    = UMI_FLAG_DEVICE,
    .channel  = 0x1234,
    .seq      = 0x01020304,
    .endpoint = 0x2122232425262728u,
    .tag      = 0x1112131415161718u,
};

static void
test_layout_is_frozen(void **state)
{
    (void)state;
    assert_memory_equal(&decoded, wire, sizeof(wire));
    assert_int_equal(UMI_AM_DATA, 0);
    assert_int_equal(UMI_AM_CONTROL, 1);
    assert_int_equal(UMI_AM_USER, 16);
    assert_int_equal(UMI_KIND_MESSAGE, 1);
    assert_int_equal(UMI_FLAG_UNTAGGED, 1);
}

static void
test_decode(void **state)
{
    umi_header header;
    uint8_t    unaligned[UMI_HEADER_MAX + 1];

    (void)state;
    memcpy(unaligned + 1, wire, sizeof(wire));
    assert_true(umi_header_decode(&header, unaligned + 1, sizeof(wire)));
    assert_int_equal(header.kind, decoded.kind);
    assert_int_equal(header.flags, decoded.flags);
    assert_int_equal(header.channel, decoded.channel);
    assert_int_equal(header.seq, decoded.seq);
    assert_int_equal(header.endpoint, decoded.endpoint);
    assert_int_equal(header.tag, decoded.tag);
}

static void
test_what_has_no_tag_is_shorter(void **state)
{
    umi_header header;
    uint8_t    data[UMI_HEADER_MAX];

    (void)state;
    memcpy(data, wire, sizeof(wire));
    data[1] = UMI_FLAG_UNTAGGED;
    assert_true(umi_header_decode(&header, data, UMI_HEADER_MIN));
    assert_int_equal(header.endpoint, decoded.endpoint);
    assert_int_equal(header.tag, 0);
    assert_false(umi_header_decode(&header, data, UMI_HEADER_MAX));
}

static void
test_every_other_length_is_refused(void **state)
{
    umi_header header;
    uint8_t    data[64] = {0};

    (void)state;
    memcpy(data, wire, sizeof(wire));
    for (size_t len = 0; len <= sizeof(data); len++) {
        assert_int_equal(umi_header_decode(&header, data, len),
                         len == UMI_HEADER_MAX);
    }
    assert_false(umi_header_decode(&header, NULL, 0));
}

static void
test_only_active_messages_have_a_header_of_the_users(void **state)
{
    static uint8_t data[UMI_HEADER_MAX + UMX_AM_HEADER_MAX + 1];
    umi_header     header;

    (void)state;
    memcpy(data, wire, sizeof(wire));
    for (data[0] = UMI_KIND_MESSAGE; data[0] <= UMI_KIND_FRAMES; data[0]++) {
        bool is_am = data[0] == UMI_KIND_AM;

        assert_int_equal(umi_header_decode(&header, data, UMI_HEADER_MAX + 1),
                         is_am);
        assert_int_equal(umi_header_decode(&header, data, sizeof(data) - 1),
                         is_am);
        assert_false(umi_header_decode(&header, data, sizeof(data)));
    }
}

static void
test_every_other_kind_is_refused(void **state)
{
    umi_header header;
    uint8_t    data[UMI_HEADER_MAX];

    (void)state;
    memcpy(data, wire, sizeof(wire));
    for (int kind = 0; kind <= UINT8_MAX; kind++) {
        data[0] = (uint8_t)kind;
        assert_int_equal(umi_header_decode(&header, data, sizeof(data)),
                         kind == UMI_KIND_MESSAGE || kind == UMI_KIND_AM ||
                             kind == UMI_KIND_STREAM ||
                             kind == UMI_KIND_FRAMES);
    }
}

static void
test_every_other_flag_is_refused(void **state)
{
    umi_header header;
    uint8_t    data[UMI_HEADER_MAX];

    (void)state;
    memcpy(data, wire, sizeof(wire));
    for (int flags = 0; flags <= UINT8_MAX; flags++) {
        size_t size = umi_header_size((uint8_t)flags);

        data[1] = (uint8_t)flags;
        assert_int_equal(
            umi_header_decode(&header, data, size),
            flags <= (UMI_FLAG_UNTAGGED | UMI_FLAG_DEVICE | UMI_FLAG_RESERVE));
    }
}

static void
test_seq_order_wraps(void **state)
{
    (void)state;
    assert_int_equal(umi_seq_diff(5, 5), 0);
    assert_int_equal(umi_seq_diff(6, 5), 1);
    assert_int_equal(umi_seq_diff(5, 6), -1);
    assert_int_equal(umi_seq_diff(0, UINT32_MAX), 1);
    assert_int_equal(umi_seq_diff(UINT32_MAX, 0), -1);
    assert_int_equal(umi_seq_diff(INT32_MAX, 0), INT32_MAX);
    assert_int_equal(umi_seq_diff(0x80000000u, 0), INT32_MIN);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_is_frozen),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_what_has_no_tag_is_shorter),
        cmocka_unit_test(test_every_other_length_is_refused),
        cmocka_unit_test(test_only_active_messages_have_a_header_of_the_users),
        cmocka_unit_test(test_every_other_kind_is_refused),
        cmocka_unit_test(test_every_other_flag_is_refused),
        cmocka_unit_test(test_seq_order_wraps),
    };

    return UNIT_RUN(tests);
}
