/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: codec/frames */
#include "unit.h"

#include <string.h>

#include "codec/frames.h"

static const umi_frame_limits limits = {.frames = 1000, .bytes = 1 << 20};

/* A head of literal bytes is decoded, or refused for the reason given. */
#define REFUSED(bytes, reason) refused(bytes, sizeof(bytes) - 1, reason)

static void
refused(const char *bytes, size_t len, const char *reason)
{
    umi_frame_head frames;
    const char    *why = umi_frame_head_decode(&frames, bytes, len, &limits);

    assert_non_null(why);
    assert_string_equal(why, reason);
    umi_frame_head_fini(&frames);
}

static void
test_layout_is_frozen(void **state)
{
    static const uint8_t bytes[] = {
        6,        3,          /* six frames, three bytes of header */
        2 << 3,               /* in the head */
        0x82,     0xc4, 0x13, /* 40000, begins a part */
        0,                    /* without bytes */
        0x84,     0xd3, 0x0e, /* 30000, goes on */
        0x83,     0x97, 0x22, /* 70000 of a GPU, begins a part */
        (1 << 3),             /* in the head */
        'h',      'd',  'r',  'a', 'b', 'c',
    };
    umi_frame_head frames;
    umi_part       part;

    (void)state;
    assert_null(umi_frame_head_decode(&frames, bytes, sizeof(bytes), &limits));
    assert_int_equal(frames.info.count, 6);
    assert_int_equal(frames.info.len, 2 + 40000 + 30000 + 70000 + 1);
    assert_int_equal(frames.info.header_len, 3);
    assert_memory_equal(frames.info.header, "hdr", 3);
    assert_memory_equal(frames.packed, "abc", 3);
    assert_int_equal(frames.info.frames[1].len, 40000);
    assert_false(frames.info.frames[1].is_device);
    assert_true(frames.info.frames[4].is_device);
    assert_int_equal(frames.num_parts, 2);
    umi_frame_part(&frames, 0, &part);
    assert_int_equal(part.first, 1);
    assert_int_equal(part.end, 4);
    assert_int_equal(part.count, 2);
    assert_int_equal(part.len, 70000);
    umi_frame_part(&frames, part.end, &part);
    assert_int_equal(part.first, 4);
    assert_int_equal(part.end, 6);
    assert_int_equal(part.count, 1);
    assert_int_equal(part.len, 70000);
    umi_frame_head_fini(&frames);
}

static void
test_every_shorter_head_is_refused(void **state)
{
    static const char bytes[] = "\x03\x02\x08\x82\xc4\x13\x10hdabc";
    size_t            len     = sizeof(bytes) - 1;
    umi_frame_head    frames;

    (void)state;
    for (size_t cut = 0; cut < len; cut++) {
        assert_non_null(umi_frame_head_decode(&frames, bytes, cut, &limits));
        umi_frame_head_fini(&frames);
    }
    assert_null(umi_frame_head_decode(&frames, bytes, len, &limits));
    umi_frame_head_fini(&frames);
}

static void
test_lies_are_refused(void **state)
{
    (void)state;
    REFUSED("", "a head of frames that is cut");
    REFUSED("\x02\x00\x00", "a head of frames that is cut");
    REFUSED("\x81\x00\x00\x00", "a head of frames that is cut");
    REFUSED("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00",
            "a head of frames that is cut");
    REFUSED("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
            "a head of frames that is cut");
    REFUSED("\x00\x81\x80\x04", "a header of frames that is too long");
    REFUSED("\x00\x02x", "frames whose sizes lie");
    REFUSED("\x00\x00x", "frames whose sizes lie");
    REFUSED("\x01\x00\x18yy", "frames whose sizes lie");
    REFUSED("\x01\x00\x0e", "a frame in no known place");
    REFUSED("\x01\x00\x02", "a part for a frame without bytes");
    REFUSED("\x01\x00\x0c", "a frame in a part that does not begin");
}

static void
test_sums_do_not_wrap(void **state)
{
    static const umi_frame_limits none = {UINT32_MAX, UINT64_MAX};
    uint8_t                       bytes[2 + 16 * UMI_VARINT_MAX];
    uint8_t                      *pos = bytes;
    umi_frame_head                frames;

    (void)state;
    pos = umi_varint_write(pos, 16);
    pos = umi_varint_write(pos, 0);
    for (int i = 0; i < 16; i++) {
        pos = umi_varint_write(
            pos, umi_frame_entry(SIZE_MAX >> 3, UMI_FRAME_BEGINS, false));
    }
    assert_string_equal(
        umi_frame_head_decode(&frames, bytes, (size_t)(pos - bytes), &none),
        "more bytes of frames than the limit");
    umi_frame_head_fini(&frames);
}

static void
test_limits(void **state)
{
    static const umi_frame_limits two = {.frames = 2, .bytes = 10};
    umi_frame_head                frames;

    (void)state;
    assert_null(
        umi_frame_head_decode(&frames, "\x02\x00\x28\x28iiiiijjjjj", 14, &two));
    umi_frame_head_fini(&frames);
    assert_string_equal(
        umi_frame_head_decode(&frames, "\x02\x00\x28\x30iiiiijjjjjj", 15, &two),
        "more bytes of frames than the limit");
    umi_frame_head_fini(&frames);
    assert_string_equal(
        umi_frame_head_decode(&frames, "\x03\x00\0\0\0", 5, &two),
        "more frames than the limit");
    umi_frame_head_fini(&frames);
}

static void
test_varints(void **state)
{
    static const uint64_t values[] = {0,     1,          127,       128,
                                      16383, 16384,      1u << 21,  1u << 28,
                                      1,     UINT32_MAX, INT64_MAX, UINT64_MAX};
    uint8_t               bytes[UMI_VARINT_MAX];

    (void)state;
    for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        uint8_t *end = umi_varint_write(bytes, values[i]);

        assert_int_equal(end - bytes, umi_varint_size(values[i]));
    }
    assert_int_equal(umi_varint_size(UINT64_MAX), UMI_VARINT_MAX);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_is_frozen),
        cmocka_unit_test(test_every_shorter_head_is_refused),
        cmocka_unit_test(test_lies_are_refused),
        cmocka_unit_test(test_sums_do_not_wrap),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_varints),
    };

    return UNIT_RUN(tests);
}
