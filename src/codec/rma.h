/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* rma.h: what the two sides of an operation on a peer's memory send each other.
 * Bytes only: little-endian; frozen in wire version 1.
 *
 *   REQUEST  op u8 | flags u8 | atomic u8 | size u8 | 0 u32 | id u64 |
 *            context u64 | memory u64 | offset u64 | length u64 | value u64 |
 *            compare u64; payload of a PUT: the bytes
 *   REPLY    id u64 | value u64 | status i32 | 0 u32; payload of a GET that
 *            went well: the bytes
 *
 * Thread: any. */
/* clang-format on */
#ifndef UMI_CODEC_RMA_H
#define UMI_CODEC_RMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <umx/rma.h>

enum {
    UMI_RMA_PUT    = 1,
    UMI_RMA_GET    = 2,
    UMI_RMA_ATOMIC = 3
};

enum {
    UMI_RMA_FENCE  = 1u << 0, /* only when all before it has been executed */
    UMI_RMA_SIGNAL = 1u << 1  /* only if the one before it went well */
};

typedef struct umi_rma_request {
    uint8_t  op;
    uint8_t  flags;
    uint8_t  atomic; /* umx_atomic_op; 0 unless ATOMIC, like those below */
    uint8_t  size;
    uint32_t zero;
    uint64_t id; /* comes back in the reply */
    uint64_t context;
    uint64_t memory;
    uint64_t offset;
    uint64_t length; /* bytes to move; of the number */
    uint64_t value;
    uint64_t compare;
} umi_rma_request;

typedef struct umi_rma_reply {
    uint64_t id;
    uint64_t value; /* what was there; 0 unless ATOMIC */
    int32_t  status;
    uint32_t zero;
} umi_rma_reply;

_Static_assert(sizeof(umi_rma_request) == 64, "wire format");
_Static_assert(sizeof(umi_rma_reply) == 24, "wire format");

/* Decode a request. False unless it is what our library sends. */
bool umi_codec_rma_request_decode(umi_rma_request *request, const void *data,
                                  size_t len, size_t payload_len);
bool umi_codec_rma_reply_decode(umi_rma_reply *reply, const void *data,
                                size_t len);

#endif
