/* SPDX-License-Identifier: BSD-3-Clause */
/* post.h: what every UCX operation shares. Thread: the worker's owner. */
#ifndef UMI_POST_H
#define UMI_POST_H

#include <string.h>

#include "keys/memh.h"
#include "mem/memtype.h"
#include "worker/link.h"
#include "worker/worker.h"

/* Tell UCX the registration that `buf` names, if it is of the context of UCX in
 * which the operation is. For a layout UCX would take it, too, where it means
 * nothing; and staged bytes are not in it. */
static inline void
umi_post_memh(ucp_request_param_t *params, const umx_request *req,
              const umx_buffer *buf)
{
    const umx_memh   *memh   = buf->memh;
    const umi_engine *engine = (req->ep != NULL) ? req->ep->engine :
                                                   req->worker->engine;

    if (memh != NULL && memh->ucp != NULL && buf->layout == NULL &&
        memh->ucx == engine->ucx && umi_memh_covers(memh, buf)) {
        params->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        params->memh = memh->ucp;
    }
}

/* User data, and what is known of the buffer's memory but its registration:
 * umi_post_memory(). */
static inline void
umi_post_params(ucp_request_param_t *params, umx_request *req)
{
    params->op_attr_mask = UCP_OP_ATTR_FIELD_USER_DATA |
                           UCP_OP_ATTR_FIELD_CALLBACK;
    params->user_data = req;
    if (req->buf.memtype != UMX_MEMTYPE_UNKNOWN) {
        params->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        params->memory_type = umi_ucs_memtype(req->worker->context,
                                              req->buf.memtype);
    }
}

/* ---- memory --------------------------------------------------------------
 */

/* True if UCX gets the memory by a datatype: the memory is not contiguous, or
 * no hardware could read it by itself. Memory that nobody has told the kind of
 * may be a device's. */
static inline bool
umi_post_is_movable(const umx_request *req, bool has_hardware)
{
    return req->gather != NULL || req->buf.layout != NULL ||
           ((umi_context_is_host_buffer(req->worker->context, &req->buf) ||
             umi_memtype_is_device(&req->buf)) &&
            req->buf.len != 0 && !has_hardware);
}

/* True if UCX is to move memory of a device by itself: what it is given of one
 * does not go through channels. */
static inline bool
umi_post_is_for_ucx(const umx_request *req)
{
    return umi_memtype_is_device(&req->buf) && req->worker->context->moves_cuda;
}

/* Choose what UCX is given for the memory: see worker/datatype.h. */
static inline void *
umi_post_memory(umx_request *req, ucp_request_param_t *params, size_t *count_p,
                bool has_hardware)
{
    *count_p        = req->buf.len;
    req->is_movable = umi_post_is_movable(req, has_hardware);
    if (!req->is_movable) {
        umi_post_memh(params, req, &req->buf);
        return req->buf.data;
    }
    params->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE |
                            UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params->datatype    = req->worker->datatypes.movable;
    params->memory_type = UCS_MEMORY_TYPE_HOST;
    *count_p            = 1;
    return req;
}

/* ---- few bytes -----------------------------------------------------------
 */

/* True if the bytes are so few that UCX sends them from its caller's memory, if
 * it can send them at once. */
static inline bool
umi_post_is_short(const umx_request *req)
{
    return req->buf.len <= UMI_INJECT_MAX && req->gather == NULL &&
           req->buf.layout == NULL &&
           umi_context_is_host_buffer(req->worker->context, &req->buf);
}

/* A call of UCX that sends `len` bytes for `req`. */
typedef ucs_status_ptr_t (*umi_post_send_fn)(umx_request *req, const void *data,
                                             size_t                     len,
                                             const ucp_request_param_t *params,
                                             const void                *arg);

/* Send few bytes: from where they are, or if UCX cannot send them at once, from
 * a copy, or as it sends more. */
static inline __attribute__((always_inline)) ucs_status_ptr_t
umi_post_short(umx_request *req, ucp_request_param_t *params,
               umi_post_send_fn send, const void *arg)
{
    size_t           len = req->buf.len;
    ucs_status_ptr_t result;
    void            *data;

    params->op_attr_mask |= UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    result = send(req, req->buf.data, len, params, arg);
    if (result != UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE)) {
        return result;
    }
    params->op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    if (len == 0) {
        return send(req, NULL, 0, params, arg);
    }
    if (len > UMI_SMALL_SIZE) {
        data = umi_post_memory(req, params, &len, req->ep->link->has_hardware);
        return send(req, data, len, params, arg);
    }
    req->small = umi_pool_get(&req->worker->smalls);
    if (req->small == NULL) {
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    memcpy(req->small, req->buf.data, len);
    return send(req, req->small, len, params, arg);
}

/* ---- what UCX says -------------------------------------------------------
 */

/* Translate what UCX's callback says of `req`. UCX's endpoint may outlive one
 * that was cut off for a while: what UCX completes meanwhile ends as if it were
 * cancelled. */
static inline umx_status
umi_post_status(const umx_request *req, ucs_status_t status)
{
    if (status == UCS_OK && req->memory_status != UMX_OK) {
        return (umx_status)req->memory_status;
    }
    return (status == UCS_OK && req->ep != NULL && req->ep->is_cut) ?
               UMX_ERR_CANCELED :
               umi_ep_status(status);
}

/* UCX's callbacks of an operation of ours that sends, and of one that receives
 * bytes. */
static inline void
umi_post_on_sent(void *request, ucs_status_t status, void *arg)
{
    ucp_request_free(request);
    umi_request_complete(arg, umi_post_status(arg, status));
}

static inline void
umi_post_on_received(void *request, ucs_status_t status, size_t len, void *arg)
{
    (void)len;
    umi_post_on_sent(request, status, arg);
}

/* Translate what UCX's *_nbx call returned into a status; a request in UCX's
 * hands goes on `list`. */
static inline umx_status
umi_post_result(umx_request *req, ucs_status_ptr_t result, umi_list *list)
{
    if (result == NULL) {
        return UMX_OK;
    }
    if (UCS_PTR_IS_ERR(result)) {
        return umi_ep_status(UCS_PTR_STATUS(result));
    }
    req->worker->is_armed = false;
    if (req->status != UMX_INPROGRESS) {
        return UMX_INPROGRESS; /* the callback has run: on the done list */
    }
    umi_request_posted(req);
    umi_list_append(list, &req->node);
    return UMX_INPROGRESS;
}

#endif
