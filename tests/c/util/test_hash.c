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

/* The whole table of the reference implementation: key 00 01 .. 0f, input
 * 00 01 .. of 0 to 63 bytes. */
static void
test_siphash_published_vectors(void **state)
{
    static const uint64_t hashes[64] = {
        0x726fdb47dd0e0e31u, 0x74f839c593dc67fdu, 0x0d6c8009d9a94f5au,
        0x85676696d7fb7e2du, 0xcf2794e0277187b7u, 0x18765564cd99a68du,
        0xcbc9466e58fee3ceu, 0xab0200f58b01d137u, 0x93f5f5799a932462u,
        0x9e0082df0ba9e4b0u, 0x7a5dbbc594ddb9f3u, 0xf4b32f46226bada7u,
        0x751e8fbc860ee5fbu, 0x14ea5627c0843d90u, 0xf723ca908e7af2eeu,
        0xa129ca6149be45e5u, 0x3f2acc7f57c29bdbu, 0x699ae9f52cbe4794u,
        0x4bc1b3f0968dd39cu, 0xbb6dc91da77961bdu, 0xbed65cf21aa2ee98u,
        0xd0f2cbb02e3b67c7u, 0x93536795e3a33e88u, 0xa80c038ccd5ccec8u,
        0xb8ad50c6f649af94u, 0xbce192de8a85b8eau, 0x17d835b85bbb15f3u,
        0x2f2e6163076bcfadu, 0xde4daaaca71dc9a5u, 0xa6a2506687956571u,
        0xad87a3535c49ef28u, 0x32d892fad841c342u, 0x7127512f72f27cceu,
        0xa7f32346f95978e3u, 0x12e0b01abb051238u, 0x15e034d40fa197aeu,
        0x314dffbe0815a3b4u, 0x027990f029623981u, 0xcadcd4e59ef40c4du,
        0x9abfd8766a33735cu, 0x0e3ea96b5304a7d0u, 0xad0c42d6fc585992u,
        0x187306c89bc215a9u, 0xd4a60abcf3792b95u, 0xf935451de4f21df2u,
        0xa9538f0419755787u, 0xdb9acddff56ca510u, 0xd06c98cd5c0975ebu,
        0xe612a3cb9ecba951u, 0xc766e62cfcadaf96u, 0xee64435a9752fe72u,
        0xa192d576b245165au, 0x0a8787bf8ecb74b2u, 0x81b3e73d20b49b6fu,
        0x7fa8220ba3b2eceau, 0x245731c13ca42499u, 0xb78dbfaf3a8d83bdu,
        0xea1ad565322a1a0bu, 0x60e61c23a3795013u, 0x6606d7e446282b93u,
        0x6ca4ecb15c5f91e1u, 0x9f626da15c9625f3u, 0xe51b38608ef25f57u,
        0x958a324ceb064572u,
    };
    uint8_t input[64];

    (void)state;
    for (size_t i = 0; i < sizeof(input); i++) {
        input[i] = (uint8_t)i;
    }
    for (size_t len = 0; len < sizeof(input); len++) {
        assert_int_equal(umi_siphash(input, len), hashes[len]);
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

/* FIPS 180-4, and the tests of RFC 6234, section 8.5, that have whole bytes. */
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

/* Those of RFC 6234 whose input is no text. */
static void
test_sha256_published_bytes(void **state)
{
    static const struct {
        const char *bytes;
        size_t      len;
        const char *digest;
    } vectors[] = {
        {"\x19", 1,
         "68aa2e2ee5dff96e3355e6c7ee373e3d"
         "6a4e17f75f9518d843709c0c9bc3e3d4"},
        {"\xe3\xd7\x25\x70\xdc\xdd\x78\x7c\xe3\x88\x7a\xb2\xcd\x68\x46\x52", 16,
         "175ee69b02ba9b58e2b0a5fd13819cea"
         "573f3940a94f825128cf4209beabb4e8"},
        {"\x83\x26\x75\x4e\x22\x77\x37\x2f\x4f\xc1\x2b\x20\x52\x7a\xfe\xf0"
         "\x4d\x8a\x05\x69\x71\xb1\x1a\xd5\x71\x23\xa7\xc1\x37\x76\x00\x00"
         "\xd7\xbe\xf6\xf3\xc1\xf7\xa9\x08\x3a\xa3\x9d\x81\x0d\xb3\x10\x77"
         "\x7d\xab\x8b\x1e\x7f\x02\xb8\x4a\x26\xc7\x73\x32\x5f\x8b\x23\x74"
         "\xde\x7a\x4b\x5a\x58\xcb\x5c\x5c\xf3\x5b\xce\xe6\xfb\x94\x6e\x5b"
         "\xd6\x94\xfa\x59\x3a\x8b\xeb\x3f\x9d\x65\x92\xec\xed\xaa\x66\xca"
         "\x82\xa2\x9d\x0c\x51\xbc\xf9\x33\x62\x30\xe5\xd7\x84\xe4\xc0\xa4"
         "\x3f\x8d\x79\xa3\x0a\x16\x5c\xba\xbe\x45\x2b\x77\x4b\x9c\x71\x09"
         "\xa9\x7d\x13\x8f\x12\x92\x28\x96\x6f\x6c\x0a\xdc\x10\x6a\xad\x5a"
         "\x9f\xdd\x30\x82\x57\x69\xb2\xc6\x71\xaf\x67\x59\xdf\x28\xeb\x39"
         "\x3d\x54\xd6",
         163,
         "97dbca7df46d62c8a422c941dd7e835b"
         "8ad3361763f7e9b2d95f4f0da6e1ccbc"},
    };
    uint8_t digest[UMI_SHA256_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        umi_sha256(vectors[i].bytes, vectors[i].len, digest);
        assert_hex(digest, vectors[i].digest);
    }
}

/* RFC 6234's fourth: ten blocks of the same. */
static void
test_sha256_of_whole_blocks(void **state)
{
    char    text[640];
    uint8_t digest[UMI_SHA256_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (char)('0' + i % 8);
    }
    umi_sha256(text, sizeof(text), digest);
    assert_hex(digest, "594847328451bdfa85056225462cc1d8"
                       "67d877fb388df0ce35f25ab5562bfbb5");
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

/* RFC 4231, cases 1 to 4, 6 and 7. */
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

/* RFC 4231, case 5, which has the first 16 bytes only. */
static void
test_hmac_published_truncation(void **state)
{
    static const char    text[]     = "Test With Truncation";
    static const uint8_t expected[] = {
        0xa3, 0xb6, 0x16, 0x74, 0x73, 0x10, 0x0e, 0xe0,
        0x6e, 0x0c, 0x79, 0x6c, 0x29, 0x55, 0x55, 0x2b,
    };
    uint8_t key[20], mac[UMI_SHA256_SIZE];

    (void)state;
    memset(key, 0x0c, sizeof(key));
    umi_hmac_sha256(key, sizeof(key), text, strlen(text), mac);
    assert_memory_equal(mac, expected, sizeof(expected));
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
        cmocka_unit_test(test_sha256_published_bytes),
        cmocka_unit_test(test_sha256_of_whole_blocks),
        cmocka_unit_test(test_sha256_of_a_million_letters),
        cmocka_unit_test(test_sha256_of_every_length),
        cmocka_unit_test(test_hmac_published_vectors),
        cmocka_unit_test(test_hmac_published_truncation),
        cmocka_unit_test(test_hmac_of_nothing),
        cmocka_unit_test(test_equal_sees_every_bit),
        cmocka_unit_test(test_random_bytes_fill_exactly),
        cmocka_unit_test(test_many_random_bytes),
        cmocka_unit_test(test_a_signal_does_not_stop_random_bytes),
        cmocka_unit_test(test_no_random_bytes_are_no_nonce),
        PLAIN_TEST(test_sha256_published_vectors),
        PLAIN_TEST(test_sha256_published_bytes),
        PLAIN_TEST(test_sha256_of_whole_blocks),
        PLAIN_TEST(test_sha256_of_a_million_letters),
        PLAIN_TEST(test_sha256_of_every_length),
        PLAIN_TEST(test_hmac_published_vectors),
    };

    return UNIT_RUN(tests);
}
