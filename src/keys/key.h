/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* key.h: encode and decode the key of a memory, which its owner gives to peers
 * by whatever way it likes. Little-endian:
 *
 *   magic u32 | version u16 | flags u16 | context u64 | memory u64 |
 *   address u64 | length u64 | segment i32 | rkey_len u16 | rkey |
 *   place u32, with UMI_KEY_SLAB only | check u64
 *
 * `context` and `memory` are random numbers, so that a key finds its own memory
 * or none. `check` is a hash of all before it: UCX does not survive damaged
 * bytes of its own, `rkey`. Bytes only; links nothing of UCX. Thread: any. */
/* clang-format on */
#ifndef UMI_KEY_H
#define UMI_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UMI_KEY_MAGIC 0x4b584d55u /* "UMXK" */
#define UMI_KEY_VERSION 1

enum {
    UMI_KEY_READONLY = 1u << 0,
    UMI_KEY_SEGMENT  = 1u << 1, /* `segment` can be mapped */
    UMI_KEY_SLAB     = 1u << 2, /* and is a slab: the memory is at `place` */

    UMI_RKEY_MAX = 4096,
    UMI_KEY_MIN  = 54, /* bytes of a key without rkey and place */
    UMI_KEY_MAX  = UMI_KEY_MIN + UMI_RKEY_MAX + 4
};

typedef struct umi_key {
    uint16_t       flags;
    uint64_t       context; /* id of the owner's */
    uint64_t       memory;  /* id there; not 0 */
    uint64_t       address; /* at the owner */
    uint64_t       length;
    int32_t        segment; /* System V's number; 0 without UMI_KEY_SEGMENT */
    uint32_t       place; /* of the header in a slab; 0 without UMI_KEY_SLAB */
    uint16_t       rkey_len;
    const uint8_t *rkey; /* leads into the decoded bytes */
} umi_key;

/* Write `key` to `data`, which holds UMI_KEY_MAX bytes. Returns the number of
 * bytes; 0 if the rkey is too long. */
size_t umi_key_encode(const umi_key *key, uint8_t *data);

/* Decode a key. False for anything that umi_key_encode() has not written. */
bool umi_key_decode(umi_key *key, const void *data, size_t len);

#endif
