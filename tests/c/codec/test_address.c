/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes of worker addresses. */
#include "unit.h"

#include <string.h>

#include "util/hash.h"
#include "codec/address.h"

static umi_address
example(void)
{
    umi_address address = {
        .network_id = 0x1112131415161718u,
        .port       = 0x2122,
        .count      = 3,
        .hosts      = {{.bytes = {127, 0, 0, 1}, .is_loopback = true},
                       {.bytes = {10, 1, 2, 3}},
                       {.bytes = {0xfd, 1, [15] = 2}, .is_ipv6 = true}},
    };

    for (uint8_t i = 0; i < UMI_WHERE_ID_SIZE; i++) {
        address.worker_id[i] = i;
    }
    return address;
}

/* Frozen: addresses are kept, and travel between versions. */
static const uint8_t example_bytes[] = {
    'U',  'M',  'X',  'A',  1,    3,    69,   0, /* frame */
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,
    10,   11,   12,   13,   14,   15,                           /* id */
    0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x22, 0x21, /* where */
    4,    127,  0,    0,    1,    4,    10,   1,    2,    3,    /* hosts */
    6,    0xfd, 1,    0,    0,    0,    0,    0,    0,    0,
    0,    0,    0,    0,    0,    0,    2,
};

static void
seal(uint8_t *data, size_t len)
{
    uint64_t checksum = umi_siphash(data, len - 8);

    memcpy(data + len - 8, &checksum, 8);
}

static void
test_the_layout_does_not_change(void **state)
{
    umi_address address = example();
    uint8_t     data[UMX_ADDRESS_MAX];
    size_t      len = umi_address_encode(&address, data);

    (void)state;
    assert_int_equal(len, sizeof(example_bytes) + 8);
    assert_memory_equal(data, example_bytes, sizeof(example_bytes));
}

static void
test_addresses_survive_the_journey(void **state)
{
    umi_address address = example(), back;
    uint8_t     data[UMX_ADDRESS_MAX];
    size_t      len, back_len = 0;
    const char *why;

    (void)state;
    address.count = UMI_ADDRESS_HOSTS_MAX;
    for (unsigned i = 3; i < address.count; i++) {
        address.hosts[i] = address.hosts[i % 3];
    }
    for (; address.count > 0; address.count--) {
        len = umi_address_encode(&address, data);
        assert_true(len <= sizeof(data));
        assert_true(umi_address_decode(&back, data, len, &back_len, &why));
        assert_int_equal(back_len, len);
        assert_memory_equal(back.worker_id, address.worker_id,
                            UMI_WHERE_ID_SIZE);
        assert_int_equal(back.network_id, address.network_id);
        assert_int_equal(back.port, address.port);
        assert_int_equal(back.count, address.count);
        for (unsigned i = 0; i < address.count; i++) {
            assert_memory_equal(back.hosts[i].bytes, address.hosts[i].bytes,
                                16);
            assert_int_equal(back.hosts[i].is_ipv6, address.hosts[i].is_ipv6);
            assert_int_equal(back.hosts[i].is_loopback,
                             address.hosts[i].is_loopback);
        }
    }
}

static void
assert_refused(const void *data, size_t len, const char *expected)
{
    const char *why = NULL;
    size_t      said;

    assert_int_equal(umx_address_check(data, len, &said, &why),
                     UMX_ERR_INVALID_ADDR);
    assert_string_equal(why, expected);
}

static void
test_what_is_cut_is_refused(void **state)
{
    umi_address address = example();
    uint8_t     data[UMX_ADDRESS_MAX];
    size_t      len = umi_address_encode(&address, data);

    (void)state;
    for (size_t i = 0; i < len; i++) {
        assert_refused(data, i,
                       i < 4 ? "it does not begin as one" : "it is cut off");
    }
}

static void
test_each_changed_bit_is_found(void **state)
{
    umi_address address = example();
    uint8_t     data[UMX_ADDRESS_MAX];
    size_t      len = umi_address_encode(&address, data), said;
    const char *why;

    (void)state;
    for (size_t i = 0; i < len * 8; i++) {
        data[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(umx_address_check(data, len, &said, &why),
                         UMX_ERR_INVALID_ADDR);
        data[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

static void
test_only_zeros_may_follow(void **state)
{
    umi_address address               = example();
    uint8_t     data[UMX_ADDRESS_MAX] = {0};
    size_t      len = umi_address_encode(&address, data), said = 0;
    const char *why;

    (void)state;
    assert_int_equal(umx_address_check(data, sizeof(data), &said, &why),
                     UMX_OK);
    assert_int_equal(said, len);
    data[sizeof(data) - 1] = 1;
    assert_refused(data, sizeof(data), "something follows it");
}

/* Right checksums over wrong contents. */
static void
test_wrong_contents_are_refused(void **state)
{
    umi_address address = example();
    uint8_t     data[UMX_ADDRESS_MAX];
    size_t      len = umi_address_encode(&address, data);
    static const struct {
        size_t  offset;
        uint8_t value;
    } changes[] = {{5, 2}, {5, 4}, {5, 255}, {34, 5}, {39, 6}, {44, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        uint8_t before = data[changes[i].offset];

        data[changes[i].offset] = changes[i].value;
        seal(data, len);
        assert_refused(data, len, "its contents are wrong");
        data[changes[i].offset] = before;
    }
    memset(data + 32, 0, 2);
    seal(data, len);
    assert_refused(data, len, "its contents are wrong"); /* no port */
    data[6] = 41;
    seal(data, 41);
    assert_refused(data, 41, "its length is wrong");
    data[4] = 2;
    seal(data, 41);
    assert_refused(data, 41, "it is of another version");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_layout_does_not_change),
        cmocka_unit_test(test_addresses_survive_the_journey),
        cmocka_unit_test(test_what_is_cut_is_refused),
        cmocka_unit_test(test_each_changed_bit_is_found),
        cmocka_unit_test(test_only_zeros_may_follow),
        cmocka_unit_test(test_wrong_contents_are_refused),
    };

    return UNIT_RUN(tests);
}
