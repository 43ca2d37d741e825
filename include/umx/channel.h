/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file channel.h  Messages between the two ends of an endpoint.
 *
 * A channel is an ordered sequence of messages, with a queue; 0 to 65535, 0 is
 * what Python's send/recv use, others exist on first use. Matching is by
 * (tag, mask) in order of posting and of sending. Thread: the worker's owner.
 */
#ifndef UMX_CHANNEL_H
#define UMX_CHANNEL_H

#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

enum umx_match_flags {
    UMX_MATCH_UNTAGGED = 1u << 0, /* send: no tag. recv: untagged only */
    UMX_MATCH_ANY      = 1u << 1, /* recv: the next message whatever its tag */
    UMX_MATCH_EXACT    = 1u << 2  /* recv: a shorter message does not fit
                                     either: UMX_ERR_LENGTH_MISMATCH */
};

typedef struct umx_match {
    uint64_t tag;
    uint64_t mask; /* recv: bits of `tag` that count; send: ignored */
    uint32_t flags;
} umx_match;

/**
 * Send all of `buf` as one message.
 *
 * Returns UMX_OK if `buf` may be reused already (short messages). Without
 * credit from the peer it waits inside the library.
 * @return UMX_OK, UMX_INPROGRESS, UMX_ERR_CLOSED, UMX_ERR_PEER_CLOSED, the
 *         status of a failed endpoint, UMX_ERR_CHANNEL_LIMIT (as many other
 *         channels are in use as the peer accepts: umx_ep_channels_max()),
 *         UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status
umx_channel_send(umx_ep *ep, uint16_t channel, const umx_match *match,
                 const umx_buffer *buf, const umx_op_params *params,
                 umx_request **req_p);

/**
 * Receive the next matching message of at most `buf->len` bytes. If it is
 * longer, the receive ends: nothing is written, UMX_ERR_MESSAGE_TRUNCATED and
 * the length in `info` say so. The message is for the next receive that matches,
 * whether that is posted already or later. If it does not fit that one, either,
 * it is dropped: a line of the log says so, its send completes as if it had been
 * received, and the receive takes the message behind it. So a program that goes
 * on after the error is told of each message once. A receive that is cancelled
 * before its message comes does not count; one that gets the message and gives
 * it back makes it a new one.
 *
 * @param[out] info  written on UMX_OK and on UMX_ERR_MESSAGE_TRUNCATED /
 *                   UMX_ERR_LENGTH_MISMATCH; else umx_request_info()
 * @return as umx_channel_send()
 */
UMX_API UMX_MUST_CHECK umx_status
umx_channel_recv(umx_ep *ep, uint16_t channel, const umx_match *match,
                 const umx_buffer *buf, const umx_op_params *params,
                 umx_request **req_p, umx_recv_info *info);

/**
 * Put a message that a completed umx_channel_recv() left in `buf` back where
 * it was in the queue, by copy: for a receiver that was cancelled after
 * completion. `info` is what the receive reported.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_channel_unrecv(umx_ep *ep, uint16_t channel, const umx_recv_info *info,
                   const umx_buffer *buf);

/**
 * Keep only the last `count` of the messages, and of the messages of frames, of
 * a channel that nobody has received; 0: all of them, as at first. Earlier ones
 * are dropped as newer ones come, whatever their tags are. All count as read
 * when they come: `count` bounds them, and no umx_window or credit does.
 * @return UMX_OK, UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status
umx_channel_keep_last(umx_ep *ep, uint16_t channel, uint32_t count);

/** Look: UMX_OK and `*info`, or UMX_ERR_NO_MESSAGE. Takes nothing. */
UMX_API UMX_MUST_CHECK umx_status umx_channel_probe(umx_ep          *ep,
                                                    uint16_t         channel,
                                                    const umx_match *match,
                                                    umx_recv_info   *info);

/**
 * Take the next matching message off the queue without its bytes, so that the
 * length is known before memory is. On UMX_OK `*message_p`; on UMX_INPROGRESS
 * umx_request_message() in and after `on_done`.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_channel_recv_message(umx_ep *ep, uint16_t channel, const umx_match *match,
                         const umx_op_params *params, umx_request **req_p,
                         umx_message **message_p);

/** The message of a completed umx_channel_recv_message(), which the caller owns;
 * NULL if the operation gives none. */
UMX_API umx_message *umx_request_message(const umx_request *req);

/** Tell tag and length of a message, as long as the caller owns it. */
UMX_API const umx_recv_info *umx_message_info(const umx_message *message);

/** Has its sender cancelled the message before its bytes were asked for? Then
 * umx_message_recv() gives UMX_ERR_WITHDRAWN. */
UMX_API bool umx_message_is_withdrawn(const umx_message *message);

/**
 * Receive the bytes of a message into `buf`, whose length must be at least the
 * message's (else UMX_ERR_BUFFER_TOO_SMALL).
 *
 * @param[in,out] message_p  set to NULL if the call has taken the message over;
 *                           else the caller still owns it. Once it has been
 *                           taken over, a failure means that its bytes are lost
 * @return UMX_OK, UMX_INPROGRESS, UMX_ERR_BUFFER_TOO_SMALL, UMX_ERR_NO_MEMORY,
 *         UMX_ERR_CLOSED, the status of a failed endpoint; UMX_ERR_WITHDRAWN:
 *         the sender has cancelled the message
 */
UMX_API UMX_MUST_CHECK umx_status
umx_message_recv(umx_message **message_p, const umx_buffer *buf,
                 const umx_op_params *params, umx_request **req_p);

/** Put a message back where it was in the queue. Consumes the handle. */
UMX_API void umx_message_return(umx_message *message);

/**
 * Compute a 64-bit tag from bytes: the same tag in every process and version.
 */
UMX_API uint64_t umx_tag_hash(const void *data, size_t len);

#ifdef __cplusplus
}
#endif
#endif
