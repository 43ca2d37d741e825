/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* pack.h: what messages of a umx_message_sender are on the wire.
 *
 * Each message of frames on the channel is one of two, by the first byte of its
 * header:
 *
 *   MESSAGE   kind u8 | metadata; the frames are the buffers
 *   PACK      kind u8 | entries, at least one; no frames
 *   entry     length of metadata u16 | metadata | number of buffers u16 |
 *             a length u16 for each | bytes of the buffers
 *   metadata  items: length of key u8, from 1 on | key, UTF-8 | type u8 |
 *             INT: i64; STR, BYTES: length u16 | bytes; no key twice
 *
 * A pack is a header, which is copied to be sent and lies ready when it has
 * come: neither side keeps memory for it. Thread: any. */
/* clang-format on */
#ifndef UMI_CODEC_PACK_H
#define UMI_CODEC_PACK_H

#include <umx/messenger.h>

#include "util/bytes.h"

enum {
    UMI_MESSAGE_ONE  = 1, /* kinds */
    UMI_MESSAGE_PACK = 2
};

enum {
    UMI_PACK_ENTRY_MAX = 4096, /* bytes; copying more costs more than sending
                                  it by itself */
    UMI_PACK_MAX = 32 * 1024   /* bytes, with the kind: below what goes by
                                  rendezvous */
};

/* A message in a pack. */
typedef struct umi_pack_entry {
    umx_metadata   metadata;
    size_t         num_buffers;
    const uint8_t *lens; /* u16, not aligned */
    const uint8_t *bytes;
    size_t         len; /* of all buffers */
} umi_pack_entry;

static inline size_t
umi_pack_len(const umi_pack_entry *entry, size_t i)
{
    uint16_t len;

    memcpy(&len, entry->lens + 2 * i, sizeof(len));
    return len;
}

/* The next of `r`. What is wrong with it, or NULL. */
const char *umi_pack_read(umi_reader *r, umi_pack_entry *entry);

#endif
