/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: codec/pack */
#include "unit.h"

#include <string.h>
#include <stdio.h>
#include <umx/buffer.h>
#include <umx/messenger.h>

#include "messenger/sender.h"
#include "util/utf8.h"

/* ---- metadata ------------------------------------------------------------
 */

static void
check_text(const umx_metadata *metadata, const char *key, const char *text)
{
    umx_metadata_item item;

    assert_true(umx_metadata_find(metadata, key, strlen(key), &item));
    assert_int_equal(item.type, UMX_METADATA_STR);
    assert_int_equal(item.len, strlen(text));
    assert_memory_equal(item.data, text, strlen(text));
}

static void
check_number(const umx_metadata *metadata, const char *key, int64_t number)
{
    umx_metadata_item item;

    assert_true(umx_metadata_find(metadata, key, strlen(key), &item));
    assert_int_equal(item.type, UMX_METADATA_INT);
    assert_true(item.number == number);
}

static void
test_items_are_found_again(void **state)
{
    umx_metadata_builder b;
    umx_metadata_item    item;
    size_t               pos = 0;

    (void)state;
    umx_metadata_init(&b);
    assert_true(umx_metadata_is_valid(&b.metadata));
    assert_int_equal(umx_metadata_add_str(&b, "name", "m\xc3\xbcll"), UMX_OK);
    assert_int_equal(umx_metadata_add_int(&b, "low", INT64_MIN), UMX_OK);
    assert_int_equal(umx_metadata_add_int(&b, "high", INT64_MAX), UMX_OK);
    assert_int_equal(umx_metadata_add_bytes(&b, "raw", "\0\xff", 2), UMX_OK);
    assert_int_equal(umx_metadata_add_bytes(&b, "none", NULL, 0), UMX_OK);
    assert_true(umx_metadata_is_valid(&b.metadata));
    check_text(&b.metadata, "name", "m\xc3\xbcll");
    check_number(&b.metadata, "low", INT64_MIN);
    check_number(&b.metadata, "high", INT64_MAX);
    assert_true(umx_metadata_find(&b.metadata, "raw", 3, &item));
    assert_int_equal(item.type, UMX_METADATA_BYTES);
    assert_memory_equal(item.data, "\0\xff", 2);
    assert_false(umx_metadata_find(&b.metadata, "nam", 3, &item));
    assert_true(umx_metadata_next(&b.metadata, &pos, &item));
    assert_memory_equal(item.key, "name", 4);
    for (int i = 0; i < 4; i++) {
        assert_true(umx_metadata_next(&b.metadata, &pos, &item));
    }
    assert_false(umx_metadata_next(&b.metadata, &pos, &item));
    umx_metadata_fini(&b);
}

static void
test_what_cannot_be_added_leaves_the_rest(void **state)
{
    static char          long_text[UMX_METADATA_MAX + 1];
    umx_metadata_builder b;
    umx_metadata_item    bad = {
           .key = "k", .key_len = 1, .type = (umx_metadata_type)7};
    size_t len;

    (void)state;
    memset(long_text, 'x', UMX_METADATA_MAX);
    umx_metadata_init(&b);
    assert_int_equal(umx_metadata_add_int(&b, "a", 1), UMX_OK);
    len = b.metadata.len;
    assert_int_equal(umx_metadata_add_int(&b, "a", 2), UMX_ERR_ALREADY_EXISTS);
    assert_int_equal(umx_metadata_add_int(&b, "", 2), UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_metadata_add_str(&b, "b", "\xff"),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_metadata_add_int(&b, "\xc0\x80", 1),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_metadata_add(&b, &bad), UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_metadata_add_str(&b, "b", long_text),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_metadata_add_int(&b, long_text, 1),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(b.metadata.len, len);
    long_text[UMX_METADATA_MAX - len - 5] = '\0';
    assert_int_equal(umx_metadata_add_str(&b, "b", long_text), UMX_OK);
    assert_int_equal(b.metadata.len, UMX_METADATA_MAX);
    assert_true(umx_metadata_is_valid(&b.metadata));
    check_number(&b.metadata, "a", 1);
    umx_metadata_fini(&b);
}

static void
test_items_are_limited(void **state)
{
    umx_metadata_builder b;
    char                 key[16];

    (void)state;
    umx_metadata_init(&b);
    for (int i = 0; i < UMX_METADATA_ITEMS_MAX; i++) {
        (void)snprintf(key, sizeof(key), "%d", i);
        assert_int_equal(umx_metadata_add_int(&b, key, i), UMX_OK);
    }
    assert_true(umx_metadata_is_valid(&b.metadata));
    assert_int_equal(umx_metadata_add_int(&b, "x", 0), UMX_ERR_OUT_OF_RANGE);
    umx_metadata_fini(&b);
}

#define BYTES(text)            \
    {                          \
        text, sizeof(text) - 1 \
    }

static void
test_malformed_metadata_is_refused(void **state)
{
    static const umx_metadata bad[] = {
        BYTES("\x01"),                       /* no key */
        BYTES("\x01k"),                      /* no type */
        BYTES("\x00\x01\0\0\0\0\0\0\0\0"),   /* empty key */
        BYTES("\x01k\x03\0\0"),              /* no such type */
        BYTES("\x01k\x01\0\0\0\0\0\0\0"),    /* number cut */
        BYTES("\x01k\x00"),                  /* no length */
        BYTES("\x01k\x00\x02\x00z"),         /* text cut */
        BYTES("\x01k\x02\xff\xffz"),         /* bytes cut */
        BYTES("\x01k\x00\x01\x00\xff"),      /* no UTF-8 */
        BYTES("\x01\xff\x02\x00\x00"),       /* a key that is no UTF-8 */
        BYTES("\x01k\x02\0\0\x01k\x02\0\0"), /* twice */
        BYTES("\x01k\x02\0\0\x01k\x01\0\0\0\0\0\0\0\0"),
        BYTES("\x01k\x02\0\0\x00"), /* something behind */
    };
    static const umx_metadata good = BYTES("\x01k\x02\0\0\x01l\x00\x01\0z");

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (umx_metadata_is_valid(&bad[i])) {
            fail_msg("number %zu was accepted", i);
        }
    }
    assert_true(umx_metadata_is_valid(&good));
}

static void
test_too_many_items_are_refused(void **state)
{
    static uint8_t bytes[(UMX_METADATA_ITEMS_MAX + 1) * 6];
    umx_metadata   metadata = {bytes, sizeof(bytes)};

    (void)state;
    for (unsigned i = 0; i <= UMX_METADATA_ITEMS_MAX; i++) {
        uint8_t *item = bytes + (size_t)i * 6;

        item[0] = 2;
        item[1] = (uint8_t)('0' + i / 64);
        item[2] = (uint8_t)('0' + i % 64);
        item[3] = UMX_METADATA_BYTES;
    }
    assert_false(umx_metadata_is_valid(&metadata));
    metadata.len -= 6;
    assert_true(umx_metadata_is_valid(&metadata));
}

static void
test_utf8(void **state)
{
    static const char *const good[] = {"",
                                       "a",
                                       "\x7f",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       ("a\xc3\xbc"
                                        "b")};
    static const char *const bad[]  = {"\x80",
                                       "\xbf",
                                       "\xc0\x80",
                                       "\xc1\xbf",
                                       "\xc2",
                                       "\xc2z",
                                       "\xe0\x9f\xbf",
                                       "\xe1\x80",
                                       "\xed\xa0\x80",
                                       "\xed\xbf\xbf",
                                       "\xf0\x8f\xbf\xbf",
                                       "\xf4\x90\x80\x80",
                                       "\xf5\x80\x80\x80",
                                       "\xf1\x80\x80",
                                       "\xff",
                                       "\xe1\x80\xc0",
                                       "\xf1\x80\x80\x7f"};

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(umi_utf8_is_valid(good[i], strlen(good[i])));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (umi_utf8_is_valid(bad[i], strlen(bad[i]))) {
            fail_msg("number %zu was accepted", i);
        }
    }
}

/* ---- packs ---------------------------------------------------------------
 */

static void
test_an_entry_is_read_as_it_was_written(void **state)
{
    char            data[64];
    umx_buffer      buffers[3] = {umx_host_buffer("abc", 3),
                                  umx_host_buffer(NULL, 0),
                                  umx_host_buffer("de", 2)};
    umx_message_out message    = {.metadata    = BYTES("\x01k\x02\0\0"),
                                  .buffers     = buffers,
                                  .num_buffers = 3};
    size_t          size       = umi_batch_entry_size(&message);
    umi_pack_entry  entry;
    umi_reader      r;

    (void)state;
    assert_int_equal(size, 2 + 5 + 2 + 6 + 5);
    assert_int_equal(umi_batch_write(&message, data, size), UMX_OK);
    umi_reader_init(&r, data, size);
    assert_null(umi_pack_read(&r, &entry));
    assert_true(r.pos == r.end);
    assert_int_equal(entry.metadata.len, 5);
    assert_int_equal(entry.num_buffers, 3);
    assert_int_equal(umi_pack_len(&entry, 0), 3);
    assert_int_equal(umi_pack_len(&entry, 1), 0);
    assert_int_equal(umi_pack_len(&entry, 2), 2);
    assert_memory_equal(entry.bytes, "abcde", 5);
    for (size_t cut = 1; cut <= size; cut++) {
        umi_reader_init(&r, data, size - cut);
        assert_non_null(umi_pack_read(&r, &entry));
    }
}

static void
test_malformed_metadata_in_an_entry_is_refused(void **state)
{
    static const char data[] = "\x01\0\x05\0\0";
    umi_pack_entry    entry;
    umi_reader        r;

    (void)state;
    umi_reader_init(&r, data, 5);
    assert_non_null(umi_pack_read(&r, &entry));
}

static void
test_only_small_messages_are_entries(void **state)
{
    static char     bytes[UMI_PACK_ENTRY_MAX];
    umx_buffer      buffer  = umx_host_buffer(bytes, UMI_PACK_ENTRY_MAX - 6);
    umx_message_out message = {.buffers = &buffer, .num_buffers = 1};

    (void)state;
    assert_int_equal(umi_batch_entry_size(&message), UMI_PACK_ENTRY_MAX);
    buffer.len++;
    assert_int_equal(umi_batch_entry_size(&message), 0);
    buffer.len     = 1;
    buffer.memtype = UMX_MEMTYPE_CUDA;
    assert_int_equal(umi_batch_entry_size(&message), 0);
    message.num_buffers = 0;
    assert_int_equal(umi_batch_entry_size(&message), 4);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_are_found_again),
        cmocka_unit_test(test_what_cannot_be_added_leaves_the_rest),
        cmocka_unit_test(test_items_are_limited),
        cmocka_unit_test(test_malformed_metadata_is_refused),
        cmocka_unit_test(test_too_many_items_are_refused),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_an_entry_is_read_as_it_was_written),
        cmocka_unit_test(test_malformed_metadata_in_an_entry_is_refused),
        cmocka_unit_test(test_only_small_messages_are_entries),
    };

    return UNIT_RUN(tests);
}
