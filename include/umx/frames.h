/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file frames.h  Many buffers and a header as one message.
 *
 * Frames have channels of their own, 0 to 65535, beside those of umx/channel.h:
 * each an ordered sequence with a queue of whole messages. Small frames are
 * copied together; large ones go from and to the memory that is given, without a
 * copy in between. The receiver learns sizes and header before it needs memory.
 * Thread: the worker's owner.
 */
#ifndef UMX_FRAMES_H
#define UMX_FRAMES_H

#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    UMX_FRAMES_HEADER_MAX = 65536 /* bytes */
};

typedef struct umx_frame {
    size_t  len;       /* bytes */
    bool    is_device; /* it was sent from memory of a GPU */
    uint8_t place;     /* the library's */
} umx_frame;

/**
 * The frames of a message, as far as they are known before its bytes are
 * received.
 */
typedef struct umx_frames_info {
    size_t           count;
    const umx_frame *frames;
    size_t           len; /* bytes of all frames */
    const void      *header;
    size_t           header_len;
} umx_frames_info;

/**
 * Send `header` (copied; may be empty) and `count` buffers as one message. The
 * array is read during the call only, the memory is lent until completion.
 * Sends on one channel keep their order, and a message's frames stay together.
 *
 * Cancelling withdraws a message of which nothing has been posted.
 * @return as umx_channel_send(); UMX_ERR_OUT_OF_RANGE for a header longer than
 *         UMX_FRAMES_HEADER_MAX; UMX_ERR_EXCEEDS_LIMIT for more frames or bytes
 *         than umx_config allows
 */
UMX_API UMX_MUST_CHECK umx_status
umx_frames_send(umx_ep *ep, uint16_t channel, const void *header,
                size_t header_len, const umx_buffer *buffers, size_t count,
                const umx_op_params *params, umx_request **req_p);

/** Fill `buffers`, one for each frame and at least as long, for the message in
 * `info`; what it does not fill has no bytes. A failure ends the receive with
 * that status, and the message returns to its queue. Runs in (P) calls. */
typedef umx_status (*umx_frames_alloc_fn)(const umx_frames_info *info,
                                          umx_buffer *buffers, void *arg);

/** The target of umx_frames_recv(): where the frames go. */
typedef struct umx_frames_target {
    umx_frames_alloc_fn alloc; /* or NULL: `buffers` */
    void               *arg;
    const umx_buffer   *buffers; /* lent like the memory */
    size_t              count;
} umx_frames_target;

/**
 * Receive the next message. Always UMX_INPROGRESS if it returns no failure. On
 * UMX_OK umx_request_message() in `on_done` is the message, without bytes but
 * with umx_message_frames(), and the caller's: umx_message_drop() it, or
 * umx_message_unrecv_frames().
 *
 * More frames than `buffers`, or a longer one: nothing is written, and
 * UMX_ERR_MESSAGE_TRUNCATED; the length that umx_request_info() tells is that of
 * all frames. The message is for the next receive. If it does not suffice,
 * either, the message is dropped, as umx_channel_recv() says. A receive that is
 * cancelled returns the message, whatever has been written.
 * @return UMX_INPROGRESS, or a failure as umx_channel_recv()
 */
UMX_API UMX_MUST_CHECK umx_status
umx_frames_recv(umx_ep *ep, uint16_t channel, const umx_frames_target *target,
                const umx_op_params *params, umx_request **req_p);

/**
 * Take the next message off the queue without its bytes; returns as
 * umx_channel_recv_message(). The caller owns the message:
 * umx_message_recv_frames(), umx_message_return() or umx_message_drop() go on.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_frames_recv_message(umx_ep *ep, uint16_t channel,
                        const umx_op_params *params, umx_request **req_p,
                        umx_message **message_p);

/**
 * umx_frames_recv_message() of a message whose frames fit into `buffers`, which
 * are lent until completion, and not written. What becomes of one that does not
 * fit is as for umx_frames_recv(): UMX_ERR_MESSAGE_TRUNCATED, in `on_done`.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_frames_recv_fitting(umx_ep *ep, uint16_t channel, const umx_buffer *buffers,
                        size_t count, const umx_op_params *params,
                        umx_request **req_p, umx_message **message_p);

/**
 * Tell what frames a message has; valid until the message is given back. NULL:
 * no frames.
 */
UMX_API const umx_frames_info *umx_message_frames(const umx_message *message);

/** True if all bytes have come and are in the library's memory. */
UMX_API bool umx_message_has_frames(const umx_message *message);

/**
 * Copy the frames out, as umx_message_recv_frames() would, and leave the
 * message as it is. UMX_ERR_INVALID_PARAM unless umx_message_has_frames().
 * Thread: any, one at a time.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_message_copy_frames(const umx_message *message, const umx_buffer *buffers,
                        size_t count);

/**
 * Receive the bytes into `buffers`, at least one for each frame and as long
 * (else UMX_ERR_BUFFER_TOO_SMALL). The array is lent like the memory. A receive
 * that is cancelled returns the message to its queue; one that fails after it
 * has begun drops the message.
 *
 * @param[in,out] message_p  set to NULL if the call has taken the message over;
 *                           else the caller still owns it, and has to give it
 *                           back. After UMX_INPROGRESS, umx_request_message()
 *                           in and after `on_done` is the message if the caller
 *                           owns it again, or NULL
 */
UMX_API UMX_MUST_CHECK umx_status
umx_message_recv_frames(umx_message **message_p, const umx_buffer *buffers,
                        size_t count, const umx_op_params *params,
                        umx_request **req_p);

/** Put a message that was received into `buffers` back where it was in the
 * queue, by copy. Consumes the handle. */
UMX_API void umx_message_unrecv_frames(umx_message      *message,
                                       const umx_buffer *buffers);

#ifdef __cplusplus
}
#endif
#endif
