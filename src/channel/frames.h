/* SPDX-License-Identifier: BSD-3-Clause */
/* frames.h: messages of many buffers, over channels of kind FRAMES. A message
 * is a head and parts, each a message of its channel; codec/frames.h has the
 * bytes.
 *
 * In `unexpected` heads and parts wait side by side, in order. A receive takes
 * the head; while parts are missing that message is the channel's `open` one,
 * and what comes next is a part of it. Thread: the worker's owner. */
#ifndef UMI_CHANNEL_FRAMES_H
#define UMI_CHANNEL_FRAMES_H

#include "channel/channel.h"
#include "codec/frames.h"

/* A head, decoded, and what has come of its message. */
typedef struct umi_frames {
    size_t         num_missing; /* parts that have not come */
    umi_list       parts;       /* that have, unread */
    size_t         next;        /* the frame that the next one begins with */
    umx_request   *reader;      /* bytes go to its buffers; or NULL */
    bool           is_read;     /* nothing is left to receive */
    bool           is_dropped;  /* parts are dropped as they come */
    bool           is_cut;      /* those that are missing never come */
    umx_buffer    *buffers;     /* that umx_frames_recv() had made; or NULL */
    umi_frame_head head;
} umi_frames;

/* ---- frames_queue.c: messages as they come ------------------------------- */

/* True if a message in the user's hands can still lose bytes. */
bool umi_frames_is_unsafe(const umx_message *head);

/* Compute how many parts belong to a head in the queue; SIZE_MAX if it cannot
 * be read, or is not here. */
size_t umi_frames_count_parts(umi_channel *channel, umx_message *message);

/* End the open message: the parts that it misses never come. */
void umi_frames_cut_open(umi_channel *channel, umx_status status);

/* Hand out what there is. */
void umi_frames_advance(umi_channel *channel);

/* Return or drop a message that is taken, for umx_message_return() and
 * umx_message_drop(). */
void umi_frames_return(umx_message *message);
void umi_frames_drop(umx_message *message);

/* umi_message_free() of a head: with parts and all. */
void umi_frames_free(umx_message *message);

/* The worker, and with it the announcements, is gone. */
void umi_frames_orphan(umx_message *message);

/* The next head, off the queue, with the parts that are there; NULL if there is
 * none yet, or it does not fit the buffers of `target`, if that has any. */
umx_message *umi_frames_take(umi_channel             *channel,
                             const umx_frames_target *target);

/* Put a taken message back into the queue (give_back.c); what has been read of
 * it comes from `buffers`. */
void umi_frames_put_back(umx_message *message, const umx_buffer *buffers);

/* Take the message back from a receive that is cancelled while it reads.
 * Nothing is read from its buffers or written to them any more, and parts that
 * land do so in memory of ours (give_back.c). UMX_INPROGRESS: that cannot be
 * done, or must not. */
umx_status umi_frames_give_back(umx_request *req);

/* A receive. */
typedef struct umi_frames_op {
    umi_assembly        all;
    umx_message        *message; /* NULL: none yet */
    umx_frames_alloc_fn alloc;
    void               *arg;
    const umx_buffer   *buffers;
    size_t              count;
} umi_frames_op;

UMI_REQUEST_TAIL(umi_frames_op, umi_frames_op_of);

enum umi_frames_phase {
    UMI_FRAMES_QUEUED, /* in channel->posted */
    UMI_FRAMES_TAKEN,  /* has the message */
    UMI_FRAMES_READING,
    UMI_FRAMES_COMPLETE
};

/* ---- frames_recv.c: receives ---------------------------------------------
 */

extern const umi_request_ops umi_frames_recv_ops;

/* Give a receive its message. */
void umi_frames_got(umx_request *req, umx_message *message);

/* End a receive: a message does not fit its buffers. */
void umi_frames_refuse(umx_request *req, const umx_message *message);

/* ---- frames_read.c: bytes ------------------------------------------------
 */

extern const umi_request_ops umi_frames_part_ops; /* of a part that lands */

/* Check that the frames fit in `buffers`. */
umx_status umi_frames_check_buffers(const umi_frames *frames,
                                    const umx_buffer *buffers, size_t count);

/* Make a lander for each announced part that has come of the message of `req`.
 * False when out of memory; then there are none. */
bool umi_frames_make_landers(umx_request *req, umi_list *landers);

/* Read what has come of the message. UMX_INPROGRESS: there will be more. On a
 * failure `req` has no message any more. */
umx_status umi_frames_begin(umx_request *req, umi_list *landers);

/* Read a part that has come. */
void umi_frames_read_part(umx_request *req, umx_message *message,
                          const umi_part *part);

/* End the receive if all is read: no part is missing any more, or none will
 * come. */
void umi_frames_check_read(umx_request *req);

/* Fail the receive, once nothing lands any more: the connection ends. */
void umi_frames_fail(umx_request *req, umx_status status);

#endif
