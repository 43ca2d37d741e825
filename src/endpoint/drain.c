/* SPDX-License-Identifier: BSD-3-Clause */
/* drain.c: waiting until what was sent and is not complete has become less. */
#include "endpoint/endpoint.h"

typedef struct drain {
    uint64_t low;
} drain;

UMI_REQUEST_TAIL(drain, drain_of);

static const umi_request_ops drain_ops = {
    .name   = "drain",
    .cancel = umi_request_cancel_queued,
};

void
umi_drain_check(umx_ep *ep)
{
    UMI_LIST_FOREACH_SAFE(node, &ep->drainers) {
        umx_request *req = umi_container_of(node, umx_request, node);

        if (ep->pending_bytes <= drain_of(req)->low) {
            umi_request_complete(req, UMX_OK);
        }
    }
}

umx_status
umx_ep_drain(umx_ep *ep, uint64_t low, const umx_op_params *params,
             umx_request **req_p)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    umx_request *req;
    umx_status   status = umi_endpoint_check(ep);

    if (status != UMX_OK) {
        return status;
    }
    if (ep->state == UMX_EP_FAILED) {
        return ep->error;
    }
    umi_ep_base_flush_gathered(&ep->base, false);
    if (ep->pending_bytes <= low) {
        return UMX_OK;
    }
    req = umi_request_new(ep->base.worker, &ep->base, &drain_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->buf           = (umx_buffer){0};
    drain_of(req)->low = low;
    umi_list_append(&ep->drainers, &req->node);
    *req_p = req;
    return UMX_INPROGRESS;
}

uint64_t
umx_ep_pending_bytes(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ep->pending_bytes;
}
