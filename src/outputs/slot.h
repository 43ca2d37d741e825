/* SPDX-License-Identifier: BSD-3-Clause */
/* slot.h: encode and decode what the table of outputs says of one map. Bytes
 * only; little-endian. Thread: any.
 *
 *   check u64 | epoch u64 | length u64 | rank u32 | kind u8 | flags u8 |
 *   key_len u16 | path_len u16 | zeros u16, u32 | device u64 | inode u64 |
 *   mtime u64 | key | path
 *
 * `check` is a hash of all after it, so that whoever reads a slot while it is
 * written sees that it is none. A slot has places for two: one is written while
 * the other one can be read. What is longer than a place is in a memory of its
 * own, the overflow, whose key stands in the slot:
 *
 *   check u64 | key_len u16 | path_len u16 | key | path
 *
 * An epoch is a number that grows with each commit of the map, and in its lower
 * 16 bits the rank: no two ranks write the same. */
#ifndef UMI_OUTPUTS_SLOT_H
#define UMI_OUTPUTS_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    UMI_OUTPUTS_PLACE        = 256, /* bytes */
    UMI_OUTPUTS_SLOT         = 2 * UMI_OUTPUTS_PLACE,
    UMI_OUTPUTS_FIXED        = 72, /* bytes of a place before key and path */
    UMI_OUTPUTS_ROOM         = UMI_OUTPUTS_PLACE - UMI_OUTPUTS_FIXED,
    UMI_OUTPUTS_KEY_MAX      = 8192,
    UMI_OUTPUTS_PATH_MAX     = 4096,
    UMI_OUTPUTS_OVERFLOW_MIN = 12,
    UMI_OUTPUTS_OVERFLOW_MAX = UMI_OUTPUTS_OVERFLOW_MIN + UMI_OUTPUTS_KEY_MAX +
                               UMI_OUTPUTS_PATH_MAX,
    UMI_OUTPUTS_RANK_BITS = 16,
    /* A flag of slots only: the key is that of the overflow. */
    UMI_OUTPUTS_OVERFLOW = 1u << 7
};

/* Where the output of a map is. */
typedef struct umi_outputs_where {
    uint64_t       epoch;
    uint64_t       len;
    uint32_t       rank;
    uint8_t        kind; /* umx_outputs_kind */
    uint8_t        flags;
    uint16_t       key_len;
    uint16_t       path_len;
    uint64_t       device; /* of a file, as the next two */
    uint64_t       inode;
    uint64_t       mtime_ns;
    const uint8_t *key;  /* not owned, as ... */
    const char    *path; /* ... this one, without a zero at its end */
} umi_outputs_where;

/* Write a place, which has room for key and path. Returns its bytes. */
size_t umi_outputs_slot_encode(const umi_outputs_where *where, uint8_t *place);

/* Read a place. False: it is none, or is being written. */
bool umi_outputs_slot_decode(umi_outputs_where *where, const uint8_t *place);

/* Write an overflow of `umi_outputs_overflow_size()` bytes. */
size_t umi_outputs_overflow_size(const umi_outputs_where *where);
void umi_outputs_overflow_encode(const umi_outputs_where *where, uint8_t *data);

/* Read an overflow: key and path. False: it is none. */
bool umi_outputs_overflow_decode(umi_outputs_where *where, const uint8_t *data,
                                 size_t len);

/* The number of a commit, without the rank. */
static inline uint64_t
umi_outputs_attempt(uint64_t epoch)
{
    return epoch >> UMI_OUTPUTS_RANK_BITS;
}

#endif
