/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/am.h"

#include <string.h>

#include "core/link.h"
#include "ops/post.h"

enum {
    UMI_SHORT_MAX = UMI_SMALL_SIZE
};

static ucs_status_t
on_arrival(void *arg, const void *header, size_t header_len, void *data,
           size_t len, const ucp_am_recv_param_t *param)
{
    const umi_am_handler *handler = arg;
    umi_am_arrival        arrival = {
               .header     = header,
               .header_len = header_len,
               .data       = data,
               .len        = len,
               .is_rndv  = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0,
               .can_keep = (param->recv_attr & (UCP_AM_RECV_ATTR_FLAG_RNDV |
                                         UCP_AM_RECV_ATTR_FLAG_DATA)) != 0,
    };

    switch (handler->fn(handler->worker, &arrival)) {
    case UMI_AM_KEPT:
        return UCS_INPROGRESS;
    case UMI_AM_REFUSED:
        return arrival.is_rndv ? UCS_ERR_CANCELED : UCS_OK;
    case UMI_AM_CONSUMED:
        break;
    }
    return UCS_OK;
}

static umx_status
set_handler(umi_engine *engine, unsigned id)
{
    ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                      UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG |
                      UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
        .id    = id,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb    = on_arrival,
        .arg   = &engine->worker->am_handlers[id],
    };

    return (umx_status)ucp_worker_set_am_recv_handler(engine->ucp, &param);
}

umx_status
umi_am_set_handler(umx_worker *worker, unsigned id, umi_am_fn fn)
{
    umi_am_handler *handler;

    if (id >= UMI_AM_HANDLERS) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    handler         = &worker->am_handlers[id];
    handler->worker = worker;
    handler->fn     = fn;
    return set_handler(worker->engine, id);
}

umx_status
umi_am_copy_handlers(umi_engine *engine)
{
    umx_status status = UMX_OK;

    for (unsigned id = 0; id < UMI_AM_HANDLERS && status == UMX_OK; id++) {
        if (engine->worker->am_handlers[id].fn != NULL) {
            status = set_handler(engine, id);
        }
    }
    return status;
}

static int
refuse(umx_worker *worker, const umi_am_arrival *arrival)
{
    (void)worker;
    (void)arrival;
    return UMI_AM_REFUSED;
}

void
umi_am_refuse_all(umx_worker *worker)
{
    for (unsigned id = 0; id < UMI_AM_HANDLERS; id++) {
        worker->am_handlers[id].fn = refuse;
    }
}

/* ---- sending and receiving -----------------------------------------------
 */

/* True if UCX gets the memory by a datatype: the memory is not contiguous, or it
 * is the host's, and no hardware could read it by itself. */
static bool
is_movable(const umx_request *req)
{
    return req->gather != NULL || req->buf.layout != NULL ||
           (umi_is_of_host(req->worker->context, &req->buf) &&
            req->buf.len != 0 && !req->ep->link->has_hardware);
}

/* Choose what UCX is given for the memory: see core/datatype.h. */
static void *
choose_memory(umx_request *req, ucp_request_param_t *params, size_t *count_p)
{
    req->is_movable = is_movable(req);
    if (!req->is_movable) {
        umi_post_memh(params, req->worker, &req->buf);
        return req->buf.data;
    }
    params->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    params->datatype = req->worker->context->movable;
    *count_p         = 1;
    return req;
}

static void
on_sent(void *request, ucs_status_t status, void *arg)
{
    ucp_request_free(request);
    umi_request_complete(arg, umi_post_status(arg, status));
}

/* True if the bytes are so few that UCX sends them from its caller's memory, if
 * it can send them at once. */
static bool
is_short(const umx_request *req)
{
    return req->buf.len <= UMI_SHORT_MAX && req->gather == NULL &&
           req->buf.layout == NULL &&
           umi_is_of_host(req->worker->context, &req->buf);
}

/* Send few bytes: from where they are, or from a copy if UCX cannot send them at
 * once. */
static ucs_status_ptr_t
send_short(umx_request *req, unsigned id, const void *header, size_t header_len,
           ucp_request_param_t *params)
{
    ucs_status_ptr_t result;

    params->op_attr_mask |= UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    result = ucp_am_send_nbx(req->ep->handle, id, header, header_len,
                             req->buf.data, req->buf.len, params);
    if (result != UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE)) {
        return result;
    }
    params->op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    req->small = umi_pool_get(&req->worker->smalls);
    if (req->small == NULL) {
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    if (req->buf.len != 0) {
        memcpy(req->small, req->buf.data, req->buf.len);
    }
    return ucp_am_send_nbx(req->ep->handle, id, header, header_len, req->small,
                           req->buf.len, params);
}

umx_status
umi_am_send(umx_request *req, unsigned id, const void *header,
            size_t header_len, bool is_rndv)
{
    void               *data;
    size_t              count = req->buf.len;
    umx_status          status;
    ucs_status_ptr_t    result;
    ucp_request_param_t params;

    status = umi_memory_enter(&req->buf);
    if (status != UMX_OK) {
        return status;
    }
    umi_post_params(&params, req);
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    params.flags   = is_rndv ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
    params.cb.send = on_sent;
    if (!is_rndv && is_short(req)) {
        result = send_short(req, id, header, header_len, &params);
    } else {
        data   = choose_memory(req, &params, &count);
        result = ucp_am_send_nbx(req->ep->handle, id, header, header_len, data,
                                 count, &params);
    }
    umi_memory_leave(&req->buf);
    return umi_post_result(req, result, &req->ep->inflight);
}

static void
on_received(void *request, ucs_status_t status, size_t len, void *arg)
{
    (void)len;
    ucp_request_free(request);
    umi_request_complete(arg, umi_post_status(arg, status));
}

umx_status
umi_am_recv(umx_request *req, void *desc, size_t len)
{
    void               *data;
    umx_status          status;
    ucs_status_ptr_t    result;
    ucp_request_param_t params;

    status = umi_memory_enter(&req->buf);
    if (status != UMX_OK) {
        return status;
    }
    umi_post_params(&params, req);
    params.cb.recv_am = on_received;
    data              = choose_memory(req, &params, &len);
    result = ucp_am_recv_data_nbx(req->ep->engine->ucp, desc, data, len,
                                  &params);
    umi_memory_leave(&req->buf);
    return umi_post_result(req, result, &req->ep->inflight);
}

void
umi_am_release(const umi_ep_base *ep, void *data)
{
    ucp_am_data_release(ep->engine->ucp, data);
}
