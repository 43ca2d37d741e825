/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* frames.h: heads of messages of many buffers. Bytes only.
 *
 * A message is one HEAD, then the PARTs that it names; each travels as a
 * message of its channel, with a seq, credit and a protocol of its own.
 *
 *   HEAD   count varint | header length varint | count entries, each a varint |
 *          the user's header | bytes of the frames that are in the head
 *   PART   bytes of one frame, or of several
 *   entry  length << 3 | place << 1 | sent from memory of a GPU
 *   place  0 in the head; 1 first in the next part; 2 in the last part so far
 *   varint 7 bits a byte, low ones first, the top bit if more follow; shortest
 *          form only, so at most 10 bytes
 *
 * A frame without bytes is in the head. Which frame goes where is the sender's
 * choice (channel/frames_send.c); receivers take any. Frozen in wire version 1.
 * Thread: any. */
/* clang-format on */
#ifndef UMI_CODEC_FRAMES_H
#define UMI_CODEC_FRAMES_H

#include <umx/frames.h>

enum {
    UMI_FRAMES_INLINE     = 16,         /* frames without memory of their own */
    UMI_FRAMES_PACKED_MAX = 256 * 1024, /* bytes of frames in a head */
    UMI_VARINT_MAX        = 10          /* bytes */
};

enum {
    UMI_FRAME_IN_HEAD = 0,
    UMI_FRAME_BEGINS  = 1,
    UMI_FRAME_GOES_ON = 2
};

typedef struct umi_frame_limits {
    uint32_t frames;
    uint64_t bytes;
} umi_frame_limits;

/* A head, decoded. */
typedef struct umi_frame_head {
    umx_frames_info info;   /* `header` is in the head's bytes */
    umx_frame      *frames; /* `own`, or of malloc */
    const uint8_t  *packed; /* bytes of the frames in the head */
    size_t          num_parts;
    umx_frame       own[UMI_FRAMES_INLINE];
} umi_frame_head;

/* Decode a head. Returns what is wrong with it, or NULL; `data` must live as
 * long as `head`, which umi_frame_head_fini() ends. */
const char *umi_frame_head_decode(umi_frame_head *head, const void *data,
                                  size_t len, const umi_frame_limits *limits);
void        umi_frame_head_fini(umi_frame_head *head);

/* Compute the length of the longest head that `limits` allow. */
size_t umi_frame_head_max(const umi_frame_limits *limits);

size_t   umi_varint_size(uint64_t value);
uint8_t *umi_varint_write(uint8_t *pos, uint64_t value);

static inline uint64_t
umi_frame_entry(size_t len, unsigned place, bool is_device)
{
    return ((uint64_t)len << 3) | (place << 1) | is_device;
}

/* The frames of a part: those in the head between them are not. */
typedef struct umi_part {
    size_t first;
    size_t end; /* the one after the last */
    size_t count;
    size_t len; /* bytes */
} umi_part;

/* Find the part that begins with frame `first`, or with the next frame that
 * begins one. */
void umi_frame_part(const umi_frame_head *head, size_t first, umi_part *part);

#endif
