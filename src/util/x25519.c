/* SPDX-License-Identifier: BSD-3-Clause */
/* Written after RFC 7748 for being read: it runs once for each pair of workers.
 *
 * A number modulo p = 2^255 - 19 is five limbs of 51 bits, the lowest first.
 * Limbs may be a little larger than that between operations: add() gives up to
 * 2^53, sub() up to 2^54, and mul() takes such limbs without overflow of its
 * 128 bits. Only store() makes the number itself smaller than p. */
#include "util/x25519.h"

#include <string.h>

#include "util/bytes.h"
#include "util/hash.h"

__extension__ typedef unsigned __int128 u128;

#define LIMB_BITS 51
#define LIMB_MASK ((UINT64_C(1) << LIMB_BITS) - 1)

typedef struct number {
    uint64_t limbs[5];
} number;

static const number one = {{1}};

static number
load(const uint8_t bytes[UMI_X25519_SIZE])
{
    umi_reader r;
    uint64_t   w[4];
    number     n;

    umi_reader_init(&r, bytes, UMI_X25519_SIZE);
    for (int i = 0; i < 4; i++) {
        w[i] = umi_read_u64(&r);
    }
    n.limbs[0] = w[0] & LIMB_MASK;
    n.limbs[1] = (w[0] >> 51 | w[1] << 13) & LIMB_MASK;
    n.limbs[2] = (w[1] >> 38 | w[2] << 26) & LIMB_MASK;
    n.limbs[3] = (w[2] >> 25 | w[3] << 39) & LIMB_MASK;
    n.limbs[4] = (w[3] >> 12) & LIMB_MASK; /* the top bit does not count */
    return n;
}

static void
carry(number *n)
{
    for (int i = 0; i < 4; i++) {
        n->limbs[i + 1] += n->limbs[i] >> LIMB_BITS;
        n->limbs[i] &= LIMB_MASK;
    }
    n->limbs[0] += 19 * (n->limbs[4] >> LIMB_BITS);
    n->limbs[4] &= LIMB_MASK;
}

static void
store(number n, uint8_t bytes[UMI_X25519_SIZE])
{
    umi_writer w;
    uint64_t   is_large;

    carry(&n);
    carry(&n); /* now below 2^255, but maybe not below p */
    is_large = (n.limbs[0] + 19) >> LIMB_BITS;
    for (int i = 1; i < 5; i++) {
        is_large = (n.limbs[i] + is_large) >> LIMB_BITS;
    }
    n.limbs[0] += 19 * is_large; /* minus p, as the bits above 255 go */
    for (int i = 0; i < 4; i++) {
        n.limbs[i + 1] += n.limbs[i] >> LIMB_BITS;
        n.limbs[i] &= LIMB_MASK;
    }
    n.limbs[4] &= LIMB_MASK;
    umi_writer_init(&w, bytes, UMI_X25519_SIZE);
    umi_write_u64(&w, n.limbs[0] | n.limbs[1] << 51);
    umi_write_u64(&w, n.limbs[1] >> 13 | n.limbs[2] << 38);
    umi_write_u64(&w, n.limbs[2] >> 26 | n.limbs[3] << 25);
    umi_write_u64(&w, n.limbs[3] >> 39 | n.limbs[4] << 12);
}

static number
add(number a, number b)
{
    for (int i = 0; i < 5; i++) {
        a.limbs[i] += b.limbs[i];
    }
    return a;
}

/* 4 p is added, so that no limb falls below 0. */
static number
sub(number a, number b)
{
    a.limbs[0] += 4 * (LIMB_MASK - 18) - b.limbs[0];
    for (int i = 1; i < 5; i++) {
        a.limbs[i] += 4 * LIMB_MASK - b.limbs[i];
    }
    return a;
}

/* Limbs of a product, brought back to about 51 bits. */
static number
reduce(u128 sums[5])
{
    number n;

    for (int i = 0; i < 4; i++) {
        sums[i + 1] += sums[i] >> LIMB_BITS;
        n.limbs[i] = (uint64_t)sums[i] & LIMB_MASK;
    }
    n.limbs[4] = (uint64_t)sums[4] & LIMB_MASK;
    n.limbs[0] += 19 * (uint64_t)(sums[4] >> LIMB_BITS);
    n.limbs[1] += n.limbs[0] >> LIMB_BITS;
    n.limbs[0] &= LIMB_MASK;
    return n;
}

/* Multiply. What exceeds 2^255 comes back 19 times, as 2^255 = 19 modulo p. */
static number
mul(number a, number b)
{
    u128 sums[5];

    for (int i = 0; i < 5; i++) {
        u128 low = 0, high = 0;

        for (int j = 0; j <= i; j++) {
            low += (u128)a.limbs[j] * b.limbs[i - j];
        }
        for (int j = i + 1; j < 5; j++) {
            high += (u128)a.limbs[j] * b.limbs[5 + i - j];
        }
        sums[i] = low + 19 * high;
    }
    return reduce(sums);
}

static number
mul_small(number a, uint32_t factor)
{
    u128 sums[5];

    for (int i = 0; i < 5; i++) {
        sums[i] = (u128)a.limbs[i] * factor;
    }
    return reduce(sums);
}

/* a^(p-2), which is 1/a: all bits of p - 2 = 2^255 - 21 but 2 and 4 are set. */
static number
invert(number a)
{
    number result = one;

    for (int bit = 254; bit >= 0; bit--) {
        result = mul(result, result);
        if (bit != 2 && bit != 4) {
            result = mul(result, a);
        }
    }
    return result;
}

/* Swap `a` and `b` if `is_swap`, which is 0 or 1, without a branch. */
static void
swap(uint64_t is_swap, number *a, number *b)
{
    for (int i = 0; i < 5; i++) {
        uint64_t x = (0 - is_swap) & (a->limbs[i] ^ b->limbs[i]);

        a->limbs[i] ^= x;
        b->limbs[i] ^= x;
    }
}

/* The Montgomery ladder of RFC 7748, section 5, in its names. */
static void
multiply(const uint8_t scalar[UMI_X25519_SIZE],
         const uint8_t point[UMI_X25519_SIZE], uint8_t out[UMI_X25519_SIZE])
{
    uint8_t  k[UMI_X25519_SIZE];
    number   x1 = load(point), x2 = one, z2 = {{0}}, x3 = x1, z3 = one;
    uint64_t swapped = 0;

    memcpy(k, scalar, sizeof(k));
    k[0] &= 248;
    k[31] = (k[31] & 127) | 64;
    for (int t = 254; t >= 0; t--) {
        uint64_t bit = (k[t / 8] >> t % 8) & 1;
        number   a, aa, b, bb, e, da, cb;

        swap(swapped ^ bit, &x2, &x3);
        swap(swapped ^ bit, &z2, &z3);
        swapped = bit;
        a       = add(x2, z2);
        aa      = mul(a, a);
        b       = sub(x2, z2);
        bb      = mul(b, b);
        e       = sub(aa, bb);
        da      = mul(sub(x3, z3), a);
        cb      = mul(add(x3, z3), b);
        x3      = add(da, cb);
        x3      = mul(x3, x3);
        z3      = sub(da, cb);
        z3      = mul(x1, mul(z3, z3));
        x2      = mul(aa, bb);
        z2      = mul(e, add(aa, mul_small(e, 121665)));
    }
    swap(swapped, &x2, &x3);
    swap(swapped, &z2, &z3);
    store(mul(x2, invert(z2)), out);
    explicit_bzero(k, sizeof(k));
}

void
umi_x25519_public(const uint8_t secret[UMI_X25519_SIZE],
                  uint8_t       key[UMI_X25519_SIZE])
{
    static const uint8_t base[UMI_X25519_SIZE] = {9};

    multiply(secret, base, key);
}

bool
umi_x25519_shared(const uint8_t secret[UMI_X25519_SIZE],
                  const uint8_t key[UMI_X25519_SIZE],
                  uint8_t       shared[UMI_X25519_SIZE])
{
    static const uint8_t none[UMI_X25519_SIZE];

    multiply(secret, key, shared);
    return !umi_equal_constant_time(shared, none, sizeof(none));
}
