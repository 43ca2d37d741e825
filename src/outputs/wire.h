/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.h: what ranks say about windows of files. Bytes only; little-endian.
 * Thread: any.
 *
 *   ASK     1 u8 | to u64 | seq u64 | from u64 | epoch u64 | map u32 |
 *           offset u64: map the part of the file with this byte
 *   ANSWER  2 u8 | to u64 | seq u64 | window u64 | offset u64 | len u64 |
 *           status i32: the payload is the key of a memory with that part
 *   RETURN  3 u8 | to u64 | window u64: it is not read any more
 *
 * `to` and `from` are the numbers that ranks have told each other. */
#ifndef UMI_OUTPUTS_WIRE_H
#define UMI_OUTPUTS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    UMI_OUTPUTS_MESSAGE_MAX = 64 /* bytes */
};

typedef enum umi_outputs_message_kind {
    UMI_OUTPUTS_ASK = 1,
    UMI_OUTPUTS_ANSWER,
    UMI_OUTPUTS_RETURN
} umi_outputs_message_kind;

typedef struct umi_outputs_message {
    uint8_t  kind; /* umi_outputs_message_kind */
    uint32_t map;
    int32_t  status;
    uint64_t to;
    uint64_t from;
    uint64_t seq;
    uint64_t epoch;
    uint64_t window;
    uint64_t offset;
    uint64_t len;
} umi_outputs_message;

/* Write a message; returns its bytes. */
size_t umi_outputs_message_encode(const umi_outputs_message *message,
                                  uint8_t                   *data);

/* Read one. False: it is none. */
bool umi_outputs_message_decode(umi_outputs_message *message, const void *data,
                                size_t len);

#endif
