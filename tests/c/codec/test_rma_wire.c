/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: codec/rma */
#include "codec/rma.h"

#include "unit.h"

#include <string.h>

static const uint8_t request_bytes[] = {
    3,    1,    5,    8,    0,    0,    0,    0,    0x08, 0x07, 0x06,
    0x05, 0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13,
    0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x38,
    0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 8,    0,    0,    0,
    0,    0,    0,    0,    0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42,
    0x41, 0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51,
};

static const umi_rma_request request = {
    .op      = UMI_RMA_ATOMIC,
    .flags   = UMI_RMA_FENCE,
    .atomic  = UMX_ATOMIC_CSWAP,
    .size    = 8,
    .id      = 0x0102030405060708,
    .context = 0x1112131415161718,
    .memory  = 0x2122232425262728,
    .offset  = 0x3132333435363738,
    .length  = 8,
    .value   = 0x4142434445464748,
    .compare = 0x5152535455565758,
};

static const uint8_t reply_bytes[] = {
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16, 0x15,
    0x14, 0x13, 0x12, 0x11, 0x2e, 0xff, 0xff, 0xff, 0,    0,    0,    0,
};

static void
test_layout_is_frozen(void **state)
{
    umi_rma_reply reply = {.id     = 0x0102030405060708,
                           .value  = 0x1112131415161718,
                           .status = UMX_ERR_STALE_KEY};

    (void)state;
    assert_int_equal(sizeof(request), sizeof(request_bytes));
    assert_memory_equal(&request, request_bytes, sizeof(request_bytes));
    assert_memory_equal(&reply, reply_bytes, sizeof(reply_bytes));
}

static bool
accepts(umi_rma_request what, size_t payload_len)
{
    umi_rma_request decoded;

    return umi_codec_rma_request_decode(&decoded, &what, sizeof(what),
                                        payload_len);
}

static void
test_requests_are_accepted(void **state)
{
    umi_rma_request decoded;

    (void)state;
    assert_true(umi_codec_rma_request_decode(&decoded, request_bytes,
                                             sizeof(request_bytes), 0));
    assert_memory_equal(&decoded, &request, sizeof(request));
    assert_true(accepts((umi_rma_request){.op = UMI_RMA_PUT}, 0));
    assert_true(accepts((umi_rma_request){.op = UMI_RMA_PUT, .length = 9}, 9));
    assert_true(accepts((umi_rma_request){.op = UMI_RMA_GET, .length = 9}, 0));
}

static void
test_malformed_requests_are_refused(void **state)
{
    static const umi_rma_request wrong[] = {
        {.op = 0},
        {.op = UMI_RMA_ATOMIC + 1},
        {.op = UMI_RMA_GET, .flags = 4},
        {.op = UMI_RMA_GET, .zero = 1},
        {.op = UMI_RMA_GET, .atomic = 1},
        {.op = UMI_RMA_GET, .size = 8},
        {.op = UMI_RMA_GET, .value = 1},
        {.op = UMI_RMA_GET, .compare = 1},
        {.op = UMI_RMA_PUT, .length = 1},
        {.op = UMI_RMA_ATOMIC, .atomic = UMX_ATOMIC_CSWAP + 1, .size = 8},
        {.op = UMI_RMA_ATOMIC, .size = 8, .length = 4},
        {.op = UMI_RMA_ATOMIC, .size = 2, .length = 2},
    };

    umi_rma_request decoded;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_false(accepts(wrong[i], 0));
    }
    assert_false(accepts((umi_rma_request){.op = UMI_RMA_GET, .length = 9}, 9));
    assert_false(accepts(request, 8));
    assert_false(umi_codec_rma_request_decode(&decoded, request_bytes,
                                              sizeof(request_bytes) - 1, 0));
}

static void
test_malformed_replies_are_refused(void **state)
{
    umi_rma_reply reply = {0}, decoded;

    (void)state;
    assert_true(umi_codec_rma_reply_decode(&decoded, reply_bytes, 24));
    assert_int_equal(decoded.status, UMX_ERR_STALE_KEY);
    assert_true(umi_codec_rma_reply_decode(&decoded, &reply, sizeof(reply)));
    assert_false(
        umi_codec_rma_reply_decode(&decoded, &reply, sizeof(reply) - 1));
    assert_false(umi_codec_rma_reply_decode(&decoded, NULL, 0));
    reply.status = 1;
    assert_false(umi_codec_rma_reply_decode(&decoded, &reply, sizeof(reply)));
    reply.status = 0;
    reply.zero   = 1;
    assert_false(umi_codec_rma_reply_decode(&decoded, &reply, sizeof(reply)));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_is_frozen),
        cmocka_unit_test(test_requests_are_accepted),
        cmocka_unit_test(test_malformed_requests_are_refused),
        cmocka_unit_test(test_malformed_replies_are_refused),
    };

    return UNIT_RUN(tests);
}
