/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* near.h: what the two sides of a ring of short messages say to each other
 * (near/near.h). Both are on one host: numbers are in its order. Bytes only.
 *
 *   note  receiver's endpoint u64 | ring u64 | kind u32 | segment i32 |
 *         flags u32 | longest message u32
 *
 *   kind    says
 *   OPEN    will you read the ring in that segment? (segment, longest message)
 *   ACCEPT  I do (flags)
 *   REFUSE  I do not
 *   CLOSE   nothing comes through the ring any more
 *   WAKE    there is something in the ring of somebody who has announced that
 *           he sleeps
 *
 * `ring` is a random number, not 0, which OPEN gives a ring and all others but
 * WAKE repeat. What a kind does not use is 0. A peer is sent notes if it has
 * said UMI_FEATURE_NEAR. Thread: any. */
/* clang-format on */
#ifndef UMI_CODEC_NEAR_H
#define UMI_CODEC_NEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <umx/context.h>

typedef enum umi_near_kind {
    UMI_NEAR_OPEN = 1,
    UMI_NEAR_ACCEPT,
    UMI_NEAR_REFUSE,
    UMI_NEAR_CLOSE,
    UMI_NEAR_WAKE
} umi_near_kind;

enum {
    /* The receiver executes a membarrier before it sleeps. */
    UMI_NEAR_IS_ORDERED = 1u << 0
};

typedef struct umi_near_note {
    uint64_t endpoint;
    uint64_t ring;
    uint32_t kind; /* umi_near_kind */
    int32_t  segment;
    uint32_t flags;
    uint32_t max;
} umi_near_note;

_Static_assert(sizeof(umi_near_note) == 32, "wire format");

/* Decode a note. False unless it is what our library sends. */
bool umi_codec_near_decode(umi_near_note *note, const void *data, size_t len);

#endif
