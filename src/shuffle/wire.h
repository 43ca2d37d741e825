/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.h: what ranks of a shuffle send each other. Bytes only. Numbers are
 * little-endian.
 *
 * A message is a header, `acks` u16 | flags u16, and records after it:
 *
 *   KEY       1 u8 | id u32 | length u16 | key of a memory
 *   CHUNK     2 u8 | id u64 | partition u32 | key u32 | offset u64 | length u64
 *   INLINE    3 u8 | partition u32 | length u32 | bytes
 *   FINISHED  4 u8 | partition u32; UMX_PARTITION_ALL: all that the receiver
 *             owns
 *   TAKEN     5 u8 | id u64: the chunk can be read without its sender
 *   RELEASED  6 u8 | id u64: nobody reads the chunk any more
 *   FORGET    7 u8 | key u32
 *
 * `acks` messages with records have been read since the last message. */
#ifndef UMI_SHUFFLE_WIRE_H
#define UMI_SHUFFLE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/bytes.h"

enum {
    UMI_SHUFFLE_HEADER_SIZE = 4,
    UMI_SHUFFLE_CHUNK_SIZE  = 33,
    UMI_SHUFFLE_SMALL_SIZE = 9 /* of the other records without bytes, or less */
};

typedef enum umi_shuffle_record_kind {
    UMI_SHUFFLE_RECORD_KEY = 1,
    UMI_SHUFFLE_RECORD_CHUNK,
    UMI_SHUFFLE_RECORD_INLINE,
    UMI_SHUFFLE_RECORD_FINISHED,
    UMI_SHUFFLE_RECORD_TAKEN,
    UMI_SHUFFLE_RECORD_RELEASED,
    UMI_SHUFFLE_RECORD_FORGET
} umi_shuffle_record_kind;

typedef struct umi_shuffle_record {
    uint8_t        kind; /* umi_shuffle_record_kind */
    uint32_t       partition;
    uint32_t       key;
    uint64_t       id; /* of a chunk */
    uint64_t       offset;
    uint64_t       len;  /* of a chunk, or of ... */
    const uint8_t *data; /* ... what follows; not owned */
} umi_shuffle_record;

/* Bytes of a record. */
size_t umi_shuffle_record_size(const umi_shuffle_record *record);

/* Write a record, which has to fit. */
void umi_shuffle_record_encode(const umi_shuffle_record *record, umi_writer *w);

/* Read the next one. False: it is none. */
bool umi_shuffle_record_decode(umi_shuffle_record *record, umi_reader *r);

#endif
