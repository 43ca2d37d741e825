/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file am.h  Active messages: a number, a short header, a payload of any
 * length, and a receiver that may be a function.
 *
 * Each id is an ordered sequence of its own, with flow control as a channel's
 * (umx/channel.h). A message meets a receive that waits for it; else, if its
 * id has a handler, the handler; else it is kept until one of them comes.
 * Thread: the worker's owner.
 */
#ifndef UMX_AM_H
#define UMX_AM_H

#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    UMX_AM_ID_PLAIN   = 0,   /* of a program that needs no ids */
    UMX_AM_ID_MIN     = 16,  /* the user's; 1 to 15 are the library's */
    UMX_AM_HEADER_MAX = 1024 /* bytes */
};

/**
 * Send `header` (copied; may be empty) and all of `buf`. Returns as
 * umx_channel_send(); UMX_ERR_OUT_OF_RANGE if the id is the library's or the
 * header longer than UMX_AM_HEADER_MAX.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_am_send(umx_ep *ep, uint16_t id, const void *header, size_t header_len,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p);

/**
 * Take the next message of that id; returns as umx_channel_recv_message(). The
 * caller owns the message: umx_message_recv(), umx_message_return() or
 * umx_message_drop() ends that.
 *
 * `small`, if not NULL, is host memory for a message that needs no more: one
 * without a header that fits and comes, eagerly, while the receive waits. Then
 * umx_request_message() is NULL and umx_request_info() has its length.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_am_recv(umx_ep *ep, uint16_t id, const umx_buffer *small,
            const umx_op_params *params, umx_request **req_p,
            umx_message **message_p);

/** Look: UMX_OK and `*info`, or UMX_ERR_NO_MESSAGE. Takes nothing. */
UMX_API UMX_MUST_CHECK umx_status umx_am_probe(umx_ep *ep, uint16_t id,
                                               umx_recv_info *info);

/** The callee owns `message`, `ep` is the caller's. Runs in (P) calls. */
typedef void (*umx_am_fn)(umx_ep *ep, umx_message *message, void *arg);

/**
 * Have `fn` called with each message of that id on any endpoint of the worker
 * that no receive waits for, those that wait in queues included. NULL: no
 * handler any more. @return UMX_OK, UMX_ERR_OUT_OF_RANGE, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_worker_set_am_handler(
    umx_worker *worker, uint16_t id, umx_am_fn fn, void *arg);

/** umx_worker_take_am() has a message. Runs in (P) calls. */
typedef void (*umx_am_ready_fn)(umx_worker *worker, uint16_t id, void *arg);

/**
 * Set a handler as umx_worker_set_am_handler() does, but messages wait in their
 * queues until umx_worker_take_am() takes them, or a receive that comes first.
 */
UMX_API UMX_MUST_CHECK umx_status umx_worker_set_am_ready(
    umx_worker *worker, uint16_t id, umx_am_ready_fn fn, void *arg);

/**
 * The next message of an id with umx_worker_set_am_ready(): those of one
 * endpoint in their order. NULL if there is none that can be read. The caller
 * owns the message.
 *
 * @param[out] ep_p  where it has come from; the caller's already
 */
UMX_API umx_message *umx_worker_take_am(umx_worker *worker, uint16_t id,
                                        umx_ep **ep_p);

/** The sender's header; valid until the message is given back. */
UMX_API const void *umx_message_header(const umx_message *message,
                                       size_t            *len_p);

/** The payload where it lies, in host memory, valid until the message is
 * given back, even if its worker goes first; NULL if the bytes are still with
 * the sender (rendezvous): umx_message_recv() gets them. */
UMX_API const void *umx_message_data(const umx_message *message);

/** Put the bytes that umx_message_recv() left in `buf` back where their message
 * was in the queue, by copy, with the header it had. `info` is
 * umx_message_info()'s. */
UMX_API UMX_MUST_CHECK umx_status
umx_message_unrecv(umx_ep *ep, const umx_recv_info *info, const void *header,
                   size_t header_len, const umx_buffer *buf);

/** Drop a message; what was not read is lost. Consumes the handle. */
UMX_API void umx_message_drop(umx_message *message);

#ifdef __cplusplus
}
#endif
#endif
