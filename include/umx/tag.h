/**
 * @file tag.h  UCX's own tag matching: 64-bit tags shared by all endpoints of a
 * worker, apart from the channels. Thread: the worker's owner.
 */
#ifndef UMX_TAG_H
#define UMX_TAG_H

#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Send `buf` with `tag` to the worker of the peer. Returns as
 * umx_channel_send(). */
UMX_API UMX_MUST_CHECK umx_status
umx_tag_send(umx_ep *ep, uint64_t tag, const umx_buffer *buf,
             const umx_op_params *params, umx_request **req_p);

/** Receive from any peer of `worker`. A longer message completes with
 * UMX_ERR_MESSAGE_TRUNCATED. `ep` may be NULL; otherwise the receive fails when
 * that endpoint does. */
UMX_API UMX_MUST_CHECK umx_status
umx_tag_recv(umx_worker *worker, umx_ep *ep, uint64_t tag, uint64_t mask,
             const umx_buffer *buf, const umx_op_params *params,
             umx_request **req_p, umx_recv_info *info);

#ifdef __cplusplus
}
#endif
#endif
