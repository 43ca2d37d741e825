/* SPDX-License-Identifier: BSD-3-Clause */
/* x25519.h: Diffie-Hellman on Curve25519 (RFC 7748): two sides that know each
 * other's public key, and each its own secret one, get the same 32 bytes, which
 * nobody else gets. The time of both functions depends neither on the secret
 * nor on the key: no branch and no index depends on them, which
 * test_constant_time.c checks. Thread: any. */
#ifndef UMI_X25519_H
#define UMI_X25519_H

#include <stdbool.h>
#include <stdint.h>

#define UMI_X25519_SIZE 32

/* The public key of 32 random bytes. */
void umi_x25519_public(const uint8_t secret[UMI_X25519_SIZE],
                       uint8_t       key[UMI_X25519_SIZE]);

/* Compute the secret that both keys share. False if `key` is one of the few
 * with which every secret gives the same. */
bool umi_x25519_shared(const uint8_t secret[UMI_X25519_SIZE],
                       const uint8_t key[UMI_X25519_SIZE],
                       uint8_t       shared[UMI_X25519_SIZE]);

#endif
