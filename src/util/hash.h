/* SPDX-License-Identifier: BSD-3-Clause */
/* hash.h: SipHash-2-4 with a fixed key (tags), SHA-256 and HMAC-SHA-256 (the
 * handshake). Pure functions. Thread: any.
 *
 * The time of each function depends on the lengths that it is given only, never
 * on the bytes: there is no branch and no index that depends on them, which
 * test_constant_time.c checks. docs/security.md says why no library is used. */
#ifndef UMI_HASH_H
#define UMI_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UMI_SHA256_SIZE 32

uint64_t umi_siphash(const void *data, size_t len);
void umi_sha256(const void *data, size_t len, uint8_t digest[UMI_SHA256_SIZE]);

/* Use no instructions of the CPU's for SHA-256 from now on: for tests. */
void umi_sha256_use_plain(void);
void umi_hmac_sha256(const uint8_t *key, size_t key_len, const void *data,
                     size_t len, uint8_t mac[UMI_SHA256_SIZE]);
/* Equal? In a time that depends on `len` only. */
bool umi_equal_constant_time(const void *a, const void *b, size_t len);
/* `len` bytes from the system's generator; false if it has none. */
bool umi_random_bytes(void *data, size_t len);

#endif
