/* SPDX-License-Identifier: BSD-3-Clause */
/* link: optimised */
#include "util/x25519.h"

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

static void
from_hex(const char *hex, uint8_t bytes[UMI_X25519_SIZE])
{
    for (int i = 0; i < UMI_X25519_SIZE; i++) {
        unsigned byte;

        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (uint8_t)byte;
    }
}

static void
check_shared(const char *secret_hex, const char *key_hex,
             const char *expected_hex)
{
    uint8_t secret[UMI_X25519_SIZE], key[UMI_X25519_SIZE];
    uint8_t expected[UMI_X25519_SIZE], shared[UMI_X25519_SIZE];

    from_hex(secret_hex, secret);
    from_hex(key_hex, key);
    from_hex(expected_hex, expected);
    assert_true(umi_x25519_shared(secret, key, shared));
    assert_memory_equal(shared, expected, sizeof(expected));
}

/* RFC 7748, section 5.2; the second key has its top bit set. */
static void
test_published_vectors(void **state)
{
    (void)state;
    check_shared(
        "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
    check_shared(
        "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
        "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
        "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957");
}

/* RFC 7748, section 6.1. */
static void
test_published_agreement(void **state)
{
    uint8_t alice[UMI_X25519_SIZE], bob[UMI_X25519_SIZE];
    uint8_t alices[UMI_X25519_SIZE], bobs[UMI_X25519_SIZE];
    uint8_t expected[UMI_X25519_SIZE], shared[UMI_X25519_SIZE];

    (void)state;
    from_hex("77076d0a7318a57d3c16c17251b26645df4c2f92ebc099c20a9ad3f8f2a4"
             "e1a5",
             alice);
    from_hex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88"
             "e0eb",
             bob);
    umi_x25519_public(bob, bobs);
    from_hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f88"
             "2b4f",
             expected);
    assert_memory_equal(bobs, expected, sizeof(expected));
    umi_x25519_public(alice, alices);
    assert_true(umi_x25519_shared(alice, bobs, shared));
    assert_true(umi_x25519_shared(bob, alices, expected));
    assert_memory_equal(shared, expected, sizeof(expected));
}

/* RFC 7748, section 5.2: each result is the next secret. The last one is that
 * of a million, which X25519_ITERATIONS asks for. */
static void
test_published_iterations(void **state)
{
    static const struct {
        long        count;
        const char *hex;
    } published[] = {
        {1, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"},
        {1000,
         "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"},
        {1000000,
         "7c3911e0ab2586fd864497297e575e6f3bc601c0883c30df5f4dd2d24f665424"},
    };
    const char *asked                   = getenv("X25519_ITERATIONS");
    long        count                   = (asked == NULL) ? 1000 : atol(asked);
    uint8_t     secret[UMI_X25519_SIZE] = {9}, key[UMI_X25519_SIZE] = {9};
    uint8_t     expected[UMI_X25519_SIZE], shared[UMI_X25519_SIZE];

    (void)state;
    assert_true(count >= 1000);
    for (long i = 1; i <= count; i++) {
        assert_true(umi_x25519_shared(secret, key, shared));
        memcpy(key, secret, sizeof(key));
        memcpy(secret, shared, sizeof(secret));
        for (size_t j = 0; j < sizeof(published) / sizeof(*published); j++) {
            if (published[j].count == i) {
                from_hex(published[j].hex, expected);
                assert_memory_equal(shared, expected, sizeof(expected));
            }
        }
    }
}

/* All edges of the numbers: what is p or more counts modulo p. */
static void
test_keys_are_taken_modulo_p(void **state)
{
    uint8_t secret[UMI_X25519_SIZE] = {1, 2, 3}, small[UMI_X25519_SIZE] = {0};
    uint8_t large[UMI_X25519_SIZE], shared[2][UMI_X25519_SIZE];

    (void)state;
    memset(large, 0xff, sizeof(large));
    large[31] = 0x7f;
    for (int i = 0; i < 19; i++) { /* p + i = 2^255 - 19 + i */
        small[0] = (uint8_t)i;
        large[0] = (uint8_t)(0xed + i);
        assert_int_equal(umi_x25519_shared(secret, small, shared[0]), i > 1);
        assert_int_equal(umi_x25519_shared(secret, large, shared[1]), i > 1);
        assert_memory_equal(shared[0], shared[1], UMI_X25519_SIZE);
    }
}

/* RFC 7748, section 5: the top bit of a key is ignored, as are the bits of a
 * secret that the multiplication sets. */
static void
test_bits_that_do_not_count(void **state)
{
    uint8_t secret[UMI_X25519_SIZE], key[UMI_X25519_SIZE];
    uint8_t shared[2][UMI_X25519_SIZE];

    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_true(umi_random_bytes(secret, sizeof(secret)));
        assert_true(umi_random_bytes(key, sizeof(key)));
        assert_true(umi_x25519_shared(secret, key, shared[0]));
        key[31] ^= 0x80;
        secret[0] ^= (uint8_t)(i % 8);
        secret[31] ^= (uint8_t)((i % 4) << 6);
        assert_true(umi_x25519_shared(secret, key, shared[1]));
        assert_memory_equal(shared[0], shared[1], UMI_X25519_SIZE);
    }
}

/* All numbers of small order that 255 bits can hold: 0, 1, two of order 8, and
 * p - 1, p and p + 1. Each also with the bit that does not count. */
static void
test_keys_that_give_everybody_the_same_are_refused(void **state)
{
    static const char *const hex[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    };

    static const uint8_t none[UMI_X25519_SIZE];

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(hex) / sizeof(*hex); i++) {
        uint8_t secret[UMI_X25519_SIZE], key[UMI_X25519_SIZE];
        uint8_t shared[UMI_X25519_SIZE];

        assert_true(umi_random_bytes(secret, sizeof(secret)));
        from_hex(hex[i / 2], key);
        key[31] |= (i % 2 == 0) ? 0 : 0x80;
        assert_false(umi_x25519_shared(secret, key, shared));
        assert_memory_equal(shared, none, sizeof(none));
    }
}

static void
test_two_sides_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        uint8_t secrets[2][UMI_X25519_SIZE], keys[2][UMI_X25519_SIZE];
        uint8_t shared[2][UMI_X25519_SIZE];

        for (int j = 0; j < 2; j++) {
            assert_true(umi_random_bytes(secrets[j], UMI_X25519_SIZE));
            umi_x25519_public(secrets[j], keys[j]);
        }
        assert_true(umi_x25519_shared(secrets[0], keys[1], shared[0]));
        assert_true(umi_x25519_shared(secrets[1], keys[0], shared[1]));
        assert_memory_equal(shared[0], shared[1], UMI_X25519_SIZE);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_vectors),
        cmocka_unit_test(test_published_agreement),
        cmocka_unit_test(test_published_iterations),
        cmocka_unit_test(test_keys_are_taken_modulo_p),
        cmocka_unit_test(test_bits_that_do_not_count),
        cmocka_unit_test(test_keys_that_give_everybody_the_same_are_refused),
        cmocka_unit_test(test_two_sides_agree),
    };

    return UNIT_RUN(tests);
}
