/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file tag.h  UCX's own tag matching: 64-bit tags shared by all endpoints of a
 * worker, apart from the channels. Thread: the worker's owner.
 *
 * A message goes to the first receive posted whose `tag` agrees with its own in
 * the bits of `mask`, whichever endpoint it came over; else it is kept for the
 * next one. Nothing bounds what is kept: small messages are taken from a peer
 * whether or not they are read.
 */
#ifndef UMX_TAG_H
#define UMX_TAG_H

#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A message that has come and whose bytes have not been received. */
typedef struct umx_tag_message umx_tag_message;

/**
 * Send `buf` with `tag` to the worker of the peer. On an endpoint that is still
 * connecting it waits for the handshake.
 * @return as umx_channel_send()
 */
UMX_API UMX_MUST_CHECK umx_status
umx_tag_send(umx_ep *ep, uint64_t tag, const umx_buffer *buf,
             const umx_op_params *params, umx_request **req_p);

/**
 * Send as umx_tag_send() does, but done only once the peer has started to
 * receive the message.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_tag_send_sync(umx_ep *ep, uint64_t tag, const umx_buffer *buf,
                  const umx_op_params *params, umx_request **req_p);

/**
 * Receive from any peer of `worker`. A longer message completes with
 * UMX_ERR_MESSAGE_TRUNCATED and is consumed. `ep` may be NULL; otherwise the
 * receive fails when that endpoint does, which may be connecting still. Called
 * after an end that was not ours it receives what has come, else it fails.
 * Cancelled, it takes no message. One that lands, or has landed, is back in its
 * place: receives and probes that could match it wait until all of it is there.
 *
 * @param[out] info  written on UMX_OK and UMX_ERR_MESSAGE_TRUNCATED
 */
UMX_API UMX_MUST_CHECK umx_status
umx_tag_recv(umx_worker *worker, umx_ep *ep, uint64_t tag, uint64_t mask,
             const umx_buffer *buf, const umx_op_params *params,
             umx_request **req_p, umx_recv_info *info);

/**
 * Put a message that a completed receive left in `buf` back where it was among
 * those that are kept, by copy. `info` is what the receive reported.
 */
UMX_API UMX_MUST_CHECK umx_status umx_tag_unrecv(umx_worker          *worker,
                                                 const umx_recv_info *info,
                                                 const umx_buffer    *buf);

/** Look: UMX_OK and `*info`, or UMX_ERR_NO_MESSAGE. Takes nothing. */
UMX_API UMX_MUST_CHECK umx_status umx_tag_probe(umx_worker    *worker,
                                                uint64_t       tag,
                                                uint64_t       mask,
                                                umx_recv_info *info);

/**
 * Done when umx_tag_probe() has something to see: a message has come that no
 * receive took.
 * @param[out] info  written on UMX_OK; else umx_request_info()
 */
UMX_API UMX_MUST_CHECK umx_status
umx_tag_wait(umx_worker *worker, uint64_t tag, uint64_t mask,
             const umx_op_params *params, umx_request **req_p,
             umx_recv_info *info);

/**
 * Take the next matching message that no receive took, without its bytes, so
 * that the length is known before memory is. On UMX_OK `*message_p`; on
 * UMX_INPROGRESS umx_request_tag_message() in and after `on_done`.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_tag_recv_message(umx_worker *worker, uint64_t tag, uint64_t mask,
                     const umx_op_params *params, umx_request **req_p,
                     umx_tag_message **message_p);

/** The message of a completed umx_tag_recv_message(), which the caller owns; NULL
 * if the operation gives none. */
UMX_API umx_tag_message *umx_request_tag_message(const umx_request *req);

/** Tell tag and length of a message, as long as the caller owns it. */
UMX_API const umx_recv_info *
umx_tag_message_info(const umx_tag_message *message);

/**
 * Receive the bytes of a message into `buf`, whose length must be at least the
 * message's (else UMX_ERR_BUFFER_TOO_SMALL). When cancelled, the message is back
 * among those that are kept.
 *
 * @param[in,out] message_p  set to NULL if the call has taken the message over;
 *                           else the caller still owns it
 */
UMX_API UMX_MUST_CHECK umx_status
umx_tag_message_recv(umx_tag_message **message_p, const umx_buffer *buf,
                     const umx_op_params *params, umx_request **req_p);

/**
 * Put a message back where it was among those that are kept. Consumes the
 * handle.
 */
UMX_API void umx_tag_message_return(umx_tag_message *message);

#ifdef __cplusplus
}
#endif
#endif
