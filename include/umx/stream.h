/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file stream.h  A byte stream between the two ends of an endpoint, one in
 * each direction, beside its channels.
 *
 * Bytes arrive in order and without boundaries: what one call sent may be
 * received by several, and the other way round. Flow control is as a
 * channel's (umx/channel.h); a long send goes in pieces, so that a slow
 * receiver holds little of it. Thread: the worker's owner.
 */
#ifndef UMX_STREAM_H
#define UMX_STREAM_H

#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Send all of `buf`; nothing if it is empty.
 *
 * Cancelling withdraws a send of which nothing has left yet; any other goes on
 * to its end, for the receiver could not tell where it was cut.
 * @return as umx_channel_send(); UMX_ERR_CLOSED after umx_stream_shutdown(),
 *         too
 */
UMX_API UMX_MUST_CHECK umx_status umx_stream_send(umx_ep              *ep,
                                                  const umx_buffer    *buf,
                                                  const umx_op_params *params,
                                                  umx_request        **req_p);

/** Send the end of the stream behind what was sent: the peer's receives give
 * 0 bytes there. The other direction stays open. UMX_OK, also if called before;
 * a failure as of umx_stream_send(). */
UMX_API UMX_MUST_CHECK umx_status umx_stream_shutdown(umx_ep *ep);

enum umx_stream_flags {
    UMX_STREAM_WAITALL = 1u << 0 /* wait until `buf` is full, or the end */
};

/**
 * Receive what is there, at most `buf->len` bytes; waits for the first of
 * them. `info->length` is how many; 0 is the end of the stream:
 * the peer has shut it down, or has closed gracefully. `info->tag` is the place
 * of the first in the stream.
 *
 * Receives are served in order of posting. Nothing is lost: bytes of one that
 * is cancelled or fails are received by the next.
 * @param[out] info  written on UMX_OK; else umx_request_info()
 * @return UMX_OK, UMX_INPROGRESS, UMX_ERR_CLOSED (this side has closed),
 *         UMX_ERR_INVALID_PARAM, the status of a failed endpoint,
 *         UMX_ERR_NO_MEMORY; what memory of a device refuses
 */
UMX_API UMX_MUST_CHECK umx_status umx_stream_recv(
    umx_ep *ep, const umx_buffer *buf, unsigned flags,
    const umx_op_params *params, umx_request **req_p, umx_recv_info *info);

/**
 * Put the bytes that a completed umx_stream_recv() left in `buf` back to their
 * place in the stream, by copy: for a receiver that was cancelled after
 * completion. `info` is what the receive reported.
 */
UMX_API UMX_MUST_CHECK umx_status umx_stream_unrecv(umx_ep              *ep,
                                                    const umx_recv_info *info,
                                                    const umx_buffer    *buf);

#ifdef __cplusplus
}
#endif
#endif
