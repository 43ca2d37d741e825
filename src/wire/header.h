/* header.h: the 24 bytes in front of every data message.
 *
 *   0     1      2        4      8              16             24
 *   | kind | flags | channel |  seq  |     tag     |  endpoint   |
 *
 * Little-endian; `endpoint` is the number that the receiver has given it in
 * the handshake: all connections between two workers share one of UCX's.
 * It travels as UCX's active message header, with id UMI_AM_DATA. Frozen in
 * wire version 1. */
#ifndef UMI_HEADER_H
#define UMI_HEADER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Active message ids. 0 to 15 are ours, 16 to 65535 the user's. */
enum {
    UMI_AM_DATA    = 0,
    UMI_AM_CONTROL = 1,
    UMI_AM_USER    = 16
};

enum {
    UMI_KIND_MESSAGE = 1 /* a whole message of a channel */
};

enum {
    UMI_FLAG_UNTAGGED = 1u << 0
};

typedef struct umi_header {
    uint8_t  kind;
    uint8_t  flags;
    uint16_t channel;
    uint32_t seq;
    uint64_t tag;
    uint64_t endpoint;
} umi_header;

#define UMI_HEADER_SIZE 24
_Static_assert(sizeof(umi_header) == UMI_HEADER_SIZE, "wire format");

/* False if `len` is not a header's or kind or flags are not known. */
static inline bool
umi_header_decode(umi_header *header, const void *data, size_t len)
{
    if (len != UMI_HEADER_SIZE) {
        return false;
    }
    memcpy(header, data, UMI_HEADER_SIZE);
    return header->kind == UMI_KIND_MESSAGE &&
           (header->flags & ~UMI_FLAG_UNTAGGED) == 0;
}

/* Serial-number order: how far `a` is ahead of `b`; negative if behind. */
static inline int32_t
umi_seq_diff(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b);
}

#endif
