/* SPDX-License-Identifier: BSD-3-Clause */
/* SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF"), SHA-256
 * (FIPS 180-4) and HMAC (RFC 2104), written for being read: the handshake runs
 * once a connection and tags are short. The machine is little-endian, which
 * bytes.h checks. */
#include "util/hash.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* ---- SipHash-2-4 ---- */

/* The key is the one of the published test vectors, bytes 0 to 15: tags must be
 * the same in every process, so it is no secret. Part of wire version 1. */
#define SIP_KEY_0 0x0706050403020100u
#define SIP_KEY_1 0x0f0e0d0c0b0a0908u

static inline uint64_t
rotate_left_64(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

static inline void
sip_rounds(uint64_t v[4], int count)
{
    for (int i = 0; i < count; i++) {
        v[0] += v[1];
        v[1] = rotate_left_64(v[1], 13) ^ v[0];
        v[0] = rotate_left_64(v[0], 32);
        v[2] += v[3];
        v[3] = rotate_left_64(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate_left_64(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate_left_64(v[1], 17) ^ v[2];
        v[2] = rotate_left_64(v[2], 32);
    }
}

static inline void
sip_absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_rounds(v, 2);
    v[0] ^= word;
}

uint64_t
umi_siphash(const void *data, size_t len)
{
    uint64_t v[4] = {
        SIP_KEY_0 ^ 0x736f6d6570736575u,
        SIP_KEY_1 ^ 0x646f72616e646f6du,
        SIP_KEY_0 ^ 0x6c7967656e657261u,
        SIP_KEY_1 ^ 0x7465646279746573u,
    };

    const uint8_t *bytes = (const uint8_t *)data;
    size_t         whole = len & ~(size_t)7;
    uint64_t       word;

    for (size_t i = 0; i < whole; i += sizeof(word)) {
        memcpy(&word, bytes + i, sizeof(word));
        sip_absorb(v, word);
    }

    /* The last word: what is left over, and the length in its top byte. */
    word = (uint64_t)len << 56;
    for (size_t i = whole; i < len; i++) {
        word |= (uint64_t)bytes[i] << (8 * (i - whole));
    }
    sip_absorb(v, word);

    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- SHA-256 ---- */

#define SHA_BLOCK 64

typedef struct sha256 {
    uint32_t state[8];
    uint64_t total; /* bytes so far */
    uint8_t  block[SHA_BLOCK];
} sha256;

static const uint32_t sha_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t
rotate_right_32(uint32_t x, int bits)
{
    return (x >> bits) | (x << (32 - bits));
}

static inline uint32_t
sha_small_sigma(uint32_t x, int rotate_a, int rotate_b, int shift)
{
    return rotate_right_32(x, rotate_a) ^ rotate_right_32(x, rotate_b) ^
           (x >> shift);
}

static inline uint32_t
sha_big_sigma(uint32_t x, int rotate_a, int rotate_b, int rotate_c)
{
    return rotate_right_32(x, rotate_a) ^ rotate_right_32(x, rotate_b) ^
           rotate_right_32(x, rotate_c);
}

static void
sha_expand(uint32_t w[64], const uint8_t block[SHA_BLOCK])
{
    for (int i = 0; i < 16; i++) {
        memcpy(&w[i], block + 4 * i, sizeof(w[i]));
        w[i] = __builtin_bswap32(w[i]);
    }
    for (int i = 16; i < 64; i++) {
        w[i] = sha_small_sigma(w[i - 2], 17, 19, 10) + w[i - 7] +
               sha_small_sigma(w[i - 15], 7, 18, 3) + w[i - 16];
    }
}

static void
sha_compress_plain(uint32_t state[8], const uint8_t block[SHA_BLOCK])
{
    uint32_t w[64];
    uint32_t s[8]; /* the standard's a to h */

    sha_expand(w, block);
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t choice   = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t t1       = s[7] + sha_big_sigma(s[4], 6, 11, 25) + choice +
                      sha_constants[i] + w[i];
        uint32_t t2 = sha_big_sigma(s[0], 2, 13, 22) + majority;

        memmove(&s[1], &s[0], 7 * sizeof(s[0]));
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) {
        state[i] += s[i];
    }
}

#if defined(__x86_64__)
/* A handshake hashes some 8 KiB, mostly UCX's addresses: with the CPU's own
 * instructions that takes a tenth of the time. */
static __attribute__((target("sha,sse4.1"))) void
sha_compress_cpu(uint32_t state[8], const uint8_t block[SHA_BLOCK])
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i       dcba = _mm_loadu_si128((const __m128i *)(void *)&state[0]);
    __m128i       hgfe = _mm_loadu_si128((const __m128i *)(void *)&state[4]);
    __m128i       cdab = _mm_shuffle_epi32(dcba, 0xb1);
    __m128i       efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    __m128i       abef = _mm_alignr_epi8(cdab, efgh, 8);
    __m128i       cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    const __m128i first_abef = abef, first_cdgh = cdgh;
    __m128i       w[4]; /* the last 16 words */

    for (int i = 0; i < 4; i++) {
        w[i] = _mm_shuffle_epi8(
            _mm_loadu_si128((const __m128i *)(const void *)(block + 16 * i)),
            swap);
    }
    for (int i = 0; i < 16; i++) { /* four rounds each */
        __m128i *oldest = &w[i % 4];
        __m128i  newest = w[(i + 3) % 4];
        __m128i  sum    = _mm_add_epi32(
                *oldest, _mm_loadu_si128(
                             (const __m128i *)(const void *)&sha_constants[4 * i]));

        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
        *oldest = _mm_sha256msg1_epu32(*oldest, w[(i + 1) % 4]);
        *oldest = _mm_add_epi32(*oldest,
                                _mm_alignr_epi8(newest, w[(i + 2) % 4], 4));
        *oldest = _mm_sha256msg2_epu32(*oldest, newest);
    }
    abef = _mm_add_epi32(abef, first_abef);
    cdgh = _mm_add_epi32(cdgh, first_cdgh);
    abef = _mm_shuffle_epi32(abef, 0x1b); /* feba */
    cdgh = _mm_shuffle_epi32(cdgh, 0xb1); /* dchg */
    _mm_storeu_si128((__m128i *)(void *)&state[0],
                     _mm_blend_epi16(abef, cdgh, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)&state[4],
                     _mm_alignr_epi8(cdgh, abef, 8));
}

static atomic_int cpu_sha; /* 0: not asked yet; 1: no; 2: yes */

/* Asked once: in a virtual machine the answer takes longer than the hash. */
static bool
cpu_has_sha(void)
{
    int known = atomic_load_explicit(&cpu_sha, memory_order_relaxed);

    if (known == 0) {
        unsigned a, b, c, d;
        bool     has = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) &&
                   (c & bit_SSSE3) && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
                   (b & bit_SHA);

        known = has ? 2 : 1;
        atomic_store_explicit(&cpu_sha, known, memory_order_relaxed);
    }
    return known == 2;
}
#endif

void
umi_sha256_use_plain(void)
{
#if defined(__x86_64__)
    atomic_store_explicit(&cpu_sha, 1, memory_order_relaxed);
#endif
}

static void
sha_compress(uint32_t state[8], const uint8_t block[SHA_BLOCK])
{
#if defined(__x86_64__)
    if (cpu_has_sha()) {
        sha_compress_cpu(state, block);
        return;
    }
#endif
    sha_compress_plain(state, block);
}

static void
sha_init(sha256 *sha)
{
    static const uint32_t initial[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };

    memcpy(sha->state, initial, sizeof(initial));
    sha->total = 0;
}

static void
sha_update(sha256 *sha, const void *data, size_t len)
{
    const uint8_t *bytes = (const uint8_t *)data;

    while (len > 0) {
        size_t used = sha->total % SHA_BLOCK;
        size_t take = SHA_BLOCK - used;

        if (take > len) {
            take = len;
        }
        memcpy(sha->block + used, bytes, take);
        bytes += take;
        len -= take;
        sha->total += take;
        if (used + take == SHA_BLOCK) {
            sha_compress(sha->state, sha->block);
        }
    }
}

static void
sha_final(sha256 *sha, uint8_t digest[UMI_SHA256_SIZE])
{
    static const uint8_t padding[SHA_BLOCK] = {0x80};

    uint64_t bits   = __builtin_bswap64(sha->total * 8);
    size_t   used   = sha->total % SHA_BLOCK;
    size_t   before = SHA_BLOCK - sizeof(bits); /* where the length goes */

    sha_update(sha, padding,
               (used < before ? before : before + SHA_BLOCK) - used);
    sha_update(sha, &bits, sizeof(bits));
    for (int i = 0; i < 8; i++) {
        uint32_t word = __builtin_bswap32(sha->state[i]);

        memcpy(digest + 4 * i, &word, sizeof(word));
    }
}

void
umi_sha256(const void *data, size_t len, uint8_t digest[UMI_SHA256_SIZE])
{
    sha256 sha;

    sha_init(&sha);
    sha_update(&sha, data, len);
    sha_final(&sha, digest);
}

/* ---- HMAC-SHA-256 ---- */

/* H(key ^ pad | data); `key` is a whole block. */
static void
hmac_pass(const uint8_t key[SHA_BLOCK], uint8_t pad, const void *data,
          size_t len, uint8_t digest[UMI_SHA256_SIZE])
{
    sha256  sha;
    uint8_t padded[SHA_BLOCK];

    for (int i = 0; i < SHA_BLOCK; i++) {
        padded[i] = key[i] ^ pad;
    }
    sha_init(&sha);
    sha_update(&sha, padded, sizeof(padded));
    sha_update(&sha, data, len);
    sha_final(&sha, digest);
    explicit_bzero(padded, sizeof(padded));
}

void
umi_hmac_sha256(const uint8_t *key, size_t key_len, const void *data,
                size_t len, uint8_t mac[UMI_SHA256_SIZE])
{
    uint8_t block[SHA_BLOCK] = {0};
    uint8_t inner[UMI_SHA256_SIZE];

    if (key_len > SHA_BLOCK) {
        umi_sha256(key, key_len, block);
    } else if (key_len > 0) {
        memcpy(block, key, key_len);
    }
    hmac_pass(block, 0x36, data, len, inner);
    hmac_pass(block, 0x5c, inner, sizeof(inner), mac);
    explicit_bzero(block, sizeof(block));
}

/* ---- comparing, random bytes ---- */

bool
umi_equal_constant_time(const void *a, const void *b, size_t len)
{
    const uint8_t   *x    = (const uint8_t *)a;
    const uint8_t   *y    = (const uint8_t *)b;
    volatile uint8_t diff = 0; /* volatile: no early exit */

    for (size_t i = 0; i < len; i++) {
        diff |= x[i] ^ y[i];
    }
    return diff == 0;
}

bool
umi_random_bytes(void *data, size_t len)
{
    uint8_t *pos = (uint8_t *)data;

    while (len > 0) {
        ssize_t got = getrandom(pos, len, 0);

        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return false;
        }
        pos += got;
        len -= (size_t)got;
    }
    return true;
}
