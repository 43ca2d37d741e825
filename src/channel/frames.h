/* SPDX-License-Identifier: BSD-3-Clause */
/* frames.h: messages of many buffers, over channels of kind FRAMES.
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
 * choice (frames_send.c); receivers take any. Frozen in wire version 1.
 *
 * In `unexpected` heads and parts wait side by side, in order. A receive takes
 * the head; while parts are missing that message is the channel's `open` one,
 * and what comes next is a part of it. Thread: the worker's owner. */
#ifndef UMI_CHANNEL_FRAMES_H
#define UMI_CHANNEL_FRAMES_H

#include <umx/frames.h>

#include "mem/gather.h"
#include "channel/channel.h"

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

typedef struct umi_frames_limits {
    uint32_t frames;
    uint64_t bytes;
} umi_frames_limits;

/* A head, decoded, and what has come of its message. */
typedef struct umi_frames {
    umx_frames_info info;   /* `header` is in the head's bytes */
    umx_frame      *frames; /* `own`, or of malloc */
    const uint8_t  *packed; /* bytes of the frames in the head */
    size_t          num_parts;
    size_t          num_missing; /* of these have not come */
    umi_list        parts;       /* which have, unread */
    size_t          next;        /* the frame that the next one begins with */
    umx_request    *reader;      /* bytes go to its buffers; or NULL */
    bool            is_read;     /* nothing is left to receive */
    bool            is_dropped;  /* parts are dropped as they come */
    bool            is_cut;      /* those that are missing never come */
    umx_buffer     *buffers;     /* that umx_frames_recv() had made; or NULL */
    umx_frame       own[UMI_FRAMES_INLINE];
} umi_frames;

/* ---- frames.c -------------------------------------------------------
 */

/* What is wrong with it, or NULL; `data` must live as long as `frames`, which
 * umi_frames_fini() ends. */
const char *umi_frames_decode(umi_frames *frames, const void *data, size_t len,
                              const umi_frames_limits *limits);
void        umi_frames_fini(umi_frames *frames);

/* No head that is allowed is longer. */
size_t umi_frames_head_max(const umi_frames_limits *limits);

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

/* The part that begins with frame `first` or the next that begins one. */
void umi_frames_part(const umi_frames *frames, size_t first, umi_part *part);

/* ---- frames_queue.c: messages as they come ------------------------------- */

static inline bool
umi_channel_is_frames(const umi_channel *channel)
{
    return channel->id >> 16 == UMI_KIND_FRAMES;
}

/* umi_channel_offer() and umi_channel_fail_posted() of frames. */
void umi_frames_offer(umi_channel *channel, umx_message *message);
void umi_frames_fail_posted(umi_channel *channel, umx_status status);

/* For cut.c: the first message in the queue of which not all is here, or
 * `none`; can a message in the user's hands still lose bytes; the parts that
 * the open message misses never come. */
uint64_t umi_frames_first_broken(umi_channel *channel, uint64_t none);
bool     umi_frames_is_unsafe(const umx_message *head);
void     umi_frames_cut_open(umi_channel *channel, umx_status status);

/* UMI_DUE_FRAMES: something has come that a receive waits for. */
void umi_frames_run(umx_ep *ep);

/* Hand out what there is. */
void umi_frames_advance(umi_channel *channel);

/* Of a message that is taken: umx_message_return(), umx_message_drop(). */
void umi_frames_return(umx_message *message);
void umi_frames_drop(umx_message *message);

/* umi_message_free() of a head: with parts and all. */
void umi_frames_free(umx_message *message);

/* The worker, and with it the announcements, is gone. */
void umi_frames_orphan(umx_message *message);

/* The next head, off the queue, with the parts that are there; NULL if there is
 * none yet. */
umx_message *umi_frames_take(umi_channel *channel);

/* A taken message back into the queue; what has been read of it comes from
 * `buffers`. */
void umi_frames_put_back(umx_message *message, const umx_buffer *buffers);

/* ---- frames_recv.c: bytes ------------------------------------------------
 */

extern const umi_request_ops umi_frames_recv_ops;

/* It has got a message. */
void umi_frames_got(umx_request *req, umx_message *message);

/* A part has come for it. */
void umi_frames_read_part(umx_request *req, umx_message *message,
                          const umi_part *part);

/* No part is missing any more, or none will come. */
void umi_frames_check_read(umx_request *req);

/* Is it a part of a message, on its way to memory of the user's? `*place_p` is
 * where the message is. */
bool umi_frames_is_landing(const umi_channel *channel, const umx_request *req,
                           uint64_t *place_p);

/* The connection ends: so does it. */
void umi_frames_fail(umx_request *req, umx_status status);

#endif
