/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* header.h: the bytes in front of every data message.
 *
 *   0     1      2        4      8              16             24
 *   | kind | flags | channel |  seq  |  endpoint   |     tag     |
 *
 * Little-endian; `endpoint` is the number that the receiver has given it in
 * the handshake: all connections between two workers share one of UCX's.
 * Without a tag (UNTAGGED) it ends before that: with 8 bytes of data such a
 * message is within one cache line of UCX's queue in shared memory, which is a
 * fifth of its latency. It travels as UCX's active message header, with id
 * UMI_AM_DATA. Frozen in wire version 2. */
/* clang-format on */
#ifndef UMI_CODEC_HEADER_H
#define UMI_CODEC_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <umx/am.h>

/* Active messages' ids in the layer below are ops/am.h's. In ours, which go as
 * UMI_AM_DATA, 0 to 15 are the library's, 16 to 65535 the user's. */
enum {
    UMI_AM_USER = 16
};

/* The kinds of channels; each kind has 65536 of its own. */
enum {
    UMI_KIND_MESSAGE = 1, /* umx/channel.h */
    UMI_KIND_AM      = 2, /* umx/am.h: the channel is the AM id */
    UMI_KIND_STREAM  = 3, /* umx/stream.h */
    UMI_KIND_FRAMES  = 4  /* umx/frames.h */
};

/* AM ids of the library's own, of 1 to 15: rma.h. */
enum {
    UMI_AM_ID_RMA_REQUEST = 1,
    UMI_AM_ID_RMA_REPLY   = 2
};

/* Name a channel as the library and the control messages do: kind << 16 |
 * number. */
static inline uint32_t
umi_header_channel_id(unsigned kind, uint16_t number)
{
    return ((uint32_t)kind << 16) | number;
}

#define UMI_CHANNEL_0 ((uint32_t)UMI_KIND_MESSAGE << 16)
#define UMI_CHANNEL_REQUESTS \
    (((uint32_t)UMI_KIND_AM << 16) | UMI_AM_ID_RMA_REQUEST)
#define UMI_CHANNEL_REPLIES \
    (((uint32_t)UMI_KIND_AM << 16) | UMI_AM_ID_RMA_REPLY)

#define UMI_STREAM_0 ((uint32_t)UMI_KIND_STREAM << 16)

/* Active messages of a program that needs no ids: UMX_AM_ID_PLAIN is 0. */
#define UMI_CHANNEL_PLAIN_AM ((uint32_t)UMI_KIND_AM << 16)

static inline bool
umi_header_channel_id_is_valid(uint32_t id)
{
    return (id >> 16) >= UMI_KIND_MESSAGE && (id >> 16) <= UMI_KIND_FRAMES;
}

enum {
    UMI_FLAG_UNTAGGED = 1u << 0,
    UMI_FLAG_DEVICE   = 1u << 1, /* sent from memory of a GPU */
    UMI_FLAG_RESERVE  = 1u << 2  /* of the channel's reserve: credit.c */
};

typedef struct umi_header {
    uint8_t  kind;
    uint8_t  flags;
    uint16_t channel;
    uint32_t seq;
    uint64_t endpoint;
    uint64_t tag; /* 0 if UNTAGGED */
} umi_header;

#define UMI_HEADER_MIN 16
#define UMI_HEADER_MAX 24
_Static_assert(sizeof(umi_header) == UMI_HEADER_MAX &&
                   offsetof(umi_header, endpoint) == 8,
               "wire format");

/* Compute the bytes of a header on the wire. */
static inline size_t
umi_header_size(uint8_t flags)
{
    return (flags & UMI_FLAG_UNTAGGED) ? UMI_HEADER_MIN : UMI_HEADER_MAX;
}

/* Decode a header. False if `len` is not a header's, or kind or flags are not
 * known. Behind the header comes the user's header, if the kind may have one.
 */
static inline bool
umi_header_decode(umi_header *header, const void *data, size_t len)
{
    size_t size;

    if (len < UMI_HEADER_MIN) {
        return false;
    }
    memcpy(header, data, UMI_HEADER_MIN);
    size        = umi_header_size(header->flags);
    header->tag = 0;
    if (len < size || len > size + UMX_AM_HEADER_MAX ||
        (len != size && header->kind != UMI_KIND_AM)) {
        return false;
    }
    if (size == UMI_HEADER_MAX) {
        memcpy(&header->tag, (const char *)data + UMI_HEADER_MIN,
               sizeof(header->tag));
    }
    return umi_header_channel_id_is_valid(
               umi_header_channel_id(header->kind, header->channel)) &&
           (header->flags &
            ~(UMI_FLAG_UNTAGGED | UMI_FLAG_DEVICE | UMI_FLAG_RESERVE)) == 0;
}

/* Serial-number order: how far `a` is ahead of `b`; negative if behind. */
static inline int32_t
umi_seq_diff(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b);
}

#endif
