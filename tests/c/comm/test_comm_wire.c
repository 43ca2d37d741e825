/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: comm/wire */
#include "comm/wire.h"

#include "unit.h"

#include <string.h>

static const uint8_t message_bytes[] = {
    1,    0,    0,    0,    3,    0,    0,    0,    0x08, 0x07, 0x06, 0x05,
    0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
};

static const umi_comm_header message = {
    .kind   = UMI_COMM_MESSAGE,
    .source = 3,
    .comm   = 0x0102030405060708,
    .number = 0x1112131415161718,
};

static const uint8_t collective_bytes[] = {
    2,    5,    0x02, 0x01, 3,    0,    0,    0,    0x08, 0x07, 0x06, 0x05,
    0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
    0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35,
    0x34, 0x33, 0x32, 0x31, 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,
};

static const umi_comm_header collective = {
    .kind    = UMI_COMM_COLLECTIVE,
    .op      = 5,
    .round   = 0x0102,
    .source  = 3,
    .comm    = 0x0102030405060708,
    .number  = 0x1112131415161718,
    .what    = 0x2122232425262728,
    .bytes   = 0x3132333435363738,
    .history = 0x4142434445464748,
};

static void
expect_frozen(const umi_comm_header *header, const uint8_t *bytes, size_t len)
{
    uint8_t         encoded[UMI_COMM_HEADER_MAX];
    umi_comm_header decoded;

    assert_int_equal(umi_comm_header_encode(header, encoded), len);
    assert_memory_equal(encoded, bytes, len);
    assert_true(umi_comm_header_decode(&decoded, bytes, len));
    assert_memory_equal(&decoded, header, sizeof(decoded));
    for (size_t i = 0; i < len; i++) {
        assert_false(umi_comm_header_decode(&decoded, bytes, i));
    }
}

static void
test_layout_is_frozen(void **state)
{
    (void)state;
    expect_frozen(&message, message_bytes, sizeof(message_bytes));
    expect_frozen(&collective, collective_bytes, sizeof(collective_bytes));
}

static void
test_layout_of_a_call_is_frozen(void **state)
{
    static const umi_comm_call call = {
        .number  = 7, /* which the header has */
        .op      = 0x0102030405060708,
        .what    = 0x1112131415161718,
        .bytes   = 0x2122232425262728,
        .history = 0x3132333435363738,
    };
    static const uint8_t bytes[UMI_COMM_CALL_SIZE] = {
        0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16,
        0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23,
        0x22, 0x21, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,
    };
    umi_comm_call decoded = {.number = 7};
    uint8_t       encoded[UMI_COMM_CALL_SIZE];

    (void)state;
    umi_comm_call_encode(&call, encoded);
    assert_memory_equal(encoded, bytes, sizeof(bytes));
    assert_true(umi_comm_call_decode(&decoded, bytes, sizeof(bytes)));
    assert_memory_equal(&decoded, &call, sizeof(call));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        assert_false(umi_comm_call_decode(&decoded, bytes, i));
    }
}

static void
test_lists_of_ranks(void **state)
{
    static const int ranks[] = {3, 65535};

    uint8_t         list[sizeof(ranks)], bytes[UMI_COMM_STATE_MAX], more[512];
    umi_comm_failed failed   = {.rank   = 1,
                                .cause  = -5,
                                .number = 7,
                                .reason = {(const uint8_t *)"why", 3}};
    umi_comm_state  state_of = {.call = {.op = 1, .history = 2}};
    umi_comm_failed got;
    umi_comm_state  got_state;
    size_t          len;

    (void)state;
    failed.late = umi_comm_numbers_encode(ranks, 2, list);
    len         = umi_comm_failed_encode(&failed, more, sizeof(more));
    assert_true(umi_comm_failed_decode(&got, more, len));
    assert_int_equal(got.late.count, 2);
    assert_int_equal(umi_comm_number_at(&got.late, 0), 3);
    assert_int_equal(umi_comm_number_at(&got.late, 1), 65535);
    for (size_t i = 0; i < len; i++) {
        assert_false(umi_comm_failed_decode(&got, more, i));
    }
    state_of.late = failed.late;
    len           = umi_comm_state_encode(&state_of, bytes, sizeof(bytes));
    assert_int_equal(len, UMI_COMM_CALL_SIZE + 3 * UMI_COMM_NUMBER_SIZE);
    assert_true(umi_comm_state_decode(&got_state, bytes, len));
    assert_int_equal(umi_comm_number_at(&got_state.late, 1), 65535);
    bytes[UMI_COMM_CALL_SIZE] = UMX_COMM_LATE_MAX + 1;
    assert_false(umi_comm_state_decode(&got_state, bytes, len));
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_is_frozen),
        cmocka_unit_test(test_layout_of_a_call_is_frozen),
        cmocka_unit_test(test_lists_of_ranks),
    };

    return UNIT_RUN(tests);
}
