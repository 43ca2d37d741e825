/* SPDX-License-Identifier: BSD-3-Clause */
/* elsewhere.c: a layer gives the buffer back into which the bytes of a message
 * land. The message stays the layer's: unlike one whose receive is cancelled
 * (give_back.c) it does not return to the channel, whose handler would count it
 * again. */
#include "channel/tagged.h"
#include "mem/memtype.h"

/* True if UCX, or hardware, has the memory itself; or if the bytes are to be
 * copied from elsewhere into it. */
static bool
is_fixed(const umx_request *req)
{
    return umi_landing_of(req)->staged != NULL ||
           (req->is_posted && !req->is_movable);
}

/* How many bytes have landed. */
static size_t
num_landed(const umx_request *req)
{
    if (req->status != UMX_INPROGRESS || req->moved > req->info.length) {
        return req->info.length;
    }
    return req->moved;
}

static umx_status
defer(umx_request *req)
{
    req->is_deferred = true;
    umi_endpoint_defer(umi_endpoint_of(req->ep));
    return UMX_INPROGRESS;
}

umx_status
umi_recv_move(umx_request *req, bool is_forced, umi_spare **copy_p)
{
    size_t     len = req->info.length;
    umi_spare *copy;
    umx_status status;

    if (is_fixed(req)) {
        return defer(req);
    }
    status = umi_spare_new(req->worker, len, is_forced, &copy);
    if (status == UMX_INPROGRESS) {
        return defer(req);
    }
    if (status != UMX_OK) {
        return status;
    }
    status = umi_copy_out(&req->buf, copy->bytes, num_landed(req));
    if (status != UMX_OK) {
        umi_spare_free(copy);
        return status;
    }
    umi_request_drop_buffer(req);
    req->buf = umx_host_buffer(copy->bytes, len);
    *copy_p  = copy;
    return UMX_OK;
}

umx_status
umi_recv_drop(umx_request *req)
{
    if (req->is_done || req->is_detached) {
        return UMX_OK;
    }
    if (umi_landing_of(req)->staged != NULL) {
        req->is_void = true; /* what is staged goes nowhere */
    } else if (!umi_request_void(req)) {
        return defer(req);
    }
    if (req->status == UMX_INPROGRESS) {
        umi_request_detach(req);
    }
    return UMX_OK;
}
