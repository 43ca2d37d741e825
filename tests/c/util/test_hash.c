/* SPDX-License-Identifier: BSD-3-Clause */
/* link: wrap=getrandom */
#include "util/hash.h"

#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static void
assert_hex(const uint8_t digest[UMI_SHA256_SIZE], const char *expected)
{
    char hex[2 * UMI_SHA256_SIZE + 1];

    for (int i = 0; i < UMI_SHA256_SIZE; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    assert_string_equal(hex, expected);
}

/* ---- SipHash ---- */

/* From the table of the reference implementation: key 00 01 .. 0f, input
 * 00 01 .. of each length. */
static void
test_siphash_published_vectors(void **state)
{
    static const struct {
        size_t   len;
        uint64_t hash;
    } vectors[] = {
        {0, 0x726fdb47dd0e0e31u},  {1, 0x74f839c593dc67fdu},
        {7, 0xab0200f58b01d137u},  {8, 0x93f5f5799a932462u},
        {9, 0x9e0082df0ba9e4b0u},  {15, 0xa129ca6149be45e5u},
        {16, 0x3f2acc7f57c29bdbu}, {63, 0x958a324ceb064572u},
    };
    uint8_t input[64];

    (void)state;
    for (size_t i = 0; i < sizeof(input); i++) {
        input[i] = (uint8_t)i;
    }
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        assert_int_equal(umi_siphash(input, vectors[i].len), vectors[i].hash);
    }
}

/* The length's byte wraps at 256. */
static void
test_siphash_of_a_long_input(void **state)
{
    uint8_t input[300];

    (void)state;
    for (size_t i = 0; i < sizeof(input); i++) {
        input[i] = (uint8_t)i;
    }
    assert_int_equal(umi_siphash(input, sizeof(input)), 0x4b0b710db6117839u);
}

static void
test_siphash_of_nothing_and_unaligned(void **state)
{
    static const char text[] = "xhello";

    (void)state;
    assert_int_equal(umi_siphash(NULL, 0), 0x726fdb47dd0e0e31u);
    assert_int_equal(umi_siphash(text + 1, 5), 0x4fb3985767df81u);
}

/* ---- SHA-256 ---- */

static void
test_sha256_published_vectors(void **state)
{
    static const struct {
        const char *text;
        const char *digest;
    } vectors[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb924"
             "27ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223"
                "b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039"
         "a33ce45964ff2167f6ecedd419db06c1"},
    };
    uint8_t digest[UMI_SHA256_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        umi_sha256(vectors[i].text, strlen(vectors[i].text), digest);
        assert_hex(digest, vectors[i].digest);
    }
    umi_sha256(NULL, 0, digest);
    assert_hex(digest, vectors[0].digest);
}

static void
test_sha256_of_a_million_letters(void **state)
{
    const size_t len  = 1000000;
    char        *text = malloc(len);
    uint8_t      digest[UMI_SHA256_SIZE];

    (void)state;
    assert_non_null(text);
    memset(text, 'a', len);
    umi_sha256(text, len, digest);
    free(text);
    assert_hex(digest, "cdc76e5c9914fb9281a1c7e284d73e67"
                       "f1809a48a497200e046d39ccc7112cd0");
}

/* Every place where a block can end: the digest of the digests of 00 01 .. of
 * 0 to 199 bytes, computed with another implementation. */
static void
test_sha256_of_every_length(void **state)
{
    enum {
        COUNT = 200
    };
    static uint8_t digests[COUNT][UMI_SHA256_SIZE];
    uint8_t        input[COUNT];
    uint8_t        digest[UMI_SHA256_SIZE];

    (void)state;
    for (size_t len = 0; len < COUNT; len++) {
        umi_sha256(input, len, digests[len]);
        input[len] = (uint8_t)len;
    }
    umi_sha256(digests, sizeof(digests), digest);
    assert_hex(digest, "ba7b0fcea7d10c06b855b43d2b4dce1e"
                       "3e842fff6be0acefb0faf4f2dd05bb47");
}

/* ---- HMAC ---- */

static void
assert_hmac(const void *key, size_t key_len, const void *data, size_t len,
            const char *expected)
{
    uint8_t mac[UMI_SHA256_SIZE];

    umi_hmac_sha256(key, key_len, data, len, mac);
    assert_hex(mac, expected);
}

/* RFC 4231, cases 1 to 4, 6 and 7 (5 is a shortened MAC). */
static void
test_hmac_published_vectors(void **state)
{
    static const char case2[] = "what do ya want for nothing?";
    static const char case6[] = "Test Using Larger Than Block-Size Key - Hash "
                                "Key First";
    static const char case7[] = "This is a test using a larger than block-size "
                                "key and a larger than block-size data. The "
                                "key needs to be hashed before being used by "
                                "the HMAC algorithm.";
    uint8_t           key[131];
    uint8_t           data[50];

    (void)state;
    memset(key, 0x0b, 20);
    assert_hmac(key, 20, "Hi There", 8,
                "b0344c61d8db38535ca8afceaf0bf12b"
                "881dc200c9833da726e9376c2e32cff7");
    assert_hmac("Jefe", 4, case2, strlen(case2),
                "5bdcc146bf60754e6a042426089575c7"
                "5a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    memset(data, 0xdd, sizeof(data));
    assert_hmac(key, 20, data, sizeof(data),
                "773ea91e36800e46854db8ebd09181a7"
                "2959098b3ef8c122d9635514ced565fe");
    assert_hmac(key, sizeof(key), case6, strlen(case6),
                "60e431591ee0b67f0d8a26aacbf5b77f"
                "8e0bc6213728c5140546040f0ee37f54");
    assert_hmac(key, sizeof(key), case7, strlen(case7),
                "9b09ffa71b942fcb27635fbcd5b0e944"
                "bfdc63644f0713938a7f51535c3a35e2");
    for (int i = 0; i < 25; i++) {
        key[i] = (uint8_t)(i + 1);
    }
    memset(data, 0xcd, sizeof(data));
    assert_hmac(key, 25, data, sizeof(data),
                "82558a389a443c0ea4cc819899f2083a"
                "85f0faa3e578f8077a2e3ff46729665b");
}

static void
test_hmac_of_nothing(void **state)
{
    (void)state;
    assert_hmac(NULL, 0, NULL, 0,
                "b613679a0814d9ec772f95d778c35fc5"
                "ff1697c493715653c6c712144292c5ad");
}

/* ---- comparing, random bytes ---- */

static void
test_equal_sees_every_bit(void **state)
{
    uint8_t a[UMI_SHA256_SIZE];
    uint8_t b[UMI_SHA256_SIZE];

    (void)state;
    memset(a, 0x5a, sizeof(a));
    memcpy(b, a, sizeof(a));
    assert_true(umi_equal_constant_time(a, b, sizeof(a)));
    assert_true(umi_equal_constant_time(NULL, NULL, 0));
    for (size_t bit = 0; bit < 8 * sizeof(a); bit++) {
        b[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_false(umi_equal_constant_time(a, b, sizeof(a)));
        b[bit / 8] = a[bit / 8];
    }
    b[sizeof(b) - 1] ^= 1;
    assert_true(umi_equal_constant_time(a, b, sizeof(a) - 1));
}

static void
test_random_bytes_fill_exactly(void **state)
{
    static const uint8_t zeros[32];
    uint8_t              a[34] = {0};
    uint8_t              b[32];

    (void)state;
    assert_true(umi_random_bytes(a + 1, 32));
    assert_true(umi_random_bytes(b, 32));
    assert_int_equal(a[0], 0);
    assert_int_equal(a[33], 0);
    assert_memory_not_equal(a + 1, zeros, 32);
    assert_memory_not_equal(a + 1, b, 32);
    assert_true(umi_random_bytes(NULL, 0));
}

/* More than the system gives in one uninterrupted call. */
static void
test_many_random_bytes(void **state)
{
    static uint8_t       data[4096];
    static const uint8_t zeros[16];

    (void)state;
    assert_true(umi_random_bytes(data, sizeof(data)));
    for (size_t i = 0; i < sizeof(data); i += sizeof(zeros)) {
        assert_memory_not_equal(data + i, zeros, sizeof(zeros));
    }
}

/* Errors that the next calls fail with, the last one first; 0: no failure. */
static int next_errors[2];

ssize_t __real_getrandom(void *data, size_t len, unsigned flags);
ssize_t __wrap_getrandom(void *data, size_t len, unsigned flags);

ssize_t
__wrap_getrandom(void *data, size_t len, unsigned flags)
{
    int error = next_errors[1];

    next_errors[1] = next_errors[0];
    next_errors[0] = 0;
    if (error != 0) {
        errno = error;
        return -1;
    }
    return __real_getrandom(data, len, flags);
}

static void
test_a_signal_does_not_stop_random_bytes(void **state)
{
    static const uint8_t zeros[32];
    uint8_t              a[32] = {0};

    (void)state;
    next_errors[0] = EINTR;
    next_errors[1] = EINTR;
    assert_true(umi_random_bytes(a, sizeof(a)));
    assert_memory_not_equal(a, zeros, sizeof(a));
}

static void
test_no_random_bytes_are_no_nonce(void **state)
{
    uint8_t a[32];

    (void)state;
    next_errors[1] = ENOSYS;
    assert_false(umi_random_bytes(a, sizeof(a)));
    next_errors[0] = ENOSYS;
    next_errors[1] = EINTR;
    assert_false(umi_random_bytes(a, sizeof(a)));
}

/* From here on. */
static int
use_plain(void **state)
{
    (void)state;
    umi_sha256_use_plain();
    return 0;
}

#define PLAIN_TEST(f)                                     \
    {                                                     \
#f " without the CPU's", f, use_plain, NULL, NULL \
    }

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siphash_published_vectors),
        cmocka_unit_test(test_siphash_of_a_long_input),
        cmocka_unit_test(test_siphash_of_nothing_and_unaligned),
        cmocka_unit_test(test_sha256_published_vectors),
        cmocka_unit_test(test_sha256_of_a_million_letters),
        cmocka_unit_test(test_sha256_of_every_length),
        cmocka_unit_test(test_hmac_published_vectors),
        cmocka_unit_test(test_hmac_of_nothing),
        cmocka_unit_test(test_equal_sees_every_bit),
        cmocka_unit_test(test_random_bytes_fill_exactly),
        cmocka_unit_test(test_many_random_bytes),
        cmocka_unit_test(test_a_signal_does_not_stop_random_bytes),
        cmocka_unit_test(test_no_random_bytes_are_no_nonce),
        PLAIN_TEST(test_sha256_published_vectors),
        PLAIN_TEST(test_sha256_of_a_million_letters),
        PLAIN_TEST(test_sha256_of_every_length),
    };

    return UNIT_RUN(tests);
}
