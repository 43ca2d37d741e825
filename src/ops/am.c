/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/am.h"

#include "ops/post.h"
#include "worker/link.h"

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
               .way = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) ? &umi_way_rndv :
                                                                        &umi_way_eager,
               .can_keep = (param->recv_attr & (UCP_AM_RECV_ATTR_FLAG_RNDV |
                                         UCP_AM_RECV_ATTR_FLAG_DATA)) != 0,
               .reply_ep = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) ?
                               param->reply_ep :
                               NULL,
    };

    switch (handler->fn(handler->worker, &arrival)) {
    case UMI_AM_KEPT:
        return UCS_INPROGRESS;
    case UMI_AM_REFUSED:
        return umi_am_is_at_hand(&arrival) ? UCS_OK : UCS_ERR_CANCELED;
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

/* What differs between the messages of one size. */
typedef struct message {
    unsigned    id;
    const void *header;
    size_t      header_len;
} message;

static inline ucs_status_ptr_t
call_send(umx_request *req, const void *data, size_t count,
          const ucp_request_param_t *params, const void *arg)
{
    const message *what = arg;

    return ucp_am_send_nbx(req->ep->handle, what->id, what->header,
                           what->header_len, data, count, params);
}

umx_status
umi_am_send(umx_request *req, unsigned id, const void *header,
            size_t header_len, bool is_rndv)
{
    const message       what = {id, header, header_len};
    void               *data;
    size_t              count;
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
    params.cb.send = umi_post_on_sent;
    if (!is_rndv && umi_post_is_short(req)) {
        result = umi_post_short(req, &params, call_send, &what);
    } else {
        data   = umi_post_memory(req, &params, &count,
                                 req->ep->link->has_hardware);
        result = call_send(req, data, count, &params, &what);
    }
    umi_memory_leave(&req->buf);
    return umi_post_result(req, result, &req->ep->inflight);
}

umx_status
umi_am_inject(const umi_ep_base *ep, unsigned id, const void *header,
              size_t header_len, const void *data, size_t len)
{
    static const ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
        .flags       = UCP_AM_SEND_FLAG_EAGER,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };

    return (ucp_am_send_nbx(ep->handle, id, header, header_len, data, len,
                            &params) == NULL) ?
               UMX_OK :
               UMX_INPROGRESS;
}

umx_status
umi_am_recv(umx_request *req, void *desc, size_t len)
{
    void               *data;
    size_t              count;
    umx_status          status;
    ucs_status_ptr_t    result;
    ucp_request_param_t params;

    status = umi_memory_enter(&req->buf);
    if (status != UMX_OK) {
        return status;
    }
    umi_post_params(&params, req);
    params.cb.recv_am = umi_post_on_received;
    data = umi_post_memory(req, &params, &count, req->ep->link->has_hardware);
    if (!req->is_movable) {
        count = len;
    }
    result = ucp_am_recv_data_nbx(req->ep->engine->ucp, desc, data, count,
                                  &params);
    umi_memory_leave(&req->buf);
    return umi_post_result(req, result, &req->ep->inflight);
}

void
umi_am_release(const umi_ep_base *ep, void *data)
{
    ucp_am_data_release(ep->engine->ucp, data);
}

const umi_way umi_way_eager = {.release = umi_am_release};

const umi_way umi_way_rndv = {
    .is_announced = true,
    .recv         = umi_am_recv,
    .release      = umi_am_release,
};
