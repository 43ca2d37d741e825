/* SPDX-License-Identifier: BSD-3-Clause */
/* elsewhere.c: a layer gives the buffer back into which the bytes of a message
 * land. The message stays the layer's: unlike one whose receive is cancelled
 * (give_back.c) it does not return to the channel, whose handler would count it
 * again. */
#include "channel/tagged.h"

static umx_status
defer(umx_request *req)
{
    umi_request_defer(req);
    umi_endpoint_defer(umi_endpoint_of(req->ep));
    return UMX_INPROGRESS;
}

umx_status
umi_recv_move(umx_request *req, bool is_forced, umi_spare **copy_p)
{
    size_t     len = req->info.length;
    umx_status status;

    status = umi_request_copy(req, len, umi_request_num_moved(req, len),
                              is_forced);
    if (status == UMX_INPROGRESS) {
        return defer(req);
    }
    if (status == UMX_OK) {
        *copy_p = umi_request_take_spare(req);
    }
    return status;
}

umx_status
umi_recv_drop(umx_request *req)
{
    if (req->is_done || umi_request_is_detached(req)) {
        return UMX_OK;
    }
    if (!umi_request_void(req)) {
        return defer(req);
    }
    if (req->status == UMX_INPROGRESS) {
        umi_request_detach(req);
    }
    return UMX_OK;
}
