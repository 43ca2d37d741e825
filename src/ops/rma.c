/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/rma.h"

#include "ops/post.h"
#include "util/count.h"

static void
on_moved(void *request, ucs_status_t status, void *arg)
{
    umx_request *req = arg;

    ucp_request_free(request);
    if (umi_rma_op_of(req)->status == UMX_OK) {
        umi_rma_op_of(req)->status = umi_post_status(req, status);
    }
    if (UMI_DECREMENT(umi_rma_op_of(req)->num_parts) == 0) {
        umi_request_complete(req, umi_rma_op_of(req)->status);
    }
}

umx_status
umi_post_rma(umx_request *req, ucp_rkey_h rkey, uint64_t address,
             const umx_buffer *buf, bool is_write)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .user_data   = req,
        .cb.send     = on_moved,
        .memory_type = umi_ucs_memtype(req->worker->context, buf->memtype),
    };
    ucp_ep_h         handle = req->ep->handle;
    umx_status       status = umi_memory_enter(buf);
    ucs_status_ptr_t result;

    if (status != UMX_OK) {
        return status;
    }
    umi_post_memh(&params, req, buf);
    result =
        is_write ?
            ucp_put_nbx(handle, buf->data, buf->len, address, rkey, &params) :
            ucp_get_nbx(handle, buf->data, buf->len, address, rkey, &params);
    umi_memory_leave(buf);
    if (result == NULL) {
        return UMX_OK;
    }
    if (UCS_PTR_IS_ERR(result)) {
        return umi_ep_status(UCS_PTR_STATUS(result));
    }
    req->worker->is_armed = false;
    umi_rma_op_of(req)->num_parts++;
    return UMX_INPROGRESS;
}
