/* SPDX-License-Identifier: BSD-3-Clause */
/* post.h: what every UCX operation shares. Thread: the worker's owner. */
#ifndef UMI_POST_H
#define UMI_POST_H

#include "core/memh.h"
#include "core/worker.h"
#include "mem/memtype.h"

/* Tell UCX the registration that `buf` names. For a layout UCX would take it,
 * too, where it means nothing; and staged bytes are not in it. */
static inline void
umi_post_memh(ucp_request_param_t *params, const umx_worker *worker,
              const umx_buffer *buf)
{
    const umx_memh *memh = buf->memh;

    if (memh != NULL && memh->ucp != NULL && buf->layout == NULL &&
        memh->context == worker->context && umi_memh_covers(memh, buf)) {
        params->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        params->memh = memh->ucp;
    }
}

/* User data, and what is known of the buffer's memory but its registration. */
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

/* Translate what UCX's callback says of `req`. UCX's endpoint may outlive one
 * that was cut off for a while: what UCX completes meanwhile ends as if it were
 * cancelled. */
static inline umx_status
umi_post_status(const umx_request *req, ucs_status_t status)
{
    return (status == UCS_OK && req->ep != NULL && req->ep->is_cut) ?
               UMX_ERR_CANCELED :
               umi_ep_status(status);
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
    req->is_posted = true;
    umi_list_append(list, &req->node);
    return UMX_INPROGRESS;
}

/* umi_request_ops.cancel of what UCX cannot take back: it is only taken off
 * umi_ep_base.waiting. */
static inline void
umi_post_cancel(umx_request *req)
{
    if (!req->is_posted) {
        umi_request_cancel_queued(req);
    }
}

#endif
